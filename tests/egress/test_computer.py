"""The browser beside a container, behind the real proxy: which hosts it opens, whom it trusts, and what becomes of secrets."""

import json
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from moorage.sandbox.desk_client import BatchResult, DeskClient
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import EgressSpec, SandboxSpec

from tests.egress.arena import FORBIDDEN
from tests.egress.conftest import TENANT, ArenaClient, Opened
from tests.unit.sandbox.support import TOKEN, launcher, new_id

pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
VALUE = "sk-browser-0123456789abcdef"
SECRET = {"domain": "echo.example", "name": "API_KEY", "value": VALUE}
REFUSED = "Network access to 'forbidden.example' was refused: it is not among this container's allowed domains."


@pytest.fixture(scope="module")
def launcher_socket(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with launcher(tmp_path_factory.mktemp("launcher")) as socket:
        yield socket


@dataclass
class Browser:
    desk: DeskClient
    box: Opened

    async def open(self, url: str) -> BatchResult:
        return await self.desk.run(new_id(), [{"type": "navigate", "url": url}], has_tree=True)

    async def open_page(self, url: str) -> BatchResult:
        """The arena's page, when it has heard from its host."""
        result = await self.open(url)
        while result.page.title != "heard":
            result = await self.desk.run(new_id(), [{"type": "wait", "ms": 100}], has_tree=True)
        return result


@asynccontextmanager
async def browser_with(arena: ArenaClient, launcher_socket: Path, box: Opened, ca_pem: str) -> AsyncIterator[Browser]:
    proxy = f"unix:{arena.directory / 'proxy' / 'egress.sock'}"
    egress = EgressSpec(proxy=proxy, username=box.username, password=box.password, ca_pem=ca_pem)
    async with LauncherProvisioner(str(launcher_socket)) as provisioner:
        handle = await provisioner.start(SandboxSpec(TENANT, box.container_id, TOKEN, env=box.placeholders, egress=egress))
        async with ExecClient(await provisioner.desk(handle)) as client:
            desk = DeskClient(client)
            await desk.start()
            yield Browser(desk, box)
        await provisioner.stop(handle.sandbox_id)


@pytest.fixture(scope="module")
async def browser(arena: ArenaClient, launcher_socket: Path) -> AsyncIterator[Browser]:
    async with trusting_browser(arena, launcher_socket, "allowed.example", "echo.example", "selfsigned.example") as browser:
        yield browser


@asynccontextmanager
async def trusting_browser(
    arena: ArenaClient, launcher_socket: Path, *domains: str, secret: dict[str, Any] = SECRET, asks: Any = None
) -> AsyncIterator[Browser]:
    """It trusts the proxy's CA, and the CA of the arena's world in place of the public ones."""
    box = arena.open(*domains, secrets=[secret], asks=asks)
    ca_pem = (arena.directory / "egress-ca.pem").read_text() + (arena.directory / "upstream-ca.pem").read_text()
    async with browser_with(arena, launcher_socket, box, ca_pem) as browser:
        yield browser


@pytest.mark.parametrize("host", ["allowed.example", "echo.example"], ids=["a tunnelled host", "an opened host"])
async def test_a_browser_opens_pages_by_https(host: str, browser: Browser) -> None:
    result = await browser.open(f"https://{host}/")
    assert [(each.ok, each.error) for each in result.actions] == [(True, "")]
    assert result.text.strip() == f"hello from {host}"


async def test_a_browser_trusts_the_proxys_ca_and_no_stranger(arena: ArenaClient, launcher_socket: Path) -> None:
    box = arena.open("allowed.example", "echo.example", secrets=[SECRET])
    async with browser_with(arena, launcher_socket, box, (arena.directory / "egress-ca.pem").read_text()) as browser:
        assert (await browser.open("https://echo.example/")).actions[0].ok
        strange = await browser.open("https://allowed.example/")
    assert strange.actions[0].error == "https://allowed.example/ cannot be opened: net::ERR_CERT_AUTHORITY_INVALID."


async def test_a_host_that_vouches_for_itself_is_not_opened(browser: Browser) -> None:
    result = await browser.open("https://selfsigned.example/")
    assert result.actions[0].error == "https://selfsigned.example/ cannot be opened: net::ERR_CERT_AUTHORITY_INVALID."


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_a_host_outside_the_policy_is_refused_in_words(scheme: str, arena: ArenaClient, browser: Browser) -> None:
    arena("clear")
    began_ms = int(time.time() * 1000)
    result = await browser.open(f"{scheme}://forbidden.example/")
    (refusal,) = result.page.refused
    assert (refusal.host, refusal.reason.startswith(REFUSED)) == ("forbidden.example", True)
    heard = [each.error for each in result.actions] + [result.text]
    assert any(REFUSED in each for each in heard)
    assert arena("seen") == []
    assert arena("refusals", tenant=TENANT, container=browser.box.container_id, at_ms=began_ms)


async def test_what_a_page_loads_from_elsewhere_is_refused_too(arena: ArenaClient, browser: Browser) -> None:
    arena("clear")
    refused = list((await browser.open_page("https://allowed.example/page")).page.refused)
    while not refused:
        refused += (await browser.desk.run(new_id(), [{"type": "wait", "ms": 100}])).page.refused
    assert [each.host for each in refused] == ["forbidden.example"]
    assert FORBIDDEN not in {note["address"] for note in arena("seen")}


ADDRESSES = {
    "an address": "https://93.184.216.34/",
    "the metadata service": "http://169.254.169.254/latest/meta-data/",
    "another port": "https://allowed.example:8444/",
}


@pytest.mark.parametrize("what", ADDRESSES)
async def test_a_browser_does_not_reach(what: str, arena: ArenaClient, browser: Browser) -> None:
    arena("clear")
    result = await browser.open(ADDRESSES[what])
    assert len(result.page.refused) == 1
    assert arena("seen") == []


async def test_a_secret_goes_to_its_own_host_and_no_page_sees_it(arena: ArenaClient, launcher_socket: Path) -> None:
    arena("clear")
    async with trusting_browser(arena, launcher_socket, "echo.example", "scoped.example") as browser:
        placeholder = browser.box.placeholders["API_KEY"]
        own = await browser.open_page(f"https://echo.example/page#{placeholder}")
        other = await browser.open_page(f"https://scoped.example/page#{placeholder}")
    requests = [head for note in arena("seen") for head in note["raw"].lower().split("\r\n\r\n") if "x-key: " in head]
    fields = [dict(line.split(": ", 1) for line in head.splitlines()[1:]) for head in requests]
    assert {each["host"]: each["x-key"] for each in fields} == {"echo.example": VALUE, "scoped.example": placeholder.lower()}
    assert "X-Key: ****" in own.text
    assert placeholder in other.text
    assert VALUE not in repr([own, other])


# --- new origins ---------------------------------------------------------------------------------------------------------------------

NEW = "https://scoped.example/"
OLD = "https://echo.example"
"""That a person has allowed."""


def page(text: str) -> dict[str, Any]:
    return {"type": "navigate", "url": f"{OLD}/html?{quote(f'<!doctype html><title>page</title>{text}')}"}


def clicked(program: str) -> list[dict[str, Any]]:
    """A page that runs it when it is clicked, as a page must that opens windows."""
    at = {"type": "click", "button": "left", "x": 50, "y": 50}
    return [page(f"<body style='height: 500px'><script>onclick = () => {{ {program} }}</script>"), at, {"type": "wait", "ms": 300}]


BLOB = "URL.createObjectURL(new Blob([`{}`], {type: 'text/html'}))"
PICTURE = f"<img src={NEW}>"
AWAY = f"<script>location = '{NEW}'<\\/script>"
SERVICE = quote(f"oninstall = (event) => event.waitUntil(fetch('{NEW}', {{mode: 'no-cors'}}))")
FETCHING = quote("onfetch = (event) => event.respondWith(fetch(new URL(event.request.url).hash.slice(1) || event.request))")
WAYS: dict[str, list[dict[str, Any]]] = {
    "an address": [{"type": "navigate", "url": NEW}],
    "a redirect": [{"type": "navigate", "url": f"{OLD}/redirect?{NEW}"}],
    "a new window": [
        {"type": "navigate", "url": f"{OLD}/popup?{NEW}"},
        {"type": "click", "button": "left", "x": 50, "y": 50},
        {"type": "wait", "ms": 300},
    ],
    "a window that is redirected": clicked(f"open('{OLD}/redirect?{NEW}')"),
    "an empty window that moves": clicked(f"open('about:blank').location = '{NEW}'"),
    "an empty window with a picture": clicked(f"open('about:blank').document.write('{PICTURE}')"),
    "a window of a blob": clicked(f"open({BLOB.replace('{}', AWAY)})"),
    "a window of a blob with a picture": clicked(f"open({BLOB.replace('{}', PICTURE)})"),
    "a window without an opener": clicked(f"open('{NEW}', '_blank', 'noopener')"),
    "a frame of data": [page(f'<iframe src="data:text/html,{PICTURE}"></iframe>')],
    "a frame of data that moves": [page(f'<iframe src="data:text/html,<script>location = `{NEW}`</script>"></iframe>')],
    "a frame of text": [page(f"<iframe srcdoc='{PICTURE}'></iframe>")],
    "a service worker": [page(f"<script>navigator.serviceWorker.register('/program?{SERVICE}')</script>")],
    "a service worker that answers": [
        page(f"""<script>navigator.serviceWorker.register('/program?{FETCHING}').then(() => navigator.serviceWorker.ready).then(() => {{
            location = '/html?again#{NEW}' }})</script>""")
    ],
    "a worker": [page(f"<script>new Worker(`data:text/javascript,fetch('{NEW}', {{mode: 'no-cors'}})`)</script>")],
    "a shared worker": [page(f"<script>new SharedWorker(`data:text/javascript,fetch('{NEW}', {{mode: 'no-cors'}})`)</script>")],
    "a socket": [page("<script>new WebSocket('wss://scoped.example/ws')</script>")],
    "a beacon": [page(f"<script>navigator.sendBeacon('{NEW}', 'x')</script>")],
    "what is rendered ahead": [page(f"<link rel=prerender href={NEW}><link rel=prefetch href={NEW}>")],
    "an event source": [page(f"<script>new EventSource('{NEW}')</script>")],
    "a form": [page(f"<form method=post action={NEW}></form><script>document.forms[0].submit()</script>")],
    "a refresh": [page(f"<meta http-equiv=refresh content='0; url={NEW}'>")],
}


@pytest.fixture(scope="module")
async def asking_browser(arena: ArenaClient, launcher_socket: Path) -> AsyncIterator[Browser]:
    """A person must allow each host, and has allowed one."""
    async with trusting_browser(arena, launcher_socket, "echo.example", "scoped.example", asks={"hosts": ["*"]}) as browser:
        arena("allow", tenant=TENANT, container=browser.box.container_id, key="host#echo.example")
        yield browser


@pytest.mark.parametrize("way", WAYS)
async def test_no_request_leaves_for_a_new_origin_before_a_person_has_allowed_it(
    way: str, arena: ArenaClient, asking_browser: Browser
) -> None:
    arena("clear")
    refused = list((await asking_browser.desk.run(new_id(), WAYS[way])).page.refused)
    while not refused:
        refused += (await asking_browser.desk.run(new_id(), [{"type": "wait", "ms": 100}])).page.refused
    assert {each.host for each in refused} == {"scoped.example"}
    assert "a person has to allow" in refused[0].reason
    asked = re.findall(r"host: (\S+)", repr(arena("seen")).lower().replace("\\r", " "))
    assert "scoped.example" not in asked
    await asking_browser.desk.run(new_id(), [{"type": "keypress", "keys": ["CTRL", "W"]}] * 3)


async def test_a_new_origin_opens_once_a_person_has_allowed_it(arena: ArenaClient, launcher_socket: Path) -> None:
    async with trusting_browser(arena, launcher_socket, "scoped.example", "echo.example", asks={"hosts": ["*"]}) as browser:
        assert not (await browser.open(NEW)).actions[0].ok
        arena("allow", tenant=TENANT, container=browser.box.container_id, key="host#scoped.example")
        assert (await browser.open(NEW)).text.strip() == "hello from scoped.example"


# --- signing in ----------------------------------------------------------------------------------------------------------------------

SIGN_IN = "https://{}/sign-in"
FILL: list[dict[str, Any]] = [
    {"type": "click", "button": "left", "x": 50, "y": 20},
    {"type": "type", "text": "ada"},
    {"type": "click", "button": "left", "x": 50, "y": 70},
    {"type": "type", "text": "$API_KEY"},
    {"type": "keypress", "keys": ["ENTER"]},
]
ODD = 'it\'s <a> "secret" & 100%+more'


async def test_a_credential_signs_in_at_its_own_origin_and_is_nowhere_else(arena: ArenaClient, launcher_socket: Path) -> None:
    arena("clear")
    log_began = arena.log_file.stat().st_size
    secret = SECRET | {"value": ODD, "places": ["form"]}
    async with trusting_browser(arena, launcher_socket, "echo.example", "scoped.example", secret=secret) as browser:
        results = []
        for host in ("echo.example", "scoped.example"):
            await browser.open(SIGN_IN.format(host))
            results.append(await browser.desk.run(new_id(), FILL, has_tree=True))
        placeholder = browser.box.placeholders["API_KEY"]
    own, other = results
    posts = re.findall("user=ada&password=(.*?)(?:GET /|$)", "".join(note["raw"] for note in arena("seen")))
    assert sorted(posts) == sorted([quote(ODD, safe=""), placeholder])
    assert "user=ada&password=****" in own.text
    assert placeholder in other.text
    everywhere = [repr(results), arena.log_file.read_bytes()[log_began:].decode(), arena("dump")["items"]]
    for form in (ODD, quote(ODD, safe=""), quote_plus(ODD), json.dumps(ODD)[1:-1]):
        assert [text for text in everywhere if form in text] == []


async def test_a_secret_is_not_typed_on_a_page_without_https(arena: ArenaClient, launcher_socket: Path) -> None:
    async with trusting_browser(arena, launcher_socket, "echo.example", secret=SECRET | {"places": ["form"]}) as browser:
        await browser.open("http://echo.example/sign-in")
        result = await browser.desk.run(new_id(), FILL)
    assert result.actions[-1].error == "The secret 'API_KEY' is sent by https alone, and this page is not of https."


async def test_a_secret_of_a_form_waits_for_a_persons_word(arena: ArenaClient, launcher_socket: Path) -> None:
    arena("clear")
    secret = SECRET | {"places": ["form"]}
    async with trusting_browser(arena, launcher_socket, "echo.example", secret=secret, asks={"secrets": ["API_KEY"]}) as browser:
        await browser.open(SIGN_IN.format("echo.example"))
        refused = await browser.desk.run(new_id(), FILL, has_tree=True)
        assert "secret_needs_approval" in refused.text or "has to allow" in refused.text
        assert VALUE not in repr(arena("seen"))
        arena("allow", tenant=TENANT, container=browser.box.container_id, key="secret#API_KEY")
        await browser.open(SIGN_IN.format("echo.example"))
        await browser.desk.run(new_id(), FILL)
    assert VALUE in repr(arena("seen"))
