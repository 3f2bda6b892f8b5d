"""Frames of the WebSocket: what clients send, and what is sent to them beside a stream."""

import json

from websockets.sync.client import ClientConnection, connect

from tests.contract.effects.world import Json, World, row
from tests.stack import say, script

_SLOWLY = {"delta_ms": 200}


@row(
    "frame",
    "response.create",
    "response.interrupt",
    "response.inject",
    "response.inject.created",
    "response.inject.failed",
    "response.steer",
    "response.steer.accepted",
    "response.steer.pending",
    "response.steer.failed",
    "error",
)
def frames(world: World) -> None:
    url, headers = world.stack.url.replace("http", "ws", 1) + "/responses", {"authorization": f"Bearer {world.stack.key}"}
    with connect(url, additional_headers=headers | {"openai-beta": "responses_multi_agent=v1"}, max_size=None) as socket:
        running = _create(socket, script(_SLOWLY, {"call": {"name": "look", "arguments": {"at": "all " * 20}}}))
        _send(socket, {"type": "response.steer", "previous_response_id": running, "input": "Not there."})
        assert _next(socket, "response.steer.accepted")["steer"]["previous_response_id"] == running
        assert [each["type"] for each in _next(socket, "response.steer.pending")["required_input"]] == ["function_call_output"]
        _send(socket, {"type": "response.steer", "previous_response_id": running, "input": "Late."})
        assert _next(socket, "response.steer.failed")["error"]["code"] == "response_already_completed"
        _send(socket, {"type": "response.interrupt", "response_id": "resp_0", "mode": "discard_partial_items"})
        assert _next(socket, "error")["status"] == 404
        running = _create(socket, script(_SLOWLY, say("word " * 100)))
        _send(socket, {"type": "response.interrupt", "response_id": running, "mode": "discard_partial_items"})
        assert _next(socket, "response.incomplete")["response"]["incomplete_details"] == {"reason": "interrupted"}
        look = {"call": {"name": "look", "arguments": {}}}
        running = _create(socket, script(look, say("Done.")), multi_agent={"enabled": True})
        call = _next(socket, "response.output_item.done")["item"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "A crane."}
        inject = {"type": "response.inject", "response_id": running, "input": [output]}
        _send(socket, inject)
        assert _next(socket, "response.inject.created")["response_id"] == running
        assert [item["type"] for item in _next(socket, "response.completed")["response"]["output"]][1] == "function_call_output"
        _send(socket, inject)
        assert _next(socket, "response.inject.failed")["error"]["code"] == "response_already_completed"


def _create(socket: ClientConnection, text: str, **others: Json) -> str:
    """The id of a response that has begun to say something."""
    look: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    _send(socket, {"type": "response.create", "model": "demo", "input": text, "tools": [look], **others})
    response_id: str = _next(socket, "response.created")["response"]["id"]
    _next(socket, "response.output_item.added")
    return response_id


def _send(socket: ClientConnection, frame: Json) -> None:
    socket.send(json.dumps(frame))


def _next(socket: ClientConnection, type_: str) -> Json:
    while True:
        event: Json = json.loads(socket.recv(30))
        if event["type"] == type_:
            return event
