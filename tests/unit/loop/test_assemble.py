"""The order of events, item by item: what goes in stands beside what comes out."""

from typing import Any

import pytest
from moorage.loop.assemble import Assembler, HeldCall
from moorage.model import base
from moorage.model.base import Delta
from moorage.tools.lowering import OriginalTool
from moorage.wire.types import Event

from tests.unit.loop.lab import Lab, say

RESP = "resp_" + "a" * 48
DONE = base.StreamFinished("stop")
SHELL_CALL = base.ItemRelayed({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls", "pwd"]}})


def played(*deltas: Delta, container_id: str | None = "cntr_1") -> tuple[list[Event], Assembler]:
    events: list[Event] = []
    names = {"shell": OriginalTool("shell", "shell"), "grammar": OriginalTool("custom", "grammar")}
    assembler = Assembler(
        RESP, events.append, 0, lambda name: names.get(name) or OriginalTool("function", name), container_id=container_id
    )
    for delta in deltas:
        assembler.feed(delta)
    return events, assembler


def order(events: list[Event]) -> list[str]:
    return [f"{event['output_index']} {event['type'].removeprefix('response.')}" for event in events]


@pytest.mark.parametrize(
    ("kind", "deltas", "expected"),
    [
        (
            "a message",
            [base.MessageStarted(), base.TextDelta("a"), base.TextDelta(""), base.TextDelta("b")],
            [
                "0 output_item.added",
                "0 content_part.added",
                "0 output_text.delta",
                "0 output_text.delta",
                "0 output_text.done",
                "0 content_part.done",
                "0 output_item.done",
            ],
        ),
        ("a message without a word", [base.MessageStarted()], ["0 output_item.added", "0 output_item.done"]),
        (
            "text that turns into a refusal",
            [base.TextDelta("a"), base.RefusalDelta("no")],
            [
                "0 output_item.added",
                "0 content_part.added",
                "0 output_text.delta",
                "0 output_text.done",
                "0 content_part.done",
                "0 content_part.added",
                "0 refusal.delta",
                "0 refusal.done",
                "0 content_part.done",
                "0 output_item.done",
            ],
        ),
        (
            "thoughts in two parts, then an answer",
            [base.SummaryDelta("a"), base.SummaryDelta("b", 1), base.TextDelta("c")],
            [
                "0 output_item.added",
                "0 reasoning_summary_part.added",
                "0 reasoning_summary_text.delta",
                "0 reasoning_summary_text.done",
                "0 reasoning_summary_part.done",
                "0 reasoning_summary_part.added",
                "0 reasoning_summary_text.delta",
                "0 reasoning_summary_text.done",
                "0 reasoning_summary_part.done",
                "0 output_item.done",
                "1 output_item.added",
                "1 content_part.added",
                "1 output_text.delta",
                "1 output_text.done",
                "1 content_part.done",
                "1 output_item.done",
            ],
        ),
        (
            "raw thoughts",
            [base.ReasoningTextDelta("a"), base.ItemDone("sealed")],
            [
                "0 output_item.added",
                "0 content_part.added",
                "0 reasoning_text.delta",
                "0 reasoning_text.done",
                "0 content_part.done",
                "0 output_item.done",
            ],
        ),
        (
            "a function call",
            [base.CallStarted("f"), base.CallDelta("{"), base.CallDelta("}")],
            [
                "0 output_item.added",
                "0 function_call_arguments.delta",
                "0 function_call_arguments.delta",
                "0 function_call_arguments.done",
                "0 output_item.done",
            ],
        ),
        (
            "a custom tool call that came as a function's",
            [base.CallStarted("grammar"), base.CallDelta('{"input": '), base.CallDelta('"ab"}')],
            [
                "0 output_item.added",
                "0 custom_tool_call_input.delta",
                "0 custom_tool_call_input.done",
                "0 output_item.done",
            ],
        ),
        (
            "a custom tool call of an upstream that has them",
            [base.CallStarted("grammar", None, "custom"), base.CallDelta("a"), base.CallDelta("b")],
            [
                "0 output_item.added",
                "0 custom_tool_call_input.delta",
                "0 custom_tool_call_input.delta",
                "0 custom_tool_call_input.done",
                "0 output_item.done",
            ],
        ),
        (
            "two commands of one shell call",
            [SHELL_CALL],
            [
                "0 output_item.added",
                "0 shell_call_command.added",
                "0 shell_call_command.delta",
                "0 shell_call_command.done",
                "0 shell_call_command.added",
                "0 shell_call_command.delta",
                "0 shell_call_command.done",
                "0 output_item.done",
            ],
        ),
        (
            "a code interpreter call stays open for the tool step",
            [base.ItemRelayed({"type": "code_interpreter_call", "code": "1"})],
            [
                "0 output_item.added",
                "0 code_interpreter_call.in_progress",
                "0 code_interpreter_call_code.delta",
                "0 code_interpreter_call_code.done",
            ],
        ),
        (
            "a patch",
            [base.ItemRelayed({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "update_file", "diff": "d"}})],
            [
                "0 output_item.added",
                "0 output_item.done",
            ],
        ),
        (
            "an item of a kind without events of its own",
            [base.ItemRelayed({"type": "compaction", "encrypted_content": "x"})],
            ["0 output_item.added", "0 output_item.done"],
        ),
    ],
)
def test_the_events_of_an_item_come_in_the_recorded_order(kind: str, deltas: list[Delta], expected: list[str]) -> None:
    events, _ = played(*deltas, DONE)
    assert order(events) == expected, kind


def test_a_function_that_stands_for_the_shell_is_given_back_as_a_shell_call() -> None:
    pieces = ['{"comm', 'ands": ["ls", "pwd"]}']
    lowered, spoken = played(base.CallStarted("shell", "c"), *map(base.CallDelta, pieces), DONE)
    native, _ = played(SHELL_CALL, DONE)
    assert _without_ids(lowered) == _without_ids(native)
    assert (spoken.items[0]["type"], spoken.items[0]["action"]["commands"]) == ("shell_call", ["ls", "pwd"])


def test_without_a_container_a_shell_call_is_for_the_client() -> None:
    _, assembler = played(SHELL_CALL, DONE, container_id=None)
    assert assembler.items[0]["environment"] == {"type": "local"}


def test_a_long_command_is_sent_in_pieces() -> None:
    command = "x" * 4_500
    events, _ = played(base.ItemRelayed({"type": "shell_call", "call_id": "c", "action": {"commands": [command]}}), DONE)
    pieces = [event["delta"] for event in events if event["type"] == "response.shell_call_command.delta"]
    assert ([len(piece) for piece in pieces], "".join(pieces)) == ([2_000, 2_000, 500], command)


def test_a_call_whose_arguments_never_came_whole_is_shown_to_nobody() -> None:
    events, assembler = played(base.TextDelta("let me see"), base.CallStarted("shell"), base.CallDelta('{"com'))
    assembler.abandon(is_said_anew=False)
    assert (list(assembler.items), order(events)[-1]) == ([0], "0 output_item.done")


def test_a_custom_call_is_taken_at_its_upstreams_word() -> None:
    """The name was never lowered, and an input that looks like our wrapping is the input all the same."""
    text = '{"input": "ls"}'
    _, assembler = played(base.CallStarted("exec", "call_1", "custom"), base.CallDelta(text), DONE)
    item = assembler.items[0]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "exec", text)


def test_what_a_limit_cuts_off_is_incomplete() -> None:
    events, assembler = played(base.TextDelta("one"), base.ItemDone(), base.TextDelta("two"), base.StreamFinished("max_output_tokens"))
    assert [item["status"] for item in assembler.items.values()] == ["completed", "incomplete"]
    assert order(events)[-3:] == ["1 output_text.done", "1 content_part.done", "1 output_item.done"]


def test_what_is_open_when_the_stream_breaks_is_incomplete() -> None:
    _, assembler = played(base.TextDelta("half"))
    assembler.abandon(is_said_anew=False)
    assert (assembler.items[0]["status"], assembler.finished) == ("incomplete", None)


def test_arguments_that_do_not_fit_are_a_misfit_and_not_the_clients_call() -> None:
    events, assembler = played(base.CallStarted("shell", "call_1"), base.CallDelta('{"commands": 7}'), DONE)
    assert assembler.misfits == [HeldCall("call_1", OriginalTool("shell", "shell"), '{"commands": 7}')]
    assert (events, assembler.items) == ([], {})


def test_a_call_without_arguments_has_an_empty_object_of_them() -> None:
    events, assembler = played(base.CallStarted("get_time"), base.CallDelta(""), DONE)
    assert assembler.items[0]["arguments"] == "{}"
    told = [event.get("delta") or event.get("arguments") for event in events[1:-1]]
    assert (told[-2:], events[-1]["item"]["arguments"]) == (["{}", "{}"], "{}")
    cut = played(base.CallStarted("get_time"), base.StreamFinished("max_output_tokens"))[1]
    assert (cut.items[0]["arguments"], cut.items[0]["status"]) == ("", "incomplete")


def test_a_call_whose_id_is_taken_gets_another_one() -> None:
    calls = (base.CallStarted("f", "call_1"), base.CallStarted("f", "call_1"), base.CallStarted("f", "call_2"), DONE)
    _, assembler = played(*calls)
    call_ids = [item["call_id"] for item in assembler.items.values()]
    assert (len(set(call_ids)), call_ids[0], call_ids[2]) == (3, "call_1", "call_2")


def test_what_a_reasoning_item_must_carry_to_the_next_turn_is_kept() -> None:
    _, assembler = played(base.ReasoningStarted(), base.ItemDone("sealed"), DONE)
    assert assembler.items[0]["encrypted_content"] == "sealed"


def summarised(*deltas: Delta) -> tuple[list[Event], Assembler]:
    """What a client sees that asked for a summary of the reasoning."""
    events: list[Event] = []
    assembler = Assembler(RESP, events.append, 0, lambda name: OriginalTool("function", name), summarises=True)
    for delta in (*deltas, DONE):
        assembler.feed(delta)
    return events, assembler


def test_raw_thoughts_are_a_summary_too_where_one_was_asked_for() -> None:
    events, assembler = summarised(base.ReasoningTextDelta("Let me "), base.ReasoningTextDelta("think."), base.ItemDone())
    assert order(events) == [
        "0 output_item.added",
        "0 content_part.added",
        "0 reasoning_text.delta",
        "0 reasoning_summary_part.added",
        "0 reasoning_summary_text.delta",
        "0 reasoning_text.delta",
        "0 reasoning_summary_text.delta",
        "0 reasoning_summary_text.done",
        "0 reasoning_summary_part.done",
        "0 reasoning_text.done",
        "0 content_part.done",
        "0 output_item.done",
    ]
    assert "".join(event["delta"] for event in events if event["type"] == "response.reasoning_summary_text.delta") == "Let me think."
    item = assembler.items[0]
    assert (item["summary"], item["content"]) == (
        [{"type": "summary_text", "text": "Let me think."}],
        [{"type": "reasoning_text", "text": "Let me think."}],
    )


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([base.SummaryDelta("Short."), base.ReasoningTextDelta("Long.")], ["Short."]),
        ([base.ReasoningTextDelta("Long."), base.SummaryDelta("Sho"), base.SummaryDelta("rt.")], ["Long.", "Short."]),
    ],
    ids=["the summary first", "the raw text first"],
)
def test_a_summary_of_the_upstreams_own_is_kept(deltas: list[Delta], expected: list[str]) -> None:
    _, assembler = summarised(*deltas)
    assert [part["text"] for part in assembler.items[0]["summary"]] == expected


@pytest.mark.parametrize(("wish", "expected"), [({"summary": "auto"}, ["Hm."]), ({"effort": "low"}, [])], ids=["asked", "not asked"])
async def test_only_a_request_that_asks_gets_a_summary(wish: dict[str, Any], expected: list[str]) -> None:
    lab = Lab([base.ReasoningTextDelta("Hm."), *say("Done.")])
    stored = await lab.background(parameters={"reasoning": wish})
    await lab.run(stored)
    thought = (await lab.object_of(stored))["output"][0]
    assert [part["text"] for part in thought["summary"]] == expected


def test_citations_come_before_the_text_is_done() -> None:
    events: list[Event] = []
    cited: dict[str, Any] = {"type": "container_file_citation", "file_id": "cfile_1"}
    assembler = Assembler(
        RESP,
        events.append,
        0,
        lambda name: OriginalTool("function", name),
        annotate=lambda text, marks: [cited] if text == "ab" else [],
    )
    for delta in (base.TextDelta("a"), base.TextDelta("b"), DONE):
        assembler.feed(delta)
    assert order(events)[4:6] == ["0 output_text.annotation.added", "0 output_text.done"]
    assert assembler.items[0]["content"][0]["annotations"] == [cited]


def test_ids_made_here_lead_back_to_their_response() -> None:
    _, assembler = played(base.TextDelta("a"), base.CallStarted("f"), DONE)
    assert [item["id"].split("_")[0] for item in assembler.items.values()] == ["msg", "fc"]
    assert all(item["id"].split("_")[1].startswith("a" * 40) for item in assembler.items.values())


def _without_ids(events: list[Event]) -> list[Any]:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(one) for key, one in value.items() if key not in ("id", "item_id", "call_id")}
        return [strip(one) for one in value] if isinstance(value, list) else value

    return [strip(event) for event in events]
