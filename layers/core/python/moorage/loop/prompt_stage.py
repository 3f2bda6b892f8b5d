"""What rooms put in front of a model before it is asked: what their tools are, and calls that the client has allowed.

Running twice is harmless: the log has the items of an earlier run, and a room looks there first (``Room.prepare_step``).
"""

from collections.abc import Sequence
from functools import partial

from moorage import ids
from moorage.dataclass import dataclass
from moorage.knowledge.index import Hit, SearchOptions
from moorage.loop.sinks import Sink
from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse
from moorage.tools.calls import ItemPosition
from moorage.tools.registry import ROOMS
from moorage.tools.room import Room
from moorage.tools.run import Service
from moorage.vaults.tokens import bearer_token
from moorage.wire.events import OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE
from moorage.wire.types import Event, Item, Tool


def outside(runtime: Runtime, stored: StoredResponse) -> Service:
    """The way out of the sandboxes' network, for the tools of a response."""

    def secret(handle: str) -> str | None:
        sealed = stored.secrets.get(handle)
        return None if sealed is None else runtime.stores.sealer.open(stored.tenant_id, sealed)

    def signature(region: str, url: str, body: bytes) -> dict[str, str]:
        return runtime.models.catalog.aws_auth("bedrock", region).signature(url, body)

    async def search_files(store_ids: Sequence[str], queries: Sequence[str], options: SearchOptions) -> list[Hit]:
        return await runtime.vector_stores.search(stored.tenant_id, store_ids, queries, options, draws_on=stored.draws_on)

    async def token(vault_id: str, credential_id: str) -> str:
        return await bearer_token(runtime, await runtime.stores.vaults.credential(stored.tenant_id, vault_id, credential_id))

    contents = runtime.stores.contents_of(stored.tenant_id)
    act = None if stored.session_id is None or runtime.sessions is None else partial(runtime.sessions.automate, stored)
    return Service(runtime.fetcher, secret, contents, signature, search_files, token, is_stored=stored.is_stored, automations=act)


def rooms_of(tools: Sequence[Tool]) -> list[Room]:
    """The rooms of these tools, each once."""
    return list(dict.fromkeys(room for tool in tools if (room := ROOMS.of_tool(tool["type"])) is not None))


@dataclass(slots=True)
class RoomStage:
    """:class:`~moorage.tools.room.Stage` for the room of some tools of a response; it adds to ``made_here``."""

    room: Room
    stored: StoredResponse
    sink: Sink
    next_index: int
    made_here: dict[int, Item]
    """The step's items by output index."""
    items: Sequence[Item]
    made: Sequence[Item]
    outside: Service

    @property
    def tools(self) -> Sequence[Tool]:
        return [tool for tool in self.stored.parameters.tools if tool["type"] in self.room.types]

    @property
    def own_input(self) -> Sequence[Item]:
        return self.stored.own_input

    def add(self, item: Item) -> ItemPosition:
        place = self._place(item["type"])
        added = {"id": place.item_id, **item}
        self.sink.emit({"type": OUTPUT_ITEM_ADDED, "output_index": place.output_index, "item": added})
        return place

    def say(self, event: Event) -> None:
        self.sink.emit(event)

    def done(self, place: ItemPosition, item: Item) -> None:
        self.made_here[place.output_index] = item
        self.sink.emit({"type": OUTPUT_ITEM_DONE, "output_index": place.output_index, "item": item})

    def call(self, call: Item) -> None:
        place = self._place(call["type"])
        opening = self.room.open_call(call, place)
        self.sink.emit({"type": OUTPUT_ITEM_ADDED, "output_index": place.output_index, "item": dict(opening.added)})
        for event in opening.events:
            self.sink.emit(event)
        if opening.is_whole:
            self.done(place, opening.item | {"status": "completed"})
        else:
            self.made_here[place.output_index] = opening.item

    def _place(self, type_: str) -> ItemPosition:
        index = self.next_index
        self.next_index += 1
        item_id = ids.new_item_id(self.room.id_prefixes[type_], self.stored.response_id)
        return ItemPosition(item_id, index, self.stored.container_id, is_hosted=True)
