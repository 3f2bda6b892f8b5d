"""Placeholders out, values in, and echoes back to placeholders: the pure part of what the proxy does inside an opened connection.

On the way out a placeholder is replaced by its value only if everything fits: the connection is TLS and goes to the secret's own
domain, the method and the path are within the secret's scope, and the placeholder stands where the secret may stand. Otherwise it
stays what it is: a random string that is worth nothing.

On the way back whatever repeats a value is masked, in its plain form and in the encodings that servers commonly echo
(percent-encoding, JSON escapes, base64, the Basic credentials it was sent in). A mask has the length of what it covers, so that
nothing else of the message changes and a stream need not be held back. What a server does to a value in other ways (hashes it,
reverses it, cuts it in two responses) cannot be undone here; the secret's own domain is trusted that far, and the guide says so.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

from moorage.egress.secrets import OpenSecret
from moorage.wire.network_policy import is_plain_path

Headers = tuple[tuple[bytes, bytes], ...]

_MASK: Final = b"*"
_SCRUBBED_BYTES_MIN: Final = 8
"""Shorter values would mask ordinary text ("admin"), and are guessed rather than stolen."""

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
class Substituted:
    headers: Headers = field(repr=False)
    path: str = field(repr=False)
    names: tuple[str, ...]
    """The secrets that were put in."""
    sent: tuple[bytes, ...] = field(repr=False)
    """What must not come back in this exchange, beside the values themselves."""


def applies(secret: OpenSecret, host: str, method: str, path: str) -> bool:
    """Is this request within the secret's scope? ``host`` is normalised; ``path`` may carry a query."""
    if secret.domain != host or method.upper() in _REFLECTING_METHODS:
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


def substitute(secrets: Sequence[OpenSecret], host: str, method: str, path: str, headers: Headers) -> Substituted:
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
    return Substituted(headers, path, tuple(used), tuple(sent))


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


class Scrubber:
    """Masks whatever repeats a secret, in whole texts and in streams."""

    def __init__(self, secrets: Iterable[OpenSecret], sent: Iterable[bytes] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret.value)} | set(sent)
        self._forms = sorted((form for form in forms if len(form) >= _SCRUBBED_BYTES_MIN), key=len, reverse=True)
        self._held = b""
        self.masked = 0
        """Echoes found so far."""

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, data: bytes) -> bytes:
        """A whole text with its echoes masked."""
        for form in self._forms:
            count = data.count(form)
            if count:
                self.masked += count
                data = data.replace(form, _MASK * len(form))
        return data

    def chunk(self, data: bytes) -> bytes:
        """The next piece of a stream (``b""`` ends it): masked, and held back only as far as an echo may have begun at its end."""
        text = self.text(self._held + data)
        held = 0 if not data else self._begun(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def _begun(self, text: bytes) -> int:
        """Length of the longest end of ``text`` that is the beginning of a form."""
        return max((_overlap(text, form) for form in self._forms), default=0)


def _overlap(text: bytes, form: bytes) -> int:
    position = text.find(form[:1], max(0, len(text) - len(form) + 1))
    while position >= 0:
        if form.startswith(text[position:]):
            return len(text) - position
        position = text.find(form[:1], position + 1)
    return 0


def _forms(value: str) -> set[bytes]:
    """A value as servers echo it: plain, percent-encoded, as JSON, in base64 at each of its three alignments."""
    plain = value.encode()
    texts = {value, quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1], value.replace("/", "\\/")}
    forms = {text.encode() for text in texts}
    forms |= {quote(value, safe="").lower().encode()} if "%" in quote(value, safe="") else set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        # The characters that also depend on neighbours are cut off at both ends.
        start = (0, 2, 3)[shift]
        end = len(encoded) - (0, 3, 2)[(shift + len(plain)) % 3]
        core = encoded[start:end]
        forms |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return forms
