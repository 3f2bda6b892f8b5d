"""The shell as models get it that were not trained on lists of commands."""

import json
from typing import Any

import pytest
from moorage.model.catalog import ModelEntry
from moorage.model.models_file import ProviderKind
from moorage.tools.lowering import lower
from moorage.tools.shell.sequential import one_command

HOSTED: dict[str, Any] = {"type": "shell", "environment": {"type": "container_auto"}}
LOCAL: dict[str, Any] = {
    "type": "shell",
    "environment": {"type": "local", "skills": [{"name": "s", "path": "/s", "description": "d"}]},
}
CALL = {"type": "shell_call", "id": "sh", "call_id": "c", "action": {"commands": ["mkdir out", "cp a out"], "timeout_ms": 5000}}
OUTPUT = {
    "type": "shell_call_output",
    "call_id": "c",
    "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}


@pytest.mark.parametrize("tool", [HOSTED, LOCAL], ids=["hosted", "the client's"])
def test_one_command_is_offered(tool: dict[str, Any]) -> None:
    (offered,) = one_command(lower([], [tool], "auto", frozenset({"function"}))).tools
    assert offered["parameters"]["required"] == ["command"]
    assert list(offered["parameters"]["properties"]) == ["command", "timeout_ms", "max_output_length"]
    assert offered["parameters"]["properties"]["command"]["type"] == "string"
    for word in ("commands", "concurrently"):
        assert word not in offered["description"]
    assert ("SKILL.md" in offered["description"]) == (tool is LOCAL)


ASKED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "as offered": ({"command": "ls"}, ["ls"]),
    "several lines": ({"command": "cd out\nls"}, ["cd out\nls"]),
    "a list all the same": ({"commands": ["mkdir out", "cp a out", "ls out"]}, ["mkdir out\ncp a out\nls out"]),
    "a list under the offered name": ({"command": ["mkdir out", "ls"]}, ["mkdir out\nls"]),
}


@pytest.mark.parametrize(("arguments", "commands"), ASKED.values(), ids=ASKED.keys())
def test_what_the_model_asks_for_runs_one_after_the_other(arguments: dict[str, Any], commands: list[str]) -> None:
    lowered = one_command(lower([], [HOSTED], "auto", frozenset({"function"})))
    item = lowered.restore("shell").call_item(json.dumps(arguments), "c")
    assert item is not None
    assert item["action"]["commands"] == commands


def test_arguments_that_do_not_fit_are_no_call() -> None:
    lowered = one_command(lower([], [HOSTED], "auto", frozenset({"function"})))
    assert lowered.restore("shell").call_item('{"query": "x"}', "c") is None


def test_earlier_calls_are_read_in_the_same_form() -> None:
    lowered = one_command(lower([CALL, OUTPUT], [HOSTED], "auto", frozenset({"function"})))
    assert json.loads(lowered.items[0]["arguments"]) == {"command": "mkdir out\ncp a out", "timeout_ms": 5000}
    assert lowered.items[1]["type"] == "function_call_output"


def test_other_tools_and_calls_are_left_as_they_are() -> None:
    function = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    call = {"type": "function_call", "call_id": "d", "name": "look", "arguments": '{"commands":["a"]}'}
    plain = lower([call], [function], "auto", frozenset({"function"}))
    assert one_command(plain) == plain


@pytest.mark.parametrize(
    ("kind", "fields", "is_sequential"),
    [
        ("chat_completions", {"base_url": "http://127.0.0.1:8000/v1"}, True),
        ("chat_completions", {"base_url": "https://api.openai.com/v1"}, False),
        ("chat_completions", {"base_url": "http://127.0.0.1:8000/v1", "shell": "parallel"}, False),
        ("anthropic_messages", {}, True),
        ("bedrock_converse", {}, True),
        ("openai_responses", {}, False),
        ("openai_responses", {"shell": "sequential"}, True),
        ("demo", {}, False),
    ],
)
def test_only_models_that_were_trained_on_a_list_get_one_unless_the_operator_says_so(
    kind: ProviderKind, fields: dict[str, Any], is_sequential: bool
) -> None:
    assert ModelEntry("m", kind, "m", **fields).is_shell_sequential is is_sequential
