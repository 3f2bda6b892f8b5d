"""Histories of a session: input, results, decisions, cancels, steps and deaths of processes, in an order that follows from a number.

Something else happens in the place of any write, or the process dies there. Whatever happens, each message that was accepted is an item
once, behind those that were accepted before it was sent, and the session comes to rest. A message with an idempotency key is sent again
until it is accepted, and is an item once.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage import limits
from moorage.errors import StorageFull, Superseded
from moorage.loop.recover import recover
from moorage.state import LoopState, Next
from moorage.store import keys
from moorage.store.table import Record

from tests.simulation.clock import run
from tests.unit.agents.sessions import WEIGH, SessionLab, in_short, message
from tests.unit.agents.test_session_input import decided
from tests.unit.agents.test_session_stream import ASKS
from tests.unit.loop.approvals import both
from tests.unit.loop.lab import Turn, broken, call, say, shell

HISTORIES = 40
ACTS = 25


class Died(Exception):
    """The process is gone."""


@dataclass
class SentMessage:
    began: int
    ended: int | None = None
    """When it was accepted; None if its process died."""
    has_key: bool = False


@dataclass
class History:
    dice: random.Random
    lab: SessionLab
    sent: dict[str, SentMessage] = field(default_factory=dict)
    states: dict[str, LoopState] = field(default_factory=dict)
    time: int = 0
    depth: int = 0
    deaths: int = 3
    is_full: bool = False
    """The disk."""

    async def before_write(self, record: Record) -> None:
        if self.dice.random() < (0.3 if self.is_full else 0.02):
            self.is_full = not self.is_full
        if self.is_full:
            raise StorageFull
        chance = self.dice.random()
        if chance < 0.03 and self.deaths:
            self.deaths -= 1
            raise Died
        if chance < 0.15 and self.depth < 2:
            await self.act()

    async def act(self) -> None:
        """Something happens; nobody outside of it hears of its death."""
        self.time += 1
        self.lab.lab.now += self.dice.choice((-1000, 1000)) if self.dice.random() < 0.03 else 0.01
        self.depth += 1
        acts: list[Callable[[], Awaitable[object]]] = [
            *(self.step, self.step, self.step),
            *(self.say, self.answer, self.decide, self.cancel),
        ]
        try:
            await self.dice.choice(acts)()
        except (Died, Superseded, StorageFull):
            pass
        finally:
            self.depth -= 1

    async def say(self) -> None:
        name = f"m{len(self.sent)}"
        self.sent[name] = SentMessage(self.time, has_key=self.dice.random() < 0.5)
        if self.sent[name].has_key:
            await self.send_again(name)
            return
        await self.lab.say(name)
        self.time += 1
        self.sent[name].ended = self.time

    async def send_again(self, name: str) -> None:
        answer = await self.lab.send_again(name, message(name))
        assert answer.status_code in (202, 409, 429, 500, 507), answer.text
        if answer.status_code == 202 and self.sent[name].ended is None:
            self.time += 1
            self.sent[name].ended = self.time

    async def decide(self) -> None:
        actions = [each for each in (await self.lab.shown())["required_actions"] if each["type"] == "mcp_approval_request"]
        if actions:
            answer = await self.lab.send(
                decided(self.dice.choice(actions)["request_id"], self.dice.choice(["approve", "deny", "cancel"]))
            )
            assert answer.status_code in (202, 400, 404, 409, 500, 507), answer.text

    async def answer(self) -> None:
        standing = await self.lab.standing()
        if not standing.open_calls:
            return
        chosen = self.dice.choice(standing.open_calls)["call_id"]
        answer = await self.lab.send(await self.lab.result(chosen, f"result of {chosen}"))
        assert answer.status_code in (202, 400, 429, 500, 507), answer.text

    async def cancel(self) -> None:
        if self.dice.random() < 0.3:
            assert (await self.lab.cancel()).status_code in (202, 400, 500, 507)

    async def step(self) -> None:
        """One task of the state machine."""
        executions = self.lab.lab.executions
        running = [name for name, state in executions.states.items() if state == "RUNNING"]
        if not running:
            return
        name = self.dice.choice(running)
        state = self.states.get(name) or LoopState.from_json(executions.started[name])
        if state.next is Next.TOOLS:
            await self.lab.lab.tools(state)
        state = self.states[name] = await self.lab.lab.step(state)
        if state.next is Next.DONE:
            executions.states[name] = "SUCCEEDED"

    async def come_to_rest(self) -> None:
        """The reaper takes up what is left, and the client answers what it is asked."""
        self.lab.lab.table.before_write = None
        self.lab.lab.model.turns[:] = [say("Done.")] * 20
        self.lab.lab.now += limits.REPEAT_PENDING_SECONDS
        for name in [name for name, sent in self.sent.items() if sent.has_key and sent.ended is None]:
            await self.send_again(name)
        for _ in range(4):
            for name, state in self.lab.lab.executions.states.items():
                self.lab.lab.executions.states[name] = "ABORTED" if state == "RUNNING" else state
            self.lab.lab.now += limits.RECOVERY_SECONDS + 1
            await recover(self.lab.lab.runtime)
            await self.lab.play()
            answered = {call_id for each in await self.waiting() for call_id in each.results}
            for each in (await self.lab.standing()).open_calls:
                if each["call_id"] not in answered:
                    answer = await self.lab.send(await self.lab.result(each["call_id"], "late"))
                    assert answer.status_code == 202, answer.text
            for action in (await self.lab.shown())["required_actions"]:
                if action["type"] == "mcp_approval_request":
                    assert (await self.lab.send(decided(action["request_id"]))).status_code == 202
            await self.lab.play()

    async def waiting(self) -> list[Any]:
        return await self.lab.lab.runtime.stores.agent_sessions.inputs(self.lab.session)

    async def look(self) -> None:
        assert (await self.lab.shown())["status"] == "idle"
        before = await self.lab.turns()
        if not before or before[-1]["status"] != "cancelled":
            # A client without a key cannot know what became of its message if the process died that took it.
            unknown = {name for name, sent in self.sent.items() if sent.ended is None and not sent.has_key}
            assert {message["content"][0]["text"] for each in await self.waiting() for message in each.messages} <= unknown
        await self.lab.say("last")
        await self.come_to_rest()
        assert (await self.lab.shown())["status"] == "idle"
        assert await self.waiting() == []
        assert await self.lab.lab.responses.inflight() == []
        turns = await self.lab.turns()
        assert {turn["status"] for turn in turns} <= {"completed", "cancelled", "failed"}
        stored = [pk.rpartition("#")[2] for pk, sk in self.lab.lab.table.records if sk == keys.META and pk.startswith("T#t#R#")]
        assert sorted(stored) == sorted(each for turn in turns for each in turn["response_ids"])
        items = [item for turn in turns for item in await self.items_of(turn["id"])]
        heard = [item.removeprefix("user: ") for item in items if item.startswith("user: ")]
        assert len(heard) == len(set(heard)), heard
        assert {name for name, sent in self.sent.items() if sent.ended is not None or sent.has_key} <= set(heard), (heard, self.sent)
        places = {name: heard.index(name) for name in self.sent if name in heard}
        for name, place in places.items():
            ended = self.sent[name].ended
            for other, behind in places.items():
                assert ended is None or self.sent[other].began <= ended or place < behind, (heard, self.sent)
        told = await self.lab.replay(turns=len(turns))
        assert len({event["event_id"] for event in told}) == len(told)
        ends = [event["turn"]["status"] for event in told if event["type"].startswith("agent.session.turn.") and "usage" in event]
        assert ends == [turn["status"] for turn in turns]

    async def items_of(self, turn_id: str) -> list[str]:
        answer = await self.lab.served.get(f"{self.lab.path}/turns/{turn_id}/items", order="asc", limit=100)
        return [in_short(item) for item in answer.json()["data"]]


def turns_of(dice: random.Random) -> list[Turn]:
    made: list[Turn] = []
    for number in range(30):
        one, two = f"call_{number}a", f"call_{number}b"
        kinds = [
            shell(f"c{number}", call_id=one),
            call("weigh", "{}", one),
            both(call("weigh", "{}", one), call("weigh", "{}", two)),
            both(call("weigh", "{}", one), shell(f"c{number}", call_id=two)),
            say(f"a{number}"),
            say(f"a{number}"),
            broken("half"),
        ]
        made.append(dice.choice(kinds))
    return [*made, *([say("Done.")] * 20)]


@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_session_loses_and_doubles_nothing(number: int) -> None:
    async def play() -> None:
        dice = random.Random(number)
        asks = number % 2 == 1
        tools = [WEIGH, ASKS] if asks else [WEIGH]
        history = History(dice, await SessionLab.begun(*turns_of(dice), tools=tools, has_container=not asks, first=None))
        history.lab.lab.table.before_write = history.before_write
        for _ in range(ACTS):
            await history.act()
        await history.come_to_rest()
        await history.look()

    run(play())
