"""Opening, renewing and closing a container's way out, and the proxy's view of it."""

import asyncio
import io
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from moorage.egress.ca import CERTIFICATE_FILE, ensure_ca, ensure_open_ca, ensure_sealed_ca, open_ca
from moorage.egress.fleet import ProxyFleet
from moorage.egress.grants import Grant, Grants, PolicyUnavailable
from moorage.egress.operator_secrets import OperatorSecrets
from moorage.egress.policy import EgressPolicy, EgressRequest, decide
from moorage.egress.service import EgressService, ceiling, credential_sha256
from moorage.egress.store import EgressLogEntry, EgressStore
from moorage.errors import ApiError
from moorage.settings import Settings
from moorage.store import keys
from moorage.telemetry import open_log
from moorage.wire.network_policy import DomainSecret, NetworkPolicy

from tests.egress.fakes import FakeEcs, FakeKeys, SteppingTable
from tests.opened_logs import close_log

if TYPE_CHECKING:
    from mypy_boto3_ecs import ECSClient

SETTINGS = Settings(table_name="t", bucket_name="b", allowed_egress_domains=("*.example.com",), egress_proxy="unix:/p/s")
SECRET = DomainSecret(domain="api.example.com", name="API_KEY", value="sk-live-0123456789")
POLICY = replace(ceiling(SETTINGS), domains=("api.example.com",))


class World:
    def __init__(self) -> None:
        self.table = SteppingTable()
        self.keys = FakeKeys()
        self.seconds = 1000.0
        self.ecs = FakeEcs()
        fleet = ProxyFleet(cast("ECSClient", self.ecs), "cluster/proxy", ThreadPoolExecutor(1))
        self.egress = EgressService(self.table, self.keys, SETTINGS, lambda: int(self.seconds), fleet)
        self.operators = OperatorSecrets(self.table, self.keys, lambda: self.seconds)
        self.grants = Grants(EgressStore(self.table), self.keys, ceiling(SETTINGS), lambda: self.seconds)

    async def seen_by_proxy(self, username: str, password: str) -> Grant | None:
        self.seconds += 3
        return await self.grants.find(username, password)


async def test_what_is_opened_is_what_the_proxy_finds() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    found = await world.seen_by_proxy(grant.username, grant.password)
    assert found is not None
    assert (found.tenant_id, found.container_id, found.policy) == ("t1", "cntr_1", POLICY)
    (opened,) = found.secrets_for("api.example.com")
    assert (opened.value, {opened.name: opened.placeholder}) == (SECRET.value, grant.placeholders)
    assert found.secrets_for("other.example.com") == ()


async def test_one_placeholder_stands_for_a_value_at_several_hosts() -> None:
    world, several = World(), replace(SECRET, more_domains=("files.example.com",))
    policy = replace(POLICY, domains=("api.example.com", "files.example.com", "other.example.com"))
    grant = await world.egress.open("t1", "cntr_1", policy, (several,))
    assert grant is not None
    found = await world.seen_by_proxy(grant.username, grant.password)
    assert found is not None
    assert [[each.value for each in found.secrets_for(host)] for host in policy.domains] == [[SECRET.value], [SECRET.value], []]
    assert await world.egress.replace_secrets("t1", "cntr_1", (replace(several, value="sk-live-next"),))
    assert not await world.egress.replace_secrets("t1", "cntr_1", (SECRET,)), "the hosts are another set"
    rotated = await world.seen_by_proxy(grant.username, grant.password)
    assert rotated is not None
    assert [(each.value, each.placeholder) for each in rotated.secrets] == [("sk-live-next", grant.placeholders["API_KEY"])]


async def test_neither_value_nor_credential_is_in_the_table() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    stored = repr(world.table.records)
    assert "sk-live" not in stored
    assert grant.password not in stored
    assert grant.password not in repr(grant)


async def test_a_container_without_domains_has_no_grant() -> None:
    world = World()
    assert await world.egress.open("t1", "cntr_1", ceiling(SETTINGS)) is None
    assert await world.egress.renew("t1", "cntr_1") is None
    assert world.table.records == {}


async def test_the_ca_is_made_once_and_only_the_proxy_can_open_its_key() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", POLICY)
    first, second = await asyncio.gather(*(ensure_sealed_ca(world.egress.store, world.keys) for _ in range(2)))
    authority = await open_ca(first, world.keys)
    assert world.egress.ca_pem() == first.certificate_pem == second.certificate_pem == authority.certificate_pem
    assert "PRIVATE" not in repr(world.table.records) + repr(authority) + repr(first)


async def test_a_ca_that_was_sealed_with_a_lost_key_is_replaced_by_whoever_comes_first() -> None:
    world = World()
    lost = await ensure_sealed_ca(world.egress.store, world.keys)
    new = FakeKeys("another")
    api, proxy = await asyncio.gather(ensure_sealed_ca(world.egress.store, new), ensure_open_ca(world.egress.store, new))
    kept = await ensure_sealed_ca(world.egress.store, new)
    assert api.certificate_pem == proxy.certificate_pem == kept.certificate_pem != lost.certificate_pem


async def test_a_ca_of_an_earlier_version_is_kept_as_long_as_its_key_opens_it() -> None:
    world = World()
    made = replace(await ensure_sealed_ca(world.egress.store, world.keys), sealed_under="")
    world.table.records[(keys.EGRESS_CA, keys.META)].pop("sealed_under")
    assert await ensure_sealed_ca(world.egress.store, world.keys) == made
    assert (await ensure_open_ca(world.egress.store, world.keys)).certificate_pem == made.certificate_pem
    proxy = await ensure_open_ca(world.egress.store, FakeKeys("another"))
    assert proxy.certificate_pem != made.certificate_pem


async def test_a_key_service_that_only_refuses_costs_no_ca() -> None:
    """Rights that have not spread yet look like this; the proxy ends, and ECS starts it again."""
    world = World()
    made = await ensure_sealed_ca(world.egress.store, world.keys)
    with pytest.raises(PermissionError):
        await ensure_open_ca(world.egress.store, Refusing("key"))
    assert await ensure_sealed_ca(world.egress.store, world.keys) == made


class Refusing(FakeKeys):
    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        raise PermissionError("AccessDeniedException")


async def test_a_ca_in_a_file_is_the_ca(tmp_path: Path) -> None:
    made = ensure_ca(tmp_path)
    settings = replace(SETTINGS, egress_ca=str(tmp_path / CERTIFICATE_FILE))
    egress = EgressService(SteppingTable(), FakeKeys(), settings, lambda: 0)
    await egress.open("t1", "cntr_1", POLICY)
    assert egress.ca_pem() == made.certificate_pem


async def test_renewing_keeps_the_placeholders_and_ends_the_old_credential() -> None:
    world = World()
    old = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    new = await world.egress.renew("t1", "cntr_1")
    assert old is not None
    assert new is not None
    assert (new.placeholders, new.password != old.password) == (old.placeholders, True)
    assert await world.seen_by_proxy("cntr_1", old.password) is None
    assert await world.seen_by_proxy("cntr_1", new.password) is not None


async def test_new_values_are_used_by_a_sandbox_that_runs() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    assert await world.seen_by_proxy(grant.username, grant.password) is not None
    assert await world.egress.replace_secrets("t1", "cntr_1", (replace(SECRET, value="sk-live-rotated"),))
    found = await world.seen_by_proxy(grant.username, grant.password)
    assert found is not None
    assert [(secret.value, secret.placeholder) for secret in found.secrets] == [("sk-live-rotated", grant.placeholders["API_KEY"])]
    renewed = await world.egress.renew("t1", "cntr_1")
    assert renewed is not None
    found = await world.seen_by_proxy(renewed.username, renewed.password)
    assert found is not None
    assert [secret.value for secret in found.secrets] == ["sk-live-rotated"]


def rotated(value: str) -> tuple[DomainSecret, ...]:
    return (replace(SECRET, value=value),)


@pytest.mark.parametrize("write", range(1, 6))
async def test_values_that_come_at_the_moment_of_a_start_are_not_written_over(write: int) -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    world.table.steps, world.table.at_write = 0, (write, lambda: world.egress.replace_secrets("t1", "cntr_1", rotated("newest")))
    renewed = await world.egress.renew("t1", "cntr_1")
    if world.table.at_write is not None:  # a start writes less often
        await world.table.at_write[1]()
    assert renewed is not None
    found = await world.seen_by_proxy(renewed.username, renewed.password)
    assert found is not None
    assert [(secret.value, secret.placeholder) for secret in found.secrets] == [("newest", renewed.placeholders["API_KEY"])]


@pytest.mark.parametrize("write", range(1, 5))
async def test_a_start_at_the_moment_of_new_values_keeps_its_credential_and_has_them(write: int) -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    world.table.steps, world.table.at_write = 0, (write, lambda: world.egress.renew("t1", "cntr_1", password="p"))
    assert await world.egress.replace_secrets("t1", "cntr_1", rotated("newest"))
    if world.table.at_write is not None:
        await world.table.at_write[1]()
    found = await world.seen_by_proxy("cntr_1", "p")
    assert found is not None
    assert [secret.value for secret in found.secrets] == ["newest"]


@pytest.mark.parametrize("write", range(1, 4))
async def test_of_values_that_come_at_once_all_are_of_one_request(write: int) -> None:
    world = World()
    secrets = (SECRET, replace(SECRET, name="OTHER"))
    grant = await world.egress.open("t1", "cntr_1", POLICY, secrets)
    assert grant is not None
    one, other = (tuple(replace(secret, value=value) for secret in secrets) for value in ("one", "other"))
    world.table.steps, world.table.at_write = 0, (write, lambda: world.egress.replace_secrets("t1", "cntr_1", other))
    assert await world.egress.replace_secrets("t1", "cntr_1", one)
    found = await world.seen_by_proxy(grant.username, grant.password)
    assert found is not None
    assert {secret.value for secret in found.secrets} == {"other" if write == 3 else "one"}
    assert await world.egress.replace_secrets("t1", "cntr_1", one)
    assert sum("SEALED" in sort_key for _, sort_key in world.table.records) == 4, "one set is in use, the one before may be"


@pytest.mark.parametrize("write", [1, 2])
async def test_new_values_are_read_whole_while_they_are_written(write: int) -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    seen: list[str] = []

    async def look() -> None:
        found = await world.seen_by_proxy(grant.username, grant.password)
        assert found is not None
        seen.extend(secret.value for secret in found.secrets)

    world.table.steps, world.table.at_write = 0, (write, look)
    await world.egress.replace_secrets("t1", "cntr_1", rotated("newest"))
    await look()
    assert seen == [SECRET.value, "newest"]


async def test_a_container_that_is_deleted_while_it_starts_stays_without_a_way_out() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    world.table.steps, world.table.at_write = 0, (2, lambda: world.egress.close("t1", "cntr_1"))
    assert await world.egress.renew("t1", "cntr_1", password="p") is None
    assert await world.seen_by_proxy("cntr_1", "p") is None


@pytest.mark.parametrize(
    "secrets",
    [
        (),
        (SECRET, replace(SECRET, name="OTHER")),
        (replace(SECRET, name="OTHER"),),
        (replace(SECRET, methods=("GET",)),),
        (replace(SECRET, value=None),),
    ],
    ids=["none", "one more", "another name", "another use", "the operator's"],
)
async def test_other_secrets_than_a_container_knows_are_not_given_to_it(secrets: tuple[DomainSecret, ...]) -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    assert not await world.egress.replace_secrets("t1", "cntr_1", secrets)
    found = await world.seen_by_proxy(grant.username, grant.password)
    assert found is not None
    assert [secret.value for secret in found.secrets] == [SECRET.value]


async def test_a_paused_container_loses_its_credential_and_nothing_else() -> None:
    world = World()
    opened = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    running = await world.egress.renew("t1", "cntr_1")
    assert opened is not None
    assert running is not None
    await world.egress.pause("t1", "cntr_1")
    await world.egress.pause("t1", "cntr_1")
    assert await world.seen_by_proxy("cntr_1", running.password) is None
    assert await world.seen_by_proxy("cntr_1", "") is None
    again = await world.egress.renew("t1", "cntr_1")
    assert again is not None
    assert again.placeholders == opened.placeholders
    assert await world.seen_by_proxy("cntr_1", again.password) is not None


MIRROR = replace(SETTINGS, python_mirror="https://python.mirror.test/simple", npm_mirror="https://npm.mirror.test")


def reaches(grant: Grant | None, *hosts: str) -> list[bool]:
    assert grant is not None
    return [decide(EgressRequest(host, 443), grant.policy).allowed for host in hosts]


@pytest.mark.parametrize("policy", [EgressPolicy(), POLICY, replace(POLICY, asks_hosts=("*",))], ids=["none", "one", "asked"])
async def test_the_mirrors_are_open_for_the_installer_alone_until_it_has_ended(policy: EgressPolicy) -> None:
    world = World()
    world.grants = Grants(EgressStore(world.table), world.keys, ceiling(MIRROR), lambda: world.seconds)
    store = world.egress.store
    await world.egress.open("t1", "cntr_1", policy, installs=True)
    hosts = ("python.mirror.test", "npm.mirror.test", "other.mirror.test")
    for incarnation in ("first", "second"):
        await world.egress.renew("t1", "cntr_1", password=incarnation)
        for repeated in range(2):  # An installation that broke off is begun again.
            await store.open_mirrors("t1", "cntr_1", credential_sha256("the installer's"))
            installer = await world.seen_by_proxy("cntr_1", "the installer's")
            assert reaches(installer, *hosts) == [True, True, False], repeated
            assert reaches(await world.grants.find("cntr_1", incarnation), *hosts) == [False, False, False], repeated
        await store.close_mirrors("t1", "cntr_1", credential_sha256("the installer's"))
        assert await world.seen_by_proxy("cntr_1", "the installer's") is None
        installed = await world.seen_by_proxy("cntr_1", incarnation)
        assert reaches(installed, *hosts, "api.example.com") == [False, False, False, policy is POLICY]
    await store.open_mirrors("t1", "cntr_1", credential_sha256("the installer's"))
    await world.egress.pause("t1", "cntr_1")
    assert await world.seen_by_proxy("cntr_1", "the installer's") is None
    await store.open_mirrors("t1", "cntr_2", credential_sha256("a stranger's"))
    await store.close_mirrors("t1", "cntr_2", credential_sha256("a stranger's"))
    left = [key for key, record in world.table.records.items() if "installer_sha256" in record]
    assert (left, [pk for pk, _ in world.table.records if pk.startswith(keys.egress_credential.prefix)]) == ([], [])


async def test_the_proxy_runs_while_a_sandbox_may_use_it() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", POLICY)
    await world.egress.settle_fleet()
    assert world.ecs.updates == []
    for container in ("cntr_1", "cntr_1"):
        await world.egress.renew("t1", container)
    await world.egress.settle_fleet()
    assert world.ecs.updates == [1]
    await world.egress.pause("t1", "cntr_1")
    await world.egress.settle_fleet()
    assert world.ecs.updates == [1, 0]
    await world.egress.renew("t1", "cntr_1")
    await world.egress.close("t1", "cntr_1")
    await world.egress.settle_fleet()
    assert world.ecs.updates == [1, 0, 1, 0]


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_proxy_that_is_wanted_and_does_not_run_is_counted(is_broken: bool) -> None:
    world = World()
    world.ecs.is_broken = is_broken
    handler = open_log(out := io.StringIO())
    await world.egress.settle_fleet()  # nobody wants it: that it does not run is as it should be
    await world.egress.open("t1", "cntr_1", POLICY)
    await world.egress.renew("t1", "cntr_1")
    await world.egress.settle_fleet()
    close_log(handler)
    assert [line["ProxyDown"] for line in map(json.loads, out.getvalue().splitlines())] == ([[1.0]] if is_broken else [])


async def test_closing_leaves_nothing_but_the_log() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    await world.egress.store.append([entry("1")], expires_at=9)
    await world.egress.close("t1", "cntr_1")
    assert await world.seen_by_proxy("cntr_1", grant.password) is None
    assert sorted(world.table.records) == [("EGRESS#CA", "META"), ("T#t1#C#cntr_1", "EGRESS#LOG#1")]


async def test_a_narrower_policy_drops_the_secrets_that_are_no_longer_named() -> None:
    world = World()
    await world.egress.open("t1", "cntr_1", POLICY, (SECRET, replace(SECRET, name="SECOND")))
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    found = await world.seen_by_proxy("cntr_1", grant.password)
    assert found is not None
    assert [secret.name for secret in found.secrets] == ["API_KEY"]


async def test_the_proxy_asks_the_table_once_in_two_seconds() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY)
    assert grant is not None
    await world.seen_by_proxy("cntr_1", grant.password)
    before = world.table.reads
    for _ in range(10):
        await world.grants.find("cntr_1", grant.password)
    assert world.table.reads == before
    await world.egress.close("t1", "cntr_1")
    world.seconds += 2
    assert await world.grants.find("cntr_1", grant.password) is None


async def test_values_are_opened_once_and_not_at_every_reading() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    for _ in range(5):
        await world.seen_by_proxy("cntr_1", grant.password)
    assert world.keys.unwrapped == 1


async def test_a_table_that_does_not_answer_is_a_no() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY)
    assert grant is not None
    await world.seen_by_proxy("cntr_1", grant.password)
    world.table.is_down = True
    with pytest.raises(PolicyUnavailable):
        await world.seen_by_proxy("cntr_1", grant.password)
    world.table.is_down = False
    assert await world.seen_by_proxy("cntr_1", grant.password) is not None


async def test_an_outage_of_the_table_is_told_once_with_its_cause() -> None:
    world = World()
    grants = Grants(EgressStore(world.table), world.keys, ceiling(SETTINGS), lambda: world.seconds)
    out = io.StringIO()
    handler = open_log(out)
    for is_down in (True, True, False, True):
        world.seconds += 60
        world.table.is_down = is_down
        with suppress(PolicyUnavailable):
            await grants.find("cntr_1", "a password")
    close_log(handler)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["message"], line["error"], line["where"][-1].split(":")[::2]) for line in told] == [
        ("egress_policy_unavailable", "ConnectionError", ["egress/fakes.py", "_check"])
    ] * 2


async def test_a_record_that_was_tampered_with_is_a_no() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY, (SECRET,))
    assert grant is not None
    record = next(record for (_, sort), record in world.table.records.items() if sort.startswith("EGRESS#SEALED#"))
    record["domain"] = "evil.example.com"
    with pytest.raises(PolicyUnavailable):
        await world.seen_by_proxy("cntr_1", grant.password)


async def test_a_ceiling_that_shrank_binds_containers_that_were_opened_before() -> None:
    world = World()
    grant = await world.egress.open("t1", "cntr_1", POLICY)
    assert grant is not None
    shrunk = replace(ceiling(SETTINGS), ceiling=("other.example.com",))
    grants = Grants(EgressStore(world.table), world.keys, shrunk, lambda: 0.0)
    found = await grants.find("cntr_1", grant.password)
    assert found is not None
    assert found.policy == EgressPolicy(domains=("api.example.com",), ceiling=("other.example.com",))


async def test_an_operators_secret_is_used_by_name_within_its_domain_and_tenants() -> None:
    world = World()
    await world.operators.define("SHARED", "api.example.com", "operator-value-1", tenants=("t1",))
    named = DomainSecret(domain="api.example.com", name="SHARED")
    grant = await world.egress.open("t1", "cntr_1", POLICY, (named,))
    assert grant is not None
    found = await world.seen_by_proxy("cntr_1", grant.password)
    assert found is not None
    assert [secret.value for secret in found.secrets] == ["operator-value-1"]
    for tenant, wrong in (("t2", named), ("t1", replace(named, name="OTHER")), ("t1", replace(named, domain="b.example.com"))):
        with pytest.raises(ApiError) as caught:
            await world.egress.admit(tenant, NetworkPolicy("allowlist", ("*.example.com",), (wrong,)), param="p")
        assert (caught.value.status, caught.value.param, caught.value.code) == (400, "p.domain_secrets", "secret_not_found")


async def test_an_operators_secret_rotates_and_ends_without_the_container() -> None:
    world = World()
    await world.operators.define("SHARED", "api.example.com", "operator-value-1")
    grant = await world.egress.open("t1", "cntr_1", POLICY, (DomainSecret(domain="api.example.com", name="SHARED"),))
    assert grant is not None
    values = []
    for value in ("operator-value-1", "operator-value-2"):
        await world.operators.define("SHARED", "api.example.com", value)
        found = await world.seen_by_proxy("cntr_1", grant.password)
        assert found is not None
        values += [secret.value for secret in found.secrets]
    assert await world.operators.delete("SHARED")
    found = await world.seen_by_proxy("cntr_1", grant.password)
    assert found is not None
    assert (values, found.secrets) == (["operator-value-1", "operator-value-2"], ())


async def refused(settings: Settings, asked: NetworkPolicy, keys: FakeKeys | None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await EgressService(SteppingTable(), keys, settings, lambda: 0).admit("t1", asked)
    return caught.value


async def test_a_network_needs_a_proxy_and_a_secret_needs_a_key() -> None:
    allowlist = NetworkPolicy("allowlist", ("api.example.com",))
    with_secret = replace(allowlist, domain_secrets=(SECRET,))
    no_proxy = await refused(replace(SETTINGS, egress_proxy=None), allowlist, FakeKeys())
    no_key = await refused(SETTINGS, with_secret, None)
    assert [(error.status, error.code) for error in (no_proxy, no_key)] == [(400, "network_unavailable"), (400, "secrets_unavailable")]


def entry(entry_id: str, **changes: object) -> EgressLogEntry:
    made = EgressLogEntry(entry_id, 5, "t1", "cntr_1", "h.example.com", 443, "GET", "/", "denied", "domain_not_allowed")
    return replace(made, **changes)  # type: ignore[arg-type]


async def test_the_log_is_paged_from_either_end() -> None:
    world = World()
    entries = [entry(f"{n:013d}-0") for n in range(7)]
    await world.egress.store.append(entries, expires_at=9)
    newest = await world.egress.log("t1", "cntr_1", limit=3)
    next_page = await world.egress.log("t1", "cntr_1", after=newest[-1].id, limit=3)
    oldest = await world.egress.log("t1", "cntr_1", descending=False, limit=3)
    after_oldest = await world.egress.log("t1", "cntr_1", descending=False, after=oldest[-1].id, limit=9)
    assert [*newest, *next_page] == entries[:0:-1]
    assert [*oldest, *after_oldest] == entries
    assert await world.egress.log("t2", "cntr_1") == []


async def test_an_entry_comes_back_as_it_was_kept() -> None:
    world = World()
    kept = entry("x", path=None, secrets=("A", "B"), bytes_sent=1, bytes_received=2, status=200, error="e", address="1.2.3.4", count=3)
    await world.egress.store.append([kept], expires_at=9)
    assert [asdict(found) for found in await world.egress.log("t1", "cntr_1")] == [asdict(kept)]


async def test_refusals_are_told_once_each() -> None:
    world = World()
    refused = [entry(f"{n:013d}-0", host=host) for n, host in enumerate(("a.test", "b.test", "a.test"), start=100)]
    await world.egress.store.append([*refused, entry("0000000000001-0", host="long.ago")], expires_at=9)
    told = await world.egress.refusals_since("t1", "cntr_1", 100)
    assert [line.split("'")[1] for line in told.splitlines()] == ["a.test", "b.test"]
    assert told.startswith("[egress] Network access to 'a.test' was refused")
