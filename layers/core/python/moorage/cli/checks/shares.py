"""The shares of Lambda's concurrency that streams have at a deployment, against what the account has now (``streams_percent``)."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError

from moorage.cli.checks.account import asked
from moorage.cli.checks.findings import Finding, ok, warn

PERCENT_DEFAULT: Final = 50
UNRESERVED_MIN: Final = 100
"""Lambda refuses a reservation that leaves less to all other functions of the account (developer guide, "Reserved concurrency")."""
_STREAMS: Final = ("FunctionsResponses", "FunctionsSocketWork")
"""How the logical ids of the functions begin that hold a stream; the second is there with ``websocket`` alone."""


def findings(client: Callable[[str], Any], settings: Mapping[str, Any]) -> Iterator[Finding]:
    """``settings`` are those of ``cdk.json``. Nothing is found if nothing is deployed yet, or no share is asked for."""
    percent = int(settings.get("streams_percent", PERCENT_DEFAULT))
    if not percent:
        return
    try:
        functions = list(_functions(client, settings.get("name", "moorage")))
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":  # CloudFormation's word for a stack that does not exist
            yield asked("shares of concurrency", partial(_raise, error))
        return
    for logical, name in functions:
        least = int(settings.get("provisioned_concurrency", 0)) if logical.startswith(_STREAMS[0]) else 0
        yield asked("shares of concurrency", partial(_share, client("lambda"), name, percent // len(functions), least))


def share_of(limit: int, unreserved: int, own: int, percent: int, at_least: int) -> int:
    """The share of the deployment's own function (``functions/custom_resource``); 0 if it has none."""
    share = min(limit * percent // 100, unreserved + own - UNRESERVED_MIN)
    return 0 if share < max(UNRESERVED_MIN, at_least) else share


def _functions(client: Callable[[str], Any], stack: str) -> Iterator[tuple[str, str]]:
    for page in client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack):
        for resource in page["StackResourceSummaries"]:
            if resource["ResourceType"] == "AWS::Lambda::Function" and resource["LogicalResourceId"].startswith(_STREAMS):
                yield resource["LogicalResourceId"], resource["PhysicalResourceId"]


def _share(functions: Any, name: str, percent: int, at_least: int) -> Finding:
    account = functions.get_account_settings()["AccountLimit"]
    own = functions.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions", 0)
    limit, unreserved = account["ConcurrentExecutions"], account["UnreservedConcurrentExecutions"]
    share = share_of(limit, unreserved, own, percent, at_least)
    shown = f"{name} has {own or 'no'} reserved of Lambda's {limit} concurrent executions"
    if own == share:
        return ok(shown)
    follows = "It is taken anew each day, and by 'make deploy'."
    if not share:
        advice = f"Others get none of it. {follows} Ask for more at Service Quotas."
        return warn(f"{shown}, and the account has too little to share now", advice)
    if own > share:
        return warn(f"{shown}, and {share} fit now", f"The quota was lowered, or others have reserved more. {follows}")
    return warn(f"{shown}, and could have {share}", f"The quota was raised, or others have given some back. {follows}")


def _raise(error: ClientError) -> Finding:
    raise error
