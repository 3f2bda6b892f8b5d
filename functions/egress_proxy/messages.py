"""The read parts of a request, and the form of a refusal: HTTP without a connection."""

import base64
import json
from dataclasses import dataclass, field

from mitmproxy import http
from moorage import limits
from moorage.egress.policy import EgressReason

_STATUS = {
    EgressReason.CREDENTIAL_MISSING: 407,
    EgressReason.CREDENTIAL_UNKNOWN: 407,
    EgressReason.POLICY_UNAVAILABLE: 503,
    EgressReason.TOO_MANY_CONNECTIONS: 429,
    EgressReason.TOO_MANY_UNPACKED: 503,
    EgressReason.UNREADABLE_BODY: 502,
    EgressReason.UNRESOLVABLE: 502,
    EgressReason.MALFORMED: 400,
    EgressReason.HEADERS_TOO_LARGE: 431,
    EgressReason.VALUES_TOO_LARGE: 413,
}
"""HTTP statuses of refusals; all others are 403."""


@dataclass(frozen=True, slots=True)
class Credential:
    username: str
    password: str = field(repr=False)


def status_of(reason: EgressReason) -> int:
    return _STATUS.get(reason, 403)


def connect_host(request: http.Request) -> str:
    """The name as it was sent; mitmproxy's own reading decodes punycode."""
    return request.data.authority.decode("utf-8", "replace").rpartition(":")[0]


def url_host(request: http.Request) -> str:
    """The name of an absolute URL: mitmproxy keeps only its decoded form."""
    host = request.data.host
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def host_header(request: http.Request) -> str:
    """The host in the request; empty if it has none, or different ones."""
    names = [value.decode("utf-8", "replace").lower() for name, value in request.headers.fields if name.lower() == b"host"]
    if request.data.authority:
        names.append(request.data.authority.decode("utf-8", "replace").lower())
    return names[0] if len(set(names)) == 1 and len(names) <= 2 else ""


def is_malformed(request: http.Request) -> bool:
    """Forms that no honest client sends, and that another server might read differently."""
    texts = [text for pair in request.headers.fields for text in pair] + [request.data.path, request.data.method]
    return any(byte in text for text in texts for byte in (b"\r", b"\n", b"\0")) or b" " in request.data.path


def take_credential(request: http.Request) -> Credential | None:
    """The proxy credential, removed from the request."""
    values = request.headers.get_all("proxy-authorization")
    request.headers.pop("proxy-authorization", None)
    if len(values) != 1:
        return None
    scheme, _, encoded = values[0].partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        username, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # not ASCII, not base64, or not UTF-8 inside
        return None
    return Credential(username, password) if colon else None


def has_small_body(request: http.Request) -> bool:
    """A refused body is read to its end before the answer goes out; one that has none in sight is cut off instead."""
    if "transfer-encoding" in request.headers:
        return False
    length = request.headers.get("content-length")
    if length is None:
        return not request.is_http2 or request.method in ("GET", "HEAD")
    return length.isdigit() and int(length) <= limits.EGRESS_DENIED_BODY_BYTES_MAX


def has_short_body(request: http.Request) -> bool:
    """Whether its body may be held as a whole, to put secrets in: its length is known, and it is not packed."""
    if "transfer-encoding" in request.headers or "content-encoding" in request.headers:
        return False
    length = request.headers.get("content-length", "")
    return length.isdigit() and 0 < int(length) <= limits.EGRESS_FORM_BYTES_MAX


def may_be_http(data: bytes) -> bool:
    """A method's letters, as far as they have come."""
    word = data[:20].partition(b" ")[0]
    return word.isalpha() and word.isupper() and (len(data) < 20 or b" " in data[:20]) and not data.startswith(b"SSH-")


def refusal(status: int, text: str, code: str) -> http.Response:
    """The refusal as the body, and in the reason phrase: pip, Python and wget show only that of a refused CONNECT."""
    body = {"error": {"message": text, "type": "egress_error", "param": None, "code": code}}
    headers = {"content-type": "application/json", "x-moorage-egress": code}
    if status == 407:
        headers["proxy-authenticate"] = 'Basic realm="moorage egress"'
    response = http.Response.make(status, json.dumps(body) + "\n", headers)
    response.reason = text
    return response
