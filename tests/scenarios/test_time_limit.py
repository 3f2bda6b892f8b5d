"""Where a request may not run for ever (Lambda: 15 minutes), its end is in good order: nothing is lost, and nothing comes twice."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events, say, script, shell

SECONDS = 2
TOOLS: Any = [SHELL]
FINALS = {"response.completed", "response.incomplete", "response.failed"}


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(
        Path(tmp_path_factory.mktemp("brief")),
        {"MOORAGE_STREAM_SECONDS_MAX": str(SECONDS), "MOORAGE_JSON_SILENCE_SECONDS": "1"},
    ).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(brief: Stack) -> OpenAI:
    return brief.client()


def followed(client: OpenAI, stream: Any) -> tuple[list[dict[str, Any]], int]:
    """Every event, taken up again after the last one as often as a stream ends without a final one; and how often that was."""
    events: list[dict[str, Any]] = []
    resumes = 0
    while True:
        with stream:
            events += [event.to_dict() for event in stream]
        if events[-1]["type"] in FINALS:
            return events, resumes
        resumes += 1
        stream = client.responses.retrieve(events[0]["response"]["id"], stream=True, starting_after=events[-1]["sequence_number"])


def awaited(client: OpenAI, response_id: str) -> Response:
    deadline = time.monotonic() + 60
    while (response := client.responses.retrieve(response_id)).status == "in_progress" and time.monotonic() < deadline:
        time.sleep(0.1)
    return response


def test_a_background_stream_is_resumed_where_it_ended(client: OpenAI) -> None:
    asked = script(shell(f"sleep {SECONDS * 2}; echo woken"), say("It woke."))
    events, resumes = followed(client, client.responses.create(model="demo", input=asked, tools=TOOLS, background=True, stream=True))
    assert_well_formed(events)
    assert resumes >= 1
    assert events[-1]["type"] == "response.completed"


def test_a_stream_that_waits_for_a_command_is_resumed_where_it_ended(client: OpenAI) -> None:
    asked = script(shell(f"sleep {SECONDS * 2}; echo woken"), say("It woke."))
    events, resumes = followed(client, client.responses.create(model="demo", input=asked, tools=TOOLS, stream=True))
    assert_well_formed(events)
    assert resumes >= 1
    made = client.responses.retrieve(events[-1]["response"]["id"])
    assert (outputs(made.output), made.output_text) == ([[("woken\n", "", 0)]], "It woke.")


def test_a_model_slower_than_a_request_is_asked_by_the_state_machine(client: OpenAI) -> None:
    asked = script({"sleep_ms": SECONDS * 1500, **say("Thought through.")})
    events, resumes = followed(client, client.responses.create(model="demo", input=asked, stream=True))
    assert_well_formed(events)
    assert (resumes >= 1, events[-1]["response"]["status"]) == (True, "completed")
    assert [item["content"][0]["text"] for item in events[-1]["response"]["output"]] == ["Thought through."]


def test_a_model_that_is_cut_off_is_asked_anew_and_the_response_goes_on(client: OpenAI) -> None:
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    asked = script({"delta_ms": 200, **say(words)})
    events, resumes = followed(client, client.responses.create(model="demo", input=asked, stream=True))
    assert_well_formed(events)
    assert resumes >= 1
    assert events[-1]["type"] == "response.completed"
    *cut, whole = events[-1]["response"]["output"]
    assert cut
    assert [(item["status"], item["content"]) for item in cut] == [("incomplete", [])] * len(cut)
    assert (whole["status"], [part["text"] for part in whole["content"]]) == ("completed", [words])
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta" and event["output_index"] == 0)
    assert said.startswith("one two"), "the words were streamed before the cut"


def test_a_create_without_a_stream_answers_what_goes_on(client: OpenAI) -> None:
    for step in ({"sleep_ms": SECONDS * 1500}, shell(f"sleep {SECONDS * 2}; echo woken")):
        made = client.responses.create(model="demo", input=script(step, say("Done.")), tools=TOOLS)
        assert made.status == "in_progress"
        ended = awaited(client, made.id)
        assert (ended.status, ended.output_text) == ("completed", "Done.")


@pytest.mark.parametrize(
    "step", [{"sleep_ms": SECONDS * 4000, **say("Late.")}, shell(f"sleep {SECONDS * 4}")], ids=["the model", "a command"]
)
def test_what_is_not_stored_fails_and_says_what_to_do(brief: Stack, step: dict[str, Any]) -> None:
    request = {"model": "demo", "input": script(step, say("Late.")), "tools": TOOLS, "stream": True, "store": False}
    with brief.http() as http, http.stream("POST", "responses", json=request) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    failed: Any = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "time_limit_exceeded")
    assert "set 'background' to true" in failed["error"]["message"]


def test_the_sdk_raises_the_sentence(client: OpenAI) -> None:
    asked = script({"sleep_ms": SECONDS * 4000, **say("Late.")})
    stream = client.responses.create(model="demo", input=asked, stream=True, store=False)
    with stream, pytest.raises(openai.APIError, match=f"not complete after {SECONDS} seconds"):
        list(stream)


def test_a_create_that_is_not_stored_fails_too(client: OpenAI) -> None:
    made = client.responses.create(model="demo", input=script({"sleep_ms": SECONDS * 4000, **say("Late.")}), store=False)
    assert made.error is not None
    assert (made.status, made.error.code) == ("failed", "time_limit_exceeded")
