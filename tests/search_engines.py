"""A search engine of each kind and a few pages, over real HTTP in the test's own process. It takes what the real ones document, and
refuses everything else: another path, a header that is missing, a parameter that they do not know."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
from moorage.model.search_engine import EngineKind, SearchEngine

from tests.asgi import body_of, live

KEY = "s3arch-key"
MUST: dict[str, set[str]] = {"searxng": {"q", "format"}, "brave": {"q"}, "tavily": {"query"}, "exa": {"query"}}
MAY: dict[str, set[str]] = {
    "searxng": {"categories", "engines", "language", "pageno", "time_range", "safesearch"},
    "brave": {"country", "search_lang", "ui_lang", "count", "offset", "safesearch", "freshness", "text_decorations", "result_filter"},
    "tavily": {"max_results", "search_depth", "topic", "include_domains", "exclude_domains", "country", "include_raw_content"},
    "exa": {"type", "numResults", "includeDomains", "excludeDomains", "userLocation", "contents", "category"},
}
COUNTS = {"brave": ("count", 20), "tavily": ("max_results", 20), "exa": ("numResults", 100)}
PATHS: dict[str, tuple[str, EngineKind]] = {
    "/searxng/search": ("GET", "searxng"),
    "/brave/res/v1/web/search": ("GET", "brave"),
    "/tavily/search": ("POST", "tavily"),
    "/exa/search": ("POST", "exa"),
}


@dataclass
class Page:
    body: bytes = b""
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    location: str | None = None
    cache_control: str | None = None


@dataclass
class SearchEngines:
    """What it finds, and what it was asked."""

    found: list[dict[str, str]] = field(default_factory=list)
    """``url``, ``title`` and ``text`` of each result."""
    pages: dict[str, Page] = field(default_factory=dict)
    """By path."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The parameters of each search."""
    opened: list[str] = field(default_factory=list)
    """The paths that were asked for."""
    status: int = 200
    before_answer: Callable[[], Awaitable[None]] | None = None

    def engine(self, kind: EngineKind, port: int) -> SearchEngine:
        return SearchEngine(kind, f"http://localhost:{port}/{kind}", "" if kind == "searxng" else KEY)

    def page(self, path: str, html: str, **fields: Any) -> None:
        self.pages[path] = Page(html.encode(), **fields)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await live(receive, send)
            return
        body = await body_of(receive)
        if scope["path"] in PATHS:
            if self.before_answer is not None:
                await self.before_answer()
            status, answer = self._searched(scope, body)
            await _respond(send, Page(orjson.dumps(answer), "application/json", status))
            return
        query = scope["query_string"].decode()
        path = f"{scope['path']}?{query}" if query else scope["path"]
        self.opened.append(path)
        await _respond(send, self.pages.get(path, Page(b"not found", "text/plain", 404)))

    def _searched(self, scope: Any, body: bytes) -> tuple[int, Any]:
        method, kind = PATHS[scope["path"]]
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        if scope["method"] != method:
            return 405, {"error": f"{kind} takes {method}"}
        if not _is_known(kind, headers):
            return 401, {"error": "no key"}
        asked = _parameters(method, scope["query_string"].decode(), headers, body)
        complaint = "no object" if asked is None else _complaint(kind, asked)
        if asked is None or complaint is not None:
            return 422, {"error": complaint}
        self.asked.append(asked)
        return self.status, _answer(kind, self.found)


def _is_known(kind: EngineKind, headers: dict[str, str]) -> bool:
    given = {"brave": headers.get("x-subscription-token"), "tavily": headers.get("authorization"), "exa": headers.get("x-api-key")}
    wanted = {"brave": KEY, "tavily": f"Bearer {KEY}", "exa": KEY}
    return kind == "searxng" or given[kind] == wanted[kind]


def _parameters(method: str, query: str, headers: dict[str, str], body: bytes) -> dict[str, Any] | None:
    if method == "GET":
        return {name: values[0] for name, values in parse_qs(query).items()}
    if headers.get("content-type") != "application/json":
        return None
    value = orjson.loads(body)
    return value if isinstance(value, dict) else None


def _complaint(kind: EngineKind, asked: dict[str, Any]) -> str | None:
    missing, unknown = MUST[kind] - asked.keys(), asked.keys() - MUST[kind] - MAY[kind]
    if missing or unknown:
        return f"missing: {sorted(missing)}, unknown: {sorted(unknown)}"
    if kind == "searxng" and asked["format"] != "json":
        return "only json is configured"
    if kind == "brave" and (len(asked["q"]) > 400 or len(asked["q"].split()) > 50):
        return "q is too long"
    name, most = COUNTS.get(kind, ("", 0))
    wanted = asked.get(name, 1)
    is_number = isinstance(wanted, int) or (kind == "brave" and str(wanted).isdigit())
    return None if not name or (is_number and 1 <= int(wanted) <= most) else f"{name} is wrong"


def _answer(kind: EngineKind, found: list[dict[str, str]]) -> Any:
    text = {"searxng": "content", "brave": "description", "tavily": "content", "exa": "text"}[kind]
    results = [{"url": each["url"], "title": each["title"], text: each["text"]} for each in found]
    return {"type": "search", "web": {"results": results}} if kind == "brave" else {"results": results}


def port_of(url: str) -> int:
    return urlsplit(url).port or 80


async def _respond(send: Any, page: Page) -> None:
    given = {b"content-type": page.kind, b"location": page.location, b"cache-control": page.cache_control}
    headers = [(name, value.encode()) for name, value in given.items() if value is not None]
    await send({"type": "http.response.start", "status": page.status, "headers": headers})
    await send({"type": "http.response.body", "body": page.body})


async def never() -> None:
    await asyncio.Event().wait()
