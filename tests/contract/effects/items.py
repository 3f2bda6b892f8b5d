"""What a choice among tools does, and what the model is shown of each item and content part."""

import base64
import json
from functools import partial
from typing import Any

from tests.contract.effects.tools import CUSTOM, NAMESPACE, PREVIEW
from tests.contract.effects.world import FUNCTION, PIXEL, SHELL, Json, World, row
from tests.upstream import Reply, said

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
    ("computer_use", PREVIEW, "computer"),
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


@row("item", "multi_agent_call", "multi_agent_call_output", "agent_message")
def team(world: World) -> None:
    """A model reads what its agent has asked of its team, and what it was sent; not what the others have said."""
    said = [{"type": "output_text", "text": '{"task_name":"/root/a"}'}]
    items: list[Json] = [
        {"type": "multi_agent_call", "call_id": "c1", "action": "spawn_agent", "arguments": '{"task_name": "a"}'},
        {"type": "multi_agent_call_output", "call_id": "c1", "action": "spawn_agent", "output": said},
        {"role": "assistant", "content": "Unseen.", "agent": {"agent_name": "/root/a"}},
        {"type": "agent_message", "author": "/root/a", "recipient": "/root", "content": [{"type": "input_text", "text": "Done."}]},
    ]
    response = world.create(input=[*items, SAID])
    native = world.upstream.requests[-1].body["input"]
    assert [item["type"] for item in native] == ["function_call", "function_call_output", "message", "message"]
    assert [text in json.dumps(native) for text in ("/root/a", "Done.", "Unseen.")] == [True, True, False]
    listed = world.get(f"/responses/{response['id']}/input_items", order="asc")["data"]
    assert [item["type"] for item in listed][:4] == ["multi_agent_call", "multi_agent_call_output", "message", "agent_message"]
    assert listed[2]["agent"] == {"agent_name": "/root/a"}


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


@row("item_field", "agent")
def agent(world: World) -> None:
    for value in (None, {"agent_name": "/root"}):
        call, output = ({**item, "agent": value} for item in CALLS["function_call"][0])
        world.create(input=[call, output, {**SAID, "agent": value}])
        sent = world.upstream.requests[-1].body["input"]
        assert (len(sent), any("agent" in item for item in sent)) == (3, False)


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
