"""The bodies of ``/v1/responses`` and ``/v1/conversations``."""

from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import TypedDict

from moorage import errors, limits
from moorage.errors import invalid_json_schema, wrong_id
from moorage.wire.choices import ToolChoice
from moorage.wire.items import Input, InputItem, distinct
from moorage.wire.json_schemas import fault_of
from moorage.wire.refusals import problem, wrong_value
from moorage.wire.tools import ToolList
from moorage.wire.types import Includable, Item
from moorage.wire.validation import (
    Array,
    Dropped,
    Either,
    Fields,
    FreeObject,
    Id,
    Identifier,
    JsonValidator,
    Length,
    Number,
    OneOf,
    Only,
    RefusedField,
    Text,
    wire,
    wire_with,
)

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]

Model = Annotated[str, Field(min_length=1, max_length=limits.MODEL_NAME_CHARS_MAX)]
_Key = Annotated[str, Field(max_length=limits.METADATA_KEY_CHARS_MAX)]
_Value = Annotated[str, Field(max_length=limits.METADATA_VALUE_CHARS_MAX)]
Metadata = Annotated[dict[_Key, _Value], Field(max_length=limits.METADATA_PAIRS_MAX)]

# --- Fields with fields of their own ----------------------------------------------------------------------------------


def _id_of(conversation: Fields) -> str:
    return str(conversation["id"])


def _of_conversation(conversation_id: str) -> str:
    if not conversation_id.startswith("conv"):
        raise problem(lambda param: wrong_id(param, conversation_id, "conv"))
    return conversation_id


_ConversationId = Annotated[Id, AfterValidator(_of_conversation)]


@wire
class ConversationReference(TypedDict):
    id: _ConversationId


_Conversation = Annotated[
    str, Either("an object", string=_ConversationId, object=Annotated[ConversationReference, AfterValidator(_id_of)])
]
"""The id, given as such or in an object."""


@wire
class PlainText(TypedDict):
    type: Literal["text"]


@wire
class JsonObject(TypedDict):
    type: Literal["json_object"]


def _is_schema(format_: Fields) -> Fields:
    why = fault_of(format_["schema"], strict=format_.get("strict", False))
    if why is not None:
        raise problem(lambda param: invalid_json_schema(param, format_["name"], why), "schema")
    return format_


@wire_with(_is_schema)
class JsonSchema(TypedDict, total=False):
    type: Required[Literal["json_schema"]]
    name: Required[Annotated[str, Field(min_length=1, max_length=limits.SCHEMA_NAME_CHARS_MAX, pattern="^[a-zA-Z0-9_-]+$")]]
    schema: Required[FreeObject]
    description: Text
    strict: bool


@wire
class TextOptions(TypedDict, total=False):
    format: Annotated[
        PlainText | JsonObject | JsonSchema,
        OneOf({"text": PlainText, "json_object": JsonObject, "json_schema": JsonSchema}),
    ]
    verbosity: Literal["low", "medium", "high"]


def _rename_summary(reasoning: Fields) -> Fields:
    """``generate_summary`` is the old name of ``summary``."""
    if "generate_summary" in reasoning:
        reasoning.setdefault("summary", reasoning.pop("generate_summary"))
        reasoning.pop("generate_summary", None)
    return reasoning


@wire_with(_rename_summary)
class ReasoningOptions(TypedDict, total=False):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    summary: Literal["auto", "concise", "detailed"]
    generate_summary: Literal["auto", "concise", "detailed"]
    context: Literal["auto", "current_turn", "all_turns"]
    mode: Literal["standard", "pro"]


@wire
class PromptCacheOptions(TypedDict, total=False):
    mode: Literal["implicit", "explicit"]
    ttl: Literal["30m", "12h"]
    prewarm: Annotated[bool, Only(False, "Prompt cache warm-up is not available in this version: send the request itself.")]
    comparison_response_id: Annotated[Any, RefusedField("Prompt cache diagnostics are not available in this version.")]


def _no_compression(value: str) -> str:
    if value == "enabled":
        raise problem(lambda param: errors.unsupported_value(param, "enabled", "Image context compression is not available."))
    return value


@wire
class ImageOptions(TypedDict, total=False):
    context_compression: Annotated[
        Literal["auto", "enabled", "disabled"],
        AfterValidator(_no_compression),
        WithJsonSchema({"type": "string", "enum": ["auto", "disabled"]}),
    ]


@wire
class StreamOptions(TypedDict, total=False):
    include_obfuscation: bool


def _check_prompt(entry: Fields) -> Fields:
    if "prompt" in entry and entry.get("strategy") == "truncate":
        raise wrong_value("nobody writes notes under the strategy 'truncate'; leave one of the two out.", "prompt")
    return entry


@wire_with(_check_prompt)
class CompactionEntry(TypedDict, total=False):
    """``strategy``, ``prompt`` and ``keep_recent_items`` are extensions."""

    type: Required[Literal["compaction"]]
    compact_threshold: Annotated[int, Field(ge=limits.COMPACT_THRESHOLD_TOKENS_MIN)]
    strategy: Literal["llm", "truncate"]
    prompt: Annotated[str, Field(min_length=1, max_length=limits.COMPACTION_PROMPT_CHARS_MAX)]
    keep_recent_items: Annotated[int, Field(ge=0, le=limits.COMPACTION_RECENT_ITEMS_MAX)]


class BudgetLimits(TypedDict, total=False):
    """An extension: what may be used before another step begins."""

    usd: Annotated[Number, Field(ge=limits.BUDGET_USD_MIN)]
    input_tokens: Annotated[int, Field(ge=1)]
    output_tokens: Annotated[int, Field(ge=1)]
    total_tokens: Annotated[int, Field(ge=1)]
    tool_calls: Annotated[int, Field(ge=1)]
    wall_seconds: Annotated[int, Field(ge=1)]
    on_limit: Literal["stop", "pause", "finish"]


@wire
class Budget(BudgetLimits, total=False):
    """An extension: the limit of a response before another step begins; with the scope ``tree``, together with its forks."""

    scope: Literal["response", "tree"]


def _waits_for_somebody(approvals: Fields) -> Fields:
    """A time-out is one of calls that wait."""
    if approvals.get("park") is False and "timeout_seconds" in approvals:
        raise wrong_value("nothing waits in its place with 'park': false.", "timeout_seconds")
    if "on_timeout" in approvals and "timeout_seconds" not in approvals:
        raise wrong_value("say after how many 'timeout_seconds'.", "on_timeout")
    return approvals


@wire_with(_waits_for_somebody)
class Approvals(TypedDict, total=False):
    """An extension: how the response waits for a person's word. ``park``: in its place, and not by ending with a question."""

    park: bool
    timeout_seconds: Annotated[int, Field(ge=limits.APPROVAL_SECONDS_MIN, le=limits.APPROVAL_SECONDS_MAX)]
    on_timeout: Literal["deny", "cancel"]


@wire
class Verdict(TypedDict, total=False):
    """A person's decision."""

    approve: Required[bool]
    reason: Annotated[str, Field(max_length=limits.APPROVAL_REASON_CHARS_MAX)]


@wire
class ApprovalLink(TypedDict, total=False):
    """A link for a decision without a key."""

    expires_in_seconds: Annotated[int, Field(ge=limits.APPROVAL_SECONDS_MIN, le=limits.APPROVAL_LINK_SECONDS_MAX)]


# --- Bodies -----------------------------------------------------------------------------------------------------------


class _ModelOptions(TypedDict, total=False):
    """Parameters of all requests that ask a model."""

    input: Input
    instructions: Text


class _ModelParameters(_ModelOptions, total=False):
    """Parameters shared by creating a response, counting its tokens and compacting its input."""

    previous_response_id: Id


class _Offered(TypedDict, total=False):
    """Parameters shared by creating a response, forking one and counting its tokens."""

    tools: ToolList
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    reasoning: ReasoningOptions
    text: TextOptions
    truncation: Literal["auto", "disabled"]


class _Told(_ModelParameters, _Offered, total=False):
    """Parameters shared by creating a response and counting its tokens."""

    conversation: _Conversation


class _Hints(TypedDict, total=False):
    prompt_cache_key: Identifier
    prompt_cache_options: PromptCacheOptions
    prompt_cache_retention: Literal["in_memory", "24h"]
    service_tier: ServiceTier
    image: Annotated[ImageOptions, Dropped]


@wire
class SubagentBudget(TypedDict, total=False):
    """An extension: what each agent beside ``/root`` may use in a response before another step of it begins."""

    usd: Annotated[Number, Field(ge=limits.BUDGET_USD_MIN)]
    total_tokens: Annotated[int, Field(ge=1)]
    tool_calls: Annotated[int, Field(ge=1)]
    on_limit: Literal["stop", "finish"]


@wire
class MultiAgent(TypedDict, total=False):
    """A team that the model may build (``loop/team.py``)."""

    enabled: Required[bool]
    max_concurrent_subagents: Annotated[int, Field(ge=1, le=limits.TEAM_ACTIVE_MAX)]
    subagent_budget: SubagentBudget


@wire
class BackgroundOptions(TypedDict, total=False):
    """Windows with a discount exist at OpenAI only."""

    completion_window: Annotated[str, Only("soonest", "Background responses begin at once here, at one price.")]
    continuation_id: str
    """Which background responses belong together, for OpenAI's order of them."""


class _Made(_Hints, total=False):
    """Parameters shared by creating a response and forking one."""

    background: bool
    stream: bool
    stream_options: StreamOptions
    include: Array[Includable]
    max_output_tokens: Annotated[int, Field(ge=limits.OUTPUT_TOKENS_MIN)]
    max_tool_calls: Annotated[int, Field(ge=1)]
    temperature: Annotated[Number, Field(ge=0, le=2)]
    top_p: Annotated[Number, Field(ge=0, le=1)]
    top_logprobs: Annotated[int, Field(ge=0, le=20)]
    metadata: Metadata
    safety_identifier: Identifier
    user: Identifier
    client_metadata: FreeObject
    context_management: Annotated[list[CompactionEntry], Length(minimum=1)]
    budget: Budget
    approvals: Approvals
    prompt: Annotated[Any, RefusedField("Prompt templates live at OpenAI: send their text as 'instructions' and 'input'.")]
    moderation: Annotated[
        Any, RefusedField("Moderation is not available in this version: call your moderation service beside this one.")
    ]
    access_programs: Annotated[Any, RefusedField("Access programs exist at OpenAI only.")]
    background_options: BackgroundOptions
    multi_agent: MultiAgent


@wire
class CreateResponse(_Told, _Made, total=False):
    model: Required[Model]
    store: bool


@wire
class ForkResponse(_ModelOptions, _Offered, _Made, total=False):
    """An extension: missing fields stay as in the forked response."""

    at: Annotated[int, Field(ge=0)]
    container: Literal["copy", "share", "none"]
    rewind: bool
    model: Model


@wire
class CountInputTokens(_Told, total=False):
    model: Model
    personality: Annotated[Any, RefusedField("It belongs to OpenAI's own applications.")]


@wire
class CompactResponse(_ModelParameters, _Hints, total=False):
    """The hints about caches and tiers have no effect: the summary is one short request."""

    model: Required[Model]


_NO_BACKGROUND: Final = "A response of this connection is streamed on it: use POST /v1/responses for one in the background."


@wire
class ResponseCreateEvent(TypedDict, total=False):
    """The fields of a ``response.create`` frame beside the request."""

    type: Required[Literal["response.create"]]
    generate: bool
    stream: bool
    background: Annotated[bool, Only(False, _NO_BACKGROUND)]


@wire
class Lane(TypedDict, total=False):
    stream_id: Annotated[str, Field(min_length=1, max_length=limits.WEBSOCKET_STREAM_ID_CHARS_MAX, pattern="^[A-Za-z0-9_.-]+$")]


def _no_references(items: list[Item]) -> list[Item]:
    for index, item in enumerate(items):
        if item["type"] == "item_reference":
            raise problem(lambda param: errors.unsupported_value(param, "item_reference", "Give the item itself."), index, "type")
    return items


_Items = Annotated[
    list[InputItem], Length(limits.CONVERSATION_ITEMS_PER_CALL_MAX), AfterValidator(distinct), AfterValidator(_no_references)
]
_SomeItems = Annotated[
    list[InputItem],
    Length(limits.CONVERSATION_ITEMS_PER_CALL_MAX, minimum=1),
    AfterValidator(distinct),
    AfterValidator(_no_references),
]


@wire
class CreateConversation(TypedDict, total=False):
    items: _Items
    metadata: Metadata


def _empty_for_null(metadata: dict[str, str] | None) -> dict[str, str]:
    """Null takes all metadata away."""
    return {} if metadata is None else metadata


@wire
class UpdateConversation(TypedDict):
    metadata: Annotated[Metadata | None, AfterValidator(_empty_for_null)]


@wire
class CreateConversationItems(TypedDict):
    items: _SomeItems


CREATE: Final = JsonValidator[Fields](CreateResponse)
"""``POST /v1/responses``."""
FORK: Final = JsonValidator[Fields](ForkResponse)
"""``POST /v1/responses/{id}/fork``."""
COUNT: Final = JsonValidator[Fields](CountInputTokens)
"""``POST /v1/responses/input_tokens``."""
COMPACT: Final = JsonValidator[Fields](CompactResponse)
"""``POST /v1/responses/compact``."""
EVENT: Final = JsonValidator[Fields](ResponseCreateEvent)
LANE: Final = JsonValidator[Fields](Lane)
CONVERSATION_CREATE: Final = JsonValidator[Fields](CreateConversation)
CONVERSATION_UPDATE: Final = JsonValidator[Fields](UpdateConversation)
CONVERSATION_ITEMS: Final = JsonValidator[Fields](CreateConversationItems)
