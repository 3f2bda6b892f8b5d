import asyncio
import random
from typing import Any

import pytest
from moorage import limits
from moorage.conversations.store import ConversationRecord, Conversations
from moorage.errors import ApiError
from moorage.wire.queries import PageQuery

from tests.unit.resources.support import Clock, Store


def said(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "id": f"msg_{number}", "role": "user", "content": content}


def many(first: int, count: int, text: str = "hi") -> list[dict[str, Any]]:
    return [said(text, number) for number in range(first, first + count)]


@pytest.fixture
def conversations(store: Store, clock: Clock) -> Conversations:
    return Conversations(store.table, store.blobs, clock=clock)


async def ids(conversations: Conversations, conversation: ConversationRecord) -> list[str]:
    return [item["id"] for item in await conversations.load_items("ten", conversation.id)]


async def test_items_come_back_in_the_order_of_their_appends(conversations: Conversations) -> None:
    conversation = await conversations.create("ten", metadata={"a": "b"}, items=many(0, 3))
    await conversations.append("ten", conversation.id, many(3, 250))
    await conversations.append("ten", conversation.id, many(253, 2))
    assert await conversations.load_items("ten", conversation.id) == many(0, 255)
    assert (await conversations.get("ten", conversation.id)).metadata == {"a": "b"}


async def test_appends_too_large_for_the_table_come_back_whole(conversations: Conversations, store: Store) -> None:
    conversation = await conversations.create("ten", metadata={})
    texts = random.Random(1).randbytes(200_000).hex()
    items = many(0, 2, texts)
    await conversations.append("ten", conversation.id, items)
    assert len(store.objects()) == 1
    assert await conversations.load_items("ten", conversation.id) == items


async def test_appends_at_once_all_count_and_none_is_torn(conversations: Conversations) -> None:
    conversation = await conversations.create("ten", metadata={})
    writers = (conversations.append("ten", conversation.id, many(100 * n, 20), source=f"resp_{n}") for n in range(30))
    await asyncio.gather(*writers)
    numbers = [int(item_id.removeprefix("msg_")) for item_id in await ids(conversations, conversation)]
    blocks = [numbers[start : start + 20] for start in range(0, len(numbers), 20)]
    assert sorted(block[0] for block in blocks) == [100 * n for n in range(30)]
    assert all(block == list(range(block[0], block[0] + 20)) for block in blocks)


async def test_an_id_that_the_conversation_has_or_had_is_refused(conversations: Conversations, store: Store) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 2))
    await conversations.delete_item(conversation, "msg_1")
    long = random.Random(1).randbytes(200_000).hex()
    for number in (0, 1):
        with pytest.raises(ApiError, match=f"Duplicate item found with id msg_{number}"):
            await conversations.append("ten", conversation.id, [said("new", 2), said(long, number)])
    assert (await ids(conversations, conversation), store.objects()) == (["msg_0"], [])


async def test_a_response_is_appended_once_however_often_that_is_asked(conversations: Conversations, store: Store) -> None:
    conversation = await conversations.create("ten", metadata={})
    await asyncio.gather(*(conversations.append("ten", conversation.id, many(0, 2), source="resp_1") for _ in range(4)))
    await conversations.append("ten", conversation.id, many(2, 2), source="resp_2")
    await conversations.append("ten", conversation.id, many(0, 2), source="resp_1")
    assert await ids(conversations, conversation) == ["msg_0", "msg_1", "msg_2", "msg_3"]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_pages_add_up_to_the_whole(conversations: Conversations, order: Any, limit: int) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 5))
    for start in range(5, 40, 3):
        await conversations.append("ten", conversation.id, many(start, 3))
    conversation = await conversations.get("ten", conversation.id)
    whole = await ids(conversations, conversation)
    read: list[str] = []
    page = await conversations.page(conversation, PageQuery(limit=limit, order=order))
    while True:
        read += [item["id"] for item in page.entries]
        if not page.has_more:
            break
        page = await conversations.page(conversation, PageQuery(limit=limit, order=order, after=read[-1]))
    assert read == (whole if order == "asc" else whole[::-1])


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_of_long_items_is_shorter(conversations: Conversations, order: Any) -> None:
    """A hundred items may be as large as a hundred bodies."""
    conversation = await conversations.create("ten", metadata={}, items=many(0, 1, "a" * (limits.PAGE_BYTES_MAX // 2)))
    for number in range(1, 5):
        await conversations.append("ten", conversation.id, many(number, 1, "a" * (limits.PAGE_BYTES_MAX // 2)))
    current, seen = await conversations.get("ten", conversation.id), list[list[str]]()
    page = await conversations.page(current, PageQuery(limit=100, order=order))
    seen.append([item["id"] for item in page.entries])
    while page.has_more:
        page = await conversations.page(current, PageQuery(limit=100, order=order, after=seen[-1][-1]))
        seen.append([item["id"] for item in page.entries])
    pages = [["msg_0", "msg_1"], ["msg_2", "msg_3"], ["msg_4"]]
    assert seen == (pages if order == "asc" else [["msg_4", "msg_3"], ["msg_2", "msg_1"], ["msg_0"]])


async def test_a_deleted_item_is_gone_but_still_marks_its_place(conversations: Conversations) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 4))
    await conversations.delete_item(conversation, "msg_1")
    assert await ids(conversations, conversation) == ["msg_0", "msg_2", "msg_3"]
    page = await conversations.page(conversation, PageQuery(order="asc", after="msg_1"))
    assert [item["id"] for item in page.entries] == ["msg_2", "msg_3"]
    for call in (conversations.item, conversations.delete_item):
        with pytest.raises(ApiError) as caught:
            await call(conversation, "msg_1")
        assert caught.value.status == 404


async def test_deletions_at_once_all_count(conversations: Conversations) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 6))
    await asyncio.gather(*(conversations.delete_item(conversation, f"msg_{n}") for n in range(5)))
    assert await ids(conversations, conversation) == ["msg_5"]


async def test_deleting_a_conversation_leaves_nothing(conversations: Conversations, store: Store) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 4))
    await conversations.append("ten", conversation.id, many(4, 1), source="resp_1")
    await conversations.delete("ten", conversation.id)
    assert (store.records(), store.objects()) == ([], [])
    with pytest.raises(ApiError) as caught:
        await conversations.append("ten", conversation.id, many(5, 1))
    assert caught.value.status == 404


async def test_a_response_of_a_deleted_conversation_names_the_field(conversations: Conversations, store: Store) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 2))
    await conversations.append("ten", conversation.id, many(2, 1), source="resp_1")
    await conversations.delete("ten", conversation.id)
    for source in ("resp_1", "resp_2"):
        with pytest.raises(ApiError) as caught:
            await conversations.append("ten", conversation.id, many(3, 1), source=source)
        assert (caught.value.status, caught.value.param) == (404, "conversation"), source
        assert f"'{conversation.id}'" in caught.value.message
    assert (store.records(), store.objects()) == ([], [])


async def test_an_unknown_after_is_refused(conversations: Conversations) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 4))
    with pytest.raises(ApiError) as caught:
        await conversations.page(conversation, PageQuery(after="msg_none"))
    assert (caught.value.status, caught.value.param) == (400, "after")


async def test_an_append_can_take_the_place_of_those_since_which_are_kept(conversations: Conversations, store: Store) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 1))
    for number in (1, 2, 3):
        await conversations.append("ten", conversation.id, many(number, 1), source=f"resp_{number}")
    await conversations.append("ten", conversation.id, many(10, 2), source="resp_fork", instead_of=2)
    await conversations.append("ten", conversation.id, many(10, 2), source="resp_fork", instead_of=2)
    await conversations.append("ten", conversation.id, many(20, 1))
    left = ["msg_0", "msg_1", "msg_10", "msg_11", "msg_20"]
    assert await ids(conversations, conversation) == left
    current = await conversations.get("ten", conversation.id)
    assert (current.batches, current.cuts) == (6, ((2, 4),))
    for order, expected in (("asc", left), ("desc", left[::-1])):
        page = await conversations.page(current, PageQuery(limit=100, order=order))  # type: ignore[arg-type]
        assert [item["id"] for item in page.entries] == expected
    after = await conversations.page(current, PageQuery(limit=2, order="asc", after="msg_2"))
    assert [item["id"] for item in after.entries] == ["msg_10", "msg_11"], "who pages through it goes on behind what was taken out"
    with pytest.raises(ApiError):
        await conversations.item(current, "msg_2")
    with pytest.raises(ApiError):
        await conversations.append("ten", conversation.id, many(3, 1))
    assert sum(item["SK"]["S"].startswith("BATCH#") for item in store.records()) == 6


async def test_what_was_there_before_an_item_is_told_with_the_place_of_its_append(conversations: Conversations) -> None:
    conversation = await conversations.create("ten", metadata={}, items=many(0, 1))
    await conversations.append("ten", conversation.id, many(1, 2))
    await conversations.append("ten", conversation.id, many(3, 1))
    assert await conversations.items_before("ten", conversation.id, ["msg_2"]) == (many(0, 1), 1)
    assert await conversations.items_before("ten", conversation.id, ["msg_9"]) == (many(0, 4), 3)
    # What is put there again counts where it stands now.
    await conversations.append("ten", conversation.id, many(1, 1), source="resp_fork", instead_of=1)
    assert await conversations.items_before("ten", conversation.id, ["msg_1"]) == (many(0, 1), 3)


async def test_rewinding_again_joins_what_was_cut_and_is_bounded(conversations: Conversations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONVERSATION_REWINDS_MAX", 2)
    conversation = await conversations.create("ten", metadata={}, items=many(0, 1))
    for number in range(1, 5):
        await conversations.append("ten", conversation.id, many(number, 1), source=f"a_{number}", instead_of=1)
    assert (await conversations.get("ten", conversation.id)).cuts == ((1, 4),)
    await conversations.append("ten", conversation.id, many(5, 1))
    await conversations.append("ten", conversation.id, many(6, 1), source="b", instead_of=5)
    with pytest.raises(ApiError) as refused:
        await conversations.append("ten", conversation.id, many(7, 1), source="c", instead_of=6)
    assert refused.value.param == "rewind"
    with pytest.raises(ApiError):
        await conversations.check_rewind("ten", conversation.id)
    assert await ids(conversations, conversation) == ["msg_0", "msg_4", "msg_6"]
