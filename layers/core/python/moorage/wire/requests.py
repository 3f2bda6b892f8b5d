"""Requests of the Responses API, parsed and checked.

``parse_create`` is the one gate of ``POST /v1/responses``: what it returns is honoured by the rest, and what it cannot promise it
refuses with the field's name. ``docs/parameters.md`` lists every parameter with its fate; a test drives each row through here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from moorage import errors, limits
from moorage.wire import items as item_shapes
from moorage.wire import tools as tool_shapes
from moorage.wire.items import Item
from moorage.wire.shapes import (
    Problem,
    Shape,
    Tagged,
    Validator,
    array,
    boolean,
    choice,
    constant,
    described,
    dropped,
    free_object,
    integer,
    number,
    only,
    refused,
    schema_of,
    text,
    wrong_type,
    wrong_value,
)
from moorage.wire.tools import Environment, Tool

WebSearchMode = Literal["refuse", "ignore"]
"""What happens to a ``web_search`` tool that wants the live web: 400, or left out with a notice (the operator's choice)."""

INCLUDABLE: Final = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)

SERVICE_TIERS: Final = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """One ``POST /v1/responses``. Names and defaults are the wire's; ``None`` means that the client left it open."""

    model: str
    input_items: tuple[Item, ...] = ()
    """Canonical items, each with type and id; item references are still to be resolved."""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    store: bool = True
    background: bool = False
    stream: bool = False
    include_obfuscation: bool = True
    include: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    """Canonical tools without the values of secrets: safe to store, to echo and to send to the model."""
    environment: Environment | None = None
    """Where shell and code interpreter run. The only place that holds secret values; never store it as it is."""
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    context_management: tuple[dict[str, Any], ...] = ()
    """Compaction entries, each with ``compact_threshold`` in tokens or without."""
    metadata: dict[str, str] = field(default_factory=dict)
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    notices: tuple[str, ...] = ()
    """What was accepted without effect, in sentences, for the ``x-moorage-notice`` header."""

    @property
    def is_hosted(self) -> bool:
        """Whether calls of the model may run here."""
        return self.environment is not None and self.environment.is_hosted


@dataclass(frozen=True, slots=True)
class CreateEvent:
    """A ``response.create`` frame of the WebSocket transport, but for its ``stream_id`` (:func:`parse_stream_id`)."""

    request: CreateRequest
    generate: bool = True
    """False for a warm-up: a response id to chain from, without a model step."""


@dataclass(frozen=True, slots=True)
class CountRequest:
    """One ``POST /v1/responses/input_tokens``."""

    model: str | None = None
    input_items: tuple[Item, ...] = ()
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """One ``POST /v1/responses/compact``."""

    model: str
    input_items: tuple[Item, ...] = ()
    instructions: str | None = None
    previous_response_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationCreateRequest:
    """One ``POST /v1/conversations``."""

    items: tuple[Item, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)


def parse_create(body: bytes | dict[str, Any], *, web_search: WebSearchMode = "refuse") -> CreateRequest:
    """Check a create request and bring it into canonical form.

    Raises nothing but :class:`~moorage.errors.ApiError` (400, or 413 for a body beyond ``limits.REQUEST_BODY_BYTES_MAX``).
    A ``dict`` must come from a strict JSON parser (orjson).
    """
    return _create(parse_body(body, CREATE), web_search)


def parse_stream_id(frame: dict[str, Any]) -> str | None:
    """The lane of a frame, which must be known before its turn comes; None is the unnamed one. Raises
    :class:`~moorage.errors.ApiError` (``invalid_stream_id``)."""
    lane = parse_body({key: value for key, value in frame.items() if key == "stream_id"}, _LANE)
    return lane.get("stream_id")


def parse_create_event(frame: bytes | dict[str, Any], *, web_search: WebSearchMode = "refuse") -> CreateEvent:
    """Check a ``response.create`` frame. Clients do send ``stream`` in it, which means nothing there. A warm-up needs no input: it may
    be sent before there is any."""
    body = parse_object(frame)
    event = parse_body({key: value for key, value in body.items() if key in _EVENT.fields}, _EVENT)
    request = {key: value for key, value in body.items() if key not in _EVENT.fields and key not in _LANE.fields}
    generate = event.get("generate", True)
    return CreateEvent(_create(parse_body({**request, "stream": True}, CREATE), web_search, needs_input=generate), generate)


def parse_input_tokens(body: bytes | dict[str, Any], *, web_search: WebSearchMode = "refuse") -> CountRequest:
    """Check a token count request. Raises :class:`~moorage.errors.ApiError`."""
    fields = parse_body(body, COUNT)
    tools, items, _ = _without_web_search(fields, web_search)
    _check_context(fields, tools, items)
    return CountRequest(
        **{
            **_without(fields, "input", "conversation", "tools"),
            "input_items": items,
            "conversation_id": fields.get("conversation"),
            "tools": tuple(tool_shapes.redacted(tools)),
        }
    )


def parse_compact(body: bytes | dict[str, Any]) -> CompactRequest:
    """Check a compaction request. Raises :class:`~moorage.errors.ApiError`."""
    fields = parse_body(body, COMPACT)
    if not fields.get("input") and "previous_response_id" not in fields:
        raise errors.bad_request(
            "Missing required parameter: 'input'. One of 'input' and 'previous_response_id' must be given.",
            param="input",
            code="missing_required_parameter",
        )
    return CompactRequest(
        model=fields["model"],
        input_items=tuple(fields.get("input", ())),
        instructions=fields.get("instructions"),
        previous_response_id=fields.get("previous_response_id"),
    )


def parse_conversation_create(body: bytes | dict[str, Any]) -> ConversationCreateRequest:
    """Check ``POST /v1/conversations``; an empty body is an empty conversation."""
    fields = parse_body(body or b"{}", CONVERSATION_CREATE)
    return ConversationCreateRequest(items=tuple(fields.get("items", ())), metadata=fields.get("metadata", {}))


def parse_conversation_update(body: bytes | dict[str, Any]) -> dict[str, str]:
    """The new metadata of ``POST /v1/conversations/{id}``."""
    metadata: dict[str, str] = parse_body(body, CONVERSATION_UPDATE)["metadata"]
    return metadata


def parse_conversation_items(body: bytes | dict[str, Any]) -> tuple[Item, ...]:
    """The items of ``POST /v1/conversations/{id}/items``."""
    return tuple(parse_body(body, CONVERSATION_ITEMS)["items"])


# --- From body to fields -----------------------------------------------------------------------------------------------------


def parse_object(body: bytes | dict[str, Any]) -> dict[str, Any]:
    """A body as a JSON object. Raises :class:`~moorage.errors.ApiError`."""
    if isinstance(body, dict):
        return body
    if len(body) > limits.REQUEST_BODY_BYTES_MAX:
        raise errors.body_too_large(limits.REQUEST_BODY_BYTES_MAX)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.unparsable_body(str(error)) from error
    if type(value) is not dict:
        raise errors.unparsable_body("it must be a JSON object")
    return value


def parse_body(body: bytes | dict[str, Any], shape: Shape) -> dict[str, Any]:
    """A body's fields in canonical form. Raises :class:`~moorage.errors.ApiError` that names the field."""
    try:
        return shape(parse_object(body))
    except Problem as problem:
        raise problem.to_error() from None


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


def _create(fields: dict[str, Any], web_search: WebSearchMode, *, needs_input: bool = True) -> CreateRequest:
    tools, items, notices = _without_web_search(fields, web_search)
    _check_together(fields, tools, items, needs_input=needs_input)
    return CreateRequest(
        **{
            **_without(fields, *_REWRITTEN),
            "input_items": items,
            "conversation_id": fields.get("conversation"),
            "context_management": tuple(fields.get("context_management", ())),
            "include": tuple(dict.fromkeys(fields.get("include", ()))),
            "include_obfuscation": fields.get("stream_options", {}).get("include_obfuscation", True),
            "tools": tuple(tool_shapes.redacted(tools)),
            "environment": tool_shapes.environment(tools),
            "notices": tuple(notices),
        }
    )


_REWRITTEN: Final = ("input", "conversation", "context_management", "include", "stream_options", "tools", "client_metadata")


def _without_web_search(fields: dict[str, Any], mode: WebSearchMode) -> tuple[list[Tool], tuple[Item, ...], list[str]]:
    """Tools and items without web search, and what is to be said about that."""
    # Codex CLI adds web_search by itself, and nobody there asked for it: it is told, not refused. Only Codex sends client_metadata.
    is_ignored = mode == "ignore" or "client_metadata" in fields
    notices: list[str] = []
    tools = _tools_without_web_search(fields.get("tools", []), "tools", is_ignored, notices)
    items = (_item_without_web_search(item, at, is_ignored, notices) for at, item in enumerate(fields.get("input", ())))
    return tools, tuple(items), notices


def _item_without_web_search(item: Item, index: int, is_ignored: bool, notices: list[str]) -> Item:
    if item["type"] not in ("additional_tools", "tool_search_output"):
        return item
    return {**item, "tools": _tools_without_web_search(item["tools"], f"input[{index}].tools", is_ignored, notices)}


def _tools_without_web_search(tools: list[Tool], where: str, is_ignored: bool, notices: list[str]) -> list[Tool]:
    """Leave web search out where that is what was asked for (no live access) or decided; refuse it otherwise."""
    kept = []
    for index, tool in enumerate(tools):
        kind = tool["type"]
        if kind not in tool_shapes.WEB_SEARCH_TOOLS:
            kept.append(tool)
        elif is_ignored or tool.get("external_web_access") is False:
            notices.append(f"{where}[{index}]: this deployment does not search the web; '{kind}' was left out.")
        else:
            raise errors.unsupported_value(f"{where}[{index}].type", kind, tool_shapes.WEB_SEARCH_REASON)
    return kept


def _check_together(fields: dict[str, Any], tools: list[Tool], items: tuple[Item, ...], *, needs_input: bool) -> None:
    """What no single field can tell."""
    _check_context(fields, tools, items)
    if needs_input and not items and not _has_context(fields):
        raise errors.bad_request(
            "Missing required parameter: 'input'. One of 'input', 'previous_response_id' and 'conversation' must be given.",
            param="input",
            code="missing_required_parameter",
        )
    if fields.get("background") and fields.get("store") is False:
        raise errors.unsupported_value("background", "true", "A background response must be stored: leave 'store' out.")
    if "stream_options" in fields and not fields.get("stream"):
        raise errors.invalid_value("stream_options", "it is only allowed together with 'stream': true.")
    for index, item in enumerate(items[:-1]):
        if item["type"] == "compaction_trigger":
            raise errors.invalid_value(f"input[{index}].type", "a 'compaction_trigger' is the last item of its input.")


def _check_context(fields: dict[str, Any], tools: list[Tool], items: tuple[Item, ...]) -> None:
    if "previous_response_id" in fields and "conversation" in fields:
        raise errors.bad_request(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Give one of them.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if not _has_context(fields):
        check_choice(fields.get("tool_choice", "auto"), tools, items)


def _has_context(fields: dict[str, Any]) -> bool:
    return "previous_response_id" in fields or "conversation" in fields


def check_choice(chosen: str | dict[str, Any], tools: Sequence[Tool], items: Sequence[Item]) -> None:
    """A chosen tool must be among ``tools`` or be offered by ``items``, which include the chain's: where there is one, only who has
    loaded it can ask. Raises :class:`~moorage.errors.ApiError`."""
    if chosen in ("auto", "none"):
        return
    joined = (item for item in items if item["type"] in ("additional_tools", "tool_search_output"))
    offered = [*tools, *(tool for item in joined for tool in item.get("tools") or ())]
    if isinstance(chosen, str):
        if not offered:
            raise errors.invalid_value("tool_choice", f"'{chosen}' needs at least one tool in 'tools'.")
        return
    wanted = enumerate(chosen["tools"]) if chosen["type"] == "allowed_tools" else [(None, chosen)]
    for index, tool in wanted:
        if not tool_shapes.is_offered(tool, offered):
            name = tool.get("name", tool["type"])
            param = "tool_choice" if index is None else f"tool_choice.tools[{index}]"
            raise errors.invalid_value(param, f"tool '{name}' is not among 'tools'.")


# --- The shapes ------------------------------------------------------------------------------------------------------------

_identifier: Final = text(chars_max=limits.IDENTIFIER_CHARS_MAX)
_id: Final = text(chars_min=1, chars_max=limits.ITEM_ID_CHARS_MAX)


@described(
    {
        "type": "object",
        "maxProperties": limits.METADATA_PAIRS_MAX,
        "propertyNames": {"maxLength": limits.METADATA_KEY_CHARS_MAX},
        "additionalProperties": {"type": "string", "maxLength": limits.METADATA_VALUE_CHARS_MAX},
    }
)
def _metadata(value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise wrong_type("an object", value)
    if len(value) > limits.METADATA_PAIRS_MAX:
        pairs = len(value)
        raise Problem(lambda param: errors.too_many_properties(param, pairs, limits.METADATA_PAIRS_MAX))
    for key, entry in value.items():
        if len(key) > limits.METADATA_KEY_CHARS_MAX:
            raise wrong_value(f"keys have at most {limits.METADATA_KEY_CHARS_MAX} characters, but one has {len(key)}.")
        try:
            _metadata_value(entry)
        except Problem as problem:
            problem.at(key)
            raise
    return value


_metadata_value: Final = text(chars_max=limits.METADATA_VALUE_CHARS_MAX)


_CONVERSATION: Final = Shape({"id": _id})


@described({"anyOf": [schema_of(_id), _CONVERSATION.schema]})
def _conversation(value: Any) -> str:
    """The id, given as such or in an object."""
    if type(value) is str:
        return str(_id(value))
    return str(_CONVERSATION(value)["id"])


_TEXT: Final = Shape(
    {},
    {
        "format": Tagged(
            {
                "text": Shape({"type": constant("text")}),
                "json_object": Shape({"type": constant("json_object")}),
                "json_schema": Shape(
                    {
                        "type": constant("json_schema"),
                        "name": text(chars_min=1, chars_max=limits.SCHEMA_NAME_CHARS_MAX, pattern="[a-zA-Z0-9_-]+"),
                        "schema": free_object,
                    },
                    {"description": text(), "strict": boolean},
                ),
            }
        ),
        "verbosity": choice("low", "medium", "high"),
    },
)

_REASONING: Final = Shape(
    {},
    {
        "effort": choice("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        "summary": choice("auto", "concise", "detailed"),
        "generate_summary": choice("auto", "concise", "detailed"),
        "context": choice("auto", "current_turn", "all_turns"),
        "mode": choice("standard", "pro"),
    },
)


@described(_REASONING.schema)
def _reasoning(value: Any) -> dict[str, Any]:
    """``generate_summary`` is the old name of ``summary``."""
    reasoning = _REASONING(value)
    if "generate_summary" in reasoning:
        reasoning.setdefault("summary", reasoning.pop("generate_summary"))
        reasoning.pop("generate_summary", None)
    return reasoning


_NO_COMPARISON: Final = "Prompt cache diagnostics are not available in this version."
_NO_PREWARM: Final = "Prompt cache warm-up is not available in this version: send the request itself."

_PROMPT_CACHE_OPTIONS: Final = Shape(
    {},
    {
        "mode": choice("implicit", "explicit"),
        "ttl": choice("30m", "12h"),
        "prewarm": only(False, _NO_PREWARM),
        "comparison_response_id": refused(_NO_COMPARISON),
    },
)


_IMAGE: Final = Shape({}, {"context_compression": choice("auto", "enabled", "disabled")})


@described(Shape({}, {"context_compression": choice("auto", "disabled")}).schema)
def _image(value: Any) -> dict[str, Any]:
    image = _IMAGE(value)
    if image.get("context_compression") == "enabled":
        raise Problem(
            lambda param: errors.unsupported_value(param, "enabled", "Image context compression is not available."),
            "context_compression",
        )
    return image


_FIELDS: Final[dict[str, Validator]] = {
    "input": item_shapes.input_items,
    "instructions": text(),
    "previous_response_id": _id,
    "conversation": _conversation,
    "tools": tool_shapes.tool_list,
    "tool_choice": tool_shapes.tool_choice,
    "parallel_tool_calls": boolean,
    "reasoning": _reasoning,
    "text": _TEXT,
    "truncation": choice("auto", "disabled"),
}
"""Fields that creating a response and counting its tokens share."""

_model: Final = text(chars_min=1, chars_max=limits.MODEL_NAME_CHARS_MAX)

CREATE: Final = Shape(
    {"model": _model},
    {
        **_FIELDS,
        "store": boolean,
        "background": boolean,
        "stream": boolean,
        "stream_options": Shape({}, {"include_obfuscation": boolean}),
        "include": array(choice(*INCLUDABLE)),
        "max_output_tokens": integer(minimum=limits.OUTPUT_TOKENS_MIN),
        "max_tool_calls": integer(minimum=1),
        "temperature": number(minimum=0, maximum=2),
        "top_p": number(minimum=0, maximum=1),
        "top_logprobs": integer(minimum=0, maximum=20),
        "metadata": _metadata,
        "prompt_cache_key": _identifier,
        "prompt_cache_options": _PROMPT_CACHE_OPTIONS,
        "prompt_cache_retention": choice("in_memory", "24h"),
        "service_tier": choice(*SERVICE_TIERS),
        "safety_identifier": _identifier,
        "user": _identifier,
        "client_metadata": free_object,
        "image": dropped(_image),
        "context_management": array(
            Shape({"type": constant("compaction")}, {"compact_threshold": integer(minimum=limits.COMPACT_THRESHOLD_TOKENS_MIN)}),
            items_min=1,
        ),
        "prompt": refused("Prompt templates live at OpenAI: send their text as 'instructions' and 'input'."),
        "moderation": refused("Moderation is not available in this version: call your moderation service beside this one."),
        "access_programs": refused("Access programs exist at OpenAI only."),
    },
)
"""``POST /v1/responses``."""

COUNT: Final = Shape(
    {},
    {
        **_FIELDS,
        "model": _model,
        "personality": refused("It belongs to OpenAI's own applications."),
    },
)
"""``POST /v1/responses/input_tokens``."""


COMPACT: Final = Shape(
    {"model": _model},
    {
        **{name: _FIELDS[name] for name in ("input", "instructions", "previous_response_id")},
        "prompt_cache_key": _identifier,
        "prompt_cache_options": _PROMPT_CACHE_OPTIONS,
        "prompt_cache_retention": choice("in_memory", "24h"),
        "service_tier": choice(*SERVICE_TIERS),
        "image": dropped(_image),
    },
)
"""``POST /v1/responses/compact``. The hints about caches and tiers have no effect: the summary is one short request."""


@described({"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[A-Za-z0-9_.-]+$"})
def _stream_id(value: Any) -> str:
    try:
        stream_id: str = _stream_id_text(value)
    except Problem as problem:
        message = problem.to_error("stream_id").message
        raise Problem(lambda param: errors.bad_request(message, param=param, code="invalid_stream_id")) from None
    return stream_id


_stream_id_text: Final = text(chars_min=1, chars_max=256, pattern="[A-Za-z0-9_.-]+")
_LANE: Final = Shape({}, {"stream_id": _stream_id})
_NO_BACKGROUND: Final = "A response of this connection is streamed on it: use POST /v1/responses for one in the background."
_EVENT: Final = Shape(
    {"type": choice("response.create")},
    {"generate": boolean, "stream": boolean, "background": only(False, _NO_BACKGROUND)},
)


def _conversation_items(minimum: int) -> Validator:
    items = item_shapes.item_list(items_max=limits.CONVERSATION_ITEMS_PER_CALL_MAX, items_min=minimum)

    @described(schema_of(items) or {})
    def check(value: Any) -> list[Item]:
        checked: list[Item] = items(value)
        for index, item in enumerate(checked):
            if item["type"] == "item_reference":
                raise Problem(lambda param: errors.unsupported_value(param, "item_reference", "Give the item itself."), index, "type")
        return checked

    return check


CONVERSATION_CREATE: Final = Shape({}, {"items": _conversation_items(0), "metadata": _metadata})


@described({"anyOf": [schema_of(_metadata), {"type": "null"}]})
def _new_metadata(value: Any) -> dict[str, str]:
    """Null takes all metadata away."""
    return {} if value is None else _metadata(value)


CONVERSATION_UPDATE: Final = Shape({"metadata": _new_metadata})
CONVERSATION_ITEMS: Final = Shape({"items": _conversation_items(1)})
