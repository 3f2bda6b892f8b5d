"""A session of an agent over the loop's laboratory, and whoever gives it input and reads it."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import httpx
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.session_stream import Cursor, SessionReader
from moorage.agents.turns import Offer, Payer, Standing, advance, stand
from moorage.wire.types import Event, Item

from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.lab import CONTAINER, TENANT, Lab, Turn
from tests.unit.loop.test_pause import run_all

PAYER: Final = Payer(KEY_A, ())
WEIGH: Final[dict[str, Any]] = {
    "type": "function",
    "name": "weigh",
    "description": "The weight of a parcel.",
    "parameters": {"type": "object", "properties": {"parcel": {"type": "string"}}},
}
SECONDS_MAX: Final = 60
"""Of a virtual clock, mostly: what takes longer hangs."""


def message(text: str) -> dict[str, Any]:
    """The event that brings it."""
    return {"type": "agent.session.input.message", "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}


def said(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@dataclass
class SessionLab:
    served: Served
    session: SessionRecord

    @classmethod
    async def begun(cls, *turns: Turn, first: str | None = "go", has_container: bool = True, **settings: Any) -> "SessionLab":
        """A session whose first turn has begun, unless there is no input. In its container each command prints itself."""
        return await cls.over(Lab(*turns), first=first, has_container=has_container, **settings)

    @classmethod
    async def over(cls, lab: Lab, *, first: str | None = "go", has_container: bool = True, **settings: Any) -> "SessionLab":
        served = Served.of(lab)
        sessions = lab.runtime.stores.agent_sessions
        session = sessions.new(TENANT, {"model": "m", **settings}, None, container_id=CONTAINER if has_container else None)
        await sessions.create(session)
        made = cls(served, session)
        if first is not None:
            await made.say(first)
        return made

    @property
    def lab(self) -> Lab:
        return self.served.lab

    @property
    def path(self) -> str:
        return f"/agents/sessions/{self.session.id}"

    async def say(self, text: str) -> None:
        await advance(self.lab.runtime, self.session, PAYER, offer=Offer([said(text)]))

    async def send(self, *events: dict[str, Any]) -> httpx.Response:
        """By the API."""
        return await self.served.post(f"{self.path}/events", {"events": list(events)})

    async def send_again(self, key: str, *events: dict[str, Any]) -> httpx.Response:
        """With a key, as often as it likes."""
        return await self.served.ask("POST", f"{self.path}/events", json={"events": list(events)}, headers={"idempotency-key": key})

    async def cancel(self) -> httpx.Response:
        return await self.send({"type": "agent.session.input.cancel"})

    async def result(self, call_id: str, output: str) -> dict[str, Any]:
        standing = await self.standing()
        assert standing.turn is not None
        event = {"type": "agent.session.input.tool_result", "turn_id": standing.turn.id, "call_id": call_id}
        return {**event, "success": True, "output": output}

    async def play(self) -> list[str]:
        """Run executions until none runs; their names."""
        names: list[str] = []
        while running := [name for name, state in self.lab.executions.states.items() if state == "RUNNING"]:
            for name in running:
                await run_all(self.lab, name)
            names += running
        return names

    async def standing(self) -> Standing:
        return await stand(self.lab.runtime.stores, await self.lab.runtime.stores.agent_sessions.get(TENANT, self.session.id))

    async def shown(self) -> dict[str, Any]:
        answer = await self.served.get(self.path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def turns(self) -> list[dict[str, Any]]:
        answer = await self.served.get(f"{self.path}/turns", order="asc", limit=100)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    async def turns_kept(self) -> list[TurnRecord]:
        """Their records."""
        return await self.lab.runtime.stores.agent_sessions.turns(self.session)

    async def items(self) -> list[str]:
        """What the session has said, in short."""
        answer = await self.served.get(f"{self.path}/items", order="asc", limit=100)
        assert answer.status_code == 200, answer.text
        return [in_short(item) for item in answer.json()["data"]]

    def asked(self) -> list[str]:
        """What the model was asked with last: the texts of users, and outputs of functions; not those of commands."""
        found: list[str] = []
        for item in self.lab.model.requests[-1].items:
            if item["type"] == "message" and item["role"] == "user":
                content = item["content"]
                found.append(content if isinstance(content, str) else content[0]["text"])
            elif item["type"] == "function_call_output" and not item["output"].startswith("["):
                found.append(f"{item['call_id']}: {item['output']}")
        return found

    async def replay(self, after: Cursor | None = None, turns: int = 1) -> list[Event]:
        """The events from the beginning, or behind one, to the end of so many turns."""
        found: list[Event] = []
        session = await self.lab.runtime.stores.agent_sessions.get(TENANT, self.session.id)
        reader = SessionReader(self.lab.runtime, session, {"type": "none"}, after or Cursor(0, 0))
        async with asyncio.timeout(SECONDS_MAX), aclosing(reader.batches()) as batches:
            async for events in batches:
                for event in events:
                    found.append(event)
                    if event["type"] == "agent.session.idle" and event["event_id"].startswith(f"evt_{turns:08x}"):
                        return found
        return found


def in_short(item: Item) -> str:
    if item["type"] == "message":
        return f"{item['role']}: {''.join(part['text'] for part in item['content'])}"
    if item["type"] == "command_execution":
        return f"$ {item['command']} {item['status']}"
    return f"{item['type']} {item.get('name') or item.get('output')} {item['status']}"


def names(events: list[Event]) -> list[str]:
    """Types of events that are no deltas."""
    return [event["type"].removeprefix("agent.session.") for event in events if not event["type"].endswith(".delta")]
