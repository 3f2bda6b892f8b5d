"""A VPC that ``cdk.json`` names in place of one that the deployment would make: whether it has what sandboxes and functions need, and
no way out for sandboxes. Nothing of this is looked at by the deployment itself.
"""

import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from moorage.cli.checks.account import asked
from moorage.cli.checks.findings import Finding, fail, ok, warn

Client = Callable[[str], Any]
"""Makes a client of a service by its name."""

_PAGE: Final = "docs/aws_company.md (A network of yours) says what the VPC needs."
_ANYWHERE: Final = frozenset({"0.0.0.0/0", "::/0"})
_SUBNETS: Final = ("sandbox_subnets", "function_subnets", "proxy_subnets")
_SERVICES: Final = {"sandbox_subnets": ("s3",), "function_subnets": ("s3", "dynamodb")}
_SANDBOX_GROUPS: Final = ("sandbox_group", "policy_sandbox_group")
_GROUPS: Final = (*_SANDBOX_GROUPS, "function_group", "proxy_group", "endpoint_group")


def findings(client: Client, settings: Mapping[str, Any], region: str) -> Iterator[Finding]:
    """``settings`` are moorage's of ``cdk.json``. Nothing if they name no VPC."""
    vpc: Mapping[str, Any] | None = settings.get("vpc")
    if not vpc:
        return
    # A MicroVM's image comes to it by Lambda, so nothing of it has to be reached, and its group has no rules.
    only_fargate = [] if _has_microvms(settings) else [_endpoints]
    checks: list[Callable[..., Iterator[Finding]]] = [_vpc, _subnets, *only_fargate, _groups, _resolver]
    for check in checks:
        yield from _all_of(partial(check, client, vpc, settings, region), check.__name__)


def _has_microvms(settings: Mapping[str, Any]) -> bool:
    return settings.get("provisioner") == "lambda_microvm"


def _all_of(check: Callable[[], Iterator[Finding]], name: str) -> Iterator[Finding]:
    """The findings of a check, or why it could not be made."""
    found: list[Finding] = []

    def make() -> Finding:
        found.extend(check())
        return ok("")

    refused = asked(name, make)
    yield from found
    if refused.what:
        yield refused


def _vpc(client: Client, vpc: Mapping[str, Any], settings: Mapping[str, Any], _: str) -> Iterator[Finding]:
    ec2 = client("ec2")
    found = ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc["id"]]}])["Vpcs"]
    if not found:
        yield fail(f"the VPC {vpc['id']} is not there", "Correct vpc.id in cdk.json, or use the VPC's account and region.")
        return
    needed = () if _has_microvms(settings) else ("enableDnsSupport", "enableDnsHostnames")
    off = [name for name in needed if not _has_attribute(ec2, vpc["id"], name)]
    if off:
        yield fail(
            f"the VPC {vpc['id']} has {' and '.join(off)} turned off", "Turn both on: endpoints and the proxy are found by name."
        )
    blocks = [each["CidrBlock"] for each in found[0].get("CidrBlockAssociationSet", [])]
    public = [block for block in blocks if needed and ipaddress.ip_network(block).is_global]
    if public:
        yield fail(
            f"the VPC {vpc['id']} has public addresses: {', '.join(public)}",
            "The egress proxy refuses private addresses and would take these for the internet's. Name another VPC.",
        )
    if not off and not public:
        yield ok(f"VPC {vpc['id']} with {', '.join(blocks)}")


def _has_attribute(ec2: Any, vpc_id: str, name: str) -> bool:
    attribute: bool = ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute=name)[name[0].upper() + name[1:]]["Value"]
    return attribute


def _subnets(client: Client, vpc: Mapping[str, Any], settings: Mapping[str, Any], region: str) -> Iterator[Finding]:
    ec2 = client("ec2")
    tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc["id"]]}])["RouteTables"]
    gateways = _gateway_endpoints(ec2, vpc["id"], region)
    for name in _SUBNETS:
        wanted = vpc.get(name, [])
        if not wanted:
            continue
        there = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc["id"]]}, {"Name": "subnet-id", "Values": list(wanted)}])
        subnets = {each["SubnetId"]: each for each in there["Subnets"]}
        if missing := [each for each in wanted if each not in subnets]:
            yield fail(f"vpc.{name}: {', '.join(missing)} is not in {vpc['id']}", "Correct the id in cdk.json.")
        routes = {each: _routes(tables, each) for each in subnets}
        wanted_services = () if _has_microvms(settings) else _SERVICES.get(name, ())
        found = list(_routes_out(name, routes) if name == "proxy_subnets" else _routes_inside(name, routes, gateways, wanted_services))
        yield from found
        if not missing and not found:
            places = ", ".join(f"{each['AvailabilityZone']} ({each['AvailableIpAddressCount']} free)" for each in subnets.values())
            yield ok(f"vpc.{name}: {places}")


def _gateway_endpoints(ec2: Any, vpc_id: str, region: str) -> dict[str, str]:
    """The service of each gateway endpoint, by the endpoint's id."""
    filters = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "vpc-endpoint-type", "Values": ["Gateway"]}]
    found = ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"]
    return {each["VpcEndpointId"]: each["ServiceName"].removeprefix(f"com.amazonaws.{region}.") for each in found}


def _routes(tables: Iterable[Mapping[str, Any]], subnet: str) -> list[Mapping[str, Any]]:
    """Those of the subnet's own table, or of the VPC's main one."""
    main: list[Mapping[str, Any]] = []
    for table in tables:
        for tie in table.get("Associations", []):
            if tie.get("SubnetId") == subnet:
                return list(table["Routes"])
            if tie.get("Main"):
                main = list(table["Routes"])
    return main


def _routes_inside(
    name: str, routes: Mapping[str, list[Mapping[str, Any]]], gateways: Mapping[str, str], wanted: Sequence[str]
) -> Iterator[Finding]:
    for subnet, those in routes.items():
        reached = {gateways.get(each.get("GatewayId", "")) for each in those}
        if missing := [each for each in wanted if each not in reached]:
            yield fail(f"vpc.{name}: {subnet} has no route to a gateway endpoint of {' and '.join(missing)}", f"It is free. {_PAGE}")
        out = sorted(
            each.get("DestinationCidrBlock") or each.get("DestinationIpv6CidrBlock") or each["DestinationPrefixListId"]
            for each in those
            if each.get("GatewayId") != "local" and each.get("GatewayId", "") not in gateways
        )
        if out and name == "sandbox_subnets":
            yield warn(
                f"vpc.{name}: {subnet} has routes that lead out: {', '.join(out)}",
                "Only the security group keeps sandboxes from using them. Give sandboxes a route table without them.",
            )


def _routes_out(name: str, routes: Mapping[str, list[Mapping[str, Any]]]) -> Iterator[Finding]:
    for subnet, those in routes.items():
        default = next((each for each in those if each.get("DestinationCidrBlock") == "0.0.0.0/0"), None)
        if default is None:
            yield fail(f"vpc.{name}: {subnet} has no route to the internet", "The egress proxy needs one, such as a NAT gateway's.")
        elif default.get("GatewayId", "").startswith("igw-"):
            yield fail(
                f"vpc.{name}: {subnet} leads to the internet by an internet gateway, and the proxy has no public address",
                "Name subnets with a NAT gateway, or with another way that needs no public address.",
            )


def _endpoints(client: Client, vpc: Mapping[str, Any], settings: Mapping[str, Any], region: str) -> Iterator[Finding]:
    """Whether an image can be pulled, and that no endpoint lends sandboxes a way to others' accounts."""
    found = client("ec2").describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [vpc["id"]]}])["VpcEndpoints"]
    by_service = {each["ServiceName"].removeprefix(f"com.amazonaws.{region}."): each for each in found if each["State"] == "available"}
    for service in ("ecr.api", "ecr.dkr", *(["logs"] if settings.get("sandbox_logs") else [])):
        endpoint = by_service.get(service)
        if endpoint is None:
            yield fail(f"the VPC has no interface endpoint {service} that is available", f"No sandbox starts without it. {_PAGE}")
        elif not endpoint.get("PrivateDnsEnabled"):
            yield fail(f"the endpoint {service} has no private DNS name", "Turn its private DNS names on.")
        elif (group := vpc.get("endpoint_group")) and group not in {each["GroupId"] for each in endpoint["Groups"]}:
            yield fail(f"the endpoint {service} has not the group {group}", "Sandboxes are let out to vpc.endpoint_group alone.")
        else:
            yield ok(f"endpoint {service}")
    for service, endpoint in sorted(by_service.items()):
        if service in ("s3", "ecr.api", "ecr.dkr", "logs") and _is_open(endpoint.get("PolicyDocument", "")):
            yield warn(
                f"the endpoint {service} takes credentials of every account",
                f"A sandbox could send data to a stranger's account. Bound its policy by aws:PrincipalAccount. {_PAGE}",
            )


def _is_open(policy: str) -> bool:
    """The policy that an endpoint has by default, or one that says the same."""
    if not policy:
        return True
    statements = json.loads(policy)["Statement"]
    return any(
        each["Effect"] == "Allow" and not each.get("Condition") and "*" in _listed(each["Action"]) and "*" in _listed(each["Resource"])
        for each in (statements if isinstance(statements, list) else [statements])
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _groups(client: Client, vpc: Mapping[str, Any], settings: Mapping[str, Any], _: str) -> Iterator[Finding]:
    named = {name: vpc[name] for name in _GROUPS if vpc.get(name)}
    filters = [{"Name": "vpc-id", "Values": [vpc["id"]]}, {"Name": "group-id", "Values": sorted(set(named.values()))}]
    groups = {each["GroupId"]: each for each in client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]}
    for name, group_id in named.items():
        group = groups.get(group_id)
        if group is None:
            yield fail(f"vpc.{name}: {group_id} is not in {vpc['id']}", "Correct the id in cdk.json.")
        elif name in _SANDBOX_GROUPS and _lets_out_anywhere(group):
            yield fail(f"vpc.{name}: {group_id} lets sandboxes out to any address", f"Remove this outbound rule. {_PAGE}")
        elif _has_microvms(settings) and group.get("IpPermissionsEgress"):
            yield fail(f"vpc.{name}: {group_id} has outbound rules", f"A MicroVM may reach nothing. Remove them. {_PAGE}")
        else:
            yield ok(f"vpc.{name}: {group_id}")


def _lets_out_anywhere(group: Mapping[str, Any]) -> bool:
    return any(
        each.get("CidrIp") in _ANYWHERE or each.get("CidrIpv6") in _ANYWHERE
        for rule in group.get("IpPermissionsEgress", [])
        for each in (*rule.get("IpRanges", []), *rule.get("Ipv6Ranges", []))
    )


def _resolver(client: Client, vpc: Mapping[str, Any], settings: Mapping[str, Any], _: str) -> Iterator[Finding]:
    if _has_microvms(settings) and not _has_attribute(client("ec2"), vpc["id"], "enableDnsSupport"):
        yield ok("the VPC's resolver is turned off")
        return
    found = client("route53resolver").list_firewall_rule_group_associations(VpcId=vpc["id"])["FirewallRuleGroupAssociations"]
    if found:
        yield ok(f"the VPC's resolver has {len(found)} DNS firewall rule {'group' if len(found) == 1 else 'groups'}")
    else:
        yield warn(
            "the VPC's resolver has no DNS firewall",
            f"A command in a sandbox can send data out in the names that it asks for, past every security group. {_PAGE}",
        )
