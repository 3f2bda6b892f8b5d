"""The Response object and its companions, read back by the newest SDK."""

from typing import Any

import orjson
import pytest
from moorage.api.view import listed_item
from moorage.loop.create import echo, echoed_tool
from moorage.wire.requests import parse_create
from moorage.wire.responses import (
    ResponseState,
    TokenUsage,
    deleted,
    input_tokens_object,
    list_object,
    response_object,
)
from openai.types.responses import Response, ResponseItem
from pydantic import TypeAdapter

ALWAYS = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
}
"""The 31 keys that the Open Responses schema requires."""


def state(**fields: Any) -> ResponseState:
    request = parse_create({"model": "m", "input": "hi"})
    return ResponseState(**{"id": "resp_1", "created_at": 100, "status": "in_progress", "echo": echo(request), **fields})


def test_a_fresh_response_has_every_key() -> None:
    assert response_object(state()) == {
        "id": "resp_1",
        "object": "response",
        "created_at": 100,
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        "background": False,
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "model": "m",
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "prompt_cache_retention": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "auto",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }


def test_the_31_keys_of_open_responses_are_always_there() -> None:
    assert len(ALWAYS) == 31
    assert ALWAYS - response_object(state()).keys() == set()


FINALS: dict[str, dict[str, Any]] = {
    "completed": {"status": "completed", "completed_at": 120, "usage": TokenUsage(10, 5, 2, 1, 3), "service_tier": "default"},
    "failed": {"status": "failed", "error": {"code": "server_error", "message": "It broke."}},
    "incomplete": {"status": "incomplete", "incomplete_reason": "max_output_tokens"},
    "cancelled": {"status": "cancelled"},
}


@pytest.mark.parametrize("final", FINALS.values(), ids=FINALS.keys())
def test_the_sdk_reads_every_final_state(final: dict[str, Any]) -> None:
    shown = response_object(state(**final))
    read = Response.model_validate_json(orjson.dumps(shown), strict=True)
    assert (read.status, read.service_tier) == (final["status"], final.get("service_tier", "auto"))
    assert read.model_dump(mode="json", exclude_unset=True).keys() == shown.keys()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", "server_error"),
        ("rate_limit_exceeded", "rate_limit_error"),
        ("insufficient_quota", "insufficient_quota"),
        ("context_length_exceeded", "invalid_request_error"),
    ],
)
def test_an_error_has_the_type_that_goes_with_its_code(code: str, kind: str) -> None:
    shown = response_object(state(status="failed", error={"code": code, "message": "No.", "param": "input"}))
    assert shown["error"] == {"code": code, "message": "No.", "param": "input", "type": kind}


def test_usage_adds_up_over_steps() -> None:
    assert (TokenUsage(10, 5, 2, 1, 3) + TokenUsage(1, 1, 1, 1, 1)).to_json() == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 17,
    }


ECHOED_TOOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a function with nulls": (
        {"type": "function", "name": "f"},
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None},
    ),
    "a custom tool with its format": (
        {"type": "custom", "name": "c"},
        {"type": "custom", "name": "c", "description": None, "format": {"type": "text"}},
    ),
    "a hosted shell as a reference": (
        {
            "type": "shell",
            "environment": {"type": "container_auto", "file_ids": ["file-1"], "network_policy": {"type": "disabled"}},
        },
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_new"}},
    ),
    "a shell in a given container": (
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_given"}},
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_given"}},
    ),
    "a local shell without its skills": (
        {"type": "shell", "environment": {"type": "local", "skills": [{"name": "n", "description": "d", "path": "p"}]}},
        {"type": "shell", "environment": {"type": "local"}},
    ),
    "a shell without an environment": ({"type": "shell"}, {"type": "shell", "environment": {"type": "local"}}),
    "a tool that has nothing to fill": ({"type": "apply_patch"}, {"type": "apply_patch"}),
    "a namespace to its depth": (
        {"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "f", "strict": True}]},
        {
            "type": "namespace",
            "name": "n",
            "description": "",
            "tools": [{"type": "function", "name": "f", "description": None, "parameters": None, "strict": True}],
        },
    ),
}


@pytest.mark.parametrize(("tool", "expected"), ECHOED_TOOLS.values(), ids=ECHOED_TOOLS.keys())
def test_a_tool_is_echoed_complete(tool: dict[str, Any], expected: dict[str, Any]) -> None:
    assert echoed_tool(tool, "cntr_new") == expected
    shown = response_object(state(echo={**state().echo, "tools": [expected]}))
    Response.model_validate_json(orjson.dumps(shown), strict=True)


def test_a_conversation_and_cache_options_are_echoed_only_if_asked_for() -> None:
    asked = {"model": "m", "input": "x", "conversation": "conv_1", "prompt_cache_options": {"mode": "explicit"}}
    echoed = echo(parse_create(asked))
    assert echoed["conversation"] == {"id": "conv_1"}
    assert echoed["prompt_cache_options"] == {"mode": "explicit", "ttl": "30m"}
    assert {"conversation", "prompt_cache_options"} & echo(parse_create({"model": "m", "input": "x"})).keys() == set()


INPUTS: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "https://a.example/i.png"}],
    },
    {"role": "assistant", "content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "x"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "x"},
    {"type": "reasoning", "summary": []},
    {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "c3", "output": [{"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]},
    {"type": "local_shell_call", "call_id": "c4", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    {"type": "local_shell_call_output", "id": "c4", "output": "x"},
    {"type": "apply_patch_call", "call_id": "c5", "status": "completed", "operation": {"type": "delete_file", "path": "a"}},
    {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed"},
    {"type": "computer_call", "call_id": "c6", "action": {"type": "screenshot"}},
    {
        "type": "computer_call_output",
        "call_id": "c6",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,eA=="},
    },
    {"type": "tool_search_call", "call_id": "c7", "arguments": {}},
    {"type": "tool_search_output", "call_id": "c7", "tools": [{"type": "function", "name": "f"}]},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "container_id": "cntr_1",
        "code": "1",
        "outputs": [{"type": "logs", "logs": "1"}, {"type": "image", "url": "data:image/png;base64,AA=="}],
    },
    {"type": "code_interpreter_call", "id": "ci_2", "container_id": "cntr_1", "code": None, "outputs": None},
]


def test_the_sdk_reads_every_listed_item() -> None:
    items = parse_create({"model": "m", "input": INPUTS}).input_items
    for item in items:
        listed = listed_item(item)
        assert TypeAdapter(ResponseItem).validate_json(orjson.dumps(listed)).id == item["id"]


def test_urls_of_images_are_listed_only_if_asked_for() -> None:
    message, output = parse_create({"model": "m", "input": [INPUTS[0], INPUTS[14]]}).input_items
    assert listed_item(message)["content"][1]["image_url"] is None
    assert listed_item(output)["output"]["image_url"] is None
    assert listed_item(message, ["message.input_image.image_url"])["content"][1]["image_url"] == "https://a.example/i.png"
    assert listed_item(output, ["computer_call_output.output.image_url"])["output"] == output["output"]


def test_outputs_of_the_code_interpreter_are_listed_only_if_asked_for() -> None:
    whole, bare = parse_create({"model": "m", "input": INPUTS[-2:]}).input_items
    assert listed_item(whole) == INPUTS[-2] | {"outputs": None}
    assert listed_item(whole, ["code_interpreter_call.outputs"]) == INPUTS[-2]
    assert listed_item(bare, ["code_interpreter_call.outputs"]) == INPUTS[-1] | {"status": "completed"}


def test_a_page_names_its_ends() -> None:
    page = {"object": "list", "data": [{"id": "a"}, {"id": "b"}], "first_id": "a", "last_id": "b", "has_more": True}
    assert list_object([{"id": "a"}, {"id": "b"}], has_more=True) == page
    assert list_object([], has_more=False) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_the_small_objects() -> None:
    assert deleted("resp_1", "response") == {"id": "resp_1", "object": "response", "deleted": True}
    assert input_tokens_object(7) == {"object": "response.input_tokens", "input_tokens": 7}
