"""Names of hosts: the one grammar by which settings, requests, the egress proxy and the CDK app read and compare them.

A *host* is a DNS name in lower-case ASCII without the trailing dot. A *pattern* is a host of two labels or more, ``*.`` before a host
(every name below it at any depth, not the host itself), or ``*`` (any name; for operators).

What is no name is refused and never repaired into one: two readers that repair differently would speak of different hosts. That goes
for addresses in every notation that some resolver understands, and for internationalised names that IDNA 2003 and IDNA 2008 encode
differently (``straße.de`` is ``strasse.de`` to the one and ``xn--strae-oqa.de`` to the other, and these have different owners).
"""

import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

NAME_CHARS_MAX: Final = 253
"""RFC 1035, section 2.3.4, without the root's empty label."""

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
"""A last label of this form makes the whole host an IPv4 address (WHATWG URL, "ends in a number")."""
_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?")
_PORTS: Final = {"http": 80, "https": 443}
_PORT_MAX: Final = 65_535
_DEVIATIONS: Final = frozenset("ßς\u200c\u200d")
"""Characters that IDNA 2003 and IDNA 2008 turn into different names (UTS 46, section 7)."""


class HostListing(Enum):
    """How a host is among patterns."""

    EXACTLY = auto()
    BY_WILDCARD = auto()


def listed(host: str, patterns: Sequence[str]) -> HostListing | None:
    """Whether a host is among patterns. A wildcard does not take a name with an ``xn--`` label: a possible look-alike must be listed
    exactly."""
    if host in patterns:
        return HostListing.EXACTLY
    if not has_punycode(host) and any(covers(pattern, host) for pattern in patterns):
        return HostListing.BY_WILDCARD
    return None


def covers(pattern: str, host: str) -> bool:
    """Whether a pattern covers a host or a narrower pattern."""
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and host != pattern[1:]
    return pattern == host


def has_punycode(host: str) -> bool:
    return any(label.startswith("xn--") for label in host.split("."))


def normalise(host: str) -> str | None:
    """A host as compared here: lower-case ASCII, no trailing dot. None if it is no DNS name (an address is none)."""
    if not host.isascii() or is_ip_literal(host):
        return None
    name = host.lower().removesuffix(".")
    if not 1 <= len(name) <= NAME_CHARS_MAX or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return None
    return name


def is_ip_literal(host: str) -> bool:
    """Would some resolver read this as an address? Decimal, octal, hexadecimal and short IPv4 forms and every IPv6 form count."""
    bare = host.lower().removesuffix(".")
    if ":" in bare or bare.startswith("["):
        return True
    return _NUMBER.fullmatch(bare.rpartition(".")[2]) is not None


def normalise_origin(text: str) -> str | None:
    """An origin as browsers write it (RFC 6454, section 6.2): scheme, host, and the port unless it is the scheme's own. None for
    anything else: a path, a wildcard, ``null``."""
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        return None
    scheme, host, port = match["scheme"], match["host"], int(match["port"] or 0)
    if normalise(host) != host and not _is_address(host.strip("[]"), is_bracketed=host.startswith("[")):
        return None
    if port > _PORT_MAX or (match["port"] is not None and not port):
        return None
    return f"{scheme}://{host}" + (f":{port}" if port not in (0, _PORTS[scheme]) else "")


def _is_address(text: str, *, is_bracketed: bool) -> bool:
    """In the one form that browsers write."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return str(address) == text and (address.version == 6) == is_bracketed


def normalise_pattern(entry: str) -> str | None:
    """An entry of an allowlist as a pattern; None if it is none.

    Internationalised names are taken if IDNA 2003 and 2008 agree on them; elsewhere the ``xn--`` form must be written.
    """
    if entry == "*":
        return entry
    prefix, name = ("*.", entry[2:]) if entry.startswith("*.") else ("", entry)
    ascii_name = name if name.isascii() else _to_ascii(name)
    host = None if ascii_name is None else normalise(ascii_name)
    # A single label is completed from the resolver's search list, which is not what was listed. ("*.com" is the operator's affair.)
    if host is None or ("." not in host and not prefix):
        return None
    return prefix + host


def _to_ascii(name: str) -> str | None:
    """IDNA 2003 (which the standard library has), for names on which IDNA 2008 agrees: characters that Unicode 3.2 knew, in their
    compatibility form already, without the four deviations."""
    lowered = name.lower()
    is_plain = all(unicodedata.normalize("NFKC", form) == form for form in (name, lowered))  # A Kelvin sign becomes a "k" in between.
    is_old = all(unicodedata.ucd_3_2_0.category(character) != "Cn" for character in lowered)
    if _DEVIATIONS & set(lowered) or not is_old or not is_plain:
        return None
    try:
        encoded = lowered.encode("idna").decode()
        is_stable = encoded.encode().decode("idna") == lowered.removesuffix(".")
    except UnicodeError:
        return None
    return encoded if is_stable else None
