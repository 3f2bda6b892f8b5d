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
from dataclasses import field
from typing import Final
from urllib.parse import quote

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.secrets import OpenSecret
from moorage.hosts import normalise
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
AS_SENT: Final = ("utf-8", "surrogateescape")
"""How a path's bytes are text: any bytes may come."""
_REFLECTING_METHODS: Final = ("TRACE", "CONNECT")


class ValuesTooLarge(Exception):
    """A request repeats placeholders until their values would be more than the proxy holds."""


class _ValueBytes:
    """What values may still add to one request: a few bytes stand for a value of 64 KiB, and a request holds thousands of them."""

    def __init__(self) -> None:
        self._left = limits.EGRESS_VALUES_BYTES_MAX

    def put(self, data: bytes, secret: OpenSecret, value: bytes) -> bytes:
        """``data`` with the value in each place. Raises :class:`ValuesTooLarge` before it makes it."""
        placeholder = secret.placeholder.encode()
        self._left -= data.count(placeholder) * len(value)
        if self._left < 0:
            raise ValuesTooLarge
        return data.replace(placeholder, value)


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
    """The request as it goes out over TLS to ``host``. Raises :class:`ValuesTooLarge`."""
    left = _ValueBytes()
    used: list[str] = []
    sent: list[bytes] = []
    for secret in secrets:
        if not applies(secret, host, method, path):
            continue
        before = (headers, path)
        if "headers" in secret.places:
            headers = tuple((name, _in_header(name, value, secret, left)) for name, value in headers)
        if "basic_auth" in secret.places:
            headers = tuple((name, _in_basic_auth(name, value, secret, left, sent)) for name, value in headers)
        if "query" in secret.places:
            path = _in_query(path, secret, left)
        if (headers, path) != before:
            used.append(secret.name)
    return SubstitutedRequest(headers, path, tuple(used), tuple(sent))


@dataclass(frozen=True, slots=True)
class SubstitutedForm:
    body: bytes = field(repr=False)
    names: tuple[str, ...]
    """The secrets that were put in."""


def form_secrets(secrets: Sequence[OpenSecret], host: str, method: str, path: str, headers: Headers) -> tuple[OpenSecret, ...]:
    """Those that may stand in the body of a request to ``host``."""
    site, origin = (_field(headers, name) for name in (b"sec-fetch-site", b"origin"))
    sender = None if origin is None else normalise(origin.partition("://")[2].partition(":")[0])
    return tuple(
        secret
        for secret in secrets
        if "form" in secret.places and applies(secret, host, method, path) and _is_own(site, origin, sender, secret)
    )


def _is_own(site: str | None, origin: str | None, sender: str | None, secret: OpenSecret) -> bool:
    """A page of another site was typed the placeholder, and could send it to any form of the host: a comment, say. A browser tells
    whose page sends a form (Fetch Metadata, W3C), and a program says nothing."""
    if site in ("same-origin", "same-site", "none"):
        return True
    return (site is None and origin is None) or (sender is not None and secret.goes_to(sender))


def _field(headers: Headers, name: bytes) -> str | None:
    """The last of its values: whoever sends several gets no more by it."""
    return next((value.decode("latin-1").lower() for each, value in reversed(headers) if each.lower() == name), None)


def in_form(secrets: Sequence[OpenSecret], content_type: str, body: bytes) -> SubstitutedForm:
    """A body as it goes out. Other kinds of bodies cannot hold a value, and stay unchanged. Raises :class:`ValuesTooLarge`."""
    write = _WRITERS.get(content_type.partition(";")[0].strip().lower())
    if write is None:
        return SubstitutedForm(body, ())
    used = tuple(secret for secret in secrets if secret.placeholder.encode() in body)
    left = _ValueBytes()
    for secret in used:
        body = left.put(body, secret, write(secret.value))
    return SubstitutedForm(body, tuple(secret.name for secret in used))


def _in_header(name: bytes, value: bytes, secret: OpenSecret, left: _ValueBytes) -> bytes:
    if name.lower() in _UNTOUCHED:
        return value
    return left.put(value, secret, secret.value.encode())


def _in_basic_auth(name: bytes, value: bytes, secret: OpenSecret, left: _ValueBytes, sent: list[bytes]) -> bytes:
    scheme, _, credentials = value.partition(b" ")
    if name.lower() != b"authorization" or scheme.lower() != b"basic":
        return value
    try:
        plain = base64.b64decode(credentials.strip(), validate=True)
    except binascii.Error:
        return value
    swapped = left.put(plain, secret, secret.value.encode())
    if swapped == plain:
        return value
    encoded = base64.b64encode(swapped)
    sent.append(encoded)
    return scheme + b" " + encoded


def _in_query(path: str, secret: OpenSecret, left: _ValueBytes) -> str:
    bare, mark, query = path.partition("?")
    value = quote(secret.value, safe="").encode()
    return bare + mark + left.put(query.encode(*AS_SENT), secret, value).decode(*AS_SENT)
