"""``make simulate``: the real steps over a table, a model and a container in memory, under one seed and a clock of its own.

A history is one response: what the model says, what dies at which write, which step is delivered twice or late, when somebody cancels,
how far the clock jumps, and what a webhook's receiver answers follow from its number alone. After each the same is asked as of real
processes: one log without gap or repeat and with one end, no command begun twice, an object that is what the log adds up to, and a
receiver that has taken the event of that end.

    python -m tests.simulation.simulate --histories 10000 --from 0

Time passes where everybody waits, and only there (``clock.py``).
"""

import argparse
import asyncio
import gc
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, cast

import orjson
from moorage import limits
from moorage.api.foreground import stop
from moorage.egress.fetch import FetchError
from moorage.errors import ApiError, SandboxHostAway, Superseded, UpstreamError
from moorage.loop import webhooks
from moorage.loop.fold import fold
from moorage.loop.recover import recover, restart
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse
from moorage.store.table import Record
from moorage.wire.webhooks import EVENT_TYPES

from tests.simulation.clock import VirtualLoop
from tests.stack import assert_well_formed
from tests.unit.loop.lab import TENANT, FakeSandboxes, Lab, Turn, broken, first_state, say, shell

BLOWS_MAX = 6
STEPS_MAX = 400
ENDS_SECONDS_MAX = 24 * 3600
"""Of the loop's own time, in which nobody waits."""


class Died(Exception):
    """The process is gone."""


class Host(FakeSandboxes):
    """A container whose host may be away for a while."""

    rng: random.Random = random.Random(0)
    away_for = 0

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        if self.away_for > 0:
            self.away_for -= 1
            raise SandboxHostAway
        return await super().ensure(tenant_id, container_id, seen=seen)


class Hook:
    """Stands for the way to a receiver of webhooks, which often does not answer, or not well."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.taken: list[tuple[str, str, str]] = []
        """Of each event that it has taken: ``webhook-id``, type and response."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> int:
        await asyncio.sleep(self.rng.random())
        chance = self.rng.random()
        if chance < 0.2:
            raise FetchError("the server did not answer")
        event = orjson.loads(body)
        if chance < 0.8:
            self.taken.append((headers["webhook-id"], event["type"], event["data"]["id"]))
        if chance < 0.3:
            raise FetchError("the server broke off")  # It has taken it, and nobody here knows.
        return 200 if chance < 0.8 else self.rng.choice([301, 404, 500])


def turns_of(rng: random.Random) -> list[Turn]:
    """What the model will say; what comes after its end is for runs that ask again."""
    made: list[Turn] = []
    for number in range(rng.randint(0, 3)):
        kind = rng.random()
        if kind < 0.6:
            made.append(shell(*(f"c{number}{n}" for n in range(rng.randint(1, 3)))))
        elif kind < 0.8:
            made.append(broken("half"))
        else:
            made.append([UpstreamError("down", is_retryable=True)])
    return [*made, *([say("Done.")] * 40)]


class History:
    def __init__(self, number: int) -> None:
        self.rng = random.Random(number)
        self.lab = Lab(*turns_of(self.rng), sandboxes=Host())
        self.host = self.lab.sandboxes
        self.hook = Hook(random.Random(-number))
        self.lab.runtime.fetcher = cast("Any", self.hook)
        self.seen: Counter[str] = Counter()
        self.blows = self.rng.randint(0, BLOWS_MAX)

    def arm(self) -> None:
        """The process that works next dies in the place of one of its writes."""
        self.blows -= 1
        left = self.rng.randint(0, 5)

        async def before_write(record: Record) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.lab.table.before_write = None
                self.seen["died"] += 1
                raise Died

        self.lab.table.before_write = before_write

    async def play(self) -> None:
        await self.lab.runtime.webhooks.create(
            TENANT, name="mine", url="https://hooks.example/", event_types=EVENT_TYPES, secret=webhooks.new_secret()
        )
        stored = await self.lab.background()
        state = first_state(stored)
        for _ in range(STEPS_MAX):
            if state.next is Next.DONE:
                break
            state = await self.blow(stored, state)
        else:
            raise AssertionError(f"it does not end; last {state}")
        await self.look(stored)
        await self.look_at_hook(stored)

    async def blow(self, stored: StoredResponse, state: LoopState) -> LoopState:
        """One task of the state machine, and what befalls it."""
        self.lab.table.before_write = None
        chance = self.rng.random()
        if chance < 0.04:
            self.seen["cancelled"] += 1
            await stop(self.lab.runtime, await self.lab.responses.snapshot(stored.tenant_id, stored.response_id))
        elif chance < 0.10:
            self.host.away_for = self.rng.randint(1, 3)  # type: ignore[attr-defined]
            self.seen["host away"] += 1
        elif chance < 0.14:
            self.lab.now += self.rng.choice([-300, 60, 3600])
            self.seen["clock set"] += 1
        elif chance < 0.40 and self.blows > 0:
            self.arm()
        try:
            if state.next is Next.WAIT:
                self.lab.now += state.wait_seconds
            if state.next is Next.CONTINUE:
                return LoopState(state.response_id, state.tenant_id, state.container_id, state.step, from_step=state.step)
            if state.next is Next.TOOLS:
                await self.deliver_tools(state)
            return await self.deliver(state)
        except (Died, Superseded):
            self.lab.table.before_write = None
            return await self.again(stored, state)

    async def deliver_tools(self, state: LoopState) -> None:
        if self.rng.random() < 0.1:
            self.seen["tools twice at once"] += 1
            outcomes = await asyncio.gather(self.lab.tools(state), self.lab.tools(state), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException) and not isinstance(outcome, Died | Superseded):
                    raise outcome
            return
        await self.lab.tools(state)

    async def deliver(self, state: LoopState) -> LoopState:
        """A task may be delivered again after it has ended: it answers the same, or that it is over."""
        after = await self.lab.step(state)
        if self.rng.random() < 0.1:
            self.seen["step delivered again"] += 1
            again = await self.lab.step(state)
            assert again.next in (after.next, Next.DONE, Next.TOOLS, Next.MODEL, Next.WAIT)
        return after

    async def again(self, stored: StoredResponse, state: LoopState) -> LoopState:
        """The state machine's retry, or, after the loss of the execution, what the reaper starts; it starts nothing after the end."""
        snapshot = await self.lab.responses.snapshot(stored.tenant_id, stored.response_id)
        if snapshot.is_final and self.hook.rng.random() < 0.5:
            self.seen["end left to the reaper"] += 1
            return state.done()
        if self.rng.random() < 0.5:
            return state
        self.seen["recovered"] += 1
        fresh = await self.lab.responses.load(stored.tenant_id, stored.response_id)
        before = set(self.lab.executions.started)
        await restart(self.lab.runtime, fresh)
        begun = [name for name in self.lab.executions.started if name not in before]
        return LoopState.from_json(self.lab.executions.started[begun[0]]) if begun else state

    async def look(self, stored: StoredResponse) -> None:
        events = await self.lab.events(stored)
        assert_well_formed(events)
        response = await self.lab.object_of(stored)
        folded = fold(events)
        assert folded.is_final
        assert response["output"] == folded.output
        begun = self.host.executed
        assert len(begun) == len(set(begun)), f"begun twice: {begun}"
        assert response["status"] in ("completed", "failed", "cancelled")
        if "cancelled" not in self.seen and response["status"] == "failed":
            assert "clock set" in self.seen or response["error"]["code"] == "server_error", response["error"]
        self.seen[response["status"]] += 1


    async def look_at_hook(self, stored: StoredResponse) -> None:
        """Left to the reaper, the end is taken by the receiver, under one id."""
        runtime = self.lab.runtime
        await runtime.rest(ENDS_SECONDS_MAX)
        self.lab.table.before_write = None
        self.lab.now += limits.WEBHOOK_LEASE_SECONDS + 1
        await recover(runtime)
        await runtime.rest(ENDS_SECONDS_MAX)
        while await runtime.webhooks.pending():
            self.lab.now += limits.WEBHOOK_PAUSE_SECONDS_MAX
            await webhooks.deliver_due(runtime)
        status = (await self.lab.object_of(stored))["status"]
        assert {(kind, told) for _, kind, told in self.hook.taken} == {(f"response.{status}", stored.response_id)}
        assert len({identity for identity, _, _ in self.hook.taken}) == 1
        self.seen["events taken"] += len(self.hook.taken)


def play(number: int, runner: asyncio.Runner) -> Counter[str]:
    """One history; raises ``AssertionError`` with its number."""
    history = History(number)
    try:
        runner.run(asyncio.wait_for(history.play(), ENDS_SECONDS_MAX))
    except (AssertionError, ApiError, TimeoutError, RuntimeError) as error:
        raise AssertionError(f"history {number}: {type(error).__name__}: {error}") from error
    return history.seen


def play_many(numbers: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    limits.SANDBOX_HOST_WAIT_SECONDS = -1  # type: ignore[misc]  # a tool step leaves at once what the state machine waits for
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    gc.freeze()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        for number in range(*numbers):
            try:
                seen += play(number, runner)
            except AssertionError as error:
                wrong.append(str(error))
    return seen, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    options = parser.parse_args()
    began, chunk = time.monotonic(), 100
    starts = range(options.first, options.first + options.histories, chunk)
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        ends = [*starts[1:], options.first + options.histories]
        for found, errors in pool.map(play_many, zip(starts, ends, strict=True)):
            seen += found
            wrong += errors
    seconds = time.monotonic() - began
    print(f"{options.histories} histories in {seconds:.0f} s ({options.histories / seconds:.0f} a second): {dict(seen)}")
    for error in wrong[:20]:
        print(error)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
