"""The loop's definition, played: retries, what catches, maps, and positions from which another process plays on."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage.local.state_machine import ExecutionPosition, State, StateMachine
from moorage.state import LoopState

from tests.simulation.clock import run

FIRST: State = LoopState("resp_1", "t").to_json()
DONE = FIRST | {"next": "done"}


def asks(*calls: str) -> State:
    return FIRST | {"next": "tool" if len(calls) == 1 else "tools", "calls": list(calls)}


@dataclass
class Functions:
    """Answers in order; an error is raised."""

    answers: dict[str, list[Any]]
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def __call__(self, name: str, given: State) -> Any:
        self.asked.append((name, given.get("call_id")))
        answer = self.answers[name].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def play(functions: Functions, position: ExecutionPosition | None = None) -> tuple[str, list[ExecutionPosition]]:
    """The state at the end, and where the execution stood before."""
    kept: list[ExecutionPosition] = []

    async def keep(position: ExecutionPosition) -> None:
        kept.append(position)

    async def whole() -> str:
        machine = StateMachine(functions, random.Random(1))
        return (await machine.play(position or machine.start(FIRST), keep)).state

    return run(whole()), kept


def test_an_execution_is_kept_at_each_state_but_choices() -> None:
    functions = Functions({"ModelStep": [asks("a"), DONE], "ToolStep": [{}]})
    assert play(functions) == (
        "Done",
        [ExecutionPosition("RunTool", asks("a")), ExecutionPosition("ModelStep", asks("a")), ExecutionPosition("Done", DONE)],
    )
    assert functions.asked == [("ModelStep", None), ("ToolStep", "a"), ("ModelStep", None)]


def test_another_process_plays_on_from_where_an_execution_stands() -> None:
    functions = Functions({"ModelStep": [DONE], "ToolStep": [{}]})
    assert play(functions, ExecutionPosition("RunTool", asks("a"))) == (
        "Done",
        [ExecutionPosition("ModelStep", asks("a")), ExecutionPosition("Done", DONE)],
    )
    assert functions.asked == [("ToolStep", "a"), ("ModelStep", None)]


def test_calls_of_a_map_run_side_by_side_and_a_failed_one_leaves_others() -> None:
    functions = Functions({"ModelStep": [asks("a", "b"), DONE], "ToolStep": [{}, *[ValueError()] * 4]})
    assert play(functions)[0] == "Done"
    assert functions.asked == [("ModelStep", None), ("ToolStep", "a"), *[("ToolStep", "b")] * 4, ("ModelStep", None)]


def test_retries_are_counted_where_the_execution_stands() -> None:
    functions = Functions({"ModelStep": [ValueError(), ValueError(), DONE]})
    kept = play(functions)[1]
    assert kept == [
        ExecutionPosition("ModelStep", FIRST, (0, 1)),
        ExecutionPosition("ModelStep", FIRST, (0, 2)),
        ExecutionPosition("Done", DONE),
    ]
    spent = Functions({"ModelStep": [ValueError(), DONE], "FailResponse": [{}]})
    assert play(spent, ExecutionPosition("ModelStep", FIRST, (0, 4)))[0] == "Broken"


def test_a_step_that_hangs_is_ended_by_its_states_own_time() -> None:
    class Hanging(Functions):
        async def __call__(self, name: str, given: State) -> Any:
            if name == "ModelStep" and not self.asked:
                self.asked.append((name, None))
                await asyncio.Event().wait()
            return await super().__call__(name, given)

    functions = Hanging({"ModelStep": [DONE]})
    assert play(functions)[0] == "Done"


@pytest.mark.parametrize(("state", "following"), [("ModelStep", "FailResponse"), ("RunTool", "ModelStep"), ("IndexStep", None)])
def test_an_execution_whose_task_cannot_be_run_goes_where_its_state_says(state: str, following: str | None) -> None:
    machine = StateMachine(Functions({}), random.Random(1))
    caught = machine.caught(ExecutionPosition(state, asks("a")))
    assert (caught and caught.state) == following
