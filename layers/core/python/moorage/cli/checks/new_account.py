"""Gaps of a new account or an unusual region before the first deploy: room for image builds, ECS's own role, a zone with endpoints."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from botocore.exceptions import EndpointConnectionError

from moorage.cli.checks.account import asked
from moorage.cli.checks.findings import Finding, fail, ok, warn

Client = Callable[[str], Any]
"""Makes a client of a service by its name."""

_ECS_ROLE: Final = "AWSServiceRoleForECS"


def findings(client: Client, settings: Mapping[str, Any], region: str) -> Iterator[Finding]:
    """Of what the next deploy needs: ``settings`` are those of ``cdk.json``."""
    chosen = settings.get("provisioner") or "fargate"
    places = set(chosen.values()) if isinstance(chosen, Mapping) else {chosen}
    has_proxy = bool(settings.get("allowed_egress_domains")) and places != {"none"}
    builds_sandboxes = places != {"none"} and not settings.get("sandbox_image")
    builds_browsers = "fargate" in places and bool(settings.get("computer"))
    checks: tuple[tuple[bool, Callable[[Client], Finding]], ...] = (
        (builds_sandboxes or builds_browsers or has_proxy, _image_builds),
        ("fargate" in places or has_proxy, _ecs_role),
        ("fargate" in places and not settings.get("vpc"), partial(_first_zone, region=region)),
        (bool(settings.get("vector_bucket")), partial(_s3_vectors, region=region)),
    )
    for is_needed, check in checks:
        name = (check.func if isinstance(check, partial) else check).__name__
        if is_needed:
            yield asked(name, partial(check, client))


def _image_builds(client: Client) -> Finding:
    pages = client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="codebuild")
    room = [
        quota["Value"]
        for page in pages
        for quota in page["Quotas"]
        if {"arm", "small"} <= set(quota["QuotaName"].lower().replace("/", " ").split())
    ]
    if not room:
        return ok("CodeBuild: default quotas")
    shown = f"CodeBuild: {room[0]:g} small ARM builds at once"
    if room[0] >= 1:
        return ok(shown)
    advice = "The image of the sandboxes cannot be built. Ask for one at Service Quotas (codebuild, ARM/Small), or set sandbox_image."
    return fail(shown, advice)


def _ecs_role(client: Client) -> Finding:
    iam = client("iam")
    try:
        iam.get_role(RoleName=_ECS_ROLE)
    except iam.exceptions.NoSuchEntityException:
        return fail(
            "ECS has no role of its own in this account yet, so its first cluster cannot be made",
            "Run 'aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com'.",
        )
    return ok("ECS has its role")


def _s3_vectors(client: Client, *, region: str) -> Finding:
    try:
        client("s3vectors").list_vector_buckets(maxResults=1)
    except EndpointConnectionError:
        advice = "Turn vector_bucket off: vectors are then compared by the functions. Or deploy to another region."
        return fail(f"S3 Vectors does not answer in {region}", advice)
    return ok("S3 Vectors answers")


def _first_zone(client: Client, *, region: str) -> Finding:
    """The deployment takes the first zone of the region, by name."""
    ec2 = client("ec2")
    zones = ec2.describe_availability_zones(Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])["AvailabilityZones"]
    first = min(zone["ZoneName"] for zone in zones if zone["State"] == "available")
    service = f"com.amazonaws.{region}.ecr.api"
    (found,) = ec2.describe_vpc_endpoint_services(ServiceNames=[service])["ServiceDetails"]
    if first in found["AvailabilityZones"]:
        return ok(f"the zone {first} has endpoints for image pulls")
    return warn(f"the zone {first} has no endpoint for image pulls", "Deploy to another region: sandboxes could not start there.")
