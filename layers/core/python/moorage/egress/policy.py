"""Whether a request may go out: one pure function over the request's own claims.

A container reaches the network only through the proxy. The proxy asks :func:`decide` whenever it learns a new fact: the CONNECT line or
the URL (``host``, ``port``), the resolved ``address``, the TLS hello (``sni``), the request inside (``host_header``). An unknown fact
is ``None``, and its rules are skipped. An unsent one is the empty string.

The rules, in this order; the first that applies is the reason:

 1. ``network_disabled``        the container has no allowlist.
 2. ``invalid_host``            the host is no DNS name: empty, too long, a label that is not letters, digits, ``-`` or ``_``,
                                non-ASCII text, a percent sign, a control character, two trailing dots.
 3. ``ip_literal``              the host is an address in any notation that some resolver understands: dotted, short (``127.1``),
                                decimal, octal, hexadecimal, IPv6 with or without brackets and zone. Names only.
 4. ``punycode_not_listed``     only a wildcard matches a name with an ``xn--`` label: a possible look-alike must be listed exactly.
 5. ``domain_not_allowed``      no entry of the container's allowlist matches.
 6. ``outside_ceiling`` the operator's ceiling does not match (it may have shrunk since the container was made).
 7. ``port_not_allowed`` another port than 80, 443 and the operator's.
 8. ``host_needs_approval``     the container's policy has a person allow each new host, and nobody has allowed this one.
 9. ``address_*``               the resolved address is not a public one (the table is at :func:`classify`). The proxy connects to
                                exactly this address, so a name cannot be bound anew between check and use.
10. ``encrypted_client_hello``  the TLS hello hides its true server name.
11. ``sni_missing``, ``sni_mismatch``                  the TLS hello must name the CONNECT host.
12. ``host_header_missing``, ``host_header_mismatch``  and so must the request inside: no domain fronting.

Everything else is allowed, as ``allowed_exact`` or ``allowed_wildcard``. A name is judged before it is resolved, so that a lookup
of a forbidden name never leaves the machine.

How names are read and compared stands in ``hosts.py``.
"""

import ipaddress
import re
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import bad_request
from moorage.hosts import HostListing, covers, has_punycode, is_ip_literal, listed, normalise
from moorage.wire.network_policy import NetworkPolicy

SETTING: Final = "MOORAGE_ALLOWED_EGRESS_DOMAINS"
PORTS: Final = (80, 443)

_AUTHORITY_PORT: Final = re.compile(r"[0-9]{1,5}")


class EgressReason(StrEnum):
    """Why a request was let through or not. The values are stored and listed: they never change their meaning."""

    ALLOWED_EXACT = "allowed_exact"
    ALLOWED_WILDCARD = "allowed_wildcard"

    NETWORK_DISABLED = "network_disabled"
    INVALID_HOST = "invalid_host"
    IP_LITERAL = "ip_literal"
    PUNYCODE_NOT_LISTED = "punycode_not_listed"
    DOMAIN_NOT_ALLOWED = "domain_not_allowed"
    OUTSIDE_CEILING = "outside_ceiling"
    PORT_NOT_ALLOWED = "port_not_allowed"
    HOST_NEEDS_APPROVAL = "host_needs_approval"
    ADDRESS_INVALID = "address_invalid"
    ADDRESS_METADATA = "address_metadata"
    ADDRESS_OWN_NETWORK = "address_own_network"
    ADDRESS_UNSPECIFIED = "address_unspecified"
    ADDRESS_LOOPBACK = "address_loopback"
    ADDRESS_PRIVATE = "address_private"
    ADDRESS_SHARED = "address_shared"
    ADDRESS_LINK_LOCAL = "address_link_local"
    ADDRESS_MULTICAST = "address_multicast"
    ADDRESS_EMBEDDED_IPV4 = "address_embedded_ipv4"
    ADDRESS_RESERVED = "address_reserved"
    ENCRYPTED_CLIENT_HELLO = "encrypted_client_hello"
    SNI_MISSING = "sni_missing"
    SNI_MISMATCH = "sni_mismatch"
    HOST_HEADER_MISSING = "host_header_missing"
    HOST_HEADER_MISMATCH = "host_header_mismatch"

    # What the proxy itself finds, outside the reach of a policy.
    CREDENTIAL_MISSING = "credential_missing"
    CREDENTIAL_UNKNOWN = "credential_unknown"
    POLICY_UNAVAILABLE = "policy_unavailable"
    REVOKED = "revoked"
    MALFORMED = "malformed"
    HEADERS_TOO_LARGE = "headers_too_large"
    NOT_TLS_OR_HTTP = "not_tls_or_http"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    UNRESOLVABLE = "unresolvable"
    SECRET_NEEDS_APPROVAL = "secret_needs_approval"  # noqa: S105
    UNREADABLE_BODY = "unreadable_body"
    TOO_MANY_UNPACKED = "too_many_unpacked"
    VALUES_TOO_LARGE = "values_too_large"


@dataclass(frozen=True, slots=True)
class EgressOpening:
    """The subject of an approval: a host that a container may reach, or a secret that it may use."""

    kind: Literal["host", "secret"]
    name: str

    @property
    def key(self) -> str:
        return f"{self.kind}#{self.name}"

    @classmethod
    def of_key(cls, key: str) -> "EgressOpening":
        kind, _, name = key.partition("#")
        return cls("host" if kind == "host" else "secret", name)


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The reach of one container. ``domains`` are normalised patterns; empty means no network."""

    domains: tuple[str, ...] = ()
    ceiling: tuple[str, ...] = ("*",)
    """The operator's patterns; ``*`` is any name."""
    ports: tuple[int, ...] = PORTS
    own_networks: tuple[str, ...] = ()
    """The deployment's own ranges (the VPC's), as CIDR: refused even where they are public."""
    allowed_networks: tuple[str, ...] = ()
    """Ranges that the operator opens although they are not public (an internal package mirror), as CIDR."""
    asks_hosts: tuple[str, ...] = ()
    """Patterns of hosts that a person has to allow first, among them ``*``."""
    asks_secrets: tuple[str, ...] = ()
    """Names of secrets that a person has to allow first."""
    opened: frozenset[EgressOpening] = frozenset()
    """What a person has allowed."""
    mirrors: tuple[str, ...] = ()
    """Hosts of the operator's package mirrors: the installation of packages reaches them (:meth:`installing`)."""

    def installing(self) -> "EgressPolicy":
        """The same, with the mirrors, about which nobody is asked."""
        opened = self.opened | {EgressOpening("host", host) for host in self.mirrors}
        return replace(self, domains=(*self.domains, *self.mirrors), ceiling=(*self.ceiling, *self.mirrors), opened=opened)

    def holds_secret(self, name: str) -> bool:
        """Whether the use of a secret waits for a person's word."""
        return name in self.asks_secrets and EgressOpening("secret", name) not in self.opened


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """The facts so far of one attempt to reach a host. ``None``: not known yet. ``""``: known not to have been sent."""

    host: str
    port: int
    address: str | None = None
    sni: str | None = None
    has_encrypted_hello: bool = False
    host_header: str | None = None


@dataclass(frozen=True, slots=True)
class EgressDecision:
    allowed: bool
    reason: EgressReason
    sentence: str
    """For the user and the model: what was refused and how to allow it. Empty when allowed."""


def decide(request: EgressRequest, policy: EgressPolicy) -> EgressDecision:
    """The decision from the facts of ``request``; the rules and their order are above."""
    reason = _reason(request, policy)
    if reason in (EgressReason.ALLOWED_EXACT, EgressReason.ALLOWED_WILDCARD):
        return EgressDecision(True, reason, "")
    return EgressDecision(False, reason, sentence(reason, request.host, request.port))


def _reason(request: EgressRequest, policy: EgressPolicy) -> EgressReason:
    if not policy.domains:
        return EgressReason.NETWORK_DISABLED
    host = normalise(request.host)
    if host is None:
        return EgressReason.IP_LITERAL if is_ip_literal(request.host) else EgressReason.INVALID_HOST
    allowed = listed(host, policy.domains)
    if allowed is None:
        wildcard_would = has_punycode(host) and any(covers(entry, host) for entry in policy.domains)
        return EgressReason.PUNYCODE_NOT_LISTED if wildcard_would else EgressReason.DOMAIN_NOT_ALLOWED
    if not any(covers(entry, host) for entry in policy.ceiling):
        return EgressReason.OUTSIDE_CEILING
    if request.port not in policy.ports:
        return EgressReason.PORT_NOT_ALLOWED
    if any(covers(entry, host) for entry in policy.asks_hosts) and EgressOpening("host", host) not in policy.opened:
        return EgressReason.HOST_NEEDS_APPROVAL
    if request.address is not None:
        kind = classify(request.address, policy.own_networks, policy.allowed_networks)
        if kind is not None:
            return kind
    return _name_inside(request, host) or (
        EgressReason.ALLOWED_EXACT if allowed is HostListing.EXACTLY else EgressReason.ALLOWED_WILDCARD
    )


def _name_inside(request: EgressRequest, host: str) -> EgressReason | None:
    """The names within the connection, if they are known, must be the one that was asked for."""
    if request.has_encrypted_hello:
        return EgressReason.ENCRYPTED_CLIENT_HELLO
    if request.sni is not None and normalise(request.sni) != host:
        return EgressReason.SNI_MISMATCH if request.sni else EgressReason.SNI_MISSING
    if request.host_header is not None and not _is_authority_of(request.host_header, host, request.port):
        return EgressReason.HOST_HEADER_MISMATCH if request.host_header else EgressReason.HOST_HEADER_MISSING
    return None


def _is_authority_of(authority: str, host: str, port: int) -> bool:
    name, colon, suffix = authority.rpartition(":")
    if not colon:
        return normalise(authority) == host
    return normalise(name) == host and _AUTHORITY_PORT.fullmatch(suffix) is not None and int(suffix) == port


# --- Addresses --------------------------------------------------------------------------------------------------------------

_METADATA: Final = (
    "169.254.169.254",  # EC2 and most clouds
    "169.254.169.253",  # the VPC's resolver
    "169.254.169.123",  # Amazon Time Sync
    "169.254.170.2",  # ECS task credentials
    "169.254.170.23",  # EKS pod identity
    "fd00:ec2::254",
    "fd00:ec2::253",
    "fd00:ec2::123",
    "fd00:ec2::23",
    "100.100.100.200",  # Alibaba Cloud
    "168.63.129.16",  # Azure's wire server, a public address
)
"""Addresses that hand out credentials or belong to the machine's own cloud: no setting opens them."""

_SPECIAL: Final = (
    # IANA IPv4 Special-Purpose Address Registry, 2024-11.
    ("0.0.0.0/8", EgressReason.ADDRESS_UNSPECIFIED),
    ("10.0.0.0/8", EgressReason.ADDRESS_PRIVATE),
    ("100.64.0.0/10", EgressReason.ADDRESS_SHARED),
    ("127.0.0.0/8", EgressReason.ADDRESS_LOOPBACK),
    ("169.254.0.0/16", EgressReason.ADDRESS_LINK_LOCAL),
    ("172.16.0.0/12", EgressReason.ADDRESS_PRIVATE),
    ("192.0.0.0/24", EgressReason.ADDRESS_RESERVED),
    ("192.0.2.0/24", EgressReason.ADDRESS_RESERVED),
    ("192.31.196.0/24", EgressReason.ADDRESS_RESERVED),
    ("192.52.193.0/24", EgressReason.ADDRESS_RESERVED),
    ("192.88.99.0/24", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("192.168.0.0/16", EgressReason.ADDRESS_PRIVATE),
    ("192.175.48.0/24", EgressReason.ADDRESS_RESERVED),
    ("198.18.0.0/15", EgressReason.ADDRESS_RESERVED),
    ("198.51.100.0/24", EgressReason.ADDRESS_RESERVED),
    ("203.0.113.0/24", EgressReason.ADDRESS_RESERVED),
    ("224.0.0.0/4", EgressReason.ADDRESS_MULTICAST),
    ("240.0.0.0/4", EgressReason.ADDRESS_RESERVED),
    # IANA IPv6 Special-Purpose Address Registry. Only 2000::/3 is handed out at all: the last line refuses the rest.
    ("::/128", EgressReason.ADDRESS_UNSPECIFIED),
    ("::1/128", EgressReason.ADDRESS_LOOPBACK),
    ("::ffff:0:0/96", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("::/96", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("64:ff9b::/96", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("64:ff9b:1::/48", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("2001::/32", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("2001::/23", EgressReason.ADDRESS_RESERVED),
    ("2001:db8::/32", EgressReason.ADDRESS_RESERVED),
    ("2002::/16", EgressReason.ADDRESS_EMBEDDED_IPV4),
    ("2620:4f:8000::/48", EgressReason.ADDRESS_RESERVED),
    ("3fff::/20", EgressReason.ADDRESS_RESERVED),
    ("fc00::/7", EgressReason.ADDRESS_PRIVATE),
    ("fe80::/10", EgressReason.ADDRESS_LINK_LOCAL),
    ("fec0::/10", EgressReason.ADDRESS_PRIVATE),
    ("ff00::/8", EgressReason.ADDRESS_MULTICAST),
    ("2000::/3", None),
    ("::/0", EgressReason.ADDRESS_RESERVED),
)
"""Ranges in order; the first that holds an address says what it is. None is a public address."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_SPECIAL_NETWORKS: Final = tuple((ipaddress.ip_network(cidr), reason) for cidr, reason in _SPECIAL)
_METADATA_ADDRESSES: Final = frozenset(ipaddress.ip_address(text) for text in _METADATA)


def classify(address: str, own_networks: tuple[str, ...] = (), allowed_networks: tuple[str, ...] = ()) -> EgressReason | None:
    """Why an address is refused, None if it is public or the operator opened its range.

    Metadata addresses come first and are refused always; then the operator's own and opened ranges (the more specific wins, own
    on a tie), then the registries. An IPv6 form that carries an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) is always
    refused: it would be judged by one and routed by the other.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return EgressReason.ADDRESS_INVALID
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.scope_id is not None:
        return EgressReason.ADDRESS_LINK_LOCAL
    if parsed in _METADATA_ADDRESSES or _embedded(parsed) in _METADATA_ADDRESSES:
        return EgressReason.ADDRESS_METADATA
    own, opened = _prefix_length(parsed, own_networks), _prefix_length(parsed, allowed_networks)
    if own >= 0 and own >= opened:
        return EgressReason.ADDRESS_OWN_NETWORK
    if opened >= 0:
        return None
    return next((reason for network, reason in _SPECIAL_NETWORKS if parsed.version == network.version and parsed in network), None)


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address in the low 32 bits of a mapped, compatible or NAT64 address, or inside a 6to4 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    return address.sixtofour or ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _prefix_length(address: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: tuple[str, ...]) -> int:
    """Length of the longest prefix among ``networks`` that holds the address; -1 if none does."""
    return max((n.prefixlen for n in _parsed(networks) if n.version == address.version and address in n), default=-1)


@lru_cache(maxsize=64)
def _parsed(networks: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(cidr, strict=False) for cidr in networks)


# --- What the user reads ------------------------------------------------------------------------------------------------------


_WHAT_THEN: Final = "You will read what was decided; try again then, and not before."


def sentence(reason: EgressReason, host: str, port: int) -> str:
    """The refused host, the reason, and how to allow it, in words for the model and the user."""
    host = shown(host)
    what = f"Network access to '{host}' was refused"
    match reason:
        case EgressReason.NETWORK_DISABLED:
            return f"{what}: this container has no network. Create it with network_policy {_example(host)}."
        case EgressReason.DOMAIN_NOT_ALLOWED | EgressReason.PUNYCODE_NOT_LISTED:
            exactly = (
                " exactly (a wildcard does not cover internationalised names)" if reason is EgressReason.PUNYCODE_NOT_LISTED else ""
            )
            return (
                f"{what}: it is not among this container's allowed domains. To allow it, list '{host}'{exactly} in "
                f"network_policy.allowed_domains; the operator must allow it too ({SETTING})."
            )
        case EgressReason.OUTSIDE_CEILING:
            return f"{what}: the operator of this deployment does not allow it. {SETTING} must list it."
        case EgressReason.PORT_NOT_ALLOWED:
            return f"{what}: port {port} is closed. Use port 80 or 443, or ask the operator to add it (MOORAGE_EGRESS_PORTS)."
        case EgressReason.HOST_NEEDS_APPROVAL:
            return f"{what}: a person has to allow it first, and is asked when this call has ended. {_WHAT_THEN}"
        case EgressReason.SECRET_NEEDS_APPROVAL:
            return f"{what}: a person has to allow the use of its secret first, and is asked when this call has ended. {_WHAT_THEN}"
        case EgressReason.IP_LITERAL:
            return f"{what}: it is an address. Use the domain name and list it in network_policy.allowed_domains."
        case EgressReason.INVALID_HOST:
            return f"{what}: this is not a valid domain name."
        case EgressReason.UNRESOLVABLE:
            return f"Network access to '{host}' failed: the name could not be resolved."
        case EgressReason.SNI_MISSING | EgressReason.SNI_MISMATCH | EgressReason.ENCRYPTED_CLIENT_HELLO:
            return f"{what}: the TLS hello must name '{host}' in clear (no other name, no Encrypted Client Hello)."
        case EgressReason.HOST_HEADER_MISSING | EgressReason.HOST_HEADER_MISMATCH:
            return f"{what}: the Host header must be '{host}'."
        case EgressReason.NOT_TLS_OR_HTTP:
            return f"{what}: only HTTP and HTTPS can leave this container; ssh and other protocols cannot. Use https:// URLs."
        case EgressReason.CREDENTIAL_MISSING | EgressReason.CREDENTIAL_UNKNOWN:
            return "The proxy needs this container's credential: use HTTPS_PROXY as it is set in the environment."
        case EgressReason.POLICY_UNAVAILABLE:
            return f"{what}: the policy could not be read just now. Try again shortly."
        case EgressReason.REVOKED:
            return f"{what}: this container's network access has ended."
        case EgressReason.TOO_MANY_CONNECTIONS:
            return (
                f"{what}: this container has too many connections open ({limits.EGRESS_CONNECTIONS_MAX}), or its tenant has "
                f"({limits.EGRESS_TENANT_CONNECTIONS_MAX})."
            )
        case EgressReason.UNREADABLE_BODY:
            return (
                f"The answer of '{host}' was not passed on: its Content-Encoding cannot be looked into, and a secret was sent with the "
                "request. Ask for a plain body (Accept-Encoding: identity) or one in gzip, deflate, br or zstd."
            )
        case EgressReason.TOO_MANY_UNPACKED:
            return (
                f"The answer of '{host}' was not passed on: too many bodies in br or zstd are being unpacked at once. Try again, or "
                "ask for a plain body (Accept-Encoding: identity)."
            )
        case EgressReason.VALUES_TOO_LARGE:
            return (
                f"{what}: the values of its secrets would add more than {limits.EGRESS_VALUES_BYTES_MAX >> 10} KiB to the request. Use "
                "each placeholder once."
            )
        case EgressReason.MALFORMED | EgressReason.HEADERS_TOO_LARGE:
            return f"{what}: the request is malformed or its headers are too large."
        case EgressReason.ALLOWED_EXACT | EgressReason.ALLOWED_WILDCARD:
            return ""
        case _:
            return f"{what}: it resolves to an address that is not public ({reason.removeprefix('address_').replace('_', ' ')})."


def shown(host: str) -> str:
    """A host as it may stand in a sentence, a header or a log, even if a client sent it malformed."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in host[:255])


def _example(host: str) -> str:
    return f'{{"type": "allowlist", "allowed_domains": ["{host}"]}}'


# --- Requests -----------------------------------------------------------------------------------------------------------------


def admit(asked: NetworkPolicy, ceiling: EgressPolicy, *, param: str = "network_policy") -> EgressPolicy:
    """The requested policy, inside the operator's ``ceiling`` (everything but its ``domains`` is kept).

    Raises :class:`ApiError` 400 that names the domain and the setting if a domain lies outside.
    """
    for index, domain in enumerate(asked.allowed_domains):
        if not any(covers(allowed, domain) for allowed in ceiling.ceiling):
            raise bad_request(
                f"Domain '{domain}' in '{param}.allowed_domains' is outside what this deployment allows. Its operator lists the "
                f"domains that containers may reach in {SETTING}; {_listing(ceiling.ceiling)}.",
                param=f"{param}.allowed_domains[{index}]",
                code="domain_not_allowed",
            )
    domains = tuple(dict.fromkeys(asked.allowed_domains))
    return replace(ceiling, domains=domains, asks_hosts=asked.asks_hosts, asks_secrets=asked.asks_secrets)


def _listing(ceiling: tuple[str, ...]) -> str:
    return f"it holds: {', '.join(ceiling)}" if ceiling else "it is empty, so no container may have a network"
