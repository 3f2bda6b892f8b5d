"""What somebody inside a container may try, from inside a real sandbox, against the real proxy.

Each row is one attempt. It says what answer it must get, which reason the proxy must log, and which servers may have been reached;
anything else that was reached is an escape. After every row, and once more at the end over everything there is, the secrets' values
must have been seen by nobody but their own hosts.
"""

import base64
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from moorage import limits
from moorage.egress.policy import Reason

from tests.egress.arena import ALLOWED, ECHO, HOSTS, REDIRECT, TWIN, V6
from tests.egress.conftest import TENANT, ArenaClient, Opened, Sandbox, wait_until

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


@pytest.fixture(scope="module")
def box(arena: ArenaClient) -> Opened:
    return arena.open(*DOMAINS, secrets=SECRETS)


@dataclass(frozen=True)
class Expected:
    says: str = ""
    """In the last thing that was heard."""
    reason: Reason | None = None
    """Logged by the proxy; None: mitmproxy refuses by itself what it cannot read."""
    reaches: frozenset[str] = frozenset()
    hears_not: str = ""


@dataclass(frozen=True)
class Attack:
    steps: Callable[[Opened], Steps]
    expected: Expected
    seconds: float = 5


def refused(reason: Reason | None, status: int = 403, reaches: str = "") -> Expected:
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

NAMES: dict[str, tuple[str, Expected]] = {
    "a forbidden host": ("forbidden.example:443", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "a forbidden host on port 80": ("forbidden.example:80", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "the base of a wildcard": ("pkg.example:443", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "an allowed name as a prefix": ("allowed.example.evil.example:443", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "an allowed name as a suffix": ("evil-allowed.example:443", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "a look-alike in punycode": ("xn--llowed-hta.example:443", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "punycode below a wildcard": ("xn--pg-via.pkg.example:443", refused(Reason.PUNYCODE_NOT_LISTED)),
    "a look-alike in UTF-8": ("\u00e0llowed.example:443", refused(None, 400)),
    "localhost": ("localhost:443", refused(Reason.DOMAIN_NOT_ALLOWED)),
    "a public address": ("93.184.216.36:443", refused(Reason.IP_LITERAL)),
    "the address of an allowed host": (f"{ALLOWED}:443", refused(Reason.IP_LITERAL)),
    "loopback": ("127.0.0.1:443", refused(Reason.IP_LITERAL)),
    "loopback in short": ("127.1:443", refused(Reason.IP_LITERAL)),
    "loopback in decimal": ("2130706433:443", refused(Reason.IP_LITERAL)),
    "loopback in hexadecimal": ("0x7f000001:443", refused(Reason.IP_LITERAL)),
    "loopback in octal": ("0177.0.0.1:443", refused(Reason.IP_LITERAL)),
    "the metadata service": ("169.254.169.254:80", refused(Reason.IP_LITERAL)),
    "the metadata service in decimal": ("2852039166:80", refused(Reason.IP_LITERAL)),
    "the task metadata service": ("169.254.170.2:80", refused(Reason.IP_LITERAL)),
    "an IPv6 address": (f"[{V6}]:443", refused(Reason.IP_LITERAL)),
    "IPv6 loopback": ("[::1]:443", refused(Reason.IP_LITERAL)),
    "a mapped address": ("[::ffff:169.254.169.254]:80", refused(Reason.IP_LITERAL)),
    "an IPv6 address with a zone": ("[fe80::1%lo]:443", refused(Reason.IP_LITERAL)),
    "port 22": ("allowed.example:22", refused(Reason.PORT_NOT_ALLOWED)),
    "port 8080": ("allowed.example:8080", refused(Reason.PORT_NOT_ALLOWED)),
    "port 65535": ("allowed.example:65535", refused(Reason.PORT_NOT_ALLOWED)),
    "port 70000": ("allowed.example:70000", refused(None, 400)),
    "no port": ("allowed.example", refused(None, 400)),
    "a percent-encoded dot": ("allowed%2eexample:443", refused(None, 400)),
    "user information": ("allowed.example@forbidden.example:443", refused(None, 400)),
    "two trailing dots": ("allowed.example..:443", refused(None, 400)),
    "a name that resolves to a private address": ("private.example:443", refused(Reason.ADDRESS_PRIVATE)),
    "a name at home": ("home.example:80", refused(Reason.ADDRESS_PRIVATE)),
    "a name behind a carrier's NAT": ("cgnat.example:443", refused(Reason.ADDRESS_SHARED)),
    "a name of the metadata service": ("meta.example:80", refused(Reason.ADDRESS_METADATA)),
    "a name of the task metadata service": ("taskmeta.example:80", refused(Reason.ADDRESS_METADATA)),
    "a name of the metadata service in IPv6": ("meta6.example:80", refused(Reason.ADDRESS_METADATA)),
    "a name of loopback": ("loop.example:80", refused(Reason.ADDRESS_LOOPBACK)),
    "a name of IPv6 loopback": ("loop6.example:80", refused(Reason.ADDRESS_LOOPBACK)),
    "a name of 0.0.0.0": ("zero.example:80", refused(Reason.ADDRESS_UNSPECIFIED)),
    "a name of ::": ("zero6.example:80", refused(Reason.ADDRESS_UNSPECIFIED)),
    "a name of a multicast group": ("multicast.example:80", refused(Reason.ADDRESS_MULTICAST)),
    "a name of broadcast": ("broadcast.example:80", refused(Reason.ADDRESS_RESERVED)),
    "a name of a mapped address": ("mapped.example:80", refused(Reason.ADDRESS_EMBEDDED_IPV4)),
    "a name behind NAT64": ("nat64.example:80", refused(Reason.ADDRESS_EMBEDDED_IPV4)),
    "a name behind 6to4": ("sixtofour.example:80", refused(Reason.ADDRESS_EMBEDDED_IPV4)),
    "a link-local name": ("linklocal.example:80", refused(Reason.ADDRESS_LINK_LOCAL)),
    "a unique local name": ("ula.example:80", refused(Reason.ADDRESS_PRIVATE)),
    "a name in the deployment's own network": ("own.example:443", refused(Reason.ADDRESS_OWN_NETWORK)),
    "a name in a benchmarking range": ("benchmark.example:443", refused(Reason.ADDRESS_RESERVED)),
    "an allowed name that does not exist": ("nowhere.example:443", refused(Reason.UNRESOLVABLE, 502)),
}

ATTACKS: dict[str, Attack] = {
    **{f"CONNECT to {name}": connects(authority, expected) for name, (authority, expected) in NAMES.items()},
    # --- The credential ---
    "CONNECT without a credential": Attack(
        lambda box: [["send", "CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\n\r\n"], ["head"]],
        refused(Reason.CREDENTIAL_MISSING, 407),
    ),
    "CONNECT with a wrong credential": Attack(
        lambda box: [["send", connect_line(box, "allowed.example:443", base64.b64encode(b"cntr_1:wrong").decode())], ["head"]],
        refused(Reason.CREDENTIAL_UNKNOWN, 407),
    ),
    "CONNECT with the credential of another container's name": Attack(
        lambda box: [
            ["send", connect_line(box, "allowed.example:443", base64.b64encode(f"cntr_x:{box.password}".encode()).decode())],
            ["head"],
        ],
        refused(Reason.CREDENTIAL_UNKNOWN, 407),
    ),
    "CONNECT with a credential that is no base64": Attack(
        lambda box: [["send", connect_line(box, "allowed.example:443", "!!!")], ["head"]], refused(Reason.CREDENTIAL_MISSING, 407)
    ),
    "CONNECT with two credentials": Attack(
        lambda box: [
            ["send", connect_line(box, "allowed.example:443").replace("\r\n\r\n", "\r\nProxy-Authorization: Basic eDp5\r\n\r\n")],
            ["head"],
        ],
        refused(Reason.CREDENTIAL_MISSING, 407),
    ),
    "a plain request without a credential": plain(
        get("allowed.example", "http://allowed.example/"), refused(Reason.CREDENTIAL_MISSING, 407)
    ),
    # --- TLS: the name inside must be the name outside ---
    "SNI of a forbidden host": inside(
        "allowed.example",
        get("forbidden.example"),
        Expected("unrecognized name", Reason.SNI_MISMATCH, TO_ALLOWED),
        sni="forbidden.example",
    ),
    "SNI of another allowed host": inside(
        "allowed.example", get("twin.example"), Expected("unrecognized name", Reason.SNI_MISMATCH, TO_ALLOWED), sni="twin.example"
    ),
    "no SNI": inside("allowed.example", get("allowed.example"), Expected("unrecognized name", Reason.SNI_MISSING, TO_ALLOWED), sni=""),
    "no SNI to a host with a secret": inside(
        "echo.example", get("echo.example"), Expected("unrecognized name", Reason.SNI_MISSING, TO_ECHO), sni=""
    ),
    "an encrypted hello": sends_hello(hello(b"allowed.example", extra=ECH), Expected(ALERT, Reason.ENCRYPTED_CLIENT_HELLO, TO_ALLOWED)),
    "two SNI extensions": sends_hello(hello(b"allowed.example", twice=True), Expected(ALERT, Reason.MALFORMED, TO_ALLOWED)),
    "two names in SNI": sends_hello(hello(b"allowed.example", names=2), Expected(ALERT, Reason.MALFORMED, TO_ALLOWED)),
    "an SNI with a NUL": sends_hello(hello(b"allowed.example\0.evil"), Expected(ALERT, Reason.SNI_MISMATCH, TO_ALLOWED)),
    "an SNI that is an address": sends_hello(hello(ALLOWED.encode()), Expected(ALERT, Reason.SNI_MISMATCH, TO_ALLOWED)),
    "an SNI in UTF-8": sends_hello(hello("\u00e0llowed.example".encode()), Expected(ALERT, Reason.MALFORMED, TO_ALLOWED)),
    "a hello with data behind it": sends_hello(
        hello(b"allowed.example")[:3]
        + struct.pack("!H", len(hello(b"allowed.example")) - 5 + 4)
        + hello(b"allowed.example")[5:]
        + b"\x01\x00\x00\x00",
        Expected(ALERT, Reason.MALFORMED, TO_ALLOWED),
    ),
    "a record that is too long": sends_hello(b"\x16\x03\x01\xff\xff" + b"\x01" * 100, Expected(ALERT, Reason.MALFORMED, TO_ALLOWED)),
    "a TLS alert first": sends_hello(b"\x15\x03\x01\x00\x02\x02\x28", Expected("", Reason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "SSLv2": sends_hello(b"\x80\x2e\x01\x00\x02" + b"\x00" * 41, Expected("", Reason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "ssh through CONNECT": sends_hello(b"SSH-2.0-OpenSSH_9.9\r\n", Expected("", Reason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "ssh to an operator's port": Attack(
        lambda box: [["send", connect_line(box, "port.example:8443")], ["head"], ["read", 2]],
        Expected("", Reason.NOT_TLS_OR_HTTP, TO_ALLOWED, hears_not="SSH-2.0"),
    ),
    "binary through CONNECT": sends_hello(b"\x00\x01\x02\x03" * 8, Expected("", Reason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "HTTP/2 with prior knowledge through CONNECT": sends_hello(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Expected("", Reason.HOST_HEADER_MISSING, TO_ALLOWED)
    ),
    "an upstream whose certificate is for another name": inside(
        "badcert.example", get("badcert.example", headers="X: {BAD_KEY}\n"), Expected("502", Reason.ALLOWED_EXACT, TO_ECHO)
    ),
    "an upstream with a certificate of its own": inside(
        "selfsigned.example", get("selfsigned.example", headers="X: {SELF_KEY}\n"), Expected("502", Reason.ALLOWED_EXACT, TO_ECHO)
    ),
    # --- Host: what is inside an opened connection, and plain requests ---
    "a forbidden Host inside TLS": inside(
        "echo.example", get("forbidden.example"), Expected("HTTP/1.1 403", Reason.HOST_HEADER_MISMATCH, TO_ECHO)
    ),
    "another allowed Host inside TLS": inside(
        "echo.example", get("twin.example", headers="X: {API_KEY}\n"), Expected("HTTP/1.1 403", Reason.HOST_HEADER_MISMATCH, TO_ECHO)
    ),
    "no Host inside TLS": inside(
        "echo.example", "GET /echo HTTP/1.1\nX: {API_KEY}\n\n", Expected("HTTP/1.1 403", Reason.HOST_HEADER_MISSING, TO_ECHO)
    ),
    "two Hosts inside TLS": inside(
        "echo.example",
        "GET /echo HTTP/1.1\nHost: echo.example\nHost: forbidden.example\n\n",
        Expected("HTTP/1.1 403", Reason.HOST_HEADER_MISSING, TO_ECHO),
    ),
    "an absolute URL of another host inside TLS": inside(
        "echo.example",
        "GET https://forbidden.example/echo HTTP/1.1\nHost: echo.example\n\n",
        Expected("HTTP/1.1 403", Reason.HOST_HEADER_MISSING, TO_ECHO),
    ),
    "CONNECT inside TLS": inside(
        "echo.example",
        "CONNECT forbidden.example:443 HTTP/1.1\nHost: forbidden.example:443\n{auth}\n",
        Expected("HTTP/1.1 400", Reason.MALFORMED, TO_ECHO),
    ),
    "a forbidden host in a plain request": plain(
        get("forbidden.example", "http://forbidden.example/", "{auth}"), refused(Reason.DOMAIN_NOT_ALLOWED)
    ),
    "a forbidden URL with an allowed Host": plain(
        get("allowed.example", "http://forbidden.example/", "{auth}"), refused(Reason.DOMAIN_NOT_ALLOWED)
    ),
    "an allowed URL with a forbidden Host": plain(
        get("forbidden.example", "http://allowed.example/", "{auth}"), refused(Reason.HOST_HEADER_MISMATCH)
    ),
    "an allowed URL without Host": plain("GET http://allowed.example/ HTTP/1.1\n{auth}\n", refused(Reason.HOST_HEADER_MISSING)),
    "a URL with user information": plain(
        get("allowed.example", "http://allowed.example@forbidden.example/", "{auth}"), refused(None, 400)
    ),
    "a URL with a backslash": plain(
        get("allowed.example", "http://forbidden.example\\@allowed.example/", "{auth}"), refused(None, 400)
    ),
    "an https URL in a plain request": plain(
        get("echo.example", "https://echo.example/echo", "{auth}X: {API_KEY}\n"), refused(Reason.MALFORMED, 400)
    ),
    "an ftp URL": plain(get("allowed.example", "ftp://allowed.example/", "{auth}"), refused(None, 400)),
    "a relative URL with a forbidden Host": plain(get("forbidden.example", "/", "{auth}"), refused(Reason.DOMAIN_NOT_ALLOWED)),
    "the metadata service in a plain request": plain(
        get("169.254.169.254", "http://169.254.169.254/latest/meta-data/", "{auth}"), refused(Reason.IP_LITERAL)
    ),
    "the metadata service by its name": plain(
        get("meta.example", "http://meta.example/latest/meta-data/", "{auth}"), refused(Reason.ADDRESS_METADATA)
    ),
    "the task's credentials by name": plain(
        get("taskmeta.example", "http://taskmeta.example/v2/credentials/", "{auth}"), refused(Reason.ADDRESS_METADATA)
    ),
    "the proxy itself": plain(get("127.0.0.1:3128", "http://127.0.0.1:3128/", "{auth}"), refused(Reason.IP_LITERAL)),
    "mitmproxy's own page": plain(get("mitm.it", "http://mitm.it/", "{auth}"), refused(Reason.DOMAIN_NOT_ALLOWED)),
    "a second request on one connection": Attack(
        lambda box: [
            ["send", fill(get("allowed.example", "http://allowed.example/1", "{auth}").replace("Connection: close\n", ""), box)],
            ["until", "hello from"],
            ["send", fill(get("forbidden.example", "http://forbidden.example/2", "{auth}"), box)],
            ["read", 1],
        ],
        Expected("HTTP/1.1 403", Reason.DOMAIN_NOT_ALLOWED, TO_ALLOWED),
    ),
    "a second request without its credential": Attack(
        lambda box: [
            ["send", fill(get("allowed.example", "http://allowed.example/1", "{auth}").replace("Connection: close\n", ""), box)],
            ["until", "hello from"],
            ["send", fill(get("allowed.example", "http://allowed.example/2"), box)],
            ["read", 1],
        ],
        Expected("HTTP/1.1 407", Reason.CREDENTIAL_MISSING, TO_ALLOWED),
    ),
    "a pipelined request behind an allowed one": Attack(
        lambda box: [
            [
                "send",
                fill(get("allowed.example", "http://allowed.example/1", "{auth}").replace("Connection: close\n", ""), box)
                + fill(get("forbidden.example", "http://forbidden.example/2", "{auth}"), box),
            ],
            ["read", 1.5],
        ],
        Expected("HTTP/1.1 403", Reason.DOMAIN_NOT_ALLOWED, TO_ALLOWED),
    ),
    # --- Smuggling ---
    "both lengths": plain(
        "POST http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Content-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n",
        refused(None, 400),
    ),
    "two lengths": plain(
        "POST http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Content-Length: 5\nContent-Length: 6\n\nabcdef",
        refused(None, 400),
    ),
    "a signed length": plain(
        "POST http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Content-Length: +5\n\nabcde", refused(None, 400)
    ),
    "an unknown transfer coding": plain(
        "POST http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Transfer-Encoding: xchunked\n\n0\n\n", refused(None, 400)
    ),
    "a space before the colon": plain(
        "GET http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Transfer-Encoding : chunked\n\n", refused(None, 400)
    ),
    "a folded header": plain(
        "GET http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}X: a\n Host: forbidden.example\n\n",
        refused(Reason.MALFORMED, 400),
    ),
    "a bare carriage return in a header": Attack(
        lambda box: [
            ["send", fill(get("allowed.example", "http://allowed.example/", "{auth}"), box).replace("close\r\n", "a\rb: c\r\n")],
            ["read", 1],
        ],
        refused(Reason.MALFORMED, 400),
    ),
    "a NUL in a header": plain(get("allowed.example", "http://allowed.example/", "{auth}X: a\0b\n"), refused(Reason.MALFORMED, 400)),
    "a request of version 0.9": plain("GET http://allowed.example/\n\n", refused(None, 400)),
    "headers without end": Attack(
        lambda box: [["send", "GET http://allowed.example/ HTTP/1.1\r\nX: " + "a" * 200_000], ["read", 2]],
        Expected("HTTP/1.1 431"),
    ),
    "a request smuggled in a body": plain(
        "POST http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Content-Length: 62\n\n"
        "GET http://forbidden.example/ HTTP/1.1\nHost: forbidden.example\n\n",
        Expected(OK, Reason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a large body to a forbidden host": plain(
        "POST http://forbidden.example/ HTTP/1.1\nHost: forbidden.example\n{auth}Content-Length: 99999999\n\nx",
        Expected("", Reason.DOMAIN_NOT_ALLOWED),
    ),
    "an endless body to a forbidden host": plain(
        "POST http://forbidden.example/ HTTP/1.1\nHost: forbidden.example\n{auth}Transfer-Encoding: chunked\n\n5\nabcde\n",
        Expected("", Reason.DOMAIN_NOT_ALLOWED),
    ),
    "an upgrade to h2c": plain(
        get("allowed.example", "http://allowed.example/", "{auth}Upgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n"),
        Expected(OK, Reason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a redirect to the metadata service": plain(
        get("redirect.example", "http://redirect.example/redirect?http://169.254.169.254/", "{auth}"),
        Expected("HTTP/1.1 302", Reason.ALLOWED_EXACT, frozenset([REDIRECT])),
    ),
    # --- Placeholders: put in at home, worthless elsewhere ---
    "a placeholder at home": inside(
        "echo.example",
        get("echo.example", headers="Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder at another host with a secret": inside(
        "scoped.example",
        get("scoped.example", headers="X: {API_KEY}\n"),
        Expected("MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder at a host without secrets": inside(
        "twin.example",
        get("twin.example", headers="X: {API_KEY}\n"),
        Expected("MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, frozenset([TWIN])),
    ),
    "a placeholder in plain HTTP": plain(
        get("echo.example", "http://echo.example/echo", "{auth}X: {API_KEY}\n"),
        Expected("MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in plain HTTP through CONNECT": Attack(
        lambda box: [
            ["send", connect_line(box, "echo.example:80")],
            ["head"],
            ["send", fill(get("echo.example", headers="X: {API_KEY}\n"), box)],
            ["read", 1],
        ],
        Expected("MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the body": inside(
        "echo.example",
        "POST /echo HTTP/1.1\nHost: echo.example\nContent-Length: 55\n\n{API_KEY}",
        Expected("MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the query where it was not asked for": inside(
        "echo.example", get("echo.example", "/echo?k={API_KEY}"), Expected("k=MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, TO_ECHO)
    ),
    "a placeholder in the Host": inside(
        "echo.example", get("{API_KEY}.echo.example"), Expected("HTTP/1.1 403", Reason.HOST_HEADER_MISMATCH, TO_ECHO)
    ),
    "a placeholder by TRACE": inside(
        "echo.example",
        "TRACE /echo HTTP/1.1\nHost: echo.example\nX: {API_KEY}\n\n",
        Expected("MOORAGE_SECRET_API_KEY", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder outside its methods": inside(
        "scoped.example",
        get("scoped.example", "/echo/v1/x", "X: {SCOPED_KEY}\n"),
        Expected("X: MOORAGE_SECRET_SCOPED", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder within its scope": inside(
        "scoped.example",
        "POST /echo/v1/x HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: ****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder beside its path": inside(
        "scoped.example",
        "POST /echo/v10/x HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: MOORAGE_SECRET_SCOPED", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder out of its path by dots": inside(
        "scoped.example",
        "POST /echo/v1/../admin HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: MOORAGE_SECRET_SCOPED", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder out of its path by encoded dots": inside(
        "scoped.example",
        "POST /echo/v1/%2e%2e/admin HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: MOORAGE_SECRET_SCOPED", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder out of its path by a double slash": inside(
        "scoped.example",
        "POST //echo/v1/x HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("hello", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the query": inside(
        "query.example", get("query.example", "/echo?k={QUERY_KEY}"), Expected("k=****", Reason.ALLOWED_EXACT, TO_ECHO)
    ),
    # --- Echoes: what comes back is masked ---
    "an echo in headers": inside(
        "echo.example",
        get("echo.example", "/reflect", "Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo in five-byte chunks": inside(
        "echo.example",
        get("echo.example", "/pieces", "Authorization: Bearer {API_KEY}\n"),
        Expected("\r\n0\r\n\r\n", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo packed with gzip": inside(
        "echo.example",
        get("echo.example", "/gzip", "Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo packed with deflate": inside(
        "echo.example",
        get("echo.example", "/deflate", "Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo in base64": inside(
        "echo.example",
        get("echo.example", "/base64", "Authorization: Bearer {API_KEY}\n"),
        Expected("****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo over a WebSocket": inside(
        "echo.example",
        "GET /ws HTTP/1.1\nHost: echo.example\nAuthorization: Bearer {API_KEY}\nUpgrade: websocket\nConnection: Upgrade\n"
        "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n",
        Expected("Bearer ****", None, TO_ECHO),
    ),
    "a WebSocket to a forbidden host": plain(
        "GET http://forbidden.example/ws HTTP/1.1\nHost: forbidden.example\n{auth}Upgrade: websocket\nConnection: Upgrade\n"
        "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n",
        refused(Reason.DOMAIN_NOT_ALLOWED),
    ),
    "a Basic credential with the placeholder inside": Attack(
        lambda box: [
            ["send", connect_line(box, "basic.example:443")],
            ["head"],
            ["tls", "basic.example"],
            [
                "send",
                fill(
                    get(
                        "basic.example",
                        headers="Authorization: Basic "
                        + base64.b64encode(f"user:{box.placeholders['BASIC_KEY']}".encode()).decode()
                        + "\n",
                    ),
                    box,
                ),
            ],
            ["read", 1],
        ],
        Expected("Basic ****", Reason.ALLOWED_EXACT, TO_ECHO),
    ),
    # --- What is meant to work ---
    "an allowed tunnel": inside(
        "allowed.example", get("allowed.example", "/"), Expected("hello from allowed.example", Reason.ALLOWED_EXACT, TO_ALLOWED)
    ),
    "a tunnel below a wildcard": inside(
        "deep.a.pkg.example",
        get("deep.a.pkg.example", "/"),
        Expected("hello from deep.a.pkg.example", Reason.ALLOWED_WILDCARD, TO_ALLOWED),
    ),
    "a tunnel to a listed punycode name": inside(
        "xn--bcher-kva.example",
        get("xn--bcher-kva.example", "/"),
        Expected("hello from xn--bcher-kva", Reason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a plain request to a listed punycode name": plain(
        get("xn--bcher-kva.example", "http://xn--bcher-kva.example/", "{auth}"),
        Expected("hello from xn--bcher", Reason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a tunnel to an IPv6 host": inside(
        "six.example", get("six.example", "/"), Expected("hello from six.example", Reason.ALLOWED_EXACT, frozenset([V6]))
    ),
    "a name with a private and a public address": inside(
        "mixed.example", get("mixed.example", "/"), Expected("hello from mixed.example", Reason.ALLOWED_EXACT, TO_ALLOWED)
    ),
    "an allowed host that does not answer": connects(
        "silent.example:443", Expected("HTTP/1.1 502 'silent.example' is allowed, but the connection", Reason.ALLOWED_EXACT)
    ),
    "HTTP/2 to a host with a secret": inside(
        "echo.example", "PRI * HTTP/2.0\n\nSM\n\n\0\0\0\4\0\0\0\0\0", Expected("", None, TO_ECHO), alpn=["h2", "http/1.1"]
    ),
}


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 80


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_escapes_by(name: str, arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    attack = ATTACKS[name]
    arena("clear")
    offset = arena.log_file.stat().st_size
    heard = sandbox.talk(*attack.steps(box), seconds=attack.seconds)
    said = "".join(text for text, _ in heard)
    last = heard[-1][0] if heard else ""
    assert attack.expected.says.lower() in (said if attack.expected.reason is None else last).lower()
    if attack.expected.hears_not:
        assert attack.expected.hears_not not in said
    if attack.expected.reason is not None:
        arena.wait_for_line(offset, lambda line: line.get("reason") == attack.expected.reason)
    # A server notes a connection when it gets round to it, which may be after the proxy has closed it again.
    wait_until(lambda: attack.expected.reaches <= {note["address"] for note in arena("seen")})
    seen = arena("seen")
    assert {note["address"] for note in seen} == attack.expected.reaches
    assert_secrets_stay_home(seen, said)


def assert_secrets_stay_home(seen: list[dict[str, Any]], heard: str) -> None:
    for value, home in HOMES.items():
        assert all(note["address"] == home for note in seen if value in note.get("raw", "")), "a secret was seen abroad"
        forms = (value, value.encode().hex(), base64.b64encode(value.encode()).decode()[:16])
        assert not any(form in heard for form in forms), "a secret came back into the sandbox"


def test_the_values_do_arrive_at_home(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    arena("clear")
    for name in (
        "a placeholder at home",
        "a Basic credential with the placeholder inside",
        "a placeholder within its scope",
        "a placeholder in the query",
    ):
        sandbox.talk(*ATTACKS[name].steps(box))
    raw = "".join(note["raw"] for note in arena("seen"))
    basic = base64.b64encode(f"user:{VALUES['BASIC_KEY']}".encode()).decode()
    assert [text in raw for text in (VALUES["API_KEY"], basic, VALUES["SCOPED_KEY"], "k=q-77aa%2F88bb%2699cc")] == [True] * 4


DIRECT = {
    f"{kind} to {what}": (kind, address, port)
    for kind in ("tcp", "udp")
    for what, address, port in (
        ("a public host", ALLOWED, 443),
        ("a DNS server", "9.9.9.9", 53),
        ("the metadata service", "169.254.169.254", 80),
        ("the task metadata service", "169.254.170.2", 80),
        ("a private host", "10.0.0.5", 22),
        ("IPv6", V6, 443),
    )
}


@pytest.mark.parametrize(("kind", "address", "port"), DIRECT.values(), ids=DIRECT.keys())
def test_nothing_leaves_without_the_proxy(kind: str, address: str, port: int, arena: ArenaClient, sandbox: Sandbox) -> None:
    arena("clear")
    assert sandbox.order("direct", kind=kind, address=address, port=port) == "Network is unreachable"
    assert arena("seen") == []


def test_raw_packets_and_name_lookups_fail_at_once(sandbox: Sandbox) -> None:
    assert sandbox.order("direct", kind="raw", address="9.9.9.9", port=0) == "Operation not permitted"
    assert isinstance(sandbox.order("resolve", host="allowed.example"), str)


def test_a_name_that_is_bound_anew_is_judged_anew(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    request = fill(get("rebind.example", "http://rebind.example/", "{auth}"), box)
    try:
        said = []
        for address in (ALLOWED, "127.0.0.1", "169.254.169.254", "10.0.0.5", ALLOWED):
            arena("hosts", text=HOSTS.replace(f"{ALLOWED} rebind.example", f"{address} rebind.example"))
            arena("clear")
            said.append((sandbox.talk(["send", request], ["read", 1])[0][0].split(" ")[1], [note["address"] for note in arena("seen")]))
        assert said == [("200", [ALLOWED]), ("403", []), ("403", []), ("403", []), ("200", [ALLOWED])]
    finally:
        arena("hosts", text=HOSTS)


def test_an_open_tunnel_keeps_the_address_it_was_checked_for(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    try:
        arena("clear")
        keep_alive = get("echo.example", "/1").replace("Connection: close\n", "")
        steps: Steps = [["send", connect_line(box, "echo.example:443")], ["head"], ["tls", "echo.example"]]
        steps += [["send", fill(keep_alive, box)], ["until", "hello"], ["send", fill(keep_alive, box)], ["until", "hello"]]
        arena("hosts", text=HOSTS)
        heard = sandbox.talk(*steps)
        assert [text.split("\r\n")[0] for text, _ in heard[2:]] == [OK, OK]
        assert [note["address"] for note in arena("seen")] == [ECHO]
    finally:
        arena("hosts", text=HOSTS)


def test_each_hop_of_a_redirect_is_decided_anew(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    arena("clear")
    command = "curl -sSL -o /dev/null -w '%{http_code} %{num_redirects}' http://redirect.example/redirect?http://"
    answers = [
        sandbox.shell(command + target, box.environment)["stdout"]
        for target in ("allowed.example/", "forbidden.example/", "meta.example/latest/meta-data/", "169.254.169.254/")
    ]
    assert answers == ["200 1", "403 1", "403 1", "403 1"]
    assert {note["address"] for note in arena("seen")} == {REDIRECT, ALLOWED}


def test_a_closed_container_is_cut_off_within_seconds(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "echo.example", secrets=SECRETS[:1])
    offset = arena.log_file.stat().st_size
    assert sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"])[0][0].startswith("HTTP/1.1 200")
    arena("close", tenant=TENANT, container=box.container_id)
    wait_until(lambda: sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"])[0][0].startswith("HTTP/1.1 407"))
    line = arena.wait_for_line(offset, lambda line: line.get("reason") == Reason.CREDENTIAL_UNKNOWN)
    assert line["host"] == "allowed.example"


@pytest.mark.parametrize("host", ["allowed.example", "echo.example"], ids=["unopened", "opened"])
def test_an_open_tunnel_ends_with_its_container(host: str, arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "echo.example", secrets=SECRETS[:1])
    request = fill(get(host, "/1").replace("Connection: close\n", ""), box)
    steps: Steps = [
        ["send", connect_line(box, f"{host}:443")],
        ["head"],
        ["tls", host],
        ["send", request],
        ["until", "hello"],
        ["read", 15],
    ]
    arena("clear")
    sandbox.order("start", name="tunnel", steps=steps, seconds=15)
    wait_until(lambda: any(host in note["raw"] for note in arena("seen")))
    arena("close", tenant=TENANT, container=box.container_id)
    started = time.monotonic()
    heard = sandbox.order("finish", name="tunnel")
    assert heard[-1][1] != "open"
    assert time.monotonic() - started < 6


def test_a_renewed_credential_ends_the_old_one(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    grant = arena("renew", tenant=TENANT, container=box.container_id)
    fresh = Opened(box.container_id, grant["username"], grant["password"], grant["placeholders"])
    steps = [sandbox.talk(["send", connect_line(one, "allowed.example:443")], ["head"])[0][0].split(" ")[1] for one in (box, fresh)]
    assert steps == ["407", "200"]


def test_a_container_has_a_bounded_number_of_connections(arena: ArenaClient, sandbox: Sandbox) -> None:
    box, other = arena.open("allowed.example"), arena.open("allowed.example")
    answers = sandbox.order("flood", count=limits.EGRESS_CONNECTIONS_MAX + 20, head=connect_line(box, "allowed.example:443"))
    assert {status: answers.count(status) for status in set(answers)} == {"200": limits.EGRESS_CONNECTIONS_MAX, "429": 20}
    assert sandbox.talk(["send", connect_line(other, "allowed.example:443")], ["head"])[0][0].startswith("HTTP/1.1 200")


def test_the_proxy_leaves_no_core_and_lets_nobody_look_into_it(arena: ArenaClient) -> None:
    proxy = arena("proxy")
    assert proxy["core_bytes_max"] == "0"
    assert not os.access(f"/proc/{proxy['pid']}/mem", os.R_OK) or os.stat(f"/proc/{proxy['pid']}/mem").st_uid == 0


def test_a_paused_container_is_cut_off_until_it_is_renewed(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    connects = []
    for step in ("renew", "pause", "renew"):
        grant = arena(step, tenant=TENANT, container=box.container_id)
        if grant is not None:
            box = Opened(box.container_id, grant["username"], grant["password"], grant["placeholders"])
            connects.append(sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"])[0][0].split(" ")[1])
    paused = Opened(box.container_id, box.username, "", {})
    connects.append(sandbox.talk(["send", connect_line(paused, "allowed.example:443")], ["head"])[0][0].split(" ")[1])
    assert connects == ["200", "200", "407"]
    assert arena("live")


def test_http2_is_opened_decided_and_masked_like_the_rest(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("h2.example", secrets=[{"domain": "h2.example", "name": "H2_KEY", "value": "h2-value-0123456789"}])
    arena("clear")
    curl = "curl -sS --http2 -w '%{http_version} %{http_code}\\n'"
    answer = sandbox.shell(f'{curl} -H "X-Key: $H2_KEY" https://h2.example/one https://h2.example/two', box.environment)["stdout"]
    fronted = sandbox.shell(f"{curl} -o /dev/null -H 'Host: forbidden.example' https://h2.example/", box.environment)["stdout"]
    assert (answer.count("x-key: ***"), answer.count("2 200"), fronted) == (2, 2, "2 403\n")
    assert "h2-value" not in answer
    assert "".join(note["raw"] for note in arena("seen")).count("h2-value-0123456789") == 2


def test_a_narrower_policy_holds_within_seconds(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "twin.example")
    narrower = arena.open("twin.example", container=box.container_id)
    answers = [
        sandbox.talk(["send", connect_line(narrower, f"{host}.example:443")], ["head"])[0][0].split(" ")[1]
        for host in ("allowed", "twin")
    ]
    assert answers == ["403", "200"]


def test_one_container_cannot_use_what_another_may(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    other = arena.open("twin.example")
    arena("clear")
    heard = sandbox.talk(["send", connect_line(other, "allowed.example:443")], ["head"])
    assert heard[0][0].startswith("HTTP/1.1 403")
    # Nor does a placeholder of one mean anything in the hands of the other, at a host that both may reach.
    third = arena.open("echo.example", secrets=[{"domain": "echo.example", "name": "API_KEY", "value": "another-value-entirely"}])
    stolen = fill(get("echo.example", headers="X: {API_KEY}\n"), box)
    heard = sandbox.talk(
        ["send", connect_line(third, "echo.example:443")], ["head"], ["tls", "echo.example"], ["send", stolen], ["read", 1]
    )
    assert box.placeholders["API_KEY"] in heard[-1][0]
    assert_secrets_stay_home(arena("seen"), heard[-1][0])
    assert not any(VALUES["API_KEY"] in note["raw"] for note in arena("seen"))


def test_the_proxy_fails_closed_while_the_table_does_not_answer(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    fresh = arena.open("allowed.example")
    connect = [["send", connect_line(box, "allowed.example:443")], ["head"]]
    assert sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200")
    arena("freeze_table")
    try:
        heard = sandbox.talk(["send", connect_line(fresh, "allowed.example:443")], ["head"], seconds=20)
        assert heard[0][0].startswith("HTTP/1.1 503 ")
        heard = sandbox.talk(*connect, seconds=20)
        assert heard[0][0].startswith("HTTP/1.1 503 ")
    finally:
        arena("thaw_table")
    wait_until(lambda: sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200"))


def test_a_killed_proxy_loses_neither_policy_nor_log(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    connect = [["send", connect_line(box, "allowed.example:443")], ["head"]]
    assert sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200")
    assert sandbox.talk(["send", connect_line(box, "forbidden.example:443")], ["head"])[0][0].startswith("HTTP/1.1 403")
    wait_until(lambda: len(arena("log", tenant=TENANT, container=box.container_id)) >= 1)
    arena("restart_proxy", signal=9)
    assert sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200")
    assert sandbox.talk(["send", connect_line(box, "forbidden.example:443")], ["head"])[0][0].startswith("HTTP/1.1 403")


def test_an_operators_secret_is_used_by_name_and_rotates_by_itself(arena: ArenaClient, sandbox: Sandbox) -> None:
    arena("define", name="SHARED", domain="named.example", value="operator-value-one-1")
    box = arena.open("named.example", secrets=[{"domain": "named.example", "name": "SHARED"}])
    request = get("named.example", headers="X: {SHARED}\n")
    steps: Steps = [["send", connect_line(box, "named.example:443")], ["head"], ["tls", "named.example"], ["send", fill(request, box)]]
    arena("clear")
    sandbox.talk(*steps, ["read", 1])
    assert "operator-value-one-1" in arena("seen")[-1]["raw"]
    arena("define", name="SHARED", domain="named.example", value="operator-value-two-2")

    def is_rotated() -> bool:
        sandbox.talk(*steps, ["read", 1])
        return "operator-value-two-2" in arena("seen")[-1]["raw"]

    wait_until(is_rotated)


def test_what_happened_can_be_listed_without_values(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("echo.example", "allowed.example", secrets=SECRETS[:1])
    sandbox.talk(*ATTACKS["a placeholder at home"].steps(box))
    sandbox.talk(*inside("allowed.example", get("allowed.example", "/"), Expected()).steps(box))
    sandbox.talk(["send", fill(get("forbidden.example", "http://forbidden.example/path?token=abc", "{auth}"), box)], ["read", 1])

    def entries() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = arena("log", tenant=TENANT, container=box.container_id)
        return found

    wait_until(lambda: len(entries()) == 3 and all(e["bytes_received"] or e["decision"] == "denied" for e in entries()))
    shown = [
        (e["host"], e["port"], e["method"], e["path"], e["decision"], e["reason"], e["secrets"], e["status"])
        for e in reversed(entries())
    ]
    assert shown == [
        ("echo.example", 443, "GET", "/echo", "allowed", "allowed_exact", ["API_KEY"], 200),
        ("allowed.example", 443, "CONNECT", None, "allowed", "allowed_exact", [], None),
        ("forbidden.example", 80, "GET", "/path", "denied", "domain_not_allowed", [], 403),
    ]
    told = arena("refusals", tenant=TENANT, container=box.container_id, at_ms=0)
    assert told == (
        "[egress] Network access to 'forbidden.example' was refused: it is not among this container's allowed domains. To allow it, "
        "list 'forbidden.example' in network_policy.allowed_domains; the operator must allow it too (MOORAGE_ALLOWED_EGRESS_DOMAINS).\n"
    )


def test_zz_no_value_is_left_anywhere(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    """After everything above: the table, the bucket, the logs, and what the sandbox's processes hold."""
    dump = arena("dump")
    places = {"the table": dump["items"], "the proxy's log": arena.log_file.read_text()}
    assert dump["objects"] in (0, None)
    for pid in sandbox.pids:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            places[f"the environment of {pid}"] = environ.read().decode("latin-1")
        places[f"the memory of {pid}"] = _memory(pid)
    found = [
        (where, name)
        for where, text in places.items()
        for name, value in VALUES.items()
        if value in text or base64.b64encode(value.encode()).decode()[:20] in text
    ]
    assert found == []
    assert box.placeholders["API_KEY"] in places["the table"]


def _memory(pid: int) -> str:
    """All readable memory of a process, mapped files included."""
    pieces = []
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                start, end = (int(number, 16) for number in span.split("-"))
                if rights.startswith("r") and "[v" not in line and end - start < 1 << 28:
                    try:
                        memory.seek(start)
                        pieces.append(memory.read(end - start))
                    except OSError:
                        continue
    except PermissionError:
        return ""
    return b"".join(pieces).decode("latin-1")
