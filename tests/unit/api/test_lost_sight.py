"""The API loses sight of a response that the state machine runs, while a client waits for its one answer."""

import asyncio
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from botocore.exceptions import EndpointConnectionError
from moorage.tracing import Trace
from openai import AsyncOpenAI, InternalServerError

from tests.unit.api.served import Served
from tests.unit.loop.lab import CONTAINER, FakeContainers, FakeExecutions, Lab, say, shell
from tests.unit.store.memory import MemoryTable

TOOL: Any = {"type": "shell", "environment": {"type": "container_auto"}}


class OneContainer(FakeContainers):
    """Which every response gets."""

    async def reserve(self, tenant_id: str, **_: Any) -> Any:
        return SimpleNamespace(id=CONTAINER, programs="", skills=(), memory_limit="1g", network_policy={"type": "disabled"})


class LastLook(FakeExecutions):
    """Takes a response over; nobody can read the table from then on."""

    def __init__(self, table: MemoryTable) -> None:
        super().__init__()
        self._table = table

    async def start(self, name: str, state: dict[str, Any], trace: Trace | None) -> None:
        await super().start(name, state, trace)

        async def away(*_: Any, **__: Any) -> Any:
            raise EndpointConnectionError(endpoint_url="http://table")

        self._table.query = away  # type: ignore[method-assign]


@pytest.fixture
def lab() -> Lab:
    lab = Lab(*[turn for _ in range(4) for turn in (shell("sleep 600"), say("Done."))])
    lab.runtime.computers = replace(lab.runtime.computers, containers=cast("Any", OneContainer(lab.sandboxes)))
    lab.executions = LastLook(lab.table)
    lab.runtime.stores = replace(lab.runtime.stores, executions=cast("Any", lab.executions))
    return lab


async def test_the_sdk_does_not_repeat_a_request_whose_commands_go_on(lab: Lab) -> None:
    """Its own rule is to send again what met a 500; ``x-should-retry: false`` tells it that this one must not run twice."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(Served.of(lab).app, log_level="critical", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            async with AsyncOpenAI(base_url=url, api_key="key-a", max_retries=3) as client:
                with pytest.raises(InternalServerError) as caught:
                    await client.responses.create(model="m", input="go", tools=[TOOL])
        finally:
            server.should_exit = True
            await serving
    assert caught.value.body == {
        "message": "The connection to the running response was lost.",
        "type": "server_error",
        "param": None,
        "code": "server_error",
    }
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert (len(lab.executions.started), len(lab.model.requests)) == (1, 1)
