"""Echoes of a secret: found in each form and however a stream is cut, for a bounded amount of work."""

import base64
import gzip
import html
import json
import random
import string
from collections.abc import Callable
from typing import SupportsIndex, overload
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage import limits
from moorage.egress.redaction import Scrubber, begun, forms_of, patterns_of

VALUE = "sk-live-0123456789"


def echoes_of(value: str) -> frozenset[bytes]:
    return patterns_of(forms_of(value))


ECHOES: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "in JSON": json.dumps,
    "percent-encoded": lambda value: quote(value, safe=""),
    "percent-encoded in small letters": lambda value: quote(value, safe="").lower() if "%" in quote(value, safe="") else value,
    "escaped as HTML-safe JSON": lambda value: "".join(c if c.isalnum() else f"\\u{ord(c):04x}" for c in value),
    "escaped throughout": lambda value: "".join(f"\\u{ord(c):04X}" for c in value),
    "in a page": html.escape,
    "in a page of Go's": lambda value: html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "in a page of PHP's": lambda value: html.escape(value).replace("&#x27;", "&#039;"),
    "in XML": lambda value: html.escape(value).replace("&#x27;", "&apos;"),
    "in an attribute that a browser wrote": lambda value: value.replace("&", "&amp;").replace('"', "&quot;"),
    "percent-encoded by a page": lambda value: quote(value, safe="!'()*"),
    "hexadecimal": lambda value: value.encode().hex(),
    "hexadecimal in capitals": lambda value: value.encode().hex().upper(),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "base64 behind one byte": lambda value: base64.b64encode(b"x" + value.encode() + b"yz").decode(),
    "base64 behind two bytes": lambda value: base64.b64encode(b"xy" + value.encode() + b"z").decode(),
}
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60)


@given(VALUES, st.sampled_from(sorted(ECHOES)), st.lists(st.integers(1, 9), max_size=30))
def test_an_echo_is_masked_however_it_is_cut(value: str, how: str, cuts: list[int]) -> None:
    scrubber = Scrubber(echoes_of(value))
    body = f"before {ECHOES[how](value)} after".encode()
    passed, at = b"", 0
    for cut in cuts:
        passed += scrubber.chunk(body[at : at + cut])
        at += cut
    passed += (scrubber.chunk(body[at:]) if at < len(body) else b"") + scrubber.chunk(b"")
    assert len(passed) == len(body)
    assert passed.startswith(b"before ")
    assert passed.endswith(b" after")
    assert value.encode() not in passed
    assert _longest_common(passed, ECHOES[how](value).encode()) < 8


def _longest_common(left: bytes, right: bytes) -> int:
    return max((n for n in range(1, len(right) + 1) for at in range(len(right) - n + 1) if right[at : at + n] in left), default=0)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_what_is_no_echo_passes_unchanged(pieces: list[bytes]) -> None:
    scrubber = Scrubber(echoes_of(VALUE))
    assert b"".join([*map(scrubber.chunk, filter(None, pieces)), scrubber.chunk(b"")]) == b"".join(pieces)


def test_a_value_too_short_to_be_a_secret_masks_nothing() -> None:
    scrubber = Scrubber(echoes_of("admin"))
    assert not scrubber
    assert scrubber.text(b"admin") == b"admin"


def test_a_packed_echo_is_not_seen_by_the_scrubber_alone() -> None:
    packed = gzip.compress(VALUE.encode() * 3)
    assert Scrubber(echoes_of(VALUE)).text(packed) == packed


# --- Long values, and the work that they are ---


@settings(max_examples=40)
@given(st.integers(1_000, 9_000), st.lists(st.integers(1, 3_000), max_size=12), st.sampled_from(["marks", "no marks", "one mark"]))
def test_a_long_value_is_masked_whole_however_it_is_cut(length: int, cuts: list[int], kind: str) -> None:
    letters = "".join(random.Random(length).choices(string.ascii_letters, k=length))
    value = {
        "marks": "/".join(letters[at : at + 7] for at in range(0, length, 8)),
        "no marks": letters,
        "one mark": f"/+{letters}",
    }[kind]
    scrubber = Scrubber(echoes_of(value))
    forms = [value, quote(value, safe=""), json.dumps(value).replace("/", "\\/"), value.encode().hex()]
    body = "\0".join(forms).encode()
    passed, at = b"", 0
    for cut in cuts:
        passed += scrubber.chunk(body[at : at + cut]) if body[at : at + cut] else b""
        at += cut
    passed += (scrubber.chunk(body[at:]) if at < len(body) else b"") + scrubber.chunk(b"")
    plain, percent, quoted, hexadecimal = (len(form) for form in forms)
    assert passed == b"\0".join((b"*" * plain, b"*" * percent, b'"' + b"*" * (quoted - 2) + b'"', b"*" * hexadecimal))


class CountedList(list[bytes]):
    """Sorted patterns that count how often one of them is looked at."""

    looks = 0

    @overload
    def __getitem__(self, at: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> bytes | list[bytes]:
        self.looks += 1
        return super().__getitem__(at)


WORST = {
    "one letter, then another": ["a" * 65_534 + "b"],
    "a hundred that begin alike": ["a" * 1_200 + f"{n:03}" for n in range(100)],
    "a period": ["ab" * 32_000 + "c"],
}


@pytest.mark.parametrize("values", WORST.values(), ids=WORST.keys())
def test_a_pieces_tail_is_searched_in_bounded_steps(
    values: list[str],
) -> None:
    """Comparing each place with each pattern would be millions of looks here, each along thousands of letters."""
    patterns = CountedList(sorted(frozenset().union(*map(echoes_of, values))))
    longest = max(map(len, patterns))
    firsts = frozenset(pattern[0] for pattern in list(patterns))
    text = b"a" * (longest - 1)
    assert begun(text, patterns, firsts) > 0
    assert patterns.looks <= longest * (len(patterns).bit_length() + 2)
    assert longest < 2_048


def test_the_patterns_of_all_secrets_that_a_policy_may_have_are_bounded() -> None:
    values = ["".join(f"{n:04x}+" for n in range(count, count + 13_107)) for count in (0, 13_107)]
    assert sum(map(len, values)) <= limits.DOMAIN_SECRETS_CHARS_MAX
    patterns = frozenset().union(*map(echoes_of, values))
    assert (len(patterns) < 6_000, sum(map(len, patterns)) < 64 * limits.DOMAIN_SECRETS_CHARS_MAX) == (True, True)
