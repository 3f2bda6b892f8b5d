"""Streams in the shape in which four protocols really came: order, fields, padding and pings as recorded, words and ids our own.

``source`` names the public recording: a repository and the file in it. Facts were taken from there, and no text.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.unit.model.encodings import ANTHROPIC, CHAT, CONVERSE, RESPONSES, Kind, aws_frame, sse

Json = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """A whole stream, and what it says."""

    name: str
    kind: Kind
    source: str
    body: bytes
    text: str = ""
    calls: tuple[Json | str, ...] = ()
    """Arguments or input of each."""
    thought: str = ""


# --- Chat Completions ----------------------------------------------------------------------------------------------------------------

_CHAT: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1770000000, "model": "m"}
_OF_OPENAI: Json = {"service_tier": "default", "system_fingerprint": "fp_1"}
_COUNTED: Json = {
    "prompt_tokens": 58,
    "completion_tokens": 12,
    "total_tokens": 70,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}


def _choice(delta: Json, finish: str | None = None, **more: Any) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish} | more


def _openai(*choices: Json, **more: Any) -> Json:
    return _CHAT | _OF_OPENAI | {"choices": list(choices), "obfuscation": "kT3a"} | more


def _chat(*chunks: Json, ends: bool = True) -> bytes:
    return sse([*((None, json.dumps(chunk)) for chunk in chunks), *([(None, "[DONE]")] if ends else [])])


def _tool_call(name: str | None, arguments: str, call_id: str | None = None) -> Json:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"index": 0, "function": function} | ({} if call_id is None else {"id": call_id, "type": "function"})


_SAFE: Json = {kind: {"filtered": False, "severity": "safe"} for kind in ("hate", "self_harm", "sexual", "violence")}


def _azure(choice: Json, **more: Any) -> Json:
    return {"choices": [choice | {"content_filter_results": _SAFE}], "system_fingerprint": None, "usage": None} | _CHAT | more


_OF_CHAT: Final = (
    Recorded(
        "OpenAI's text",
        CHAT,
        "vercel/ai packages/openai/src/chat/__fixtures__/openai-text.chunks.txt",
        _chat(
            _openai(_choice({"role": "assistant", "content": "", "refusal": None}), usage=None),
            _openai(_choice({"content": "**Tea"}), usage=None),
            _openai(_choice({"content": ":**\n\n 你好"}), usage=None),
            _openai(_choice({}, "stop"), usage=None),
            _openai(usage=_COUNTED),
        ),
        text="**Tea:**\n\n 你好",
    ),
    Recorded(
        "OpenAI's words and a call without arguments",
        CHAT,
        "vercel/ai packages/openai-compatible/src/chat/__fixtures__/issue-15789-step-1.chunks.txt",
        _chat(
            _openai(_choice({"role": "assistant", "content": "", "refusal": None})),
            _openai(_choice({"content": "I "})),
            _openai(_choice({"content": "look."})),
            _openai(_choice({"tool_calls": [_tool_call("look", "", "call_a")]})),
            _openai(_choice({"tool_calls": [_tool_call(None, "{}")]})),
            _openai(_choice({}, "tool_calls")),
            _openai(usage=_COUNTED),
        ),
        text="I look.",
        calls=({},),
    ),
    Recorded(
        "xAI's thoughts and a call in one piece, without finish_reason before the end",
        CHAT,
        "vercel/ai packages/openai-compatible/src/chat/__fixtures__/xai-tool-call.chunks.txt",
        _chat(
            _CHAT | {"choices": [{"index": 0, "delta": {"reasoning_content": "First", "role": "assistant"}}]},
            _CHAT | {"choices": [{"index": 0, "delta": {"reasoning_content": ", the weather.\n\n"}}]},
            _CHAT | {"choices": [{"index": 0, "delta": {"tool_calls": [_tool_call("weather", '{"place":"Rome"}', "call_7")]}}]},
            _CHAT | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
            _CHAT | {"choices": [], "usage": _COUNTED | {"num_sources_used": 0, "cost_in_usd_ticks": 1497500}},
        ),
        calls=({"place": "Rome"},),
        thought="First, the weather.\n\n",
    ),
    Recorded(
        "Azure's filters before, beside and behind the text",
        CHAT,
        "vercel/ai packages/openai-compatible/src/chat/__fixtures__/azure-text.chunks.txt",
        _chat(
            {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{"prompt_index": 0}]},
            _azure(_choice({"content": "", "refusal": None, "role": "assistant"})),
            _azure(_choice({"content": "Hello"})),
            _azure(_choice({"content": " there."})),
            _azure(_choice({}, "stop")),
            _azure({"content_filter_offsets": {"check_offset": 0, "end_offset": 12}, "finish_reason": None, "index": 0}),
            {"choices": [], "usage": _COUNTED} | _CHAT,
        ),
        text="Hello there.",
    ),
    Recorded(
        "Mistral's thoughts in parts of the content",
        CHAT,
        "vercel/ai packages/openai-compatible/src/chat/__fixtures__/issue-13703-mistral-thinking.chunks.txt",
        _chat(
            _CHAT | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
            _CHAT | {"choices": [_choice({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Okay, "}]}]})]},
            _CHAT
            | {
                "choices": [
                    _choice(
                        {
                            "content": [
                                {"type": "thinking", "thinking": [{"type": "text", "text": "then."}], "closed": True},
                                {"type": "text", "text": "3"},
                            ]
                        }
                    )
                ]
            },
            _CHAT | {"choices": [_choice({"content": "91"}, "stop")], "usage": _COUNTED, "p": "abcdef"},
        ),
        text="391",
        thought="Okay, then.",
    ),
    Recorded(
        "empty lists of calls, and an end beside the last word",
        CHAT,
        "vercel/ai packages/openai-compatible/src/chat/__fixtures__/issue-20203-empty-tool-calls.chunks.txt",
        _chat(
            _CHAT | {"choices": [_choice({"role": "assistant", "content": "", "reasoning_content": "Hm ", "tool_calls": []})]},
            _CHAT | {"choices": [_choice({"content": "", "reasoning_content": "so.", "tool_calls": []})]},
            _CHAT | {"choices": [_choice({"content": "Hello", "reasoning_content": "", "tool_calls": []}, "stop")]},
            ends=False,
        ),
        text="Hello",
        thought="Hm so.",
    ),
)

# --- Anthropic -----------------------------------------------------------------------------------------------------------------------

_READ: Json = {"input_tokens": 47, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
_PING: Json = {"type": "ping"}


def _messages(*events: Json, padding: str = "") -> bytes:
    """``padding`` stands before the last brace: newer streams hide the length of their words so."""
    return sse([(event["type"], f"{json.dumps(event)[:-1]}{padding}}}") for event in events])


def _begun(**more: Any) -> Json:
    message: Json = {"model": "claude", "id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
    usage = _READ | {"cache_creation": {"ephemeral_5m_input_tokens": 0}, "output_tokens": 2, "service_tier": "standard"}
    return {"type": "message_start", "message": message | {"stop_sequence": None, "usage": usage} | more}


def _block(index: int, **block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, type_: str, **delta: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type_, **delta}}


def _stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def _done(reason: str, **more: Any) -> tuple[Json, Json]:
    delta = {"stop_reason": reason, "stop_sequence": None} | more
    return {"type": "message_delta", "delta": delta, "usage": _READ | {"output_tokens": 28}}, {"type": "message_stop"}


_OF_ANTHROPIC: Final = (
    Recorded(
        "a call between pings",
        ANTHROPIC,
        "vercel/ai packages/anthropic/src/__fixtures__/anthropic-json-other-tool.1.chunks.txt",
        _messages(
            _begun(),
            _block(0, type="tool_use", id="toolu_1", name="weather", input={}),
            _delta(0, "input_json_delta", partial_json=""),
            _PING,
            _delta(0, "input_json_delta", partial_json='{"place": "San '),
            _PING,
            _delta(0, "input_json_delta", partial_json='Marino"}'),
            _PING,
            _stop(0),
            _PING,
            *_done("tool_use"),
        ),
        calls=({"place": "San Marino"},),
    ),
    Recorded(
        "thoughts and text in padded events",
        ANTHROPIC,
        "vercel/ai packages/anthropic/src/__fixtures__/anthropic-claude-sonnet-5-reasoning-summarized.chunks.txt",
        _messages(
            _begun(stop_details=None),
            _block(0, type="thinking", thinking="", signature=""),
            _PING,
            _delta(0, "thinking_delta", thinking="I"),
            _delta(0, "thinking_delta", thinking="'m dividing."),
            _delta(0, "signature_delta", signature="c2lnbmVk"),
            _stop(0),
            _block(1, type="text", text=""),
            _delta(1, "text_delta", text="# It is 21\n$$1071 = 2"),
            _delta(1, "text_delta", text=" \\times 462 + 147$$ ✓"),
            _stop(1),
            *_done("end_turn", stop_details=None),
            padding="        ",
        ),
        text="# It is 21\n$$1071 = 2 \\times 462 + 147$$ ✓",
        thought="I'm dividing.",
    ),
    Recorded(
        "words, then a call without arguments",
        ANTHROPIC,
        "vercel/ai packages/anthropic/src/__fixtures__/anthropic-tool-no-args.chunks.txt",
        _messages(
            _begun(),
            _block(0, type="text", text=""),
            _delta(0, "text_delta", text="I'll update the list for"),
            _delta(0, "text_delta", text=" you."),
            _PING,
            _stop(0),
            _PING,
            _block(1, type="tool_use", id="toolu_2", name="update", input={}),
            _PING,
            _delta(1, "input_json_delta", partial_json=""),
            _stop(1),
            *_done("tool_use"),
        ),
        text="I'll update the list for you.",
        calls=({},),
    ),
    Recorded(
        "words, then a call that names its caller",
        ANTHROPIC,
        "anthropics/anthropic-sdk-python tests/lib/streaming/fixtures/tool_use_response.txt",
        _messages(
            _begun(),
            _block(0, type="text", text=""),
            _PING,
            _delta(0, "text_delta", text="I"),
            _delta(0, "text_delta", text="'ll check."),
            _stop(0),
            _block(1, type="tool_use", id="toolu_3", name="weather", caller={"type": "direct"}, input={}),
            _delta(1, "input_json_delta", partial_json=""),
            _delta(1, "input_json_delta", partial_json='{"pla'),
            _delta(1, "input_json_delta", partial_json='ce": "P'),
            _delta(1, "input_json_delta", partial_json='aris"}'),
            _stop(1),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 65}},
            {"type": "message_stop"},
        ),
        text="I'll check.",
        calls=({"place": "Paris"},),
    ),
    Recorded(
        "a refusal without a word",
        ANTHROPIC,
        "vercel/ai packages/anthropic/src/__fixtures__/anthropic-refusal.chunks.txt",
        _messages(
            _begun(), _PING, *_done("refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "It was blocked."})
        ),
    ),
    Recorded(
        "text whose end counts its output alone",
        ANTHROPIC,
        "anthropics/anthropic-sdk-python tests/lib/streaming/fixtures/message_delta_omitted_usage_response.txt",
        _messages(
            _begun(stop_details=None),
            _block(0, type="text", text=""),
            _delta(0, "text_delta", text="Hello!"),
            _stop(0),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_details": None}, "usage": {"output_tokens": 8}},
            {"type": "message_stop"},
        ),
        text="Hello!",
    ),
)

# --- Converse ------------------------------------------------------------------------------------------------------------------------


def _frames(*events: tuple[str, Json]) -> bytes:
    return b"".join(aws_frame(payload, event_type=name) for name, payload in events)


_ROLE: Final = ("messageStart", {"role": "assistant"})


def _part(index: int, **delta: Any) -> tuple[str, Json]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}


def _end(index: int) -> tuple[str, Json]:
    return "contentBlockStop", {"contentBlockIndex": index}


def _start(index: int, **use: str) -> tuple[str, Json]:
    return "contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": use} if use else {}}


def _over(reason: str, **more: Any) -> tuple[tuple[str, Json], tuple[str, Json]]:
    usage = {"inputTokens": 22, "outputTokens": 55, "serverToolUsage": {}, "totalTokens": 77}
    return ("messageStop", more | {"stopReason": reason}), ("metadata", {"metrics": {"latencyMs": 2040}, "usage": usage})


_OF_CONVERSE: Final = (
    Recorded(
        "text without the start of its block",
        CONVERSE,
        "vercel/ai packages/amazon-bedrock/src/__fixtures__/bedrock-text.chunks.txt",
        _frames(
            _ROLE,
            _part(0, text="Let"),
            _part(0, text=' me count: "r" ✓'),
            _end(0),
            *_over("end_turn", additionalModelResponseFields={"delta": {"stop_sequence": None}}),
        ),
        text='Let me count: "r" ✓',
    ),
    Recorded(
        "thoughts with a signature, then text",
        CONVERSE,
        "vercel/ai packages/amazon-bedrock/src/__fixtures__/bedrock-reasoning.chunks.txt",
        _frames(
            _ROLE,
            _part(0, reasoningContent={"text": "Three "}),
            _part(0, reasoningContent={"text": "of them."}),
            _part(0, reasoningContent={"text": ""}),
            _part(0, reasoningContent={"signature": "c2lnbmVk"}),
            _end(0),
            _part(1, text="There are "),
            _part(1, text="3."),
            _end(1),
            *_over("end_turn"),
        ),
        text="There are 3.",
        thought="Three of them.",
    ),
    Recorded(
        "hidden thoughts, then a call in small pieces",
        CONVERSE,
        "vercel/ai packages/amazon-bedrock/src/__fixtures__/amazon-bedrock-redacted-content.chunks.txt",
        _frames(
            _ROLE,
            _part(0, reasoningContent={"redactedContent": "aGlkZGVu"}),
            _end(0),
            _start(1, name="propose", toolUseId="call_61"),
            *(_part(1, toolUse={"input": piece}) for piece in ('{"', "groups", '":[', '"', "Sales", '"]}')),
            _end(1),
            *_over("tool_use"),
        ),
        calls=({"groups": ["Sales"]},),
    ),
    Recorded(
        "words in a block that starts as nothing, then a call without arguments",
        CONVERSE,
        "vercel/ai packages/amazon-bedrock/src/__fixtures__/bedrock-tool-no-args.chunks.txt",
        _frames(
            _ROLE,
            _start(0),
            _part(0, text="I'll update the list."),
            _end(0),
            _start(1, toolUseId="tool-use-id", name="update"),
            _part(1, toolUse={"input": ""}),
            _end(1),
            *_over("tool_use"),
        ),
        text="I'll update the list.",
        calls=({},),
    ),
    Recorded(
        "empty text before the words and behind the call",
        CONVERSE,
        "vercel/ai packages/amazon-bedrock/src/__fixtures__/issue-11409-kimi-k2-thinking-read-file.chunks.txt",
        _frames(
            _ROLE,
            _part(0, text=""),
            _part(0, text=" I read it."),
            _end(0),
            _start(1, name="read_file", toolUseId="functions.read_file:1"),
            _part(1, toolUse={"input": '{"target": "a.ts"}'}),
            _end(1),
            _part(2, text=""),
            _end(2),
            *_over("tool_use"),
        ),
        text=" I read it.",
        calls=({"target": "a.ts"},),
    ),
    Recorded(
        "text that its limit cut",
        CONVERSE,
        "vercel/ai packages/amazon-bedrock/src/__fixtures__/bedrock-sonnet-4-6-native-structured-output-length.json",
        _frames(_ROLE, _part(0, text='{"name": '), _part(0, text='"A'), _end(0), *_over("max_tokens")),
        text='{"name": "A',
    ),
)

# --- Responses -----------------------------------------------------------------------------------------------------------------------


def _responses(*events: Json, output: list[Json]) -> bytes:
    response = {"id": "resp_1", "object": "response", "created_at": 1770000000, "status": "in_progress", "error": None, "model": "m"}
    usage = {
        "input_tokens": 45,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens": 25,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 70,
    }
    all_events = [
        {"type": "response.created", "response": response | {"output": [], "usage": None}},
        {"type": "response.in_progress", "response": response | {"output": [], "usage": None}},
        *events,
        {"type": "response.completed", "response": response | {"status": "completed", "output": output, "usage": usage}},
    ]
    return sse([(event["type"], json.dumps(event | {"sequence_number": number})) for number, event in enumerate(all_events)])


def _item(index: int, added: Json, inner: list[Json], done: Json) -> list[Json]:
    place = {"item_id": added["id"], "output_index": index}
    return [
        {"type": "response.output_item.added", "item": added, "output_index": index},
        *(event | place for event in inner),
        {"type": "response.output_item.done", "item": done, "output_index": index},
    ]


def _message(index: int, *pieces: str, **more: Any) -> tuple[list[Json], Json]:
    text = "".join(pieces)
    empty: Json = {"id": f"msg_{index}", "type": "message", "status": "in_progress", "content": [], "role": "assistant"} | more
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    done = empty | {"status": "completed", "content": [part]}
    inner: list[Json] = [
        {"type": "response.content_part.added", "content_index": 0, "part": part | {"text": ""}},
        *(
            {"type": "response.output_text.delta", "content_index": 0, "delta": piece, "logprobs": [], "obfuscation": "J4mk"}
            for piece in pieces
        ),
        {"type": "response.output_text.done", "content_index": 0, "text": text, "logprobs": []},
        {"type": "response.content_part.done", "content_index": 0, "part": part},
    ]
    return _item(index, empty, inner, done), done


def _function(index: int, *pieces: str) -> tuple[list[Json], Json]:
    empty: Json = {"id": f"fc_{index}", "type": "function_call", "status": "in_progress", "arguments": "", "call_id": f"call_{index}"}
    done = empty | {"name": "weather", "status": "completed", "arguments": "".join(pieces)}
    inner: list[Json] = [
        *({"type": "response.function_call_arguments.delta", "delta": piece, "obfuscation": "H2d0"} for piece in pieces),
        {"type": "response.function_call_arguments.done", "arguments": "".join(pieces)},
    ]
    return _item(index, empty | {"name": "weather"}, inner, done), done


def _reasoning(index: int, *summaries: str) -> tuple[list[Json], Json]:
    empty: Json = {"id": f"rs_{index}", "type": "reasoning", "encrypted_content": "c2VhbGVk", "summary": []}
    parts = [{"type": "summary_text", "text": summary} for summary in summaries]
    inner: list[Json] = []
    for number, part in enumerate(parts):
        text = part["text"]
        inner += [
            {"type": "response.reasoning_summary_part.added", "summary_index": number, "part": part | {"text": ""}},
            {"type": "response.reasoning_summary_text.delta", "summary_index": number, "delta": text[:4], "obfuscation": "XX"},
            {"type": "response.reasoning_summary_text.delta", "summary_index": number, "delta": text[4:], "obfuscation": "XX"},
            {"type": "response.reasoning_summary_text.done", "summary_index": number, "text": text},
            {"type": "response.reasoning_summary_part.done", "summary_index": number, "part": part},
        ]
    done = empty | {"summary": parts, "encrypted_content": "c2VhbGVkIHdob2xl"}
    return _item(index, empty, inner, done), done


def _custom(index: int, *pieces: str) -> tuple[list[Json], Json]:
    empty: Json = {"type": "custom_tool_call", "id": f"ct_{index}", "call_id": f"call_{index}", "name": "write_sql", "input": ""}
    done = empty | {"input": "".join(pieces), "status": "completed"}
    return _item(index, empty, [{"type": "response.custom_tool_call_input.delta", "delta": piece} for piece in pieces], done), done


def _shell(index: int, *pieces: str) -> tuple[list[Json], Json]:
    action: Json = {"commands": [], "max_output_length": None, "timeout_ms": None}
    empty: Json = {"id": f"sh_{index}", "type": "shell_call", "status": "in_progress", "action": action, "call_id": f"call_{index}"}
    command = "".join(pieces)
    done = empty | {"status": "completed", "action": action | {"commands": [command], "max_output_length": 8912}}
    events: list[Json] = [
        {"type": "response.shell_call_command.added", "command": ""},
        *({"type": "response.shell_call_command.delta", "delta": piece, "obfuscation": "MqLF"} for piece in pieces),
        {"type": "response.shell_call_command.done", "command": command},
    ]
    inner = [event | {"output_index": index, "command_index": 0} for event in events]
    added: Json = {"type": "response.output_item.added", "item": empty, "output_index": index}
    return [added, *inner, {"type": "response.output_item.done", "item": done, "output_index": index}], done


def _together(name: str, source: str, *items: tuple[list[Json], Json], **said: Any) -> Recorded:
    body = _responses(*(event for events, _ in items for event in events), output=[done for _, done in items])
    return Recorded(name, RESPONSES, source, body, **said)


_OF_RESPONSES: Final = (
    _together(
        "a call in small pieces",
        "vercel/ai packages/openai/src/responses/__fixtures__/issue-19493-gpt-5.1-tool-call.chunks.txt",
        _function(0, '{"', "city", '":"', "Be", "ijing", '"}'),
        calls=({"city": "Beijing"},),
    ),
    _together(
        "a commentary and the answer",
        "vercel/ai packages/openai/src/responses/__fixtures__/openai-phase.1.chunks.txt",
        _message(0, "I'm going", " to look.", phase="commentary"),
        _message(1, "It is", " Paris. ✓", phase="final_answer"),
        text="I'm going to look.It is Paris. ✓",
    ),
    _together(
        "several summaries of sealed thoughts, then text",
        "vercel/ai packages/openai/src/responses/__fixtures__/azure-gpt5-reasoning-multi-summary-with-encryption.chunks.txt",
        _reasoning(0, "**First**\n\nlook", "**Then**\n\nsay"),
        _message(1, "Done", "."),
        text="Done.",
        thought="**First**\n\nlook**Then**\n\nsay",
    ),
    _together(
        "text in small pieces",
        "vercel/ai packages/openai/src/responses/__fixtures__/openai-shell-tool.1.chunks.txt",
        _message(0, "Here", " are", " the", ":\n\n", "-", " .\n"),
        text="Here are the:\n\n- .\n",
    ),
    _together(
        "free text for a custom tool, whose beginning has no status and whose end is its item",
        "vercel/ai packages/openai/src/responses/__fixtures__/openai-custom-tool.1.chunks.txt",
        _custom(0, "SELECT * ", "FROM users"),
        calls=("SELECT * FROM users",),
    ),
    _together(
        "a shell call, whose commands come in pieces",
        "vercel/ai packages/openai/src/responses/__fixtures__/openai-shell-tool.1.chunks.txt",
        _shell(0, "ls", " -a", " /tmp"),
        calls=({"commands": ["ls -a /tmp"]},),
    ),
)

RECORDED: Final = (*_OF_CHAT, *_OF_ANTHROPIC, *_OF_CONVERSE, *_OF_RESPONSES)
