"""What a MicroVM's endpoint answers in the exec server's place is told from the server's answers, and ends no VM."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from moorage.errors import SandboxError, SandboxGone, SandboxStarting, SandboxUnreachable
from moorage.sandbox.exec_client import ExecClient, SandboxHealth
from moorage.sandbox.lambda_microvm import LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.microvm_endpoint import MicrovmAuth
from moorage.sandbox.provisioner import Handle, SandboxSpec

from tests.unit.aws.microvm_service import FakeMicrovms, Refused

IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage"
CONNECTOR = "arn:aws:lambda:us-east-1:000000000000:network-connector:closed"
SPEC = SandboxSpec("acme", "cntr_1", "t" * 64)
VM = "microvm-00000001-0000-0000-0000-000000000000"
HEALTH = httpx.Response(200, json={"protocol": 1, "boot_id": "b", "running": 0})
WELL = SandboxHealth(1, "b", 0)


class World:
    """A VM that runs, its endpoint with the answers that come first, and a clock that only pauses move."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.service = FakeMicrovms()
        self.service.images[IMAGE] = CONNECTOR
        self.provisioner = LambdaMicrovmProvisioner(
            self.service.client, lambda: self.service.core, MicrovmSettings({1: IMAGE}, CONNECTOR), executor
        )
        self.answers: list[httpx.Response] = []
        self.seen: list[str] = []
        self.now = 0.0
        self.breaks = 0
        """So many connections are torn."""

    async def client(self) -> ExecClient:
        with pytest.raises(SandboxStarting):
            await self.provisioner.start(SPEC)
        self.service.becomes("RUNNING")
        handle = await self.provisioner.start(SPEC)
        auth = MicrovmAuth(self.provisioner, handle.sandbox_id, lambda: self.now, self._sleep)
        return ExecClient(
            Handle(handle.endpoint, handle.token, handle.sandbox_id), transport=httpx.MockTransport(self._answer), auth=auth
        )

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.breaks:
            self.breaks -= 1
            raise httpx.ReadError("torn", request=request)
        self.seen.append(request.headers["x-aws-proxy-auth"])
        return self.answers.pop(0) if self.answers else HEALTH


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def world(executor: ThreadPoolExecutor) -> Iterator[World]:
    world = World(executor)
    yield world
    world.service.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_the_endpoints_own_error_is_waited_for(world: World, status: int) -> None:
    async with await world.client() as client:
        world.answers = [httpx.Response(status), httpx.Response(status, json={"message": "busy"})]
        assert await client.health() == WELL
    assert (world.seen, world.service.states()) == (["token-1"] * 3, ["RUNNING"])


async def test_the_endpoint_says_how_long_to_wait(world: World) -> None:
    async with await world.client() as client:
        world.answers = [httpx.Response(429, headers={"retry-after": "7"})]
        assert await client.health() == WELL
    assert world.now == 7


async def test_a_refused_token_is_replaced_once_and_at_once(world: World) -> None:
    async with await world.client() as client:
        world.answers = [httpx.Response(403)]
        assert await client.health() == WELL
    assert (world.seen, world.now) == (["token-1", "token-2"], 0)


async def test_an_endpoint_that_stays_busy_says_nothing_of_the_vm(world: World) -> None:
    async with await world.client() as client:
        world.answers = [httpx.Response(502)] * 100
        with pytest.raises(SandboxUnreachable):
            await client.health()
    assert (25 < world.now <= 30, world.service.states()) == (True, ["RUNNING"])


@pytest.mark.parametrize("status", [403, 502])
async def test_a_vm_that_has_ended_is_gone_by_what_its_owner_says(world: World, status: int) -> None:
    async with await world.client() as client:
        world.service.becomes("TERMINATED")
        world.answers = [httpx.Response(status)] * 100
        with pytest.raises(SandboxGone):
            await client.health()
    assert len(world.seen) == 2


@pytest.mark.parametrize(
    ("state", "raised"), [("RUNNING", SandboxUnreachable), ("SUSPENDED", SandboxUnreachable), ("TERMINATED", SandboxGone)]
)
async def test_a_torn_connection_says_nothing_of_the_vm_and_its_owner_does(
    world: World, state: str, raised: type[SandboxError]
) -> None:
    async with await world.client() as client:
        world.service.becomes(state)
        world.breaks = 1
        with pytest.raises(SandboxError) as broken:
            await client.health()
        assert (type(broken.value), world.service.states()) == (raised, [state])
        if raised is SandboxUnreachable:
            assert await client.health() == WELL


@pytest.mark.parametrize(("state", "requests"), [("RUNNING", 1), ("SUSPENDING", 0), ("SUSPENDED", 0)])
async def test_looking_wakes_no_vm(world: World, state: str, requests: int) -> None:
    async with await world.client() as client:
        world.service.becomes(state)
        client.looks_only()
        if state == "RUNNING":
            assert await client.health() == WELL
        else:
            with pytest.raises(SandboxError, match="sleeps"):
                await client.processes()
    assert (len(world.seen), world.service.states()) == (requests, [state])


async def test_a_vm_that_aws_has_forgotten_is_gone(world: World) -> None:
    async with await world.client() as client:
        world.service.vms.clear()
        with pytest.raises(SandboxGone):
            await client.health()


async def test_the_servers_own_refusal_is_not_repeated(world: World) -> None:
    async with await world.client() as client:
        world.answers = [httpx.Response(429, json={"error": {"code": "too_many_sessions", "message": "End one first."}})]
        with pytest.raises(SandboxError, match="End one first") as refused:
            await client.health()
    assert (type(refused.value), len(world.seen)) == (SandboxError, 1)


async def test_an_upload_is_begun_anew_by_its_sender(world: World) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"once"

    async with await world.client() as client:
        world.answers = [httpx.Response(502)]
        with pytest.raises(SandboxUnreachable):
            await client.write_file("a.txt", content())
    assert len(world.seen) == 1


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerException"])
@pytest.mark.parametrize("operation", ["RunMicrovm", "GetMicrovm", "CreateMicrovmAuthToken", "TerminateMicrovm"])
async def test_a_service_that_asks_for_patience_breaks_nothing(world: World, operation: str, code: str) -> None:
    async def use(client: ExecClient) -> None:
        await world.provisioner.start(SPEC)
        await client.health()
        await world.provisioner.stop(VM)

    async with await world.client() as client:
        world.service.faults.append((operation, Refused(code, retry_after=3)))
        with pytest.raises(SandboxStarting) as waiting:
            await use(client)
    assert (waiting.value.retry_after_seconds, world.service.states()) == (3, ["RUNNING"])


async def test_a_vm_that_cannot_be_ended_now_is_ended_later(world: World) -> None:
    async with await world.client():
        world.service.faults.append(("TerminateMicrovm", Refused("ConflictException")))
        with pytest.raises(SandboxStarting):
            await world.provisioner.stop(VM)
