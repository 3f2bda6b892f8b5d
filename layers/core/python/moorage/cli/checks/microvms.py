"""Lambda MicroVMs, before a deployment that has some: the region, AWS's base image, and room."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError

from moorage.cli.checks.account import asked
from moorage.cli.checks.findings import Finding, fail, ok, warn
from moorage.limits import MEMORY_LIMITS

_BASE_IMAGE: Final = "al2023-1"
"""As in ``infra/microvms.py``."""
_ADVICE: Final = "Choose a region of docs/aws.md, or the provisioner 'fargate'."
_QUOTAS_PAGE: Final = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"


def findings(client: Callable[[str], Any], settings: Mapping[str, Any], region: str) -> Iterator[Finding]:
    """``settings`` are those of ``cdk.json``; nothing is found with another provisioner."""
    chosen = settings.get("provisioner")
    if "lambda_microvm" not in (chosen.values() if isinstance(chosen, Mapping) else [chosen]):
        return
    yield asked("MicroVMs", partial(_base_image, client, settings.get("microvm_base_version"), region))
    yield asked("MicroVMs' memory", partial(_memory, client))


def _base_image(client: Callable[[str], Any], pinned: str | None, region: str) -> Finding:
    arn = f"arn:aws:lambda:{region}:aws:microvm-image:{_BASE_IMAGE}"
    try:
        pages = client("lambda-microvms").get_paginator("list_managed_microvm_image_versions").paginate(imageIdentifier=arn)
        states = {str(each["imageVersion"]).removesuffix(".0"): each["status"] for page in pages for each in page["items"]}
    except ClientError as error:
        # A region without MicroVMs refuses each call, and gives no reason (reported).
        if error.response["Error"]["Code"] != "AccessDeniedException" or error.response["Error"].get("Message"):
            raise
        return fail(f"Lambda offers no MicroVMs in {region}", _ADVICE)
    if pinned is None:
        if "AVAILABLE" in states.values():
            return ok(f"MicroVMs: a base image is available in {region}")
        return fail(f"MicroVMs: no version of the base image {_BASE_IMAGE} is available in {region}", _ADVICE)
    shown = f"MicroVMs: version {pinned} of the base image is {states.get(pinned, 'unknown')}"
    if states.get(pinned) == "AVAILABLE":
        return ok(shown)
    advice = "Correct microvm_base_version in cdk.json, or leave it out. Images on an expired version do not run any more."
    return warn(shown, advice) if states.get(pinned) == "DEPRECATED" else fail(shown, advice)


def _memory(client: Callable[[str], Any]) -> Finding:
    """Sleeping MicroVMs count too."""
    pages = client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="lambda")
    room = [
        quota["Value"]
        for page in pages
        for quota in page["Quotas"]
        if {"microvm", "memory"} <= set(quota["QuotaName"].lower().replace("microvms", "microvm").split())
    ]
    if not room:
        return ok(f"MicroVMs: default quotas ({_QUOTAS_PAGE})")
    shown = f"MicroVMs: {room[0]:g} GB of memory at once, asleep or awake"
    if room[0] >= max(MEMORY_LIMITS.values()):
        return ok(shown)
    return warn(shown, "A sandbox of 1g takes half a GB of it. Ask for more at Service Quotas (lambda).")
