"""A toy tool, as somebody would write one by ``docs/tools.md``: dice that are rolled outside of the sandboxes' network.

    {"type": "dice", "faces": 6, "charm": "..."?}                                    a tool of a request; the charm is a secret
    {"type": "dice_call", "id", "status", "count", "pause_ms", "rolls": [4, 4]}      its call, which holds its own result

They always fall on four. Each roll is told as it falls; ``trace`` gets a line for each that really fell, over all runs and processes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NotRequired

from moorage.model.remote_servers import RemoteServers
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, CallLogNote, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import HoldsSecrets
from moorage.tools.function_items import compact_json, function
from moorage.tools.room import CallLimits, CallRunner, HostedTool, InputWriter, RerunPolicy
from moorage.tools.run import Run
from moorage.wire.types import Event, Item, Tool
from moorage.wire.validation import wire
from pydantic import Field
from typing_extensions import TypedDict

CHARM = "abracadabra"
WORDS = {
    CallEnd.REFUSED: "The dice were not rolled: too many at once.",
    CallEnd.LOST: "The dice may have been rolled; nobody saw how they fell.",
    CallEnd.GAVE_UP: "The dice cannot be rolled.",
    CallEnd.TIME_OVER: "The dice rolled for too long.",
    CallEnd.TOO_LARGE: "Too many dice to be told.",
}


_PARAMETERS: dict[str, Any] = {"count": {"type": "integer"}, "pause_ms": {"type": "integer"}}


class Dice(HostedTool, HoldsSecrets):
    types = ("dice",)
    call_type = "dice_call"
    id_prefixes = MappingProxyType({"dice_call": "dice"})
    events = MappingProxyType(
        {
            "dice_call.rolling": ("item_id", "output_index"),
            "dice_call.rolled": ("item_id", "output_index", "roll_index", "roll"),
            "dice_call.completed": ("item_id", "output_index"),
        }
    )
    function_name = "roll"
    end_messages = WORDS

    def __init__(
        self,
        rerun_policy: RerunPolicy = RerunPolicy.ONCE,
        call_limits: CallLimits | None = None,
        roll: Callable[[], Awaitable[int]] | None = None,
        trace: Path | None = None,
    ) -> None:
        self.rerun_policy = rerun_policy  # type: ignore[misc]  # A test rolls all three kinds.
        self.call_limits = call_limits or CallLimits(seconds=5, bytes=10_000, calls_per_round=2)  # type: ignore[misc]
        self.rolled = 0
        self._roll = roll
        self._trace = trace

    async def _fall(self, pause_ms: int) -> int:
        await asyncio.sleep(pause_ms / 1000)
        value = await self._roll() if self._roll is not None else 4
        self.rolled += 1
        if self._trace is not None:
            with self._trace.open("a") as trace:
                trace.write("fell\n")
        return value

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.SERVICE

    def extract_secrets(self, tool: Tool, handle: str, configured: RemoteServers) -> tuple[Tool, Mapping[str, str]]:
        return (tool | {"charm": handle}, {handle: tool["charm"]}) if "charm" in tool else (tool, {})

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return function(name, f"Roll dice with {tool['faces']} faces.", _PARAMETERS, ["count"])

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        count = value.get("count") if isinstance(value, dict) else None
        is_count = isinstance(count, int) and count > 0
        return {"type": self.call_type, "count": count, "pause_ms": value.get("pause_ms", 0)} if is_count else None

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        call = {"type": "function_call", "call_id": item["id"], "name": reader.name("dice", self.function_name)}
        said = item.get("error") or f"They fell: {item['rolls']}"
        return [
            call | {"arguments": compact_json({"count": item["count"]})},
            {"type": "function_call_output", "call_id": item["id"], "output": said},
        ]

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        said = {key: call[key] for key in ("type", "count", "pause_ms")}
        item = {"id": place.item_id, "status": "in_progress", **said, "rolls": []}
        return CallOpening(item, (), item, is_whole=False)

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        known = run.known
        charms = [run.outside.secret(tool["charm"]) for tool in run.tools if "charm" in tool]
        rolls = list((known.so_far or {}).get("rolls", ())) if self.rerun_policy is RerunPolicy.ATTACH else []
        if not known.so_far or known.so_far["status"] != "rolling":
            yield CallEvent(known.event("dice_call.rolling"))
        while len(rolls) < known.item["count"]:
            rolls.append(await self._fall(known.item["pause_ms"]))
            yield CallEvent(known.event("dice_call.rolled", roll_index=len(rolls) - 1, roll=rolls[-1]))
        run.counts["rolls"] = len(rolls)
        yield CallEvent(known.event("dice_call.completed"))
        yield CallFinished(known.item | {"status": "completed", "rolls": rolls, "is_charmed": charms == [CHARM]})

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        rolls = (known.so_far or {}).get("rolls", [])
        yield CallFinished(known.item | {"status": "failed", "rolls": rolls, "error": f"{WORDS[end]} {detail}".strip()})

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        match name:
            case "dice_call.rolling":
                item["status"] = "rolling"
            case "dice_call.rolled":
                item["rolls"] = [*item["rolls"][: event["roll_index"]], event["roll"]]

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        return item if "dice_call.rolls" in include else item | {"rolls": None}

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        if name == "dice_call.rolled":
            yield CallLogNote(f"rolled {event['roll']}", "output")


@wire
class DiceTool(TypedDict):
    """What a request says about it."""

    type: Literal["dice"]
    faces: Annotated[int, Field(ge=2, le=100)]
    charm: NotRequired[str]


class DeclaredDice(Dice):
    tool_shapes = MappingProxyType({"dice": DiceTool})
