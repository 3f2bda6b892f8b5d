"""The records of steps and tool calls: what stands there is whole, the latest run's, and read once."""

import base64
import random
from typing import Any

import pytest
from moorage import limits
from moorage.errors import Superseded
from moorage.state import Next, PendingCall, StepOutcome
from moorage.store.responses import StoredResponse
from moorage.store.steps import Progress, Step, Steps, superseded
from moorage.wire.parameters import Parameters
from moorage.wire.types import Item

from tests.unit.store.memory import MemoryBlobs, MemoryTable

STORED = StoredResponse("resp_1", "t", 0, Parameters("m"), {}, [], is_background=True, expires_at=9)
FOREGROUND = StoredResponse("resp_1", "t", 0, Parameters("m"), {}, [], expires_at=9)
NOISE = base64.b64encode(random.Random(7).randbytes(450_000)).decode()
"""Twice what fits into a record, however it is packed."""


def calling(*calls: tuple[str, int, int], next_index: int) -> StepOutcome:
    made = tuple(PendingCall(call_id, "shell_call", index, output, "sho") for call_id, index, output in calls)
    return StepOutcome(Next.TOOLS, next_index, made)


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


class Bench:
    def __init__(self) -> None:
        self.table, self.blobs = MemoryTable(), MemoryBlobs()
        self.steps = Steps(self.table, self.blobs, now_ms=lambda: 7)

    async def end(
        self, stored: StoredResponse, step: int, attempt: int, outcome: StepOutcome, items: dict[int, Any], *, following: int
    ) -> None:
        """As a step does behind its last events."""
        ending = await self.steps.ending(stored, step, attempt, outcome, items)
        if await self.table.write_in_turn([ending(following, None)]) == 0:
            raise superseded(stored, step, attempt)

    async def end_call(self, stored: StoredResponse, step: int, call_id: str, output_index: int, item: Item) -> None:
        await self.table.write(await self.steps.ending_call(stored, step, call_id, output_index, item))

    async def round(self, step: int, *, text: str = "x") -> None:
        """A step with one call, and the call, from beginning to end; output indexes 2·step and 2·step + 1."""
        at = 2 * step
        attempt = await self.steps.begin(STORED, step)
        outcome = calling(("c", at, at + 1), next_index=at + 2)
        await self.end(STORED, step, attempt.attempt, outcome, {at: said(f"call {step}")}, following=10 * step)
        await self.steps.begin_call(STORED, step, "c", 1)
        await self.end_call(STORED, step, "c", at + 1, said(text))


async def test_a_step_and_its_items_come_back_as_they_were_stored() -> None:
    bench = Bench()
    outcome = calling(("c", 0, 1), next_index=2)
    await bench.steps.begin(STORED, 0)
    before = await bench.steps.get("t", "resp_1", 0)
    await bench.end(STORED, 0, 1, outcome, {0: said("hello")}, following=7)
    assert (before, await bench.steps.get("t", "resp_1", 0)) == (None, Step(outcome, 7, {0: said("hello")}))


async def test_items_too_large_for_a_record_lie_in_the_bucket() -> None:
    bench = Bench()
    outcome = calling(("c", 1, 2), next_index=3)
    await bench.steps.begin(STORED, 0)
    await bench.end(STORED, 0, 1, outcome, {0: said(NOISE), 1: said("call")}, following=1)
    await bench.steps.begin_call(STORED, 0, "c", 1)
    await bench.end_call(STORED, 0, "c", 2, said(NOISE))
    sizes = [len(str(record)) for record in bench.table.records.values()]
    assert (max(sizes) < limits.ITEM_INLINE_BYTES_MAX, len(bench.blobs.objects)) == (True, 2)
    elsewhere = Steps(bench.table, bench.blobs, now_ms=lambda: 7)
    assert (await elsewhere.read("t", "resp_1")).items == {0: said(NOISE), 1: said("call"), 2: said(NOISE)}


async def test_only_the_latest_attempt_ends_a_step() -> None:
    bench = Bench()
    first, second = await bench.steps.begin(STORED, 0), await bench.steps.begin(STORED, 0)
    with pytest.raises(Superseded):
        await bench.end(STORED, 0, first.attempt, StepOutcome(Next.MODEL, 1), {0: said("old")}, following=3)
    await bench.end(STORED, 0, second.attempt, StepOutcome(Next.MODEL, 2), {0: said("old"), 1: said("new")}, following=5)
    assert (await bench.steps.read("t", "resp_1")).items == {0: said("old"), 1: said("new")}


async def test_the_api_ends_an_unbegun_first_step_unless_it_was_taken_over() -> None:
    bench = Bench()
    await bench.end(FOREGROUND, 0, 1, StepOutcome(Next.MODEL, 1), {0: said("hello")}, following=3)
    assert (await bench.steps.begin(FOREGROUND, 0)).outcome == StepOutcome(Next.MODEL, 1)
    late = Bench()
    taken_over = await late.steps.begin(FOREGROUND, 0)
    with pytest.raises(Superseded):
        await late.end(FOREGROUND, 0, 1, StepOutcome(Next.MODEL, 1), {}, following=3)
    await late.end(FOREGROUND, 0, taken_over.attempt, StepOutcome(Next.MODEL, 1), {}, following=3)
    assert (taken_over.attempt, (await late.steps.begin(FOREGROUND, 0)).outcome) == (2, StepOutcome(Next.MODEL, 1))


async def test_calls_are_unfinished_until_their_end_is_stored() -> None:
    bench = Bench()
    await bench.steps.begin(STORED, 0)
    outcome = calling(("a", 0, 2), ("b", 1, 3), next_index=4)
    await bench.end(STORED, 0, 1, outcome, {0: said("a"), 1: said("b")}, following=1)
    await bench.steps.begin_call(STORED, 0, "a", 1)
    await bench.steps.begin_call(STORED, 0, "b", 1)
    seen = [(await bench.steps.read("t", "resp_1", since=0)).unfinished(0)]
    await bench.end_call(STORED, 0, "b", 3, said("done b"))
    seen.append((await bench.steps.read("t", "resp_1", since=0)).unfinished(0))
    assert seen == [("a", "b"), ("a",)]
    assert (await bench.steps.read("t", "resp_1")).items == {0: said("a"), 1: said("b"), 3: said("done b")}


async def test_an_output_that_takes_the_place_of_its_call_wins() -> None:
    bench = Bench()
    await bench.steps.begin(STORED, 0)
    await bench.end(STORED, 0, 1, calling(("ci_1", 0, 0), next_index=1), {0: said("in progress")}, following=1)
    await bench.steps.begin_call(STORED, 0, "ci_1", 1)
    await bench.end_call(STORED, 0, "ci_1", 0, said("completed"))
    assert (await bench.steps.read("t", "resp_1")).items == {0: said("completed")}


async def test_a_process_reads_again_only_what_may_have_changed() -> None:
    bench = Bench()
    for step in range(3):
        await bench.round(step)
        await bench.steps.read("t", "resp_1", since=step)
    for key in [key for key in bench.table.records if not key[1].startswith("AT#000002")]:
        del bench.table.records[key]  # What is over is not looked for.
    progress = await bench.steps.read("t", "resp_1", since=2)
    expected = {2 * step: said(f"call {step}") for step in range(3)} | {2 * step + 1: said("x") for step in range(3)}
    assert (sorted(progress.outcomes), progress.unfinished(2), progress.items) == ([2], (), expected)


async def test_a_step_behind_what_a_process_knows_is_read_anew() -> None:
    bench = Bench()
    for step in range(3):
        await bench.round(step)
    await bench.steps.read("t", "resp_1")
    assert sorted((await bench.steps.read("t", "resp_1", since=1)).outcomes) == [1, 2]


async def test_a_deleted_response_is_forgotten() -> None:
    bench = Bench()
    await bench.round(0)
    await bench.steps.read("t", "resp_1")
    bench.table.records.clear()
    bench.steps.forget("t", "resp_1")
    assert await bench.steps.read("t", "resp_1") == Progress()


async def test_the_last_step_is_found_with_what_it_came_to() -> None:
    bench = Bench()
    nothing = await bench.steps.last(STORED)
    await bench.round(0)
    await bench.round(1)
    ended = await bench.steps.last(STORED)
    await bench.steps.begin(STORED, 2)
    begun = await bench.steps.last(STORED)
    assert (nothing, ended, begun) == ((0, None), (1, await bench.steps.get("t", "resp_1", 1)), (2, None))
