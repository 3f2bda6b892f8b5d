"""Our OpenAPI document against the newest openai SDK: each difference has its reason in docs/openapi.toml."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest
from openai import OpenAI
from openai.pagination import SyncConversationCursorPage, SyncCursorPage, SyncPage, SyncTokenPage
from pydantic import BaseModel

from docs import openapi as page

RESOURCES = (
    *("responses", "conversations", "containers", "files", "uploads", "models", "skills", "webhooks", "vector_stores", "embeddings"),
    "beta.agents",
)
VERBS = (
    *("create", "retrieve", "update", "delete", "cancel", "list", "list_files", "search"),
    *("count", "compact", "content", "complete", "rotate_secret", "test"),
)
"""The methods that are one call each; others, such as ``stream`` and ``parse``, are built on these."""

NOT_ON_THE_WIRE = {"extra_headers", "extra_query", "extra_body", "timeout", "idempotency_key"}
"""Of these some become headers."""
PAGES = (SyncPage, SyncCursorPage, SyncConversationCursorPage, SyncTokenPage)

_CALL = re.compile(
    r'self\._(?P<kind>get|post|delete|get_api_list)\(\s*(?:path_template\()?\s*f?"(?P<path>[^"]+)"(?P<rest>.*)', re.DOTALL
)


def sdk_methods(resource: Any) -> Iterator[Callable[..., Any]]:
    for name in dir(type(resource)):
        if name in VERBS and callable(getattr(resource, name)):
            yield inspect.unwrap(getattr(type(resource), name))
        elif not name.startswith("_") and not name.startswith("with_"):
            child = inspect.getattr_static(type(resource), name)
            if not inspect.isfunction(child):
                yield from sdk_methods(getattr(resource, name))


def sdk_features(mine: set[str]) -> set[str]:
    client = OpenAI(api_key="unused", base_url="http://127.0.0.1:9")
    return {feature for name in RESOURCES for method in sdk_methods(attrgetter(name)(client)) for feature in _features(method, mine)}


def _features(method: Callable[..., Any], mine: set[str]) -> Iterator[str]:
    call = _CALL.search(inspect.getsource(method))
    assert call is not None, f"{method.__qualname__} calls no route that this test can read"
    kind = call["kind"] if call["kind"] != "get_api_list" else "post" if 'method="post"' in call["rest"] else "get"
    path = re.sub(r"\{[^}]*?(\w+)[^\w}]*\}", r"{\1}", call["path"])
    route = f"{kind.upper()} /v1{path}"
    yield route
    for name in inspect.signature(method).parameters.keys() - NOT_ON_THE_WIRE - {"self"}:
        if f"{{{name}}}" not in path:
            in_query = kind == "get" or f"{route} query {name}" in mine
            yield f"{route} {'query' if in_query else 'request'} {name}"
    for field in _answer(inspect.get_annotations(method, eval_str=True)["return"]):
        yield f"{route} answer {field}"


def _answer(annotation: Any) -> set[str]:
    """The fields of a model, or those of the entries of a page; none of a union of items."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    fields = getattr(annotation, "model_fields", {})
    if not (isinstance(annotation, type) and issubclass(annotation, PAGES)):
        return set(fields)
    (entry,) = annotation.__pydantic_generic_metadata__["args"]
    return {f"data.{name}" for name in entry.model_fields} if isinstance(entry, type) and issubclass(entry, BaseModel) else set()


def as_deep_as(theirs: set[str], mine: set[str]) -> set[str]:
    """Of our features those that the SDK's signatures and models can show: the first level, or that of a page's entries."""
    pages = {feature.split(" answer ")[0] for feature in theirs if " answer data." in feature}
    lists = {feature.removesuffix(" answer has_more") for feature in mine - theirs if feature.endswith(" answer has_more")} - pages
    return {feature for feature in mine if _is_shown(feature, pages, lists)}


def _is_shown(feature: str, pages: set[str], lists: set[str]) -> bool:
    route, _, field = feature.partition(" answer ")
    if not field:
        return "." not in feature.split(" ")[-1] or feature.count(" ") == 1
    if route in lists:
        return False
    return field.startswith("data.") and field.count(".") == 1 if route in pages else "." not in field


def test_every_difference_from_the_newest_sdk_has_a_reason() -> None:
    mine = page.ours()
    theirs = sdk_features(mine)
    assert len(theirs) > 300
    assert page.problems(page.differences(as_deep_as(theirs, mine), theirs), "sdk") == []


def test_the_page_holds_every_reason_and_only_those() -> None:
    rows = [line.split(" | ") for line in page.PAGE.read_text().splitlines() if line.startswith(("| ours |", "| theirs |"))]
    written = [(side.removeprefix("| "), feature.strip("`"), seen, reason.removesuffix(" |")) for side, feature, seen, reason in rows]
    assert written == [(row["side"], row["feature"], ", ".join(row["seen_in"]), row["reason"]) for row in page.load()]


DOCUMENT: dict[str, Any] = {
    "paths": {
        "/things/{id}": {
            "post": {
                "parameters": [{"name": "include[]", "in": "query"}, {"name": "id", "in": "path"}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
                "responses": {"200": {"content": {"application/json": {"schema": {"type": "array", "items": {"type": "string"}}}}}},
            }
        }
    },
    "components": {
        "schemas": {
            "Thing": {
                "allOf": [
                    {"properties": {"name": {"type": "string"}}},
                    {"properties": {"inner": {"anyOf": [{"properties": {"deep": {}}}, {"type": "null"}]}}},
                    {"properties": {"either": {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}}},
                    {"properties": {"expires[seconds]": {"type": "integer"}}},
                ]
            }
        }
    },
}


def test_a_document_is_taken_apart_into_routes_parameters_and_fields() -> None:
    route = "POST /v1/things/{id}"
    assert page.Features(DOCUMENT, "/v1").all() == {
        route,
        f"{route} query include",
        f"{route} request name",
        f"{route} request inner",
        f"{route} request inner.deep",
        f"{route} request either",
        f"{route} request expires",
        f"{route} request expires.seconds",
    }


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ({"GET /v1/a", "GET /v1/a query limit"}, set(), {("ours", "GET /v1/a")}),
        (
            {"GET /v1/a"},
            {"GET /v1/a", "GET /v1/a answer b", "GET /v1/a answer b.c", "GET /v1/a answer b.c.d"},
            {("theirs", "GET /v1/a answer b")},
        ),
        ({"GET /v1/a", "GET /v1/a answer b"}, {"GET /v1/a", "GET /v1/a answer b"}, set()),
    ],
)
def test_below_a_difference_nothing_more_is_told(mine: set[str], theirs: set[str], told: set[page.Difference]) -> None:
    assert page.differences(mine, theirs) == told


def test_differences_without_reasons_and_reasons_without_differences_fail() -> None:
    found = page.problems({("theirs", "GET /v1/unheard_of")}, "sdk")
    assert found[0] == "no reason: theirs GET /v1/unheard_of"
    assert "no such difference with the sdk: ours GET /v1/containers/{container_id}/egress" in found
