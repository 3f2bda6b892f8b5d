"""The WebSocket API of the template, with functions that say what they were called with."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from infra.websocket import STAGE
from tests.twin.calls import own_name
from tests.twin.gateway import FunctionError
from tests.twin.socket_gateway import FRAME_BYTES_MAX, IDLE_SECONDS_MAX, MESSAGE_BYTES_MAX, Routes, SocketGateway
from tests.twin.template import Template

KEY = {"Authorization": "Bearer sk-moorage-1"}
_PATIENCE_SECONDS = 60


@dataclass
class Functions:
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: int = 200
    is_broken: bool = False

    async def __call__(self, function: str, event: dict[str, Any]) -> Any:
        self.calls.append((own_name(function), event))
        if own_name(function) == "Authorizer":
            if event["headers"].get("Authorization") != KEY["Authorization"]:
                raise FunctionError("Unauthorized")
            resource = "/".join(event["methodArn"].split("/")[:2]) + "/*"
            policy = {"Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}]}
            return {"principalId": "acme", "policyDocument": policy, "context": {"tenantId": "acme"}}
        if self.is_broken:
            raise FunctionError("RuntimeError")
        return {"statusCode": self.status}

    @property
    def routes(self) -> list[str]:
        return [event["requestContext"]["routeKey"] for name, event in self.calls if name == "SocketDoor"]


@dataclass
class Api:
    functions: Functions
    gateway: SocketGateway
    seconds: float = 0.0

    def connect(self, path: str = f"/{STAGE}", headers: dict[str, str] | None = None) -> connect:
        given = KEY if headers is None else headers
        return connect(f"{self.gateway.url}{path}", additional_headers=given, max_size=None, compression=None)

    async def refused(self, **how: Any) -> int:
        with pytest.raises(InvalidStatus) as refusal:
            async with self.connect(**how):
                pass
        return refusal.value.response.status_code

    async def until_called(self, *routes: str) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while self.functions.routes != [*routes]:
                await asyncio.sleep(0.01)


@pytest.fixture
async def api(full: Template) -> AsyncIterator[Api]:
    made = Api(Functions(), None)  # type: ignore[arg-type]
    made.gateway = SocketGateway(full, made.functions, clock=lambda: made.seconds)
    made.gateway.start()
    yield made
    await asyncio.to_thread(made.gateway.stop)


def test_without_its_setting_there_is_no_such_api(default: Template) -> None:
    kinds = {resource["Type"] for resource in default.resources.values()}
    assert not {kind for kind in kinds if kind.startswith("AWS::ApiGatewayV2")}


def test_every_frame_comes_to_the_door_and_the_key_is_asked_for_once(full: Template) -> None:
    routes = Routes.of(full)
    assert {name: own_name(function) for name, function in routes.functions.items()} == dict.fromkeys(
        ("$connect", "$default", "$disconnect"), "SocketDoor"
    )
    assert (own_name(routes.authorizer or ""), routes.identity, routes.stage) == ("Authorizer", ("Authorization",), "responses")


async def test_a_connection_and_its_frame_and_its_end_come_to_the_function(api: Api) -> None:
    async with api.connect() as connection:
        await connection.send("{}")
        await api.until_called("$connect", "$default")
    await api.until_called("$connect", "$default", "$disconnect")
    ids = {event["requestContext"]["connectionId"] for name, event in api.functions.calls if name == "SocketDoor"}
    assert len(ids) == 1
    assert api.functions.calls[1][1]["requestContext"]["authorizer"]["tenantId"] == "acme"
    assert (api.functions.calls[2][1]["body"], "headers" in api.functions.calls[2][1]) == ("{}", False)


async def test_strangers_come_to_no_function_but_the_authorizer(api: Api) -> None:
    assert await api.refused(headers={}) == 401
    assert api.functions.calls == []
    assert await api.refused(headers={"Authorization": "Bearer sk-moorage-2"}) == 401
    assert [name for name, _ in api.functions.calls] == ["Authorizer"]


@pytest.mark.parametrize("path", ["/", "/responses/more", "/v1/responses"])
async def test_only_the_stage_is_an_address(api: Api, path: str) -> None:
    assert await api.refused(path=path) == 403


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_what_the_door_refuses_ends_the_handshake_with_its_status(api: Api, status: int) -> None:
    api.functions.status = status
    assert await api.refused() == status


async def test_a_message_has_a_length_and_so_has_each_of_its_frames(api: Api) -> None:
    async with api.connect() as connection:
        await connection.send(["x" * FRAME_BYTES_MAX] * 4)  # in frames
        await api.until_called("$connect", "$default")
        assert len(api.functions.calls[-1][1]["body"]) == MESSAGE_BYTES_MAX
    for message in ("x" * (FRAME_BYTES_MAX + 1), ["x" * FRAME_BYTES_MAX] * 5):
        assert await closed_by(api, message) == 1009


async def closed_by(api: Api, message: Any) -> int | None:
    async with api.connect() as connection:
        try:
            await connection.send(message)
            await connection.recv()
        except ConnectionClosed:
            pass
        return connection.close_code


async def test_a_function_that_breaks_is_the_gateways_own_word(api: Api) -> None:
    async with api.connect() as connection:
        api.functions.is_broken = True
        await connection.send("{}")
        assert json.loads(await connection.recv())["message"] == "Internal server error"
        api.functions.is_broken = False


async def test_what_functions_send_arrives_unless_it_is_too_long_or_nobody_is_there(api: Api) -> None:
    async with api.connect() as connection:
        (connection_id,) = await opened(api)
        statuses = [await asyncio.to_thread(api.gateway.post, connection_id, text) for text in ("hello", "x" * (MESSAGE_BYTES_MAX + 1))]
        assert (statuses, await connection.recv()) == ([200, 413], "hello")
        assert await asyncio.to_thread(api.gateway.close, connection_id) == 204
        await ended(connection)
    assert await asyncio.to_thread(api.gateway.post, connection_id, "more") == 410
    assert await asyncio.to_thread(api.gateway.close, connection_id) == 410


async def opened(api: Api) -> list[str]:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not api.gateway.open:
            await asyncio.sleep(0.01)
    return list(api.gateway.open)


async def ended(connection: ClientConnection) -> int | None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await connection.wait_closed()
    return connection.close_code


async def test_silence_ends_a_connection_and_a_word_of_a_function_is_none(api: Api) -> None:
    async with api.connect() as connection:
        (connection_id,) = await opened(api)
        for _ in range(2):
            api.seconds += IDLE_SECONDS_MAX - 1
            await asyncio.to_thread(api.gateway.post, connection_id, '{"type":"keepalive"}')
            await asyncio.to_thread(api.gateway.pass_time)
        assert connection.close_code is None
        api.seconds += IDLE_SECONDS_MAX + 1
        await asyncio.to_thread(api.gateway.pass_time)
        assert await ended(connection) == 1001
