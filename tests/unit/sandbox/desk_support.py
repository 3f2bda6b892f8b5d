"""Pages for a desk's browser, and a stand-in for the egress proxy that serves them under names."""

import asyncio
import base64
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from moorage.sandbox.desk_client import BatchResult, DeskClient
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec

from tests.unit.sandbox.support import TOKEN, new_id, run

USERNAME, PASSWORD = "container", "a-secret-of-the-proxy"
NO_BROWSER = "Chromium is not installed ('make setup-dev' installs it)."
needs_browser = pytest.mark.skipif(not any(map(shutil.which, ("chromium", "chromium-headless-shell"))), reason=NO_BROWSER)

SHOP = """<!doctype html><html lang=en><title>Shop</title>
<style>body { margin: 0 } button { position: absolute; width: 200px; height: 100px } input { margin-top: 120px }</style>
<button onclick="fetch('/count', {method: 'POST'})">Add to cart</button><input aria-label=Search><p>Welcome to the shop
<script>document.querySelector('input').addEventListener('keydown', (event) => { document.title = event.key })</script>"""


GLYPHS = "価格中한\N{GRINNING FACE}"
GLYPHS_PAGE = """<!doctype html><meta charset=utf-8><title>-</title><script>
const drawn = (text) => {
  const canvas = new OffscreenCanvas(60, 60).getContext('2d')
  canvas.font = '40px sans-serif'
  canvas.fillText(text, 5, 45)
  return canvas.getImageData(0, 0, 60, 60).data.join()
}
const box = drawn('\\u{10FFFD}')
const seen = new Set()
const isGlyph = (text) => drawn(text) !== box && !seen.has(drawn(text)) && seen.add(drawn(text))
document.title = [...'TEXTS'].filter(isGlyph).join('')
</script>""".replace("TEXTS", f"{GLYPHS}\u0378")
"""Its title is those of the texts that are drawn as something of their own. What no font has is a box like any other: the last
one is no character."""


def missing_fonts() -> str:
    """Why this machine draws boxes in their place; empty if it has fonts for all of them."""
    known = shutil.which("fc-list") and all(
        subprocess.run(["fc-list", f":charset={ord(each):x}"], capture_output=True, check=True).stdout for each in GLYPHS
    )
    return "" if known else "No font has these characters (apt-get install fontconfig fonts-wqy-microhei fonts-noto-color-emoji)."


@dataclass
class ShopServer:
    """What stands behind the proxy: pages by host and path. It counts what is asked of it."""

    pages: dict[str, str]
    asked: list[str] = field(default_factory=list)
    credentials: set[str] = field(default_factory=set)
    port: int = 0

    @property
    def count(self) -> int:
        return self.asked.count("POST shop.example/count")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        method, target, _ = head.split("\r\n")[0].split(" ")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        self.credentials.add(fields.get("proxy-authorization", ""))
        place = target.removeprefix("http://").partition("?")[0]
        self.asked.append(f"{method} {place}")
        if self.pages.get(place) == "endless:":
            await self._send_without_end(writer)
            return
        status, more, body = self._answer(method, place)
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{more}connection: close\r\n\r\n".encode() + body)
        writer.close()

    async def _send_without_end(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-disposition: attachment; filename=endless\r\nconnection: close\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 20))
                await writer.drain()

    def _answer(self, method: str, place: str) -> tuple[str, str, bytes]:
        if method == "CONNECT" or place.startswith("refused.example"):
            return "403 refused.example is not among the allowed domains.", "x-moorage-egress: domain_not_allowed\r\n", b""
        page = self.pages.get(place.removesuffix("/"))
        if method == "POST":
            return "204 No Content", "", b""
        if page is None:
            return "404 Not Found", "content-type: text/plain\r\n", b"nothing here"
        if page.startswith("401:"):
            return "401 Unauthorized", 'www-authenticate: Basic realm="shop"\r\n', b"who are you?"
        if page.startswith("attachment:"):
            name, _, content = page.removeprefix("attachment:").partition(":")
            return "200 OK", f'content-disposition: attachment; filename="{name}"\r\n', content.encode()
        return "200 OK", "content-type: text/html; charset=utf-8\r\n", page.encode()


@asynccontextmanager
async def shop(pages: Mapping[str, str] | None = None, socket_path: Path | None = None) -> AsyncIterator[ShopServer]:
    server = ShopServer({"shop.example": SHOP, **(pages or {})})
    if socket_path is not None:
        listening = await asyncio.start_unix_server(server.serve, socket_path)
        socket_path.chmod(0o666)
    else:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


def credential() -> str:
    return "basic " + base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode().lower()


async def do(desk: DeskClient, *actions: dict[str, Any], has_tree: bool = False) -> BatchResult:
    """A batch under a fresh id."""
    return await desk.run(new_id(), actions, has_tree=has_tree)


def navigate(url: str) -> dict[str, Any]:
    return {"type": "navigate", "url": url}


def click(x: int, y: int, **more: Any) -> dict[str, Any]:
    return {"type": "click", "button": "left", "x": x, "y": y, **more}


def press(*keys: str) -> dict[str, Any]:
    return {"type": "keypress", "keys": list(keys)}


def type_text(text: str) -> dict[str, Any]:
    return {"type": "type", "text": text}


_SERVER = """
import http.server
import os
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_picture = self.path.endswith(".svg")
        body = b"<svg xmlns='http://www.w3.org/2000/svg'/>" if is_picture else b"<title>Mine</title>"
        self.send_response(200)
        self.send_header("content-type", "image/svg+xml" if is_picture else "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
open("port", "w").write(str(server.server_port))
server.timeout = 0.5
while os.path.exists("serve.py"):  # Until the folder of the test is gone.
    server.handle_request()
"""


async def page_server(client: ExecClient) -> int:
    """A web server that a command starts in the container; its port."""
    start = f"rm -f port; cat > serve.py <<'PY'\n{_SERVER}\nPY\nsetsid -f python3 serve.py >/dev/null 2>&1; "
    return int((await run(client, start + "until [ -s port ]; do sleep 0.05; done; cat port")).stdout)


@dataclass(frozen=True)
class Beside:
    """A sandbox, and the desk beside it."""

    handle: Handle
    client: ExecClient
    desk: DeskClient
    shop: ShopServer
    provisioner: LauncherProvisioner


@asynccontextmanager
async def sandbox_with_desk(launcher_socket: Path, pages: Mapping[str, str]) -> AsyncIterator[Beside]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        async with shop(pages, directory / "egress.sock") as server, LauncherProvisioner(str(launcher_socket)) as provisioner:
            egress = EgressSpec(proxy=f"unix:{directory}/egress.sock", username=USERNAME, password=PASSWORD)
            handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN, egress=egress))
            async with ExecClient(handle) as client, ExecClient(await provisioner.desk(handle)) as beside:
                yield Beside(handle, client, DeskClient(beside), server, provisioner)
            await provisioner.stop(handle.sandbox_id)
