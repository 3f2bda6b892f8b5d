"""An AWS account, before a deployment goes to it: who, where, bootstrapped, and how much of everything there is."""

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli.checks.findings import Finding, fail, ok, warn
from moorage.cli.target import AWS_CONFIG, TargetError, aws_region, refused
from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.model.catalog import ModelCatalog, ModelEntry
from moorage.model.embedding_models import TITAN
from moorage.model.models_file import ProviderKind
from moorage.settings import as_deployed

_QUALIFIER: Final = "@aws-cdk/core:bootstrapQualifier"
_BOUNDARY: Final = "@aws-cdk/core:permissionsBoundary"
"""The CDK's own settings in the context of ``cdk.json`` (CDK developer guide)."""
_QUALIFIER_DEFAULT: Final = "hnb659fds"
_BOOTSTRAP_VERSION_MIN: Final = 21
_FARGATE_VCPU_QUOTA: Final = "L-3032A538"
"""Fargate On-Demand vCPU resource count; new accounts have 6."""
_FARGATE_VCPU_MIN: Final = 16
_LAMBDA_CONCURRENCY_MIN: Final = 100
"""A streaming turn holds two functions."""
_TRANSITIONS_MIN: Final = 100
"""State transitions a second; a round of the loop takes three or four."""
_INFERENCE_PROFILE: Final = re.compile(r"^(?:us-gov|us|eu|apac|global|jp|au|ca)\.")
"""What stands before a model's own id in that of a cross-region inference profile."""


@dataclass(frozen=True, slots=True)
class AwsClients:
    """The clients of the checks."""

    region: str
    sts: Any
    ssm: Any
    secretsmanager: Any
    iam: Any
    lambda_: Any
    service_quotas: Any
    bedrock: Callable[[str], Any]
    """Of a region: models may be asked for in another than the deployment's."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "AwsClients":
        session = boto3.Session(region_name=aws_region(environ))

        def client(name: str, region: str | None = None) -> Any:
            return session.client(name, region_name=region, config=AWS_CONFIG)  # type: ignore[call-overload]

        return cls(
            session.region_name,
            client("sts"),
            client("ssm"),
            client("secretsmanager"),
            client("iam"),
            client("lambda"),
            client("service-quotas"),
            lambda region: client("bedrock", region),
        )


def deployed_models(root: Path) -> str:
    """The text of ``models.toml`` as the next deploy takes it."""
    return as_deployed(_read(root / "models.toml"), deployed_settings(root).get("name", "moorage"))


def deployed_settings(root: Path) -> dict[str, Any]:
    """The settings of the next deploy in ``cdk.json``."""
    settings: dict[str, Any] = cdk_context(root).get("moorage", {})
    return settings


def cdk_context(root: Path) -> dict[str, Any]:
    """The context of ``cdk.json``: moorage's settings, and the CDK's own."""
    try:
        context: dict[str, Any] = json.loads(_read(root / "cdk.json"))["context"]
    except ValueError as error:
        raise TargetError(f"'moorage doctor --aws' cannot read cdk.json: {error}") from error
    return context


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise TargetError(f"'moorage doctor --aws' reads cdk.json and models.toml of a checkout: {error}") from error


def of_account(connect: Callable[[], AwsClients], models_toml: str, context: Mapping[str, Any]) -> Iterator[Finding]:
    """Before a deploy: who, where, bootstrapped, and how much of everything there is. ``context`` is that of ``cdk.json``."""
    try:
        aws = connect()
        identity = aws.sts.get_caller_identity()
    except (ClientError, BotoCoreError) as error:
        yield fail("AWS cannot be asked", refused(error))
        return
    yield ok(f"account {identity['Account']} in {aws.region} as {identity['Arn']}")
    yield asked("bootstrap", partial(_bootstrap, aws, context.get(_QUALIFIER, _QUALIFIER_DEFAULT)))
    if boundary := context.get(_BOUNDARY):
        arn = boundary.get("arn") or f"arn:aws:iam::{identity['Account']}:policy/{boundary.get('name')}"
        yield asked("permissions boundary", partial(_boundary, aws, arn))
    for check in (_lambda_concurrency, _fargate_vcpus, _step_functions):
        yield asked(check.__name__, partial(check, aws))
    yield from _models(aws, models_toml)


def asked(name: str, check: Callable[[], Finding]) -> Finding:
    """A check, or why it could not be made."""
    try:
        return check()
    except (ClientError, BotoCoreError) as error:
        return warn(f"{name.strip('_').replace('_', ' ')}: {error}", "It could not be checked; the permission for it may be missing.")


def _boundary(aws: AwsClients, arn: str) -> Finding:
    """CloudFormation makes no role under a policy that is not there."""
    try:
        aws.iam.get_policy(PolicyArn=arn)
    except aws.iam.exceptions.NoSuchEntityException:
        return fail(f"the permissions boundary {arn} is not there", f"Make the policy, or correct {_BOUNDARY} in cdk.json.")
    return ok(f"permissions boundary {arn}")


def _bootstrap(aws: AwsClients, qualifier: str) -> Finding:
    advice = f"Run 'make bootstrap' with AWS_REGION={aws.region}."
    try:
        version = int(aws.ssm.get_parameter(Name=f"/cdk-bootstrap/{qualifier}/version")["Parameter"]["Value"])
    except aws.ssm.exceptions.ParameterNotFound:
        named = "" if qualifier == _QUALIFIER_DEFAULT else f" with the qualifier '{qualifier}'"
        return fail(f"CDK is not bootstrapped in this region{named}", advice)
    shown = f"CDK bootstrap version {version}"
    return ok(shown) if version >= _BOOTSTRAP_VERSION_MIN else fail(f"{shown} is too old", advice)


def _lambda_concurrency(aws: AwsClients) -> Finding:
    limit = aws.lambda_.get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    shown = f"Lambda: {limit} concurrent executions"
    if limit >= _LAMBDA_CONCURRENCY_MIN:
        return ok(shown)
    return warn(shown, f"Each streaming turn holds two: about {limit // 2} at once. Ask for more at Service Quotas.")


def _fargate_vcpus(aws: AwsClients) -> Finding:
    quota = aws.service_quotas.get_service_quota(ServiceCode="fargate", QuotaCode=_FARGATE_VCPU_QUOTA)
    vcpus = quota["Quota"]["Value"]
    shown = f"Fargate: {vcpus:g} vCPUs at once"
    if vcpus >= _FARGATE_VCPU_MIN:
        return ok(shown)
    return warn(shown, f"So many sandboxes of 1 vCPU can run. Ask for more at Service Quotas (fargate, {_FARGATE_VCPU_QUOTA}).")


def _step_functions(aws: AwsClients) -> Finding:
    pages = aws.service_quotas.get_paginator("list_service_quotas").paginate(ServiceCode="states")
    rates = {
        quota["QuotaName"]: quota["Value"]
        for page in pages
        for quota in page["Quotas"]
        if "statetransition" in quota["QuotaName"].replace(" ", "").lower()
    }
    if not rates:
        return ok("Step Functions: default quotas")
    name, rate = min(rates.items(), key=lambda pair: pair[1])
    shown = f"Step Functions: {name} {rate:g}"
    if rate >= _TRANSITIONS_MIN:
        return ok(shown)
    return warn(shown, "Each round of the loop takes three or four. Ask for more at Service Quotas.")


def _models(aws: AwsClients, models_toml: str) -> Iterator[Finding]:
    """Whether the names of ``models.toml`` can be reached from AWS: keys that are stored, models that may be used."""
    try:
        catalog = ModelCatalog.load(f"{models_toml}\n", {"AWS_REGION": aws.region}, secret=lambda name: name)
    except SettingsConflict as error:
        yield fail(str(error), "Correct models.toml: it is deployed as it is.")
        return
    real = [entry for entry in catalog.entries if entry.provider_kind != "demo"]
    if not real:
        yield warn("models.toml names no model: the scripted demo model would answer", "docs/models.md says how to name one.")
    for entry in real:
        yield asked(f"model '{entry.name}'", partial(_model, aws, entry))
    for table in catalog.embeddings:
        kind: ProviderKind = "bedrock_converse" if table.provider == "bedrock_titan" else "chat_completions"
        entry = ModelEntry(table.name, kind, table.upstream_model or TITAN, table.base_url, table.key, region=table.region)
        yield asked(f"model '{entry.name}'", partial(_model, aws, entry))
    for what, reference in catalog.engine_keys.items():
        yield asked(what, partial(_key, aws, what, reference))


def _model(aws: AwsClients, entry: ModelEntry) -> Finding:
    if entry.key is not None:
        return _key(aws, f"model '{entry.name}'", entry.key)
    if entry.provider_kind == "bedrock_converse" or entry.auth == "sigv4":
        return _bedrock(aws, entry)
    if not _is_public(urlsplit(entry.base_url).hostname or ""):
        return fail(
            f"model '{entry.name}' is at {entry.base_url}, and functions on AWS reach public addresses only",
            "Give it an address that the internet reaches, over https and with a key; or leave it out.",
        )
    return ok(f"model '{entry.name}' at {entry.base_url} needs no key")


def _key(aws: AwsClients, what: str, reference: str) -> Finding:
    kind, _, name = reference.partition(":")
    return _secret(aws, what, name) if kind == "secretsmanager" else _parameter(aws, what, name)


def _secret(aws: AwsClients, what: str, name: str) -> Finding:
    """Asked without its value, which is nobody's business here."""
    try:
        aws.secretsmanager.describe_secret(SecretId=name)
    except aws.secretsmanager.exceptions.ResourceNotFoundException:
        return fail(
            f"{what} has no key: Secrets Manager has no secret {name}",
            f"Run 'aws secretsmanager create-secret --name {name} --secret-string ...'.",
        )
    return ok(f"{what}: its key is the secret {name}")


def _parameter(aws: AwsClients, what: str, parameter: str) -> Finding:
    try:
        aws.ssm.get_parameter(Name=parameter)
    except aws.ssm.exceptions.ParameterNotFound:
        return fail(
            f"{what} has no key: there is no SSM parameter {parameter}",
            f"Run 'aws ssm put-parameter --type SecureString --name {parameter} --value ...'.",
        )
    return ok(f"{what}: its key is the SSM parameter {parameter}")


def _bedrock(aws: AwsClients, entry: ModelEntry) -> Finding:
    region = entry.region or aws.region
    model = _INFERENCE_PROFILE.sub("", entry.upstream_model)
    shown = f"model '{entry.name}': Bedrock's {model} in {region}"
    if "*" in model or model.startswith("arn:"):
        return ok(f"{shown}, which is not looked up")
    try:
        found = aws.bedrock(region).get_foundation_model_availability(modelId=model)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("ResourceNotFoundException", "ValidationException"):
            raise
        return fail(f"{shown} is unknown", "Correct models.toml; 'aws bedrock list-foundation-models' shows what there is.")
    if found["regionAvailability"] != "AVAILABLE":
        return fail(f"{shown} is not offered there", "Name another region in models.toml, or another model.")
    if found["agreementAvailability"]["status"] != "AVAILABLE" or found["entitlementAvailability"] != "AVAILABLE":
        return fail(f"{shown}: its terms are not accepted", "Ask for it once under 'Model access' in the Bedrock console.")
    if found["authorizationStatus"] != "AUTHORIZED":
        return fail(f"{shown}: this account may not use it", "A policy of the account or its organization forbids bedrock:InvokeModel.")
    return ok(f"{shown} may be used")


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return host != "localhost" and "." in host
