"""A network policy as it is read: what is taken, what is refused and where, and that no value of a secret shows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moorage import hosts
from moorage.errors import ApiError
from moorage.wire.network_policy import DomainSecret, NetworkPolicy, parse_network_policy, refusal

VALUE = "sk-live-0123456789"
NO_NAME = (
    "is not a domain. Use a full name such as 'api.example.com' or '*.example.com', without scheme, port, path or address; write "
    "internationalised names in their 'xn--' form."
)


def allowlist(*domains: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "allowlist", "allowed_domains": list(domains), **fields}


def secret(**changes: Any) -> dict[str, Any]:
    return {"domain": "api.example.com", "name": "API_KEY", "value": VALUE} | changes


def with_secrets(*secrets: Any) -> dict[str, Any]:
    return allowlist("api.example.com", "*.pkg.example", domain_secrets=list(secrets))


TAKEN: dict[str, tuple[dict[str, Any], NetworkPolicy]] = {
    "no network": ({"type": "disabled"}, NetworkPolicy("disabled")),
    "names in any case": (
        allowlist("API.Example.com.", "*.EXAMPLE.com", "a_b.example.com"),
        NetworkPolicy("allowlist", ("api.example.com", "*.example.com", "a_b.example.com")),
    ),
    "an internationalised name": (allowlist("bücher.example"), NetworkPolicy("allowlist", ("xn--bcher-kva.example",))),
    "a name twice": (allowlist("a.example", "a.example."), NetworkPolicy("allowlist", ("a.example", "a.example"))),
    "no secrets said with null": (allowlist("a.example", domain_secrets=None), NetworkPolicy("allowlist", ("a.example",))),
    "a secret": (
        allowlist("api.example.com", domain_secrets=[secret()]),
        NetworkPolicy("allowlist", ("api.example.com",), (DomainSecret(domain="api.example.com", name="API_KEY", value=VALUE),)),
    ),
    "a secret with its scope": (
        allowlist(
            "*.example.com",
            domain_secrets=[
                secret(domain="API.example.com.", methods=["GET", "POST"], path_prefixes=["/v1"], places=["headers", "query"])
            ],
        ),
        NetworkPolicy(
            "allowlist",
            ("*.example.com",),
            (
                DomainSecret(
                    domain="api.example.com",
                    name="API_KEY",
                    value=VALUE,
                    methods=("GET", "POST"),
                    path_prefixes=("/v1",),
                    places=("headers", "query"),
                ),
            ),
        ),
    ),
    "a secret of the operator": (
        allowlist("*.pkg.example", domain_secrets=[{"domain": "a.pkg.example", "name": "N", "places": []}]),
        NetworkPolicy("allowlist", ("*.pkg.example",), (DomainSecret(domain="a.pkg.example", name="N"),)),
    ),
}


@pytest.mark.parametrize(("given_", "policy"), TAKEN.values(), ids=TAKEN.keys())
def test_a_policy_is_read(given_: dict[str, Any], policy: NetworkPolicy) -> None:
    assert parse_network_policy(given_, "network_policy") == policy


def test_what_is_shown_reads_as_the_same_policy_without_values() -> None:
    given_ = with_secrets(secret(methods=["GET"], path_prefixes=["/v1"], places=["query"]), secret(name="PLAIN"))
    policy = parse_network_policy(given_, "p")
    narrowed, plain = ({key: value for key, value in one.items() if key != "value"} for one in given_["domain_secrets"])
    assert policy.to_json() == with_secrets(narrowed, plain)
    assert VALUE not in repr(policy)


REFUSED: dict[str, tuple[Any, str, str]] = {
    "no object": ("disabled", "", "Invalid type for 'p': expected an object, but got a string instead."),
    "no type": ({}, ".type", "Missing required parameter: 'p.type'."),
    "another type": ({"type": "open"}, ".type", "Invalid value: 'open'. Supported values are: 'disabled' and 'allowlist'."),
    "a type that is no word": ({"type": 1}, ".type", "Invalid type for 'p.type': expected a string, but got an integer instead."),
    "domains on disabled": (
        {"type": "disabled", "allowed_domains": []},
        ".allowed_domains",
        "Unknown parameter: 'p.allowed_domains'.",
    ),
    "an unknown field": (allowlist("a.example", x=1), ".x", "Unknown parameter: 'p.x'."),
    "domains missing": ({"type": "allowlist"}, ".allowed_domains", "Missing required parameter: 'p.allowed_domains'."),
    "a string of domains": (
        {"type": "allowlist", "allowed_domains": "x"},
        ".allowed_domains",
        "Invalid type for 'p.allowed_domains': expected an array, but got a string instead.",
    ),
    "no domains": (
        allowlist(),
        ".allowed_domains",
        "Invalid 'p.allowed_domains': array too short. Expected an array with minimum length 1, but got an array with length 0 "
        "instead.",
    ),
    "too many domains": (
        allowlist(*["a.example"] * 501),
        ".allowed_domains",
        "Invalid 'p.allowed_domains': array too long. Expected an array with maximum length 500, but got an array with length 501 "
        "instead.",
    ),
    "a number among the domains": (
        allowlist("a.example", 1),
        ".allowed_domains[1]",
        "Invalid type for 'p.allowed_domains[1]': expected a string, but got an integer instead.",
    ),
    "a secret that is no object": (
        with_secrets("API_KEY"),
        ".domain_secrets[0]",
        "Invalid type for 'p.domain_secrets[0]': expected an object, but got a string instead.",
    ),
    "no secrets": (
        with_secrets(),
        ".domain_secrets",
        "Invalid 'p.domain_secrets': array too short. Expected an array with minimum length 1, but got an array with length 0 instead.",
    ),
    "an unknown field of a secret": (
        with_secrets(secret(note="x")),
        ".domain_secrets[0].note",
        "Unknown parameter: 'p.domain_secrets[0].note'.",
    ),
    "a secret without a domain": (
        with_secrets({"name": "N", "value": "v"}),
        ".domain_secrets[0].domain",
        "Missing required parameter: 'p.domain_secrets[0].domain'.",
    ),
    "a secret without a name": (
        with_secrets({"domain": "api.example.com", "value": "v"}),
        ".domain_secrets[0].name",
        "Missing required parameter: 'p.domain_secrets[0].name'.",
    ),
    "a secret for another domain": (
        with_secrets(secret(), secret(domain="evil.test", name="B")),
        ".domain_secrets[1].domain",
        "Invalid value for 'p.domain_secrets[1].domain': 'evil.test' is not among 'allowed_domains'. A secret can only go to an "
        "allowed domain.",
    ),
    "a secret for the base of a wildcard": (
        with_secrets(secret(domain="pkg.example")),
        ".domain_secrets[0].domain",
        "Invalid value for 'p.domain_secrets[0].domain': 'pkg.example' is not among 'allowed_domains'. A secret can only go to an "
        "allowed domain.",
    ),
    "a secret for a look-alike below a wildcard": (
        with_secrets(secret(domain="xn--pi-7ka.pkg.example")),
        ".domain_secrets[0].domain",
        "Invalid value for 'p.domain_secrets[0].domain': 'xn--pi-7ka.pkg.example' is not among 'allowed_domains'. A secret can only go "
        "to an allowed domain.",
    ),
    "a secret for a wildcard": (
        with_secrets(secret(domain="*.pkg.example")),
        ".domain_secrets[0].domain",
        "Invalid value for 'p.domain_secrets[0].domain': a secret goes to one full domain name, without a wildcard.",
    ),
    "a secret for an address": (
        with_secrets(secret(domain="10.0.0.1")),
        ".domain_secrets[0].domain",
        "Invalid value for 'p.domain_secrets[0].domain': '10.0.0.1' is an address. Only domain names can be allowed.",
    ),
    "a name twice": (
        with_secrets(secret(), secret(domain="a.pkg.example")),
        ".domain_secrets[1].name",
        "Invalid value for 'p.domain_secrets[1].name': 'API_KEY' is given twice; each becomes one environment variable.",
    ),
    "a method in small letters": (
        with_secrets(secret(methods=["get"])),
        ".domain_secrets[0].methods[0]",
        "Unsupported value: 'get' for 'p.domain_secrets[0].methods[0]'. It takes an HTTP method in capitals.",
    ),
    "a word in place of methods": (
        with_secrets(secret(methods="GET")),
        ".domain_secrets[0].methods",
        "Invalid type for 'p.domain_secrets[0].methods': expected an array, but got a string instead.",
    ),
    "a path with dots": (
        with_secrets(secret(path_prefixes=["/v1", "/v1/../"])),
        ".domain_secrets[0].path_prefixes[1]",
        "Unsupported value: '/v1/../' for 'p.domain_secrets[0].path_prefixes[1]'. It takes a path that starts with '/'.",
    ),
    "a place that is none": (
        with_secrets(secret(places=["body"])),
        ".domain_secrets[0].places[0]",
        "Unsupported value: 'body' for 'p.domain_secrets[0].places[0]'. It takes one of headers, basic_auth, query, form.",
    ),
}


@pytest.mark.parametrize(("given_", "below", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_policy_is_refused_where_it_is_wrong(given_: Any, below: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_network_policy(given_, "p")
    assert (caught.value.status, caught.value.param, caught.value.message) == (400, "p" + below, message)


NO_DOMAINS: dict[str, str] = {
    "https://example.com": "is not a domain. Give the host name alone, without scheme, port or path.",
    "example.com:443": "is not a domain. Give the host name alone, without scheme, port or path.",
    "example.com/path": "is not a domain. Give the host name alone, without scheme, port or path.",
    "[::1]": "is not a domain. Give the host name alone, without scheme, port or path.",
    "10.0.0.1": "is an address. Only domain names can be allowed.",
    "0x7f.1": "is an address. Only domain names can be allowed.",
    "exa mple.com": "is not a valid domain.",
    " example.com": "is not a valid domain.",
    "example.com\r\n": "is not a valid domain.",
    "example.com..": "is not a valid domain.",
    "a..b": "is not a valid domain.",
    "-a.example": "is not a valid domain.",
    "*": "is not a valid domain.",
    "*.*.example": "is not a valid domain.",
    "a.*.example": "is not a valid domain.",
    "...": "is not a valid domain.",
    "localhost": NO_NAME,
    "straße.de": NO_NAME,
    "*.straße.de": NO_NAME,
    "faß.example": NO_NAME,
    "ⅷ.example": NO_NAME,
    "ex。com": NO_NAME,
    "ｅxample.com": NO_NAME,
    "K\u212a.example": NO_NAME,
    "a\u200db.example": NO_NAME,
    "σ\u03c2.example": NO_NAME,
}


@pytest.mark.parametrize("place", ["allowed_domains[1]", "domain_secrets[0].domain"])
@pytest.mark.parametrize(("entry", "why"), NO_DOMAINS.items())
def test_what_is_no_domain_is_refused_and_never_made_one(entry: str, why: str, place: str) -> None:
    is_secret = place.startswith("domain_secrets")
    given_ = with_secrets(secret(domain=entry)) if is_secret else allowlist("example.com", entry)
    with pytest.raises(ApiError) as caught:
        parse_network_policy(given_, "p")
    assert (caught.value.param, caught.value.message) == (f"p.{place}", f"Invalid value for 'p.{place}': '{entry}' {why}")


@pytest.mark.parametrize(("entry", "code"), [("", "string_below_min_length"), ("a" * 2000, "string_above_max_length")])
def test_a_domain_has_a_length(entry: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_network_policy(allowlist(entry), "p")
    assert (caught.value.param, caught.value.code) == ("p.allowed_domains[0]", code)


@given(st.text(min_size=1, max_size=20).filter(lambda label: not label.startswith("*")), st.booleans())
def test_a_domain_that_is_taken_is_the_one_that_was_written(label: str, is_wildcard: bool) -> None:
    entry = f"{'*.' if is_wildcard else ''}{label}.example"
    try:
        (domain,) = parse_network_policy(allowlist(entry), "p").allowed_domains
    except ApiError:
        return
    name = domain.removeprefix("*.")
    assert hosts.normalise(name) == name
    assert name.encode().decode("idna") == label.lower() + ".example"


def test_secrets_have_room_for_what_is_in_use_and_not_for_more_than_a_record_holds() -> None:
    """Each of them is within its own bounds."""
    one, two = (secret(name=name, value="v" * 65_000) for name in ("ONE", "TWO"))
    assert len(parse_network_policy(with_secrets(one, two), "p").domain_secrets) == 2
    for more in (secret(name="THREE", value="v" * 65_000), secret(name="THREE", path_prefixes=["/" + "p" * 1_000] * 2)):
        with pytest.raises(ApiError, match="at most 131072 are taken") as caught:
            parse_network_policy(with_secrets(one, two, more), "p")
        assert caught.value.param == "p.domain_secrets"


BAD_NAMES = ["MY-TOKEN", "API_KEY\n", "1A", "LD_PRELOAD", "path", "https_proxy", "SSL_CERT_FILE", "MOORAGE_X", "", "N" * 129]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_free_variable_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_network_policy(with_secrets(secret(name=name)), "p")
    assert (caught.value.param, VALUE in caught.value.message) == ("p.domain_secrets[0].name", False)


BAD_VALUES = ["v\r\nx-evil: 1", "evil\x7f", "evil\u00e9", "", "evil" * 16385, 5, ["evil"]]


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_that_cannot_stand_in_a_header_is_refused_without_repeating_it(value: Any) -> None:
    with pytest.raises(ApiError) as caught:
        parse_network_policy(with_secrets(secret(value=value)), "p")
    assert (caught.value.param, "evil" in caught.value.message) == ("p.domain_secrets[0].value", False)


def test_a_refusal_can_be_told_of_another_place() -> None:
    wrong = allowlist("a..b")
    with pytest.raises(ApiError) as caught:
        parse_network_policy(wrong, "x")
    told = refusal(wrong, "tools[0].environment.network_policy")
    assert told.param == "tools[0].environment.network_policy.allowed_domains[0]"
    assert told.message.replace("tools[0].environment.network_policy", "x") == caught.value.message
