"""Background responses: poll, follow, resume, cancel."""

import time
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events, say, script, shell

TOOLS: Any = [SHELL]


def until_ended(client: OpenAI, response_id: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        response = client.responses.retrieve(response_id)
        if response.status not in ("queued", "in_progress"):
            return response
        time.sleep(0.05)
    raise AssertionError(f"{response_id} did not end in {seconds} s")


def test_a_background_response_is_queued_then_runs_then_is_there(client: OpenAI) -> None:
    queued = client.responses.create(model="demo", input=script(shell("echo hi"), say("end")), tools=TOOLS, background=True)
    assert (queued.status, queued.background, queued.output) == ("queued", True, [])
    ended = until_ended(client, queued.id)
    assert (ended.status, outputs(ended.output), ended.output_text) == ("completed", [[("hi\n", "", 0)]], "end")


def test_a_stream_cut_at_any_event_goes_on_where_it_was_cut(stack: Stack, client: OpenAI) -> None:
    body = {
        "model": "demo",
        "input": script(shell("echo a; echo b >&2"), say("The end.")),
        "tools": TOOLS,
        "background": True,
        "stream": True,
    }
    with stack.http() as http:
        with http.stream("POST", "/responses", json=body) as answer:
            first = next(event for event in raw_events(_until_blank(answer)))
        response_id = first["response"]["id"]
        whole = _replay(http, response_id)
        assert_well_formed(whole)
        for cut in range(len(whole) - 1):
            assert _replay(http, response_id, starting_after=cut) == whole[cut + 1 :], f"after {cut}"
    assert until_ended(client, response_id).output_text == "The end."


def _until_blank(answer: httpx.Response) -> list[str]:
    lines: list[str] = []
    for line in answer.iter_lines():
        if not line and lines:
            break
        lines.append(line)
    return lines


def _replay(http: httpx.Client, response_id: str, **query: int) -> list[dict[str, Any]]:
    params: dict[str, str | int] = {"stream": "true", "include_obfuscation": "false", **query}
    with http.stream("GET", f"/responses/{response_id}", params=params) as answer:
        assert answer.status_code == 200, answer.read()
        return raw_events(answer.iter_lines())


def test_the_sdk_resumes_a_stream(client: OpenAI) -> None:
    events = list(client.responses.create(model="demo", input=script(say("one two")), background=True, stream=True))
    response_id = events[0].response.id  # type: ignore[union-attr]
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=events[2].sequence_number))
    assert [event.type for event in rest] == [event.type for event in events[3:]]
    with client.responses.stream(response_id=response_id, starting_after=events[2].sequence_number) as stream:
        assert [event.sequence_number for event in stream] == [event.sequence_number for event in events[3:]]


def test_nothing_comes_after_the_last_event(stack: Stack, client: OpenAI) -> None:
    made = client.responses.create(model="demo", input="hello")
    with stack.http() as http:
        answer = http.get(f"/responses/{made.id}", params={"stream": "true", "starting_after": 10_000})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "starting_after")


def test_cancelling_kills_the_command_and_keeps_what_it_said(stack: Stack, client: OpenAI) -> None:
    stream = client.responses.create(
        model="demo",
        input=script(shell("sleep 600 & echo $! > pid; echo begun; wait"), say("never")),
        tools=TOOLS,
        background=True,
        stream=True,
    )
    response_id = ""
    for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.shell_call_output_content.delta":
            break
    cancelled = client.responses.cancel(response_id)
    assert cancelled.status == "cancelled"
    assert [item.type for item in cancelled.output] == ["shell_call", "shell_call_output"]
    assert cancelled.output[1].output[0].stdout == "begun\n"  # type: ignore[union-attr, index]
    assert client.responses.cancel(response_id) == cancelled == client.responses.retrieve(response_id)
    with stack.http() as http:
        assert_well_formed(_replay(http, response_id))
    after = client.responses.create(
        model="demo",
        input=script(shell("kill -0 $(cat pid) 2>/dev/null && echo alive || echo dead"), say("end")),
        tools=TOOLS,
        previous_response_id=response_id,
    )
    assert outputs(after.output) == [[("dead\n", "", 0)]]


def test_cancelling_while_the_model_speaks_stops_it(client: OpenAI) -> None:
    queued = client.responses.create(model="demo", input=script({"delta_ms": 200, "say": "word " * 200}), background=True)
    until = time.monotonic() + 20
    while client.responses.retrieve(queued.id).status != "in_progress" and time.monotonic() < until:
        time.sleep(0.02)
    cancelled = client.responses.cancel(queued.id)
    assert cancelled.status == "cancelled"
    assert len(cancelled.output_text.split()) < 200
    *_, last = client.responses.retrieve(queued.id, stream=True)
    assert last.type == "response.incomplete"
    assert last.response == cancelled


def test_a_foreground_response_cannot_be_cancelled(client: OpenAI) -> None:
    made = client.responses.create(model="demo", input="hello")
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        client.responses.cancel(made.id)


def test_a_running_response_can_be_deleted_and_nothing_of_it_stays(stack: Stack, client: OpenAI) -> None:
    queued = client.responses.create(model="demo", input=script(shell("sleep 600"), say("never")), tools=TOOLS, background=True)
    client.responses.delete(queued.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(queued.id)


def test_a_background_response_must_be_stored(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(model="demo", input="x", background=True, store=False)
    assert refusal.value.param == "background"


def test_chaining_onto_a_running_response_is_refused(client: OpenAI) -> None:
    queued = client.responses.create(model="demo", input=script({"sleep_ms": 3000, "say": "x"}), background=True)
    with pytest.raises(openai.BadRequestError, match="still running"):
        client.responses.create(model="demo", input="y", previous_response_id=queued.id)
    client.responses.cancel(queued.id)
