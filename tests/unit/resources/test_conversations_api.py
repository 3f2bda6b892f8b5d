from typing import Any

import openai
import pytest

from tests.unit.resources.service import Service


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(items: list[Any]) -> list[str]:
    return [item.content[0].text for item in items]


async def conversation(service: Service, count: int = 0) -> Any:
    return await service.sdk.conversations.create(items=[said(str(n)) for n in range(count)])  # type: ignore[misc]


async def test_a_conversation_is_made_read_changed_and_deleted(service: Service) -> None:
    made = await service.sdk.conversations.create(metadata={"topic": "a"})
    assert made.to_dict() == {
        "id": made.id,
        "object": "conversation",
        "created_at": int(service.clock()),
        "metadata": {"topic": "a"},
    }
    assert made.id.startswith("conv_")
    changed = await service.sdk.conversations.update(made.id, metadata={"topic": "b"})
    assert changed.to_dict() == {**made.to_dict(), "metadata": {"topic": "b"}}
    assert (await service.sdk.conversations.retrieve(made.id)).to_dict() == changed.to_dict()
    gone = await service.sdk.conversations.delete(made.id)
    assert gone.to_dict() == {"id": made.id, "object": "conversation.deleted", "deleted": True}
    for call in (service.sdk.conversations.retrieve, service.sdk.conversations.delete, service.sdk.conversations.items.list):
        with pytest.raises(openai.NotFoundError):
            await call(made.id)
    with pytest.raises(openai.NotFoundError):
        await service.sdk.conversations.update(made.id, metadata={})


async def test_a_request_without_a_body_makes_an_empty_conversation(service: Service) -> None:
    answer = await service.http.post("/conversations")
    assert answer.status_code == 200
    items = await service.http.get(f"/conversations/{answer.json()['id']}/items")
    assert items.json() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_items_are_listed_complete_and_newest_first(service: Service) -> None:
    made = await conversation(service, 2)
    added = await service.sdk.conversations.items.create(made.id, items=[said("2"), said("3")])  # type: ignore[list-item]
    assert texts(added.data) == ["2", "3"]
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[1].id)
    listed = await service.sdk.conversations.items.list(made.id)
    assert texts(listed.data) == ["3", "2", "1", "0"]
    assert listed.data[0].to_dict() == {
        "type": "message",
        "id": added.data[1].id,
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": "3"}],
    }
    one = await service.sdk.conversations.items.retrieve(added.data[1].id or "", conversation_id=made.id)
    assert one.to_dict() == listed.data[0].to_dict()


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_the_sdk_pages_through_the_items_by_the_last_id(service: Service, order: Any) -> None:
    made = await conversation(service, 20)
    await service.sdk.conversations.items.create(made.id, items=[said(str(n)) for n in range(20, 33)])  # type: ignore[misc]
    read = texts([item async for item in service.sdk.conversations.items.list(made.id, limit=7, order=order)])
    whole = [str(n) for n in range(33)]
    assert read == (whole if order == "asc" else whole[::-1])


async def test_deleting_an_item_answers_the_conversation(service: Service) -> None:
    made = await conversation(service, 3)
    listed = await service.sdk.conversations.items.list(made.id, order="asc")
    answer = await service.sdk.conversations.items.delete(listed.data[1].id or "", conversation_id=made.id)
    assert answer.to_dict() == made.to_dict()
    assert texts((await service.sdk.conversations.items.list(made.id, order="asc")).data) == ["0", "2"]


async def test_deleting_items_while_paging_reaches_every_one(service: Service) -> None:
    made = await conversation(service, 7)
    async for item in service.sdk.conversations.items.list(made.id, limit=2):
        await service.sdk.conversations.items.delete(item.id or "", conversation_id=made.id)
    assert (await service.sdk.conversations.items.list(made.id)).data == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [said(str(n)) for n in range(21)]}, "items"),
        ({"items": [{"type": "message", "role": "user"}]}, "items[0].content"),
        ({"items": [{"type": "nonsense"}]}, "items[0].type"),
        ({"metadata": {"k": 5}}, "metadata.k"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_wrong_conversation_is_refused_by_name(service: Service, body: dict[str, Any], param: str) -> None:
    answer = await service.http.post("/conversations", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_another_tenant_sees_nothing_of_a_conversation(service: Service) -> None:
    made = await conversation(service, 1)
    item_id = (await service.sdk.conversations.items.list(made.id)).data[0].id or ""
    stranger = service.stranger.conversations
    for call in (
        stranger.retrieve(made.id),
        stranger.update(made.id, metadata={}),
        stranger.delete(made.id),
        stranger.items.list(made.id),
        stranger.items.create(made.id, items=[said("x")]),  # type: ignore[list-item]
        stranger.items.retrieve(item_id, conversation_id=made.id),
        stranger.items.delete(item_id, conversation_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    assert texts((await service.sdk.conversations.items.list(made.id)).data) == ["0"]
