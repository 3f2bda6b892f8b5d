"""The OpenAPI document against the application's routes, its own references, and the table of parameters."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from fastapi.routing import APIRoute
from moorage.api import openapi
from moorage.api.routers import ROUTERS
from moorage.api.routing import operations_of, query_reader
from moorage.errors import ApiError
from moorage.wire.query_strings import QueryReader
from openai.types.webhooks import (
    AgentEnvironmentExpiredWebhookEvent,
    AgentEnvironmentFailedWebhookEvent,
    AgentEnvironmentReadyWebhookEvent,
    AgentEnvironmentSuspendedWebhookEvent,
    AgentSessionActionRequiredWebhookEvent,
    AgentSessionCreatedWebhookEvent,
    AgentSessionFailedWebhookEvent,
    AgentSessionIdleWebhookEvent,
    AgentSessionInProgressWebhookEvent,
    ResponseCancelledWebhookEvent,
    ResponseCompletedWebhookEvent,
    ResponseFailedWebhookEvent,
    ResponseIncompleteWebhookEvent,
)
from pydantic import BaseModel

from docs import parameters

Document = dict[str, Any]


@pytest.fixture(scope="session")
def document() -> Document:
    return openapi.document("0.0.0")


def documented(document: Document) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}


def served() -> set[tuple[str, str]]:
    """HTTP routes; the WebSocket transport has no place in an OpenAPI document."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {(method, "/v1" + re.sub(r":\w+}", "}", route.path)) for route in routes for method in (route.methods or set()) - {"HEAD"}}


_CALL = re.compile(
    r'self\._(?P<kind>get|post|delete|get_api_list)\(\s*(?:path_template\()?\s*f?"(?P<path>[^"]+)"(?P<rest>.*?)\n        \)', re.DOTALL
)
SDK_RESOURCES = (
    *("responses", "conversations", "containers", "files", "uploads", "models"),
    *("skills", "vector_stores", "webhooks", "beta/agents"),
)


def called_by_the_sdk() -> set[tuple[str, str]]:
    """Methods and paths that the SDK's resources call, read from its source."""
    folder = Path(openai.__file__).parent / "resources"
    files = [path for name in SDK_RESOURCES for path in [folder / f"{name}.py", *(folder / name).rglob("*.py")] if path.exists()]
    calls = [call for path in files for call in _CALL.finditer(path.read_text())]
    return {(_method(call), "/v1" + re.sub(r"\{[^}]*?(\w+)[^\w}]*\}", r"{\1}", call["path"])) for call in calls}


def _method(call: re.Match[str]) -> str:
    if call["kind"] != "get_api_list":
        return call["kind"].upper()
    return "POST" if 'method="post"' in call["rest"] else "GET"


def test_every_route_that_the_sdk_calls_is_served_or_refused_in_the_table(document: Document) -> None:
    rows = {row["name"]: row["status"] for row in parameters.load()["route"]}
    refused = {name for name, status in rows.items() if status == "refused"}
    calls = {f"{method} {path}" for method, path in called_by_the_sdk()}
    assert len(calls) > 60
    honoured = {call for call in calls if not any(call == row or call.split()[1].startswith(row) for row in refused)}
    kept = {name for name, status in rows.items() if status == "honoured"}
    assert honoured - kept == set()
    assert kept == {f"{method} {path}" for method, path in documented(document)}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nodes(inner)


def test_what_is_served_is_documented_and_what_is_documented_is_served(document: Document) -> None:
    assert (served() - documented(document), documented(document) - served()) == (set(), set())


def test_what_webhooks_are_sent_is_documented_as_the_sdk_reads_it(document: Document) -> None:
    events: dict[str, type[BaseModel]] = {
        "response.completed": ResponseCompletedWebhookEvent,
        "response.failed": ResponseFailedWebhookEvent,
        "response.cancelled": ResponseCancelledWebhookEvent,
        "response.incomplete": ResponseIncompleteWebhookEvent,
        "agent.session.created": AgentSessionCreatedWebhookEvent,
        "agent.session.in_progress": AgentSessionInProgressWebhookEvent,
        "agent.session.action_required": AgentSessionActionRequiredWebhookEvent,
        "agent.session.idle": AgentSessionIdleWebhookEvent,
        "agent.session.failed": AgentSessionFailedWebhookEvent,
        "agent.environment.ready": AgentEnvironmentReadyWebhookEvent,
        "agent.environment.failed": AgentEnvironmentFailedWebhookEvent,
        "agent.environment.suspended": AgentEnvironmentSuspendedWebhookEvent,
        "agent.environment.expired": AgentEnvironmentExpiredWebhookEvent,
    }
    names = {event_type.replace(".", "_"): event_type for event_type in events}
    assert document["webhooks"].keys() == {*names, "moorage_approval_requested"}
    for name, event_type in names.items():
        schema = document["webhooks"][name]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["properties"].keys() == events[event_type].model_fields.keys()
        assert schema["properties"]["type"] == {"const": event_type}
        data = events[event_type].model_fields["data"].annotation
        assert data is not None
        # A self-hosted environment, which there is none of here, is to be connected.
        assert schema["properties"]["data"]["properties"].keys() == data.model_fields.keys() - {"connect"}
    asked = document["webhooks"]["moorage_approval_requested"]["post"]
    event = asked["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert (asked["summary"], event["type"]) == ("A person's word is wanted", {"const": "moorage.approval.requested"})
    assert event["data"]["properties"].keys() == {"id", "response_id"}


def test_every_reference_leads_somewhere(document: Document) -> None:
    for node in nodes(document):
        if "$ref" in node:
            place: Any = document
            for part in node["$ref"].removeprefix("#/").split("/"):
                place = place[part]


def test_every_schema_of_the_components_is_used(document: Document) -> None:
    used = {node["$ref"].rsplit("/", 1)[1] for node in nodes(document) if "$ref" in node}
    assert document["components"]["schemas"].keys() - used == set()


def test_operations_have_names_of_their_own_and_say_what_can_go_wrong(document: Document) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all({"400", "401", "429", "500"} <= operation["responses"].keys() for operation in operations)


def test_the_document_is_json(document: Document) -> None:
    assert orjson.loads(orjson.dumps(document)) == document


def test_the_create_request_has_the_parameters_of_the_table_that_are_not_refused(document: Document) -> None:
    rows = {row["name"]: row["status"] for row in parameters.load()["parameter"] if "." not in row["name"]}
    accepted = {name for name, status in rows.items() if status != "refused"}
    assert document["components"]["schemas"]["CreateResponse"]["properties"].keys() == accepted


def test_the_tools_are_those_of_the_table_that_are_not_refused(document: Document) -> None:
    rows = {row["name"]: row["status"] for row in parameters.load()["tool"] if "." not in row["name"]}
    variants = document["components"]["schemas"]["Tool"]["oneOf"]
    shapes = [document["components"]["schemas"][variant["$ref"].rsplit("/", 1)[1]] for variant in variants]
    assert {name for shape in shapes for name in shape["properties"]["type"]["enum"]} == {
        name for name, status in rows.items() if status != "refused"
    }


READERS = {name: reader for name, (route, _) in operations_of(ROUTERS).items() if (reader := query_reader(route)) is not None}


TEXTS = {"from": "2026-01-02", "to": "2026-01-03", "status": "failed", "path": "/workspace"}


def _value(name: str, schema: dict[str, Any]) -> str:
    match schema:
        case {"enum": values}:
            return str(values[0])
        case {"type": "integer" | "boolean"}:
            return "1"
        case {"type": "array"}:
            return "reasoning.encrypted_content"
    return TEXTS.get(name, "x")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_documented_query_is_understood(read: QueryReader[Any]) -> None:
    query = [(name, _value(name, schema)) for name, schema in read.schemas]
    alone = [[one] for one in query if one[0] == "at"]  # It goes with no stream.
    try:
        for part in ([one for one in query if one[0] != "at"], *alone):
            read(part)
    except ApiError as error:
        pytest.fail(f"{error.param}: {error.message}")


WITHOUT_INCLUDE = [name for name, read in READERS.items() if "include[]" not in dict(read.schemas)]


@pytest.mark.parametrize("name", sorted({*WITHOUT_INCLUDE} - {"downloadContainerFile"}))
def test_an_include_is_refused_by_name_where_nothing_can_be_included(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        READERS[name]([("include[]", "reasoning.encrypted_content")])
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", "include")
