"""What operators, the command line and the console are answered: types of extensions of ours."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from moorage.wire.answers import Count, Event, Json, Milliseconds, Seconds
from moorage.wire.responses import Status


class TokenCounts(TypedDict):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class WaitingFor(TypedDict):
    kind: Literal["start", "model", "tool", "container", "pause", "approval"]
    since: Milliseconds
    detail: str


class ConversationOfSummary(TypedDict):
    id: str


class ResponseSummary(TypedDict):
    id: str
    object: Literal["response.summary"]
    created_at: Seconds
    ended_at: Seconds | None
    status: Status
    model: str
    background: bool
    metadata: dict[str, str]
    previous_response_id: str | None
    forked_from: str | None
    conversation: ConversationOfSummary | None
    container_id: str | None
    session_id: str | None
    """The session of an agent whose turn it is of."""
    key_id: str | None
    input_preview: str
    output_preview: str | None
    tool_calls: dict[str, Count] | None
    usage: TokenCounts | None
    cost_usd: float | None
    error: Json | None
    incomplete_details: Json | None
    waiting_for: WaitingFor | None


class LoggedEvent(TypedDict):
    id: str
    object: Literal["response.event"]
    at: Milliseconds
    event: Event


class StepAttempts(TypedDict):
    count: Count
    lost: Count
    pauses: Count
    why: str | None


class StepAgent(TypedDict):
    agent_name: str


class ResponseStep(TypedDict):
    id: str
    object: Literal["response.step"]
    step: Count
    type: str
    status: str
    call_id: str | None
    agent: NotRequired[StepAgent]
    started_at: Milliseconds | None
    first_output_at: Milliseconds | None
    ended_at: Milliseconds | None
    queue_ms: Count | None
    cost_usd: float | None
    attempts: StepAttempts
    upstream_request_id: str | None
    usage: TokenCounts | None
    waiting_for: WaitingFor | None


class EstimatedTokens(TypedDict):
    frame: Count
    input: list[Count]


class StepPrompt(TypedDict):
    id: str
    object: Literal["response.prompt"]
    step: Count
    model: str
    instructions: str | None
    tools: list[Json]
    parameters: Json
    input: list[Json]
    estimated_tokens: EstimatedTokens
    usage: TokenCounts | None


class ResponseTrace(TypedDict):
    """OTLP's JSON."""

    resourceSpans: list[Json]


class BudgetShown(TypedDict):
    scope: Literal["key", "tenant", "tree", "session"]
    id: str
    limits: dict[str, float]
    on_limit: Literal["stop", "pause", "finish"]
    used: dict[str, float]
    held: dict[str, float]


class KeyShown(TypedDict):
    id: str
    name: str
    created_at: Seconds
    scope: Literal["read"] | None
    expires_at: Seconds | None


class NetworkShown(TypedDict):
    allowed_domains: list[str]


class StorageShown(TypedDict):
    used_bytes: Count
    limit_bytes: Count
    file_bytes: Count
    container_bytes: Count
    vector_store_bytes: Count


class PriceShown(TypedDict):
    model: str
    price: Json | None


class Me(TypedDict):
    object: Literal["me"]
    tenant: str
    key: KeyShown
    limits: dict[str, Count]
    network: NetworkShown
    storage: StorageShown
    budgets: list[BudgetShown]
    prices: list[PriceShown]
    version: str


class EmbeddingsShown(TypedDict):
    requests: Count
    tokens: Count
    unpriced_requests: Count


class SandboxesShown(TypedDict):
    """What no response has paid for."""

    seconds: Count
    cost_usd: float


class UsageGroup(TypedDict):
    """Tokens and dollars are not of tools. ``parts`` are of each model, key or tool, if ``split_by`` asks."""

    id: str
    object: Literal["usage.group"]
    group_by: Literal["day", "model", "key", "tool"]
    responses: Count
    by_status: dict[str, Count]
    tool_calls: Count
    input_tokens: NotRequired[Count]
    output_tokens: NotRequired[Count]
    cached_tokens: NotRequired[Count]
    reasoning_tokens: NotRequired[Count]
    cost_usd: NotRequired[float]
    unpriced_responses: NotRequired[Count]
    embeddings: NotRequired[EmbeddingsShown]
    sandboxes: NotRequired[SandboxesShown]
    parts: NotRequired[list["UsageGroup"]]


class UsageList(TypedDict):
    object: Literal["list"]
    data: list[UsageGroup]
    first_id: str | None
    last_id: str | None
    has_more: bool
    budgets: list[BudgetShown]


class TreeEntry(TypedDict):
    """``files`` of a folder, the last three of a file."""

    id: str
    object: Literal["container.tree.entry"]
    type: Literal["folder", "file"]
    path: str
    bytes: Count
    files: NotRequired[Count]
    created_at: NotRequired[Seconds]
    source: NotRequired[str]
    file_id: NotRequired[str | None]


SandboxState = Literal["starting", "running", "stopping", "ended"]


class SandboxRun(TypedDict):
    id: str
    object: Literal["container.sandbox"]
    status: SandboxState
    ordered_at: Milliseconds | None
    started_at: Milliseconds | None
    ended_at: Milliseconds | None
    end: Literal["idle", "lost", "failed", "limit"] | None
    refusal: str | None


class ContainerProcess(TypedDict):
    id: str
    object: Literal["container.process"]
    pid: Count
    parent_pid: Count
    command: str
    started_at: Milliseconds
    cpu_seconds: float
    memory_bytes: Count
    ports: list[Count] | None


class ContainerSkillEntry(TypedDict):
    id: str
    object: Literal["container.skill"]
    name: str
    description: str
    path: str
    skill_id: str | None
    version: str | None


class ChangedFile(TypedDict):
    path: str
    what: Literal["added", "changed", "removed"]


class ContainerVersion(TypedDict):
    id: str
    object: Literal["container.version"]
    at: Milliseconds
    files: Count
    bytes: Count
    change_count: Count
    changes: list[ChangedFile]


class ResponseApproval(TypedDict):
    id: str
    object: Literal["response.approval"]
    response_id: str
    created_at: Seconds
    status: Literal["waiting", "approved", "denied", "withdrawn"]
    step: Count
    call: Json
    expires_at: Seconds | None
    on_timeout: Literal["deny", "cancel"] | None
    decided_at: Seconds | None
    decided_by: str | None
    reason: str | None


class ApprovalLinkAnswer(TypedDict):
    object: Literal["response.approval.link"]
    approval_id: str
    path: str
    expires_at: Seconds


class ConsoleSession(TypedDict):
    object: Literal["console.session"]
    key: str


class ConsoleSessionEnded(TypedDict):
    object: Literal["console.session.ended"]
    ended: bool
    logout_url: str | None
