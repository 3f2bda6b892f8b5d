"""Agents: their bodies and answers.

What a model is asked with is OpenAI's own here: a format has no name, a server is a ``transport``. ``settings.py`` says the same in the
words of ``/v1/responses``, whose types check it.
"""

from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.dataclass import dataclass
from moorage.wire.answers import Json, Seconds
from moorage.wire.create import Metadata, Model
from moorage.wire.query_strings import whole_number
from moorage.wire.refusals import wrong_value
from moorage.wire.tools import RequireApproval
from moorage.wire.validation import (
    Fields,
    FreeObject,
    Id,
    JsonValidator,
    Length,
    OneOf,
    Only,
    RefusedField,
    RefusedVariant,
    Text,
    wire,
)

AgentServiceTier = Literal["auto", "default", "flex", "priority", "fast", "ultrafast"]

_NO_STDIO: Final = "Servers are reached over HTTP in this version: name one by 'server_url'."
_NO_REQUIRED: Final = "A server that does not answer is told to the model, and the turn goes on."
_NOT_FROM_INSIDE: Final = "Servers are asked by the service in this version, not from inside an environment."
_NO_SECRETS: Final = "An agent keeps no secrets: a vault of its session gives the token."
_OF_SECRETS: Final = ("auth", "cookie", "credential", "key", "passw", "secret", "token")
"""A part of the names of headers that carry credentials."""


def _shown_headers(headers: dict[str, str]) -> dict[str, str]:
    """Whoever reads an agent sees its headers."""
    for name in headers:
        if any(part in name.lower() for part in _OF_SECRETS):
            raise wrong_value(f"the header '{name}' would show a credential to everybody who reads the agent.")
    return headers


# --- Tools --------------------------------------------------------------------------------------------------------------

_ASYNC_REASON: Final = "A turn waits for the results of its functions in this version: leave it out, or ask '/v1/responses'."

AgentFunction = TypedDict(
    "AgentFunction",
    {
        "type": Required[Literal["function"]],
        "name": Required[str],
        "description": Required[Text],
        "parameters": Required[FreeObject],
        "defer_loading": bool,
        "async": Annotated[bool, Only(False, _ASYNC_REASON)],
    },
    total=False,
)
wire(AgentFunction)


@wire
class AgentToolSearch(TypedDict):
    type: Literal["tool_search"]


@wire
class HttpTransport(TypedDict, total=False):
    type: Required[Literal["http"]]
    server_url: Required[str]
    headers: Annotated[dict[str, str], AfterValidator(_shown_headers)]
    authorization: Annotated[Any, RefusedField(_NO_SECRETS)]


@wire
class AgentMcp(TypedDict, total=False):
    """``require_approval`` is an extension, as in ``/v1/responses``."""

    type: Required[Literal["mcp"]]
    server_label: Required[str]
    transport: Required[Annotated[HttpTransport, OneOf({"http": HttpTransport, "stdio": RefusedVariant(_NO_STDIO)})]]
    allowed_tools: list[str]
    connection_origin: Annotated[Literal["service", "environment"], Only("service", _NOT_FROM_INSIDE)]
    required: Annotated[bool, Only(False, _NO_REQUIRED)]
    require_approval: Any
    credential_id: Id
    """Of a vault of the session; without it the address of the server chooses."""
    request_metadata: Annotated[Any, RefusedField("Metadata of requests to a server is not available in this version.")]


@wire
class SearchLocation(TypedDict, total=False):
    city: str
    country: str
    region: str
    timezone: str


@wire
class AgentWebSearch(TypedDict, total=False):
    type: Required[Literal["web_search"]]
    mode: Literal["disabled", "cached", "live"]
    context_size: Literal["low", "medium", "high"]
    allowed_domains: list[str]
    location: SearchLocation


@wire
class AgentAutomations(TypedDict, total=False):
    """``require_approval`` is an extension, as in ``/v1/responses``."""

    type: Required[Literal["automations"]]
    require_approval: RequireApproval


@wire
class AgentComputerUse(TypedDict, total=False):
    """A browser beside the session's environment."""

    type: Required[Literal["computer_use"]]
    include_screenshots: bool


_TOOLS: Final[dict[str, Any]] = {
    "function": AgentFunction,
    "tool_search": AgentToolSearch,
    "mcp": AgentMcp,
    "web_search": AgentWebSearch,
    "programmatic_tool_calling": RefusedVariant("Agents run no programs in this version: ask '/v1/responses'."),
    "computer_use": AgentComputerUse,
    "automations": AgentAutomations,
}
AgentTools = Annotated[list[Annotated[Any, OneOf(_TOOLS)]], Length(limits.TOOLS_MAX)]

# --- The other settings -------------------------------------------------------------------------------------------------


@wire
class AgentPlainText(TypedDict):
    type: Literal["text"]


@wire
class AgentJsonText(TypedDict):
    """Without the name and the strictness of ``/v1/responses``."""

    type: Literal["json_schema"]
    schema: FreeObject


@wire
class AgentText(TypedDict, total=False):
    format: Annotated[AgentPlainText | AgentJsonText, OneOf({"text": AgentPlainText, "json_schema": AgentJsonText})]
    verbosity: Literal["low", "medium", "high"]


@wire
class AgentReasoning(TypedDict, total=False):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    summary: Literal["concise", "detailed", "auto"]


@wire
class Subagents(TypedDict, total=False):
    """Without them ``max_concurrent_subagents`` has no meaning."""

    enabled: Required[bool]
    max_concurrent_subagents: Annotated[int, Field(ge=1, le=limits.TEAM_ACTIVE_MAX)]


Compaction = TypedDict(
    "Compaction",
    {"async": Annotated[bool, Only(False, "Context is compacted between two steps, while the agent waits.")]},
    total=False,
)
wire(Compaction)


@wire
class Experimental(TypedDict, total=False):
    time_awareness: Annotated[bool, Only(False, "Tell the model the time in your input.")]


class AgentSettings(TypedDict, total=False):
    """What an agent may be set to."""

    name: Annotated[str, Field(max_length=limits.AGENT_NAME_CHARS_MAX)]
    instructions: Text
    tools: AgentTools
    reasoning: AgentReasoning
    text: AgentText
    service_tier: AgentServiceTier
    multi_agent: Subagents
    compaction: Compaction
    experimental: Experimental


@wire
class CreateAgent(AgentSettings, total=False):
    """``POST /v1/agents``."""

    model: Required[Model]
    metadata: Metadata


@wire
class UpdateAgent(AgentSettings, total=False):
    """``POST /v1/agents/{agent_id}``: what is left out stays as it is, and null sets it back."""

    model: Model
    metadata: Metadata


CREATE_AGENT: Final = JsonValidator[Fields](CreateAgent)
UPDATE_AGENT: Final = JsonValidator[Fields](UpdateAgent)

# --- Answers ------------------------------------------------------------------------------------------------------------


class AgentReasoningAnswer(TypedDict):
    effort: str | None
    summary: str | None


class AgentTextAnswer(TypedDict):
    format: Json
    verbosity: Literal["low", "medium", "high"]


class SubagentsAnswer(TypedDict):
    enabled: bool
    max_concurrent_subagents: int | None


CompactionAnswer = TypedDict("CompactionAnswer", {"async": bool})


class ExperimentalAnswer(TypedDict):
    time_awareness: bool


class AgentAnswer(TypedDict):
    """How an agent is set, as answers show it."""

    model: str
    instructions: str | None
    tools: list[Json]
    reasoning: AgentReasoningAnswer
    text: AgentTextAnswer
    service_tier: AgentServiceTier
    multi_agent: SubagentsAnswer
    compaction: CompactionAnswer
    experimental: ExperimentalAnswer


class SavedAgent(AgentAnswer):
    """OpenAI's, and its version."""

    id: str
    object: Literal["agent"]
    created_at: Seconds
    updated_at: Seconds
    version: int
    """An extension: 1, and one more with each change."""
    name: str | None
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class AgentQuery:
    version: Annotated[int | None, whole_number(1, limits.AGENT_VERSIONS_MAX)] = None
    """None for the latest."""
