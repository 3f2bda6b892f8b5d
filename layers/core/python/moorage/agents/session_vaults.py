"""What the vaults of a session give to its responses: the tokens of their servers."""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.runtime import Runtime
from moorage.stores import Stores
from moorage.vaults.choice import credential_for, credentials_in
from moorage.vaults.store import CredentialRecord
from moorage.vaults.tokens import bearer_token
from moorage.wire.types import Tool


def chosen(settings: Mapping[str, Any], credentials: Sequence[CredentialRecord]) -> dict[str, CredentialRecord]:
    """The credential of each server of an agent that one is for, by the server's label. Raises
    :class:`~moorage.errors.ApiError` that names the tool."""
    found: dict[str, CredentialRecord] = {}
    for index, tool in enumerate(settings.get("tools", ())):
        if tool["type"] == "mcp":
            named, url = tool.get("credential_id"), tool["transport"]["server_url"]
            credential = credential_for(url, credentials, credential_id=named, param=f"agent.tools[{index}].credential_id")
            if credential is not None:
                found[tool["server_label"]] = credential
    return found


async def credentials_of(
    stores: Stores, tenant_id: str, settings: Mapping[str, Any], vault_ids: Sequence[str]
) -> dict[str, CredentialRecord]:
    """:func:`chosen` of the session's vaults."""
    return chosen(settings, await credentials_in(stores, tenant_id, vault_ids)) if vault_ids else {}


async def with_tokens(runtime: Runtime, credentials: Mapping[str, CredentialRecord], tools: Sequence[Tool]) -> list[Tool]:
    """The tools of a request with the tokens for their servers, as they are now. Raises :class:`~moorage.errors.ApiError`."""
    tokens = {label: await bearer_token(runtime, credential) for label, credential in credentials.items()}
    return [tool | {"authorization": tokens[tool["server_label"]]} if tool.get("server_label") in tokens else tool for tool in tools]


def with_credentials(credentials: Mapping[str, CredentialRecord], tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools of a checked request, of which each knows whose token opens its server: a response may outlive it."""

    def of(tool: Tool) -> Tool:
        credential = credentials.get(tool.get("server_label", ""))
        return tool if credential is None else tool | {"credential": (credential.vault_id, credential.id)}

    return tuple(map(of, tools))
