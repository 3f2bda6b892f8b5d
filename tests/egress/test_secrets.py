"""Domain secrets: what is taken, how values are kept, and where they go."""

import base64
from collections.abc import Callable
from dataclasses import replace

import pytest
from moorage import limits
from moorage.egress.keys import DataKey
from moorage.egress.redaction import Scrubber
from moorage.egress.secrets import OpenSecret, container_context, seal, unseal
from moorage.egress.substitution import Headers, SubstitutedForm, SubstitutedRequest, ValuesTooLarge, form_secrets, in_form, substitute
from moorage.sealing import SealBroken
from moorage.wire.network_policy import DomainSecret, is_plain_path

VALUE = "sk-live-0123456789"
CONTEXT = container_context("tenant-1", "cntr_1")
KEY = DataKey(b"k" * 32, b"wrapped")


PLAIN = DomainSecret(domain="api.example.com", name="API_KEY", value=VALUE)


def test_a_value_is_in_no_representation() -> None:
    sealed = seal(PLAIN, KEY, CONTEXT)
    opened = unseal(sealed, KEY.plaintext, CONTEXT)
    swapped = substitute([opened], "api.example.com", "GET", "/", ((b"x", sealed.placeholder.encode()),))
    shown = "".join(map(repr, (PLAIN, sealed, opened, swapped, KEY, Scrubber(opened.echoes))))
    assert VALUE not in shown
    assert "wrapped" not in shown.replace("wrapped=", "")


def test_what_is_sealed_opens_only_where_it_belongs() -> None:
    sealed = seal(PLAIN, KEY, CONTEXT)
    assert unseal(sealed, KEY.plaintext, CONTEXT).value == VALUE
    assert VALUE.encode() not in (sealed.ciphertext or b"")
    moved = (
        (sealed, container_context("tenant-1", "cntr_2")),
        (sealed, container_context("tenant-2", "cntr_1")),
        (replace(sealed, domain="evil.test"), CONTEXT),
        (replace(sealed, name="OTHER"), CONTEXT),
    )
    for record, context in moved:
        with pytest.raises(SealBroken):
            unseal(record, KEY.plaintext, context)


def test_a_value_for_several_hosts_opens_for_those_hosts_alone() -> None:
    several = replace(PLAIN, more_domains=("files.example.com", "*.cdn.example"))
    sealed = seal(several, KEY, CONTEXT)
    opened = unseal(sealed, KEY.plaintext, CONTEXT)
    hosts = ("api.example.com", "files.example.com", "a.cdn.example", "cdn.example", "other.example.com")
    assert [opened.goes_to(host) for host in hosts] == [True, True, True, False, False]
    for more in ((), ("files.example.com",), (*several.more_domains, "evil.test")):
        with pytest.raises(SealBroken):
            unseal(replace(sealed, more_domains=more), KEY.plaintext, CONTEXT)


def test_no_two_placeholders_and_ciphertexts_are_alike() -> None:
    sealed = [seal(PLAIN, KEY, CONTEXT) for _ in range(50)]
    assert len({one.placeholder for one in sealed}) == len({one.ciphertext for one in sealed}) == 50
    assert all(one.placeholder.startswith("MOORAGE_SECRET_API_KEY_") for one in sealed)


# --- Substitution ---------------------------------------------------------------------------------------------------------------

TOKEN = "MOORAGE_SECRET_API_KEY_00112233445566778899aabbccddeeff"
OPEN = OpenSecret("API_KEY", "api.example.com", TOKEN, VALUE)
AUTH = ((b"Authorization", f"Bearer {TOKEN}".encode()),)
SWAPPED = ((b"Authorization", f"Bearer {VALUE}".encode()),)
BASIC = base64.b64encode(f"user:{TOKEN}".encode())
BASIC_SWAPPED = base64.b64encode(f"user:{VALUE}".encode())

SUBSTITUTIONS: dict[str, tuple[OpenSecret, tuple[str, str, str, Headers], SubstitutedRequest]] = {
    "in a header": (OPEN, ("api.example.com", "GET", "/", AUTH), SubstitutedRequest(SWAPPED, "/", ("API_KEY",), ())),
    "nowhere": (OPEN, ("api.example.com", "GET", "/", ()), SubstitutedRequest((), "/", (), ())),
    "at another host": (OPEN, ("evil.test", "GET", "/", AUTH), SubstitutedRequest(AUTH, "/", (), ())),
    "at a subdomain": (OPEN, ("x.api.example.com", "GET", "/", AUTH), SubstitutedRequest(AUTH, "/", (), ())),
    "by TRACE": (OPEN, ("api.example.com", "TRACE", "/", AUTH), SubstitutedRequest(AUTH, "/", (), ())),
    "in the query without leave": (
        OPEN,
        ("api.example.com", "GET", f"/?k={TOKEN}", ()),
        SubstitutedRequest((), f"/?k={TOKEN}", (), ()),
    ),
    "in the query": (
        replace(OPEN, places=("query",), value="a&b c/d"),
        ("api.example.com", "GET", f"/p/{TOKEN}?k={TOKEN}", AUTH),
        SubstitutedRequest(AUTH, f"/p/{TOKEN}?k=a%26b%20c%2Fd", ("API_KEY",), ()),
    ),
    "in a query of any bytes": (
        replace(OPEN, places=("query",), value="a&b"),
        ("api.example.com", "GET", f"/\udcff?k={TOKEN}\udcfe", ()),
        SubstitutedRequest((), "/\udcff?k=a%26b\udcfe", ("API_KEY",), ()),
    ),
    "in Basic without leave": (
        OPEN,
        ("api.example.com", "GET", "/", ((b"Authorization", b"Basic " + BASIC),)),
        SubstitutedRequest(((b"Authorization", b"Basic " + BASIC),), "/", (), ()),
    ),
    "in Basic": (
        replace(OPEN, places=("basic_auth",)),
        ("api.example.com", "GET", "/", ((b"authorization", b"basic " + BASIC),)),
        SubstitutedRequest(((b"authorization", b"basic " + BASIC_SWAPPED),), "/", ("API_KEY",), (BASIC_SWAPPED,)),
    ),
    "in broken Basic": (
        replace(OPEN, places=("basic_auth",)),
        ("api.example.com", "GET", "/", ((b"Authorization", b"Basic ???"),)),
        SubstitutedRequest(((b"Authorization", b"Basic ???"),), "/", (), ()),
    ),
    "in the Referer": (
        OPEN,
        ("api.example.com", "GET", "/", ((b"Referer", TOKEN.encode()),)),
        SubstitutedRequest(((b"Referer", TOKEN.encode()),), "/", (), ()),
    ),
    "by another method": (
        replace(OPEN, methods=("POST",)),
        ("api.example.com", "GET", "/", AUTH),
        SubstitutedRequest(AUTH, "/", (), ()),
    ),
    "below a prefix": (
        replace(OPEN, path_prefixes=("/v1/",)),
        ("api.example.com", "GET", "/v1/x?q=../", AUTH),
        SubstitutedRequest(SWAPPED, "/v1/x?q=../", ("API_KEY",), ()),
    ),
    "beside a prefix": (
        replace(OPEN, path_prefixes=("/v1",)),
        ("api.example.com", "GET", "/v10", AUTH),
        SubstitutedRequest(AUTH, "/v10", (), ()),
    ),
}


@pytest.mark.parametrize(("opened", "request_", "expected"), SUBSTITUTIONS.values(), ids=SUBSTITUTIONS.keys())
def test_a_placeholder_is_swapped(opened: OpenSecret, request_: tuple[str, str, str, Headers], expected: SubstitutedRequest) -> None:
    assert substitute([opened], *request_) == expected


FORMS: dict[str, tuple[str, bytes, bytes]] = {
    "a form": (
        "application/x-www-form-urlencoded; charset=utf-8",
        f"user=a&password={TOKEN}".encode(),
        b"user=a&password=it%27s%20%26",
    ),
    "json": ("Application/JSON", f'{{"password": "{TOKEN}"}}'.encode(), b'{"password": "it\'s &"}'),
    "parts": ("multipart/form-data; boundary=x", f"--x\r\n\r\n{TOKEN}\r\n--x--".encode(), b"--x\r\n\r\nit's &\r\n--x--"),
    "a text": ("text/plain", TOKEN.encode(), TOKEN.encode()),
    "a form without it": ("application/json", b"{}", b"{}"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_placeholder_in_a_body_is_swapped_as_the_body_writes_values(kind: str) -> None:
    content_type, body, expected = FORMS[kind]
    secret = replace(OPEN, value="it's &", places=("form",))
    names = ("API_KEY",) if body != expected else ()
    assert in_form([secret], content_type, body) == SubstitutedForm(expected, names)


LONG = replace(OPEN, value="x" * limits.DOMAIN_SECRET_CHARS_MAX, places=("headers", "basic_auth", "query", "form"))
OFTEN = "&".join([TOKEN] * 1_000)
REPEATED: dict[str, Callable[[], object]] = {
    "a header": lambda: substitute([LONG], "api.example.com", "GET", "/", ((b"X-Key", OFTEN.encode()),)),
    "many headers": lambda: substitute([LONG], "api.example.com", "GET", "/", ((b"X-Key", TOKEN.encode()),) * 1_000),
    "Basic": lambda: substitute(
        [LONG], "api.example.com", "GET", "/", ((b"Authorization", b"Basic " + base64.b64encode(OFTEN.encode())),)
    ),
    "a query": lambda: substitute([LONG], "api.example.com", "GET", f"/?{OFTEN}", ()),
    "a form": lambda: in_form([LONG], "application/x-www-form-urlencoded", OFTEN.encode()),
}


@pytest.mark.parametrize("place", REPEATED)
def test_a_placeholder_that_is_repeated_does_not_make_megabytes(place: str) -> None:
    """50 bytes stand for 64 KiB, and all containers share the proxy's memory."""
    with pytest.raises(ValuesTooLarge):
        REPEATED[place]()


@pytest.mark.parametrize(
    ("secret", "host", "count"),
    [
        (replace(OPEN, places=("form",)), "api.example.com", 1),
        (OPEN, "api.example.com", 0),
        (replace(OPEN, places=("form",)), "evil.test", 0),
        (replace(OPEN, places=("form",), methods=("PUT",)), "api.example.com", 0),
    ],
    ids=["its own host", "another place", "another host", "another method"],
)
def test_a_body_is_held_where_a_secret_may_stand_in_it(secret: OpenSecret, host: str, count: int) -> None:
    assert len(form_secrets([secret], host, "POST", "/sign-in", ())) == count


SENDERS: dict[str, tuple[Headers, bool]] = {
    "a program": ((), True),
    "its own page": (((b"Origin", b"https://api.example.com"), (b"Sec-Fetch-Site", b"same-origin")), True),
    "its own page that names no site": (((b"origin", b"null"), (b"sec-fetch-site", b"same-origin")), True),
    "a page of its site": (((b"Origin", b"https://app.example.com"), (b"Sec-Fetch-Site", b"same-site")), True),
    "a page of another host of the secret": (((b"Origin", b"https://files.example.org"), (b"Sec-Fetch-Site", b"cross-site")), True),
    "a page of another site": (((b"Origin", b"https://evil.test"), (b"Sec-Fetch-Site", b"cross-site")), False),
    "one that names no site": (((b"Origin", b"null"), (b"Sec-Fetch-Site", b"cross-site")), False),
    "an old browser's": (((b"Origin", b"https://evil.test"),), False),
    "one of no address": (((b"Origin", b"https://[evil"),), False),
}


@pytest.mark.parametrize("sender", SENDERS)
def test_a_form_of_another_sites_page_gets_no_value(sender: str) -> None:
    """It could send the placeholder to a form of the host that everybody reads."""
    headers, is_filled = SENDERS[sender]
    secret = replace(OPEN, places=("form",), more_domains=("files.example.org",))
    assert form_secrets([secret], "api.example.com", "POST", "/comment", headers) == ((secret,) if is_filled else ())


TRICKS = (
    "/a/../b",
    "/a/./b",
    "//a",
    "/a//b",
    "/a\\b",
    "/a/%2e%2e/b",
    "/a%2fb",
    "/a%5Cb",
    "/a;x/b",
    "/a%252e",
    "a",
    "",
    "/\u00e9",
    "/a\n",
)


@pytest.mark.parametrize("path", TRICKS)
def test_a_path_that_can_be_read_in_two_ways_is_not_plain(path: str) -> None:
    assert not is_plain_path(path)
