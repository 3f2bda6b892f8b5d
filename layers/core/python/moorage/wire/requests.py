"""Requests of the Responses API, parsed and checked.

``parse_create`` is the one gate of ``POST /v1/responses``. The rest honours its result. It refuses by the field's name any promise that
cannot be kept. ``docs/parameters.md`` lists every parameter with its fate; a test drives each row through here.
"""

from dataclasses import field
from typing import Any, Final, Literal

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.wire.choices import check_choice
from moorage.wire.create import (
    COMPACT,
    CONVERSATION_CREATE,
    CONVERSATION_ITEMS,
    CONVERSATION_UPDATE,
    COUNT,
    CREATE,
    EVENT,
    FORK,
    LANE,
)
from moorage.wire.environments import Environment, environment, redacted, run_by_the_client, unplaced
from moorage.wire.parameters import Parameters
from moorage.wire.tools import HOSTED_IN_ITEM, WEB_SEARCH_CACHED, WEB_SEARCH_REASON, WEB_SEARCH_TEXT, WEB_SEARCH_TOOLS
from moorage.wire.types import Item, Tool
from moorage.wire.validation import parse_object

WebSearchMode = Literal["serve", "refuse", "ignore"]
"""What happens to a ``web_search`` tool that wants the live web: it is served, or 400, or left out with a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest(Parameters):
    """One ``POST /v1/responses``: the input of the model, and the handling of its answer."""

    input_items: tuple[Item, ...] = ()
    """Canonical items, each with type and id; item references are still to be resolved."""
    previous_response_id: str | None = None
    conversation_id: str | None = None
    store: bool = True
    background: bool = False
    stream: bool = False
    include_obfuscation: bool = True
    environment: Environment | None = None
    """Where shell and code interpreter run. The only place that holds secret values; never store it as it is."""
    metadata: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """What was accepted without effect, in sentences, for the ``x-moorage-notice`` header."""

    @property
    def is_hosted(self) -> bool:
        """Whether calls of the model may run here."""
        return self.environment is not None and self.environment.is_hosted


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """One ``POST /v1/responses/{id}/fork``."""

    request: CreateRequest
    """As if all had been asked for anew, but for what comes before its input."""
    at: int | None
    """The event; None for the last one."""
    container: Literal["copy", "share", "none"] | None
    """None: as it fits."""
    rewind: bool
    """It takes the place of what came in the conversation since."""
    has_own_tools: bool
    """Otherwise they are those of the response before."""


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
    return _create(CREATE.body(body), web_search)


def parse_fork(
    body: bytes | dict[str, Any],
    before: Parameters,
    *,
    background: bool,
    metadata: dict[str, str],
    web_search: WebSearchMode = "refuse",
) -> ForkRequest:
    """Check a fork request; missing fields are as in the request ``before``. Raises :class:`~moorage.errors.ApiError`."""
    fields = FORK.body(body or b"{}")
    tools, items, notices = _without_web_search(fields, web_search)
    is_background = fields.get("background", background and not fields.get("stream"))
    budget = {"budget": before.budget} if before.budget else {}
    _check_answer({**budget, **fields, "background": is_background})
    given = {name: fields[name] for name in FORK.fields if name in fields and name not in (*_REWRITTEN, "at", "container", "rewind")}
    own_tools = tools if "tools" in fields else unplaced(before.tools)
    others = {
        **given,
        "input_items": items,
        "background": is_background,
        "include_obfuscation": fields.get("stream_options", {}).get("include_obfuscation", True),
        "metadata": fields.get("metadata", metadata),
        "tools": tuple(redacted(tools)) if "tools" in fields else tuple(own_tools),
        "environment": environment(own_tools),
        "notices": tuple(notices),
    }
    if "multi_agent" in fields:
        others["multi_agent"] = _team(fields)
    if "context_management" in fields:
        others["context_management"] = tuple(fields["context_management"])
    if "include" in fields:
        others["include"] = tuple(dict.fromkeys(fields["include"]))
    return ForkRequest(
        _with_team_checked(CreateRequest.of(before, **others)),
        fields.get("at"),
        fields.get("container"),
        fields.get("rewind", False),
        "tools" in fields,
    )


def parse_stream_id(frame: dict[str, Any]) -> str | None:
    """The lane of a frame.

    It must be known before its turn comes; None is the unnamed one. Raises :class:`~moorage.errors.ApiError` (``invalid_stream_id``).
    """
    try:
        return LANE({key: value for key, value in frame.items() if key == "stream_id"}).get("stream_id")
    except ApiError as error:
        raise errors.bad_request(error.message, param=error.param, code="invalid_stream_id") from None


def parse_create_event(frame: bytes | dict[str, Any], *, web_search: WebSearchMode = "refuse") -> CreateEvent:
    """Check a ``response.create`` frame.

    Clients do send ``stream`` in it; it has no meaning there. A warm-up needs no input: it may be sent before there is any.
    """
    body = parse_object(frame)
    event = EVENT({key: value for key, value in body.items() if key in EVENT.fields})
    request = {key: value for key, value in body.items() if key not in EVENT.fields and key not in LANE.fields}
    generate = event.get("generate", True)
    return CreateEvent(_create(CREATE({**request, "stream": True}), web_search, needs_input=generate), generate)


def parse_input_tokens(body: bytes | dict[str, Any], *, web_search: WebSearchMode = "refuse") -> CountRequest:
    """Check a token count request. Raises :class:`~moorage.errors.ApiError`."""
    fields = COUNT.body(body)
    tools, items, _ = _without_web_search(fields, web_search)
    _check_context(fields, tools, items)
    return CountRequest(
        **{
            **_without(fields, "input", "conversation", "tools"),
            "input_items": items,
            "conversation_id": fields.get("conversation"),
            "tools": tuple(redacted(tools)),
        }
    )


def parse_compact(body: bytes | dict[str, Any]) -> CompactRequest:
    """Check a compaction request. Raises :class:`~moorage.errors.ApiError`."""
    fields = COMPACT.body(body)
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
    fields = CONVERSATION_CREATE.body(body or b"{}")
    return ConversationCreateRequest(items=tuple(fields.get("items", ())), metadata=fields.get("metadata", {}))


def parse_conversation_update(body: bytes | dict[str, Any]) -> dict[str, str]:
    """The new metadata of ``POST /v1/conversations/{id}``."""
    metadata: dict[str, str] = CONVERSATION_UPDATE.body(body)["metadata"]
    return metadata


def parse_conversation_items(body: bytes | dict[str, Any]) -> tuple[Item, ...]:
    """The items of ``POST /v1/conversations/{id}/items``."""
    return tuple(CONVERSATION_ITEMS.body(body)["items"])


# --- From fields to a request ------------------------------------------------------------------------------------------------------


_NOT_BESIDE: Final = "A team takes none, as in OpenAI's API: give it a 'budget' with 'tool_calls'."


def _with_team_checked(request: CreateRequest) -> CreateRequest:
    """Refuse parameters that a team cannot honour in this version."""
    if request.multi_agent is None:
        return request
    if request.max_tool_calls is not None:
        raise errors.unsupported_parameter("max_tool_calls", _NOT_BESIDE)
    if "wall_seconds" in (request.budget or {}):
        raise errors.unsupported_parameter("budget.wall_seconds", "The agents of a team work at the same time: limit 'usd' or tokens.")
    if request.input_items and request.input_items[-1]["type"] == "compaction_trigger":
        raise errors.unsupported_value("input", "compaction_trigger", "It asks for notes alone: leave 'multi_agent' out.")
    return request


def _team(fields: dict[str, Any]) -> dict[str, Any] | None:
    """The team that the model may build; None without one."""
    asked = fields.get("multi_agent") or {}
    if not asked.get("enabled"):
        return None
    bound = {"subagent_budget": asked["subagent_budget"]} if "subagent_budget" in asked else {}
    return {"max_concurrent_subagents": asked.get("max_concurrent_subagents", limits.TEAM_ACTIVE), **bound}


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


def _create(fields: dict[str, Any], web_search: WebSearchMode, *, needs_input: bool = True) -> CreateRequest:
    tools, items, notices = _without_web_search(fields, web_search)
    notices += run_by_the_client(tools)
    _check_together(fields, tools, items, needs_input=needs_input)
    request = CreateRequest(
        **{
            **_without(fields, *_REWRITTEN),
            "input_items": items,
            "conversation_id": fields.get("conversation"),
            "context_management": tuple(fields.get("context_management", ())),
            "include": tuple(dict.fromkeys(fields.get("include", ()))),
            "include_obfuscation": fields.get("stream_options", {}).get("include_obfuscation", True),
            "tools": tuple(redacted(tools)),
            "environment": environment(tools),
            "multi_agent": _team(fields),
            "notices": tuple(notices),
        }
    )
    return _with_team_checked(request)


_REWRITTEN: Final = (
    "background_options",
    "client_metadata",
    "context_management",
    "conversation",
    "include",
    "input",
    "multi_agent",
    "stream_options",
    "tools",
)
"""What has another form there, or asks for nothing that is not done anyway."""


def _without_web_search(fields: dict[str, Any], mode: WebSearchMode) -> tuple[list[Tool], tuple[Item, ...], list[str]]:
    """Tools and items without web search, if there is none, and the notice about that."""
    # Codex CLI adds web_search by itself, and nobody there asked for it: it is told, not refused. Only Codex sends client_metadata.
    is_codex = "client_metadata" in fields
    ignored = "ignore" if is_codex and mode == "refuse" else mode
    notices: list[str] = []
    tools = _tools_without_web_search(fields.get("tools", []), "tools", ignored, notices)
    items = (_item_without_web_search(item, at, ignored, is_codex, notices) for at, item in enumerate(fields.get("input", ())))
    return tools, tuple(items), notices


def _item_without_web_search(item: Item, index: int, mode: WebSearchMode, is_codex: bool, notices: list[str]) -> Item:
    """The item's own fields never name a search that the deployment has."""
    if item["type"] not in ("additional_tools", "tool_search_output"):
        return item
    where, kept = f"input[{index}].tools", []
    for at, tool in enumerate(_tools_without_web_search(item["tools"], where, mode, notices)):
        if tool["type"] not in WEB_SEARCH_TOOLS:
            kept.append(tool)
        elif is_codex:
            notices.append(f"{where}[{at}]: {HOSTED_IN_ITEM.reason} '{tool['type']}' was left out.")
        else:
            raise errors.unsupported_value(f"{where}[{at}].type", tool["type"], HOSTED_IN_ITEM.reason)
    return {**item, "tools": kept}


def _tools_without_web_search(tools: list[Tool], where: str, mode: WebSearchMode, notices: list[str]) -> list[Tool]:
    """Leave web search out if the request (no live access) or the operator says so; refuse it if there is none."""
    kept = []
    for index, tool in enumerate(tools):
        kind, at = tool["type"], f"{where}[{index}]"
        if kind not in WEB_SEARCH_TOOLS:
            kept.append(tool)
        elif mode == "ignore" or tool.get("external_web_access") is False:
            why = WEB_SEARCH_CACHED if mode == "serve" else "this deployment does not search the web"
            notices.append(f"{at}: {why}; '{kind}' was left out.")
        elif mode == "serve":
            kept.append(tool)
            if "image" in tool.get("search_content_types", ()):
                notices.append(f"{at}.search_content_types: {WEB_SEARCH_TEXT}.")
        else:
            raise errors.unsupported_value(f"{at}.type", kind, WEB_SEARCH_REASON)
    return kept


def _check_together(fields: dict[str, Any], tools: list[Tool], items: tuple[Item, ...], *, needs_input: bool) -> None:
    """Check fields that depend on each other."""
    _check_context(fields, tools, items)
    if needs_input and not items and not _has_context(fields):
        raise errors.bad_request(
            "Missing required parameter: 'input'. One of 'input', 'previous_response_id' and 'conversation' must be given.",
            param="input",
            code="missing_required_parameter",
        )
    if fields.get("background") and fields.get("store") is False:
        raise errors.unsupported_value("background", "true", "A background response must be stored: leave 'store' out.")
    _check_answer(fields)
    for index, item in enumerate(items[:-1]):
        if item["type"] == "compaction_trigger":
            raise errors.invalid_value(f"input[{index}].type", "a 'compaction_trigger' is the last item of its input.")


def _check_answer(fields: dict[str, Any]) -> None:
    """The form of the answer, and its fate at its limit."""
    if fields.get("budget", {}).get("on_limit") == "pause" and not fields.get("background"):
        raise errors.invalid_value("budget.on_limit", "a client would wait for a response that stands still; add 'background': true.")
    if "budget" in fields and not fields["budget"].keys() - {"on_limit", "scope"}:
        raise errors.invalid_value("budget", "it limits nothing; say how much of what the response may use: 'total_tokens': 100000.")
    bound = (fields.get("multi_agent") or {}).get("subagent_budget")
    if bound is not None and not bound.keys() - {"on_limit"}:
        raise errors.invalid_value(
            "multi_agent.subagent_budget", "it limits nothing; say how much of what an agent may use: 'total_tokens': 100000."
        )
    if "approvals" in fields and not fields.get("background"):
        raise errors.invalid_value("approvals", "nobody waits in a response whose client waits; add 'background': true.")
    if "stream_options" in fields and not fields.get("stream"):
        raise errors.invalid_value("stream_options", "it is only allowed together with 'stream': true.")


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
