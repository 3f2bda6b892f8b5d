"""What the gateway's authorizer answers: a policy for the whole stage, and under which usage plan a request counts."""

import time
from dataclasses import dataclass, replace
from typing import Any, cast

import httpx
import pytest
from mangum.handlers.api_gateway import APIGateway
from mangum.types import LambdaConfig
from moorage.egress.fetch import Fetcher
from moorage.errors import ApiError
from moorage.identity.ended_sessions import EndedSessions, session_digest
from moorage.identity.issuer import Issuer as FoundIssuer
from moorage.identity.tokens import Tokens
from moorage.settings import Settings, usage_key
from moorage.store.api_keys import ApiKey, ApiKeys
from starlette.types import Receive, Scope, Send

from functions.authorizer.handler import allow, counted, found_by, said
from functions.sockets.door import _caller_of
from tests.issuer import AUDIENCE, Issuer, SigningKey, issuing
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab
from tests.unit.store.memory import MemoryTable

MANGUM = LambdaConfig(api_gateway_base_path="/", text_mime_types=[], exclude_headers=[])
METHOD = "arn:aws:execute-api:us-east-1:000000000000:abc123/api/POST/v1/responses"


def settings(plans: str) -> Settings:
    return Settings.from_environment({"MOORAGE_TABLE": "t", "MOORAGE_BUCKET": "b", "MOORAGE_NAME": "lab", "MOORAGE_USAGE_PLANS": plans})


def settings_of(issuer: Issuer) -> Settings:
    said = {
        "MOORAGE_TABLE": "t",
        "MOORAGE_BUCKET": "b",
        "MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8",
        "MOORAGE_OIDC_ISSUER": issuer.url,
        "MOORAGE_OIDC_AUDIENCE": AUDIENCE,
        "MOORAGE_OIDC_TENANTS": "acme",
    }
    return Settings.from_environment(said)


def test_the_policy_is_for_every_method_of_the_stage_because_it_is_cached() -> None:
    policy = allow("research", METHOD, {})
    assert policy["policyDocument"]["Statement"] == [
        {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": "arn:aws:execute-api:us-east-1:000000000000:abc123/api/*"}
    ]
    assert (policy["principalId"], policy["context"]) == ("research", {"tenantId": "research"})


@pytest.mark.parametrize(
    ("plans", "tier", "answer"),
    [
        pytest.param("", "pro", {}, id="no plans"),
        pytest.param("*,pro", "pro", {"usageIdentifierKey": usage_key("lab", "research")}, id="in a tier"),
        pytest.param("*,pro", "", {"usageIdentifierKey": usage_key("lab", "*")}, id="in none"),
        pytest.param("*,pro", "gold", {"usageIdentifierKey": usage_key("lab", "*")}, id="in one that is no more"),
    ],
)
def test_a_request_counts_with_those_of_its_tenant_if_that_is_in_a_tier(plans: str, tier: str, answer: dict[str, str]) -> None:
    assert counted(settings(plans), ApiKey("key_1", "research", "", 0, tier)) == answer


def test_plan_keys_are_long_enough_and_differ_between_deployments() -> None:
    keys = {usage_key(name, plan) for name in ("lab", "moorage") for plan in ("*", "research")}
    assert len(keys) == 4
    assert all(20 <= len(key) <= 128 for key in keys)


async def test_tokens_are_checked_at_the_gateway_too_and_without_the_table() -> None:
    """Whose session was ended, the application finds out: this function may read nothing but keys."""
    table = cast("Any", None)
    with issuing() as issuer:
        told = settings_of(issuer)
        tokens = Tokens(told, FoundIssuer(issuer.url, Fetcher(), time.time), table, EndedSessions(table, time.time), time.time)
        keys = ApiKeys(MemoryTable(), clock=time.time)
        _, secret = await keys.create("lab")
        opened = [await found_by(each, keys, tokens) for each in (issuer.token(), secret)]
        assert [each and each.tenant_id for each in opened] == ["acme", "lab"]
        forged = SigningKey.rsa("first").sign(issuer.claims())
        wrong = (issuer.token(aud="else"), issuer.token(tenant="lab"), forged, "eyJ.e30.x", "sk-moorage-no")
        assert [await found_by(each, keys, tokens) for each in wrong] == [None] * 5
        assert await found_by(issuer.token(), keys, None) is None  # where nobody has named an issuer


async def test_the_door_of_websockets_takes_tokens_and_asks_for_ended_sessions() -> None:
    table = MemoryTable()
    with issuing() as issuer:
        caller_of = _caller_of(settings_of(issuer), table)
        _, secret = await ApiKeys(table, clock=time.time).create("lab")
        ended = issuer.token()
        await EndedSessions(table, time.time).end(session_digest(ended), int(time.time()) + 60)
        opened = [await caller_of(each) for each in (issuer.token(jti="another"), secret, "sk-moorage-no")]
        assert [each and each.tenant_id for each in opened] == ["acme", "lab", None]
        forged = SigningKey.rsa("first").sign(issuer.claims())
        for wrong in (ended, issuer.token(aud="else"), issuer.token(tenant="lab"), forged, "eyJ.e30.x"):
            with pytest.raises(ApiError) as refused:
                await caller_of(wrong)
            assert refused.value.status in (401, 403)


# --- functions that reach no issuer ---


@dataclass
class Terminals:
    """The function of the terminals behind API Gateway, and the authorizer's word for who calls."""

    served: Served
    tokens: Tokens
    now: float

    @classmethod
    def of(cls, issuer: Issuer) -> "Terminals":
        lab = Lab()
        lab.now = time.time()
        told = replace(settings_of(issuer), oidc_at_gateway=True)
        served = Served.of(lab)
        lab.runtime.settings = told
        # Nobody is there to ask for keys: an issuer that is asked after all refuses the test.
        unreachable = FoundIssuer("https://127.0.0.1:9", Fetcher(), time.time)
        lab.runtime.identity = replace(
            lab.runtime.identity, tokens=Tokens(told, unreachable, lab.table, lab.runtime.identity.ended, lambda: lab.now)
        )
        return cls(served, Tokens.of(told, lab.table, time.time), lab.now)

    async def said(self, token: str) -> dict[str, str]:
        return said(token, self.tokens.key_of(await self.tokens.verified(token, self.tokens.audiences)))

    async def status(self, token: str, context: dict[str, str] | None) -> int:
        """Mangum's scope, which has the gateway's event."""
        event = {"resource": "/", "path": "/", "httpMethod": "GET", "headers": {}, "requestContext": {"authorizer": context}}
        scope = APIGateway(cast("Any", event), cast("Any", None), MANGUM).scope

        async def behind_gateway(asked: Scope, receive: Receive, send: Send) -> None:
            await self.served.app({**asked, "aws.event": scope["aws.event"]}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(behind_gateway), base_url="https://gateway") as client:
            return (await client.get("/v1/models", headers={"Authorization": f"Bearer {token}"})).status_code


async def test_the_authorizers_word_opens_the_terminals_to_the_token_that_it_was_given_for() -> None:
    with issuing() as issuer:
        terminals = Terminals.of(issuer)
        token, other = issuer.token(), issuer.token(sub="bob@example.com")
        word, others = [await terminals.said(each) for each in (token, other)]
        assert await terminals.status(token, word) == 200
        assert [await terminals.status(token, each) for each in (None, {}, others, {"tenantId": "acme"})] == [401] * 4
        assert await terminals.status("key-a", {}) == 200  # a key is in the table
        assert await terminals.status("eyJ.e30.x", word) == 401


async def test_the_authorizers_word_ends_with_the_token_and_with_its_session() -> None:
    with issuing() as issuer:
        terminals = Terminals.of(issuer)
        lab, token, later = terminals.served.lab, issuer.token(), issuer.token(jti="another")
        words = [await terminals.said(each) for each in (token, later)]
        await lab.runtime.identity.ended.end(session_digest(token), int(lab.now) + 60)
        assert [await terminals.status(*each) for each in zip((token, later), words, strict=True)] == [401, 200]
        lab.now += 24 * 60 * 60
        assert await terminals.status(later, words[1]) == 401
