"""``POST /v1/chat/completions``: requests as requests of the Responses API, and back.

Chat Completions is the older protocol, and many clients know no other. Its requests are rewritten field by field; what has no place in
the other is refused with its name, or, if clients send it out of habit and nothing depends on it, left out with a notice. Beyond
OpenAI's own: ``reasoning_content`` in messages, as servers of open models have it, and hosted tools (``{"type": "shell", ...}``).
"""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError, bad_request, unknown_parameter
from moorage.wire.requests import CreateRequest, WebSearchMode, parse_create
from moorage.wire.validation import parse_object

Fields = dict[str, Any]

_SAME: Final = frozenset(
    {
        "model",
        "stream",
        "temperature",
        "top_p",
        "parallel_tool_calls",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "user",
    }
)
_WITHOUT_EFFECT: Final = MappingProxyType(
    {
        "seed": "no upstream promises the same answer twice",
        "frequency_penalty": "the Responses API has no such parameter",
        "presence_penalty": "the Responses API has no such parameter",
        "prediction": "it only makes some upstreams faster",
        "store": "chat completions are not stored",
    }
)
_NEUTRAL: Final = MappingProxyType(
    {"frequency_penalty": 0, "presence_penalty": 0, "store": False, "n": 1, "logit_bias": {}, "modalities": ["text"]}
)
"""What clients spell out although it is the default."""
_REFUSED: Final = MappingProxyType(
    {
        "n": "Ask several times for several answers.",
        "logit_bias": "",
        "modalities": "Answers are text.",
        "audio": "",
        "web_search_options": "",
        "functions": "Use 'tools'.",
        "function_call": "Use 'tool_choice'.",
    }
)
_TRANSLATED: Final = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "reasoning_effort",
        "verbosity",
        "max_tokens",
        "max_completion_tokens",
        "logprobs",
        "top_logprobs",
        "stop",
        "stream_options",
    }
)
PARAMETERS: Final = _SAME | _TRANSLATED | _WITHOUT_EFFECT.keys() | _REFUSED.keys()

_OUR_NAMES: Final = MappingProxyType(
    {"input": "messages", "text": "response_format", "reasoning": "reasoning_effort", "max_output_tokens": "max_completion_tokens"}
)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    create: CreateRequest
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these; upstreams by the Responses API know none, so it is cut here."""
    includes_usage: bool = False
    """A stream ends with a chunk of its usage."""


def parse_chat(body: bytes, *, web_search: WebSearchMode = "refuse") -> ChatRequest:
    """Raises :class:`ApiError`, naming the field of this protocol."""
    fields = {name: value for name, value in parse_object(body).items() if value is not None}
    for name, value in fields.items():
        _check_known(name, value)
    most = _tokens(fields)
    request = {name: fields[name] for name in _SAME & fields.keys()} | _translated(fields)
    try:
        create = parse_create(request | {"store": False}, web_search=web_search)
    except ApiError as error:
        raise in_our_names(error) from error
    notices = [f"'{name}' has no effect: {reason}." for name, reason in _WITHOUT_EFFECT.items() if _matters(name, fields)]
    if any(isinstance(message, dict) and message.get("name") for message in fields["messages"]):
        notices.append("'name' of messages has no effect: the Responses API has no such field.")
    # Chat Completions has no least number of tokens; the Responses API has, so it is set past its check.
    create = replace(create, max_output_tokens=most, notices=(*create.notices, *notices))
    options = fields.get("stream_options") or {}
    return ChatRequest(create, _stop(fields.get("stop")), bool(_object(options, "stream_options").get("include_usage")))


def _matters(name: str, fields: Fields) -> bool:
    return name in fields and fields[name] != _NEUTRAL.get(name)


def _check_known(name: str, value: Any) -> None:
    if name in _REFUSED and value != _NEUTRAL.get(name):
        message = f"Unsupported parameter: '{name}' is not supported here. {_REFUSED[name]}".rstrip()
        raise bad_request(message, param=name, code="unsupported_parameter")
    if name not in PARAMETERS:
        raise unknown_parameter(name, known=PARAMETERS)


def in_our_names(error: ApiError) -> ApiError:
    """The Responses API's complaint, with this protocol's word for what it is about."""
    name = _OUR_NAMES.get((error.param or "").partition(".")[0].partition("[")[0])
    if name is None:
        return error
    message = error.message.replace(f"'{error.param}'", f"'{name}'")
    return ApiError(error.status, message, type=error.type, param=name, code=error.code, headers=error.headers)


def _translated(fields: Fields) -> Fields:
    request: Fields = {"input": _input(fields.get("messages"))}
    if "tools" in fields:
        request["tools"] = [_tool(tool, f"tools[{n}]") for n, tool in enumerate(_list(fields["tools"], "tools"))]
    if "tool_choice" in fields:
        request["tool_choice"] = _choice(fields["tool_choice"])
    text = {"format": _format(fields["response_format"])} if "response_format" in fields else {}
    if "verbosity" in fields:
        text["verbosity"] = fields["verbosity"]
    if text:
        request["text"] = text
    if "reasoning_effort" in fields:
        request["reasoning"] = {"effort": fields["reasoning_effort"]}
    if fields.get("logprobs"):
        request["include"] = ["message.output_text.logprobs"]
        request["top_logprobs"] = fields.get("top_logprobs", 0)
    return request


def _tokens(fields: Fields) -> int | None:
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise bad_request(f"Invalid value for '{name}': expected an integer of 1 or more.", param=name, code="invalid_value")
    return value


def _stop(value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value if value is not None else []
    if not isinstance(words, list) or len(words) > limits.STOP_WORDS_MAX or not all(isinstance(word, str) and word for word in words):
        expected = f"expected a string, or up to {limits.STOP_WORDS_MAX} of them"
        raise bad_request(f"Invalid value for 'stop': {expected}.", param="stop", code="invalid_value")
    return tuple(words)


# --- messages -----------------------------------------------------------------------------------------------------------------


def _input(messages: Any) -> list[Fields]:
    if messages is None:
        raise bad_request("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    custom: set[str] = set()
    items: list[Fields] = []
    for number, message in enumerate(_list(messages, "messages")):
        items += _items(_object(message, f"messages[{number}]"), f"messages[{number}]", custom)
    if not items:
        raise bad_request("Invalid 'messages': expected at least one message.", param="messages", code="invalid_value")
    return items


def _items(message: Fields, where: str, custom: set[str]) -> list[Fields]:
    role = message.get("role")
    match role:
        case "system" | "developer" | "user":
            return [{"type": "message", "role": role, "content": _content(message.get("content"), f"{where}.content", _input_part)}]
        case "assistant":
            return _assistant(message, where, custom)
        case "tool":
            call_id = _text(message.get("tool_call_id"), f"{where}.tool_call_id")
            kind = "custom_tool_call_output" if call_id in custom else "function_call_output"
            output = _content(message.get("content"), f"{where}.content", _input_part)
            return [{"type": kind, "call_id": call_id, "output": output}]
    raise bad_request(
        f"Invalid value for '{where}.role': expected 'system', 'developer', 'user', 'assistant' or 'tool'.",
        param=f"{where}.role",
        code="invalid_value",
    )


def _assistant(message: Fields, where: str, custom: set[str]) -> list[Fields]:
    items: list[Fields] = []
    thought = message.get("reasoning_content")
    if thought:
        text = _text(thought, f"{where}.reasoning_content")
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]})
    content = message.get("content")
    if content:
        items.append({"type": "message", "role": "assistant", "content": _content(content, f"{where}.content", _output_part)})
    if message.get("refusal"):
        refusal = {"type": "refusal", "refusal": _text(message["refusal"], f"{where}.refusal")}
        items.append({"type": "message", "role": "assistant", "content": [refusal]})
    for number, call in enumerate(_list(message.get("tool_calls") or [], f"{where}.tool_calls")):
        items.append(_call(_object(call, f"{where}.tool_calls[{number}]"), f"{where}.tool_calls[{number}]", custom))
    return items


def _call(call: Fields, where: str, custom: set[str]) -> Fields:
    call_id = _text(call.get("id"), f"{where}.id")
    if call.get("type") == "custom":
        custom.add(call_id)
        inner = _object(call.get("custom"), f"{where}.custom")
        name, text = (_text(inner.get(key), f"{where}.custom.{key}") for key in ("name", "input"))
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text}
    inner = _object(call.get("function"), f"{where}.function")
    name, arguments = (_text(inner.get(key), f"{where}.function.{key}") for key in ("name", "arguments"))
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _content(content: Any, where: str, part: Callable[[Fields, str], Fields]) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    return [part(_object(one, f"{where}[{n}]"), f"{where}[{n}]") for n, one in enumerate(_list(content, where))]


def _input_part(part: Fields, where: str) -> Fields:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": _text(part.get("text"), f"{where}.text")}
        case "image_url":
            image = part.get("image_url")
            image = {"url": image} if isinstance(image, str) else _object(image, f"{where}.image_url")
            detail = {"detail": image["detail"]} if image.get("detail") else {}
            return {"type": "input_image", "image_url": _text(image.get("url"), f"{where}.image_url.url")} | detail
        case "file":
            file = _object(part.get("file"), f"{where}.file")
            return {"type": "input_file"} | {key: file[key] for key in ("file_id", "file_data", "filename") if file.get(key)}
    raise _unsupported_part(part, where)


def _output_part(part: Fields, where: str) -> Fields:
    match part.get("type"):
        case "text":
            return {"type": "output_text", "text": _text(part.get("text"), f"{where}.text")}
        case "refusal":
            return {"type": "refusal", "refusal": _text(part.get("refusal"), f"{where}.refusal")}
    raise _unsupported_part(part, where)


def _unsupported_part(part: Fields, where: str) -> ApiError:
    kind = str(part.get("type"))[:64]
    message = f"Invalid value for '{where}.type': '{kind}' is not supported here."
    return bad_request(message, param=f"{where}.type", code="invalid_value")


# --- tools --------------------------------------------------------------------------------------------------------------------


def _tool(value: Any, where: str) -> Fields:
    tool = _object(value, where)
    match tool.get("type"):
        case "function":
            function = _object(tool.get("function"), f"{where}.function")
            kept = {key: function[key] for key in ("name", "description", "parameters", "strict") if function.get(key) is not None}
            # Both are required there, and left open here: no parameters, and no promise to keep to them.
            return {"type": "function", "parameters": {"type": "object", "properties": {}}, "strict": False} | kept
        case "custom":
            custom = _object(tool.get("custom"), f"{where}.custom")
            grammar = (custom.get("format") or {}).get("grammar")
            format_ = {"type": "grammar"} | _object(grammar, f"{where}.custom.format.grammar") if grammar else custom.get("format")
            kept = {key: custom[key] for key in ("name", "description") if custom.get(key) is not None}
            return {"type": "custom"} | kept | ({"format": format_} if format_ else {})
        case "shell":
            environment = {"type": "container_auto"} | (tool.get("environment") or {})
            if environment["type"] == "local":
                raise bad_request(
                    "Chat completions have no form for commands that the client runs: let 'environment' be a container, or offer a "
                    "function.",
                    param=f"{where}.environment",
                    code="invalid_value",
                )
            return tool | {"environment": environment}
        case "code_interpreter":
            return {"container": {"type": "auto"}} | tool
    raise bad_request(
        f"Invalid value for '{where}.type': expected 'function' or 'custom', or for tools that run here 'shell' or 'code_interpreter'.",
        param=f"{where}.type",
        code="invalid_value",
    )


def _choice(choice: Any) -> Any:
    """The name stands one level higher there."""
    if not isinstance(choice, dict):
        return choice
    match choice.get("type"):
        case "function" | "custom" as kind:
            return {"type": kind, "name": _object(choice.get(kind), f"tool_choice.{kind}").get("name")}
        case "allowed_tools":
            allowed = _object(choice.get("allowed_tools"), "tool_choice.allowed_tools")
            tools = [_choice(tool) for tool in _list(allowed.get("tools"), "tool_choice.allowed_tools.tools")]
            return {"type": "allowed_tools", "mode": allowed.get("mode", "auto"), "tools": tools}
    return choice


def _format(value: Any) -> Fields:
    format_ = _object(value, "response_format")
    if format_.get("type") != "json_schema":
        return format_
    schema = _object(format_.get("json_schema"), "response_format.json_schema")
    kept = {key: schema[key] for key in ("name", "description", "schema", "strict") if schema.get(key) is not None}
    return {"type": "json_schema", "schema": {}} | kept


def _object(value: Any, where: str) -> Fields:
    if not isinstance(value, dict):
        raise bad_request(f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"Invalid type for '{where}': expected an array.", param=where, code="invalid_type")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise bad_request(f"Invalid type for '{where}': expected a string.", param=where, code="invalid_type")
    return value
