"""What tells of a response looks at each of its steps and items a few times, however many rounds it has."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from moorage import limits
from moorage.loop.past_responses import as_of
from moorage.loop.step_history import StepHistory, unroll
from moorage.loop.traces import exported, whole_document
from moorage.runtime import Runtime
from moorage.store.event_log import EventBatch
from moorage.store.responses import StoredResponse

from tests.unit.loop.lab import Lab, say, shell


class Looks:
    """How often something was looked at, and on which threads."""

    def __init__(self) -> None:
        self.count = 0
        self.threads: set[int] = set()


class Watched:
    """The account of a step."""

    def __init__(self, account: Any, looks: Looks) -> None:
        self._account, self._looks = account, looks

    def __getattr__(self, name: str) -> Any:
        self._looks.count += 1
        if name == "attempts":  # Of what is told alone.
            self._looks.threads.add(threading.get_ident())
        return getattr(self._account, name)


class Place(int):
    """An output index."""

    looks: Looks

    def __eq__(self, other: object) -> bool:
        self.looks.count += 1
        return int(self) == other

    __hash__ = int.__hash__


class WatchedSteps:
    def __init__(self, runtime: Runtime, looks: Looks, *, times: int = 1) -> None:
        self._steps, self._looks, self._times = runtime.stores.steps, looks, times

    async def accounts(self, *key: str, since: int = 0) -> list[Any]:
        return [Watched(account, self._looks) for account in await self._steps.accounts(*key, since=since)] * self._times


class WatchedLogs:
    def __init__(self, runtime: Runtime, looks: Looks) -> None:
        self._responses, self._looks = runtime.stores.responses, looks
        self._log: Any = None

    def log_of(self, stored: StoredResponse) -> "WatchedLogs":
        self._log = self._responses.log_of(stored)
        return self

    async def read_up_to(self, number: int) -> AsyncIterator[list[EventBatch]]:
        async for batches in self._log.read_up_to(number):
            yield [replace(batch, events=tuple(map(self._watched, batch.events))) for batch in batches]

    def _watched(self, event: dict[str, Any]) -> dict[str, Any]:
        if "output_index" not in event:
            return event
        place = Place(event["output_index"])
        place.looks = self._looks
        return event | {"output_index": place}


async def ended(rounds: int) -> tuple[Runtime, StoredResponse]:
    lab = Lab(*[shell("ls")] * rounds, say("done"))
    stored = await lab.background("go")
    await lab.run(stored)
    return lab.runtime, stored


def assert_linear(looks: Sequence[int]) -> None:
    """Of twice and of four times as many rounds."""
    once, twice, four_times = looks
    assert four_times - twice < 2.5 * (twice - once)


async def test_the_loop_is_unrolled_with_a_few_looks_at_each_step() -> None:
    counted = list[int]()
    for rounds in (8, 16, 32):
        runtime, stored = await ended(rounds)
        snapshot, looks = await runtime.stores.responses.snapshot("t", stored.response_id), Looks()
        steps: Any = WatchedSteps(runtime, looks)
        told = await unroll(replace(runtime, stores=replace(runtime.stores, steps=steps)), snapshot)
        assert len(told) == 2 * rounds + 1
        counted.append(looks.count)
    assert_linear(counted)


@pytest.mark.parametrize("before_end", [1, 3])
async def test_the_last_boundary_is_found_with_a_few_looks_at_each_item(before_end: int) -> None:
    counted = list[int]()
    for rounds in (8, 16, 32):
        runtime, stored = await ended(rounds)
        snapshot, looks = await runtime.stores.responses.snapshot("t", stored.response_id), Looks()
        assert snapshot.last is not None
        logs: Any = WatchedLogs(runtime, looks)
        wanted = snapshot.last.following - 1 - before_end
        then = await as_of(replace(runtime, stores=replace(runtime.stores, responses=logs)), snapshot, wanted)
        assert len(then.boundary.items) == 2 * rounds
        counted.append(looks.count)
    assert_linear(counted)


class WatchedList(list[StepHistory]):
    """Notes the threads of its readers."""

    def __init__(self, steps: Sequence[StepHistory]) -> None:
        super().__init__(steps)
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[StepHistory]:
        self.threads.add(threading.get_ident())
        return super().__iter__()


@pytest.mark.parametrize("times", [1, limits.STEPS_TOLD_HERE_MAX])
async def test_the_steps_of_a_long_response_are_told_on_a_thread(times: int) -> None:
    runtime, stored = await ended(1)
    snapshot, looks = await runtime.stores.responses.snapshot("t", stored.response_id), Looks()
    steps: Any = WatchedSteps(runtime, looks, times=times)
    told = await unroll(replace(runtime, stores=replace(runtime.stores, steps=steps)), snapshot)
    assert (looks.threads == {threading.get_ident()}) is (times == 1)
    assert len(looks.threads) == 1
    one, other = WatchedList(told), WatchedList(told)
    assert await whole_document(runtime.settings, snapshot, one)
    assert await exported(runtime, snapshot, other)
    assert [(each.threads == {threading.get_ident()}, len(each.threads)) for each in (one, other)] == [(times == 1, 1)] * 2
