"""One factory for every Lambda function: same runtime, layers, logs and tracing; a role and a log group of its own."""

import json
from collections.abc import Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.bundling import RUNTIME, core_layer, dependencies_layer, function_code, search_layer
from infra.config import Config, Models
from infra.nag import acknowledge

_LOG_RETENTION: Final = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}

_AUDIT_RETENTION: Final = {
    90: logs.RetentionDays.THREE_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}

_ADAPTER_ACCOUNT: Final = "753240598075"
_ADAPTER_LAYER: Final = "LambdaAdapterLayerArm64:27"
"""AWS Lambda Web Adapter 1.0.0 (its README names account, layer and version). It turns the runtime API into HTTP on a port."""

ADAPTER_PORT: Final = 8080
REAPER_MEMORY_MIB: Final = 448
"""110 MiB of code, and sixteen responses or containers side by side."""

SETTINGS_FILE: Final = "settings.json"
LIVE: Final = "live"


def audit_log_group(scope: Construct, construct_id: str, config: Config) -> logs.LogGroup:
    """Lines about people and keys. They stay when the stack goes."""
    kept = cdk.RemovalPolicy.RETAIN if config.retain else cdk.RemovalPolicy.DESTROY
    return logs.LogGroup(
        scope,
        construct_id,
        retention=_AUDIT_RETENTION[config.audit_retention_days],
        removal_policy=kept,
        encryption_key=given_key(scope, construct_id, config),
    )


def log_group(scope: Construct, construct_id: str, config: Config, *, name: str | None = None) -> logs.LogGroup:
    """Logs hold ids, counts and times, never content; they go with the stack. ``name`` is one that a service would give it."""
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        retention=_LOG_RETENTION[config.log_retention_days],
        removal_policy=cdk.RemovalPolicy.DESTROY,
        encryption_key=given_key(scope, construct_id, config),
    )


def given_key(scope: Construct, construct_id: str, config: Config) -> kms.IKey | None:
    """``kms_key_arn`` for what services encrypt by themselves, as its policy lets them: nobody else gets a right by it."""
    return kms.Key.from_key_arn(scope, f"{construct_id}Key", config.kms_key_arn) if config.kms_key_arn else None


def live(function: lambda_.Function, *, provisioned: int = 0) -> lambda_.Alias:
    """What callers are sent to: the newest version under one name, which a deployment turns to all at once or bit by bit, and back."""
    return lambda_.Alias(
        function,
        "Live",
        alias_name=LIVE,
        version=function.current_version,
        provisioned_concurrent_executions=provisioned or None,
    )


_NETWORK_INTERFACE_ACTIONS: Final = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]
"""Lambda places a function in a VPC with these, by the function's role
(https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html). The CDK grants them only to roles that it makes itself."""


def _grant_network_interfaces(role: iam.Role) -> None:
    """Let Lambda place the function, and deny the same to the function's own code, as the page above advises.

    The denial names every function of the account: the name of this one would make its role wait for it, and it waits for its role.
    """
    functions = cdk.Stack.of(role).format_arn(
        service="lambda", resource="function", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
    )
    role.add_to_policy(iam.PolicyStatement(actions=_NETWORK_INTERFACE_ACTIONS, resources=["*"]))
    role.add_to_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=_NETWORK_INTERFACE_ACTIONS,
            resources=["*"],
            conditions={"ArnLike": {"lambda:SourceFunctionArn": functions}},
        )
    )
    policy = role.node.find_child("DefaultPolicy").node.default_child
    assert isinstance(policy, cdk.CfnResource)
    reason = "Lambda asks that these actions are allowed on all resources; the function's own code is denied them."
    policy.add_metadata("checkov", {"skip": [{"id": "CKV_AWS_111", "comment": reason}]})


class FunctionFactory(Construct):
    """Makes functions that share layers: third-party packages, our own, and for functions that search the packages of the search."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        models: Models,
        environment: Mapping[str, str],
        lists: Mapping[str, str],
    ) -> None:
        """``lists`` are settings that an owner may make too long for variables; they lie beside the code."""
        super().__init__(scope, construct_id)
        self._beside = {"models.toml": models.text, SETTINGS_FILE: json.dumps(lists, indent=1, sort_keys=True)}
        self._config = config
        self._environment = environment
        self._layers = [
            self._layer("Dependencies", dependencies_layer(config.bundle_for)),
            self._layer("Core", core_layer(config.bundle_for)),
        ]
        self._search_layer = self._layer("Search", search_layer(config.bundle_for))

    def _layer(self, layer_id: str, code: lambda_.Code) -> lambda_.ILayerVersion:
        return lambda_.LayerVersion(
            self,
            layer_id,
            code=code,
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[lambda_.Architecture.ARM_64],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )

    def make(
        self,
        construct_id: str,
        *,
        folder: str,
        handler: str,
        timeout: cdk.Duration,
        memory_mib: int,
        environment: Mapping[str, str] | None = None,
        vpc: ec2.IVpc | None = None,
        subnets: ec2.SubnetSelection | None = None,
        security_groups: list[ec2.ISecurityGroup] | None = None,
        is_streaming: bool = False,
        searches: bool = False,
    ) -> lambda_.Function:
        """A function from ``functions/<folder>``. It may write its own logs and traces and nothing else until it is granted more.

        ``is_streaming`` puts the Web Adapter in front: ``handler`` is then the start command of an HTTP server. ``searches`` adds the
        packages for indexes of vector stores.
        """
        role = iam.Role(self, f"{construct_id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        if vpc is not None:
            _grant_network_interfaces(role)
        group = log_group(self, f"{construct_id}Logs", self._config)
        group.grant_write(role)
        layers = [
            *self._layers,
            *([self._search_layer] if searches else []),
            *([self._adapter(construct_id)] if is_streaming else []),
        ]
        function = lambda_.Function(
            self,
            construct_id,
            code=function_code(folder, self._beside, self._config.bundle_for),
            handler=handler,
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            role=role,
            layers=layers,
            timeout=timeout,
            memory_size=memory_mib,
            log_group=group,
            tracing=lambda_.Tracing.ACTIVE,
            environment={
                "MOORAGE_SETTINGS_FILE": SETTINGS_FILE,
                **self._environment,
                **(_ADAPTER_ENVIRONMENT if is_streaming else {}),
                **(environment or {}),
            },
            vpc=vpc,
            vpc_subnets=subnets,
            security_groups=security_groups,
            # An execution that runs goes on with the versions that it began with; they go with the function. One of a deployment that
            # was rolled back goes: Lambda would not publish the same again, and the next deployment would fail.
            current_version_options=lambda_.VersionOptions(removal_policy=cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE),
        )
        acknowledge(
            function,
            "AwsSolutions-L1",
            "Python 3.13 is the newest runtime that every pinned wheel supports on arm64; it is supported until 2029.",
        )
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "X-Ray's two write actions, and the ENI actions of a function in a VPC, accept no resource (service authorization "
            "reference).",
        )
        return function

    def _adapter(self, construct_id: str) -> lambda_.ILayerVersion:
        stack = cdk.Stack.of(self)
        arn = f"arn:{stack.partition}:lambda:{stack.region}:{_ADAPTER_ACCOUNT}:layer:{_ADAPTER_LAYER}"
        return lambda_.LayerVersion.from_layer_version_arn(self, f"{construct_id}Adapter", arn)


_ADAPTER_ENVIRONMENT: Final = {
    "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
    "AWS_LWA_INVOKE_MODE": "response_stream",
    "AWS_LWA_PORT": str(ADAPTER_PORT),
    "AWS_LWA_READINESS_CHECK_PATH": "/healthz",
    # Lambda gives ten seconds of its full CPU to begin with, and begins anew where they do not do: then the first request waits.
    "AWS_LWA_ASYNC_INIT": "true",
}
