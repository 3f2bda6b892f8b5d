"""The response object is what its events add up to, whatever the model said and wherever the log breaks off."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.loop.assemble import Assembler
from moorage.loop.finish import closing_events
from moorage.loop.fold import FoldedState, fold
from moorage.model import base
from moorage.model.base import Delta
from moorage.tools.lowering import OriginalTool
from moorage.wire.types import Event

TEXT = st.text(max_size=8)
WORDS = st.lists(TEXT, min_size=1, max_size=3)
RESP = "resp_" + "a" * 48


def _message(parts: list[tuple[str, str]]) -> list[Delta]:
    made: list[Delta] = [base.MessageStarted()]
    for kind, text in parts:
        match kind:
            case "text":
                made.append(base.TextDelta(text))
            case "refusal":
                made.append(base.RefusalDelta(text))
            case _:
                made.append(base.AnnotationAdded({"type": "url_citation", "url": text}))
    return made


def _reasoning(summary: list[str], text: list[str], encrypted: str | None) -> list[Delta]:
    thoughts: list[Delta] = [base.SummaryDelta(words, index) for index, words in enumerate(summary)]
    return [base.ReasoningStarted(), *thoughts, *map(base.ReasoningTextDelta, text), base.ItemDone(encrypted)]


def _call(name: str, kind: Any, pieces: list[str]) -> list[Delta]:
    return [base.CallStarted(name, None, kind), *map(base.CallDelta, pieces)]


def _passed(commands: list[str]) -> list[Delta]:
    return [base.ItemRelayed({"type": "shell_call", "call_id": "c", "action": {"commands": commands}})]


def _arguments(words: list[str]) -> list[str]:
    """JSON, in pieces that end where they like."""
    text = json.dumps({"words": words})
    return [text[: len(text) // 3], text[len(text) // 3 :]]


PARTS = st.lists(st.tuples(st.sampled_from(["text", "refusal", "annotation"]), TEXT), max_size=5)
ITEMS = st.one_of(
    st.builds(_message, PARTS),
    st.builds(_reasoning, st.lists(TEXT, max_size=3), st.lists(TEXT, max_size=3), st.none() | TEXT),
    st.builds(_call, st.sampled_from(["look", "shell"]), st.just("function"), WORDS.map(_arguments)),
    st.builds(_call, st.just("grammar"), st.just("custom"), WORDS),
    st.builds(_call, st.just("shell"), st.just("function"), st.just(['{"commands": ["ls', '"]}'])),
    st.builds(_passed, WORDS),
)
STREAMS = st.lists(ITEMS, max_size=6).map(lambda runs: [delta for run in runs for delta in run])


def _restore(name: str) -> OriginalTool:
    return {"shell": OriginalTool("shell", "shell"), "grammar": OriginalTool("custom", "grammar")}.get(
        name, OriginalTool("function", name)
    )


def play(deltas: list[Delta], *, summarises: bool = False) -> tuple[list[Event], Assembler]:
    """A log, as a sink would keep it: each event is what it was when it was emitted."""
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(copy.deepcopy(event) | {"sequence_number": len(events)})

    assembler = Assembler(RESP, emit, 0, _restore, container_id="cntr_1", summarises=summarises)
    for delta in deltas:
        assembler.feed(delta)
    return events, assembler


@given(STREAMS, st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_log_adds_up_to_the_items_that_were_closed(deltas: list[Delta], summarises: bool) -> None:
    events, assembler = play([*deltas, base.StreamFinished("stop")], summarises=summarises)
    folded = fold(events)
    assert (folded.items, folded.open) == (assembler.items, [])


@given(STREAMS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_log_grown_by_deltas_alone_adds_up_to_the_same(deltas: list[Delta], summarises: bool) -> None:
    """What a process that dies before ``output_item.done`` has shown its client is the whole item but for its status."""
    events, assembler = play([*deltas, base.StreamFinished("stop")], summarises=summarises)
    grown = fold(
        event | {"sequence_number": n} for n, event in enumerate(e for e in events if e["type"] != "response.output_item.done")
    )
    assert [_shown(item) for item in grown.output] == [_shown(assembler.items[i]) for i in sorted(assembler.items)]


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    """Without what only the end of an item brings."""
    return {key: value for key, value in item.items() if key not in ("status", "encrypted_content")}


@given(STREAMS, st.booleans(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_log_cut_anywhere_closes_its_open_items_as_incomplete(deltas: list[Delta], summarises: bool, data: st.DataObject) -> None:
    events, assembler = play([*deltas, base.StreamFinished("stop")], summarises=summarises)
    cut = data.draw(st.integers(0, len(events)))
    folded = fold(copy.deepcopy(events[:cut]))
    left_open = set(folded.open)
    closing = [event | {"sequence_number": cut + i} for i, event in enumerate(closing_events(folded))]
    whole = fold([*events[:cut], *closing])
    assert whole.open == []
    assert {index for index, item in whole.items.items() if item.get("status") == "incomplete"} == left_open
    assert {i: whole.items[i] for i in whole.done - left_open} == {i: assembler.items[i] for i in whole.done - left_open}


@given(STREAMS)
@settings(max_examples=50, deadline=None)
def test_folding_in_pieces_is_folding_at_once(deltas: list[Delta]) -> None:
    events, _ = play([*deltas, base.StreamFinished("stop")])
    state = FoldedState()
    for event in copy.deepcopy(events):
        fold([event], state)
    assert state == fold(copy.deepcopy(events))


@given(STREAMS)
@settings(max_examples=50, deadline=None)
def test_folding_leaves_the_events_as_they_are(deltas: list[Delta]) -> None:
    events, _ = play([*deltas, base.StreamFinished("stop")])
    before = copy.deepcopy(events)
    fold(events)
    assert events == before


@pytest.mark.parametrize("numbers", [(0, 2), (0, 0), (1,)])
def test_a_gap_or_a_repeat_is_never_added_up(numbers: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        fold({"type": "x", "sequence_number": number} for number in numbers)


def test_the_output_of_commands_grows_by_stream_and_ends_whole() -> None:
    output: dict[str, Any] = {"type": "shell_call_output", "status": "completed", "output": []}
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 0, "item": output},
        *(
            {"type": "response.shell_call_output_content.delta", "output_index": 0, "command_index": i, "delta": {stream: text}}
            for i, stream, text in ((1, "stdout", "b"), (0, "stderr", "a"), (1, "stdout", "B"))
        ),
        {
            "type": "response.shell_call_output_content.done",
            "output_index": 0,
            "command_index": 1,
            "output": [{"stdout": "bB", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ]
    folded = fold(event | {"sequence_number": n} for n, event in enumerate(events))
    assert folded.items[0]["output"] == [
        {"stdout": "", "stderr": "a", "outcome": None},
        {"stdout": "bB", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    ]
