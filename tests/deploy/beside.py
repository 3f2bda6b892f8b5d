"""What a test of the deployed stack does not come to, asked of an emulator: ``python -m tests.deploy.beside TABLE BUCKET MACHINE``.

The ring has no egress proxy, whose network no emulator has, and no gateway for its WebSocket API; no file there is so large that it
goes in parts, and nothing goes wrong.
Here the same code runs beside it, each part under the name of the function that runs it.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import boto3
from moorage import limits
from moorage.api.gateway_events import GatewayEvents
from moorage.api.gateway_socket import work
from moorage.api.rate_limits import RateLimits
from moorage.egress.ca import ensure_open_ca
from moorage.egress.fleet import ProxyFleet
from moorage.egress.grants import Grants
from moorage.egress.keys import KmsKeys
from moorage.egress.policy import EgressPolicy
from moorage.egress.service import EgressService
from moorage.egress.store import EgressLogEntry
from moorage.errors import ConditionFailed
from moorage.ids import new_response_id
from moorage.loop.create import PreparedResponse, start_background
from moorage.loop.recover import continue_loop, fail_response, restart
from moorage.loop.stop import erase, stop
from moorage.net.connections import Connections
from moorage.runtime import Runtime, build_runtime
from moorage.settings import Settings
from moorage.state import LoopState
from moorage.store.dynamodb import DynamoTable
from moorage.store.rates import Rates
from moorage.store.responses import StoredResponse
from moorage.store.sockets import Sockets
from moorage.wire.network_policy import DomainSecret
from moorage.wire.parameters import Parameters

from functions.egress_proxy.journal import DecisionLog, new_entry_id
from tests.twin.socket_gateway import ManagementApi

HOST = "pkg.example.com"
SETTINGS = Settings("", "", content_key="ab" * 32, egress_proxy="http://proxy.test:3128", allowed_egress_domains=(HOST,))


@contextmanager
def acting(function: str) -> Iterator[None]:
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = function
    yield
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = ""


def proxys_service() -> str:
    ecs = boto3.client("ecs")
    ecs.create_cluster(clusterName="beside")
    ecs.register_task_definition(family="proxy", containerDefinitions=[{"name": "proxy", "image": "none", "memory": 512}])
    ecs.create_service(cluster="beside", serviceName="proxy", taskDefinition="proxy", desiredCount=0)
    return "beside/proxy"


async def ask_for_the_way_out(table_name: str, executor: ThreadPoolExecutor) -> None:
    """A container's policy is opened by the API, renewed where sandboxes are started, looked up and logged by the proxy, settled by the
    reaper."""
    key = boto3.client("kms").create_key()["KeyMetadata"]["Arn"]
    table = DynamoTable(boto3.client("dynamodb"), table_name, executor)
    keys = KmsKeys(boto3.client("kms"), key, executor)
    fleet = ProxyFleet(boto3.client("ecs"), proxys_service(), executor)
    egress = EgressService(table, keys, SETTINGS, lambda: int(time.time()), fleet)
    policy, secret = EgressPolicy((HOST,)), DomainSecret(domain=HOST, name="TOKEN", value="value")
    for function in ("Responses", "Containers"):
        with acting(function):
            await egress.open("acme", f"cntr_{function}", policy, (secret,))
    for function in ("Responses", "ModelStep", "Expiry"):
        with acting(function):
            assert await egress.renew("acme", "cntr_Responses", password="drawn by its starter") is not None
    with acting("Containers"):
        assert await egress.replace_secrets("acme", "cntr_Responses", (replace(secret, value="other"),))
    with acting("EgressProxy"):
        await ensure_open_ca(egress.store, keys)
        grants = Grants(egress.store, keys, policy, time.monotonic)
        grant = await grants.find("cntr_Responses", "drawn by its starter")
        assert grant is not None
        assert [opened.value for opened in grant.secrets] == ["other"]
        journal = DecisionLog(egress.store, 60, lambda: time.time_ns() // 1_000_000)
        journal.ended(EgressLogEntry(new_entry_id(0), 0, "acme", "cntr_Responses", HOST, 443, "GET", "/", "denied", "not_allowed"))
        await journal.flush()
    for function in ("Expiry", "Retirement"):
        with acting(function):
            await egress.pause("acme", "cntr_Responses")
    with acting("Expiry"):
        await egress.settle_fleet()


async def ask_for_objects(runtime: Runtime) -> None:
    async def large() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(limits.BLOB_PART_BYTES)

    async def too_large() -> AsyncIterator[bytes]:
        async for chunk in large():
            yield chunk
        raise ConnectionError("the client has gone")

    for function in ("Files", "Containers", "ToolStep"):
        with acting(function):
            await runtime.stores.blobs.put_stream("T/acme/F/large", large(), bytes_max=limits.FILE_BYTES_MAX)
            with suppress(ConnectionError):
                await runtime.stores.blobs.put_stream("T/acme/F/broken", too_large(), bytes_max=limits.FILE_BYTES_MAX)
            assert [len(chunk) async for chunk in runtime.stores.blobs.get_stream("T/acme/F/large")]
            await runtime.stores.blobs.delete("T/acme/F/large")
    for function in ("Responses", "Containers", "Files", "Expiry"):
        await runtime.stores.blobs.put_bytes("T/acme/F/small", b"small")
        with acting(function):
            assert await runtime.stores.blobs.delete_prefix("T/acme/F/") > 0


async def ask_for_the_loop(runtime: Runtime) -> None:
    """A background response is cancelled, fails, goes on in a successor, and is taken up by the reaper."""
    for function, then in (
        ("Responses", lambda stored, state: _cancel(runtime, stored)),
        ("FailResponse", lambda stored, state: fail_response(runtime, state)),
        ("ContinueStep", lambda stored, state: continue_loop(runtime.stores, state)),
        ("Recovery", lambda stored, state: restart(runtime, stored)),
    ):
        expiry = runtime.stores.responses.expiry(is_stored=True)
        stored = StoredResponse(
            new_response_id(0), "acme", 0, Parameters("m"), {"model": "m"}, [], is_background=True, is_looping=True, expires_at=expiry
        )
        state = LoopState(stored.response_id, stored.tenant_id, None)
        await start_background(runtime.stores, PreparedResponse(replace(stored, execution=stored.response_id), [], is_streamed=False))
        with acting(function):
            await then(replace(stored, execution=stored.response_id), state)


async def _cancel(runtime: Runtime, stored: StoredResponse) -> None:
    await stop(runtime, await runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id))
    await erase(runtime.stores, stored)


class Taking(ManagementApi):
    """Takes what is sent on connections, and calls of workers."""

    def answer(self, method: str, path: str, body: bytes, signature: str) -> tuple[int, str]:
        return 202 if path.endswith("/invocations") else 200, ""


def ask_for_the_content_key(settings: Settings) -> None:
    """Whoever seals or opens reads it where the deployment keeps it."""
    secret = boto3.client("secretsmanager").create_secret(Name="beside", SecretString="ab" * 32)["ARN"]
    for function in ("Responses", "SocketWork", "ModelStep", "ServiceStep", "FailResponse", "Recovery"):
        with acting(function):
            sealer = build_runtime(replace(settings, content_key=None, content_key_secret=secret)).stores.sealer
            assert sealer.open("acme", sealer.seal("acme", "text")) == "text"


async def ask_for_a_websocket(runtime: Runtime) -> None:
    """A key's connection is opened; two frames are answered, the second over a continuation; one cannot be; it ends."""
    gateway = Taking()
    client = boto3.client("apigatewaymanagementapi", endpoint_url=f"{gateway.url}/responses")
    connection_id, sockets = "connection-1=", Sockets(runtime.stores.table, clock=time.time)
    _, secret = await runtime.identity.api_keys.create("acme", name="beside")
    with ThreadPoolExecutor(4) as executor:
        connections, rates = Connections(client, executor), RateLimits(0, 0, Rates(runtime.stores.table))
        called: list[tuple[str, str]] = []

        async def call(connection: str, holder: str) -> None:
            boto3.client("lambda", endpoint_url=gateway.url).invoke(FunctionName="worker", InvocationType="Event", Payload=b"{}")
            called.append((connection, holder))

        door = GatewayEvents(sockets, runtime.identity.api_keys.find, connections, call=call, clock=time.time)
        context = {"connectionId": connection_id, "requestTimeEpoch": 1}
        with acting("SocketDoor"):
            headers = {"authorization": f"Bearer {secret}"}
            opened = await door.handle({"requestContext": context | {"routeKey": "$connect"}, "headers": headers})
            assert opened == {"statusCode": 200}
        frame = '{"type": "response.create", "model": "demo", "input": "hi", "store": false}'
        for number in range(2):
            with acting("SocketDoor"):
                message = context | {"routeKey": "$default", "messageId": f"frame-{number}"}
                await door.handle({"requestContext": message, "body": frame})
            with acting("SocketWork"):
                await work(runtime, connections, rates, *called.pop())
                kept = await sockets.kept(connection_id, "resp_1")
                assert kept is None
                await sockets.forget(connection_id, "resp_1")
                with suppress(ConditionFailed):
                    await sockets.hold_on(connection_id, "nobody")
        with acting("SocketDoor"):
            await connections.close(connection_id)
            await door.handle({"requestContext": context | {"routeKey": "$disconnect"}})
    gateway.stop()


async def ask(table_name: str, bucket_name: str, machine: str) -> None:
    settings = replace(SETTINGS, table_name=table_name, bucket_name=bucket_name, state_machine_arn=machine, provisioner="elsewhere")
    runtime = build_runtime(settings)
    with ThreadPoolExecutor(4) as executor:
        await ask_for_the_way_out(table_name, executor)
    ask_for_the_content_key(settings)
    await ask_for_objects(runtime)
    await ask_for_the_loop(runtime)
    await ask_for_a_websocket(runtime)
    await runtime.aclose()


if __name__ == "__main__":
    asyncio.run(ask(*sys.argv[1:]))
