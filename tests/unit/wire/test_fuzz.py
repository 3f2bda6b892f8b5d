"""Whatever arrives, the parser answers with a request or with an ApiError, and what it accepts can be written again."""

import dataclasses
from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.api.view import listed_item
from moorage.errors import ApiError
from moorage.loop.create import echo
from moorage.wire.create import CREATE
from moorage.wire.items import REFUSED_ITEMS, SHAPES
from moorage.wire.requests import parse_conversation_create, parse_create, parse_create_event, parse_input_tokens
from moorage.wire.responses import ResponseState, response_object
from moorage.wire.tools import TOOL

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
words = st.sampled_from(
    ["auto", "message", "user", "assistant", "input_text", "output_text", "function", "required", "local", "allowlist", "x", ""]
)
names = st.sampled_from(
    [
        "type",
        "id",
        "role",
        "content",
        "text",
        "name",
        "input",
        "output",
        "call_id",
        "arguments",
        "action",
        "commands",
        "environment",
        "network_policy",
        "allowed_domains",
        "domain_secrets",
        "domain",
        "value",
        "tools",
        "format",
        "schema",
        "mode",
        "status",
        "phase",
        "summary",
        "operation",
        "path",
        "diff",
        "image_url",
        "file_id",
        "detail",
        "skills",
        "container_id",
        "memory_limit",
        "parameters",
        "definition",
        "syntax",
        "execution",
        "caller",
    ]
)
anything = st.recursive(
    scalars | words | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | st.text(max_size=5), inner, max_size=6),
    max_leaves=20,
)
objects = st.dictionaries(names | st.text(max_size=5), anything, max_size=6)


def tagged(tags: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda tag, fields: {**fields, "type": tag}, st.sampled_from(tags), objects)


items = tagged(sorted(SHAPES.keys() - REFUSED_ITEMS.keys())) | objects
tools = tagged(sorted(TOOL.variants)) | objects
bodies = st.builds(
    lambda fields, given_items, given_tools: {"model": "m", "input": given_items, "tools": given_tools, **fields},
    st.dictionaries(st.sampled_from(sorted(CREATE.fields)), anything, max_size=5),
    st.lists(items, max_size=4) | st.text(max_size=5),
    st.lists(tools, max_size=3),
)


def attempt(parse: Callable[[bytes], Any], body: bytes) -> Any:
    """What the parser made of the body: its own object, or the error that it answers with."""
    try:
        return parse(body)
    except ApiError as error:
        return error


def check(body: bytes) -> None:
    request = attempt(parse_create, body)
    if isinstance(request, ApiError):
        assert request.status == 400
        orjson.dumps(request.envelope())
        return
    orjson.dumps(dataclasses.asdict(request))
    orjson.dumps(response_object(ResponseState("resp_1", 1, "in_progress", echo(request, "cntr_1"))))
    for item in request.input_items:
        orjson.dumps(listed_item(item))


@given(bodies)
@settings(max_examples=300, deadline=None)
def test_a_body_that_resembles_a_request_is_parsed_or_refused(body: dict[str, Any]) -> None:
    check(orjson.dumps(body))


@given(anything)
@settings(max_examples=100, deadline=None)
def test_any_json_is_parsed_or_refused(body: Any) -> None:
    check(orjson.dumps(body))


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    check(body)


@given(bodies)
@settings(max_examples=100, deadline=None)
def test_the_other_requests_are_parsed_or_refused(body: dict[str, Any]) -> None:
    frame = {**body, "type": "response.create"}
    counted = {name: body[name] for name in ("model", "input", "tools")}
    results = [
        attempt(parse_create_event, orjson.dumps(frame)),
        attempt(parse_input_tokens, orjson.dumps(counted)),
        attempt(parse_conversation_create, orjson.dumps({"items": body["input"]})),
    ]
    assert all(not isinstance(result, ApiError) or result.status == 400 for result in results)


@given(st.lists(items, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_what_was_accepted_once_is_accepted_again_unchanged(given_items: list[dict[str, Any]]) -> None:
    first = attempt(parse_create, orjson.dumps({"model": "m", "input": given_items}))
    if not isinstance(first, ApiError):
        assert parse_create(orjson.dumps({"model": "m", "input": list(first.input_items)})).input_items == first.input_items
