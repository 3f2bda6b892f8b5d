"""Tools that ask a person for each of their calls, if the request wants that (``require_approval``: ``always``).

They ask as remote servers do (``tools/approval_items.py``). The call that was allowed bears the request's id as its
``approval_request_id``, as a remote call does, and so it is known to have run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from moorage import errors
from moorage.tools import approval_items
from moorage.tools.calls import CallEnd, KnownCall, finished_of
from moorage.tools.capabilities import AsksApproval, PreparesSteps, Stage, ValidatesItems
from moorage.tools.function_items import parsed
from moorage.tools.room import HostedTool, InputWriter
from moorage.wire.types import Item, Tool

_ALLOWED_BY: Final = "approval_request_id"


class ApprovalTool(HostedTool, AsksApproval, PreparesSteps, ValidatesItems):
    @property
    def label(self) -> str:
        """The label of a question to a person, if the response ends with the question."""
        return f"{approval_items.OURS}{self.types[0]}"

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        """The model's arguments, as it gave them to its function."""
        raise NotImplementedError

    @staticmethod
    def allowance(call: Item) -> dict[str, str]:
        """The mark of an allowed call; a room puts it into the item."""
        return {_ALLOWED_BY: call[_ALLOWED_BY]} if _ALLOWED_BY in call else {}

    def needs_approval(self, call: Item, tools: Sequence[Tool], said: Sequence[Item], approval_id: str) -> bool:
        return self._is_gated(tools) and not approval_items.is_allowed(call.get(_ALLOWED_BY, ""), said)

    def hold_for_approval(self, call: Item, tools: Sequence[Tool], approval_id: str | None) -> Item:
        if approval_id is not None or call["type"] != self.call_type or not self._is_gated(tools):
            return call
        return approval_items.request(self.label, str(self.function_name), self.arguments_of(call))

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        """A call that is allowed must be one that can run."""
        for param, request in approval_items.due(items, chain, self.label):
            if not tools:
                raise errors.bad_request(f"The tool '{self.types[0]}' of this call is not among 'tools'.", param="tools")
            if self._call_of(request) is None:
                raise errors.invalid_value(param, f"what was asked for is no call of '{self.types[0]}'.")

    def needs_preparation(self, said: Sequence[Item]) -> bool:
        return any(approval_items.responses(said))

    async def prepare_step(self, stage: Stage) -> None:
        for request in approval_items.allowed(stage, self.label):
            call = self._call_of(request)
            if call is not None:
                stage.call(call | {_ALLOWED_BY: request["id"]})

    def read_denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        call = self._call_of(request)
        if call is None:
            return []
        known = KnownCall("", request["id"], call | {"id": request["id"]}, 0, request["id"])
        reason = words.removeprefix(self.end_messages[CallEnd.DENIED]).strip()
        return self.input_items(finished_of(self.end(known, CallEnd.DENIED, reason)), reader)

    def _is_gated(self, tools: Sequence[Tool]) -> bool:
        return any(tool["type"] in self.types and tool.get("require_approval") == "always" for tool in tools)

    def _call_of(self, request: Item) -> Item | None:
        """The call in a question; None for a client's invention."""
        return self.parse_call(parsed(request["arguments"]), request["arguments"], self.types[0])
