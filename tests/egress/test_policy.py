"""The decision as tables: what a request says about itself, and the reason it gets."""

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moorage.egress.policy import EgressDecision, EgressPolicy, EgressReason, EgressRequest, admit, classify, decide, sentence
from moorage.errors import ApiError
from moorage.wire.network_policy import NetworkPolicy

POLICY = EgressPolicy(
    domains=("api.example.com", "*.pkg.example", "xn--bcher-kva.example", "*.idn.example"), own_networks=("54.12.0.0/16",)
)
PUBLIC = "93.184.216.34"


def asks(host: str, port: int = 443, **known: object) -> EgressRequest:
    return replace(EgressRequest(host, port), **known)  # type: ignore[arg-type]


DECISIONS: dict[str, tuple[EgressRequest, EgressReason]] = {
    "a listed name": (asks("api.example.com"), EgressReason.ALLOWED_EXACT),
    "a listed name in capitals": (asks("API.Example.COM"), EgressReason.ALLOWED_EXACT),
    "a listed name with a trailing dot": (asks("api.example.com."), EgressReason.ALLOWED_EXACT),
    "a listed name on port 80": (asks("api.example.com", 80), EgressReason.ALLOWED_EXACT),
    "a subdomain of a wildcard": (asks("a.pkg.example"), EgressReason.ALLOWED_WILDCARD),
    "a deep subdomain of a wildcard": (asks("a.b.c.pkg.example"), EgressReason.ALLOWED_WILDCARD),
    "a name with an underscore below a wildcard": (asks("my_bucket.pkg.example"), EgressReason.ALLOWED_WILDCARD),
    "an internationalised name that is listed": (asks("xn--bcher-kva.example"), EgressReason.ALLOWED_EXACT),
    "everything known and consistent": (
        asks("api.example.com", address=PUBLIC, sni="API.example.com", host_header="api.example.com:443"),
        EgressReason.ALLOWED_EXACT,
    ),
    "the base of a wildcard": (asks("pkg.example"), EgressReason.DOMAIN_NOT_ALLOWED),
    "a name that ends like a wildcard": (asks("evilpkg.example"), EgressReason.DOMAIN_NOT_ALLOWED),
    "a listed name as a prefix": (asks("api.example.com.evil.test"), EgressReason.DOMAIN_NOT_ALLOWED),
    "a listed name as a suffix": (asks("evil-api.example.com"), EgressReason.DOMAIN_NOT_ALLOWED),
    "the parent of a listed name": (asks("example.com"), EgressReason.DOMAIN_NOT_ALLOWED),
    "a subdomain of an exact name": (asks("x.api.example.com"), EgressReason.DOMAIN_NOT_ALLOWED),
    "another name": (asks("evil.test"), EgressReason.DOMAIN_NOT_ALLOWED),
    "localhost": (asks("localhost"), EgressReason.DOMAIN_NOT_ALLOWED),
    "a name that spells an address": (asks("127.0.0.1.nip.test"), EgressReason.DOMAIN_NOT_ALLOWED),
    "punycode below a wildcard": (asks("xn--pi-7ka.idn.example"), EgressReason.PUNYCODE_NOT_LISTED),
    "punycode in a middle label below a wildcard": (asks("a.xn--pi-7ka.idn.example"), EgressReason.PUNYCODE_NOT_LISTED),
    "punycode that looks like a listed name": (asks("xn--pi-7ka.example.com"), EgressReason.DOMAIN_NOT_ALLOWED),
    "a Cyrillic look-alike in raw Unicode": (asks("\u0430pi.example.com"), EgressReason.INVALID_HOST),
    "full-width letters": (asks("\uff41pi.example.com"), EgressReason.INVALID_HOST),
    "a Kelvin sign": (asks("\u212aube.pkg.example"), EgressReason.INVALID_HOST),
    "an ideographic full stop": (asks("api\u3002example.com"), EgressReason.INVALID_HOST),
    "nothing": (asks(""), EgressReason.INVALID_HOST),
    "a dot": (asks("."), EgressReason.INVALID_HOST),
    "two trailing dots": (asks("api.example.com.."), EgressReason.INVALID_HOST),
    "a leading dot": (asks(".api.example.com"), EgressReason.INVALID_HOST),
    "a NUL byte": (asks("api.example.com\0.evil.test"), EgressReason.INVALID_HOST),
    "a newline": (asks("api.example.com\nevil.test"), EgressReason.INVALID_HOST),
    "a newline at the end": (asks("api.example.com\n"), EgressReason.INVALID_HOST),
    "a space": (asks("api.example.com evil.test"), EgressReason.INVALID_HOST),
    "a percent-encoded dot": (asks("api%2eexample.com"), EgressReason.INVALID_HOST),
    "user information": (asks("evil@api.example.com"), EgressReason.INVALID_HOST),
    "a path": (asks("api.example.com/../evil"), EgressReason.INVALID_HOST),
    "a backslash": (asks("api.example.com\\evil"), EgressReason.INVALID_HOST),
    "a label of 64 characters": (asks("a" * 64 + ".pkg.example"), EgressReason.INVALID_HOST),
    "a name of 254 characters": (asks("a." * 122 + "pkg.example"), EgressReason.INVALID_HOST),
    "a label with a leading hyphen": (asks("-a.pkg.example"), EgressReason.INVALID_HOST),
    "a dotted address": (asks("93.184.216.34"), EgressReason.IP_LITERAL),
    "a dotted address with a trailing dot": (asks("93.184.216.34."), EgressReason.IP_LITERAL),
    "a decimal address": (asks("2130706433"), EgressReason.IP_LITERAL),
    "a hexadecimal address": (asks("0x7f000001"), EgressReason.IP_LITERAL),
    "a hexadecimal address in capitals": (asks("0X7F.0.0.1"), EgressReason.IP_LITERAL),
    "an octal address": (asks("0177.0.0.01"), EgressReason.IP_LITERAL),
    "a short address": (asks("127.1"), EgressReason.IP_LITERAL),
    "a lone zero": (asks("0"), EgressReason.IP_LITERAL),
    "an address whose last part is an empty hexadecimal number": (asks("127.0.0.0x"), EgressReason.IP_LITERAL),
    "an IPv6 address": (asks("::1"), EgressReason.IP_LITERAL),
    "an IPv6 address in brackets": (asks("[::1]"), EgressReason.IP_LITERAL),
    "an IPv6 address with a zone": (asks("fe80::1%eth0"), EgressReason.IP_LITERAL),
    "a mapped address": (asks("[::ffff:169.254.169.254]"), EgressReason.IP_LITERAL),
    "port 22": (asks("api.example.com", 22), EgressReason.PORT_NOT_ALLOWED),
    "port 0": (asks("api.example.com", 0), EgressReason.PORT_NOT_ALLOWED),
    "port 8443": (asks("api.example.com", 8443), EgressReason.PORT_NOT_ALLOWED),
    "a listed name that resolves to loopback": (asks("api.example.com", address="127.0.0.1"), EgressReason.ADDRESS_LOOPBACK),
    "a listed name that resolves to the VPC": (asks("api.example.com", address="54.12.3.4"), EgressReason.ADDRESS_OWN_NETWORK),
    "a listed name that resolves to the metadata service": (
        asks("api.example.com", address="169.254.169.254"),
        EgressReason.ADDRESS_METADATA,
    ),
    "no SNI": (asks("api.example.com", address=PUBLIC, sni=""), EgressReason.SNI_MISSING),
    "another SNI": (asks("api.example.com", address=PUBLIC, sni="evil.test"), EgressReason.SNI_MISMATCH),
    "an SNI that is also allowed but not the same": (asks("api.example.com", sni="a.pkg.example"), EgressReason.SNI_MISMATCH),
    "an address as SNI": (asks("api.example.com", sni="93.184.216.34"), EgressReason.SNI_MISMATCH),
    "an encrypted hello": (
        asks("api.example.com", sni="api.example.com", has_encrypted_hello=True),
        EgressReason.ENCRYPTED_CLIENT_HELLO,
    ),
    "no Host": (asks("api.example.com", host_header=""), EgressReason.HOST_HEADER_MISSING),
    "another Host": (asks("api.example.com", host_header="evil.test"), EgressReason.HOST_HEADER_MISMATCH),
    "another port in Host": (asks("api.example.com", host_header="api.example.com:8443"), EgressReason.HOST_HEADER_MISMATCH),
    "an empty port in Host": (asks("api.example.com", host_header="api.example.com:"), EgressReason.HOST_HEADER_MISMATCH),
    "two names in Host": (asks("api.example.com", host_header="api.example.com, evil.test"), EgressReason.HOST_HEADER_MISMATCH),
    "user information in Host": (asks("api.example.com", host_header="x@api.example.com"), EgressReason.HOST_HEADER_MISMATCH),
}


@pytest.mark.parametrize(("request_", "reason"), DECISIONS.values(), ids=DECISIONS.keys())
def test_each_request_gets_its_reason(request_: EgressRequest, reason: EgressReason) -> None:
    is_allowed = reason in (EgressReason.ALLOWED_EXACT, EgressReason.ALLOWED_WILDCARD)
    expected = EgressDecision(is_allowed, reason, "" if is_allowed else sentence(reason, request_.host, request_.port))
    assert decide(request_, POLICY) == expected


ORDER: dict[str, tuple[EgressRequest, EgressPolicy, EgressReason]] = {
    "no network comes before a bad host": (asks("::1"), EgressPolicy(), EgressReason.NETWORK_DISABLED),
    "a bad host before the allowlist": (asks("::1"), EgressPolicy(domains=("a.test",)), EgressReason.IP_LITERAL),
    "the allowlist before the ceiling": (asks("b.test"), EgressPolicy(("a.test",), ceiling=()), EgressReason.DOMAIN_NOT_ALLOWED),
    "the ceiling before the port": (asks("a.test", 22), EgressPolicy(("a.test",), ceiling=("b.test",)), EgressReason.OUTSIDE_CEILING),
    "the port before the address": (asks("a.test", 22, address="127.0.0.1"), EgressPolicy(("a.test",)), EgressReason.PORT_NOT_ALLOWED),
    "the address before the hello": (
        asks("a.test", address="10.0.0.1", sni="b"),
        EgressPolicy(("a.test",)),
        EgressReason.ADDRESS_PRIVATE,
    ),
    "the hidden hello before the SNI": (
        asks("a.test", sni="b", has_encrypted_hello=True),
        EgressPolicy(("a.test",)),
        EgressReason.ENCRYPTED_CLIENT_HELLO,
    ),
    "the SNI before the Host": (asks("a.test", sni="b.test", host_header="c"), EgressPolicy(("a.test",)), EgressReason.SNI_MISMATCH),
    "an operator's port": (asks("a.test", 8443), EgressPolicy(("a.test",), ports=(80, 443, 8443)), EgressReason.ALLOWED_EXACT),
    "a ceiling that shrank": (asks("a.test"), EgressPolicy(("*.test", "a.test"), ceiling=("*.other",)), EgressReason.OUTSIDE_CEILING),
}


@pytest.mark.parametrize(("request_", "policy", "reason"), ORDER.values(), ids=ORDER.keys())
def test_the_rules_apply_in_the_documented_order(request_: EgressRequest, policy: EgressPolicy, reason: EgressReason) -> None:
    assert decide(request_, policy).reason == reason


def test_every_refusal_says_something_about_the_host() -> None:
    for reason in EgressReason:
        if not reason.startswith("allowed"):
            text = sentence(reason, "evil.test", 443)
            assert text.endswith((".", ")."))
            assert "evil.test" in text or reason.startswith("credential")


def test_a_refused_domain_is_named_together_with_the_way_to_allow_it() -> None:
    assert decide(asks("evil.test"), POLICY).sentence == (
        "Network access to 'evil.test' was refused: it is not among this container's allowed domains. To allow it, list "
        "'evil.test' in network_policy.allowed_domains; the operator must allow it too (MOORAGE_ALLOWED_EGRESS_DOMAINS)."
    )


ADDRESSES: dict[str, EgressReason | None] = {
    PUBLIC: None,
    "1.1.1.1": None,
    "2606:4700:4700::1111": None,
    "172.15.255.255": None,
    "172.32.0.0": None,
    "100.63.255.255": None,
    "100.128.0.0": None,
    "0.0.0.0": EgressReason.ADDRESS_UNSPECIFIED,
    "0.1.2.3": EgressReason.ADDRESS_UNSPECIFIED,
    "10.0.0.1": EgressReason.ADDRESS_PRIVATE,
    "172.16.0.0": EgressReason.ADDRESS_PRIVATE,
    "172.31.255.255": EgressReason.ADDRESS_PRIVATE,
    "192.168.1.1": EgressReason.ADDRESS_PRIVATE,
    "100.64.0.1": EgressReason.ADDRESS_SHARED,
    "127.0.0.1": EgressReason.ADDRESS_LOOPBACK,
    "127.255.255.254": EgressReason.ADDRESS_LOOPBACK,
    "169.254.1.1": EgressReason.ADDRESS_LINK_LOCAL,
    "169.254.169.254": EgressReason.ADDRESS_METADATA,
    "169.254.170.2": EgressReason.ADDRESS_METADATA,
    "fd00:ec2::254": EgressReason.ADDRESS_METADATA,
    "::ffff:169.254.169.254": EgressReason.ADDRESS_METADATA,
    "64:ff9b::a9fe:a9fe": EgressReason.ADDRESS_METADATA,
    "2002:a9fe:a9fe::1": EgressReason.ADDRESS_METADATA,
    "224.0.0.1": EgressReason.ADDRESS_MULTICAST,
    "239.255.255.255": EgressReason.ADDRESS_MULTICAST,
    "240.0.0.1": EgressReason.ADDRESS_RESERVED,
    "255.255.255.255": EgressReason.ADDRESS_RESERVED,
    "198.18.0.1": EgressReason.ADDRESS_RESERVED,
    "203.0.113.1": EgressReason.ADDRESS_RESERVED,
    "::": EgressReason.ADDRESS_UNSPECIFIED,
    "::1": EgressReason.ADDRESS_LOOPBACK,
    "::ffff:8.8.8.8": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "::8.8.8.8": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "64:ff9b::808:808": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "64:ff9b:1::1": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "2002:808:808::1": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "192.88.99.1": EgressReason.ADDRESS_EMBEDDED_IPV4,
    "2001:db8::1": EgressReason.ADDRESS_RESERVED,
    "fc00::1": EgressReason.ADDRESS_PRIVATE,
    "fec0::1": EgressReason.ADDRESS_PRIVATE,
    "fe80::1": EgressReason.ADDRESS_LINK_LOCAL,
    "2606:4700::1%eth0": EgressReason.ADDRESS_LINK_LOCAL,
    "ff02::1": EgressReason.ADDRESS_MULTICAST,
    "4000::1": EgressReason.ADDRESS_RESERVED,
    "100::1": EgressReason.ADDRESS_RESERVED,
    "127.1": EgressReason.ADDRESS_INVALID,
    "api.example.com": EgressReason.ADDRESS_INVALID,
}


@pytest.mark.parametrize(("address", "kind"), ADDRESSES.items(), ids=ADDRESSES.keys())
def test_each_address_is_classified(address: str, kind: EgressReason | None) -> None:
    assert classify(address) == kind


def test_an_opened_range_is_public_except_for_metadata_and_more_specific_own_ranges() -> None:
    opened = ("10.1.0.0/16", "169.254.0.0/16")
    assert {address: classify(address, ("10.1.2.0/24",), opened) for address in ("10.1.1.1", "10.1.2.1", "169.254.169.254")} == {
        "10.1.1.1": None,
        "10.1.2.1": EgressReason.ADDRESS_OWN_NETWORK,
        "169.254.169.254": EgressReason.ADDRESS_METADATA,
    }


@given(st.ip_addresses(v=4))
def test_every_ipv4_address_the_standard_library_calls_special_is_refused(address: ipaddress.IPv4Address) -> None:
    if classify(str(address)) is None:
        assert address.is_global
        assert not address.is_multicast
    else:
        # Refused beyond the standard library: the ranges that it calls global and that nobody should reach.
        beyond = ("192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24", "192.88.99.0/24", "192.0.0.0/24", "168.63.129.16/32")
        is_special = not address.is_global or address.is_multicast
        assert is_special or any(address in ipaddress.ip_network(cidr) for cidr in beyond)


@given(st.ip_addresses(v=6))
def test_every_ipv6_address_the_standard_library_calls_special_is_refused(address: ipaddress.IPv6Address) -> None:
    if classify(str(address)) is None:
        kinds = (address.is_multicast, address.ipv4_mapped, address.sixtofour, address.teredo, address.is_site_local)
        assert (address.is_global, any(kinds)) == (True, False)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "64:ff9b::{}", "::{}"]))
def test_no_address_hides_inside_an_ipv6_form(address: ipaddress.IPv4Address, form: str) -> None:
    assert classify(form.format(address)) is not None


CEILING = EgressPolicy(ceiling=("api.example.com", "*.pkg.example"), ports=(80, 443, 8443))


def allowlist(*domains: str) -> NetworkPolicy:
    return NetworkPolicy("allowlist", domains)


ACCEPTED: dict[str, tuple[NetworkPolicy, tuple[str, ...]]] = {
    "no network": (NetworkPolicy("disabled"), ()),
    "names inside the ceiling": (allowlist("api.example.com", "a.pkg.example"), ("api.example.com", "a.pkg.example")),
    "the ceiling's own wildcard": (allowlist("*.pkg.example"), ("*.pkg.example",)),
    "a narrower wildcard": (allowlist("*.a.pkg.example"), ("*.a.pkg.example",)),
    "a name twice": (allowlist("api.example.com", "api.example.com"), ("api.example.com",)),
}


@pytest.mark.parametrize(("asked", "domains"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_policy_inside_the_ceiling_is_admitted(asked: NetworkPolicy, domains: tuple[str, ...]) -> None:
    assert admit(asked, CEILING) == replace(CEILING, domains=domains)


OUTSIDE: dict[str, tuple[NetworkPolicy, int]] = {
    "a domain outside": (allowlist("evil.test"), 0),
    "the second domain outside": (allowlist("api.example.com", "evil.test"), 1),
    "a domain outside behind one that is there twice": (allowlist("api.example.com", "api.example.com", "evil.test"), 2),
    "a wider wildcard": (allowlist("*.example.com"), 0),
    "the base of a wildcard": (allowlist("pkg.example"), 0),
}


@pytest.mark.parametrize(("asked", "index"), OUTSIDE.values(), ids=OUTSIDE.keys())
def test_a_policy_outside_the_ceiling_is_refused_where_it_leaves_it(asked: NetworkPolicy, index: int) -> None:
    with pytest.raises(ApiError) as caught:
        admit(asked, CEILING)
    error = caught.value
    assert (error.status, error.param, error.code) == (400, f"network_policy.allowed_domains[{index}]", "domain_not_allowed")


def test_the_refusal_names_the_domain_and_the_setting() -> None:
    with pytest.raises(ApiError) as caught:
        admit(allowlist("evil.test"), CEILING, param="tools[0].environment.network_policy")
    assert caught.value.message == (
        "Domain 'evil.test' in 'tools[0].environment.network_policy.allowed_domains' is outside what this deployment allows. Its "
        "operator lists the domains that containers may reach in MOORAGE_ALLOWED_EGRESS_DOMAINS; it holds: api.example.com, "
        "*.pkg.example."
    )


def test_an_empty_ceiling_allows_no_network_at_all() -> None:
    with pytest.raises(ApiError, match="it is empty, so no container may have a network"):
        admit(allowlist("api.example.com"), EgressPolicy(ceiling=()))


def test_a_ceiling_of_one_star_takes_every_name() -> None:
    assert admit(allowlist("any.test", "*.any.test"), EgressPolicy()).domains == ("any.test", "*.any.test")
