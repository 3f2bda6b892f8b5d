"""One conversation, as each kind of upstream is asked to go on with it: whole bodies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, get_type_hints

import botocore.session
import botocore.validate
import pytest
from moorage.model import anthropic_messages, bedrock_converse, chat_completions, openai_responses, reasoning
from moorage.model.base import ModelRequest
from moorage.model.chat_messages import GENERIC, MessageStyle, messages
from moorage.model.turns import THINKING
from moorage.wire.types import Item
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
EPHEMERAL = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}


def text(value: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": kind, "text": value}


ITEMS: tuple[Item, ...] = (
    {"type": "message", "role": "developer", "id": "msg_0", "content": [text("Be exact.")]},
    {
        "role": "user",
        "content": [
            text("What is this?"),
            {"type": "input_image", "detail": "low", "image_url": PNG},
            {"type": "input_file", "filename": "my plan.v2.pdf", "file_data": PDF},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [text("Hm.", "summary_text")],
        "encrypted_content": reasoning.pack(THINKING, {"type": "thinking", "thinking": "Hm.", "signature": "s1"}),
    },
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "sealed by OpenAI", "status": "completed"},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_2",
        "status": "completed",
        "phase": "commentary",
        "content": [
            text("I look.", "output_text")
            | {"annotations": [{"type": "container_file_citation", "file_id": "cfile_1"}], "logprobs": []}
        ],
    },
    {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "call_1", "name": "look", "arguments": '{"at":1}'},
    {"type": "function_call", "id": "fc_2", "status": "completed", "call_id": "call:2", "name": "look", "arguments": '{"at":'},
    {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "a boat"},
    {
        "type": "function_call_output",
        "call_id": "call:2",
        "output": [text("a picture"), {"type": "input_image", "detail": "auto", "image_url": PNG}],
    },
    {"type": "message", "role": "developer", "content": "Soon done."},
)
LOOK = {"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}
REQUEST = ModelRequest(model="m", items=ITEMS, instructions="Be brief.", tools=(LOOK,))


def test_the_responses_api_is_asked_without_any_id_of_ours() -> None:
    assert openai_responses.request_body(REQUEST) == {
        "model": "m",
        "store": False,
        "stream": True,
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
        "tools": [LOOK],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "input": [
            {"type": "message", "role": "developer", "content": [text("Be exact.")]},
            {"type": "message", "role": "user", "content": ITEMS[1]["content"]},
            {"type": "reasoning", "summary": [], "encrypted_content": "sealed by OpenAI"},
            {
                "type": "message",
                "role": "assistant",
                "phase": "commentary",
                "content": [text("I look.", "output_text") | {"annotations": []}],
            },
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":1}'},
            {"type": "function_call", "call_id": "call:2", "name": "look", "arguments": '{"at":'},
            {"type": "function_call_output", "call_id": "call_1", "output": "a boat"},
            {"type": "function_call_output", "call_id": "call:2", "output": ITEMS[8]["output"]},
            {"type": "message", "role": "developer", "content": "Soon done."},
        ],
    }


def test_openais_chat_completions_is_asked() -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}},
        {"id": "call:2", "type": "function", "function": {"name": "look", "arguments": '{"at":'}},
    ]
    assert chat_completions.request_body(REQUEST, MessageStyle("openai")) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}}],
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "developer", "content": "Be exact."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                    {"type": "file", "file": {"filename": "my plan.v2.pdf", "file_data": PDF}},
                ],
            },
            {"role": "assistant", "content": "I look.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": "a boat"},
            {"role": "tool", "tool_call_id": "call:2", "content": "a picture\n[image]"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG, "detail": "auto"}}]},
            {"role": "developer", "content": "Soon done."},
        ],
    }


def test_anthropic_is_asked_with_its_thinking_and_cache_points() -> None:
    assert anthropic_messages.request_body(REQUEST) == {
        "model": "m",
        "max_tokens": 16_384,
        "stream": True,
        "system": [
            {"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Be exact.", "cache_control": EPHEMERAL},
        ],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                        "title": "my plan.v2.pdf",
                        "cache_control": EPHEMERAL,
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "call_2", "name": "look", "input": {"malformed_arguments": '{"at":'}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "a boat"}]},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": [
                            {"type": "text", "text": "a picture"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                        ],
                    },
                    {"type": "text", "text": "<developer_message>\nSoon done.\n</developer_message>", "cache_control": EPHEMERAL},
                ],
            },
        ],
    }


def test_converse_is_asked() -> None:
    point = {"cachePoint": {"type": "default"}}
    image = {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    assert bedrock_converse.request_body(replace(REQUEST, model="us.anthropic.claude-sonnet-5")) == {
        "system": [{"text": "Be brief."}, {"text": "Be exact."}, point],
        "toolConfig": {"tools": [{"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": SCHEMA}}}]},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": "What is this?"},
                    image,
                    {"document": {"format": "pdf", "name": "my plan v2", "source": {"bytes": "JVBERi0="}}},
                    point,
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s1"}}},
                    {"text": "I look."},
                    {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"at": 1}}},
                    {"toolUse": {"toolUseId": "call_2", "name": "look", "input": {"malformed_arguments": '{"at":'}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "call_1", "content": [{"text": "a boat"}], "status": "success"}},
                    {"toolResult": {"toolUseId": "call_2", "content": [{"text": "a picture"}, image], "status": "success"}},
                    {"text": "<developer_message>\nSoon done.\n</developer_message>"},
                    point,
                ],
            },
        ],
    }


def test_a_bedrock_model_other_than_claude_gets_no_cache_points_or_thinking() -> None:
    body = bedrock_converse.request_body(replace(REQUEST, model="meta.llama4"))
    assert "cachePoint" not in str(body)
    assert "reasoningContent" not in str(body)


# --- parameters ---------------------------------------------------------------------------------------------------------------------

Bodies = dict[str, dict[str, Any]]


def bodies(**fields: Any) -> Bodies:
    """The four bodies for "hello" with some parameters, less what they hold without them."""
    plain = ModelRequest(model="anthropic.claude-sonnet-5", items=({"role": "user", "content": "hello"},))
    asked = replace(plain, **fields)
    makers: dict[str, Callable[[ModelRequest], dict[str, Any]]] = {
        "responses": openai_responses.request_body,
        "chat": chat_completions.request_body,
        "anthropic": anthropic_messages.request_body,
        "converse": bedrock_converse.request_body,
    }
    return {name: _news(make(asked), make(plain)) for name, make in makers.items()}


def _news(body: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if plain.get(key) != value}


FORMAT = {"type": "json_schema", "name": "boat", "schema": SCHEMA, "strict": True}
TOOL = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}}
SPEC = {"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": SCHEMA}}}

PARAMETERS: dict[str, tuple[dict[str, Any], Bodies]] = {
    "temperature and top_p": (
        {"temperature": 1.5, "top_p": 0.9},
        {
            "responses": {"temperature": 1.5, "top_p": 0.9},
            "chat": {"temperature": 1.5, "top_p": 0.9},
            "anthropic": {"temperature": 1.0, "top_p": 0.9},
            "converse": {"inferenceConfig": {"temperature": 1.0, "topP": 0.9}},
        },
    ),
    "a bound on the answer": (
        {"max_output_tokens": 900},
        {
            "responses": {"max_output_tokens": 900},
            "chat": {"max_tokens": 900},
            "anthropic": {"max_tokens": 900},
            "converse": {"inferenceConfig": {"maxTokens": 900}},
        },
    ),
    "a schema for the answer": (
        {"text": {"format": FORMAT}},
        {
            "responses": {"text": {"format": FORMAT}},
            "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "boat", "schema": SCHEMA, "strict": True}}},
            "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "converse": {
                "outputConfig": {
                    "textFormat": {
                        "type": "json_schema",
                        "structure": {
                            "jsonSchema": {
                                "name": "boat",
                                "schema": '{"type":"object","properties":{"at":{"type":"integer"}}}',
                            }
                        },
                    }
                }
            },
        },
    ),
    "any JSON object": (
        {"text": {"format": {"type": "json_object"}}},
        {
            "responses": {"text": {"format": {"type": "json_object"}}},
            "chat": {"response_format": {"type": "json_object"}},
            "anthropic": {
                "system": [{"type": "text", "text": "Answer with one JSON object and nothing else.", "cache_control": EPHEMERAL}]
            },
            "converse": {"system": [{"text": "Answer with one JSON object and nothing else."}, {"cachePoint": {"type": "default"}}]},
        },
    ),
    "an effort": (
        {"reasoning": {"effort": "low"}},
        {
            "responses": {"reasoning": {"effort": "low"}},
            "chat": {"reasoning_effort": "low"},
            "anthropic": {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
            "converse": {
                "inferenceConfig": {"maxTokens": 16_384},
                "additionalModelRequestFields": {
                    "thinking": {"type": "adaptive", "display": "summarized"},
                    "output_config": {"effort": "low"},
                },
            },
        },
    ),
    "tools": (
        {"tools": (LOOK,)},
        {
            "responses": {"tools": [LOOK], "tool_choice": "auto", "parallel_tool_calls": True},
            "chat": {"tools": [CHAT_TOOL]},
            "anthropic": {"tools": [TOOL]},
            "converse": {"toolConfig": {"tools": [SPEC]}},
        },
    ),
    "a tool that must be called": (
        {"tools": (LOOK,), "tool_choice": "required", "parallel_tool_calls": False},
        {
            "responses": {"tools": [LOOK], "tool_choice": "required", "parallel_tool_calls": False},
            "chat": {"tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            "converse": {"toolConfig": {"tools": [SPEC], "toolChoice": {"any": {}}}},
        },
    ),
    "this tool": (
        {"tools": (LOOK,), "tool_choice": {"type": "function", "name": "look"}},
        {
            "responses": {"tools": [LOOK], "tool_choice": {"type": "function", "name": "look"}, "parallel_tool_calls": True},
            "chat": {"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
            "converse": {"toolConfig": {"tools": [SPEC], "toolChoice": {"tool": {"name": "look"}}}},
        },
    ),
    "some tools of many": (
        {
            "tools": (LOOK, LOOK | {"name": "other"}),
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
        },
        {
            "responses": {
                "tools": [LOOK, LOOK | {"name": "other"}],
                "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
                "parallel_tool_calls": True,
            },
            "chat": {"tools": [CHAT_TOOL], "tool_choice": "required"},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "any"}},
            "converse": {"toolConfig": {"tools": [SPEC], "toolChoice": {"any": {}}}},
        },
    ),
    "no tool now": (
        {"tools": (LOOK,), "tool_choice": "none"},
        {
            "responses": {"tools": [LOOK], "tool_choice": "none", "parallel_tool_calls": True},
            "chat": {"tools": [CHAT_TOOL], "tool_choice": "none"},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "none"}},
            "converse": {},
        },
    ),
    "log probabilities": (
        {"top_logprobs": 3},
        {"responses": {"top_logprobs": 3}, "chat": {"logprobs": True, "top_logprobs": 3}, "anthropic": {}, "converse": {}},
    ),
    "what only OpenAI knows": (
        {"prompt_cache_key": "k", "service_tier": "flex", "safety_identifier": "u"},
        {
            "responses": {"prompt_cache_key": "k", "service_tier": "flex", "safety_identifier": "u"},
            "chat": {},
            "anthropic": {"metadata": {"user_id": "u"}},
            "converse": {},
        },
    ),
    "includes": (
        {"include": ("message.output_text.logprobs", "code_interpreter_call.outputs")},
        {
            "responses": {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"]},
            "chat": {"logprobs": True},
            "anthropic": {},
            "converse": {},
        },
    ),
}


@pytest.mark.parametrize(("fields", "news"), PARAMETERS.values(), ids=PARAMETERS.keys())
def test_a_parameter_reaches_every_upstream_that_has_it(fields: dict[str, Any], news: Bodies) -> None:
    assert bodies(**fields) == news


def test_openais_own_chat_completions_gets_what_it_knows() -> None:
    request = ModelRequest(
        model="m",
        items=({"role": "developer", "content": "d"},),
        instructions="i",
        max_output_tokens=50,
        prompt_cache_key="k",
        text={"verbosity": "low"},
        service_tier="flex",
    )
    body = chat_completions.request_body(request, MessageStyle("openai"))
    assert body == {
        "model": "m",
        "messages": [{"role": "developer", "content": "i"}, {"role": "developer", "content": "d"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 50,
        "prompt_cache_key": "k",
        "verbosity": "low",
        "service_tier": "flex",
    }


def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning() -> None:
    request = replace(REQUEST, include=("reasoning.encrypted_content",))
    assert "include" not in openai_responses.request_body(request, asks_encrypted_reasoning=False)


def test_reasoning_text_goes_back_to_models_that_expect_it() -> None:
    items: tuple[Item, ...] = (
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [text("Hm.", "reasoning_text")]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    )
    kept = messages(ModelRequest("m", items), MessageStyle(replays_reasoning=True))
    assert kept[1]["reasoning_content"] == "Hm."
    assert "reasoning_content" not in str(messages(ModelRequest("m", items), GENERIC))


def test_reasoning_that_lost_what_it_led_to_is_left_out() -> None:
    sealed: Item = {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    said: Item = {"role": "user", "content": "hi"}
    assert openai_responses.input_items((said, sealed, said)) == [said | {"type": "message"}] * 2
    assert openai_responses.input_items((said, sealed)) == [said | {"type": "message"}]


# --- the upstreams' own schemas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, *(fields for fields, _ in PARAMETERS.values())], ids=["the conversation", *PARAMETERS])
def test_converse_is_asked_what_its_own_model_describes(fields: dict[str, Any]) -> None:
    body = bedrock_converse.request_body(replace(REQUEST, model="us.anthropic.claude-sonnet-5", **fields))
    shape = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
    assert shape is not None
    report = botocore.validate.ParamValidator().validate({"modelId": "m", **body}, shape)
    assert report.generate_report() == ""


@pytest.mark.parametrize("fields", [{}, *(fields for fields, _ in PARAMETERS.values())], ids=["the conversation", *PARAMETERS])
@pytest.mark.parametrize("style", [MessageStyle(takes_files=True), MessageStyle("openai")], ids=["generic", "openai"])
def test_chat_completions_is_asked_what_the_sdk_describes(fields: dict[str, Any], style: MessageStyle) -> None:
    body = chat_completions.request_body(replace(REQUEST, **fields), style)
    validated = TypeAdapter(CompletionCreateParamsStreaming).validate_python(body)
    assert set(body) <= set(get_type_hints(CompletionCreateParamsStreaming))
    for key in ("messages", "tools"):
        list(cast("Any", validated).get(key, []))  # pydantic looks at the members of an Iterable only when they are taken
