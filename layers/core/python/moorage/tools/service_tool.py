"""The base of tools that run outside of the sandboxes' network: searches, images, automations.

Their call's own item holds the result. Every model gets them as a function, also one with a like tool at its upstream.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from moorage import errors
from moorage.tools.approval_tool import ApprovalTool
from moorage.tools.calls import NOT_ALLOWED, CallEnd, CallFinished, KnownCall, Piece
from moorage.tools.function_items import compact_json
from moorage.tools.room import CallRunner, InputWriter, RerunPolicy
from moorage.wire.types import Event, Item, Tool

WORDS: Final = MappingProxyType(
    {
        CallEnd.DENIED: NOT_ALLOWED,
        CallEnd.REFUSED: "The call was not run: too many calls were made.",
        CallEnd.LOST: "The call broke off.",
        CallEnd.GAVE_UP: "The call could not be run.",
        CallEnd.CANCELLED: "The call was cancelled.",
        CallEnd.TIME_OVER: "The call took too long.",
        CallEnd.TOO_LARGE: "The result is too large.",
    }
)


class ServiceTool(ApprovalTool):
    may_run_upstream = False
    """An upstream's own tool would be paid for with the upstream's key, unseen by the operator, and heed none of the bounds here."""
    rerun_policy = RerunPolicy.REPEAT
    end_messages = WORDS
    one_tool_only: ClassVar[str] = ""
    """The refusal of a second one in ``tools``; empty if several may stand there."""

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.SERVICE

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        super().validate_items(items, chain, tools)
        if len(tools) > 1 and self.one_tool_only:
            raise errors.bad_request(self.one_tool_only, param="tools")

    @abstractmethod
    def result_for_model(self, item: Item) -> Any:
        """The function's output: text, or parts of input."""

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        call_id = item["id"][:64]
        name = reader.name(reader.offered(self.types) or self.types[0], self.function_name)
        return [
            {"type": "function_call", "call_id": call_id, "name": name, "arguments": compact_json(self.arguments_of(item))},
            {"type": "function_call_output", "call_id": call_id, "output": self.result_for_model(item)},
        ]

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield failed(known, f"{self.end_messages[end]} {detail}".strip())

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        """Its events say no more than the status."""
        item["status"] = name.rpartition(".")[2]


def failed(known: KnownCall, error: Any, **others: Any) -> CallFinished:
    """The end of a call without a result, for client and model."""
    return CallFinished(known.item | {"status": "failed", "error": error, **others})
