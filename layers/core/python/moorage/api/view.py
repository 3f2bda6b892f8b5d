"""What of a response a client gets to see.

The log and the model's context hold everything; ``include`` and ``stream_options`` decide what is sent. So one log serves a client
that asked for the outputs of its code interpreter and one that did not.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.command_hints import as_typed
from moorage.dataclass import dataclass
from moorage.tools.function_items import without_url
from moorage.tools.registry import ROOMS
from moorage.wire.events import ERROR, OUTPUT_ITEM_ADDED, obfuscated
from moorage.wire.types import Event, Item


@dataclass(frozen=True, slots=True)
class ResponseView:
    include: frozenset[str]
    include_obfuscation: bool = True
    command: str = "moorage"
    """Records name it so; a client reads the word that works where the stack was started."""

    @classmethod
    def of(cls, include: Iterable[str], command: str = "moorage", *, include_obfuscation: bool = True) -> "ResponseView":
        return cls(frozenset(include), include_obfuscation, command)

    def event(self, event: Event) -> Event:
        """An event as it is sent. An item that was only added holds nothing yet that could be hidden."""
        if "item" in event and event["type"] != OUTPUT_ITEM_ADDED:
            event = event | {"item": self.item(event["item"])}
        elif "response" in event:
            event = event | {"response": self.response(event["response"])}
        elif event["type"] == ERROR:
            event = event | {"error": self._error(event["error"])}
        return obfuscated(event) if self.include_obfuscation else event

    def response(self, response: dict[str, Any]) -> dict[str, Any]:
        shown = response | {"output": [self.item(item) for item in response["output"]]}
        usage = response.get("usage")
        if usage is not None and "cost" in usage and "usage.cost" not in self.include:
            shown["usage"] = _without_cost(usage)
        if error := response.get("error"):
            shown["error"] = self._error(error)
        if why := response.get("waiting_for"):
            shown["waiting_for"] = as_typed(why, self.command)
        return shown

    def _error(self, error: dict[str, Any]) -> dict[str, Any]:
        return error | {"message": as_typed(error["message"], self.command)}

    def item(self, item: Item) -> Item:
        room = ROOMS.of_item(item["type"])
        return item if room is None else room.visible_item(item, self.include)


def _without_cost(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Of a response or of an agent, and of the agents in it."""
    shown = {name: value for name, value in usage.items() if name != "cost"}
    return shown | {"agents": [_without_cost(each) for each in usage["agents"]]} if "agents" in usage else shown


# --- Listings -------------------------------------------------------------------------------------------------------------


def listed_item(item: Item, include: Iterable[str] = ()) -> Item:
    """An item as ``input_items`` and conversations list it: complete, but with URLs of images, outputs of the code interpreter and
    files of shell calls only if ``include`` asks for them."""
    wanted = frozenset(include)
    if item["type"] == "message":
        return _listed_message(item, wanted)
    room = ROOMS.of_item(item["type"])
    if room is None:
        return item
    unsaid = {key: value for key, value in room.listing_defaults.get(item["type"], {}).items() if key not in item}
    return room.visible_item({**item, **unsaid}, wanted)


def _listed_message(message: Item, include: frozenset[str]) -> Item:
    listed = {**message, "status": message.get("status", "completed")}
    if "message.input_image.image_url" not in include:
        listed["content"] = [without_url(part) if part["type"] == "input_image" else part for part in message["content"]]
    return listed
