"""This service's own OpenAPI 3.1 document, served at ``/openapi.json``.

Request schemas come from the validators that check the requests (``shapes.schema_of``), so the document cannot promise what is
refused. Answers are described by hand, and a test compares the routes with those of the application.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage import limits
from moorage.wire import create, resources
from moorage.wire.schema import JsonSchema, components
from moorage.wire.types import INCLUDABLE
from moorage.wire.validation import Parser

Method = Literal["get", "post", "delete"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
BINARY: Final = "application/octet-stream"
FORM: Final = "multipart/form-data"


def ref(name: str) -> JsonSchema:
    return {"$ref": f"#/components/schemas/{name}"}


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
_INTEGER: Final[JsonSchema] = {"type": "integer"}
_BOOLEAN: Final[JsonSchema] = {"type": "boolean"}
_NUMBER: Final[JsonSchema] = {"type": "number"}
_OBJECT: Final[JsonSchema] = {"type": "object"}
_METADATA: Final[JsonSchema] = {"type": "object", "additionalProperties": _STRING}


def _nullable(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, {"type": "null"}]}


def _record(optional: Mapping[str, JsonSchema] | None = None, /, **properties: JsonSchema) -> JsonSchema:
    """An answer: every field that is not ``optional`` is always there, and more may come with a new version."""
    return {"type": "object", "properties": {**properties, **(optional or {})}, "required": list(properties)}


def _list_of(name: str) -> JsonSchema:
    return _record(
        object={"const": "list"},
        data={"type": "array", "items": ref(name)},
        first_id=_nullable(_STRING),
        last_id=_nullable(_STRING),
        has_more=_BOOLEAN,
    )


def _deleted(kind: str) -> JsonSchema:
    return _record(id=_STRING, object={"const": kind}, deleted={"const": True})


_ORDER: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"})
_AFTER: Final = ("after", _STRING)
_INCLUDE: Final = ("include[]", {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}})


def _limit(maximum: int = limits.PAGE_ITEMS_MAX, default: int = limits.PAGE_ITEMS_DEFAULT) -> tuple[str, JsonSchema]:
    return ("limit", {"type": "integer", "minimum": 1, "maximum": maximum, "default": default})


_PAGE: Final = (_limit(), _ORDER, _AFTER)


_BODIES: Final = {
    "CreateResponse": create.CREATE,
    "CountInputTokens": create.COUNT,
    "CompactResponse": create.COMPACT,
    "CreateConversation": create.CONVERSATION_CREATE,
    "UpdateConversation": create.CONVERSATION_UPDATE,
    "CreateConversationItems": create.CONVERSATION_ITEMS,
    "CreateContainer": Parser[Any](resources.CreateContainer),
    "AddContainerFile": Parser[Any](resources.AddContainerFile),
    "CreateUpload": Parser[Any](resources.CreateUpload),
    "CompleteUpload": Parser[Any](resources.CompleteUpload),
    "UpdateSkill": Parser[Any](resources.UpdateSkill),
}


def _components() -> JsonSchema:
    return {
        **components(_BODIES),
        "Item": {"type": "object", "properties": {"type": _STRING, "id": _STRING}, "required": ["type", "id"]},
        "Event": {
            "type": "object",
            "properties": {"type": _STRING, "sequence_number": _INTEGER},
            "required": ["type", "sequence_number"],
        },
        "Usage": _record(
            input_tokens=_INTEGER,
            input_tokens_details=_record(cached_tokens=_INTEGER, cache_write_tokens=_INTEGER),
            output_tokens=_INTEGER,
            output_tokens_details=_record(reasoning_tokens=_INTEGER),
            total_tokens=_INTEGER,
        ),
        "Response": _response(),
        "Error": _record(
            error=_record(message=_STRING, type=_STRING, param=_nullable(_STRING), code=_nullable(_STRING)),
        ),
        "Conversation": _record(id=_STRING, object={"const": "conversation"}, created_at=_INTEGER, metadata=_METADATA),
        "Model": _record(id=_STRING, object={"const": "model"}, created=_INTEGER, owned_by=_STRING),
        "File": _record(
            id=_STRING,
            object={"const": "file"},
            bytes=_INTEGER,
            created_at=_INTEGER,
            filename=_STRING,
            purpose=_STRING,
            status=_STRING,
            status_details=_nullable(_STRING),
            expires_at=_nullable(_INTEGER),
        ),
        "Upload": _record(
            id=_STRING,
            object={"const": "upload"},
            bytes=_INTEGER,
            created_at=_INTEGER,
            filename=_STRING,
            purpose=_STRING,
            status={"type": "string", "enum": ["pending", "completed", "cancelled", "expired"]},
            expires_at=_INTEGER,
            file=_nullable(ref("File")),
        ),
        "UploadPart": _record(id=_STRING, object={"const": "upload.part"}, created_at=_INTEGER, upload_id=_STRING),
        "Container": _record(
            id=_STRING,
            object={"const": "container"},
            created_at=_INTEGER,
            status={"type": "string", "enum": ["running", "expired"]},
            expires_after=_record(anchor={"const": "last_active_at"}, minutes=_INTEGER),
            last_active_at=_INTEGER,
            memory_limit={"type": "string", "enum": list(limits.MEMORY_LIMITS)},
            network_policy=_record({"allowed_domains": {"type": "array", "items": _STRING}}, type=_STRING),
            name=_STRING,
        ),
        "ContainerFile": _record(
            id=_STRING,
            object={"const": "container.file"},
            bytes=_INTEGER,
            container_id=_STRING,
            created_at=_INTEGER,
            path=_STRING,
            source={"type": "string", "enum": ["user", "assistant"]},
        ),
        "Skill": _record(
            id=_STRING,
            object={"const": "skill"},
            name=_STRING,
            description=_STRING,
            created_at=_INTEGER,
            default_version=_STRING,
            latest_version=_STRING,
        ),
        "SkillVersion": _record(
            id=_STRING,
            object={"const": "skill.version"},
            skill_id=_STRING,
            version=_STRING,
            name=_STRING,
            description=_STRING,
            created_at=_INTEGER,
        ),
        "EgressEntry": _record(
            id=_STRING,
            object={"const": "container.egress"},
            created_at=_INTEGER,
            container_id=_STRING,
            decision=_STRING,
            reason=_STRING,
            message=_nullable(_STRING),
            host=_nullable(_STRING),
            port=_nullable(_INTEGER),
        ),
    }


def _response() -> JsonSchema:
    return _record(
        {"conversation": _record(id=_STRING), "prompt_cache_options": _record(mode=_STRING, ttl=_STRING)},
        id=_STRING,
        object={"const": "response"},
        created_at=_INTEGER,
        status={"type": "string", "enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]},
        completed_at=_nullable(_INTEGER),
        error=_nullable(_record(code=_STRING, message=_STRING, param=_nullable(_STRING), type=_STRING)),
        incomplete_details=_nullable(_record(reason=_STRING)),
        output={"type": "array", "items": ref("Item")},
        usage=_nullable(ref("Usage")),
        background=_BOOLEAN,
        frequency_penalty=_NUMBER,
        instructions=_nullable(_STRING),
        max_output_tokens=_nullable(_INTEGER),
        max_tool_calls=_nullable(_INTEGER),
        metadata=_METADATA,
        model=_STRING,
        parallel_tool_calls=_BOOLEAN,
        presence_penalty=_NUMBER,
        previous_response_id=_nullable(_STRING),
        prompt_cache_key=_nullable(_STRING),
        prompt_cache_retention=_nullable(_STRING),
        reasoning=_record({"context": _STRING, "mode": _STRING}, effort=_nullable(_STRING), summary=_nullable(_STRING)),
        safety_identifier=_nullable(_STRING),
        service_tier=_STRING,
        store=_BOOLEAN,
        temperature=_NUMBER,
        text=_record(format=_OBJECT, verbosity=_nullable(_STRING)),
        tool_choice={"anyOf": [_STRING, _OBJECT]},
        tools={"type": "array", "items": _OBJECT},
        top_logprobs=_INTEGER,
        top_p=_NUMBER,
        truncation={"type": "string", "enum": ["auto", "disabled"]},
        user=_nullable(_STRING),
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
    Route("get", "/v1/responses", "connect", "Open a WebSocket; 426 without an upgrade", {}, also=(101, 426)),
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
        "post",
        "/v1/responses/compact",
        "compactResponse",
        "Make a shorter input to go on with",
        {
            JSON: _record(
                id=_STRING,
                object={"const": "response.compaction"},
                created_at=_INTEGER,
                output={"type": "array", "items": _OBJECT},
                usage=ref("Usage"),
            )
        },
        {JSON: ref("CompactResponse")},
        also=(404, 502),
    ),
    Route(
        "post",
        "/v1/responses/input_tokens",
        "countInputTokens",
        "How long a prompt would be, by estimate",
        {JSON: _record(object={"const": "response.input_tokens"}, input_tokens=_INTEGER)},
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
        "/v1/containers/{container_id}/egress",
        "listContainerEgress",
        "What a container tried to reach, and what came of it",
        {JSON: _list_of("EgressEntry")},
        query=_PAGE,
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
        {JSON: _record(id=_STRING, object={"const": "skill.version.deleted"}, deleted={"const": True}, version=_STRING)},
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


def document(version: str) -> JsonSchema:
    """The OpenAPI document; ``version`` is the package's."""
    paths: dict[str, JsonSchema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route.to_json()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "moorage",
            "version": version,
            "description": "A self-hosted Responses API with a computer.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": _components(),
            "responses": {
                "Error": {
                    "description": "Refused or failed; the error names the field where there is one.",
                    "headers": {"x-request-id": {"schema": _STRING}},
                    "content": {JSON: {"schema": ref("Error")}},
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
