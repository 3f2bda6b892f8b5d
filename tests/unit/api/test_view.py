"""What ``include`` shows of a response."""

from typing import Any

from moorage.api.view import ResponseView

CALL: dict[str, Any] = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]}
DONE: dict[str, Any] = {"type": "response.output_item.done", "output_index": 0, "item": CALL}
ENDED: dict[str, Any] = {"type": "response.completed", "response": {"id": "resp_1", "output": [CALL]}}


def test_outputs_of_the_code_interpreter_are_shown_to_those_who_ask() -> None:
    asked = ResponseView.of(["code_interpreter_call.outputs"])
    assert [asked.event(event) for event in (DONE, ENDED)] == [DONE, ENDED]


def test_others_get_none_and_the_log_keeps_them() -> None:
    view = ResponseView.of(["reasoning.encrypted_content"])
    without = CALL | {"outputs": None}
    assert view.event(DONE) == DONE | {"item": without}
    assert view.event(ENDED) == ENDED | {"response": {"id": "resp_1", "output": [without]}}
    assert CALL["outputs"] == [{"type": "logs", "logs": "1"}]


def test_an_item_that_was_only_added_shows_that_nothing_has_come_yet() -> None:
    added = {"type": "response.output_item.added", "output_index": 0, "item": CALL | {"code": "", "outputs": []}}
    assert ResponseView.of([]).event(added) == added


def test_deltas_are_padded_unless_declined() -> None:
    delta = {"type": "response.output_text.delta", "delta": "four"}
    assert len(ResponseView.of([]).event(delta)["obfuscation"]) == 12
    assert ResponseView.of([], include_obfuscation=False).event(delta) == delta


def test_errors_and_waits_name_the_command_that_works_for_their_reader() -> None:
    recorded = {"code": "server_error", "message": "The server cannot be reached. 'moorage logs' shows why."}
    read = recorded | {"message": "The server cannot be reached. '.venv/bin/moorage logs' shows why."}
    ended = {"id": "resp_1", "output": [], "error": recorded}
    view = ResponseView.of([], ".venv/bin/moorage")
    assert view.event({"type": "error", "error": recorded}) == {"type": "error", "error": read}
    assert view.response(ended) == ended | {"error": read}
    waits = {"id": "resp_1", "output": [], "waiting_for": "'moorage resume' lets it go on."}
    assert view.response(waits) == waits | {"waiting_for": "'.venv/bin/moorage resume' lets it go on."}
    assert recorded["message"].endswith("'moorage logs' shows why."), "a record may be read where another command works"
