"""A network policy says the same at every door: in a container's body, in a tool's environment, to the API and to the proxy."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from moorage.egress.policy import EgressPolicy, EgressRequest, admit, decide
from moorage.egress.service import EgressService
from moorage.errors import ApiError
from moorage.settings import Settings
from moorage.wire.network_policy import NetworkPolicy
from moorage.wire.requests import parse_create

from tests.egress.fakes import FakeKeys
from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, Store

SETTINGS = Settings("t", "b", allowed_egress_domains=("*",), egress_proxy="unix:/run/egress.sock")

TAKEN = {
    "API.Example.com.": "api.example.com",
    "*.Example.com": "*.example.com",
    "bücher.example": "xn--bcher-kva.example",
    "BÜCHER.example": "xn--bcher-kva.example",
    "xn--strae-oqa.de": "xn--strae-oqa.de",
    "a_b.example": "a_b.example",
}
"""Domains as they are written, and as they are shown, stored and compared."""

NOT_TAKEN = [
    "straße.de",
    "STRASSE\u0301.\u1e9e.de",
    "faß.example",
    "ⅷ.example",
    "ex。com",
    "ｅxample.com",
    "\u212aube.example",
    "a\u200db.example",
    "ς.example",
    "example.com..",
    "localhost",
    "0x7f.0.0.1",
    "2130706433",
]
"""Names that two readers could take for two hosts."""


@pytest.fixture
async def service(store: Store, clock: Clock) -> AsyncIterator[Service]:
    built = build_service(store, clock, egress=EgressService(store.table, FakeKeys(), SETTINGS, lambda: int(clock())))
    yield built
    await built.http.aclose()


def policy_of(domain: str, **secret: Any) -> dict[str, Any]:
    policy = {"type": "allowlist", "allowed_domains": [domain]}
    return policy | ({"domain_secrets": [{"domain": domain, "name": "TOKEN", **secret}]} if secret else {})


def asked_by_tool(policy: dict[str, Any]) -> NetworkPolicy:
    environment = {"type": "container_auto", "network_policy": policy}
    request = parse_create({"model": "m", "input": "x", "tools": [{"type": "shell", "environment": environment}]})
    assert request.environment is not None
    assert request.environment.network_policy is not None
    return request.environment.network_policy


@pytest.mark.parametrize(("written", "read"), TAKEN.items())
async def test_a_domain_is_the_same_to_every_reader(service: Service, written: str, read: str) -> None:
    made = await service.http.post("/containers", json={"name": "c", "network_policy": policy_of(written)})
    assert made.json()["network_policy"] == {"type": "allowlist", "allowed_domains": [read]}
    asked = asked_by_tool(policy_of(written))
    assert asked.allowed_domains == (read,)
    host = read.replace("*", "any")
    assert decide(EgressRequest(host, 443), admit(asked, EgressPolicy())).allowed


@pytest.mark.parametrize("secret", [{}, {"value": "s3cret-of-somebody"}], ids=["alone", "with a secret"])
@pytest.mark.parametrize("written", NOT_TAKEN)
async def test_a_domain_that_two_readers_could_take_for_two_hosts_is_refused_at_every_door(
    service: Service, written: str, secret: dict[str, str]
) -> None:
    policy = policy_of(written, **secret)
    answer = await service.http.post("/containers", json={"name": "c", "network_policy": policy})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "network_policy.allowed_domains[0]")
    with pytest.raises(ApiError) as caught:
        asked_by_tool(policy)
    assert (caught.value.status, caught.value.param) == (400, "tools[0].environment.network_policy.allowed_domains[0]")
    assert service.store.records() == []


@pytest.mark.parametrize("written", NOT_TAKEN)
async def test_a_secret_never_goes_to_a_host_that_its_domain_only_resembles(service: Service, written: str) -> None:
    lookalikes = ["strasse.de", "fass.example", "viii.example", "ex.com", "example.com", "kube.example", "*.example", "σ.example"]
    secret = {"domain": written, "name": "TOKEN", "value": "s3cret-of-somebody"}
    policy = {"type": "allowlist", "allowed_domains": lookalikes, "domain_secrets": [secret]}
    answer = await service.http.post("/containers", json={"name": "c", "network_policy": policy})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "network_policy.domain_secrets[0].domain")
    assert service.store.records() == []


async def test_an_unknown_secret_of_the_operator_makes_no_container(service: Service) -> None:
    policy = {"type": "allowlist", "allowed_domains": ["a.example"], "domain_secrets": [{"domain": "a.example", "name": "TOKEN"}]}
    answer = await service.http.post("/containers", json={"name": "c", "network_policy": policy})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "secret_not_found")
    assert service.store.records() == []
