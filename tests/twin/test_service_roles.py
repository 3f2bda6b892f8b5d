"""Every service may do with a deployment's roles what its documentation says that it does (``service_roles.py``)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.conftest import COMPANY, MICROVMS, Stacks, shared
from tests.twin.iam import Account
from tests.twin.service_roles import DOCS, NETWORK_INTERFACES, ROWS, needs, unmet, unused_roles
from tests.twin.template import ACCOUNT, REGION, Template

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "no sandboxes": {"provisioner": "none"},
    "canary": {"rollout": "canary", "table_read_units": 10, "table_write_units": 5, "drain": True},
    "MicroVMs": {"rollout": "linear", **MICROVMS},
    "company with mail": {"alarm_email": "owner@example.com", "kms_key_arn": COMPANY["kms_key_arn"]},
}
"""Beside the default one and the one with every option: what these have besides, or instead."""


@pytest.fixture(scope="module", params=["default", "full", "company", *CONFIGURATIONS])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    if request.param == "company":
        found: Stacks = request.getfixturevalue("company")
        return Template.of(found.state, found.service)
    if request.param not in CONFIGURATIONS:
        return request.getfixturevalue(request.param)  # type: ignore[no-any-return]
    stacks = shared(CONFIGURATIONS[request.param], tmp_path_factory)
    return Template.of(stacks.state, stacks.service)


def test_every_service_may_what_it_does_and_every_role_is_used(template: Template) -> None:
    assert unmet(template) == []
    assert unused_roles(template) == set()


def test_each_row_has_the_page_that_says_so_and_is_met_somewhere(
    default: Template, full: Template, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert all(row.page.startswith(f"{DOCS}/") for row in ROWS)
    found = shared(CONFIGURATIONS["MicroVMs"], tmp_path_factory)
    microvms = Template.of(found.state, found.service)
    asked = {who.partition(" ")[2] for each in (default, full, microvms) for who, _ in needs(each)}
    # What no template has yet; whoever brings it in finds the row.
    absent = {"sends dead letters", "sends to destinations", "reads streams and queues", "is given secrets", "uses a key"}
    absent |= {"is encrypted"}
    silent = {"runs tasks", "delivers", "acts by a role", "turns an alias"}
    assert {row.what for row in ROWS} - asked <= absent | silent
    assert asked & absent == set()


def test_the_code_of_a_function_may_not_do_what_lambda_does_for_it(default: Template) -> None:
    account = Account(default)
    own = {"lambda:SourceFunctionArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:moorage-ToolStep"}
    inside = [f["Role"].strip("<>").removesuffix(".Arn") for _, f in default.of_type("AWS::Lambda::Function") if "VpcConfig" in f]
    assert len(inside) == 4
    for role in inside:
        for action in NETWORK_INTERFACES:
            assert [account.decides(role, action, "*", context) for context in ({}, own)] == [True, False]


# --- What this would have found ---


def changed(template: Template, change: Callable[[str, dict[str, Any]], dict[str, Any] | None]) -> Template:
    """With each resource changed, or left out where there is none any more."""
    copies = {name: change(name, json.loads(json.dumps(resource))) for name, resource in template.resources.items()}
    return Template({name: each for name, each in copies.items() if each is not None}, template.exports)


def without(*actions: str) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    def change(_: str, resource: dict[str, Any]) -> dict[str, Any]:
        if resource["Type"] == "AWS::IAM::Policy":
            document = resource["Properties"]["PolicyDocument"]
            for statement in document["Statement"]:
                named = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
                statement["Action"] = [action for action in named if action not in actions] or ["none:None"]
        return resource

    return change


def test_functions_that_lambda_cannot_place_in_their_network_would_have_been_found(default: Template) -> None:
    """As the first template was, with which no deployment came to its end."""
    found = unmet(changed(default, without(*NETWORK_INTERFACES)))
    assert {line.split(" is placed in a VPC: ")[0][: -len("0A1B2C3D")] for line in found} == {
        f"Functions{name}" for name in ("ToolStep", "ParseStep", "Sessions", "Retirement")
    }
    assert len(found) == 4 * len(NETWORK_INTERFACES)


def test_missing_rights_to_pull_images_and_to_log_would_be_found(default: Template) -> None:
    found = unmet(changed(default, without("ecr:BatchGetImage", "logs:CreateLogDelivery")))
    assert {(line.split()[0][:-8], line.split(" may not ")[1].split()[0]) for line in found} == {
        *((f"SandboxTask{tier}", "ecr:BatchGetImage") for tier in ("1g", "4g", "16g", "64g")),
        ("SandboxImageBuild", "ecr:BatchGetImage"),
        ("AgentLoopMachine", "logs:CreateLogDelivery"),
    }


def test_alarms_that_nobody_hears_would_have_been_found(full: Template) -> None:
    """A policy of a topic's own takes the place of the one that SNS gives it."""

    def mute(_: str, resource: dict[str, Any]) -> dict[str, Any]:
        if resource["Type"] == "AWS::SNS::TopicPolicy":
            document = resource["Properties"]["PolicyDocument"]
            document["Statement"] = [each for each in document["Statement"] if each["Effect"] == "Deny"]
        return resource

    found = unmet(changed(full, mute))
    assert len(found) == len(list(full.of_type("AWS::CloudWatch::Alarm")))
    assert all("does not let cloudwatch.amazonaws.com sns:Publish" in line for line in found)


def test_a_rule_and_a_method_whose_function_lets_nobody_in_would_have_been_found(default: Template) -> None:
    def close(name: str, resource: dict[str, Any]) -> dict[str, Any] | None:
        is_closed = resource["Type"] == "AWS::Lambda::Permission" and ("EveryMinute" in name or "v1uploadsANY" in name)
        return None if is_closed else resource

    found = unmet(changed(default, close))
    assert sorted(line.split()[0][:-8] for line in found) == [*("ApiRestApiv1uploadsANY",), *["EveryMinute"] * 3]


def test_a_resource_that_nobody_has_looked_at_is_an_error(default: Template) -> None:
    unknown = {**default.resources, "Queue": {"Type": "AWS::SQS::Queue", "Properties": {}}}
    with pytest.raises(AssertionError, match=r"nobody has looked at what \['AWS::SQS::Queue'\] ask of roles"):
        unmet(Template(unknown, default.exports))
