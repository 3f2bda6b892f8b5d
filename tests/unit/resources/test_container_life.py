"""The life of a container: its sandbox starts once, rests, dies, is replaced and makes room, and its end takes all along."""

import asyncio
from collections.abc import Callable
from operator import attrgetter

import pytest
from moorage import limits
from moorage.containers.claims import Claims
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord, ContainerStore
from moorage.errors import ApiError, SandboxCapacity, SandboxGone, SandboxStarting, SandboxUnreachable

from tests.unit.resources.support import FakeSandbox, chunked
from tests.unit.resources.world import IDLE, World

IDLE_ENOUGH = limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS


async def test_a_reserved_container_has_no_sandbox_yet(world: World) -> None:
    record = await world.new()
    assert record.id.startswith("cntr_")
    assert world.provisioner.starts == 0
    assert await world.containers.get("ten", record.id) == record


async def test_a_container_starts_once_and_is_then_found(world: World) -> None:
    record = await world.new(memory_limit="4g")
    ensure = world.containers.sandboxes.ensure
    async with await ensure("ten", record.id) as first, await ensure("ten", record.id) as second:
        assert first.handle == second.handle
        assert [first.record.incarnation, second.record.incarnation] == [1, 1]
    assert world.provisioner.starts == 1
    assert world.provisioner.specs[0].memory_gib == 4


async def test_many_at_once_start_one_sandbox(world: World) -> None:
    record = await world.new()

    async def patiently() -> LiveContainer:
        while True:
            try:
                return await world.containers.sandboxes.ensure("ten", record.id)
            except SandboxStarting:
                await asyncio.sleep(0)

    lives = await asyncio.gather(*(patiently() for _ in range(8)))
    assert world.provisioner.starts == 1
    assert {live.handle for live in lives} == {lives[0].handle}


async def test_no_record_holds_the_sandboxes_token(world: World) -> None:
    record = await world.new()
    async with await world.containers.sandboxes.ensure("ten", record.id) as live:
        assert len(live.handle.token) >= 32
        assert live.handle.token not in repr(world.store.records())


async def test_while_a_sandbox_is_on_its_way_the_caller_is_told_to_wait(world: World) -> None:
    record = await world.new()
    world.provisioner.problems = [SandboxStarting(2.0), SandboxStarting(1.0)]
    for seconds in (2.0, 1.0):
        with pytest.raises(SandboxStarting) as caught:
            await world.containers.sandboxes.ensure("ten", record.id)
        assert caught.value.retry_after_seconds == seconds
    live = await world.containers.sandboxes.ensure("ten", record.id)
    assert live.record.incarnation == 1


async def test_a_sandbox_that_is_cut_off_lives_on_and_is_waited_for(world: World) -> None:
    record = await world.new()
    async with await world.containers.sandboxes.ensure("ten", record.id) as live:
        sandbox = world.provisioner.sandboxes[live.handle.sandbox_id]
        sandbox.is_cut_off = True
        with pytest.raises(SandboxUnreachable):
            await world.containers.sandboxes.ensure("ten", record.id)
        assert not await world.containers.sandboxes.confirm_gone(live)
        sandbox.is_cut_off = False
    async with await world.containers.sandboxes.ensure("ten", record.id) as again:
        assert (again.handle, again.record.incarnation) == (live.handle, 1)
    assert (world.provisioner.running(), world.provisioner.starts) == ([sandbox.sandbox_id], 1)


async def test_a_sandbox_that_is_cut_off_while_it_starts_is_found_again(world: World) -> None:
    record = await world.new()
    world.provisioner.is_slow = True
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    world.provisioner.is_slow, world.provisioner.sandboxes["sb-1"].is_cut_off = False, True
    with pytest.raises(SandboxUnreachable):
        await world.containers.sandboxes.ensure("ten", record.id)
    world.provisioner.sandboxes["sb-1"].is_cut_off = False
    async with await world.containers.sandboxes.ensure("ten", record.id) as live:
        assert (live.handle.sandbox_id, live.record.incarnation) == ("sb-1", 1)
    assert world.provisioner.starts == 1


async def test_after_a_refusal_for_capacity_the_next_call_tries_again(world: World) -> None:
    record = await world.new()
    world.provisioner.problems = [SandboxCapacity("No room.")]
    with pytest.raises(SandboxCapacity):
        await world.containers.sandboxes.ensure("ten", record.id)
    assert (await world.containers.sandboxes.ensure("ten", record.id)).record.incarnation == 1


async def test_a_starter_that_died_is_replaced_when_its_claim_has_run_out(world: World) -> None:
    record = await world.new()
    store = ContainerStore(world.store.table, clock=world.clock, retention_seconds=1)
    await Claims(store, world.clock).take(record, 1)
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    world.clock.advance(limits.CONTAINER_START_LEASE_SECONDS + 1)
    assert (await world.containers.sandboxes.ensure("ten", record.id)).record.incarnation == 1


async def test_a_claim_from_before_the_clock_was_set_back_has_run_out(world: World) -> None:
    record = await world.new()
    store = ContainerStore(world.store.table, clock=world.clock, retention_seconds=1)
    await Claims(store, world.clock).take(record, 1)
    world.clock.advance(-limits.CLOCK_SKEW_SECONDS_MAX)
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    world.clock.advance(-900)
    assert (await world.containers.sandboxes.ensure("ten", record.id)).record.incarnation == 1


async def test_a_dead_sandbox_is_replaced_by_one_with_the_same_files(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a.txt", b"a")
    await world.containers.artifacts.sync(live)
    world.sandbox(live).is_alive = False
    with pytest.raises(SandboxGone):
        await world.containers.artifacts.sync(live)
    assert await world.containers.sandboxes.confirm_gone(live)
    revived = await world.containers.sandboxes.ensure("ten", record.id)
    assert revived.record.incarnation == 2
    assert revived.handle.token != live.handle.token
    assert world.sandbox(revived).files["a.txt"][0] == b"a"
    artifacts = await world.containers.artifacts.sync(revived)
    assert (artifacts.changed, world.sandbox(revived).reads) == ((), [])
    assert world.provisioner.running() == [revived.handle.sandbox_id]


async def test_a_sandbox_that_died_unnoticed_is_replaced_by_the_next_ensure(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).is_alive = False
    assert (await world.containers.sandboxes.ensure("ten", record.id)).record.incarnation == 2


async def test_a_sandbox_that_has_just_answered_is_not_asked_whether_it_lives(world: World) -> None:
    record = await world.new()
    ensure = world.containers.sandboxes.ensure
    live = await ensure("ten", record.id)
    sandbox = world.sandbox(live)
    sandbox.has_just_answered = True
    sandbox.silent.add("health")
    assert (await ensure("ten", record.id)).handle == live.handle
    sandbox.has_just_answered = False
    assert (await ensure("ten", record.id)).handle != live.handle


async def test_a_torn_connection_alone_does_not_end_a_sandbox(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    assert not await world.containers.sandboxes.confirm_gone(live)
    assert (await world.containers.sandboxes.ensure("ten", record.id)).handle == live.handle


async def test_a_connection_torn_while_files_are_written_does_not_end_a_sandbox(world: World) -> None:
    """Each kind of sandbox has a network before it. What answers a moment later has kept its processes."""
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.add_file(await world.containers.get("ten", record.id), filename="a.txt", chunks=chunked(b"a"))
    world.sandbox(live).torn = {"write_file"}
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    again = await world.containers.sandboxes.ensure("ten", record.id)
    assert again.handle.sandbox_id == live.handle.sandbox_id
    assert world.sandbox(again).files["a.txt"][0] == b"a"


async def asleep(world: World) -> tuple[ContainerRecord, FakeSandbox]:
    """A container whose only command has ended, in a sandbox that sleeps since."""
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.artifacts.sync(live)
    world.sandbox(live).is_asleep = True
    world.clock.advance(IDLE)
    return record, world.sandbox(live)


async def test_an_idle_sandbox_that_sleeps_is_ended_without_being_woken(world: World) -> None:
    record, sandbox = await asleep(world)
    assert await world.containers.sweep.expire_due(world.clock()) == 1
    assert (world.provisioner.running(), sandbox.is_asleep) == ([], True)
    assert (await world.containers.sandboxes.ensure("ten", record.id)).record.incarnation == 2


@pytest.mark.parametrize("left", ["a process", "a terminal", "a file that was not stored"])
async def test_a_sandbox_that_sleeps_is_looked_into_before_its_end_if_something_was_left(world: World, left: str) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.artifacts.sync(live)
    sandbox = world.sandbox(live)
    match left:
        case "a process":
            sandbox.has_processes = True
            await world.containers.artifacts.sync(await world.containers.sandboxes.ensure("ten", record.id))
        case "a terminal":
            await world.containers.sessions.open(await world.containers.get("ten", record.id), "", rows=24, columns=80)
        case _:
            sandbox.others["pipe"] = "other"
            await world.containers.artifacts.sync(await world.containers.sandboxes.ensure("ten", record.id))
    sandbox.write("late.txt", b"late")
    sandbox.is_asleep = True
    world.clock.advance(IDLE + limits.CONTAINER_TOUCH_SECONDS)
    assert await world.containers.sweep.expire_due(world.clock()) == 1
    assert not sandbox.is_asleep
    assert (await world.stored(record))["/mnt/data/late.txt"] == ("assistant", b"late")


async def test_commands_side_by_side_never_say_that_nothing_is_left_when_something_is(world: World) -> None:
    """The one that leaves nothing may note it last: it has begun before the other one's process was seen."""
    record = await world.new()
    quiet = await world.containers.sandboxes.ensure("ten", record.id)
    busy = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(quiet).has_processes = True
    await world.containers.artifacts.sync(busy)
    world.sandbox(quiet).has_processes = False  # as the listing was when the quiet one asked
    await world.containers.artifacts.sync(quiet)
    assert not (await world.containers.get("ten", record.id)).is_quiet
    await world.containers.artifacts.sync(await world.containers.sandboxes.ensure("ten", record.id))
    assert (await world.containers.get("ten", record.id)).is_quiet


async def test_an_idle_container_stops_and_keeps_its_files(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("late.txt", b"written by a background process")
    world.clock.advance(IDLE)
    assert await world.containers.sweep.expire_due(world.clock()) == 1
    assert world.provisioner.running() == []
    assert await world.stored(record) == {"/mnt/data/late.txt": ("assistant", b"written by a background process")}
    revived = await world.containers.sandboxes.ensure("ten", record.id)
    assert revived.record.incarnation == 2
    assert world.sandbox(revived).files["late.txt"][0] == b"written by a background process"


async def test_use_puts_expiry_off(world: World) -> None:
    record = await world.new()
    await world.containers.sandboxes.ensure("ten", record.id)
    world.clock.advance(IDLE - 1)
    await world.containers.touch("ten", record.id)
    world.clock.advance(IDLE - 1)
    assert await world.containers.sweep.expire_due(world.clock()) == 0
    assert len(world.provisioner.running()) == 1
    world.clock.advance(1)
    assert await world.containers.sweep.expire_due(world.clock()) == 1
    assert world.provisioner.running() == []


async def test_a_container_in_which_a_command_runs_is_not_idle(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).running = 1
    world.clock.advance(IDLE)
    assert await world.containers.sweep.expire_due(world.clock()) == 0
    assert world.provisioner.running() == [live.handle.sandbox_id]
    assert (await world.containers.get("ten", record.id)).expires_at > world.clock()


async def test_looking_at_an_expired_container_does_not_revive_it(world: World) -> None:
    record = await world.new()
    world.clock.advance(IDLE)
    assert (await world.containers.touch("ten", record.id)).expires_at <= world.clock()


async def test_strict_expiry_refuses_an_expired_container(world: World) -> None:
    record = await world.new()
    await world.strict.sandboxes.ensure("ten", record.id)
    world.clock.advance(IDLE)
    with pytest.raises(ApiError) as caught:
        await world.strict.sandboxes.ensure("ten", record.id)
    assert (caught.value.status, caught.value.message) == (400, "Container is expired.")


async def test_objects_that_no_file_names_are_collected_when_the_container_stops(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTAINER_CHANGES_MAX", 0)  # What is kept of the past has tests of its own.
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    for content in (b"one", b"two"):
        world.sandbox(live).write("a.txt", content)
        await world.containers.artifacts.sync(live)
    assert len(world.store.objects()) == 2
    world.clock.advance(IDLE)
    await world.containers.sweep.expire_due(world.clock())
    assert len(world.store.objects()) == 1
    assert await world.stored(record) == {"/mnt/data/a.txt": ("assistant", b"two")}


async def test_an_unused_container_is_erased_after_its_retention(world: World) -> None:
    record = await world.new()
    await world.containers.add_file(record, filename="a", chunks=chunked(b"a"))
    await world.containers.sandboxes.ensure("ten", record.id)
    world.clock.advance(IDLE + limits.RETENTION_SECONDS)
    await world.containers.sweep.expire_due(world.clock())
    assert world.provisioner.running() == []
    assert world.store.objects() == []
    assert await world.only_a_mark_is_left()


async def test_deleting_a_container_stops_it_and_erases_everything(world: World) -> None:
    record = await world.new()
    await world.containers.add_file(record, filename="a", chunks=chunked(b"a"))
    await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.delete("ten", record.id)
    assert world.provisioner.running() == []
    assert world.store.objects() == []
    assert await world.only_a_mark_is_left()
    for call in (world.containers.get, world.containers.sandboxes.ensure, world.containers.delete):
        with pytest.raises(ApiError) as caught:
            await call("ten", record.id)
        assert caught.value.status == 404


async def test_a_sandbox_still_starting_at_deletion_is_stopped_by_the_sweep(world: World) -> None:
    record = await world.new()
    world.provisioner.is_slow = True
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.delete("ten", record.id)
    assert world.provisioner.running() == ["sb-1"]
    assert await world.only_a_mark_is_left()
    assert world.provisioner.running() == []
    assert world.provisioner.starts == 1


async def test_an_erasure_does_not_put_off_the_end_of_a_sandbox_that_is_due(world: World) -> None:
    """Both come up in one sweep, and in any order."""
    record = await world.new()
    world.provisioner.is_slow = True
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.delete("ten", record.id)
    world.clock.advance(limits.CONTAINER_ERASE_AGAIN_SECONDS)
    await world.containers.sweep.erase("ten", record.id)
    await world.containers.sweep.expire_due(world.clock())
    assert world.provisioner.running() == []


@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_start_that_nobody_came_back_for_is_undone_when_the_container_expires(world: World, is_begun: bool) -> None:
    record = await world.new()
    world.provisioner.is_slow = is_begun
    world.provisioner.problems = [] if is_begun else [SandboxStarting(1)]
    with pytest.raises(SandboxStarting):
        await world.containers.sandboxes.ensure("ten", record.id)
    world.clock.advance(record.idle_minutes * 60)
    assert await world.containers.sweep.expire_due(world.clock()) == 1
    assert (await world.containers.get("ten", record.id)).sandbox is None
    assert (world.provisioner.running(), world.provisioner.starts) == ([], int(is_begun))


@pytest.mark.parametrize("call", ["get", "touch", "use", "sandboxes.ensure", "delete"])
async def test_another_tenants_container_is_a_404(world: World, call: str) -> None:
    record = await world.new()
    method: Callable[..., object] = attrgetter(call)(world.containers)
    with pytest.raises(ApiError) as caught:
        await method("other", record.id)  # type: ignore[misc]
    assert caught.value.status == 404


async def test_the_longest_idle_sandbox_gives_way_and_its_container_keeps_its_files(world: World) -> None:
    """Not one in which a command runs, not one that was in use a moment ago, and never another tenant's."""
    foreign = await world.containers.reserve("another", name="c")
    await world.containers.sandboxes.ensure("another", foreign.id)
    lives = []
    for _ in range(3):
        world.clock.advance(IDLE_ENOUGH)
        lives.append(await world.containers.sandboxes.ensure("ten", (await world.new()).id))
    busy, idle, fresh = lives
    world.sandbox(busy).running = 1
    world.sandbox(idle).write("note.txt", b"kept")
    world.clock.advance(IDLE_ENOUGH - 1)
    assert await world.containers.sweep.make_room("ten", spared=())
    assert world.provisioner.running() == ["sb-1", busy.handle.sandbox_id, fresh.handle.sandbox_id]
    assert not await world.containers.sweep.make_room("ten", spared=())
    revived = await world.containers.sandboxes.ensure("ten", idle.record.id)
    assert (revived.record.incarnation, world.sandbox(revived).files["note.txt"][0]) == (2, b"kept")
