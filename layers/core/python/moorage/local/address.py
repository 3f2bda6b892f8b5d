"""Where a local stack serves: this machine alone, or, over TLS, others too.

Inside a container ``MOORAGE_PUBLISHED`` says under which address the container's engine publishes the port. The stack then listens at
all addresses of the container and tells its clients that one. The port is the same on both sides, so that the URL holds inside too.
"""

import ipaddress
import os
import socket
import ssl
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson

from moorage.dataclass import dataclass
from moorage.errors import ApiError, SettingsConflict
from moorage.settings import api_port

_LOOPBACK = "127.0.0.1"
_ANY = "0.0.0.0"
_INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True, slots=True)
class Address:
    host: str = _LOOPBACK
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    listens_at: str | None = None
    """Where it is another than ``host``, which is then the host that a container's engine publishes it at."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], interfaces: Path = _INTERFACES) -> "Address":
        """Refuses to serve other machines in clear: keys and files would be anybody's on the way. Raises :class:`SettingsConflict`."""
        names = ("HOST", "TLS_CERT", "TLS_KEY", "PUBLISHED")
        host, certificate, key, published = (environ.get(f"MOORAGE_{name}") or None for name in names)
        if (certificate is None) != (key is None):
            raise SettingsConflict(
                "TLS takes a certificate and its key: --tls-cert (MOORAGE_TLS_CERT) and --tls-key (MOORAGE_TLS_KEY)."
            )
        if published is None:
            address = cls(host or _LOOPBACK, api_port(environ), _path(certificate), _path(key))
        else:
            address = cls(*_published(published, environ, interfaces), _path(certificate), _path(key), _ANY)
        if not address.is_loopback and certificate is None:
            raise SettingsConflict(
                f"{address.host} can be reached from other machines, which takes TLS: give --tls-cert and --tls-key, or serve "
                "127.0.0.1 behind a server that speaks TLS."
            )
        return address

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def tls(self) -> dict[str, Any]:
        """Arguments of uvicorn's configuration."""
        return {} if self.certificate is None else {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}

    def check_certificate(self) -> None:
        """It reads the private key. Raises :class:`SettingsConflict`."""
        if self.certificate is None or self.key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsConflict(f"The certificate {self.certificate} cannot be used with the key {self.key}: {error}.") from error

    def url(self, port: int) -> str:
        host = self.host if self.certificate is not None and not _is_any(self.host) else _LOOPBACK
        host = f"[{host}]" if ":" in host else host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{port}/v1"

    @property
    def warning(self) -> str | None:
        """Further requirements if other machines are served."""
        if self.is_loopback:
            return None
        return (
            f"moorage: Other machines can reach {self.host}. Everyone with an API key runs commands here, as this user's sandboxes "
            "allow: give each person a key of their own ('moorage keys create'), let a firewall admit only those you know, and set "
            "MOORAGE_REQUESTS_PER_MINUTE. SECURITY.md says what the sandboxes hold."
        )

    def bound(self) -> socket.socket:
        """Taken before anything is started. Nobody is let in before it serves."""
        family = socket.AF_INET6 if ":" in (self.listens_at or self.host) else socket.AF_INET
        # asyncio sends at once (TCP_NODELAY) only where the socket names its protocol; else an event may wait 40 ms.
        listener = socket.socket(family, proto=socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.listens_at or self.host, self.port))
        except OSError as error:
            listener.close()
            said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise SettingsConflict(
                f"Port {self.port} cannot be had: {said}. MOORAGE_PORT or 'moorage up --port' takes another; 0 is any free one."
            ) from error
        return listener


def _published(text: str, environ: Mapping[str, str], interfaces: Path) -> tuple[str, int]:
    """The host and the port that the engine publishes."""
    parts = _split(f"//{text}")
    if parts is None or parts.netloc != text or "@" in text or not parts.hostname or not parts.port:
        raise SettingsConflict(f"MOORAGE_PUBLISHED takes a host and a port such as 127.0.0.1:8080, not '{text}'.")
    if environ.get("MOORAGE_HOST"):
        raise SettingsConflict("MOORAGE_PUBLISHED serves at all addresses of a container: take MOORAGE_HOST out, or MOORAGE_PUBLISHED.")
    if environ.get("MOORAGE_PORT") and api_port(environ) != parts.port:
        port = environ["MOORAGE_PORT"]
        raise SettingsConflict(
            f"MOORAGE_PORT is {port} and MOORAGE_PUBLISHED is {text}: the port is the same inside of a container and outside."
        )
    if not has_own_network(interfaces):
        raise SettingsConflict(
            "MOORAGE_PUBLISHED is for a container with a network of its own, and the network here is the machine's: others would be "
            "served in clear. Give the container its own network and publish the port ('docker run -p'), or take MOORAGE_PUBLISHED out."
        )
    return parts.hostname, parts.port


def has_own_network(interfaces: Path) -> bool:
    """Whether none of the interfaces in ``/sys/class/net`` is the machine's: an adapter has a device, and a bridge, a wireless or a
    macvlan interface names its type. The end of a container's own pair (veth) has neither."""
    try:
        found = [each for each in interfaces.iterdir() if each.name != "lo"]
        return not any((each / "device").exists() or "DEVTYPE=" in (each / "uevent").read_text() for each in found)
    except OSError:
        return False


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")


class LocalOriginGuard:
    """In front of an API that serves this machine alone: web pages and names that were rebound to 127.0.0.1 stay outside. Pages of
    the origins that the operator names come in.

    They would need a key; but what needs no door has none. ``Origin`` and ``Sec-Fetch-Site`` are written by browsers and cannot be
    changed by a page.
    """

    def __init__(self, app: Any, origins: Collection[str] = (), landings: Collection[str] = ()) -> None:
        """``landings`` are the paths of redirections from other sites, such as the issuer of a sign-in."""
        self._app = app
        self._origins = frozenset(origins)
        self._landings = frozenset(landings)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket") or _is_from_here(scope["headers"], self._origins, self._lands(scope)):
            await self._app(scope, receive, send)
            return
        message = "This stack serves this machine alone, and no web page. 'moorage up --host' serves others."
        error = ApiError(403, message, code="foreign_origin")
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": error.message[:120]})
            return
        body = orjson.dumps(error.envelope())
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _lands(self, scope: Any) -> bool:
        """A navigation of the browser itself: no page sees its answer."""
        is_whole_page = (b"sec-fetch-mode", b"navigate") in scope["headers"] and (b"sec-fetch-dest", b"document") in scope["headers"]
        return scope.get("method") == "GET" and scope["path"] in self._landings and is_whole_page


def _is_from_here(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str], lands: bool) -> bool:
    said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    if not _is_local_name(f"//{said.get('host', '')}"):
        return False
    if said.get("origin") in origins:
        return True
    if not lands and said.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    return "origin" not in said or _is_local_name(said["origin"])


def _is_local_name(url: str) -> bool:
    parts = _split(url)
    return parts is not None and Address(parts.hostname or "").is_loopback


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises too
    except ValueError:
        return None
    return parts
