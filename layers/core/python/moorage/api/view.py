"""What of a response a client gets to see.

The log and the model's context hold everything; ``include`` and ``stream_options`` decide what is sent. So one log serves a client
that asked for the outputs of its code interpreter and one that did not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moorage.tools.registry import ROOMS
from moorage.wire.events import OUTPUT_ITEM_ADDED, obfuscated
from moorage.wire.types import Event, Item


@dataclass(frozen=True, slots=True)
class View:
    include: frozenset[str]
    include_obfuscation: bool = True

    @classmethod
    def of(cls, include: Iterable[str], *, include_obfuscation: bool = True) -> "View":
        return cls(frozenset(include), include_obfuscation)

    def event(self, event: Event) -> Event:
        """An event as it is sent. An item that was only added holds nothing yet that could be hidden."""
        if "item" in event and event["type"] != OUTPUT_ITEM_ADDED:
            event = event | {"item": self.item(event["item"])}
        elif "response" in event:
            event = event | {"response": self.response(event["response"])}
        return obfuscated(event) if self.include_obfuscation else event

    def response(self, response: dict[str, Any]) -> dict[str, Any]:
        return response | {"output": [self.item(item) for item in response["output"]]}

    def item(self, item: Item) -> Item:
        room = ROOMS.of_item(item["type"])
        return item if room is None else room.seen(item, self.include)
