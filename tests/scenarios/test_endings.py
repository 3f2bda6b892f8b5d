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

from tests.scenarios.provider_streams import PROVIDERS, SENTENCE, Words
from tests.stack import ROOT, SHELL, Stack
from tests.upstream import MockUpstream, Reply

WHOLE = "All is well."
PAY: Any = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}}}
OFFER: Any = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"], "additionalProperties": False}
FORMAT: Any = {"name": "offer", "schema": OFFER, "strict": True}
OFFERED = '{"price": 1}'
CHAT_PAY: Any = {"type": "function", "function": {"name": "pay", "parameters": PAY["parameters"]}}

# --- what a model's server did ------------------------------------------------------------------------------------------------------

HALF = '{"amount": 1'
ECHO = '{"commands": ["echo ran $((6 * 7))"]}'
Deed = Callable[[Words], Reply]
DEEDS: dict[str, Deed] = {
    "cut before its first word": lambda its: its.cut(),
    "cut inside its reasoning": lambda its: its.cut(its.thinks("Let me th")),
    "cut after its reasoning": lambda its: its.cut(its.thinks("Let me think."), its.thought_ends("Let me think.")),
    "cut inside its text": lambda its: its.slowly(is_cut=True),
    "cut after its text, before its end": lambda its: its.slowly(its.text_ends("Let me look."), is_cut=True),
    "cut inside a call": lambda its: its.cut(its.half_call("pay", HALF)),
    "cut inside a call, after words": lambda its: its.cut(*_looks(its), its.half_call("pay", HALF, 1)),
    "cut inside a hosted call": lambda its: its.cut(its.half_call("shell", '{"commands": ["ls /mn')),
    "cut inside a hosted call, after words": lambda its: its.cut(*_looks(its), its.half_call("shell", '{"commands": ["ls /mn', 1)),
    "cut after a call": lambda its: its.cut(its.half_call("pay", HALF + "}"), its.call_ends("pay", HALF + "}")),
    "cut after a hosted call": lambda its: its.cut(its.half_call("shell", ECHO), its.call_ends("shell", ECHO)),
    "cut inside a second call": lambda its: its.cut(
        its.half_call("pay", HALF + "}"), its.call_ends("pay", HALF + "}"), its.half_call("pay", '{"amount": 2', 1)
    ),
    "an error object before its first word": lambda its: its.ended(its.error()),
    "an error object after words": lambda its: its.slowly(its.error()),
    "an error object after a whole text": lambda its: its.slowly(its.text_ends("Let me look."), its.error()),
    "an error object after words, every time": lambda its: its.slowly(its.error()),
    "an error object inside a call": lambda its: its.ended(its.half_call("pay", HALF), its.error()),
    "finish reason `error`": lambda its: its.slowly(its.text_ends("Let me look."), its.ends("error")),
    "an unknown finish reason": lambda its: its.slowly(its.text_ends("Let me look."), its.ends("banana")),
    "finish reason `length` inside a call": lambda its: its.ended(its.half_call("pay", HALF), its.ends("length")),
    "finish reason `content_filter` after words": lambda its: its.slowly(its.text_ends("Let me look."), its.ends("content_filter")),
    "`[DONE]` and nothing else": lambda its: Reply(body=b"data: [DONE]\n\n", headers=its.headers),
    "a JSON error as the body": lambda its: Reply(body=dumps(its.bare_error).encode(), headers=its.headers),
    "arguments that are no JSON": lambda its: its.ended(its.half_call("pay", HALF), its.call_ends("pay", HALF), its.ends("tool_calls")),
    "JSON that does not fit its schema": lambda its: its.said('{"price": "one"}'),
    "JSON that does not fit its schema, every time": lambda its: its.said('{"price": "one"}'),
    "words in place of JSON": lambda its: its.said("Sure! Here is your offer."),
    "usage written as text": lambda its: its.ended(
        *its.says(WHOLE), its.text_ends(WHOLE), its.ends("stop", {"input": "12", "output": "3"})
    ),
}
TIMES = {"an error object after words, every time": 12, "JSON that does not fit its schema, every time": 2}
"""How often it is done, where that is more than once."""


def _looks(its: Words) -> list[bytes]:
    return [*its.says("Let me look."), its.text_ends("Let me look.")]


WANTS_JSON = frozenset(deed for deed in DEEDS if "JSON" in deed and deed[0] in "Jw")
"""What was asked for has a schema."""
CUT = "The connection to the model upstream failed"
TOLD = {
    "an error object after words": SENTENCE,
    "an error object after a whole text": SENTENCE,
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


@dataclass(frozen=True)
class Play:
    """What the model's server does, and the hosted tool that it is offered."""

    deed: str
    shell: Any

    @classmethod
    def of(cls, deed: str, client: openai.OpenAI) -> "Play":
        """Whoever does not run a command is offered that of one container: each of its own would be a sandbox that nobody uses."""
        if "hosted" in deed:
            return cls(deed, SHELL)
        place = {"type": "container_reference", "container_id": client.containers.create(name="offered").id}
        return cls(deed, SHELL | {"environment": place})


def foreground(stack: Stack, model: str, play: Play) -> End:
    try:
        return _of_response(stack.client().responses.create(**_asked(model, play)).model_dump())
    except openai.APIError as error:
        return _of_error(error)


def stream(stack: Stack, model: str, play: Play) -> End:
    try:
        with stack.client().responses.create(**_asked(model, play), stream=True) as seen:
            events: list[Any] = list(seen)
    except openai.APIError as error:
        return _of_error(error)
    return _of_response(events[-1].response.model_dump())


def background(stack: Stack, model: str, play: Play) -> End:
    client = stack.client()
    response = client.responses.create(**_asked(model, play), background=True)
    deadline = time.monotonic() + 60
    while (response := client.responses.retrieve(response.id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline, response
        time.sleep(0.05)
    return _of_response(response.model_dump())


def chat(stack: Stack, model: str, play: Play) -> End:
    try:
        answer = stack.client().chat.completions.create(**_asked_in_chat(model, play), tools=[play.shell, CHAT_PAY])
    except openai.APIError as error:
        return _of_error(error)
    (choice,) = answer.choices
    calls: Any = choice.message.tool_calls or ()
    return End(_CHAT[choice.finish_reason], choice.message.content or "", tuple(call.function.arguments for call in calls))


def chat_stream(stack: Stack, model: str, play: Play) -> End:
    """Without a hosted tool where none is called, so that words are shown as they come."""
    tools = [play.shell, CHAT_PAY] if "hosted" in play.deed else [CHAT_PAY]
    text, finish = "", ""
    calls: dict[int, str] = {}
    try:
        with stack.client().chat.completions.create(**_asked_in_chat(model, play), tools=tools, stream=True) as pieces:
            for choice in (choice for piece in pieces for choice in piece.choices):
                text, finish = text + (choice.delta.content or ""), choice.finish_reason or finish
                for call in choice.delta.tool_calls or ():
                    calls[call.index] = calls.get(call.index, "") + (call.function.arguments or "" if call.function else "")
    except openai.APIError as error:
        return _of_error(error, text)
    return End(_CHAT[finish], text, tuple(calls.values()))


def websocket(stack: Stack, model: str, play: Play) -> End:
    headers = {"authorization": f"Bearer {stack.key}"}
    with connect(stack.url.replace("http", "ws", 1) + "/responses", additional_headers=headers) as connection:
        connection.send(dumps({"type": "response.create"} | _asked(model, play)))
        while (event := loads(connection.recv(60)))["type"] not in _LAST:
            pass
    return End("failed", message=event["error"]["message"]) if event["type"] == "error" else _of_response(event["response"])


ASKED: Any = [{"role": "user", "content": "go"}]
_CHAT = {"stop": "completed", "tool_calls": "completed", "length": "incomplete", "content_filter": "incomplete"}
_LAST = ("response.completed", "response.failed", "response.incomplete", "error")


def _asked(model: str, play: Play) -> dict[str, Any]:
    text = {"text": {"format": {"type": "json_schema"} | FORMAT}} if play.deed in WANTS_JSON else {}
    return {"model": model, "input": "go", "tools": [play.shell, PAY]} | text


def _asked_in_chat(model: str, play: Play) -> dict[str, Any]:
    form = {"response_format": {"type": "json_schema", "json_schema": FORMAT}} if play.deed in WANTS_JSON else {}
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
    """A stack with a model for each kind of server and each door, so that all are tried side by side."""
    state_dir = Path(tmp_path_factory.mktemp("endings"))
    models = state_dir / "models.toml"
    models.write_text(
        "".join(
            f'[[models]]\nname = "{_model(its, door)}"\nprovider = "{its.provider}"\nbase_url = "{upstream.url}"\nkey = "env:KEY"\n\n'
            for its in PROVIDERS
            for door in DOORS
        )
    )
    running = Stack(state_dir, {"MOORAGE_MODELS_FILE": str(models), "KEY": "sk-up"}).start()
    yield running
    assert running.stop() == 0


def _model(its: Words, door: str) -> str:
    return f"{its.provider}-{door}".lower().replace(" ", "-")


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
    """Whatever protocol the model's server speaks."""

    client = served.client()
    offered = Play.of(deed, client)

    def play(cell: tuple[Words, str]) -> str:
        its, door = cell
        model = _model(its, door)
        replies = [DEEDS[deed](its)] * TIMES.get(deed, 1)
        upstream.plays(*replies, its.said(OFFERED if deed in WANTS_JSON else WHOLE), model=model)
        end = DOORS[door](served, model, offered)
        asked = [dumps(request.body) for request in upstream.requests if request.model == model]
        return "call run" if end.text == WHOLE and "ran 42" in asked[-1] else _named(deed, end, len(asked))

    upstream.requests.clear()
    cells = [(its, door) for its in PROVIDERS for door in DOORS]
    with ThreadPoolExecutor(len(cells)) as pool:
        found = dict(zip(((its.provider, door) for its, door in cells), pool.map(play, cells), strict=True))
    upstream.forget()
    for container in client.containers.list():  # A tenant has a bounded number of sandboxes.
        client.containers.delete(container.id)
    assert found == {(its.provider, door): _expected(its, deed, door) for its, door in cells}


def _expected(its: Words, deed: str, door: str) -> str:
    return OF_RESPONSES.get(deed, ENDS[deed])[door] if its.provider == "openai_responses" else ENDS[deed][door]


OF_RESPONSES = {
    "an unknown finish reason": dict.fromkeys(DOORS, "incomplete"),
    "cut after a call": dict.fromkeys(DOORS, "call kept") | {"Chat stream": "failed"},
    "cut after a hosted call": dict.fromkeys(DOORS, "call run"),
}
"""Where the Responses protocol differs: its server says itself that the answer is incomplete, or that a call is whole."""


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
            return "call kept"
        case End("incomplete", "" | "Let me look.", _, "") if requests == 1:
            return "incomplete"
        case End("failed", "" | "Let me look." | '{"price": "one"}', (), message) if TOLD.get(deed, "?") in message:
            return "failed"
    return f"{end}, asked {requests} times"
