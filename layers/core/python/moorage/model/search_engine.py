"""The search engine that the operator has named in ``models.toml``: where the tool ``web_search`` looks.

[web_search]
kind = "searxng"                     # or brave, tavily, exa, mcp
url = "http://searxng.internal:8080" # a SearXNG's; the others have addresses of their own
key = "env:BRAVE_API_KEY"            # or ssm:/path, secretsmanager:/name; a SearXNG takes none, an MCP server a bearer token
tool = "search"                      # of an MCP server: the one that searches,
argument = "query"                   # what it is given the query as,
arguments = {max_results = 10}       # and what else
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, ConfigDict

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.model.references import KINDS, check_reference

EngineKind = Literal["searxng", "brave", "tavily", "exa", "mcp"]

_URLS: Final = MappingProxyType(
    {"brave": "https://api.search.brave.com", "tavily": "https://api.tavily.com", "exa": "https://api.exa.ai"}
)
"""Of the engines that their makers run."""

_WHERE: Final = "models.toml, web_search"


class SearchTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: EngineKind
    url: str | None = None
    key: str | None = None
    tool: str | None = None
    argument: str | None = None
    arguments: dict[str, str | int | float | bool] | None = None


@dataclass(frozen=True, slots=True)
class SearchEngine:
    kind: EngineKind
    url: str = field(repr=False)
    key: str = field(default="", repr=False)
    tool: str = ""
    argument: str = "query"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_secret(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_secret(cls, secret: str) -> Self:
        return cls(**orjson.loads(secret))


def check_engine(table: SearchTable | None, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """Checks beyond a schema. Raises SettingsConflict."""
    if table is None:
        return
    url = table.url or _URLS.get(table.kind)
    if url is None:
        raise SettingsConflict(f"{_WHERE}: {table.kind} needs a url, such as http://127.0.0.1:8080.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsConflict(f"{_WHERE}: url is not an http or https URL without a query.")
    named = next((name for name in ("tool", "argument", "arguments") if getattr(table, name) is not None), None)
    if table.kind == "mcp" and table.tool is None:
        raise SettingsConflict(f"{_WHERE}: mcp needs a tool, the name of the one that searches.")
    if table.kind != "mcp" and named is not None:
        raise SettingsConflict(f"{_WHERE}: {named} belongs to the kind mcp: leave it out.")
    if table.kind in _URLS and table.key is None:
        raise SettingsConflict(f"{_WHERE}: {table.kind} needs a key, {KINDS}.")
    if table.kind == "searxng" and table.key is not None:
        raise SettingsConflict(f"{_WHERE}: {table.kind} takes no key: leave it out.")
    if table.key is not None:
        check_reference(_WHERE, "key", table.key, upstream, has_secrets=has_secrets)


def engine_of(table: SearchTable | None, value_of: Callable[[str], str]) -> SearchEngine | None:
    """``value_of`` reads a reference. The table has been checked."""
    if table is None:
        return None
    url = table.url or _URLS[table.kind]
    key = "" if table.key is None else value_of(table.key)
    if table.kind != "mcp":
        return SearchEngine(table.kind, url.rstrip("/"), key)
    return SearchEngine("mcp", url, key, table.tool or "", table.argument or "query", table.arguments or {})


assert _URLS.keys() < set(get_args(EngineKind))
