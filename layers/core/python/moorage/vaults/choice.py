"""The credential of some vaults for an MCP server."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import httpx

from moorage import limits
from moorage.errors import credential_not_found, invalid_length, invalid_value
from moorage.stores import Stores
from moorage.vaults.store import CredentialRecord


async def credentials_in(stores: Stores, tenant_id: str, vault_ids: Sequence[str]) -> list[CredentialRecord]:
    """All credentials of these vaults. Raises :class:`~moorage.errors.ApiError` 404 for a vault that is none of the tenant's."""
    if len(vault_ids) > limits.VAULT_IDS_MAX:
        raise invalid_length("vault_ids", "array", len(vault_ids), 0, limits.VAULT_IDS_MAX)
    places = {vault_id: f"vault_ids[{index}]" for index, vault_id in reversed(list(enumerate(vault_ids)))}
    found = await asyncio.gather(
        *(stores.vaults.credentials(tenant_id, vault_id, param=places[vault_id]) for vault_id in dict.fromkeys(vault_ids))
    )
    return list(chain.from_iterable(found))


def credential_for(
    server_url: str, credentials: Iterable[CredentialRecord], *, credential_id: str | None = None, param: str = "credential_id"
) -> CredentialRecord | None:
    """The one that is for this server; None if none is. ``credential_id`` names one of several. Raises
    :class:`~moorage.errors.ApiError` that names ``param``."""
    if credential_id is not None:
        return _named(server_url, credentials, credential_id, param)
    fitting = [each for each in credentials if _is_for(each, server_url)]
    if len(fitting) > 1:
        raise invalid_value(param, f"{len(fitting)} credentials of the vaults are for this server. Name one of them by its id.")
    return fitting[0] if fitting else None


def _named(server_url: str, credentials: Iterable[CredentialRecord], credential_id: str, param: str) -> CredentialRecord:
    found = next((each for each in credentials if each.id == credential_id), None)
    if found is None:
        raise credential_not_found(credential_id, param=param)
    if not _is_for(found, server_url):
        # The address itself is not repeated: many servers take their key in the path.
        use = "another server" if "mcp_server_url" in found.shown else "a variable of environments"
        raise invalid_value(param, f"'{credential_id}' is for {use}.")
    return found


def _is_for(credential: CredentialRecord, server_url: str) -> bool:
    """Two ways of writing one address are one: capitals in the host, the usual port, no path."""
    own = credential.shown.get("mcp_server_url")
    return own is not None and _place(own) == _place(server_url)


def _place(url: str) -> tuple[Any, ...]:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return (url,)
    return parsed.scheme, parsed.raw_host, parsed.port, parsed.raw_path
