"""What the doctor says of the shares of concurrency that a deployment has, by botocore's own model of the services."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moorage.cli.checks import shares
from moorage.cli.checks.findings import Finding, Level

from functions.custom_resource.handler import share_concurrency

NAMES = ("FunctionsResponsesA4FA3EA2", "FunctionsSocketWorkB06B258D")
ELSE = "It is taken anew each day, and by 'make deploy'."


def resource(logical: str, kind: str = "AWS::Lambda::Function") -> dict[str, Any]:
    about = {"LastUpdatedTimestamp": "2026-11-27T00:00:00Z", "ResourceStatus": "CREATE_COMPLETE"}
    return {"LogicalResourceId": logical, "PhysicalResourceId": f"moorage-{logical}", "ResourceType": kind, **about}


@contextmanager
def deployed(*functions: str, limit: int = 1_000, unreserved: int = 500, own: int = 500) -> Iterator[Any]:
    with ExitStack() as stack:
        clients = {}
        for name in ("cloudformation", "lambda"):
            made = boto3.client(name, region_name="eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
            clients[name] = made, stack.enter_context(Stubber(made))
        others = [resource("FunctionsResponsesLive201F2443", "AWS::Lambda::Alias"), resource("FunctionsModelStep1")]
        stubber = clients["cloudformation"][1]
        if functions:
            summaries = [*others, *map(resource, functions)]
            stubber.add_response("list_stack_resources", {"StackResourceSummaries": summaries}, {"StackName": "moorage"})
        else:
            stubber.add_client_error("list_stack_resources", "ValidationError", "Stack with id moorage does not exist")
        for function in functions:
            account = {"AccountLimit": {"ConcurrentExecutions": limit, "UnreservedConcurrentExecutions": unreserved}}
            clients["lambda"][1].add_response("get_account_settings", account)
            answer = {"ReservedConcurrentExecutions": own} if own else {}
            clients["lambda"][1].add_response("get_function_concurrency", answer, {"FunctionName": f"moorage-{function}"})
        yield lambda name: clients[name][0]


def found(settings: Mapping[str, Any] | None = None, *functions: str, **account: int) -> list[Finding]:
    with deployed(*functions, **account) as client:
        return list(shares.findings(client, settings or {}))


HAS = "moorage-FunctionsResponsesA4FA3EA2 has"


@pytest.mark.parametrize(
    ("account", "level", "what", "advice"),
    [
        ({}, Level.OK, f"{HAS} 500 reserved of Lambda's 1000 concurrent executions", ""),
        (
            {"limit": 10_000, "unreserved": 9_500},
            Level.WARN,
            f"{HAS} 500 reserved of Lambda's 10000 concurrent executions, and could have 5000",
            f"The quota was raised, or others have given some back. {ELSE}",
        ),
        (
            {"limit": 600, "unreserved": 100},
            Level.WARN,
            f"{HAS} 500 reserved of Lambda's 600 concurrent executions, and 300 fit now",
            f"The quota was lowered, or others have reserved more. {ELSE}",
        ),
        (
            {"limit": 150, "unreserved": 50, "own": 100},
            Level.WARN,
            f"{HAS} 100 reserved of Lambda's 150 concurrent executions, and the account has too little to share now",
            f"Others get none of it. {ELSE} Ask for more at Service Quotas.",
        ),
        ({"limit": 10, "unreserved": 10, "own": 0}, Level.OK, f"{HAS} no reserved of Lambda's 10 concurrent executions", ""),
    ],
)
def test_a_share_is_held_against_what_the_account_has_now(account: dict[str, int], level: Level, what: str, advice: str) -> None:
    assert found(None, NAMES[0], **account) == [Finding(level, what, advice)]


def test_with_sockets_two_functions_have_half_of_it_each() -> None:
    assert [finding.level for finding in found({}, *NAMES, own=250)] == [Level.OK, Level.OK]


def test_where_nothing_is_deployed_or_asked_for_nothing_is_found() -> None:
    assert found() == []
    assert list(shares.findings(lambda name: pytest.fail(name), {"streams_percent": 0})) == []


class Account:
    """Lambda, as the deployment's own function asks it."""

    def __init__(self, limit: int, unreserved: int, own: int) -> None:
        self.limit, self.unreserved, self.own = limit, unreserved, own

    def get_account_settings(self) -> Any:
        return {"AccountLimit": {"ConcurrentExecutions": self.limit, "UnreservedConcurrentExecutions": self.unreserved}}

    def get_function_concurrency(self, FunctionName: str) -> Any:
        return {"ReservedConcurrentExecutions": self.own}

    def put_function_concurrency(self, FunctionName: str, ReservedConcurrentExecutions: int) -> None:
        self.own = ReservedConcurrentExecutions

    def delete_function_concurrency(self, FunctionName: str) -> None:
        self.own = 0


@pytest.mark.parametrize("limit", [10, 199, 200, 1_000, 10_000])
@pytest.mark.parametrize("reserved_by_others", [0, 50, 401, 900])
@pytest.mark.parametrize(("own", "percent", "at_least"), [(0, 50, 0), (100, 25, 150), (500, 90, 10)])
def test_the_doctor_reckons_as_the_deployment_does(limit: int, reserved_by_others: int, own: int, percent: int, at_least: int) -> None:
    account = Account(limit, limit - reserved_by_others - own, own)
    share = shares.share_of(limit, account.unreserved, own, percent, at_least)
    share_concurrency({"Function": "f", "Percent": str(percent), "AtLeast": str(at_least)}, account)
    assert account.own == share
