"""Placeholders out, values in: the pure part of the proxy's work on a request inside an opened connection.

On the way out a placeholder is replaced by its value only if everything fits: the connection is TLS and goes to a domain of the secret,
the method and the path are within the secret's scope, and the placeholder stands in an allowed part. Otherwise it stays unchanged: a
random string without worth.

Answers are searched for the value: ``redaction.py``.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from moorage.egress.secrets import OpenSecret
from moorage.wire.network_policy import is_plain_path

Headers = tuple[tuple[bytes, bytes], ...]

_UNTOUCHED: Final = frozenset(
    [
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"te",
        b"upgrade",
        b"proxy-authorization",
        b"referer",
        b"origin",
    ]
)
"""Headers that frame or route a request, or that programs fill with URLs by themselves."""
_REFLECTING_METHODS: Final = ("TRACE", "CONNECT")


@dataclass(frozen=True, slots=True)
class SubstitutedRequest:
    headers: Headers = field(repr=False)
    path: str = field(repr=False)
    names: tuple[str, ...]
    """The secrets that were put in."""
    sent: tuple[bytes, ...] = field(repr=False)
    """What must not come back in this exchange, beside the values themselves."""


_WRITERS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "application/x-www-form-urlencoded": lambda value: quote(value, safe="").encode(),
    "application/json": lambda value: json.dumps(value)[1:-1].encode(),
    "multipart/form-data": lambda value: value.encode(),
}
"""How a value is written in a body of each kind."""


def applies(secret: OpenSecret, host: str, method: str, path: str) -> bool:
    """Is this request within the secret's scope? ``host`` is normalised; ``path`` may carry a query."""
    if not secret.goes_to(host) or method.upper() in _REFLECTING_METHODS:
        return False
    if secret.methods and method.upper() not in secret.methods:
        return False
    if not secret.path_prefixes:
        return True
    bare = path.partition("?")[0]
    # A path that servers may read in two ways could leave the prefix after the check: it gets no secret.
    return is_plain_path(bare) and any(_is_below(bare, prefix) for prefix in secret.path_prefixes)


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else prefix + "/")


def substitute(secrets: Sequence[OpenSecret], host: str, method: str, path: str, headers: Headers) -> SubstitutedRequest:
    """The request as it goes out over TLS to ``host``."""
    used: list[str] = []
    sent: list[bytes] = []
    for secret in secrets:
        if not applies(secret, host, method, path):
            continue
        before = (headers, path)
        if "headers" in secret.places:
            headers = tuple((name, _in_header(name, value, secret)) for name, value in headers)
        if "basic_auth" in secret.places:
            headers = tuple((name, _in_basic_auth(name, value, secret, sent)) for name, value in headers)
        if "query" in secret.places:
            path = _in_query(path, secret)
        if (headers, path) != before:
            used.append(secret.name)
    return SubstitutedRequest(headers, path, tuple(used), tuple(sent))


@dataclass(frozen=True, slots=True)
class SubstitutedForm:
    body: bytes = field(repr=False)
    names: tuple[str, ...]
    """The secrets that were put in."""


def form_secrets(secrets: Sequence[OpenSecret], host: str, method: str, path: str) -> tuple[OpenSecret, ...]:
    """Those that may stand in the body of a request to ``host``."""
    return tuple(secret for secret in secrets if "form" in secret.places and applies(secret, host, method, path))


def in_form(secrets: Sequence[OpenSecret], content_type: str, body: bytes) -> SubstitutedForm:
    """A body as it goes out. Other kinds of bodies cannot hold a value, and stay unchanged."""
    write = _WRITERS.get(content_type.partition(";")[0].strip().lower())
    if write is None:
        return SubstitutedForm(body, ())
    used = tuple(secret for secret in secrets if secret.placeholder.encode() in body)
    for secret in used:
        body = body.replace(secret.placeholder.encode(), write(secret.value))
    return SubstitutedForm(body, tuple(secret.name for secret in used))


def _in_header(name: bytes, value: bytes, secret: OpenSecret) -> bytes:
    if name.lower() in _UNTOUCHED:
        return value
    return value.replace(secret.placeholder.encode(), secret.value.encode())


def _in_basic_auth(name: bytes, value: bytes, secret: OpenSecret, sent: list[bytes]) -> bytes:
    scheme, _, credentials = value.partition(b" ")
    if name.lower() != b"authorization" or scheme.lower() != b"basic":
        return value
    try:
        plain = base64.b64decode(credentials.strip(), validate=True)
    except binascii.Error:
        return value
    swapped = plain.replace(secret.placeholder.encode(), secret.value.encode())
    if swapped == plain:
        return value
    encoded = base64.b64encode(swapped)
    sent.append(encoded)
    return scheme + b" " + encoded


def _in_query(path: str, secret: OpenSecret) -> str:
    bare, mark, query = path.partition("?")
    return bare + mark + query.replace(secret.placeholder, quote(secret.value, safe=""))
