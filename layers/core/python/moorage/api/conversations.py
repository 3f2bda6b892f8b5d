"""``/v1/conversations`` and their items."""

from typing import Any

from fastapi import APIRouter, Request

from moorage.api.bodies import read_body
from moorage.runtime import Runtime
from moorage.store.conversations import Conversation, as_object
from moorage.wire.queries import parse_page
from moorage.wire.requests import parse_conversation_create, parse_conversation_items, parse_conversation_update
from moorage.wire.responses import deleted, list_object, listed_item

router = APIRouter()


@router.post("/conversations")
async def create(request: Request) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    wanted = parse_conversation_create(await read_body(request))
    return as_object(
        await runtime.conversations.create(request.state.tenant_id, metadata=wanted.metadata, items=wanted.items)
    )


@router.get("/conversations/{conversation_id}")
async def retrieve(request: Request, conversation_id: str) -> dict[str, Any]:
    return as_object(await _conversation(request, conversation_id))


@router.post("/conversations/{conversation_id}")
async def update(request: Request, conversation_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    metadata = parse_conversation_update(await read_body(request))
    return as_object(await runtime.conversations.update(request.state.tenant_id, conversation_id, metadata))


@router.delete("/conversations/{conversation_id}")
async def delete(request: Request, conversation_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    await runtime.conversations.delete(request.state.tenant_id, conversation_id)
    return deleted(conversation_id, "conversation.deleted")


@router.post("/conversations/{conversation_id}/items")
async def create_items(request: Request, conversation_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    include = parse_page(request.query_params.multi_items()).include
    items = parse_conversation_items(await read_body(request))
    await runtime.conversations.append(request.state.tenant_id, conversation_id, items)
    return list_object([listed_item(item, include) for item in items], has_more=False)


@router.get("/conversations/{conversation_id}/items")
async def list_items(request: Request, conversation_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    page = parse_page(request.query_params.multi_items())
    found = await runtime.conversations.page(await _conversation(request, conversation_id), page)
    return list_object([listed_item(item, page.include) for item in found.items], has_more=found.has_more)


@router.get("/conversations/{conversation_id}/items/{item_id}")
async def retrieve_item(request: Request, conversation_id: str, item_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    include = parse_page(request.query_params.multi_items()).include
    item = await runtime.conversations.item(await _conversation(request, conversation_id), item_id)
    return listed_item(item, include)


@router.delete("/conversations/{conversation_id}/items/{item_id}")
async def delete_item(request: Request, conversation_id: str, item_id: str) -> dict[str, Any]:
    """Answers the conversation, as OpenAI does, not a deletion object."""
    runtime: Runtime = request.app.state.runtime
    conversation = await _conversation(request, conversation_id)
    await runtime.conversations.delete_item(conversation, item_id)
    return as_object(conversation)


async def _conversation(request: Request, conversation_id: str) -> Conversation:
    runtime: Runtime = request.app.state.runtime
    return await runtime.conversations.get(request.state.tenant_id, conversation_id)
