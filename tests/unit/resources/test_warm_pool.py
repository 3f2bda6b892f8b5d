"""The warm pool on a real table: who gets a waiting sandbox, what a repeated start finds, and what the reaper makes of the rest."""

import asyncio
import dataclasses
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

import pytest
from moorage import limits
from moorage.errors import SandboxCapacity, SandboxElsewhere, SandboxError, SandboxGone, SandboxStarting
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.sandbox.reach_only import ReachOnlyProvisioner
from moorage.sandbox.warm_pool import WarmPool
from moorage.store import keys
from moorage.telemetry import open_log

from tests.opened_logs import close_log
from tests.unit.resources.support import Clock, Store


@dataclass
class Server:
    """A sandbox: its exec server's view of who may speak to it."""

    sandbox_id: str
    spec: SandboxSpec
    token_sha256: str
    is_unclaimed: bool
    hangs: bool = False


class Connection:
    def __init__(self, cloud: "Cloud", handle: Handle) -> None:
        self._cloud, self._handle = cloud, handle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def _server(self) -> Server:
        server = self._cloud.servers.get(self._handle.sandbox_id)
        if server is None or server.hangs or self._cloud.is_out_of_reach:
            raise SandboxGone("no answer")
        if server.token_sha256 != _hash(self._handle.token):
            raise SandboxError("unauthorized")
        return server

    async def health(self) -> None:
        self._server()

    async def claim(self, token_sha256: str) -> None:
        server = self._server()
        if not server.is_unclaimed:
            raise SandboxError("already claimed")
        server.token_sha256, server.is_unclaimed = token_sha256, False
        if self._cloud.loses_answers:
            raise SandboxGone("torn")


class Cloud:
    """An idempotent owner of sandboxes, as ECS and the launcher are."""

    def __init__(self) -> None:
        self.servers: dict[str, Server] = {}
        self.problems: list[SandboxError] = []
        self.is_out_of_reach = False
        self.loses_answers = False
        self.is_slow = False
        self.revision = "one"
        self.starts = 0

    async def start(self, spec: SandboxSpec) -> Handle:
        if self.problems:
            raise self.problems.pop(0)
        sandbox_id = await self.find(spec)
        if sandbox_id is None:
            self.starts += 1
            sandbox_id = f"sbx_{self.starts}"
            self.servers[sandbox_id] = Server(sandbox_id, spec, _hash(spec.token), spec.is_unclaimed)
        if self.is_slow:
            raise SandboxStarting(2.0)
        return Handle("unix:/x", spec.token, sandbox_id)

    async def find(self, spec: SandboxSpec) -> str | None:
        started = (spec.container_id, spec.token)
        return next((each.sandbox_id for each in self.servers.values() if (each.spec.container_id, each.spec.token) == started), None)

    async def stop(self, sandbox_id: str) -> None:
        self.servers.pop(sandbox_id, None)

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return handle

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        return SandboxStatus.RUNNING if sandbox_id in self.servers else SandboxStatus.STOPPED

    async def running(self) -> list[Server]:
        return list(self.servers.values())


@dataclass
class World:
    store: Store
    clock: Clock
    cloud: Cloud = field(default_factory=Cloud)

    def pool(self, **sizes: int) -> WarmPool:
        return self._pool(sizes, self.connect)

    def outside(self, **sizes: int) -> WarmPool:
        """As a process has it that cannot reach sandboxes."""
        return self._pool(sizes, None)

    def _pool(self, sizes: dict[str, int], connect: Callable[[Handle], ExecClient] | None) -> WarmPool:
        named = {name.removeprefix("of_"): number for name, number in sizes.items()}
        return WarmPool(self.store.table, self.cloud, named, key=lambda: b"k" * 32, clock=self.clock, connect=connect)

    def connect(self, handle: Handle) -> ExecClient:
        return cast("ExecClient", Connection(self.cloud, handle))

    async def sort_keys(self) -> list[str]:
        return [record["SK"].split("#")[0] for record in await self.store.table.query(keys.POOL)]

    def unclaimed(self) -> set[str]:
        return {server.sandbox_id for server in self.cloud.servers.values() if server.is_unclaimed}


@pytest.fixture
def world(store: Store, clock: Clock) -> World:
    return World(store, clock)


def spec(number: int = 1, **more: Any) -> SandboxSpec:
    return SandboxSpec("ten", f"cntr_{number}", f"token-{number}-" + "x" * 32, **more)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def test_a_start_takes_the_sandbox_that_waits_and_the_next_round_starts_another(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    handle = await pool.start(spec())
    assert handle == Handle("unix:/x", spec().token, "sbx_1")
    server = world.cloud.servers["sbx_1"]
    assert (server.token_sha256, server.is_unclaimed) == (_hash(spec().token), False)
    await pool.settle()
    assert world.unclaimed() == {"sbx_2"}
    assert await world.sort_keys() == ["CLAIM", "SLOT"]


async def test_of_two_claimants_of_one_sandbox_one_gets_it_and_the_other_starts_its_own(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    handles = await asyncio.gather(*(pool.start(spec(number)) for number in range(6)))
    assert len({handle.sandbox_id for handle in handles}) == 6
    assert [handle.sandbox_id for handle in handles].count("sbx_1") == 1
    assert world.cloud.starts == 6
    for number, handle in enumerate(handles):
        assert world.cloud.servers[handle.sandbox_id].token_sha256 == _hash(spec(number).token)


async def test_two_runs_of_one_start_get_one_sandbox(world: World) -> None:
    pool = world.pool(of_1g=3)
    await pool.settle()
    handles = await asyncio.gather(*(pool.start(spec()) for _ in range(4)))
    assert len(set(handles)) == 1
    assert len(world.unclaimed()) == 2


async def test_a_claimant_that_dies_leaves_its_sandbox_to_the_repeated_start(world: World) -> None:
    pool = world.pool(of_1g=2)
    await pool.settle()
    world.cloud.is_out_of_reach = True
    with pytest.raises(SandboxStarting):
        await pool.start(spec())
    world.cloud.is_out_of_reach = False
    assert len(world.unclaimed()) == 2
    handle = await pool.start(spec())
    assert len(world.unclaimed()) == 1
    assert world.cloud.servers[handle.sandbox_id].token_sha256 == _hash(spec().token)


async def test_a_claim_whose_answer_was_lost_is_found_done(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.loses_answers = True
    with pytest.raises(SandboxStarting):
        await pool.start(spec())
    assert (await pool.start(spec())).sandbox_id == "sbx_1"


async def test_a_miss_is_remembered_so_that_a_repeated_start_takes_no_second_sandbox(world: World) -> None:
    pool = world.pool(of_1g=1)
    first = await pool.start(spec())
    await pool.settle()
    assert await pool.start(spec()) == first
    assert len(world.unclaimed()) == 1


async def test_a_sandbox_that_died_while_it_waited_is_replaced_by_a_new_one(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    await world.cloud.stop("sbx_1")
    assert (await pool.start(spec())).sandbox_id == "sbx_2"
    assert (await pool.start(spec())).sandbox_id == "sbx_2"


async def test_one_that_was_started_under_another_key_is_handed_over_for_its_caller_to_end(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.servers["sbx_1"].token_sha256 = "another"
    assert (await pool.start(spec())).sandbox_id == "sbx_1"


async def test_one_that_hangs_is_handed_over_after_a_while_for_its_caller_to_end(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.servers["sbx_1"].hangs = True
    with pytest.raises(SandboxStarting):
        await pool.start(spec())
    world.clock.advance(limits.WARM_CLAIMED_SECONDS_MAX + 1)
    assert (await pool.start(spec())).sandbox_id == "sbx_1"


async def test_a_sandbox_is_claimed_from_outside_and_told_its_owner_inside(world: World) -> None:
    outside = world.outside(of_1g=1)
    inside = WarmPool(world.store.table, ReachOnlyProvisioner(), {}, key=lambda: b"k" * 32, clock=world.clock, connect=world.connect)
    await outside.settle()
    with pytest.raises(SandboxElsewhere):
        await inside.start(spec())
    handle = await outside.start(spec())
    assert world.unclaimed() == {"sbx_1"}
    world.cloud.is_out_of_reach = True
    with pytest.raises(SandboxStarting):
        await inside.start(spec())
    world.cloud.is_out_of_reach = False
    assert await inside.start(spec()) == handle == Handle("unix:/x", spec().token, "sbx_1")
    assert world.cloud.servers["sbx_1"].token_sha256 == _hash(spec().token)
    await outside.settle()
    assert world.unclaimed() == {"sbx_2"}
    await world.cloud.stop("sbx_2")
    await outside.settle()
    assert world.unclaimed() == {"sbx_3"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"memory_gib": 4}, id="of another memory tier"),
        pytest.param({"egress": EgressSpec(proxy="http://proxy:3128", username="u", password="p")}, id="with a network"),
        pytest.param({"env": {"KEY": "placeholder"}}, id="with variables"),
    ],
)
async def test_what_the_pool_does_not_hold_is_started_as_ever(world: World, other: dict[str, Any]) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    assert (await pool.start(spec(**other))).sandbox_id == "sbx_2"
    assert world.unclaimed() == {"sbx_1"}


async def test_a_start_that_died_is_found_with_the_sandbox_that_it_claimed(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.is_out_of_reach = True
    with pytest.raises(SandboxStarting):
        await pool.start(spec())
    assert await pool.find(spec()) == "sbx_1"


async def test_looking_for_a_start_that_died_takes_no_sandbox_from_the_pool(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    assert await pool.find(spec()) is None
    world.cloud.is_slow = True
    with pytest.raises(SandboxStarting):
        await pool.start(spec(2, memory_gib=4))
    assert await pool.find(spec(2)) == "sbx_2"
    assert world.unclaimed() == {"sbx_1"}


async def test_a_token_of_the_pool_is_in_no_record(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    assert world.cloud.servers["sbx_1"].spec.token not in repr(world.store.records())


async def test_two_refills_at_once_do_not_overshoot(world: World) -> None:
    pool = world.pool(of_1g=2, of_4g=1)
    await asyncio.gather(*(pool.settle() for _ in range(4)))
    await pool.settle()
    assert sorted(server.spec.memory_gib for server in world.cloud.servers.values()) == [1, 1, 4]


async def test_a_sandbox_is_offered_only_when_it_answers(world: World) -> None:
    pool = world.pool(of_1g=1)
    world.cloud.problems = [SandboxStarting(2.0), SandboxCapacity("no room")]
    for _ in range(2):
        await pool.settle()
        assert world.cloud.servers == {}
    await pool.settle()
    assert world.unclaimed() == {"sbx_1"}


async def test_one_that_cannot_start_is_given_up_and_tried_anew(world: World) -> None:
    pool = world.pool(of_1g=1)
    world.cloud.problems = [SandboxError("broken")]
    await pool.settle()
    assert await world.sort_keys() == []
    await pool.settle()
    assert world.unclaimed() == {"sbx_1"}


async def test_one_that_never_answers_is_given_up(world: World) -> None:
    pool = world.pool(of_1g=1)
    world.cloud.problems = [SandboxStarting(2.0)]
    await pool.settle()
    (first,) = await world.store.table.query(keys.POOL)
    world.clock.advance(limits.WARM_START_SECONDS_MAX)
    await pool.settle()
    (second,) = await world.store.table.query(keys.POOL)
    assert first["pool_id"] != second["pool_id"]


async def test_what_is_stale_is_replaced(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.clock.advance(limits.WARM_SANDBOX_SECONDS_MAX)
    assert await pool.settle() == 1
    assert world.unclaimed() == {"sbx_2"}
    assert set(world.cloud.servers) == {"sbx_2"}


@pytest.mark.parametrize("sizes", [{"of_1g": 1}, {"of_4g": 2}, {}], ids=["a smaller pool", "another tier", "no pool"])
async def test_what_is_too_much_after_a_change_of_the_setting_is_stopped(world: World, sizes: dict[str, int]) -> None:
    await world.pool(of_1g=2).settle()
    await world.pool(**sizes).settle()
    assert sum(server.spec.memory_gib == 1 for server in world.cloud.servers.values()) == sizes.get("of_1g", 0)


async def test_each_container_counts_once_however_often_its_start_is_repeated(world: World) -> None:
    out = io.StringIO()
    handler = open_log(out)
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.is_out_of_reach = True
    with pytest.raises(SandboxStarting):
        await pool.start(spec(1))
    world.cloud.is_out_of_reach = False
    for number in (1, 1, 2, 2):
        await pool.start(spec(number))
    close_log(handler)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["container_id"], "WarmPoolHits" in line, "WarmPoolMisses" in line) for line in lines] == [
        ("cntr_1", True, False),
        ("cntr_2", False, True),
    ]


async def test_what_an_earlier_deployment_started_is_given_to_nobody_and_replaced(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.revision = "two"
    assert (await pool.start(spec())).sandbox_id == "sbx_2"
    assert await pool.settle() == 1
    assert world.unclaimed() == {"sbx_3"}
    assert (await pool.start(spec(2))).sandbox_id == "sbx_3"


async def test_one_that_still_starts_is_stopped_when_it_is_wanted_no_more(world: World) -> None:
    world.cloud.is_slow = True
    await world.pool(of_1g=1).settle()
    assert world.unclaimed() == {"sbx_1"}
    assert await world.pool().settle() == 1
    assert world.cloud.servers == {}


async def test_one_that_hangs_while_it_waits_is_replaced(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    world.cloud.servers["sbx_1"].hangs = True
    assert await pool.settle() == 1
    assert set(world.cloud.servers) == {"sbx_2"}


async def test_a_claim_is_forgotten_when_its_sandbox_has_ended(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    handle = await pool.start(spec())
    await pool.settle()
    assert await world.sort_keys() == ["CLAIM", "SLOT"]
    await pool.stop(handle.sandbox_id)
    await pool.settle()
    assert await world.sort_keys() == ["SLOT"]


async def test_a_claimed_sandbox_never_comes_back_to_the_pool(world: World) -> None:
    pool = world.pool(of_1g=1)
    await pool.settle()
    first = await pool.start(spec(1))
    other = await pool.start(dataclasses.replace(spec(2), tenant_id="other"))
    assert first.sandbox_id != other.sandbox_id
    world.clock.advance(limits.WARM_SANDBOX_SECONDS_MAX)
    await pool.settle()
    assert first.sandbox_id in world.cloud.servers
