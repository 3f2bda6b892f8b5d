"""What can reach what in a deployment: routes, security groups, endpoint policies and the DNS firewall, evaluated as AWS does.

Emulators take these resources and enforce none of them, so the rules are read from the template and applied here:

* a packet needs a route in its subnet's table, an outbound rule of its group and an inbound rule of the other side's;
* an endpoint lets a request through that its policy allows to the caller's account;
* the firewall goes through its rules by priority; a rule that allows a name without trusting its redirections looks at every name of
  the chain, and one that no rule allows is refused (Route 53 developer guide, "Domain settings").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import Any

from tests.twin.template import ACCOUNT, Template


def cnames(region: str) -> dict[str, str]:
    """Recorded: what public captures and allowlists show of AWS's names. All change without notice."""
    layers = f"prod-{region}-starport-layer-bucket.s3"
    return {
        f"{layers}.{region}.amazonaws.com": f"s3-r-w.{region}.amazonaws.com",
        f"{layers}.amazonaws.com": "s3-1-w.amazonaws.com",
        f"moorage.s3.{region}.amazonaws.com": f"s3-r-w.{region}.amazonaws.com",
    }


@dataclass(frozen=True)
class Place:
    """Something with a network interface: its subnet's kind, its security groups, and whether the internet can answer it."""

    subnet: str
    group: str
    is_public: bool = False


@dataclass(frozen=True)
class Service:
    """What an endpoint of the VPC leads to, or a prefix list of a gateway endpoint names."""

    name: str


class NetworkTwin:
    def __init__(self, template: Template) -> None:
        self._template = template
        self._subnets = dict(template.of_type("AWS::EC2::Subnet"))
        self._groups = dict(template.of_type("AWS::EC2::SecurityGroup"))

    # --- Connections ---

    def connects(self, source: Place, to: Place | Service | str, port: int) -> bool:
        """``to`` is another place, a service behind an endpoint, or an address of the internet."""
        match to:
            case Place():
                return (
                    self._is_routed(source, self._address(to))
                    and self._is_routed(to, self._address(source))
                    and self._lets_out(source, port, group=to.group, address=self._address(to))
                    and self._lets_in(to, port, group=source.group, address=self._address(source))
                )
            case Service(name=name):
                return self._reaches_gateway(source, name, port) or self._reaches_interface(source, name, port)
            case _:
                return source.is_public and self._is_routed(source, to) and self._lets_out(source, port, address=to)

    def _address(self, place: Place) -> str:
        """The first usable one of its subnet: AWS keeps four."""
        return str(next(ip_network(self._subnet(place)[1]["CidrBlock"]).hosts()) + 4)

    def _subnet(self, place: Place) -> tuple[str, Any]:
        return next((name, subnet) for name, subnet in self._subnets.items() if place.subnet in name)

    def _table(self, place: Place) -> str:
        subnet = f"<{self._subnet(place)[0]}>"
        ties = self._template.of_type("AWS::EC2::SubnetRouteTableAssociation")
        (table,) = [tie["RouteTableId"] for _, tie in ties if tie["SubnetId"] == subnet]
        return str(table)

    def _is_routed(self, source: Place, address: str) -> bool:
        """The VPC's own range is always routed; of all others the narrowest route counts, and it must lead somewhere."""
        vpc = self._subnet(source)[1]["VpcId"]
        own = next(v["CidrBlock"] for name, v in self._template.of_type("AWS::EC2::VPC") if f"<{name}>" == vpc)
        if ip_address(address) in ip_network(own):
            return True
        table = self._table(source)
        routes = [r for _, r in self._template.of_type("AWS::EC2::Route") if r["RouteTableId"] == table]
        fitting = [r for r in routes if ip_address(address) in ip_network(r.get("DestinationCidrBlock", "255.255.255.255/32"))]
        if not fitting:
            return False
        route = max(fitting, key=lambda each: ip_network(each["DestinationCidrBlock"]).prefixlen)
        return self._leads(route, str(vpc))

    def _leads(self, route: dict[str, Any], vpc: str) -> bool:
        if "VpcPeeringConnectionId" in route:
            peerings = self._template.of_type("AWS::EC2::VPCPeeringConnection")
            return any(vpc in (peering["VpcId"], peering["PeerVpcId"]) for _, peering in peerings)
        gateways = self._template.of_type("AWS::EC2::VPCGatewayAttachment")
        return any((tie["InternetGatewayId"], tie["VpcId"]) == (route.get("GatewayId"), vpc) for _, tie in gateways)

    def _lets_out(self, place: Place, port: int, **to: str) -> bool:
        return any(_covers(rule, port) and _names(rule, "Destination", **to) for rule in self._rules(place.group, "Egress"))

    def _lets_in(self, place: Place, port: int, **source: str) -> bool:
        return any(_covers(rule, port) and _names(rule, "Source", **source) for rule in self._rules(place.group, "Ingress"))

    def _rules(self, group: str, direction: str) -> Iterator[dict[str, Any]]:
        (name,) = [name for name in self._groups if name.startswith(group)]
        yield from self._groups[name].get(f"SecurityGroup{direction}", [])
        for _, rule in self._template.of_type(f"AWS::EC2::SecurityGroup{direction}"):
            if rule["GroupId"] == f"<{name}.GroupId>":
                yield rule

    def _endpoints(self, source: Place, service: str, kind: str) -> list[dict[str, Any]]:
        vpc = self._subnet(source)[1]["VpcId"]
        return [
            endpoint
            for _, endpoint in self._template.of_type("AWS::EC2::VPCEndpoint")
            if (endpoint["VpcId"], endpoint["VpcEndpointType"]) == (vpc, kind)
            and endpoint["ServiceName"] == f"com.amazonaws.{self._template.region}.{service}"
        ]

    def _reaches_gateway(self, source: Place, service: str, port: int) -> bool:
        table = self._table(source)
        is_routed = any(table in endpoint["RouteTableIds"] for endpoint in self._endpoints(source, service, "Gateway"))
        return is_routed and self._lets_out(source, port, prefix_list=service)

    def _reaches_interface(self, source: Place, service: str, port: int) -> bool:
        for endpoint in self._endpoints(source, service, "Interface"):
            (group,) = endpoint["SecurityGroupIds"]
            other = Place("functionsSubnet", group.removeprefix("<").removesuffix(".GroupId>"))
            if self.connects(source, other, port):
                return True
        return False

    # --- Endpoint policies ---

    @property
    def bucket(self) -> str:
        """The ARN of the deployment's own."""
        return f"<{self._template.one('AWS::S3::Bucket')[0]}.Arn>"

    def lets_through(self, service: str, action: str, resource: str, account: str = ACCOUNT) -> bool:
        """May a caller of ``account`` do this through the sandboxes' endpoint of the service?"""
        (endpoint,) = [
            endpoint
            for _, endpoint in self._template.of_type("AWS::EC2::VPCEndpoint")
            if endpoint["ServiceName"] == f"com.amazonaws.{self._template.region}.{service}"
        ]
        return any(_allows(statement, action, resource, account) for statement in endpoint["PolicyDocument"]["Statement"])

    # --- Names ---

    def resolves(self, name: str, vpc: str = "Network") -> bool:
        """Does the resolver of the VPC answer for the name, with every redirection on the way?"""
        (of,) = [each for found, each in self._template.of_type("AWS::EC2::VPC") if found.startswith(f"{vpc}Vpc")]
        if not of["EnableDnsSupport"]:
            return False
        rules = self._firewall(vpc)
        chain = [name]
        leads = cnames(self._template.region)
        while chain[-1] in leads:
            chain.append(leads[chain[-1]])
        for link in chain:
            rule = next((rule for rule in rules if any(_is_listed(link, domain) for domain in rule["domains"])), None)
            if rule is None:
                continue
            if rule["Action"] == "BLOCK":
                return False
            if rule.get("FirewallDomainRedirectionAction") == "TRUST_REDIRECTION_DOMAIN":
                return True
        return True

    def _firewall(self, vpc: str) -> list[dict[str, Any]]:
        lists = dict(self._template.of_type("AWS::Route53Resolver::FirewallDomainList"))
        groups = dict(self._template.of_type("AWS::Route53Resolver::FirewallRuleGroup"))
        rules = [
            rule | {"domains": lists[rule["FirewallDomainListId"][1:].removesuffix(".Id>")]["Domains"]}
            for _, tie in self._template.of_type("AWS::Route53Resolver::FirewallRuleGroupAssociation")
            if tie["VpcId"].startswith(f"<{vpc}")
            for rule in groups[tie["FirewallRuleGroupId"][1:].removesuffix(".Id>")]["FirewallRules"]
        ]
        return sorted(rules, key=lambda rule: int(rule["Priority"]))


def _covers(rule: dict[str, Any], port: int) -> bool:
    if rule["IpProtocol"] == "-1":
        return True
    return bool(rule["IpProtocol"] == "tcp" and rule["FromPort"] <= port <= rule["ToPort"])


def _names(rule: dict[str, Any], side: str, *, group: str = "", address: str = "", prefix_list: str = "") -> bool:
    if "CidrIp" in rule:
        return bool(address) and ip_address(address) in ip_network(rule["CidrIp"])
    if f"{side}SecurityGroupId" in rule:
        return bool(group) and rule[f"{side}SecurityGroupId"].startswith(f"<{group}")
    return bool(prefix_list) and rule.get(f"{side}PrefixListId", "").endswith(f".{prefix_list}>")


def _allows(statement: dict[str, Any], action: str, resource: str, account: str) -> bool:
    assert statement["Effect"] == "Allow"
    conditions = statement.get("Condition", {})
    assert set(conditions) <= {"StringEquals"}
    wanted = conditions.get("StringEquals", {}).get("aws:PrincipalAccount", account)
    assert set(conditions.get("StringEquals", {})) <= {"aws:PrincipalAccount"}
    return (
        wanted == account
        and any(fnmatchcase(action, pattern) for pattern in _listed(statement["Action"]))
        and any(fnmatchcase(resource, pattern) for pattern in _listed(statement["Resource"]))
    )


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _is_listed(name: str, domain: str) -> bool:
    """``*.a.b`` matches names below ``a.b`` and not ``a.b``; ``*`` matches all."""
    return domain == "*" or name == domain or (domain.startswith("*.") and name.endswith(domain[1:]))
