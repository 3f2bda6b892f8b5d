"""The only way out: the egress proxy, in a VPC of its own that is peered with the sandboxes'.

Sandboxes with a network policy get a security group that reaches the proxy's port and nothing more. The proxy is a Fargate service,
scaled to zero by default; ``containers/incarnations.py`` raises it to one when a container with a policy starts and the reaper lowers
it again. Its role is the only one that may decrypt domain secrets.
"""

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_servicediscovery as discovery
from constructs import Construct
from moorage.store import keys

from infra.config import Config
from infra.custom_resource import CustomResources
from infra.functions import log_group
from infra.images import ContainerImage
from infra.nag import acknowledge
from infra.network import SANDBOX_CIDR, Network, reserved_zones
from infra.state import State

PROXY_PORT: Final = 3128
PROXY_CIDR: Final = "10.43.0.0/24"
PROXY_NAME: Final = "proxy"
ZONE_NAME: Final = "moorage.internal"

_RECORDS: Final = {
    # Whose a credential is, the operator's secrets, the CA.
    ("dynamodb:GetItem",): [f"{keys.EGRESS_CREDENTIAL_PREFIX}*", keys.EGRESS_OPERATOR_SECRETS, keys.EGRESS_CA],
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
        network: Network,
        hooks: CustomResources,
        image: ContainerImage,
        state: State,
    ) -> None:
        super().__init__(scope, construct_id)
        # It opens what the table keeps, so it must outlive this stack, and be found again by the next one.
        self.secrets_key = hooks.kept_key(
            "SecretsKey",
            deployment=config.name,
            description=f"{config.name}: domain secrets; only the egress proxy decrypts",
            is_kept=config.retain,
        )
        self._vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(PROXY_CIDR),
            max_azs=config.availability_zones,
            reserved_azs=reserved_zones(self, config),
            nat_gateways=0,
            restrict_default_security_group=False,
            subnet_configuration=[ec2.SubnetConfiguration(name="proxy", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=28)],
        )
        acknowledge(self._vpc, "AwsSolutions-VPC7", "The proxy logs every connection with its container, domain and decision.")
        self._cluster = ecs.Cluster(
            self,
            "Cluster",
            cluster_name=f"{config.name}-egress",
            vpc=self._vpc,
            container_insights_v2=ecs.ContainerInsights.DISABLED,
        )
        acknowledge(self._cluster, "AwsSolutions-ECS4", "One small service; the proxy's log has every decision and its time.")
        self._peer(network)
        self.sandbox_group = ec2.SecurityGroup(
            self,
            "SandboxGroup",
            vpc=network.vpc,
            allow_all_outbound=False,
            description="A sandbox with a network policy: the egress proxy and no other way out",
        )
        self.sandbox_group.add_egress_rule(ec2.Peer.ipv4(PROXY_CIDR), ec2.Port.tcp(PROXY_PORT), "the egress proxy")
        network.admit_sandbox(self.sandbox_group)
        proxy_group = ec2.SecurityGroup(self, "ProxyGroup", vpc=self._vpc, allow_all_outbound=False, description="The egress proxy")
        proxy_group.add_ingress_rule(ec2.Peer.ipv4(SANDBOX_CIDR), ec2.Port.tcp(PROXY_PORT), "sandboxes")
        for port in (80, 443):
            proxy_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "allowed domains, decided by the proxy")
        self._service = self._make_service(config, network, image, state.table, proxy_group)
        state.grant_key(self._service.task_definition.task_role)

    def _peer(self, network: Network) -> None:
        peering = ec2.CfnVPCPeeringConnection(self, "Peering", vpc_id=network.vpc.vpc_id, peer_vpc_id=self._vpc.vpc_id)
        routes = [(subnet, PROXY_CIDR) for subnet in network.vpc.select_subnets(subnet_group_name="sandbox").subnets]
        routes += [(subnet, SANDBOX_CIDR) for subnet in self._vpc.public_subnets]
        for number, (subnet, destination) in enumerate(routes):
            ec2.CfnRoute(
                self,
                f"Route{number}",
                route_table_id=subnet.route_table.route_table_id,
                destination_cidr_block=destination,
                vpc_peering_connection_id=peering.attr_id,
            )

    def _make_service(
        self,
        config: Config,
        network: Network,
        image: ContainerImage,
        table: dynamodb.ITable,
        group: ec2.ISecurityGroup,
    ) -> ecs.FargateService:
        definition = self._define(config, image, table)
        namespace = discovery.PrivateDnsNamespace(self, "Zone", name=ZONE_NAME, vpc=network.vpc)
        return ecs.FargateService(
            self,
            "Service",
            cluster=self._cluster,
            task_definition=definition,
            min_healthy_percent=0,
            max_healthy_percent=200,
            assign_public_ip=True,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
            security_groups=[group],
            cloud_map_options=ecs.CloudMapOptions(
                name=PROXY_NAME,
                cloud_map_namespace=namespace,
                dns_record_type=discovery.DnsRecordType.A,
                dns_ttl=cdk.Duration.seconds(5),
            ),
        )

    def _define(self, config: Config, image: ContainerImage, table: dynamodb.ITable) -> ecs.FargateTaskDefinition:
        """The proxy's task, and what it may read."""
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
                "MOORAGE_ALLOWED_EGRESS_DOMAINS": ",".join(config.allowed_egress_domains),
                "MOORAGE_BUCKET": "none",  # the settings want one; the proxy has no right to any
                "MOORAGE_EGRESS_OWN_NETWORKS": f"{SANDBOX_CIDR},{PROXY_CIDR}",
                "MOORAGE_EGRESS_KEY": self.secrets_key.key_arn,
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
        """Raise and lower the service between zero and one, and see where it stands."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["ecs:DescribeServices", "ecs:UpdateService"],
            resource_arns=[self._service.service_arn],
        )

    @property
    def environment(self) -> dict[str, str]:
        return {
            "MOORAGE_EGRESS_PROXY": f"http://{PROXY_NAME}.{ZONE_NAME}:{PROXY_PORT}",
            "MOORAGE_EGRESS_SERVICE": f"{self._cluster.cluster_name}/{self._service.service_name}",
            "MOORAGE_EGRESS_KEY": self.secrets_key.key_arn,
            "MOORAGE_FARGATE_EGRESS_SECURITY_GROUP": self.sandbox_group.security_group_id,
        }
