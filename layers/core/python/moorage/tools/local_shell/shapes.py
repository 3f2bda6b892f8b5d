"""The local shell on the wire: its definition and its items."""

from types import MappingProxyType
from typing import Annotated, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import errors
from moorage.wire.item import Common, Status, an_item
from moorage.wire.refusals import problem
from moorage.wire.validation import Array, CallId, Fields, Free, Id, Text, wire

PREFIXES: Final = MappingProxyType({"local_shell_call": "lsh", "local_shell_call_output": "lsho"})


@wire
class LocalShellTool(TypedDict):
    type: Literal["local_shell"]


@wire
class LocalShellAction(TypedDict, total=False):
    type: Required[Literal["exec"]]
    command: Required[Array[Text]]
    env: Required[Free]
    timeout_ms: Annotated[int, Field(ge=0)]
    user: Text
    working_directory: Text


@an_item(PREFIXES["local_shell_call"])
class LocalShellCall(Common, total=False):
    type: Required[Literal["local_shell_call"]]
    call_id: Required[CallId]
    action: Required[LocalShellAction]
    status: Status


def _named_after_its_call(output: Fields) -> Fields:
    """The item's ``id`` *is* the call's id in the API's schema; clients that send a ``call_id`` as well mean that one."""
    if "call_id" not in output and "id" not in output:
        raise problem(errors.missing_parameter, "id")
    output.setdefault("call_id", output.get("id"))
    return output


@an_item(PREFIXES["local_shell_call_output"], _named_after_its_call)
class LocalShellCallOutput(Common, total=False):
    type: Required[Literal["local_shell_call_output"]]
    output: Required[Text]
    call_id: Id
    status: Status
