"""Search engines: what they are asked, how they fail, and what is read of their answers; an MCP server may be one."""

from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.model.search_engine import EngineKind, SearchEngine
from moorage.tools.web_search import engines, mcp_engine
from moorage.tools.web_search.engines import SearchOrder
from moorage.tools.web_search.results import SearchFailed, SearchResult

from tests.unit.tools.test_web_search import KINDS, OTHER, TIDES, engines_with, fetcher_for

ASKED: dict[EngineKind, dict[str, Any]] = {
    "searxng": {"q": "tides oslo (site:tides.example)", "format": "json"},
    "brave": {"q": "tides oslo (site:tides.example)", "count": "10", "text_decorations": "false", "country": "NO"},
    "tavily": {"query": "tides oslo", "max_results": 10, "include_domains": ["tides.example"]},
    "exa": {
        "query": "tides oslo",
        "numResults": 10,
        "contents": {"text": {"maxCharacters": limits.WEB_EXCERPT_CHARS_MAX}},
        "includeDomains": ["tides.example"],
        "userLocation": "NO",
    },
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_engine_is_asked_in_its_own_words_and_its_results_are_read(kind: EngineKind) -> None:
    async with engines_with(TIDES, OTHER) as (made, port):
        wanted = SearchOrder("tides oslo", 10, ("tides.example",), "NO")
        found = await engines.search(fetcher_for(port), made.engine(kind, port), wanted)
    assert made.asked == [ASKED[kind]]
    assert found == [SearchResult("https://tides.example/oslo", "Tides in Oslo", "High & low.")], (
        "what is of another domain is left out"
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_query_of_any_length_is_taken(kind: EngineKind) -> None:
    async with engines_with(TIDES) as (made, port):
        engine = made.engine(kind, port)
        for query in ("word " * 90, "x" * 900):
            domains = tuple(f"d{number}.tides.example" for number in range(5))
            await engines.search(fetcher_for(port), engine, SearchOrder(query, 20, domains, "ZZ"))
    assert all(len(asked.get("q") or asked["query"]) <= limits.WEB_QUERY_CHARS_MAX for asked in made.asked)
    assert len(made.asked) == 2


FAILING: dict[str, tuple[EngineKind, int, str]] = {
    "a key that is not taken": ("brave", 401, "it does not take this deployment's key"),
    "a SearXNG without JSON": ("searxng", 403, "have to list 'json' in 'search.formats'"),
    "no searches left": ("tavily", 432, "it takes no more searches for now"),
    "too many at once": ("exa", 429, "it takes no more searches for now"),
    "a broken engine": ("exa", 500, "answered 500."),
}


@pytest.mark.parametrize(("kind", "status", "words_"), FAILING.values(), ids=FAILING)
async def test_an_engine_that_fails_is_told_calmly(kind: EngineKind, status: int, words_: str) -> None:
    async with engines_with() as (made, port):
        made.status = status
        with pytest.raises(SearchFailed, match=words_):
            await engines.search(fetcher_for(port), made.engine(kind, port), SearchOrder("q", 5))


async def test_a_wrong_key_and_an_engine_that_is_away_are_told_without_the_key() -> None:
    async with engines_with() as (_, port):
        engine = SearchEngine("brave", f"http://localhost:{port}/brave", "wr0ng")
        with pytest.raises(SearchFailed, match="does not take this deployment's key") as refused:
            await engines.search(fetcher_for(port), engine, SearchOrder("q", 5))
    assert "wr0ng" not in str(refused.value) + repr(engine)
    with pytest.raises(SearchFailed, match="gave no answer: the server cannot be reached"):
        await engines.search(fetcher_for(1), SearchEngine("searxng", "http://localhost:1", ""), SearchOrder("q", 5))


async def test_a_key_follows_no_redirection() -> None:
    async with engines_with() as (made, port):
        made.status = 302
        with pytest.raises(SearchFailed, match="answered 302"):
            await engines.search(fetcher_for(port), made.engine("brave", port), SearchOrder("q", 5))


NO_ANSWERS = {
    "no JSON": b"<html>",
    "no object": b"[]",
    "another object": b'{"results": {"a": 1}}',
    "a number": b"3",
}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_of_an_engine_is_a_failure(answer: bytes) -> None:
    with pytest.raises(SearchFailed, match="The search engine's answer"):
        engines.results("tavily", answer)


def test_results_that_are_none_are_left_out_and_addresses_come_once() -> None:
    entries = [{"url": "javascript:alert(1)"}, {"url": 3}, "text", {"url": "http://[::1"}, {"url": "https://a.example/", "title": 5}]
    again = {"url": "https://a.example/", "title": "A", "content": None, "published_date": "2026-11-01"}
    assert engines.results("tavily", orjson.dumps({"results": [*entries, again]})) == [
        SearchResult("https://a.example/", "A", "", "2026-11-01")
    ]
    assert engines.results("brave", b'{"type": "search"}') == [], "Brave leaves out what it has not found"


def test_a_domain_has_what_is_below_it_and_nothing_that_looks_like_it() -> None:
    inside = ["https://a.example/x", "https://deep.in.a.example./"]
    outside = ["https://nota.example/", "https://a.example.evil.example/", "https://evil.example/a.example"]
    assert [engines.is_within(url, ("a.example",)) for url in (*inside, *outside)] == [True, True, False, False, False]
    assert engines.is_within("https://any.example", ())
    assert not engines.is_within("https://deep.in.a.example/", ("a.example",), ("in.a.example",)), "what is blocked is blocked"
    assert not engines.is_within("https://a.example/", (), ("a.example",))


BLOCKING: dict[EngineKind, dict[str, Any]] = {
    "searxng": {"q": "tides -site:elsewhere.example", "format": "json"},
    "brave": {"q": "tides -site:elsewhere.example", "count": "10", "text_decorations": "false"},
    "tavily": {"query": "tides", "max_results": 10, "exclude_domains": ["elsewhere.example"]},
    "exa": {
        "query": "tides",
        "numResults": 10,
        "contents": {"text": {"maxCharacters": limits.WEB_EXCERPT_CHARS_MAX}},
        "excludeDomains": ["elsewhere.example"],
    },
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_engine_is_told_what_is_blocked_and_nothing_of_it_is_taken(kind: EngineKind) -> None:
    async with engines_with(TIDES, OTHER) as (made, port):
        wanted = SearchOrder("tides", 10, blocked=("elsewhere.example",))
        found = await engines.search(fetcher_for(port), made.engine(kind, port), wanted)
        both = SearchOrder("tides", 10, ("tides.example", "elsewhere.example"), blocked=("elsewhere.example",))
        assert await engines.search(fetcher_for(port), made.engine(kind, port), both) == found
    assert made.asked[0] == BLOCKING[kind]
    assert [each.url for each in found] == ["https://tides.example/oslo"]
    assert not made.asked[1].keys() >= {"includeDomains", "excludeDomains"}, "Exa takes one of them"


# --- an MCP server ---

OUTPUTS = {
    "JSON with results": '{"query": "q", "results": [{"title": "T", "url": "https://a.example/", "content": "C"}]}',
    "JSON below": orjson.dumps({"web": {"results": [{"name": "T", "link": "https://a.example/", "snippet": "C"}]}}).decode(),
    "a list": orjson.dumps([{"title": "T", "href": "https://a.example/", "description": "C"}]).decode(),
    "one result": orjson.dumps({"title": "T", "url": "https://a.example/", "highlights": ["C"]}).decode(),
    "a line for each": '{"title":"T","url":"https://a.example/","text":"C"}\n{"title":"no address"}',
    "parts of the protocol": orjson.dumps(
        [{"type": "text", "text": '{"title":"T","url":"https://a.example/","text":"C"}'}, {"type": "image", "data": "x"}]
    ).decode(),
    "blocks": "Detailed Results:\n\nTitle: T\nURL: https://a.example/\nContent: C",
    "blocks of Markdown": "- **Title:** T\n- **URL:** https://a.example/\n- **Summary:** C",
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_a_search_servers_results_are_read_in_whatever_form(output: str) -> None:
    assert mcp_engine.results(output) == [SearchResult("https://a.example/", "T", "C")]


def test_blocks_have_dates_and_texts_of_several_lines() -> None:
    output = "Title: A\nURL: https://a.example/\nDate: 2026-11-01\nContent: one\ntwo\nTitle: B\nURL: https://b.example/"
    assert mcp_engine.results(output) == [
        SearchResult("https://a.example/", "A", "one two", "2026-11-01"),
        SearchResult("https://b.example/", "B", ""),
    ]


def test_a_text_of_very_many_lines_is_read_no_further_than_it_is_shown() -> None:
    output = "Title: A\nURL: https://a.example/\nContent: one\n" + "x\n" * 50_000
    (block,) = mcp_engine._blocks(output)
    (found,) = mcp_engine.results(output)
    assert (len(block["content"]) < 10 * limits.WEB_EXCERPT_CHARS_MAX, len(found.text)) == (True, limits.WEB_EXCERPT_CHARS_MAX)


def test_a_search_server_that_found_nothing_is_told_from_one_that_is_not_understood() -> None:
    assert [mcp_engine.results(empty) for empty in ("", "[]", '{"results": []}')] == [[], [], []]
    for strange in ("I found a lot.", '{"answer": 42}', "Title: T\nURL: javascript:alert(1)", "[[[[[[[[]]]]]]]]"):
        with pytest.raises(SearchFailed, match="no results that are understood"):
            mcp_engine.results(strange)
