"""The gateway's own check of a key, before any other function is paid for.

It looks up the key's hash and lets the caller into the whole stage: API Gateway keeps the answer for a while and uses it for every
route. The application checks the key again; this function only keeps strangers off the other functions, and says under which usage
plan a request counts.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from moorage.errors import ApiError
from moorage.identity.ended_sessions import CALLER, looks_like_token
from moorage.net.aws import aws_client
from moorage.settings import Settings, usage_key
from moorage.store.api_keys import ApiKey, ApiKeys
from moorage.store.dynamodb import DynamoTable

if TYPE_CHECKING:
    from moorage.identity.tokens import Tokens


_loop: Final = cache(asyncio.new_event_loop)
_settings: Final = cache(Settings.from_environment)


@cache
def _keys() -> ApiKeys:
    client = aws_client("dynamodb", checks_parameters=False)
    return ApiKeys(DynamoTable(client, _settings().table_name, ThreadPoolExecutor(1)), clock=time.time)


@cache
def _tokens() -> "Tokens | None":
    settings = _settings()
    if settings.oidc_issuer is None:
        return None
    from moorage.identity.tokens import Tokens  # With libraries that others have no use for.

    table = DynamoTable(aws_client("dynamodb", checks_parameters=False), settings.table_name, ThreadPoolExecutor(1))
    return Tokens.of(settings, table, time.time)


def handle(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Entry point of the function. Raises ``Unauthorized``: API Gateway answers it with 401."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    found = _loop().run_until_complete(found_by(secret.strip(), _keys(), _tokens())) if scheme.lower() == "bearer" else None
    if found is None:
        raise PermissionError("Unauthorized")
    return allow(found.tenant_id, event["methodArn"], said(secret.strip(), found)) | counted(_settings(), found)


async def found_by(secret: str, keys: ApiKeys, tokens: "Tokens | None") -> ApiKey | None:
    """A token's own claims alone: the application checks whether its session was ended."""
    if tokens is None or not looks_like_token(secret):
        return await keys.find(secret)
    try:
        return tokens.key_of(await tokens.verified(secret, tokens.audiences))
    except ApiError as error:
        if error.status >= 500:
            raise
        return None


def counted(settings: Settings, key: ApiKey) -> dict[str, str]:
    """Whose requests the gateway counts together, if the deployment has usage plans: those of the tenant, if it is in a tier, else
    those of all tenants without one."""
    if not settings.usage_plans:
        return {}
    return {"usageIdentifierKey": usage_key(settings.name, key.tenant_id if key.tier in settings.usage_plans else "*")}


def said(secret: str, found: ApiKey) -> dict[str, str]:
    """Of a token, for functions that reach no issuer; keys they find in the table."""
    if not found.subject:
        return {}
    from moorage.identity.tokens import as_said

    return {CALLER: as_said(secret, found)}


def allow(tenant_id: str, method_arn: str, said: Mapping[str, str]) -> dict[str, Any]:
    """A policy for every method of the stage: a cached one for a single method would refuse all others."""
    api, stage = method_arn.split("/")[:2]
    return {
        "principalId": tenant_id,
        "policyDocument": {
            "Version": "2012-10-17",
            "Statement": [{"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{api}/{stage}/*"}],
        },
        "context": {"tenantId": tenant_id, **said},
    }
