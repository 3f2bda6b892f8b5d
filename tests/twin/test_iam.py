"""Every call that the functions were seen to make, against the roles of each configuration, conditions and keys included."""

import ast
import json
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from tests.infra.conftest import BOTH, MICROVMS, ROOT, Stacks, shared
from tests.twin import calls
from tests.twin.calls import Check, checks
from tests.twin.iam import Account, refused
from tests.twin.template import ACCOUNT, REGION, Template

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "egress": {"allowed_egress_domains": ["pkg.example.com"]},
    "customer key": {"customer_managed_key": True},
}


@pytest.fixture(scope="module", params=["open", *CONFIGURATIONS, "both", "given key"])
def account(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Account:
    if request.param == "given key":
        found: Stacks = request.getfixturevalue("company")
        return Account(Template.of(found.state, found.service))
    if request.param in CONFIGURATIONS:
        stacks = shared(CONFIGURATIONS[request.param], tmp_path_factory)
        return Account(Template.of(stacks.state, stacks.service))
    return Account(request.getfixturevalue("default" if request.param == "open" else "full"))


def test_every_function_may_what_it_asks(account: Account) -> None:
    assert refused(account, calls.recorded()) == []


def test_every_function_is_on_the_record(account: Account) -> None:
    assert account.roles().keys() - calls.recorded().keys() == set()
    assert calls.recorded().keys() - account.roles().keys() <= {calls.PROXY, *calls.SOCKETS}


def test_who_works_for_a_websocket_may_what_the_streaming_function_asks(full: Template) -> None:
    assert refused(Account(full), {"SocketWork": calls.recorded()["Responses"]}) == []


def test_the_service_step_may_what_the_tool_step_asks_of_the_table(account: Account) -> None:
    """It runs the same code, and nothing that the ring has makes service calls."""
    asked = [operation for operation in calls.recorded()["ToolStep"] if operation.startswith("dynamodb.")]
    assert asked
    assert refused(account, {"ServiceStep": asked}) == []


def operations_of(service: str) -> dict[str, str]:
    """``service.Operation`` by the name of boto3's method."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(operation): f"{service}.{operation}" for operation in model.operation_names}


def methods_in(*paths: str) -> Iterator[str]:
    """Names of what is called, or handed on to be called, of something called ``client``; some say them as text."""
    for path in paths:
        for node in ast.walk(ast.parse((ROOT / "layers/core/python/moorage" / path).read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("client"):
                yield node.attr
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "self._call" and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


ASKED_BY = {
    "dynamodb": ("store/dynamodb.py",),
    "s3": ("store/s3.py",),
    "stepfunctions": ("store/step_functions.py",),
    "ecs": ("sandbox/fargate.py", "egress/fleet.py"),
    "kms": ("egress/keys.py",),
    "secretsmanager": ("runtime.py",),
}


@pytest.mark.parametrize("service", ASKED_BY)
def test_what_the_code_asks_of_a_service_is_on_the_record(service: str) -> None:
    known = operations_of(service)
    in_code = {known[method] for method in methods_in(*ASKED_BY[service]) if method in known}
    # IAM knows no transactions: their parts are on the record.
    in_code -= {"dynamodb.TransactWriteItems"}
    seen = {operation.split()[0] for asked in calls.recorded().values() for operation in asked}
    assert in_code - seen == set(), "record anew: pytest tests/deploy --record-calls"
    assert in_code, "where has the code gone?"


VECTORS_ASKED_BY = {
    "IndexStep": ["s3vectors.CreateIndex", "s3vectors.PutVectors", "s3vectors.DeleteVectors", "s3vectors.DeleteIndex"],
    "ServiceStep": ["s3vectors.QueryVectors"],
    "Responses": ["s3vectors.QueryVectors", "s3vectors.DeleteVectors", "s3vectors.DeleteIndex"],
    "Files": ["s3vectors.DeleteVectors"],
    "Expiry": ["s3vectors.DeleteVectors", "s3vectors.DeleteIndex"],
}
"""No emulator has S3 Vectors, so nothing is recorded of it: what each function calls of ``knowledge/neighbours.py``."""


def test_only_index_search_and_delete_reach_the_vector_bucket(full: Template) -> None:
    account = Account(full)
    assert refused(account, VECTORS_ASKED_BY) == []
    asked = {check for operations in VECTORS_ASKED_BY.values() for operation in operations for check in checks(operation)}
    for function, role in account.roles().items():
        mine = {check for operation in VECTORS_ASKED_BY.get(function, []) for check in checks(operation)}
        assert [check.action for check in asked - mine if account.allows(role, check)] == [], function
    known = operations_of("s3vectors")
    in_code = {known[method] for method in methods_in("store/vector_bucket.py") if method in known}
    assert in_code == {operation for operations in VECTORS_ASKED_BY.values() for operation in operations}


TOKEN_ASKED = ("dynamodb.GetItem CODE#*", "dynamodb.GetItem T#*#BUDGETS")
"""What the door of WebSockets asks of a token beside its issuer: whether its session was ended, and whether its tenant has a budget."""


def test_the_door_of_websockets_may_what_a_token_takes_where_there_are_tokens(
    full: Template, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked = {"SocketDoor": list(TOKEN_ASKED)}
    assert refused(Account(full), asked) == []
    keys_alone = shared({"websocket": True}, tmp_path_factory)
    assert len(refused(Account(Template.of(keys_alone.state, keys_alone.service)), asked)) == 2


AUDIT_ASKED_BY = {name: ["logs.CreateLogStream", "logs.PutLogEvents"] for name in ("Responses", "Recovery", "SocketWork")}
"""The deployment of the tests keeps no trail, so nothing is recorded of it: what a writer calls of ``store/audit_log_group.py``."""


@pytest.mark.parametrize("deployment", ["everything", "company"])
def test_only_those_who_answer_people_write_the_audit_trail(deployment: str, request: pytest.FixtureRequest) -> None:
    found: Stacks = request.getfixturevalue(deployment)
    account = Account(Template.of(found.state, found.service))
    assert refused(account, AUDIT_ASKED_BY) == []
    writes = [check for operation in AUDIT_ASKED_BY["Responses"] for check in checks(operation)]
    able = {name for name, role in account.roles().items() if any(account.allows(role, check) for check in writes)}
    assert able == AUDIT_ASKED_BY.keys()
    known = operations_of("logs")
    assert {known[each] for each in methods_in("store/audit_log_group.py") if each in known} == set(AUDIT_ASKED_BY["Responses"])
    others = [
        Check(f"logs:{action}", "audit trail") for action in ("GetLogEvents", "FilterLogEvents", "DeleteLogStream", "DeleteLogGroup")
    ]
    assert [name for name, role in account.roles().items() if any(account.allows(role, check) for check in others)] == []


ENDS_RESPONSES = {"Responses", "SocketWork", "ModelStep", "FailResponse", "Recovery"}
"""Whoever ends a response of an agent's session starts the next one (``agents/listener.py``)."""


def test_who_ends_responses_starts_the_next_one_of_a_session(full: Template) -> None:
    account = Account(full)
    start = Check("states:StartExecution", "machine")
    able = {name for name, role in account.roles().items() if account.allows(role, start)}
    assert able == {*ENDS_RESPONSES, "ContinueStep"}


# --- the evaluator says no ---------------------------------------------------------------------------------------------------

REFUSED = {
    "an action that the role does not name": ("ModelStep", Check("dynamodb:DeleteTable", "table")),
    "ECS, from inside the sandboxes' network": (
        "ToolStep",
        Check("ecs:RunTask", "task definition", context=(("ecs:cluster", "cluster"),)),
    ),
    "a task in another cluster": ("Expiry", Check("ecs:StopTask", "task", context=(("ecs:cluster", "elsewhere"),))),
    "a key of the API, written": ("Responses", Check("dynamodb:PutItem", "table", ("K#*",))),
    "a key among other records, written": ("Responses", Check("dynamodb:BatchWriteItem", "table", ("K#*", "T#*#R#*"))),
    "a response, read by the authorizer": ("Authorizer", Check("dynamodb:GetItem", "table", ("T#*#R#*",))),
    "the role of a task, passed to another service": (
        "Responses",
        Check("iam:PassRole", "execution role", context=(("iam:PassedToService", "lambda.amazonaws.com"),)),
    ),
    "a response, read by the door of WebSockets": ("SocketDoor", Check("dynamodb:GetItem", "table", ("T#*#R#*",))),
    "a key of the API, written by the door of WebSockets": ("SocketDoor", Check("dynamodb:PutItem", "table", ("K#*",))),
    "the loop, started by the door of WebSockets": ("SocketDoor", Check("states:StartExecution", "machine")),
    "a connection, written to by a tool step": ("ToolStep", Check("execute-api:ManageConnections", "connection")),
    "the content key, read by the tool step": ("ToolStep", Check("secretsmanager:GetSecretValue", "content key")),
    "the content key, read where sandboxes are watched": ("Expiry", Check("secretsmanager:GetSecretValue", "content key")),
    "the loop, started by a tool step": ("ToolStep", Check("states:StartExecution", "machine")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_role_does_not_allow_is_refused(name: str, full: Template) -> None:
    function, check = REFUSED[name]
    account = Account(full)
    assert not account.allows(account.roles()[function], check)


def test_only_the_proxy_opens_domain_secrets(full: Template) -> None:
    account = Account(full)
    able = {name for name, role in account.roles().items() if account.allows(role, Check("kms:Decrypt", "secrets key"))}
    assert able == {calls.PROXY}


def changed(template: Template, change: Any) -> Account:
    """The template with every policy of a role rewritten."""
    resources = json.loads(json.dumps(template.resources))
    for resource in resources.values():
        if resource["Type"] == "AWS::IAM::Policy":
            statements = resource["Properties"]["PolicyDocument"]["Statement"]
            resource["Properties"]["PolicyDocument"]["Statement"] = [new for each in statements for new in change(each)]
    return Account(Template(resources, template.exports))


def without_data_key(statement: dict[str, Any]) -> list[dict[str, Any]]:
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    return [] if "kms:Encrypt" in actions or statement["Action"] == "kms:Decrypt" else [statement]


def test_a_role_without_the_tables_key_would_have_been_found(full: Template) -> None:
    found = refused(changed(full, without_data_key), calls.recorded())
    assert {line.split()[0] for line in found if line.endswith("on data key")} >= {calls.PROXY, "ModelStep", "Responses", "Authorizer"}


def test_a_condition_that_is_not_understood_is_an_error(default: Template) -> None:
    def with_condition(statement: dict[str, Any]) -> list[dict[str, Any]]:
        return [statement | {"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}]

    with pytest.raises(AssertionError, match="not understood"):
        refused(changed(default, with_condition), calls.recorded())


def test_an_operation_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError):
        list(checks("sqs.SendMessage"))


# --- MicroVMs ---

_AWS_CONNECTORS = f"arn:aws:lambda:{REGION}:aws:network-connector:aws-network-connector"
MICROVM_STARTERS = {"Responses", "Containers", "Sessions", "ModelStep", "ToolStep", "IndexStep", "ParseStep", "Expiry"}
REACHED = ("lambda:RunMicrovm", "lambda:GetMicrovm", "lambda:TerminateMicrovm", "lambda:CreateMicrovmAuthToken")
CLEANED = ("lambda:ListMicrovms", "lambda:ListMicrovmImageVersions", "lambda:ListTags", "lambda:DeleteMicrovmImageVersion")


@pytest.fixture(scope="module")
def microvms(tmp_path_factory: pytest.TempPathFactory) -> Account:
    stacks = shared({**MICROVMS, "allowed_egress_domains": ["pkg.example.com"]}, tmp_path_factory)
    return Account(Template.of(stacks.state, stacks.service))


def able(account: Account, action: str, resource: str) -> set[str]:
    return {name for name, role in account.roles().items() if account.decides(role, action, resource, {})}


@pytest.mark.parametrize("action", REACHED)
def test_who_works_in_containers_may_run_and_reach_their_microvms(microvms: Account, action: str) -> None:
    """While one sleeps, calls about it are judged by its own ARN (reported)."""
    image = f"arn:aws:lambda:{REGION}:{ACCOUNT}:microvm-image:moorage"
    own = f"arn:aws:lambda:{REGION}:{ACCOUNT}:microvm:microvm-1"
    found = {resource: able(microvms, action, resource) for resource in (f"{image}-1g", f"{image}-16g", own, "arn:aws:lambda:::other")}
    assert found == {
        f"{image}-1g": MICROVM_STARTERS,
        f"{image}-16g": MICROVM_STARTERS,
        own: MICROVM_STARTERS,
        "arn:aws:lambda:::other": set(),
    }


def test_nobody_may_give_a_microvm_the_internet_or_a_root_shell(microvms: Account) -> None:
    own = [f"<{name}.Arn>" for name, _ in microvms.template.of_type("AWS::Lambda::NetworkConnector")]
    wished = [*own, *(f"{_AWS_CONNECTORS}:{name}" for name in ("HTTP_INGRESS", "INTERNET_EGRESS", "SHELL_INGRESS", "ALL_INGRESS"))]
    passed = [able(microvms, "lambda:PassNetworkConnector", each) for each in wished]
    assert passed == [*[MICROVM_STARTERS] * 3, set(), set(), set()]


def test_beside_fargate_each_function_starts_the_kinds_that_it_works_with(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The service step reaches MicroVMs alone, and a function in the sandboxes' network starts none of either kind."""
    stacks = shared(BOTH, tmp_path_factory)
    both = Account(Template.of(stacks.state, stacks.service))
    starters = {"Responses", "Containers", "ModelStep", "IndexStep", "Expiry"}
    image = f"arn:aws:lambda:{REGION}:{ACCOUNT}:microvm-image:moorage"
    assert able(both, "lambda:RunMicrovm", f"{image}-1g") == starters | {"ServiceStep", "ParseStep"}
    assert able(both, "lambda:RunMicrovm", f"{image}-16g") == set(), "Fargate has it"
    cluster = {"ecs:cluster": both.arn("cluster")}
    tasks = {tier: f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/moorage-sandbox-{tier}:1" for tier in ("1g", "16g")}
    run = {
        tier: {name for name, role in both.roles().items() if both.decides(role, "ecs:RunTask", each, cluster)}
        for tier, each in tasks.items()
    }
    assert run == {"1g": set(), "16g": starters}


@pytest.mark.parametrize("action", CLEANED)
def test_only_the_reaper_lists_microvms_and_deletes_versions(microvms: Account, action: str) -> None:
    image = f"arn:aws:lambda:{REGION}:{ACCOUNT}:microvm-image:moorage-1g"
    assert able(microvms, action, "*" if action.startswith("lambda:ListMicrovm") else image) == {"Expiry"}


def test_who_starts_microvms_may_look_at_the_connectors_of_the_deployment_alone(microvms: Account) -> None:
    connectors = [f"<{name}.Arn>" for name, _ in microvms.template.of_type("AWS::Lambda::NetworkConnector")]
    others = ["arn:aws:lambda:us-east-1:000000000000:network-connector:other"]
    found = [able(microvms, "lambda:GetNetworkConnector", each) for each in connectors + others]
    assert found == [MICROVM_STARTERS, MICROVM_STARTERS, set()]


def test_what_the_code_asks_of_microvms_is_granted() -> None:
    services = operations_of("lambda-microvms") | operations_of("lambda-core")
    known = {name: each.partition(".")[2] for name, each in services.items()}
    in_code = {f"lambda:{known[each]}" for each in methods_in("sandbox/lambda_microvm.py") if each in known}
    listed = {"lambda:ListMicrovms", "lambda:ListMicrovmImageVersions"}  # by a variable, in one method for both
    assert in_code | listed == {*REACHED, *CLEANED, "lambda:GetNetworkConnector"}
