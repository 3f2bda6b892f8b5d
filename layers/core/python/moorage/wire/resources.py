"""The bodies of containers, files and uploads."""

import posixpath
from typing import Annotated, Any, Final, Literal, Required, get_args

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainValidator, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from moorage import limits
from moorage.errors import ApiError
from moorage.wire import network_policy
from moorage.wire.network_policy import NetworkPolicy
from moorage.wire.refusals import problem, wrong_type, wrong_value
from moorage.wire.validation import Body, Id, Length, Name, NonEmpty, OneOf, wire

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
PURPOSES: Final[tuple[str, ...]] = get_args(Purpose)

MemoryLimit = Literal["1g", "4g", "16g", "64g"]
assert get_args(MemoryLimit) == tuple(limits.MEMORY_LIMITS), "the memory tiers of the wire are those that sandboxes have"


class _Policy:
    """``network_policy.py`` reads it; whatever it refuses is told of the field that holds it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_policy)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(network_policy.JSON_SCHEMA)


def _policy(value: Any) -> NetworkPolicy:
    try:
        return network_policy.parse_network_policy(value, "network_policy")
    except ApiError:
        raise problem(lambda param: network_policy.refusal(value, param)) from None


PolicyOfContainer = Annotated[NetworkPolicy, _Policy()]


def _version(value: Any) -> str:
    """The API has version numbers as text; its guide also sends them as numbers."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type("a string", value)
    return str(value)[: limits.NAME_CHARS_MAX]


Version = Annotated[str, PlainValidator(_version), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}]})]


@wire
class SkillReference(TypedDict, total=False):
    type: Required[Literal["skill_reference"]]
    skill_id: Required[Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS_MAX)]]
    version: Version


@wire
class InlineSkillSource(TypedDict):
    type: Literal["base64"]
    media_type: Literal["application/zip", "text/markdown"]
    data: Annotated[str, Field(min_length=1, max_length=limits.SKILL_INLINE_CHARS_MAX)]


@wire
class InlineSkill(TypedDict):
    type: Literal["inline"]
    name: NonEmpty
    description: NonEmpty
    source: InlineSkillSource


AskedSkills = Annotated[
    list[Annotated[SkillReference | InlineSkill, OneOf({"inline": InlineSkill, "skill_reference": SkillReference})]],
    Length(limits.SKILLS_ATTACHED_MAX),
]
"""``skills`` of a container."""


def _folder(path: str) -> str:
    whole = posixpath.normpath(path)
    if not f"{whole}/".startswith("/mnt/data/") or not path.isprintable():
        raise wrong_value("it must be a folder of the container, '/mnt/data' or one below it.")
    return whole


Folder = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS_MAX), AfterValidator(_folder)]
"""A folder of the workspace."""


class NewContainer(TypedDict, total=False):
    """What a tool may say about a container that is made for it."""

    file_ids: Annotated[list[Id], Length(limits.CONTAINER_FILE_IDS_MAX)]
    memory_limit: MemoryLimit
    network_policy: PolicyOfContainer


class IdleTime(Body):
    anchor: Literal["last_active_at"]
    minutes: Annotated[int, Field(ge=1, le=limits.CONTAINER_IDLE_MINUTES_MAX)]


class CreateContainer(Body):
    """``POST /v1/containers``."""

    name: Annotated[str, Field(min_length=1, max_length=limits.CONTAINER_NAME_CHARS_MAX)]
    file_ids: Annotated[list[Name], Length(limits.CONTAINER_FILE_IDS_MAX)] = Field(default_factory=list)
    expires_after: IdleTime | None = None
    memory_limit: MemoryLimit = "1g"
    network_policy: PolicyOfContainer | None = None
    skills: AskedSkills = Field(default_factory=list)

    @property
    def idle_minutes(self) -> int:
        return limits.CONTAINER_IDLE_MINUTES_DEFAULT if self.expires_after is None else self.expires_after.minutes


class AddContainerFile(Body):
    """``POST /v1/containers/{container_id}/files`` with a file that is there already."""

    file_id: Name


class Lifetime(Body):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=limits.FILE_EXPIRES_SECONDS_MIN, le=limits.FILE_EXPIRES_SECONDS_MAX)]


class CreateUpload(Body):
    """``POST /v1/uploads``."""

    filename: Annotated[str, Field(min_length=1, max_length=limits.FILE_NAME_BYTES_MAX)]
    bytes: Annotated[int, Field(ge=1, le=limits.FILE_BYTES_MAX)]
    purpose: Purpose
    mime_type: Name
    expires_after: Lifetime | None = None


class CompleteUpload(Body):
    """``POST /v1/uploads/{upload_id}/complete``."""

    part_ids: Annotated[list[Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]], Length(limits.UPLOAD_PARTS_MAX, minimum=1)]
    md5: Annotated[str, Field(min_length=32, max_length=32, pattern="^[0-9a-fA-F]{32}$")] | None = None


class UpdateSkill(Body):
    """``POST /v1/skills/{skill_id}``."""

    default_version: Version
