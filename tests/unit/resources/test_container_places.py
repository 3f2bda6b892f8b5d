"""A container whose sandbox is started in one place and reached in another, as on AWS: ECS is asked from outside the sandboxes'
network, sandboxes are reached from inside."""

import asyncio
from contextlib import suppress

import pytest
from moorage import limits
from moorage.containers.store import ContainerRecord
from moorage.errors import SandboxElsewhere, SandboxError, SandboxStarting

from tests.unit.resources.places import Places
from tests.unit.resources.support import chunked

IDLE = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60


async def test_a_sandbox_that_was_placed_outside_is_taken_up_inside(places: Places) -> None:
    record = await places.new()
    await places.outside.add_file(record, filename="a.txt", chunks=chunked(b"a"))
    await places.outside.sandboxes.place("ten", record.id)
    live = await places.inside.sandboxes.ensure("ten", record.id)
    assert live.record.incarnation == 1
    assert {name: data for name, (data, _, _) in places.ecs.sandboxes["sb-1"].files.items()} == {"a.txt": b"a"}
    assert (await places.inside.sandboxes.ensure("ten", record.id)).handle == live.handle
    assert places.ecs.starts == 1


async def test_inside_nothing_is_started_and_the_call_goes_round_by_way_of_the_outside(places: Places) -> None:
    record = await places.new()
    with pytest.raises(SandboxElsewhere):
        await places.inside.sandboxes.ensure("ten", record.id)
    assert places.ecs.starts == 0
    await places.outside.sandboxes.place("ten", record.id)
    assert (await places.inside.sandboxes.ensure("ten", record.id)).record.incarnation == 1
    assert places.ecs.starts == 1


async def test_a_sandbox_that_does_not_listen_yet_is_waited_for_and_not_given_up(places: Places) -> None:
    record = await places.new()
    await places.outside.sandboxes.place("ten", record.id)
    places.deaf.add("fake:sb-1")
    with pytest.raises(SandboxStarting) as waiting:
        await places.inside.sandboxes.ensure("ten", record.id)
    assert not isinstance(waiting.value, SandboxElsewhere)
    await places.outside.sandboxes.place("ten", record.id)
    places.deaf.clear()
    assert (await places.inside.sandboxes.ensure("ten", record.id)).handle.sandbox_id == "sb-1"
    assert places.ecs.starts == 1


async def test_while_the_outside_waits_for_ecs_the_inside_is_told_to_wait(places: Places) -> None:
    record = await places.new()
    places.ecs.problems = [SandboxStarting(0.05), SandboxStarting(0.05)]
    placing = asyncio.create_task(places.outside.sandboxes.place("ten", record.id))
    while not places.ecs.asked:
        await asyncio.sleep(0)
    with pytest.raises(SandboxStarting) as waiting:
        await places.inside.sandboxes.ensure("ten", record.id)
    assert not isinstance(waiting.value, SandboxElsewhere)
    await placing
    assert (await places.inside.sandboxes.ensure("ten", record.id)).handle.sandbox_id == "sb-1"


async def test_who_gives_up_waiting_leaves_the_claim_to_the_next(places: Places) -> None:
    record = await places.new()
    places.ecs.problems = [SandboxStarting(60)]
    await places.outside.sandboxes.place("ten", record.id)  # 60 seconds are more than it waits
    places.ecs.problems = [SandboxStarting(30)]
    placing = asyncio.create_task(places.outside.sandboxes.place("ten", record.id))
    while len(places.ecs.asked) < 2:
        await asyncio.sleep(0)
    placing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await placing
    await places.outside.sandboxes.place("ten", record.id)
    assert (await places.inside.sandboxes.ensure("ten", record.id)).record.incarnation == 1


@pytest.mark.parametrize("turns", range(40))
async def test_who_gives_up_at_any_moment_leaves_the_claim_to_the_next(places: Places, turns: int) -> None:
    """A model that calls nothing lets its step end while the sandbox is started; another agent of the same response may want it."""
    record = await places.new()
    placing = asyncio.create_task(places.outside.sandboxes.place("ten", record.id))
    for _ in range(turns):
        await asyncio.sleep(0)
    placing.cancel()
    with suppress(asyncio.CancelledError):
        await placing
    await places.outside.sandboxes.place("ten", record.id)
    assert (await places.inside.sandboxes.ensure("ten", record.id)).record.incarnation == 1


async def test_a_container_that_is_deleted_after_a_cancelled_start_leaves_no_sandbox(places: Places) -> None:
    """Its sandbox would keep a place of its tenant's until the start must be over."""
    record = await places.new()
    places.ecs.answers.clear()
    placing = asyncio.create_task(places.outside.sandboxes.place("ten", record.id))
    while not places.ecs.specs:
        await asyncio.sleep(0)
    placing.cancel()
    await asyncio.sleep(0)
    places.ecs.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await placing
    await places.outside.delete("ten", record.id)
    assert places.ecs.running() == []


async def test_what_stands_in_the_way_outside_is_said_inside_and_tried_again_later(places: Places) -> None:
    record = await places.new()
    places.ecs.problems = [SandboxError("This deployment has no sandboxes of 64 GiB.")]
    await places.outside.sandboxes.place("ten", record.id)
    with pytest.raises(SandboxError, match="no sandboxes of 64 GiB") as refusal:
        await places.inside.sandboxes.ensure("ten", record.id)
    assert not isinstance(refusal.value, SandboxStarting)
    places.clock.advance(limits.SANDBOX_REFUSAL_SECONDS)
    assert (await places.live(record)).record.incarnation == 1


async def test_a_dead_sandbox_is_noted_inside_and_replaced_outside_with_its_files(places: Places) -> None:
    record = await places.new()
    live = await places.live(record)
    places.ecs.sandboxes["sb-1"].write("kept.txt", b"kept")
    await places.inside.artifacts.sync(live)
    places.ecs.sandboxes["sb-1"].is_alive = False
    assert await places.inside.sandboxes.confirm_gone(live)
    revived = await places.live(record)
    assert revived.record.incarnation == 2
    assert places.ecs.sandboxes["sb-2"].files["kept.txt"][0] == b"kept"


async def test_from_outside_a_running_sandbox_is_left_alone(places: Places) -> None:
    record = await places.new()
    await places.live(record)
    await places.outside.sandboxes.place("ten", record.id)
    places.clock.advance(IDLE + 1)
    assert await places.outside.sweep.expire_due(places.clock()) == 0
    assert places.ecs.running() == ["sb-1"]
    assert await places.outside.sandboxes.running("ten", record.id) is None


async def test_an_idle_sandbox_is_retired_inside_and_stopped_outside(places: Places) -> None:
    record = await places.new()
    await places.live(record)
    places.ecs.sandboxes["sb-1"].write("late.txt", b"late")
    places.clock.advance(IDLE + 1)
    assert await places.inside.sweep.retire_idle(places.clock()) == 1
    assert places.ecs.running() == ["sb-1"]
    assert await places.outside.sweep.expire_due(places.clock()) == 1
    assert places.ecs.running() == []
    revived = await places.live(record)
    assert (revived.record.incarnation, places.ecs.sandboxes["sb-2"].files["late.txt"][0]) == (2, b"late")


async def test_a_busy_sandbox_is_not_retired(places: Places) -> None:
    record = await places.new()
    await places.live(record)
    places.ecs.sandboxes["sb-1"].running = 1
    places.clock.advance(IDLE + 1)
    assert await places.inside.sweep.retire_idle(places.clock()) == 0
    assert (await places.outside.get("ten", record.id)).expires_at > places.clock()


async def test_a_sandbox_that_was_placed_for_nobody_is_stopped_when_it_has_idled(places: Places) -> None:
    record = await places.new()
    await places.outside.sandboxes.place("ten", record.id)
    places.clock.advance(IDLE + 1)
    assert await places.inside.sweep.retire_idle(places.clock()) == 0
    assert await places.outside.sweep.expire_due(places.clock()) == 1
    assert places.ecs.running() == []


async def test_a_container_that_is_deleted_outside_loses_its_sandbox_at_once(places: Places) -> None:
    record = await places.new()
    await places.live(record)
    await places.outside.delete("ten", record.id)
    assert places.ecs.running() == []


async def test_a_file_that_is_deleted_outside_is_gone_from_the_sandbox_by_the_next_command(places: Places) -> None:
    record = await places.new()
    file = await places.outside.add_file(record, filename="a.txt", chunks=chunked(b"a"))
    await places.live(record)
    await places.outside.delete_file(await places.outside.get("ten", record.id), file.id)
    again = await places.outside.add_file(record, filename="b.txt", chunks=chunked(b"b"))
    live = await places.live(record)
    assert list(places.ecs.sandboxes["sb-1"].files) == ["b.txt"]
    assert [each.id for each in (await places.inside.artifacts.sync(live)).files] == [again.id]
    await places.outside.add_file(record, filename="a.txt", chunks=chunked(b"new"))
    await places.live(record)
    assert places.ecs.sandboxes["sb-1"].files["a.txt"][0] == b"new"


# --- A start of which somebody else hears ---


class Told:
    """ECS where somebody hears of tasks: an order is all that the one who places does."""

    def __init__(self, places: Places) -> None:
        self.places = places

    async def order(self, record: ContainerRecord) -> None:
        self.places.ecs.is_told = True
        await self.places.outside.sandboxes.place("ten", record.id)
        self.places.ecs.is_told = False

    async def hear(self, record: ContainerRecord, endpoint: str | None = "fake:sb-1", *, is_ours: bool = True) -> bool:
        sandboxes = self.places.outside.sandboxes
        return await sandboxes.announce("ten", record.id, "sb-1", endpoint, lambda token: is_ours and bool(token))


async def test_an_ordered_sandbox_is_taken_up_inside_when_somebody_has_heard_of_it(places: Places) -> None:
    told, record = Told(places), await places.new()
    await told.order(record)
    with pytest.raises(SandboxStarting) as waiting:
        await places.inside.sandboxes.ensure("ten", record.id)
    assert not isinstance(waiting.value, SandboxElsewhere)  # it waits there, and does not go round
    assert await told.hear(record)
    live = await places.inside.sandboxes.ensure("ten", record.id)
    assert (live.handle.endpoint, live.record.incarnation, places.ecs.starts) == ("fake:sb-1", 1, 1)


async def test_while_a_sandbox_is_on_its_way_nobody_orders_another(places: Places) -> None:
    told, record = Told(places), await places.new()
    await told.order(record)
    await places.outside.sandboxes.place("ten", record.id)
    assert len(places.ecs.asked) == 1


async def test_one_of_which_nobody_has_heard_is_asked_for_again_when_its_time_is_over(places: Places) -> None:
    told, record = Told(places), await places.new()
    await told.order(record)
    places.clock.now += limits.CONTAINER_START_LEASE_SECONDS + 1
    assert (await places.live(record)).record.incarnation == 1


async def test_one_that_ended_before_it_ran_makes_way_at_once(places: Places) -> None:
    told, record = Told(places), await places.new()
    await told.order(record)
    assert await told.hear(record, None)
    assert (await places.live(record)).record.incarnation == 1


async def test_one_that_ended_before_anybody_reached_it_makes_way_at_once(places: Places) -> None:
    told, record = Told(places), await places.new()
    await told.order(record)
    assert await told.hear(record)
    places.ecs.sandboxes["sb-1"].is_alive = False
    places.deaf.add("fake:sb-1")
    with pytest.raises(SandboxStarting) as waiting:
        await places.inside.sandboxes.ensure("ten", record.id)
    assert not isinstance(waiting.value, SandboxElsewhere)  # it waits for what will never listen
    assert await told.hear(record, None)
    with pytest.raises(SandboxElsewhere):
        await places.inside.sandboxes.ensure("ten", record.id)
    live = await places.live(record)
    assert (live.handle.sandbox_id, live.record.incarnation) == ("sb-2", 1)
    assert not await told.hear(record, None)  # late, and of one that is forgotten


async def test_what_is_heard_twice_late_or_of_another_changes_nothing(places: Places) -> None:
    told, record = Told(places), await places.new()
    assert not await told.hear(record)  # nobody waits
    await told.order(record)
    assert not await told.hear(record, is_ours=False)
    assert await told.hear(record)
    assert not await told.hear(record)
    assert not await places.outside.sandboxes.announce("ten", "cntr_none", "sb-1", "fake:sb-1", lambda _: True)


async def test_what_was_ordered_for_a_container_that_is_deleted_is_stopped(places: Places) -> None:
    told, record = Told(places), await places.new()
    await told.order(record)
    await places.outside.delete("ten", record.id)
    assert not places.ecs.sandboxes["sb-1"].is_alive
    assert not await told.hear(record)
