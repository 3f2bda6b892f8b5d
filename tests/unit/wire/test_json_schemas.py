"""Schemas that a request brings, as OpenAI's API checks them on entry."""

from typing import Any

import orjson
import pytest
from moorage.errors import ApiError
from moorage.wire.chat import parse_chat
from moorage.wire.json_schemas import fault_of
from moorage.wire.requests import parse_create

Schema = dict[str, Any]


def closed(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT: Schema = {"type": "string"}

ALLOWED: dict[str, Schema] = {
    "an empty object": closed(),
    "nested objects": closed(a=closed(b=TEXT)),
    "a property that may be null": closed(a={"type": ["string", "null"]}),
    "a list of objects": closed(a={"type": "array", "items": closed(b=TEXT)}),
    "alternatives": closed(a={"anyOf": [closed(b=TEXT), {"type": "null"}]}),
    "definitions that refer to themselves": closed(a={"$ref": "#/$defs/node"})
    | {"$defs": {"node": closed(next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})}},
    "properties with the names of keywords": closed(type=TEXT, required=TEXT, items=TEXT, oneOf=TEXT, additionalProperties=TEXT),
    "bounds and patterns": closed(a={"type": "string", "pattern": "^a", "enum": ["a", "ab"]}, b={"type": "number", "minimum": 1}),
}

ROOT = "schema must be a JSON Schema of 'type: \"object\"', got "
REQUIRED = "'required' is required to be supplied and to be an array including every key in properties. Missing "
NULLABLE = " An optional property takes null: 'type': ['string', 'null']."
CLOSED = "'additionalProperties' is required to be supplied and to be false."

NOT_STRICT: dict[str, tuple[Schema, str]] = {
    "an open object": ({"type": "object", "properties": {}}, f"In context=(), {CLOSED}"),
    "an object of any properties": (closed() | {"additionalProperties": TEXT}, f"In context=(), {CLOSED}"),
    "an optional property": (closed(a=TEXT) | {"required": []}, f"In context=(), {REQUIRED}'a'.{NULLABLE}"),
    "no word of what is required": (
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
        f"In context=(), {REQUIRED}'a'.{NULLABLE}",
    ),
    "more required than there is": (
        closed() | {"required": ["b"]},
        "In context=(), 'required' names 'b', which is no key in properties.",
    ),
    "an open object inside": (closed(a={"type": "object"}), f"In context=('properties', 'a'), {CLOSED}"),
    "an open object in a list": (
        closed(a={"type": "array", "items": {"type": "object"}}),
        f"In context=('properties', 'a', 'items'), {CLOSED}",
    ),
    "an open alternative": (
        closed(a={"anyOf": [TEXT, {"type": "object"}]}),
        f"In context=('properties', 'a', 'anyOf', '1'), {CLOSED}",
    ),
    "an open definition": (closed() | {"$defs": {"n": {"type": "object"}}}, f"In context=('$defs', 'n'), {CLOSED}"),
    "one of several": (closed(a={"oneOf": [TEXT]}), "In context=('properties', 'a'), 'oneOf' is not permitted."),
    "a condition": (closed() | {"if": {}}, "In context=(), 'if' is not permitted."),
    "a list as the root": ({"type": "array", "items": TEXT}, f"{ROOT}'type: \"array\"'."),
    "no type of the root": ({}, f"{ROOT}'type: \"None\"'."),
}


@pytest.mark.parametrize("schema", ALLOWED.values(), ids=ALLOWED.keys())
def test_strict_mode_takes_a_schema_whose_objects_are_closed_and_whole(schema: Schema) -> None:
    assert fault_of(schema, strict=True) is None


@pytest.mark.parametrize(("schema", "sentence"), NOT_STRICT.values(), ids=NOT_STRICT.keys())
def test_strict_mode_says_what_it_does_not_allow(schema: Schema, sentence: str) -> None:
    assert fault_of(schema, strict=True) == sentence
    assert fault_of(schema, strict=False) is None


UNKNOWN_TYPES: dict[str, tuple[Schema, str]] = {
    "a misspelt one": ({"type": "objekt"}, "In context=(), 'objekt' is not a type"),
    "of a property": ({"properties": {"a": {"type": "str"}}}, "In context=('properties', 'a'), 'str' is not a type"),
    "one of several": ({"type": ["string", "nil"]}, "In context=(), 'nil' is not a type"),
    "no string": ({"items": {"type": 3}}, "In context=('items',), '3' is not a type"),
    "nothing": ({"type": None}, "In context=(), 'None' is not a type"),
}


@pytest.mark.parametrize(("schema", "beginning"), UNKNOWN_TYPES.values(), ids=UNKNOWN_TYPES.keys())
def test_a_type_that_json_does_not_have_is_told_in_any_mode(schema: Schema, beginning: str) -> None:
    assert (fault_of(schema, strict=False) or "").startswith(beginning)


def test_what_is_no_schema_where_one_should_stand_is_left_to_the_models_server() -> None:
    assert fault_of({"properties": [1], "items": "a", "anyOf": {"a": 1}, "$defs": None, "required": 4}, strict=False) is None


def test_the_deepest_and_widest_schema_is_walked_once() -> None:
    deep: Schema = closed()
    for _ in range(45):
        deep = closed(a=deep)
    wide = closed(**{f"p{number}": TEXT for number in range(20_000)}, deep=deep)
    assert fault_of(wide, strict=True) is None


def test_a_strict_schema_of_chat_completions_is_told_in_its_words() -> None:

    format_ = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {"type": "object"}}}
    with pytest.raises(ApiError) as raised:
        parse_chat(orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": format_}))
    assert (raised.value.param, raised.value.code) == ("response_format", "invalid_json_schema")


def test_a_list_of_remote_tools_without_tools_is_an_empty_one() -> None:
    item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "depot", "error": "It is away."}
    (read,) = parse_create({"model": "m", "input": [item]}).input_items
    assert read == item | {"tools": []}


def test_a_picture_whose_base64_has_line_breaks_is_taken() -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64,iVBO\nRw0=\n"}
    (read,) = parse_create({"model": "m", "input": [{"role": "user", "content": [part]}]}).input_items
    assert read["content"] == [part | {"detail": "auto"}]


@pytest.mark.parametrize("data", ["data:image/svg+xml,<svg/>", "data:image/png;base64,", "data:image/png;base64,abc", "data:image/png"])
def test_a_picture_that_is_no_base64_is_refused(data: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_create({"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": data}]}]})
    assert (raised.value.status, raised.value.code) == (400, "invalid_base64_image")
