"""The routes by which operators, the command line and the console see what runs: extensions of ours, as the OpenAPI document tells of
them."""

from typing import Final

from moorage import limits
from moorage.wire.queries import STATUSES, USAGE_GROUPS, USAGE_SPLITS
from moorage.wire.route import AFTER, BINARY, BOOLEAN, EVENTS, JSON, PAGE, STRING, Route, envelope, limit, nullable, record, ref
from moorage.wire.schema import JsonSchema

_COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
_TIME: Final[JsonSchema] = {"type": "integer", "description": "Unix seconds"}
_MILLISECONDS: Final[JsonSchema] = {"type": "integer", "description": "Unix milliseconds"}
_TOKENS: Final = record(input_tokens=_COUNT, output_tokens=_COUNT, total_tokens=_COUNT)
_OLDEST_FIRST: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "asc"})

_WAIT: Final = record(
    kind={"type": "string", "enum": ["start", "model", "tool", "container", "pause", "approval"]}, since=_MILLISECONDS, detail=STRING
)

_SUMMARY: Final = record(
    id=STRING,
    object={"const": "response.summary"},
    created_at=_TIME,
    ended_at=nullable(_TIME),
    status={"type": "string", "enum": list(STATUSES)},
    model=STRING,
    background=BOOLEAN,
    metadata={"type": "object", "additionalProperties": STRING},
    previous_response_id=nullable(STRING),
    forked_from=nullable(STRING),
    conversation=nullable(record(id=STRING)),
    container_id=nullable(STRING),
    key_id=nullable(STRING),
    input_preview=STRING,
    tool_calls=nullable({"type": "object", "additionalProperties": _COUNT}),
    usage=nullable(_TOKENS),
    cost_usd=nullable({"type": "number"}),
    error=nullable({"type": "object"}),
    incomplete_details=nullable({"type": "object"}),
    waiting_for=nullable(_WAIT),
)

_LOGGED: Final = record(id=STRING, object={"const": "response.event"}, at=_MILLISECONDS, event=ref("Event"))

_STEP: Final = record(
    id=STRING,
    object={"const": "response.step"},
    step=_COUNT,
    type=STRING,
    status=STRING,
    call_id=nullable(STRING),
    started_at=nullable(_MILLISECONDS),
    first_output_at=nullable(_MILLISECONDS),
    ended_at=nullable(_MILLISECONDS),
    queue_ms=nullable(_COUNT),
    cost_usd=nullable({"type": "number"}),
    attempts=record(count=_COUNT, lost=_COUNT, pauses=_COUNT, why=nullable(STRING)),
    upstream_request_id=nullable(STRING),
    usage=nullable(_TOKENS),
    waiting_for=nullable(_WAIT),
)

_SENT: Final = record(
    id=STRING,
    object={"const": "response.prompt"},
    step=_COUNT,
    model=STRING,
    instructions=nullable(STRING),
    tools={"type": "array", "items": {"type": "object"}},
    parameters={"type": "object"},
    input={"type": "array", "items": {"type": "object"}},
    estimated_tokens=record(frame=_COUNT, input={"type": "array", "items": _COUNT}),
    usage=nullable(_TOKENS),
)

_MEASURES: Final[JsonSchema] = {"type": "object", "additionalProperties": {"type": "number"}}
_BUDGETS: Final[JsonSchema] = {
    "type": "array",
    "items": record(
        scope={"type": "string", "enum": ["key", "tenant"]},
        id=STRING,
        limits=_MEASURES,
        on_limit={"type": "string", "enum": ["stop", "pause", "finish"]},
        used=_MEASURES,
        held=_MEASURES,
    ),
}

_ME: Final = record(
    object={"const": "me"},
    tenant=STRING,
    key=record(
        id=STRING,
        name=STRING,
        created_at=_TIME,
        scope=nullable({"type": "string", "enum": ["read"]}),
        expires_at=nullable(_TIME),
    ),
    limits={"type": "object", "additionalProperties": _COUNT},
    network=record(allowed_domains={"type": "array", "items": STRING}),
    storage=record(
        used_bytes=_COUNT,
        limit_bytes=_COUNT,
        file_bytes=_COUNT,
        container_bytes=_COUNT,
        vector_store_bytes=_COUNT,
    ),
    budgets=_BUDGETS,
    prices={"type": "array", "items": record(model=STRING, price=nullable({"type": "object"}))},
    version=STRING,
)

_USAGE: Final = record(
    id=STRING,
    object={"const": "usage.group"},
    group_by={"type": "string", "enum": list(USAGE_GROUPS)},
    responses=_COUNT,
    by_status={"type": "object", "additionalProperties": _COUNT},
    tool_calls=_COUNT,
    embeddings={"type": "object", "additionalProperties": _COUNT},
    parts={"type": "array", "items": {"type": "object"}, "description": "Of each model, key or tool, where `split_by` asks"},
)

_TREE: Final = record(
    id=STRING,
    object={"const": "container.tree.entry"},
    type={"type": "string", "enum": ["folder", "file"]},
    path=STRING,
    bytes=_COUNT,
)

_SANDBOX: Final = record(
    id=STRING,
    object={"const": "container.sandbox"},
    status={"type": "string", "enum": ["starting", "running", "stopping", "ended"]},
    ordered_at=nullable(_MILLISECONDS),
    started_at=nullable(_MILLISECONDS),
    ended_at=nullable(_MILLISECONDS),
    end=nullable({"type": "string", "enum": ["idle", "lost", "failed"]}),
    refusal=nullable(STRING),
)

_PROCESS: Final = record(
    id=STRING,
    object={"const": "container.process"},
    pid=_COUNT,
    parent_pid=_COUNT,
    command=STRING,
    started_at=_MILLISECONDS,
    cpu_seconds={"type": "number"},
    memory_bytes=_COUNT,
    ports=nullable({"type": "array", "items": _COUNT}),
)

_SKILL: Final = record(
    id=STRING,
    object={"const": "container.skill"},
    name=STRING,
    description=STRING,
    path=STRING,
    skill_id=nullable(STRING),
    version=nullable(STRING),
)

_VERSION: Final = record(
    id=STRING,
    object={"const": "container.version"},
    at=_MILLISECONDS,
    files=_COUNT,
    bytes=_COUNT,
    change_count=_COUNT,
    changes={
        "type": "array",
        "items": record(path=STRING, what={"type": "string", "enum": ["added", "changed", "removed"]}),
    },
)

_APPROVAL: Final = record(
    id=STRING,
    object={"const": "response.approval"},
    response_id=STRING,
    created_at=_TIME,
    status={"type": "string", "enum": ["waiting", "approved", "denied", "withdrawn"]},
    step=_COUNT,
    call={"type": "object"},
    expires_at=nullable(_TIME),
    on_timeout=nullable({"type": "string", "enum": ["deny", "cancel"]}),
    decided_at=nullable(_TIME),
    decided_by=nullable(STRING),
    reason=nullable(STRING),
)

OPERATOR_ROUTES: Final = (
    Route(
        "get",
        "/v1/approvals",
        "listApprovals",
        "The calls that wait for a person's word, newest first",
        {JSON: envelope(_APPROVAL)},
        query=PAGE,
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/approvals",
        "listResponseApprovals",
        "The calls of a response that needed a person's word, oldest first",
        {JSON: envelope(_APPROVAL)},
        query=(limit(), _OLDEST_FIRST, AFTER),
    ),
    Route(
        "post",
        "/v1/responses/{response_id}/approvals/{approval_id}",
        "decideApproval",
        "Allow a call, or deny it; the response goes on",
        {JSON: _APPROVAL},
        {JSON: ref("Verdict")},
    ),
    Route(
        "post",
        "/v1/responses/{response_id}/approvals/{approval_id}/link",
        "linkApproval",
        "A link by which somebody without a key decides, until it expires",
        {JSON: record(object={"const": "response.approval.link"}, approval_id=STRING, path=STRING, expires_at=_TIME)},
        {JSON: ref("ApprovalLink")},
    ),
    Route("post", "/v1/responses/{response_id}/pause", "pauseResponse", "Stop before the next step", {JSON: ref("Response")}),
    Route(
        "post",
        "/v1/responses/{response_id}/budget",
        "raiseBudget",
        "Another budget; what stood still for want of it goes on",
        {JSON: ref("Response")},
        {JSON: ref("Budget")},
    ),
    Route(
        "post",
        "/v1/responses/{response_id}/fork",
        "forkResponse",
        "A new response from an event of an old one, with the files of its container as they were then",
        {JSON: ref("Response"), EVENTS: ref("Event")},
        {JSON: ref("ForkResponse")},
        also=(502, 503),
    ),
    Route("post", "/v1/responses/{response_id}/resume", "resumeResponse", "Go on with a paused response", {JSON: ref("Response")}),
    Route(
        "get",
        "/v1/responses",
        "listResponses",
        "The responses, newest first; with an upgrade a WebSocket, and 426 where none can pass",
        {JSON: envelope(_SUMMARY)},
        query=(
            *PAGE,
            ("status", STRING),
            ("model", STRING),
            ("conversation", STRING),
            ("container", STRING),
            ("has_container", {"type": "boolean"}),
            ("key", STRING),
            ("created_after", _TIME),
            ("created_before", _TIME),
            ("metadata[team]", STRING),
        ),
        also=(101, 426),
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/events",
        "listResponseEvents",
        "The log of a response, with the times of its events, oldest first",
        {JSON: envelope(_LOGGED)},
        query=(limit(limits.EVENTS_PAGE_MAX), _OLDEST_FIRST, ("after", _COUNT), ("types", STRING)),
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/steps",
        "listResponseSteps",
        "The loop of a response, unrolled, and what it waits for",
        {JSON: envelope(_STEP)},
        query=(limit(), _OLDEST_FIRST, AFTER),
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/steps/{step_id}/prompt",
        "retrieveResponsePrompt",
        "What a model step was sent",
        {JSON: _SENT},
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/trace",
        "retrieveResponseTrace",
        "The trace of a response that has ended, as OTLP's JSON",
        {JSON: record(resourceSpans={"type": "array", "items": {"type": "object"}})},
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/tree",
        "listContainerTree",
        "The saved files of a container as folders",
        {JSON: envelope(_TREE)},
        query=(("path", STRING), ("depth", _COUNT), ("at", _COUNT)),
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/sandboxes",
        "listContainerSandboxes",
        "The sandboxes that a container has had, with their times",
        {JSON: envelope(_SANDBOX)},
        query=PAGE,
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/versions",
        "listContainerVersions",
        "How the files of a container have changed",
        {JSON: envelope(_VERSION)},
        query=PAGE,
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/skills",
        "listContainerSkills",
        "The skills that a container was given, by their folders",
        {JSON: envelope(_SKILL)},
        query=PAGE,
    ),
    Route(
        "get",
        "/v1/archives/{container_id}",
        "downloadContainerArchive",
        "The files of a container, as they are or were, as a zip",
        {BINARY: {}},
        query=(("at", _COUNT),),
    ),
    Route(
        "get",
        "/v1/processes/{container_id}",
        "listContainerProcesses",
        "What runs in the sandbox of a container, and on which ports it listens",
        {JSON: envelope(_PROCESS)},
        also=(503,),
    ),
    Route(
        "get",
        "/v1/usage",
        "usage",
        "What was used, added up by day, model, key or tool",
        {JSON: {**envelope(_USAGE), "properties": {**envelope(_USAGE)["properties"], "budgets": _BUDGETS}}},
        query=(
            ("group_by", {"type": "string", "enum": list(USAGE_GROUPS), "default": "day"}),
            ("split_by", {"type": "string", "enum": list(USAGE_SPLITS)}),
            ("from", STRING),
            ("to", STRING),
        ),
    ),
    Route("get", "/v1/me", "me", "What the key of this request stands for", {JSON: _ME}),
    Route(
        "post",
        "/v1/console/session",
        "exchangeConsoleCode",
        "A code of `moorage console` for the key that it stands for",
        {JSON: record(object={"const": "console.session"}, key=STRING)},
        also=(403,),
    ),
)
