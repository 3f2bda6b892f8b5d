from typing import Any

import pytest
from moorage import limits
from moorage.loop.decide import LoopDecision, after_model, is_for_client, is_hosted, is_upstreams, tool_choice_of
from moorage.model.base import StreamFinished
from moorage.state import Next
from moorage.wire.types import Item

STOP = StreamFinished("stop")
MESSAGE: Item = {"type": "message", "status": "completed"}
COMMENTARY: Item = {"type": "message", "status": "completed", "phase": "commentary"}
HALF: Item = {"type": "message", "status": "incomplete"}
REASONING: Item = {"type": "reasoning"}
HOSTED: Item = {"type": "shell_call", "environment": {"type": "container_reference", "container_id": "cntr_1"}}
LOCAL: Item = {"type": "shell_call", "environment": {"type": "local"}}
FUNCTION: Item = {"type": "function_call"}
PYTHON: Item = {"type": "code_interpreter_call"}
DONE = LoopDecision(Next.DONE)
AGAIN = LoopDecision(Next.MODEL)


def cut(reason: Any) -> StreamFinished:
    return StreamFinished(reason)


@pytest.mark.parametrize(
    ("situation", "items", "finished", "made", "maximum", "expected"),
    [
        ("an answer ends it", [MESSAGE], STOP, 0, None, DONE),
        ("an answer after thinking ends it", [REASONING, MESSAGE], STOP, 0, None, DONE),
        ("nothing at all ends it", [], STOP, 0, None, DONE),
        ("a shell call runs", [HOSTED], STOP, 0, None, LoopDecision(Next.TOOLS, hosted=(0,))),
        ("calls run in order", [MESSAGE, HOSTED, PYTHON], STOP, 0, None, LoopDecision(Next.TOOLS, hosted=(1, 2))),
        ("a local shell call is the client's", [LOCAL], STOP, 0, None, DONE),
        ("a function call is the client's", [FUNCTION], STOP, 0, None, DONE),
        ("both kinds at once", [HOSTED, FUNCTION], STOP, 0, None, LoopDecision(Next.TOOLS, hosted=(0,), is_last=True)),
        ("the budget runs out in the middle", [HOSTED, HOSTED], STOP, 2, 3, LoopDecision(Next.TOOLS, hosted=(0,), refused=(1,))),
        ("the budget is spent: the model is told", [HOSTED], STOP, 3, 3, LoopDecision(Next.MODEL, refused=(0,))),
        ("spent, and the client has a call", [HOSTED, FUNCTION], STOP, 3, 3, LoopDecision(Next.DONE, refused=(0,))),
        (
            "cut off by the output limit",
            [HOSTED],
            cut("max_output_tokens"),
            0,
            None,
            LoopDecision(Next.DONE, refused=(0,), status="incomplete", incomplete_reason="max_output_tokens"),
        ),
        (
            "stopped by a filter",
            [MESSAGE],
            cut("content_filter"),
            0,
            None,
            LoopDecision(Next.DONE, status="incomplete", incomplete_reason="content_filter"),
        ),
        ("broken off with nothing", [], None, 0, None, AGAIN),
        ("broken off in mid-answer", [HALF], None, 0, None, AGAIN),
        ("broken off while thinking", [REASONING], None, 0, None, AGAIN),
        ("broken off after a word in between", [COMMENTARY], None, 0, None, AGAIN),
        ("broken off after the answer was whole", [MESSAGE], None, 0, None, DONE),
        ("broken off after a call was whole", [HOSTED, HALF], None, 0, None, LoopDecision(Next.TOOLS, hosted=(0,))),
        ("broken off after the client's call was whole", [FUNCTION], None, 0, None, DONE),
    ],
)
def test_what_follows_a_model_step(
    situation: str, items: list[Item], finished: StreamFinished | None, made: int, maximum: int | None, expected: LoopDecision
) -> None:
    decided = after_model(dict(enumerate(items)), finished, calls_made=made, max_tool_calls=maximum, own_container="cntr_1")
    assert decided == expected, situation


def test_calls_over_the_bound_of_a_round_are_refused() -> None:
    count = limits.CALLS_PER_ROUND_MAX + 3
    decision = after_model(dict.fromkeys(range(count), HOSTED), STOP, calls_made=0, max_tool_calls=None, own_container="cntr_1")
    assert (len(decision.hosted), decision.refused) == (limits.CALLS_PER_ROUND_MAX, tuple(range(count - 3, count)))


@pytest.mark.parametrize(
    ("item", "hosted", "client"),
    [
        (HOSTED, True, False),
        (PYTHON, True, False),
        (LOCAL, False, True),
        ({"type": "shell_call"}, False, True),
        (FUNCTION, False, True),
        ({"type": "custom_tool_call"}, False, True),
        ({"type": "mcp_call"}, True, False),
        ({"type": "mcp_approval_request"}, False, True),
        (MESSAGE, False, False),
    ],
)
def test_every_call_has_one_who_answers_it(item: Item, hosted: bool, client: bool) -> None:
    assert (is_hosted(item), is_for_client(item)) == (hosted, client)


ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]}


@pytest.mark.parametrize(
    ("situation", "requested", "step", "made", "maximum", "expected"),
    [
        ("auto stays", "auto", 3, 0, None, "auto"),
        ("none stays", "none", 3, 0, None, "none"),
        ("required holds once", "required", 0, 0, None, "required"),
        ("required would never end", "required", 1, 1, None, "auto"),
        ("a named tool holds once", {"type": "shell"}, 0, 0, None, {"type": "shell"}),
        ("a named tool is free afterwards", {"type": "shell"}, 2, 2, None, "auto"),
        ("allowed tools stay allowed", ALLOWED, 1, 1, None, ALLOWED | {"mode": "auto"}),
        ("no calls are left", "required", 4, 4, 4, "none"),
    ],
)
def test_a_forced_choice_holds_for_the_first_step(
    situation: str, requested: Any, step: int, made: int, maximum: int | None, expected: Any
) -> None:
    assert tool_choice_of(requested, step=step, calls_made=made, max_tool_calls=maximum) == expected, situation


def test_a_call_that_a_dead_attempt_has_settled_is_not_acted_on_again() -> None:
    hosted: Item = {"type": "shell_call", "call_id": "call_1", "environment": {"type": "container_reference", "container_id": "cntr_1"}}
    refused: Item = {"type": "shell_call_output", "call_id": "call_1", "output": []}
    settled = after_model({0: hosted, 1: refused}, None, calls_made=0, max_tool_calls=None, own_container="cntr_1")
    assert settled == LoopDecision(Next.MODEL)
    unsettled = after_model({0: hosted}, None, calls_made=0, max_tool_calls=None, own_container="cntr_1")
    assert unsettled == LoopDecision(Next.TOOLS, hosted=(0,))


def test_a_call_in_another_container_is_the_upstreams_and_is_left_to_it() -> None:
    items = {0: HOSTED | {"environment": {"type": "container_reference", "container_id": "cntr_there"}}}
    assert is_upstreams(items[0], "cntr_1")
    assert not is_upstreams(HOSTED, "cntr_1")
    assert after_model(items, STOP, calls_made=0, max_tool_calls=None, own_container=None) == LoopDecision(Next.DONE)
