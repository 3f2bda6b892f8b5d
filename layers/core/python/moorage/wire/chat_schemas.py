"""JSON schemas of chat completions, for the OpenAPI document."""

from typing import Any, Final

from moorage.wire.chat import PARAMETERS

JsonSchema = dict[str, Any]

_STRING: Final[JsonSchema] = {"type": "string"}
_INTEGER: Final[JsonSchema] = {"type": "integer"}
_OBJECT: Final[JsonSchema] = {"type": "object"}
_TEXT: Final[JsonSchema] = {"type": ["string", "null"]}

_MESSAGE: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [_TEXT, {"type": "array", "items": _OBJECT}]},
        "tool_calls": {"type": ["array", "null"], "items": _OBJECT},
        "tool_call_id": _STRING,
        "reasoning_content": _TEXT,
    },
    "required": ["role"],
}

REQUEST: Final[JsonSchema] = {
    "type": "object",
    "properties": {name: {} for name in sorted(PARAMETERS)}
    | {
        "model": _STRING,
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
        "stream": {"type": ["boolean", "null"]},
        "tools": {"type": ["array", "null"], "items": _OBJECT},
    },
    "required": ["model", "messages"],
    "additionalProperties": False,
}

_USAGE: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "prompt_tokens": _INTEGER,
        "completion_tokens": _INTEGER,
        "total_tokens": _INTEGER,
        "prompt_tokens_details": _OBJECT,
        "completion_tokens_details": _OBJECT,
    },
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
}

ANSWER: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "id": _STRING,
        "object": {"const": "chat.completion"},
        "created": _INTEGER,
        "model": _STRING,
        "choices": {"type": "array", "items": _OBJECT, "minItems": 1, "maxItems": 1},
        "usage": _USAGE,
        "service_tier": _TEXT,
    },
    "required": ["id", "object", "created", "model", "choices", "usage"],
}

SCHEMAS: Final[JsonSchema] = {"CreateChatCompletion": REQUEST, "ChatCompletion": ANSWER}
