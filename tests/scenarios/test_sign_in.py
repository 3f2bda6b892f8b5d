"""Tokens of an issuer at the API, and signing in to the console: over a running stack, with an issuer on this machine."""

import html
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.browser import chromium
from tests.command_line import moorage
from tests.issuer import (
    AUDIENCE,
    CLIENT,
    PERSON,
    Issuer,
    SigningKey,
    issuing,
    unsigned,
    with_embedded_key,
    with_public_key_as_secret,
)
from tests.stack import Stack


@dataclass(frozen=True)
class Place:
    stack: Stack
    issuer: Issuer

    @property
    def console(self) -> str:
        return self.stack.url.removesuffix("v1") + "console/"

    def ask(self, token: str, method: str = "GET", path: str = "/me", **more: Any) -> httpx.Response:
        with self.stack.http(token) as http:
            return http.request(method, path, **more)

    def refusal(self, token: str) -> tuple[int, str, str]:
        answer = self.ask(token)
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["message"].removeprefix("This token opens nothing: ")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with issuing() as issuer:
        port = free_port()
        settings = {
            "MOORAGE_PORT": str(port),
            "MOORAGE_OIDC_ISSUER": issuer.url,
            "MOORAGE_OIDC_AUDIENCE": AUDIENCE,
            "MOORAGE_OIDC_TENANTS": "acme,other",
            "MOORAGE_OIDC_CLIENT_ID": CLIENT,
            "MOORAGE_OIDC_CONSOLE_URL": f"http://127.0.0.1:{port}/console/",
            "MOORAGE_OIDC_ROLES": "admin:admin,staff:member,auditors:reader",
        }
        stack = Stack(tmp_path_factory.mktemp("identity"), settings).start()
        yield Place(stack, issuer)
        assert stack.stop() == 0


@pytest.fixture
def place(served: Place) -> Place:
    served.issuer.person, served.issuer.nonce = dict(PERSON), None
    return served


# --- Tokens at the API ----------------------------------------------------------------------------------------------------------


def test_a_token_opens_its_tenant_and_keys_go_on(place: Place) -> None:
    client = OpenAI(base_url=place.stack.url, api_key=place.issuer.token(), max_retries=0)
    made = client.responses.create(model="demo", input="hello")
    me = place.ask(place.issuer.token()).json()
    again = place.ask(place.issuer.token(jti="another")).json()
    assert (me["tenant"], me["key"]["name"], me["key"]["id"]) == ("acme", "ada@example.com", again["key"]["id"])
    other = place.issuer.token(tenant="other")
    assert place.ask(other, path=f"/responses/{made.id}").status_code == 404
    with place.stack.http() as http:
        assert http.get("/me").json()["tenant"] == "default"
        assert http.get(f"/responses/{made.id}").status_code == 404


def test_roles_say_what_a_token_may(place: Place) -> None:
    endpoint = {"name": "ops", "url": "https://hooks.example.com/", "event_types": ["response.completed"]}
    create = {"model": "demo", "input": "hello"}
    tokens = {role: place.issuer.token(roles=[role]) for role in ("admin", "staff", "auditors")}
    may = {
        role: (
            place.ask(token, path="/responses").status_code,
            place.ask(token, "POST", "/responses", json=create).status_code,
            place.ask(token, "POST", "/webhook_endpoints", json=endpoint).status_code,
        )
        for role, token in tokens.items()
    }
    assert may == {"admin": (200, 200, 200), "staff": (200, 200, 403), "auditors": (200, 403, 403)}
    refused = place.ask(tokens["staff"], "POST", "/webhook_endpoints", json=endpoint)
    assert refused.json()["error"]["code"] == "admin_only"
    assert place.ask(place.issuer.token(roles="auditors staff"), "POST", "/responses", json=create).status_code == 200


def test_a_token_opens_a_websocket_and_a_wrong_one_none(place: Place) -> None:
    url = place.stack.url.replace("http", "ws", 1) + "/responses"
    with connect(url, additional_headers={"authorization": f"Bearer {place.issuer.token()}"}) as opened:
        opened.send(json.dumps({"type": "response.create", "model": "demo", "input": "hello"}))
        assert json.loads(opened.recv(60))["type"] == "response.created"
    with pytest.raises(InvalidStatus, match="401"), connect(url, additional_headers={"authorization": "Bearer eyJ.e30.x"}):
        pass


def test_a_link_is_made_by_a_key_because_it_ends_with_it(place: Place) -> None:
    token = place.issuer.token()
    client = OpenAI(base_url=place.stack.url, api_key=token, max_retries=0)
    with place.stack.http(token) as http:
        response = client.responses.create(model="demo", input="hello", background=True)
        answer = http.post(f"/responses/{response.id}/approvals/apr_x/link", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "link_needs_key")


NOW = time.time()
ALGORITHM = "its algorithm is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA."
WRONG: dict[str, tuple[Any, tuple[int, str, str]]] = {
    "without a signature": (lambda i: unsigned({"alg": "none"}, i.claims()), (401, "invalid_token", ALGORITHM)),
    "without one, in other letters": (lambda i: unsigned({"alg": "NonE"}, i.claims()), (401, "invalid_token", ALGORITHM)),
    "by HMAC with the public key": (with_public_key_as_secret, (401, "invalid_token", ALGORITHM)),
    "by a key of its own": (with_embedded_key, (401, "invalid_token", "its signature or its form is wrong.")),
    "its signature cut off": (
        lambda i: i.token().rpartition(".")[0] + ".",
        (401, "invalid_token", "its signature or its form is wrong."),
    ),
    "by another kind of key": (
        lambda i: SigningKey.ec("first").sign(i.claims()),
        (401, "invalid_token", "its issuer publishes no such key."),
    ),
    "a key's name that is a path": (
        lambda i: SigningKey.rsa("../../etc/passwd").sign(i.claims()),
        (401, "invalid_token", "its issuer publishes no such key."),
    ),
    "a key's name that is no text": (
        lambda i: unsigned({"alg": "RS256", "kid": ["first"]}, i.claims()),
        (401, "invalid_token", "it is no signed JWT."),
    ),
    "a header that must be understood": (
        lambda i: i.keys[0].sign(i.claims(), crit=["exp"]),
        (401, "invalid_token", "it is no signed JWT."),
    ),
    "a token for a logout": (
        lambda i: i.keys[0].sign(i.claims(), typ="logout+jwt"),
        (401, "invalid_token", "its header asks for what is not known here."),
    ),
    "of another issuer": (lambda i: i.token(iss="https://evil.example.com"), (401, "invalid_token", "it is of another issuer.")),
    "of an issuer whose name begins so": (lambda i: i.token(iss=f"{i.url}/"), (401, "invalid_token", "it is of another issuer.")),
    "for another audience": (
        lambda i: i.token(aud="https://else.example.com"),
        (401, "invalid_token", "it is for another audience."),
    ),
    "for nobody": (lambda i: i.token(aud=None), (401, "invalid_token", "it is for another audience.")),
    "of another client": (
        lambda i: i.token(aud=[CLIENT, "else"], azp="else"),
        (401, "invalid_token", "it was issued to another client."),
    ),
    "expired": (lambda i: i.token(exp=int(NOW) - 120), (401, "invalid_token", "it has expired.")),
    "without an end": (lambda i: i.token(exp=None), (401, "invalid_token", "it lacks 'exp'.")),
    "not valid yet": (lambda i: i.token(nbf=int(NOW) + 3600), (401, "invalid_token", "it is not valid yet.")),
    "issued tomorrow": (lambda i: i.token(iat=int(NOW) + 86_400), (401, "invalid_token", "it is not valid yet.")),
    "issued yesterday, to last for ever": (
        lambda i: i.token(iat=int(NOW) - 86_400, exp=int(NOW) + 10**9),
        (401, "invalid_token", "it was issued too long ago."),
    ),
    "of nobody": (lambda i: i.token(sub=""), (401, "invalid_token", "it names nobody.")),
    "too long": (lambda i: i.token(groups="x" * 20_000), (401, "invalid_token", "it is too long.")),
    "of a tenant that tokens may not name": (
        lambda i: i.token(tenant="default"),
        (403, "token_without_place", "its claim 'tenant' names no tenant of this deployment. Ask the operator for one."),
    ),
    "of two tenants": (
        lambda i: i.token(tenant=["acme", "other"]),
        (403, "token_without_place", "its claim 'tenant' names no tenant of this deployment. Ask the operator for one."),
    ),
    "of a tenant that is a part of a key": (
        lambda i: i.token(tenant="acme#R"),
        (403, "token_without_place", "its claim 'tenant' names no tenant of this deployment. Ask the operator for one."),
    ),
    "without a role": (
        lambda i: i.token(roles=["guest"]),
        (403, "token_without_place", "its claim 'roles' names no role of this deployment. Ask the operator for one."),
    ),
}


@pytest.mark.parametrize(("make", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_token_that_is_wrong_opens_nothing_and_says_why(place: Place, make: Any, told: tuple[int, str, str]) -> None:
    assert place.refusal(make(place.issuer)) == told


def test_the_clocks_may_differ_by_a_minute(place: Place) -> None:
    now = int(time.time())
    assert place.ask(place.issuer.token(nbf=now + 30, iat=now + 30)).status_code == 200
    assert place.ask(place.issuer.token(exp=now - 30)).status_code == 200


def test_a_new_key_is_found_and_made_up_ones_are_looked_for_a_few_times(place: Place) -> None:
    rotated = SigningKey.ec("second")
    place.issuer.keys.insert(0, rotated)
    assert place.ask(place.issuer.token()).status_code == 200
    before = place.issuer.asked["/keys"]
    forged = SigningKey.rsa("made up")
    for number in range(20):
        assert place.ask(forged.sign(place.issuer.claims(), kid=f"made up {number}")).status_code == 401
    assert place.issuer.asked["/keys"] - before <= 4


def test_no_token_stands_in_a_log_or_in_the_table(place: Place) -> None:
    token = place.issuer.token(jti="sought")
    assert place.ask(token).status_code == 200
    place.ask(token, "POST", "/responses", json={"model": "demo", "input": "hello"})
    signature = token.rpartition(".")[2]
    logs = list(place.stack.state_dir.glob("*.log"))
    assert {"api.log", "audit.log", "up.log"} <= {path.name for path in logs}
    assert [path.name for path in logs if signature in path.read_text()] == []
    assert signature not in str(place.stack.records())


# --- Signing in to the console --------------------------------------------------------------------------------------------------


def signed_in(place: Place, http: httpx.Client) -> str:
    """Go to the issuer and back as a browser does; the token that the page gets."""
    page = http.get(f"{place.console}sign-in", follow_redirects=True)
    assert (page.status_code, page.headers["cache-control"], page.headers["referrer-policy"]) == (200, "no-store", "no-referrer")
    return page.text.partition('data-key="')[2].partition('"')[0]


def test_a_person_signs_in_and_out_and_the_session_is_over(place: Place) -> None:
    with httpx.Client() as http:
        token = signed_in(place, http)
        assert dict(http.cookies) == {}  # what was remembered on the way is forgotten
    assert place.ask(token).json()["key"]["name"] == "ada@example.com"
    ended = place.ask(token, "DELETE", "/console/session").json()
    assert (ended["ended"], ended["logout_url"].partition("?")[0]) == (True, f"{place.issuer.url}/logout")
    assert token not in ended["logout_url"]
    assert place.refusal(token) == (401, "invalid_token", "its session was ended.")
    lines = [json.loads(line) for line in (place.stack.state_dir / "audit.log").read_text().splitlines()]
    noted = [(line["kind"], line["subject"], line["tenant"]) for line in lines if line["kind"].startswith("session.")]
    assert noted[-2:] == [(f"session.{word}", "ada@example.com", "acme") for word in ("begun", "ended")]
    assert token not in (place.stack.state_dir / "audit.log").read_text()


def test_a_reader_may_sign_out_too(place: Place) -> None:
    place.issuer.person = PERSON | {"roles": ["auditors"]}
    with httpx.Client() as http:
        token = signed_in(place, http)
    assert place.ask(token).json()["key"]["scope"] == "read"
    assert place.ask(token, "DELETE", "/console/session").json()["ended"]


def leave(place: Place, http: httpx.Client) -> str:
    """The address that the issuer sends the browser back to."""
    to_issuer = http.get(f"{place.console}sign-in").headers["location"]
    assert "code_challenge=" in to_issuer
    back: str = httpx.get(to_issuer).headers["location"]
    return back


def failed(answer: httpx.Response) -> str:
    assert (answer.status_code, "data-key" in answer.text) == (400, False)
    return html.unescape(answer.text.partition("<p>")[2].partition("</p>")[0])


def test_the_cookie_of_the_way_is_closed_to_scripts_and_other_sites(place: Place) -> None:
    with httpx.Client() as http:
        cookie = http.get(f"{place.console}sign-in").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}


def test_an_address_serves_once_and_in_the_browser_that_left_alone(place: Place) -> None:
    not_here = "It did not begin in this browser, or took longer than ten minutes. Sign in again."
    with httpx.Client() as http, httpx.Client() as stranger:
        back = leave(place, http)
        kept = dict(http.cookies)
        assert failed(stranger.get(back)) == not_here
        leave(place, stranger)  # a way of its own
        assert failed(stranger.get(back)) == not_here
        assert http.get(back).status_code == 200
        http.cookies.update(kept)
        assert failed(http.get(back)) == "This address has served already. Sign in again."


def test_a_state_a_code_or_a_token_of_another_way_is_refused(place: Place) -> None:
    with httpx.Client() as http:
        first = leave(place, http)
        second = leave(place, http)  # the cookie is the second one's now
        code = first.partition("code=")[2].partition("&")[0]
        mixed = second.replace(second.partition("code=")[2].partition("&")[0], code)
        assert failed(http.get(mixed)) == "The issuer did not take the code. Sign in again."  # by the verifier
        place.issuer.nonce = "another"
        assert failed(http.get(leave(place, http))) == "The issuer's token is for another sign-in. Sign in again."
        place.issuer.nonce = None
        other = leave(place, http).replace("iss=", "iss=https%3A%2F%2Fevil.example.com&x=")
        assert failed(http.get(other)) == "Another issuer has answered. Sign in again."
        refused = leave(place, http).replace("code=", "error=access_denied&x=")
        assert failed(http.get(refused)) == "The issuer did not let you in. Sign in again."


def test_somebody_without_a_place_here_is_told_so(place: Place) -> None:
    place.issuer.person = PERSON | {"tenant": "elsewhere"}
    with httpx.Client() as http:
        answer = http.get(leave(place, http))
    assert (answer.status_code, "data-key" in answer.text, "names no tenant" in answer.text) == (403, False, True)


def test_the_console_in_a_browser(place: Place) -> None:
    with chromium() as browser:
        page = browser.new_page()
        seen: list[str] = []
        page.on("request", lambda request: seen.append(request.url))
        page.goto(place.console)
        page.get_by_role("link", name="Sign in").click()
        page.wait_for_url(lambda url: url.rstrip("/").endswith("/console") or "#/" in url)
        page.get_by_text("acme", exact=True).first.wait_for()
        token = page.evaluate("sessionStorage.getItem('moorage.key')")
        assert token.startswith("eyJ")
        assert [url for url in [*seen, page.url] if token in url] == []
        page.get_by_role("button", name="Forget the key and leave").click()
        page.wait_for_url(f"{place.issuer.url}/logout**")
    assert place.ask(token).status_code == 401


def test_a_key_of_the_console_ends_when_its_person_leaves(place: Place) -> None:
    said = moorage(place.stack, "console", "--no-browser", "--json").stdout
    code = json.loads(said)["url"].partition("#k=")[2]
    key = place.ask(code, "POST", "/console/session").json()["key"]
    assert place.ask(key, "DELETE", "/console/session").json() == {
        "object": "console.session.ended",
        "ended": True,
        "logout_url": None,
    }
    assert place.ask(key).status_code == 401
    kept = place.ask(place.stack.key, "DELETE", "/console/session").json()
    assert (kept["ended"], place.ask(place.stack.key).status_code) == (False, 200)


# --- Issuers that are wrong or away ---------------------------------------------------------------------------------------------


def test_an_issuer_that_is_away_keeps_nobody_out_whose_key_is_known(tmp_path: Any) -> None:
    with issuing() as issuer:
        settings = {"MOORAGE_OIDC_ISSUER": issuer.url, "MOORAGE_OIDC_AUDIENCE": AUDIENCE, "MOORAGE_OIDC_TENANTS": "acme"}
        stack = Stack(tmp_path / "away", settings)
        issuer.is_away = True
        place = Place(stack.start(), issuer)
        try:
            assert place.refusal(issuer.token())[:2] == (503, "issuer_unreachable")
            assert place.ask(stack.key).status_code == 200  # keys need no issuer
            issuer.is_away = False
            assert place.ask(issuer.token(tenant=None)).json()["tenant"] == "acme"  # the only one
            issuer.is_away = True
            assert place.ask(issuer.token(jti="new")).status_code == 200
        finally:
            stack.stop()


def test_tokens_are_refused_where_nobody_has_named_an_issuer(stack: Stack) -> None:
    token = jwt.encode({"sub": "ada"}, "k" * 32, algorithm="HS256")
    with stack.http(token) as http:
        assert (http.get("/me").status_code, http.get("/me").json()["error"]["code"]) == (401, "invalid_api_key")
        assert http.get(stack.url.removesuffix("v1") + "console/sign-in").status_code == 404
