"""A small model that repeats its call for ever is asked once more without tools, and answers from what it has read."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from moorage.errors import UpstreamError
from moorage.loop.prompt import sent
from moorage.loop.repetition import is_repeating
from moorage.model.catalog import ModelEntry
from moorage.wire.types import Item

from tests.unit.loop.lab import Lab, Turn, say, shell, texts

GENERIC = ModelEntry("m", "chat_completions", "m", "http://127.0.0.1:8000/v1", context_window_tokens=400_000)
OPENAI = ModelEntry("m", "chat_completions", "m", "http://127.0.0.1:8000/v1", context_window_tokens=400_000, dialect="openai")
REFUSES_CALLS: Turn = [UpstreamError("Expected the `tools=` param.", status=400, is_retryable=False)]


def lab_of(*turns: Turn, entry: ModelEntry = GENERIC) -> Lab:
    lab = Lab(*turns)
    lab.sandboxes.prints = lambda command: f"{command} has 41 lines\n"
    lab.runtime.models = replace(
        lab.runtime.models, catalog=cast("Any", SimpleNamespace(**vars(lab.runtime.models.catalog) | {"resolve": lambda name: entry}))
    )
    return lab


def same(times: int, command: str = "wc") -> list[Turn]:
    return [shell(command, call_id=f"call_{number}") for number in range(times)]


def offered(lab: Lab) -> list[tuple[int, str]]:
    """How many tools each request offers, and the choice among them."""
    return [(len(request.tools), str(request.tool_choice)) for request in lab.model.requests]


async def test_after_the_same_call_with_the_same_result_the_model_is_asked_without_tools() -> None:
    lab = lab_of(*same(2), say("41 lines."))
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert (response["status"], texts(response["output"])) == ("completed", ["41 lines."])
    assert offered(lab) == [(1, "auto"), (1, "auto"), (0, "none")]
    assert lab.model.requests[2].items[: len(lab.model.requests[1].items)] == lab.model.requests[1].items


async def test_a_model_that_may_make_no_more_calls_is_asked_without_tools() -> None:
    lab = lab_of(*same(1), say("41 lines."))
    stored = await lab.background(parameters={"max_tool_calls": 1})
    await lab.run(stored)
    assert texts((await lab.object_of(stored))["output"]) == ["41 lines."]
    assert offered(lab) == [(1, "auto"), (0, "none")]


async def test_what_was_sent_without_tools_can_be_looked_at_afterwards() -> None:
    lab = lab_of(*same(2), say("41 lines."))
    stored = await lab.background()
    await lab.run(stored)
    snapshot = await lab.runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)
    assert [(await sent(lab.runtime, snapshot, f"step_{number}")).request for number in range(3)] == lab.model.requests


async def test_a_call_that_is_made_all_the_same_is_answered_in_words() -> None:
    lab = lab_of(*same(3), say("41 lines."))
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert (texts(response["output"]), len(lab.sandboxes.executed)) == (["41 lines."], 2)
    assert lab.model.requests[3].items[-1]["output"] == "There is no such tool: no tool can be called now. Answer in words."


async def test_a_server_that_refuses_calls_without_tools_gets_them_back() -> None:
    lab = lab_of(*same(2), REFUSES_CALLS, say("41 lines."))
    stored = await lab.background()
    await lab.run(stored)
    assert texts((await lab.object_of(stored))["output"]) == ["41 lines."]
    assert offered(lab) == [(1, "auto"), (1, "auto"), (0, "none"), (1, "none")]


@pytest.mark.parametrize("entry", [OPENAI, ModelEntry("m", "anthropic_messages", "m")], ids=["openai", "anthropic"])
async def test_a_larger_model_keeps_its_tools_and_its_cached_prefix(entry: ModelEntry) -> None:
    lab = lab_of(*same(2), say("41 lines."), entry=entry)
    stored = await lab.background()
    await lab.run(stored)
    assert offered(lab) == [(1, "auto")] * 3


def called(command: str, call_id: str) -> Item:
    return {
        "id": f"sh_{call_id}",
        "type": "shell_call",
        "call_id": call_id,
        "status": "completed",
        "action": {"commands": [command]},
        "environment": {"type": "container_reference", "container_id": "cntr_1"},
    }


def gave(printed: str, call_id: str) -> Item:
    return {"id": f"sho_{call_id}", "type": "shell_call_output", "call_id": call_id, "output": [{"stdout": printed}]}


def rounds(*pairs: str) -> list[Item]:
    """Calls with their results: ``"ls>a"``."""
    made: list[Item] = []
    for number, pair in enumerate(pairs):
        command, _, printed = pair.partition(">")
        made += [called(command, str(number)), gave(printed, str(number))]
    return made


USER: Item = {"type": "message", "role": "user", "content": "again"}
SAID: Item = {"type": "message", "role": "assistant", "content": "I look again."}
CLIENTS: list[Item] = [
    {"type": "function_call", "call_id": "f", "name": "status", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "f", "output": "busy"},
]

HISTORIES: dict[str, tuple[list[Item], bool]] = {
    "nothing": ([], False),
    "one call": (rounds("ls>a"), False),
    "the same twice": (rounds("ls>a", "ls>a"), True),
    "with words in between": ([*rounds("ls>a"), SAID, *rounds("ls>a"), SAID], True),
    "the same call with another result": (rounds("ls>a", "ls>b"), False),
    "another call with the same result": (rounds("ls>a", "ls .>a"), False),
    "two that take turns": (rounds("ls>a", "ps>b", "ls>a", "ps>b"), True),
    "a test that is run again after a change": (rounds("test>bad", "edit 1>", "test>bad", "edit 2>", "test>bad"), False),
    "a repetition that is over": (rounds("ls>a", "ls>a", "ps>b"), False),
    "the same call in the next turn of a conversation": ([*rounds("ls>a"), USER, *rounds("ls>a")], False),
    "a call that has no result yet": ([*rounds("ls>a"), called("ls", "9")], False),
    "the client's calls": ([*CLIENTS, *CLIENTS], False),
}


@pytest.mark.parametrize(("items", "expected"), HISTORIES.values(), ids=HISTORIES.keys())
def test_a_repetition_is_the_same_calls_with_the_same_results_in_a_row(items: list[Item], expected: bool) -> None:
    assert is_repeating(items) is expected
