"""``provisioner`` by memory tier deploys MicroVMs and Fargate side by side. One word for all tiers deploys what it did before."""

import json
from typing import Any

import pytest

from tests.infra.conftest import BOTH, MICROVMS, Stacks, masked, shared


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared(BOTH, tmp_path_factory)


@pytest.mark.parametrize("word", ["fargate", "lambda_microvm"])
def test_the_same_word_for_every_tier_is_that_word(word: str, stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiers = ("1g", "4g", "16g", *(("64g",) if word == "fargate" else ()))
    alone = stacks if word == "fargate" else shared(MICROVMS, tmp_path_factory)
    by_tier = shared({"provisioner": dict.fromkeys(tiers, word)}, tmp_path_factory)
    assert masked(by_tier.service) == masked(alone.service)


def test_each_tier_has_the_parts_of_its_provisioner_and_one_image_is_built(both: Stacks) -> None:
    assert both.findings == []
    assert [each["Name"] for each in both.of_type("AWS::Lambda::MicrovmImage").values()] == ["moorage-1g"]
    families = {each["Family"] for each in both.of_type("AWS::ECS::TaskDefinition").values()}
    assert families == {"moorage-sandbox-16g", "moorage-egress-proxy"}
    builds = [name for name in both.of_type("Custom::ImageBuild") if "Proxy" not in name]
    assert len(builds) == 1, "Fargate and MicroVMs run one container image"


def test_functions_are_where_the_sandboxes_are_that_they_reach(both: Stacks) -> None:
    """Documents are read in containers of 1g, so in MicroVMs."""
    functions = both.of_type("AWS::Lambda::Function")
    inside = {name.removeprefix("Functions")[:-8] for name, each in functions.items() if "VpcConfig" in each}
    assert inside == {"ToolStep", "Sessions", "Retirement"}
    told = {name: both.function(name)["Environment"]["Variables"] for name in ("ToolStep", "ServiceStep", "ParseStep", "Expiry")}
    assert [each["MOORAGE_PROVISIONER"] for each in told.values()] == ["elsewhere", "by_tier", "by_tier", "by_tier"]
    assert [name for name, each in told.items() if "MOORAGE_SANDBOX_KEY" not in each] == []
    for each in told.values():
        assert (each["MOORAGE_FARGATE_TASK_DEFINITION_16G"], each["MOORAGE_MICROVM_UNPRICED"]) == ("moorage-sandbox-16g", "true")
        assert {name for name in each if name.startswith("MOORAGE_MICROVM_IMAGE")} == {"MOORAGE_MICROVM_IMAGE_1G"}
        assert each["MOORAGE_EGRESS_PROXY"] == "http://proxy.moorage.internal:3128"


def test_documents_are_read_inside_where_1g_is_fargates(tmp_path_factory: pytest.TempPathFactory) -> None:
    turned = shared({"provisioner": {"1g": "fargate", "4g": "lambda_microvm"}}, tmp_path_factory)
    assert "VpcConfig" in turned.function("ParseStep")
    assert turned.function("ParseStep")["Environment"]["Variables"]["MOORAGE_PROVISIONER"] == "elsewhere"


def test_sessions_come_to_the_function_that_reaches_microvms_and_asks_the_other(both: Stacks) -> None:
    (containers,) = [name for name in both.of_type("AWS::Lambda::Alias") if "FunctionsContainers" in name]
    (sessions,) = [name for name in both.of_type("AWS::Lambda::Alias") if "FunctionsSessions" in name]
    parts = {each["PathPart"]: name for name, each in both.of_type("AWS::ApiGateway::Resource").items()}
    for part in ("containers", "sessions", "processes"):
        methods = [m for m in both.of_type("AWS::ApiGateway::Method").values() if m["ResourceId"] == {"Ref": parts[part]}]
        assert methods
        assert all(containers in json.dumps(method["Integration"]) for method in methods)
    assert both.function("Containers")["Environment"]["Variables"]["MOORAGE_SCREENS_FUNCTION"] == {"Ref": sessions}


def test_both_networks_are_peered_with_the_proxys_and_have_addresses_of_their_own(both: Stacks) -> None:
    blocks = sorted(each["CidrBlock"] for each in both.of_type("AWS::EC2::VPC").values())
    assert blocks == ["10.42.0.0/16", "10.43.0.0/24", "10.44.0.0/16"]
    assert len(both.of_type("AWS::EC2::VPCPeeringConnection")) == 2
    (task,) = [each for each in both.of_type("AWS::ECS::TaskDefinition").values() if each["Family"] == "moorage-egress-proxy"]
    told: dict[str, Any] = {each["Name"]: each["Value"] for each in task["ContainerDefinitions"][0]["Environment"]}
    assert told["MOORAGE_EGRESS_OWN_NETWORKS"] == "10.42.0.0/16,10.44.0.0/16,10.43.0.0/24"
    assert "MOORAGE_EGRESS_PLACES_KEY" in told
    assert both.one("AWS::ServiceDiscovery::PrivateDnsNamespace")["Name"] == "moorage.internal", "for tasks: MicroVMs have no resolver"


def test_both_are_ended_before_what_they_run_in(both: Stacks) -> None:
    (machines,) = both.of_type("Custom::Microvms")
    (tasks,) = both.of_type("Custom::Sandboxes")
    waits = both.resources[next(name for name in both.of_type("AWS::Lambda::Function") if "ModelStep" in name)]["DependsOn"]
    assert {machines, tasks} <= set(waits)
