"""Loaded by every Python process of a deployment under test: notes in the file that TWIN_CALLS names which function has asked AWS what.

A line is ``[function, operation, what it is asked of]``, without values: of a record's key only its form. ``tests/twin/calls.py`` reads
the lines.
"""

import json
import os
import re
from typing import Any

_PATH = os.environ.get("TWIN_CALLS")
_written: set[str] = set()


def _form(partition: str) -> str:
    """``T#acme#R#resp_1`` is ``T#*#R#*``: words in capitals are ours, all else names something."""
    return "#".join(word if re.fullmatch(r"[A-Z][A-Z0-9]*", word) else "*" for word in partition.split("#"))


def _forms(partitions: Any) -> list[str]:
    return sorted({_form(each["S"]) for each in partitions})


def _of_records(operation: str, request: Any) -> list[tuple[str, Any]]:
    match operation:
        case "BatchGetItem":
            keys = [key["PK"] for asked in request["RequestItems"].values() for key in asked["Keys"]]
            return [(operation, {"partitions": _forms(keys)})]
        case "BatchWriteItem":
            each = [one for asked in request["RequestItems"].values() for one in asked]
            keys = [(one["PutRequest"]["Item"] if "PutRequest" in one else one["DeleteRequest"]["Key"])["PK"] for one in each]
            return [(operation, {"partitions": _forms(keys)})]
        case "TransactWriteItems":
            # IAM knows no such action: each part is checked as what it does.
            parts = [part for item in request["TransactItems"] for part in item.items()]
            actions = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
            return [(actions[kind], {"partitions": _forms([part.get("Item", part.get("Key"))["PK"]])}) for kind, part in parts]
        case "Query":
            values = [request["ExpressionAttributeValues"][":pk"]]
            return [(operation, {"index": True} if "IndexName" in request else {"partitions": _forms(values)})]
        case _:
            return [(operation, {"partitions": _forms([request.get("Item", request.get("Key"))["PK"]])})]


def _of(service: str, operation: str, request: Any) -> list[tuple[str, Any]]:
    if service == "dynamodb":
        return [(f"dynamodb.{action}", about) for action, about in _of_records(operation, request)]
    about = {"tagged": True} if service == "ecs" and request.get("tags") else {}
    return [(f"{service}.{operation}", about)]


def _note(path: str, service: str, operation: str, request: Any) -> None:
    for asked, about in _of(service, operation, request):
        line = json.dumps([os.environ.get("AWS_LAMBDA_FUNCTION_NAME", ""), asked, about], sort_keys=True) + "\n"
        if line not in _written:
            _written.add(line)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, line.encode())
            os.close(descriptor)


def _install(path: str) -> None:
    from botocore.client import BaseClient

    original = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation: str, request: Any) -> Any:
        _note(path, self.meta.service_model.service_name, operation, request)
        return original(self, operation, request)

    BaseClient._make_api_call = noted  # type: ignore[attr-defined]


if _PATH:
    _install(_PATH)
