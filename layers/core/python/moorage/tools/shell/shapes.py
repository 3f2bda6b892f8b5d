"""The shell on the wire: its definition, its items, and its events in their order."""

from types import MappingProxyType
from typing import Annotated, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.item import Call, an_item
from moorage.wire.refusals import wrong_value
from moorage.wire.resources import AskedSkills, Folder, NewContainer
from moorage.wire.tools import HOSTED_IN_ITEM, Callers, DirectCallers
from moorage.wire.validation import CallId, Dropped, Either, Fields, Id, Length, NonEmpty, OneOf, Text, wire, wire_with

PREFIXES: Final = MappingProxyType({"shell_call": "sh", "shell_call_output": "sho"})

# --- The definition: in a container, or at the client's ---------------------------------------------------------------


@wire
class ContainerAuto(NewContainer, total=False):
    """``file_map`` and ``agents_md`` are additions to the API: the model is told which files there are when the turn begins, and what
    the ``AGENTS.md`` of a folder say."""

    type: Required[Literal["container_auto"]]
    skills: AskedSkills
    file_map: bool
    agents_md: Folder


@wire
class ContainerReference(TypedDict, total=False):
    """``skills``, ``file_map`` and ``agents_md`` are additions to the API: missing skills are put into the container."""

    type: Required[Literal["container_reference"]]
    container_id: Required[Id]
    skills: AskedSkills
    file_map: bool
    agents_md: Folder


@wire
class LocalSkill(TypedDict):
    name: NonEmpty
    description: Text
    path: NonEmpty


@wire
class LocalEnvironment(TypedDict, total=False):
    type: Required[Literal["local"]]
    skills: Annotated[list[LocalSkill], Length(limits.SKILLS_ATTACHED_MAX)]


@wire
class CommandFilter(TypedDict):
    """Commands by patterns: ``*`` stands for any text."""

    commands: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=limits.APPROVAL_PATTERN_CHARS_MAX)]],
        Length(limits.APPROVAL_PATTERNS_MAX, minimum=1),
    ]


@wire
class CommandApprovals(TypedDict, total=False):
    always: CommandFilter
    never: CommandFilter


def _asks_where_it_runs(tool: Fields) -> Fields:
    if "require_approval" in tool and tool.get("environment", {"type": "local"})["type"] == "local":
        raise wrong_value("the client runs these commands, and may ask whom it likes.", "require_approval")
    return tool


@wire_with(_asks_where_it_runs)
class ShellTool(TypedDict, total=False):
    """``require_approval`` is an addition to the API, in the form that remote servers have."""

    type: Required[Literal["shell"]]
    environment: Annotated[
        ContainerAuto | ContainerReference | LocalEnvironment,
        OneOf({"container_auto": ContainerAuto, "container_reference": ContainerReference, "local": LocalEnvironment}),
    ]
    require_approval: Annotated[
        str | CommandApprovals, Either("a string or an object", string=Literal["always", "never"], object=CommandApprovals)
    ]
    allowed_callers: Callers


@wire
class ShellToolOfItem(TypedDict, total=False):
    """A shell that an item brings along runs at the client's."""

    type: Required[Literal["shell"]]
    environment: Annotated[
        LocalEnvironment,
        OneOf({"container_auto": HOSTED_IN_ITEM, "container_reference": HOSTED_IN_ITEM, "local": LocalEnvironment}),
    ]
    allowed_callers: DirectCallers


# --- The items --------------------------------------------------------------------------------------------------------

_Milliseconds = Annotated[int, Field(ge=0)]
_OutputChars = Annotated[int, Field(ge=0)]


@wire
class ShellAction(TypedDict, total=False):
    commands: Required[Annotated[list[Text], Length(limits.COMMANDS_PER_CALL_MAX)]]
    timeout_ms: _Milliseconds
    max_output_length: _OutputChars


@an_item(PREFIXES["shell_call"])
class ShellCall(Call, total=False):
    type: Required[Literal["shell_call"]]
    call_id: Required[CallId]
    action: Required[ShellAction]
    environment: Annotated[
        LocalEnvironment | ContainerReference, OneOf({"local": LocalEnvironment, "container_reference": ContainerReference})
    ]


@wire
class Exit(TypedDict):
    type: Literal["exit"]
    exit_code: int


@wire
class Timeout(TypedDict):
    type: Literal["timeout"]


@wire
class CommandOutput(TypedDict, total=False):
    stdout: Required[Text]
    stderr: Required[Text]
    outcome: Required[Annotated[Exit | Timeout, OneOf({"exit": Exit, "timeout": Timeout})]]
    created_by: Annotated[Text, Dropped]


@wire
class OutputFile(TypedDict):
    file_id: Id
    path: Text
    bytes: Annotated[int, Field(ge=0)]


@an_item(PREFIXES["shell_call_output"])
class ShellCallOutput(Call, total=False):
    type: Required[Literal["shell_call_output"]]
    call_id: Required[CallId]
    output: Required[Annotated[list[CommandOutput], Length(limits.COMMANDS_PER_CALL_MAX)]]
    max_output_length: _OutputChars
    output_files: Annotated[list[OutputFile], Length(limits.OUTPUT_FILES_MAX)]
    """An addition to the API: what the commands have left, where ``include`` asked for it."""


# --- The events -------------------------------------------------------------------------------------------------------

_COMMAND: Final = ("output_index", "command_index")
"""Events of commands have no ``item_id`` (recorded live streams, openai SDK types)."""

EVENTS: Final = MappingProxyType(
    {
        "shell_call_command.added": (*_COMMAND, "command"),
        "shell_call_command.delta": (*_COMMAND, "delta"),
        "shell_call_command.done": (*_COMMAND, "command"),
        "shell_call_output_content.delta": ("item_id", *_COMMAND, "delta"),
        "shell_call_output_content.done": ("item_id", *_COMMAND, "output"),
    }
)
"""For each command of a call those of the first kind, in their order; then for each output those of the second."""
