"""What AWS would refuse stops synthesis; the extremes of the configuration do not come near it."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra import quotas
from infra.config import USAGE_TIERS_MAX, ConfigError
from tests.infra.conftest import EVERYTHING, Stacks, load, synthesise

TIER = {"requests_per_second": 5, "request_burst": 10, "requests_per_day": 1000}
EXTREMES: dict[str, Any] = {
    **EVERYTHING,
    "name": "a" * 24,
    "availability_zones": 3,
    "allowed_egress_domains": [f"service-{number}.example-company.com" for number in range(1_000)],
    "usage_plans": {f"tier-{number}": TIER for number in range(USAGE_TIERS_MAX)},
    "proxy_memory_mib": 8192,
    "warm_pool": ["1g:20", "4g:20", "16g:20", "64g:20"],
}


@pytest.mark.parametrize("which", ["stacks", "everything"])
def test_deployments_are_within_every_quota(which: str, request: pytest.FixtureRequest) -> None:
    found: Stacks = request.getfixturevalue(which)
    assert [str(excess) for template in (found.state, found.service) for excess in quotas.in_template("moorage", template)] == []


def test_the_extremes_of_the_configuration_are_within_every_quota(tmp_path: Path) -> None:
    done = synthesise(EXTREMES, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = load(tmp_path, "a" * 24)
    domains = ",".join(EXTREMES["allowed_egress_domains"])
    (task,) = [t for name, t in found.of_type("AWS::ECS::TaskDefinition").items() if name.startswith("Egress")]
    assert (task["Cpu"], task["Memory"]) == ("4096", "8192")
    assert {"Name": "MOORAGE_ALLOWED_EGRESS_DOMAINS", "Value": domains} in task["ContainerDefinitions"][0]["Environment"]
    for function in found.of_type("AWS::Lambda::Function").values():
        assert "MOORAGE_ALLOWED_EGRESS_DOMAINS" not in function.get("Environment", {}).get("Variables", {})


def test_a_setting_beyond_a_quota_stops_synthesis_with_one_sentence(tmp_path: Path) -> None:
    domains = [f"service-{number}.example-company.com" for number in range(3_000)]
    done = synthesise({"allowed_egress_domains": domains}, tmp_path)
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("The task EgressTask")
    assert said.endswith("and AWS takes 65,536: list fewer domains in allowed_egress_domains.")
    assert "Traceback" not in done.stderr


def with_one(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Resources": {"It": {"Type": kind, "Properties": properties}}}


def with_many(kind: str, number: int) -> dict[str, Any]:
    return {"Resources": {f"R{n}": {"Type": kind} for n in range(number)}}


LONG = "x" * 100
BEYOND = {
    "4 KB of variables": (
        with_one("AWS::Lambda::Function", Environment={"Variables": {"SHORT": "1", "LONG": "x" * 4_090}}),
        "The variables of the function It have bytes: 4,100, and AWS takes 4,096: the longest is LONG, so shorten that setting.",
    ),
    "500 resources": (with_many("AWS::SNS::Topic", 501), "has resources: 501, and AWS takes 500"),
    "300 usage plans": (with_many("AWS::ApiGateway::UsagePlan", 301), "Usage plans: 301"),
    "300 resources of an API": (with_many("AWS::ApiGateway::Resource", 301), "The REST API has"),
    "200 outputs": ({"Resources": {}, "Outputs": {f"O{n}": {} for n in range(201)}}, "has outputs: 201"),
    "1 MB of template": (with_one("AWS::SNS::Topic", DisplayName="x" * 1024 * 1024), "has bytes: 1,048,"),
    "a role's policies": (
        with_one("AWS::IAM::Policy", Roles=[{"Ref": "Role"}], PolicyDocument={"Statement": [{"Resource": "x" * 10_240}]}),
        "The policies of the role Role have characters",
    ),
    "a name": (with_one("AWS::StepFunctions::StateMachine", StateMachineName=LONG, DefinitionString="{}"), "has characters: 100"),
    "a state's name": (
        with_one("AWS::StepFunctions::StateMachine", DefinitionString=json.dumps({"States": {"A": {"States": {LONG: {}}}}})),
        f"The state {LONG} has characters: 100",
    ),
    "targets of a rule": (with_one("AWS::Events::Rule", Targets=[{}] * 6), "The rule It has targets: 6"),
    "names of the firewall": (with_one("AWS::Route53Resolver::FirewallDomainList", Domains=["a"] * 1_001), "lists names: 1,001"),
    "an expression": (
        with_one("AWS::CloudWatch::Dashboard", DashboardBody={"Fn::Join": ["", ['{"expression":"', "x" * 2_049, '"}']]}),
        "An expression of the dashboard has characters: 2,049",
    ),
}


@pytest.mark.parametrize(("template", "said"), BEYOND.values(), ids=BEYOND.keys())
def test_what_is_beyond_a_quota_is_named(template: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "moorage.template.json").write_text(json.dumps(template))
    with pytest.raises(ConfigError) as refused:
        quotas.check(tmp_path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_code_with_its_layers_is_weighed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"asset.{name}").mkdir()
        with (tmp_path / f"asset.{name}" / "file").open("wb") as file:
            file.truncate(quotas.CODE_BYTES_MAX // 2 + 1)
    layer = {"Type": "AWS::Lambda::LayerVersion", "Properties": {"Content": {"S3Key": "b.zip"}}}
    function = {"Type": "AWS::Lambda::Function", "Properties": {"Code": {"S3Key": "a.zip"}, "Layers": [{"Ref": "Layer"}, "arn"]}}
    (tmp_path / "moorage.template.json").write_text(json.dumps({"Resources": {"It": function, "Layer": layer}}))
    with pytest.raises(ConfigError, match="The function It has bytes with its layers: 262,144,002"):
        quotas.check(tmp_path)
