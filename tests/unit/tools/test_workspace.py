"""The workspace's tools by themselves: what a request may say of them, what a model is offered, and what it reads."""

from typing import Any

import pytest
from moorage.errors import ApiError
from moorage.model.remote_servers import RemoteServers
from moorage.sandbox.exec_client import SessionOutput
from moorage.tools.calls import ItemPosition
from moorage.tools.lowering import lower
from moorage.tools.mcp.room import Mcp
from moorage.tools.mcp.workspace import toolset
from moorage.tools.mcp.workspace.arguments import InvalidArguments, checked, schema
from moorage.tools.mcp.workspace.results import cut, tokens, with_notes
from moorage.tools.mcp.workspace.terminals import told
from moorage.tools.room import CallRunner
from moorage.wire.requests import parse_create

TOOL: dict[str, Any] = {"type": "mcp", "server_label": "ws", "server_url": "moorage://workspace", "require_approval": "never"}
LIST: dict[str, Any] = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "ws", "tools": toolset.listed()}
NAMED: dict[str, Any] = {"environment": {"type": "container_reference", "container_id": "cntr_1"}}


def parsed(*tools: dict[str, Any]) -> Any:
    return parse_create({"model": "m", "input": "go", "tools": list(tools)})


# --- the request ---

ENVIRONMENTS: dict[str, tuple[list[dict[str, Any]], tuple[str, str | None]]] = {
    "alone": ([TOOL], ("container_auto", None)),
    "with a container of its own": ([TOOL | NAMED], ("container_reference", "cntr_1")),
    "beside a shell that names one": ([TOOL, {"type": "shell", **NAMED}], ("container_reference", "cntr_1")),
    "beside an interpreter": (
        [{"type": "code_interpreter", "container": "cntr_1"}, TOOL],
        ("container_reference", "cntr_1"),
    ),
    "beside the client's own shell": ([{"type": "shell"}, TOOL], ("container_auto", None)),
}


@pytest.mark.parametrize(("tools", "expected"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_its_tools_run_in_the_container_of_the_request(tools: list[dict[str, Any]], expected: tuple[str, str | None]) -> None:
    environment = parsed(*tools).environment
    assert (environment.type, environment.container_id) == expected


def test_its_container_may_be_described() -> None:
    environment = {"type": "container_auto", "file_ids": ["file-1"], "memory_limit": "4g"}
    request = parsed(TOOL | {"environment": environment})
    places = {"file-1": "tools[0].environment.file_ids[0]"}
    assert (request.environment.file_ids, request.environment.memory_limit) == (places, "4g")


OTHER = {"type": "container_reference", "container_id": "cntr_2"}
REFUSED: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "a key": ([TOOL | {"authorization": "t"}], "tools[0].authorization", "takes no key"),
    "headers": ([TOOL | {"headers": {"X-A": "1"}}], "tools[0].headers", "takes no key"),
    "another server that is built in": ([TOOL | {"server_url": "moorage://else"}], "tools[0].server_url", "moorage://workspace"),
    "a container of another server": (
        [TOOL | NAMED | {"server_url": "https://a.example"}],
        "tools[0].environment",
        "only the tools of 'moorage://workspace'",
    ),
    "the client's machine": ([TOOL | {"environment": {"type": "local"}}], "tools[0].environment.type", "local"),
    "two containers": (
        [TOOL | NAMED, {"type": "shell", "environment": OTHER}],
        "tools[1].environment.container_id",
        "the workspace and the other hosted tools share one container",
    ),
    "two containers with another between": (
        [{"type": "shell", "environment": OTHER}, {"type": "code_interpreter", "container": {"type": "auto"}}, TOOL | NAMED],
        "tools[2].environment.container_id",
        "share one container",
    ),
}


@pytest.mark.parametrize(("tools", "param", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_it_cannot_have_is_refused_by_name(tools: list[dict[str, Any]], param: str, sentence: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(*tools)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert sentence in refused.value.message


def test_it_is_no_host_that_the_operator_could_close_and_has_no_secrets() -> None:
    assert Mcp().extract_secrets(TOOL, "secret_0", RemoteServers(hosts=())) == (TOOL, {})
    assert (Mcp().is_repeatable(TOOL), Mcp().is_repeatable(TOOL | {"server_url": "https://a.example"})) == (True, False)


def test_answers_show_its_container_and_nothing_of_what_was_asked_for() -> None:
    environment = {"type": "container_auto", "file_ids": ["file-1"]}
    shown = Mcp().response_tool(TOOL | {"environment": environment}, "cntr_1")
    assert (shown["environment"], shown["server_url"]) == (NAMED["environment"], "moorage://workspace")


def test_its_calls_run_in_the_container_and_those_of_other_servers_outside() -> None:
    room = Mcp()
    assert room.call_runner(TOOL) is room.call_runner({"type": "mcp_call", "container_id": "cntr_1"}) is CallRunner.SANDBOX
    assert room.call_runner(TOOL | {"server_url": "https://a.example"}) is room.call_runner({"type": "mcp_call"}) is CallRunner.SERVICE
    ran = {"type": "mcp_call", "container_id": "cntr_1"}
    assert (room.container_id(ran), room.container_id(room.with_container(ran, "cntr_2"))) == ("cntr_1", "cntr_2")


def test_a_call_that_waits_in_its_place_will_run_in_the_container_too() -> None:
    gated = TOOL | {"require_approval": "always"}
    made = lower([LIST], [gated], "auto", frozenset({"function"})).restore("exec_command").call_item('{"cmd": "ls"}', "call_1")
    assert made is not None
    waiting = Mcp().hold_for_approval(made, [gated], "apr_1")
    shown = Mcp().open_call(waiting, ItemPosition("mcp_1", 0, "cntr_1", True)).item
    assert (shown["type"], shown["container_id"], shown["approval_request_id"]) == ("mcp_call", "cntr_1", "apr_1")


# --- what a model is offered ---


def offered(*tools: dict[str, Any], programs: str = "") -> dict[str, str]:
    made = lower([LIST], list(tools), "auto", frozenset({"function"}), programs=programs)
    return {tool["name"]: tool["description"] for tool in made.tools}


def test_models_get_the_names_that_they_know() -> None:
    assert {"exec_command", "write_stdin"} <= set(offered(TOOL))


def test_a_function_of_the_clients_keeps_its_name() -> None:
    mine = {"type": "function", "name": "exec_command", "description": "Mine.", "parameters": {"type": "object"}}
    names = offered(mine, TOOL)
    assert names["exec_command"] == "Mine."
    assert any(name.startswith("exec_command_") for name in names)


def test_the_programs_of_the_container_are_told_with_the_command() -> None:
    told_of = [name for name, text in offered(TOOL, programs="Python 3.11").items() if "Python 3.11" in text]
    assert told_of == ["exec_command"]


def test_every_schema_says_what_each_argument_is() -> None:
    for tool in toolset.listed():
        assert tool["description"]
        kind = tool["input_schema"]
        assert (kind["type"], kind["additionalProperties"]) == ("object", False)
        assert set(kind["required"]) <= set(kind["properties"])


# --- arguments ---

SCHEMA = schema(
    {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "steps": {"type": "array", "items": schema({"name": {"type": "string"}, "done": {"type": "boolean"}}, "name")},
    },
    "path",
)

FITTING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the least": ({"path": "x"}, {"path": "x"}),
    "null for what may be left out": ({"path": "x", "count": None}, {"path": "x"}),
    "a whole number with a point": ({"path": "x", "count": 3.0}, {"path": "x", "count": 3}),
    "a list": (
        {"path": "x", "steps": [{"name": "n", "done": True}]},
        {"path": "x", "steps": [{"name": "n", "done": True}]},
    ),
}


@pytest.mark.parametrize(("given", "expected"), FITTING.values(), ids=FITTING)
def test_arguments_that_fit_are_taken(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert checked(SCHEMA, given) == expected


UNFIT: dict[str, tuple[Any, str]] = {
    "no object": ([], "What a tool is called with must be an object."),
    "nothing": ({}, "'path' is missing."),
    "null for what is needed": ({"path": None}, "'path' must be a string."),
    "true for a number": ({"path": "x", "count": True}, "'count' must be a whole number."),
    "a part of a number": ({"path": "x", "count": 1.5}, "'count' must be a whole number."),
    "too small": ({"path": "x", "count": 0}, "'count' must be between 1 and 9."),
    "another word": ({"path": "x", "kind": "c"}, "'kind' must be one of a, b."),
    "deep inside": ({"path": "x", "steps": [{"name": "n"}, {"done": True}]}, "'steps[1].name' is missing."),
    "an unknown name": ({"path": "x", "pth": 1}, "There is no 'pth'; there are path, count, kind, steps."),
}


@pytest.mark.parametrize(("given", "complaint"), UNFIT.values(), ids=UNFIT)
def test_arguments_that_do_not_fit_are_refused_with_a_sentence(given: Any, complaint: str) -> None:
    with pytest.raises(InvalidArguments) as unfit:
        checked(SCHEMA, given)
    assert str(unfit.value) == complaint


# --- results ---


def test_an_end_and_a_session_that_runs_on_are_told_in_the_form_that_models_know() -> None:
    ended = SessionOutput(5_000, "out\n", 4, "exit", 3, 0.25, 0)
    assert told(ended, 100) == "Wall time: 0.2500 seconds\nProcess exited with code 3\nOutput:\nout\n"
    running = SessionOutput(5_000, "so far", 6, None, None, 10.0, 0)
    assert told(running, 100) == "Wall time: 10.0000 seconds\nProcess running with session ID 5000\nOutput:\nso far"


def test_long_output_is_cut_in_the_middle_and_says_how_long_it_was() -> None:
    text = "begin\n" + "x" * 4_000 + "\nend"
    shown = told(SessionOutput(5_000, text, len(text), "exit", 0, 0.0, 0), 10)
    assert shown.splitlines()[2:] == [
        "Original token count: 1003",
        "Output:",
        "Total output lines: 3",
        "",
        "begin",
        "x" * 14 + "…993 tokens truncated…" + "x" * 16,
        "end",
    ]


def test_what_was_not_kept_counts_too() -> None:
    assert "Original token count: 1000" in told(SessionOutput(5_000, "begin … end", 4_000, "exit", 0, 0.0, 0), 100)


def test_characters_are_not_cut_in_two() -> None:
    assert "\ufffd" not in cut("é" * 1_000, 3)
    assert tokens("é" * 4) == 2


def test_notes_stand_in_brackets_after_the_output() -> None:
    assert with_notes("out\n", ("a note", "[another]")) == "out\n[a note]\n[another]"
    assert with_notes("out\n", ()) == "out\n"
