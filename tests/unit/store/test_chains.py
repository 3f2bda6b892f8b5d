"""The records of a chain: its links, and what each response adds to it."""

import random
import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moorage import ids, limits
from moorage.store import keys
from moorage.store.chain_parts import ChainPart, KnownParts, last_event, part_of
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.responses import Ancestor, Responses, StoredResponse, pack_ancestors, unpack_ancestors
from moorage.wire.parameters import Parameters
from moorage.wire.types import Event, Item

from tests.unit.store.memory import MemoryBlobs, MemoryTable


def test_the_links_of_a_chain_come_back_from_the_table_in_their_order() -> None:
    links = tuple(Ancestor(ids.new_response_id(0), number) for number in (0, 7, 1_000_000))
    assert unpack_ancestors(pack_ancestors(links)) == links


def test_a_link_takes_24_bytes() -> None:
    assert len(pack_ancestors([Ancestor(ids.new_response_id(0), 3)] * 200)) == 200 * 24


# --- the parts of a chain --------------------------------------------------------------------------------------------------------


class Shelf:
    """Responses that have ended, each with an input and an output of its own."""

    def __init__(self) -> None:
        self.table, self.blobs = MemoryTable(), MemoryBlobs()
        self.responses = Responses(self.table, self.blobs, now_ms=lambda: 5_000, retention_seconds=1_000)

    async def ended(self, said: str, *, type_: str = "response.completed", status: str = "completed") -> tuple[Ancestor, ChainPart]:
        response_id = ids.new_response_id(0)
        asked, answer = _message("user", f"{said}?"), _message("assistant", said)
        stored = StoredResponse(response_id, "t", 5, Parameters("m"), {}, [asked], expires_at=1_000)
        deltas: list[Event] = [{"type": "response.output_text.delta", "delta": word} for word in said[:1_000]]
        final: Event = {"type": type_, "response": {"id": response_id, "status": status, "output": [answer]}}
        numbered = tuple(event | {"sequence_number": at} for at, event in enumerate([*deltas, final]))
        await self.responses.create(stored, EventBatch(0, numbered, LogWriterId(0, 1)))
        return Ancestor(response_id, 0), ChainPart([asked], [answer], status == "incomplete")


def _message(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": [{"type": "text", "text": text}]}


def _random_text(length: int) -> str:
    """zlib makes little less of it."""
    return random.Random(length).randbytes(length // 2).hex()


async def test_each_response_adds_its_input_and_output_in_the_order_of_the_chain() -> None:
    shelf = Shelf()
    ends = [
        ("response.completed", "completed", "short"),
        ("response.completed", "completed", _random_text(100_000)),
        ("response.incomplete", "incomplete", "cut"),
        ("response.failed", "failed", ""),
        ("response.completed", "completed", _random_text(2_000_000)),
        ("response.completed", "completed", "the end"),
    ]
    made = [await shelf.ended(said, type_=type_, status=status) for type_, status, said in ends]
    links, parts = [link for link, _ in made], [part for _, part in made]
    assert [await shelf.responses.parts("t", links), await shelf.responses.parts("t", links[::-1])] == [parts, parts[::-1]]
    assert [(await shelf.responses.snapshot("t", link.response_id)).part for link in links] == parts


async def test_a_response_that_was_deleted_or_is_another_tenants_adds_nothing() -> None:
    shelf = Shelf()
    (first, one), (second, _), (third, three) = [await shelf.ended(said) for said in ("1", "2", "3")]
    await shelf.responses.delete("t", second.response_id)
    assert await shelf.responses.parts("t", [first, second, third]) == [one, three]
    assert await shelf.responses.parts("other", [first, second, third]) == []


async def test_a_response_without_its_last_batch_adds_nothing() -> None:
    shelf = Shelf()
    link, _ = await shelf.ended("1")
    await shelf.table.write_many(deletes=[(keys.response("t", link.response_id), keys.event(0))])
    assert await shelf.responses.parts("t", [link]) == []


async def test_a_response_that_has_not_ended_adds_its_input_alone() -> None:
    shelf = Shelf()
    link, part = await shelf.ended("1", type_="response.in_progress", status="in_progress")
    assert await shelf.responses.parts("t", [link]) == [ChainPart(part.input_items)]


# --- the last event of a batch ---------------------------------------------------------------------------------------------------


def test_only_the_last_event_of_a_batch_is_parsed() -> None:
    assert last_event(b'[never read,{"type":"response.completed","response":{}}]') == {"type": "response.completed", "response": {}}


_LOOKS_LIKE_ONE: dict[str, Any] = {"type": "response.completed", "response": {}}
_EVENTS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.just(_LOOKS_LIKE_ONE),
        st.sampled_from(['x,{"type":"response.', ",{", "]", "}"]),
        st.none(),
        st.dictionaries(st.text(), st.text()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.builds(lambda value: {"a": 1, "type": "response.x", "value": value}, inner)
    ),
    max_leaves=6,
)


@given(st.lists(st.builds(lambda value: {"type": "response.x", "value": value}, _EVENTS) | _EVENTS, min_size=1, max_size=4))
def test_the_last_event_is_found_whatever_it_holds(events: list[Any]) -> None:
    assert last_event(orjson.dumps(events)) == events[-1]


@pytest.mark.parametrize("tail", [[_LOOKS_LIKE_ONE], [1, _LOOKS_LIKE_ONE], [1, _LOOKS_LIKE_ONE, 2]])
def test_an_object_that_looks_like_an_event_is_none(tail: list[Any]) -> None:
    event = {"type": "response.completed", "response": {"tail": tail}}
    assert last_event(orjson.dumps([{"type": "response.created"}, event])) == event


# --- parts that were read before -------------------------------------------------------------------------------------------------


def _packed(said: str) -> tuple[bytes, bytes]:
    """The bodies of a record and of its last batch."""
    final = {"type": "response.completed", "response": {"status": "completed", "output": [_message("assistant", said)]}}
    return zlib.compress(orjson.dumps({"input": [_message("user", said)]})), zlib.compress(orjson.dumps([final]))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_part_that_is_known_is_the_same_with_items_of_its_own() -> None:
    known, bodies = KnownParts(), _packed("hello")
    first, again = known.part_of("t", *bodies), known.part_of("t", *bodies)
    assert first == again == part_of(*bodies)
    first.input_items.clear()
    first.output[0].clear()
    assert known.part_of("t", *bodies) == again


def test_parts_are_known_by_their_tenant_and_by_both_of_their_records() -> None:
    known, (one_body, one_batch), (other_body, other_batch) = KnownParts(), _packed("one"), _packed("other")
    pairs = [(one_body, one_batch), (one_body, other_batch), (other_body, one_batch), (other_body, other_batch)]
    assert [known.part_of("t", *pair) for pair in pairs] == [part_of(*pair) for pair in pairs]
    assert [known.part_of("t", *pair) for pair in pairs] == [part_of(*pair) for pair in pairs]
    assert held(known) == 4
    known.part_of("u", one_body, one_batch)
    assert held(known) == 5


def held(known: KnownParts) -> int:
    return len(known._recent) + len(known._older)


def test_what_is_known_of_parts_is_bounded_in_bytes_and_by_part() -> None:
    known = KnownParts()
    long = _packed("x" * 100_000)
    assert (known.part_of("t", *long), held(known)) == (part_of(*long), 0)
    for n in range(300):
        known.part_of("t", *_packed(f"{n} {'y' * 30_000}"))
        bodies = [*known._recent.values(), *known._older.values()]
        assert sum(map(len, bodies)) <= limits.CHAIN_PARTS_KEPT_BYTES_MAX
    assert 50 < held(known) < 150


def test_parts_that_nobody_asks_for_are_let_go() -> None:
    clock = Clock()
    known = KnownParts(clock)
    asked_for, other = _packed("asked for"), _packed("other")
    assert known.let_go() is None
    known.part_of("t", *asked_for)
    known.part_of("t", *other)
    clock.now += limits.CHAIN_PARTS_KEPT_SECONDS - 10
    assert (known.let_go(), held(known)) == (10, 2)
    clock.now += 10
    assert (known.let_go(), held(known)) == (limits.CHAIN_PARTS_KEPT_SECONDS, 2)
    known.part_of("t", *asked_for)
    clock.now += limits.CHAIN_PARTS_KEPT_SECONDS
    known.let_go()
    assert held(known) == 1
    clock.now += limits.CHAIN_PARTS_KEPT_SECONDS
    assert (known.let_go(), held(known)) == (None, 0)


async def test_a_response_that_is_deleted_elsewhere_is_not_known_any_more() -> None:
    shelf = Shelf()
    (first, one), (second, two) = [await shelf.ended(said) for said in ("1", "2")]
    assert await shelf.responses.parts("t", [first, second]) == [one, two]
    other_process = Responses(shelf.table, shelf.blobs, now_ms=lambda: 5_000, retention_seconds=1_000)
    await other_process.delete("t", first.response_id)
    assert await shelf.responses.parts("t", [first, second]) == [two]
