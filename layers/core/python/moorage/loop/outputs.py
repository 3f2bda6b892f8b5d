"""The items between a model step and its tool calls: announced outputs, and outputs that are known without a run."""

from dataclasses import replace

from moorage import ids
from moorage.dataclass import dataclass
from moorage.loop.sinks import Sink
from moorage.state import PendingCall
from moorage.store.responses import StoredResponse
from moorage.tools.calls import CallEnd, KnownCall, finished_of
from moorage.tools.capabilities import AsksApproval
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool, Room
from moorage.wire.events import COMPACTION_COMPACTING, OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE
from moorage.wire.types import Item


@dataclass(slots=True)
class Outputs:
    """Adds items to those of a model step, and emits their events."""

    stored: StoredResponse
    sink: Sink
    next_index: int
    announced: dict[str, Item]
    """Outputs that a run before this one has opened, by call id, and a compaction that is open, by its id."""
    items: dict[int, Item]

    def announce(self, index: int) -> PendingCall:
        """Open the output of a hosted call, so that outputs appear in the order of their calls however long each takes."""
        item = self.items[index]
        room = _room(item)
        call = PendingCall(item["id"], item["type"], index, index, item["id"], str(room.call_runner(item)), self._approval(room, index))
        if room.output_type is None:
            return call
        known = self.announced.get(item["call_id"])
        if known is not None:
            return replace(call, call_id=item["call_id"], output_index=known["output_index"], output_item_id=known["id"])
        output = room.empty_output(item, self.new_id(room))
        return replace(call, call_id=item["call_id"], output_index=self._open(output), output_item_id=output["id"])

    def _approval(self, room: Room, index: int) -> str:
        """The id of the approval that a call must wait for; empty if it needs none."""
        approval_id = ids.approval_id(self.stored.response_id, index, self.stored.lane)
        needs = isinstance(room, AsksApproval) and room.needs_approval(
            self.items[index], self.stored.parameters.tools, self.stored.input_items, approval_id
        )
        return approval_id if needs else ""

    def refuse(self, indexes: tuple[int, ...]) -> None:
        """Hosted calls over a bound get an output that says that they were not run."""
        for index in indexes:
            item = self.items[index]
            room = _room(item)
            holds_its_own = room.output_type is None
            known = KnownCall(
                self.stored.response_id,
                item["id"] if holds_its_own else item["call_id"],
                item,
                index if holds_its_own else self.next_index,
                item["id"] if holds_its_own else self.new_id(room),
            )
            refused = finished_of(room.end(known, CallEnd.REFUSED))
            if holds_its_own:
                self.items[index] = refused
                self._done(index)
            else:
                self.add(refused, added=room.empty_output(item, known.output_item_id))

    def new_id(self, room: Room) -> str:
        assert room.output_type is not None
        return ids.new_item_id(room.id_prefixes[room.output_type], self.stored.response_id)

    def add(self, item: Item, *, added: Item | None = None) -> None:
        """An item that is complete from the start; ``added`` is how it is announced, if otherwise."""
        known = self.announced.get(item["id"]) or self.announced.get(item.get("call_id", ""))
        if known is not None:
            item = item | {"id": known["id"]}
        index = self._open(item if added is None else added) if known is None else known["output_index"]
        self.items[index] = item
        self._done(index)

    def begin_compaction(self) -> str:
        """Say that notes are being written, and answer the id of the item that will hold them; a run before this one may have opened
        it."""
        known = next((item for item in self.announced.values() if item["type"] == "compaction"), None)
        if known is None:
            item: Item = {"id": ids.new_item_id("cmp", self.stored.response_id), "type": "compaction", "encrypted_content": ""}
            known = self.announced[item["id"]] = item | {"output_index": self._open(item)}
        self.sink.emit({"type": COMPACTION_COMPACTING, "item_id": known["id"], "output_index": known["output_index"]})
        return str(known["id"])

    def _open(self, item: Item) -> int:
        index = self.next_index
        self.next_index += 1
        self.sink.emit({"type": OUTPUT_ITEM_ADDED, "output_index": index, "item": item})
        return index

    def _done(self, index: int) -> None:
        self.sink.emit({"type": OUTPUT_ITEM_DONE, "output_index": index, "item": self.items[index]})


def _room(call: Item) -> HostedTool:
    room = ROOMS.hosted(call["type"])
    assert room is not None, f"nobody knows how to run a {call['type']}"
    return room
