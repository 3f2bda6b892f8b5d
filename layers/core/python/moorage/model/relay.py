"""Requests that are passed on to an upstream as they are: for resources that live there, such as containers."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

import httpx
import orjson

from moorage import __version__, limits
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError, connection_failed
from moorage.model.http import Upstream

_ERROR_BYTES_MAX: Final = 64 * limits.KIB
_STATUS_OF_A_KEY: Final = 401
_STATUS_OF_KEYS: Final = (_STATUS_OF_A_KEY, 403)


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """A request as it shall arrive, below the upstream's address."""

    method: str
    path: str
    query: str = ""
    content: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


async def relay(upstream: Upstream, passed: RelayedRequest) -> httpx.Response:
    """The upstream's answer, its body still to be read; whoever gets it closes it. A refusal has been read, and names no key. Raises
    :class:`UpstreamError` if there is no answer that could be passed on."""
    used = upstream.renewed(is_refused=False)
    response = await _answered(used, passed)
    if response.status_code == _STATUS_OF_A_KEY:
        renewed = used.renewed(is_refused=True)
        if renewed is not used:
            await response.aclose()
            used, response = renewed, await _answered(renewed, passed)
    return response if response.status_code < 400 else await _refusal(used, response)


async def _answered(upstream: Upstream, passed: RelayedRequest) -> httpx.Response:
    url = f"{upstream.url}{passed.path}" + (f"?{passed.query}" if passed.query else "")
    headers = {"user-agent": f"moorage/{__version__}", "accept-encoding": "identity", **upstream.headers, **passed.headers}
    timeout = httpx.Timeout(upstream.idle_seconds, connect=limits.UPSTREAM_CONNECT_SECONDS)
    request = httpx.Request(passed.method, url, headers=headers, content=passed.content, extensions={"timeout": timeout.as_dict()})
    if upstream.auth is not None:
        request = next(upstream.auth.sync_auth_flow(request))
    try:
        return await upstream.transport.handle_async_request(request)
    except httpx.HTTPError as error:
        raise UpstreamError(connection_failed(error), is_retryable=True) from error


async def _refusal(upstream: Upstream, response: httpx.Response) -> httpx.Response:
    try:
        body = b""
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > _ERROR_BYTES_MAX:
                break
    finally:
        await response.aclose()
    status = response.status_code
    if status in _STATUS_OF_KEYS:
        raise UpstreamError(
            f"The model upstream refused this deployment's credentials (HTTP {status}). The operator has to check the key that "
            "models.toml refers to.",
            is_retryable=False,
        )
    if status >= 500 or not _is_object(body):
        raise UpstreamError(f"The model upstream failed (HTTP {status}).", is_retryable=status >= 500)
    for secret in upstream.secrets:
        body = body.replace(secret.encode(), b"***")
    kept = {name: value for name, value in response.headers.items() if name == "retry-after"}
    return httpx.Response(status, headers={"content-type": "application/json", **kept}, content=body)


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False
