"""Tools that ask a person for each of their calls, if the request wants that (``require_approval``: ``always``).

They ask as remote servers do (``tools/approval_items.py``). The call that was allowed bears the request's id, and so it is known to
have run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from moorage import errors
from moorage.tools import approval_items
from moorage.tools.calls import CallEnd, KnownCall, finished_of
from moorage.tools.capabilities import AsksApproval, PreparesSteps, Stage, ValidatesItems
from moorage.tools.function_items import parsed
from moorage.tools.room import CallRunner, HostedTool, InputWriter
from moorage.wire.types import Item, Tool


class ApprovalTool(HostedTool, AsksApproval, PreparesSteps, ValidatesItems):
    allowed_by: ClassVar[str] = "approval_request_id"
    """The field of a call with the id of the request that has allowed it."""
    not_offered: ClassVar[str] = "The tool '{type}' of this call is not among 'tools'."
    """The refusal of an allowed call whose tool the request lacks."""
    no_call: ClassVar[str] = "what was asked for is no call of '{type}'."
    """The refusal of an allowed question that a client has invented."""

    @property
    def label(self) -> str:
        """The label of a question to a person, if the response ends with the question."""
        return f"{approval_items.OURS}{self.types[0]}"

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        """The model's arguments, as it gave them to its function."""
        raise NotImplementedError

    def call_of(self, request: Item) -> Item | None:
        """The call in a question; None for a client's invention."""
        return self.parse_call(parsed(request["arguments"]), request["arguments"], self.types[0])

    def is_gated(self, call: Item, tools: Sequence[Tool]) -> bool:
        """Whether the request wants a person asked for this call."""
        return any(tool["type"] in self.types and tool.get("require_approval") == "always" for tool in tools)

    def allowance(self, call: Item) -> dict[str, str]:
        """The mark of an allowed call; a room puts it into the item."""
        return {self.allowed_by: call[self.allowed_by]} if self.allowed_by in call else {}

    def needs_approval(self, call: Item, tools: Sequence[Tool], said: Sequence[Item], approval_id: str) -> bool:
        return self.is_gated(call, tools) and not approval_items.is_allowed(call.get(self.allowed_by, ""), said)

    def hold_for_approval(self, call: Item, tools: Sequence[Tool], approval_id: str | None) -> Item:
        if approval_id is not None or call["type"] != self.call_type or not self.is_gated(call, tools):
            return call
        return approval_items.request(self.label, str(self.function_name), self.arguments_of(call))

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        """A call that is allowed must be one that can run."""
        for param, request in approval_items.due(items, chain, self.label):
            if all(self.call_runner(tool) is CallRunner.CLIENT for tool in tools):
                raise errors.bad_request(self.not_offered.format(type=self.types[0]), param="tools")
            if self.call_of(request) is None:
                raise errors.invalid_value(param, self.no_call.format(type=self.types[0]))

    def needs_preparation(self, said: Sequence[Item]) -> bool:
        return any(approval_items.responses(said))

    async def prepare_step(self, stage: Stage) -> None:
        for request in approval_items.allowed(stage, self.label):
            call = self.call_of(request)
            if call is not None:
                stage.call(call | {self.allowed_by: request["id"]})

    def read_denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        call = self.call_of(request)
        if call is None:
            return []
        known = KnownCall("", request["id"], call | {"id": request["id"]}, 0, request["id"])
        reason = words.removeprefix(self.end_messages[CallEnd.DENIED]).strip()
        return self.input_items(finished_of(self.end(known, CallEnd.DENIED, reason)), reader)
