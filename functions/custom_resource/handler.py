"""Answers CloudFormation for the custom resources of ``infra/custom_resource.py``.

CloudFormation sends a request with a presigned ``ResponseURL`` and waits until something is put there. For an image build this is
the build itself (``post_build`` of its buildspec), so that no function waits for it.
"""

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

import boto3

Event = Mapping[str, Any]


def handle(event: Event, _context: object) -> None:
    """Entry point of the function."""
    kind = event["ResourceType"].removeprefix("Custom::")
    try:
        if event["RequestType"] == "Delete":
            data: dict[str, str] | None = {}
        else:
            data = _ACTIONS[kind](event)
    except Exception as error:  # the rim: CloudFormation would wait an hour for an answer that never comes
        answer(event, "FAILED", str(error), {})
        raise
    if data is not None:
        answer(event, "SUCCESS", "", data)


def prefix_lists(event: Event) -> dict[str, str]:
    names: dict[str, str] = event["ResourceProperties"]["Names"]
    lists = boto3.client("ec2").describe_managed_prefix_lists(Filters=[{"Name": "prefix-list-name", "Values": list(names.values())}])[
        "PrefixLists"
    ]
    ids = {found["PrefixListName"]: found["PrefixListId"] for found in lists}
    return {service: ids[name] for service, name in names.items()}


def image_build(event: Event) -> None:
    """Start the build and hand it the address to answer to."""
    properties = event["ResourceProperties"]
    variables = {
        "IMAGE_TAG": properties["Tag"],
        "CFN_URL": event["ResponseURL"],
        "CFN_STACK_ID": event["StackId"],
        "CFN_REQUEST_ID": event["RequestId"],
        "CFN_LOGICAL_ID": event["LogicalResourceId"],
    }
    boto3.client("codebuild").start_build(
        projectName=properties["Project"],
        environmentVariablesOverride=[{"name": k, "value": v, "type": "PLAINTEXT"} for k, v in variables.items()],
    )


_ACTIONS: Mapping[str, Any] = {"PrefixLists": prefix_lists, "ImageBuild": image_build}


def answer(event: Event, status: str, reason: str, data: Mapping[str, str]) -> None:
    body = {
        "Status": status,
        "Reason": reason or "See the function's log.",
        "PhysicalResourceId": event.get("PhysicalResourceId", event["LogicalResourceId"]),
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": dict(data),
    }
    request = urllib.request.Request(event["ResponseURL"], json.dumps(body).encode(), {"content-type": ""}, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - CloudFormation's own presigned URL
        pass
