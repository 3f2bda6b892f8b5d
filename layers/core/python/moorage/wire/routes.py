"""The routes of this API, as the OpenAPI document tells of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from moorage import limits
from moorage.wire import resources
from moorage.wire.queries import STATUSES, USAGE_GROUPS
from moorage.wire.schema import COMPONENTS, JsonSchema
from moorage.wire.types import INCLUDABLE

Method = Literal["get", "post", "delete"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
BINARY: Final = "application/octet-stream"
FORM: Final = "multipart/form-data"


def ref(name: str) -> JsonSchema:
    return {"$ref": COMPONENTS + name}


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: what it takes and what it answers when all goes well."""

    method: Method
    path: str
    operation_id: str
    summary: str
    answers: Mapping[str, JsonSchema]
    """Schema by media type; none where success is not an HTTP answer."""
    body: Mapping[str, JsonSchema] = field(default_factory=dict)
    """Schema by media type; none for a request without a body."""
    query: tuple[tuple[str, JsonSchema], ...] = ()
    also: tuple[int, ...] = ()
    """Statuses beside 200 and those that every route of its kind has."""

    def to_json(self) -> JsonSchema:
        operation: JsonSchema = {
            "operationId": self.operation_id,
            "summary": self.summary,
            "tags": [self.path.split("/")[2]],
            "parameters": [*self._path_parameters(), *self._query_parameters()],
            "responses": {str(status): self._answer(status) for status in self._statuses()},
        }
        if self.body:
            content = {media_type: {"schema": schema} for media_type, schema in self.body.items()}
            operation["requestBody"] = {"required": True, "content": content}
        return operation

    def _names(self) -> list[str]:
        return [part.strip("{}") for part in self.path.split("/") if part.startswith("{")]

    def _path_parameters(self) -> list[JsonSchema]:
        return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in self._names()]

    def _query_parameters(self) -> list[JsonSchema]:
        return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in self.query]

    def _statuses(self) -> list[int]:
        statuses = {400, 401, 429, 500, *self.also}
        if self.method == "post":
            statuses.add(409)  # Of idempotency keys.
        if self.answers:
            statuses.add(200)
        if self._names():
            statuses.add(404)
        if self.body:
            statuses |= {413, 415}
        return sorted(statuses)

    def _answer(self, status: int) -> JsonSchema:
        if status in (200, 206):
            content = {media_type: {"schema": schema} for media_type, schema in self.answers.items()}
            return {"description": "OK", "content": content}
        if status == 101:
            return {"description": "A WebSocket: frames are `response.create` requests and the events of their responses."}
        if status == 302:
            return {"description": "The content lies behind this address.", "headers": {"location": {"schema": {"type": "string"}}}}
        return {"$ref": "#/components/responses/Error"}


# --- Pieces ------------------------------------------------------------------------------------------------------------

_STRING: Final[JsonSchema] = {"type": "string"}
_BOOLEAN: Final[JsonSchema] = {"type": "boolean"}


def _nullable(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, {"type": "null"}]}


def _record(**properties: JsonSchema) -> JsonSchema:
    """An answer: every field is always there, and more may come with a new version."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(schema: JsonSchema) -> JsonSchema:
    return _record(
        object={"const": "list"},
        data={"type": "array", "items": schema},
        first_id=_nullable(_STRING),
        last_id=_nullable(_STRING),
        has_more=_BOOLEAN,
    )


def _list_of(name: str) -> JsonSchema:
    return _list(ref(name))


def _deleted(kind: str) -> JsonSchema:
    return _record(id=_STRING, object={"const": kind}, deleted={"const": True})


_ORDER: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"})
_AFTER: Final = ("after", _STRING)
_INCLUDE: Final = ("include[]", {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}})


def _limit(maximum: int = limits.PAGE_ITEMS_MAX, default: int = limits.PAGE_ITEMS_DEFAULT) -> tuple[str, JsonSchema]:
    return ("limit", {"type": "integer", "minimum": 1, "maximum": maximum, "default": default})


_PAGE: Final = (_limit(), _ORDER, _AFTER)


# --- What operators look at ------------------------------------------------------------------------------------------------

_COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
_TIME: Final[JsonSchema] = {"type": "integer", "description": "Unix seconds"}
_MILLISECONDS: Final[JsonSchema] = {"type": "integer", "description": "Unix milliseconds"}
_TOKENS: Final = _record(input_tokens=_COUNT, output_tokens=_COUNT, total_tokens=_COUNT)
_OLDEST_FIRST: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "asc"})

_WAIT: Final = _record(
    kind={"type": "string", "enum": ["start", "model", "tool", "container", "pause"]}, since=_MILLISECONDS, detail=_STRING
)

_SUMMARY: Final = _record(
    id=_STRING,
    object={"const": "response.summary"},
    created_at=_TIME,
    ended_at=_nullable(_TIME),
    status={"type": "string", "enum": list(STATUSES)},
    model=_STRING,
    background=_BOOLEAN,
    metadata={"type": "object", "additionalProperties": _STRING},
    previous_response_id=_nullable(_STRING),
    conversation=_nullable(_record(id=_STRING)),
    container_id=_nullable(_STRING),
    key_id=_nullable(_STRING),
    input_preview=_STRING,
    tool_calls=_nullable({"type": "object", "additionalProperties": _COUNT}),
    usage=_nullable(_TOKENS),
    error=_nullable({"type": "object"}),
    incomplete_details=_nullable({"type": "object"}),
    waiting_for=_nullable(_WAIT),
)

_LOGGED: Final = _record(id=_STRING, object={"const": "response.event"}, at=_MILLISECONDS, event=ref("Event"))

_STEP: Final = _record(
    id=_STRING,
    object={"const": "response.step"},
    step=_COUNT,
    type=_STRING,
    status=_STRING,
    call_id=_nullable(_STRING),
    started_at=_nullable(_MILLISECONDS),
    first_output_at=_nullable(_MILLISECONDS),
    ended_at=_nullable(_MILLISECONDS),
    queue_ms=_nullable(_COUNT),
    attempts=_record(count=_COUNT, lost=_COUNT, pauses=_COUNT, why=_nullable(_STRING)),
    usage=_nullable(_TOKENS),
    waiting_for=_nullable(_WAIT),
)

_ME: Final = _record(
    object={"const": "me"},
    tenant=_STRING,
    key=_record(id=_STRING, name=_STRING, created_at=_TIME),
    limits={"type": "object", "additionalProperties": _COUNT},
    version=_STRING,
)

_USAGE: Final = _record(
    id=_STRING,
    object={"const": "usage.group"},
    group_by={"type": "string", "enum": list(USAGE_GROUPS)},
    responses=_COUNT,
    by_status={"type": "object", "additionalProperties": _COUNT},
    tool_calls=_COUNT,
)

_TREE: Final = _record(
    id=_STRING,
    object={"const": "container.tree.entry"},
    type={"type": "string", "enum": ["folder", "file"]},
    path=_STRING,
    bytes=_COUNT,
)


# --- Routes ------------------------------------------------------------------------------------------------------------

_UPLOADED: Final[JsonSchema] = {"type": "string", "contentMediaType": BINARY}

_FILE_FORM: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "file": _UPLOADED,
        "purpose": {"type": "string", "enum": list(resources.PURPOSES)},
        "expires_after[anchor]": {"const": "created_at"},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": limits.FILE_EXPIRES_SECONDS_MIN,
            "maximum": limits.FILE_EXPIRES_SECONDS_MAX,
        },
    },
    "required": ["file", "purpose"],
    "additionalProperties": False,
}


def _form(name: str) -> JsonSchema:
    return {"type": "object", "properties": {name: _UPLOADED}, "required": [name], "additionalProperties": False}


_SKILL_FORM: JsonSchema = {
    "type": "object",
    "properties": {
        "files": {"anyOf": [_UPLOADED, {"type": "array", "items": _UPLOADED, "maxItems": limits.SKILL_FILES_MAX}]},
    },
    "required": ["files"],
    "additionalProperties": False,
}

ROUTES: Final = (
    Route(
        "post",
        "/v1/responses",
        "createResponse",
        "Ask a model, with or without a computer",
        {JSON: ref("Response"), EVENTS: ref("Event")},
        {JSON: ref("CreateResponse")},
        also=(404, 502, 503),
    ),
    Route(
        "get",
        "/v1/responses",
        "listResponses",
        "The responses, newest first; with an upgrade a WebSocket, and 426 where none can pass",
        {JSON: _list(_SUMMARY)},
        query=(
            *_PAGE,
            ("status", _STRING),
            ("model", _STRING),
            ("conversation", _STRING),
            ("container", _STRING),
            ("key", _STRING),
            ("created_after", _TIME),
            ("created_before", _TIME),
            ("metadata[team]", _STRING),
        ),
        also=(101, 426),
    ),
    Route(
        "get",
        "/v1/responses/{response_id}",
        "retrieveResponse",
        "A stored response, or its stream from an event on",
        {JSON: ref("Response"), EVENTS: ref("Event")},
        query=(
            ("stream", _BOOLEAN),
            ("starting_after", {"type": "integer", "minimum": 0}),
            ("include_obfuscation", _BOOLEAN),
            _INCLUDE,
        ),
    ),
    Route("delete", "/v1/responses/{response_id}", "deleteResponse", "Delete a response", {JSON: _deleted("response")}),
    Route("post", "/v1/responses/{response_id}/cancel", "cancelResponse", "Stop a background response", {JSON: ref("Response")}),
    Route(
        "get",
        "/v1/responses/{response_id}/input_items",
        "listInputItems",
        "What a response was asked",
        {JSON: _list_of("Item")},
        query=(*_PAGE, _INCLUDE),
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/events",
        "listResponseEvents",
        "The log of a response, with the times of its events, oldest first",
        {JSON: _list(_LOGGED)},
        query=(_limit(limits.EVENTS_PAGE_MAX), _OLDEST_FIRST, ("after", _COUNT), ("types", _STRING)),
    ),
    Route(
        "get",
        "/v1/responses/{response_id}/steps",
        "listResponseSteps",
        "The loop of a response, unrolled, and what it waits for",
        {JSON: _list(_STEP)},
        query=(_limit(), _OLDEST_FIRST, _AFTER),
    ),
    Route(
        "post",
        "/v1/responses/compact",
        "compactResponse",
        "Make a shorter input to go on with",
        {JSON: ref("Compaction")},
        {JSON: ref("CompactResponse")},
        also=(404, 502),
    ),
    Route(
        "post",
        "/v1/chat/completions",
        "createChatCompletion",
        "Ask a model in the older protocol",
        {JSON: ref("ChatCompletion"), EVENTS: {"type": "object"}},
        {JSON: ref("CreateChatCompletion")},
        also=(404, 502, 503),
    ),
    Route(
        "post",
        "/v1/responses/input_tokens",
        "countInputTokens",
        "How long a prompt would be, by estimate",
        {JSON: ref("InputTokens")},
        {JSON: ref("CountInputTokens")},
        also=(404,),
    ),
    Route(
        "post",
        "/v1/conversations",
        "createConversation",
        "Begin a conversation",
        {JSON: ref("Conversation")},
        {JSON: ref("CreateConversation")},
    ),
    Route("get", "/v1/conversations/{conversation_id}", "retrieveConversation", "A conversation", {JSON: ref("Conversation")}),
    Route(
        "post",
        "/v1/conversations/{conversation_id}",
        "updateConversation",
        "Replace a conversation's metadata",
        {JSON: ref("Conversation")},
        {JSON: ref("UpdateConversation")},
        also=(409,),
    ),
    Route(
        "delete",
        "/v1/conversations/{conversation_id}",
        "deleteConversation",
        "Delete a conversation",
        {JSON: _deleted("conversation.deleted")},
    ),
    Route(
        "post",
        "/v1/conversations/{conversation_id}/items",
        "createConversationItems",
        "Add items to a conversation",
        {JSON: _list_of("Item")},
        {JSON: ref("CreateConversationItems")},
        query=(_INCLUDE,),
        also=(409,),
    ),
    Route(
        "get",
        "/v1/conversations/{conversation_id}/items",
        "listConversationItems",
        "The items of a conversation",
        {JSON: _list_of("Item")},
        query=(*_PAGE, _INCLUDE),
    ),
    Route(
        "get",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        "retrieveConversationItem",
        "One item",
        {JSON: ref("Item")},
        query=(_INCLUDE,),
    ),
    Route(
        "delete",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        "deleteConversationItem",
        "Remove an item; answers the conversation",
        {JSON: ref("Conversation")},
        also=(409,),
    ),
    Route(
        "get",
        "/v1/models",
        "listModels",
        "The models of this deployment",
        {JSON: _record(object={"const": "list"}, data={"type": "array", "items": ref("Model")})},
    ),
    Route("get", "/v1/models/{model}", "retrieveModel", "One model", {JSON: ref("Model")}),
    Route("post", "/v1/files", "createFile", "Upload a file", {JSON: ref("File")}, {FORM: _FILE_FORM}),
    Route(
        "get",
        "/v1/files",
        "listFiles",
        "All files",
        {JSON: _list_of("File")},
        query=(_limit(limits.FILES_LIST_MAX, limits.FILES_LIST_MAX), _ORDER, _AFTER, ("purpose", _STRING)),
    ),
    Route("get", "/v1/files/{file_id}", "retrieveFile", "A file", {JSON: ref("File")}),
    Route("delete", "/v1/files/{file_id}", "deleteFile", "Delete a file", {JSON: _deleted("file")}),
    Route(
        "get",
        "/v1/files/{file_id}/content",
        "downloadFile",
        "A file's content",
        {BINARY: {}},
        also=(206, 302, 416),
    ),
    Route(
        "post",
        "/v1/uploads",
        "createUpload",
        "Begin a file in parts",
        {JSON: ref("Upload")},
        {JSON: ref("CreateUpload")},
    ),
    Route(
        "post",
        "/v1/uploads/{upload_id}/parts",
        "addUploadPart",
        "Add a part",
        {JSON: ref("UploadPart")},
        {FORM: _form("data")},
    ),
    Route(
        "post",
        "/v1/uploads/{upload_id}/complete",
        "completeUpload",
        "Make the file out of its parts",
        {JSON: ref("Upload")},
        {JSON: ref("CompleteUpload")},
        also=(409,),
    ),
    Route("post", "/v1/uploads/{upload_id}/cancel", "cancelUpload", "Drop the parts", {JSON: ref("Upload")}, also=(409,)),
    Route(
        "post",
        "/v1/containers",
        "createContainer",
        "Reserve a container",
        {JSON: ref("Container")},
        {JSON: ref("CreateContainer")},
        also=(404,),
    ),
    Route(
        "get",
        "/v1/containers",
        "listContainers",
        "All containers",
        {JSON: _list_of("Container")},
        query=(*_PAGE, ("name", _STRING)),
    ),
    Route("get", "/v1/containers/{container_id}", "retrieveContainer", "A container", {JSON: ref("Container")}),
    Route(
        "delete",
        "/v1/containers/{container_id}",
        "deleteContainer",
        "Stop and delete a container",
        {JSON: _deleted("container.deleted")},
    ),
    Route(
        "post",
        "/v1/containers/{container_id}/files",
        "createContainerFile",
        "Put a file into a container",
        {JSON: ref("ContainerFile")},
        {
            FORM: _form("file"),
            JSON: ref("AddContainerFile"),
        },
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/files",
        "listContainerFiles",
        "The files of a container",
        {JSON: _list_of("ContainerFile")},
        query=_PAGE,
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/files/{file_id}",
        "retrieveContainerFile",
        "A file of a container",
        {JSON: ref("ContainerFile")},
    ),
    Route(
        "delete",
        "/v1/containers/{container_id}/files/{file_id}",
        "deleteContainerFile",
        "Delete a file of a container",
        {JSON: _deleted("container.file.deleted")},
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/files/{file_id}/content",
        "downloadContainerFile",
        "What a file of a container holds",
        {BINARY: {}},
        also=(206, 302, 416),
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/tree",
        "listContainerTree",
        "The saved files of a container as folders",
        {JSON: _list(_TREE)},
        query=(("path", _STRING), ("depth", _COUNT)),
    ),
    Route(
        "get",
        "/v1/containers/{container_id}/egress",
        "listContainerEgress",
        "What a container tried to reach, and what came of it",
        {JSON: _list_of("EgressEntry")},
        query=_PAGE,
    ),
    Route("get", "/v1/me", "me", "What the key of this request stands for", {JSON: _ME}),
    Route(
        "get",
        "/v1/usage",
        "usage",
        "What was used, added up by day, model, key or tool",
        {JSON: _list(_USAGE)},
        query=(("group_by", {"type": "string", "enum": list(USAGE_GROUPS), "default": "day"}), ("from", _STRING), ("to", _STRING)),
    ),
    Route("post", "/v1/skills", "createSkill", "Upload a skill: a zip, or a folder's files", {JSON: ref("Skill")}, {FORM: _SKILL_FORM}),
    Route("get", "/v1/skills", "listSkills", "All skills", {JSON: _list_of("Skill")}, query=_PAGE),
    Route("get", "/v1/skills/{skill_id}", "retrieveSkill", "A skill", {JSON: ref("Skill")}),
    Route(
        "post",
        "/v1/skills/{skill_id}",
        "updateSkill",
        "Choose the default version",
        {JSON: ref("Skill")},
        {JSON: ref("UpdateSkill")},
        also=(409,),
    ),
    Route("delete", "/v1/skills/{skill_id}", "deleteSkill", "Delete a skill with its versions", {JSON: _deleted("skill.deleted")}),
    Route("get", "/v1/skills/{skill_id}/content", "downloadSkill", "The default version as a zip", {BINARY: {}}, also=(206, 302, 416)),
    Route(
        "post",
        "/v1/skills/{skill_id}/versions",
        "createSkillVersion",
        "Upload another version of a skill",
        {JSON: ref("SkillVersion")},
        {FORM: {**_SKILL_FORM, "properties": {**_SKILL_FORM["properties"], "default": {"type": "boolean"}}}},
        also=(409,),
    ),
    Route(
        "get",
        "/v1/skills/{skill_id}/versions",
        "listSkillVersions",
        "The versions of a skill",
        {JSON: _list_of("SkillVersion")},
        query=_PAGE,
    ),
    Route(
        "get", "/v1/skills/{skill_id}/versions/{version}", "retrieveSkillVersion", "A version of a skill", {JSON: ref("SkillVersion")}
    ),
    Route(
        "delete",
        "/v1/skills/{skill_id}/versions/{version}",
        "deleteSkillVersion",
        "Delete a version that is not the default",
        {JSON: ref("SkillVersionDeleted")},
        also=(409,),
    ),
    Route(
        "get",
        "/v1/skills/{skill_id}/versions/{version}/content",
        "downloadSkillVersion",
        "A version of a skill as a zip",
        {BINARY: {}},
        also=(206, 302, 416),
    ),
)
"""Every operation below ``/v1``."""
