"""Each part of a deployment reaches what it needs, by name and by packet, and nothing else."""

import dataclasses
import json
from typing import Any

import pytest

from tests.infra.conftest import BOTH, MICROVMS, shared
from tests.twin.network import NetworkTwin, Place, Service
from tests.twin.template import ACCOUNT, REGION, Template

CLOSED = Place("NetworkVpcsandboxSubnet1Subnet", "NetworkSandboxGroup")
OPEN = Place("NetworkVpcsandboxSubnet1Subnet", "EgressSandboxGroup")
TOOL_STEP = Place("NetworkVpcfunctionsSubnet1Subnet", "NetworkFunctionGroup")
PROXY = Place("EgressVpcproxySubnet1Subnet", "EgressProxyGroup", is_public=True)
INTERNET = "203.0.113.7"
ECR_API, ECR_DOCKER, S3, DYNAMODB = Service("ecr.api"), Service("ecr.dkr"), Service("s3"), Service("dynamodb")
LAYERS = f"prod-{REGION}-starport-layer-bucket"
OTHER_ACCOUNT = "999988887777"

PULL = (
    *(f"api.ecr.{REGION}.amazonaws.com", f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"),
    *(f"{LAYERS}.s3.{REGION}.amazonaws.com", f"{LAYERS}.s3.amazonaws.com"),
)
NOT_ANSWERED = (
    "example.com",
    "secret.attacker.example",
    f"sts.{REGION}.amazonaws.com",
    f"ecs.{REGION}.amazonaws.com",
    f"moorage.s3.{REGION}.amazonaws.com",
    f"attacker.s3.{REGION}.amazonaws.com",
    "s3.amazonaws.com",
    "attacker.s3.amazonaws.com",
    f"dkr.ecr.{REGION}.amazonaws.com.attacker.example",
)


@pytest.fixture(params=["default", "everything"])
def network(request: pytest.FixtureRequest, default: Template, full: Template) -> NetworkTwin:
    return NetworkTwin(default if request.param == "default" else full)


CHOSEN: dict[str, Any] = {
    "vpc_cidr": "172.20.0.0/20",
    "proxy_cidr": "172.20.16.0/26",
    "allowed_egress_domains": ["pkg.example.com"],
    "availability_zones": 3,
    "sandbox_logs": True,
}
"""The smallest networks, with the most zones."""


@pytest.fixture(params=["everything", "chosen addresses"])
def with_proxy(request: pytest.FixtureRequest, full: Template, tmp_path_factory: pytest.TempPathFactory) -> NetworkTwin:
    if request.param == "everything":
        return NetworkTwin(full)
    found = shared(CHOSEN, tmp_path_factory)
    # Other addresses are in the VPC's name.
    text = [json.dumps(each).replace("NetworkVpc172x20x0x0x20", "NetworkVpc") for each in (found.state, found.service)]
    return NetworkTwin(Template.of(*map(json.loads, text)))


@pytest.mark.parametrize("name", PULL)
def test_fargate_finds_every_name_that_an_image_is_pulled_from(network: NetworkTwin, name: str) -> None:
    assert network.resolves(name)


@pytest.mark.parametrize("service", [ECR_API, ECR_DOCKER, S3], ids=lambda service: service.name)
def test_fargate_reaches_what_an_image_is_pulled_from(network: NetworkTwin, service: Service) -> None:
    assert network.connects(CLOSED, service, 443)


def test_layers_of_ecr_come_through_the_endpoint_and_nothing_else_does(network: NetworkTwin) -> None:
    """ECR's links are signed by an account of AWS's."""
    assert network.lets_through("s3", "s3:GetObject", f"arn:aws:s3:::{LAYERS}/layer", account=OTHER_ACCOUNT)
    assert not network.lets_through("s3", "s3:PutObject", f"arn:aws:s3:::{LAYERS}/layer", account=OTHER_ACCOUNT)
    assert not network.lets_through("s3", "s3:GetObject", f"{network.bucket}/T/acme/file", account=OTHER_ACCOUNT)
    assert not network.lets_through("s3", "s3:PutObject", "arn:aws:s3:::attacker/stolen", account=OTHER_ACCOUNT)
    assert not network.lets_through("s3", "s3:PutObject", "arn:aws:s3:::attacker/stolen", account=ACCOUNT)


def test_the_tool_step_reaches_sandboxes_table_and_bucket_and_nothing_else(network: NetworkTwin) -> None:
    assert [network.connects(TOOL_STEP, to, 443) for to in (S3, DYNAMODB)] == [True, True]
    assert network.connects(TOOL_STEP, CLOSED, 8080)
    assert not network.connects(TOOL_STEP, CLOSED, 22)
    assert [network.connects(TOOL_STEP, to, 443) for to in (ECR_API, ECR_DOCKER, INTERNET)] == [False] * 3
    assert network.lets_through("s3", "s3:PutObject", f"{network.bucket}/T/acme/file")
    assert network.lets_through("dynamodb", "dynamodb:Query", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/moorage")


@pytest.mark.parametrize("name", NOT_ANSWERED)
def test_a_sandbox_is_told_no_other_name(network: NetworkTwin, name: str) -> None:
    assert not network.resolves(name)


def test_a_sandbox_without_a_policy_reaches_nobody(with_proxy: NetworkTwin) -> None:
    assert not with_proxy.connects(CLOSED, INTERNET, 443)
    assert not with_proxy.connects(CLOSED, PROXY, 3128)
    assert not with_proxy.connects(CLOSED, CLOSED, 8080)
    assert not with_proxy.connects(CLOSED, OPEN, 8080)
    assert not with_proxy.connects(CLOSED, TOOL_STEP, 443)
    assert not with_proxy.connects(CLOSED, DYNAMODB, 443)


def test_a_sandbox_with_a_policy_reaches_the_proxy_besides(with_proxy: NetworkTwin) -> None:
    assert with_proxy.resolves("proxy.moorage.internal")
    assert with_proxy.connects(OPEN, PROXY, 3128)
    assert with_proxy.connects(TOOL_STEP, OPEN, 8080)
    assert [with_proxy.connects(OPEN, service, 443) for service in (ECR_API, ECR_DOCKER, S3)] == [True] * 3
    assert not with_proxy.connects(OPEN, PROXY, 443)
    assert not with_proxy.connects(OPEN, INTERNET, 443)
    assert not with_proxy.connects(OPEN, CLOSED, 8080)
    assert not with_proxy.connects(OPEN, DYNAMODB, 443)


def test_the_proxy_reaches_the_internet_and_no_sandbox(with_proxy: NetworkTwin) -> None:
    assert [with_proxy.connects(PROXY, INTERNET, port) for port in (80, 443, 22)] == [True, True, False]
    assert [with_proxy.connects(PROXY, sandbox, 8080) for sandbox in (OPEN, CLOSED)] == [False, False]
    assert with_proxy.resolves("example.com", "Egress")


def test_credentials_of_another_account_lead_nowhere_through_any_endpoint(with_proxy: NetworkTwin) -> None:
    for service, action in (("ecr.api", "ecr:PutImage"), ("ecr.dkr", "ecr:PutImage"), ("logs", "logs:PutLogEvents")):
        assert with_proxy.lets_through(service, action, "*")
        assert not with_proxy.lets_through(service, action, "*", account=OTHER_ACCOUNT)
    assert not with_proxy.lets_through("dynamodb", "dynamodb:PutItem", "*", account=OTHER_ACCOUNT)


# --- MicroVMs ---

MICROVM = Place("MicrovmsNetworkVpcmicrovmSubnet1Subnet", "MicrovmsNetworkClosedGroup")


def test_a_microvm_reaches_the_bucket_alone_and_is_told_no_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    stacks = shared({"rollout": "linear", **MICROVMS}, tmp_path_factory)
    template = Template.of(stacks.state, stacks.service)
    network = NetworkTwin(template)
    assert [network.connects(MICROVM, to, 443) for to in (MICROVM, S3, DYNAMODB, ECR_API, INTERNET)] == [False, True, *[False] * 3]
    assert [network.resolves(name, "MicrovmsNetwork") for name in (*NOT_ANSWERED, *PULL)] == [False] * (len(NOT_ANSWERED) + len(PULL))
    (connector,) = [properties for _, properties in template.of_type("AWS::Lambda::NetworkConnector")]
    assert connector["Configuration"]["VpcEgressConfiguration"] == {
        "AssociatedComputeResourceTypes": ["MicroVm"],
        "NetworkProtocol": "IPv4",
        "SubnetIds": [f"<{template.one('AWS::EC2::Subnet')[0]}>"],
        "SecurityGroupIds": [f"<{template.one('AWS::EC2::SecurityGroup')[0]}.GroupId>"],
    }


WAYS = {
    "a file, out of the bucket": ("s3:GetObject", "{bucket}/T/acme/F/file-1", ACCOUNT),
    "a file of a container's, into it": ("s3:PutObject", "{bucket}/T/acme/C/cntr_1/abc", ACCOUNT),
    "into a file of a client's": ("s3:PutObject", "{bucket}/T/acme/F/file-1", ACCOUNT),
    "into the image of all VMs": ("s3:PutObject", "{bucket}/microvm-images/abc.zip", ACCOUNT),
    "out of the image of all VMs": ("s3:GetObject", "{bucket}/microvm-images/abc.zip", ACCOUNT),
    "deletion": ("s3:DeleteObject", "{bucket}/T/acme/C/cntr_1/abc", ACCOUNT),
    "a list": ("s3:ListBucket", "{bucket}", ACCOUNT),
    "another bucket of this account": ("s3:PutObject", "arn:aws:s3:::other/T/acme/C/cntr_1/abc", ACCOUNT),
    "a bucket of another account": ("s3:PutObject", "arn:aws:s3:::attacker/T/acme/C/cntr_1/abc", OTHER_ACCOUNT),
    "another account's credentials": ("s3:PutObject", "{bucket}/T/acme/C/cntr_1/abc", OTHER_ACCOUNT),
    "no credentials": ("s3:GetObject", "{bucket}/T/acme/F/file-1", ""),
    "layers of ECR": ("s3:GetObject", f"arn:aws:s3:::{LAYERS}/layer", OTHER_ACCOUNT),
}


def test_only_files_of_tenants_pass_the_endpoint_of_microvms(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands reach S3's addresses, so this policy is what closes the network to every other bucket."""
    stacks = shared(MICROVMS, tmp_path_factory)
    network = NetworkTwin(Template.of(stacks.state, stacks.service))
    let_through = [
        way
        for way, (action, resource, account) in WAYS.items()
        if network.lets_through("s3", action, resource.format(bucket=network.bucket), account)
    ]
    assert let_through == ["a file, out of the bucket", "a file of a container's, into it"]


def test_a_microvm_with_a_policy_reaches_the_proxy_and_nobody_else(tmp_path_factory: pytest.TempPathFactory) -> None:
    stacks = shared({**MICROVMS, "allowed_egress_domains": ["pkg.example.com"]}, tmp_path_factory)
    network = NetworkTwin(Template.of(stacks.state, stacks.service))
    let_out = Place(MICROVM.subnet, "EgressSandboxGroup")
    assert [network.connects(let_out, PROXY, port) for port in (3128, 443, 80)] == [True, False, False]
    assert [network.connects(let_out, to, 443) for to in (MICROVM, S3, DYNAMODB, ECR_API, INTERNET)] == [False, True, *[False] * 3]
    assert [network.connects(MICROVM, to, 3128) for to in (PROXY, INTERNET, let_out)] == [False] * 3
    assert [network.resolves(name, "MicrovmsNetwork") for name in (*NOT_ANSWERED, *PULL, "proxy.moorage.internal")] == [False] * 14
    assert [network.connects(PROXY, INTERNET, port) for port in (80, 443, 22)] == [True, True, False]
    assert [network.connects(PROXY, vm, 8080) for vm in (MICROVM, let_out)] == [False, False]


def test_both_kinds_of_sandboxes_reach_one_proxy_and_not_each_other(tmp_path_factory: pytest.TempPathFactory) -> None:
    stacks = shared(BOTH, tmp_path_factory)
    network = NetworkTwin(Template.of(stacks.state, stacks.service))
    microvm = Place("MicrovmsNetworkVpc10x44x0x0x16microvmSubnet1Subnet", MICROVM.group)
    kinds = (CLOSED, microvm, OPEN, Place(microvm.subnet, "EgressMicrovmSandboxGroup"))
    assert [network.connects(each, PROXY, 3128) for each in kinds] == [False, False, True, True]
    assert [network.connects(first, second, 8080) for first in kinds for second in kinds] == [False] * 16
    assert [network.connects(TOOL_STEP, each, 8080) for each in kinds] == [True, False, True, False]
    assert [network.connects(each, INTERNET, port) for each in kinds for port in (80, 443)] == [False] * 8
    assert [network.resolves(name, "MicrovmsNetwork") for name in NOT_ANSWERED] == [False] * len(NOT_ANSWERED)


# --- What this would have found ---


def changed(template: Template, kind: str, change: Any) -> NetworkTwin:
    resources = {n: change(dict(r)) if r["Type"] == kind else r for n, r in template.resources.items()}
    return NetworkTwin(dataclasses.replace(template, resources={n: r for n, r in resources.items() if r is not None}))


def test_without_trust_in_redirections_the_layers_cannot_be_found(default: Template) -> None:
    def distrust(group: dict[str, Any]) -> dict[str, Any]:
        rules = [
            {name: value for name, value in rule.items() if name != "FirewallDomainRedirectionAction"}
            for rule in group["Properties"]["FirewallRules"]
        ]
        return group | {"Properties": {"FirewallRules": rules}}

    def forget(names: dict[str, Any]) -> dict[str, Any]:
        return names | {"Properties": {"Domains": [d for d in names["Properties"]["Domains"] if "s3-r-w" not in str(d)]}}

    inspected = changed(default, "AWS::Route53Resolver::FirewallRuleGroup", distrust)
    assert inspected.resolves(PULL[2])  # the name it leads to is listed as well
    unlisted = changed(default, "AWS::Route53Resolver::FirewallDomainList", forget)
    assert unlisted.resolves(PULL[2])  # whatever it leads to is trusted
    neither = changed(inspected._template, "AWS::Route53Resolver::FirewallDomainList", forget)
    assert [neither.resolves(name) for name in PULL] == [True, True, False, False]


@pytest.mark.parametrize("kind", ["AWS::EC2::Route", "AWS::EC2::VPCPeeringConnection", "AWS::EC2::SecurityGroupEgress"])
def test_whatever_is_missing_on_the_way_closes_it(full: Template, kind: str) -> None:
    broken = changed(full, kind, lambda _: None)
    assert not (broken.connects(OPEN, PROXY, 3128) and broken.connects(OPEN, ECR_API, 443))
