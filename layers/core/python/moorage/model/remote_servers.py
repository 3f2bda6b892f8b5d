"""Servers that the operator has named in ``models.toml``: requests use them by their label, without an address or a key. And where
requests may lead besides.

    mcp_hosts = ["*.example.com"]        # hosts that requests may name; [] is none, and without it any public one

    [mcp.github]
    url = "https://mcp.example.com/mcp"
    secret = "env:GITHUB_TOKEN"          # or ssm:/path; sent as a bearer token
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.hosts import covers, normalise_pattern
from moorage.model.image_engine import ImageEngine
from moorage.model.references import check_reference
from moorage.model.search_engine import SearchEngine

_LABEL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")


class ServerTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str = Field(min_length=1)
    secret: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoteServer:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RemoteServers:
    by_label: Mapping[str, RemoteServer] = field(default_factory=dict)
    hosts: tuple[str, ...] | None = None
    """Patterns of hosts that requests may name; None is any."""
    search: SearchEngine | None = None
    """Where the web is searched; None if it is not."""
    images: ImageEngine | None = None
    """What draws images; None if nothing does."""

    def allow(self, url: str) -> bool:
        """Whether a request may name this address, as far as its host goes."""
        host = (urlsplit(url).hostname or "").removesuffix(".")
        return self.hosts is None or any(covers(pattern, host) for pattern in self.hosts)


def check_hosts(hosts: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Raises SettingsConflict for text that is no pattern."""
    if hosts is None:
        return None
    patterns = {entry: normalise_pattern(entry) for entry in hosts}
    wrong = next((entry for entry, pattern in patterns.items() if pattern is None), None)
    if wrong is not None:
        raise SettingsConflict(f"models.toml: mcp_hosts takes names such as 'mcp.example.com' or '*.example.com', not '{wrong}'.")
    return tuple(pattern for pattern in patterns.values() if pattern is not None)


def check_server(label: str, table: ServerTable, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """Checks beyond a schema. Raises SettingsConflict."""
    where = f"models.toml, server '{label}'"
    if not _LABEL.fullmatch(label):
        raise SettingsConflict(f"{where}: a label begins with a letter and has letters, digits, '_' and '-', 64 at most.")
    parts = urlsplit(table.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsConflict(f"{where}: url is not an http or https URL.")
    if table.secret is None:
        return
    check_reference(where, "secret", table.secret, upstream, has_secrets=has_secrets)


def server_of(table: ServerTable, value_of: Callable[[str], str]) -> RemoteServer:
    """``value_of`` reads a reference."""
    bearer = {} if table.secret is None else {"Authorization": f"Bearer {value_of(table.secret)}"}
    return RemoteServer(table.url, {**table.headers, **bearer})
