"""An owner's VPC in place of the deployment's own: what is made in it, and that nothing of it is changed."""

from typing import Any

import pytest

from tests.infra.conftest import GIVEN_GROUPS, GIVEN_VPC, Stacks, shared

EGRESS: dict[str, Any] = {"allowed_egress_domains": ["pkg.example.com"]}
PROXY_SUBNETS = ["subnet-0000000000000000d"]
PROXY_GROUPS = {"policy_sandbox_group": "sg-0000000000000001c", "proxy_group": "sg-0000000000000001d"}
INSIDE = ("ToolStep", "ParseStep", "Sessions", "Retirement")


@pytest.fixture(scope="module")
def own_groups(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """Security groups are the deployment's."""
    return shared({**EGRESS, "vpc": {**GIVEN_VPC, "proxy_subnets": PROXY_SUBNETS}}, tmp_path_factory)


@pytest.fixture(scope="module")
def given_groups(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    vpc = {name: value for name, value in GIVEN_VPC.items() if name != "endpoint_group"}
    return shared({**EGRESS, "vpc": {**vpc, **GIVEN_GROUPS, **PROXY_GROUPS, "proxy_subnets": PROXY_SUBNETS}}, tmp_path_factory)


def rules(stacks: Stacks) -> set[tuple[str, str, str, int]]:
    """Every rule of a group: whose, which way, who or what is at the other end, and the port."""
    found = {
        (_name(name), way.lower(), _other(rule), rule["FromPort"])
        for way in ("Ingress", "Egress")
        for group, properties in stacks.of_type("AWS::EC2::SecurityGroup").items()
        for name, rule in ((group, each) for each in properties.get(f"SecurityGroup{way}", []))
        if rule.get("CidrIp") != "255.255.255.255/32"
    }
    return found | {
        (_name(rule["GroupId"]["Fn::GetAtt"][0]), way.lower(), _other(rule), rule["FromPort"])
        for way in ("Ingress", "Egress")
        for rule in stacks.of_type(f"AWS::EC2::SecurityGroup{way}").values()
    }


def _name(logical_id: str) -> str:
    return logical_id[:-8]


def _other(rule: dict[str, Any]) -> str:
    ends = ("CidrIp", "DestinationSecurityGroupId", "SourceSecurityGroupId", "DestinationPrefixListId")
    (end,) = [rule[name] for name in ends if name in rule]
    if isinstance(end, str):
        return end
    resource, attribute = end["Fn::GetAtt"]
    return attribute if resource.startswith("HooksPrefixLists") else _name(resource)


def test_the_groups_of_the_deployment_let_through_what_its_own_network_would(own_groups: Stacks) -> None:
    sandboxes = ("NetworkSandboxGroup", "EgressSandboxGroup")
    pulls = {(group, "egress", to, 443) for group in sandboxes for to in ("s3", GIVEN_VPC["endpoint_group"])}
    assert rules(own_groups) == pulls | {
        *((group, "ingress", "NetworkFunctionGroup", 8080) for group in sandboxes),
        *(("NetworkFunctionGroup", "egress", group, 8080) for group in sandboxes),
        *(("NetworkFunctionGroup", "egress", service, 443) for service in ("s3", "dynamodb")),
        ("EgressSandboxGroup", "egress", "EgressProxyGroup", 3128),
        ("EgressProxyGroup", "ingress", "EgressSandboxGroup", 3128),
        *(("EgressProxyGroup", "egress", "0.0.0.0/0", port) for port in (80, 443)),
    }


def test_nothing_of_the_network_is_made_or_changed(own_groups: Stacks, given_groups: Stacks) -> None:
    def made(stacks: Stacks) -> set[str]:
        kinds = {each["Type"] for each in stacks.resources.values()}
        return {kind for kind in kinds if kind.startswith(("AWS::EC2::", "AWS::Route53Resolver::"))}

    groups = {f"AWS::EC2::SecurityGroup{way}" for way in ("", "Ingress", "Egress")}
    assert (made(own_groups), made(given_groups)) == (groups, set())
    assert {each["VpcId"] for each in own_groups.of_type("AWS::EC2::SecurityGroup").values()} == {GIVEN_VPC["id"]}


def test_functions_and_sandboxes_are_where_they_are_told_to_be(own_groups: Stacks, given_groups: Stacks) -> None:
    groups: dict[str, Any] = {**GIVEN_GROUPS, **PROXY_GROUPS}
    for name in INSIDE:
        assert given_groups.function(name)["VpcConfig"] == {
            "SubnetIds": GIVEN_VPC["function_subnets"],
            "SecurityGroupIds": [groups["function_group"]],
        }
        assert own_groups.function(name)["VpcConfig"]["SubnetIds"] == GIVEN_VPC["function_subnets"]
    told = given_groups.function("ModelStep")["Environment"]["Variables"]
    assert {name: told[f"MOORAGE_{name}"] for name in ("FARGATE_SUBNETS", "FARGATE_SECURITY_GROUP", "EGRESS_PROXY")} == {
        "FARGATE_SUBNETS": ",".join(GIVEN_VPC["sandbox_subnets"]),
        "FARGATE_SECURITY_GROUP": groups["sandbox_group"],
        "EGRESS_PROXY": "http://proxy.moorage.moorage.internal:3128",
    }
    assert told["MOORAGE_FARGATE_EGRESS_SECURITY_GROUP"] == groups["policy_sandbox_group"]


def test_the_proxy_has_no_public_address_in_a_given_network(given_groups: Stacks) -> None:
    """Its name is one of the deployment's own: another deployment may be in the same VPC."""
    service = given_groups.one("AWS::ECS::Service")
    assert service["NetworkConfiguration"]["AwsvpcConfiguration"] == {
        "AssignPublicIp": "DISABLED",
        "SecurityGroups": [PROXY_GROUPS["proxy_group"]],
        "Subnets": PROXY_SUBNETS,
    }
    zone = given_groups.one("AWS::ServiceDiscovery::PrivateDnsNamespace")
    assert (zone["Name"], zone["Vpc"]) == ("moorage.moorage.internal", GIVEN_VPC["id"])


def test_cdk_nag_finds_nothing_in_either(own_groups: Stacks, given_groups: Stacks) -> None:
    assert (own_groups.findings, given_groups.findings) == ([], [])
