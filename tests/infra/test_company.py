"""What a company has already takes the place of what a deployment would make: its key, topic, web ACL, tags and rules for roles."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.app import check_arns
from infra.config import Config, ConfigError
from tests.infra import synthesis
from tests.infra.conftest import COMPANY, EVERYTHING, MICROVMS, ROOT, Stacks, load, masked, shared
from tests.infra.synthesis import context_of

KEY, TOPIC, ACL = COMPANY["kms_key_arn"], COMPANY["alarm_topic_arn"], COMPANY["waf_acl_arn"]
ENCRYPTED = {
    "AWS::DynamoDB::Table": ("SSESpecification", "KMSMasterKeyId"),
    "AWS::S3::Bucket": (
        *("BucketEncryption", "ServerSideEncryptionConfiguration", 0),
        *("ServerSideEncryptionByDefault", "KMSMasterKeyID"),
    ),
    "AWS::SecretsManager::Secret": ("KmsKeyId",),
    "AWS::Logs::LogGroup": ("KmsKeyId",),
    "AWS::SNS::Topic": ("KmsMasterKeyId",),
    "AWS::ECR::Repository": ("EncryptionConfiguration", "KmsKey"),
    "Custom::KeptVectorBucket": ("Key",),
}
"""What docs/aws_company.md says that the key encrypts, and where a template says so."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """Every option, and the company's key alone in the place of what the deployment would make."""
    settings = {name: value for name, value in EVERYTHING.items() if name != "customer_managed_key"}
    return shared({**settings, "kms_key_arn": KEY}, tmp_path_factory)


def inside(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_the_given_key_encrypts_all_that_the_page_says(kind: str, keyed: Stacks) -> None:
    found = keyed.of_type(kind)
    assert found
    assert {name: inside(properties, ENCRYPTED[kind]) for name, properties in found.items()} == dict.fromkeys(found, KEY)


def test_with_a_given_key_the_templates_make_none(keyed: Stacks) -> None:
    assert keyed.of_type("AWS::KMS::Key") == {}


def test_who_reads_or_writes_what_the_key_encrypts_may_use_it_and_no_other_key(keyed: Stacks) -> None:
    users: dict[str, set[str]] = {}
    for name, policy in keyed.of_type("AWS::IAM::Policy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Resource"] == KEY:
                actions = statement["Action"]
                users.setdefault(name.split("Role")[0], set()).update(actions if isinstance(actions, list) else [actions])
    assert {"FunctionsResponses", "FunctionsModelStep", "FunctionsAuthorizer", "EgressTaskTask", "Hooks"} <= users.keys()
    assert {action for actions in users.values() for action in actions} == {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"}
    assert users["FunctionsAuthorizer"] == {"kms:Decrypt"}


def test_alarms_and_the_budget_go_to_a_given_topic(company: Stacks) -> None:
    alarms = company.of_type("AWS::CloudWatch::Alarm")
    assert {name: alarm["AlarmActions"] for name, alarm in alarms.items()} == {name: [TOPIC] for name in alarms}
    notifications = company.one("AWS::Budgets::Budget")["NotificationsWithSubscribers"]
    assert [each["Subscribers"] for each in notifications] == [[{"SubscriptionType": "SNS", "Address": TOPIC}]] * 2
    assert company.of_type("AWS::SNS::Topic") == {}


def test_a_mail_and_a_topic_hear_the_same_alarms(tmp_path_factory: pytest.TempPathFactory) -> None:
    both = shared({"alarm_topic_arn": TOPIC, "alarm_email": "owner@example.com"}, tmp_path_factory)
    (own,) = both.of_type("AWS::SNS::Topic")
    alarms = both.of_type("AWS::CloudWatch::Alarm")
    assert {name: alarm["AlarmActions"] for name, alarm in alarms.items()} == {name: [{"Ref": own}, TOPIC] for name in alarms}


def test_a_given_web_acl_stands_before_the_api(company: Stacks) -> None:
    association = company.one("AWS::WAFv2::WebACLAssociation")
    assert association["WebACLArn"] == ACL
    assert "/stages/" in json.dumps(association["ResourceArn"])
    assert company.of_type("AWS::WAFv2::WebACL") == {}


def test_own_tags_are_on_all_that_bears_the_deployments(company: Stacks) -> None:
    own = [{"Key": name, "Value": value} for name, value in COMPANY["tags"].items()]
    tagged = {name: properties["Tags"] for name, properties in tags(company).items()}
    assert len(tagged) > 60
    assert {name for name, found in tagged.items() if not all(tag in found for tag in own)} == set()


def tags(stacks: Stacks) -> dict[str, Any]:
    found = {name: resource.get("Properties", {}) for name, resource in stacks.resources.items()}
    return {name: p for name, p in found.items() if {"Key": "moorage:deployment", "Value": "moorage"} in list(p.get("Tags", []))}


def test_a_boundary_and_a_qualifier_of_cdk_json_change_roles_and_addresses_alone(stacks: Stacks, tmp_path: Path) -> None:
    more = {
        "@aws-cdk/core:permissionsBoundary": {"name": "Developers"},
        "@aws-cdk/core:bootstrapQualifier": "platform",
        "aws:cdk:bundling-stacks": [],
    }
    done = synthesis.synthesise(context_of({}, **more), tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    bound = load(tmp_path)
    roles = bound.of_type("AWS::IAM::Role")
    assert {name: json.dumps(role.pop("PermissionsBoundary")).count(":policy/Developers") for name, role in roles.items()} == (
        dict.fromkeys(roles, 1)
    )
    for mine, usual in ((bound.state, stacks.state), (bound.service, stacks.service)):
        assert masked(mine).replace("platform", "hnb659fds") == masked(json.loads(json.dumps(usual)))


def test_the_page_lists_the_services_that_a_boundary_must_allow(company: Stacks) -> None:
    """Also those of the models, which the tests' models.toml has not, and of CodeDeploy's managed policy."""
    used = set()
    for policy in company.of_type("AWS::IAM::Policy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            used |= {action if action.startswith("iam:") else action.split(":")[0] for action in actions}
    page = (ROOT / "docs" / "aws_company.md").read_text()
    listed = page.partition("the boundary must allow them:\n")[2].partition("\n\nThe roles of the bootstrap")[0]
    assert set(re.findall(r"`([\w:-]+)`", listed)) == used | {"bedrock", "bedrock-mantle", "codedeploy", "ssm"}


REGIONS = {
    "kms_key_arn": KEY,
    "alarm_topic_arn": TOPIC,
    "waf_acl_arn": ACL,
    "model_keys_kms_arn": KEY,
}


@pytest.mark.parametrize("name", REGIONS)
def test_what_is_in_another_region_is_refused_with_one_sentence(name: str) -> None:
    config = Config(**{name: REGIONS[name]})
    with pytest.raises(ConfigError, match=f"^cdk.json: '{name}': is in us-east-1, and the deployment goes to eu-west-1.$"):
        check_arns(config, "eu-west-1")
    check_arns(config, "us-east-1")
    check_arns(config, None)


# --- the runbook ---


def test_each_alarm_names_its_section_of_the_runbook(
    everything: Stacks, company: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vms = shared({**MICROVMS, "alarm_email": "ops@example.com"}, tmp_path_factory)
    canary = shared({"rollout": "canary", "table_read_units": 10, "table_write_units": 5, "drain": True}, tmp_path_factory)
    alarms = {
        name.removeprefix("Observability")[:-8]: alarm["AlarmDescription"]
        for each in (everything, company, canary, vms)
        for name, alarm in each.of_type("AWS::CloudWatch::Alarm").items()
    }
    page = (ROOT / "docs" / "runbook.md").read_text()
    sections = dict(re.findall(r"\n## (\w+)\n\n(.+?)(?=\n## |\Z)", page, re.DOTALL))
    assert sections.keys() == alarms.keys()
    assert all("\n1. " in steps for steps in sections.values())
    assert {name: text.partition(" What to do: ")[2] for name, text in alarms.items()} == {
        name: f"docs/runbook.md#{name.lower()}" for name in alarms
    }
