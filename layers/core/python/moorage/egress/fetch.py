"""Fetch a URL that a user gave, or send something there, without becoming their way into private networks.

The name is resolved once, every address it has is judged, and the connection goes to a judged address with the name as SNI and
``Host``: what a second lookup would say (DNS rebinding) never matters. Redirects are judged anew, hop by hop. No cookies, no
credentials, no proxy of the environment. The ranges are those of the egress proxy (``egress/policy.py``).
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import httpx

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.policy import classify
from moorage.errors import MoorageError
from moorage.hosts import is_ip_literal
from moorage.settings import Settings

_CLEAR_TEXT: Final = (
    "it must begin with https; a private address may begin with http where the operator opens its range by "
    "MOORAGE_FETCH_ALLOWED_NETWORKS"
)
_LITERAL: Final = (
    "its host is not a public address; a private one is asked for by a name, such as localhost, where MOORAGE_FETCH_ALLOWED_NETWORKS "
    "opens its range"
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
ADDRESSES_TRIED_MAX: Final = 3
_ANYWHERE: Final = ("0.0.0.0/0", "::/0")
"""Every range but for metadata addresses, which no setting opens."""


class FetchError(MoorageError):
    """The URL was refused or could not be fetched; the message may be shown to the user."""


class FetchRefused(FetchError):
    """The server answered, and gave nothing."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answered {status}")
        self.status = status


async def system_addresses(host: str, port: int) -> list[str]:
    """The addresses that the system's resolver gives."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FetchError("its host has no address") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class Download:
    """An answer that has begun."""

    url: str
    """Where it came from in the end."""
    media_type: str
    filename: str
    """The last segment of the path; empty if there is none."""
    chunks: AsyncIterator[bytes]
    """Raises :class:`FetchError` when it gets too long or breaks off."""
    charset: str = ""
    """As the server names it; empty if it does not."""
    cache_control: str = ""
    """What it says of keeping this."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a server of the operator's, with any status."""

    status: int
    media_type: str
    chunks: AsyncIterator[bytes]
    """Raises :class:`FetchError` when it gets too long or breaks off."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    own_networks: tuple[str, ...] = ()
    """The deployment's own ranges: refused although they may be public."""
    allowed_networks: tuple[str, ...] = ()
    """Private ranges that the operator has opened, to names that lead there. No address may be asked for as such: any tenant asks here,
    without a list of domains."""
    ports: tuple[int, ...] = (80, 443)
    addresses: Callable[[str, int], Awaitable[list[str]]] = system_addresses
    tls: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)
    heard: Callable[[str], None] | None = None
    """Told each host that a connection may go to, redirections among them."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(settings.egress_own_networks, settings.fetch_allowed_networks, settings.egress_ports)

    @asynccontextmanager
    async def open(
        self, url: str, *, bytes_max: int, may_follow: Callable[[str], Awaitable[None]] | None = None
    ) -> AsyncIterator[Download]:
        """Fetch an http(s) URL; use as ``async with``. Raises :class:`FetchError`.

        ``may_follow`` is asked about each address that a redirection leads to, before anything is sent there, and raises for those that
        must not be asked for: an address says as much as its sender wants it to."""
        try:
            async with asyncio.timeout(limits.FETCH_SECONDS_MAX), AsyncExitStack() as stack:
                place, response = await self._follow(stack, url, may_follow)
                _check(response, bytes_max)
                media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                filename = unquote(place.path.rsplit("/", 1)[-1])
                charset = response.charset_encoding or ""
                kept = response.headers.get("cache-control", "")
                yield Download(str(place), media_type, filename, _bounded(response, bytes_max), charset, kept)
        except TimeoutError as error:
            raise FetchError(f"it took longer than {limits.FETCH_SECONDS_MAX} seconds") from error

    async def _follow(
        self, stack: AsyncExitStack, url: str, may_follow: Callable[[str], Awaitable[None]] | None
    ) -> tuple[httpx.URL, httpx.Response]:
        """The first answer that is no redirect, and its address."""
        place = _parsed(url)
        for _ in range(limits.FETCH_REDIRECTS_MAX + 1):
            response = await self._ask(stack, place)
            if response.status_code not in _REDIRECTS:
                return place, response
            location = response.headers.get("location", "")
            target = _parsed(str(place.join(location)) if location else "")
            if place.scheme == "https" and target.scheme != "https":
                raise FetchError("it redirects from https to http")
            if may_follow is not None:
                await may_follow(str(target))
            place = target
        raise FetchError(f"it redirects more than {limits.FETCH_REDIRECTS_MAX} times")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> int:
        """Send a body to a URL; the answer is the status, and nothing of what else comes is read. A redirection is an answer like any
        other. Clear text goes only to private ranges that the operator has opened. Raises :class:`FetchError`."""
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as stack:
                return (await self._posted(stack, url, body, headers)).status_code
        except TimeoutError as error:
            raise FetchError(f"it took longer than {seconds:g} seconds") from error

    async def exchange(self, url: str, body: bytes, headers: Mapping[str, str], *, bytes_max: int, seconds: float) -> tuple[int, bytes]:
        """Send a body as :meth:`post` does; the answer is the status, and the body behind it. Raises :class:`FetchError`."""
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as stack:
                response = await self._posted(stack, url, body, headers)
                _check_length(response, bytes_max)
                return response.status_code, b"".join([chunk async for chunk in _bounded(response, bytes_max)])
        except TimeoutError as error:
            raise FetchError(f"it took longer than {seconds:g} seconds") from error

    async def _posted(self, stack: AsyncExitStack, url: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        place = _parsed(url)
        addresses = await self.admitted(place.raw_host.decode("ascii"), _port(place))
        if place.scheme != "https" and not self._are_opened(addresses):
            raise FetchError(_CLEAR_TEXT)
        return await self._sent(stack, "POST", place, addresses, headers, body)

    async def ask(
        self, url: str, *, method: str, headers: Mapping[str, str], body: bytes | None = None, bytes_max: int, seconds: float
    ) -> bytes:
        """What a server answers that the operator has named: it may be a private one, on any port. No redirection is followed: the
        headers, which hold a key, would go along. Raises :class:`FetchError`."""
        sent = self.asked(url, method=method, headers=headers, body=body, bytes_max=bytes_max, seconds=seconds)
        async with sent as reply:
            if reply.status != httpx.codes.OK:
                raise FetchRefused(reply.status)
            return b"".join([chunk async for chunk in reply.chunks])

    @asynccontextmanager
    async def asked(
        self, url: str, *, method: str, headers: Mapping[str, str], body: bytes | None = None, bytes_max: int, seconds: float
    ) -> AsyncIterator[Reply]:
        """The same as it comes, with any status; use as ``async with``. Raises :class:`FetchError`."""
        place = _parsed(url)
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as stack:
                addresses = await self.admitted(place.raw_host.decode("ascii"), _port(place), is_operators=True)
                response = await self._sent(stack, method, place, addresses, headers, body, silence=seconds)
                _check_length(response, bytes_max)
                media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                yield Reply(response.status_code, media_type, _bounded(response, bytes_max))
        except TimeoutError as error:
            raise FetchError(f"it took longer than {seconds:g} seconds") from error

    def check(self, url: str) -> None:
        """Check a URL for :meth:`post` before its name is looked up. Raises :class:`FetchError`."""
        place = _parsed(url)
        host = place.raw_host.decode("ascii")
        if place.scheme != "https" and not self.allowed_networks:
            raise FetchError(_CLEAR_TEXT)
        if _port(place) not in self.ports:
            raise FetchError(f"port {_port(place)} is not allowed; MOORAGE_EGRESS_PORTS names those that are")
        if is_ip_literal(host) and classify(host.strip("[]"), self.own_networks) is not None:
            raise FetchError(_LITERAL)

    def _are_opened(self, addresses: list[str]) -> bool:
        return all(classify(address, self.own_networks) is not None for address in addresses)

    async def _ask(self, stack: AsyncExitStack, place: httpx.URL) -> httpx.Response:
        addresses = await self.admitted(place.raw_host.decode("ascii"), _port(place))
        return await self._sent(stack, "GET", place, addresses, {"accept": "*/*"})

    async def _sent(
        self,
        stack: AsyncExitStack,
        method: str,
        place: httpx.URL,
        addresses: list[str],
        headers: Mapping[str, str],
        body: bytes | None = None,
        silence: float = limits.FETCH_SECONDS_MAX,
    ) -> httpx.Response:
        """The answer of the first address that takes the connection, as soon as it begins. ``silence`` is how long nothing may come."""
        # The context loads every certificate of the system: only where it is needed.
        verify: ssl.SSLContext | bool = self.tls() if place.scheme == "https" else False
        timeout = httpx.Timeout(silence, connect=limits.FETCH_CONNECT_SECONDS)
        client = await stack.enter_async_context(
            httpx.AsyncClient(verify=verify, timeout=timeout, trust_env=False, follow_redirects=False)
        )
        named = {
            "host": place.netloc.decode("ascii"),
            "user-agent": "moorage",
            # A compressed answer could grow without bound after it was counted.
            "accept-encoding": "identity",
            **headers,
        }
        extensions = {"sni_hostname": place.raw_host.decode("ascii")}
        problem: httpx.HTTPError | None = None
        for address in addresses[:ADDRESSES_TRIED_MAX]:
            request = client.build_request(method, place.copy_with(host=address), headers=named, content=body, extensions=extensions)
            try:
                response = await client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                problem = error
                continue
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise FetchError("the server did not answer") from error
            stack.push_async_callback(response.aclose)
            return response
        raise FetchError("the server cannot be reached") from problem

    async def admitted(self, host: str, port: int, *, is_operators: bool = False) -> list[str]:
        """The addresses that a connection may go to; the name is looked up here and nowhere else. Raises :class:`FetchError`.

        ``is_operators``: the operator has named this very place, so it may be a private one, on any port.
        """
        if is_operators:
            return await self._judged(host, port, _ANYWHERE)
        if port not in self.ports:
            raise FetchError(f"port {port} is not allowed")
        return await self._judged(host, port, () if is_ip_literal(host) else self.allowed_networks)

    async def _judged(self, host: str, port: int, opened: tuple[str, ...]) -> list[str]:
        """The host's addresses. One that is refused refuses the name: an honest one has no private addresses beside public ones."""
        addresses = await self.addresses(host, port)
        for address in addresses:
            own = () if opened is _ANYWHERE else self.own_networks
            if classify(address, own, opened) is not None:
                raise FetchError("its host is not a public address")
        if not addresses:
            raise FetchError("its host has no address")
        if self.heard is not None:
            self.heard(host)
        return addresses


def host_of(url: str) -> str:
    """The host that a connection for this URL would be made to, in lower-case ASCII; empty if it names none. Whoever judges a URL by
    its host asks here: other parsers leave an internationalised name as it is written."""
    try:
        return httpx.URL(url).raw_host.decode("ascii").lower().removesuffix(".")
    except (httpx.InvalidURL, ValueError):
        return (urlsplit(url).hostname or "").removesuffix(".")


def _parsed(url: str) -> httpx.URL:
    try:
        place = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise FetchError("it is not a valid URL") from error
    if place.scheme not in ("http", "https"):
        raise FetchError("only http and https are allowed")
    if not place.raw_host:
        raise FetchError("it names no host")
    if place.userinfo:
        raise FetchError("it must not hold a user name or password")
    return place.copy_with(fragment=None)


def _port(place: httpx.URL) -> int:
    return place.port or (443 if place.scheme == "https" else 80)


def _check(response: httpx.Response, bytes_max: int) -> None:
    if response.status_code != httpx.codes.OK:
        raise FetchRefused(response.status_code)
    _check_length(response, bytes_max)


def _check_length(response: httpx.Response, bytes_max: int) -> None:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise FetchError("the server sent it compressed without being asked")
    length = response.headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        raise FetchError(f"it is larger than {bytes_max} bytes")


async def _bounded(response: httpx.Response, bytes_max: int) -> AsyncIterator[bytes]:
    size = 0
    try:
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > bytes_max:
                raise FetchError(f"it is larger than {bytes_max} bytes")
            yield chunk
    except httpx.HTTPError as error:
        raise FetchError("the server broke off") from error
