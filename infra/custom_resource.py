"""Tasks that CloudFormation cannot do by itself: read prefix lists, run an image build, find a base image, derive a key, stop the
sandboxes before their cluster goes.

One small function (``functions/custom_resource``) answers both. A build's end invokes it again, so that CloudFormation hears of every
end: of a build that failed in its first phase, was stopped, or ran out of time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.bundling import RUNTIME, function_code, sdk_layer
from infra.config import Config
from infra.functions import log_group
from infra.nag import acknowledge, acknowledge_wildcard

BUILD_MINUTES: Final = 25
QUEUED_MINUTES: Final = 20
"""For a free machine: a new account has one, or none for a while. CodeBuild waits eight hours by default, and
CloudFormation one for all of it."""

_ANSWER_MINUTES: Final = 10
"""For the event, and for Lambda's two further tries, which come after one and two minutes."""


_START_MINUTES: Final = 5
"""For CodeBuild to take a build at all, the longest that the function works."""

VECTOR_INDEX_PREFIX: Final = "vs-"
"""Of the indexes that vector stores have (``knowledge/neighbours.py``). A test compares the two."""

_STOP_MINUTES: Final = 5
"""For sandboxes to stop, the longest that the function works; ECS takes seconds for each, and all of them stop at once."""


@dataclass(frozen=True)
class VectorBucketResource:
    arn: str
    """As it is known at synthesis."""
    made: str
    """The same from the resource: what is told it waits until the bucket is there."""

    def grant(self, function: lambda_.Function, *actions: str) -> None:
        """Tell a function of it, and let it do so much in its indexes."""
        function.add_environment("MOORAGE_VECTOR_BUCKET", self.made)
        indexes = f"{self.arn}/index/*"
        statement = iam.PolicyStatement(actions=[f"s3vectors:{action}" for action in actions], resources=[indexes])
        function.add_to_role_policy(statement)
        assert function.role is not None
        acknowledge_wildcard(function.role, f"Resource::{indexes}", "Each vector store has an index of its own.")


class CustomResources(Construct):
    """Custom resources of the stack, each with only the permission that it needs."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, sdk: lambda_.ILayerVersion | None = None) -> None:
        """``sdk`` is that of another construct of this kind."""
        super().__init__(scope, construct_id)
        self.sdk: lambda_.ILayerVersion = sdk or lambda_.LayerVersion(
            self,
            "Sdk",
            code=sdk_layer(config.bundle_for),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[lambda_.Architecture.ARM_64],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group = log_group(self, "Logs", config)
        group.grant_write(role)
        self._role = role
        self._shares: list[cdk.CustomResource] = []
        self._prefix_lists: dict[str, str] = {}
        self._function = lambda_.Function(
            self,
            "Function",
            code=function_code("custom_resource", {}, config.bundle_for),
            handler="handler.handle",
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            layers=[self.sdk],
            role=role,
            timeout=cdk.Duration.minutes(_STOP_MINUTES),
            memory_size=256,
            log_group=group,
        )
        acknowledge(self._function, "AwsSolutions-L1", "Python 3.13, as every function here; it is supported until 2029.")

    def prefix_lists(self, *services: str) -> dict[str, str]:
        """Ids of the region's managed prefix lists, by service: security groups name gateway endpoints by them. A second network asks
        for some of those of the first."""
        if not self._prefix_lists:
            self._allow(["ec2:DescribeManagedPrefixLists"], ["*"])
            region = cdk.Stack.of(self).region
            names = {s: f"com.amazonaws.{region}.{s}" for s in services}
            lists = self._resource("PrefixLists", "Custom::PrefixLists", {"Names": names})
            self._prefix_lists = {service: lists.get_att_string(service) for service in services}
        return {service: self._prefix_lists[service] for service in services}

    def image_build(self, construct_id: str, project: codebuild.Project, tag: str) -> cdk.CustomResource:
        """Run the project when it or the tag is new; the stack goes on when the build has ended well."""
        self._allow(["codebuild:StartBuild", "codebuild:BatchGetBuilds"], [project.project_arn])
        ended = events.Rule(
            self,
            f"{construct_id}Ended",
            event_pattern=events.EventPattern(
                source=["aws.codebuild"],
                detail_type=["CodeBuild Build State Change"],
                detail={"project-name": [project.project_name], "build-status": events.Match.anything_but("IN_PROGRESS")},
            ),
            targets=[targets.LambdaFunction(self._function)],
        )
        resource = self._resource(
            construct_id,
            "Custom::ImageBuild",
            {"Project": project.project_name, "Tag": tag},
            minutes=_START_MINUTES + QUEUED_MINUTES + BUILD_MINUTES + _ANSWER_MINUTES,
        )
        # The rule, and the leave to call the function, which is a part of it: an end that nobody hears of is a wait for the timeout.
        resource.node.add_dependency(ended, self._function)
        return resource

    def sandboxes(self, cluster: str, families: Sequence[str]) -> cdk.CustomResource:
        """Does nothing until it is deleted: then it stops all tasks of these families, and is gone when they are."""
        stack = cdk.Stack.of(self)
        tasks = stack.format_arn(service="ecs", resource="task", resource_name=f"{cluster}/*")
        in_cluster = {"ArnEquals": {"ecs:cluster": stack.format_arn(service="ecs", resource="cluster", resource_name=cluster)}}
        self._allow(["ecs:ListTasks"], ["*"], in_cluster)
        self._allow(["ecs:DescribeTasks", "ecs:StopTask"], [tasks], in_cluster)
        acknowledge_wildcard(self._role, f"Resource::{tasks}", "A task's id is made by ECS when it starts.")
        acknowledge(
            self._role,
            "AwsSolutions-IAM5[Resource::*]",
            "ec2:DescribeManagedPrefixLists and ecs:ListTasks accept no resource (service authorization reference).",
        )
        return self._resource("Sandboxes", "Custom::Sandboxes", {"Cluster": cluster, "Families": families}, minutes=_STOP_MINUTES)

    def microvms(self, images: Sequence[str], resources: Sequence[str]) -> cdk.CustomResource:
        """The same for the MicroVMs of these images. ``resources`` are the ARNs of MicroVMs to stop."""
        self._allow(["lambda:ListMicrovms"], ["*"])
        self._allow(["lambda:TerminateMicrovm"], resources)
        acknowledge(
            self._role, "AwsSolutions-IAM5[Resource::*]", "lambda:ListMicrovms accepts no resource (service authorization reference)."
        )
        acknowledge_wildcard(self._role, f"Resource::{resources[-1]}", "A VM's id is made by Lambda when it starts.")
        return self._resource("Microvms", "Custom::Microvms", {"Images": images}, minutes=_STOP_MINUTES)

    def microvm_base(self, image: str, *, edition: str, version: str | None) -> cdk.CustomResource:
        """``Version``: the newest available one of a managed base image, asked for anew with another ``edition``; or the given one."""
        if version is None:
            self._allow(["lambda:ListManagedMicrovmImageVersions"], ["*"])
        properties: dict[str, object] = {"Image": image, "Edition": edition, **({"Version": version} if version else {})}
        return self._resource("MicrovmBase", "Custom::MicrovmBase", properties)

    def microvm_source(
        self, construct_id: str, *, bucket: s3.IBucket, key: str, text: str, encryption: kms.IKey | None
    ) -> cdk.CustomResource:
        """An archive with ``text`` as its Dockerfile, stored with the resource. The text is only known at deployment."""
        self._allow(["s3:PutObject", "s3:DeleteObject"], [bucket.arn_for_objects(key)])
        if encryption:
            encryption.grant(self._role, "kms:GenerateDataKey")
        return self._resource(construct_id, "Custom::MicrovmSource", {"Bucket": bucket.bucket_name, "Key": key, "Dockerfile": text})

    def share_concurrency(self, construct_id: str, function: lambda_.Function, *, percent: int, at_least: int) -> None:
        """Let a streaming function have so much of the account's concurrency and no more: a stream holds an environment for as long
        as a response runs, and its steps need others. The account's concurrency is no part of the template. It is read at deployment
        and each day: a quota may have been raised, and others may have reserved more.
        """
        self._allow(["lambda:GetAccountSettings"], ["*"])
        acknowledge(
            self._role,
            "AwsSolutions-IAM5[Resource::*]",
            "lambda:GetAccountSettings accepts no resource (service authorization reference).",
        )
        actions = [f"lambda:{verb}FunctionConcurrency" for verb in ("Get", "Put", "Delete")]
        self._allow(actions, [function.function_arn])
        share: dict[str, object] = {"Function": function.function_name, "Percent": str(percent), "AtLeast": str(at_least)}
        resource = self._resource(construct_id, "Custom::Concurrency", share)
        # One after the other: each takes of what the one before has left.
        resource.node.add_dependency(function, *self._shares)
        self._shares.append(resource)
        events.Rule(
            self,
            f"{construct_id}Daily",
            schedule=events.Schedule.rate(cdk.Duration.days(1)),
            targets=[targets.LambdaFunction(self._function, event=events.RuleTargetInput.from_object({"Share": share}))],
        )

    def kept_key(self, construct_id: str, *, deployment: str, description: str, is_kept: bool) -> kms.IKey:
        """A KMS key with an alias. The next deployment finds it again after this one is destroyed, and so does one that turns the
        feature on again. CloudFormation itself would make a new key, and the table's content could not be opened with it.

        With ``is_kept`` false it goes with the stack.
        """
        stack = cdk.Stack.of(self)
        alias = f"alias/{deployment}-egress"
        keys = stack.format_arn(service="kms", resource="key", resource_name="*")
        own = {"StringEquals": {"aws:ResourceTag/moorage": deployment}}
        made_here = {"StringEquals": {"aws:RequestTag/moorage": deployment}}
        name = stack.format_arn(service="kms", resource="alias", resource_name=alias.removeprefix("alias/"))
        self._allow(["kms:ListAliases"], ["*"])
        self._allow(["kms:CreateKey"], ["*"], made_here)
        self._allow(["kms:TagResource"], [keys], made_here)
        # An alias is made by whoever may do so with both, so with this alias only. New tags take minutes until conditions see them.
        self._allow(["kms:CreateAlias", "kms:DeleteAlias"], [name, keys])
        self._allow(["kms:DescribeKey", "kms:EnableKeyRotation"], [keys])
        self._allow(["kms:CancelKeyDeletion", "kms:EnableKey", "kms:ScheduleKeyDeletion"], [keys], own)
        acknowledge_wildcard(self._role, f"Resource::{keys}", "The key's id is made by KMS; the condition names the deployment's tag.")
        made = self._resource(
            construct_id,
            "Custom::KeptKey",
            {"Alias": alias, "Deployment": deployment, "Description": description, "IsKept": str(is_kept).lower()},
        )
        return kms.Key.from_key_arn(self, f"{construct_id}Arn", made.get_att_string("Arn"))

    def kept_vector_bucket(self, construct_id: str, *, config: Config, tag: str, key: kms.IKey | None) -> "VectorBucketResource":
        """A vector bucket with a fixed name. The next deployment finds it again, and so does one that turns the feature on again. Each
        function gets its own rights to it.

        If the deployment keeps nothing, it goes with the stack, and its indexes before it: CloudFormation deletes only an empty one.
        """
        name, stack = f"{config.name}-vectors", cdk.Stack.of(self)
        bucket = stack.format_arn(service="s3vectors", resource="bucket", resource_name=name)
        made = ["CreateVectorBucket", "DeleteVectorBucket", "GetVectorBucket", "ListIndexes", "TagResource"]
        self._allow([f"s3vectors:{action}" for action in made], [bucket])
        self._allow(["s3vectors:DeleteIndex"], [f"{bucket}/index/*"])
        acknowledge_wildcard(self._role, f"Resource::{bucket}/index/*", "Each vector store has an index of its own.")
        properties: dict[str, object] = {
            "Name": name,
            "Prefix": VECTOR_INDEX_PREFIX,
            "Deployment": config.name,
            "Tag": tag,
            "IsKept": str(config.retain).lower(),
        }
        if key:
            key.grant(self._role, "kms:Decrypt", "kms:GenerateDataKey")
            properties["Key"] = key.key_arn
        resource = self._resource(construct_id, "Custom::KeptVectorBucket", properties, minutes=3 * _STOP_MINUTES + _ANSWER_MINUTES)
        return VectorBucketResource(bucket, resource.get_att_string("Arn"))

    def stage_logs(self, name: str, *, days: int, printed: str) -> cdk.CustomResource:
        """The log group ``name`` forgets lines after so many days, and goes with the stack.

        API Gateway makes it for a stage's errors, and CloudFormation takes over none that is there. ``printed`` is the name as cdk-nag
        has it.
        """
        stack, colon = cdk.Stack.of(self), cdk.ArnFormat.COLON_RESOURCE_NAME
        group, known = (
            stack.format_arn(service="logs", resource="log-group", resource_name=each, arn_format=colon) for each in (name, printed)
        )
        # The service authorization reference writes a group without the star, and the API reference of CloudWatch Logs with it.
        self._allow(["logs:CreateLogGroup", "logs:DeleteLogGroup", "logs:PutRetentionPolicy"], [group, f"{group}:*"])
        acknowledge_wildcard(self._role, f"Resource::{known}:*", "IAM writes one log group in two ways, and this is one of them.")
        return self._resource("StageLogs", "Custom::StageLogs", {"Name": name, "Days": str(days)})

    def sandbox_keys(self, secret_arn: str, edition: str) -> cdk.CustomResource:
        """Keys derived from the secret's content key: ``Hex`` for the tokens of sandboxes, ``Places`` for their names before the proxy.

        It is asked for anew with another ``edition``. :attr:`grantee` has to be let read it; the template has only the references.
        """
        # CloudFormation asks a resource anew only if a property differs, and an answer of an older release has fewer attributes.
        properties: dict[str, object] = {
            "Secret": secret_arn,
            "Answers": ["Hex", "Places"],
            **({"Edition": edition} if edition else {}),
        }
        return self._resource("SandboxKey", "Custom::SandboxKey", properties)

    @property
    def grantee(self) -> iam.IGrantable:
        return self._role

    def _allow(
        self, actions: Sequence[str], resources: Sequence[str], conditions: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources, conditions=conditions))

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
