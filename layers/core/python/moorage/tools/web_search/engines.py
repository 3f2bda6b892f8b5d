"""Search engines: what each is asked, and what its answer holds. Pure, but for :func:`search`.

SearXNG   https://docs.searxng.org/dev/search_api.html
    ``q``, ``format=json``; 403 if its settings do not list that format
Brave     https://api-dashboard.search.brave.com/api-reference/web/search/get
    ``q`` of 400 characters and 50 words at most, ``count`` up to 20, ``country``; ``X-Subscription-Token``
Tavily    https://docs.tavily.com/api-reference/endpoint/search
    a JSON body: ``max_results`` up to 20, ``include_domains`` (300 at most), ``exclude_domains`` (150); a bearer token
Exa       https://exa.ai/docs/reference/search
    a JSON body: ``numResults`` up to 100, ``includeDomains`` or ``excludeDomains``, ``userLocation``,
    ``contents.text.maxCharacters``; ``x-api-key``

What an MCP server is asked is in ``mcp_engine.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher, FetchError, FetchRefused, host_of
from moorage.model.search_engine import EngineKind, SearchEngine
from moorage.tools.web_search import mcp_engine
from moorage.tools.web_search.results import SearchFailed, SearchResult, is_address
from moorage.tools.web_search.text import plain

_BRAVE_RESULTS_MAX: Final = 20

_BRAVE_COUNTRIES: Final = frozenset(
    {
        "AR",
        "AU",
        "AT",
        "BE",
        "BR",
        "CA",
        "CL",
        "DK",
        "FI",
        "FR",
        "DE",
        "HK",
        "IN",
        "ID",
        "IT",
        "JP",
        "KR",
        "MY",
        "MX",
        "NL",
        "NZ",
        "NO",
        "CN",
        "PL",
        "PT",
        "PH",
        "RU",
        "SA",
        "ZA",
        "ES",
        "SE",
        "CH",
        "TW",
        "TR",
        "GB",
        "US",
    }
)
"""It refuses a request that names another one. Those that Brave's own server for MCP takes
(https://github.com/brave/brave-search-mcp-server, ``src/tools/web/params.ts``), but for ``ALL``."""


@dataclass(frozen=True, slots=True)
class SearchOrder:
    query: str
    results: int
    """At most so many."""
    domains: tuple[str, ...] = ()
    """Results come from these and what is below them; from anywhere if there are none."""
    country: str | None = None
    """Two letters: where the user is."""
    blocked: tuple[str, ...] = ()
    """No result comes from these or from what is below them, whatever else is said."""

    def admits(self, url: str) -> bool:
        return is_within(url, self.domains, self.blocked)


@dataclass(frozen=True, slots=True)
class Question:
    """A request to an engine."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = None

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


async def search(fetcher: Fetcher, engine: SearchEngine, wanted: SearchOrder) -> list[SearchResult]:
    """Raises :class:`SearchFailed`."""
    if engine.kind == "mcp":
        found = await mcp_engine.search(fetcher, engine, _shortened(wanted.query))
        return [each for each in found if wanted.admits(each.url)][: wanted.results]
    question = _QUESTIONS[engine.kind](engine, wanted)
    try:
        answer = await fetcher.ask(
            question.url,
            method=question.method,
            headers=question.headers,
            body=question.body,
            bytes_max=limits.WEB_SEARCH_BYTES_MAX,
            seconds=limits.WEB_SEARCH_SECONDS_MAX,
        )
    except FetchRefused as error:
        raise SearchFailed(_why(engine.kind, error.status)) from error
    except FetchError as error:
        raise SearchFailed(f"The search engine gave no answer: {error}.") from error
    return [found for found in results(engine.kind, answer) if wanted.admits(found.url)][: wanted.results]


def is_within(url: str, domains: tuple[str, ...], blocked: tuple[str, ...] = ()) -> bool:
    """Whether a page is of one of these domains, or of a subdomain, and of none that is blocked; without domains all are."""
    host = host_of(url)
    return (not domains or _is_below(host, domains)) and not _is_below(host, blocked)


def _is_below(host: str, domains: tuple[str, ...]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _why(kind: EngineKind, status: int) -> str:
    if kind == "searxng" and status == 403:
        return "The search engine answered 403: the settings of this SearXNG have to list 'json' in 'search.formats'."
    if status in (401, 403):
        return f"The search engine answered {status}: it does not take this deployment's key."
    if status in (402, 429, 432, 433):
        return f"The search engine answered {status}: it takes no more searches for now. Go on without, or try again later."
    return f"The search engine answered {status}."


# --- what is asked ------------------------------------------------------------------------------------------------------------

_JSON: Final = MappingProxyType({"accept": "application/json"})


def _searxng(engine: SearchEngine, wanted: SearchOrder) -> Question:
    asked = {"q": _with_sites(wanted), "format": "json"}
    return Question(f"{engine.url}/search?{urlencode(asked)}", _JSON)


def _brave(engine: SearchEngine, wanted: SearchOrder) -> Question:
    asked = {"q": _with_sites(wanted), "count": str(min(wanted.results, _BRAVE_RESULTS_MAX)), "text_decorations": "false"}
    if wanted.country in _BRAVE_COUNTRIES:
        asked["country"] = wanted.country
    return Question(f"{engine.url}/res/v1/web/search?{urlencode(asked)}", {**_JSON, "X-Subscription-Token": engine.key})


def _tavily(engine: SearchEngine, wanted: SearchOrder) -> Question:
    body: dict[str, Any] = {"query": _shortened(wanted.query), "max_results": wanted.results}
    if wanted.domains:
        body["include_domains"] = list(wanted.domains)
    if wanted.blocked:
        body["exclude_domains"] = list(wanted.blocked)
    return _posted(engine, body, {"Authorization": f"Bearer {engine.key}"})


def _exa(engine: SearchEngine, wanted: SearchOrder) -> Question:
    excerpt = {"text": {"maxCharacters": limits.WEB_EXCERPT_CHARS_MAX}}
    body: dict[str, Any] = {"query": _shortened(wanted.query), "numResults": wanted.results, "contents": excerpt}
    if wanted.domains:
        body["includeDomains"] = list(wanted.domains)
    elif wanted.blocked:
        body["excludeDomains"] = list(wanted.blocked)
    if wanted.country is not None:
        body["userLocation"] = wanted.country
    return _posted(engine, body, {"x-api-key": engine.key})


_QUESTIONS: Final[Mapping[EngineKind, Callable[[SearchEngine, SearchOrder], Question]]] = MappingProxyType(
    {"searxng": _searxng, "brave": _brave, "tavily": _tavily, "exa": _exa}
)


def _posted(engine: SearchEngine, body: Mapping[str, Any], headers: Mapping[str, str]) -> Question:
    return Question(f"{engine.url}/search", {**_JSON, "content-type": "application/json", **headers}, orjson.dumps(body))


def _with_sites(wanted: SearchOrder) -> str:
    """For engines with a filter in the query alone. For engines without one, their results are filtered."""
    only = f"({' OR '.join(f'site:{domain}' for domain in wanted.domains)})" if wanted.domains else ""
    said = " ".join(part for part in (only, *(f"-site:{domain}" for domain in wanted.blocked)) if part)
    room = limits.WEB_QUERY_CHARS_MAX - len(said) - 1
    if not said or len(wanted.domains) + len(wanted.blocked) > limits.WEB_SITES_MAX or room <= 0:
        return _shortened(wanted.query)
    return f"{_shortened(wanted.query, room, 2 * len(wanted.domains) + len(wanted.blocked))} {said}"


def _shortened(query: str, chars_max: int = limits.WEB_QUERY_CHARS_MAX, words_taken: int = 0) -> str:
    return " ".join(query.split()[: limits.WEB_QUERY_WORDS_MAX - words_taken])[:chars_max].rstrip()


# --- what it answers ----------------------------------------------------------------------------------------------------------

_FIELDS: Final[Mapping[EngineKind, tuple[tuple[str, ...], str, str]]] = MappingProxyType(
    {
        "searxng": (("results",), "content", "publishedDate"),
        "brave": (("web", "results"), "description", "page_age"),
        "tavily": (("results",), "content", "published_date"),
        "exa": (("results",), "text", "publishedDate"),
    }
)
"""Where the results stand, and the fields of each that hold its excerpt and its date."""


def results(kind: EngineKind, answer: bytes) -> list[SearchResult]:
    """Each address once. Raises :class:`SearchFailed` for an answer of another form."""
    path, text, published = _FIELDS[kind]
    try:
        value = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise SearchFailed("The search engine's answer is not JSON.") from error
    for step in path:
        # Brave leaves "web" out where it found nothing.
        value = value.get(step, [] if step == path[-1] else {}) if isinstance(value, dict) else None
    if not isinstance(value, list):
        raise SearchFailed("The search engine's answer has no list of results.")
    found = (_found(entry, text, published) for entry in value if isinstance(entry, dict))
    return list({each.url: each for each in found if each is not None}.values())


def _found(entry: dict[str, Any], text: str, published: str) -> SearchResult | None:
    url, when = entry.get("url"), entry.get(published)
    if not isinstance(url, str) or not is_address(url):
        return None
    title = plain(_string(entry.get("title")))[: limits.WEB_TITLE_CHARS_MAX] or url
    excerpt = plain(_string(entry.get(text)))[: limits.WEB_EXCERPT_CHARS_MAX]
    return SearchResult(url, title, excerpt, when[:40] if isinstance(when, str) and when else None)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
