import pytest
from moorage.containers.containers import Containers
from moorage.egress.service import EgressService
from moorage.errors import ApiError, SandboxStarting
from moorage.files.store import FileStore
from moorage.settings import Settings
from moorage.wire.network_policy import NetworkPolicy

from tests.unit.resources.support import Clock, FakeProvisioner, Store

ALLOWED = NetworkPolicy("allowlist", ("pkg.example.com",))


def containers_of(store: Store, clock: Clock, provisioner: FakeProvisioner) -> Containers:
    settings = Settings("t", "b", allowed_egress_domains=("pkg.example.com",), egress_proxy="unix:/run/egress.sock")
    return Containers(
        store.table,
        store.blobs,
        provisioner,
        FileStore(store.table, store.blobs, clock=clock),
        clock=clock,
        sandbox_key=lambda: b"k" * 32,
        egress=EgressService(store.table, None, settings, lambda: int(clock())),
        egress_proxy=settings.egress_proxy,
        connect=provisioner.connect,
    )


async def test_a_container_without_a_policy_has_no_way_out(store: Store, clock: Clock) -> None:
    provisioner = FakeProvisioner()
    containers = containers_of(store, clock, provisioner)
    record = await containers.reserve("ten", name="c")
    await containers.sandboxes.ensure("ten", record.id)
    assert (record.network_policy, provisioner.specs[0].egress) == ({"type": "disabled"}, None)


async def test_a_policy_gives_the_sandbox_its_proxy_and_is_shown_without_secrets(store: Store, clock: Clock) -> None:
    provisioner = FakeProvisioner()
    containers = containers_of(store, clock, provisioner)
    record = await containers.reserve("ten", name="c", network_policy=ALLOWED)
    live = await containers.sandboxes.ensure("ten", record.id)
    egress = provisioner.specs[0].egress
    assert egress is not None
    assert (egress.proxy, egress.username) == ("unix:/run/egress.sock", record.id)
    assert record.network_policy == {"type": "allowlist", "allowed_domains": ["pkg.example.com"]}
    assert egress.password not in (live.handle.token, "")
    assert egress.password not in repr(store.records())


async def test_a_repeated_start_keeps_its_credential_and_the_next_gets_another(store: Store, clock: Clock) -> None:
    """A sandbox on its way was started with the first one."""
    provisioner = FakeProvisioner()
    containers = containers_of(store, clock, provisioner)
    record = await containers.reserve("ten", name="c", network_policy=ALLOWED)
    provisioner.problems = [SandboxStarting(1)]
    with pytest.raises(SandboxStarting):
        await containers.sandboxes.ensure("ten", record.id)
    live = await containers.sandboxes.ensure("ten", record.id)
    provisioner.sandboxes[live.handle.sandbox_id].is_alive = False
    await containers.sandboxes.ensure("ten", record.id)
    first, repeated, next_one = [spec.egress.password for spec in provisioner.asked if spec.egress is not None]
    assert first == repeated != next_one


async def test_a_domain_outside_the_ceiling_is_refused_and_makes_no_container(store: Store, clock: Clock) -> None:
    containers = containers_of(store, clock, FakeProvisioner())
    with pytest.raises(ApiError) as caught:
        await containers.reserve("ten", name="c", network_policy=NetworkPolicy("allowlist", ("evil.example",)))
    assert caught.value.status == 400
    assert store.records() == []


async def test_a_deleted_container_has_no_way_out_any_more(store: Store, clock: Clock) -> None:
    containers = containers_of(store, clock, FakeProvisioner())
    record = await containers.reserve("ten", name="c", network_policy=ALLOWED)
    await containers.sandboxes.ensure("ten", record.id)
    await containers.delete("ten", record.id)
    assert sorted(item["SK"]["S"] for item in store.records()) == ["GONE", "PURGE"]
