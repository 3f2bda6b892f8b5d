"""What each field of a tool does that a request declares: the client's own, the shell, and what stands in a container."""

import base64
import json
from functools import partial
from typing import Any

from tests.contract.effects.world import FUNCTION, SHELL, Json, World, row
from tests.stack import say, script, shell
from tests.unit.skills.archives import MANIFEST, skill, zip_of
from tests.upstream import Call, Reply, called, called_shell, said


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
CLOSED: Json = SCHEMA | {"additionalProperties": False}
"""What strict mode takes."""
for _field, _value, _plain in (
    ("name", "weather", "weather"),
    ("description", "Say how it is.", "Say how it is."),
    ("parameters", SCHEMA, SCHEMA),
    ("strict", True, True),
    ("output_schema", SCHEMA, None),
    ("defer_loading", True, None),
    ("allowed_callers", ["direct"], None),
):
    _tool = {**FUNCTION, **({"parameters": CLOSED} if _field == "strict" else {}), _field: _value}
    row("tool", f"function.{_field}")(partial(tool_field, _tool, _field, {"native": _value, "plain": _plain}))


@row("tool", "function")
def function(world: World) -> None:
    for name in ("native", "plain", "chat"):
        world.upstream.plays(called("look", {"at": "sea"}))
        (call,) = world.create(name, tools=[FUNCTION])["output"]
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "look", '{"at": "sea"}')


CUSTOM: Json = {"type": "custom", "name": "note", "description": "Keep.", "format": {"type": "text"}}
_CUSTOM_FIELDS: Json = {"name": "jot", "description": "Jot it.", "defer_loading": True, "allowed_callers": ["direct"]}
for _field, _value in _CUSTOM_FIELDS.items():
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


@row("tool", "function.async", "custom.async")
def async_tools(world: World) -> None:
    for tool, arguments in ((FUNCTION, {"at": "list"}), (CUSTOM, {"input": "x"})):
        world.upstream.plays(called(tool["name"], arguments), said("I go on."))
        response = world.create("chat", tools=[tool | {"async": True}])
        call, message = response["output"]
        assert (call["async"], message["type"], response["tools"][0]["async"]) == (True, "message", True)
        world.upstream.plays(said("I see."))
        output = {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "late"}
        world.create("chat", tools=[tool | {"async": True}], previous_response_id=response["id"], input=[output])
        assert "late" in str(world.upstream.requests[-1].body["messages"][-1])


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
        assert (sealed["domain"], {name: sealed[name] for name in scope}) == ("api.example.com", scope)
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
        assert [record["asks_secrets"] for record in kept] == ([] if shown is None else [["TOKEN"]])


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


PREVIEW: Json = {"type": "computer_use_preview", "display_height": 768, "display_width": 1024, "environment": "ubuntu"}


@row("tool", "computer", "computer_use_preview", *(f"computer_use_preview.{field}" for field in list(PREVIEW)[1:]))
def computer(world: World) -> None:
    for tool in ({"type": "computer"}, PREVIEW):
        assert offered(world, tool) == tool
        world.upstream.plays(called("computer", {"actions": [{"type": "screenshot"}]}))
        (call,) = world.create("chat", tools=[tool])["output"]
        assert call["type"] == "computer_call"
    described = world.upstream.requests[-1].body["tools"][0]["function"]["description"]
    assert all(text in described for text in ("768", "1024", "ubuntu"))


_HOSTED: Json = {"container": {"type": "container_auto"}, "require_approval": "always"}


@row("tool", *(f"{tool}.{field}" for tool in ("computer", "computer_use_preview") for field in _HOSTED))
def hosted_computer(world: World) -> None:
    """The call waits for a person's word; ``tests/scenarios/test_computer.py`` shows what becomes of one that runs."""
    for tool in ({"type": "computer"}, {**PREVIEW, "environment": "browser"}):
        world.upstream.plays(called("computer", {"actions": [{"type": "screenshot"}]}))
        response = world.create("chat", tools=[{**tool, **_HOSTED}])
        (shown,) = response["tools"]
        assert (shown["container"]["type"], shown["require_approval"]) == ("container_reference", "always")
        (asked,) = response["output"]
        assert (asked["type"], asked["server_label"]) == ("mcp_approval_request", "moorage://computer")
        assert offered(world, {**tool, **_HOSTED}) == tool, "the upstream is told of no container"
    described = world.upstream.requests[-1].body
    assert "container" not in str(described["tools"])


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


# --- programs ------------------------------------------------------------------------------------------------------------------

PROGRAMS: Json = {"type": "programmatic_tool_calling"}
_PROGRAMMATIC: Json = {**FUNCTION, "allowed_callers": ["programmatic"]}


@row("tool", "programmatic_tool_calling")
@row("tool_choice", "programmatic_tool_calling")
@row("item", "program", "program_output")
def programs(world: World) -> None:
    """A program calls a function, and the next response goes on with it; what they have made comes back as input."""
    tools = [PROGRAMS, _PROGRAMMATIC]
    for model in ("native", "plain", "chat"):
        world.upstream.plays(called("run_program", {"code": "return (await tools.look({ at: 'sea' })).length"}))
        first = world.create(model, tools=tools, tool_choice=PROGRAMS)
        sent = world.upstream.requests[-1].body
        assert "look" not in str(sent["tool_choice"]) + str([tool.get("name") for tool in sent["tools"]])
        program, call = first["output"]
        assert (program["type"], call["caller"]) == ("program", {"type": "program", "caller_id": program["call_id"]})
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "waves"}
        history = [program, call, output]
        world.upstream.plays(said("five"))
        second = world.create(model, tools=tools, input=history)
        ended, _ = second["output"]
        assert (ended["type"], ended["result"]) == ("program_output", "5")
        body = world.asked(model, tools=tools, input=[*history, ended, {"role": "user", "content": "So?"}])
        assert "waves" not in json.dumps(body), "the model sees what the program says"
        assert "return (await tools.look" in json.dumps(body)
