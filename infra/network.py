"""The network of sandboxes: a VPC without a way out, made by the deployment or given by the owner.

It has isolated subnets only: no internet gateway, no NAT. Fargate itself needs image layers from ECR and S3. They come through
endpoints with policies for them alone. The resolver answers for those names alone, because security groups cannot see DNS. The optional
egress proxy lives in a second VPC (``infra/egress.py``), so that no mistake in a route table of this one can reach the internet.

Of an owner's VPC nothing is changed and nothing looked up: the deployment makes security groups in it, or takes given ones.
``docs/aws_company.md`` lists the requirements of the VPC, and ``moorage doctor --aws`` checks them.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53resolver as resolver
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.config import AVAILABILITY_ZONES_MAX, Config, GivenVpc
from infra.custom_resource import CustomResources
from infra.nag import acknowledge

EXEC_PORT: Final = 8080
SANDBOX_CIDR: Final[str] = Config.model_fields["vpc_cidr"].default
SANDBOXES_PART: Final = 4
"""Bits of the network's prefix more that a subnet of sandboxes has, for each zone a sixteenth."""
FUNCTIONS_PART: Final = 8

_BLOCK_PRIORITY: Final = 200
_ALLOW_PRIORITY: Final = 100
_ASSOCIATION_PRIORITY: Final = 101
"""Rule groups of a VPC take 101 to 8,999 (Route 53 Resolver API reference)."""


def reserved_zones(scope: Construct, config: Config) -> int:
    """Zones with reserved addresses, so that their number can change while its subnets stay in place.

    A region may have fewer zones than are wanted.
    """
    zones = len(cdk.Stack.of(scope).availability_zones)
    return AVAILABILITY_ZONES_MAX - min(config.availability_zones, zones)


def isolated_subnets(name: str, part: int, cidr: str) -> ec2.SubnetConfiguration:
    """One in each zone, with a prefix of ``part`` bits more than the network's."""
    prefix = ipaddress.IPv4Network(cidr).prefixlen
    return ec2.SubnetConfiguration(name=name, subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=prefix + part)


def named_by(construct_id: str, cidr: str) -> str:
    """Other addresses make another network, with another name: functions are published anew if a referenced name changes."""
    return construct_id if cidr == SANDBOX_CIDR else construct_id + cidr.replace(".", "x").replace("/", "x")


class Network(Construct):
    """The security groups of sandboxes and of the functions that reach them, with their rules."""

    vpc: ec2.IVpc
    sandbox_subnet_ids: Sequence[str]
    function_subnets: ec2.SubnetSelection
    function_group: ec2.ISecurityGroup
    sandbox_group: ec2.ISecurityGroup
    given: GivenVpc | None = None
    """Where the network is the owner's."""
    _image_group: ec2.ISecurityGroup
    _s3: ec2.IPeer

    def _admit_functions(self, hooks: CustomResources) -> None:
        """Let the tool step reach sandboxes, DynamoDB and S3."""
        https = ec2.Port.tcp(443)
        prefix_lists = hooks.prefix_lists("s3", "dynamodb")
        self._s3 = ec2.Peer.prefix_list(prefix_lists["s3"])
        self.admit_sandbox(self.sandbox_group)
        for peer in (self._s3, ec2.Peer.prefix_list(prefix_lists["dynamodb"])):
            self.function_group.add_egress_rule(peer, https, "S3 and DynamoDB by their gateway endpoints")

    def admit_sandbox(self, group: ec2.ISecurityGroup) -> None:
        """Let the tool step reach sandboxes of this group, and let Fargate pull their image.

        Fargate pulls through the task's own network interface, so the group has to reach ECR and S3. A sandbox has no credentials
        to use them with, and the endpoints' policies refuse every other account's.
        """
        group.add_ingress_rule(self.function_group, ec2.Port.tcp(EXEC_PORT), "the exec server, from the tool step")
        self.function_group.add_egress_rule(group, ec2.Port.tcp(EXEC_PORT), "the exec server")
        group.add_egress_rule(self._image_group, ec2.Port.tcp(443), "image pull: ECR")
        group.add_egress_rule(self._s3, ec2.Port.tcp(443), "image pull: layers in S3")
        self._image_group.add_ingress_rule(group, ec2.Port.tcp(443), "image pull")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of functions in here: no way leads to ECS, so functions elsewhere start and stop sandboxes."""
        return {"MOORAGE_PROVISIONER": "elsewhere"}


class IsolatedNetwork(Network):
    """VPC, endpoints, DNS firewall."""

    vpc: ec2.Vpc

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, bucket: s3.IBucket, hooks: CustomResources) -> None:
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc(
            self,
            named_by("Vpc", config.vpc_cidr),
            ip_addresses=ec2.IpAddresses.cidr(config.vpc_cidr),
            max_azs=config.availability_zones,
            reserved_azs=reserved_zones(self, config),
            nat_gateways=0,
            restrict_default_security_group=False,
            subnet_configuration=[
                isolated_subnets("sandbox", SANDBOXES_PART, config.vpc_cidr),
                isolated_subnets("functions", FUNCTIONS_PART, config.vpc_cidr),
            ],
        )
        acknowledge(
            self.vpc,
            "AwsSolutions-VPC7",
            "The VPC has no way out; what a container asks the proxy for is logged there by domain and decision. Flow logs would "
            "bill for every packet between sandbox and function.",
        )
        self.sandbox_subnet_ids = self.vpc.select_subnets(subnet_group_name="sandbox").subnet_ids
        self.function_subnets = ec2.SubnetSelection(subnet_group_name="functions")
        self.function_group = self._group("FunctionGroup", "The tool step: sandboxes, DynamoDB, S3")
        self.sandbox_group = self._group("SandboxGroup", "A sandbox without network policy")
        self._image_group = self._group("ImageEndpointGroup", "Endpoints that Fargate pulls images through")
        self._admit_functions(hooks)

        self._gateway_endpoints(bucket)
        # What a task's network interface needs to pull its image and to log; each costs $7.30 a month and zone (infra/prices.py).
        interface = {"EcrApi": ec2.InterfaceVpcEndpointAwsService.ECR, "EcrDocker": ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER}
        if config.sandbox_logs:
            interface["Logs"] = ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS
        for name, service in interface.items():
            self._interface_endpoint(name, service)
        self._dns_firewall(bucket, has_logs=config.sandbox_logs)

    def _group(self, name: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self, name, vpc=self.vpc, allow_all_outbound=False, description=description)

    def _gateway_endpoints(self, bucket: s3.IBucket) -> None:
        """Free of charge. The S3 one opens this deployment's bucket, to this account, and the bucket of ECR's layers."""
        stack = cdk.Stack.of(self)
        storage = self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        storage.add_to_policy(
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=["s3:GetObject"],
                resources=[f"arn:{stack.partition}:s3:::prod-{stack.region}-starport-layer-bucket/*"],
            )
        )
        storage.add_to_policy(
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=["s3:*"],
                resources=[bucket.bucket_arn, bucket.arn_for_objects("*")],
                conditions=self._own_account,
            )
        )
        records = self.vpc.add_gateway_endpoint("DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)
        records.add_to_policy(
            iam.PolicyStatement(principals=[iam.AnyPrincipal()], actions=["dynamodb:*"], resources=["*"], conditions=self._own_account)
        )

    def _interface_endpoint(self, name: str, service: ec2.IInterfaceVpcEndpointService) -> None:
        endpoint = ec2.InterfaceVpcEndpoint(
            self,
            name,
            vpc=self.vpc,
            service=service,
            subnets=self.function_subnets,
            security_groups=[self._image_group],
            open=False,
            private_dns_enabled=True,
        )
        endpoint.add_to_policy(
            iam.PolicyStatement(principals=[iam.AnyPrincipal()], actions=["*"], resources=["*"], conditions=self._own_account)
        )

    @property
    def _own_account(self) -> dict[str, dict[str, str]]:
        """A caller through an endpoint must be of this account: credentials smuggled into a sandbox lead nowhere."""
        return {"StringEquals": {"aws:PrincipalAccount": cdk.Stack.of(self).account}}

    def _dns_firewall(self, bucket: s3.IBucket, *, has_logs: bool) -> None:
        """Answer for the names that Fargate and the tool step need, for nothing else: DNS is a way out too."""
        stack = cdk.Stack.of(self)
        suffix = f"{stack.region}.{stack.url_suffix}"
        names = [
            f"api.ecr.{suffix}",
            f"*.dkr.ecr.{suffix}",
            f"dynamodb.{suffix}",
            f"{stack.account}.ddb.{suffix}",
            f"prod-{stack.region}-starport-layer-bucket.s3.{suffix}",
            f"prod-{stack.region}-starport-layer-bucket.s3.{stack.url_suffix}",  # as ECR has named it in us-east-1
            f"s3-r-w.{suffix}",  # what the name of the layers' bucket leads to
            f"s3.{suffix}",  # the bucket by path
            "*.moorage.internal",
            *([f"logs.{suffix}"] if has_logs else []),
        ]
        allowed = resolver.CfnFirewallDomainList(self, "AllowedNames", domains=names)
        everything = resolver.CfnFirewallDomainList(self, "EveryName", domains=["*"])
        rule = resolver.CfnFirewallRuleGroup.FirewallRuleProperty
        rules = resolver.CfnFirewallRuleGroup(
            self,
            "DnsRules",
            firewall_rules=[
                rule(
                    action="ALLOW",
                    firewall_domain_list_id=allowed.attr_id,
                    # Names of AWS's are CNAMEs of others, which change without notice. By default each name of the chain would have to
                    # be on the list, and one that is not takes the image pull along with it.
                    firewall_domain_redirection_action="TRUST_REDIRECTION_DOMAIN",
                    priority=_ALLOW_PRIORITY,
                ),
                rule(action="BLOCK", block_response="NXDOMAIN", firewall_domain_list_id=everything.attr_id, priority=_BLOCK_PRIORITY),
            ],
        )
        resolver.CfnFirewallRuleGroupAssociation(
            self,
            "DnsFirewall",
            firewall_rule_group_id=rules.attr_id,
            priority=_ASSOCIATION_PRIORITY,
            vpc_id=self.vpc.vpc_id,
        )


class GivenNetwork(Network):
    """The owner's VPC and subnets, with security groups of the deployment's own, or given ones with the owner's rules."""

    given: GivenVpc

    def __init__(self, scope: Construct, construct_id: str, *, given: GivenVpc, hooks: CustomResources) -> None:
        super().__init__(scope, construct_id)
        self.given = given
        # The CDK wants a zone; nothing here asks for it, because each subnet is named.
        self.vpc = ec2.Vpc.from_vpc_attributes(self, "Vpc", vpc_id=given.id, availability_zones=["any"])
        self.sandbox_subnet_ids = given.sandbox_subnets
        self.function_subnets = self._subnets("FunctionSubnet", given.function_subnets)
        self.proxy_subnets = self._subnets("ProxySubnet", given.proxy_subnets)
        self.function_group = self.own_or(self, "FunctionGroup", given.function_group, "The tool step: sandboxes, DynamoDB, S3")
        self.sandbox_group = self.own_or(self, "SandboxGroup", given.sandbox_group, "A sandbox without network policy")
        if given.endpoint_group:
            self._image_group = self.own_or(self, "ImageEndpointGroup", given.endpoint_group, "")
            self._admit_functions(hooks)

    def admit_sandbox(self, group: ec2.ISecurityGroup) -> None:
        """Given groups have their rules."""
        if not self.given.has_groups:
            super().admit_sandbox(group)

    def _subnets(self, name: str, ids: Sequence[str]) -> ec2.SubnetSelection:
        return ec2.SubnetSelection(
            subnets=[ec2.Subnet.from_subnet_id(self, f"{name}{number}", each) for number, each in enumerate(ids, 1)]
        )

    def own_or(self, scope: Construct, name: str, given: str | None, description: str) -> ec2.ISecurityGroup:
        """A given group, with its rules unchanged, or one of the deployment's own."""
        if given:
            return ec2.SecurityGroup.from_security_group_id(scope, name, given, mutable=False)
        return ec2.SecurityGroup(scope, name, vpc=self.vpc, allow_all_outbound=False, description=description)
