"""Hosted environments: their bodies and answers.

An environment is a container. Its files lie under ``/workspace``, which is the container's ``/mnt/data`` by another name.
"""

import base64
import posixpath
import re
from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.wire.network_policy import variable_name
from moorage.wire.queries import ORDER, PageQuery
from moorage.wire.query_strings import TEXT, Parameter, Query, choice, last, refused, whole_number
from moorage.wire.refusals import problem, wrong_value
from moorage.wire.resources import AskedSkills
from moorage.wire.schema import STRING
from moorage.wire.validation import (
    Fields,
    JsonValidator,
    Length,
    Name,
    OneOf,
    Only,
    RefusedVariant,
    Text,
    wire,
    wire_with,
)

WORKSPACE: Final = "/workspace/"
ContainerSize = Literal["small", "medium", "large"]
NetworkAccess = Literal["enabled", "disabled", "restricted"]
EnvironmentStatus = Literal["pending", "ready", "connected", "disconnected", "suspended", "expired", "failed"]

_NO_SELF_HOSTED: Final = "Commands run in containers of this service in this version: use 'openai_hosted', or 'none'."
_NO_BLOCKED: Final = "A network is opened by name in this version: list what may be reached in 'allowed_domains'."
_NO_CAPABILITIES: Final = "Folders with capabilities are not read in this version: give skills by 'skills'."
_NO_SYSTEM_PACKAGES: Final = (
    "Commands are not root, and install no system packages: the operator puts them into the image of sandboxes."
)
_NO_DESKTOP: Final = "There is none in this version. A 'computer_use' tool starts its browser by itself: leave it out."


def _file_path(path: str) -> str:
    """The path without detours."""
    whole = posixpath.normpath(path)
    if not whole.startswith(WORKSPACE) or not path.isprintable() or path.endswith("/"):
        raise wrong_value(f"it must be the path of a file below '{WORKSPACE}'.")
    if any(len(name.encode()) > limits.FILE_NAME_BYTES_MAX for name in whole.split("/")):
        raise wrong_value(f"a name in it is longer than {limits.FILE_NAME_BYTES_MAX} bytes.")
    if whole == f"{WORKSPACE}outputs":
        raise wrong_value("'/workspace/outputs' is the folder of the artifacts.")
    return whole


def _folder(path: str) -> str:
    whole = posixpath.normpath(path)
    if not whole.startswith("/") or not path.isprintable():
        raise wrong_value("it must be an absolute path.")
    return whole


FilePath = Annotated[str, Field(min_length=1, max_length=limits.ENVIRONMENT_PATH_CHARS_MAX), AfterValidator(_file_path)]


@wire
class FileById(TypedDict):
    """A copy of a file of the Files API."""

    type: Literal["file_id"]
    file_id: Name
    path: FilePath


def _base64(data: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except ValueError as error:
        raise wrong_value(f"it is not base64 ({error}).") from None
    return data


@wire
class InlineFile(TypedDict):
    type: Literal["inline"]
    data: Annotated[Text, AfterValidator(_base64)]
    path: FilePath


EnvironmentFileParam = Annotated[FileById | InlineFile, OneOf({"file_id": FileById, "inline": InlineFile})]


def _files(files: list[Fields]) -> list[Fields]:
    """No path twice, and none below another one."""
    paths = {file["path"] for file in files}
    if len(paths) < len(files):
        raise wrong_value("two of the files have the same path.")
    for path in sorted(paths):
        above = posixpath.dirname(path)
        while above.startswith(WORKSPACE):
            if above in paths:
                raise wrong_value(f"'{above}' is a file, and cannot hold '{path}'.")
            above = posixpath.dirname(above)
    return files


EnvironmentFilesParam = Annotated[list[EnvironmentFileParam], Length(limits.ENVIRONMENT_FILES_MAX), AfterValidator(_files)]


def _none_of(reason: str) -> Any:
    """Of a list that is known and must be empty."""

    def check(values: list[Any]) -> list[Any]:
        if values:
            raise wrong_value(f"it must be empty. {reason}")
        return values

    return AfterValidator(check)


def _network(network: Fields) -> Fields:
    domains = network.get("allowed_domains", [])
    if network["access"] == "restricted" and not domains:
        raise wrong_value("'restricted' needs 'allowed_domains'; use 'disabled' for no network.", "allowed_domains")
    if network["access"] != "restricted" and domains:
        raise wrong_value("it needs 'access' to be 'restricted'.", "allowed_domains")
    return network


@wire_with(_network)
class NetworkParam(TypedDict, total=False):
    access: Required[NetworkAccess]
    allowed_domains: Annotated[list[Name], Length(limits.ALLOWED_DOMAINS_MAX)]
    """Of this service: patterns such as ``*.example.com`` as well."""
    blocked_domains: Annotated[list[Name], Length(limits.ALLOWED_DOMAINS_MAX), _none_of(_NO_BLOCKED)]


@wire
class DesktopParam(TypedDict):
    enabled: Annotated[bool, Only(False, _NO_DESKTOP)]


@wire
class SetupCommandParam(TypedDict, total=False):
    command: Required[Annotated[str, Field(min_length=1, max_length=limits.COMMAND_CHARS_MAX)]]
    cwd: Annotated[str, Field(min_length=1, max_length=limits.ENVIRONMENT_PATH_CHARS_MAX), AfterValidator(_folder)]


def _env(env: dict[str, str]) -> dict[str, str]:
    """Names that nothing in a container needs itself."""
    if len(env) > limits.ENVIRONMENT_VARIABLES_MAX:
        most, count = limits.ENVIRONMENT_VARIABLES_MAX, len(env)
        raise problem(lambda param: errors.too_many_properties(param, count, most))
    for name, value in env.items():
        _check_name(name)
        if "\0" in value or not _is_text(value):
            raise wrong_value("it cannot stand in an environment.", name)
    return env


def _check_name(name: str) -> None:
    try:
        variable_name(name, "env")
    except ApiError as error:
        refused = error
    else:
        return
    raise problem(
        lambda param: ApiError(refused.status, refused.message.replace("'env'", f"'{param}'"), param=param, code=refused.code)
    )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _package(pattern: str, example: str) -> Any:
    """A name with a version at most: an address or an option would be another thing to an installer."""

    def check(name: str) -> str:
        if not re.fullmatch(pattern, name):
            raise wrong_value(f"it must be the name of a package, with a version if need be, such as '{example}'.")
        return name

    return AfterValidator(check)


_PackageName = Annotated[str, Field(min_length=1, max_length=limits.ENVIRONMENT_PACKAGE_CHARS_MAX)]
_VERSION: Final = r"(===|~=|==|!=|<=|>=|<|>) ?[A-Za-z0-9.*+!_-]+"
_Python = Annotated[
    _PackageName,
    _package(rf"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]+\])? ?({_VERSION}( ?, ?{_VERSION})*)?", "rich>=13,<15"),
]
_Npm = Annotated[
    _PackageName,
    _package(r"(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*(@[A-Za-z0-9^~<>=.*+_-]+)?", "left-pad@1.3.0"),
]


@wire
class PackagesParam(TypedDict, total=False):
    npm: Annotated[list[_Npm], Length(limits.ENVIRONMENT_PACKAGES_MAX)]
    python: Annotated[list[_Python], Length(limits.ENVIRONMENT_PACKAGES_MAX)]
    system: Annotated[list[Name], Length(limits.ENVIRONMENT_PACKAGES_MAX), _none_of(_NO_SYSTEM_PACKAGES)]


@wire
class PluginSource(TypedDict):
    type: Literal["base64"]
    media_type: Literal["application/zip"]
    data: Annotated[str, Field(min_length=1, max_length=limits.SKILL_INLINE_CHARS_MAX)]


@wire
class PluginParam(TypedDict):
    """A zip with ``.codex-plugin/plugin.json`` (``skills/plugins.py``)."""

    type: Literal["inline"]
    name: Annotated[str, Field(min_length=1, max_length=limits.SKILL_NAME_CHARS_MAX)]
    description: Annotated[str, Field(min_length=1, max_length=limits.SKILL_DESCRIPTION_CHARS_MAX)]
    source: PluginSource


def _plugins(plugins: list[Fields]) -> list[Fields]:
    if len({plugin["name"] for plugin in plugins}) < len(plugins):
        raise wrong_value("two of the plugins have the same name.")
    return plugins


class EnvironmentConfiguration(TypedDict, total=False):
    """What a hosted environment and a template share."""

    files: EnvironmentFilesParam
    skills: AskedSkills
    network: NetworkParam
    desktop: DesktopParam
    plugins: Annotated[list[PluginParam], Length(limits.ENVIRONMENT_PLUGINS_MAX), AfterValidator(_plugins)]
    capability_directories: Annotated[list[Name], Length(limits.SKILLS_ATTACHED_MAX), _none_of(_NO_CAPABILITIES)]
    env: Annotated[dict[str, str], AfterValidator(_env)]
    setup_commands: Annotated[list[SetupCommandParam], Length(limits.SETUP_COMMANDS_MAX)]
    packages: PackagesParam


class _Hosted(EnvironmentConfiguration, total=False):
    type: Required[Literal["openai_hosted"]]
    container_size: ContainerSize
    environment_template_id: Name


def check_setup(configuration: Fields) -> Fields:
    """As much as one record holds."""
    commands = configuration.get("setup_commands", [])
    texts = [*configuration.get("env", {}).items(), *((each["command"], each.get("cwd", "")) for each in commands)]
    size = sum(len(text.encode(errors="replace")) for pair in texts for text in pair)
    if size > limits.SETUP_BYTES_MAX:
        at = "setup_commands" if commands else "env"
        raise wrong_value(f"'env' and 'setup_commands' have {size} bytes together, and at most {limits.SETUP_BYTES_MAX} are taken.", at)
    return configuration


def _hosted(environment: Fields) -> Fields:
    others = sorted(environment.keys() - {"type", "environment_id"})
    if "environment_id" in environment and others:
        raise wrong_value(f"it cannot be combined with '{others[0]}': the environment is there already.", "environment_id")
    return check_setup(environment)


@wire_with(_hosted)
class HostedEnvironmentParam(_Hosted, total=False):
    """One that is made for a session, or one that is there already (``environment_id``, which is a container's id)."""

    environment_id: Name


@wire
class NoEnvironmentParam(TypedDict):
    type: Literal["none"]


@wire_with(check_setup)
class PrewarmedEnvironmentParam(_Hosted, total=False):
    """One that is made before there is a session. ``container_size`` is an extension here."""


_Prewarmed = Annotated[
    PrewarmedEnvironmentParam,
    OneOf({"openai_hosted": PrewarmedEnvironmentParam, "self_hosted": RefusedVariant(_NO_SELF_HOSTED)}),
]


@wire
class CreateEnvironment(TypedDict, total=False):
    """``POST /v1/agents/environments``."""

    environment: Required[_Prewarmed]
    vault_ids: Annotated[list[Name], Length(limits.VAULT_IDS_MAX)]


CREATE_ENVIRONMENT: Final = JsonValidator[Fields](CreateEnvironment)
HOSTED_ENVIRONMENT: Final = JsonValidator[Fields](HostedEnvironmentParam)
ADD_FILE: Final = JsonValidator[Fields](EnvironmentFileParam)

EnvironmentParam = Annotated[
    NoEnvironmentParam | HostedEnvironmentParam,
    OneOf(
        {
            "none": NoEnvironmentParam,
            "openai_hosted": HostedEnvironmentParam,
            "self_hosted": RefusedVariant(_NO_SELF_HOSTED),
        }
    ),
]
"""``environment`` of a session."""

# --- Answers ------------------------------------------------------------------------------------------------------------


class NetworkAnswer(TypedDict):
    access: NetworkAccess
    allowed_domains: list[str]


class PackagesAnswer(TypedDict):
    npm: list[str]
    python: list[str]
    system: list[str]


class DesktopAnswer(TypedDict):
    enabled: bool


class FileByIdAnswer(TypedDict):
    """``id`` is the container file's."""

    type: Literal["file_id"]
    id: str
    file_id: str
    path: str
    size_bytes: int


class InlineFileAnswer(TypedDict):
    type: Literal["inline"]
    id: str
    path: str
    size_bytes: int


class SkillReferenceAnswer(TypedDict):
    type: Literal["skill_reference"]
    skill_id: str
    version: str
    name: str
    description: str


class InlineSkillAnswer(TypedDict):
    type: Literal["inline"]
    name: str
    description: str


class PluginAnswer(TypedDict):
    type: Literal["inline"]
    name: str
    description: str


class NoEnvironment(TypedDict):
    type: Literal["none"]


class HostedEnvironment(TypedDict):
    """As a session shows it."""

    id: str
    type: Literal["openai_hosted"]
    capability_directories: list[str]
    container_size: ContainerSize | None
    desktop: DesktopAnswer
    files: list[FileByIdAnswer | InlineFileAnswer]
    network: NetworkAnswer
    packages: PackagesAnswer
    plugins: list[PluginAnswer]
    skills: list[SkillReferenceAnswer | InlineSkillAnswer]


class EnvironmentErrorAnswer(TypedDict):
    code: str
    message: str
    type: str


class EnvironmentInfo(TypedDict):
    """As the routes of environments show it."""

    id: str
    object: Literal["agent.environment"]
    type: Literal["openai_hosted"]
    status: EnvironmentStatus
    error: EnvironmentErrorAnswer | None
    """An extension: why it has failed."""
    files: list[FileByIdAnswer | InlineFileAnswer]
    plugins: list[PluginAnswer]
    skills: list[SkillReferenceAnswer | InlineSkillAnswer]


class EnvironmentFile(TypedDict):
    """A file of the workspace, whoever wrote it."""

    object: Literal["agent.environment.file"]
    environment_id: str
    path: str
    size_bytes: int


class EnvironmentFilePage(TypedDict):
    object: Literal["page"]
    data: list[EnvironmentFile]
    next: str | None
    """What ``page`` has to be for the next one."""
    has_more: bool


class EnvironmentState(TypedDict):
    """As the events of a session tell it."""

    id: str
    type: Literal["openai_hosted"]
    status: EnvironmentStatus
    error: EnvironmentErrorAnswer | None


@dataclass(frozen=True, slots=True)
class EnvironmentsPage(PageQuery):
    type: Annotated[str, choice("openai_hosted")] = "openai_hosted"


_BY_TOKEN: Final = refused("Go through the list with 'page', which is the 'next' of the page before.")


def _folder_asked(name: str, sent: Query) -> str:
    path = posixpath.normpath(last(sent) or WORKSPACE)
    if not f"{path}/".startswith(WORKSPACE):
        raise errors.invalid_value(name, "it must be '/workspace' or a folder below it.")
    return path


@dataclass(frozen=True, slots=True)
class EnvironmentFilesQuery:
    """The requested files below a folder."""

    path: Annotated[str, Parameter(STRING, _folder_asked)] = "/workspace"
    limit: Annotated[int, whole_number(1, limits.PAGE_ITEMS_MAX)] = limits.PAGE_ITEMS_DEFAULT
    order: Annotated[Literal["asc", "desc"], ORDER] = "desc"
    page: Annotated[str | None, TEXT] = None
    """The token of the page before."""
    after: Annotated[str | None, _BY_TOKEN] = None
    before: Annotated[str | None, _BY_TOKEN] = None
