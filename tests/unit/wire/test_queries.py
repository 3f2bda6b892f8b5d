"""Query strings: each is read by the dataclass that describes it."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from moorage.errors import ApiError
from moorage.wire.queries import OldestFirstPage, PageQuery, PageWithIncludes, ResponsesPage, Retrieval, UsageQuery
from moorage.wire.query_strings import FLAG, METADATA, TEXT, Query, QueryReader, refused, whole_number

_page = QueryReader(PageQuery)
_items = QueryReader(PageWithIncludes)
_retrieval = QueryReader(Retrieval)


@dataclass(frozen=True, slots=True)
class Boxes:
    size: Annotated[int, whole_number(1, 9)] = 3
    at: Annotated[int | None, whole_number()] = None
    is_open: Annotated[bool, FLAG] = False
    colour: Annotated[str, TEXT] = ""
    metadata: Annotated[object, METADATA] = None
    lid: Annotated[str | None, refused("Boxes have none.")] = None
    seen: int = 0


def test_one_dataclass_describes_a_query_to_readers_and_to_the_document() -> None:
    boxes = QueryReader(Boxes)
    assert boxes([("size", "4"), ("is_open", "1"), ("metadata[a[b]]", "c"), ("colour", "")]) == Boxes(4, None, True, "", {"a[b]": "c"})
    assert boxes.schemas == (
        ("size", {"type": "integer", "minimum": 1, "maximum": 9, "default": 3}),
        ("at", {"type": "integer", "minimum": 0}),
        ("is_open", {"type": "boolean", "default": False}),
        ("colour", {"type": "string"}),
        ("metadata[team]", {"type": "string"}),
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ([("lid", "x")], "Unsupported parameter: 'lid'. Boxes have none."),
        ([("seen", "1")], "Unknown parameter: 'seen'."),
        ([("colours", "1")], "Unknown parameter: 'colours'. Did you mean 'colour'?"),
        ([("size[]", "1")], "Unknown parameter: 'size[]'."),
        ([("metadata", "x")], "Unknown parameter: 'metadata'."),
    ],
)
def test_what_a_query_does_not_take_is_refused_by_name(query: Query, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        QueryReader(Boxes)(query)
    assert refusal.value.message == message


def test_a_query_may_leave_out_what_it_does_not_know() -> None:
    assert QueryReader(Boxes, ignores_others=True)([("seen", "1"), ("size", "2")]) == Boxes(size=2)


def test_a_listing_has_the_defaults_of_the_api() -> None:
    assert _page([]) == PageQuery(limit=20, order="desc", after=None)
    assert QueryReader(OldestFirstPage)([]) == OldestFirstPage(limit=20, order="asc", after=None)


def test_includes_are_repeated_with_or_without_brackets() -> None:
    query = [
        ("include[]", "message.input_image.image_url"),
        ("include[]", "reasoning.encrypted_content"),
        ("include", "message.input_image.image_url"),
    ]
    assert _items(query).include == ("message.input_image.image_url", "reasoning.encrypted_content")


def test_a_page_is_read_from_its_query() -> None:
    assert _page([("limit", "5"), ("order", "asc"), ("after", "msg_1")]) == PageQuery(limit=5, order="asc", after="msg_1")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("limit", "0", "integer_below_min_value"),
        ("limit", "-1", "integer_below_min_value"),
        ("limit", "-", "invalid_type"),
        ("limit", "101", "integer_above_max_value"),
        ("limit", "many", "invalid_type"),
        ("limit", "٣", "invalid_type"),
        ("limit", "9" * 5000, "invalid_type"),
        ("limit", "", "invalid_type"),
        ("order", "up", "invalid_value"),
        ("before", "msg_1", "unsupported_parameter"),
        ("colour", "red", "unknown_parameter"),
    ],
)
def test_a_bad_query_of_a_listing_is_refused(name: str, value: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        _page([(name, value)])
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, name, code)


def test_a_bad_include_is_refused_where_it_stands() -> None:
    with pytest.raises(ApiError) as refused:
        _items([("include[]", "reasoning.encrypted_content"), ("include[]", "all")])
    assert refused.value.param == "include[1]"


def test_the_responses_of_several_statuses_are_asked_for_at_once() -> None:
    assert QueryReader(ResponsesPage)([("status", "failed, queued")]).statuses == {"failed", "queued"}


def test_a_stream_is_resumed_after_an_event() -> None:
    assert _retrieval([]) == Retrieval()
    assert _retrieval([("beta", "true")]) == Retrieval()
    assert _retrieval([("stream", "true"), ("starting_after", "0"), ("include_obfuscation", "false")]) == Retrieval(
        stream=True, starting_after=0, include_obfuscation=False
    )


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ([("starting_after", "3")], "starting_after"),
        ([("stream", "true"), ("starting_after", "-1")], "starting_after"),
        ([("stream", "true"), ("at", "1")], "at"),
        ([("stream", "maybe")], "stream"),
    ],
)
def test_a_bad_query_of_a_retrieval_is_refused(query: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        _retrieval(query)
    assert refused.value.param == param


def test_days_of_usage_are_whole() -> None:
    usage = QueryReader(UsageQuery)([("from", "2026-01-02"), ("to", "2026-01-02")])
    assert usage.span(0) == (1_767_312_000, 1_767_398_399)
