"""What stands between a model step and its tool calls: outputs that are announced, and outputs that are known without a run."""

from dataclasses import dataclass
from typing import Any

from moorage import ids
from moorage.loop.sinks import Sink
from moorage.model.base import Item
from moorage.state import Call
from moorage.store.responses import StoredResponse


@dataclass(slots=True)
class Outputs:
    """Adds items to those of a model step, and emits their events."""

    stored: StoredResponse
    sink: Sink
    next_index: int
    announced: dict[str, Item]
    """Outputs that a run before this one has opened, by call id."""
    items: dict[int, Item]

    def announce(self, index: int) -> Call:
        """Open the output of a hosted call, so that outputs appear in the order of their calls however long each takes."""
        item = self.items[index]
        if item["type"] == "code_interpreter_call":
            return Call(item["id"], item["type"], index, index, item["id"])
        known = self.announced.get(item["call_id"])
        if known is not None:
            return Call(item["call_id"], item["type"], index, known["output_index"], known["id"])
        output = self._output(item, [])
        # The live API says "completed" from the start; clients know that it is done by output_item.done.
        added = self._open(output)
        return Call(item["call_id"], item["type"], index, added, output["id"])

    def refuse(self, indexes: tuple[int, ...]) -> None:
        """Hosted calls over a bound get an output that says that they were not run."""
        for index in indexes:
            item = self.items[index]
            said = "This call was not run: the limit of tool calls is reached. Answer with what you have."
            if item["type"] == "code_interpreter_call":
                self.items[index] = item | {"status": "failed", "outputs": [{"type": "logs", "logs": said}]}
                self._done(index)
                continue
            outcome = {"stdout": "", "stderr": said, "outcome": {"type": "exit", "exit_code": 1}}
            self.add(self._output(item, [outcome for _ in item["action"]["commands"]]))

    def add(self, item: Item) -> None:
        """An item that is complete from the start."""
        index = self._open(item)
        self.items[index] = item
        self._done(index)

    def _output(self, call: Item, output: list[dict[str, Any]]) -> Item:
        return {
            "id": ids.new_item_id("sho", self.stored.response_id),
            "type": "shell_call_output",
            "call_id": call["call_id"],
            "status": "completed",
            "max_output_length": call["action"].get("max_output_length"),
            "output": output,
        }

    def _open(self, item: Item) -> int:
        index = self.next_index
        self.next_index += 1
        added = item | ({"output": []} if item["type"] == "shell_call_output" else {})
        self.sink.emit({"type": "response.output_item.added", "output_index": index, "item": added})
        return index

    def _done(self, index: int) -> None:
        self.sink.emit({"type": "response.output_item.done", "output_index": index, "item": self.items[index]})
