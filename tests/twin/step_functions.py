"""Step Functions, as far as the loop's definition asks for it: the file itself is played, on the clock of the running event loop.

Its retries wait there with the jitter that Step Functions draws, so that minutes pass in no time on a loop in which nobody waits
(``tests/simulation/clock.py``).
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from infra.agent_loop import ASL_FILE

State = dict[str, Any]
Invoke = Callable[[str, State], Awaitable[Any]]
"""Runs the function that stands behind a Task (``ModelStep``, ``ToolStep`` ...) and returns its answer. The class of what it raises is
the name of the error, unless it has an ``error_name``."""


class StateMachine:
    def __init__(self, invoke: Invoke, chance: random.Random) -> None:
        self._invoke, self._chance = invoke, chance
        self._definition = json.loads(ASL_FILE.read_text())
        self.transitions = 0
        """States that were entered, as they are billed."""

    async def run(self, state: State) -> str:
        """An execution; the name of the state that ends it."""
        return await self._states(self._definition, state, {})

    async def _states(self, machine: Mapping[str, Any], data: State, context: State) -> str:
        name = machine["StartAt"]
        while True:
            self.transitions += 1
            state = machine["States"][name]
            match state["Type"]:
                case "Choice":
                    chosen = (c["Next"] for c in state["Choices"] if _at(c["Variable"], data, context) == c["StringEquals"])
                    name = next(chosen, state.get("Default"))
                    continue
                case "Task":
                    following, data = await self._task(state, data, context)
                case "Map":
                    following, data = await self._map(state, data)
                case "Wait":
                    await asyncio.sleep(_at(state["SecondsPath"], data, context) if "SecondsPath" in state else state["Seconds"])
                    following = state["Next"]
                case "Pass":
                    following = state.get("Next")
                case _:  # Succeed, Fail
                    following = None
            if following is None:
                return str(name)
            name = following

    async def _task(self, state: State, data: State, context: State) -> tuple[str | None, State]:
        given = _filled(state["Parameters"], data, context) if "Parameters" in state else data
        function = state["Resource"].removeprefix("${").removesuffix("Arn}")
        rules = state.get("Retry", [])
        used = [0] * len(rules)
        while True:
            try:
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
                await asyncio.sleep(self._chance.uniform(0, pause))
            else:
                return state.get("Next"), data if "ResultPath" in state else result

    async def _map(self, state: State, data: State) -> tuple[str | None, State]:
        room = asyncio.Semaphore(state["MaxConcurrency"])

        async def one(item: Any) -> None:
            context = {"Map": {"Item": {"Value": item}}}
            async with room:
                await self._states(state["ItemProcessor"], _filled(state["ItemSelector"], data, context), context)

        await asyncio.gather(*map(one, _at(state["ItemsPath"], data, {})))
        return state.get("Next"), data


def _is_meant(rule: State, error: str) -> bool:
    return error in rule["ErrorEquals"] or rule["ErrorEquals"] == ["States.ALL"]


def _filled(template: State, data: State, context: State) -> State:
    return {name.removesuffix(".$"): _at(path, data, context) for name, path in template.items()}


def _at(path: str, data: State, context: State) -> Any:
    """Of paths the kinds that the definition has: members, and the first of a list."""
    found: Any = context if path.startswith("$$.") else data
    for member in path.lstrip("$").strip(".").split("."):
        name, is_first = member.removesuffix("[0]"), member.endswith("[0]")
        found = found[name][0] if is_first else found[name]
    return found
