"""Echoes: how a server may repeat a secret's value, and how they are masked in whole texts and in streams.

A value is looked for in its plain form and in the encodings that servers commonly use: percent-encoding, JSON escapes (the necessary
ones and ``\\u00xx`` for everything), HTML's entities (a form that is shown again holds what was sent), base64 at its three alignments,
hexadecimal. A mask has the length of what it covers, so that
nothing else of the message changes. What a server does to a value in other ways cannot be undone here; the secret's own domain is
trusted that far, and docs/egress.md says so.

The work for a piece of a stream grows with its length and the number of patterns, whatever the text and the values are: a tenant
chooses both, and the proxy serves all. Two things see to that. A long form is searched for in pieces of ``_PATTERN_BYTES_MAX``, each
of which is masked on its own; so a stream is held back for less than two such pieces. And how much of its end has to wait (it may be
the beginning of an echo) is found in the sorted patterns by bisection: one look-up for each length, not one comparison for each pattern
and place. (A long value that repeats itself may be masked in part: pieces are found side by side, not one in the other.)
"""

import base64
import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from operator import and_
from typing import Final
from urllib.parse import quote, quote_plus

_MASK: Final = b"*"
_ECHO_BYTES_MIN: Final = 8
"""Shorter values would mask ordinary text ("admin"), and are guessed rather than stolen."""
_PATTERN_BYTES_MAX: Final = 1_024
_UNICODE_ESCAPES: Final = tuple(
    {code: form.format(code) for code in range(128) if is_whole or not chr(code).isalnum()}
    for form in ("\\u{:04x}", "\\u{:04X}")
    for is_whole in (True, False)
)
"""JSON's escapes of every character, and of every one that is no letter or digit (HTML-safe JSON escapes some of these)."""
_TEXT: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ENTITIES: Final = tuple(
    str.maketrans(marks)
    for marks in (
        {"&": "&amp;", '"': "&quot;"},  # a browser's own, in attributes
        _TEXT,
        _TEXT | {'"': "&quot;"},
        _TEXT | {'"': "&quot;", "'": "&#x27;"},  # Python, Django
        _TEXT | {'"': "&quot;", "'": "&#39;"},  # Ruby
        _TEXT | {'"': "&quot;", "'": "&#039;"},  # PHP
        _TEXT | {'"': "&quot;", "'": "&apos;"},  # XML
        _TEXT | {'"': "&#34;", "'": "&#39;"},  # Go, Jinja
    )
)
"""How the common template engines write a value into a page."""


class Scrubber:
    """Masks every repetition of a secret, in whole texts and in streams."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        """``patterns`` come from :func:`patterns_of`."""
        self._patterns = sorted(set(patterns))
        self._firsts = frozenset(pattern[0] for pattern in self._patterns)
        self._held_max = max(map(len, self._patterns), default=1) - 1
        self._held = b""
        self._held_shadow = b""

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def text(self, data: bytes) -> bytes:
        """A whole text with its echoes masked."""
        return _masked(data, self._shadow(data, data))

    def chunk(self, data: bytes) -> bytes:
        """The next piece of a stream (``b""`` ends it): masked, and held back only as far as an echo may have begun at its end."""
        text = self._held + data
        shadow = self._shadow(text, self._held_shadow + data)
        held = begun(text[-self._held_max :], self._patterns, self._firsts) if data and self._held_max else 0
        cut = len(text) - held
        self._held, self._held_shadow = text[cut:], shadow[cut:]
        return _masked(text[:cut], shadow[:cut])

    def _shadow(self, text: bytes, shadow: bytes) -> bytes:
        """``shadow`` with zeros at each echo in ``text``. All are looked for in the text as it was: forms overlap, and to mask one
        would hide another."""
        found = [text.replace(pattern, bytes(len(pattern))) for pattern in self._patterns if pattern in text]
        if not found:
            return shadow
        # No pattern holds a zero, so that what is zero in one of them is zero in all, bit by bit.
        joined = reduce(and_, (int.from_bytes(one, "little") for one in (shadow, *found)))
        return joined.to_bytes(len(text), "little")


def _masked(text: bytes, shadow: bytes) -> bytes:
    if shadow == text:
        return text
    masked = bytearray(shadow.replace(b"\0", _MASK))
    zero = text.find(0)
    while zero >= 0:  # those of the text's own
        masked[zero] = 0
        zero = text.find(0, zero + 1)
    return bytes(masked)


def begun(text: bytes, patterns: Sequence[bytes], firsts: frozenset[int]) -> int:
    """Length of the longest end of ``text`` that one of the sorted ``patterns`` begins with; ``firsts`` are their first bytes."""
    for start, first in enumerate(text):
        if first not in firsts:
            continue
        end = text[start:]
        at = bisect_left(patterns, end)
        if at < len(patterns) and patterns[at].startswith(end):
            return len(end)
    return 0


def patterns_of(forms: Iterable[bytes]) -> frozenset[bytes]:
    """The searched patterns, so that each of ``forms`` is found: itself, or its pieces if it is long."""
    return frozenset(piece for form in forms if len(form) >= _ECHO_BYTES_MIN for piece in _pieces(form))


def _pieces(form: bytes) -> list[bytes]:
    """All of a form, no piece shorter than ``_PATTERN_BYTES_MAX`` unless the form is."""
    count = max(1, len(form) // _PATTERN_BYTES_MAX)
    cuts = [number * _PATTERN_BYTES_MAX for number in range(count)] + [len(form)]
    return [form[start:end] for start, end in pairwise(cuts)]


def forms_of(value: str) -> set[bytes]:
    """A value as servers echo it; nothing of one that is too short to be searched for."""
    if len(value) < _ECHO_BYTES_MIN:
        return set()
    plain = value.encode()
    percent = quote(value, safe="")
    texts = {value, percent, quote(value), quote_plus(value), json.dumps(value)[1:-1], value.replace("/", "\\/")}
    texts |= {percent.lower()} if "%" in percent else set()
    texts |= {plain.hex(), plain.hex().upper()}
    texts |= {value.translate(escapes) for escapes in (*_UNICODE_ESCAPES, *_ENTITIES)}
    texts.add(quote(value, safe="!'()*"))  # encodeURIComponent (ECMA-262, 19.2.6.4)
    return {text.encode() for text in texts} | _base64_forms(plain)


def _base64_forms(plain: bytes) -> set[bytes]:
    forms = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        # The characters that also depend on neighbours are cut off at both ends.
        start = (0, 2, 3)[shift]
        end = len(encoded) - (0, 3, 2)[(shift + len(plain)) % 3]
        core = encoded[start:end]
        forms |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return forms
