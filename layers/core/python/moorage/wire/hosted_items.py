"""The calls that may run here, and their outputs."""

from typing import Annotated, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.item import Call, Common, an_item
from moorage.wire.tools import ContainerReference, LocalEnvironment
from moorage.wire.validation import Array, CallId, Dropped, Id, Length, OneOf, Text, wire

# --- The shell --------------------------------------------------------------------------------------------------------

_Milliseconds = Annotated[int, Field(ge=0)]
_OutputChars = Annotated[int, Field(ge=0)]


@wire
class ShellAction(TypedDict, total=False):
    commands: Required[Annotated[list[Text], Length(limits.COMMANDS_PER_CALL_MAX)]]
    timeout_ms: _Milliseconds
    max_output_length: _OutputChars


@an_item("shell_call")
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


@an_item("shell_call_output")
class ShellCallOutput(Call, total=False):
    type: Required[Literal["shell_call_output"]]
    call_id: Required[CallId]
    output: Required[Annotated[list[CommandOutput], Length(limits.COMMANDS_PER_CALL_MAX)]]
    max_output_length: _OutputChars


# --- The code interpreter ---------------------------------------------------------------------------------------------


@wire
class Logs(TypedDict):
    type: Literal["logs"]
    logs: Text


@wire
class Figure(TypedDict):
    type: Literal["image"]
    url: Annotated[str, Field(max_length=limits.IMAGE_URL_CHARS_MAX)]


@an_item("code_interpreter_call")
class CodeInterpreterCall(Common, total=False):
    type: Required[Literal["code_interpreter_call"]]
    container_id: Required[Id]
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
    code: Text
    outputs: Array[Annotated[Logs | Figure, OneOf({"logs": Logs, "image": Figure})]]
