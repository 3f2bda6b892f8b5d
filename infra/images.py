"""Container images without Docker on this side: CodeBuild builds them in the account from a folder of the repository."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.bundling import ROOT, context_hash, copy_context, local_bundling
from infra.config import Config
from infra.custom_resource import BUILD_MINUTES, QUEUED_MINUTES, CustomResources
from infra.functions import given_key, log_group
from infra.nag import acknowledge, acknowledge_wildcard


class ContainerImage(Construct):
    """An image: given by its URI, or built from ``context`` and tagged with the hash of its content."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        hooks: CustomResources,
        context: Mapping[str, Path],
        base: str,
        given: str | None = None,
        arguments: Mapping[str, str] = MappingProxyType({}),
        after: "ContainerImage | None" = None,
    ) -> None:
        """``context`` is what ``docker build`` sees: files and folders of the repository by their place in it. ``arguments`` are
        those of its Dockerfile; an image with others has another tag. ``after`` is built first: new accounts have room for one build
        at a time."""
        super().__init__(scope, construct_id)
        self._repository: ecr.Repository | None = None
        self.built: cdk.CustomResource | None = None
        """What has to be there before a task can start; None when the image was given."""
        if given is not None:
            self.uri = self.edition = given
            return
        chosen = [word for word in (config.image_edition, config.kms_key_arn) if word]
        words = [context_hash(context, base), *sorted(arguments.items()), *chosen]
        tag = self.edition = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
        self._repository = ecr.Repository(
            self,
            "Repository",
            # A repository's encryption cannot change: with another key it is made anew, and the image is built into it.
            encryption=ecr.RepositoryEncryption.KMS if config.kms_key_arn else None,
            encryption_key=given_key(self, "Repository", config),
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            removal_policy=cdk.RemovalPolicy.DESTROY,
            empty_on_delete=True,
            lifecycle_rules=[ecr.LifecycleRule(max_image_count=5)],
        )
        self.uri = f"{self._repository.repository_uri}:{tag}"
        project = self._project(config, context, tag, base, arguments)
        self.built = hooks.image_build(f"{construct_id}Build", project, tag)
        self.built.node.add_dependency(project, self._repository)
        if after is not None and after.built is not None:
            self.built.node.add_dependency(after.built)

    def _project(
        self, config: Config, context: Mapping[str, Path], tag: str, base: str, arguments: Mapping[str, str]
    ) -> codebuild.Project:
        assert self._repository is not None
        uri = self._repository.repository_uri
        sources = assets.Asset(
            self,
            "Source",
            path=str(ROOT / "functions"),
            asset_hash=hashlib.sha256(f"{tag} {BUILD_SCRIPT}".encode()).hexdigest(),
            asset_hash_type=cdk.AssetHashType.CUSTOM,
            bundling=local_bundling(lambda output: _lay_out(context, output)),
        )
        variables = {
            "REPOSITORY": uri,
            "REGISTRY": cdk.Fn.select(0, cdk.Fn.split("/", uri)),
            "ARGUMENTS": " ".join(f"--build-arg {name}={value}" for name, value in sorted(arguments.items())),
            "BASE_IMAGE": base,
            "BASE_IMAGE_BY_NAME": base.partition("@")[0],
        }
        project = codebuild.Project(
            self,
            "Build",
            description=f"{config.name}: builds {self.node.path}",
            source=codebuild.Source.s3(bucket=sources.bucket, path=sources.s3_object_key),
            environment=codebuild.BuildEnvironment(
                build_image=codebuild.LinuxArmBuildImage.AMAZON_LINUX_2023_STANDARD_3_0,
                compute_type=codebuild.ComputeType.SMALL,
                privileged=True,
            ),
            environment_variables={k: codebuild.BuildEnvironmentVariable(value=v) for k, v in variables.items()},
            build_spec=codebuild.BuildSpec.from_object(_BUILD_SPEC),
            timeout=cdk.Duration.minutes(BUILD_MINUTES),
            queued_timeout=cdk.Duration.minutes(QUEUED_MINUTES),
            grant_report_group_permissions=False,
            logging=codebuild.LoggingOptions(
                cloud_watch=codebuild.CloudWatchLoggingOptions(log_group=log_group(self, "BuildLogs", config))
            ),
        )
        self._repository.grant_pull_push(project)
        # A password of the public registry: who has one is not counted by an address (its user guide, "Registry authentication").
        login = ["ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"]
        project.add_to_role_policy(iam.PolicyStatement(actions=login, resources=["*"]))
        assert project.role is not None
        policy = project.role.node.find_child("DefaultPolicy").node.default_child
        assert isinstance(policy, cdk.CfnResource)
        reason = "Passwords of registries are what a build pulls and pushes with; the role is the build's alone."
        policy.add_metadata("checkov", {"skip": [{"id": "CKV_AWS_107", "comment": reason}]})
        acknowledge(project, "AwsSolutions-CB3", "docker build needs a privileged build container; it runs our Dockerfile only.")
        acknowledge(project, "AwsSolutions-CB4", "It has no artifacts: the image goes to ECR, which encrypts it.")
        stack = cdk.Stack.of(self)
        logical_id = stack.get_logical_id(project.node.default_child)  # type: ignore[arg-type]
        logs = stack.format_arn(service="logs", resource="log-group", resource_name=f"/aws/codebuild/<{logical_id}>:*")
        reasons = {
            "Resource::*": "What gives passwords of registries accepts no resource (service authorization reference).",
            "Action::s3:GetBucket*": _ASSET_READ,
            "Action::s3:GetObject*": _ASSET_READ,
            "Action::s3:List*": _ASSET_READ,
            f"Resource::{_colon(logs)}": "The streams of the project's own log group.",
        }
        for finding, reason in reasons.items():
            acknowledge_wildcard(project.role, finding, reason)
        return project

    def grant_pull(self, role: iam.IGrantable) -> None:
        """Let a task's execution role pull the image. A given image has to be readable by the account."""
        if self._repository is not None:
            self._repository.grant_pull(role)


def sandbox_image(scope: Construct, config: Config, hooks: CustomResources) -> ContainerImage:
    """What runs in every sandbox, as a task or as a MicroVM."""
    return ContainerImage(
        scope,
        "Image",
        config=config,
        hooks=hooks,
        context={".": ROOT / "functions" / "sandbox"},
        base=PYTHON_3_11,
        given=config.sandbox_image,
        arguments={"RUNTIMES": config.sandbox_runtimes},
    )


PYTHON_3_11: Final = (
    "public.ecr.aws/docker/library/python:3.11-slim-bookworm@sha256:2e32f7d302adc1c37428355c1e646897c0c53f4fd60b6a551245fb90ee129f91"
)
PYTHON_3_13: Final = (
    "public.ecr.aws/docker/library/python:3.13-slim-bookworm@sha256:01f42367a0a94ad4bc17111776fd66e3500c1d87c15bbd6055b7371d39c124fb"
)
"""Docker's official images in Amazon's public registry. It lets through one pull a second of an address that has not logged in, and
CodeBuild's addresses are shared with everybody; so does Docker Hub, 100 in six hours."""

BUILD_SCRIPT: Final = """#!/bin/sh
# What a build fetches comes from registries that have bad minutes, so all is tried again. Only where the registry says that it has no
# such digest (any more), the name is taken, and the log says so: a pin that any failure undid would be none.
aws ecr-public get-login-password --region us-east-1 | docker login --username AWS --password-stdin "${BASE_IMAGE%%/*}" ||
    echo "Amazon's public registry gives no password; pulling without one."
build() { docker build $ARGUMENTS --build-arg BASE_IMAGE="$1" --tag "$REPOSITORY:$IMAGE_TAG" .; }
tries=0
until docker pull "$BASE_IMAGE" 2> pull.log; do
    cat pull.log
    if grep -q "manifest unknown" pull.log; then
        echo "The registry has no $BASE_IMAGE; building from $BASE_IMAGE_BY_NAME instead."
        BASE_IMAGE=$BASE_IMAGE_BY_NAME
        break
    fi
    tries=$((tries + 1))
    [ "$tries" -lt 3 ] || exit 1
    sleep "${PAUSE:-30}"
done
rm -f pull.log
build "$BASE_IMAGE" || { sleep "${PAUSE:-30}"; build "$BASE_IMAGE"; }
"""


def _lay_out(context: Mapping[str, Path], output: Path) -> None:
    copy_context(context, output)
    (output / "build.sh").write_text(BUILD_SCRIPT)


_ASSET_READ: Final = "CDK's grant to read one asset; it names the asset bucket and the object."


def _colon(arn: str) -> str:
    """Log groups are written ``log-group:name``, not ``log-group/name``."""
    return arn.replace(":log-group/", ":log-group:")


_BUILD_SPEC: Final = {
    "version": "0.2",
    "phases": {
        "build": {
            "commands": [
                'aws ecr get-login-password | docker login --username AWS --password-stdin "$REGISTRY"',
                # An immutable tag that is there already was built from the same sources.
                'docker manifest inspect "$REPOSITORY:$IMAGE_TAG" > /dev/null 2>&1 || '
                '(sh build.sh && docker push "$REPOSITORY:$IMAGE_TAG")',
            ]
        },
    },
}
