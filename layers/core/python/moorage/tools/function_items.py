"""The words of function calling, known to every upstream: rooms write their tools, calls and outputs in them."""

from collections.abc import Mapping
from typing import Any

import orjson

from moorage.wire.types import Item, Tool


def function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> Tool:
    """A function tool. ``strict`` is off: optional parameters stay optional."""
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def compact_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def parsed(arguments: str) -> Any:
    """JSON, also if a model quoted it twice; None if it is no JSON."""
    try:
        value = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError:
        return None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def is_async(tool: Tool) -> bool:
    """Whether a model goes on while a call of a client's tool is open (``async``), or of one in a namespace."""
    return bool(tool.get("async")) or any(member.get("async") for member in tool.get("tools") or () if isinstance(member, dict))


def function_call(item: Item, name: str, arguments: Any) -> Item:
    return {"type": "function_call", "call_id": item["call_id"], "name": name, "arguments": compact_json(arguments)}


def function_output(item: Item, output: Any) -> Item:
    return {"type": "function_call_output", "call_id": item["call_id"], "output": output}


def message(role: str, text: str) -> Item:
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text}]}


def with_visible_parts(item: Item, key: str) -> Item:
    """A part that names a file only by an id of ours is unknown upstream: the model reads that it is there."""
    parts = item.get(key)
    if not isinstance(parts, list) or not any(_is_only_id(part) for part in parts):
        return item
    return item | {key: [_file_note(part) if _is_only_id(part) else part for part in parts]}


def _is_only_id(part: dict[str, Any]) -> bool:
    return bool(part.get("file_id")) and not any(part.get(key) for key in ("image_url", "file_data", "file_url"))


def _file_note(part: dict[str, Any]) -> dict[str, Any]:
    name = part.get("filename") or part["file_id"]
    return {"type": "input_text", "text": f"[{part['type'].removeprefix('input_')} {name}]"}


def without_url(part: Mapping[str, Any]) -> dict[str, Any]:
    """An image for clients that have not asked for its content."""
    return {**part, "image_url": None} if "image_url" in part else dict(part)


def without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k not in keys} if any(key in value for key in keys) else value
