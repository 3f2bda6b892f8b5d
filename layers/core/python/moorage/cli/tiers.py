"""Tenants in tiers: a usage plan of API Gateway is a tier, and a tenant in it has one key there, which counts its requests.

The key opens nothing and nobody sends it: the deployment's authorizer names it for each request. An account has 10,000 such keys in a
region, and one plan for each would stop at 300; so plans are made by the deployment and keys here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from moorage.cli.target import AWS_CONFIG, TargetError, find
from moorage.settings import usage_key
from moorage.store.api_keys import ApiKey


def put(environ: Mapping[str, str], tenant: str, tier: str, gateway: Any = None) -> None:
    """Let the gateway count the tenant's requests under the tier's plan; harmless if it does so already, and a move if it counted them
    under another."""
    target = find(environ)
    if target.is_local:
        raise TargetError("A local stack has no gateway, and so no tiers. Leave out --tier.")
    gateway = gateway or boto3.client("apigateway", **target.aws, config=AWS_CONFIG)
    deployment = environ.get("MOORAGE_NAME", "moorage")
    plans = _plans(gateway, deployment)
    if tier not in plans:
        known = ", ".join(sorted(plans)) or "none"
        raise TargetError(f"The deployment '{deployment}' has no tier '{tier}' (usage_plans in cdk.json): it has {known}.")
    key = _key(gateway, deployment, tenant) or gateway.create_api_key(
        name=_name(deployment, tenant),
        description="Counts requests; nobody sends it, and it opens nothing",
        enabled=True,
        value=usage_key(deployment, tenant),
        tags={"moorage:deployment": deployment},
    )
    held = {plan["id"] for plan in gateway.get_usage_plans(keyId=key["id"])["items"]}
    for other in held - {plans[tier]}:
        gateway.delete_usage_plan_key(usagePlanId=other, keyId=key["id"])
    if plans[tier] not in held:
        gateway.create_usage_plan_key(usagePlanId=plans[tier], keyId=key["id"], keyType="API_KEY")


def take_out(environ: Mapping[str, str], tenant: str, gateway: Any = None) -> None:
    """Forget the key that counted the requests of a tenant without keys; harmless if there is none."""
    target = find(environ)
    gateway = gateway or boto3.client("apigateway", **target.aws, config=AWS_CONFIG)
    key = _key(gateway, environ.get("MOORAGE_NAME", "moorage"), tenant)
    if key is not None:
        gateway.delete_api_key(apiKey=key["id"])


def without_keys(before: Iterable[ApiKey], revoked: str) -> str | None:
    """The tenant that has lost its last key of a tier by this."""
    keys = [key for key in before if key.tier]
    tenant = next((key.tenant_id for key in keys if key.key_id == revoked), None)
    return tenant if tenant and not any(key.tenant_id == tenant and key.key_id != revoked for key in keys) else None


def _plans(gateway: Any, deployment: str) -> dict[str, str]:
    """Ids of the deployment's plans by tier."""
    start = f"{deployment}-"
    pages = gateway.get_paginator("get_usage_plans").paginate()
    try:
        found = {plan["name"]: plan["id"] for page in pages for plan in page["items"]}
    except ClientError as error:
        raise TargetError(f"API Gateway could not be asked for the tiers: {error.response['Error']['Message']}") from error
    return {name.removeprefix(start): plan for name, plan in found.items() if name.startswith(start)}


def _key(gateway: Any, deployment: str, tenant: str) -> dict[str, Any] | None:
    name = _name(deployment, tenant)
    pages = gateway.get_paginator("get_api_keys").paginate(nameQuery=name)
    found: list[dict[str, Any]] = [key for page in pages for key in page["items"] if key["name"] == name]
    return found[0] if found else None


def _name(deployment: str, tenant: str) -> str:
    return f"{deployment}/{tenant}"
