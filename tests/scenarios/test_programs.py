"""Programs that call tools, through the SDK on a real stack: the model writes JavaScript, a Node in the container runs it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.mcp_servers import LOOPBACK, Depot, Running, depot_beside
from tests.processes import is_worker, kill_all
from tests.stack import Stack, assert_well_formed, raw_events
from tests.upstream import Call, MockUpstream, Reply, said

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")

PROGRAMS: dict[str, Any] = {"type": "programmatic_tool_calling"}
SHELL: dict[str, Any] = {
    "type": "shell",
    "environment": {"type": "container_auto"},
    "allowed_callers": ["direct", "programmatic"],
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    "output_schema": {"type": "object", "properties": {"degrees": {"type": "number"}}},
    "allowed_callers": ["programmatic"],
}
WARMEST = """\
const towns = ["Oslo", "Rome"];
const found = await Promise.all(towns.map((town) => tools.weather({ town })));
const warmest = towns[found.indexOf(found.reduce((a, b) => (a.degrees > b.degrees ? a : b)))];
const again = await tools.weather({ town: `${warmest} tomorrow` });
text(`${warmest}: ${again.degrees}`);
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockUpstream]:
    with MockUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def depot() -> Iterator[tuple[Depot, Running]]:
    made = Depot()
    with depot_beside(made) as running:
        yield made, running


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, upstream: MockUpstream, depot: tuple[Depot, Running]) -> Iterator[Stack]:
    state_dir = Path(tmp_path_factory.mktemp("programs"))
    models = state_dir / "models.toml"
    models.write_text(
        f'[[models]]\nname = "served"\nprovider = "chat_completions"\nbase_url = "{upstream.url}"\n'
        f'[mcp.depot]\nurl = "{depot[1].url}/mcp"\n'
    )
    environment = {"MOORAGE_MODELS_FILE": str(models), "MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK)}
    running = Stack(state_dir, environment).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(stack: Stack) -> OpenAI:
    return stack.client()


def program(code: str) -> Reply:
    return Reply(calls=(Call("run_program", json.dumps({"code": code}), "call_program"),), finish="tool_calls")


def asked(client: OpenAI, *tools: dict[str, Any], **fields: Any) -> Response:
    made: Response = client.responses.create(model="served", **{"input": "go", "tools": [PROGRAMS, *tools], **fields})
    return made


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]


def answers(response: Response, degrees: dict[str, float]) -> list[Any]:
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": json.dumps({"degrees": degrees[json.loads(call.arguments)["town"]]}),
            "caller": call.caller.to_dict() if call.caller is not None else None,
        }
        for call in calls_of(response)
    ]


def shown(item: BaseModel) -> dict[str, Any]:
    return item.model_dump(mode="json", exclude_unset=True)


def kinds(response: Response) -> list[str]:
    return [item.type for item in response.output]


def test_a_program_calls_functions_over_three_responses(client: OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(program(WARMEST), said("Rome."))
    first = asked(client, WEATHER)
    before = len(upstream.requests)
    assert (first.status, kinds(first)) == ("completed", ["program", "function_call", "function_call"])
    assert [call.arguments for call in calls_of(first)] == ['{"town":"Oslo"}', '{"town":"Rome"}']
    caller = {"type": "program", "caller_id": first.output[0].to_dict()["call_id"]}
    assert [call.caller.to_dict() for call in calls_of(first) if call.caller is not None] == [caller, caller]

    second = asked(client, WEATHER, input=answers(first, {"Oslo": 3, "Rome": 19}), previous_response_id=first.id)
    assert (kinds(second), calls_of(second)[0].arguments) == (["function_call"], '{"town":"Rome tomorrow"}')
    assert second.usage is not None
    assert (second.usage.total_tokens, len(upstream.requests)) == (0, before), "no model was asked"

    third = asked(client, WEATHER, input=answers(second, {"Rome tomorrow": 21}), previous_response_id=second.id)
    assert kinds(third) == ["program_output", "message"]
    assert third.output[0].to_dict() | {"id": ""} == {
        "id": "",
        "type": "program_output",
        "call_id": caller["caller_id"],
        "result": "Rome: 21",
        "status": "completed",
    }
    told = upstream.requests[-1].body["messages"]
    assert [message["role"] for message in told] == ["user", "assistant", "tool"], "the calls are the program's"
    assert told[-1]["content"] == "Rome: 21"
    offered = [tool["function"]["name"] for tool in upstream.requests[-1].body["tools"]]
    assert offered == ["run_program"], "the model may not call the weather itself"
    assert "tools.weather(" in upstream.requests[-1].body["tools"][0]["function"]["description"]


def test_a_client_that_keeps_its_own_history_sends_the_program_back(client: OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(program('const { degrees } = await tools.weather({ town: "Oslo" }); return degrees + 1;'), said("Four."))
    first = asked(client, WEATHER, store=False)
    history = [{"role": "user", "content": "go"}, *(item.to_dict() for item in first.output), *answers(first, {"Oslo": 3})]
    second = asked(client, WEATHER, input=history, store=False)
    assert kinds(second) == ["program_output", "message"]
    assert second.output[0].to_dict()["result"] == "4"
    changed = [*history[:1], history[1] | {"code": "return 5"}, *history[2:]]
    with pytest.raises(openai.BadRequestError, match=r"input\[1\].fingerprint"):
        asked(client, WEATHER, input=changed, store=False)


def test_a_program_runs_commands_side_by_side_and_the_model_reads_only_what_it_says(
    client: OpenAI, stack: Stack, upstream: MockUpstream
) -> None:
    code = """
    const said = await Promise.all(["one", "two"].map((word) => tools.shell({ commands: [`echo ${word}`] })));
    const both = await tools.shell({ commands: [`echo ${said.map((each) => each.match(/one|two/)[0]).join("+")}`] });
    text(both.includes("one+two"));
    """
    upstream.plays(program(code), said("Done."))
    body = {"model": "served", "input": "go", "tools": [PROGRAMS, SHELL], "stream": True}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    response = Response.model_validate(events[-1]["response"])
    shells = ["shell_call", "shell_call", "shell_call_output", "shell_call_output", "shell_call", "shell_call_output"]
    assert kinds(response) == ["program", *shells, "program_output", "message"]
    assert shown(response.output[-2])["result"] == "true"
    assert {shown(item)["caller"]["type"] for item in response.output if item.type.startswith("shell")} == {"program"}
    assert [message["role"] for message in upstream.requests[-1].body["messages"]] == ["user", "assistant", "tool"]


def test_a_program_that_is_killed_between_its_calls_runs_no_command_twice(client: OpenAI, stack: Stack, upstream: MockUpstream) -> None:
    code = """
    for (const number of [1, 2, 3]) {
      await tools.shell({ commands: [`echo ${number} >> /mnt/data/ran.txt; sleep 1`] });
    }
    return (await tools.shell({ commands: ["cat /mnt/data/ran.txt"] })).trim();
    """
    upstream.plays(program(code), said("Done."))
    queued = asked(client, SHELL, background=True)
    assert stack.process is not None
    killed, events = 0, []
    with stack.http() as http, http.stream("GET", f"/responses/{queued.id}?stream=true", timeout=120) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            events.append(json.loads(line.removeprefix("data: ")))
            is_done = events[-1]["type"] == "response.output_item.done"
            if is_done and events[-1]["item"]["type"] == "shell_call_output" and killed < 3:
                killed += bool(kill_all(stack.process.pid, is_worker))
    assert_well_formed(events)
    ended = Response.model_validate(events[-1]["response"])
    assert (ended.status, killed) == ("completed", 3)
    assert kinds(ended) == ["program", *["shell_call", "shell_call_output"] * 4, "program_output", "message"]
    assert shown(ended.output[-2])["result"].split()[-3:] == ["1", "2", "3"]


def test_a_program_that_is_killed_between_its_calls_asks_a_server_once(
    client: OpenAI, stack: Stack, upstream: MockUpstream, depot: tuple[Depot, Running]
) -> None:
    code = """
    const found = await Promise.all(["A-7", "B-1"].map((sku) => tools.depot__find_part({ sku })));
    await tools.depot__order_part({ sku: "A-7", count: found.length });
    await tools.shell({ commands: ["sleep 2"] });
    return found.join(", ");
    """
    upstream.plays(program(code), said("Done."))
    server = {"type": "mcp", "server_label": "depot", "require_approval": "never", "allowed_callers": ["programmatic"]}
    queued = asked(client, SHELL, server, background=True)
    assert stack.process is not None
    with stack.http() as http, http.stream("GET", f"/responses/{queued.id}?stream=true", timeout=120) as answer:
        events = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1]["type"] == "response.output_item.added" and events[-1]["item"]["type"] == "shell_call_output":
                    kill_all(stack.process.pid, is_worker)
    assert_well_formed(events)
    ended = Response.model_validate(events[-1]["response"])
    shells = ["shell_call", "shell_call_output"]
    assert kinds(ended) == ["mcp_list_tools", "program", *["mcp_call"] * 3, *shells, "program_output", "message"]
    assert shown(ended.output[-2])["result"] == "14 of A-7 in stock, 14 of B-1 in stock"
    assert (sorted(depot[0].lookups), depot[0].orders) == (["A-7", "B-1"], [("A-7", 2)])
    assert [message["role"] for message in upstream.requests[-1].body["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("what", "code", "result"),
    [
        ("an error", 'text("so far"); throw new Error("no luck")', "so far\nThe program failed. Error: no luck"),
        ("no JavaScript", "return (", "The program failed. SyntaxError"),
        ("an endless loop", "for (;;) {}", "The program failed. It took longer than 20000 ms."),
        (
            "too much memory",
            "const all = []; for (;;) all.push(new Array(1e6).fill(1));",
            "The program failed. It needs too much memory.",
        ),
        ("what never comes", "await new Promise(() => {})", "The program failed. It waits for something that never comes."),
        ("the time", "return Date.now()", "The program failed. Error: A program has no clock"),
        ("a module", 'return require("fs")', "The program failed. ReferenceError: require is not defined"),
        ("an unknown tool", "return tools.wether({})", "The program failed. TypeError: tools.wether is not a function"),
        (
            "a bad call",
            "return tools.shell({ command: 1 })",
            "This program could not be run. The arguments of a call do not fit its tool",
        ),
        ("a number that is drawn", "return Math.random() === Math.random()", "false"),
        ("a log", 'console.log("a", 1, { b: [2] })', 'a 1 {\n  "b": [\n    2\n  ]\n}'),
    ],
)
def test_the_model_reads_what_a_program_came_to(client: OpenAI, upstream: MockUpstream, what: str, code: str, result: str) -> None:
    upstream.plays(program(code), said("I see."))
    response = asked(client, SHELL)
    assert kinds(response) == ["program", "program_output", "message"], what
    assert shown(response.output[1])["result"].startswith(result), what
    assert upstream.requests[-1].body["messages"][-1]["content"].startswith(result)


@pytest.mark.parametrize(
    ("what", "body", "param", "says"),
    [
        ("nothing that writes programs", {"tools": [WEATHER]}, "tools[0].allowed_callers", "no program can be written"),
        (
            "a person's word",
            {"tools": [PROGRAMS, SHELL | {"require_approval": "always"}]},
            "tools[1].require_approval",
            "cannot wait for a person's word",
        ),
        ("a deferred function", {"tools": [PROGRAMS, WEATHER | {"defer_loading": True}]}, "tools[1].defer_loading", "told with them"),
        (
            "a server that asks a person",
            {"tools": [PROGRAMS, {"type": "mcp", "server_label": "depot", "allowed_callers": ["programmatic"]}]},
            "tools[1].require_approval",
            "cannot wait for a person's word",
        ),
        (
            "the workspace",
            {
                "tools": [
                    PROGRAMS,
                    {
                        "type": "mcp",
                        "server_label": "workspace",
                        "server_url": "moorage://workspace",
                        "require_approval": "never",
                        "allowed_callers": ["programmatic"],
                    },
                ]
            },
            "tools[1].allowed_callers",
            "no tools of the workspace",
        ),
        (
            "a choice of what only programs may call",
            {"tools": [PROGRAMS, WEATHER], "tool_choice": {"type": "function", "name": "weather"}},
            "tool_choice",
            "only programs may call 'weather'",
        ),
        (
            "a caller that is not there",
            {
                "tools": [PROGRAMS, WEATHER],
                "input": [
                    {
                        "type": "function_call",
                        "call_id": "call_1",
                        "name": "weather",
                        "arguments": "{}",
                        "caller": {"type": "program", "caller_id": "call_0"},
                    },
                    {"type": "function_call_output", "call_id": "call_1", "output": "{}"},
                ],
            },
            "input[0].caller",
            "no such program",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(stack: Stack, what: str, body: dict[str, Any], param: str, says: str) -> None:
    with stack.http() as http:
        answer = http.post("/responses", json={"model": "served", "input": "go", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), what
    assert says in error["message"]


def test_an_output_that_is_no_json_is_refused_where_its_function_promises_some(client: OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(program('return tools.weather({ town: "Oslo" })'))
    first = asked(client, WEATHER)
    (output,) = answers(first, {"Oslo": 3})
    with pytest.raises(openai.BadRequestError, match="expected a JSON string because the function declares output_schema"):
        asked(client, WEATHER, input=[output | {"output": "cold"}], previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="A program goes on with this input"):
        client.responses.create(model="served", input=[output], previous_response_id=first.id)
