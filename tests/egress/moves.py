"""What attacks are made of: the secrets to be had, the steps of somebody inside a container, and what each must come to."""

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from moorage.egress.policy import EgressReason

from tests.egress.arena import ALLOWED, ECHO
from tests.egress.conftest import Opened

VALUES: Final = {
    "API_KEY": "sk-live-" + "4f9d2b7c81e6a05d",
    "BASIC_KEY": "pw-" + "c0ffee/+zz==decade",
    "QUERY_KEY": "q-" + "77aa/88bb&99cc",
    "SCOPED_KEY": "sc-" + "0123456789abcdef",
    "BAD_KEY": "bad-" + "fedcba9876543210",
    "SELF_KEY": "self-" + "1122334455667788",
}
HOMES: Final = dict.fromkeys(VALUES.values(), ECHO)
"""Value to the one address that may see it."""

SECRETS: Final[list[dict[str, Any]]] = [
    {"domain": "echo.example", "name": "API_KEY", "value": VALUES["API_KEY"]},
    {"domain": "basic.example", "name": "BASIC_KEY", "value": VALUES["BASIC_KEY"], "places": ["headers", "basic_auth"]},
    {"domain": "query.example", "name": "QUERY_KEY", "value": VALUES["QUERY_KEY"], "places": ["query"]},
    {
        "domain": "scoped.example",
        "name": "SCOPED_KEY",
        "value": VALUES["SCOPED_KEY"],
        "methods": ["POST"],
        "path_prefixes": ["/echo/v1"],
    },
    {"domain": "badcert.example", "name": "BAD_KEY", "value": VALUES["BAD_KEY"]},
    {"domain": "selfsigned.example", "name": "SELF_KEY", "value": VALUES["SELF_KEY"]},
]
DOMAINS: Final = (
    *("allowed.example", "*.pkg.example", "xn--bcher-kva.example", "port.example", "redirect.example", "twin.example"),
    *("echo.example", "basic.example", "query.example", "scoped.example", "badcert.example", "selfsigned.example"),
    *("private.example", "home.example", "cgnat.example", "meta.example", "taskmeta.example", "meta6.example", "loop.example"),
    *("loop6.example", "zero.example", "zero6.example", "multicast.example", "broadcast.example", "mapped.example"),
    *("nat64.example", "sixtofour.example", "linklocal.example", "ula.example", "own.example", "benchmark.example"),
    *("mixed.example", "six.example", "silent.example", "rebind.example", "nowhere.example"),
)

Steps = list[list[Any]]


@dataclass(frozen=True)
class Expected:
    says: str = ""
    """In the last thing that was heard."""
    reason: EgressReason | None = None
    """Logged by the proxy; None: mitmproxy refuses by itself what it cannot read."""
    reaches: frozenset[str] = frozenset()
    hears_not: str = ""


@dataclass(frozen=True)
class Attack:
    steps: Callable[[Opened], Steps]
    expected: Expected
    seconds: float = 5


def refused(reason: EgressReason | None, status: int = 403, reaches: str = "") -> Expected:
    return Expected(f"HTTP/1.1 {status} ", reason, frozenset([reaches] if reaches else []))


def connect_line(box: Opened, authority: str, auth: str | None = None) -> str:
    credential = box.basic if auth is None else auth
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic {credential}\r\n\r\n"


def connects(authority: str, expected: Expected) -> Attack:
    return Attack(lambda box: [["send", connect_line(box, authority)], ["head"]], expected)


def plain(request: str, expected: Expected) -> Attack:
    """A request to the proxy itself; ``{auth}`` is the credential, ``{NAME}`` a placeholder."""
    return Attack(lambda box: [["send", fill(request, box)], ["read", 1]], expected)


def fill(text: str, box: Opened) -> str:
    for name, placeholder in box.placeholders.items():
        text = text.replace("{" + name + "}", placeholder)
    return text.replace("{auth}", f"Proxy-Authorization: Basic {box.basic}\r\n").replace("\n", "\r\n").replace("\r\r", "\r")


def inside(host: str, request: str, expected: Expected, *, sni: str | None = None, alpn: list[str] | None = None) -> Attack:
    """A request through CONNECT and TLS."""

    def steps(box: Opened) -> Steps:
        handshake = ["tls", host if sni is None else sni, *([alpn] if alpn else [])]
        return [["send", connect_line(box, f"{host}:443")], ["head"], handshake, ["send", fill(request, box)], ["read", 0.7]]

    return Attack(steps, expected)


def get(host: str, path: str = "/echo", headers: str = "") -> str:
    return f"GET {path} HTTP/1.1\nHost: {host}\nConnection: close\n{headers}\n"


def hello(sni: bytes | None, *, extra: bytes = b"", twice: bool = False, names: int = 1) -> bytes:
    """A ClientHello written by hand, for what a TLS library would not send."""
    one = b"\x00" + struct.pack("!H", len(sni or b"")) + (sni or b"")
    listed = one * names
    server_name = b"" if sni is None else struct.pack("!HHH", 0, len(listed) + 2, len(listed)) + listed
    extensions = server_name * (2 if twice else 1) + extra
    body = b"\x03\x03" + b"r" * 32 + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00" + struct.pack("!H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(message)) + message


def sends_hello(data: bytes, expected: Expected, host: str = "allowed.example") -> Attack:
    def steps(box: Opened) -> Steps:
        return [
            ["send", connect_line(box, f"{host}:443")],
            ["head"],
            ["send64", base64.b64encode(data).decode()],
            ["read", 2],
        ]

    return Attack(steps, expected)


ALERT = "\x15\x03\x03\x00\x02\x02\x70"
ECH = struct.pack("!HH", 0xFE0D, 4) + b"\x00\x00\x00\x00"
TO_ALLOWED, TO_ECHO = frozenset([ALLOWED]), frozenset([ECHO])
OK = "HTTP/1.1 200 OK"
