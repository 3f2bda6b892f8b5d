"""Filters over attributes: what they mean, and what is refused before they are."""

from typing import Annotated, Any

import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.knowledge.filters import matches
from moorage.wire.attribute_filters import Filter
from moorage.wire.validation import JsonValidator, wire
from typing_extensions import TypedDict

FILE: dict[str, str | float | bool] = {"year": 2026, "draft": False, "author": "Ada", "share": 0.5, "one": 1, "yes": True}


def compares(kind: str, key: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


def joined(kind: str, *filters: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "filters": list(filters)}


FITTING: dict[str, dict[str, Any]] = {
    "equal text": compares("eq", "author", "Ada"),
    "equal numbers of both kinds": compares("eq", "year", 2026.0),
    "equal booleans": compares("eq", "draft", False),
    "unequal": compares("ne", "author", "Bob"),
    "unequal to what is not there": compares("ne", "editor", "Bob"),
    "a boolean is no number": compares("ne", "yes", 1),
    "a number is no boolean": compares("ne", "one", True),
    "more": compares("gt", "year", 2025),
    "not less": compares("gte", "year", 2026),
    "less": compares("lt", "share", 1),
    "not more": compares("lte", "share", 0.5),
    "text in its order": compares("lt", "author", "Bob"),
    "in": compares("in", "year", [2025, 2026]),
    "in, of other types": compares("in", "author", [1, "Ada"]),
    "nin": compares("nin", "author", ["Bob", 2026]),
    "nin of what is not there": compares("nin", "editor", ["Bob"]),
    "nin of nothing": compares("nin", "author", []),
    "by name": compares("in", "filename", ["notes.md", "else.md"]),
    "and": joined("and", compares("eq", "year", 2026), compares("eq", "author", "Ada")),
    "or": joined("or", compares("eq", "year", 1), compares("eq", "author", "Ada")),
    "and in or": joined("or", compares("eq", "year", 1), joined("and", compares("ne", "year", 1), compares("lt", "share", 0.6))),
}

OTHERS: dict[str, dict[str, Any]] = {
    "another text": compares("eq", "author", "ada"),
    "another type": compares("eq", "year", "2026"),
    "what is not there": compares("eq", "editor", "Bob"),
    "what is not there is not less": compares("lt", "editor", "Bob"),
    "nor more": compares("gte", "pages", 0),
    "text is not ordered among numbers": compares("gt", "author", 1),
    "a boolean is not ordered": compares("lte", "yes", 5),
    "a boolean in numbers": compares("in", "yes", [1]),
    "in nothing": compares("in", "author", []),
    "in, not there": compares("in", "editor", ["Bob"]),
    "nin": compares("nin", "year", [2026]),
    "another name": compares("eq", "filename", "else.md"),
    "and": joined("and", compares("eq", "year", 2026), compares("eq", "author", "Bob")),
    "or": joined("or", compares("eq", "year", 1), compares("eq", "author", "Bob")),
}


@wire
class Asked(TypedDict, total=False):
    filters: Annotated[Any, Filter()]


parse = JsonValidator[Asked](Asked)


@pytest.mark.parametrize("name", FITTING)
def test_a_filter_lets_a_file_in(name: str) -> None:
    assert parse({"filters": FITTING[name]}) == {"filters": FITTING[name]}
    assert matches(FITTING[name], FILE, "notes.md")


@pytest.mark.parametrize("name", OTHERS)
def test_a_filter_keeps_a_file_out(name: str) -> None:
    assert parse({"filters": OTHERS[name]}) == {"filters": OTHERS[name]}
    assert not matches(OTHERS[name], FILE, "notes.md")


def test_without_a_filter_every_file_fits_and_an_attribute_may_be_called_filename() -> None:
    assert matches(None, {}, "notes.md")
    assert matches(compares("eq", "filename", "mine"), {"filename": "mine"}, "notes.md")
    assert parse({"filters": None}) == {}


def test_what_is_compared_may_be_called_a_property_as_in_openais_guide() -> None:
    named = {"type": "in", "property": "filename", "value": ["notes.md"]}
    expected = compares("in", "filename", ["notes.md"])
    assert parse({"filters": joined("or", named, compares("eq", "year", 1))}) == {
        "filters": joined("or", expected, compares("eq", "year", 1))
    }
    with pytest.raises(ApiError, match="Unknown parameter"):
        parse({"filters": {**named, "key": "filename"}})


def nested(levels: int) -> dict[str, Any]:
    return compares("eq", "year", 1) if levels == 0 else joined("and", nested(levels - 1))


REFUSED: list[tuple[str, Any, str, str]] = [
    ("no object", [], "filters", "Invalid type for 'filters': expected an object, but got an array instead."),
    ("no type", {"key": "a", "value": 1}, "filters.type", "Missing required parameter: 'filters.type'."),
    ("a type of another kind", {"type": 1}, "filters.type", "expected a string, but got an integer"),
    ("an unknown type", compares("like", "a", "b"), "filters.type", "'like'"),
    ("no key", {"type": "eq", "value": 1}, "filters.key", "Missing required parameter"),
    ("no value", {"type": "eq", "key": "a"}, "filters.value", "Missing required parameter"),
    ("null", compares("eq", "a", None), "filters.value", "expected a string, a number or a boolean, but got null"),
    ("a list for eq", compares("eq", "a", [1]), "filters.value", "expected a string, a number or a boolean, but got an array"),
    ("no list for in", compares("in", "a", 1), "filters.value", "expected an array, but got an integer"),
    ("a boolean in a list", compares("in", "a", [1, True]), "filters.value[1]", "expected a string or a number, but got a boolean"),
    ("too long a list", compares("in", "a", [1] * 501), "filters.value", "at most 500 values"),
    ("an order of booleans", compares("gt", "a", True), "filters.value", "neither more nor less"),
    ("no number", compares("gt", "a", float("nan")), "filters.value", "finite"),
    ("an empty key", compares("eq", "", 1), "filters.key", "1 to 64 characters"),
    ("a long text", compares("eq", "a", "x" * 513), "filters.value", "at most 512 characters"),
    ("another field", {**compares("eq", "a", 1), "boost": 2}, "filters.boost", "Unknown parameter: 'filters.boost'."),
    ("an empty group", joined("or"), "filters.filters", "it is empty"),
    ("no list of filters", {"type": "and", "filters": {}}, "filters.filters", "expected an array"),
    ("deep down", joined("or", joined("and", compares("eq", "a", {}))), "filters.filters[0].filters[0].value", "but got an object"),
    ("too many", joined("or", *[compares("eq", "a", 1)] * limits.FILTER_PARTS_MAX), "filters.filters[199]", "at most 200"),
]


@pytest.mark.parametrize(("filter", "param", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_filter_is_refused_with_its_place(filter: Any, param: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse({"filters": filter})
    assert (refused.value.status, refused.value.param) == (400, param)
    assert message in refused.value.message


def test_filters_are_nested_as_deep_as_is_said_and_no_deeper() -> None:
    parse({"filters": nested(limits.FILTER_DEPTH_MAX)})
    with pytest.raises(ApiError, match="nested at most 8 levels deep"):
        parse({"filters": nested(limits.FILTER_DEPTH_MAX + 1)})
    with pytest.raises(ApiError, match="nested at most"):
        parse({"filters": nested(900)})
