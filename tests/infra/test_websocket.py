"""The WebSocket API in the templates: what it adds, whom it lets in, and what its two functions may."""

from typing import Any

import pytest

from tests.infra.conftest import Stacks, shared


def actions_of(stacks: Stacks, function: str) -> dict[str, Any]:
    """The statements of a function's role by their first action."""
    (policy,) = [p for name, p in stacks.of_type("AWS::IAM::Policy").items() if name.startswith(f"Functions{function}Role")]
    statements = policy["PolicyDocument"]["Statement"]
    return {each["Action"] if isinstance(each["Action"], str) else each["Action"][0]: each for each in statements}


def test_the_default_deployment_has_none(stacks: Stacks) -> None:
    assert stacks.of_type("AWS::ApiGatewayV2::Api") == {}
    assert [name for name in stacks.resources if "Socket" in name] == []
    assert "WebSocketUrl" not in stacks.service["Outputs"]


def test_its_stage_is_named_as_sdks_go_on_and_is_throttled_like_the_rest_api(everything: Stacks) -> None:
    stage = everything.one("AWS::ApiGatewayV2::Stage")
    assert (stage["StageName"], stage["AutoDeploy"]) == ("responses", True)
    settings = stage["DefaultRouteSettings"]
    assert (settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"]) == (50, 100)
    assert (settings["LoggingLevel"], settings["DataTraceEnabled"]) == ("ERROR", False)


def test_its_address_ends_with_the_stage_with_a_name_of_its_own_and_without(
    everything: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SDKs go on with this word. What a closed host does not answer, the management API is not asked at."""
    without = shared({"websocket": True}, tmp_path_factory)
    assert without.service["Outputs"]["WebSocketUrl"]["Value"]["Fn::Join"][1][-1] == "/responses"
    assert everything.service["Outputs"]["WebSocketUrl"]["Value"] == "wss://socket.example.com/responses"
    assert everything.one("AWS::ApiGatewayV2::Api")["DisableExecuteApiEndpoint"] is True
    mapping = everything.one("AWS::ApiGatewayV2::ApiMapping")
    assert (mapping["ApiMappingKey"], mapping["Stage"]) == ("responses", "responses")
    (named,) = everything.one("AWS::ApiGatewayV2::DomainName")["DomainNameConfigurations"]
    assert (named["SecurityPolicy"], named["IpAddressType"]) == ("TLS_1_2", "dualstack")
    told = everything.one("AWS::Lambda::Function", "SocketWork")["Environment"]["Variables"]
    assert told["MOORAGE_WEBSOCKET_ENDPOINT"] == "https://socket.example.com/responses"


def test_the_role_by_which_it_writes_logs_is_there_before_it(everything: Stacks) -> None:
    (depends,) = [r["DependsOn"] for r in everything.resources.values() if r["Type"] == "AWS::ApiGatewayV2::Stage"]
    account = next(name for name, r in everything.resources.items() if r["Type"] == "AWS::ApiGateway::Account")
    assert account in depends


def test_a_worker_is_called_once_more_and_not_for_long(everything: Stacks) -> None:
    config = everything.one("AWS::Lambda::EventInvokeConfig", "SocketWork")
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (1, 120)


def test_the_door_knows_no_content_and_the_worker_is_told_when_to_end(everything: Stacks) -> None:
    door, work = (everything.one("AWS::Lambda::Function", name)["Environment"]["Variables"] for name in ("SocketDoor", "SocketWork"))
    assert not {"MOORAGE_CONTENT_KEY_SECRET", "MOORAGE_SANDBOX_KEY"} & door.keys()
    assert work["MOORAGE_STREAM_SECONDS_MAX"] == "870"
    assert "MOORAGE_WEBSOCKET_WORKER" in door
    assert door["MOORAGE_WEBSOCKET_ENDPOINT"] == work["MOORAGE_WEBSOCKET_ENDPOINT"]


def test_the_door_reads_keys_and_writes_connections_and_calls_the_worker(everything: Stacks) -> None:
    may = actions_of(everything, "SocketDoor")
    (policy,) = [p for name, p in everything.of_type("AWS::IAM::Policy").items() if name.startswith("FunctionsSocketDoorRole")]
    reads = [each for each in policy["PolicyDocument"]["Statement"] if each["Action"] == "dynamodb:GetItem"]
    # Keys, and of tokens whether a session was ended and whether the tenant has a budget.
    assert [each["Condition"] for each in reads] == [
        {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": patterns}} for patterns in (["K#*"], ["CODE#*", "T#*#BUDGETS"])
    ]
    assert may["dynamodb:BatchWriteItem"]["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["WS#*"]}}
    (worker,) = [name for name in everything.of_type("AWS::Lambda::Alias") if "SocketWork" in name]
    assert may["lambda:InvokeFunction"]["Resource"] == {"Ref": worker}
    assert not {action for action in may if action.startswith(("s3:", "states:", "ecs:", "ssm:", "iam:"))}


def test_both_doors_share_what_streams_may_hold(everything: Stacks, stacks: Stacks) -> None:
    assert sorted(each["Percent"] for each in everything.of_type("Custom::Concurrency").values()) == ["25", "25"]
    assert [each["Percent"] for each in stacks.of_type("Custom::Concurrency").values()] == ["50"]
