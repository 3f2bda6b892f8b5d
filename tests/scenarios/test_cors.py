"""Pages of named origins call the API from a browser, and pages of others do not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser import chromium
from tests.stack import Stack

SEND = """async ([url, key]) => {
  const response = await fetch(`${url}/responses`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-stainless-lang": "js" },
    body: JSON.stringify({ model: "demo", input: "hello", stream: true }),
  });
  const text = await response.text();
  return {
    status: response.status,
    ends: text.includes("event: response.completed"),
    readable: [...response.headers.keys()].filter((name) => name.startsWith("x-request") || name.startsWith("openai")).sort(),
    code: response.ok ? null : JSON.parse(text).error.code,
  };
}"""
"""What an SDK does in a page: a request with a key and headers of its own, of which the browser asks first."""

READABLE = ["openai-processing-ms", "openai-version", "x-request-id"]


class Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """It says nothing."""


@contextmanager
def page_server() -> Iterator[str]:
    """The origin of an empty page, which is another site than the API's."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Site:
    stack: Stack
    named: str
    foreign: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with page_server() as named, page_server() as foreign:
        stack = Stack(tmp_path_factory.mktemp("cors"), {"MOORAGE_CORS_ORIGINS": f"https://app.example.com, {named}"}).start()
        yield Site(stack, named, foreign)
        assert stack.stop() == 0


def test_a_page_of_a_named_origin_streams_and_reads_refusals(site: Site) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(site.named)
        answered = page.evaluate(SEND, [site.stack.url, site.stack.key])
        refused = page.evaluate(SEND, [site.stack.url, "sk-moorage-wrong"])
    assert answered == {"status": 200, "ends": True, "readable": READABLE, "code": None}
    assert refused == {"status": 401, "ends": False, "readable": READABLE, "code": "invalid_api_key"}


def test_a_page_of_another_origin_gets_nothing(site: Site) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(site.foreign)
        told = page.evaluate("async (it) => (" + SEND + ")(it).catch((error) => error.name)", [site.stack.url, site.stack.key])
    assert told == "TypeError"


PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-lang"}


def test_a_preflight_needs_no_key(site: Site) -> None:
    with site.stack.http() as http:
        del http.headers["authorization"]
        answer = http.options("/responses", headers=PREFLIGHT | {"origin": site.named})
        foreign = http.options("/responses", headers=PREFLIGHT | {"origin": site.foreign})
    told = {name: value for name, value in answer.headers.items() if name.startswith("access-control") or name == "vary"}
    assert (answer.status_code, told) == (
        204,
        {
            "access-control-allow-origin": site.named,
            "access-control-allow-methods": "GET, HEAD, POST, DELETE",
            "access-control-allow-headers": "authorization, *",
            "access-control-max-age": "7200",
            "vary": "origin",
        },
    )
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "foreign_origin")


LIKE_ONE = ["https://app.example.com.evil.example", "https://appXexample.com", "http://app.example.com", "https://app.example.com:8443"]


@pytest.mark.parametrize("origin", [*LIKE_ONE, "null", "*"])
def test_what_is_like_a_named_origin_is_none(site: Site, origin: str) -> None:
    with site.stack.http() as http:
        answer = http.get("/models", headers={"origin": origin})
    assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)


def test_caches_are_told_that_an_answer_depends_on_the_origin(site: Site) -> None:
    with site.stack.http() as http:
        assert [http.get("/models", headers=said).headers["vary"] for said in ({}, {"origin": site.named})] == ["origin", "origin"]


def test_nothing_else_of_the_stack_is_opened_to_a_page(site: Site) -> None:
    """The console's files and the page of approvals carry no such headers."""
    with site.stack.http() as http:
        answer = http.get(site.stack.url.removesuffix("/v1") + "/console/", headers={"origin": site.named})
    assert "access-control-allow-origin" not in answer.headers


def test_without_the_setting_no_page_is_answered(stack: Stack) -> None:
    with stack.http() as http:
        answer = http.options("/responses", headers=PREFLIGHT | {"origin": "https://app.example.com"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
