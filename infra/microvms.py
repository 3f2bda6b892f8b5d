"""Sandboxes as Lambda MicroVMs: an image per memory tier, and a network without a way out. **Not yet run on AWS.**

A VM is reached by its public endpoint with a token of AWS's own, so no function is in a VPC. The network is there for what a VM may
reach itself, which is the deployment's bucket, by URLs that functions sign for the exec server: the connector ``closed`` leads into
isolated subnets without a resolver, and its group reaches S3, whose gateway endpoint opens this bucket alone. The connector
``policy`` leads into the same subnets with the group of ``infra/egress.py``, which reaches the proxy's port too.
In an owner's VPC the subnets and the resolver are the owner's, and the group is all that the deployment closes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.config import Config, GivenVpc
from infra.custom_resource import CustomResources
from infra.functions import log_group
from infra.images import ContainerImage, sandbox_image
from infra.nag import acknowledge, acknowledge_wildcard
from infra.network import EXEC_PORT, SANDBOXES_PART, isolated_subnets, named_by, reserved_zones
from infra.state import State

MINIMUM_MEMORY_MIB: Final = {"1g": 512, "4g": 1024, "16g": 4096}
"""Of the image of a tier. A VM may use four times its minimum, which is at least the tier's memory
(https://docs.aws.amazon.com/lambda/latest/dg/microvms-images.html). The minimum is billed while the VM runs."""

HOOK_PORT: Final = 9000
DOCKERFILE: Final = f"""EXPOSE {EXEC_PORT} {HOOK_PORT}
ENTRYPOINT ["/usr/local/bin/python3", "-I", "-S", "/opt/moorage/microvm.py", "{HOOK_PORT}"]
"""
"""After the line that names the container image. No step of it needs a network, so the image's own connector is the closed one."""

BASE_IMAGE: Final = "al2023-1"
"""The one that AWS manages (``ListManagedMicrovmImages``). What runs in it is the container image."""

BUCKET_ACTIONS: Final = {"s3:GetObject": "T/*", "s3:PutObject": "T/*/C/*"}
"""What a request from a MicroVM's network may do, on which objects: get those of tenants, and put those of containers
(``store/object_keys.py``)."""

_ENABLED: Final = "ENABLED"
HOOKS: Final[Mapping[str, int]] = {"ready": 300, "validate": 300, "run": 60}
"""The seconds that each may take. ``suspend`` and ``terminate`` are left out: files are stored after each command, and a hook that
fails ends the VM."""

_OPERATOR_POLICY: Final = "AWSLambdaNetworkConnectorOperatorPolicy"


@dataclass(frozen=True)
class _MicrovmPlacement:
    """The network behind the connector."""

    subnet_ids: Sequence[str]
    group_id: str
    subnets_account: str | None
    """Whose the subnets are. None: the deployment's."""
    described: Sequence[Any]
    """The connector is named by it, here too: a change edits none through which VMs run, and publishes the functions anew."""


class MicrovmNetwork(Construct):
    """Subnets without a way out, and the connectors into them."""

    vpc: ec2.Vpc
    """Where the deployment makes one."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, bucket: s3.IBucket, hooks: CustomResources) -> None:
        super().__init__(scope, construct_id)
        self.reaches_bucket = config.vpc is None
        """An owner's subnets may have no way to S3."""
        self._place = self._in_given(config.vpc) if config.vpc else self._isolated(config, bucket, hooks)
        self.operator_role = self._make_operator_role()
        self.closed = self._make_connector("closed", config, self._place.group_id, self._place.described)
        self.policy: lambda_.CfnNetworkConnector | None = None

    def _isolated(self, config: Config, bucket: s3.IBucket, hooks: CustomResources) -> _MicrovmPlacement:
        """A VPC of the deployment's own, without a resolver."""
        vpc = self.vpc = ec2.Vpc(
            self,
            named_by("Vpc", config.microvm_network),
            ip_addresses=ec2.IpAddresses.cidr(config.microvm_network),
            max_azs=config.availability_zones,
            reserved_azs=reserved_zones(self, config),
            nat_gateways=0,
            restrict_default_security_group=False,
            # A group sees no DNS. With the resolver off, names lead nowhere (reported, one project; not measured here).
            enable_dns_support=False,
            enable_dns_hostnames=False,
            subnet_configuration=[isolated_subnets("microvm", SANDBOXES_PART, config.microvm_network)],
        )
        acknowledge(vpc, "AwsSolutions-VPC7", "The VPC has no way out but the deployment's bucket, and S3 can log who asks for what.")
        storage = vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        for action, objects in BUCKET_ACTIONS.items():
            storage.add_to_policy(
                iam.PolicyStatement(
                    principals=[iam.AnyPrincipal()],
                    actions=[action],
                    resources=[bucket.arn_for_objects(objects)],
                    # Credentials that somebody smuggled in lead nowhere, and neither does a request without any.
                    conditions={"StringEquals": {"aws:PrincipalAccount": cdk.Stack.of(self).account}},
                )
            )
        self._s3 = ec2.Peer.prefix_list(hooks.prefix_lists("s3")["s3"])
        subnets = [subnet.node.default_child for subnet in vpc.isolated_subnets]
        described = [[s.cidr_block, s.availability_zone] for s in subnets if isinstance(s, ec2.CfnSubnet)]
        group = self._make_group(vpc)
        self.let_to_bucket(group)
        return _MicrovmPlacement([subnet.subnet_id for subnet in vpc.isolated_subnets], group.security_group_id, None, described)

    def let_to_bucket(self, group: ec2.ISecurityGroup) -> None:
        group.add_egress_rule(self._s3, ec2.Port.tcp(443), "the deployment's bucket, by its gateway endpoint")

    def _in_given(self, given: GivenVpc) -> _MicrovmPlacement:
        """Subnets of the owner's. Another account may share them with this one."""
        # The CDK wants a zone; nothing here asks for it.
        vpc = ec2.Vpc.from_vpc_attributes(self, "Vpc", vpc_id=given.id, availability_zones=["any"])
        group = given.sandbox_group or self._make_group(vpc).security_group_id
        return _MicrovmPlacement(given.sandbox_subnets, group, "*", [*given.sandbox_subnets, given.sandbox_group])

    def _make_group(self, vpc: ec2.IVpc) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            self, "ClosedGroup", vpc=vpc, allow_all_outbound=False, description="A MicroVM without network policy: nothing"
        )

    def _make_operator_role(self) -> iam.Role:
        """Lambda's rights to make network interfaces: in these subnets, with this group, and nowhere else."""
        role = iam.Role(
            self,
            "OperatorRole",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_OPERATOR_POLICY)],
        )
        stack, place = cdk.Stack.of(self), self._place
        own = [
            *(
                stack.format_arn(service="ec2", account=place.subnets_account, resource="subnet", resource_name=each)
                for each in place.subnet_ids
            ),
            stack.format_arn(service="ec2", resource="security-group", resource_name=place.group_id),
            stack.format_arn(service="ec2", resource="network-interface", resource_name="*"),
        ]
        self._own = iam.PolicyStatement(
            effect=iam.Effect.DENY, actions=["ec2:CreateNetworkInterface"], not_resources=own, sid="OwnNetworkOnly"
        )
        role.add_to_policy(self._own)
        reason = "A connector's operator role takes this managed policy (Lambda developer guide, networking of MicroVMs)."
        acknowledge(role, f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_OPERATOR_POLICY}]", reason)
        return role

    def open_to(self, group: ec2.ISecurityGroup, config: Config) -> lambda_.CfnNetworkConnector:
        """The connector for VMs with a network policy: the same subnets, with the group that reaches the proxy."""
        self.let_to_bucket(group)
        described = [*self._place.described, config.proxy_cidr]
        self.policy = self._make_connector("policy", config, group.security_group_id, described)
        self._own.add_not_resources(
            cdk.Stack.of(self).format_arn(service="ec2", resource="security-group", resource_name=group.security_group_id)
        )
        self.policy.node.add_dependency(self.closed)
        return self.policy

    def _make_connector(self, name: str, config: Config, group_id: str, described: Sequence[Any]) -> lambda_.CfnNetworkConnector:
        edition = hashlib.sha256(json.dumps(cdk.Stack.of(self).resolve(described)).encode()).hexdigest()[:8]
        connector = lambda_.CfnNetworkConnector(
            self,
            f"{name.capitalize()}Connector{edition}",
            name=f"{config.name}-{name}-{edition}",
            operator_role=self.operator_role.role_arn,
            configuration=lambda_.CfnNetworkConnector.ConfigProperty(
                vpc_egress_configuration=lambda_.CfnNetworkConnector.VpcEgressConfigurationProperty(
                    subnet_ids=[*self._place.subnet_ids],
                    security_group_ids=[group_id],
                    network_protocol="IPv4",
                    associated_compute_resource_types=["MicroVm"],
                )
            ),
        )
        # By the role's ARN alone the connector could be made before the role may do anything.
        connector.node.add_dependency(self.operator_role)
        return connector


class Microvms(Construct):
    """Everything that ``sandbox/lambda_microvm.py`` names in its calls."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        state: State,
        hooks: CustomResources,
        image: ContainerImage | None = None,
    ) -> None:
        """``image`` is the container image of Fargate's sandboxes, if there are such too: they have one in common."""
        super().__init__(scope, construct_id)
        self._config = config
        self._proxy_networks: Sequence[str] = ()
        self.network = MicrovmNetwork(self, "Network", config=config, bucket=state.bucket, hooks=hooks)
        self.image = image or sandbox_image(self, config, hooks)
        words = [self.image.edition, DOCKERFILE, json.dumps(HOOKS), config.microvm_base_version]
        self._edition = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
        key = f"microvm-images/{self._edition}.zip"
        text = f"FROM {self.image.uri}\n{DOCKERFILE}"
        source = hooks.microvm_source(f"Source{self._edition}", bucket=state.bucket, key=key, text=text, encryption=state.key)
        # Lambda looks at an operator role once, when its connector is made; IAM shows a new role some seconds late.
        base = hooks.microvm_base(self._base_image, edition=self._edition, version=config.microvm_base_version)
        base.node.add_dependency(self.network.operator_role)
        self.network.closed.node.add_dependency(base)
        self._role = self._make_build_role(state, key)
        self._images = {
            tier: self._make_image(tier, uri=f"s3://{state.bucket.bucket_name}/{key}", base_version=base.get_att_string("Version"))
            for tier in config.microvm_tiers
        }
        for each in self._images.values():
            each.node.add_dependency(source, self._role, *([self.image.built] if self.image.built else []))
        self._end = hooks.microvms([image.attr_image_arn for image in self._images.values()], self._resources())
        # In this order they are deleted: what runs VMs, the VMs, their images, what they are connected to.
        self._end.node.add_dependency(*self._images.values(), self.network)

    def open_to(self, group: ec2.ISecurityGroup, proxy_networks: Sequence[str]) -> None:
        """Let VMs with a network policy reach the proxy."""
        self._end.node.add_dependency(self.network.open_to(group, self._config))
        self._proxy_networks = proxy_networks

    def _make_build_role(self, state: State, key: str) -> iam.Role:
        """Lambda's rights to build images: pull the container image, read the Dockerfile, write the build's log."""
        stack = cdk.Stack.of(self)
        images = stack.format_arn(
            service="lambda", resource="microvm-image", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        own = {"StringEquals": {"aws:SourceAccount": stack.account}, "ArnLike": {"aws:SourceArn": images}}
        principal = iam.ServicePrincipal("lambda.amazonaws.com", conditions=own)
        role = iam.Role(self, "BuildRole", assumed_by=iam.SessionTagsPrincipal(principal))
        self.image.grant_pull(role)
        iam.Grant.add_to_principal(grantee=role, actions=["s3:GetObject"], resource_arns=[state.bucket.arn_for_objects(key)])
        if state.key:
            state.key.grant_decrypt(role)
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "ecr:GetAuthorizationToken accepts no resource (service authorization reference).",
        )
        return role

    def _make_image(self, tier: str, *, uri: str, base_version: str) -> lambda_.CfnMicrovmImage:
        name, resource = self._name(tier), lambda_.CfnMicrovmImage
        # The service would make a group of this name, which nobody would delete.
        group = log_group(self, f"BuildLogs{tier}", self._config, name=f"/aws/lambda-microvms/{name}")
        group.grant_write(self._role)
        self._role.add_to_policy(iam.PolicyStatement(actions=["logs:CreateLogGroup"], resources=[group.log_group_arn]))
        image = resource(
            self,
            f"Image{tier}",
            name=name,
            description=f"{self._config.name}: sandboxes of {tier}",
            base_image_arn=self._base_image,
            base_image_version=base_version,
            build_role_arn=self._role.role_arn,
            code_artifact=resource.CodeArtifactProperty(uri=uri),
            cpu_configurations=[resource.CpuConfigurationProperty(architecture="ARM_64")],
            resources=[resource.ResourcesProperty(minimum_memory_in_mib=MINIMUM_MEMORY_MIB[tier])],
            # A VM that is run without a connector inherits this one. Without one it would have the public internet.
            egress_network_connectors=[self.network.closed.attr_arn],
            additional_os_capabilities=[],
            environment_variables=[],
            logging=resource.LoggingProperty(cloud_watch=resource.CloudWatchLoggingProperty(log_group=group.log_group_name)),
            hooks=resource.HooksProperty(
                port=HOOK_PORT,
                microvm_hooks=resource.MicrovmHooksProperty(run=_ENABLED, run_timeout_in_seconds=HOOKS["run"]),
                microvm_image_hooks=resource.MicrovmImageHooksProperty(
                    ready=_ENABLED,
                    ready_timeout_in_seconds=HOOKS["ready"],
                    validate=_ENABLED,
                    validate_timeout_in_seconds=HOOKS["validate"],
                ),
            ),
        )
        image.node.add_dependency(group)
        return image

    def grant_start(self, function: lambda_.Function) -> None:
        """Run and reach VMs. They are given no role, so there is none to pass."""
        self._grant_reach(function)
        self._allow(function, "lambda:RunMicrovm")
        # With "*" a function could hand a VM AWS's INTERNET_EGRESS. The default ingress has to be passed too.
        stack = cdk.Stack.of(self)
        ingress = f"arn:{stack.partition}:lambda:{stack.region}:aws:network-connector:aws-network-connector:HTTP_INGRESS"
        own = [self.network.closed.attr_arn, *([self.network.policy.attr_arn] if self.network.policy else [])]
        function.add_to_role_policy(iam.PolicyStatement(actions=["lambda:PassNetworkConnector"], resources=[ingress, *own]))
        # A refused start asks for their state.
        function.add_to_role_policy(iam.PolicyStatement(actions=["lambda:GetNetworkConnector"], resources=own))
        function.node.add_dependency(self._end)

    def grant_stop(self, function: lambda_.Function) -> None:
        """End VMs, and look into them before, for the functions that can see whether one is dead, and for a container's deletion."""
        self._grant_reach(function)
        self._allow(function, "lambda:TerminateMicrovm")

    def grant_clean(self, function: lambda_.Function) -> None:
        """See which VMs live and which versions images have, for the function that ends lost VMs and deletes old versions. A list
        takes no resource."""
        self._allow(function, "lambda:ListTags", "lambda:DeleteMicrovmImageVersion")
        lists = ["lambda:ListMicrovms", "lambda:ListMicrovmImageVersions"]
        function.add_to_role_policy(iam.PolicyStatement(actions=lists, resources=["*"]))

    @property
    def environment(self) -> dict[str, str]:
        """``MOORAGE_MICROVM_*`` as ``sandbox/lambda_microvm.py`` reads them.

        A version of a function starts the image's version that it was published with. The edition stands beside them, so that another
        image makes other versions.
        """
        images = {f"MOORAGE_MICROVM_IMAGE_{tier.upper()}": image.attr_image_arn for tier, image in self._images.items()}
        versions = {
            f"MOORAGE_MICROVM_VERSION_{tier.upper()}": image.attr_latest_active_image_version for tier, image in self._images.items()
        }
        connector = {"MOORAGE_MICROVM_EGRESS_CONNECTOR": self.network.closed.attr_arn, "MOORAGE_MICROVM_EDITION": self._edition}
        if self.network.reaches_bucket:
            connector["MOORAGE_MICROVM_REACHES_BUCKET"] = "true"
        if self.network.policy:
            connector["MOORAGE_MICROVM_POLICY_CONNECTOR"] = self.network.policy.attr_arn
            connector["MOORAGE_MICROVM_PROXY_NETWORKS"] = ",".join(self._proxy_networks)
        if self._config.has_both and self._config.settings.sandbox_price is None:
            connector["MOORAGE_MICROVM_UNPRICED"] = "true"
        return {**connector, **images, **versions}

    def _grant_reach(self, function: lambda_.Function) -> None:
        self._allow(function, "lambda:GetMicrovm", "lambda:CreateMicrovmAuthToken")

    def _allow(self, function: lambda_.Function, *actions: str) -> None:
        """Rights over VMs are rights over the images that they run. Calls about a sleeping VM were judged by its own ARN (reported)."""
        resources = self._resources()
        function.add_to_role_policy(iam.PolicyStatement(actions=list(actions), resources=resources))
        assert function.role is not None
        acknowledge_wildcard(function.role, f"Resource::{resources[-1]}", "A VM's id is made by Lambda when it starts.")

    def _resources(self) -> list[str]:
        stack = cdk.Stack.of(self)
        arns = [("microvm-image", self._name(tier)) for tier in self._config.microvm_tiers] + [("microvm", "*")]
        colon = cdk.ArnFormat.COLON_RESOURCE_NAME
        return [stack.format_arn(service="lambda", resource=kind, resource_name=name, arn_format=colon) for kind, name in arns]

    def _name(self, tier: str) -> str:
        return f"{self._config.name}-{tier}"

    @property
    def _base_image(self) -> str:
        stack = cdk.Stack.of(self)
        return f"arn:{stack.partition}:lambda:{stack.region}:aws:microvm-image:{BASE_IMAGE}"
