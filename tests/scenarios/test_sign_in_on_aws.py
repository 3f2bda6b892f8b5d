"""Tokens of an issuer at API Gateway: the REST API and the WebSocket API of the template, their authorizer and their functions as they
are deployed, an issuer on this machine, and one table for all of them."""

import json
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.infra.conftest import EVERYTHING, shared
from tests.issuer import CLIENT, Issuer, SigningKey, issuing, unsigned, with_embedded_key, with_public_key_as_secret
from tests.stack import Stack
from tests.twin import runtime_api
from tests.twin.rest import Functions, rest_of
from tests.twin.sockets import sockets_of, told_by
from tests.twin.template import Template

ADA: dict[str, Any] = {"sub": "ada@example.com", "custom:tenant": "acme", "cognito:groups": ["platform"]}
SECRET = "s3cret-of-the-client"
_TOLD = ("MOORAGE_OIDC_", "MOORAGE_USAGE_PLANS", "MOORAGE_NAME")
FUNCTIONS = {
    "/models": ("Responses", 200),
    "/files": ("Files", 200),
    "/containers": ("Containers", 200),
    "/sessions/csess_none/output": ("Sessions", 404),
}
"""A path of each function, and what it answers to somebody it lets in."""


@dataclass(frozen=True)
class Place:
    issuer: Issuer
    stage: str
    socket: str
    functions: Functions
    key: str

    def ask(self, token: str, method: str = "GET", path: str = "/me", **more: Any) -> httpx.Response:
        return httpx.request(method, f"{self.stage}/v1{path}", headers={"authorization": f"Bearer {token}"}, timeout=120, **more)

    def handshake(self, token: str) -> int:
        """The status of one at the WebSocket API, and 101 only if a response begins then."""
        try:
            with connect(self.socket, additional_headers={"authorization": f"Bearer {token}"}, open_timeout=120) as opened:
                opened.send(json.dumps({"type": "response.create", "model": "demo", "input": "hello"}))
                return 101 if json.loads(opened.recv(120))["type"] == "response.created" else 0
        except InvalidStatus as refused:
            return refused.response.status_code


def told_of_issuer(template: Template, function: str, issuer: Issuer, console: str) -> dict[str, str]:
    """What the template tells a function of its issuer and of usage plans, at the addresses of this machine."""
    _, properties = template.one("AWS::Lambda::Function", f"Functions{function}")
    variables = properties["Environment"]["Variables"]
    told = {name: value for name, value in variables.items() if name.startswith(_TOLD)}
    here = {
        "MOORAGE_OIDC_ISSUER": issuer.url,
        "MOORAGE_OIDC_CLIENT_ID": CLIENT,
        "MOORAGE_OIDC_CONSOLE_URL": console,
        "MOORAGE_OIDC_CLIENT_SECRET": SECRET,
    }
    # Inside the sandboxes' network no way leads to the issuer.
    inside = {"MOORAGE_PROVISIONER": "elsewhere"} if function == "Sessions" else {"MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8"}
    return {**{name: here.get(name, value) for name, value in told.items()}, **inside}


@pytest.fixture(scope="module")
def served(aws_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: the CDK app cannot be synthesised here.")
    if not runtime_api.HAS_CLIENT:
        pytest.skip(runtime_api.REASON)
    stacks = shared(EVERYTHING, tmp_path_factory)
    template, told = Template.of(stacks.state, stacks.service), told_by(aws_stack)
    with issuing() as issuer, socket.socket() as listener:
        issuer.person, issuer.secret = dict(ADA), SECRET
        listener.bind(("127.0.0.1", 0))
        console = f"http://127.0.0.1:{listener.getsockname()[1]}/api/console/"

        def variables(function: str) -> dict[str, str]:
            adapter = {"AWS_LWA_READINESS_CHECK_PATH": "/healthz"}
            return {**told, **adapter, **told_of_issuer(template, function, issuer, console)}

        with (
            rest_of(template, variables, listener) as (stage, functions),
            sockets_of(template, variables("SocketDoor")) as sockets,
        ):
            yield Place(issuer, stage, f"{sockets.gateway.url}/responses", functions, aws_stack.key)


@pytest.fixture
def place(served: Place) -> Place:
    served.issuer.person, served.issuer.nonce = dict(ADA), None
    return served


def test_a_token_opens_every_function_of_its_tenant_and_keys_go_on(place: Place) -> None:
    token, other = place.issuer.token(), place.issuer.token(**{"custom:tenant": "other"})
    assert {path: place.ask(token, path=path).status_code for path in FUNCTIONS} == {
        path: status for path, (_, status) in FUNCTIONS.items()
    }
    made = OpenAI(base_url=f"{place.stage}/v1", api_key=token, max_retries=0).responses.create(model="demo", input="hello")
    assert made.status == "completed"
    assert [place.ask(each, path=f"/responses/{made.id}").status_code for each in (token, other, place.key)] == [200, 404, 404]
    assert [place.ask(each).json()["tenant"] for each in (token, other, place.key)] == ["acme", "other", "default"]
    assert [place.handshake(each) for each in (token, place.key)] == [101, 101]


def test_the_terminals_take_the_authorizers_word_and_never_ask_the_issuer(place: Place) -> None:
    token = place.issuer.token(jti="terminals")
    assert place.ask(token).status_code == 200
    place.issuer.is_away = True
    try:
        assert place.ask(token, path="/sessions/csess_none/output").status_code == 404
    finally:
        place.issuer.is_away = False


def test_a_role_holds_behind_the_gateway(place: Place) -> None:
    create = {"model": "demo", "input": "hello"}
    reader = place.issuer.token(**{"cognito:groups": ["auditors"]})
    answers = [place.ask(reader, path="/responses"), place.ask(reader, "POST", "/responses", json=create)]
    assert [answer.status_code for answer in answers] == [200, 403]


def test_a_key_that_was_rotated_in_is_taken_at_both_doors_and_the_old_one_not(place: Place) -> None:
    """It stands before the wrong tokens, because unknown keys are looked for four times a minute."""
    old = place.issuer.keys[0]
    assert place.ask(place.issuer.token(jti="before")).status_code == 200
    place.issuer.keys[:] = [SigningKey.ec("rotated in")]
    token = place.issuer.token()
    assert place.ask(token).status_code == 200
    assert place.handshake(token) == 101
    assert place.ask(old.sign(place.issuer.claims(jti="after"))).status_code == 401


WRONG: dict[str, Any] = {
    "without a signature": lambda i: unsigned({"alg": "none"}, i.claims()),
    "by HMAC with the public key": with_public_key_as_secret,
    "by a key of its own": with_embedded_key,
    "by a key that nobody publishes": lambda i: SigningKey.rsa("made up").sign(i.claims()),
    "with its claims exchanged": lambda i: ".".join(
        [*i.token().split(".")[:1], i.token(**{"custom:tenant": "other"}).split(".")[1], i.token().split(".")[2]]
    ),
    "of another issuer": lambda i: i.token(iss="https://evil.example.com"),
    "for another audience": lambda i: i.token(aud="https://else.example.com"),
    "expired": lambda i: i.token(exp=int(time.time()) - 120),
    "not valid yet": lambda i: i.token(nbf=int(time.time()) + 3600),
    "of a tenant that tokens may not name": lambda i: i.token(**{"custom:tenant": "default"}),
    "of a tenant under another claim": lambda i: i.token(**{"custom:tenant": None, "tenant": "acme"}),
    "without a role": lambda i: i.token(**{"cognito:groups": ["guests"]}),
    "a key that is none": lambda _: "sk-moorage-no",
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_token_reaches_no_function_but_the_authorizer(place: Place, make: Any) -> None:
    wrong = make(place.issuer)
    before = place.functions.called.copy()
    answers = [place.ask(wrong, path=path) for path in FUNCTIONS]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(401, "invalid_api_key")}
    assert (place.functions.called - before).keys() == {"Authorizer"}
    assert place.handshake(wrong) == 401


def test_the_word_of_one_token_serves_no_other(place: Place) -> None:
    """The authorizer's answers are kept by the token, and each has another person in it."""
    ada, bob = place.issuer.token(jti="a"), place.issuer.token(sub="bob@example.com", **{"cognito:groups": ["auditors"]})
    asked = [place.ask(each).json()["key"] for each in (ada, bob, ada)]
    assert [(key["name"], key["scope"]) for key in asked] == [
        ("ada@example.com", None),
        ("bob@example.com", "read"),
        ("ada@example.com", None),
    ]


def test_an_ended_session_opens_nothing_although_the_gateway_remembers_its_token(place: Place) -> None:
    """Signed in to the console through the gateway, as a browser is."""
    with httpx.Client(timeout=120) as http:
        page = http.get(f"{place.stage}/console/sign-in", follow_redirects=True)
    token = page.text.partition('data-key="')[2].partition('"')[0]
    assert (page.status_code, place.ask(token).status_code) == (200, 200)
    assert place.ask(token, "DELETE", "/console/session").json()["ended"] is True
    before = place.functions.called.copy()
    refused = [place.ask(token, path=path) for path in ("/me", "/files", "/sessions/csess_none/output")]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in refused] == [(401, "invalid_token")] * 3
    assert place.functions.called - before == {"Responses": 1, "Files": 1, "Sessions": 1}  # the authorizer was not asked again
    assert place.handshake(token) == 401
