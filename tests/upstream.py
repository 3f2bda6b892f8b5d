"""A mock model upstream on 127.0.0.1 that speaks ``/v1/chat/completions`` and ``/v1/responses``, as a test or a script tells it.

In a test::

    with MockUpstream() as upstream:
        upstream.plays(called_shell("ls"), said("Two files."))
        ...                                   # ask upstream.url with the model of your choice
        assert upstream.requests[0].body["stream"] is True

Replies are played in order, one per request; a request for a model with a list of its own (``plays(..., model="m")``) takes from
that one. When none is left, ``fallback`` answers. As a program it serves the fallback for ever::

    python tests/upstream.py --port 9000 --deltas 50 --delay-ms 0
"""

import argparse
import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import uvicorn


@dataclass(frozen=True)
class Call:
    """One tool call; ``kind`` is ``function``, or ``shell`` or ``custom`` for the calls of native tools (Responses only)."""

    name: str
    arguments: str
    call_id: str = "call_1"
    kind: str = "function"


@dataclass(frozen=True)
class Reply:
    """One answer. Times in seconds."""

    text: tuple[str, ...] = ()
    """The deltas of one message."""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    encrypted_content: str | None = None
    finish: str = "stop"
    """``stop``, ``length`` or ``content_filter``."""
    is_logged: bool = False
    """Each delta has a log probability (Responses only)."""
    service_tier: str | None = None
    """The tier that it was answered in."""
    usage: Mapping[str, int] = field(default_factory=lambda: {"input": 11, "cached": 3, "output": 7, "reasoning": 2})
    wait: float = 0.0
    """Before the status line."""
    delay: float = 0.0
    """Before each event."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent in place of an answer."""
    pieces: tuple[bytes, ...] = ()
    """The same, as a stream of these pieces."""
    is_cut: bool = False
    """The connection closes after ``body`` or ``pieces``, as if more were to come."""
    stops_after: int | None = None
    """The connection closes after so many events."""
    hangs_after: int | None = None
    """Nothing more comes after so many events."""


@dataclass(frozen=True)
class Request:
    """What the upstream was asked."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    client_port: int
    """Names the connection."""

    @property
    def model(self) -> str:
        """Converse has the model's name in its path."""
        return str(self.body.get("model") or self.path.removeprefix("/model/").partition("/")[0])


# --- constructors that read like a transcript ------------------------------------------------------------------------------------


def said(text: str, *, deltas: int = 3, **fields: Any) -> Reply:
    """A message in about so many deltas."""
    size = max(1, -(-len(text) // deltas))
    return Reply(text=tuple(text[start : start + size] for start in range(0, len(text), size)), **fields)


def called(name: str, arguments: Any = None, *, call_id: str = "call_1", **fields: Any) -> Reply:
    return Reply(calls=(Call(name, json.dumps(arguments or {}), call_id),), **fields)


def called_shell(*commands: str, call_id: str = "call_1", **fields: Any) -> Reply:
    """The function ``shell``, as an upstream that has no shell of its own is offered it."""
    return called("shell", {"commands": list(commands)}, call_id=call_id, **fields)


def called_all(*replies: Reply, **fields: Any) -> Reply:
    """Several calls in one turn, with call ids of their own."""
    calls = [call for reply in replies for call in reply.calls]
    return Reply(calls=tuple(replace(call, call_id=f"call_{n}") for n, call in enumerate(calls, 1)), **fields)


def refused(status: int, message: str = "refused", *, code: str | None = None, retry_after: float | None = None) -> Reply:
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": code}}).encode()
    return Reply(status=status, headers=headers, body=body)


def garbage(body: bytes = b"<html>It works!</html>", content_type: str = "text/html") -> Reply:
    return Reply(body=body, headers={"content-type": content_type})


def hung(after: int = 0) -> Reply:
    return said("This will never be said to its end.", hangs_after=after)


def broken(after: int = 4) -> Reply:
    return said("This will be cut off in the middle.", deltas=8, stops_after=after)


_FOREIGN = ("/messages", "/converse-stream")
"""Paths of protocols that this server does not speak: a reply there has a ``body``."""

# --- the server ------------------------------------------------------------------------------------------------------------------


class MockUpstream:
    """Serves on its own thread, so that blocking clients can be tested too."""

    def __init__(self, *, port: int = 0, fallback: Reply | None = None, paths: str = "/v1", records: bool = True) -> None:
        self._records = records
        self._encodings: dict[tuple[int, str, str], list[bytes]] = {}
        self.fallback = fallback or said("The mock upstream has nothing more to say.")
        self.requests: list[Request] = []
        self._replies: dict[str | None, deque[Reply]] = {}
        self._paths = paths
        # asyncio switches Nagle's algorithm off only where the protocol is named; with it, each answer would take 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}{paths}"
        config = uvicorn.Config(
            self._app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, loop="asyncio", interface="asgi3"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def plays(self, *replies: Reply, model: str | None = None) -> None:
        """Queue replies, for one model or for all."""
        self._replies.setdefault(model, deque()).extend(replies)

    def forget(self) -> None:
        """Drop the replies that are still queued."""
        self._replies.clear()

    def __enter__(self) -> "MockUpstream":
        self._thread.start()
        while not self._server.started:  # The socket listens as soon as this is set; it takes milliseconds.
            threading.Event().wait(0.002)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    def serve_forever(self) -> None:
        """For the command line: on this thread, until Ctrl-C."""
        self._run()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def reply_to(self, request: Request) -> Reply:
        for name in (request.model, None):
            replies = self._replies.get(name)
            if replies:
                return replies.popleft()
        return self.fallback

    async def _app(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        path = scope["path"].removeprefix(self._paths)
        body = await _read(receive)
        if scope["method"] == "GET" and path == "/models":
            await _answer(send, 200, {}, json.dumps({"object": "list", "data": [{"id": "mock", "object": "model"}]}).encode())
            return
        if scope["method"] == "GET" and path == "/api/tags":
            await _answer(send, 200, {}, b'{"models": [{"name": "mock:8b"}]}')  # As Ollama lists its models.
            return
        if not path.endswith(("/chat/completions", "/responses", *_FOREIGN)):
            await _answer(send, 404, {}, b'{"error": {"message": "no such path", "type": "invalid_request_error"}}')
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Request(path, headers, json.loads(body), scope["client"][1])
        if self._records:
            self.requests.append(request)
        reply = self.reply_to(request)
        await asyncio.sleep(reply.wait)
        if reply.body is not None:
            await _answer(send, reply.status, reply.headers, reply.body, is_cut=reply.is_cut)
            return
        if reply.pieces:
            stops_after = len(reply.pieces) if reply.is_cut else None
            await _stream(receive, send, replace(reply, stops_after=stops_after), [*reply.pieces, b""])
            return
        if request.body.get("stream"):
            await _stream(receive, send, reply, self._encoded(reply, request))
            return
        await _answer(send, 200, reply.headers, json.dumps(_whole(_events(reply, request), path)).encode())

    def _encoded(self, reply: Reply, request: Request) -> list[bytes]:
        """The fallback is encoded once: a benchmark measures others, not this."""
        key = (id(reply), request.path, json.dumps([request.body.get("model"), request.body.get("stream_options")]))
        if reply is not self.fallback:
            return encoded(_events(reply, request), request.path)
        if key not in self._encodings:
            self._encodings[key] = encoded(_events(reply, request), request.path)
        return self._encodings[key]


def _events(reply: Reply, request: Request) -> list[dict[str, Any]]:
    make = chat_events if request.path == "/chat/completions" else responses_events
    return make(reply, request.body)


async def _read(receive: Callable[[], Any]) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _answer(send: Callable[[Any], Any], status: int, headers: Mapping[str, str], body: bytes, *, is_cut: bool = False) -> None:
    named = {"content-type": "application/json"} | dict(headers)
    await send({"type": "http.response.start", "status": status, "headers": [(k.encode(), v.encode()) for k, v in named.items()]})
    await send({"type": "http.response.body", "body": body, "more_body": is_cut})


async def _stream(receive: Callable[[], Any], send: Callable[[Any], Any], reply: Reply, events: list[bytes]) -> None:
    headers = {"content-type": "text/event-stream"} | dict(reply.headers)
    await send({"type": "http.response.start", "status": 200, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]})
    async for event in _paced(events, reply.delay):
        number, data = event
        if number == reply.hangs_after:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if number == reply.stops_after:
            return  # Without the last chunk: the server cuts the connection.
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _paced(events: list[bytes], delay: float) -> AsyncIterator[tuple[int, bytes]]:
    for number, event in enumerate(events):
        if delay:
            await asyncio.sleep(delay)
        yield number, event


def encoded(events: list[dict[str, Any]], path: str) -> list[bytes]:
    if path == "/responses":
        return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]


# --- Chat Completions ------------------------------------------------------------------------------------------------------------


def chat_events(reply: Reply, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The chunks of one streamed answer."""
    frame = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", "mock")}
    if reply.service_tier is not None:
        frame["service_tier"] = reply.service_tier
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.reasoning:
        deltas.append({"reasoning_content": reply.reasoning})
    deltas += [{"content": piece} for piece in reply.text]
    for index, call in enumerate(reply.calls):
        head = {"index": index, "id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in _halves(call.arguments)]
    chunks = [frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    finish = "tool_calls" if reply.calls and reply.finish == "stop" else reply.finish
    chunks.append(frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append(frame | {"choices": [], "usage": _chat_usage(reply)})
    return chunks


def _chat_usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": usage["input"],
        "completion_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage["cached"]},
        "completion_tokens_details": {"reasoning_tokens": usage["reasoning"]},
    }


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


# --- Responses -------------------------------------------------------------------------------------------------------------------


def responses_events(reply: Reply, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of one streamed answer, in the recorded order of the live API."""
    response = {"id": "resp_mock", "object": "response", "created_at": 1, "model": body.get("model", "mock"), "output": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response | {"status": "in_progress"}},
        {"type": "response.in_progress", "response": response | {"status": "in_progress"}},
    ]
    output: list[dict[str, Any]] = []
    if reply.reasoning or reply.encrypted_content:
        events += _reasoning_events(reply, output)
    if reply.text:
        events += _message_events(reply, output)
    for call in reply.calls:
        events += _shell_events(call, output) if call.kind == "shell" else _text_call_events(call, output)
    status = "completed" if reply.finish == "stop" else "incomplete"
    details = {"length": {"reason": "max_output_tokens"}, "content_filter": {"reason": "content_filter"}}.get(reply.finish)
    done = response | {"status": status, "incomplete_details": details, "output": output, "usage": _responses_usage(reply)}
    if reply.service_tier is not None:
        done["service_tier"] = reply.service_tier
    events.append({"type": f"response.{status}", "response": done})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _reasoning_events(reply: Reply, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    index = len(output)
    item = {"id": f"rs_{index}", "type": "reasoning", "summary": [], "encrypted_content": "partial"}
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    part = {"type": "summary_text", "text": reply.reasoning}
    events = [{"type": "response.output_item.added", "output_index": index, "item": item}]
    if reply.reasoning:
        events += [
            {"type": "response.reasoning_summary_part.added", **place, "part": part | {"text": ""}},
            *({"type": "response.reasoning_summary_text.delta", **place, "delta": d} for d in _halves(reply.reasoning)),
            {"type": "response.reasoning_summary_text.done", **place, "text": reply.reasoning},
            {"type": "response.reasoning_summary_part.done", **place, "part": part},
        ]
    done = item | {"summary": [part] if reply.reasoning else [], "encrypted_content": reply.encrypted_content}
    output.append(done)
    return [*events, {"type": "response.output_item.done", "output_index": index, "item": done}]


def _message_events(reply: Reply, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    index, pieces = len(output), reply.text
    logged = [[_logprob(piece)] if reply.is_logged else [] for piece in pieces]
    item = {"id": f"msg_{index}", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    part = {"type": "output_text", "annotations": [], "logprobs": [one for some in logged for one in some], "text": "".join(pieces)}
    done = item | {"status": "completed", "content": [part]}
    output.append(done)
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        *(
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": logprobs}
            for piece, logprobs in zip(pieces, logged, strict=True)
        ),
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": part["logprobs"]},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def _logprob(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.5, "bytes": [*token.encode()], "top_logprobs": []}


def _text_call_events(call: Call, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a function or of a custom tool."""
    index, is_custom = len(output), call.kind == "custom"
    type_, event, name = ("custom_tool_call", "custom_tool_call_input", "input") if is_custom else _FUNCTION
    head = {"id": f"{type_}_{index}", "type": type_, "status": "in_progress", "call_id": call.call_id, "name": call.name}
    place = {"item_id": head["id"], "output_index": index}
    done = head | {"status": "completed", name: call.arguments}
    output.append(done)
    return [
        {"type": "response.output_item.added", "output_index": index, "item": head | {name: ""}},
        *({"type": f"response.{event}.delta", **place, "delta": d} for d in _halves(call.arguments)),
        {"type": f"response.{event}.done", **place, name: call.arguments},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


_FUNCTION = ("function_call", "function_call_arguments", "arguments")


def _shell_events(call: Call, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    index = len(output)
    action = {"timeout_ms": None, "max_output_length": None} | json.loads(call.arguments)
    head = {"id": f"sh_{index}", "type": "shell_call", "status": "in_progress", "call_id": call.call_id}
    done = head | {"status": "completed", "action": action, "environment": {"type": "local"}}
    output.append(done)
    return [
        {"type": "response.output_item.added", "output_index": index, "item": head | {"action": action | {"commands": []}}},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def _responses_usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "input_tokens": usage["input"],
        "input_tokens_details": {"cached_tokens": usage["cached"], "cache_write_tokens": 0},
        "output_tokens": usage["output"],
        "output_tokens_details": {"reasoning_tokens": usage["reasoning"]},
        "total_tokens": usage["input"] + usage["output"],
    }


def _whole(events: list[dict[str, Any]], path: str) -> dict[str, Any]:
    """The answer to a request that did not ask for a stream."""
    if path == "/responses":
        return dict(events[-1]["response"])
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        delta = choice["delta"]
        if delta.get("content"):
            message["content"] = (message["content"] or "") + delta["content"]
        for call in delta.get("tool_calls", []):
            known = calls.setdefault(call["index"], {"id": call.get("id"), "type": "function", "function": {"arguments": ""}})
            known["function"]["name"] = call["function"].get("name", known["function"].get("name"))
            known["function"]["arguments"] += call["function"]["arguments"]
    if calls:
        message["tool_calls"] = list(calls.values())
    finish = next(c["finish_reason"] for e in reversed(events) for c in e["choices"] if c["finish_reason"])
    frame = events[0] | {"object": "chat.completion"}
    return frame | {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def main() -> None:
    parser = argparse.ArgumentParser(description="A mock model upstream on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--deltas", type=int, default=50)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    text = tuple(f"word{number} " for number in range(options.deltas))
    upstream = MockUpstream(port=options.port, fallback=Reply(text=text, delay=options.delay_ms / 1000), records=False)
    print(upstream.url, flush=True)
    upstream.serve_forever()


if __name__ == "__main__":
    main()
