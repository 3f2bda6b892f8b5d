"""``/v1/conversations`` and their items."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.view import listed_item
from moorage.store.conversations import ConversationRecord, as_object
from moorage.wire.queries import PageQuery, parse_page
from moorage.wire.requests import parse_conversation_create, parse_conversation_items, parse_conversation_update
from moorage.wire.responses import deleted, list_object

router = APIRouter()


async def _page(request: Request) -> PageQuery:
    return parse_page(request.query_params.multi_items())


_Page = Annotated[PageQuery, Depends(_page)]


@router.post("/conversations")
async def create(caller: Caller, body: RawBody) -> dict[str, Any]:
    wanted = parse_conversation_create(body)
    return as_object(await caller.runtime.conversations.create(caller.tenant_id, metadata=wanted.metadata, items=wanted.items))


@router.get("/conversations/{conversation_id}")
async def retrieve(caller: Caller, conversation_id: str) -> dict[str, Any]:
    return as_object(await _conversation(caller, conversation_id))


@router.post("/conversations/{conversation_id}")
async def update(caller: Caller, conversation_id: str, body: RawBody) -> dict[str, Any]:
    metadata = parse_conversation_update(body)
    return as_object(await caller.runtime.conversations.update(caller.tenant_id, conversation_id, metadata))


@router.delete("/conversations/{conversation_id}")
async def delete(caller: Caller, conversation_id: str) -> dict[str, Any]:
    await caller.runtime.conversations.delete(caller.tenant_id, conversation_id)
    return deleted(conversation_id, "conversation.deleted")


@router.post("/conversations/{conversation_id}/items")
async def create_items(caller: Caller, conversation_id: str, page: _Page, body: RawBody) -> dict[str, Any]:
    items = parse_conversation_items(body)
    await caller.runtime.conversations.append(caller.tenant_id, conversation_id, items)
    return list_object([listed_item(item, page.include) for item in items], has_more=False)


@router.get("/conversations/{conversation_id}/items")
async def list_items(caller: Caller, conversation_id: str, page: _Page) -> dict[str, Any]:
    found = await caller.runtime.conversations.page(await _conversation(caller, conversation_id), page)
    whole = await caller.runtime.contents_of(caller.tenant_id).items(found.items)
    return list_object([listed_item(item, page.include) for item in whole], has_more=found.has_more)


@router.get("/conversations/{conversation_id}/items/{item_id}")
async def retrieve_item(caller: Caller, conversation_id: str, item_id: str, page: _Page) -> dict[str, Any]:
    item = await caller.runtime.conversations.item(await _conversation(caller, conversation_id), item_id)
    (whole,) = await caller.runtime.contents_of(caller.tenant_id).items([item])
    return listed_item(whole, page.include)


@router.delete("/conversations/{conversation_id}/items/{item_id}")
async def delete_item(caller: Caller, conversation_id: str, item_id: str) -> dict[str, Any]:
    """Answers the conversation, as OpenAI does, not a deletion object."""
    conversation = await _conversation(caller, conversation_id)
    await caller.runtime.conversations.delete_item(conversation, item_id)
    return as_object(conversation)


async def _conversation(caller: Caller, conversation_id: str) -> ConversationRecord:
    return await caller.runtime.conversations.get(caller.tenant_id, conversation_id)
