"""The check of an answer against its schema agrees with the package ``jsonschema``, on schemas of the kind that OpenAI allows."""

import asyncio
import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from moorage.wire.json_answers import fault_of

Json = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.one_of(st.integers(-4, 4), st.sampled_from([0.5, 1.0, -2.5, 1e300]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "a", "bb", "ccc", "😀"]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)), max_leaves=8
)
COUNTS = st.integers(0, 3)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Any of these keywords."""
    return st.fixed_dictionaries({}, optional=fields)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return some(
        properties=st.dictionaries(NAMES, inner, max_size=3),
        required=st.lists(NAMES, unique=True, max_size=2),
        additionalProperties=st.one_of(st.booleans(), inner),
        minProperties=COUNTS,
        maxProperties=COUNTS,
    ).map(lambda schema: {"type": "object"} | schema)


LEAVES = st.one_of(
    st.sampled_from([{}, True, False, {"$ref": "#/$defs/n"}, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}]),
    st.lists(SCALARS, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    SCALARS.map(lambda value: {"const": value}),
    some(minLength=COUNTS, maxLength=COUNTS).map(lambda schema: {"type": "string"} | schema),
    some(
        minimum=NUMBERS,
        maximum=NUMBERS,
        exclusiveMinimum=NUMBERS,
        exclusiveMaximum=NUMBERS,
        multipleOf=st.integers(1, 3),
        type=st.sampled_from(["number", "integer"]),
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        some(items=inner, minItems=COUNTS, maxItems=COUNTS).map(lambda schema: {"type": "array"} | schema),
        st.lists(inner, min_size=1, max_size=3).map(lambda schemas: {"anyOf": schemas}),
        st.lists(inner, min_size=1, max_size=2).map(lambda schemas: {"allOf": schemas}),
    ),
    max_leaves=8,
).map(lambda schema: {"allOf": [schema], "$defs": {"n": {"type": "integer", "minimum": 0}}})

CHAIN = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
INTERFACE = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["div", "button"]},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "attributes": {"type": "array", "items": {"$ref": "#/$defs/attribute"}},
    },
    "required": ["type", "children", "attributes"],
    "additionalProperties": False,
    "$defs": {
        "attribute": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
            "required": ["name", "value"],
            "additionalProperties": False,
        }
    },
}
"""Two schemas of the kind in OpenAI's guide to structured outputs: one that names itself, and one with definitions."""


def fits_here(schema: Any, value: Any) -> bool:
    return asyncio.run(fault_of(json.dumps(value), {"type": "json_schema", "name": "n", "schema": schema})) is None


def fits_there(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, VALUES)
@example({"const": 1}, True)
@example({"const": 1}, 1.0)
@example({"enum": [[1]]}, [True])
@example({"const": {"a": [0]}}, {"a": [False]})
@example({"type": "integer"}, 1e300)
@example({"multipleOf": 3}, 1e300)
@example({"items": False}, [])
@example({"multipleOf": 1}, 0.5)
def test_the_check_agrees_with_jsonschema(schema: Any, value: Any) -> None:
    assert fits_here(schema, value) == fits_there(schema, value)


LINK = {"value": 1, "next": None}
LEAF: Json = {"type": "button", "children": [], "attributes": []}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (CHAIN, LINK),
        (CHAIN, LINK | {"next": LINK}),
        (CHAIN, LINK | {"next": LINK | {"next": 1}}),
        (CHAIN, LINK | {"next": {"value": "1", "next": None}}),
        (INTERFACE, LEAF),
        (INTERFACE, LEAF | {"children": [LEAF, LEAF | {"type": "a"}]}),
        (INTERFACE, LEAF | {"attributes": [{"name": "a", "value": "b"}]}),
        (INTERFACE, LEAF | {"attributes": [{"name": "a", "value": 1}]}),
        (INTERFACE, LEAF | {"attributes": [{"name": "a", "value": "b", "more": 1}]}),
    ],
)
def test_the_check_agrees_on_schemas_that_name_themselves(schema: Any, value: Any) -> None:
    assert fits_here(schema, value) == fits_there(schema, value)
