"""Query strings of listings and retrievals."""

from collections.abc import Callable

import pytest
from moorage.errors import ApiError
from moorage.wire.queries import (
    PageQuery,
    Query,
    Retrieval,
    parse_agent_version,
    parse_archive,
    parse_artifacts,
    parse_automations,
    parse_environment_files,
    parse_page,
    parse_retrieval,
    parse_screen,
    parse_session_delete,
    parse_session_list,
    parse_session_read,
    parse_session_stream,
    parse_tree,
    parse_vaults,
    parse_wanted,
)


def test_a_listing_has_the_defaults_of_the_api() -> None:
    assert parse_page([]) == PageQuery(limit=20, order="desc", after=None, include=())


def test_includes_are_repeated_with_or_without_brackets() -> None:
    query = [
        ("include[]", "message.input_image.image_url"),
        ("include[]", "reasoning.encrypted_content"),
        ("include", "message.input_image.image_url"),
    ]
    assert parse_page(query, takes_include=True).include == ("message.input_image.image_url", "reasoning.encrypted_content")


def test_a_page_is_read_from_its_query() -> None:
    query = [("limit", "5"), ("order", "asc"), ("after", "msg_1"), ("name", "box")]
    assert parse_page(query, others=("name",)) == PageQuery(limit=5, order="asc", after="msg_1")


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
        parse_page([(name, value)])
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, name, code)


def test_a_bad_include_is_refused_where_it_stands() -> None:
    with pytest.raises(ApiError) as refused:
        parse_page([("include[]", "reasoning.encrypted_content"), ("include[]", "all")], takes_include=True)
    assert refused.value.param == "include[1]"


WITHOUT_INCLUDE = (
    *(parse_page, parse_tree, parse_archive, parse_agent_version, parse_environment_files, parse_vaults, parse_wanted, parse_artifacts),
    *(parse_session_list, parse_session_stream, parse_session_delete, parse_session_read, parse_screen, parse_automations),
)


@pytest.mark.parametrize("parse", WITHOUT_INCLUDE, ids=lambda parse: parse.__name__)
def test_an_include_is_refused_by_name_where_nothing_can_be_included(parse: Callable[[Query], object]) -> None:
    with pytest.raises(ApiError) as refused:
        parse([("include[]", "reasoning.encrypted_content")])
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", "include")


def test_a_stream_is_resumed_after_an_event() -> None:
    assert parse_retrieval([]) == Retrieval()
    assert parse_retrieval([("beta", "true")]) == Retrieval()
    assert parse_retrieval([("stream", "true"), ("starting_after", "0"), ("include_obfuscation", "false")]) == Retrieval(
        stream=True, starting_after=0, include_obfuscation=False
    )


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ([("starting_after", "3")], "starting_after"),
        ([("stream", "true"), ("starting_after", "-1")], "starting_after"),
        ([("stream", "maybe")], "stream"),
    ],
)
def test_a_bad_query_of_a_retrieval_is_refused(query: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_retrieval(query)
    assert refused.value.param == param
