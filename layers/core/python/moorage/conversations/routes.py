"""``/v1/conversations`` and their items."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, cast

from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.api.view import listed_item
from moorage.conversations.store import ConversationRecord, as_object
from moorage.parallel import beside
from moorage.wire.answers import Conversation, Deleted, Item, ListOf
from moorage.wire.create import CONVERSATION_CREATE, CONVERSATION_ITEMS, CONVERSATION_UPDATE
from moorage.wire.queries import IncludeQuery, PageWithIncludes
from moorage.wire.requests import parse_conversation_create, parse_conversation_items, parse_conversation_update
from moorage.wire.responses import deleted, list_object

router = Router()


_Include = Annotated[IncludeQuery, query_of(IncludeQuery)]


@router.post("/conversations", "createConversation", "Begin a conversation", body=("CreateConversation", CONVERSATION_CREATE))
async def create(caller: Caller, body: RawBody) -> Conversation:
    wanted = await beside(len(body), lambda: parse_conversation_create(body))
    return as_object(await caller.runtime.stores.conversations.create(caller.tenant_id, metadata=wanted.metadata, items=wanted.items))


@router.get("/conversations/{conversation_id}", "retrieveConversation", "A conversation")
async def retrieve(caller: Caller, conversation_id: str) -> Conversation:
    return as_object(await _conversation(caller, conversation_id))


@router.post(
    "/conversations/{conversation_id}",
    "updateConversation",
    "Replace a conversation's metadata",
    body=("UpdateConversation", CONVERSATION_UPDATE),
    statuses=(409,),
)
async def update(caller: Caller, conversation_id: str, body: RawBody) -> Conversation:
    metadata = parse_conversation_update(body)
    return as_object(await caller.runtime.stores.conversations.update(caller.tenant_id, conversation_id, metadata))


@router.delete("/conversations/{conversation_id}", "deleteConversation", "Delete a conversation")
async def delete(caller: Caller, conversation_id: str) -> Deleted[Literal["conversation.deleted"]]:
    await caller.runtime.stores.conversations.delete(caller.tenant_id, conversation_id)
    return deleted(conversation_id, "conversation.deleted")


@router.post(
    "/conversations/{conversation_id}/items",
    "createConversationItems",
    "Add items to a conversation",
    body=("CreateConversationItems", CONVERSATION_ITEMS),
    statuses=(409,),
)
async def create_items(caller: Caller, conversation_id: str, wanted: _Include, body: RawBody) -> ListOf[Item]:
    items = await beside(len(body), lambda: parse_conversation_items(body))
    await caller.runtime.stores.conversations.append(caller.tenant_id, conversation_id, items)
    return list_object([_shown(item, wanted.include) for item in items], has_more=False)


@router.get("/conversations/{conversation_id}/items", "listConversationItems", "The items of a conversation")
async def list_items(
    caller: Caller, conversation_id: str, page: Annotated[PageWithIncludes, query_of(PageWithIncludes)]
) -> ListOf[Item]:
    found = await caller.runtime.stores.conversations.page(await _conversation(caller, conversation_id), page)
    whole = await caller.runtime.stores.contents_of(caller.tenant_id, frozenset(page.include)).items(found.entries)
    return list_object([_shown(item, page.include) for item in whole], has_more=found.has_more)


@router.get("/conversations/{conversation_id}/items/{item_id}", "retrieveConversationItem", "One item")
async def retrieve_item(caller: Caller, conversation_id: str, item_id: str, wanted: _Include) -> Item:
    item = await caller.runtime.stores.conversations.item(await _conversation(caller, conversation_id), item_id)
    (whole,) = await caller.runtime.stores.contents_of(caller.tenant_id, frozenset(wanted.include)).items([item])
    return _shown(whole, wanted.include)


@router.delete(
    "/conversations/{conversation_id}/items/{item_id}",
    "deleteConversationItem",
    "Remove an item; answers the conversation",
    statuses=(409,),
)
async def delete_item(caller: Caller, conversation_id: str, item_id: str) -> Conversation:
    """Answers the conversation, as OpenAI does, not a deletion object."""
    conversation = await _conversation(caller, conversation_id)
    await caller.runtime.stores.conversations.delete_item(conversation, item_id)
    return as_object(conversation)


async def _conversation(caller: Caller, conversation_id: str) -> ConversationRecord:
    return await caller.runtime.stores.conversations.get(caller.tenant_id, conversation_id)


def _shown(item: Mapping[str, Any], include: Iterable[str]) -> Item:
    return cast("Item", listed_item(dict(item), include))
