"""A remote MCP server as a request names it, or as the operator has: where it is, and what opens it.

Nothing of this is stored, shown or told to a model: it is sealed in the response's record and a handle stands in its place. Addresses
are secrets too, because many servers take their key in the path.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from moorage.dataclass import dataclass
from moorage.model.remote_servers import RemoteServer
from moorage.wire.types import Tool

SECRET_FIELDS: Final = ("server_url", "authorization", "headers", "credential")

TokenOf = Callable[[str, str], Awaitable[str]]
"""The present token of a credential, by the ids of its vault and of itself."""


@dataclass(frozen=True, slots=True)
class McpServer:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_operators: bool = False
    """The operator has named it: it may stand in a private network."""
    vault_id: str = ""
    credential_id: str = ""
    """Whose token opens it: it may end, and be followed by another one, while a response runs."""

    @classmethod
    def of_request(cls, tool: Tool) -> "McpServer":
        headers = dict(tool.get("headers") or {})
        if tool.get("authorization") is not None:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = f"Bearer {tool['authorization']}"
        vault_id, credential_id = tool.get("credential", ("", ""))
        return cls(tool["server_url"], headers, vault_id=vault_id, credential_id=credential_id)

    @classmethod
    def of_operator(cls, server: RemoteServer) -> "McpServer":
        return cls(server.url, dict(server.headers), is_operators=True)

    @classmethod
    def of_tool(cls, tool: Tool, secret: Callable[[str], str | None]) -> "McpServer | None":
        """The server of a tool without its secrets; None if that is not known (any more)."""
        sealed = secret(tool["server"]) if "server" in tool else None
        return None if sealed is None else cls(**orjson.loads(sealed))

    async def refreshed(self, token_of: TokenOf) -> "McpServer":
        """With the token that opens it now. Raises :class:`~moorage.errors.ApiError`."""
        if not self.credential_id:
            return self
        token = await token_of(self.vault_id, self.credential_id)
        return replace(self, headers={**self.headers, "Authorization": f"Bearer {token}"})

    def to_secret(self) -> str:
        return orjson.dumps(asdict(self)).decode()


def shown_url(url: str) -> str:
    """The address as responses show it: the part after the host may hold a key."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    return origin if parts.path in ("", "/") and not parts.query else f"{origin}/<redacted>"


def concealed(tool: Tool, server: McpServer, handle: str) -> tuple[Tool, dict[str, str]]:
    """The tool as everybody may see it, and its secret."""
    kept: dict[str, Any] = {key: value for key, value in tool.items() if key not in SECRET_FIELDS}
    if not server.is_operators:
        kept["server_url"] = shown_url(server.url)
    return kept | {"server": handle}, {handle: server.to_secret()}
