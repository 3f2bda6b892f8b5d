"""Each row of docs/parameters.toml, driven over HTTP: what a request holds must show its effect, or be refused in the row's words.

A row that is not refused has a check here that looks at the response, at what the model's upstream was asked (``tests/upstream.py``
remembers it), at events, or at what is stored. A new row without one fails ``test_every_row_has_a_check``; a new field of the SDK
fails ``test_parameters.py`` until it has a row. Every refusal is sent too, and its error compared word by word.

Three upstreams stand behind the models: ``native`` has every tool that OpenAI's newest models have, ``plain`` speaks the Responses API
with functions alone, ``chat`` speaks Chat Completions.
"""

import base64
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

from docs import parameters
from tests.drawing import KEY as DRAWING_KEY
from tests.drawing import MODEL as IMAGE_MODEL
from tests.drawing import Drawing, encoded, png
from tests.mcp_servers import LOOPBACK, Depot, beside, depot_beside, serving
from tests.processes import until
from tests.scenarios.test_cli import lines
from tests.search_engines import SearchEngines
from tests.stack import Stack, assert_well_formed, raw_events, say, script, shell
from tests.unit.skills.archives import MANIFEST, skill, zip_of
from tests.upstream import Call, MockUpstream, Reply, called, called_shell, said

TABLE = parameters.load()
NATIVE = ["custom", "namespace", "additional_tools", "tool_search", "shell", "apply_patch", "local_shell", "computer"]
NATIVE += ["computer_use_preview", "programmatic_tool_calling"]
Json = dict[str, Any]
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@dataclass(frozen=True, slots=True)
class World:
    """A stack, its upstream, and a client."""

    stack: Stack
    upstream: MockUpstream
    http: httpx.Client
    depot: Depot
    """A remote server, and where it is."""
    depot_url: str
    engines: SearchEngines
    drawing: Drawing
    """Where the web is searched, and a page of it."""
    page_url: str

    def create(self, model: str = "native", **body: Any) -> Json:
        answer = self.http.post("/responses", json={"model": model, "input": "hi", **body})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def asked(self, model: str = "native", **body: Any) -> Json:
        """What the upstream was asked for a request."""
        self.create(model, **body)
        return self.upstream.requests[-1].body

    def stream(self, **body: Any) -> list[Json]:
        with self.http.stream("POST", "/responses", json={"model": "native", "input": "hi", "stream": True, **body}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            return raw_events(answer.iter_lines())

    def get(self, path: str, **query: Any) -> Json:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def post(self, path: str, body: Json | None = None) -> Json:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def records(self) -> list[Json]:
        """What the table holds."""
        table = boto3.Session().client("dynamodb", **self.stack.aws())
        pages = table.get_paginator("scan").paginate(TableName="moorage")
        found = [dict(record) for page in pages for record in page["Items"]]
        table.close()
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = Path(tmp_path_factory.mktemp("effects"))
    depot = Depot()
    engines = SearchEngines([{"url": "https://tides.example/oslo", "title": "Tides in Oslo", "text": "High at noon."}])
    engines.page("/tides", "<title>Tides</title><p>" + "High at noon. " * 6_000)
    drawing = Drawing()
    with (
        MockUpstream() as upstream,
        depot_beside(depot) as remote,
        beside(lambda: serving(engines)) as web,
        beside(lambda: serving(drawing)) as studio,
    ):
        models = folder / "models.toml"
        models.write_text(
            "".join(
                f'[[models]]\nname = "{name}"\nprovider = "{provider}"\nupstream_model = "upstream-of-{name}"\n'
                f'base_url = "{upstream.url}"\n{more}\n'
                for name, provider, more in (
                    ("native", "openai_responses", f"native_tools = {json.dumps(NATIVE)}"),
                    ("plain", "openai_responses", ""),
                    ("chat", "chat_completions", 'dialect = "openai"'),
                    ("small", "chat_completions", "context_window_tokens = 2000"),
                )
            )
            + '[[models]]\nname = "demo"\nprovider = "demo"\n'
            + f'[web_search]\nkind = "searxng"\nurl = "{web.url}/searxng"\n'
            + f'[image_generation]\nkind = "openai"\nurl = "{studio.url}/v1"\nmodel = "{IMAGE_MODEL}"\nmodels = ["gpt-image-*"]\n'
            + 'key = "env:DRAWING_KEY"\n'
        )
        environment = {
            "MOORAGE_MODELS_FILE": str(models),
            "MOORAGE_ALLOWED_EGRESS_DOMAINS": "api.example.com",
            "DRAWING_KEY": DRAWING_KEY,
            "MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK),
            "MOORAGE_EGRESS_PORTS": f"{remote.port},{web.port}",
        }
        stack = Stack(folder / "state", environment).start()
        with stack.http() as http:
            yield World(stack, upstream, http, depot, f"{remote.url}/mcp", engines, drawing, f"{web.url}/tides")
        assert stack.stop() == 0


Check = Callable[[World], None]
CHECKS: dict[tuple[str, str], Check] = {}


def row(group: str, *names: str) -> Callable[[Check], Check]:
    """The function checks these rows of the table."""

    def register(check: Check) -> Check:
        for name in names:
            assert (group, name) not in CHECKS, name
            CHECKS[group, name] = check
        return check

    return register


# --- Parameters --------------------------------------------------------------------------------------------------------------------

FUNCTION: Json = {
    "type": "function",
    "name": "look",
    "description": "Look.",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
SHELL: Json = {"type": "shell", "environment": {"type": "container_auto"}}


def passed_and_echoed(path: str, value: Any, world: World) -> None:
    """The parameter reaches the upstream under its name, and the response repeats it."""
    first, *below = path.split(".")
    body: Any = value
    for name in reversed(below):
        body = {name: body}
    response = world.create(**{first: body})
    for whole in (response, world.upstream.requests[-1].body):
        shown = whole[first]
        for name in below:
            shown = shown[name]
        assert shown == value, path
    assert world.get(f"/responses/{response['id']}")[first] == response[first]


for _path, _value in {
    "instructions": "Be brief.",
    "temperature": 0.5,
    "top_p": 0.25,
    "top_logprobs": 3,
    "text.verbosity": "low",
    "reasoning": {"effort": "low", "summary": "auto"},
    "reasoning.effort": "high",
    "reasoning.summary": "concise",
    "reasoning.context": "all_turns",
    "reasoning.mode": "pro",
    "prompt_cache_key": "key-1",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit", "ttl": "12h"},
    "prompt_cache_options.mode": "explicit",
    "prompt_cache_options.ttl": "12h",
    "safety_identifier": "person-1",
    "user": "person-2",
}.items():
    if _path != "instructions":
        row("parameter", _path)(partial(passed_and_echoed, _path, _value))


@row("parameter", "model")
def model(world: World) -> None:
    assert world.create("native")["model"] == "native"
    assert world.upstream.requests[-1].body["model"] == "upstream-of-native"
    answer = world.http.post("/responses", json={"model": "nobody", "input": "hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@row("parameter", "input")
def input_(world: World) -> None:
    said_by_user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    assert world.asked(input="hi")["input"] == world.asked(input=[said_by_user])["input"] == [said_by_user]


@row("parameter", "instructions")
def instructions(world: World) -> None:
    passed_and_echoed("instructions", "Be brief.", world)
    first = world.create(instructions="Only here.")
    assert "instructions" not in world.asked(previous_response_id=first["id"])


@row("parameter", "previous_response_id")
def previous_response_id(world: World) -> None:
    world.upstream.plays(said("It is capstan."))
    first = world.create(input="The word?")
    second = world.create(input="Again?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    texts = [item["content"][0]["text"] for item in world.upstream.requests[-1].body["input"]]
    assert texts == ["The word?", "It is capstan.", "Again?"]


@row("parameter", "conversation")
def conversation(world: World) -> None:
    made = world.post("/conversations", {})
    for given in (made["id"], {"id": made["id"]}):
        assert world.create(conversation=given)["conversation"] == {"id": made["id"]}
    assert len(world.upstream.requests[-1].body["input"]) == 3
    assert len(world.get(f"/conversations/{made['id']}/items")["data"]) == 4


@row("parameter", "store")
def store(world: World) -> None:
    for is_stored, status in ((True, 200), (False, 404)):
        response = world.create(store=is_stored)
        assert response["store"] is is_stored
        assert world.upstream.requests[-1].body["store"] is False
        assert world.http.get(f"/responses/{response['id']}").status_code == status


@row("parameter", "background")
def background(world: World) -> None:
    queued = world.create(background=True)
    assert (queued["status"], queued["background"]) == ("queued", True)
    with world.http.stream("GET", f"/responses/{queued['id']}", params={"stream": "true"}) as answer:
        events = raw_events(answer.iter_lines())
    assert [event["type"] for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert world.get(f"/responses/{queued['id']}") == events[-1]["response"]


@row("parameter", "stream")
def stream(world: World) -> None:
    events = world.stream()
    assert_well_formed(events)
    assert "stream" not in events[-1]["response"]


@row("parameter", "stream_options", "stream_options.include_obfuscation")
def stream_options(world: World) -> None:
    for wanted in ({}, {"include_obfuscation": True}, {"include_obfuscation": False}):
        deltas = [event for event in world.stream(stream_options=wanted) if event["type"].endswith(".delta")]
        assert deltas
        assert all(("obfuscation" in delta) is wanted.get("include_obfuscation", True) for delta in deltas)


@row("parameter", "include")
def include(world: World) -> None:
    logged: Json = {"include": ["message.output_text.logprobs"]}
    world.upstream.plays(said("one two", deltas=2, is_logged=True))
    part = world.create(**logged)["output"][0]["content"][0]
    assert [entry["token"] for entry in part["logprobs"]] == ["one ", "two"]
    assert world.upstream.requests[-1].body["include"] == ["message.output_text.logprobs", "reasoning.encrypted_content"]
    with_image = world.create(input=[{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}])
    path = f"/responses/{with_image['id']}/input_items"
    assert world.get(path)["data"][0]["content"][0]["image_url"] is None
    shown = world.get(path, **{"include[]": "message.input_image.image_url"})
    assert shown["data"][0]["content"][0]["image_url"] == PIXEL
    output_files(world)
    cost(world)


def cost(world: World) -> None:
    """Kept in any case, and shown to who asks."""
    response = world.create(model="demo")
    shown = world.get(f"/responses/{response['id']}", **{"include[]": "usage.cost"})["usage"]["cost"]
    assert ("cost" in response["usage"], shown) == (False, {"usd": 0.0, "source": "the scripted model costs nothing"})


def output_files(world: World) -> None:
    """They are told to whoever asks, then or later, can be sent back, and are never a provider's business."""
    asked = "shell_call_output.output_files"
    steps = script(shell("echo 1 > b.txt; echo 22 > a.txt"), shell("true"), say("end"))
    response = world.create("demo", input=steps, tools=[SHELL], include=[asked])
    left, nothing = (item for item in response["output"] if item["type"] == "shell_call_output")
    container = response["tools"][0]["environment"]["container_id"]
    files = {file["path"]: file["id"] for file in world.get(f"/containers/{container}/files")["data"]}
    assert left["output_files"] == [
        {"file_id": files["/mnt/data/a.txt"], "path": "/mnt/data/a.txt", "bytes": 3},
        {"file_id": files["/mnt/data/b.txt"], "path": "/mnt/data/b.txt", "bytes": 2},
    ]
    assert nothing["output_files"] == []
    unasked = world.get(f"/responses/{response['id']}", **{"include[]": "reasoning.encrypted_content"})
    assert unasked == response
    upstream = world.asked(input=[*response["output"], {"role": "user", "content": "go on"}], tools=[SHELL], include=[asked])
    assert "output_files" not in json.dumps(upstream)


@row("parameter", "tools")
def tools(world: World) -> None:
    response = world.create(tools=[FUNCTION])
    assert response["tools"] == world.upstream.requests[-1].body["tools"] == [FUNCTION]


@row("parameter", "tool_choice")
def tool_choice(world: World) -> None:
    for choice in ("none", "auto", "required"):
        assert world.create(tools=[FUNCTION], tool_choice=choice)["tool_choice"] == choice
        assert world.upstream.requests[-1].body["tool_choice"] == choice
    chain = world.create()
    answer = world.http.post(
        "/responses",
        json={"model": "native", "input": "x", "previous_response_id": chain["id"], "tool_choice": {"type": "function", "name": "f"}},
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")


@row("parameter", "parallel_tool_calls")
def parallel_tool_calls(world: World) -> None:
    assert world.create()["parallel_tool_calls"] is True
    for name in ("native", "chat"):
        assert world.create(name, tools=[FUNCTION], parallel_tool_calls=False)["parallel_tool_calls"] is False
        assert world.upstream.requests[-1].body["parallel_tool_calls"] is False


@row("parameter", "max_output_tokens")
def max_output_tokens(world: World) -> None:
    world.upstream.plays(called_shell("true"), said("Done."))
    assert world.create("plain", tools=[SHELL], max_output_tokens=100)["max_output_tokens"] == 100
    assert [request.body["max_output_tokens"] for request in world.upstream.requests[-2:]] == [100, 93], "7 were used by the call"
    world.upstream.plays(said("cut", finish="length"))
    cut = world.create(max_output_tokens=16)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


@row("parameter", "max_tool_calls")
def max_tool_calls(world: World) -> None:
    world.upstream.plays(called_shell("echo one"), called_shell("echo two", call_id="call_2"), said("Done."))
    response = world.create("plain", tools=[SHELL], max_tool_calls=1)
    assert response["max_tool_calls"] == 1
    assert world.upstream.requests[-2].body["tool_choice"] == "none"
    ran = [out for item in response["output"] if item["type"] == "shell_call_output" for out in item["output"]]
    assert (ran[0]["stdout"], "not run" in ran[1]["stderr"]) == ("one\n", True)


BUDGETED = ("usd", "input_tokens", "output_tokens", "total_tokens", "tool_calls", "wall_seconds", "on_limit", "scope")


@row("parameter", "budget", *(f"budget.{name}" for name in BUDGETED))
def budget(world: World) -> None:
    """What each limit does: tests/unit/loop/test_budget.py, test_shared_budgets.py. Here, that it comes from the wire to the loop."""
    world.upstream.plays(called_shell("echo one"))
    response = world.create("plain", tools=[SHELL], budget={"tool_calls": 1})
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "budget_reached"})
    root = world.create("plain", budget={"total_tokens": 1, "scope": "tree"})
    beyond = world.http.post(f"/responses/{root['id']}/fork", json={})
    assert (beyond.status_code, beyond.json()["error"]["code"]) == (429, "budget_reached")
    refused = world.http.post("/responses", json={"model": "plain", "input": "hi", "budget": {"usd": 1}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_not_budgetable")


def at_last(look: Callable[[], Any]) -> Any:
    """What it gives as soon as it gives something."""
    seen: list[Any] = []

    def there() -> Any:
        seen.append(look())
        return seen[-1]

    until(there)
    return seen[-1]


COMMANDS = [f"{filter_}{commands}" for filter_ in (".always", ".never") for commands in ("", ".commands")]


@row("parameter", "approvals", *(f"approvals.{name}" for name in ("park", "timeout_seconds", "on_timeout")))
@row("tool", "shell.require_approval", *(f"shell.require_approval{name}" for name in COMMANDS))
def approvals(world: World) -> None:
    """What each does: tests/unit/loop/test_approvals.py. Here, that it comes from the wire to the loop, with and without waiting."""
    asks = {**SHELL, "require_approval": {"always": {"commands": ["touch*"]}, "never": {"commands": ["*"]}}}
    world.upstream.plays(called_shell("echo one"), called_shell("touch two", call_id="call_2"), said("Done."))
    waits = {"park": True, "timeout_seconds": 3_600, "on_timeout": "cancel"}
    queued = world.create("plain", tools=[asks], background=True, approvals=waits)
    approval = at_last(lambda: world.get("/approvals")["data"])[0]
    assert (approval["response_id"], approval["call"]["action"]["commands"]) == (queued["id"], ["touch two"])
    assert (approval["expires_at"] - approval["created_at"], approval["on_timeout"]) == (3_600, "cancel")
    path = f"/responses/{queued['id']}"
    assert world.get(f"{path}/approvals")["data"] == [approval]
    assert world.post(f"{path}/approvals/{approval['id']}/link", {})["path"].startswith("/approve/")
    assert world.post(f"{path}/approvals/{approval['id']}", {"approve": True})["status"] == "approved"
    ended = at_last(lambda: (found := world.get(path))["status"] == "completed" and found)
    outputs = [item for item in ended["output"] if item["type"] == "shell_call_output"]
    assert [output["output"][0]["outcome"] for output in outputs] == [{"type": "exit", "exit_code": 0}] * 2
    world.upstream.plays(called_shell("touch three"))
    asked = world.create("plain", tools=[asks], background=True, approvals={"park": False})
    ended = at_last(lambda: (found := world.get(f"/responses/{asked['id']}"))["status"] == "completed" and found)
    assert [item["type"] for item in ended["output"]] == ["mcp_approval_request"]


@row("parameter", "text", "text.format")
def text_format(world: World) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    wanted: dict[str, tuple[Json, Any]] = {
        "text": ({"type": "text"}, None),
        "json_object": ({"type": "json_object"}, {"type": "json_object"}),
        "json_schema": (
            {"type": "json_schema", "name": "n", "schema": schema, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
        ),
    }
    for form, in_chat in wanted.values():
        assert world.create(text={"format": form})["text"] == {"format": form, "verbosity": "medium"}
        assert world.upstream.requests[-1].body["text"] == {"format": form}
        assert world.asked("chat", text={"format": form}).get("response_format") == in_chat
    assert json.loads(world.create("demo", text={"format": wanted["json_schema"][0]})["output"][0]["content"][0]["text"]) == {
        "a": "demo"
    }


@row("parameter", "reasoning.generate_summary")
def generate_summary(world: World) -> None:
    assert world.asked(reasoning={"generate_summary": "detailed"})["reasoning"] == {"summary": "detailed"}


@row("parameter", "truncation")
def truncation(world: World) -> None:
    long = [{"role": "user", "content": f"{n} " + "word " * 500} for n in range(8)]
    refused = world.http.post("/responses", json={"model": "small", "input": long, "truncation": "disabled"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert world.create("small", input=long, truncation="auto")["truncation"] == "auto"
    (sent,) = world.upstream.requests[-1].body["messages"]
    kept = [f"{n} word" in sent["content"] for n in range(8)]
    assert (kept[0], kept[7]) == (False, True), "the oldest goes, the newest stays"


@row("parameter", "metadata")
def metadata(world: World) -> None:
    response = world.create(metadata={"run": "7"})
    assert world.get(f"/responses/{response['id']}")["metadata"] == response["metadata"] == {"run": "7"}
    assert "metadata" not in world.upstream.requests[-1].body


@row("parameter", "service_tier")
def service_tier(world: World) -> None:
    for name in ("native", "chat"):
        world.upstream.plays(said("Quick.", service_tier="priority"))
        events = world.stream(model=name, service_tier="fast")
        assert [events[at]["response"]["service_tier"] for at in (0, -1)] == ["fast", "priority"]
        assert world.upstream.requests[-1].body["service_tier"] == "fast"


@row("parameter", "image", "image.context_compression")
def image(world: World) -> None:
    for value in ("auto", "disabled"):
        response = world.create(image={"context_compression": value})
        assert "image" not in response
        assert "image" not in world.upstream.requests[-1].body


@row("parameter", "client_metadata")
def client_metadata(world: World) -> None:
    response = world.create(client_metadata={"word": "halyard-7"})
    assert "halyard-7" not in json.dumps([response, world.upstream.requests[-1].body])
    assert "halyard-7" not in str(world.records())


@row("parameter", "context_management", "context_management[].type", "context_management[].compact_threshold")
def context_management(world: World) -> None:
    long: list[Json] = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "word " * 2000}]
    question: Json = {"role": "user", "content": "Go on."}
    world.upstream.plays(said("Notes."), said("Done."))
    entry = {"type": "compaction", "compact_threshold": 1000}
    response = world.create("plain", input=[*long, question], context_management=[entry])
    assert [item["type"] for item in response["output"]] == ["compaction", "message"]
    assert "word word" not in json.dumps(world.upstream.requests[-1].body["input"])
    high = world.create("plain", input=[*long, question], context_management=[entry | {"compact_threshold": 100_000}])
    assert [item["type"] for item in high["output"]] == ["message"]


@row("parameter", "context_management[].strategy", "context_management[].prompt", "context_management[].keep_recent_items")
def compaction_as_asked(world: World) -> None:
    long: list[Json] = [{"role": "assistant", "content": "word " * 2000}, {"role": "assistant", "content": "Which port?"}]
    entry = {"type": "compaction", "compact_threshold": 1000}
    world.upstream.plays(said("Notes."), said("Done."))
    noted = entry | {"prompt": "Keep the ports.", "keep_recent_items": 2}
    world.create("plain", input=[*long, {"role": "user", "content": "8461"}], context_management=[noted])
    notes, answer = (request.body for request in world.upstream.requests[-2:])
    assert "Keep the ports." in notes["instructions"]
    assert [item["content"][0]["text"] for item in answer["input"]][1:] == ["Which port?", "8461"]
    world.upstream.plays(said("Done."))
    before = len(world.upstream.requests)
    cut = world.create("plain", input=long, context_management=[entry | {"strategy": "truncate"}])
    assert ([item["type"] for item in cut["output"]], len(world.upstream.requests) - before) == (["compaction", "message"], 1)
    assert [item["content"][0]["text"] for item in world.upstream.requests[-1].body["input"]][1:] == ["Which port?"]


# --- Tools -------------------------------------------------------------------------------------------------------------------------


def offered(world: World, tool: Json, model: str = "native", **body: Any) -> Json:
    """The tool as the upstream got it."""
    (sent,) = world.asked(model, tools=[tool], **body)["tools"]
    return dict(sent)


def tool_field(tool: Json, field: str, models: dict[str, Any], world: World) -> None:
    """``models`` says what each upstream gets of the field; the response repeats it."""
    for name, expected in models.items():
        assert offered(world, tool, name).get(field) == expected, name
    assert world.create(tools=[tool])["tools"][0][field] == tool[field]


SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
for _field, _value, _plain in (
    ("name", "weather", "weather"),
    ("description", "Say how it is.", "Say how it is."),
    ("parameters", SCHEMA, SCHEMA),
    ("strict", True, True),
    ("output_schema", SCHEMA, None),
    ("defer_loading", True, None),
    ("allowed_callers", ["direct"], None),
):
    _tool = {**FUNCTION, _field: _value}
    row("tool", f"function.{_field}")(partial(tool_field, _tool, _field, {"native": _value, "plain": _plain}))


@row("tool", "function")
def function(world: World) -> None:
    for name in ("native", "plain", "chat"):
        world.upstream.plays(called("look", {"at": "sea"}))
        (call,) = world.create(name, tools=[FUNCTION])["output"]
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "look", '{"at": "sea"}')


CUSTOM: Json = {"type": "custom", "name": "note", "description": "Keep.", "format": {"type": "text"}}
for _field, _value in {"name": "jot", "description": "Jot it.", "defer_loading": True, "allowed_callers": ["direct"]}.items():
    row("tool", f"custom.{_field}")(partial(tool_field, {**CUSTOM, _field: _value}, _field, {"native": _value}))


@row("tool", "custom")
def custom(world: World) -> None:
    assert offered(world, CUSTOM) == CUSTOM
    world.upstream.plays(called("note", {"input": "free text"}))
    (call,) = world.create("chat", tools=[CUSTOM])["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "note", "free text")
    (sent,) = world.upstream.requests[-1].body["tools"]
    assert (sent["type"], sent["function"]["description"]) == ("function", "Keep.")


@row("tool", "custom.format")
def custom_format(world: World) -> None:
    for syntax, definition in (("regex", r"\d+"), ("lark", "start: /[0-9]+/")):
        tool = {**CUSTOM, "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
        assert offered(world, tool) == tool
        world.upstream.plays(called("note", {"input": "many"}), called("note", {"input": "42"}))
        (call,) = world.create("chat", tools=[tool])["output"]
        assert call["input"] == "42", "the first was sent back"
        assert definition in world.upstream.requests[-1].body["tools"][0]["function"]["description"]


NAMESPACE: Json = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FUNCTION, CUSTOM]}


@row("tool", "namespace", "namespace.name", "namespace.description", "namespace.tools")
def namespace(world: World) -> None:
    assert offered(world, NAMESPACE) == NAMESPACE
    world.upstream.plays(called("crm__look", {"at": "list"}))
    (call,) = world.create("plain", tools=[NAMESPACE])["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "crm", "look")
    sent = world.upstream.requests[-1].body["tools"]
    assert [tool["name"] for tool in sent] == ["crm__look", "crm__note"]
    assert all("Customers." in tool["description"] for tool in sent), "the model reads what the namespace is for"


def ran(response: Json) -> list[Json]:
    return [out for item in response["output"] if item["type"] == "shell_call_output" for out in item["output"]]


def run_in(world: World, environment: Json, *commands: str) -> Json:
    tool = {"type": "shell", "environment": environment}
    return world.create("demo", input=script(shell(*commands), say("end")), tools=[tool])


@row("tool", "shell", "shell.environment", "shell.environment<container_auto>")
def hosted_shell(world: World) -> None:
    first = run_in(world, {"type": "container_auto"}, "echo here | tee kept.txt")
    assert [out["stdout"] for out in ran(first)] == ["here\n"]
    environment = first["tools"][0]["environment"]
    assert environment == {"type": "container_reference", "container_id": environment["container_id"]}
    again = world.create("demo", previous_response_id=first["id"], input=script(shell("cat kept.txt"), say("end")), tools=[SHELL])
    assert [out["stdout"] for out in ran(again)] == ["here\n", "here\n"][-1:]
    assert again["tools"][0]["environment"] == environment
    world.upstream.plays(Reply(calls=(Call("shell", '{"commands": ["ls"]}', kind="shell"),)))
    for client_side in ({"type": "shell"}, {"type": "shell", "environment": None}, {"type": "shell", "environment": {"type": "local"}}):
        world.upstream.plays(called_shell("ls"))
        (call,) = world.create("demo", input=script(shell("ls")), tools=[client_side])["output"]
        assert (call["type"], call["status"]) == ("shell_call", "completed")
        world.upstream.forget()


@row("tool", "shell.allowed_callers")
def shell_callers(world: World) -> None:
    tool = {"type": "shell", "environment": {"type": "local"}, "allowed_callers": ["direct"]}
    assert offered(world, tool) == tool


@row("tool", "shell.environment<container_auto>.file_ids", "code_interpreter.container<auto>.file_ids")
def container_files(world: World) -> None:
    upload = world.http.post("/files", files={"file": ("word.txt", b"bollard")}, data={"purpose": "user_data"}).json()
    environment = {"type": "container_auto", "file_ids": [upload["id"]]}
    described = offered(world, {"type": "shell", "environment": environment}, "plain")["description"]
    assert described.endswith("\n- Files that the user gave: /mnt/data/word.txt")
    assert ran(run_in(world, environment, "cat word.txt"))[0]["stdout"] == "bollard"
    interpreter = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [upload["id"]]}}
    steps = script({"python": "print(open('word.txt').read())"}, say("end"))
    response = world.create("demo", input=steps, tools=[interpreter], include=["code_interpreter_call.outputs"])
    assert response["output"][0]["outputs"] == [{"type": "logs", "logs": "bollard\n"}]


def made_container(world: World, fields: Json) -> tuple[Json, Json]:
    """The containers that the shell and the code interpreter get for these fields."""
    by_shell = world.create(tools=[{"type": "shell", "environment": {"type": "container_auto", **fields}}])
    first = by_shell["tools"][0]["environment"]["container_id"]
    known = {entry["id"] for entry in world.get("/containers", limit=100)["data"]}
    by_python = world.create(tools=[{"type": "code_interpreter", "container": {"type": "auto", **fields}}])
    assert by_python["tools"][0]["container"] == {"type": "auto"}
    (second,) = {entry["id"] for entry in world.get("/containers", limit=100)["data"]} - known
    return world.get(f"/containers/{first}"), world.get(f"/containers/{second}")


@row("tool", "shell.environment<container_auto>.memory_limit", "code_interpreter.container<auto>.memory_limit")
def memory_limit(world: World) -> None:
    assert [container["memory_limit"] for container in made_container(world, {"memory_limit": "4g"})] == ["4g", "4g"]


_POLICIES = ("shell.environment<container_auto>.network_policy", "code_interpreter.container<auto>.network_policy")


@row("tool", *_POLICIES, *(f"{path}<disabled>" for path in _POLICIES))
def network_policy(world: World) -> None:
    for fields in ({}, {"network_policy": {"type": "disabled"}}):
        assert [container["network_policy"] for container in made_container(world, fields)] == [{"type": "disabled"}] * 2


@row("tool", *(f"{path}<allowlist>{below}" for path in _POLICIES for below in ("", ".allowed_domains")))
def allowlist(world: World) -> None:
    policy = {"type": "allowlist", "allowed_domains": ["API.example.com"]}
    for container in made_container(world, {"network_policy": policy}):
        assert container["network_policy"] == {"type": "allowlist", "allowed_domains": ["api.example.com"]}
    beyond = {"type": "allowlist", "allowed_domains": ["evil.example.org"]}
    for tool in (
        {"type": "shell", "environment": {"type": "container_auto", "network_policy": beyond}},
        {"type": "code_interpreter", "container": {"type": "auto", "network_policy": beyond}},
    ):
        answer = world.http.post("/responses", json={"model": "native", "input": "x", "tools": [tool]})
        assert (answer.status_code, "evil.example.org" in answer.json()["error"]["message"]) == (400, True)


_SECRET_FIELDS = ("", "[].domain", "[].name", "[].value", "[].methods", "[].path_prefixes", "[].places")


@row("tool", *(f"{path}<allowlist>.domain_secrets{below}" for path in _POLICIES for below in _SECRET_FIELDS))
def domain_secrets(world: World) -> None:
    """What is stored for the proxy; ``tests/egress`` shows what the proxy does with it."""
    scope = {"methods": ["GET"], "path_prefixes": ["/v1"], "places": ["query"]}
    secret = {"domain": "api.example.com", "name": "TOKEN", "value": "mizzen-secret-value", **scope}
    policy = {"type": "allowlist", "allowed_domains": ["api.example.com"], "domain_secrets": [secret]}
    containers = made_container(world, {"network_policy": policy})
    records = world.records()
    assert "mizzen-secret-value" not in str(records)
    for container in containers:
        assert "TOKEN" not in json.dumps(container)
        (sealed,) = [record for record in records if container["id"] in str(record) and "path_prefixes" in record]
        kept = {name: [entry["S"] for entry in sealed[name]["L"]] for name in scope}
        assert (sealed["domain"]["S"], kept) == ("api.example.com", scope)
        assert "TOKEN" in str(sealed)
    environment = {"type": "container_auto", "network_policy": policy}
    assert ran(run_in(world, environment, "echo $TOKEN"))[0]["stdout"].startswith("MOORAGE_SECRET_TOKEN_")


_ASKED_FIRST = ("", ".hosts", ".secrets")


@row("tool", *(f"{path}<allowlist>.require_approval{below}" for path in _POLICIES for below in _ASKED_FIRST))
def what_is_asked_first(world: World) -> None:
    """What is stored for the proxy; ``tests/egress/test_asking.py`` shows what the proxy does with it."""
    secret = {"domain": "api.example.com", "name": "TOKEN", "value": "mizzen-secret-value"}
    policy = {"type": "allowlist", "allowed_domains": ["api.example.com"], "domain_secrets": [secret]}
    whole = {"hosts": ["*"], "secrets": ["TOKEN"]}
    containers = made_container(world, {"network_policy": {**policy, "require_approval": whole}})
    made: list[tuple[Json, Json | None]] = [(container, whole) for container in containers]
    for asked, shown in (("always", whole), ("never", None)):
        fields = {"name": "mine", "network_policy": {**policy, "require_approval": asked}}
        made.append((world.post("/containers", fields), shown))
    for container, shown in made:
        assert container["network_policy"].get("require_approval") == shown
        kept = [record for record in world.records() if container["id"] in str(record) and "asks_hosts" in record]
        assert [record["asks_secrets"] for record in kept] == ([] if shown is None else [{"L": [{"S": "TOKEN"}]}])


@row("tool", "shell.environment<container_auto>.skills", "shell.environment<container_reference>.skills")
def skills(world: World) -> None:
    bundle = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zip_of(skill())).decode()}
    asked = {"type": "inline", "name": "make-tables", "description": "Makes tables.", "source": bundle}
    container = world.post("/containers", {"name": "mine"})
    for environment in ({"type": "container_auto"}, {"type": "container_reference", "container_id": container["id"]}):
        response = run_in(world, environment | {"skills": [asked]}, "cat /home/oai/skills/*/SKILL.md")
        (told,) = response["tools"][0]["environment"]["skills"]
        assert ran(response)[0]["stdout"] == MANIFEST.decode()
        assert told == {key: asked[key] for key in ("type", "name", "description")} | {"path": told["path"]}
        tool = {"type": "shell", "environment": environment | {"skills": [asked]}}
        shown = {key: told[key] for key in ("name", "description", "path")}
        assert offered(world, tool) == {"type": "shell", "environment": {"type": "local", "skills": [shown]}}
        described = offered(world, tool, "plain")["description"]
        assert all(text in described for text in shown.values())


@row("tool", "shell.environment<container_auto>.file_map", "shell.environment<container_reference>.file_map")
def file_map(world: World) -> None:
    """Told as a message, once for each state of the files; a turn that goes on from it reads the same beginning."""
    first = run_in(world, {"type": "container_auto"}, "mkdir out; echo 1 > out/a.txt; echo 22 > b.txt")
    mapped = {"type": "container_auto", "file_map": True}
    told = world.asked(tools=[{"type": "shell", "environment": mapped}], previous_response_id=first["id"])["input"]
    head, *lines = told[-2]["content"][0]["text"].splitlines()
    assert head.startswith("[Files under /mnt/data/")
    assert lines == ["/mnt/data/b.txt (3 bytes)", "/mnt/data/out/a.txt (2 bytes)]"]
    assert (told[-2]["role"], told[-1]["content"][0]["text"]) == ("user", "hi")
    container = first["tools"][0]["environment"]["container_id"]
    reference = {"type": "container_reference", "container_id": container, "file_map": True}
    second = world.create(tools=[{"type": "shell", "environment": reference}], previous_response_id=first["id"])
    again = world.asked(tools=[{"type": "shell", "environment": reference}], previous_response_id=second["id"])["input"]
    assert (str(again).count(lines[0]), again[: len(told)]) == (1, told)


@row("tool", "shell.environment<container_auto>.agents_md", "shell.environment<container_reference>.agents_md")
def agents_md(world: World) -> None:
    """Told as a message, once for each state of the files; the nearest last."""
    first = run_in(world, {"type": "container_auto"}, "mkdir repo; echo Use tabs. > AGENTS.md; echo Use spaces. > repo/AGENTS.md")
    container = first["tools"][0]["environment"]["container_id"]
    reference = {"type": "container_reference", "container_id": container, "agents_md": "/mnt/data/repo"}
    for environment in ({"type": "container_auto", "agents_md": "/mnt/data/repo"}, reference):
        tools = [{"type": "shell", "environment": environment}]
        told = world.asked(tools=tools, previous_response_id=first["id"])["input"]
        text = told[-2]["content"][0]["text"]
        assert text.startswith("# AGENTS.md instructions for /mnt/data/repo")
        assert text.index("Use tabs.") < text.index("Use spaces.")
    second = world.create(tools=tools, previous_response_id=first["id"])
    again = world.asked(tools=tools, previous_response_id=second["id"])["input"]
    assert (str(again).count("# AGENTS.md instructions"), again[: len(told)]) == (1, told)


@row("tool", "shell.environment<container_reference>", "shell.environment<container_reference>.container_id")
def container_reference(world: World) -> None:
    container = world.post("/containers", {"name": "mine"})
    environment = {"type": "container_reference", "container_id": container["id"]}
    response = run_in(world, environment, "echo in")
    assert (response["tools"][0]["environment"], ran(response)[0]["stdout"]) == (environment, "in\n")


@row("tool", "shell.environment<local>", "shell.environment<local>.skills")
def local_environment(world: World) -> None:
    skill = {"name": "sails", "description": "How to set sails.", "path": "/skills/sails"}
    tool = {"type": "shell", "environment": {"type": "local", "skills": [skill]}}
    assert offered(world, tool) == tool
    described = offered(world, tool, "plain")["description"]
    assert all(text in described for text in skill.values())


@row("tool", "code_interpreter", "code_interpreter.container", "code_interpreter.container<auto>", "code_interpreter.allowed_callers")
def code_interpreter(world: World) -> None:
    for container in ({"type": "auto"}, world.post("/containers", {"name": "mine"})["id"]):
        tool = {"type": "code_interpreter", "container": container, "allowed_callers": ["direct"]}
        steps = script({"python": "6 * 7"}, say("end"))
        response = world.create("demo", input=steps, tools=[tool], include=["code_interpreter_call.outputs"])
        assert response["tools"] == [tool]
        call = response["output"][0]
        assert call["outputs"] == [{"type": "logs", "logs": "42"}] or call["outputs"][0]["logs"].strip() == "42"
        assert isinstance(container, dict) or call["container_id"] == container


@row("tool", "local_shell")
def local_shell(world: World) -> None:
    assert offered(world, {"type": "local_shell"}) == {"type": "local_shell"}
    world.upstream.plays(called("local_shell", {"command": ["ls"]}))
    (call,) = world.create("chat", tools=[{"type": "local_shell"}])["output"]
    assert (call["type"], call["action"]) == ("local_shell_call", {"type": "exec", "command": ["ls"], "env": {}})


@row("tool", "apply_patch", "apply_patch.allowed_callers")
def apply_patch(world: World) -> None:
    tool = {"type": "apply_patch", "allowed_callers": ["direct"]}
    assert offered(world, tool) == tool
    operation = {"type": "delete_file", "path": "a.txt"}
    world.upstream.plays(called("apply_patch", operation))
    (call,) = world.create("chat", tools=[tool])["output"]
    assert (call["type"], call["operation"]) == ("apply_patch_call", operation)


_PREVIEW: Json = {"type": "computer_use_preview", "display_height": 768, "display_width": 1024, "environment": "ubuntu"}


@row("tool", "computer", "computer_use_preview", *(f"computer_use_preview.{field}" for field in list(_PREVIEW)[1:]))
def computer(world: World) -> None:
    for tool in ({"type": "computer"}, _PREVIEW):
        assert offered(world, tool) == tool
        world.upstream.plays(called("computer", {"actions": [{"type": "screenshot"}]}))
        (call,) = world.create("chat", tools=[tool])["output"]
        assert call["type"] == "computer_call"
    described = world.upstream.requests[-1].body["tools"][0]["function"]["description"]
    assert all(text in described for text in ("768", "1024", "ubuntu"))


@row("tool", "tool_search", "tool_search.execution", "tool_search.description", "tool_search.parameters")
def tool_search(world: World) -> None:
    tool = {"type": "tool_search", "execution": "client", "description": "Find tools.", "parameters": SCHEMA}
    assert offered(world, tool) == tool
    hidden = {**FUNCTION, "defer_loading": True}
    world.upstream.plays(called("tool_search", {"city": "Bergen"}))
    (call,) = world.create("chat", tools=[tool, hidden])["output"]
    assert (call["type"], call["execution"], call["arguments"]) == ("tool_search_call", "client", {"city": "Bergen"})
    (sent,) = world.upstream.requests[-1].body["tools"]
    assert sent["function"] == {"name": "tool_search", "description": "Find tools.", "parameters": SCHEMA, "strict": False}
    world.upstream.plays(called("tool_search", {"query": hidden["name"]}), said("end"))
    searched, found, _ = world.create("chat", tools=[{"type": "tool_search"}, hidden])["output"]
    assert (searched["execution"], [tool["name"] for tool in found["tools"]]) == ("server", [hidden["name"]])
    sent = world.upstream.requests[-1].body["tools"]
    assert [tool["function"]["name"] for tool in sent] == ["tool_search", hidden["name"]]


WEB_SEARCHES = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")


def browsed(world: World, tool: Json, **arguments: str) -> Json:
    """What becomes of a call of it."""
    calls = (Call("web_search", json.dumps(arguments or {"action": "search", "query": "tides"}), "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("See https://tides.example/oslo"))
    return world.create("chat", tools=[tool], include=["web_search_call.results", "web_search_call.action.sources"])


@row("tool", *WEB_SEARCHES)
def web_search(world: World) -> None:
    for kind in WEB_SEARCHES:
        response = browsed(world, {"type": kind})
        call, message = response["output"]
        assert (response["tools"][0]["type"], call["results"]) == (kind, world.engines.found)
        assert call["action"]["sources"] == [{"type": "url", "url": "https://tides.example/oslo"}]
        assert message["content"][0]["annotations"][0]["title"] == "Tides in Oslo"
    pictures = {"type": "web_search_preview", "search_content_types": ["text", "image"]}
    answer = world.http.post("/responses", json={"model": "plain", "input": "x", "tools": [pictures]})
    assert "no images" in answer.headers["x-moorage-notice"]


@row("tool", "web_search.external_web_access")
def without_the_web(world: World) -> None:
    for kind in WEB_SEARCHES:
        tools = [{"type": kind, "external_web_access": False}]
        answer = world.http.post("/responses", json={"model": "native", "input": "x", "tools": tools})
        assert (answer.status_code, answer.json()["tools"]) == (200, [])
        assert kind in answer.headers["x-moorage-notice"]
        assert "tools" not in world.upstream.requests[-1].body


@row("tool", "web_search.filters", "web_search.filters.allowed_domains")
def domains_of_the_web(world: World) -> None:
    tool: Json = {"type": "web_search", "filters": {"allowed_domains": ["sea.example"]}}
    response = browsed(world, tool)
    assert (response["tools"][0]["filters"], response["output"][0]["results"]) == (tool["filters"], [])
    assert world.engines.asked[-1]["q"] == "tides (site:sea.example)"
    assert "none of the domains" in browsed(world, tool, action="open_page", url=world.page_url)["output"][0]["error"]


@row("tool", "web_search.filters.blocked_domains")
def blocked_domains_of_the_web(world: World) -> None:
    tool: Json = {"type": "web_search", "filters": {"blocked_domains": ["tides.example", "localhost"]}}
    response = browsed(world, tool)
    assert (response["tools"][0]["filters"], response["output"][0]["results"]) == (tool["filters"], [])
    assert world.engines.asked[-1]["q"] == "tides -site:tides.example -site:localhost"
    assert "a domain that the user has blocked" in browsed(world, tool, action="open_page", url=world.page_url)["output"][0]["error"]


@row("tool", "web_search.search_context_size")
def size_of_the_web(world: World) -> None:
    lengths = {}
    for size in ("low", "medium", "high"):
        call = browsed(world, {"type": "web_search", "search_context_size": size}, action="open_page", url=world.page_url)["output"][0]
        lengths[size] = len(call["results"][0]["text"].partition(" [")[0])
    assert lengths == {"low": 8_000, "medium": 24_000, "high": 60_000}


@row("tool", "web_search.user_location")
def place_of_the_user(world: World) -> None:
    place = {"type": "approximate", "city": "Oslo", "country": "NO", "region": "Oslo", "timezone": "Europe/Oslo"}
    (sent,) = world.asked("chat", tools=[{"type": "web_search", "user_location": place}])["tools"]
    assert "The user is about here: Oslo, Oslo, NO; time zone Europe/Oslo." in sent["function"]["description"]


@row("tool_choice", *WEB_SEARCHES)
def chosen_web_search(world: World) -> None:
    for kind in WEB_SEARCHES:
        sent = world.asked("plain", tools=[{"type": kind}, FUNCTION], tool_choice={"type": kind})
        assert sent["tool_choice"] == {"type": "function", "name": "web_search"}


@row("item", "web_search_call")
def searches_of_before(world: World) -> None:
    """What a client sends back of a search: with its results, or without them."""
    call, _ = browsed(world, {"type": "web_search"})["output"]
    asked_before = len(world.engines.asked)
    for sent in (call, {name: value for name, value in call.items() if name != "results"}):
        body = world.asked("plain", input=[sent, {"role": "user", "content": "So?"}])
        function_call, output = body["input"][:2]
        assert (function_call["name"], json.loads(function_call["arguments"])) == ("web_search", {"action": "search", "query": "tides"})
        assert "High at noon." in output["output"]
    assert len(world.engines.asked) == asked_before


def pictured(world: World, tool: Json, *names: str, input: Any = "hi") -> Json:
    """What becomes of a call of it; the image model was asked last."""
    arguments = {"prompt": "A lighthouse"} | ({"images": names} if names else {})
    calls = (Call("image_generation", json.dumps(arguments), "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("There."))
    return world.create("chat", tools=[{"type": "image_generation", **tool}], input=input)


DRAWN_WITH: Json = {
    "background": "opaque",
    "complexity": "high",
    "model": "gpt-image-2",
    "moderation": "low",
    "output_compression": 80,
    "output_format": "jpeg",
    "quality": "low",
    "size": "1024x1536",
}


@row("tool", "image_generation", *(f"image_generation.{name}" for name in DRAWN_WITH))
def image_generation(world: World) -> None:
    response = pictured(world, DRAWN_WITH)
    call = response["output"][0]
    assert (call["type"], call["status"]) == ("image_generation_call", "completed")
    assert call["result"] == encoded(png("A lighthouse", 16, 24))
    assert world.drawing.asked[-1] == {"prompt": "A lighthouse", **DRAWN_WITH}
    assert response["tools"][0].items() >= DRAWN_WITH.items()


@row("tool", "image_generation.partial_images")
def partial_images(world: World) -> None:
    calls = (Call("image_generation", '{"prompt": "A lighthouse"}', "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("There."))
    events = world.stream(model="chat", tools=[{"type": "image_generation", "partial_images": 2}])
    partial = [event for event in events if event["type"] == "response.image_generation_call.partial_image"]
    assert [event["partial_image_b64"] for event in partial] == [encoded(png("0")), encoded(png("1"))]
    assert_well_formed(events)


_MASK = "image_generation.input_image_mask"


@row("tool", "image_generation.action", "image_generation.input_fidelity", _MASK, f"{_MASK}.image_url", f"{_MASK}.file_id")
def edited_images(world: World) -> None:
    parts = [{"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": "Turn it blue."}]
    mask = {"image_url": f"data:image/png;base64,{encoded(png('mask'))}"}
    tool: Json = {"action": "edit", "input_fidelity": "high", "input_image_mask": mask}
    call = pictured(world, tool, input=[{"role": "user", "content": parts}])["output"][0]
    asked = world.drawing.asked[-1]
    assert (call["action"], asked["images"]) == ("edit", [base64.b64decode(PIXEL.partition(",")[2])])
    assert (asked["input_fidelity"], asked["mask"]) == ("high", png("mask"))
    answer = world.http.post("/files", files={"file": ("mask.png", png("another"))}, data={"purpose": "user_data"})
    pictured(world, {"input_image_mask": {"file_id": answer.json()["id"]}}, input=[{"role": "user", "content": parts}])
    assert world.drawing.asked[-1]["mask"] == png("another")


@row("tool_choice", "image_generation")
def chosen_image_generation(world: World) -> None:
    sent = world.asked("plain", tools=[{"type": "image_generation"}, FUNCTION], tool_choice={"type": "image_generation"})
    assert sent["tool_choice"] == {"type": "function", "name": "image_generation"}


@row("item", "image_generation_call")
def images_of_before(world: World) -> None:
    """What a client sends back of an image: all of it, or its id."""
    call = pictured(world, {})["output"][0]
    for sent in (call, {"type": "image_generation_call", "id": call["id"]}):
        body = world.asked("plain", input=[sent, {"role": "user", "content": "So?"}])
        function_call, output = body["input"][:2]
        assert function_call["name"] == "image_generation"
        assert json.loads(function_call["arguments"]) == {"prompt": "A lighthouse, in oil"}
        assert call["id"] in output["output"]
        assert call["result"] not in json.dumps(body)


def shelf(world: World) -> tuple[str, dict[str, str]]:
    """A vector store with two files; its id, and theirs by their names."""
    store = world.post("/vector_stores", {"name": "shelf"})["id"]
    ids: dict[str, str] = {}
    for name, text, year in (("oslo.md", "High tide in Oslo is at noon.", 2026), ("bergen.md", "High tide in Bergen is at ten.", 2020)):
        answer = world.http.post("/files", files={"file": (name, text)}, data={"purpose": "assistants"})
        ids[name] = answer.json()["id"]
        world.post(f"/vector_stores/{store}/files", {"file_id": ids[name], "attributes": {"year": year}})
    until(lambda: world.get(f"/vector_stores/{store}")["file_counts"]["completed"] == 2)
    return store, ids


def looked_up(world: World, answer: str = "So.", **tool: Any) -> list[Json]:
    """What becomes of a call of the tool."""
    calls = (Call("file_search", json.dumps({"queries": ["high tide", "oslo"]}), "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said(answer))
    response = world.create("chat", tools=[{"type": "file_search", **tool}], include=["file_search_call.results"])
    return list(response["output"])


_RANKING = ("ranker", "score_threshold", "hybrid_search", "hybrid_search.embedding_weight", "hybrid_search.text_weight")


@row("tool", "file_search", *(f"file_search.{name}" for name in ("vector_store_ids", "filters", "max_num_results", "ranking_options")))
@row("tool", *(f"file_search.ranking_options.{name}" for name in _RANKING))
@row("tool_choice", "file_search")
@row("item", "file_search_call")
def file_search(world: World) -> None:
    store, ids = shelf(world)
    call, message = looked_up(world, f"At noon【fs:{ids['oslo.md']}】.", vector_store_ids=[store])
    assert [(result["filename"], result["attributes"], result["text"]) for result in call["results"]] == [
        ("oslo.md", {"year": 2026}, "High tide in Oslo is at noon."),
        ("bergen.md", {"year": 2020}, "High tide in Bergen is at ten."),
    ]
    (text,) = message["content"]
    cited = {"type": "file_citation", "index": 7, "file_id": ids["oslo.md"], "filename": "oslo.md"}
    assert (text["text"], text["annotations"]) == ("At noon.", [cited])
    old = {"type": "lt", "key": "year", "value": 2025}
    for fields, names in (
        ({"filters": old}, ["bergen.md"]),
        ({"max_num_results": 1}, ["oslo.md"]),
        ({"ranking_options": {"score_threshold": 0.9, "ranker": "auto"}}, ["oslo.md"]),
        ({"ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}}, ["oslo.md", "bergen.md"]),
    ):
        found = looked_up(world, vector_store_ids=[store], **fields)[0]["results"]
        assert [result["filename"] for result in found] == names
    for sent in (call, {name: value for name, value in call.items() if name != "results"}):
        said_before, output = world.asked("plain", input=[sent, {"role": "user", "content": "So?"}])["input"][:2]
        assert (said_before["name"], json.loads(said_before["arguments"])) == ("file_search", {"queries": ["high tide", "oslo"]})
        assert "High tide in Oslo is at noon." in output["output"]
    tool = {"type": "file_search", "vector_store_ids": [store]}
    chosen = world.asked("plain", tools=[tool, FUNCTION], tool_choice={"type": "file_search"})
    assert chosen["tool_choice"] == {"type": "function", "name": "file_search"}
    gone = {"type": "file_search", "vector_store_ids": [store, "vs_gone"]}
    refused = world.http.post("/responses", json={"model": "plain", "input": "x", "tools": [gone]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "tools[0].vector_store_ids")


GATED: dict[str, tuple[str, str]] = {
    "code_interpreter": ("python", '{"code":"6 * 7"}'),
    "web_search": ("web_search", '{"action":"search","query":"tides"}'),
    "file_search": ("file_search", '{"queries":["tides"]}'),
    "image_generation": ("image_generation", '{"prompt":"A lighthouse"}'),
}
"""What a model calls, by the type of its tool."""


@row("tool", *(f"{kind}.require_approval" for kind in GATED))
def asked_for_each_call(world: World) -> None:
    """What follows on an answer: tests/unit/loop/test_gated_tools.py."""
    store, _ = shelf(world)
    fields: dict[str, Json] = {"code_interpreter": {"container": {"type": "auto"}}, "file_search": {"vector_store_ids": [store]}}
    for kind, (name, arguments) in GATED.items():
        world.upstream.plays(Reply(calls=(Call(name, arguments, "call_1"),), finish="tool_calls"))
        tool = {"type": kind, "require_approval": "always", **fields.get(kind, {})}
        response = world.create("chat", tools=[tool])
        (request,) = response["output"]
        assert (response["status"], response["tools"][0]["require_approval"], request["type"]) == (
            "completed",
            "always",
            "mcp_approval_request",
        )
        assert (request["server_label"], request["name"], request["arguments"]) == (f"moorage://{kind}", name, arguments)


def server(world: World, **fields: Any) -> Json:
    return {"type": "mcp", "server_label": "depot", "server_url": world.depot_url, **fields}


def remote_tools(world: World, **fields: Any) -> dict[str, str]:
    """What the model is offered of the server: descriptions by name."""
    sent = world.asked("chat", tools=[server(world, **fields)]).get("tools", ())
    return {tool["function"]["name"].removeprefix("depot__"): tool["function"]["description"] for tool in sent}


def remote_calls(world: World, *names: str, **fields: Any) -> list[str]:
    """What becomes of calls of the server's tools."""
    arguments = {"find_part": {"sku": "A-7"}, "order_part": {"sku": "A-7", "count": 1}}
    calls = tuple(Call(f"depot__{name}", json.dumps(arguments[name]), f"call_{name}") for name in names)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("end"))
    return [item["type"] for item in world.create("chat", tools=[server(world, **fields)])["output"]]


@row("tool", "mcp", "mcp.server_label", "mcp.server_url", "mcp.server_description", "mcp.allowed_callers")
def remote_server(world: World) -> None:
    assert remote_tools(world, allowed_callers=["direct"])["find_part"] == "Look a part up."
    assert remote_tools(world, server_description="Spare parts.")["find_part"] == "Spare parts.\nLook a part up."
    shown = world.create("chat", tools=[server(world)])["tools"][0]
    assert (shown["server_label"], shown["server_url"]) == ("depot", world.depot_url.removesuffix("mcp") + "<redacted>")


@row("tool", "mcp.defer_loading")
def deferred_server(world: World) -> None:
    hidden = server(world, defer_loading=True, require_approval="never", server_description="Spare parts.")
    world.upstream.plays(
        called("tool_search", {"query": "look a part up", "limit": 1}), called("depot__find_part", {"sku": "A-1"}), said("14.")
    )
    response = world.create("chat", tools=[{"type": "tool_search"}, hidden])
    listed, _, found, ran, _ = response["output"]
    assert response["tools"][1]["defer_loading"] is True
    assert (len(listed["tools"]) > 1, found["tools"]) == (
        True,
        [{"type": "mcp", "server_label": "depot", "allowed_tools": ["find_part"]}],
    )
    sent = [[tool["function"]["name"] for tool in request.body["tools"]] for request in world.upstream.requests[-3:]]
    assert sent == [["tool_search"], *[["tool_search", "depot__find_part"]] * 2]
    assert "- depot: Spare parts." in world.upstream.requests[-3].body["tools"][0]["function"]["description"]
    assert "14 of A-1" in ran["output"]


@row("tool", "mcp.environment")
def container_of_the_workspace(world: World) -> None:
    container_id = world.http.post("/containers", json={"name": "mine"}).json()["id"]
    environment = {"type": "container_reference", "container_id": container_id}
    built_in = {"type": "mcp", "server_label": "ws", "server_url": "moorage://workspace", "require_approval": "never"}
    world.upstream.plays(Reply(calls=(Call("exec_command", '{"cmd": "pwd"}', "call_1"),), finish="tool_calls"), said("end"))
    response = world.create("chat", tools=[built_in | {"environment": environment}])
    assert (response["tools"][0]["environment"], response["output"][1]["container_id"]) == (environment, container_id)
    assert response["output"][1]["output"].endswith("Output:\n/mnt/data\n")


@row("tool", "mcp.authorization", "mcp.headers")
def keys_of_a_server(world: World) -> None:
    world.depot.headers.clear()
    response = world.create("chat", tools=[server(world, authorization="t0ken", headers={"X-Team": "s3cret"})])
    assert {(sent["authorization"], sent["x-team"]) for sent in world.depot.headers} == {("Bearer t0ken", "s3cret")}
    assert not any(key in json.dumps([response, world.upstream.requests[-1].body]) for key in ("t0ken", "s3cret"))


@row("tool", "mcp.allowed_tools", "mcp.allowed_tools.tool_names", "mcp.allowed_tools.read_only")
def allowed_remote_tools(world: World) -> None:
    assert list(remote_tools(world, allowed_tools=["order_part"])) == ["order_part"]
    assert list(remote_tools(world, allowed_tools={"tool_names": ["order_part"]})) == ["order_part"]
    assert list(remote_tools(world, allowed_tools={"read_only": True})) == ["find_part", "picture"]


_ASKED, _RAN = "mcp_approval_request", "mcp_call"
_BOTH = {"tool_names": ["find_part", "order_part"]}
APPROVALS: dict[str, tuple[Any, list[str]]] = {
    "": ("always", [_ASKED, _ASKED]),
    ".never": ({"never": _BOTH}, [_RAN, _RAN]),
    ".never.tool_names": ({"never": {"tool_names": ["order_part"]}}, [_ASKED, _RAN]),
    ".never.read_only": ({"never": {"read_only": True}}, [_RAN, _ASKED]),
    ".always": ({"never": _BOTH, "always": _BOTH}, [_ASKED, _ASKED]),
    ".always.tool_names": ({"never": _BOTH, "always": {"tool_names": ["find_part"]}}, [_ASKED, _RAN]),
    ".always.read_only": ({"never": _BOTH, "always": {"read_only": False}}, [_RAN, _ASKED]),
}


def approval_of_remote_calls(world: World, approval: Any, expected: list[str]) -> None:
    world.upstream.forget()
    assert remote_calls(world, "find_part", "order_part", require_approval=approval)[1:3] == expected


for name, (approval, expected) in APPROVALS.items():
    row("tool", f"mcp.require_approval{name}")(partial(approval_of_remote_calls, approval=approval, expected=expected))


@row("tool_choice", "mcp")
def chosen_server(world: World) -> None:
    choice = {"type": "mcp", "server_label": "depot", "name": "find_part"}
    assert world.asked("plain", tools=[server(world)], tool_choice=choice)["tool_choice"] == {
        "type": "function",
        "name": "depot__find_part",
    }


@row("item", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response")
def remote_items(world: World) -> None:
    """A history that the client keeps: the server is asked for no list, the denial is read, the allowed call runs."""
    world.depot.orders.clear()
    listed = {"name": "order_part", "input_schema": {"type": "object"}}
    named = {"server_label": "depot", "name": "order_part"}
    history = [
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "depot", "tools": [listed]},
        {"type": "mcp_call", "id": "mcp_1", **named, "arguments": '{"sku": "A-1"}', "output": "ordered long ago"},
        {"type": "mcp_approval_request", "id": "mcpr_1", **named, "arguments": '{"sku": "A-7", "count": 2}'},
        {"type": "mcp_approval_request", "id": "mcpr_2", **named, "arguments": '{"sku": "B-8", "count": 9}'},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": False, "reason": "Too many."},
    ]
    response = world.create("chat", input=history, tools=[server(world)], store=False)
    assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]
    assert world.depot.orders == [("A-7", 2)]
    read = [message["content"] for message in world.upstream.requests[-1].body["messages"] if message["role"] == "tool"]
    assert (read[0], "Too many." in read[1], read[2]) == ("ordered long ago", True, "ordered 2 of A-7")


# --- tool_choice -------------------------------------------------------------------------------------------------------------------


def chosen(tool: Json, choice: Json, native: Any, lowered: str, world: World) -> None:
    """``native`` is what an upstream gets that has the tool, ``lowered`` the function's name elsewhere."""
    assert world.create(tools=[tool], tool_choice=choice)["tool_choice"] == choice
    assert world.upstream.requests[-1].body["tool_choice"] == native
    assert world.asked("chat", tools=[tool], tool_choice=choice)["tool_choice"] == {"type": "function", "function": {"name": lowered}}


_SEARCH: Json = {"type": "tool_search", "execution": "client"}
_INTERPRETER: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
for _name, _tool, _lowered in (
    ("shell", SHELL, "shell"),
    ("local_shell", {"type": "local_shell"}, "local_shell"),
    ("apply_patch", {"type": "apply_patch"}, "apply_patch"),
    ("computer", {"type": "computer"}, "computer"),
    ("computer_use_preview", {"type": "computer"}, "computer"),
    ("computer_use", _PREVIEW, "computer"),
    ("tool_search", _SEARCH, "tool_search"),
):
    row("tool_choice", _name)(partial(chosen, _tool, {"type": _name}, {"type": _name}, _lowered))
_AS_FUNCTION: Json = {"type": "function", "name": "look"}
row("tool_choice", "function")(partial(chosen, FUNCTION, _AS_FUNCTION, _AS_FUNCTION, "look"))
row("tool_choice", "custom")(partial(chosen, CUSTOM, {"type": "custom", "name": "note"}, {"type": "custom", "name": "note"}, "note"))
row("tool_choice", "code_interpreter")(
    partial(chosen, _INTERPRETER, {"type": "code_interpreter"}, {"type": "function", "name": "python"}, "python")
)


@row("tool_choice", "allowed_tools")
def allowed_tools(world: World) -> None:
    other = {**FUNCTION, "name": "other"}
    for mode in ("auto", "required"):
        choice = {"type": "allowed_tools", "mode": mode, "tools": [_AS_FUNCTION]}
        assert world.create(tools=[FUNCTION, other], tool_choice=choice)["tool_choice"] == choice
        assert world.upstream.requests[-1].body["tool_choice"] == choice
        body = world.asked("chat", tools=[FUNCTION, other], tool_choice=choice)
        assert [tool["function"]["name"] for tool in body["tools"]] == ["look"]
        assert body.get("tool_choice", "auto") == mode
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "crm"}]}
    body = world.asked("chat", tools=[NAMESPACE, other], tool_choice=choice)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["crm__look", "crm__note"]


# --- Items -------------------------------------------------------------------------------------------------------------------------

CALLER = {"type": "direct"}
SAID: Json = {"role": "user", "content": "Go on."}
CALLS: dict[str, tuple[list[Json], list[str]]] = {
    "function_call": (
        [
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "sea"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "waves"},
        ],
        ["sea", "waves"],
    ),
    "custom_tool_call": (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "note", "input": "a note"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "kept"},
        ],
        ["a note", "kept"],
    ),
    "shell_call": (
        [
            {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls -l"]}},
            {
                "type": "shell_call_output",
                "call_id": "c1",
                "output": [{"stdout": "total 0", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}],
            },
        ],
        ["ls -l", "total 0", "3"],
    ),
    "local_shell_call": (
        [
            {
                "type": "local_shell_call",
                "call_id": "c1",
                "status": "completed",
                "action": {"type": "exec", "command": ["uname"], "env": {}},
            },
            {"type": "local_shell_call_output", "id": "c1", "output": "Linux"},
        ],
        ["uname", "Linux"],
    ),
    "apply_patch_call": (
        [
            {"type": "apply_patch_call", "call_id": "c1", "status": "completed", "operation": {"type": "delete_file", "path": "a.txt"}},
            {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "no such file"},
        ],
        ["a.txt", "no such file"],
    ),
    "computer_call": (
        [
            {
                "type": "computer_call",
                "call_id": "c1",
                "status": "completed",
                "actions": [{"type": "screenshot"}],
                "pending_safety_checks": [],
            },
            {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot", "image_url": PIXEL}},
        ],
        ["screenshot", PIXEL],
    ),
}


def replayed(items: list[Json], texts: list[str], world: World) -> None:
    """The model reads a call and its output, whatever tools its upstream has, and the client finds both in the listing."""
    response = world.create(input=[*items, SAID])
    native = world.upstream.requests[-1].body["input"]
    assert [item["type"] for item in native] == [*(item["type"] for item in items), "message"]
    for sent in (native, world.asked("plain", input=[*items, SAID])["input"], world.asked("chat", input=[*items, SAID])["messages"]):
        assert all(text in json.dumps(sent).replace('\\"', '"') for text in texts)
    listed = world.get(f"/responses/{response['id']}/input_items", order="asc")["data"]
    assert [item["type"] for item in listed] == [item["type"] for item in native]


for _name, (_items, _texts) in CALLS.items():
    row("item", _name, f"{_name}_output")(partial(replayed, _items, _texts))


@row("item", "message")
def message(world: World) -> None:
    spoken = {"id": "msg_of_client", "role": "assistant", "content": "On it.", "phase": "commentary"}
    response = world.create(input=[{"role": "developer", "content": "Brief."}, spoken, SAID])
    sent = world.upstream.requests[-1].body["input"]
    assert [(item["role"], item.get("phase")) for item in sent] == [("developer", None), ("assistant", "commentary"), ("user", None)]
    listed = world.get(f"/responses/{response['id']}/input_items", order="asc")["data"]
    assert [item["id"].startswith("msg_") for item in listed] == [True] * 3
    assert (listed[1]["id"], listed[1]["phase"]) == ("msg_of_client", "commentary")


@row("item", "reasoning")
def reasoning(world: World) -> None:
    world.upstream.plays(Reply(reasoning="Hm.", encrypted_content="sealed", text=("Well.",)))
    first = world.create()
    thought = first["output"][0]
    assert (thought["type"], thought["encrypted_content"]) == ("reasoning", "sealed"), "without asking for it"
    sent = world.asked(input=[*first["output"], SAID])["input"][0]
    assert (sent["type"], sent["encrypted_content"]) == ("reasoning", "sealed")
    assert world.asked(previous_response_id=first["id"])["input"][1]["encrypted_content"] == "sealed"


@row("item", "tool_search_call", "tool_search_output")
def searched(world: World) -> None:
    items: list[Json] = [
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "eyes"}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [FUNCTION]},
        SAID,
    ]
    assert [item["type"] for item in world.asked(input=items, tools=[_SEARCH])["input"]][:2] == [
        "tool_search_call",
        "tool_search_output",
    ]
    lowered = world.asked("chat", input=items, tools=[_SEARCH])
    assert [tool["function"]["name"] for tool in lowered["tools"]] == ["tool_search", "look"]
    assert "eyes" in json.dumps(lowered["messages"])


@row("item", "additional_tools")
def additional_tools(world: World) -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}
    assert world.asked(input=[item, SAID])["input"][0]["tools"] == [FUNCTION]
    assert [tool["function"]["name"] for tool in world.asked("chat", input=[item, SAID])["tools"]] == ["look"]


@row("item", "item_reference")
def item_reference(world: World) -> None:
    world.upstream.plays(said("The word is capstan."))
    (answer,) = world.create()["output"]
    for reference in ({"type": "item_reference", "id": answer["id"]}, {"id": answer["id"]}):
        assert "capstan" in json.dumps(world.asked(input=[reference, SAID])["input"])
    missing = world.http.post("/responses", json={"model": "native", "input": [{"type": "item_reference", "id": "msg_none"}]})
    assert (missing.status_code, missing.json()["error"]["param"]) == (404, "input")


@row("item", "compaction", "compaction_trigger")
def compaction(world: World) -> None:
    world.upstream.plays(said("Notes: capstan."))
    items = [{"role": "user", "content": "The word is capstan."}, {"type": "compaction_trigger"}]
    (sealed,) = world.create("plain", input=items)["output"]
    assert (sealed["type"], "capstan" in sealed["encrypted_content"]) == ("compaction", False)
    assert "Notes: capstan." in json.dumps(world.asked("plain", input=[sealed, SAID])["input"])


@row("item", "code_interpreter_call")
def python_call(world: World) -> None:
    outputs = [{"type": "logs", "logs": "forty-two"}]
    item = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "container_id": "cntr_1",
        "code": "6*7",
        "outputs": outputs,
        "status": "completed",
    }
    for name in ("native", "chat"):
        body = json.dumps(world.asked(name, input=[item, SAID]))
        assert "6*7" in body
        assert "forty-two" in body


@row("item_field", "created_by", "internal_chat_message_metadata_passthrough", "function_call.parsed_arguments")
def dropped_fields(world: World) -> None:
    call = {**CALLS["function_call"][0][0], "created_by": "halyard-8", "parsed_arguments": {"word": "halyard-8"}}
    spoken = {**SAID, "internal_chat_message_metadata_passthrough": {"word": "halyard-8"}}
    response = world.create(input=[call, CALLS["function_call"][0][1], spoken])
    assert "halyard-8" not in json.dumps(world.upstream.requests[-1].body)
    assert "halyard-8" not in json.dumps(world.get(f"/responses/{response['id']}/input_items"))


@row("item_field", "caller")
def caller(world: World) -> None:
    call = {**CALLS["function_call"][0][0], "caller": CALLER}
    assert world.asked(input=[call, CALLS["function_call"][0][1], SAID])["input"][0]["call_id"] == "c1"


# --- Content parts -----------------------------------------------------------------------------------------------------------------


def sent_parts(world: World, *parts: Json, role: str = "user") -> list[Json]:
    return list(world.asked(input=[{"role": role, "content": list(parts)}, SAID])["input"][0]["content"])


@row("part", "input_text", "output_text", "refusal", "prompt_cache_breakpoint")
def text_parts(world: World) -> None:
    marked = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert sent_parts(world, marked) == [marked]
    spoken = {"type": "output_text", "text": "b", "annotations": []}
    no = {"type": "refusal", "refusal": "no"}
    assert sent_parts(world, spoken, no, {"type": "input_text", "text": "b"}, role="assistant") == [spoken, no, spoken]


@row("part", "input_image")
def input_image(world: World) -> None:
    uploaded = world.http.post(
        "/files", files={"file": ("dot.png", base64.b64decode(PIXEL.partition(",")[2]))}, data={"purpose": "vision"}
    ).json()
    for source in ({"image_url": PIXEL}, {"file_id": uploaded["id"]}):
        assert sent_parts(world, {"type": "input_image", **source}) == [{"type": "input_image", "detail": "auto", "image_url": PIXEL}]
    far = {"type": "input_image", "image_url": "https://images.example.com/a.png", "detail": "low"}
    assert sent_parts(world, far) == [far]
    shown = {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot", "file_id": uploaded["id"]}}
    for name in ("native", "chat"):
        body = world.asked(name, input=[CALLS["computer_call"][0][0], shown, SAID])
        assert PIXEL in json.dumps(body), "screenshots may be files too"


@row("part", "input_file")
def input_file(world: World) -> None:
    uploaded = world.http.post("/files", files={"file": ("a.txt", b"lines")}, data={"purpose": "user_data"}).json()
    data = "data:text/plain;base64," + base64.b64encode(b"lines").decode()
    expected = [{"type": "input_file", "filename": "a.txt", "file_data": data}]
    assert sent_parts(world, {"type": "input_file", "file_id": uploaded["id"]}) == expected
    assert sent_parts(world, {"type": "input_file", "filename": "a.txt", "file_data": data}) == expected
    unreachable = {"role": "user", "content": [{"type": "input_file", "file_url": "http://127.0.0.1/a"}]}
    answer = world.http.post("/responses", json={"model": "native", "input": [unreachable]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_file_url")


# --- Routes ------------------------------------------------------------------------------------------------------------------------


def called_routes(world: World) -> None:
    """Every route in the order of a life; the scenarios look at each more closely."""
    response = world.create()
    path = f"/responses/{response['id']}"
    assert world.get(path) == response
    assert world.get(f"{path}/input_items")["data"][0]["role"] == "user"
    assert world.http.post(f"{path}/cancel").json()["error"]["message"] == "Cannot cancel a synchronous response."
    assert world.post(f"{path}/pause")["status"] == world.post(f"{path}/resume")["status"] == "completed"
    queued = world.create(background=True)
    assert world.post(f"/responses/{queued['id']}/cancel")["status"] in ("cancelled", "completed")
    assert world.post("/responses/input_tokens", {"model": "native", "input": "hi"})["input_tokens"] > 0
    assert world.post("/responses/compact", {"model": "plain", "input": "hi"})["object"] == "response.compaction"
    assert world.http.get("/responses", headers={"upgrade": "websocket"}).status_code == 426
    assert world.get("/responses", limit=1, order="asc")["object"] == "list"
    assert [each["event"]["type"] for each in world.get(f"{path}/events", types="response.completed")["data"]] == ["response.completed"]
    assert [each["type"] for each in world.get(f"{path}/steps")["data"]] == ["model"]
    assert world.http.post(f"{path}/budget", json={"tool_calls": 1}).json()["error"]["message"].startswith("The response has ended")
    assert world.post(f"{path}/fork", {"input": "again"})["forked_from"]["response_id"] == response["id"]
    assert world.get(path, at=1)["as_of"]["sequence_number"] == 1
    assert world.get("/me")["tenant"] == "default"
    assert world.get("/usage", group_by="model")["data"][0]["responses"] > 0
    assert world.http.delete(path).json() == {"id": response["id"], "object": "response", "deleted": True}
    assert world.http.get(path).status_code == 404
    assert {"native", "demo"} <= {entry["id"] for entry in world.get("/models")["data"]}
    assert world.get("/models/native")["id"] == "native"
    assert world.http.delete("/models/native").status_code == 405


def conversation_routes(world: World) -> None:
    made = world.post("/conversations", {"metadata": {"a": "1"}, "items": [SAID]})
    path = f"/conversations/{made['id']}"
    assert world.get(path) == made
    assert world.post(path, {"metadata": {"b": "2"}})["metadata"] == {"b": "2"}
    (added,) = world.post(f"{path}/items", {"items": [{"role": "user", "content": "more"}]})["data"]
    assert world.get(f"{path}/items")["first_id"] == added["id"]
    assert world.get(f"{path}/items/{added['id']}")["content"][0]["text"] == "more"
    assert world.http.delete(f"{path}/items/{added['id']}").json()["object"] == "conversation"
    assert len(world.get(f"{path}/items")["data"]) == 1
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def file_routes(world: World) -> None:
    made = world.http.post("/files", files={"file": ("a.txt", b"lines")}, data={"purpose": "user_data"}).json()
    assert made["id"] in {entry["id"] for entry in world.get("/files")["data"]}
    assert world.get(f"/files/{made['id']}") == made
    assert world.http.get(f"/files/{made['id']}/content", follow_redirects=True).content == b"lines"
    assert world.http.delete(f"/files/{made['id']}").json()["deleted"] is True
    assert world.http.get(f"/files/{made['id']}").status_code == 404
    begun: Json = {"filename": "b.txt", "bytes": 5, "purpose": "user_data", "mime_type": "text/plain"}
    upload = world.post("/uploads", begun)
    part = world.http.post(f"/uploads/{upload['id']}/parts", files={"data": ("part", b"lines")}).json()
    done = world.post(f"/uploads/{upload['id']}/complete", {"part_ids": [part["id"]]})
    assert (done["status"], done["file"]["bytes"]) == ("completed", 5)
    assert world.post(f"/uploads/{world.post('/uploads', begun)['id']}/cancel")["status"] == "cancelled"


def container_routes(world: World) -> None:
    made = world.post("/containers", {"name": "mine"})
    path = f"/containers/{made['id']}"
    assert made["id"] in {entry["id"] for entry in world.get("/containers")["data"]}
    assert world.get(path)["name"] == "mine"
    added = world.http.post(f"{path}/files", files={"file": ("a.txt", b"lines")}).json()
    assert [entry["id"] for entry in world.get(f"{path}/files")["data"]] == [added["id"]]
    assert world.get(f"{path}/files/{added['id']}")["bytes"] == 5
    assert world.http.get(f"{path}/files/{added['id']}/content", follow_redirects=True).content == b"lines"
    assert [entry["path"] for entry in world.get(f"{path}/tree")["data"]] == ["/mnt/data/a.txt"]
    with zipfile.ZipFile(io.BytesIO(world.http.get(f"/archives/{made['id']}").content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"a.txt": b"lines"}
    assert world.http.delete(f"{path}/files/{added['id']}").json()["deleted"] is True
    assert world.get(f"{path}/egress")["data"] == []
    session_routes(world, path)
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def session_routes(world: World, path: str) -> None:
    session = world.post(f"{path}/sessions", {"command": "cat", "columns": 90})
    assert world.get(f"{path}/sessions")["data"] == [session]
    assert world.get(f"{path}/sessions/{session['id']}")["status"] == "running"
    assert "cat" in {each["command"] for each in world.get(f"/processes/{session['container_id']}")["data"]}
    one = f"/sessions/{session['id']}"
    assert world.post(f"{one}/input", {"text": "lines"})["session_id"] == session["id"]
    assert world.get(f"{one}/output?wait_ms=0")["object"] == "container.session.output"
    assert world.post(f"{one}/resize", {"columns": 70, "rows": 20})["columns"] == 70
    assert world.http.delete(one).json()["deleted"] is True
    assert world.get(f"{path}/sessions")["data"] == []


def skill_routes(world: World) -> None:
    def push(path: str, **fields: str) -> Json:
        answer = world.http.post(path, files={"files": ("tables.zip", zip_of(skill()))}, data=fields)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    made = push("/skills")
    path = f"/skills/{made['id']}"
    assert world.get(path) == made
    assert made["id"] in [each["id"] for each in world.get("/skills")["data"]]
    assert push(f"{path}/versions", default="true")["version"] == "2"
    assert [each["version"] for each in world.get(f"{path}/versions")["data"]] == ["2", "1"]
    assert world.get(f"{path}/versions/latest")["version"] == "2"
    assert world.post(path, {"default_version": 1})["default_version"] == "1"
    contents = {world.http.get(f"{path}{place}/content", follow_redirects=True).content for place in ("", "/versions/2")}
    assert [content[:2] for content in contents] == [b"PK"]
    assert world.http.delete(f"{path}/versions/2").json()["deleted"] is True
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def vector_store_routes(world: World) -> None:
    """Every route in the order of a life."""
    file = world.http.post("/files", files={"file": ("whales.md", b"The blue whale is large.")}, data={"purpose": "assistants"}).json()
    made = world.post("/vector_stores", {"name": "notes", "file_ids": [file["id"]]})
    path = f"/vector_stores/{made['id']}"
    until(lambda: world.get(path)["status"] == "completed")
    assert world.get(path)["file_counts"] == {"in_progress": 0, "completed": 1, "failed": 0, "cancelled": 0, "total": 1}
    assert made["id"] in {each["id"] for each in world.get("/vector_stores")["data"]}
    assert world.post(path, {"name": "memos"})["name"] == "memos"
    assert world.post(f"{path}/search", {"query": "whale"})["data"][0]["filename"] == "whales.md"
    assert [each["id"] for each in world.get(f"{path}/files", filter="completed")["data"]] == [file["id"]]
    assert world.post(f"{path}/files/{file['id']}", {"attributes": {"n": 1}})["attributes"] == {"n": 1}
    assert world.get(f"{path}/files/{file['id']}/content")["data"][0]["text"] == "The blue whale is large."
    assert world.http.delete(f"{path}/files/{file['id']}").json()["object"] == "vector_store.file.deleted"
    assert world.http.get(f"{path}/files/{file['id']}").status_code == 404
    assert world.post(f"{path}/files", {"file_id": file["id"]})["status"] == "in_progress"
    batch = world.post(f"{path}/file_batches", {"file_ids": [file["id"]]})
    assert world.get(f"{path}/file_batches/{batch['id']}")["file_counts"]["total"] == 1
    assert world.post(f"{path}/file_batches/{batch['id']}/cancel")["status"] == "cancelled"
    assert [each["id"] for each in world.get(f"{path}/file_batches/{batch['id']}/files")["data"]] == [file["id"]]
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def webhook_routes(world: World) -> None:
    wanted = {"name": "mine", "url": world.page_url, "event_types": ["response.completed"]}
    assert set(wanted["event_types"]) <= set(world.get("/webhook_event_types")["data"])
    made = world.post("/webhook_endpoints", wanted)
    path = f"/webhook_endpoints/{made['id']}"
    assert made["id"] in [each["id"] for each in world.get("/webhook_endpoints")["data"]]
    assert world.get(path)["url"] == world.page_url
    assert world.post(path, {"name": "ours"})["name"] == "ours"
    assert world.post(f"{path}/rotate_secret", {})["signing_secret"] != made["signing_secret"]
    assert world.post(f"{path}/test", {"event_type": "response.completed"})["webhook_endpoint_id"] == made["id"]
    queued = world.create(background=True)
    until(lambda: world.get(f"{path}/deliveries")["data"])
    (delivery,) = world.get(f"{path}/deliveries")["data"]
    assert (delivery["response_id"], delivery["event_type"]) == (queued["id"], "response.completed")
    assert world.post(f"{path}/deliveries/{delivery['id']}/redeliver")["status"] == "pending"
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def console_route(world: World) -> None:
    """A code is good once."""
    (address,) = lines(world.stack, ["console", "--no-browser"])
    code = address.partition("#k=")[2]
    with world.stack.http(code) as http:
        key = http.post("/console/session").json()["key"]
        assert http.post("/console/session").status_code == 401
    with world.stack.http(key) as http:
        assert http.get("/me").json()["tenant"] == "default"


def absent(path: str, world: World) -> None:
    answer = world.http.get(path.removeprefix("/v1"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


def chat_route(world: World) -> None:
    answer = world.post("/chat/completions", {"model": "native", "messages": [{"role": "user", "content": "hi"}]})
    assert (answer["object"], answer["choices"][0]["message"]["role"]) == ("chat.completion", "assistant")


def embedding_route(world: World) -> None:
    answer = world.post("/embeddings", {"model": "static-256", "input": ["a", "b"], "encoding_format": "float", "dimensions": 8})
    assert [len(each["embedding"]) for each in answer["data"]] == [8, 8]


_STORIES = {
    "/v1/embeddings": embedding_route,
    "/v1/chat": chat_route,
    "/v1/responses": called_routes,
    "/v1/approvals": approvals,
    "/v1/me": called_routes,
    "/v1/usage": called_routes,
    "/v1/sessions": container_routes,
    "/v1/models": called_routes,
    "/v1/conversations": conversation_routes,
    "/v1/files": file_routes,
    "/v1/skills": skill_routes,
    "/v1/uploads": file_routes,
    "/v1/containers": container_routes,
    "/v1/archives": container_routes,
    "/v1/processes": container_routes,
    "/v1/console": console_route,
    "/v1/webhook": webhook_routes,
    "/v1/vector_stores": vector_store_routes,
}


def once(story: Check) -> Check:
    """A story drives all routes of its kind: it is played for the first of their rows, and what came of it holds for the others."""
    came: list[Exception | None] = []

    def check(world: World) -> None:
        if not came:
            try:
                story(world)
            except Exception as error:
                came.append(error)
            else:
                came.append(None)
        if came[0] is not None:
            raise came[0]

    return check


_PLAYED = {story: once(story) for story in _STORIES.values()}
for _line in TABLE["route"]:
    _path = _line["name"].split()[-1]
    _story = next((story for start, story in _STORIES.items() if _path.startswith(start)), None)
    row("route", _line["name"])(_PLAYED[_story] if _story else partial(absent, _path))


# --- The tests ----------------------------------------------------------------------------------------------------------------------


def rows() -> list[Any]:
    return [pytest.param(key, id=" ".join(key)) for key in CHECKS]


def refusals() -> list[Any]:
    return [
        pytest.param(refusal, id=f"{group} {line['name']} {number}")
        for group in TABLE
        for line in TABLE[group]
        for number, refusal in enumerate(line.get("refusals", ()))
    ]


def test_every_row_has_a_check() -> None:
    accepted = {(group, line["name"]) for group in TABLE for line in TABLE[group] if line["status"] != "refused"}
    refused = {(group, line["name"]) for group in TABLE for line in TABLE[group] if line["status"] == "refused"}
    assert (accepted - CHECKS.keys(), CHECKS.keys() - accepted - refused) == (set(), set())
    without = {key for key in refused - CHECKS.keys() if not next(r for r in TABLE[key[0]] if r["name"] == key[1]).get("refusals")}
    assert without == set()


@pytest.mark.parametrize("key", rows())
def test_a_row_has_its_effect(world: World, key: tuple[str, str]) -> None:
    world.upstream.forget()
    CHECKS[key](world)
    for container in world.get("/containers", limit=100)["data"]:  # a tenant has so many sandboxes, and the table more rows
        world.http.delete(f"/containers/{container['id']}")


@pytest.mark.parametrize("refusal", refusals())
def test_a_refusal_says_what_is_wrong_and_asks_no_model(world: World, refusal: Json) -> None:
    before = len(world.upstream.requests)
    answer = world.http.post("/responses", json={"model": "native", "input": "hi", **json.loads(refusal["request"])})
    assert (answer.status_code, answer.json()) == (
        400,
        {
            "error": {
                "message": refusal["message"],
                "type": "invalid_request_error",
                "param": refusal["param"],
                "code": refusal["code"] or None,
            }
        },
    )
    assert len(world.upstream.requests) == before
