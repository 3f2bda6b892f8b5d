"""The WebSocket transport: the same responses, many on one connection.

Both doors are held to it: the process that holds connections itself, and the functions behind API Gateway (``tests/twin/sockets.py``),
with AWS's runtime client around them and the stack's table and loop behind.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest
from moorage import limits
from moorage.api.websocket import Connection
from moorage.loop.fold import fold
from moorage.wire.types import Event
from openai import OpenAI
from starlette.websockets import WebSocket, WebSocketState
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.infra.conftest import EVERYTHING, shared
from tests.stack import SHELL, Stack, assert_well_formed, say, script, shell
from tests.twin import runtime_api
from tests.twin.sockets import sockets_of, told_by
from tests.twin.template import Template

_FINALS = ("response.completed", "response.incomplete", "response.failed", "error")


@dataclass(frozen=True)
class Door:
    """Where connections are opened."""

    url: str
    key: str

    def connect(self, key: str | None = None, **headers: str) -> ClientConnection:
        given = {"authorization": f"Bearer {key or self.key}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        return connect(self.url, additional_headers=given, max_size=None)


@pytest.fixture(scope="module")
def stack(aws_stack: Stack) -> Stack:
    """Its table is where the functions behind the gateway find it too."""
    return aws_stack


@pytest.fixture(scope="module")
def process_door(stack: Stack) -> Door:
    return Door(stack.url.replace("http", "ws", 1) + "/responses", stack.key)


@pytest.fixture(scope="module")
def gateway_door(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: the CDK app cannot be synthesised here.")
    if not runtime_api.HAS_CLIENT:
        pytest.skip(runtime_api.REASON)
    stacks = shared(EVERYTHING, tmp_path_factory)
    with sockets_of(Template.of(stacks.state, stacks.service), told_by(stack)) as deployed:
        yield Door(f"{deployed.gateway.url}/responses", stack.key)


@pytest.fixture(params=["process", "gateway"])
def door(request: pytest.FixtureRequest) -> Door:
    """Each of the two."""
    chosen: Door = request.getfixturevalue(f"{request.param}_door")
    return chosen


by_process = pytest.mark.parametrize("door", ["process"], indirect=True)
"""What is told apart by time, or the same code behind either door (``tests/unit/api/test_gateway_socket.py`` has what is not)."""


@pytest.fixture
def socket(door: Door) -> Iterator[ClientConnection]:
    with door.connect() as connection:
        yield connection


def create(text: str = "hello", **more: Any) -> str:
    return json.dumps({"type": "response.create", "model": "demo", "input": text, **more})


def interrupt(response_id: str) -> str:
    return json.dumps({"type": "response.interrupt", "response_id": response_id, "mode": "discard_partial_items"})


def steer(response_id: str, text: Any) -> str:
    return json.dumps({"type": "response.steer", "previous_response_id": response_id, "input": text})


def read_to(socket: ClientConnection, type_: str) -> list[Event]:
    """Events up to the first of the type."""
    events: list[Event] = []
    while not events or events[-1]["type"] != type_:
        events.append(json.loads(socket.recv(30)))
    return events


def turn(socket: ClientConnection, frame: str) -> list[Event]:
    """Send one frame and read to the end of what it caused."""
    socket.send(frame)
    events: list[Event] = []
    while not events or events[-1]["type"] not in _FINALS:
        events.append(json.loads(socket.recv(30)))
    if events[-1]["type"] == "error" and len(events) > 1:  # A response that failed: its last event follows.
        events.append(json.loads(socket.recv(30)))
    return events


def said(event: Event) -> str:
    return "".join(part["text"] for item in event["response"]["output"] if item["type"] == "message" for part in item["content"])


def error_of(events: list[Event]) -> tuple[int, str | None]:
    (error,) = events
    assert error["type"] == "error"
    assert set(error["error"]) == {"message", "type", "param", "code"}
    return error["status"], error["error"]["code"]


def test_a_response_comes_as_the_same_events_as_over_http(stack: Stack, socket: ClientConnection) -> None:
    events = turn(socket, create(script(say("one two"))))
    assert_well_formed(events)
    with stack.http() as http:
        assert http.get(f"/responses/{events[0]['response']['id']}").json() == events[-1]["response"]


def test_two_responses_follow_each_other_on_one_connection(socket: ClientConnection) -> None:
    socket.send(create(script(say("first"))))
    socket.send(create(script(say("second"))))
    finals: list[Event] = []
    while len(finals) < 2:
        event = json.loads(socket.recv(30))
        if event["type"] == "response.completed":
            finals.append(event)
    assert [said(final) for final in finals] == ["first", "second"]


def test_an_unstored_response_is_continued_on_its_connection_only(stack: Stack, door: Door, socket: ClientConnection) -> None:
    words = script(say("one"), say("two"), say("three"))
    first = turn(socket, create(words, store=False))[-1]["response"]["id"]
    second = turn(socket, create("go on", store=False, previous_response_id=first))[-1]
    third = turn(socket, create("go on", store=False, previous_response_id=second["response"]["id"]))[-1]
    assert [said(second), said(third)] == ["two", "three"]
    assert second["response"]["previous_response_id"] == first
    with door.connect() as other:
        assert error_of(turn(other, create("go on", store=False, previous_response_id=first))) == (400, "previous_response_not_found")
    with stack.http() as http:
        assert http.get(f"/responses/{first}").status_code == 404


def test_a_stored_response_may_continue_an_unstored_one(client: OpenAI, socket: ClientConnection) -> None:
    first = turn(socket, create(script(say("one"), say("two"), say("three")), store=False))[-1]["response"]["id"]
    second = turn(socket, create("go on", previous_response_id=first))[-1]["response"]["id"]
    assert client.responses.create(model="demo", input="go on", previous_response_id=second).output_text == "three"


def test_a_stored_response_is_continued_over_either_transport(client: OpenAI, socket: ClientConnection) -> None:
    first = client.responses.create(model="demo", input=script(say("one"), say("two"), say("three")))
    second = turn(socket, create("go on", previous_response_id=first.id))[-1]
    assert said(second) == "two"
    third = client.responses.create(model="demo", input="go on", previous_response_id=second["response"]["id"])
    assert third.output_text == "three"


def test_a_failed_continuation_makes_its_parent_forgotten(socket: ClientConnection) -> None:
    first = turn(socket, create(store=False))[-1]["response"]["id"]
    orphan = [{"type": "function_call_output", "call_id": "call_missing", "output": "x"}]
    refused = {"type": "response.create", "model": "demo", "store": False, "previous_response_id": first, "input": orphan}
    assert error_of(turn(socket, json.dumps(refused))) == (400, None)
    assert error_of(turn(socket, create(store=False, previous_response_id=first))) == (400, "previous_response_not_found")


def test_a_continuation_that_fails_in_another_lane_leaves_the_parent_alone(socket: ClientConnection) -> None:
    first = turn(socket, create(store=False))[-1]["response"]["id"]
    refused = create(store=False, previous_response_id=first, stream_id="b", temperature=7)
    assert error_of(turn(socket, refused))[0] == 400
    assert turn(socket, create(store=False, previous_response_id=first))[-1]["type"] == "response.completed"


def test_a_warm_up_asks_no_model_and_can_be_continued(socket: ClientConnection) -> None:
    for store in (False, True):
        words = script(say("one"))
        warm = turn(socket, create(words, store=store, generate=False))
        assert [event["type"] for event in warm] == ["response.created", "response.in_progress", "response.completed"]
        final = warm[-1]["response"]
        assert (final["output"], final["usage"]["total_tokens"]) == ([], 0)
        assert said(turn(socket, create("go", store=store, previous_response_id=final["id"]))[-1]) == "one"


def test_a_warm_up_may_come_before_any_input(socket: ClientConnection) -> None:
    for store in (False, True):
        frame = {"type": "response.create", "model": "demo", "generate": False, "instructions": "Be brief.", "store": store}
        warm = turn(socket, json.dumps(frame))[-1]["response"]
        assert said(turn(socket, create(script(say("one")), store=store, previous_response_id=warm["id"]))[-1]) == "one"


def test_a_warm_up_of_a_conversation_joins_it(client: OpenAI, socket: ClientConnection) -> None:
    conversation = client.conversations.create().id
    turn(socket, create(script(say("one")), conversation=conversation, generate=False))
    assert said(turn(socket, create("go", conversation=conversation))[-1]) == "one"


def test_the_loop_runs_for_an_unstored_continuation_too(socket: ClientConnection) -> None:
    words = script(say("ready"), shell("echo from the shell"), say("It said: {{output}}"))
    first = turn(socket, create(words, store=False))[-1]["response"]["id"]
    events = turn(socket, create("run it", store=False, previous_response_id=first, tools=[SHELL]))
    assert_well_formed(events)
    assert "from the shell" in said(events[-1])
    third = turn(socket, create("and now?", store=False, previous_response_id=events[-1]["response"]["id"]))
    assert third[-1]["type"] == "response.completed"


def test_lanes_run_side_by_side_and_each_in_order(socket: ClientConnection) -> None:
    socket.send(create(script({"sleep_ms": 1500}, say("slow"), say("after slow")), stream_id="slow"))
    socket.send(create(script(say("after it")), stream_id="slow"))
    socket.send(create(script(say("quick")), stream_id="quick"))
    finals: list[tuple[str, str]] = []
    while len(finals) < 3:
        event = json.loads(socket.recv(30))
        if event["type"] == "response.completed":
            finals.append((event["stream_id"], said(event)))
    assert finals == [("quick", "quick"), ("slow", "slow"), ("slow", "after it")]


@by_process
def test_responses_beyond_those_that_run_side_by_side_wait_for_their_turn(socket: ClientConnection) -> None:
    lanes = [f"lane-{number}" for number in range(limits.WEBSOCKET_ACTIVE_MAX + 2)]
    for lane in lanes:
        socket.send(create(script({"sleep_ms": 300}, say("done")), stream_id=lane, store=False))
    running, most, done = set[str](), 0, set[str]()
    while len(done) < len(lanes):
        event = json.loads(socket.recv(30))
        if event["type"] == "response.created":
            running.add(event["stream_id"])
        elif event["type"] == "response.completed":
            running.remove(event["stream_id"])
            done.add(event["stream_id"])
        most = max(most, len(running))
    assert (most, done) == (limits.WEBSOCKET_ACTIVE_MAX, set(lanes))


@by_process
def test_what_waits_is_bounded(socket: ClientConnection) -> None:
    socket.send(create(script({"sleep_ms": 60_000}, say("never")), store=False))
    for _ in range(limits.WEBSOCKET_WAITING_MAX + 2):
        socket.send(create(store=False))
    event = json.loads(socket.recv(30))
    while event["type"] != "error":
        event = json.loads(socket.recv(30))
    assert (event["status"], event["error"]["code"], event["error"]["headers"]) == (429, "rate_limit_exceeded", {"retry-after": "1"})


@by_process
def test_a_connection_has_a_bounded_number_of_stream_ids(socket: ClientConnection) -> None:
    for number in range(limits.WEBSOCKET_STREAM_IDS_MAX):
        turn(socket, create(stream_id=f"lane-{number}", generate=False, store=False))
    assert error_of(turn(socket, create(stream_id="one-too-many"))) == (400, "websocket_stream_limit_reached")
    assert turn(socket, create(stream_id="lane-0"))[-1]["type"] == "response.completed"


@by_process
@pytest.mark.parametrize(
    ("what", "frame", "status", "code"),
    [
        ("no JSON", "{", 400, "invalid_json"),
        ("not an object", "[]", 400, "invalid_json"),
        ("another type", '{"type": "response.cancel"}', 400, "invalid_value"),
        ("no mode of interruption", '{"type": "response.interrupt", "response_id": "r"}', 400, "missing_required_parameter"),
        ("an interruption of nothing", interrupt("resp_0"), 404, "response_not_found"),
        ("a bad stream id", create(stream_id="a b"), 400, "invalid_stream_id"),
        ("the background", create(background=True), 400, "unsupported_value"),
        ("an unknown parameter", create(colour="red"), 400, "unknown_parameter"),
        ("an unknown previous response", create(previous_response_id="resp_0"), 400, "previous_response_not_found"),
    ],
)
def test_a_bad_frame_is_refused_and_the_connection_goes_on(
    socket: ClientConnection, what: str, frame: str, status: int, code: str
) -> None:
    assert error_of(turn(socket, frame)) == (status, code), what
    assert turn(socket, create())[-1]["type"] == "response.completed"


@by_process
def test_a_large_frame_is_read_whole_and_one_that_is_no_utf_8_is_refused(client: OpenAI, socket: ClientConnection) -> None:
    """Their bytes are not decoded for themselves (``net/websocket_server.py``)."""
    text = "é😀" * 50_000
    frame = json.dumps({"type": "response.create", "model": "demo", "input": text}, ensure_ascii=False)
    response = turn(socket, frame)[-1]["response"]
    (message,) = client.responses.input_items.list(response["id"]).data
    assert (response["status"], message.to_dict()["content"]) == ("completed", [{"type": "input_text", "text": text}])
    socket.send(frame.encode().replace("é".encode(), b"\xc3", 1), text=True)
    assert error_of(read_to(socket, "error")) == (400, "invalid_json")
    assert turn(socket, create())[-1]["type"] == "response.completed"


SLOWLY = {"delta_ms": 200}


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"type": "response.cancel"}, "invalid_value"),
        ({}, "missing_required_parameter"),
    ],
    ids=["another type", "no type"],
)
def test_what_is_no_request_is_refused_while_a_response_runs(socket: ClientConnection, frame: dict[str, Any], code: str) -> None:
    socket.send(create(script(SLOWLY, say("word " * 100))))
    response_id = read_to(socket, "response.output_text.delta")[0]["response"]["id"]
    socket.send(json.dumps({**frame, "response_id": response_id}))
    events = read_to(socket, "error")
    assert error_of(events[-1:]) == (400, code)
    socket.send(interrupt(response_id))
    assert read_to(socket, "response.incomplete")[-1]["response"]["id"] == response_id


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
def test_an_interrupted_message_is_dropped_and_can_be_gone_on_from(stack: Stack, socket: ClientConnection, store: bool) -> None:
    socket.send(create(script(SLOWLY, say("word " * 100)), store=store))
    response_id = read_to(socket, "response.output_text.delta")[0]["response"]["id"]
    socket.send(interrupt(response_id))
    ended = read_to(socket, "response.incomplete")[-1]["response"]
    assert (ended["incomplete_details"], ended["output"]) == ({"reason": "interrupted"}, [])
    with stack.http() as http:
        got = http.get(f"/responses/{response_id}")
        assert (got.json() == ended) if store else (got.status_code == 404)
        if store:
            events = http.get(f"/responses/{response_id}", params={"stream": "true", "include_obfuscation": "false"}).text
            assert fold(map(json.loads, re.findall(r"^data: (\{.*)$", events, re.MULTILINE))).output == []
    final = turn(socket, create(script(say("next")), store=store, previous_response_id=response_id))[-1]
    assert said(final) == "next"


def test_an_interrupted_command_is_killed_and_its_call_stays(stack: Stack, socket: ClientConnection) -> None:
    socket.send(create(script(shell("echo begun; sleep 300"), say("never")), tools=[SHELL]))
    response_id = read_to(socket, "response.shell_call_output_content.delta")[0]["response"]["id"]
    socket.send(interrupt(response_id))
    ended = read_to(socket, "response.incomplete")[-1]["response"]
    assert (ended["incomplete_details"], [item["type"] for item in ended["output"]]) == ({"reason": "interrupted"}, ["shell_call"])
    with stack.http() as http:
        assert http.get(f"/responses/{response_id}").json() == ended
    assert said(turn(socket, create(script(say("next")), previous_response_id=response_id))[-1]) == "next"


@by_process
def test_an_interruption_that_comes_after_the_end_changes_nothing(socket: ClientConnection) -> None:
    final = turn(socket, create(script(say("done"))))[-1]
    socket.send(interrupt(final["response"]["id"]))
    assert turn(socket, create(script(say("next"))))[0]["type"] == "response.created"


def test_a_message_that_is_steered_is_finished_first(stack: Stack, socket: ClientConnection) -> None:
    socket.send(create(script(SLOWLY, say("one two three"), say("steered")), stream_id="a", metadata={"kept": "yes"}))
    response_id = read_to(socket, "response.output_text.delta")[0]["response"]["id"]
    socket.send(steer(response_id, "another way"))
    (accepted,) = [event for event in read_to(socket, "response.steer.accepted") if event["type"] == "response.steer.accepted"]
    assert (accepted["steer"]["previous_response_id"], accepted["stream_id"]) == (response_id, "a")
    between = read_to(socket, "response.created")
    (ended,) = [event["response"] for event in between if event["type"] in ("response.completed", "response.incomplete")]
    assert [item["status"] for item in ended["output"]] == ["completed"]
    successor = between[-1]["response"]
    assert (successor["previous_response_id"], successor["metadata"]) == (response_id, {"kept": "yes"})
    final = read_to(socket, "response.completed")[-1]
    assert (said(final), final["stream_id"]) == ("steered", "a")
    with stack.http() as http:
        (message,) = http.get(f"/responses/{successor['id']}/input_items", params={"limit": 1}).json()["data"]
    assert message["content"] == [{"type": "input_text", "text": "another way"}]


def test_a_loop_that_is_steered_ends_behind_the_calls_that_run(socket: ClientConnection) -> None:
    rounds = [shell("echo begun; sleep 2; echo done"), {"sleep_ms": 20_000}, shell("echo never"), say("steered")]
    socket.send(create(script(*rounds), tools=[SHELL]))
    response_id = read_to(socket, "response.shell_call_output_content.delta")[0]["response"]["id"]
    socket.send(steer(response_id, [{"role": "user", "content": [{"type": "input_text", "text": "stop that"}]}]))
    ended = read_to(socket, "response.incomplete")[-1]["response"]
    assert ended["incomplete_details"] == {"reason": "steered"}
    assert [item["type"] for item in ended["output"]][:2] == ["shell_call", "shell_call_output"]
    assert "done" in json.dumps(ended["output"][1])
    assert read_to(socket, "response.created")[-1]["response"]["previous_response_id"] == response_id
    assert read_to(socket, "response.completed")


def test_steering_waits_for_what_the_client_owes(stack: Stack, socket: ClientConnection) -> None:
    tool = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    words = script(SLOWLY, {"call": {"name": "add", "arguments": {"numbers": "2 3 " * 20}}}, say("all"))
    socket.send(create(words, tools=[tool]))
    response_id = read_to(socket, "response.function_call_arguments.delta")[0]["response"]["id"]
    socket.send(steer(response_id, "and be brief"))
    pending = read_to(socket, "response.steer.pending")[-1]
    (stub,) = pending["required_input"]
    assert (pending["reason"], stub["type"], stub["name"]) == ("waiting_for_required_input", "function_call_output", "add")
    output = [{"type": "function_call_output", "call_id": stub["call_id"], "output": "5"}]
    frame = {"type": "response.create", "model": "demo", "previous_response_id": response_id, "input": output}
    for wrong in (5, False, {"role": "user"}):
        assert error_of(turn(socket, json.dumps(frame | {"input": wrong}))) == (400, "invalid_type")
    final = turn(socket, json.dumps(frame))[-1]
    assert said(final) == "all"
    with stack.http() as http:
        path = f"/responses/{final['response']['id']}/input_items"
        items = http.get(path, params={"order": "asc"}).json()["data"]
    assert [item["type"] for item in items][-2:] == ["message", "function_call_output"]


@by_process
def test_steering_that_cannot_be_is_given_back(client: OpenAI, socket: ClientConnection) -> None:
    def failed(frame: str) -> tuple[str, Any]:
        socket.send(frame)
        event = read_to(socket, "response.steer.failed")[-1]
        return event["error"]["code"], event["steer"]["input"]

    assert failed(steer("resp_0", "hi")) == ("response_not_found", "hi")
    ended = turn(socket, create(script(say("done"))))[-1]["response"]["id"]
    assert failed(steer(ended, "hi")) == ("response_already_completed", "hi")
    system = [{"role": "system", "content": "hi"}]
    socket.send(create(script(SLOWLY, say("word " * 100)), conversation=client.conversations.create().id))
    running = read_to(socket, "response.output_text.delta")[0]["response"]["id"]
    assert failed(steer(running, system)) == ("invalid_input", system)
    assert failed(steer(running, "hi")) == ("steering_not_supported", "hi")
    socket.send(interrupt(running))
    assert read_to(socket, "response.incomplete")[-1]["response"]["incomplete_details"] == {"reason": "interrupted"}
    socket.send(create(script(SLOWLY, say("word " * 100))))
    running = read_to(socket, "response.output_text.delta")[0]["response"]["id"]
    for _ in range(limits.WEBSOCKET_STEERS_MAX):
        socket.send(steer(running, "hi"))
    assert failed(steer(running, "one more")) == ("too_many_pending_steers", "one more")
    socket.send(interrupt(running))
    given_back = [read_to(socket, "response.steer.failed")[-1]["error"]["code"] for _ in range(limits.WEBSOCKET_STEERS_MAX)]
    assert set(given_back) == {"response_not_active"}


@by_process
def test_steering_that_was_taken_is_given_back_if_its_response_is_interrupted(socket: ClientConnection) -> None:
    socket.send(create(script(SLOWLY, say("word " * 100))))
    response_id = read_to(socket, "response.output_text.delta")[0]["response"]["id"]
    socket.send(steer(response_id, "hi"))
    accepted = read_to(socket, "response.steer.accepted")[-1]
    socket.send(interrupt(response_id))
    failed = read_to(socket, "response.steer.failed")[-1]
    assert (failed["error"]["code"], failed["steer"]) == ("response_not_active", accepted["steer"] | {"input": "hi"})


def test_a_response_that_fails_says_so_with_a_status(socket: ClientConnection) -> None:
    events = turn(socket, create(script({"fail": {"status": 429, "times": 0}}, say("never"))))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert (events[-2]["status"], events[-2]["error"]["code"]) == (429, "rate_limit_exceeded")


def test_a_client_that_goes_away_cancels_its_response(door: Door, client: OpenAI) -> None:
    with door.connect() as connection:
        connection.send(create(script({"delta_ms": 300}, say("word " * 100))))
        response_id = json.loads(connection.recv(30))["response"]["id"]
        while json.loads(connection.recv(30))["type"] != "response.output_text.delta":
            pass
    status = "in_progress"
    for _ in range(100):
        status = str(client.responses.retrieve(response_id).status)
        if status != "in_progress":
            break
    assert status == "cancelled"


def test_no_key_no_connection(stack: Stack) -> None:
    url = stack.url.replace("http", "ws", 1) + "/responses"
    with pytest.raises(InvalidStatus) as refusal, connect(url, additional_headers={"authorization": "Bearer sk-wrong"}):
        pass
    answer = refusal.value.response
    assert (answer.status_code, json.loads(answer.body or b"{}")["error"]["code"]) == (401, "invalid_api_key")


def test_a_handshake_that_cannot_pass_is_told_so(stack: Stack) -> None:
    with stack.http() as http:
        answer = http.get("/responses", headers={"openai-beta": "responses_websockets=2026-02-06"})
    assert (answer.status_code, answer.headers["upgrade"], answer.json()["error"]["code"]) == (426, "websocket", "upgrade_required")


@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used as a context manager:DeprecationWarning")  # the SDK's own use
def test_the_openai_sdk_speaks_it(stack: Stack) -> None:
    client = stack.client()
    with client.responses.connect() as connection:
        connection.response.create(model="demo", input=script(say("through the SDK")))
        texts = [event.text for event in _until_completed(connection) if event.type == "response.output_text.done"]
    assert texts == ["through the SDK"]


def _until_completed(connection: Any) -> Iterator[Any]:
    for event in connection:
        yield event
        if event.type == "response.completed":
            return


async def test_a_connection_ends_after_its_hour() -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    socket = WebSocket({"type": "websocket", "headers": [], "path": "/v1/responses"}, receive, send)
    bounds: Any = {"admit": len, "is_known": len, "seconds_max": 0.01}
    connected = asyncio.create_task(Connection(cast("Any", None), "default", _accepted(socket), **bounds).serve())
    await connected
    error = json.loads(sent[0]["text"])
    assert (error["type"], error["status"], error["error"]["code"]) == ("error", 400, "websocket_connection_limit_reached")
    assert sent[1]["type"] == "websocket.close"


async def test_a_client_that_leaves_amid_refusals_ends_its_connection_quietly() -> None:
    frames: list[dict[str, Any]] = [{"type": "websocket.receive", "text": "no JSON"}] * 3 + [
        {"type": "websocket.disconnect", "code": 1006}
    ]

    async def receive() -> dict[str, Any]:
        return frames.pop(0)

    async def send(message: Any) -> None:
        raise OSError("the client has gone")

    socket = WebSocket({"type": "websocket", "headers": [], "path": "/v1/responses"}, receive, send)
    bounds: Any = {"admit": len, "is_known": len}
    await Connection(cast("Any", None), "default", _accepted(socket), **bounds).serve()
    assert frames == []


def _accepted(socket: WebSocket) -> WebSocket:
    socket.client_state = socket.application_state = WebSocketState.CONNECTED
    return socket


def test_plain_http_upgrades_elsewhere_are_not_found(stack: Stack) -> None:
    with (
        pytest.raises(InvalidStatus) as refusal,
        connect(stack.url.replace("http", "ws", 1) + "/nothing", additional_headers={"authorization": f"Bearer {stack.key}"}),
    ):
        pass
    assert refusal.value.response.status_code in (403, 404)
    assert httpx.get(f"{stack.url}/nothing", headers={"authorization": f"Bearer {stack.key}"}).status_code == 404
