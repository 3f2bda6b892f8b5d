"""Conversations and their items with the real SDK: creation, both paginators, deletion, metadata; and headers that change nothing."""

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai.types.responses import EasyInputMessageParam

from tests.stack import Stack, say, script


def said(text: str) -> EasyInputMessageParam:
    return {"role": "user", "content": text}


def text_of(item: Any) -> str:
    return str(item.content[0].text)


def test_twenty_items_are_taken_at_once_and_twenty_one_refused(client: OpenAI) -> None:
    conversation = client.conversations.create()
    client.conversations.items.create(conversation.id, items=[said(f"line {n}") for n in range(20)])
    with pytest.raises(BadRequestError) as refused:
        client.conversations.items.create(conversation.id, items=[said(f"line {n}") for n in range(21)])
    assert refused.value.param == "items"
    assert len(list(client.conversations.items.list(conversation.id))) == 20


async def test_both_paginators_walk_over_all_items_in_either_order(client: OpenAI) -> None:
    lines = [f"line {n}" for n in range(20)]
    conversation = client.conversations.create(items=[said(line) for line in lines])
    upwards = client.conversations.items.list(conversation.id, order="asc", limit=7)
    assert [text_of(item) for item in upwards] == lines
    assert upwards.has_next_page()
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as same:
        downwards = [text_of(item) async for item in same.conversations.items.list(conversation.id, limit=6)]
    assert downwards == lines[::-1]


async def test_both_paginators_walk_over_the_input_of_a_response(client: OpenAI) -> None:
    lines = [f"line {n}" for n in range(9)]
    response = client.responses.create(model="demo", input=[said(line) for line in lines])
    assert [text_of(item) for item in client.responses.input_items.list(response.id, order="asc", limit=4)] == lines
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as same:
        found = [text_of(item) async for item in same.responses.input_items.list(response.id, limit=2)]
    assert found == lines[::-1]


def test_an_item_is_found_and_removed_by_its_id(client: OpenAI) -> None:
    conversation = client.conversations.create(items=[said("kept"), said("removed")])
    removed, kept = client.conversations.items.list(conversation.id)
    assert client.conversations.items.retrieve(removed.id or "", conversation_id=conversation.id) == removed
    assert client.conversations.items.delete(removed.id or "", conversation_id=conversation.id).id == conversation.id
    assert list(client.conversations.items.list(conversation.id)) == [kept]
    with pytest.raises(NotFoundError):
        client.conversations.items.retrieve(removed.id or "", conversation_id=conversation.id)


@pytest.mark.parametrize("name", ["", "\0", "\0\0x"])
def test_metadata_may_have_a_name_that_the_table_would_not_take(client: OpenAI, name: str) -> None:
    conversation = client.conversations.create(metadata={name: "tides", "place": "harbour"})
    assert client.conversations.retrieve(conversation.id).metadata == {name: "tides", "place": "harbour"}


def test_metadata_is_replaced_and_a_deleted_conversation_is_gone(client: OpenAI) -> None:
    conversation = client.conversations.create(metadata={"topic": "tides"})
    changed = client.conversations.update(conversation.id, metadata={"place": "harbour"})
    assert changed == conversation.model_copy(update={"metadata": {"place": "harbour"}})
    assert client.conversations.retrieve(conversation.id) == changed
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_a_response_adds_what_was_asked_and_answered(client: OpenAI) -> None:
    conversation = client.conversations.create()
    response = client.responses.create(model="demo", input="hello", conversation=conversation.id)
    asked, answered = client.conversations.items.list(conversation.id, order="asc")
    assert (text_of(asked), text_of(answered)) == ("hello", response.output_text)


def test_headers_of_other_versions_change_nothing(stack: Stack) -> None:
    headers = {"OpenAI-Beta": "responses=experimental", "X-Stainless-Lang": "cobol", "OpenAI-Organization": "org-1"}
    with OpenAI(base_url=stack.url, api_key=stack.key, default_headers=headers) as client:
        assert client.responses.create(model="demo", input="hello").status == "completed"


def test_a_response_whose_conversation_is_deleted_meanwhile_fails_and_says_so(client: OpenAI) -> None:
    conversation = client.conversations.create()
    words = script({"sleep_ms": 3000}, say("too late"))
    response = client.responses.create(model="demo", input=words, conversation=conversation.id, background=True)
    client.conversations.delete(conversation.id)
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert response.error is not None
    assert (response.status, response.error.code, response.error.param) == ("failed", "invalid_prompt", "conversation")
