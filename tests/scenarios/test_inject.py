"""``response.inject``: a client answers the calls of agents while their response runs, on both doors of the WebSocket."""

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.scenarios.test_teams import ask
from tests.scenarios.test_websocket import Door, by_process, create, door, gateway_door, process_door, read_to, stack
from tests.stack import say, script, spawn, wait

__all__ = ["door", "gateway_door", "process_door", "stack"]

LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
NOTE: Any = {"type": "custom", "name": "note"}
TEAM: Any = {"enabled": True}
Json = dict[str, Any]


@pytest.fixture
def socket(door: Door) -> Iterator[ClientConnection]:
    with door.connect(openai_beta="responses_multi_agent=v1") as connection:
        yield connection


def look(at: str) -> Json:
    return {"call": {"name": "look", "arguments": {"at": at}}}


def begin(socket: ClientConnection, *steps: Json, **others: Any) -> str:
    """The id of a response with a team."""
    socket.send(create(script(*steps), **{"tools": [LOOK, NOTE], "multi_agent": TEAM, **others}))
    response_id: str = read_to(socket, "response.created")[-1]["response"]["id"]
    return response_id


def call(socket: ClientConnection) -> Json:
    """The next call for the client."""
    while (item := read_to(socket, "response.output_item.done")[-1]["item"])["type"] not in ("function_call", "custom_tool_call"):
        pass
    found: Json = item
    return found


def output(call: Json, text: Any) -> Json:
    return {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": text}


def inject(socket: ClientConnection, response_id: str, *outputs: Any, **others: Any) -> None:
    socket.send(json.dumps({"type": "response.inject", "response_id": response_id, "input": list(outputs), **others}))


def answers(response: Json) -> dict[str, str]:
    """What each agent has said last."""
    found = [item for item in response["output"] if item["type"] == "message" and item["phase"] == "final_answer"]
    return {item["agent"]["agent_name"]: item["content"][0]["text"] for item in found}


def given(response: Json) -> list[tuple[str, Any]]:
    """The outputs among a response's items, with their agents."""
    types = ("function_call_output", "custom_tool_call_output")
    return [(item["agent"]["agent_name"], item["output"]) for item in response["output"] if item["type"] in types]


def test_agents_go_on_with_what_their_client_brings_meanwhile(client: OpenAI, socket: ClientConnection) -> None:
    agents = [spawn(name, look(name), say(f"{name} saw {{{{output}}}}"), fork_turns="none") for name in ("a", "b")]
    response_id = begin(socket, {"calls": agents}, wait(), wait(), look("all"), say("root saw {{output}}"))
    for made in (call(socket), call(socket)):
        inject(socket, response_id, output(made, f"the {json.loads(made['arguments'])['at']}"))
    events = read_to(socket, "response.output_item.done")
    while events[-1]["item"]["type"] != "function_call":
        events += read_to(socket, "response.output_item.done")
    inject(socket, response_id, output(events[-1]["item"], "the all"))
    events += read_to(socket, "response.completed")
    response, acknowledged = events[-1]["response"], [event for event in events if event["type"] == "response.inject.created"]
    assert [set(event) for event in acknowledged] == [{"type", "response_id", "sequence_number"}] * 3
    assert {event["response_id"] for event in acknowledged} == {response_id}
    assert answers(response) == {"/root/a": "a saw the a", "/root/b": "b saw the b", "/root": "root saw the all"}
    assert sorted(given(response)) == [("/root", "the all"), ("/root/a", "the a"), ("/root/b", "the b")]
    following = client.responses.create(model="demo", input=script(say("And on.")), previous_response_id=response_id)
    assert following.output_text == "And on."


@by_process
def test_parallel_calls_are_answered_one_by_one_or_together(socket: ClientConnection) -> None:
    two: Json = {"calls": [{"name": "look", "arguments": {"at": "x"}}, {"name": "note", "arguments": {"input": "y"}}]}
    response_id = begin(socket, two, two, say("Both: {{output}}"), store=False)
    for first, second in ((call(socket), call(socket)),):
        inject(socket, response_id, output(second, "Noted."))
        read_to(socket, "response.inject.created")
        inject(socket, response_id, output(first, [{"type": "input_text", "text": "A crane."}]))
        read_to(socket, "response.inject.created")
    inject(socket, response_id, *(output(made, "Again.") for made in (call(socket), call(socket))))
    assert read_to(socket, "response.inject.created")[-1]["response_id"] == response_id
    response = read_to(socket, "response.completed")[-1]["response"]
    assert [kind for _, kind in given(response)] == ["Noted.", [{"type": "input_text", "text": "A crane."}], "Again.", "Again."]


def test_an_agent_goes_on_while_a_call_is_open_and_gets_its_output_meanwhile(socket: ClientConnection) -> None:
    """Nobody waits for the output: it ends a wait for messages, and begins another turn of an agent that has ended."""
    fetch: Any = {"call": {"name": "fetch", "arguments": {"at": "z"}}}
    slow = spawn("a", look("x"), say("a saw {{output}}"), fork_turns="none")
    steps = ({"calls": [slow]}, fetch, wait(), fetch, say("It comes."), say("It is there."))
    response_id = begin(socket, *steps, tools=[LOOK, LOOK | {"name": "fetch", "async": True}])
    made = sorted((call(socket), call(socket)), key=lambda item: str(item["name"]))
    assert [(item["name"], item.get("async")) for item in made] == [("fetch", True), ("look", None)]
    inject(socket, response_id, output(made[0], "the first"))
    again = call(socket)
    while read_to(socket, "response.output_item.done")[-1]["item"]["type"] != "message":
        pass
    inject(socket, response_id, output(again, "the second"))
    while read_to(socket, "response.output_item.done")[-1]["item"]["type"] != "message":
        pass
    inject(socket, response_id, output(made[1], "the x"))
    response = read_to(socket, "response.completed")[-1]["response"]
    assert answers(response) == {"/root/a": "a saw the x", "/root": "It is there."}
    assert sorted(given(response)) == [("/root", "the first"), ("/root", "the second"), ("/root/a", "the x")]


@by_process
def test_outputs_that_come_too_early_wait_for_their_agent(socket: ClientConnection) -> None:
    slowly = {"delta_ms": 100}
    response_id = begin(socket, slowly, {"calls": [{"name": "look", "arguments": {"at": at}} for at in ("x", "y" * 60)]}, say("ok"))
    inject(socket, response_id, output(call(socket), "early"))
    read_to(socket, "response.inject.created")
    inject(socket, response_id, output(call(socket), "late"))
    assert given(read_to(socket, "response.completed")[-1]["response"]) == [("/root", "early"), ("/root", "late")]


@by_process
def test_outputs_for_a_response_that_has_ended_come_back(socket: ClientConnection) -> None:
    response_id = begin(socket, say("Nothing to do."))
    read_to(socket, "response.completed")
    late = output({"type": "function_call", "call_id": "call_1"}, "late")
    inject(socket, response_id, late)
    failed = read_to(socket, "response.inject.failed")[-1]
    assert failed == {
        "type": "response.inject.failed",
        "response_id": response_id,
        "sequence_number": 0,
        "input": [late],
        "error": {
            "code": "response_already_completed",
            "message": f"Response '{response_id}' takes no outputs any more. Send them with the next request.",
        },
    }
    inject(socket, "resp_0", late)
    assert read_to(socket, "response.inject.failed")[-1]["error"]["code"] == "response_not_found"


@by_process
def test_a_request_that_goes_on_from_an_open_response_lets_it_complete(socket: ClientConnection) -> None:
    """As clients do that know nothing of outputs for a response that runs."""
    response_id = begin(socket, look("x"), say("I saw {{output}}"))
    made = call(socket)
    frame = create("", tools=[LOOK], multi_agent=TEAM, previous_response_id=response_id)
    socket.send(json.dumps(json.loads(frame) | {"input": [output(made, "a rock")]}))
    assert [item["type"] for item in read_to(socket, "response.completed")[-1]["response"]["output"]] == ["function_call"]
    assert answers(read_to(socket, "response.completed")[-1]["response"]) == {"/root": "I saw a rock"}


@by_process
def test_a_response_completes_when_its_connection_ends(door: Door, client: OpenAI) -> None:
    with door.connect(openai_beta="responses_multi_agent=v1") as socket:
        response_id = begin(socket, look("x"), say("never"))
        call(socket)
        time.sleep(1)
        assert client.responses.retrieve(response_id).status == "in_progress"
    deadline = time.monotonic() + 60
    while (response := client.responses.retrieve(response_id)).status == "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (response.status, [item.type for item in response.output]) == ("completed", ["function_call"])


@by_process
@pytest.mark.parametrize(
    ("outputs", "param", "code"),
    [
        ([], "input", "array_below_min_length"),
        ([{"type": "message", "role": "user", "content": "hi"}], "input[0]", None),
        ([{"type": "function_call_output", "call_id": "call_none", "output": "x"}], "input[0].call_id", None),
        ([{"type": "function_call_output", "call_id": "call_none", "output": 1}], "input[0].output", "invalid_type"),
        (
            [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_id": "file-1"}]}],
            "input[0].output",
            "unsupported_value",
        ),
    ],
)
def test_what_is_no_output_ends_the_connection(socket: ClientConnection, outputs: Any, param: str, code: str | None) -> None:
    """As at OpenAI."""
    response_id = begin(socket, look("x"), say("never"))
    call(socket)
    inject(socket, response_id, *outputs)
    error = read_to(socket, "error")[-1]
    assert (error["status"], error["error"]["param"], error["error"]["code"]) == (400, param, code)
    with pytest.raises(ConnectionClosed):
        socket.recv(10)


@by_process
@pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")
def test_an_output_for_a_program_that_is_no_json_as_promised_is_refused(socket: ClientConnection) -> None:
    look: Any = LOOK | {"allowed_callers": ["programmatic"], "output_schema": {"type": "object"}}
    tools = [{"type": "programmatic_tool_calling"}, look]
    response_id = begin(socket, ask("run_program", code="return (await tools.look({ at: 'x' })).seen"), say("{{output}}"), tools=tools)
    made = call(socket)
    inject(socket, response_id, output(made, "a rock"))
    error = read_to(socket, "error")[-1]["error"]
    assert (error["param"], error["code"]) == ("input", "invalid_value")
    assert error["message"].endswith("expected a JSON string because the function declares output_schema.")


@by_process
@pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")
def test_a_program_goes_on_with_json_that_comes_meanwhile(socket: ClientConnection) -> None:
    look: Any = LOOK | {"allowed_callers": ["programmatic"], "output_schema": {"type": "object"}}
    tools = [{"type": "programmatic_tool_calling"}, look]
    response_id = begin(socket, ask("run_program", code="return (await tools.look({ at: 'x' })).seen"), say("{{output}}"), tools=tools)
    inject(socket, response_id, output(call(socket), '{"seen": "a rock"}'))
    assert answers(read_to(socket, "response.completed")[-1]["response"]) == {"/root": "a rock"}


@by_process
def test_only_teams_of_clients_that_know_it_take_outputs(door: Door) -> None:
    with door.connect() as socket:
        response_id = begin(socket, look("x"), say("never"))
        made = call(socket)
        assert read_to(socket, "response.completed")
        slow = begin(socket, {"delta_ms": 200}, say("word " * 50))
        inject(socket, slow, output(made, "x"))
        error = read_to(socket, "error")[-1]["error"]
        assert (error["param"], error["code"]) == ("response_id", "unsupported_value")
        assert response_id != slow
