"""The container's own servers trust whoever reaches them: a page of another site does not, by any of a page's ways."""

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from desk.actions import is_loopback
from desk.proxy import Connection, DeskProxy
from moorage.sandbox.desk_client import DeskClient
from moorage.sandbox.exec_client import ExecClient

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import ShopServer, do, navigate, needs_browser, shop
from tests.unit.sandbox.support import exec_server, run

pytestmark = needs_browser

OWN = """<meta name=referrer content=no-referrer><script>
fetch(`http://127.0.0.1:${location.port}/other`, {method: 'POST'})
  .then(() => fetch('/same', {method: 'POST'})).then(() => { document.title = 'done' })
</script>"""
SERVER = f"""\
import http.server
import os
PAGE = {OWN!r}
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        if self.path != "/favicon.ico":  # Of the page that says the refusal.
            open("heard", "a").write(f"{{self.command}} {{self.path}}\\n")
        self.rfile.read(int(self.headers.get("content-length", "0")))
        body = b"<title>Mine</title>" + (PAGE.encode() if self.path.startswith("/own") else b"")
        if self.path.startswith("/written"):
            body = open("written", "rb").read()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("access-control-allow-origin", "*")
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_OPTIONS = do_GET
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
open("port.new", "w").write(str(server.server_port))
os.rename("port.new", "port")
server.timeout = 0.5
while os.path.exists("serve.py"):  # Until the folder of the test is gone.
    server.handle_request()
"""
FORM = "<form method=post action=http://localhost:{}/form><input name=a value=b></form><script>document.forms[0].submit()</script>"
CALLS = """<title>-</title><script>
const servers = ['stun:127.0.0.1:PORT', 'turn:127.0.0.1:PORT', 'stun:localhost:PORT']
Promise.all(servers.map(async (urls) => {
  const found = []
  const calls = new RTCPeerConnection({iceServers: [{urls, username: 'u', credential: 'c'}]})
  calls.createDataChannel('x')
  calls.onicecandidate = (event) => event.candidate && found.push(event.candidate.candidate)
  await calls.setLocalDescription(await calls.createOffer())
  while (calls.iceGatheringState !== 'complete') await new Promise((done) => setTimeout(done, 50))
  return found
})).then((all) => { document.title = all.flat().join() || 'none' })
</script>"""
TRANSPORT = """<title>-</title><script>
const serverCertificateHashes = [{algorithm: 'sha-256', value: new Uint8Array(32)}]
const asked = [{}, {serverCertificateHashes}].map((options) => new WebTransport('https://127.0.0.1:PORT/', options).ready)
Promise.allSettled(asked).then((all) => { document.title = all.map((one) => one.status.replace('rejected', 'refused')).join(' ') })
</script>"""
WAYS = {
    "a form": FORM,
    "a form that names no site": f"<meta name=referrer content=no-referrer>{FORM}",
    "a form of a frame without an origin": f"<iframe sandbox='allow-scripts allow-forms' srcdoc='{FORM}'></iframe>",
    "a socket": "<script>new WebSocket('ws://localhost:{}/socket')</script>",
    "a socket of a frame without an origin": (
        "<iframe sandbox=allow-scripts srcdoc='<script>new WebSocket(`ws://localhost:{}/socket`)</script>'></iframe>"
    ),
    "a picture": "<img src=http://localhost:{}/picture>",
    "a picture at all addresses": "<img src=http://0.0.0.0:{}/picture>",
    "a picture at a number": "<img src=http://2130706433:{}/picture>",
    "a picture of a frame without an origin": "<iframe src='data:text/html,<img src=http://127.0.0.1:{}/picture>'></iframe>",
    "a frame": "<iframe src=http://localhost:{}/frame></iframe>",
    "a frame at all addresses": "<iframe src=http://0.0.0.0:{}/frame></iframe>",
    "a beacon": "<script>navigator.sendBeacon('http://localhost:{}/beacon', 'x')</script>",
    "a beacon to all addresses": "<script>navigator.sendBeacon('http://0.0.0.0:{}/beacon', 'x')</script>",
    "a program": "<script src=http://localhost:{}/program></script>",
    "a style": "<link rel=stylesheet href=http://a.localhost:{}/style>",
    "a dotted name": "<img src=http://localhost.:{}/picture>",
    "a picture at six": "<img src=http://[::1]:{}/picture>",
    "a worker": (
        "<script>new Worker(URL.createObjectURL(new Blob([`fetch('http://localhost:{}/worker', {mode: 'no-cors'})`])))</script>"
    ),
    "a page of a blob": (
        "<iframe></iframe><script>frames[0].location = URL.createObjectURL("
        "new Blob([`<img src=http://localhost:{}/picture>`], {type: 'text/html'}))</script>"
    ),
    "an empty page": (
        "<iframe></iframe><script>frames[0].fetch('http://127.0.0.1:{}/empty', {method: 'POST', mode: 'no-cors'})</script>"
    ),
    "what is fetched ahead": "<link rel=prefetch href=http://localhost:{}/ahead>",
}


@dataclass(frozen=True)
class Lab:
    desk: DeskClient
    client: ExecClient
    server: ShopServer
    port: int


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with shop({"shop.example": "<title>Shop</title>"}) as server:
        proxy = {"proxy": f"127.0.0.1:{server.port}", "username": "cntr_1", "password": "word"}
        # A socket's path has 107 characters at most, and a browser may write until it is seen to have ended.
        with (
            tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
            exec_server(Path(folder), desk={"directory": f"{folder}/desk", "upstream": proxy}) as process,
        ):
            async with ExecClient(process.handle) as client:
                await until_up(client)
                desk = DeskClient(client)
                await desk.start()
                start = f"cat > serve.py <<'PY'\n{SERVER}\nPY\nsetsid -f python3 serve.py >/dev/null 2>&1; "
                port = int((await run(client, start + "until [ -s port ]; do sleep 0.05; done; cat port")).stdout)
                yield Lab(desk, client, server, port)


@pytest.mark.parametrize("way", WAYS)
async def test_a_page_of_another_site_does_not_reach_it_by(way: str, lab: Lab) -> None:
    lab.server.pages["shop.example/page"] = f"<title>Page</title>{WAYS[way].replace('{}', str(lab.port))}"
    result = await do(lab.desk, navigate("http://shop.example/page"))
    refused = list(result.page.refused)
    while not refused:
        refused += (await do(lab.desk, {"type": "wait", "ms": 100})).page.refused
    assert all(each.reason.startswith("A page of another site may not reach the container's own server '") for each in refused)
    assert (await run(lab.client, "cat heard 2>/dev/null")).stdout == ""


async def test_its_own_pages_reach_it_at_each_of_its_addresses(lab: Lab) -> None:
    shown = await do(lab.desk, navigate(f"http://0.0.0.0:{lab.port}/own?a=b"))
    while shown.page.title != "done":
        shown = await do(lab.desk, {"type": "wait", "ms": 100})
    assert (shown.page.url, shown.page.refused) == (f"http://localhost:{lab.port}/own?a=b", ())
    heard = (await run(lab.client, "cat heard; rm heard")).stdout
    assert heard == "GET /own?a=b\nPOST /other\nPOST /same\n"


async def test_a_page_sends_no_datagram(lab: Lab) -> None:
    """WebRTC speaks to servers that a page names, past every proxy. On Fargate a browser has the network of its task."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.setblocking(False)
        lab.server.pages["shop.example/page"] = CALLS.replace("PORT", str(heard.getsockname()[1]))
        shown = await do(lab.desk, navigate("http://shop.example/page"))
        while shown.page.title != "none":
            shown = await do(lab.desk, {"type": "wait", "ms": 100})
        with pytest.raises(BlockingIOError):
            heard.recv(1)


async def test_a_page_opens_no_web_transport(lab: Lab) -> None:
    """It speaks QUIC, which no proxy of http passes on, and is for pages of a secure origin alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.setblocking(False)
        page = TRANSPORT.replace("PORT", str(heard.getsockname()[1]))
        await run(lab.client, f"cat > written <<'END'\n{page}\nEND")
        shown = await do(lab.desk, navigate(f"http://localhost:{lab.port}/written"))
        while shown.page.title == "-":
            shown = await do(lab.desk, {"type": "wait", "ms": 100})
        with pytest.raises(BlockingIOError):
            heard.recv(1)
    await run(lab.client, "rm heard")
    assert shown.page.title == "refused refused"


async def test_what_names_no_page_is_no_socket_of_one() -> None:
    """A page may have a browser send words of its own through a tunnel."""
    reached: list[int] = []

    async def to_container(port: int) -> Connection:
        reached.append(port)
        raise OSError

    proxy = DeskProxy(to_container, None)
    port = await proxy.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT localhost:3000 HTTP/1.1\r\n\r\n\0 GET\r\n\r\nPOST /order HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
    finally:
        proxy.stop()
    assert (b"may not reach the container's own server" in answer, reached) == (True, [])
    assert list(proxy.take_refused()) == ["localhost:3000"]


ASK = """import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(b"GET http://shop.example/ HTTP/1.1\\r\\n\\r\\n")
    print(len(connection.makefile("rb").read()))"""


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root becomes another user.")
@pytest.mark.parametrize(("uid", "is_heard"), [(0, True), (65_534, False)], ids=["the browser's", "the commands'"])
async def test_its_proxy_hears_the_user_of_the_browser_alone(uid: int, is_heard: bool) -> None:
    """Containers of one task have their loopback in common."""

    async def to_container(port: int) -> Connection:
        raise OSError

    proxy = DeskProxy(to_container, None)
    port = await proxy.start()
    try:
        asking = await asyncio.create_subprocess_exec("python3", "-c", ASK, str(port), user=uid, stdout=subprocess.PIPE, cwd="/")
        said, _ = await asking.communicate()
    finally:
        proxy.stop()
    assert (int(said) > 0, list(proxy.take_refused())) == (is_heard, ["shop.example"] if is_heard else [])


def test_a_name_that_begins_like_an_address_is_none() -> None:
    names = (
        "localhost",
        "a.LOCALHOST.",
        "127.0.0.1",
        "127.1.2.3",
        "[::1]",
        "0.0.0.0",
        "127.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
    )
    assert [name for name in names if not is_loopback(name)] == ["127.evil.example", "localhost.evil.example", "10.0.0.1"]
