"""The table of attacks: each row one attempt from inside a container, with the answer that it must get."""

import base64
import struct

from moorage.egress.policy import EgressReason

from tests.egress.arena import ALLOWED, REDIRECT, TWIN, V6
from tests.egress.moves import (
    ALERT,
    ECH,
    OK,
    TO_ALLOWED,
    TO_ECHO,
    Attack,
    Expected,
    connect_line,
    connects,
    fill,
    get,
    hello,
    inside,
    plain,
    refused,
    sends_hello,
)

NAMES: dict[str, tuple[str, Expected]] = {
    "a forbidden host": ("forbidden.example:443", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "a forbidden host on port 80": ("forbidden.example:80", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "the base of a wildcard": ("pkg.example:443", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "an allowed name as a prefix": ("allowed.example.evil.example:443", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "an allowed name as a suffix": ("evil-allowed.example:443", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "a look-alike in punycode": ("xn--llowed-hta.example:443", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "punycode below a wildcard": ("xn--pg-via.pkg.example:443", refused(EgressReason.PUNYCODE_NOT_LISTED)),
    "a look-alike in UTF-8": ("\u00e0llowed.example:443", refused(None, 400)),
    "localhost": ("localhost:443", refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "a public address": ("93.184.216.36:443", refused(EgressReason.IP_LITERAL)),
    "the address of an allowed host": (f"{ALLOWED}:443", refused(EgressReason.IP_LITERAL)),
    "loopback": ("127.0.0.1:443", refused(EgressReason.IP_LITERAL)),
    "loopback in short": ("127.1:443", refused(EgressReason.IP_LITERAL)),
    "loopback in decimal": ("2130706433:443", refused(EgressReason.IP_LITERAL)),
    "loopback in hexadecimal": ("0x7f000001:443", refused(EgressReason.IP_LITERAL)),
    "loopback in octal": ("0177.0.0.1:443", refused(EgressReason.IP_LITERAL)),
    "the metadata service": ("169.254.169.254:80", refused(EgressReason.IP_LITERAL)),
    "the metadata service in decimal": ("2852039166:80", refused(EgressReason.IP_LITERAL)),
    "the task metadata service": ("169.254.170.2:80", refused(EgressReason.IP_LITERAL)),
    "an IPv6 address": (f"[{V6}]:443", refused(EgressReason.IP_LITERAL)),
    "IPv6 loopback": ("[::1]:443", refused(EgressReason.IP_LITERAL)),
    "a mapped address": ("[::ffff:169.254.169.254]:80", refused(EgressReason.IP_LITERAL)),
    "an IPv6 address with a zone": ("[fe80::1%lo]:443", refused(EgressReason.IP_LITERAL)),
    "port 22": ("allowed.example:22", refused(EgressReason.PORT_NOT_ALLOWED)),
    "port 8080": ("allowed.example:8080", refused(EgressReason.PORT_NOT_ALLOWED)),
    "port 65535": ("allowed.example:65535", refused(EgressReason.PORT_NOT_ALLOWED)),
    "port 70000": ("allowed.example:70000", refused(None, 400)),
    "no port": ("allowed.example", refused(None, 400)),
    "a percent-encoded dot": ("allowed%2eexample:443", refused(None, 400)),
    "user information": ("allowed.example@forbidden.example:443", refused(None, 400)),
    "two trailing dots": ("allowed.example..:443", refused(None, 400)),
    "a name that resolves to a private address": ("private.example:443", refused(EgressReason.ADDRESS_PRIVATE)),
    "a name at home": ("home.example:80", refused(EgressReason.ADDRESS_PRIVATE)),
    "a name behind a carrier's NAT": ("cgnat.example:443", refused(EgressReason.ADDRESS_SHARED)),
    "a name of the metadata service": ("meta.example:80", refused(EgressReason.ADDRESS_METADATA)),
    "a name of the task metadata service": ("taskmeta.example:80", refused(EgressReason.ADDRESS_METADATA)),
    "a name of the metadata service in IPv6": ("meta6.example:80", refused(EgressReason.ADDRESS_METADATA)),
    "a name of loopback": ("loop.example:80", refused(EgressReason.ADDRESS_LOOPBACK)),
    "a name of IPv6 loopback": ("loop6.example:80", refused(EgressReason.ADDRESS_LOOPBACK)),
    "a name of 0.0.0.0": ("zero.example:80", refused(EgressReason.ADDRESS_UNSPECIFIED)),
    "a name of ::": ("zero6.example:80", refused(EgressReason.ADDRESS_UNSPECIFIED)),
    "a name of a multicast group": ("multicast.example:80", refused(EgressReason.ADDRESS_MULTICAST)),
    "a name of broadcast": ("broadcast.example:80", refused(EgressReason.ADDRESS_RESERVED)),
    "a name of a mapped address": ("mapped.example:80", refused(EgressReason.ADDRESS_EMBEDDED_IPV4)),
    "a name behind NAT64": ("nat64.example:80", refused(EgressReason.ADDRESS_EMBEDDED_IPV4)),
    "a name behind 6to4": ("sixtofour.example:80", refused(EgressReason.ADDRESS_EMBEDDED_IPV4)),
    "a link-local name": ("linklocal.example:80", refused(EgressReason.ADDRESS_LINK_LOCAL)),
    "a unique local name": ("ula.example:80", refused(EgressReason.ADDRESS_PRIVATE)),
    "a name in the deployment's own network": ("own.example:443", refused(EgressReason.ADDRESS_OWN_NETWORK)),
    "a name in a benchmarking range": ("benchmark.example:443", refused(EgressReason.ADDRESS_RESERVED)),
    "an allowed name that does not exist": ("nowhere.example:443", refused(EgressReason.UNRESOLVABLE, 502)),
}

ATTACKS: dict[str, Attack] = {
    **{f"CONNECT to {name}": connects(authority, expected) for name, (authority, expected) in NAMES.items()},
    # --- The credential ---
    "CONNECT without a credential": Attack(
        lambda box: [["send", "CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\n\r\n"], ["head"]],
        refused(EgressReason.CREDENTIAL_MISSING, 407),
    ),
    "CONNECT with a wrong credential": Attack(
        lambda box: [["send", connect_line(box, "allowed.example:443", base64.b64encode(b"cntr_1:wrong").decode())], ["head"]],
        refused(EgressReason.CREDENTIAL_UNKNOWN, 407),
    ),
    "CONNECT with the credential of another container's name": Attack(
        lambda box: [
            ["send", connect_line(box, "allowed.example:443", base64.b64encode(f"cntr_x:{box.password}".encode()).decode())],
            ["head"],
        ],
        refused(EgressReason.CREDENTIAL_UNKNOWN, 407),
    ),
    "CONNECT with a credential that is no base64": Attack(
        lambda box: [["send", connect_line(box, "allowed.example:443", "!!!")], ["head"]], refused(EgressReason.CREDENTIAL_MISSING, 407)
    ),
    "CONNECT with a credential beyond ASCII": Attack(
        lambda box: [["send", connect_line(box, "allowed.example:443", "é")], ["head"]], refused(EgressReason.CREDENTIAL_MISSING, 407)
    ),
    "CONNECT with two credentials": Attack(
        lambda box: [
            ["send", connect_line(box, "allowed.example:443").replace("\r\n\r\n", "\r\nProxy-Authorization: Basic eDp5\r\n\r\n")],
            ["head"],
        ],
        refused(EgressReason.CREDENTIAL_MISSING, 407),
    ),
    "a plain request without a credential": plain(
        get("allowed.example", "http://allowed.example/"), refused(EgressReason.CREDENTIAL_MISSING, 407)
    ),
    # --- TLS: the name inside must be the name outside ---
    "SNI of a forbidden host": inside(
        "allowed.example",
        get("forbidden.example"),
        Expected("unrecognized name", EgressReason.SNI_MISMATCH, TO_ALLOWED),
        sni="forbidden.example",
    ),
    "SNI of another allowed host": inside(
        "allowed.example", get("twin.example"), Expected("unrecognized name", EgressReason.SNI_MISMATCH, TO_ALLOWED), sni="twin.example"
    ),
    "no SNI": inside(
        "allowed.example", get("allowed.example"), Expected("unrecognized name", EgressReason.SNI_MISSING, TO_ALLOWED), sni=""
    ),
    "no SNI to a host with a secret": inside(
        "echo.example", get("echo.example"), Expected("unrecognized name", EgressReason.SNI_MISSING, TO_ECHO), sni=""
    ),
    "an encrypted hello": sends_hello(
        hello(b"allowed.example", extra=ECH), Expected(ALERT, EgressReason.ENCRYPTED_CLIENT_HELLO, TO_ALLOWED)
    ),
    "two SNI extensions": sends_hello(hello(b"allowed.example", twice=True), Expected(ALERT, EgressReason.MALFORMED, TO_ALLOWED)),
    "two names in SNI": sends_hello(hello(b"allowed.example", names=2), Expected(ALERT, EgressReason.MALFORMED, TO_ALLOWED)),
    "an SNI with a NUL": sends_hello(hello(b"allowed.example\0.evil"), Expected(ALERT, EgressReason.SNI_MISMATCH, TO_ALLOWED)),
    "an SNI that is an address": sends_hello(hello(ALLOWED.encode()), Expected(ALERT, EgressReason.SNI_MISMATCH, TO_ALLOWED)),
    "an SNI in UTF-8": sends_hello(hello("\u00e0llowed.example".encode()), Expected(ALERT, EgressReason.MALFORMED, TO_ALLOWED)),
    "a hello with data behind it": sends_hello(
        hello(b"allowed.example")[:3]
        + struct.pack("!H", len(hello(b"allowed.example")) - 5 + 4)
        + hello(b"allowed.example")[5:]
        + b"\x01\x00\x00\x00",
        Expected(ALERT, EgressReason.MALFORMED, TO_ALLOWED),
    ),
    "a record that is too long": sends_hello(
        b"\x16\x03\x01\xff\xff" + b"\x01" * 100, Expected(ALERT, EgressReason.MALFORMED, TO_ALLOWED)
    ),
    "a TLS alert first": sends_hello(b"\x15\x03\x01\x00\x02\x02\x28", Expected("", EgressReason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "SSLv2": sends_hello(b"\x80\x2e\x01\x00\x02" + b"\x00" * 41, Expected("", EgressReason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "ssh through CONNECT": sends_hello(b"SSH-2.0-OpenSSH_9.9\r\n", Expected("", EgressReason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "ssh to an operator's port": Attack(
        lambda box: [["send", connect_line(box, "port.example:8443")], ["head"], ["read", 2]],
        Expected("", EgressReason.NOT_TLS_OR_HTTP, TO_ALLOWED, hears_not="SSH-2.0"),
    ),
    "binary through CONNECT": sends_hello(b"\x00\x01\x02\x03" * 8, Expected("", EgressReason.NOT_TLS_OR_HTTP, TO_ALLOWED)),
    "HTTP/2 with prior knowledge through CONNECT": sends_hello(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Expected("", EgressReason.HOST_HEADER_MISSING, TO_ALLOWED)
    ),
    "an upstream whose certificate is for another name": inside(
        "badcert.example", get("badcert.example", headers="X: {BAD_KEY}\n"), Expected("502", EgressReason.ALLOWED_EXACT, TO_ECHO)
    ),
    "an upstream with a certificate of its own": inside(
        "selfsigned.example", get("selfsigned.example", headers="X: {SELF_KEY}\n"), Expected("502", EgressReason.ALLOWED_EXACT, TO_ECHO)
    ),
    # --- Host: what is inside an opened connection, and plain requests ---
    "a forbidden Host inside TLS": inside(
        "echo.example", get("forbidden.example"), Expected("HTTP/1.1 403", EgressReason.HOST_HEADER_MISMATCH, TO_ECHO)
    ),
    "another allowed Host inside TLS": inside(
        "echo.example",
        get("twin.example", headers="X: {API_KEY}\n"),
        Expected("HTTP/1.1 403", EgressReason.HOST_HEADER_MISMATCH, TO_ECHO),
    ),
    "no Host inside TLS": inside(
        "echo.example", "GET /echo HTTP/1.1\nX: {API_KEY}\n\n", Expected("HTTP/1.1 403", EgressReason.HOST_HEADER_MISSING, TO_ECHO)
    ),
    "two Hosts inside TLS": inside(
        "echo.example",
        "GET /echo HTTP/1.1\nHost: echo.example\nHost: forbidden.example\n\n",
        Expected("HTTP/1.1 403", EgressReason.HOST_HEADER_MISSING, TO_ECHO),
    ),
    "an absolute URL of another host inside TLS": inside(
        "echo.example",
        "GET https://forbidden.example/echo HTTP/1.1\nHost: echo.example\n\n",
        Expected("HTTP/1.1 403", EgressReason.HOST_HEADER_MISSING, TO_ECHO),
    ),
    "CONNECT inside TLS": inside(
        "echo.example",
        "CONNECT forbidden.example:443 HTTP/1.1\nHost: forbidden.example:443\n{auth}\n",
        Expected("HTTP/1.1 400", EgressReason.MALFORMED, TO_ECHO),
    ),
    "a forbidden host in a plain request": plain(
        get("forbidden.example", "http://forbidden.example/", "{auth}"), refused(EgressReason.DOMAIN_NOT_ALLOWED)
    ),
    "a forbidden URL with an allowed Host": plain(
        get("allowed.example", "http://forbidden.example/", "{auth}"), refused(EgressReason.DOMAIN_NOT_ALLOWED)
    ),
    "an allowed URL with a forbidden Host": plain(
        get("forbidden.example", "http://allowed.example/", "{auth}"), refused(EgressReason.HOST_HEADER_MISMATCH)
    ),
    "an allowed URL without Host": plain("GET http://allowed.example/ HTTP/1.1\n{auth}\n", refused(EgressReason.HOST_HEADER_MISSING)),
    "a URL with user information": plain(
        get("allowed.example", "http://allowed.example@forbidden.example/", "{auth}"), refused(None, 400)
    ),
    "a URL with a backslash": plain(
        get("allowed.example", "http://forbidden.example\\@allowed.example/", "{auth}"), refused(None, 400)
    ),
    "an https URL in a plain request": plain(
        get("echo.example", "https://echo.example/echo", "{auth}X: {API_KEY}\n"), refused(EgressReason.MALFORMED, 400)
    ),
    "an ftp URL": plain(get("allowed.example", "ftp://allowed.example/", "{auth}"), refused(None, 400)),
    "a relative URL with a forbidden Host": plain(get("forbidden.example", "/", "{auth}"), refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "the metadata service in a plain request": plain(
        get("169.254.169.254", "http://169.254.169.254/latest/meta-data/", "{auth}"), refused(EgressReason.IP_LITERAL)
    ),
    "the metadata service by its name": plain(
        get("meta.example", "http://meta.example/latest/meta-data/", "{auth}"), refused(EgressReason.ADDRESS_METADATA)
    ),
    "the task's credentials by name": plain(
        get("taskmeta.example", "http://taskmeta.example/v2/credentials/", "{auth}"), refused(EgressReason.ADDRESS_METADATA)
    ),
    "the proxy itself": plain(get("127.0.0.1:3128", "http://127.0.0.1:3128/", "{auth}"), refused(EgressReason.IP_LITERAL)),
    "mitmproxy's own page": plain(get("mitm.it", "http://mitm.it/", "{auth}"), refused(EgressReason.DOMAIN_NOT_ALLOWED)),
    "a second request on one connection": Attack(
        lambda box: [
            ["send", fill(get("allowed.example", "http://allowed.example/1", "{auth}").replace("Connection: close\n", ""), box)],
            ["until", "hello from"],
            ["send", fill(get("forbidden.example", "http://forbidden.example/2", "{auth}"), box)],
            ["read", 1],
        ],
        Expected("HTTP/1.1 403", EgressReason.DOMAIN_NOT_ALLOWED, TO_ALLOWED),
    ),
    "a second request without its credential": Attack(
        lambda box: [
            ["send", fill(get("allowed.example", "http://allowed.example/1", "{auth}").replace("Connection: close\n", ""), box)],
            ["until", "hello from"],
            ["send", fill(get("allowed.example", "http://allowed.example/2"), box)],
            ["read", 1],
        ],
        Expected("HTTP/1.1 407", EgressReason.CREDENTIAL_MISSING, TO_ALLOWED),
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
        Expected("HTTP/1.1 403", EgressReason.DOMAIN_NOT_ALLOWED, TO_ALLOWED),
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
        refused(EgressReason.MALFORMED, 400),
    ),
    "a bare carriage return in a header": Attack(
        lambda box: [
            ["send", fill(get("allowed.example", "http://allowed.example/", "{auth}"), box).replace("close\r\n", "a\rb: c\r\n")],
            ["read", 1],
        ],
        refused(EgressReason.MALFORMED, 400),
    ),
    "a NUL in a header": plain(
        get("allowed.example", "http://allowed.example/", "{auth}X: a\0b\n"), refused(EgressReason.MALFORMED, 400)
    ),
    "a request of version 0.9": plain("GET http://allowed.example/\n\n", refused(None, 400)),
    "headers without end": Attack(
        lambda box: [["send", "GET http://allowed.example/ HTTP/1.1\r\nX: " + "a" * 200_000], ["read", 20]],
        Expected("HTTP/1.1 431"),
        seconds=25,
    ),
    "a request smuggled in a body": plain(
        "POST http://allowed.example/ HTTP/1.1\nHost: allowed.example\n{auth}Content-Length: 62\n\n"
        "GET http://forbidden.example/ HTTP/1.1\nHost: forbidden.example\n\n",
        Expected(OK, EgressReason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a large body to a forbidden host": plain(
        "POST http://forbidden.example/ HTTP/1.1\nHost: forbidden.example\n{auth}Content-Length: 99999999\n\nx",
        Expected("", EgressReason.DOMAIN_NOT_ALLOWED),
    ),
    "an endless body to a forbidden host": plain(
        "POST http://forbidden.example/ HTTP/1.1\nHost: forbidden.example\n{auth}Transfer-Encoding: chunked\n\n5\nabcde\n",
        Expected("", EgressReason.DOMAIN_NOT_ALLOWED),
    ),
    "an upgrade to h2c": plain(
        get("allowed.example", "http://allowed.example/", "{auth}Upgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n"),
        Expected(OK, EgressReason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a redirect to the metadata service": plain(
        get("redirect.example", "http://redirect.example/redirect?http://169.254.169.254/", "{auth}"),
        Expected("HTTP/1.1 302", EgressReason.ALLOWED_EXACT, frozenset([REDIRECT])),
    ),
    # --- Placeholders: put in at home, worthless elsewhere ---
    "a placeholder at home": inside(
        "echo.example",
        get("echo.example", headers="Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder at another host with a secret": inside(
        "scoped.example",
        get("scoped.example", headers="X: {API_KEY}\n"),
        Expected("MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder at a host without secrets": inside(
        "twin.example",
        get("twin.example", headers="X: {API_KEY}\n"),
        Expected("MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, frozenset([TWIN])),
    ),
    "a placeholder in plain HTTP": plain(
        get("echo.example", "http://echo.example/echo", "{auth}X: {API_KEY}\n"),
        Expected("MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in plain HTTP through CONNECT": Attack(
        lambda box: [
            ["send", connect_line(box, "echo.example:80")],
            ["head"],
            ["send", fill(get("echo.example", headers="X: {API_KEY}\n"), box)],
            ["read", 1],
        ],
        Expected("MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the body": inside(
        "echo.example",
        "POST /echo HTTP/1.1\nHost: echo.example\nContent-Length: 55\n\n{API_KEY}",
        Expected("MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the query where it was not asked for": inside(
        "echo.example",
        get("echo.example", "/echo?k={API_KEY}"),
        Expected("k=MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the Host": inside(
        "echo.example", get("{API_KEY}.echo.example"), Expected("HTTP/1.1 403", EgressReason.HOST_HEADER_MISMATCH, TO_ECHO)
    ),
    "a placeholder by TRACE": inside(
        "echo.example",
        "TRACE /echo HTTP/1.1\nHost: echo.example\nX: {API_KEY}\n\n",
        Expected("MOORAGE_SECRET_API_KEY", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder outside its methods": inside(
        "scoped.example",
        get("scoped.example", "/echo/v1/x", "X: {SCOPED_KEY}\n"),
        Expected("X: MOORAGE_SECRET_SCOPED", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder within its scope": inside(
        "scoped.example",
        "POST /echo/v1/x HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: ****", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder beside its path": inside(
        "scoped.example",
        "POST /echo/v10/x HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: MOORAGE_SECRET_SCOPED", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder out of its path by dots": inside(
        "scoped.example",
        "POST /echo/v1/../admin HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: MOORAGE_SECRET_SCOPED", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder out of its path by encoded dots": inside(
        "scoped.example",
        "POST /echo/v1/%2e%2e/admin HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("X: MOORAGE_SECRET_SCOPED", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder out of its path by a double slash": inside(
        "scoped.example",
        "POST //echo/v1/x HTTP/1.1\nHost: scoped.example\nX: {SCOPED_KEY}\nContent-Length: 0\n\n",
        Expected("hello", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "a placeholder in the query": inside(
        "query.example", get("query.example", "/echo?k={QUERY_KEY}"), Expected("k=****", EgressReason.ALLOWED_EXACT, TO_ECHO)
    ),
    # --- Echoes: what comes back is masked ---
    "an echo in headers": inside(
        "echo.example",
        get("echo.example", "/reflect", "Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo in five-byte chunks": inside(
        "echo.example",
        get("echo.example", "/pieces", "Authorization: Bearer {API_KEY}\n"),
        Expected("\r\n0\r\n\r\n", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo packed with gzip": inside(
        "echo.example",
        get("echo.example", "/gzip", "Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo packed with deflate": inside(
        "echo.example",
        get("echo.example", "/deflate", "Authorization: Bearer {API_KEY}\n"),
        Expected("Bearer ****", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    "an echo in base64": inside(
        "echo.example",
        get("echo.example", "/base64", "Authorization: Bearer {API_KEY}\n"),
        Expected("****", EgressReason.ALLOWED_EXACT, TO_ECHO),
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
        refused(EgressReason.DOMAIN_NOT_ALLOWED),
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
        Expected("Basic ****", EgressReason.ALLOWED_EXACT, TO_ECHO),
    ),
    # --- What is meant to work ---
    "an allowed tunnel": inside(
        "allowed.example", get("allowed.example", "/"), Expected("hello from allowed.example", EgressReason.ALLOWED_EXACT, TO_ALLOWED)
    ),
    "a tunnel below a wildcard": inside(
        "deep.a.pkg.example",
        get("deep.a.pkg.example", "/"),
        Expected("hello from deep.a.pkg.example", EgressReason.ALLOWED_WILDCARD, TO_ALLOWED),
    ),
    "a tunnel to a listed punycode name": inside(
        "xn--bcher-kva.example",
        get("xn--bcher-kva.example", "/"),
        Expected("hello from xn--bcher-kva", EgressReason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a plain request to a listed punycode name": plain(
        get("xn--bcher-kva.example", "http://xn--bcher-kva.example/", "{auth}"),
        Expected("hello from xn--bcher", EgressReason.ALLOWED_EXACT, TO_ALLOWED),
    ),
    "a tunnel to an IPv6 host": inside(
        "six.example", get("six.example", "/"), Expected("hello from six.example", EgressReason.ALLOWED_EXACT, frozenset([V6]))
    ),
    "a name with a private and a public address": inside(
        "mixed.example", get("mixed.example", "/"), Expected("hello from mixed.example", EgressReason.ALLOWED_EXACT, TO_ALLOWED)
    ),
    "an allowed host that does not answer": connects(
        "silent.example:443", Expected("HTTP/1.1 502 'silent.example' is allowed, but the connection", EgressReason.ALLOWED_EXACT)
    ),
    "HTTP/2 to a host with a secret": inside(
        "echo.example", "PRI * HTTP/2.0\n\nSM\n\n\0\0\0\4\0\0\0\0\0", Expected("", None, TO_ECHO), alpn=["h2", "http/1.1"]
    ),
}
