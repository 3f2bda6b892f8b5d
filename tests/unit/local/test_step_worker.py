"""Workers of one machine: executions are taken once, survive their workers, and end."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from moorage import limits
from moorage.local.state_machine import State
from moorage.local.step_worker import StepWorker, steps_max, workers_from
from moorage.settings import SettingsError
from moorage.state import LoopState
from moorage.store.execution_rows import ExecutionRows, TakenExecution
from moorage.store.executions import ENDED
from moorage.vector_stores.jobs import IndexState

FIRST: State = LoopState("resp_1", "t").to_json()
ASKS, DONE = FIRST | {"next": "tool", "calls": ["a"]}, FIRST | {"next": "done"}
STEPS = 8


class Steps:
    """A model that asks for one command and is done; the command waits for ``gate``."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.gate, self.begun = asyncio.Event(), asyncio.Event()

    async def __call__(self, name: str, given: State) -> Any:
        self.ran.append(name)
        if name == "ToolStep":
            self.begun.set()
            await self.gate.wait()
            return {}
        return DONE if "ToolStep" in self.ran else ASKS


@asynccontextmanager
async def at_work(rows: ExecutionRows, steps: Callable[[str, State], Awaitable[Any]], number: int = 0) -> AsyncIterator[StepWorker]:
    """A worker that dies when this ends."""
    worker = StepWorker(rows, steps, number, 2, steps=STEPS, chance=random.Random(1))
    working = asyncio.create_task(worker.work())
    try:
        yield worker
    finally:
        working.cancel()
        for playing in {*worker.playing, working}:
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing


async def ended(rows: ExecutionRows, name: str) -> str:
    async with asyncio.timeout(20):
        while (status := await rows.status(name)) not in ENDED:
            await asyncio.sleep(0.01)
    return str(status)


@pytest.fixture
def rows(tmp_path: Path) -> ExecutionRows:
    return ExecutionRows(tmp_path / "executions.sqlite")


async def test_an_execution_is_played_to_its_end_once(rows: ExecutionRows) -> None:
    steps = Steps()
    steps.gate.set()
    assert await rows.status("resp_1") is None
    for _ in range(2):
        await rows.start("resp_1", FIRST, None)
    assert await rows.status("resp_1") == "RUNNING"
    async with at_work(rows, steps), at_work(rows, steps, 1):
        assert await ended(rows, "resp_1") == "SUCCEEDED"
        assert await rows.start_soon("resp_1", FIRST, None)
    assert steps.ran == ["ModelStep", "ToolStep", "ModelStep"]


async def test_the_step_that_died_with_its_worker_runs_again_and_none_before_it(rows: ExecutionRows) -> None:
    before, after = Steps(), Steps()
    await rows.start("resp_1", FIRST, None)
    async with at_work(rows, before):
        await before.begun.wait()
    assert await rows.take(1, 10, share=10) == []  # It is the dead one's, until its successor has its lock.
    after.gate.set()
    async with at_work(rows, after):
        assert await ended(rows, "resp_1") == "SUCCEEDED"
    assert (before.ran, after.ran) == (["ModelStep", "ToolStep"], ["ToolStep", "ModelStep"])


async def test_a_worker_that_leaves_frees_what_it_has_for_the_others(rows: ExecutionRows) -> None:
    steps = Steps()
    await rows.start("resp_1", FIRST, None)
    async with at_work(rows, steps) as worker:
        await steps.begun.wait()
        await worker.leave()
        assert await rows.take(1, 10, share=10) == [TakenExecution("resp_1", "RunTool", ASKS, (), 0)]
        steps.gate.set()
        assert await rows.take(1, 10, share=10) == []
    assert steps.ran == ["ModelStep", "ToolStep"]
    assert await rows.status("resp_1") == "RUNNING"


async def test_a_stopped_execution_does_not_go_on_after_its_step(rows: ExecutionRows) -> None:
    steps = Steps()
    await rows.start("resp_1", FIRST, None)
    async with at_work(rows, steps) as worker:
        await steps.begun.wait()
        await rows.stop("resp_1")
        steps.gate.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*worker.playing)
    await rows.stop("resp_2")
    assert (await rows.status("resp_1"), await rows.status("resp_2"), steps.ran) == ("ABORTED", None, ["ModelStep", "ToolStep"])


async def test_an_execution_that_kills_its_workers_is_ended_in_its_own_way(rows: ExecutionRows) -> None:
    asked: list[str] = []

    async def steps(name: str, given: State) -> Any:
        asked.append(name)
        return {}

    await rows.start("resp_1", FIRST, None)
    for _ in range(limits.EXECUTION_DEATHS_MAX + 1):
        assert len(await rows.take(0, 1, share=10)) == 1
        await rows.free(0, 2, has_died=True)
    async with at_work(rows, steps):
        assert await ended(rows, "resp_1") == "FAILED"
    assert asked == ["FailResponse"]


async def test_what_numbers_have_that_are_not_given_any_more_is_freed(rows: ExecutionRows) -> None:
    await rows.start("resp_1", FIRST, None)
    assert len(await rows.take(7, 10, share=10)) == 1
    await rows.free(0, 2, has_died=True)
    assert len(await rows.take(1, 10, share=10)) == 1


async def test_a_bounded_number_of_ended_executions_is_kept(tmp_path: Path) -> None:
    ticks = iter(range(10_000))
    rows = ExecutionRows(tmp_path / "executions.sqlite", clock=lambda: float(next(ticks)))
    for number in range(limits.EXECUTIONS_KEPT_MAX + 2):
        await rows.start(str(number), FIRST, None)
        if number:
            await rows.end(str(number), "SUCCEEDED")
    await rows.forget_ended()
    assert [await rows.status(name) for name in ("0", "1", "2")] == ["RUNNING", None, "SUCCEEDED"]


async def test_a_position_waits_for_another_process_that_writes(rows: ExecutionRows, tmp_path: Path) -> None:
    await rows.start("resp_1", FIRST, None)
    await rows.take(0, 10, share=10)
    with contextlib.closing(sqlite3.connect(tmp_path / "executions.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        keeping = asyncio.create_task(rows.keep("resp_1", 0, "ModelStep", ASKS, (1,)))
        await asyncio.sleep(0)  # It has tried at once.
        assert not keeping.done()
        other.execute("ROLLBACK")
    assert await keeping
    await rows.free(0, 2, has_died=False)
    assert await rows.take(1, 10, share=10) == [TakenExecution("resp_1", "ModelStep", ASKS, (1,), 0)]
    assert not await rows.keep("resp_1", 0, "ModelStep", FIRST, ())


async def test_where_the_disk_is_full_the_reaper_starts_it(tmp_path: Path) -> None:
    rows = ExecutionRows(tmp_path / "nowhere" / "executions.sqlite")
    assert not await rows.start_soon("resp_1", FIRST, None)


def test_numbers_of_workers_and_steps_are_checked() -> None:
    assert (workers_from({}), steps_max({})) == (limits.EXECUTION_WORKERS, limits.EXECUTION_STEPS_MAX)
    assert (workers_from({"MOORAGE_WORKERS": "4"}), steps_max({"MOORAGE_STEPS_MAX": "9"})) == (4, 9)
    assert workers_from({"MOORAGE_WORKERS": "4", "MOORAGE_STEPS_MAX": "3"}) == 3
    with pytest.raises(SettingsError, match="MOORAGE_WORKERS takes a number of processes from 1, not '0'"):
        workers_from({"MOORAGE_WORKERS": "0"})
    with pytest.raises(SettingsError, match="MOORAGE_STEPS_MAX takes a number of steps from 1, not 'many'"):
        steps_max({"MOORAGE_STEPS_MAX": "many"})


@pytest.mark.parametrize(("tenants", "most_of_all"), [(1, STEPS - 1), (2, STEPS)])
async def test_no_more_steps_run_at_once_than_may(rows: ExecutionRows, tenants: int, most_of_all: int) -> None:
    running, most = 0, 0

    async def steps(name: str, given: State) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1
        return DONE

    names = [f"resp_{number}" for number in range(3 * STEPS)]
    for number, name in enumerate(names):
        await rows.start(name, LoopState(name, f"t{number % tenants}").to_json(), None)
    async with at_work(rows, steps):
        assert [await ended(rows, name) for name in names] == ["SUCCEEDED"] * len(names)
    assert most == most_of_all


# --- between tenants ------------------------------------------------------------------------------------------------------------


def of_tenant(name: str, tenant_id: str) -> State:
    return LoopState(name, tenant_id).to_json()


async def taken(rows: ExecutionRows, most: int, *, share: int = 1_000) -> list[str]:
    return sorted(one.name for one in await rows.take(0, most, share=share))


async def test_executions_are_taken_in_turns_of_their_tenants(tmp_path: Path) -> None:
    ticks = iter(range(10_000))
    rows = ExecutionRows(tmp_path / "executions.sqlite", clock=lambda: float(next(ticks)))
    for number in range(100):
        await rows.start(f"many-{number:02}", of_tenant("resp_1", "many"), None)
    for number in range(2):
        await rows.start(f"few-{number}", of_tenant("resp_2", "few"), None)
    assert await taken(rows, 3) == ["few-0", "many-00", "many-01"]
    assert await taken(rows, 2) == ["few-1", "many-02"]
    assert await taken(rows, 2) == ["many-03", "many-04"]


async def test_one_tenant_does_not_fill_a_worker(rows: ExecutionRows) -> None:
    for number in range(10):
        await rows.start(f"many-{number}", of_tenant("resp_1", "many"), None)
    assert len(await taken(rows, 10, share=7)) == 7
    assert await taken(rows, 3, share=7) == []
    await rows.start("one", of_tenant("resp_2", "one"), None)
    assert await taken(rows, 3, share=7) == ["one"]


async def test_a_document_does_not_wait_for_ten_thousand_of_another_tenant(rows: ExecutionRows) -> None:
    """A thousand stores, of which each is read for minutes."""
    read: list[str] = []
    gate = asyncio.Event()

    async def steps(name: str, given: State) -> Any:
        read.append(given["tenant_id"])
        if given["tenant_id"] == "many":
            await gate.wait()
        return {**given, "next": "done"}

    for number in range(1_000):
        state = IndexState("many", f"vs_{number}", f"vs_{number}").to_json()
        await rows.start(f"vs_{number}", state, None)
    async with at_work(rows, steps):
        async with asyncio.timeout(20):
            while read.count("many") < STEPS - 1:
                await asyncio.sleep(0.01)
        await rows.start("vs_one", IndexState("one", "vs_one", "vs_one").to_json(), None)
        assert await ended(rows, "vs_one") == "SUCCEEDED"
        assert read == ["many"] * (STEPS - 1) + ["one"]
