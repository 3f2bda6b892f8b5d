"""One history: a response from its beginning to its end, by the real steps over fakes, and all that befalls it on the way.

What the model says and what befalls each task of the state machine follow from the history's number alone, and not from how it goes: so
a history can be played again with fewer blows, and a long one be made short.

A process is whatever runs one task. It dies in the place of a write, and then none of its tasks writes again; or it is stopped there,
the state machine goes on without it, and it wakes when others have long written: an owner that comes back from the dead.
"""

import asyncio
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, cast

import orjson
from moorage import limits
from moorage.egress.fetch import FetchError
from moorage.errors import ApiError, SandboxHostAway, StorageFull, Superseded, UpstreamError
from moorage.loop.fold import fold
from moorage.loop.recover import recover, restart
from moorage.loop.stop import stop
from moorage.loop.tool_step import tool_step
from moorage.model.base import CallDelta, CallStarted, StreamFinished, UsageReported
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse
from moorage.store.table import Record
from moorage.webhooks import delivery as webhooks
from moorage.webhooks.event_types import EVENT_TYPES

from tests.simulation.clock import run
from tests.stack import assert_well_formed
from tests.unit.loop.lab import TENANT, FakeSandboxes, Lab, Turn, broken, first_state, say, shell

BLOWS_MAX: Final = 6
"""Deaths and stops of processes in one history."""
STEPS_MAX: Final = 400
_LENGTHS: Final = (0, 0, 0, 1, 1, 1, 1, 2, 2, 3)
"""Turns of the model before its last, each as likely: most of what goes wrong goes wrong in a short history."""
ENDS_SECONDS_MAX: Final = 24 * 3600
"""Of the loop's own time, in which nobody waits."""


class Died(Exception):
    """The process is gone."""


@dataclass(eq=False, slots=True)
class Process:
    """It is struck in the place of a write, so many writes after its beginning."""

    left: int
    is_stopped: bool
    """It is stopped there, and goes on when it is woken; otherwise it dies."""
    finds_full_disk: bool = False
    """It neither dies nor stops: no write of it is kept from there on."""
    stands: asyncio.Event = field(default_factory=asyncio.Event)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def before_write(self) -> None:
        self.left -= 1
        if self.left >= 0:
            return
        self.stands.set()
        if self.finds_full_disk:
            raise StorageFull
        if not self.is_stopped:
            raise Died
        await self.woken.wait()


_process: Final[ContextVar[Process | None]] = ContextVar("process", default=None)


class Host(FakeSandboxes):
    """A container whose host may be away for a while."""

    away_for = 0

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        if self.away_for > 0:
            self.away_for -= 1
            raise SandboxHostAway
        return await super().ensure(tenant_id, container_id, seen=seen)


class Hook:
    """Stands for the way to a receiver of webhooks. Every other one often does not answer, or not well."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_reliable = rng.random() < 0.5
        self.taken: list[tuple[str, str, str]] = []
        """Of each event that it has taken: ``webhook-id``, type and response."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> int:
        await asyncio.sleep(self.rng.random())
        chance = 0.5 if self.is_reliable else self.rng.random()
        if chance < 0.2:
            raise FetchError("the server did not answer")
        event = orjson.loads(body)
        if chance < 0.8:
            self.taken.append((headers["webhook-id"], event["type"], event["data"]["id"]))
        if chance < 0.3:
            raise FetchError("the server broke off")  # It has taken it, and nobody here knows.
        return 200 if chance < 0.8 else self.rng.choice([301, 404, 500])


@dataclass(frozen=True, slots=True)
class Blow:
    """What befalls one task of the state machine, and whoever runs it."""

    strikes: str = ""
    amount: int = 0
    """For how many looks the host is away, by how many seconds the clock is set, after how many writes the process is struck."""
    stands_for: int = 0
    """How many tasks are run before a stopped process goes on."""
    has_twins: bool = False
    """Its tool calls are delivered twice at once."""
    is_repeated: bool = False
    """The model step is delivered once more when it has ended."""
    loses_execution: bool = False
    """Where the process is lost, the execution is, too: the reaper starts another."""
    leaves_end: bool = False
    """Where the process is lost and the response has ended, what is left is the reaper's."""

    def __str__(self) -> str:
        said = {
            "cancelled": "somebody cancels the response",
            "host away": f"the host of its sandbox is away for {self.amount} looks",
            "clock set": f"the clock is set by {self.amount} seconds",
            "died": f"its process dies after {self.amount} writes",
            "stopped": f"its process is stopped after {self.amount} writes, and goes on {self.stands_for} tasks later",
            "disk full": f"the disk is full after {self.amount} writes, until the task has ended",
            "late": f"the task of {self.amount} tasks before is delivered once more",
        }.get(self.strikes, "")
        twins = "tool calls are delivered twice at once" if self.has_twins else ""
        again = "the model step is delivered once more" if self.is_repeated else ""
        lost = "its execution is lost with its process" if self.loses_execution and self.strikes in ("died", "stopped") else ""
        return "; ".join(word for word in (said, twins, again, lost) if word)


def blows_of(dice: random.Random) -> Iterator[Blow]:
    """One for each task. Each takes as many throws, whatever it is."""
    left = int(dice.random() * (BLOWS_MAX + 1))
    while True:
        chance, amount, stands_for, twins, again, loses, leaves = (dice.random() for _ in range(7))
        strikes, number = "", 0
        if chance < 0.04:
            strikes = "cancelled"
        elif chance < 0.12:
            strikes, number = "host away", 1 + int(amount * 3)
        elif chance < 0.165:
            strikes, number = "clock set", (-300, 60, 3600)[int(amount * 3)]
        elif chance < 0.205:
            strikes, number = "late", 1 + int(amount * 4)
        elif chance < 0.65 and left > 0:
            left -= 1
            strikes, number = "died" if chance < 0.54 else "stopped", int(amount * 6)
        elif chance < 0.72 and left > 0:
            left -= 1
            strikes, number = "disk full", int(amount * 6)
        yield Blow(strikes, number, 1 + int(stands_for * 3), twins < 0.12, again < 0.12, loses < 0.5, leaves < 0.5)


def turns_of(dice: random.Random) -> list[Turn]:
    """What the model will say; what comes after its end is for runs that ask again."""
    made: list[Turn] = []
    for number in range(_LENGTHS[int(dice.random() * len(_LENGTHS))]):
        kind, count = dice.random(), 1 + int(dice.random() ** 2 * 3)
        commands = [f"c{number}{n}" for n in range(count)]
        if kind < 0.5:
            made.append(shell(*commands))
        elif kind < 0.6:
            made.append(_calls(commands))
        elif kind < 0.8:
            made.append(broken("half"))
        elif kind < 0.97:
            made.append([UpstreamError("down", is_retryable=True)])
        else:
            made.append([UpstreamError("no", is_retryable=False)])
    return [*made, *([say("Done.")] * 60)]


def _calls(commands: list[str]) -> Turn:
    """A call for each command, which run side by side."""
    turn: Turn = []
    for name in commands:
        turn += [CallStarted("shell", f"call_{name}"), CallDelta(f'{{"commands": ["{name}"]}}')]
    return [*turn, UsageReported(10, 2), StreamFinished("tool_calls")]


@cache
def beginning() -> tuple[StoredResponse, Mapping[tuple[str, str], Record]]:
    """Of every history, made once in a process: a receiver of webhooks, a response in the background, and the records of both. A table
    puts others in their place, and changes none."""
    return begun(Lab())


def begun(lab: Lab, **changes: Any) -> tuple[StoredResponse, Mapping[tuple[str, str], Record]]:
    async def begin() -> StoredResponse:
        await lab.runtime.stores.webhooks.create(
            TENANT, name="mine", url="https://hooks.example/", event_types=EVENT_TYPES, secret=webhooks.new_secret()
        )
        return await lab.background(**changes)

    return run(begin()), lab.table.records


class History:
    option = ""
    """By which ``simulate`` plays histories of this kind."""
    host_kind: type[Host] = Host

    def __init__(self, number: int, only: Container[int] | None = None) -> None:
        """``only`` the blows upon these tasks are dealt."""
        dice = random.Random(number)
        self.lab = self.lab_of(dice)
        self.blows = blows_of(dice)
        self.only = only
        self.dealt: dict[int, Blow] = {}
        """What has befallen it, by the number of the task."""
        self.stored, records = self.beginning()
        self.lab.table.records = dict(records)
        self.lab.table.before_write = self._before_write
        self.host = cast("Host", self.lab.sandboxes)
        self.hook = Hook(random.Random(number | 1 << 64))
        self.lab.runtime.fetcher = cast("Any", self.hook)
        self.seen: Counter[str] = Counter()
        self.states: list[LoopState] = []
        """Of each task so far, what it was given."""
        self.stopped: list[tuple[int, Process, asyncio.Task[LoopState]]] = []
        """Processes that stand still, and before which task they go on."""

    def lab_of(self, dice: random.Random) -> Lab:
        return Lab(*turns_of(dice), sandboxes=self.host_kind())

    def beginning(self) -> tuple[StoredResponse, Mapping[tuple[str, str], Record]]:
        return beginning()

    async def _before_write(self, record: Record) -> None:
        process = _process.get()
        if process is not None:
            await process.before_write()

    async def play(self) -> None:
        stored, state = self.stored, first_state(self.stored)
        await self.lab.executions.start(stored.response_id, state.to_json(), stored.trace)
        for number in range(STEPS_MAX):
            if state.next is Next.DONE:
                break
            blow = next(self.blows)
            if self.only is not None and number not in self.only:
                blow = Blow()
            elif str(blow):
                self.dealt[number] = blow
            self.states.append(state)
            state = await self.task(stored, state, number, blow)
        else:
            raise AssertionError(f"it does not end; last {state}")
        await self.wake(STEPS_MAX + limits.STEP_ATTEMPTS_MAX)
        status = await self.look(stored)
        await self.look_at_hook(stored, status)

    async def task(self, stored: StoredResponse, state: LoopState, number: int, blow: Blow) -> LoopState:
        """One task of the state machine, and what befalls it."""
        await self.wake(number)
        process: Process | None = None
        match blow.strikes:
            case "cancelled":
                await stop(self.lab.runtime, await self.lab.responses.snapshot(stored.tenant_id, stored.response_id))
            case "host away":
                self.host.away_for = blow.amount
            case "clock set":
                self.lab.now += blow.amount
            case "late":
                await self.deliver_late(self.states[-1 - min(blow.amount, len(self.states) - 1)])
            case "died" | "stopped" | "disk full":
                process = Process(blow.amount, blow.strikes == "stopped", blow.strikes == "disk full")
        if blow.strikes and process is None:
            self.seen[blow.strikes] += 1
        if state.next is Next.WAIT:
            self.lab.now += state.wait_seconds
        if state.next is Next.CONTINUE:
            return LoopState(state.response_id, state.tenant_id, state.container_id, state.step, from_step=state.step)
        try:
            if process is None:
                return await self.deliver(state, blow)
            return await self.deliver_to(process, state, number, blow)
        except (Died, Superseded, StorageFull):
            return await self.again(stored, state, blow)

    async def deliver_to(self, process: Process, state: LoopState, number: int, blow: Blow) -> LoopState:
        """The process dies, or it is stopped and goes on later."""
        token = _process.set(process)
        running = asyncio.create_task(self.deliver(state, blow))
        _process.reset(token)
        if not process.is_stopped:
            try:
                return await running
            finally:
                self.seen[blow.strikes] += process.stands.is_set()
        stands = asyncio.create_task(process.stands.wait())
        await asyncio.wait((running, stands), return_when=asyncio.FIRST_COMPLETED)
        if not stands.done():
            stands.cancel()
            process.left = STEPS_MAX
            return running.result()
        self.seen["stopped"] += 1
        self.stopped.append((number + blow.stands_for, process, running))
        if running.done():  # What is stopped is a task that it has left behind.
            return running.result()
        raise Died

    async def wake(self, number: int) -> None:
        """Those that have stood still long enough go on, beside everybody else; at the end, all do so to their end."""
        for at, process, running in self.stopped:
            if at <= number and not process.woken.is_set():
                process.left = STEPS_MAX
                process.woken.set()
            if number >= STEPS_MAX:
                await asyncio.wait((running,))
            if running.done() and not isinstance(running.exception(), Died | Superseded | None):
                running.result()

    async def deliver(self, state: LoopState, blow: Blow) -> LoopState:
        """A task may be delivered again after it has ended: it answers the same, or that it is over."""
        if state.next is Next.TOOLS:
            await self.deliver_tools(state, is_twice=blow.has_twins)
        after = await self.lab.step(state)
        if blow.is_repeated:
            self.seen["step delivered again"] += 1
            again = await self.lab.step(state)
            assert again.next in (after.next, Next.DONE, Next.TOOLS, Next.MODEL, Next.WAIT)
        return after

    async def deliver_tools(self, state: LoopState, *, is_twice: bool) -> None:
        """All calls side by side, as the state machine's Map runs them."""
        self.seen["tools twice at once"] += is_twice
        self.seen["calls side by side"] += len(state.calls) > 1
        work = [self.tool(state, call_id) for call_id in state.calls * (2 if is_twice else 1)]
        if len(work) == 1:
            await work[0]
            return
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException) and not (is_twice and isinstance(outcome, Superseded)):
                raise outcome

    async def tool(self, state: LoopState, call_id: str) -> None:
        await tool_step(
            self.lab.runtime,
            tenant_id=TENANT,
            response_id=state.response_id,
            step=state.step,
            call_id=call_id,
            container_id=state.container_id,
        )

    async def deliver_late(self, state: LoopState) -> None:
        """A task of long ago, once more; nobody waits for what it answers."""
        try:
            await self.deliver(state, Blow())
        except Superseded:
            self.seen["late and superseded"] += 1

    async def again(self, stored: StoredResponse, state: LoopState, blow: Blow) -> LoopState:
        """The state machine's retry, or, after the loss of the execution, what the reaper starts; it starts nothing after the end. The
        new process has read nothing yet."""
        self.lab.runtime.stores.steps.forget(stored.tenant_id, stored.response_id)
        snapshot = await self.lab.responses.snapshot(stored.tenant_id, stored.response_id)
        if snapshot.is_final and blow.leaves_end:
            self.seen["end left to the reaper"] += 1
            return state.done()
        if not blow.loses_execution:
            return state
        self.seen["recovered"] += 1
        before = set(self.lab.executions.started)
        await restart(self.lab.runtime, snapshot.stored)
        begun = [name for name in self.lab.executions.started if name not in before]
        return LoopState.from_json(self.lab.executions.started[begun[0]]) if begun else state

    async def look(self, stored: StoredResponse) -> str:
        """The status of its end."""
        events = await self.lab.events(stored)
        assert_well_formed(events)
        response = await self.lab.object_of(stored)
        folded = fold(events)
        assert folded.is_final
        assert response == events[-1]["response"]
        assert response["output"] == folded.output
        begun = self.host.begun  # The model asks for each of them once.
        assert len(begun) == len(set(begun)), f"begun twice: {begun}"
        assert response["status"] in ("completed", "failed", "cancelled")
        if response["status"] == "failed":
            assert "clock set" in self.seen or response["error"]["code"] == "server_error", response["error"]
        self.seen[response["status"]] += 1
        return str(response["status"])

    async def look_at_hook(self, stored: StoredResponse, status: str) -> None:
        """Left to the reaper, the end is taken by the receiver, under one id."""
        runtime = self.lab.runtime
        await runtime.process.rest(ENDS_SECONDS_MAX)
        self.lab.now += limits.WEBHOOK_LEASE_SECONDS + 1
        await recover(runtime)
        await runtime.process.rest(ENDS_SECONDS_MAX)
        while await runtime.stores.webhooks.pending():
            self.lab.now += limits.WEBHOOK_PAUSE_SECONDS_MAX
            await webhooks.deliver_due(runtime)
        assert {(kind, told) for _, kind, told in self.hook.taken} == {(f"response.{status}", stored.response_id)}
        assert len({identity for identity, _, _ in self.hook.taken}) == 1
        self.seen["events taken"] += len(self.hook.taken)

    def digest(self) -> tuple[Any, ...]:
        """The whole of it, but for what is drawn at random in every process: ids."""
        tasks = [(state.next, state.step, len(state.calls), state.wait_seconds) for state in self.states]
        return tasks, dict(self.seen), len(self.host.executed), self.lab.table.reads, self.lab.table.writes, self.lab.now


def played(number: int, only: Container[int] | None = None, kind: type[History] = History) -> tuple[History, str | None]:
    """A history, and what was wrong with it."""
    history = kind(number, only)
    try:
        run(_within_bounds(history.play))
    except (AssertionError, ApiError, TimeoutError, RuntimeError, Died) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return history, f"{type(error).__name__}: {error or where.line} ({where.name}, line {where.lineno})"
    return history, None


async def _within_bounds(work: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(ENDS_SECONDS_MAX):
        await work()
