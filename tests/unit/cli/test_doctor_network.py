"""What the doctor says of a VPC that ``cdk.json`` names, by botocore's own models of the services."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moorage.cli.checks import given_network
from moorage.cli.checks.findings import Finding, Level

REGION, ID = "eu-west-1", "vpc-0123456789abcdef0"
VPC: dict[str, Any] = {
    "id": ID,
    "sandbox_subnets": ["subnet-a"],
    "function_subnets": ["subnet-b"],
    "proxy_subnets": ["subnet-c"],
    "endpoint_group": "sg-e",
}
SETTINGS: dict[str, Any] = {"vpc": VPC, "sandbox_logs": True}
S3, DYNAMODB = ({"DestinationPrefixListId": f"pl-{name}", "GatewayId": f"vpce-{name}"} for name in ("s3", "dynamodb"))
LOCAL = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"}
NAT = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}
BOUND = json.dumps(
    {
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": "*",
                "Action": "*",
                "Resource": "*",
                "Condition": {"StringEquals": {"aws:PrincipalAccount": "1"}},
            }
        ]
    }
)
OPEN = json.dumps({"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]})


def endpoint(service: str, kind: str = "Interface", **more: Any) -> dict[str, Any]:
    about = {"VpcEndpointId": f"vpce-{service}", "ServiceName": f"com.amazonaws.{REGION}.{service}", "VpcEndpointType": kind}
    return {**about, "State": "available", "PrivateDnsEnabled": True, "Groups": [{"GroupId": "sg-e"}], "PolicyDocument": BOUND, **more}


GOOD: dict[str, Any] = {
    "vpcs": [{"VpcId": ID, "CidrBlockAssociationSet": [{"CidrBlock": "10.0.0.0/16"}]}],
    "enableDnsSupport": True,
    "enableDnsHostnames": True,
    "subnet-a": [LOCAL, S3],
    "subnet-b": None,  # as the VPC's main table has it
    "subnet-c": [LOCAL, NAT],
    "missing": [],
    "endpoints": [endpoint("s3", "Gateway"), endpoint("dynamodb", "Gateway"), *map(endpoint, ("ecr.api", "ecr.dkr", "logs"))],
    "groups": [{"GroupId": "sg-e", "IpPermissionsEgress": []}],
    "rules": [{"Id": "rslvr-1"}],
}


@contextmanager
def network(**differently: Any) -> Iterator[Any]:
    has = GOOD | differently
    clients = {
        name: boto3.client(name, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")
        for name in ("ec2", "route53resolver")
    }
    ec2, resolver = (Stubber(client) for client in clients.values())
    in_vpc = {"Name": "vpc-id", "Values": [ID]}
    ec2.add_response("describe_vpcs", {"Vpcs": has["vpcs"]}, {"Filters": [in_vpc]})
    if has["vpcs"]:
        for name in ("enableDnsSupport", "enableDnsHostnames"):
            answer = {name[0].upper() + name[1:]: {"Value": has[name]}}
            ec2.add_response("describe_vpc_attribute", answer, {"VpcId": ID, "Attribute": name})
    tables = [{"Routes": [LOCAL, S3, DYNAMODB], "Associations": [{"Main": True}]}]
    tables += [
        {"Routes": has[name], "Associations": [{"SubnetId": name}]} for name in ("subnet-a", "subnet-b", "subnet-c") if has[name]
    ]
    ec2.add_response("describe_route_tables", {"RouteTables": tables}, {"Filters": [in_vpc]})
    gateways = [each for each in has["endpoints"] if each["VpcEndpointType"] == "Gateway"]
    ec2.add_response("describe_vpc_endpoints", {"VpcEndpoints": gateways})
    for name in ("subnet-a", "subnet-b", "subnet-c"):
        there = (
            [{"SubnetId": name, "AvailabilityZone": f"{REGION}a", "AvailableIpAddressCount": 250}] if name not in has["missing"] else []
        )
        ec2.add_response("describe_subnets", {"Subnets": there}, {"Filters": [in_vpc, {"Name": "subnet-id", "Values": [name]}]})
    ec2.add_response("describe_vpc_endpoints", {"VpcEndpoints": has["endpoints"]}, {"Filters": [in_vpc]})
    ec2.add_response("describe_security_groups", {"SecurityGroups": has["groups"]})
    resolver.add_response("list_firewall_rule_group_associations", {"FirewallRuleGroupAssociations": has["rules"]}, {"VpcId": ID})
    with ec2, resolver:
        yield clients.__getitem__
    for client in clients.values():
        client.close()


def found(settings: dict[str, Any] = SETTINGS, **differently: Any) -> list[Finding]:
    with network(**differently) as client:
        return list(given_network.findings(client, settings, REGION))


def test_a_network_that_has_everything_is_found_good() -> None:
    findings = found()
    assert [finding.what for finding in findings] == [
        f"VPC {ID} with 10.0.0.0/16",
        "vpc.sandbox_subnets: eu-west-1a (250 free)",
        "vpc.function_subnets: eu-west-1a (250 free)",
        "vpc.proxy_subnets: eu-west-1a (250 free)",
        "endpoint ecr.api",
        "endpoint ecr.dkr",
        "endpoint logs",
        "vpc.endpoint_group: sg-e",
        "the VPC's resolver has 1 DNS firewall rule group",
    ]
    assert {finding.level for finding in findings} == {Level.OK}


def without(service: str) -> list[dict[str, Any]]:
    return [each for each in GOOD["endpoints"] if not each["ServiceName"].endswith(service)]


LACKS: dict[str, tuple[dict[str, Any], Level, str]] = {
    "the VPC": ({"vpcs": []}, Level.FAIL, f"the VPC {ID} is not there"),
    "names": ({"enableDnsHostnames": False}, Level.FAIL, f"the VPC {ID} has enableDnsHostnames turned off"),
    "private addresses": (
        {"vpcs": [{"VpcId": ID, "CidrBlockAssociationSet": [{"CidrBlock": "8.0.0.0/16"}]}]},
        Level.FAIL,
        f"the VPC {ID} has public addresses: 8.0.0.0/16",
    ),
    "a subnet": ({"missing": ["subnet-b"]}, Level.FAIL, f"vpc.function_subnets: subnet-b is not in {ID}"),
    "a way to S3": ({"subnet-a": [LOCAL]}, Level.FAIL, "vpc.sandbox_subnets: subnet-a has no route to a gateway endpoint of s3"),
    "a way to the table": (
        {"subnet-b": [LOCAL, S3]},
        Level.FAIL,
        "vpc.function_subnets: subnet-b has no route to a gateway endpoint of dynamodb",
    ),
    "closed routes": ({"subnet-a": [LOCAL, S3, NAT]}, Level.WARN, "vpc.sandbox_subnets: subnet-a has routes that lead out: 0.0.0.0/0"),
    "a way out for the proxy": ({"subnet-c": [LOCAL]}, Level.FAIL, "vpc.proxy_subnets: subnet-c has no route to the internet"),
    "an address for the proxy": (
        {"subnet-c": [LOCAL, {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}]},
        Level.FAIL,
        "vpc.proxy_subnets: subnet-c leads to the internet by an internet gateway, and the proxy has no public address",
    ),
    "an endpoint": (
        {"endpoints": without("ecr.dkr")},
        Level.FAIL,
        "the VPC has no interface endpoint ecr.dkr that is available",
    ),
    "an endpoint's name": (
        {"endpoints": [*without("ecr.dkr"), endpoint("ecr.dkr", PrivateDnsEnabled=False)]},
        Level.FAIL,
        "the endpoint ecr.dkr has no private DNS name",
    ),
    "an endpoint's group": (
        {"endpoints": [*without("ecr.dkr"), endpoint("ecr.dkr", Groups=[{"GroupId": "sg-x"}])]},
        Level.FAIL,
        "the endpoint ecr.dkr has not the group sg-e",
    ),
    "a bound of accounts": (
        {"endpoints": [*without("s3"), endpoint("s3", "Gateway", PolicyDocument=OPEN)]},
        Level.WARN,
        "the endpoint s3 takes credentials of every account",
    ),
    "a group": ({"groups": []}, Level.FAIL, f"vpc.endpoint_group: sg-e is not in {ID}"),
    "a DNS firewall": ({"rules": []}, Level.WARN, "the VPC's resolver has no DNS firewall"),
}


@pytest.mark.parametrize(("differently", "level", "what"), LACKS.values(), ids=LACKS.keys())
def test_what_a_network_lacks_is_named_with_what_to_do(differently: dict[str, Any], level: Level, what: str) -> None:
    (lack,) = [finding for finding in found(**differently) if finding.level is not Level.OK]
    assert (lack.level, lack.what) == (level, what)
    assert lack.advice


def test_a_given_group_that_lets_sandboxes_out_anywhere_stops_a_deploy() -> None:
    vpc = {**VPC, "endpoint_group": None, "sandbox_group": "sg-s", "function_group": "sg-f"}
    anywhere = [{"GroupId": "sg-s", "IpPermissionsEgress": [{"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]}, {"GroupId": "sg-f"}]
    assert [
        finding for finding in found({"vpc": vpc}, groups=anywhere) if finding.what.startswith("vpc.") and "group" in finding.what
    ] == [
        Finding(
            Level.FAIL,
            "vpc.sandbox_group: sg-s lets sandboxes out to any address",
            "Remove this outbound rule. docs/aws_company.md (A network of yours) says what the VPC needs.",
        ),
        Finding(Level.OK, "vpc.function_group: sg-f"),
    ]


@pytest.mark.parametrize(
    ("has_resolver", "rules", "found"),
    [
        pytest.param(False, [], [(Level.OK, "the VPC's resolver is turned off")], id="without a resolver"),
        pytest.param(True, [], [(Level.WARN, "the VPC's resolver has no DNS firewall")], id="with a resolver for everybody"),
    ],
)
def test_microvms_need_no_endpoint_and_no_name_of_a_vpc(
    has_resolver: bool, rules: list[dict[str, Any]], found: list[tuple[Level, str]]
) -> None:
    """Names lead out of a MicroVM as they do out of a task, so a resolver needs its firewall."""
    groups = [{"GroupId": "sg-s", "IpPermissionsEgress": [{"UserIdGroupPairs": [{"GroupId": "sg-db"}]}]}]
    clients = {
        name: boto3.client(name, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")
        for name in ("ec2", "route53resolver")
    }
    ec2, resolver = (Stubber(client) for client in clients.values())
    ec2.add_response("describe_vpcs", {"Vpcs": GOOD["vpcs"]})
    ec2.add_response("describe_route_tables", {"RouteTables": [{"Routes": [LOCAL], "Associations": [{"Main": True}]}]})
    ec2.add_response("describe_vpc_endpoints", {"VpcEndpoints": []})
    there = [{"SubnetId": "subnet-a", "AvailabilityZone": f"{REGION}a", "AvailableIpAddressCount": 250}]
    ec2.add_response("describe_subnets", {"Subnets": there})
    ec2.add_response("describe_security_groups", {"SecurityGroups": groups})
    ec2.add_response(
        "describe_vpc_attribute", {"EnableDnsSupport": {"Value": has_resolver}}, {"VpcId": ID, "Attribute": "enableDnsSupport"}
    )
    if has_resolver:
        resolver.add_response("list_firewall_rule_group_associations", {"FirewallRuleGroupAssociations": rules})
    vpc = {"id": ID, "sandbox_subnets": ["subnet-a"], "sandbox_group": "sg-s"}
    with ec2, resolver:
        findings = list(given_network.findings(clients.__getitem__, {"provisioner": "lambda_microvm", "vpc": vpc}, REGION))
    for client in clients.values():
        client.close()
    assert [(finding.level, finding.what) for finding in findings] == [
        (Level.OK, f"VPC {ID} with 10.0.0.0/16"),
        (Level.OK, "vpc.sandbox_subnets: eu-west-1a (250 free)"),
        (Level.FAIL, "vpc.sandbox_group: sg-s has outbound rules"),
        *found,
    ]


def test_without_a_given_network_nothing_is_asked() -> None:
    clients: dict[str, Any] = {}
    assert list(given_network.findings(clients.__getitem__, {}, REGION)) == []


def test_a_check_that_may_not_be_made_is_a_warning_and_the_others_are_made() -> None:
    clients = {
        name: boto3.client(name, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")
        for name in ("ec2", "route53resolver")
    }
    ec2, resolver = (Stubber(client) for client in clients.values())
    for method in ("describe_vpcs", "describe_route_tables", "describe_vpc_endpoints", "describe_security_groups"):
        ec2.add_client_error(method, "UnauthorizedOperation")
    resolver.add_response("list_firewall_rule_group_associations", {"FirewallRuleGroupAssociations": GOOD["rules"]})
    with ec2, resolver:
        findings = list(given_network.findings(clients.__getitem__, SETTINGS, REGION))
    assert [finding.level for finding in findings] == [Level.WARN] * 4 + [Level.OK]
