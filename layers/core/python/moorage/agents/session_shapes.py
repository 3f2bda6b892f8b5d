"""Sessions of agents: their bodies and answers, in the words of OpenAI's Agents API (``client.beta.agents.sessions``)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import errors, limits
from moorage.agents.shapes import (
    AgentAnswer,
    AgentServiceTier,
    AgentSettings,
    AgentTools,
)
from moorage.dataclass import dataclass
from moorage.environments.shapes import EnvironmentParam, HostedEnvironment, NoEnvironment
from moorage.wire.answers import Json, Seconds
from moorage.wire.create import BudgetLimits, Metadata, Model
from moorage.wire.parts import InputImage, InputText
from moorage.wire.queries import PageQuery
from moorage.wire.query_strings import FLAG, METADATA, TEXT
from moorage.wire.validation import (
    CallId,
    Either,
    Fields,
    Id,
    JsonValidator,
    Length,
    NonEmpty,
    OneOf,
    Only,
    RefusedField,
    RefusedVariant,
    Text,
    wire,
)

_NO_CACHE: Final = "The lifetime of prompts in a model's cache is set by its provider."
_NO_REVIEW: Final = "Nothing reviews actions by itself in this version: 'require_approval' of a tool asks a person."
_NO_QUESTION: Final = "The browser of a session asks for nothing in this version: a person signs in on its screen."

# --- Input --------------------------------------------------------------------------------------------------------------

_Part = Annotated[Any, OneOf({"input_text": InputText, "input_image": InputImage})]


@wire
class SessionMessage(TypedDict, total=False):
    role: Required[Literal["user"]]
    content: Required[Annotated[list[_Part], Length(limits.INPUT_ITEMS_MAX, minimum=1)]]
    type: Literal["message"]


Messages = Annotated[list[SessionMessage], Length(limits.AGENT_SESSION_MESSAGES_MAX, minimum=1)]


@wire
class MessageEvent(TypedDict):
    type: Literal["agent.session.input.message"]
    input: Messages


@wire
class CancelEvent(TypedDict):
    type: Literal["agent.session.input.cancel"]


@wire
class ToolResultEvent(TypedDict, total=False):
    type: Required[Literal["agent.session.input.tool_result"]]
    turn_id: Required[Id]
    call_id: Required[CallId]
    success: Required[bool]
    output: Annotated[str | list[Any], Either("a string or an array", string=Text, array=list[_Part])]
    error: Text


@wire
class McpToolCallDecision(TypedDict):
    type: Literal["mcp_tool_call"]
    decision: Literal["approve", "deny", "cancel"]


@wire
class McpApprovalEvent(TypedDict):
    type: Literal["agent.session.input.mcp_approval_request_result"]
    request_id: Id
    response: McpToolCallDecision


INPUT_EVENTS: Final[dict[str, Any]] = {
    "agent.session.input.message": MessageEvent,
    "agent.session.input.cancel": CancelEvent,
    "agent.session.input.tool_result": ToolResultEvent,
    "agent.session.input.mcp_approval_request_result": McpApprovalEvent,
    "agent.session.input.computer_use_approval_request_result": RefusedVariant(_NO_QUESTION),
}


@wire
class CreateSessionEvents(TypedDict):
    """``POST /v1/agents/sessions/{session_id}/events``."""

    events: Annotated[list[Annotated[Any, OneOf(INPUT_EVENTS)]], Length(limits.AGENT_SESSION_EVENTS_MAX, minimum=1)]


# --- Sessions -----------------------------------------------------------------------------------------------------------


@wire
class SessionAgent(AgentSettings, total=False):
    """What replaces the fields of a saved agent, or all there is of it."""

    model: Model


@wire
class SessionBudget(BudgetLimits, total=False):
    """An extension: what all responses of a session may use together, before another step begins."""


@wire
class SpendControl(TypedDict, total=False):
    """Another name of a budget in dollars that stops: as in the first versions of the Agents API."""

    limit: Annotated[int, Field(ge=1)]
    """US cents."""


VaultIds = Annotated[list[Id], Length(limits.VAULT_IDS_MAX)]


@wire
class SessionStreamOptions(TypedDict, total=False):
    include_obfuscation: bool


@wire
class CreateSession(TypedDict, total=False):
    """``POST /v1/agents/sessions``."""

    environment: Required[EnvironmentParam]
    agent: SessionAgent
    agent_id: Id
    agent_version: int
    """An extension: an earlier version of the saved agent."""
    input: Annotated[str | list[Any], Either("a string or an array", string=NonEmpty, array=Messages)]
    metadata: Metadata
    stream: bool
    stream_options: SessionStreamOptions
    review: Annotated[Literal["none", "auto_review"], Only("none", _NO_REVIEW)]
    vault_ids: VaultIds
    prompt_cache_options: Annotated[Any, RefusedField(_NO_CACHE)]
    budget: SessionBudget
    spend_control: SpendControl


@wire
class EffortAlone(TypedDict, total=False):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@wire
class ChangedAgent(TypedDict, total=False):
    model: Model
    reasoning: EffortAlone
    service_tier: AgentServiceTier
    tools: AgentTools


@wire
class UpdateSession(TypedDict, total=False):
    """``POST /v1/agents/sessions/{session_id}``: for the turns that begin from now on."""

    agent: ChangedAgent
    metadata: Metadata
    review: Annotated[Literal["none", "auto_review"], Only("none", _NO_REVIEW)]
    prompt_cache_options: Annotated[Any, RefusedField(_NO_CACHE)]
    budget: SessionBudget
    spend_control: SpendControl


@wire
class ForkSession(TypedDict, total=False):
    """``POST /v1/agents/sessions/{session_id}/fork``, an extension."""

    turn_id: Id
    """The last turn that has ended, by default."""


CREATE_SESSION: Final = JsonValidator[Fields](CreateSession)
UPDATE_SESSION: Final = JsonValidator[Fields](UpdateSession)
FORK_SESSION: Final = JsonValidator[Fields](ForkSession)
CREATE_SESSION_EVENTS: Final = JsonValidator[Fields](CreateSessionEvents)

# --- Answers ------------------------------------------------------------------------------------------------------------


class AgentOfSession(AgentAnswer):
    """A copy: what the saved agent is set to later changes nothing here."""

    id: str
    version: int | None
    """An extension; null where the session has an agent of its own."""
    name: str | None


class TurnTokens(TypedDict):
    input_tokens: int
    input_tokens_details: Json
    output_tokens: int
    output_tokens_details: Json
    total_tokens: int


SessionStatus = Literal["idle", "in_progress", "requires_action", "failed"]
TurnStatus = Literal["queued", "in_progress", "waiting", "completed", "failed", "cancelled"]


class SpendShown(TypedDict):
    limit: int | None
    """US cents."""
    consumed: int | None
    """In whole US cents; null in events, and where it is not counted."""


class SessionOrigin(TypedDict):
    session_id: str
    turn_id: str
    files: int | None
    """So many came along in its environment; null without one, and where it was made anew."""


class AgentSession(TypedDict):
    id: str
    object: Literal["agent.session"]
    created_at: Seconds
    last_active_at: Seconds
    status: SessionStatus
    error: str | None
    agent: AgentOfSession
    environment: NoEnvironment | HostedEnvironment
    required_actions: list[Json]
    usage: TurnTokens | None
    metadata: Metadata
    vault_ids: list[str]
    review: Literal["none"]
    budget: Json | None
    """An extension: as it was set; null without limits."""
    budget_used: Json | None
    """An extension: so far, by measure; null in events, and where there was never a budget."""
    spend_control: SpendShown
    forked_from: SessionOrigin | None
    """An extension: the session and the turn that it is a fork of."""


class TurnFailure(TypedDict):
    code: str
    message: str


class Turn(TypedDict):
    """OpenAI's, and the responses that it consists of."""

    id: str
    object: Literal["agent.session.turn"]
    session_id: str
    agent_id: str
    subagent_id: str | None
    created_at: Seconds
    started_at: Seconds | None
    completed_at: Seconds | None
    status: TurnStatus
    error: TurnFailure | None
    usage: TurnTokens | None
    response_ids: list[str]
    """An extension: ``/v1/responses/{id}`` tells of each."""
    cost_usd: float | None
    """An extension: what they have cost, once the turn has ended; null where the price of a model is not known."""


class SubagentOfSession(TypedDict):
    """OpenAI's, and what it has used."""

    id: str
    object: Literal["agent.session.subagent"]
    session_id: str
    parent_agent_id: str
    name: str
    """Its path: ``/root/tides``, as in ``/v1/responses``."""
    instructions: list[Json] | None
    """Null for an agent that an earlier turn has started."""
    status: Literal["active", "closed"]
    opened_at: Seconds
    closed_at: Seconds | None
    usage: TurnTokens | None
    """An extension: of all its turns; null in events."""
    cost_usd: float | None
    """An extension: what that has cost; null in events, and where the price of the model is not known."""


class SessionTrace(TypedDict):
    """Of a turn, whose id it bears."""

    id: str
    object: Literal["agent.session.trace"]
    session_id: str
    created_at: Seconds
    otlp: Json


class SessionArtifact(TypedDict):
    id: str
    object: Literal["agent.session.artifact"]
    session_id: str
    turn_id: str
    environment_id: str
    path: str
    size_bytes: int
    created_at: Seconds


@dataclass(frozen=True, slots=True)
class SessionsPage(PageQuery):
    agent_id: Annotated[str | None, TEXT] = None
    metadata: Annotated[Mapping[str, str], METADATA] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionDelete:
    force: Annotated[bool, FLAG] = False
    """Whether a session goes that is busy."""


@dataclass(frozen=True, slots=True)
class SessionStream:
    include_obfuscation: Annotated[bool, FLAG] = True
    stream: Annotated[bool, FLAG] = True
    after: Annotated[str | None, TEXT] = None
    """The id of an event, or of a turn."""

    def __post_init__(self) -> None:
        if not self.stream:
            raise errors.unsupported_value("stream", "false", "Events of a session come as a stream; its items are a list.")


@dataclass(frozen=True, slots=True)
class ArtifactsPage(PageQuery):
    environment_id: Annotated[str | None, TEXT] = None
