"""Tenants in tiers, against botocore's own model of API Gateway."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moorage.cli import tiers
from moorage.cli.target import TargetError
from moorage.settings import usage_key
from moorage.store.api_keys import ApiKey

AWS = {"MOORAGE_TABLE": "t", "AWS_REGION": "us-east-1"}
PLANS = [{"id": "p1", "name": "moorage-free"}, {"id": "p2", "name": "moorage-pro"}, {"id": "p3", "name": "other-gold"}]


@pytest.fixture
def gateway() -> Iterator[Any]:
    client = boto3.client("apigateway", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()
    client.close()


def has(gateway: Any, *, keys: list[dict[str, Any]], plans_of_key: list[str] | None = None) -> None:
    gateway.add_response("get_usage_plans", {"items": PLANS}, {})
    gateway.add_response("get_api_keys", {"items": keys}, {"nameQuery": "moorage/acme"})
    if plans_of_key is not None:
        gateway.add_response("get_usage_plans", {"items": [{"id": each} for each in plans_of_key]}, {"keyId": "k1"})


def test_the_first_key_of_a_tier_makes_the_tenants_key_at_the_gateway(gateway: Any) -> None:
    has(gateway, keys=[{"id": "k0", "name": "moorage/acme-labs"}])
    made = {
        "name": "moorage/acme",
        "description": "Counts requests; nobody sends it, and it opens nothing",
        "enabled": True,
        "value": usage_key("moorage", "acme"),
        "tags": {"moorage:deployment": "moorage"},
    }
    gateway.add_response("create_api_key", {"id": "k1"}, made)
    gateway.add_response("get_usage_plans", {"items": []}, {"keyId": "k1"})
    gateway.add_response("create_usage_plan_key", {}, {"usagePlanId": "p2", "keyId": "k1", "keyType": "API_KEY"})
    tiers.put(AWS, "acme", "pro", gateway.client)


def test_a_second_key_of_the_tier_changes_nothing(gateway: Any) -> None:
    has(gateway, keys=[{"id": "k1", "name": "moorage/acme"}], plans_of_key=["p2"])
    tiers.put(AWS, "acme", "pro", gateway.client)


def test_another_tier_moves_the_tenant(gateway: Any) -> None:
    has(gateway, keys=[{"id": "k1", "name": "moorage/acme"}], plans_of_key=["p1"])
    gateway.add_response("delete_usage_plan_key", {}, {"usagePlanId": "p1", "keyId": "k1"})
    gateway.add_response("create_usage_plan_key", {}, {"usagePlanId": "p2", "keyId": "k1", "keyType": "API_KEY"})
    tiers.put(AWS, "acme", "pro", gateway.client)


def test_a_tier_that_is_not_deployed_is_refused_before_a_key_is_made(gateway: Any) -> None:
    gateway.add_response("get_usage_plans", {"items": PLANS}, {})
    with pytest.raises(TargetError, match=r"has no tier 'gold' .* it has free, pro\."):
        tiers.put(AWS, "acme", "gold", gateway.client)


def test_what_the_gateway_refuses_is_said(gateway: Any) -> None:
    gateway.add_client_error("get_usage_plans", "AccessDeniedException", "no apigateway:GET")
    with pytest.raises(TargetError, match=r"no apigateway:GET"):
        tiers.put(AWS, "acme", "pro", gateway.client)


@pytest.mark.parametrize("keys", [[], [{"id": "k1", "name": "moorage/acme"}]])
def test_a_tenant_that_leaves_takes_its_key_at_the_gateway_along(gateway: Any, keys: list[dict[str, Any]]) -> None:
    gateway.add_response("get_api_keys", {"items": keys}, {"nameQuery": "moorage/acme"})
    if keys:
        gateway.add_response("delete_api_key", {}, {"apiKey": "k1"})
    tiers.take_out(AWS, "acme", gateway.client)


def key(number: int, tenant: str, tier: str) -> ApiKey:
    return ApiKey(f"key_{number}", tenant, "", 0, tier)


@pytest.mark.parametrize(
    ("keys", "tenant"),
    [
        ([key(1, "acme", "pro")], "acme"),
        ([key(1, "acme", "pro"), key(2, "acme", "pro")], None),
        ([key(1, "acme", "pro"), key(2, "acme", ""), key(3, "other", "pro")], "acme"),
        ([key(1, "acme", "")], None),
        ([key(2, "acme", "pro")], None),
    ],
)
def test_a_tenant_leaves_its_tier_with_its_last_key_of_one(keys: list[ApiKey], tenant: str | None) -> None:
    assert tiers.without_keys(keys, "key_1") == tenant
