"""Step Functions, as far as the loop's definition asks for it: the same file is played in process, on the running event loop.

An execution stands at an :class:`ExecutionPosition`. Its player keeps each new one before it goes on, so that another process
can play on from there. A Choice is never stood at: it costs nothing to choose again.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.local.resource_paths import LOOP

State = dict[str, Any]
Invoke = Callable[[str, State], Awaitable[Any]]
"""Runs the function that stands behind a Task (``ModelStep``, ``ToolStep`` ...) and returns its answer. The class of what it raises is
the name of the error, unless it has an ``error_name``."""
_ANY: Final = "States.ALL"


@dataclass(frozen=True, slots=True)
class ExecutionPosition:
    """The position of an execution."""

    state: str
    data: State
    retries: tuple[int, ...] = ()
    """How often the task was tried again, by each of the state's rules."""


Following = tuple[str | None, State]
"""The state that comes next, None at the end, and the data that it is given."""
Keep = Callable[[ExecutionPosition], Awaitable[None]]
"""What it raises ends the play."""


async def _forget(position: ExecutionPosition) -> None:
    """A play that ends with its process."""


@cache
def _definition() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(LOOP.read_text())
    return found


class StateMachine:
    """The definition, and the counts of playing it. Making one is cheap."""

    def __init__(self, invoke: Invoke, chance: random.Random) -> None:
        """``chance`` draws the jitter of retries."""
        self._invoke, self._chance = invoke, chance
        self._definition = _definition()
        self.transitions = 0
        """States that were entered, as they are billed."""
        self.invocations = 0
        """Of functions, repeats included."""

    @property
    def seconds_max(self) -> int:
        """The bound of an execution's time, in any state."""
        return int(self._definition["TimeoutSeconds"])

    async def run(self, data: State) -> str:
        """A whole execution; the name of the state that ends it."""
        return (await self.play(self.start(data))).state

    def start(self, data: State) -> ExecutionPosition:
        return self._settled(self._definition, ExecutionPosition(self._definition["StartAt"], data), {})

    async def play(self, position: ExecutionPosition, keep: Keep = _forget) -> ExecutionPosition:
        """Play on from there to the state that ends the execution. Raises a task's uncaught error."""
        return await self._play(self._definition, position, {}, keep)

    def caught(self, position: ExecutionPosition) -> ExecutionPosition | None:
        """The next position of an execution with a task that cannot be run at all; None if that ends it."""
        rules = self._definition["States"][position.state].get("Catch", [])
        rule = next((rule for rule in rules if rule["ErrorEquals"] == [_ANY]), None)
        return None if rule is None else self._settled(self._definition, ExecutionPosition(rule["Next"], position.data), {})

    def succeeds(self, position: ExecutionPosition) -> bool:
        """Whether an execution that ends there has succeeded."""
        return bool(self._definition["States"][position.state]["Type"] != "Fail")

    async def _play(self, machine: Mapping[str, Any], position: ExecutionPosition, context: State, keep: Keep) -> ExecutionPosition:
        while True:
            self.transitions += 1
            state = machine["States"][position.state]
            match state["Type"]:
                case "Task":
                    following = await self._task(state, position, context, keep)
                case "Map":
                    following = await self._map(state, position)
                case "Wait":
                    seconds = state["Seconds"] if "Seconds" in state else _at(state["SecondsPath"], position.data, context)
                    await asyncio.sleep(seconds)
                    following = state["Next"], position.data
                case "Pass":
                    following = state.get("Next"), position.data
                case _:  # Succeed, Fail
                    return position
            name, data = following
            if name is None:
                return position
            position = self._settled(machine, ExecutionPosition(name, data), context)
            await keep(position)

    def _settled(self, machine: Mapping[str, Any], position: ExecutionPosition, context: State) -> ExecutionPosition:
        """Behind the Choices that stand there."""
        while (state := machine["States"][position.state])["Type"] == "Choice":
            self.transitions += 1
            data = position.data
            chosen = (rule["Next"] for rule in state["Choices"] if _at(rule["Variable"], data, context) == rule["StringEquals"])
            position = ExecutionPosition(next(chosen, state["Default"]), data)
        return position

    async def _task(self, state: State, position: ExecutionPosition, context: State, keep: Keep) -> Following:
        data = position.data
        given = _filled(state["Parameters"], data, context) if "Parameters" in state else data
        function = state["Resource"].removeprefix("${").removesuffix("Arn}")
        rules = state.get("Retry", [])
        used = list(position.retries or [0] * len(rules))
        while True:
            self.invocations += 1
            try:
                async with asyncio.timeout(state["TimeoutSeconds"]):
                    result = await self._invoke(function, given)
            except Exception as error:
                named = getattr(error, "error_name", type(error).__name__)
                number = next((n for n, rule in enumerate(rules) if _is_meant(rule, named)), None)
                if number is None or used[number] >= rules[number]["MaxAttempts"]:
                    caught = next((rule for rule in state.get("Catch", []) if _is_meant(rule, named)), None)
                    if caught is None:
                        raise
                    return caught["Next"], data
                rule = rules[number]
                pause = min(rule["IntervalSeconds"] * rule["BackoffRate"] ** used[number], rule["MaxDelaySeconds"])
                used[number] += 1
                self.transitions += 1
                await keep(replace(position, retries=tuple(used)))
                await asyncio.sleep(self._chance.uniform(0, pause))
            else:
                return state.get("Next"), data if "ResultPath" in state else result

    async def _map(self, state: State, position: ExecutionPosition) -> Following:
        """A Map that is played again runs all of its calls again; those that have ended say so at once."""
        room, processor = asyncio.Semaphore(state["MaxConcurrency"]), state["ItemProcessor"]

        async def one(item: Any) -> None:
            context = {"Map": {"Item": {"Value": item}}}
            begun = ExecutionPosition(processor["StartAt"], _filled(state["ItemSelector"], position.data, context))
            async with room:
                await self._play(processor, self._settled(processor, begun, context), context, _forget)

        try:
            async with asyncio.TaskGroup() as calls:
                for item in _at(state["ItemsPath"], position.data, {}):
                    calls.create_task(one(item))
        except ExceptionGroup:
            if "Catch" not in state:
                raise
            return state["Catch"][0]["Next"], position.data
        return state.get("Next"), position.data


def _is_meant(rule: State, error: str) -> bool:
    return error in rule["ErrorEquals"] or rule["ErrorEquals"] == [_ANY]


def _filled(template: State, data: State, context: State) -> State:
    return {name.removesuffix(".$"): _at(path, data, context) for name, path in template.items()}


def _at(path: str, data: State, context: State) -> Any:
    """Of paths the kinds that the definition has: members, and the first of a list."""
    found: Any = context if path.startswith("$$.") else data
    for member in path.lstrip("$").strip(".").split("."):
        name, is_first = member.removesuffix("[0]"), member.endswith("[0]")
        found = found[name][0] if is_first else found[name]
    return found
