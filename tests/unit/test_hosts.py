"""Names of hosts: what is one, what is none, and that nothing is repaired into another."""

import ipaddress
import socket

import idna
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from moorage.hosts import HostListing, is_ip_literal, listed, normalise, normalise_pattern


@given(st.ip_addresses(v=4), st.integers(0, 4), st.booleans())
def test_every_notation_that_the_c_library_reads_as_an_address_is_a_literal(
    address: ipaddress.IPv4Address, style: int, has_dot: bool
) -> None:
    number, octets = int(address), list(address.packed)
    text = [
        str(number),
        hex(number),
        "0" + oct(number)[2:],
        ".".join(hex(octet) for octet in octets),
        f"{octets[0]}.{number & 0xFFFFFF}",
    ][style]
    assert socket.inet_aton(text) == address.packed
    host = text + "." * has_dot
    assert is_ip_literal(host)
    assert normalise(host) is None


@given(st.text("0123456789abcdefx.", min_size=1, max_size=20))
def test_what_the_c_library_reads_as_an_address_is_never_a_name(text: str) -> None:
    try:
        socket.inet_aton(text)
    except OSError:
        return
    assert normalise(text) is None


NAMES = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,8}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,8}[a-zA-Z0-9])?){0,4}", fullmatch=True)


@given(NAMES, st.booleans())
def test_normalising_is_lowering_without_the_dot_and_happens_once(name: str, has_dot: bool) -> None:
    result = normalise(name + "." * has_dot)
    if result is None:
        assert is_ip_literal(name)
    else:
        assert result == name.lower()
        assert normalise(result) == result


@given(st.text(min_size=1, max_size=40))
def test_whatever_is_sent_as_a_host_a_name_comes_out_or_nothing(host: str) -> None:
    name = normalise(host)
    assert name is None or (name.isascii() and name == name.lower() and len(name) <= 253 and ".." not in name)


@settings(max_examples=500)
@example("\U0001ee00")
@given(st.text(st.characters(categories=("Ll", "Lu", "Lo", "Mn", "Nd")), min_size=1, max_size=12))
def test_an_internationalised_entry_becomes_what_the_idna_library_makes_of_it(label: str) -> None:
    pattern = normalise_pattern(f"{label}.example")
    if pattern is None or "xn--" not in pattern:
        return
    try:
        independent = idna.encode(f"{label}.example", uts46=True).decode()
    except idna.IDNAError:
        return  # IDNA 2008 knows no such name; ours can then only be looked up and fail.
    assert pattern == independent


PATTERNS: dict[str, str | None] = {
    "API.Example.com.": "api.example.com",
    "*.Example.com": "*.example.com",
    " api.example.com": None,
    "b\u00fccher.example": "xn--bcher-kva.example",
    "xn--bcher-kva.example": "xn--bcher-kva.example",
    "*": "*",
    "stra\u00dfe.example": None,
    "https://api.example.com": None,
    "api.example.com:443": None,
    "api.example.com/path": None,
    "10.0.0.1": None,
    "0x7f000001": None,
    "[::1]": None,
    "localhost": None,
    "a.*.example.com": None,
    "*example.com": None,
    "**.example.com": None,
    "": None,
    "*.": None,
    "*.com": "*.com",
    "fa\u00df.example": None,
    "\u2177.example": None,
    "ex\u3002com": None,
    "\uff45xample.com": None,
    "\u212aube.example": None,
    "a\u200db.example": None,
    "\u03c2.example": None,
    "\u1e9e.example": None,
}


@pytest.mark.parametrize(("entry", "pattern"), PATTERNS.items(), ids=PATTERNS.keys())
def test_an_entry_is_normalised_or_refused(entry: str, pattern: str | None) -> None:
    assert normalise_pattern(entry) == pattern


PATTERNS_HERE = ("api.example.com", "*.pkg.example", "xn--bcher-kva.idn.example", "*.idn.example")

LISTED: dict[str, HostListing | None] = {
    "api.example.com": HostListing.EXACTLY,
    "x.api.example.com": None,
    "a.pkg.example": HostListing.BY_WILDCARD,
    "a.b.pkg.example": HostListing.BY_WILDCARD,
    "pkg.example": None,
    "evilpkg.example": None,
    "xn--bcher-kva.idn.example": HostListing.EXACTLY,
    "xn--pi-7ka.idn.example": None,
}


@pytest.mark.parametrize(("host", "how"), LISTED.items(), ids=LISTED.keys())
def test_a_host_is_listed_exactly_or_by_a_wildcard_or_not(host: str, how: HostListing | None) -> None:
    assert listed(host, PATTERNS_HERE) == how
