"""Each method of the SDK's agents and vaults on a real stack: its answer is strictly what its type says."""

import inspect
from collections.abc import Iterator
from typing import Any, Final

import pytest
from openai import OpenAI
from openai._resource import SyncAPIResource

from tests.conformance.agents_suite import environment
from tests.conformance.placeholders import serving
from tests.mcp_servers import Depot, depot_beside
from tests.stack import Stack

HELPERS: Final = {
    "environments.files.prepare",
    "environments.files.prepare_directory",
    "environments.files.upload",
    "sessions.artifacts.for_result",
    "sessions.stream",
}
"""Of the client's, without an operation of their own."""
NONE: Final = {"type": "none"}
MESSAGE: Final = {"role": "user", "content": [{"type": "input_text", "text": "x"}]}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "create": {"model": "model"},
    "sessions.create": {"environment": NONE},
    "sessions.events.create": {
        "events": [
            {
                "type": "agent.session.input.mcp_approval_request_result",
                "request_id": "request_id",
                "response": {"type": "mcp_tool_call", "decision": "approve"},
            }
        ]
    },
    "environments.create": {"environment": {"type": "openai_hosted"}},
    "environments.files.create": {"type": "inline", "path": "x", "data": "data"},
    "automations.create": {
        "type": "periodic",
        "name": "x",
        "expression": "x",
        "timezone": "x",
        "target": {"type": "new_session", "environment": NONE, "input": [MESSAGE]},
    },
    "vaults.credentials.create": {
        "name": "y",
        "auth": {"type": "static_bearer", "mcp_server_url": "https://scales.example/mcp", "token": "t"},
    },
}
"""What a method is given beside the ids that it needs."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The SDK's resource, behind the layer that gives its placeholders real records."""
    with depot_beside(Depot()) as depot:
        stack = Stack(tmp_path_factory.mktemp("operations"), environment(depot.port)).start()
        with serving(stack, f"{depot.url}/mcp") as layer:
            with OpenAI(base_url=layer.url, api_key="x", max_retries=0, _strict_response_validation=True) as client:
                yield client.beta.agents
            assert layer.refused == {}
        assert stack.stop() == 0


def methods(resource: Any, name: str = "") -> Iterator[str]:
    """What an SDK's resource can do; deletions come last."""
    for attribute, value in sorted(vars(type(resource)).items(), key=lambda pair: pair[0] == "delete"):
        if attribute.startswith(("_", "with_")):
            continue
        if inspect.isfunction(value):
            yield f"{name}{attribute}"
        elif isinstance(inner := getattr(resource, attribute), SyncAPIResource):
            yield from methods(inner, f"{name}{attribute}.")


OPERATIONS: Final = tuple(sorted(set(methods(OpenAI(api_key="x").beta.agents)) - HELPERS))


def called(agents: Any, operation: str) -> Any:
    """What a method answers whose parameters are named like the layer's placeholders."""
    *resources, name = operation.split(".")
    method = getattr(_inner(agents, resources), name)
    needed = [
        parameter.name
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is inspect.Parameter.empty and parameter.name.endswith("_id")
    ]
    return method(**{parameter: parameter for parameter in needed}, **BODIES.get(operation, {}))


def _inner(resource: Any, names: list[str]) -> Any:
    for name in names:
        resource = getattr(resource, name)
    return resource


def test_the_sdk_has_57_operations_of_agents_and_vaults() -> None:
    assert len(OPERATIONS) == 57


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_answers_in_its_type(agents: Any, operation: str) -> None:
    answer = called(agents, operation)
    *_, name = operation.split(".")
    match name:
        case "list":
            assert isinstance(answer.data, list)
        case "stream":
            answer.close()
        case "content":
            assert answer.read().endswith(b"\n")
        case "delete":
            assert answer.deleted is True
        case _ if operation == "sessions.events.create":
            assert answer is None
        case _:
            assert answer.to_dict()
