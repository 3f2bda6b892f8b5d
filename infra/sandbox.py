"""Sandboxes on Fargate: a cluster, and one task definition per memory tier.

A task has no role: there is nothing to steal at its metadata address. Security group and subnet are chosen at every ``RunTask``.

With a browser a task has a second container. It has memory of its own, no capability, and two folders in common with the first, which
no command of that enters (``functions/sandbox/server/desk/beside.py``). Both have the network of the task: its closed security group.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_logs import ILogGroup
from constructs import Construct
from moorage.limits import CONTAINER_OPEN_FILES_MAX, DESK_MEMORY_GIB, FARGATE_DESK_GIB, MEMORY_LIMITS
from moorage.limits import SANDBOX_CPU_UNITS as CPU_UNITS

from infra.bundling import ROOT
from infra.config import Config
from infra.custom_resource import CustomResources
from infra.functions import log_group
from infra.images import PYTHON_3_11, ContainerImage, sandbox_image
from infra.nag import acknowledge, acknowledge_wildcard
from infra.network import EXEC_PORT, Network

DISK_GIB: Final = 21
"""The smallest size above Fargate's 20 GiB default, of which the image takes a part: ``WORKSPACE_BYTES_MAX`` is 20 GiB."""

DESK_DISK_GIB: Final = 4
"""Beside that: the browser's image, its profile, and files on their way through it."""

CONTAINER_NAME: Final = "sandbox"
DESK_NAME: Final = "desk"
DESK_DIRECTORY: Final = "/run/moorage"
LINK_DIRECTORY: Final = "/run/desk"
POLICIES_DIRECTORY: Final = "/etc/chromium/policies/managed"
"""Where the containers see what they have in common: the first what it writes, the second that and, unchangeable, its policies."""
DESK_CONTEXT: Final = {
    "Dockerfile": ROOT / "functions" / "sandbox" / "Dockerfile.desk",
    "packages": ROOT / "functions" / "sandbox" / "packages",
    "server": ROOT / "functions" / "sandbox" / "server",
}
assert set(CPU_UNITS) == set(MEMORY_LIMITS)


class SandboxTask(Construct):
    """Everything that ``sandbox/fargate.py`` names in its calls."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, network: Network, hooks: CustomResources) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        self._network = network
        self.cluster = ecs.Cluster(
            self,
            "Cluster",
            cluster_name=config.name,
            vpc=network.vpc,
            container_insights_v2=ecs.ContainerInsights.DISABLED,
        )
        acknowledge(
            self.cluster,
            "AwsSolutions-ECS4",
            "Container Insights bills per task and metric; what matters of a sandbox is in the event log of its response.",
        )
        self._execution_role = iam.Role(self, "ExecutionRole", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
        self.image = image = sandbox_image(self, config, hooks)
        image.grant_pull(self._execution_role)
        self.desk_image: ContainerImage | None = None
        if config.computer:
            self.desk_image = ContainerImage(
                self, "DeskImage", config=config, hooks=hooks, context=DESK_CONTEXT, base=PYTHON_3_11, after=image
            )
            self.desk_image.grant_pull(self._execution_role)
        logs = log_group(self, "Logs", config) if config.sandbox_logs else None
        if logs:
            logs.grant_write(self._execution_role)
        self._image_edition = image.edition
        if self.desk_image:
            self._image_edition = hashlib.sha256(f"{image.edition} {self.desk_image.edition}".encode()).hexdigest()[:16]
        self.task_definitions = {tier: self._task_definition(tier, image.uri, logs) for tier in config.fargate_tiers}
        self._end = hooks.sandboxes(config.name, [self._family(tier) for tier in CPU_UNITS])
        # In this order they are deleted: what starts sandboxes, the sandboxes, what they run in.
        self._end.node.add_dependency(self.cluster, *self.task_definitions.values(), network.vpc, network.sandbox_group)
        built = [each.built for each in (image, self.desk_image) if each and each.built]
        for definition in self.task_definitions.values():
            definition.node.add_dependency(*built)
        if built:
            acknowledge(
                self._execution_role,
                "AwsSolutions-IAM5[Resource::*]",
                "ecr:GetAuthorizationToken accepts no resource (service authorization reference).",
            )

    def _family(self, tier: str) -> str:
        return f"{self._config.name}-sandbox-{tier}"

    def _task_definition(self, tier: str, image: str, logs: ILogGroup | None) -> ecs.CfnTaskDefinition:
        """The low-level resource on purpose: the high-level construct cannot make one without a task role."""
        resource = ecs.CfnTaskDefinition
        log_configuration = (
            resource.LogConfigurationProperty(
                log_driver="awslogs",
                options={
                    "awslogs-group": logs.log_group_name,
                    "awslogs-region": cdk.Stack.of(self).region,
                    "awslogs-stream-prefix": tier,
                },
            )
            if logs
            else None
        )
        memory_gib = MEMORY_LIMITS[tier]
        has_desk = self.desk_image is not None
        definition = resource(
            self,
            f"Task{tier}",
            family=self._family(tier),
            requires_compatibilities=["FARGATE"],
            network_mode="awsvpc",
            cpu=str(CPU_UNITS[tier]),
            memory=str((memory_gib + (FARGATE_DESK_GIB[tier] if has_desk else 0)) * 1024),
            execution_role_arn=self._execution_role.role_arn,
            ephemeral_storage=resource.EphemeralStorageProperty(size_in_gib=DISK_GIB + (DESK_DISK_GIB if has_desk else 0)),
            runtime_platform=resource.RuntimePlatformProperty(cpu_architecture="ARM64", operating_system_family="LINUX"),
            container_definitions=[
                resource.ContainerDefinitionProperty(
                    name=CONTAINER_NAME,
                    image=image,
                    essential=True,
                    port_mappings=[resource.PortMappingProperty(container_port=EXEC_PORT, protocol="tcp")],
                    # No init process: the exec server is made to be the first one, which commands cannot stop.
                    linux_parameters=resource.LinuxParametersProperty(
                        capabilities=resource.KernelCapabilitiesProperty(drop=_DROPPED_CAPABILITIES)
                    ),
                    ulimits=[
                        resource.UlimitProperty(name="nofile", soft_limit=CONTAINER_OPEN_FILES_MAX, hard_limit=CONTAINER_OPEN_FILES_MAX)
                    ],
                    log_configuration=log_configuration,
                    stop_timeout=2,
                    memory=memory_gib * 1024 if has_desk else None,
                    mount_points=_mounts({DESK: f"{DESK_DIRECTORY}/desk", POLICIES: f"{DESK_DIRECTORY}/policies"})
                    if has_desk
                    else None,
                ),
                *([self._desk(self.desk_image.uri, log_configuration)] if self.desk_image else []),
            ],
            volumes=[resource.VolumeProperty(name=name) for name in (DESK, POLICIES)] if has_desk else None,
        )
        acknowledge(
            definition,
            "AwsSolutions-ECS7",
            "What a sandbox prints is its user's content and is kept in the response's event log; sandbox_logs turns on the exec "
            "server's own lines.",
        )
        return definition

    def _desk(
        self, image: str, log_configuration: ecs.CfnTaskDefinition.LogConfigurationProperty | None
    ) -> ecs.CfnTaskDefinition.ContainerDefinitionProperty:
        """The browser's container. Its end is not that of the task: commands go on without a browser."""
        resource = ecs.CfnTaskDefinition
        return resource.ContainerDefinitionProperty(
            name=DESK_NAME,
            image=image,
            essential=False,
            command=["--config-file", f"{LINK_DIRECTORY}/config.json"],
            memory=DESK_MEMORY_GIB * 1024,
            linux_parameters=resource.LinuxParametersProperty(capabilities=resource.KernelCapabilitiesProperty(drop=["ALL"])),
            mount_points=[*_mounts({DESK: LINK_DIRECTORY}), *_mounts({POLICIES: POLICIES_DIRECTORY}, read_only=True)],
            ulimits=[resource.UlimitProperty(name="nofile", soft_limit=CONTAINER_OPEN_FILES_MAX, hard_limit=CONTAINER_OPEN_FILES_MAX)],
            log_configuration=log_configuration,
            stop_timeout=2,
        )

    def end_before(self, group: ec2.ISecurityGroup) -> None:
        """Sandboxes end before their security group is deleted: EC2 deletes none that a network interface has."""
        self._end.node.add_dependency(group)

    def grant_start(self, function: lambda_.Function) -> None:
        """Start, describe and list sandboxes of this cluster, nothing else in ECS."""
        tasks, in_cluster = self._tasks, self._in_cluster
        statements = [
            iam.PolicyStatement(
                actions=["ecs:RunTask"], resources=[self._revisions(tier) for tier in self.task_definitions], conditions=in_cluster
            ),
            iam.PolicyStatement(actions=["ecs:DescribeTasks"], resources=[tasks], conditions=in_cluster),
            iam.PolicyStatement(actions=["ecs:ListTasks"], resources=["*"], conditions=in_cluster),
            iam.PolicyStatement(
                actions=["ecs:TagResource"], resources=[tasks], conditions={"StringEquals": {"ecs:CreateAction": "RunTask"}}
            ),
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self._execution_role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
            ),
        ]
        for statement in statements:
            function.add_to_role_policy(statement)
        function.node.add_dependency(self._end)
        assert function.role is not None
        acknowledge_wildcard(function.role, f"Resource::{tasks}", "A task's id is made by ECS when it starts.")
        for tier in self.task_definitions:
            acknowledge_wildcard(
                function.role,
                f"Resource::{self._revisions(tier)}",
                "Versions of a function outlive a revision of a task definition, so each may start whatever revision is active.",
            )

    def grant_stop(self, function: lambda_.Function) -> None:
        """Stop sandboxes, for the functions that can see whether one is dead, and for a container's deletion."""
        function.add_to_role_policy(iam.PolicyStatement(actions=["ecs:StopTask"], resources=[self._tasks], conditions=self._in_cluster))
        assert function.role is not None
        acknowledge_wildcard(function.role, f"Resource::{self._tasks}", "A task's id is made by ECS when it starts.")

    def _revisions(self, tier: str) -> str:
        return cdk.Stack.of(self).format_arn(service="ecs", resource="task-definition", resource_name=f"{self._family(tier)}:*")

    @property
    def _tasks(self) -> str:
        return cdk.Stack.of(self).format_arn(service="ecs", resource="task", resource_name=f"{self._config.name}/*")

    @property
    def _in_cluster(self) -> dict[str, dict[str, str]]:
        return {"ArnEquals": {"ecs:cluster": self.cluster.cluster_arn}}

    @property
    def environment(self) -> dict[str, str]:
        """``MOORAGE_FARGATE_*`` as ``sandbox/fargate.py`` reads them.

        Task definitions are named by their family, of which ECS takes the latest active revision: a deployment that changes the image
        deregisters the revision before it, while older versions of the functions still start sandboxes. The image stands beside them,
        so that another one makes other versions, and sandboxes that wait ready with the image before it are replaced.
        """
        return {
            "MOORAGE_FARGATE_CLUSTER": self.cluster.cluster_name,
            "MOORAGE_FARGATE_EVENTS": "true",
            "MOORAGE_FARGATE_SUBNETS": ",".join(self._network.sandbox_subnet_ids),
            "MOORAGE_FARGATE_SECURITY_GROUP": self._network.sandbox_group.security_group_id,
            "MOORAGE_FARGATE_IMAGE": self._image_edition,
            **{f"MOORAGE_FARGATE_TASK_DEFINITION_{tier.upper()}": self._family(tier) for tier in self.task_definitions},
        }


DESK: Final = "desk"
POLICIES: Final = "policies"
"""Folders that both containers see."""


def _mounts(places: Mapping[str, str], *, read_only: bool = False) -> list[ecs.CfnTaskDefinition.MountPointProperty]:
    """Places in a container by volume."""
    resource = ecs.CfnTaskDefinition
    return [resource.MountPointProperty(source_volume=name, container_path=path, read_only=read_only) for name, path in places.items()]


_ALWAYS: Final = "perl, gcc, g++, make, cmake, git, sqlite3, rg, jq, curl, pdftotext"
PROGRAMS: Final = {
    "slim": f"python 3.11, node 22.20, npm 10.9, {_ALWAYS}",
    "full": f"python 3.11, node 22.20, npm 10.9, java 17, javac 17, go 1.19, php 8.2, ruby 3.1, {_ALWAYS}",
}
"""What the image has (``functions/sandbox/packages`` and ``node.txt``), in words for the model."""


def programs(config: Config) -> str:
    """Of a foreign image nothing is known but its owner's words."""
    return config.settings.sandbox_programs or (PROGRAMS[config.sandbox_runtimes] if config.sandbox_image is None else "")


_DROPPED_CAPABILITIES: Final = [
    "AUDIT_WRITE",
    "FSETID",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETPCAP",
    "SYS_CHROOT",
]
"""Docker's defaults but for the six that ``sandbox/docker.py`` keeps: what the exec server starts and ends commands with."""
