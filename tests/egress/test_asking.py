"""Hosts and secrets that a person has to allow first: what a request may say of it, how the proxy decides, and what it lets pass."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from moorage.egress.policy import EgressOpening, EgressPolicy, EgressReason, EgressRequest, decide
from moorage.egress.store import EgressLogEntry, EgressStore
from moorage.errors import ApiError
from moorage.store import keys
from moorage.wire.network_policy import parse_network_policy

from functions.egress_proxy.journal import DecisionLog
from tests.egress.conftest import TENANT, ArenaClient, Sandbox
from tests.egress.test_service import POLICY, SECRET, SETTINGS, World, entry

HOST, TOKEN = EgressOpening("host", "api.example.com"), EgressOpening("secret", "API_KEY")
ASKS = replace(POLICY, asks_hosts=("*",), asks_secrets=("API_KEY",))


def policy_of(asked: Any) -> dict[str, Any]:
    secret = {"domain": "api.example.com", "name": "API_KEY", "value": "sk-0123456789"}
    policy = {"type": "allowlist", "allowed_domains": ["api.example.com"], "domain_secrets": [secret], "require_approval": asked}
    return parse_network_policy(policy, "network_policy").approvals


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (None, {}),
        ("never", {}),
        ("always", {"hosts": ["*"], "secrets": ["API_KEY"]}),
        ({"hosts": ["*.Example.com", "b.example"]}, {"hosts": ["*.example.com", "b.example"]}),
        ({"hosts": ["*"], "secrets": None}, {"hosts": ["*"]}),
        ({"secrets": ["API_KEY"]}, {"secrets": ["API_KEY"]}),
    ],
)
def test_what_waits_for_a_word_is_named_in_one_of_these_forms(asked: Any, shown: Any) -> None:
    assert policy_of(asked) == shown


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ("sometimes", "", "'always'"),
        (True, "", "a string or an object"),
        ({}, "", "neither 'hosts' nor 'secrets'"),
        ({"commands": ["ls"]}, ".commands", "Unknown parameter"),
        ({"hosts": []}, ".hosts", "too short"),
        ({"hosts": ["10.0.0.1"]}, ".hosts[0]", "is an address"),
        ({"secrets": ["OTHER"]}, ".secrets[0]", "none of the names"),
    ],
)
def test_any_other_form_is_refused_by_name(asked: Any, param: str, words: str) -> None:
    with pytest.raises(ApiError) as refusal:
        policy_of(asked)
    assert (refusal.value.param, words in refusal.value.message) == (f"network_policy.require_approval{param}", True)


@pytest.mark.parametrize(
    ("host", "policy", "reason"),
    [
        ("api.example.com", EgressPolicy(("*.example.com",), asks_hosts=("*",)), EgressReason.HOST_NEEDS_APPROVAL),
        ("API.example.com.", EgressPolicy(("*.example.com",), asks_hosts=("api.example.com",)), EgressReason.HOST_NEEDS_APPROVAL),
        (
            "api.example.com",
            EgressPolicy(("api.example.com",), asks_hosts=("*",), opened=frozenset({HOST})),
            EgressReason.ALLOWED_EXACT,
        ),
        (
            "b.example.com",
            EgressPolicy(("*.example.com",), asks_hosts=("*",), opened=frozenset({HOST})),
            EgressReason.HOST_NEEDS_APPROVAL,
        ),
        ("b.example.com", EgressPolicy(("*.example.com",), asks_hosts=("api.example.com",)), EgressReason.ALLOWED_WILDCARD),
        # A person's word opens nothing that the policy, or the operator, keeps shut.
        ("api.example.com", EgressPolicy(("b.example",), asks_hosts=("*",), opened=frozenset({HOST})), EgressReason.DOMAIN_NOT_ALLOWED),
        (
            "api.example.com",
            EgressPolicy(("*.example.com",), (), asks_hosts=("*",), opened=frozenset({HOST})),
            EgressReason.OUTSIDE_CEILING,
        ),
    ],
)
def test_a_host_waits_until_it_is_allowed(host: str, policy: EgressPolicy, reason: EgressReason) -> None:
    assert decide(EgressRequest(host, 443), policy).reason is reason


async def test_what_is_allowed_holds_for_the_container_and_its_next_sandboxes() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", ASKS, (SECRET,))
    assert grant is not None
    before = await world.seen_by_proxy(grant.username, grant.password)
    assert before is not None
    assert (before.policy, before.policy.holds_secret("API_KEY")) == (ASKS, True)
    for openings in ((HOST,), (TOKEN, HOST)):
        await world.egress.allow("t1", "cntr_1", openings)
    stale = await world.grants.find(grant.username, grant.password)
    assert stale == before, "believed for two seconds"
    after = await world.grants.reread(grant.password)
    assert after is not None
    assert (after.policy, after.policy.holds_secret("API_KEY")) == (replace(ASKS, opened=frozenset({HOST, TOKEN})), False)
    again = await world.egress.renew("t1", "cntr_1")
    assert again is not None
    renewed = await world.seen_by_proxy(again.username, again.password)
    assert renewed is not None
    assert renewed.policy == after.policy
    await world.egress.close("t1", "cntr_1")
    assert not any("OPENED" in key[1] for key in world.table.records)


async def test_what_is_allowed_is_kept_as_long_as_the_container_is() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", ASKS, (SECRET,))
    await world.egress.allow("t1", "cntr_1", (HOST,))
    world.seconds += 1_000
    await world.egress.renew("t1", "cntr_1")
    ends = {record["ttl"] for (_, sk), record in world.table.records.items() if sk.startswith(keys.EGRESS_POLICY)}
    assert ends == {int(world.seconds) + SETTINGS.retention_seconds}


MADE_UP = {
    "a host of no length that exists": EgressOpening("host", f"{'a.' * 1_000}example.com"),
    "no name of a host": EgressOpening("host", "API.example.com"),
    "a host that is not in its list": EgressOpening("host", "elsewhere.example"),
    "a host that asks nobody": EgressOpening("host", "www.example.com"),
    "a secret that asks nobody": EgressOpening("secret", "OTHER"),
    "a secret of no name": EgressOpening("secret", "x" * 2_000),
}


@pytest.mark.parametrize("made_up", MADE_UP.values(), ids=MADE_UP)
async def test_what_nobody_is_asked_about_is_not_written_down(made_up: EgressOpening) -> None:
    world = World()
    asks = replace(POLICY, domains=("*.example.com",), asks_hosts=("api.example.com",), asks_secrets=("API_KEY",))
    await world.egress.open("t1", "cntr_1", asks, (SECRET,))
    before = dict(world.table.records)
    await world.egress.allow("t1", "cntr_1", (made_up,))
    await world.egress.allow("t1", "cntr_gone", (HOST,))
    assert world.table.records == before


async def test_what_the_proxy_has_refused_for_want_of_a_word_is_wanted_once() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", ASKS, (SECRET,))
    held: list[dict[str, Any]] = [
        {"reason": "host_needs_approval", "host": "b.example.com"},
        {"reason": "secret_needs_approval", "host": "api.example.com", "secrets": ("API_KEY",)},
        {"reason": "host_needs_approval", "host": "b.example.com"},
        {"reason": "domain_not_allowed", "host": "c.example.com"},
    ]
    entries = [entry(f"{at:013d}-0", at_ms=at, **said) for at, said in enumerate(held, start=5)]
    await world.egress.store.append(entries, expires_at=9_999)
    assert await world.egress.wanted("t1", "cntr_1", 0) == [EgressOpening("host", "b.example.com"), TOKEN]
    assert await world.egress.wanted("t1", "cntr_1", 6) == [TOKEN, EgressOpening("host", "b.example.com")]
    await world.egress.allow("t1", "cntr_1", (TOKEN,))
    assert await world.egress.wanted("t1", "cntr_1", 0) == [EgressOpening("host", "b.example.com")]
    assert await world.egress.wanted("t1", "cntr_1", 9) == []


async def test_what_was_refused_is_wanted_however_much_was_let_through_since() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", ASKS, (SECRET,))
    held = entry(f"{5:013d}-0", at_ms=5, reason="host_needs_approval", host="b.example.com")
    since = [entry(f"{at:013d}-0", at_ms=at, decision="allowed", reason="allowed_exact") for at in range(6, 1_500)]
    await world.egress.store.append([held, *since], expires_at=9_999)
    assert await world.egress.wanted("t1", "cntr_1", 5) == [EgressOpening("host", "b.example.com")]
    assert await world.egress.wanted("t1", "cntr_1", 6) == []


# --- the proxy's log, which says what is wanted ---


class SlowStore(EgressStore):
    def __init__(self, world: World) -> None:
        super().__init__(world.table)
        self.is_writing, self.may_write = asyncio.Event(), asyncio.Event()

    async def append(self, entries: Iterable[EgressLogEntry], expires_at: int) -> None:
        self.is_writing.set()
        await self.may_write.wait()
        await super().append(entries, expires_at)


def refusal(number: int, reason: str, **said: Any) -> EgressLogEntry:
    return entry(f"{number:013d}-0", tenant_id="t1", container_id="cntr_1", at_ms=number, decision="denied", reason=reason, **said)


async def test_the_log_has_a_question_before_the_client_reads_of_the_refusal() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", ASKS, (SECRET,))
    store = SlowStore(world)
    journal = DecisionLog(store, 3_600, lambda: 0)
    hosts = ["a.example.com", "b.example.com", "c.example.com"]
    told = [asyncio.create_task(journal.asked(refusal(1, "host_needs_approval", host=hosts[0])))]
    await store.is_writing.wait()
    told += [asyncio.create_task(journal.asked(refusal(at, "host_needs_approval", host=hosts[at - 1]))) for at in (2, 3)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert [one.done() for one in told] == [False, False, False]
    store.may_write.set()
    await asyncio.gather(*told)
    assert await world.egress.wanted("t1", "cntr_1", 0) == [EgressOpening("host", host) for host in hosts]


async def test_two_secrets_that_one_address_was_refused_for_are_both_wanted() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", ASKS, (SECRET,))
    journal = DecisionLog(world.egress.store, 3_600, lambda: 0)
    for number, name in enumerate(("API_KEY", "OTHER", "API_KEY")):
        journal.ended(refusal(number, "secret_needs_approval", host="api.example.com", secrets=(name,)))
    await journal.flush()
    assert await world.egress.wanted("t1", "cntr_1", 0) == [TOKEN, EgressOpening("secret", "OTHER")]


def test_the_proxy_refuses_a_new_host_and_lets_it_pass_from_the_moment_it_is_allowed(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "echo.example", asks={"hosts": ["allowed.example"]})
    curl = "curl -sS -w '%{http_code} %{http_connect}'"
    assert "403" in sandbox.shell(f"{curl} https://allowed.example/ || true", box.environment)["stdout"]
    assert "host_needs_approval" in sandbox.shell("curl -sS http://allowed.example/", box.environment)["stdout"]
    assert "hello from echo.example" in sandbox.shell("curl -sS http://echo.example/", box.environment)["stdout"]
    arena("allow", tenant=TENANT, container=box.container_id, key="host#allowed.example")
    for scheme in ("https", "http"):
        assert "hello from allowed.example" in sandbox.shell(f"curl -sS {scheme}://allowed.example/", box.environment)["stdout"]


def test_the_proxy_sends_a_secret_when_its_use_is_allowed_and_not_before(arena: ArenaClient, sandbox: Sandbox) -> None:
    value = "asked-value-0123456789"
    secret = {"domain": "echo.example", "name": "KEY", "value": value}
    box = arena.open("echo.example", secrets=[secret], asks="always")
    arena("allow", tenant=TENANT, container=box.container_id, key="host#echo.example")
    curl = 'curl -sS --cacert "$SSL_CERT_FILE" https://echo.example/echo'
    arena("clear")
    refused = sandbox.shell(f'{curl} -H "X-Key: $KEY"', box.environment)["stdout"]
    assert "secret_needs_approval" in refused
    assert value not in repr(arena("seen"))
    assert "secret_needs_approval" not in sandbox.shell(curl, box.environment)["stdout"], "what needs no secret asks nobody"
    arena("allow", tenant=TENANT, container=box.container_id, key="secret#KEY")
    assert "****" in sandbox.shell(f'{curl} -H "X-Key: $KEY"', box.environment)["stdout"]
    assert value in repr(arena("seen"))
