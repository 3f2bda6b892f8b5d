"""The only way out: the egress proxy, in a VPC of its own that is peered with the sandboxes', or in subnets of an owner's.

Sandboxes with a network policy get a security group that reaches the proxy's port and nothing more. The proxy is a Fargate service,
scaled to zero by default; ``containers/incarnations.py`` raises it to one when a container with a policy starts and the reaper lowers
it again. Its role is the only one that may decrypt domain secrets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_servicediscovery as discovery
from constructs import Construct
from moorage.store import keys

from infra.config import Config, GivenVpc
from infra.custom_resource import CustomResources
from infra.functions import log_group
from infra.images import ContainerImage
from infra.microvms import Microvms
from infra.nag import acknowledge
from infra.network import GivenNetwork, Network, reserved_zones
from infra.state import State

PROXY_PORT: Final = 3128
PROXY_NAME: Final = "proxy"
ZONE_NAME: Final = "moorage.internal"
FORWARDER: Final = f"127.0.0.1:{PROXY_PORT}"
"""Where commands in a MicroVM find the proxy: its exec server looks for it in the proxy's networks (``moorage/egress/trust.py``)."""

_RECORDS: Final = {
    # Whose a credential is, the operator's secrets, the CA.
    ("dynamodb:GetItem",): [f"{keys.egress_credential.prefix}*", keys.EGRESS_OPERATOR_SECRETS, keys.EGRESS_CA],
    # A container's policy and sealed secrets are read, and the log of its decisions is written.
    ("dynamodb:BatchWriteItem", "dynamodb:Query"): [keys.CONTAINERS],
    # The CA is made by whoever needs it first.
    ("dynamodb:PutItem", "dynamodb:UpdateItem"): [keys.EGRESS_CA],
}
"""What the proxy asks of the table, by partition: it reads what strangers send, and no API key is any business of its."""


class EgressProxy(Construct):
    """Proxy service, its network, its name, and the key of the domain secrets."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        network: Network | None,
        microvms: Microvms | None,
        hooks: CustomResources,
        image: ContainerImage,
        state: State,
        places_key: str | None = None,
    ) -> None:
        """``network`` and ``microvms`` are those of the sandboxes, one or both. ``places_key`` tells sandboxes apart that share an
        address, as MicroVMs do."""
        super().__init__(scope, construct_id)
        self._places_key = places_key
        # It opens what the table keeps, so it must outlive this stack, and be found again by the next one.
        self.secrets_key = hooks.kept_key(
            "SecretsKey",
            deployment=config.name,
            description=f"{config.name}: domain secrets; only the egress proxy decrypts",
            is_kept=config.retain,
        )
        if isinstance(network, GivenNetwork):
            place = _in_given(self, network, network.given)
        else:
            sandboxes = [
                *([_of_fargate(network, config)] if network else []),
                *([_of_microvms(microvms, config)] if microvms else []),
            ]
            place = _between(self, sandboxes, config)
        self.sandbox_group = place.sandbox_groups[0]
        self._cluster = ecs.Cluster(
            self,
            "Cluster",
            cluster_name=f"{config.name}-egress",
            vpc=place.vpc,
            container_insights_v2=ecs.ContainerInsights.DISABLED,
        )
        acknowledge(self._cluster, "AwsSolutions-ECS4", "One small service; the proxy's log has every decision and its time.")
        self._is_for_fargate = network is not None
        if network:
            network.admit_sandbox(self.sandbox_group)
        if microvms:
            microvms.open_to(place.sandbox_groups[-1], place.networks)
        for port in (80, 443):
            place.proxy_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "allowed domains, decided by the proxy")
        # An owner's network may have several deployments. MicroVMs are told no name.
        self._zone = f"{config.name}.{ZONE_NAME}" if isinstance(network, GivenNetwork) else ZONE_NAME
        named = self._name_in(network) if network else None
        self._service = self._make_service(config, named, image, state.table, place)
        state.grant_key(self._service.task_definition.task_role)

    def _make_service(
        self,
        config: Config,
        named: ecs.CloudMapOptions | None,
        image: ContainerImage,
        table: dynamodb.ITable,
        place: "_ProxyPlacement",
    ) -> ecs.FargateService:
        definition = self._define(config, image, table, place.own_networks)
        return ecs.FargateService(
            self,
            "Service",
            cluster=self._cluster,
            task_definition=definition,
            min_healthy_percent=0,
            max_healthy_percent=200,
            assign_public_ip=place.is_public,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            vpc_subnets=place.subnets,
            security_groups=[place.proxy_group],
            cloud_map_options=named,
        )

    def _name_in(self, network: Network) -> ecs.CloudMapOptions:
        return ecs.CloudMapOptions(
            name=PROXY_NAME,
            cloud_map_namespace=discovery.PrivateDnsNamespace(self, "Zone", name=self._zone, vpc=network.vpc),
            dns_record_type=discovery.DnsRecordType.A,
            dns_ttl=cdk.Duration.seconds(5),
        )

    def _define(
        self, config: Config, image: ContainerImage, table: dynamodb.ITable, own_networks: Sequence[str]
    ) -> ecs.FargateTaskDefinition:
        """The proxy's task, and its rights to read."""
        execution_role = iam.Role(self, "ExecutionRole", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
        image.grant_pull(execution_role)
        definition = ecs.FargateTaskDefinition(
            self,
            "Task",
            family=f"{config.name}-egress-proxy",
            cpu=config.proxy_memory_mib // 2,
            memory_limit_mib=config.proxy_memory_mib,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.ARM64, operating_system_family=ecs.OperatingSystemFamily.LINUX
            ),
            execution_role=execution_role,
        )
        if image.built:
            # The service runs a task at once, and ECS gives up a service after three that could not pull their image.
            definition.node.add_dependency(image.built)
        logs = log_group(self, "Logs", config)
        definition.add_container(
            "proxy",
            image=ecs.ContainerImage.from_registry(image.uri),
            port_mappings=[ecs.PortMapping(container_port=PROXY_PORT)],
            readonly_root_filesystem=False,
            logging=ecs.LogDrivers.aws_logs(stream_prefix="proxy", log_group=logs),
            environment={
                "MOORAGE_NAME": config.name,
                "MOORAGE_TABLE": table.table_name,
                "MOORAGE_ALLOWED_EGRESS_DOMAINS": ",".join(config.settings.allowed_egress_domains),
                **({"MOORAGE_PYTHON_MIRROR": config.settings.python_mirror} if config.settings.python_mirror else {}),
                **({"MOORAGE_NPM_MIRROR": config.settings.npm_mirror} if config.settings.npm_mirror else {}),
                "MOORAGE_BUCKET": "none",  # the settings want one; the proxy has no right to any
                **({"MOORAGE_EGRESS_OWN_NETWORKS": ",".join(own_networks)} if own_networks else {}),
                "MOORAGE_EGRESS_KEY": self.secrets_key.key_arn,
                **({"MOORAGE_EGRESS_PLACES_KEY": self._places_key} if self._places_key else {}),
            },
        )
        acknowledge(definition, "AwsSolutions-ECS2", "Names and numbers only; secrets are read from the table and decrypted.")
        acknowledge(
            execution_role,
            "AwsSolutions-IAM5[Resource::*]",
            "ecr:GetAuthorizationToken accepts no resource (service authorization reference).",
        )
        for actions, partitions in _RECORDS.items():
            definition.add_to_task_role_policy(
                iam.PolicyStatement(
                    actions=list(actions),
                    resources=[table.table_arn],
                    conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": partitions}},
                )
            )
        self.secrets_key.grant(definition.task_role, "kms:Decrypt", "kms:GenerateDataKey")
        return definition

    def grant_scale(self, grantee: iam.IGrantable) -> None:
        """Raise and lower the service between zero and one, and read its state."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["ecs:DescribeServices", "ecs:UpdateService"],
            resource_arns=[self._service.service_arn],
        )

    @property
    def environment(self) -> dict[str, str]:
        way = {
            "MOORAGE_EGRESS_PROXY": f"http://{PROXY_NAME}.{self._zone}:{PROXY_PORT}",
            "MOORAGE_FARGATE_EGRESS_SECURITY_GROUP": self.sandbox_group.security_group_id,
        }
        return {
            **(way if self._is_for_fargate else {"MOORAGE_EGRESS_PROXY": f"http://{FORWARDER}"}),
            "MOORAGE_EGRESS_SERVICE": f"{self._cluster.cluster_name}/{self._service.service_name}",
            "MOORAGE_EGRESS_KEY": self.secrets_key.key_arn,
        }


@dataclass(frozen=True)
class _ProxyPlacement:
    """The network of the proxy, and its clients."""

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    sandbox_groups: Sequence[ec2.ISecurityGroup]
    """Of each network of sandboxes."""
    proxy_group: ec2.ISecurityGroup
    own_networks: tuple[str, ...]
    is_public: bool
    networks: tuple[str, ...] = ()
    """Of its subnets, where they are known."""


_SANDBOX_GROUP: Final = "A sandbox with a network policy: the egress proxy and no other way out"


@dataclass(frozen=True)
class _Sandboxes:
    """A network of sandboxes that is peered with the proxy's."""

    vpc: ec2.IVpc
    subnets: Sequence[ec2.ISubnet]
    cidr: str


def _of_fargate(network: Network, config: Config) -> _Sandboxes:
    return _Sandboxes(network.vpc, network.vpc.select_subnets(subnet_group_name="sandbox").subnets, config.vpc_cidr)


def _of_microvms(microvms: Microvms, config: Config) -> _Sandboxes:
    vpc = microvms.network.vpc
    return _Sandboxes(vpc, vpc.isolated_subnets, config.microvm_network)


def _between(scope: Construct, sandboxes: Sequence[_Sandboxes], config: Config) -> _ProxyPlacement:
    """A VPC of its own, peered with the sandboxes'."""
    vpc = ec2.Vpc(
        scope,
        "Vpc",
        ip_addresses=ec2.IpAddresses.cidr(config.proxy_cidr),
        max_azs=config.availability_zones,
        reserved_azs=reserved_zones(scope, config),
        nat_gateways=0,
        restrict_default_security_group=False,
        subnet_configuration=[ec2.SubnetConfiguration(name="proxy", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=28)],
    )
    acknowledge(vpc, "AwsSolutions-VPC7", "The proxy logs every connection with its container, domain and decision.")
    sandbox_groups = [_peered(scope, each, vpc, config, name="Microvm" if number else "") for number, each in enumerate(sandboxes)]
    proxy_group = ec2.SecurityGroup(scope, "ProxyGroup", vpc=vpc, allow_all_outbound=False, description="The egress proxy")
    for each in sandboxes:
        proxy_group.add_ingress_rule(ec2.Peer.ipv4(each.cidr), ec2.Port.tcp(PROXY_PORT), "sandboxes")
    public = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
    networks = tuple(subnet.ipv4_cidr_block for subnet in vpc.public_subnets)
    own = (*(each.cidr for each in sandboxes), config.proxy_cidr)
    return _ProxyPlacement(vpc, public, sandbox_groups, proxy_group, own, is_public=True, networks=networks)


def _peered(scope: Construct, sandboxes: _Sandboxes, vpc: ec2.Vpc, config: Config, *, name: str) -> ec2.SecurityGroup:
    """The group of sandboxes that reach the proxy. ``name`` tells a second network's parts from the first one's."""
    peering = ec2.CfnVPCPeeringConnection(scope, f"{name}Peering", vpc_id=sandboxes.vpc.vpc_id, peer_vpc_id=vpc.vpc_id)
    routes = [(subnet, config.proxy_cidr) for subnet in sandboxes.subnets]
    routes += [(subnet, sandboxes.cidr) for subnet in vpc.public_subnets]
    for number, (subnet, destination) in enumerate(routes):
        ec2.CfnRoute(
            scope,
            f"{name}Route{number}",
            route_table_id=subnet.route_table.route_table_id,
            destination_cidr_block=destination,
            vpc_peering_connection_id=peering.attr_id,
        )
    group = ec2.SecurityGroup(scope, f"{name}SandboxGroup", vpc=sandboxes.vpc, allow_all_outbound=False, description=_SANDBOX_GROUP)
    group.add_egress_rule(ec2.Peer.ipv4(config.proxy_cidr), ec2.Port.tcp(PROXY_PORT), "the egress proxy")
    return group


def _in_given(scope: Construct, network: GivenNetwork, given: GivenVpc) -> _ProxyPlacement:
    """Subnets of the owner's that lead to the internet. Its addresses are private, and the proxy refuses all such."""
    sandbox_group = network.own_or(scope, "SandboxGroup", given.policy_sandbox_group, _SANDBOX_GROUP)
    proxy_group = network.own_or(scope, "ProxyGroup", given.proxy_group, "The egress proxy")
    sandbox_group.add_egress_rule(proxy_group, ec2.Port.tcp(PROXY_PORT), "the egress proxy")
    proxy_group.add_ingress_rule(sandbox_group, ec2.Port.tcp(PROXY_PORT), "sandboxes")
    return _ProxyPlacement(network.vpc, network.proxy_subnets, [sandbox_group], proxy_group, (), is_public=False)
