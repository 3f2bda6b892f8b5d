"""The simulator of docs/scale.md forecasts a burst, and the loop itself then plays it: the same turns at the same moments, with the
state machine's own definition, its steps, and Lambda's way of giving environments, on a clock that is only counted.

Nothing here is a measure of this machine: models and commands take the seconds that the simulator takes them to take. What is compared
is counted: who is refused, environments at once, cold starts, throttled steps, the transitions that were recorded on the emulator.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage.local.state_machine import State, StateMachine
from moorage.loop.create import InlineFirstStep, PreparedResponse, start_background
from moorage.loop.model_step import model_step
from moorage.loop.tool_step import tool_step
from moorage.model.base import Delta, ModelRequest
from moorage.state import LoopState
from moorage.store.responses import StoredResponse

from tests.bench import scale
from tests.bench.cost import Turn
from tests.simulation.clock import run
from tests.twin.deployment import ClockedLab
from tests.unit.loop.lab import FakeModel, FakeSandboxes, first_state, say, shell


class TooManyRequestsError(Exception):
    error_name = "Lambda.TooManyRequestsException"


@dataclass
class Share:
    """Of the account's concurrency: the functions that take from it, and what they have been seen to do."""

    room: int
    busy: int = 0
    most: int = 0
    cold: int = 0
    throttled: int = 0
    idle: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def invoke(self, function: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """In an environment that serves this function, one request at a time."""
        if self.busy >= self.room:
            self.throttled += 1
            raise TooManyRequestsError
        self.busy += 1
        self.most = max(self.most, self.busy)
        now = asyncio.get_running_loop().time()
        self.idle[function] = [since for since in self.idle[function] if now - since < scale.KEPT_SECONDS]
        try:
            if self.idle[function]:
                self.idle[function].pop()
            else:
                self.cold += 1
                await asyncio.sleep(scale.COLD_SECONDS)
            return await work()
        finally:
            self.busy -= 1
            self.idle[function].append(asyncio.get_running_loop().time())


class SlowModel(FakeModel):
    """Thinks for as long as it is said to, and asks for as many commands as the turn has."""

    def __init__(self, turn: Turn) -> None:
        super().__init__([])
        self.turn = turn

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        await asyncio.sleep(self.turn.model_seconds)
        done = sum(item["type"].endswith("call_output") for item in request.items)
        self.turns = [say("Done.") if done == self.turn.commands else shell("true", call_id=f"call_{done}")]
        async for delta in super().stream(request):
            yield delta


class SlowSandboxes(FakeSandboxes):
    seconds = 0.0

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        await asyncio.sleep(self.seconds)
        return await super().ensure(tenant_id, container_id, seen=seen)


@dataclass
class Account:
    """What the burst comes upon."""

    streams: Share
    steps: Share
    chance: random.Random
    refused: list[int] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    transitions: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    requests: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """To the table, by the kind of turn: how many writes each made."""

    async def serve(self, number: int, at: float, turn: Turn) -> None:
        await asyncio.sleep(at)
        lab = ClockedLab(sandboxes=SlowSandboxes())
        lab.model, lab.sandboxes.seconds = SlowModel(turn), turn.command_seconds  # type: ignore[attr-defined]
        machine = StateMachine(lambda name, given: self._step(lab, name, given), self.chance)
        stored = lab.stored(is_background=turn.is_background, is_looping=turn.is_background)
        try:
            await self.streams.invoke("Responses", lambda: self._accept(lab, stored, machine, turn))
        except TooManyRequestsError:
            self.refused.append(number)
            return
        if turn.is_background:
            await machine.run(first_state(stored).to_json())
        work = turn.model_calls * turn.model_seconds + turn.commands * turn.command_seconds
        work += scale.ACCEPT_SECONDS if turn.is_background else 0
        self.waited.append(asyncio.get_running_loop().time() - at - work)
        self.statuses[(await lab.object_of(stored))["status"]] += 1
        self.transitions[turn.title] += machine.transitions
        self.requests[turn.title].add(lab.table.writes)

    async def _accept(self, lab: ClockedLab, stored: StoredResponse, machine: StateMachine, turn: Turn) -> None:
        if turn.is_background:
            await start_background(lab.runtime.stores, PreparedResponse(stored, [], is_streamed=False))
            await asyncio.sleep(scale.ACCEPT_SECONDS)
            return
        inline = InlineFirstStep(lab.runtime, PreparedResponse(stored, [], is_streamed=True), lambda event: None)
        await inline.run()
        if inline.is_handed_over:
            await machine.run(lab.executions.started[stored.response_id])

    async def _step(self, lab: ClockedLab, name: str, given: State) -> Any:
        async def work() -> Any:
            if name == "ToolStep":
                return await tool_step(lab.runtime, **given)
            assert name == "ModelStep", name
            return (await model_step(lab.runtime, LoopState.from_json(given))).to_json()

        return await self.steps.invoke(name, work)


async def played(came: Sequence[tuple[float, Turn]], concurrency: int, streams_percent: int, chance: random.Random) -> Account:
    room = concurrency * streams_percent // 100
    steps = Share(concurrency - room)
    account = Account(Share(room) if room else steps, steps, chance)
    await asyncio.gather(*(account.serve(number, at, turn) for number, (at, turn) in enumerate(came)))
    return account


def burst(a_second: float, seconds: float, seed: int) -> list[tuple[float, Turn]]:
    return scale.arrivals(a_second, seconds, dict.fromkeys(scale.MIX, 1 / 3), random.Random(seed))


def both(came: list[tuple[float, Turn]], concurrency: int, streams_percent: int, seed: int) -> tuple[scale.Outcome, Account]:
    forecast = scale.forecast(came, concurrency, streams_percent, random.Random(seed))
    return forecast, run(played(came, concurrency, streams_percent, random.Random(seed)))


def seen(of: scale.Outcome | Account, throttled: int) -> dict[str, Any]:
    return {
        "refused": of.refused,
        "throttled": throttled,
        "streams": (of.streams.most, of.streams.cold),
        "steps": (of.steps.most, of.steps.cold),
        "waited": pytest.approx(sorted(of.waited), abs=0.001),
    }


@pytest.mark.parametrize(
    ("concurrency", "percent"),
    [pytest.param(60, 20, id="too little for streams"), (30, 70), pytest.param(30, 0, id="one share for both")],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_burst_goes_as_forecast(concurrency: int, percent: int, seed: int) -> None:
    came = burst(1.5, 30, seed)
    forecast, account = both(came, concurrency, percent, seed)
    refusals_of_streams = len(account.refused) if percent == 0 else 0
    expected = seen(forecast, forecast.throttled) | {"waited": sorted(forecast.waited)}
    assert seen(account, account.steps.throttled - refusals_of_streams) == expected
    assert forecast.throttled or forecast.refused, "the burst was no test"
    assert account.statuses == {"completed": len(came) - len(account.refused)}


def test_a_turns_requests_are_those_that_the_emulator_counted() -> None:
    came = burst(1.5, 30, 1)
    for concurrency, percent in ((200, 50), (30, 70)):
        _, account = both(came, concurrency, percent, 1)
        turns = Counter(turn.title for number, (_, turn) in enumerate(came) if number not in account.refused)
        recorded = {title: scale.turns()[title].transitions * count for title, count in turns.items()}
        retried = account.steps.throttled
        assert sum(account.transitions.values()) - retried == sum(recorded.values())
        assert {title: len(writes) for title, writes in account.requests.items()} == dict.fromkeys(turns, 1)
