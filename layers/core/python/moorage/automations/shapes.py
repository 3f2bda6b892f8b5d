"""Automations: their bodies and answers, in the words of OpenAI's Agents API (``client.beta.agents.automations``)."""

from typing import Annotated, Final, Literal, NotRequired, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.agents.session_shapes import Messages, SessionAgent, VaultIds
from moorage.agents.shapes import (
    AgentAnswer,
)
from moorage.dataclass import dataclass
from moorage.environments.shapes import (
    ContainerSize,
    EnvironmentParam,
    InlineSkillAnswer,
    NetworkAnswer,
    NoEnvironment,
    PluginAnswer,
)
from moorage.wire.answers import Json, Seconds
from moorage.wire.create import Metadata
from moorage.wire.queries import PageQuery
from moorage.wire.query_strings import TEXT
from moorage.wire.refusals import wrong_value
from moorage.wire.validation import Fields, Id, JsonValidator, NonEmpty, OneOf, wire, wire_with

AutomationName = Annotated[str, Field(min_length=1, max_length=limits.AUTOMATION_NAME_CHARS_MAX)]
Expression = Annotated[str, Field(min_length=1, max_length=limits.AUTOMATION_EXPRESSION_CHARS_MAX)]
TimeZone = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Moment = Annotated[int, Field(ge=0, le=2**40, description="Unix seconds")]


def _one_agent(target: Fields) -> Fields:
    if ("agent" in target) == ("agent_id" in target):
        raise wrong_value("give exactly one of 'agent' and 'agent_id'.", "agent_id")
    return target


@wire_with(_one_agent)
class NewSessionTarget(TypedDict, total=False):
    """A session that is made for each invocation."""

    type: Required[Literal["new_session"]]
    environment: Required[EnvironmentParam]
    input: Required[Messages]
    agent: SessionAgent
    agent_id: Id
    metadata: Metadata
    vault_ids: VaultIds


@wire
class ExistingSessionTarget(TypedDict):
    type: Literal["existing_session"]
    session_id: Id
    instructions: NonEmpty


AutomationTarget = Annotated[
    NewSessionTarget | ExistingSessionTarget, OneOf({"new_session": NewSessionTarget, "existing_session": ExistingSessionTarget})
]


@wire
class PeriodicAutomation(TypedDict, total=False):
    type: Required[Literal["periodic"]]
    name: Required[AutomationName]
    expression: Required[Expression]
    timezone: Required[TimeZone]
    target: Required[AutomationTarget]
    metadata: Metadata


@wire
class OneTimeAutomation(TypedDict, total=False):
    type: Required[Literal["once"]]
    name: Required[AutomationName]
    run_at: Required[Moment]
    target: Required[AutomationTarget]
    metadata: Metadata


@wire
class UpdateAutomation(TypedDict, total=False):
    """``POST /v1/agents/automations/{automation_id}``."""

    name: AutomationName
    expression: Expression
    timezone: TimeZone
    run_at: Moment
    target: AutomationTarget
    metadata: Metadata


CREATE_AUTOMATION: Final = JsonValidator[Fields](
    Annotated[PeriodicAutomation | OneTimeAutomation, OneOf({"periodic": PeriodicAutomation, "once": OneTimeAutomation})]
)
UPDATE_AUTOMATION: Final = JsonValidator[Fields](UpdateAutomation)

# --- Answers ------------------------------------------------------------------------------------------------------------


class AgentOfAutomation(AgentAnswer):
    """What its sessions begin with."""


class FileByIdOfAutomation(TypedDict):
    type: Literal["file_id"]
    file_id: str
    path: str


class InlineFileOfAutomation(TypedDict):
    type: Literal["inline"]
    path: str
    size_bytes: int


class SkillReferenceOfAutomation(TypedDict):
    type: Literal["skill_reference"]
    skill_id: str
    version: str | None


class EnvironmentOfAutomation(TypedDict):
    """What is asked for; null if the default of a new environment is."""

    type: Literal["openai_hosted"]
    environment_id: str | None
    environment_template_id: str | None
    container_size: ContainerSize | None
    files: list[FileByIdOfAutomation | InlineFileOfAutomation] | None
    skills: list[SkillReferenceOfAutomation | InlineSkillAnswer] | None
    network: NetworkAnswer | None
    capability_directories: list[str] | None
    desktop: Json | None
    packages: Json | None
    plugins: list[PluginAnswer] | None


class NewSessionAnswer(TypedDict):
    type: Literal["new_session"]
    environment: NoEnvironment | EnvironmentOfAutomation
    input: list[Json]
    agent: AgentOfAutomation | None
    agent_id: str | None
    metadata: Metadata
    vault_ids: list[str]


class ExistingSessionAnswer(TypedDict):
    type: Literal["existing_session"]
    session_id: str
    instructions: str


class MadeByDeveloper(TypedDict):
    type: Literal["developer"]


class MadeByAgent(TypedDict):
    type: Literal["agent"]
    session_id: str
    tool_call_id: str


class Automation(TypedDict):
    """``periodic`` has an expression and a time zone, ``once`` has ``run_at``."""

    id: str
    object: Literal["agent.automation"]
    type: Literal["periodic", "once"]
    created_at: Seconds
    created_by: MadeByDeveloper | MadeByAgent
    name: str
    expression: NotRequired[str]
    timezone: NotRequired[str]
    run_at: NotRequired[Seconds]
    status: Literal["active", "paused", "completed"]
    """``completed``: the schedule of ``once`` is over."""
    pause_reason: Literal["target_session_failed"] | None
    target: NewSessionAnswer | ExistingSessionAnswer
    metadata: Metadata


class ManualSource(TypedDict):
    type: Literal["manual"]


class ScheduledSource(TypedDict):
    type: Literal["automation"]
    automation: Automation
    """As it was then."""


class InvocationError(TypedDict):
    code: str
    message: str


class AutomationInvocation(TypedDict):
    id: str
    object: Literal["agent.automation.invocation"]
    automation_id: str
    created_at: Seconds
    scheduled_at: Seconds | None
    status: Literal["queued", "completed", "failed", "skipped"]
    """``completed`` is delivered: the agent may still be at work."""
    session_id: str | None
    error: InvocationError | None
    skip_reason: Literal["pending_delivery"] | None
    source: ManualSource | ScheduledSource


@dataclass(frozen=True, slots=True)
class AutomationsPage(PageQuery):
    session_id: Annotated[str | None, TEXT] = None
