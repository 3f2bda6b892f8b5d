"""The code interpreter on the wire: its definition, its item, and its events in their order."""

from types import MappingProxyType
from typing import Annotated, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.item import Common, an_item
from moorage.wire.resources import NewContainer
from moorage.wire.tools import DirectCallers, RequireApproval
from moorage.wire.validation import Array, Either, Id, OneOf, Text, wire

PREFIXES: Final = MappingProxyType({"code_interpreter_call": "ci"})


@wire
class Auto(NewContainer, total=False):
    type: Required[Literal["auto"]]


@wire
class CodeInterpreterTool(TypedDict, total=False):
    type: Required[Literal["code_interpreter"]]
    container: Required[Annotated[str | Auto, Either("a string or an object", string=Id, object=Auto)]]
    allowed_callers: DirectCallers
    require_approval: RequireApproval


@wire
class Logs(TypedDict):
    type: Literal["logs"]
    logs: Text


@wire
class Figure(TypedDict):
    type: Literal["image"]
    url: Annotated[str, Field(max_length=limits.IMAGE_URL_CHARS_MAX)]


@an_item(PREFIXES["code_interpreter_call"])
class CodeInterpreterCall(Common, total=False):
    type: Required[Literal["code_interpreter_call"]]
    container_id: Required[Id]
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
    code: Text
    approval_request_id: Id
    outputs: Array[Annotated[Logs | Figure, OneOf({"logs": Logs, "image": Figure})]]


_ITEM: Final = ("item_id", "output_index")

EVENTS: Final = MappingProxyType(
    {
        "code_interpreter_call.in_progress": _ITEM,
        "code_interpreter_call_code.delta": (*_ITEM, "delta"),
        "code_interpreter_call_code.done": (*_ITEM, "code"),
        "code_interpreter_call.interpreting": _ITEM,
        "code_interpreter_call.completed": _ITEM,
    }
)
"""In the order in which they come."""
