"""The search engine that the operator names in models.toml."""

import pytest
from moorage.errors import SettingsConflict
from moorage.model.catalog import ModelCatalog
from moorage.model.remote_servers import RemoteServers
from moorage.model.search_engine import SearchEngine

ENGINES = {
    "a SearXNG": ('kind = "searxng"\nurl = "http://10.0.0.7:8080/"\n', SearchEngine("searxng", "http://10.0.0.7:8080")),
    "Brave": ('kind = "brave"\nkey = "env:SEARCH"\n', SearchEngine("brave", "https://api.search.brave.com", "k3y")),
    "Tavily": ('kind = "tavily"\nkey = "env:SEARCH"\n', SearchEngine("tavily", "https://api.tavily.com", "k3y")),
    "Exa": ('kind = "exa"\nkey = "env:SEARCH"\n', SearchEngine("exa", "https://api.exa.ai", "k3y")),
    "an MCP server": (
        'kind = "mcp"\nurl = "https://gw.example/mcp"\nkey = "env:SEARCH"\ntool = "web-search"\n',
        SearchEngine("mcp", "https://gw.example/mcp", "k3y", "web-search"),
    ),
    "an MCP server with arguments, and no key": (
        'kind = "mcp"\nurl = "https://gw.example/mcp/"\ntool = "s"\nargument = "q"\narguments = {max_results = 5, topic = "news"}\n',
        SearchEngine("mcp", "https://gw.example/mcp/", "", "s", "q", {"max_results": 5, "topic": "news"}),
    ),
    "a proxy before one": (
        'kind = "exa"\nkey = "env:SEARCH"\nurl = "https://p.example/exa"\n',
        SearchEngine("exa", "https://p.example/exa", "k3y"),
    ),
}


@pytest.mark.parametrize(("table", "engine"), ENGINES.values(), ids=ENGINES)
def test_an_engine_has_its_key_by_reference_and_stands_beside_any_model(table: str, engine: SearchEngine) -> None:
    catalog = ModelCatalog.load(f"[web_search]\n{table}", {"SEARCH": "k3y"})
    assert (catalog.searches_web, catalog.remote_servers) == (True, RemoteServers(search=engine))
    assert catalog.resolve(None).provider_kind == "demo"
    assert "k3y" not in repr(catalog.remote_servers)


def test_without_an_engine_the_web_is_not_searched() -> None:
    assert not ModelCatalog.load("", {}).searches_web


def test_a_key_on_aws_is_read_when_it_is_needed() -> None:
    read: list[str] = []

    def secret(name: str) -> str:
        read.append(name)
        return "k3y"

    catalog = ModelCatalog.load('[web_search]\nkind = "brave"\nkey = "ssm:/search"\n', {}, secret=secret)
    assert (catalog.searches_web, read) == (True, [])
    found = catalog.remote_servers.search
    assert found is not None
    assert (found.key, read) == ("k3y", ["ssm:/search"])


WRONG = {
    "another kind": ('kind = "bing"\n', "web_search.kind"),
    "no kind": ('url = "http://x.example"\n', "web_search.kind"),
    "another field": ('kind = "brave"\nsecret = "env:A"\n', "web_search.secret"),
    "no address": ('kind = "searxng"\n', "searxng needs a url"),
    "no URL": ('kind = "searxng"\nurl = "x.example"\n', "is not an http or https URL"),
    "a query": ('kind = "searxng"\nurl = "http://x.example/?a"\n', "without a query"),
    "an MCP server without a tool": ('kind = "mcp"\nurl = "http://x.example"\n', "mcp needs a tool"),
    "a tool of another engine": ('kind = "exa"\nkey = "env:SEARCH"\ntool = "s"\n', "tool belongs to the kind mcp"),
    "no key": ('kind = "brave"\n', "brave needs a key"),
    "a key too many": ('kind = "searxng"\nurl = "http://x.example"\nkey = "env:A"\n', "searxng takes no key"),
    "the key itself": ('kind = "exa"\nkey = "verysecret"\n', "must be a reference"),
    "a variable that is not set": ('kind = "exa"\nkey = "env:NOWHERE"\n', "NOWHERE, which is not set"),
    "a parameter on a laptop": ('kind = "exa"\nkey = "ssm:/search"\n', "can be read only on AWS"),
}


@pytest.mark.parametrize(("table", "words"), WRONG.values(), ids=WRONG)
def test_an_engine_that_cannot_be_is_said_at_the_start(table: str, words: str) -> None:
    with pytest.raises(SettingsConflict, match=words) as refused:
        ModelCatalog.load(f"[web_search]\n{table}", {})
    assert "verysecret" not in str(refused.value)
