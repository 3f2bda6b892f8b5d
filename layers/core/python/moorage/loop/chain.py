"""The items that came before a response: those of its ancestors, or of its conversation."""

from collections.abc import Sequence

from moorage.loop import context
from moorage.store.chain_parts import ChainPart
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.wire.types import Item


async def load_chain(stores: Stores, stored: StoredResponse) -> list[Item]:
    """The items before this response: of its ancestors, all read at once, or of its conversation; none of one that rewinds it, which
    began with them."""
    if stored.rewinds_to is not None:
        return []
    if stored.conversation_id is not None:
        items: list[Item] = await stores.conversations.load_items(stored.tenant_id, stored.conversation_id)
        return items
    return chain_items(await stores.responses.parts(stored.tenant_id, stored.ancestors), then=stored.input_items)


def chain_items(parts: Sequence[ChainPart], *, then: Sequence[Item] = ()) -> list[Item]:
    """Inputs and outputs of ended responses, in order. ``then`` is the input that goes on from them: it may answer calls of the last
    one, and calls whose output was deleted with a response."""
    items: list[Item] = []
    for number, part in enumerate(parts, 1):
        items += part.input_items
        if number == len(parts):
            items = context.answer_deleted(items, then)
        items += context.output_items(part.output, is_cut=part.is_cut)
    return context.answer_orphans(items)
