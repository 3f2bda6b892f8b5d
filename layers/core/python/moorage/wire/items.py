"""The items of a conversation, as they arrive in ``input``.

Canonical form: every item has a ``type`` and an ``id``, a message's content is a list of parts, ``detail`` of an image is set,
fields that are null are left out. Ids made by clients are kept as they are.
"""

from typing import Any, Final

from moorage import errors, ids, limits
from moorage.wire.shapes import (
    Problem,
    RefusedType,
    Shape,
    Tagged,
    Validator,
    array,
    boolean,
    choice,
    constant,
    described,
    dropped,
    free,
    integer,
    number,
    schema_of,
    supported,
    text,
    wrong_choice,
    wrong_type,
    wrong_value,
)
from moorage.wire.tools import ITEM_TOOL, LOCAL_ENVIRONMENT, PROGRAMMATIC_REASON, client_execution

Item = dict[str, Any]

_NOT_HOSTED: Final = "This deployment does not have the tool that made this item: leave the item out."

REFUSED_ITEMS: Final[dict[str, tuple[str, str]]] = {
    "configuration_update": (
        "unsupported_parameter",
        "Configuration updates are not available in this version: send 'reasoning' and 'text' with every request.",
    ),
    "program": ("unsupported_parameter", PROGRAMMATIC_REASON),
    "program_output": ("unsupported_parameter", PROGRAMMATIC_REASON),
    "file_search_call": ("unsupported_value", _NOT_HOSTED),
    "web_search_call": ("unsupported_value", _NOT_HOSTED),
    "image_generation_call": ("unsupported_value", _NOT_HOSTED),
    "mcp_list_tools": ("unsupported_value", _NOT_HOSTED),
    "mcp_call": ("unsupported_value", _NOT_HOSTED),
    "mcp_approval_request": ("unsupported_value", _NOT_HOSTED),
    "mcp_approval_response": ("unsupported_value", _NOT_HOSTED),
}
"""Item types that are refused by name: error code and sentence."""

ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "code_interpreter_call": "ci",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "computer_call": "cu",
    "computer_call_output": "cuo",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "compaction": "cmp",
    "compaction_trigger": "cmpt",
}

# --- Content parts --------------------------------------------------------------------------------------------------------

_text: Final = text()
_id: Final = text(chars_min=1, chars_max=limits.ITEM_ID_CHARS_MAX)
_call_id: Final = text(chars_min=1, chars_max=limits.CALL_ID_CHARS_MAX)
_name: Final = text(chars_min=1, chars_max=limits.NAME_CHARS_MAX)
_status: Final = choice("in_progress", "completed", "incomplete")
_breakpoint: Final = Shape({"mode": constant("explicit")}, {"ttl": choice("30m", "12h")})


def _one_source(*names: str) -> Any:
    def check(part: dict[str, Any]) -> None:
        given = [name for name in names if name in part]
        if len(given) != 1:
            raise wrong_value(f"give exactly one of {', '.join(repr(name) for name in names)}.")

    return check


@described({"type": "string", "maxLength": limits.IMAGE_URL_CHARS_MAX, "pattern": "^(data:image/|https?://)"})
def _image_url(value: Any) -> str:
    url: str = _image_url_text(value)
    if not url.startswith(("data:image/", "https://", "http://")):
        raise wrong_value("it must be an http(s) URL or a data URL with an image ('data:image/png;base64,...').")
    return url


_image_url_text: Final = text(chars_min=1, chars_max=limits.IMAGE_URL_CHARS_MAX)


@described({"type": "string", "maxLength": 8192, "pattern": "^https?://"})
def _file_url(value: Any) -> str:
    url: str = _file_url_text(value)
    if not url.startswith(("https://", "http://")):
        raise wrong_value("it must be an http(s) URL; inline content goes into 'file_data'.")
    return url


_file_url_text: Final = text(chars_min=1, chars_max=8_192)

_INPUT_TEXT: Final = Shape({"type": constant("input_text"), "text": _text}, {"prompt_cache_breakpoint": _breakpoint})

_INPUT_IMAGE_SHAPE: Final = Shape(
    {"type": constant("input_image")},
    {
        "image_url": _image_url,
        "file_id": _id,
        "detail": choice("low", "high", "auto", "original"),
        "prompt_cache_breakpoint": _breakpoint,
    },
    check=_one_source("image_url", "file_id"),
)


@described(_INPUT_IMAGE_SHAPE.schema)
def _input_image(value: Any) -> dict[str, Any]:
    part = _INPUT_IMAGE_SHAPE(value)
    part.setdefault("detail", "auto")
    return part


_INPUT_FILE: Final = Shape(
    {"type": constant("input_file")},
    {
        "file_data": text(chars_min=1, chars_max=limits.FILE_DATA_CHARS_MAX),
        "file_id": _id,
        "file_url": _file_url,
        "filename": text(chars_max=1_024),
        "detail": choice("auto", "low", "high"),
        "prompt_cache_breakpoint": _breakpoint,
    },
    check=_one_source("file_data", "file_id", "file_url"),
)

_ANNOTATION: Final = Tagged(
    {
        "file_citation": Shape({"type": constant("file_citation"), "file_id": _text, "index": integer()}, {"filename": _text}),
        "url_citation": Shape(
            {
                "type": constant("url_citation"),
                "url": _text,
                "title": _text,
                "start_index": integer(),
                "end_index": integer(),
            }
        ),
        "container_file_citation": Shape(
            {
                "type": constant("container_file_citation"),
                "container_id": _text,
                "file_id": _text,
                "start_index": integer(),
                "end_index": integer(),
            },
            {"filename": _text},
        ),
        "file_path": Shape({"type": constant("file_path"), "file_id": _text, "index": integer()}),
    }
)

_TOP_LOGPROB: Final = {"token": _text, "logprob": number(), "bytes": array(integer())}
_LOGPROB: Final = Shape({"token": _text, "logprob": number()}, {**_TOP_LOGPROB, "top_logprobs": array(Shape({}, _TOP_LOGPROB))})

_OUTPUT_TEXT_SHAPE: Final = Shape(
    {"type": constant("output_text"), "text": _text},
    {"annotations": array(_ANNOTATION), "logprobs": array(_LOGPROB)},
)


@described(_OUTPUT_TEXT_SHAPE.schema)
def _output_text(value: Any) -> dict[str, Any]:
    part = _OUTPUT_TEXT_SHAPE(value)
    part.setdefault("annotations", [])
    return part


@described(_INPUT_TEXT.schema)
def _said_by_assistant(value: Any) -> dict[str, Any]:
    """Easy messages may bring an assistant's earlier words as ``input_text``; a model's words are ``output_text``."""
    return {"type": "output_text", "text": _INPUT_TEXT(value)["text"], "annotations": []}


INPUT_PARTS: Final = Tagged({"input_text": _INPUT_TEXT, "input_image": _input_image, "input_file": _INPUT_FILE})
OUTPUT_PARTS: Final = Tagged(
    {
        "output_text": _output_text,
        "refusal": Shape({"type": constant("refusal"), "refusal": _text}),
        "input_text": _said_by_assistant,
    }
)
_input_parts: Final = array(INPUT_PARTS)
_output_parts: Final = array(OUTPUT_PARTS)

# --- Messages -------------------------------------------------------------------------------------------------------------

_ROLES: Final = ("user", "assistant", "system", "developer")
_COMMON: Final[dict[str, Validator]] = {
    "id": _id,
    "created_by": dropped(_text),
    "internal_chat_message_metadata_passthrough": dropped(free),
}
"""Fields that any item may have. The last one is Codex CLI's; both have no effect here."""


_PARTS_SCHEMA: Final = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("InputContent", "OutputContent")]}


@described({"anyOf": [{"type": "string"}, {"type": "array", "items": _PARTS_SCHEMA}]})
def _content(value: Any) -> Any:
    """Checked with the role, in :func:`_message`."""
    if type(value) is not str and type(value) is not list:
        raise wrong_type("a string or an array", value)
    return value


_MESSAGE_SHAPE: Final = Shape(
    {"role": choice(*_ROLES), "content": _content},
    {
        "type": constant("message"),
        "status": _status,
        "phase": choice("commentary", "final_answer"),
        **_COMMON,
    },
)


@described(_MESSAGE_SHAPE.schema)
def _message(value: Any) -> Item:
    message = _MESSAGE_SHAPE(value)
    is_assistant = message["role"] == "assistant"
    try:
        message["content"] = content_parts(message["content"], is_assistant=is_assistant)
    except Problem as problem:
        problem.at("content")
        raise
    return {"type": "message", **message}


def content_parts(content: Any, *, is_assistant: bool) -> list[dict[str, Any]]:
    """A message's content as a list of parts; a string is one part of text."""
    if type(content) is str:
        checked = _text(content)
        if is_assistant:
            return [{"type": "output_text", "text": checked, "annotations": []}]
        return [{"type": "input_text", "text": checked}]
    parts: list[dict[str, Any]] = (_output_parts if is_assistant else _input_parts)(content)
    return parts


# --- Calls and their outputs ----------------------------------------------------------------------------------------------


_CALLER: Final = Tagged({"direct": Shape({"type": constant("direct")}), "program": RefusedType(PROGRAMMATIC_REASON)})


@described(_CALLER.schema)
def _direct_caller(value: Any) -> dict[str, Any]:
    caller: dict[str, Any] = _CALLER(value)
    return caller


_CALL: Final[dict[str, Validator]] = {**_COMMON, "status": _status, "caller": _direct_caller}


@described({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/InputContent"}}]})
def _output(value: Any) -> Any:
    """A tool's output: text, or parts of text, image and file."""
    if type(value) is str:
        return _text(value)
    if type(value) is list:
        return _input_parts(value)
    raise wrong_type("a string or an array", value)


_FUNCTION_CALL: Final = Shape(
    {"type": constant("function_call"), "call_id": _call_id, "name": _name, "arguments": _text},
    {**_CALL, "namespace": _name, "async": boolean, "parsed_arguments": dropped(free)},
)
"""``parsed_arguments`` is what the SDKs' parse helpers leave in an item that is sent back."""

_FUNCTION_CALL_OUTPUT: Final = Shape(
    {"type": constant("function_call_output"), "call_id": _call_id, "output": _output},
    {**_CALL, "name": _name, "namespace": _name},
)

_CUSTOM_CALL: Final = Shape(
    {"type": constant("custom_tool_call"), "call_id": _call_id, "name": _name, "input": _text},
    {**_CALL, "namespace": _name, "async": boolean},
)

_CUSTOM_CALL_OUTPUT: Final = Shape(
    {"type": constant("custom_tool_call_output"), "call_id": _call_id, "output": _output}, {**_CALL, "name": _name}
)

_REASONING: Final = Shape(
    {
        "type": constant("reasoning"),
        "summary": array(Tagged({"summary_text": Shape({"type": constant("summary_text"), "text": _text})})),
    },
    {
        **_COMMON,
        "status": _status,
        "content": array(Tagged({"reasoning_text": Shape({"type": constant("reasoning_text"), "text": _text})})),
        "encrypted_content": text(chars_max=limits.ENCRYPTED_CONTENT_CHARS_MAX),
    },
)

_COMPACTION: Final = Shape(
    {"type": constant("compaction"), "encrypted_content": text(chars_max=limits.ENCRYPTED_CONTENT_CHARS_MAX)},
    _COMMON,
)

_SHELL_ACTION: Final = Shape(
    {"commands": array(_text, items_max=limits.COMMANDS_PER_CALL_MAX)},
    {"timeout_ms": integer(minimum=0), "max_output_length": integer(minimum=0)},
)

_SHELL_CALL: Final = Shape(
    {"type": constant("shell_call"), "call_id": _call_id, "action": _SHELL_ACTION},
    {
        **_CALL,
        "environment": Tagged(
            {
                "local": LOCAL_ENVIRONMENT,
                "container_reference": Shape({"type": constant("container_reference"), "container_id": _id}),
            }
        ),
    },
)

_OUTCOME: Final = Tagged(
    {
        "exit": Shape({"type": constant("exit"), "exit_code": integer()}),
        "timeout": Shape({"type": constant("timeout")}),
    }
)

_SHELL_CALL_OUTPUT: Final = Shape(
    {
        "type": constant("shell_call_output"),
        "call_id": _call_id,
        "output": array(
            Shape({"stdout": _text, "stderr": _text, "outcome": _OUTCOME}, {"created_by": dropped(_text)}),
            items_max=limits.COMMANDS_PER_CALL_MAX,
        ),
    },
    {**_CALL, "max_output_length": integer(minimum=0)},
)

_CODE_INTERPRETER_CALL: Final = Shape(
    {"type": constant("code_interpreter_call"), "container_id": _id},
    {
        **_COMMON,
        "status": choice("in_progress", "completed", "incomplete", "interpreting", "failed"),
        "code": _text,
        "outputs": array(
            Tagged(
                {
                    "logs": Shape({"type": constant("logs"), "logs": _text}),
                    "image": Shape({"type": constant("image"), "url": text(chars_max=limits.IMAGE_URL_CHARS_MAX)}),
                }
            )
        ),
    },
)

_LOCAL_SHELL_CALL: Final = Shape(
    {
        "type": constant("local_shell_call"),
        "call_id": _call_id,
        "action": Shape(
            {"type": constant("exec"), "command": array(_text), "env": free},
            {"timeout_ms": integer(minimum=0), "user": _text, "working_directory": _text},
        ),
    },
    {**_COMMON, "status": _status},
)


def _local_shell_output_names_its_call(item: Item) -> None:
    """The item's ``id`` *is* the call's id in the API's schema; clients that send a ``call_id`` as well mean that one."""
    if "call_id" not in item and "id" not in item:
        raise Problem(errors.missing_parameter, "id")
    item.setdefault("call_id", item.get("id"))


_LOCAL_SHELL_CALL_OUTPUT: Final = Shape(
    {"type": constant("local_shell_call_output"), "output": _text},
    {**_COMMON, "call_id": _id, "status": _status},
    check=_local_shell_output_names_its_call,
)

_path: Final = text(chars_min=1, chars_max=4_096)
_OPERATION: Final = Tagged(
    {
        "create_file": Shape({"type": constant("create_file"), "path": _path, "diff": _text}),
        "update_file": Shape({"type": constant("update_file"), "path": _path, "diff": _text}),
        "delete_file": Shape({"type": constant("delete_file"), "path": _path}),
    }
)

_APPLY_PATCH_CALL: Final = Shape({"type": constant("apply_patch_call"), "call_id": _call_id, "operation": _OPERATION}, _CALL)

_APPLY_PATCH_CALL_OUTPUT: Final = Shape(
    {
        "type": constant("apply_patch_call_output"),
        "call_id": _call_id,
        "status": choice("completed", "failed"),
    },
    {**_COMMON, "caller": _direct_caller, "output": _text},
)

_SAFETY_CHECKS: Final = array(Shape({"id": _text}, {"code": _text, "message": _text}))
_keys: Final = array(_text)
_POINT: Final = {"x": integer(), "y": integer()}
_ACTION: Final = Tagged(
    {
        "click": Shape(
            {"type": constant("click"), "button": choice("left", "right", "wheel", "back", "forward"), **_POINT},
            {"keys": _keys},
        ),
        "double_click": Shape({"type": constant("double_click"), **_POINT}, {"keys": _keys}),
        "drag": Shape({"type": constant("drag"), "path": array(Shape(_POINT))}, {"keys": _keys}),
        "keypress": Shape({"type": constant("keypress"), "keys": _keys}),
        "move": Shape({"type": constant("move"), **_POINT}, {"keys": _keys}),
        "screenshot": Shape({"type": constant("screenshot")}),
        "scroll": Shape({"type": constant("scroll"), "scroll_x": integer(), "scroll_y": integer(), **_POINT}, {"keys": _keys}),
        "type": Shape({"type": constant("type"), "text": _text}),
        "wait": Shape({"type": constant("wait")}),
    }
)

_COMPUTER_CALL: Final = Shape(
    {"type": constant("computer_call"), "call_id": _call_id},
    {
        **_COMMON,
        "status": _status,
        "action": _ACTION,
        "actions": array(_ACTION),
        "pending_safety_checks": _SAFETY_CHECKS,
    },
)

_COMPUTER_CALL_OUTPUT: Final = Shape(
    {
        "type": constant("computer_call_output"),
        "call_id": _call_id,
        "output": Shape(
            {"type": constant("computer_screenshot")},
            {
                "image_url": _image_url,
                "file_id": _id,
                "detail": choice("low", "high", "auto", "original"),
                "prompt_cache_breakpoint": _breakpoint,
            },
            check=_one_source("image_url", "file_id"),
        ),
    },
    {
        **_COMMON,
        "status": choice("in_progress", "completed", "incomplete", "failed"),
        "acknowledged_safety_checks": _SAFETY_CHECKS,
    },
)


_TOOL_SEARCH_CALL: Final = Shape(
    {"type": constant("tool_search_call"), "call_id": _call_id, "arguments": free},
    {**_COMMON, "status": _status, "execution": client_execution},
)

_item_tools: Final = array(ITEM_TOOL, items_max=limits.TOOLS_MAX)

_TOOL_SEARCH_OUTPUT: Final = Shape(
    {"type": constant("tool_search_output"), "call_id": _call_id, "tools": _item_tools},
    {**_COMMON, "status": _status, "execution": client_execution},
)

_ADDITIONAL_TOOLS: Final = Shape({"type": constant("additional_tools"), "role": constant("developer"), "tools": _item_tools}, _COMMON)

_ITEM_REFERENCE: Final = Shape({"id": _id}, {"type": constant("item_reference")})

SHAPES: Final[dict[str, Validator]] = {
    "message": _message,
    "function_call": _FUNCTION_CALL,
    "function_call_output": _FUNCTION_CALL_OUTPUT,
    "custom_tool_call": _CUSTOM_CALL,
    "custom_tool_call_output": _CUSTOM_CALL_OUTPUT,
    "reasoning": _REASONING,
    "compaction": _COMPACTION,
    "compaction_trigger": Shape({"type": constant("compaction_trigger")}, _COMMON),
    "shell_call": _SHELL_CALL,
    "shell_call_output": _SHELL_CALL_OUTPUT,
    "code_interpreter_call": _CODE_INTERPRETER_CALL,
    "local_shell_call": _LOCAL_SHELL_CALL,
    "local_shell_call_output": _LOCAL_SHELL_CALL_OUTPUT,
    "apply_patch_call": _APPLY_PATCH_CALL,
    "apply_patch_call_output": _APPLY_PATCH_CALL_OUTPUT,
    "computer_call": _COMPUTER_CALL,
    "computer_call_output": _COMPUTER_CALL_OUTPUT,
    "tool_search_call": _TOOL_SEARCH_CALL,
    "tool_search_output": _TOOL_SEARCH_OUTPUT,
    "additional_tools": _ADDITIONAL_TOOLS,
    "item_reference": _ITEM_REFERENCE,
    **{name: RefusedType(reason, code=code) for name, (code, reason) in REFUSED_ITEMS.items()},
}


_SUPPORTED: Final = supported(SHAPES)


@described({"$ref": "#/components/schemas/InputItem"})
def item(value: Any) -> Item:
    """One input item in canonical form. Easy messages have no ``type``, and an object with an ``id`` alone is a reference."""
    if type(value) is not dict:
        raise wrong_type("an object", value)
    kind = value.get("type")
    if kind is None:
        kind = "message" if "role" in value else "item_reference" if value.keys() <= {"id", "type"} and "id" in value else None
        if kind is None:
            raise Problem(errors.missing_parameter, "type")
        value = {**value, "type": kind}
    if type(kind) is not str:
        raise wrong_type("a string", kind, "type")
    shape = SHAPES.get(kind)
    if shape is None:
        raise wrong_choice(kind, _SUPPORTED, "type")
    canonical: Item = shape(value)
    if "id" not in canonical:
        canonical["id"] = ids.new_id(ID_PREFIXES[kind])
    return canonical


_items: Final = array(item)


@described({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/InputItem"}}]})
def input_items(value: Any) -> list[Item]:
    """``input`` of a request: text is one message of the user."""
    if type(value) is str:
        content = content_parts(value, is_assistant=False)
        return [{"type": "message", "role": "user", "content": content, "id": ids.new_id("msg")}]
    if type(value) is not list:
        raise wrong_type("a string or an array", value)
    items: list[Item] = _items(value)
    _check_ids(items)
    return items


def item_list(*, items_max: int, items_min: int = 0) -> Validator:
    """A list of items elsewhere than in ``input``."""
    bounded = array(item, items_max=items_max, items_min=items_min)

    @described(schema_of(bounded) or {})
    def check(value: Any) -> list[Item]:
        items: list[Item] = bounded(value)
        _check_ids(items)
        return items

    return check


def _check_ids(items: list[Item]) -> None:
    seen: set[str] = set()
    for entry in items:
        item_id = entry["id"]
        if item_id in seen and entry["type"] != "local_shell_call_output":
            raise Problem(lambda param, item_id=item_id: errors.duplicate_item(param, item_id))  # type: ignore[misc]
        seen.add(item_id)
