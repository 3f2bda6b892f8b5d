"""A model provider that refuses, is down, hangs, answers garbage or stops: what the client gets, and what stays undisturbed."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events
from tests.upstream import Call, MockUpstream, Reply, broken, called_shell, chat_events, encoded, garbage, hung, refused, said

TOOLS: Any = [SHELL]


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockUpstream]:
    with MockUpstream() as running:
        yield running


PROVIDERS = ("chat_completions", "openai_responses")


@pytest.fixture(params=PROVIDERS)
def served(request: pytest.FixtureRequest) -> str:
    """A model of the stack below, for each protocol of its upstream."""
    return f"served-by-{request.param}"


@pytest.fixture(scope="module")
def real_stack(tmp_path_factory: pytest.TempPathFactory, upstream: MockUpstream) -> Iterator[Stack]:
    """A stack whose models are the mock upstream, set up as a user would: by variables alone."""
    state_dir = Path(tmp_path_factory.mktemp("upstreams"))
    models = state_dir / "models.toml"
    models.write_text(
        "".join(
            f'[[models]]\nname = "served-by-{provider}"\nprovider = "{provider}"\nbase_url = "{upstream.url}"\nidle_seconds = 0.5\n'
            for provider in PROVIDERS
        )
        + f"""
[[models]]
name = "with-custom-tools"
provider = "openai_responses"
base_url = "{upstream.url}"
native_tools = ["custom"]
"""
    )
    running = Stack(state_dir, {"MOORAGE_MODELS_FILE": str(models)}, finds_programs=True).start()
    yield running
    assert running.stop() == 0


def test_the_shell_loop_runs_on_a_real_protocol(real_stack: Stack, upstream: MockUpstream, served: str) -> None:
    upstream.plays(called_shell("echo from the shell"), said("Done."))
    response = real_stack.client().responses.create(model=served, input="go", tools=TOOLS)
    assert outputs(response.output) == [[("from the shell\n", "", 0)]]
    assert (response.output_text, response.status) == ("Done.", "completed")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (22, 14), "two steps add up"
    told = [json.dumps(request.body["tools"]) for request in upstream.requests[-2:]]
    assert re.search(r"Installed there, beside the usual small programs: python 3\.\d+\.\d+, ", told[0]), "what its container has"
    assert told[0] == told[1]


def test_a_custom_tool_of_an_upstream_that_has_them_goes_there_and_back_as_it_is(real_stack: Stack, upstream: MockUpstream) -> None:
    text = '{"input": "looks like a wrapper"}'
    upstream.plays(Reply(calls=(Call("sql", text, "call_1", "custom"),)), said("Done."))
    client = real_stack.client()
    tools: Any = [{"type": "custom", "name": "sql"}]
    response = client.responses.create(model="with-custom-tools", input="go", tools=tools)
    (item,) = response.output
    assert (item.type, getattr(item, "input", None)) == ("custom_tool_call", text)
    output: Any = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "3 rows"}
    client.responses.create(model="with-custom-tools", input=[output], previous_response_id=response.id, tools=tools)
    body = upstream.requests[-1].body
    call: Any = {"type": "custom_tool_call", "call_id": "call_1", "name": "sql", "input": text}
    assert (body["tools"], body["input"][1:]) == (tools, [call, output])


def test_a_busy_upstream_is_asked_again_after_the_time_it_names(real_stack: Stack, upstream: MockUpstream, served: str) -> None:
    upstream.plays(refused(429, "slow down", retry_after=0.2), said("Now."))
    assert real_stack.client().responses.create(model=served, input="go").output_text == "Now."


def test_a_client_is_told_how_long_a_busy_upstream_wants_to_be_left_alone(
    real_stack: Stack, upstream: MockUpstream, served: str
) -> None:
    upstream.plays(refused(429, "slow down", retry_after=90))
    with pytest.raises(openai.RateLimitError) as refusal:
        real_stack.client().responses.create(model=served, input="go")
    assert refusal.value.response.headers["retry-after"] == "90"


_TOO_LONG: Any = {"message": "This model's maximum context length is 10 tokens.", "code": "context_length_exceeded"}
_TOO_LONG_IN_STREAM = f"data: {json.dumps({'type': 'error', 'error': _TOO_LONG})}\n\n".encode()


@pytest.mark.parametrize(
    "refusal_of_theirs",
    [
        refused(400, _TOO_LONG["message"], code=_TOO_LONG["code"]),
        Reply(headers={"content-type": "text/event-stream"}, body=_TOO_LONG_IN_STREAM),
    ],
    ids=["by its status", "in its stream"],
)
def test_an_upstream_that_refuses_for_good_gives_its_reason(
    real_stack: Stack, upstream: MockUpstream, served: str, refusal_of_theirs: Reply
) -> None:
    upstream.plays(refusal_of_theirs, refusal_of_theirs)
    with pytest.raises(openai.BadRequestError, match="maximum context length") as refusal:
        real_stack.client().responses.create(model=served, input="go")
    assert refusal.value.code == "context_length_exceeded"
    body = {"model": served, "input": "go", "stream": True}
    with real_stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        error, failed = raw_events(answer.iter_lines())[-2:]
    assert {"error": error["error"]} == refusal.value.response.json() == {"error": failed["response"]["error"]}
    assert (error["error"]["type"], error["error"]["param"]) == ("invalid_request_error", "input")


@pytest.mark.parametrize(
    ("what", "replies"),
    [
        ("garbage", [garbage()] * 8),
        ("errors without end", [refused(500)] * 8),
        ("silence", [hung()] * 8),
    ],
)
def test_an_upstream_that_fails_ends_the_stream_with_an_error_and_a_failed_response(
    real_stack: Stack, upstream: MockUpstream, served: str, what: str, replies: list[Reply]
) -> None:
    upstream.plays(*replies)
    body = {"model": served, "input": "go", "stream": True}
    with real_stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"], what
    assert events[-1]["response"]["error"]["message"] == events[-2]["error"]["message"]
    assert_well_formed(events)
    with real_stack.http() as http:
        assert http.get(f"/responses/{events[0]['response']['id']}").json()["status"] == "failed"
    upstream.forget()
    upstream.plays(said("Fine again."))
    assert real_stack.client().responses.create(model=served, input="go").output_text == "Fine again."


def test_a_stream_that_breaks_in_the_middle_is_closed_and_asked_again(real_stack: Stack, upstream: MockUpstream, served: str) -> None:
    upstream.plays(broken(after=7), said("Whole."))
    body = {"model": served, "input": "go", "stream": True}
    with real_stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    output = events[-1]["response"]["output"]
    told = [(item["status"], [part["text"] for part in item["content"]]) for item in output]
    assert told == [("incomplete", []), ("completed", ["Whole."])]
    second = upstream.requests[-1].body
    assert "cut off" not in str(second), "what was left open is not shown to the model"


def test_text_that_arrives_together_leaves_as_one_event(real_stack: Stack, upstream: MockUpstream) -> None:
    """Each event is sent, stored and read again. Words that the upstream sends apart are not waited for."""
    chunks = chat_events(said("all of it at once", deltas=9), {})
    upstream.plays(Reply(pieces=(b"".join(encoded(chunks, "/chat/completions")),)))
    body = {"model": "served-by-chat_completions", "input": "go", "stream": True}
    with real_stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == ["all of it at once"]


def test_what_the_sdk_joins_of_a_broken_stream_says_nothing_twice(real_stack: Stack, upstream: MockUpstream, served: str) -> None:
    upstream.plays(broken(after=7), broken(after=6), said("Whole."))
    client = real_stack.client()
    with client.responses.stream(model=served, input="go") as stream:
        ended = stream.get_final_response()
    assert (ended.status, ended.output_text) == ("completed", "Whole.")
    assert client.responses.retrieve(ended.id).output_text == "Whole."


def test_an_upstream_that_is_down_is_a_server_error(stack: Stack, tmp_path: Path) -> None:
    down = Stack(tmp_path / "down", {"MOORAGE_UPSTREAM_URL": "http://127.0.0.1:9/v1", "MOORAGE_UPSTREAM_MODEL": "m"}).start()
    try:
        with pytest.raises(openai.InternalServerError) as failure:
            down.client().responses.create(model="m", input="go")
        assert failure.value.status_code == 502
    finally:
        assert down.stop() == 0


TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def lines_about(stack: Stack, response_id: str, *messages: str) -> list[dict[str, Any]]:
    """The lines of the API and the steps that name the response, once these are there. What plays executions knows no response."""
    deadline = time.monotonic() + 60
    while True:
        text = "".join((stack.state_dir / name).read_text() for name in ("api.log", "steps.log"))
        told = [json.loads(line) for line in text.splitlines() if line.startswith("{") and response_id in line]
        lines = [line for line in told if line["message"] != "execution_ended"]
        if sorted(line["message"] for line in lines) == sorted(messages):
            return lines
        assert time.monotonic() < deadline, lines
        time.sleep(0.1)


@pytest.mark.parametrize("background", [False, True])
def test_a_clients_trace_leads_through_the_loop_to_the_model(
    real_stack: Stack, upstream: MockUpstream, served: str, background: bool
) -> None:
    upstream.plays(called_shell("echo traced"), said("Done."))
    before = len(upstream.requests)
    with real_stack.http() as client:
        body = {"model": served, "input": "go", "tools": TOOLS, "background": background}
        response = client.post("/responses", json=body, headers={"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}).json()
        lines = lines_about(real_stack, response["id"], "request", "model_step", "tool_step", "model_step")
        assert client.get(f"/responses/{response['id']}").json()["status"] == "completed"
    assert {line["trace_id"] for line in lines} == {TRACE_ID}
    told = [request.headers["traceparent"].split("-") for request in upstream.requests[before:]]
    assert [(version, trace, flags) for version, trace, _, flags in told] == [("00", TRACE_ID, "01")] * 2
    assert len({SPAN_ID, *(span for _, _, span, _ in told)}) == 3, "a span for each request"


def test_a_request_without_a_trace_gets_one_that_its_model_and_its_lines_share(
    real_stack: Stack, upstream: MockUpstream, served: str
) -> None:
    upstream.plays(said("Hello."))
    response = real_stack.client().responses.create(model=served, input="hello")
    (_, trace_id, _, _) = upstream.requests[-1].headers["traceparent"].split("-")
    assert {line["trace_id"] for line in lines_about(real_stack, response.id, "request", "model_step")} == {trace_id}
