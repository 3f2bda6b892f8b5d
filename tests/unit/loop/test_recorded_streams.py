"""Streams as they were recorded, whole and cut at every byte."""

from typing import Any

import pytest
from moorage.loop import context
from moorage.state import Next
from moorage.wire.types import Item

from tests.unit.loop.test_endings import DECODERS, calls_in, ending, text_in
from tests.unit.model.encodings import OVER_HTTP
from tests.unit.model.recorded import RECORDED, Recorded

each = pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: f"{recorded.kind.name}: {recorded.name}")


def test_there_are_six_streams_of_each_provider() -> None:
    assert {kind.name: sum(each.kind is kind for each in RECORDED) for kind in OVER_HTTP} == dict.fromkeys(
        (kind.name for kind in OVER_HTTP), 6
    )


def asked_for(items: list[Item]) -> list[Any]:
    return [item["input"] for item in items if item["type"] == "custom_tool_call"] or calls_in(items)


def test_an_item_without_the_fields_of_its_kind_is_asked_for_again() -> None:
    (shell,) = (each for each in RECORDED if each.name.startswith("a shell call"))
    decision, _, error = ending(DECODERS[shell.kind](), shell.body.replace(b'"commands"', b'"comnands"'))
    assert (decision.next, error is not None and error.is_retryable) == (Next.MODEL, True)


@each
def test_a_recorded_stream_says_what_it_said(recorded: Recorded) -> None:
    decision, assembler, error = ending(DECODERS[recorded.kind](), recorded.body)
    items = [assembler.items[index] for index in sorted(assembler.items)]
    is_hosted = any(item["type"] == "shell_call" for item in items)
    assert (error, decision.next) == (None, Next.TOOLS if is_hosted else Next.DONE)
    assert (text_in(items), asked_for(items)) == (recorded.text, list(recorded.calls))
    thoughts = [part["text"] for item in items if item["type"] == "reasoning" for part in item.get("content") or item["summary"]]
    assert "".join(thoughts) == recorded.thought
    assert [item for item in items if item["type"] == "message" and not item["content"]] == [], "a message without a word"
    assert assembler.usage.output_tokens > 0


@each
def test_a_recorded_stream_cut_at_any_byte_is_whole_or_asked_for_again(recorded: Recorded) -> None:
    wanted = list(recorded.calls)
    for length in range(len(recorded.body) + 1):
        decision, assembler, error = ending(DECODERS[recorded.kind](), recorded.body[:length])
        assert error is None or error.is_retryable, length
        if decision.next is Next.MODEL:
            assert error is not None, f"asked again after an answer that was whole ({length})"
            continue
        kept = context.final_output(assembler.items[index] for index in sorted(assembler.items))
        calls = asked_for(kept)
        # Whole calls are acted on, in their order; an answer without any is whole.
        assert calls == wanted[: len(calls)], length
        assert calls or (text_in(kept), wanted) == (recorded.text, []), length
