"""How an answer ends that did not end well: every cell of the table in ``docs/endings.md``, played from outside."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from json import dumps, loads
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.sync.client import connect

from tests.stack import ROOT, SHELL, Stack
from tests.upstream import MockUpstream, Reply, said

SENTENCE = "worker 7 gave up"
WHOLE = "All is well."
PAY: Any = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}}}
OFFER: Any = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"], "additionalProperties": False}
FORMAT: Any = {"name": "offer", "schema": OFFER, "strict": True}
OFFERED = '{"price": 1}'
CHAT_PAY: Any = {"type": "function", "function": {"name": "pay", "parameters": PAY["parameters"]}}

# --- what a model's server did ------------------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    return f"data: {dumps({'choices': [{'index': 0, 'delta': delta or {}, 'finish_reason': finish}], **more})}\n\n".encode()


def words(text: str) -> bytes:
    return chunk({"content": text})


def call(name: str, arguments: str, index: int = 0) -> bytes:
    function = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})


DONE = b"data: [DONE]\n\n"
ERROR = f"data: {dumps({'error': {'message': SENTENCE, 'code': 503}})}\n\n".encode()
HALF_SHELL = call("shell", '{"commands": ["ls /mn')
HALF_PAY = call("pay", '{"amount": 1')
EVENTS = {"content-type": "text/event-stream"}


def cut(*pieces: bytes) -> Reply:
    return Reply(body=b"".join(pieces), headers=EVENTS, is_cut=True)


def ended(*pieces: bytes) -> Reply:
    return Reply(body=b"".join(pieces), headers=EVENTS)


def slowly(finish: str | None = None, *events: bytes) -> Reply:
    """Words that everybody has seen before it ends badly."""
    tail = (chunk(finish=finish), DONE) if finish else events
    return Reply(pieces=(words("Let me "), words("look."), *tail), delay=0.3, is_cut=not tail)


DEEDS: dict[str, tuple[Reply, ...]] = {
    "cut before its first word": (cut(),),
    "cut inside its reasoning": (cut(chunk({"reasoning_content": "Let me th"})),),
    "cut inside its text": (slowly(),),
    "cut inside a call": (cut(HALF_PAY),),
    "cut inside a call, after words": (cut(words("Let me look."), HALF_PAY),),
    "cut inside a hosted call, after words": (cut(words("Let me look."), HALF_SHELL),),
    "cut inside a second call": (cut(call("pay", '{"amount": 1}'), call("pay", '{"amount": 2', 1)),),
    "an error object before its first word": (ended(ERROR),),
    "an error object after words": (slowly(None, ERROR, DONE),),
    "an error object after words, every time": (slowly(None, ERROR, DONE),) * 12,
    "an error object inside a call": (ended(HALF_PAY, ERROR, DONE),),
    "finish reason `error`": (slowly("error"),),
    "an unknown finish reason": (slowly("banana"),),
    "finish reason `length` inside a call": (ended(HALF_PAY, chunk(finish="length"), DONE),),
    "finish reason `content_filter` after words": (slowly("content_filter"),),
    "`[DONE]` and nothing else": (ended(DONE),),
    "a JSON error as the body": (ended(dumps({"error": {"message": SENTENCE, "code": 503}}).encode()),),
    "arguments that are no JSON": (ended(HALF_PAY, chunk(finish="tool_calls"), DONE),),
    "JSON that does not fit its schema": (said('{"price": "one"}'),),
    "JSON that does not fit its schema, every time": (said('{"price": "one"}'),) * 2,
    "words in place of JSON": (said("Sure! Here is your offer."),),
    "usage written as text": (
        ended(words(WHOLE), chunk(finish="stop", usage={"prompt_tokens": "12", "completion_tokens": "3"}), DONE),
    ),
}
WANTS_JSON = frozenset(deed for deed in DEEDS if "JSON" in deed and deed[0] in "Jw")
"""What was asked for has a schema."""
CUT = "The connection to the model upstream failed"
TOLD = {
    "an error object after words": SENTENCE,
    "an error object after words, every time": SENTENCE,
    "an unknown finish reason": "it ended with the reason 'banana'",
    "finish reason `error`": "it ended with the reason 'error'",
    "arguments that are no JSON": "broke off after its beginning was sent",
    "JSON that does not fit its schema": "The model's answer does not fit the schema at $.price: expected number, found string.",
    "JSON that does not fit its schema, every time": "does not fit the schema at $.price: expected number, found string.",
} | dict.fromkeys((deed for deed in DEEDS if deed.startswith("cut")), CUT)
"""What a failure says, where there is one."""

# --- who asked -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """What the caller sees."""

    status: str
    text: str = ""
    calls: tuple[str, ...] = ()
    message: str = ""


def _of_response(response: dict[str, Any]) -> End:
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    calls = tuple(item["arguments"] for item in response["output"] if item["type"] == "function_call")
    return End(response["status"], " ".join(texts), calls, (response["error"] or {}).get("message", ""))


def _of_error(error: openai.APIError, text: str = "") -> End:
    body: Any = error.body
    return End("failed", text, message=str(body["message"]))


def foreground(stack: Stack, model: str, *, wants_json: bool) -> End:
    try:
        return _of_response(stack.client().responses.create(**_asked(model, wants_json)).model_dump())
    except openai.APIError as error:
        return _of_error(error)


def stream(stack: Stack, model: str, *, wants_json: bool) -> End:
    try:
        events: list[Any] = list(stack.client().responses.create(**_asked(model, wants_json), stream=True))
    except openai.APIError as error:
        return _of_error(error)
    return _of_response(events[-1].response.model_dump())


def background(stack: Stack, model: str, *, wants_json: bool) -> End:
    client = stack.client()
    response = client.responses.create(**_asked(model, wants_json), background=True)
    deadline = time.monotonic() + 60
    while (response := client.responses.retrieve(response.id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline, response
        time.sleep(0.05)
    return _of_response(response.model_dump())


def chat(stack: Stack, model: str, *, wants_json: bool) -> End:
    try:
        answer = stack.client().chat.completions.create(**_asked_in_chat(model, wants_json), tools=CHAT_TOOLS)
    except openai.APIError as error:
        return _of_error(error)
    (choice,) = answer.choices
    calls: Any = choice.message.tool_calls or ()
    return End(_CHAT[choice.finish_reason], choice.message.content or "", tuple(call.function.arguments for call in calls))


def chat_stream(stack: Stack, model: str, *, wants_json: bool) -> End:
    """Without a hosted tool, so that words are shown as they come."""
    text, finish = "", ""
    calls: dict[int, str] = {}
    try:
        for piece in stack.client().chat.completions.create(**_asked_in_chat(model, wants_json), tools=[CHAT_PAY], stream=True):
            for choice in piece.choices:
                text, finish = text + (choice.delta.content or ""), choice.finish_reason or finish
                for call in choice.delta.tool_calls or ():
                    calls[call.index] = calls.get(call.index, "") + (call.function.arguments or "" if call.function else "")
    except openai.APIError as error:
        return _of_error(error, text)
    return End(_CHAT[finish], text, tuple(calls.values()))


def websocket(stack: Stack, model: str, *, wants_json: bool) -> End:
    headers = {"authorization": f"Bearer {stack.key}"}
    with connect(stack.url.replace("http", "ws", 1) + "/responses", additional_headers=headers) as connection:
        connection.send(dumps({"type": "response.create"} | _asked(model, wants_json)))
        while (event := loads(connection.recv(60)))["type"] not in _LAST:
            pass
    return End("failed", message=event["error"]["message"]) if event["type"] == "error" else _of_response(event["response"])


TOOLS: Any = [SHELL, PAY]
CHAT_TOOLS: Any = [SHELL, CHAT_PAY]
ASKED: Any = [{"role": "user", "content": "go"}]
_CHAT = {"stop": "completed", "tool_calls": "completed", "length": "incomplete", "content_filter": "incomplete"}
_LAST = ("response.completed", "response.failed", "response.incomplete", "error")


def _asked(model: str, wants_json: bool) -> dict[str, Any]:
    text = {"text": {"format": {"type": "json_schema"} | FORMAT}} if wants_json else {}
    return {"model": model, "input": "go", "tools": TOOLS} | text


def _asked_in_chat(model: str, wants_json: bool) -> dict[str, Any]:
    form = {"response_format": {"type": "json_schema", "json_schema": FORMAT}} if wants_json else {}
    return {"model": model, "messages": ASKED} | form


DOORS: dict[str, Callable[..., End]] = {
    "Foreground": foreground,
    "Stream": stream,
    "Background": background,
    "Chat completions": chat,
    "Chat stream": chat_stream,
    "WebSocket": websocket,
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockUpstream]:
    with MockUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream: MockUpstream) -> Iterator[Stack]:
    """A stack with a model for each door, so that all doors are tried side by side."""
    state_dir = Path(tmp_path_factory.mktemp("endings"))
    models = state_dir / "models.toml"
    models.write_text(
        "".join(
            f'[[models]]\nname = "{name}"\nprovider = "chat_completions"\nbase_url = "{upstream.url}"\n\n'
            for name in map(_model, DOORS)
        )
    )
    running = Stack(state_dir, {"MOORAGE_MODELS_FILE": str(models)}).start()
    yield running
    assert running.stop() == 0


def _model(door: str) -> str:
    return door.lower().replace(" ", "-")


# --- the table ------------------------------------------------------------------------------------------------------------------------


def table() -> dict[str, dict[str, str]]:
    """What ``docs/endings.md`` says: by deed and door, the end."""
    rows = [line for line in (ROOT / "docs/endings.md").read_text().splitlines() if line.startswith("| ")]
    head, *body = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert head[1:] == list(DOORS)
    return {deed: dict(zip(DOORS, cells, strict=True)) for deed, *cells in body}


ENDS = table()


def test_the_table_has_every_deed() -> None:
    assert list(ENDS) == list(DEEDS)


@pytest.mark.parametrize("deed", DEEDS)
def test_an_answer_ends_as_the_table_says(served: Stack, upstream: MockUpstream, deed: str) -> None:
    def play(door: str) -> tuple[End, int]:
        upstream.plays(*DEEDS[deed], said(OFFERED if deed in WANTS_JSON else WHOLE), model=_model(door))
        end = DOORS[door](served, _model(door), wants_json=deed in WANTS_JSON)
        return end, sum(request.body["model"] == _model(door) for request in upstream.requests)

    upstream.requests.clear()
    with ThreadPoolExecutor(len(DOORS)) as pool:
        found = dict(zip(DOORS, pool.map(play, DOORS), strict=True))
    upstream.forget()
    assert {door: _named(deed, *ended) for door, ended in found.items()} == ENDS[deed]


def _named(deed: str, end: End, requests: int) -> str:
    """In the table's words; what fits none of them is told as it is."""
    match end:
        case End("completed", text, (), "") if requests == 2 and text.endswith(WHOLE) and text.count("Let me") <= 1:
            return "asked again"
        case End("completed", text, (), "") if requests == 2 and text == OFFERED:
            return "asked again"
        case End("completed", text, (), "") if (requests, text) == (1, WHOLE):
            return "completed"
        case End("completed", "", ('{"amount": 1}',), "") if requests == 1:
            return "first call kept"
        case End("incomplete", "" | "Let me look.", _, "") if requests == 1:
            return "incomplete"
        case End("failed", "" | "Let me look." | '{"price": "one"}', (), message) if TOLD.get(deed, "?") in message:
            return "failed"
    return f"{end}, asked {requests} times"
