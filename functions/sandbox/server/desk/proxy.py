"""The browser's only way out: a small proxy in front of the container's.

It adds the container's credential, so that the browser has none and never asks for one; it leads ``localhost:PORT`` to the servers of
the container's own commands; and it keeps what was refused, for the browser shows no reason for a tunnel that it did not get.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import sys
import urllib.parse
from typing import Awaitable, Callable, Dict, List, NamedTuple, Optional, Tuple

from forwarder import pump
from request_errors import RequestError

from desk.actions import address_of, is_loopback

HEAD_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 256
REFUSALS_MAX = 20
HEAD_SECONDS = 60.0
OWN_HOSTS = (
    "clients2.google.com",
    "clients4.google.com",
    "clientservices.googleapis.com",
    "accounts.google.com",
    "update.googleapis.com",
    "redirector.gvt1.com",
    "edgedl.me.gvt1.com",
    "optimizationguide-pa.googleapis.com",
    "content-autofill.googleapis.com",
    "safebrowsing.googleapis.com",
    "safebrowsingohttpgateway.googleapis.com",
    "www.googleapis.com",
    "android.clients.google.com",
    "mtalk.google.com",
)
"""Whom Chromium calls by itself: that would stand among the refusals that the model reads."""
NO_NETWORK = (
    "Network access to '{host}' was refused: this container has no network. Create it with network_policy "
    '{{"type": "allowlist", "allowed_domains": ["{host}"]}}.'
)
FOREIGN = "A page of another site may not reach the container's own server '{host}'."
NO_TLS = "The container's own server '{host}' is reached by http:// only."

Connection = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ProxyAddress(NamedTuple):
    """The egress proxy, and what it asks for."""

    connect: Callable[[], Awaitable[Connection]]
    authorization: str


class Head(NamedTuple):
    first: List[str]
    """Method, target and protocol; or protocol, status and reason."""
    fields: List[Tuple[str, str]]

    def get(self, name: str) -> str:
        return next((value for each, value in self.fields if each.lower() == name), "")

    def without(self, *names: str) -> "Head":
        return Head(self.first, [(name, value) for name, value in self.fields if name.lower() not in names])

    def written(self, **more: str) -> bytes:
        lines = [" ".join(self.first), *(f"{name}: {value}" for name, value in self.fields)]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


EMPTY = "content-length: 0\r\nconnection: close\r\n\r\n"
_HOP = ("connection", "keep-alive", "proxy-connection", "proxy-authorization")


class DeskProxy:
    def __init__(self, to_container: Callable[[int], Awaitable[Connection]], upstream: Optional[ProxyAddress]) -> None:
        """``to_container`` connects to a port of the container's own servers, or raises :class:`RequestError`."""
        self._to_container = to_container
        self._upstream = upstream
        self._refused: Dict[str, str] = {}
        self._connections = 0
        self._server: Optional[asyncio.AbstractServer] = None
        self.port = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX, backlog=256)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def reason(self, host: str) -> str:
        """Why the host was refused last, if it was."""
        return self._refused.get(host, "")

    def take_refused(self) -> Dict[str, str]:
        """By host, since it was asked last."""
        refused, self._refused = self._refused, {}
        return refused

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX and await is_from_own_user(writer):
                head = parsed(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS))
                await self._answer(head, reader, writer)
        except (OSError, EOFError, ValueError, IndexError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass  # torn, silent or not HTTP
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.first
        is_tunnel = method == "CONNECT"
        url = urllib.parse.urlsplit(f"//{target}" if is_tunnel else target)
        host, port = url.hostname or "", url.port or 80
        if host in OWN_HOSTS:
            await refuse(writer, 403, "Not asked for by a page.")
        elif is_loopback(f"[{host}]" if ":" in host else host):
            await self._local(head, is_tunnel, host, port, reader, writer)
        elif self._upstream is None:
            await self._refuse(writer, host, NO_NETWORK.format(host=host))
        else:
            await self._outside(head, is_tunnel, host, reader, writer)

    async def _outside(
        self, head: Head, is_tunnel: bool, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self._upstream is not None
        try:
            far_reader, far_writer = await self._upstream.connect()
        except OSError:
            await self._refuse(writer, host, f"The way out to '{host}' does not answer just now.", 502)
            return
        credential = {"Proxy_Authorization": self._upstream.authorization}
        with closing(far_writer):
            if is_tunnel:
                far_writer.write(head.without(*_HOP).written(**credential))
                answer = parsed(await far_reader.readuntil(b"\r\n\r\n"))
                self._heed(host, answer)
                writer.write(answer.written())
                if answer.first[1].startswith("2"):
                    await both_ways(reader, writer, far_reader, far_writer)
                else:
                    await pump(far_reader, writer)
                return
            far_writer.write(head.without(*_HOP).written(Connection="close", **credential))
            await self._once(host, reader, writer, far_reader, far_writer)

    async def _local(
        self, head: Head, is_tunnel: bool, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Chromium says where a request comes from, for ``localhost`` counts as a secure place (Fetch Metadata, W3C)."""
        inner = head
        address = address_of(host)
        if not is_tunnel and address is not None and address.is_unspecified:
            # Chromium does not say there where a request comes from.
            writer.write(f"HTTP/1.1 307 -\r\nlocation: http://localhost:{port}{path_of(head)}\r\n{EMPTY}".encode("latin-1"))
            await writer.drain()
            return
        if is_tunnel:  # A WebSocket, or TLS.
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            begin = await reader.read(1)
            if not begin or begin == b"\x16":
                self._refused[host] = NO_TLS.format(host=f"{host}:{port}")
                return
            inner = parsed(begin + await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS))
        # A socket's first words name the page that it is from. What names none may be a page's own words in place of a request.
        if is_foreign(inner) or (is_tunnel and not inner.get("origin")):
            await self._refuse(writer, f"{host}:{port}", FOREIGN.format(host=f"{host}:{port}"))
            return
        try:
            far_reader, far_writer = await self._to_container(port)
        except (OSError, RequestError) as error:
            words = str(error) if isinstance(error, RequestError) else f"Nothing of this container listens on port {port}."
            await self._refuse(writer, f"{host}:{port}", words, 502)
            return
        with closing(far_writer):
            if is_tunnel:
                far_writer.write(inner.written())
                await both_ways(reader, writer, far_reader, far_writer)
                return
            asked = Head([head.first[0], path_of(head), head.first[2]], head.fields)
            far_writer.write(asked.without(*_HOP).written(Connection="close"))
            await self._once("", reader, writer, far_reader, far_writer)

    async def _once(
        self,
        host: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """One request and its answer: the next one on this connection could be for another host."""
        sending = asyncio.ensure_future(pump(reader, far_writer))
        try:
            while True:
                answer = parsed(await far_reader.readuntil(b"\r\n\r\n"))
                if answer.first[1].startswith("1") and answer.first[1] != "101":
                    writer.write(answer.written())
                    continue
                break
            if host:
                self._heed(host, answer)
            if answer.first[1] == "101":
                writer.write(answer.written())
            else:
                writer.write(answer.without("connection", "keep-alive").written(Connection="close"))
            await pump(far_reader, writer)
        finally:
            sending.cancel()

    def _heed(self, host: str, answer: Head) -> None:
        if answer.get("x-moorage-egress"):
            self._note(host, " ".join(answer.first[2:]))

    def _note(self, host: str, reason: str) -> None:
        if len(self._refused) < REFUSALS_MAX or host in self._refused:
            self._refused[host] = reason

    async def _refuse(self, writer: asyncio.StreamWriter, host: str, reason: str, status: int = 403) -> None:
        self._note(host, reason)
        await refuse(writer, status, reason)


async def is_from_own_user(writer: asyncio.StreamWriter) -> bool:
    """Whether the browser's user is at the other end: containers of one task have their loopback in common."""
    ends = (writer.get_extra_info(name) for name in ("peername", "sockname"))
    # As the kernel writes them (proc(5)).
    theirs, ours = (f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in ends)
    # Commands can make this table long.
    return await asyncio.get_event_loop().run_in_executor(None, is_of_own_user, theirs, ours)


def is_of_own_user(theirs: str, ours: str) -> bool:
    with open("/proc/net/tcp") as table:
        lines = (line.split() for line in table)
        return any(fields[1:3] == [theirs, ours] and fields[7] == str(os.geteuid()) for fields in lines)


def path_of(head: Head) -> str:
    url = urllib.parse.urlsplit(head.first[1])
    return urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))


def is_foreign(head: Head) -> bool:
    """Whether a page of another site asks, other than by a link that a person might follow."""
    origin, site = head.get("origin"), head.get("sec-fetch-site")
    if origin and origin != "null":
        return not is_loopback(urllib.parse.urlsplit(origin).hostname or "")
    if site == "cross-site":
        is_link = head.get("sec-fetch-mode") == "navigate" and head.get("sec-fetch-dest") == "document"
        return not is_link or head.first[0] not in ("GET", "HEAD")
    # A page may hide where it is from: by its referrer policy, and in a frame without an origin. A socket says no site.
    return origin == "null" and not site


async def refuse(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    content = f"<!doctype html><meta charset=utf-8><title>Refused</title><p>{escaped(reason)}".encode()
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: text/html\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + content)
    with contextlib.suppress(OSError):
        await writer.drain()


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


async def both_ways(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far_reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter
) -> None:
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))


@contextlib.contextmanager
def closing(writer: asyncio.StreamWriter):  # type: ignore[no-untyped-def]
    try:
        yield
    finally:
        writer.close()


def parsed(data: bytes) -> Head:
    lines = data.decode("latin-1").split("\r\n")
    first = lines[0].split(" ", 2)
    fields = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
    return Head([*first, ""] if len(first) == 2 else first, fields)


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
