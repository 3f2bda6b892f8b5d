"""What the gateway's authorizer answers: a policy for the whole stage, and under which usage plan a request counts."""

import pytest
from moorage.settings import Settings, usage_key
from moorage.store.api_keys import ApiKey

from functions.authorizer.handler import allow, counted

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
