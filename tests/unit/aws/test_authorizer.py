"""What the gateway's authorizer answers: a policy for the whole stage, and under which usage plan a request counts."""

import time
from typing import Any, cast

import pytest
from moorage.egress.fetch import Fetcher
from moorage.identity.ended_sessions import EndedSessions
from moorage.identity.issuer import Issuer
from moorage.identity.tokens import Tokens
from moorage.settings import Settings, usage_key
from moorage.store.api_keys import ApiKey, ApiKeys

from functions.authorizer.handler import allow, counted, found_by
from tests.issuer import AUDIENCE, SigningKey, issuing
from tests.unit.store.memory import MemoryTable

METHOD = "arn:aws:execute-api:us-east-1:000000000000:abc123/api/POST/v1/responses"


def settings(plans: str) -> Settings:
    return Settings.from_environment({"MOORAGE_TABLE": "t", "MOORAGE_BUCKET": "b", "MOORAGE_NAME": "lab", "MOORAGE_USAGE_PLANS": plans})


def test_the_policy_is_for_every_method_of_the_stage_because_it_is_cached() -> None:
    policy = allow("research", METHOD)
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
        said = {
            "MOORAGE_TABLE": "t",
            "MOORAGE_BUCKET": "b",
            "MOORAGE_OIDC_ISSUER": issuer.url,
            "MOORAGE_OIDC_AUDIENCE": AUDIENCE,
            "MOORAGE_OIDC_TENANTS": "acme",
        }
        settings = Settings.from_environment(said)
        tokens = Tokens(settings, Issuer(issuer.url, Fetcher(), time.time), table, EndedSessions(table, time.time), time.time)
        keys = ApiKeys(MemoryTable(), clock=time.time)
        _, secret = await keys.create("lab")
        opened = [await found_by(each, keys, tokens) for each in (issuer.token(), secret)]
        assert [each and each.tenant_id for each in opened] == ["acme", "lab"]
        forged = SigningKey.rsa("first").sign(issuer.claims())
        wrong = (issuer.token(aud="else"), issuer.token(tenant="lab"), forged, "eyJ.e30.x", "sk-moorage-no")
        assert [await found_by(each, keys, tokens) for each in wrong] == [None] * 5
        assert await found_by(issuer.token(), keys, None) is None  # where nobody has named an issuer
