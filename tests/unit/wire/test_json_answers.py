"""Whether an answer is the JSON that was asked for, and where it is not."""

import asyncio
import json
import time
from typing import Any

import pytest
from moorage import limits
from moorage.wire.json_answers import begins_with_a_brace, fault_of, is_asked_for, is_binding

ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "price": {"type": "number", "minimum": 0}},
    "required": ["name", "price"],
    "additionalProperties": False,
}
ORDER = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3},
        "state": {"enum": ["open", "paid", 3]},
        "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
        "odd name": {"type": ["integer", "null"]},
    },
    "required": ["items"],
    "$defs": {"item": ITEM},
}


def schema(of: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "name": "n", "schema": of} | more


def fault(of: Any, value: Any) -> str | None:
    return asyncio.run(fault_of(value if isinstance(value, str) else json.dumps(value), schema(of)))


GOOD = {"name": "tea", "price": 1.5}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"items": [GOOD, GOOD], "state": "paid", "note": None, "odd name": 2.0}, None),
        ({"items": [], "unknown": [1]}, None),
        ("not json at all", "at $: it is not JSON (character 1)"),
        ('{"items": [', "at $: it is not JSON (character 12)"),
        ('{"items": []} Done.', "at $: it is not JSON (character 15)"),
        (" \n", "at $: it is empty"),
        ([], "at $: expected object, found array"),
        ({}, 'at $: the property "items" is missing'),
        ({"items": [GOOD, GOOD, {"name": "salt", "price": "2"}]}, "at $.items[2].price: expected number, found string"),
        ({"items": [GOOD | {"price": True}]}, "at $.items[0].price: expected number, found boolean"),
        ({"items": [GOOD | {"price": -1}]}, "at $.items[0].price: expected at least 0, found -1"),
        ({"items": [GOOD | {"name": ""}]}, "at $.items[0].name: expected at least 1 characters, found 0"),
        ({"items": [GOOD | {"more": 1}]}, "at $.items[0].more: the schema has no such property"),
        ({"items": [GOOD] * 4}, "at $.items: expected at most 3 items, found 4"),
        ({"items": [], "state": "lost"}, 'at $.state: expected one of "open", "paid", 3'),
        ({"items": [], "state": True}, 'at $.state: expected one of "open", "paid", 3'),
        ({"items": [], "note": "too long"}, "at $.note: expected at most 5 characters, found 8, or expected null, found string"),
        ({"items": [], "odd name": 1.5}, 'at $["odd name"]: expected integer or null, found number'),
    ],
)
def test_a_fault_names_its_place(value: Any, found: str | None) -> None:
    assert fault(ORDER, value) == found


@pytest.mark.parametrize(
    "of",
    [
        {"pattern": "^(a+)+$", "type": "string"},
        {"patternProperties": {"^x": {"type": "number"}}, "additionalProperties": False},
        {"not": {"type": "string"}},
        {"if": {"type": "string"}, "then": False},
        {"oneOf": [{"type": "string"}, {"type": "string"}]},
        {"format": "email"},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/nothing"},
        {"minLength": "3", "enum": 4, "anyOf": "x", "required": 1, "properties": [], "items": 3, "type": {"a": 1}},
        {},
    ],
)
def test_what_is_not_judged_fits(of: dict[str, Any]) -> None:
    assert fault(of, f'"{"a" * 40}!"') is None


def test_the_branch_that_fits_furthest_names_the_place() -> None:
    of = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"const": 1}}}}}]}
    assert fault(of, {"a": {"b": 2}}) == "at $.a.b: expected 1"


def test_draft_7_tuples_are_known() -> None:
    of = {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": False}
    assert [fault(of, value) for value in (["a", 1], ["a", "b"], ["a", 1, 2])] == [
        None,
        "at $[1]: expected number, found string",
        "at $[2]: nothing may stand here",
    ]


def test_json_object_wants_an_object() -> None:
    wanted = {"type": "json_object"}
    assert [asyncio.run(fault_of(text, wanted)) for text in ('{"a": 1}', "[1]", "hello")] == [
        None,
        "at $: expected object, found array",
        "at $: it is not JSON (character 1)",
    ]


def test_a_schema_without_strict_is_a_wish() -> None:
    formats: tuple[dict[str, Any], ...] = (
        {"type": "text"},
        {},
        {"type": "json_object"},
        schema(ITEM),
        schema(ITEM, strict=False),
        schema(ITEM, strict=True),
    )
    assert [(is_asked_for(each), is_binding(each), begins_with_a_brace(each)) for each in formats] == [
        (False, False, False),
        (False, False, False),
        (True, True, True),
        (True, False, True),
        (True, False, True),
        (True, True, True),
    ]


BRANCHES: dict[str, Any] = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
NEST: dict[str, Any] = {
    "$defs": {"a": {"anyOf": [{"properties": {"x": {"$ref": "#/$defs/a"}}, "type": "object"}] * 2}},
    "$ref": "#/$defs/a",
}


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (BRANCHES, "1"),
        (NEST, '{"x":' * 60 + "1" + "}" * 60),
        ({"type": "array", "items": {"enum": list(range(5_000))}}, json.dumps(list(range(4_999, 0, -1)) * 20)),
        ({"items": {}}, "[" * 1_000 + "]" * 1_000),
        ({"items": {"type": "string"}}, json.dumps(["a"] * 380_000)),
        ({"type": "string"}, "x" * (limits.ANSWER_CHECKED_CHARS_MAX + 1)),
    ],
    ids=["a circle", "branches", "choices", "depth", "length", "too long"],
)
def test_what_would_take_more_than_its_bound_fits_and_leaves_the_loop_free(of: Any, text: str) -> None:
    async def story() -> tuple[str | None, float]:
        """The verdict, and the longest time for which nothing else ran."""
        longest, is_over = 0.0, False

        async def neighbour() -> None:
            nonlocal longest
            last = time.thread_time()
            while not is_over:
                await asyncio.sleep(0)
                now = time.thread_time()  # of this thread: a busy machine does not count
                longest, last = max(longest, now - last), now

        watch = asyncio.create_task(neighbour())
        await asyncio.sleep(0)
        verdict = await fault_of(text, schema(of))
        is_over = True
        await watch
        return verdict, longest

    verdict, longest = asyncio.run(story())
    assert (verdict, longest < 0.05) == (None, True), longest
