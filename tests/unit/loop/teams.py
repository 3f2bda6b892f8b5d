"""A team in the loop: each agent has a script of its own, and all executions are played side by side, a step at a time."""

import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from moorage import limits
from moorage.loop.recover import continue_loop, recover
from moorage.model.base import Delta, ModelRequest
from moorage.state import LoopState, Next
from moorage.store.responses import Ancestor, StoredResponse
from moorage.wire.types import Item

from tests.unit.loop.lab import SHELL_TOOL, FakeModel, FakeSandboxes, Lab, Turn, call
from tests.unit.store.deaths import Died

LOOK: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
FETCH: dict[str, Any] = LOOK | {"name": "fetch", "async": True}
TEAM: dict[str, Any] = {"max_concurrent_subagents": 3}


def ask(action: str, call_id: str = "call_1", **arguments: Any) -> Turn:
    return call(action, json.dumps(arguments), call_id)


def spawn(name: str, message: str = "Do it.", *, call_id: str = "call_1", **others: Any) -> Turn:
    return ask("spawn_agent", call_id, task_name=name, message=message, **others)


def wait(**given: Any) -> Turn:
    return ask("wait_agent", "call_wait", **given)


def look(at: str, call_id: str = "call_look") -> Turn:
    """A call that the client answers."""
    return ask("look", call_id, at=at)


def agent_of(request: ModelRequest) -> str:
    """Who is asked, by what it was told."""
    name = "/root"
    for item in request.items:
        text = text_of(item)
        if item.get("role") == "developer" and text.startswith("From here on you are "):
            name = text.removeprefix("From here on you are ").partition(",")[0]
    return name


def text_of(item: Item) -> str:
    parts = item.get("content", item.get("output", ""))
    return str(parts) if not isinstance(parts, list) else "".join(part.get("text", "") for part in parts)


class TeamModel(FakeModel):
    """What each agent says, one turn after another: whoever asks a step again hears the same."""

    def __init__(self, **scripts: list[Turn]) -> None:
        super().__init__([])
        self.scripts = {f"/{name}".replace("__", "/"): list(turns) for name, turns in scripts.items()}
        self.asked: list[tuple[str, ModelRequest]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        name = agent_of(request)
        self.asked.append((name, request))
        script = self.scripts[name]
        self.turns = [script[min(_turns_made(request), len(script) - 1)]]
        async for delta in super().stream(request):
            yield delta

    def prompts(self, name: str) -> list[tuple[Item, ...]]:
        return [request.items for asked, request in self.asked if asked == name]


def _turns_made(request: ModelRequest) -> int:
    """How many turns the agent has made that is asked, each with one call or one message."""
    begins = [index for index, item in enumerate(request.items) if text_of(item).startswith("From here on you are ")]
    own = request.items[begins[-1] :] if begins else request.items
    return sum(item["type"] == "function_call" or item.get("role") == "assistant" for item in own)


class TeamLab(Lab):
    """Agents by ``root=[...]``, ``root__a=[...]``."""

    def __init__(self, sandboxes: FakeSandboxes | None = None, /, **scripts: list[Turn]) -> None:
        super().__init__(sandboxes=sandboxes)
        self.model = self.team = TeamModel(**scripts)
        self.states: dict[str, LoopState] = {}
        self.deaths = 0
        self.loses_executions = False
        """A process that dies takes its execution with it, and the reaper starts another."""

    async def begin(self, **changes: Any) -> StoredResponse:
        """Here no process dies."""
        given: dict[str, Any] = {"tools": [SHELL_TOOL, LOOK], "agent": "/root", **changes}
        dies, self.table.before_write = self.table.before_write, None
        stored = await self.background(**given | {"parameters": {"multi_agent": TEAM, **changes.get("parameters", {})}})
        self.table.before_write = dies
        return stored

    async def answer(self, before: StoredResponse, **answers: str) -> StoredResponse:
        """A response that goes on from one with the client's outputs, by what was asked."""
        snapshot = await self.responses.snapshot(before.tenant_id, before.response_id)
        assert snapshot.last is not None
        asked = {
            json.loads(item["arguments"])["at"]: item for item in snapshot.final_object["output"] if item["type"] == "function_call"
        }
        outputs = [
            {"id": f"fco_{at}", "type": "function_call_output", "call_id": asked[at]["call_id"], "output": text}
            for at, text in answers.items()
        ]
        link = Ancestor(before.response_id, snapshot.last.first)
        return await self.begin(input_items=outputs, ancestors=(*before.ancestors, link), tools=list(before.parameters.tools))

    async def play(self, *, newest_first: bool = False, most: int = 400) -> None:
        """Every execution, a task at a time in turns, until none goes on."""
        for _ in range(most):
            going = [name for name in self.executions.started if self.executions.states[name] == "RUNNING"]
            if not going and not await self._is_taken_up():
                return
            for name in reversed(going) if newest_first else going:
                await self.task(name)
        raise AssertionError("they never end")

    async def _is_taken_up(self) -> bool:
        """Whether the reaper finds anything to do."""
        if not self.loses_executions:
            return False
        self.now += limits.RECOVERY_SECONDS + 1
        return bool(await recover(self.runtime))

    async def task(self, name: str) -> None:
        state = self.states.get(name) or LoopState.from_json(self.executions.started[name])
        try:
            if state.next is Next.TOOLS:
                await self.tools(state)
            if state.next is Next.CONTINUE:
                state = await continue_loop(self.runtime.stores, state)
            elif state.next is not Next.DONE:
                state = await self.step(state)
        except Died:
            self.table.before_write = None
            self.deaths += 1
            if self.loses_executions:
                self.executions.states[name] = "FAILED"
                return
        self.states[name] = state
        if state.next is Next.DONE:
            self.executions.states[name] = "SUCCEEDED"


def by_agent(response: dict[str, Any]) -> dict[str, list[str]]:
    """Types of the items, by whose they are."""
    found: dict[str, list[str]] = {}
    for item in response["output"]:
        found.setdefault(cast("str", item["agent"]["agent_name"]), []).append(item["type"])
    return found
