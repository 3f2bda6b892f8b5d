"""The token that a credential opens a server with. An OAuth token that is used up is refreshed (RFC 6749, section 6).

Many callers, in several processes, meet a token that ends. One of them claims the refresh by a conditional write, and the others wait
for what it brings: an endpoint that gives a new refresh token takes each one once. A claim ends by itself if its process dies. A
refresh goes on when its caller goes: the endpoint may have taken the old refresh token already.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher, FetchError
from moorage.errors import MoorageError, credential_busy, credential_expired, credential_not_refreshed
from moorage.runtime import Runtime
from moorage.vaults.store import Auth, CredentialRecord

_CODES: Final = frozenset(
    {
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope"),
        "invalid_target",
    }
)
"""RFC 6749, section 5.2, and RFC 8707, section 2. Another word of an endpoint is not passed on: it may repeat what it was sent."""


class _RefreshFailed(MoorageError):
    """The message completes a sentence and may be shown."""


@dataclass(frozen=True, slots=True)
class _TokenAnswer:
    """What a token endpoint has answered."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    """None: the old one stays."""
    life_seconds: int
    """0 if it does not say."""


async def bearer_token(runtime: Runtime, credential: CredentialRecord) -> str:
    """The token to send to the credential's server. Raises :class:`~moorage.errors.ApiError` with a sentence for the client."""
    if credential.type == "static_bearer":
        return runtime.stores.vaults.opened(credential).secrets["token"]
    assert credential.type == "mcp_oauth", f"a credential of the type {credential.type} opens no server"
    loop, vaults = asyncio.get_running_loop(), runtime.stores.vaults
    until = loop.time() + limits.OAUTH_CLAIM_SECONDS
    while True:
        auth, now = vaults.opened(credential), runtime.clock()
        token, is_valid = auth.secrets["access_token"], _is_valid(credential, now)
        is_claimed = now < credential.refresh_until
        has_failed = now < credential.refresh_failed_at + limits.OAUTH_PAUSE_SECONDS
        if is_valid and (not _is_due(credential, now) or is_claimed or has_failed or auth.shown["refresh"] is None):
            return token
        if auth.shown["refresh"] is None:
            raise credential_expired(credential.id)
        if has_failed:
            raise credential_not_refreshed(credential.id, credential.refresh_error)
        if not is_claimed:
            claimed = await vaults.write(credential, {"refresh_until": int(now) + limits.OAUTH_CLAIM_SECONDS})
            if claimed is not None:
                return await _own_refresh(runtime, claimed, auth)
        elif loop.time() < until:
            await asyncio.sleep(limits.OAUTH_POLL_SECONDS)
        else:
            raise credential_not_refreshed(credential.id, "another refresh takes too long")
        credential = await vaults.credential(credential.tenant_id, credential.vault_id, credential.id)


async def _own_refresh(runtime: Runtime, claimed: CredentialRecord, auth: Auth) -> str:
    task = asyncio.create_task(_refresh(runtime, claimed, auth))
    runtime.process.keep(task)
    credential = await asyncio.shield(task)
    if not _is_valid(credential, runtime.clock()):
        raise credential_not_refreshed(credential.id, credential.refresh_error or "it was replaced by one that has expired")
    return runtime.stores.vaults.opened(credential).secrets["access_token"]


def _is_valid(credential: CredentialRecord, now: float) -> bool:
    return credential.expires_at is None or now < credential.expires_at


def _is_due(credential: CredentialRecord, now: float) -> bool:
    life = credential.life_seconds
    ahead = min(limits.OAUTH_AHEAD_SECONDS, life // 2) if life else limits.OAUTH_AHEAD_SECONDS
    return credential.expires_at is not None and now >= credential.expires_at - ahead


async def _refresh(runtime: Runtime, claimed: CredentialRecord, auth: Auth) -> CredentialRecord:
    """Ask for other tokens and keep them, or why there are none. A rotation may have come meanwhile: what a person gave stays."""
    vaults, tokens, reason = runtime.stores.vaults, None, ""
    try:
        tokens = await _ask(runtime.fetcher, auth)
    except _RefreshFailed as error:
        reason = str(error)
    current, now = claimed, int(runtime.clock())
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        changes: dict[str, Any] = {"refresh_until": 0}
        there = vaults.opened(current)
        if tokens is not None:
            changes |= vaults.packed(current, _merged(there, auth, tokens, now))
            changes |= {"refresh_failed_at": 0, "refresh_error": ""}
            if there.secrets["access_token"] == auth.secrets["access_token"]:
                changes["life_seconds"] = tokens.life_seconds
        elif there.secrets == auth.secrets:
            changes |= {"refresh_failed_at": now, "refresh_error": reason}
        written = await vaults.write(current, changes)
        if written is not None:
            return written
        current = await vaults.credential(claimed.tenant_id, claimed.vault_id, claimed.id)
    raise credential_busy(claimed.id)


def _merged(there: Auth, before: Auth, tokens: _TokenAnswer, now: int) -> Auth:
    secrets, expires_at = dict(there.secrets), there.expires_at
    if secrets["refresh_token"] == before.secrets["refresh_token"] and tokens.refresh_token is not None:
        secrets["refresh_token"] = tokens.refresh_token
    if secrets["access_token"] == before.secrets["access_token"]:
        secrets["access_token"] = tokens.access_token
        expires_at = now + tokens.life_seconds if tokens.life_seconds else None
    return Auth(there.shown, secrets, expires_at)


async def _ask(fetcher: Fetcher, auth: Auth) -> _TokenAnswer:
    refresh, secrets = auth.shown["refresh"], auth.secrets
    form = {"grant_type": "refresh_token", "refresh_token": secrets["refresh_token"]}
    form |= {name: refresh[name] for name in ("resource", "scope") if refresh[name] is not None}
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    match refresh["token_endpoint_auth"]["type"]:
        case "client_secret_basic":
            headers["authorization"] = _basic(refresh["client_id"], secrets["client_secret"])
        case "client_secret_post":
            form |= {"client_id": refresh["client_id"], "client_secret": secrets["client_secret"]}
        case _:
            form["client_id"] = refresh["client_id"]
    try:
        status, body = await fetcher.exchange(
            refresh["token_endpoint"],
            urlencode(form).encode(),
            headers,
            bytes_max=limits.OAUTH_ANSWER_BYTES_MAX,
            seconds=limits.OAUTH_SECONDS_MAX,
        )
    except FetchError as error:
        raise _RefreshFailed(f"its token endpoint could not be asked ({error})") from error
    return _read(status, body)


def _basic(client_id: str, client_secret: str) -> str:
    """RFC 6749, section 2.3.1: both are form-encoded first."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _read(status: int, body: bytes) -> _TokenAnswer:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    answer: Mapping[str, Any] = said if isinstance(said, dict) else {}
    if status != 200:
        code = answer.get("error")
        raise _RefreshFailed(f"its token endpoint answered {status}" + (f" ({code})" if code in _CODES else ""))
    if str(answer.get("token_type", "bearer")).lower() != "bearer" or not _is_token(answer.get("access_token")):
        raise _RefreshFailed("its token endpoint answered without a bearer token")
    given = answer.get("refresh_token")
    return _TokenAnswer(answer["access_token"], given if _is_token(given) else None, _life(answer.get("expires_in")))


def _is_token(value: Any) -> bool:
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    return is_text and 0 < len(value) <= limits.VAULT_SECRET_CHARS_MAX


def _life(value: Any) -> int:
    """Some endpoints write the number as text."""
    text = str(value)
    is_number = text.isascii() and text.isdecimal() and len(text) <= limits.QUERY_DIGITS_MAX
    return min(int(text), limits.OAUTH_LIFE_SECONDS_MAX) if is_number else 0
