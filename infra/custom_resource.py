"""What CloudFormation cannot do by itself: read prefix lists, run an image build.

One small function (``functions/custom_resource``) answers both; CloudFormation waits for its answer, or for the build's.
"""

from collections.abc import Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundling import ROOT, RUNTIME
from infra.config import Config
from infra.functions import log_group
from infra.nag import acknowledge

_BUILD_MINUTES_MAX: Final = 30


class Hooks(Construct):
    """Custom resources of the stack, each with only the permission that it needs."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(scope, construct_id)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group = log_group(self, "Logs", config)
        group.grant_write(role)
        self._role = role
        self._function = lambda_.Function(
            self,
            "Function",
            code=lambda_.Code.from_asset(str(ROOT / "functions" / "custom_resource"), exclude=["__pycache__"]),
            handler="handler.handle",
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            role=role,
            timeout=cdk.Duration.minutes(1),
            memory_size=256,
            log_group=group,
        )
        acknowledge(self._function, "AwsSolutions-L1", "Python 3.13, as every function here; it is supported until 2029.")

    def prefix_lists(self, *services: str) -> dict[str, str]:
        """Ids of the region's managed prefix lists, by service: security groups name gateway endpoints by them."""
        self._allow(["ec2:DescribeManagedPrefixLists"], ["*"])
        acknowledge(
            self._role,
            "AwsSolutions-IAM5[Resource::*]",
            "ec2:DescribeManagedPrefixLists accepts no resource (service authorization reference).",
        )
        region = cdk.Stack.of(self).region
        lists = self._resource("PrefixLists", "Custom::PrefixLists", {"Names": {s: f"com.amazonaws.{region}.{s}" for s in services}})
        return {service: lists.get_att_string(service) for service in services}

    def image_build(self, construct_id: str, project_name: str, project_arn: str, tag: str) -> cdk.CustomResource:
        """Run the CodeBuild project; the stack goes on when the build has ended well."""
        self._allow(["codebuild:StartBuild"], [project_arn])
        return self._resource(construct_id, "Custom::ImageBuild", {"Project": project_name, "Tag": tag}, minutes=_BUILD_MINUTES_MAX)

    def _allow(self, actions: Sequence[str], resources: Sequence[str]) -> None:
        self._role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources))

    def _resource(self, construct_id: str, kind: str, properties: dict[str, object], *, minutes: int = 2) -> cdk.CustomResource:
        resource = cdk.CustomResource(
            self,
            construct_id,
            service_token=self._function.function_arn,
            resource_type=kind,
            properties=properties,
            service_timeout=cdk.Duration.minutes(minutes),
        )
        resource.node.add_dependency(self._role)
        return resource
