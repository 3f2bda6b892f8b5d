"""What each parameter of a request does."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.contract.effects.world import FUNCTION, PIXEL, SHELL, Json, World, row
from tests.processes import until
from tests.stack import assert_well_formed, raw_events, say, script, shell
from tests.upstream import called_shell, said


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
    sent = "".join(message["content"] for message in world.upstream.requests[-1].body["messages"])
    kept = [f"{n} word" in sent for n in range(8)]
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


@row("parameter", "multi_agent", "multi_agent.enabled", "multi_agent.max_concurrent_subagents")
def multi_agent(world: World) -> None:
    for value in (None, {"enabled": False}, {"enabled": False, "max_concurrent_subagents": 3}, {"enabled": True}):
        response = world.create(multi_agent=value)
        assert "multi_agent" not in response
        asked = world.upstream.requests[-1].body
        assert "multi_agent" not in asked
        offered = {tool["name"] for tool in asked.get("tools", ())}
        assert ("spawn_agent" in offered) is bool(value and value["enabled"])
    told = json.dumps(world.asked(multi_agent={"enabled": True, "max_concurrent_subagents": 6})["input"])
    assert "At most 7 agents are active at once" in told


SUBAGENT_BUDGET = ("", ".usd", ".total_tokens", ".tool_calls", ".on_limit")


@row("parameter", *(f"multi_agent.subagent_budget{name}" for name in SUBAGENT_BUDGET))
def subagent_budget(world: World) -> None:
    """What each limit does: tests/unit/loop/test_team_budget.py. Here, that it comes from the wire to the loop."""
    team: Json = {"enabled": True, "subagent_budget": {"usd": 1}}
    refused = world.http.post("/responses", json={"model": "plain", "input": "hi", "multi_agent": team})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_not_budgetable")
    bounds: Json = {"total_tokens": 1, "tool_calls": 2, "on_limit": "finish"}
    world.upstream.plays(said("Done."))
    response = world.create("plain", multi_agent={"enabled": True, "subagent_budget": bounds})
    assert response["status"] == "completed"


@row("parameter", "background_options", "background_options.completion_window", "background_options.continuation_id")
def background_options(world: World) -> None:
    for value in ({"completion_window": "soonest"}, {"continuation_id": "halyard-8"}):
        response = world.create(background_options=value)
        assert "background_options" not in response
        assert "background_options" not in world.upstream.requests[-1].body
    assert "halyard-8" not in str(world.records())


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
