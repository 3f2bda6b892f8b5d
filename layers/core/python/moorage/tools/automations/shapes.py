"""What is said about automations on the wire: the definition of the tool, and its item."""

from types import MappingProxyType
from typing import Any, Final, Literal, Required

from typing_extensions import TypedDict

from moorage.wire.item import Common, an_item
from moorage.wire.tools import RequireApproval
from moorage.wire.validation import Id, Text, wire

PREFIXES: Final = MappingProxyType({"automation_call": "ac"})


@wire
class AutomationsTool(TypedDict, total=False):
    """``require_approval`` is an extension, as other hosted tools have it."""

    type: Required[Literal["automations"]]
    require_approval: RequireApproval


@an_item(PREFIXES["automation_call"])
class AutomationCall(Common, total=False):
    type: Required[Literal["automation_call"]]
    arguments: Required[Text]
    status: Literal["in_progress", "completed", "failed", "incomplete"]
    output: Text
    error: Text
    approval_request_id: Id


TOOLS: Final[MappingProxyType[str, Any]] = MappingProxyType({"automations": AutomationsTool})
