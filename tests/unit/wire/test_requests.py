"""What a create request becomes, and what is refused with which words."""

from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.wire.requests import (
    CreateRequest,
    parse_create,
)


def said(text: str, item_id: str = "msg_1") -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], "id": item_id}


def request(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **fields}


def parsed(**fields: Any) -> CreateRequest:
    return parse_create(orjson.dumps(request(**fields)))


def refusal(body: bytes | dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        parse_create(body)
    return refused.value


def test_a_plain_request_gets_the_defaults_of_the_api() -> None:
    made = parse_create(b'{"model": "m", "input": [{"id": "msg_1", "role": "user", "content": "hi"}]}')
    assert made == CreateRequest(
        model="m",
        input_items=(said("hi"),),
        store=True,
        background=False,
        stream=False,
        include_obfuscation=True,
        tool_choice="auto",
        parallel_tool_calls=True,
        truncation="disabled",
        metadata={},
    )


def test_text_input_is_one_message_of_the_user_with_an_id_of_ours() -> None:
    (message,) = parsed(input="hi").input_items
    assert message.pop("id").startswith("msg_")
    assert message == {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_every_parameter_arrives_under_its_name() -> None:
    fields: dict[str, Any] = {
        "instructions": "Be brief.",
        "previous_response_id": "resp_1",
        "store": True,
        "background": True,
        "stream": True,
        "tools": [{"type": "function", "name": "f", "parameters": CLOSED, "strict": True}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "max_output_tokens": 16,
        "max_tool_calls": 3,
        "temperature": 0,
        "top_p": 0.5,
        "top_logprobs": 2,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": CLOSED, "strict": True}, "verbosity": "low"},
        "reasoning": {"effort": "high", "summary": "auto"},
        "truncation": "auto",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit", "ttl": "12h", "prewarm": False},
        "prompt_cache_retention": "24h",
        "service_tier": "flex",
        "safety_identifier": "s",
        "user": "u",
    }
    made = parsed(**fields, include=["reasoning.encrypted_content"], stream_options={"include_obfuscation": False})
    expected = {
        **fields,
        "tools": tuple(fields["tools"]),
        "include": ("reasoning.encrypted_content",),
        "include_obfuscation": False,
    }
    assert {name: getattr(made, name) for name in expected} == expected


def test_null_means_the_default() -> None:
    optional = [
        "instructions",
        "tools",
        "tool_choice",
        "store",
        "stream",
        "temperature",
        "metadata",
        "include",
        "text",
        "reasoning",
    ]
    assert parsed(**dict.fromkeys(optional), input=[said("hi")]) == parsed(input=[said("hi")])


def test_the_old_name_of_the_reasoning_summary_still_works() -> None:
    assert parsed(reasoning={"generate_summary": "concise"}).reasoning == {"summary": "concise"}


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_is_named_by_its_id_or_an_object(conversation: Any) -> None:
    made = parse_create(orjson.dumps({"model": "m", "conversation": conversation}))
    assert (made.conversation_id, made.input_items) == ("conv_1", ())


def test_what_is_no_id_of_a_conversation_is_no_unknown_one() -> None:
    told = refusal({"model": "m", "conversation": "invalid-format"})
    message = "Invalid 'conversation': 'invalid-format'. Expected an ID that begins with 'conv'."
    assert (told.status, told.param, told.message) == (400, "conversation", message)


def test_a_chain_may_go_on_without_new_input() -> None:
    assert parse_create(b'{"model": "m", "previous_response_id": "resp_1"}').input_items == ()


REFUSALS: dict[str, tuple[Any, str | None, str | None]] = {
    "an empty body": (b"", None, "invalid_json"),
    "a body that is no JSON": (b"{", None, "invalid_json"),
    "a body that is a list": (b"[]", None, "invalid_json"),
    "NaN": (b'{"model": "m", "input": "x", "temperature": NaN}', None, "invalid_json"),
    "a number beyond doubles": (b'{"model": "m", "input": "x", "top_p": 1e999}', None, "invalid_json"),
    "a lone surrogate": (b'{"model": "m", "input": "\\ud800"}', None, "invalid_json"),
    "bytes that are not UTF-8": (b'{"model": "m", "input": "\xff"}', None, "invalid_json"),
    "JSON nested beyond reason": (b"[" * 100_000, None, "invalid_json"),
    "no model": ({"input": "x"}, "model", "missing_required_parameter"),
    "an empty model": (request(model=""), "model", "string_below_min_length"),
    "a model that is null": (request(model=None), "model", "invalid_type"),
    "no input at all": ({"model": "m"}, "input", "missing_required_parameter"),
    "an empty list as input": (request(input=[]), "input", "missing_required_parameter"),
    "input of another type": (request(input=3), "input", "invalid_type"),
    "an unknown parameter": (request(n=2), "n", "unknown_parameter"),
    "an unknown field of an item": (request(input=[{**said("x"), "colour": 1}]), "input[0].colour", "unknown_parameter"),
    "an unknown type of content": (
        request(input=[said("x"), {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "text"}]}]),
        "input[1].content[1].type",
        "invalid_value",
    ),
    "content of another type": (request(input=[{"role": "user", "content": 3}]), "input[0].content", "invalid_type"),
    "an item without a type": (request(input=[{"content": "x"}]), "input[0].type", "missing_required_parameter"),
    "an item that is text": (request(input=["x"]), "input[0]", "invalid_type"),
    "an item of an unknown type": (request(input=[{"type": "poem"}]), "input[0].type", "invalid_value"),
    "an item whose type is a number": (request(input=[{"type": 1}]), "input[0].type", "invalid_type"),
    "a message without content": (request(input=[{"role": "user"}]), "input[0].content", "missing_required_parameter"),
    "a call id that is too long": (
        request(input=[{"type": "function_call_output", "call_id": "c" * 65, "output": "x"}]),
        "input[0].call_id",
        "string_above_max_length",
    ),
    "a tool without a type": (request(tools=[{"name": "f"}]), "tools[0].type", "missing_required_parameter"),
    "a tool of an unknown type": (request(tools=[{"type": "teleport"}]), "tools[0].type", "invalid_value"),
    "a function without a name": (request(tools=[{"type": "function"}]), "tools[0].name", "missing_required_parameter"),
    "parameters that are no object": (
        request(tools=[{"type": "function", "name": "f", "parameters": "x"}]),
        "tools[0].parameters",
        "invalid_type",
    ),
    "a boolean as text": (request(stream="true"), "stream", "invalid_type"),
    "a boolean as a number": (request(max_output_tokens=True), "max_output_tokens", "invalid_type"),
    "a decimal where an integer belongs": (request(max_output_tokens=16.5), "max_output_tokens", "invalid_type"),
    "17 pairs of metadata": (
        request(metadata={str(n): "" for n in range(17)}),
        "metadata",
        "object_above_max_properties",
    ),
    "a long value of metadata": (request(metadata={"a": "x" * 513}), "metadata.a", "string_above_max_length"),
    "a schema without a name": (
        request(text={"format": {"type": "json_schema", "schema": {}}}),
        "text.format.name",
        "missing_required_parameter",
    ),
    "an allowed tool that is not offered": (
        request(
            tools=[{"type": "function", "name": "f"}],
            tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
        ),
        "tool_choice.tools[0]",
        "invalid_value",
    ),
    "an address of a local image": (
        request(input=[{"role": "user", "content": [{"type": "input_image", "image_url": "/etc/passwd"}]}]),
        "input[0].content[0].image_url",
        "invalid_value",
    ),
}


@pytest.mark.parametrize(("body", "param", "code"), REFUSALS.values(), ids=REFUSALS.keys())
def test_it_refuses(body: bytes | dict[str, Any], param: str | None, code: str | None) -> None:
    error = refusal(body if isinstance(body, bytes) else orjson.dumps(body))
    assert (error.status, error.type, error.param, error.code) == (400, "invalid_request_error", param, code)


def test_the_words_are_those_of_the_api() -> None:
    messages = {
        refusal(request(n=2)).message,
        refusal(request(stream=1)).message,
        refusal(request(max_output_tokens=1)).message,
        refusal(request(truncation="x")).message,
        refusal(request(metadata={"a": None})).message,
    }
    assert messages == {
        "Unknown parameter: 'n'.",
        "Invalid type for 'stream': expected a boolean, but got an integer instead.",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
        "Invalid value: 'x'. Supported values are: 'auto' and 'disabled'.",
        "Invalid type for 'metadata.a': expected a string, but got null instead.",
    }


def test_a_body_beyond_the_limit_is_413() -> None:
    error = refusal(b" " * (limits.REQUEST_BODY_BYTES_MAX + 1))
    assert (error.status, error.code) == (413, "request_too_large")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def test_a_schema_may_be_as_deep_as_the_limit_and_no_deeper() -> None:
    deepest = limits.JSON_DEPTH_MAX
    assert parsed(tools=[{"type": "function", "name": "f", "parameters": nested(deepest)}])
    error = refusal(orjson.dumps(request(tools=[{"type": "function", "name": "f", "parameters": nested(deepest + 1)}])))
    assert (error.param, error.code) == ("tools[0].parameters", "invalid_value")


# --- The shapes that clients send ---


def codex_function(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return {"type": "function", "name": name, "description": "d", "strict": False, "parameters": parameters}


def codex(**fields: Any) -> dict[str, Any]:
    return {
        "model": "any-model",
        "stream": True,
        "input": [
            {
                "type": "message",
                "id": "msg_50cba0bd-e72d-5bed-ac49-4950c9e1ebc5",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You are a coding agent."}],
                "internal_chat_message_metadata_passthrough": {"content_item_kinds": ["model.base_instructions"]},
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a1fd0d-0ff9-7c63-93d9-cefb3516573e",
        "client_metadata": {"thread_id": "t", "x-codex-turn-metadata": "{}"},
        **fields,
    }


CLIENT_REQUESTS: dict[str, dict[str, Any]] = {
    "Codex CLI with an unknown model": codex(
        tools=[
            codex_function("exec_command"),
            {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents.", "tools": [codex_function("wait_agent")]},
            {"type": "web_search", "external_web_access": False},
        ]
    ),
    "Codex CLI with full access": codex(tools=[codex_function("exec_command"), {"type": "web_search", "external_web_access": True}]),
    "Codex CLI with gpt-5.5": codex(
        text={"verbosity": "low"},
        reasoning={"effort": "medium"},
        tools=[
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
            },
            {"type": "tool_search", "execution": "client", "description": "d", "parameters": {"type": "object"}},
            {"type": "web_search", "external_web_access": False, "search_content_types": ["text", "image"]},
        ],
    ),
    "Codex CLI with tools in an item": codex(
        parallel_tool_calls=False,
        reasoning={"effort": "medium", "context": "all_turns"},
        input=[
            {
                "type": "additional_tools",
                "id": "at_01a1fd0d",
                "role": "developer",
                "tools": [
                    {
                        "type": "namespace",
                        "name": "functions",
                        "description": "",
                        "tools": [
                            {
                                "type": "custom",
                                "name": "exec",
                                "description": "d",
                                "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
                            },
                            codex_function("wait"),
                        ],
                    }
                ],
            },
            {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "say hi"}]},
        ],
    ),
    "Codex CLI with a tool's output": codex(
        input=[
            {"type": "function_call", "status": "completed", "id": "fc_1", "name": "f", "arguments": "{}", "call_id": "call_1"},
            {"type": "function_call_output", "id": "fco_01a1fd0d", "call_id": "call_1", "output": "Chunk ID: 6026d6"},
        ]
    ),
    "Agents SDK with a local shell": {
        "model": "m",
        "include": [],
        "input": [
            {"content": "do it", "role": "user"},
            {
                "id": "sh_1",
                "action": {"commands": ["ls"], "max_output_length": 4096, "timeout_ms": 10000},
                "call_id": "call_1",
                "status": "completed",
                "type": "shell_call",
            },
            {
                "type": "shell_call_output",
                "call_id": "call_1",
                "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
                "max_output_length": 4096,
            },
        ],
        "tools": [{"type": "shell", "environment": {"type": "local"}}],
    },
    "Agents SDK with a hosted shell": {
        "model": "m",
        "include": [],
        "input": [{"content": "do it", "role": "user"}],
        "tools": [
            {
                "type": "shell",
                "environment": {
                    "type": "container_auto",
                    "memory_limit": "4g",
                    "network_policy": {
                        "type": "allowlist",
                        "allowed_domains": ["api.example.com"],
                        "domain_secrets": [{"domain": "api.example.com", "name": "TOKEN", "value": "s3"}],
                    },
                    "file_ids": ["file_1"],
                },
            }
        ],
    },
    "a client without types, ids and developer roles": {
        "model": "m",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
            {"role": "user", "content": "again"},
        ],
        "store": False,
    },
    "output of an earlier response, sent back as it came": {
        "model": "m",
        "input": [
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": None,
                "encrypted_content": "abc",
                "status": None,
            },
            {
                "id": "fc_1",
                "type": "function_call",
                "call_id": "call_1",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
                "namespace": None,
                "parsed_arguments": {"a": 1},
                "created_by": "x",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "x"}]},
        ],
    },
}


@pytest.mark.parametrize("body", CLIENT_REQUESTS.values(), ids=CLIENT_REQUESTS.keys())
def test_it_accepts_what_clients_send(body: dict[str, Any]) -> None:
    made = parse_create(orjson.dumps(body))
    assert len(made.input_items) == len(body["input"])
    assert all(item["id"] and item["type"] for item in made.input_items)


# --- Web search ---


def test_web_search_without_live_access_is_left_out_with_a_notice() -> None:
    made = parsed(tools=[{"type": "web_search", "external_web_access": False}])
    assert (made.tools, made.notices) == ((), ("tools[0]: this deployment does not search the web; 'web_search' was left out.",))


def test_web_search_that_codex_adds_by_itself_is_left_out_with_a_notice() -> None:
    made = parse_create(codex(tools=[{"type": "web_search", "external_web_access": True}]))
    assert (made.tools, len(made.notices)) == ((), 1)


def test_an_operator_may_choose_to_leave_web_search_out() -> None:
    made = parse_create(request(tools=[{"type": "web_search_preview"}]), web_search="ignore")
    assert (made.tools, len(made.notices)) == ((), 1)


def test_web_search_in_an_item_is_treated_alike() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search", "external_web_access": False}]}
    made = parsed(input=[item])
    assert (made.input_items[0]["tools"], len(made.notices)) == ([], 1)
    item["tools"] = [{"type": "web_search"}]
    assert refusal(request(input=[item])).param == "input[0].tools[0].type"


def test_web_search_is_there_where_the_operator_has_named_an_engine() -> None:
    for tools in ([{"type": "web_search"}], [{"type": "web_search_preview", "search_context_size": "low"}]):
        made = parse_create(request(tools=tools), web_search="serve")
        assert (list(made.tools), made.notices) == (tools, ())
        assert list(parse_create(codex(tools=tools), web_search="serve").tools) == tools


def test_what_an_engine_cannot_give_is_told() -> None:
    cached = parse_create(request(tools=[{"type": "web_search", "external_web_access": False}]), web_search="serve")
    assert (cached.tools, cached.notices) == (
        (),
        ("tools[0]: this deployment searches the live web, and no cache of it; 'web_search' was left out.",),
    )
    pictures = parse_create(request(tools=[{"type": "web_search", "search_content_types": ["text", "image"]}]), web_search="serve")
    assert (len(pictures.tools), pictures.notices) == (
        1,
        ("tools[0].search_content_types: this deployment finds texts in the web, and no images.",),
    )


def test_web_search_that_an_item_brings_is_hosted_nowhere() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]}
    with pytest.raises(ApiError, match="A hosted tool stands in 'tools' of the request") as refused:
        parse_create(request(input=[item]), web_search="serve")
    assert refused.value.param == "input[0].tools[0].type"
    made = parse_create(codex(input=[item]), web_search="serve")
    assert (made.input_items[0]["tools"], len(made.notices)) == ([], 1)


DOMAINS = {
    "a scheme": "https://a.example",
    "a path": "a.example/x",
    "a wildcard": "*.a.example",
    "an address": "10.0.0.1",
    "nothing": "",
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_an_allowed_domain_is_a_name(domain: str) -> None:
    with pytest.raises(ApiError, match="it must be the name of a domain") as refused:
        parse_create(request(tools=[{"type": "web_search", "filters": {"allowed_domains": ["A.example", domain]}}]), web_search="serve")
    assert refused.value.param == "tools[0].filters.allowed_domains[1]"


def test_domains_and_countries_are_written_in_one_way() -> None:
    tool = {"type": "web_search", "filters": {"allowed_domains": ["A.Example."]}, "user_location": {"country": "no"}}
    (made,) = parse_create(request(tools=[tool]), web_search="serve").tools
    assert (made["filters"], made["user_location"]) == ({"allowed_domains": ["a.example"]}, {"country": "NO"})
    with pytest.raises(ApiError, match="a country's two letters") as refused:
        parse_create(request(tools=[tool | {"user_location": {"country": "Norway"}}]), web_search="serve")
    assert refused.value.param == "tools[0].user_location.country"
