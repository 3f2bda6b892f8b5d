"""The CDK app: ``npx aws-cdk@2.1148.1 deploy --all`` runs this, as ``cdk.json`` says."""

import os
import sys
from pathlib import Path
from typing import Final

import aws_cdk as cdk
from aws_cdk import cx_api as cxapi
from cdk_nag import AwsSolutionsChecks

from infra import quotas
from infra.config import CONTEXT_KEY, Config, ConfigError
from infra.stacks import build

MICROVM_REGIONS: Final = frozenset(
    {
        *("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "eu-north-1"),
        *("ap-northeast-1", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
    }
)
"""As AWS has announced them until August 2026."""


def make_app(context: dict[str, object] | None = None, outdir: str | None = None) -> cdk.App:
    """The whole app, checked by cdk-nag; ``context`` stands for that of ``cdk.json`` (tests)."""
    app = cdk.App(context=context, outdir=outdir)
    config = Config.from_context(_context(app))
    account, region = os.environ.get("CDK_DEFAULT_ACCOUNT"), os.environ.get("CDK_DEFAULT_REGION")
    check_region(region)
    check_microvms(config, region)
    check_arns(config, region)
    build(app, config, env=cdk.Environment(account=account, region=region))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True))
    return app


def check_region(region: str | None) -> None:
    """Raises :class:`ConfigError` if the deployment cannot be: the Web Adapter's layer and the images' registries are of the
    commercial partition."""
    if region is not None and region.startswith(("cn-", "us-gov-", "us-iso", "eu-isoe", "eusc-")):
        raise ConfigError(f"The region {region} is outside of AWS's commercial partition, where moorage's layers and base images are.")


def check_microvms(config: Config, region: str | None) -> None:
    """Raises :class:`ConfigError` if Lambda has no MicroVMs. Such a region refuses each call without a word."""
    if config.has_microvms and region is not None and region not in MICROVM_REGIONS:
        regions = ", ".join(sorted(MICROVM_REGIONS))
        raise ConfigError(f"Lambda has no MicroVMs in {region}: use provisioner 'fargate', or one of the regions {regions}.")


def check_arns(config: Config, region: str | None) -> None:
    """Raises :class:`ConfigError` for resources of another region: none of these can be used from there."""
    names = ("kms_key_arn", "model_keys_kms_arn", "alarm_topic_arn", "waf_acl_arn")
    given: dict[str, str | None] = {name: getattr(config, name) for name in names}
    for name, arn in given.items():
        if arn and region and arn.split(":")[3] != region:
            raise ConfigError(f"cdk.json: '{name}': is in {arn.split(':')[3]}, and the deployment goes to {region}.")


def _context(app: cdk.App) -> dict[str, object]:
    """The values of ``moorage`` and ``moorage:<name>``: CDK answers only for requested names."""
    names = [CONTEXT_KEY, *(f"{CONTEXT_KEY}:{name}" for name in Config.names())]
    return {name: value for name in names if (value := app.node.try_get_context(name)) is not None}


def main() -> None:
    """Entry point of ``cdk``. A wrong setting ends it with one sentence instead of a trace."""
    try:
        synthesise()
    except ConfigError as error:
        sys.exit(str(error))


def synthesise(context: dict[str, object] | None = None, outdir: str | None = None) -> None:
    """Write the assembly. Raises :class:`ConfigError` for a setting that is wrong, or that no account could deploy."""
    quotas.check(Path(_synthesised(make_app(context, outdir)).directory))


def _synthesised(app: cdk.App) -> cxapi.CloudAssembly:
    """Raises :class:`ConfigError` for a stack that the CDK itself refuses to write."""
    try:
        return app.synth()
    except RuntimeError as error:
        if "TooManyResourcesInStack" not in str(error) and "is greater than allowed maximum" not in str(error):
            raise
        raise ConfigError("The deployment has more than 500 resources: leave out memory tiers, zones or usage plans.") from error


if __name__ == "__main__":
    main()
