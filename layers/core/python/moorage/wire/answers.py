"""The objects that this API answers with, as types. Every field is always there but for those marked otherwise, and a new version may
bring more. Items and events are described by what all of them have."""

from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from moorage.wire.create import Metadata
from moorage.wire.resources import MemoryLimit

Json = dict[str, Any]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(description="Unix seconds")]
Milliseconds = Annotated[int, Field(description="Unix milliseconds")]
One = TypeVar("One")
Kind = TypeVar("Kind", bound=str)


class ListOf(TypedDict, Generic[One]):
    object: Literal["list"]
    data: list[One]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(TypedDict, Generic[Kind]):
    id: str
    object: Kind
    deleted: Literal[True]


class Item(TypedDict):
    type: str
    id: str


class Event(TypedDict):
    type: str
    sequence_number: int


class InputTokensDetails(TypedDict):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(TypedDict):
    reasoning_tokens: int


class SandboxCost(TypedDict):
    """Of the time from a response's first call in its sandbox to its end, if that has a price."""

    seconds: int
    usd: float
    source: str


class Cost(TypedDict):
    """An addition to the API, sent if ``include`` asks for it."""

    usd: float
    """With what its sandbox has cost."""
    source: str
    sandbox: NotRequired[SandboxCost]


class AgentUsage(TypedDict):
    agent_name: str
    cost: NotRequired[Cost]
    """Without the sandbox's."""
    input_tokens: int
    output_tokens: int
    total_tokens: int


class Usage(TypedDict):
    agents: NotRequired[list[AgentUsage]]
    """An addition to the API: what each agent of a team has used."""
    cost: NotRequired[Cost]
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ImageInputTokens(TypedDict):
    image_tokens: int
    text_tokens: int


class ImageOutputTokens(TypedDict):
    image_tokens: int
    text_tokens: int


class ImageUsage(TypedDict):
    """Of the image calls whose server told its tokens."""

    input_tokens: int
    input_tokens_details: ImageInputTokens
    output_tokens: int
    output_tokens_details: NotRequired[ImageOutputTokens]
    """Left out where a server did not tell them."""
    total_tokens: int


class WebSearchUsage(TypedDict):
    num_requests: int
    """Searches that the engine has answered."""


class ToolUsage(TypedDict):
    image_gen: ImageUsage
    web_search: WebSearchUsage


class ResponseError(TypedDict):
    code: str
    message: str
    param: str | None
    type: str


class IncompleteDetails(TypedDict):
    reason: str


class EchoedReasoning(TypedDict):
    effort: str | None
    summary: str | None
    context: NotRequired[str]
    mode: NotRequired[str]


class EchoedText(TypedDict):
    format: Json
    verbosity: str | None


class ConversationOfResponse(TypedDict):
    id: str


class ContainerOfFork(TypedDict):
    """Where the calls of a fork run."""

    mode: Literal["copy", "share", "none"]
    container_id: str
    files: int | None
    notice: str | None


class ForkedFrom(TypedDict):
    """An addition to the API, in responses that are forks."""

    response_id: str
    at: int
    container: ContainerOfFork | None


class FileThen(TypedDict):
    id: str
    path: str
    bytes: int
    source: Literal["user", "assistant"]
    sha256: str


class AsOf(TypedDict):
    """An addition to the API, if a response is asked for as it was."""

    sequence_number: int
    said_at: int
    steps: int
    usage: Usage
    cost_usd: float | None
    boundary: int
    container_id: str | None
    files_at: int | None
    files: list[FileThen] | None


class EchoedCacheOptions(TypedDict):
    mode: str
    ttl: str


class Response(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    completed_at: int | None
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    output: list[Item]
    usage: Usage | None
    tool_usage: NotRequired[ToolUsage]
    """Once it has ended."""
    background: bool
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: Metadata
    model: str
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    reasoning: EchoedReasoning
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: EchoedText
    tool_choice: str | Json
    tools: list[Json]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    user: str | None
    conversation: NotRequired[ConversationOfResponse]
    forked_from: NotRequired[ForkedFrom]
    session_id: NotRequired[str]
    """Of the agent's session whose turn it is of, where it is retrieved."""
    as_of: NotRequired[AsOf]
    prompt_cache_options: NotRequired[EchoedCacheOptions]


class CompactedResponse(TypedDict):
    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[Json]
    usage: Usage


class InputTokens(TypedDict):
    object: Literal["response.input_tokens"]
    input_tokens: int


class Embedding(TypedDict):
    """A string is base64 of float32, with the least significant byte first."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class ErrorDetails(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(TypedDict):
    error: ErrorDetails


class Conversation(TypedDict):
    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: Metadata


class Model(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[Model]


class File(TypedDict):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    status_details: str | None
    expires_at: int | None


class Upload(TypedDict):
    id: str
    object: Literal["upload"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    expires_at: int
    file: File | None


class UploadPart(TypedDict):
    id: str
    object: Literal["upload.part"]
    created_at: int
    upload_id: str


class IdleTimeOfContainer(TypedDict):
    anchor: Literal["last_active_at"]
    minutes: int


class PolicyShown(TypedDict):
    type: str
    allowed_domains: NotRequired[list[str]]
    require_approval: NotRequired[dict[str, list[str]]]


class Container(TypedDict):
    id: str
    object: Literal["container"]
    created_at: int
    status: Literal["running", "expired"]
    expires_after: IdleTimeOfContainer
    expires_at: Seconds
    last_active_at: int
    memory_limit: MemoryLimit
    network_policy: PolicyShown
    name: str


class ContainerFile(TypedDict):
    id: str
    object: Literal["container.file"]
    bytes: int
    container_id: str
    created_at: int
    path: str
    source: Literal["user", "assistant"]


class Skill(TypedDict):
    id: str
    object: Literal["skill"]
    name: str
    description: str
    created_at: int
    default_version: str
    latest_version: str


class SkillVersion(TypedDict):
    id: str
    object: Literal["skill.version"]
    skill_id: str
    version: str
    name: str
    description: str
    created_at: int


class SkillVersionDeleted(TypedDict):
    id: str
    object: Literal["skill.version.deleted"]
    deleted: Literal[True]
    version: str


class EgressEntry(TypedDict):
    id: str
    object: Literal["container.egress"]
    created_at: int
    container_id: str
    decision: str
    reason: str
    message: str | None
    host: str | None
    port: int | None
    method: str | None
    path: str | None
    address: str | None
    secrets: list[str]
    bytes_sent: Count
    bytes_received: Count
    status: int | None
    error: str | None
    count: Count
