"""apply_patch on the wire: its definition and its items."""

from types import MappingProxyType
from typing import Annotated, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.item import Call, Caller, Common, an_item
from moorage.wire.tools import DirectCallers
from moorage.wire.validation import CallId, OneOf, Text, wire

PREFIXES: Final = MappingProxyType({"apply_patch_call": "apc", "apply_patch_call_output": "apco"})

_Path = Annotated[str, Field(min_length=1, max_length=limits.PATCH_PATH_CHARS_MAX)]


@wire
class ApplyPatchTool(TypedDict, total=False):
    type: Required[Literal["apply_patch"]]
    allowed_callers: DirectCallers


@wire
class CreateFile(TypedDict):
    type: Literal["create_file"]
    path: _Path
    diff: Text


@wire
class UpdateFile(TypedDict):
    type: Literal["update_file"]
    path: _Path
    diff: Text


@wire
class DeleteFile(TypedDict):
    type: Literal["delete_file"]
    path: _Path


_OPERATIONS: Final = OneOf({"create_file": CreateFile, "update_file": UpdateFile, "delete_file": DeleteFile})


@an_item(PREFIXES["apply_patch_call"])
class ApplyPatchCall(Call, total=False):
    type: Required[Literal["apply_patch_call"]]
    call_id: Required[CallId]
    operation: Required[Annotated[CreateFile | UpdateFile | DeleteFile, _OPERATIONS]]


@an_item(PREFIXES["apply_patch_call_output"])
class ApplyPatchCallOutput(Common, total=False):
    type: Required[Literal["apply_patch_call_output"]]
    call_id: Required[CallId]
    status: Required[Literal["completed", "failed"]]
    caller: Caller
    output: Text
