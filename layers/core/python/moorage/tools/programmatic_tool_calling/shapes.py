"""Programs on the wire: the tool's definition, a program, and its output."""

from types import MappingProxyType
from typing import Final, Literal, Required

from typing_extensions import TypedDict

from moorage.wire.item import Common, an_item
from moorage.wire.validation import CallId, Text, wire

PREFIXES: Final = MappingProxyType({"program": "cm", "program_output": "cmo"})


@wire
class ProgrammaticToolCallingTool(TypedDict):
    type: Literal["programmatic_tool_calling"]


@an_item(PREFIXES["program"])
class Program(Common, total=False):
    type: Required[Literal["program"]]
    call_id: Required[CallId]
    code: Required[Text]
    fingerprint: Required[Text]


@an_item(PREFIXES["program_output"])
class ProgramOutput(Common, total=False):
    type: Required[Literal["program_output"]]
    call_id: Required[CallId]
    result: Required[Text]
    status: Literal["completed", "incomplete"]
