"""Lambda MicroVMs on this machine: AWS's API, the public endpoint, and machines behind it that sleep and wake.

The rules of the API are those of ``tests/unit/aws/microvm_service.py``. Added here is time: calls are throttled, answers lag behind,
machines start and fall asleep by themselves. What the endpoint does in a machine's place is reported by people with an account, and
shorter here: of the first requests of a machine, and of those after a sleep, a third is held and answered 502.
"""

import asyncio
import json
import random
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.egress.places import place_in

from tests.twin.microvms.machine import Image, Machine
from tests.unit.aws.microvm_service import FakeMicrovms, Refused, asked_of, operation_of, status_of

ACCOUNT: Final = "arn:aws:lambda:us-east-1:000000000000"
CLOSED: Final = f"{ACCOUNT}:network-connector:closed"
POLICY: Final = f"{ACCOUNT}:network-connector:policy"
IMAGES: Final = {tier: f"{ACCOUNT}:microvm-image:moorage-{tier}" for tier in ("1g", "4g", "16g")}
HTTP_INGRESS: Final = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:HTTP_INGRESS"
"""AWS's own, which a VM has by default, and which has to be passed then too."""
PROXY_NETWORK: Final = "10.43.0.0/29"
PROXY_ADDRESS: Final = "10.43.0.4"
PROXY_PORT: Final = 3128

_RATES: Final = {"RunMicrovm": 5, "ResumeMicrovm": 5, "SuspendMicrovm": 2, "TerminateMicrovm": 10, "CreateMicrovmAuthToken": 50}
"""Calls in a second (Lambda's quotas); others are 100."""
_CONNECTIONS: Final = {"moorage-1g": 8, "moorage-4g": 16, "moorage-16g": 64}
_BYTES_A_SECOND: Final = {"moorage-1g": 1_000_000, "moorage-4g": 2_000_000, "moorage-16g": 8_000_000}
_LAG_SECONDS: Final = 0.3
_WAKE_SECONDS: Final = 0.3
_HOLD_SECONDS: Final = 0.5
_TERMINATED: Final = ("TERMINATING", "TERMINATED")
_HEAD_BYTES_MAX: Final = 64 * 1024
_PIECE: Final = 64 * 1024
_REASONS: Final = {400: "Bad Request", 403: "Forbidden", 429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway"}


@dataclass
class Running:
    """A VM's machine, and what the endpoint knows of it."""

    machine: Machine
    size: str
    """The name of its image."""
    tokens: set[str] = field(default_factory=set)
    said_at: float = field(default_factory=time.monotonic)
    """When a byte went through the endpoint last."""
    is_fresh: bool = True
    """It has just been started or woken: the endpoint may fail."""
    open: set[asyncio.Task[Any]] = field(default_factory=set)
    """Its connections, in both directions."""
    waking: asyncio.Lock = field(default_factory=asyncio.Lock)
    doors: list[asyncio.Server] = field(default_factory=list)
    free_at: float = 0.0
    """When the bytes that it was sent so far are through."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A connection of it, for the current task."""
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            yield
        finally:
            self.open.discard(task)


class MicrovmTwin(FakeMicrovms):
    """Started in a thread of its own; ``with`` it."""

    def __init__(
        self,
        image: Image,
        *,
        idle_seconds: float = 8.0,
        seed: int = 0,
        proxy: tuple[str, Callable[[], bytes]] | None = None,
        bucket_port: int = 0,
    ) -> None:
        """``idle_seconds`` stand for the policy's minutes, and are more than a heartbeat's five. ``proxy`` is the path of the proxy's
        Unix socket, and the key of places. ``bucket_port``: of an emulator on this machine, where machines reach the bucket."""
        super().__init__()
        self._image, self._idle_seconds, self._proxy = image, idle_seconds, proxy
        self._bucket_port = bucket_port
        self.age_seconds = 0.0
        """Of machines at their start: AWS ends one after eight hours."""
        self.may: Callable[[str, str], bool] = lambda action, resource: True
        """Whether IAM lets the stack do this to that."""
        self.endpoint_bytes = 0
        """Of all that went through the endpoints."""
        self._chance = random.Random(seed)
        self._running: dict[str, Running] = {}
        self._shown: dict[str, deque[tuple[float, str]]] = {}
        self._asked_at: dict[str, deque[float]] = {}
        self.happened: Counter[str] = Counter()
        """What the twin has done to its callers: so that a test can tell that it was tried."""
        self.places: set[str | None] = set()
        """Whose forwarders have spoken to the proxy; None for one that could not say."""
        for name in IMAGES.values():
            self.images[name] = CLOSED
            self.tags[name] = {"moorage:deployment": "moorage"}
            self.builds(name, "1.0", time.time())
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.url, self._endpoint = "", ""

    def __enter__(self) -> "MicrovmTwin":
        self._thread.start()
        self._on_loop(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """What leads a stack's processes here."""
        return {
            "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": self.url,
            "AWS_ENDPOINT_URL_LAMBDA_CORE": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            **{f"MOORAGE_MICROVM_IMAGE_{tier.upper()}": name for tier, name in IMAGES.items()},
            "MOORAGE_MICROVM_EGRESS_CONNECTOR": CLOSED,
            "MOORAGE_MICROVM_POLICY_CONNECTOR": POLICY,
            "MOORAGE_MICROVM_PROXY_NETWORKS": PROXY_NETWORK,
            **({"MOORAGE_MICROVM_REACHES_BUCKET": "true"} if self._bucket_port else {}),
        }

    # --- What a test does to machines -----------------------------------------------------------------------------------------

    def alive(self) -> list[str]:
        return [vm_id for vm_id, vm in self.vms.items() if vm["state"] not in _TERMINATED]

    def sleep(self, vm_id: str) -> None:
        """As by idleness; returns when GetMicrovm says so."""
        self._on_loop(self._suspend(vm_id))
        time.sleep(_LAG_SECONDS)

    def crash(self, vm_id: str) -> None:
        """End its container, as an end of its first process does."""
        self._running[vm_id].machine.end()
        self._on_loop(self._ended(vm_id))

    def grow_old(self, vm_id: str, seconds_left: float) -> None:
        """Let it have so long to live, asleep or awake."""
        vm = self.vms[vm_id]
        vm["startedAt"] = time.time() + seconds_left - vm["maximumDurationInSeconds"]

    def pids(self, vm_id: str) -> list[int]:
        return self._running[vm_id].machine.processes()

    # --- The API --------------------------------------------------------------------------------------------------------------

    async def _serve_api(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        body = await reader.readexactly(int(_header(head, "content-length") or 0))
        name = operation_of(method, target)
        try:
            self._throttle(name)
            asked = asked_of(name, target, body)
            self._judge(name, asked)
            status, answer, extra = 200, self._call(name, asked), ""
        except Refused as refusal:
            self.happened[refusal.code] += 1
            status, answer = status_of(refusal.code), {"message": str(refusal)}
            extra = f"x-amzn-ErrorType: {refusal.code}\r\n"
            extra += "" if refusal.retry_after is None else f"retry-after: {refusal.retry_after}\r\n"
        content = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n{extra}".encode())
        writer.write(f"content-length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()

    def _throttle(self, name: str) -> None:
        self.calls.append(name)
        if self.faults and self.faults[0][0] == name:
            raise self.faults.popleft()[1]
        now, asked = time.monotonic(), self._asked_at.setdefault(name, deque())
        while asked and asked[0] < now - 1:
            asked.popleft()
        if len(asked) >= _RATES.get(name, 100):
            raise Refused("ThrottlingException", "Rate exceeded", retry_after=1)
        asked.append(now)

    def _judge(self, name: str, asked: dict[str, Any]) -> None:
        for action, resource in self._wanted(name, asked):
            if not self.may(f"lambda:{action}", resource):
                raise Refused("AccessDeniedException", f"not authorized to perform lambda:{action} on {resource}")

    def _wanted(self, name: str, asked: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Rights that a call takes. Calls about a VM are judged by its image, and while it sleeps by its own ARN too (reported)."""
        match name:
            case "ListMicrovms" | "ListMicrovmImageVersions":
                yield name, "*"
            case "RunMicrovm":
                yield name, asked["imageIdentifier"]
                for connector in (HTTP_INGRESS, *(asked.get("egressNetworkConnectors") or [])):
                    yield "PassNetworkConnector", connector
            case "GetNetworkConnector":
                yield name, asked["Identifier"]
            case "ListTags" | "DeleteMicrovmImageVersion":
                yield name, asked.get("Resource") or asked["imageIdentifier"]
            case _ if (vm := self.vms.get(asked["microvmIdentifier"])) is not None:
                yield name, vm["imageArn"]
                if vm["state"] in ("SUSPENDING", "SUSPENDED"):
                    yield name, f"{ACCOUNT}:microvm:{vm['microvmId']}"

    def _call(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self, f"_{name}")(asked)
        return answer

    def _RunMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        known = set(self.vms)
        answer = super()._RunMicrovm(asked)
        if (vm_id := answer["microvmId"]) not in known:
            vm = self.vms[vm_id]
            vm |= {
                "startedAt": time.time() - self.age_seconds,
                "endpoint": f"{self._endpoint}/{vm_id}",
                "idlePolicy": asked.get("idlePolicy"),
            }
            self._shown[vm_id] = deque([(0.0, "PENDING")])
            self._begin(self._start(vm_id, asked["runHookPayload"]))
        return dict(self.vms[vm_id]) | {"state": "PENDING"}

    def _GetMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Behind the truth, as GetMicrovm is (reported)."""
        vm, seen = self._vm(asked), time.monotonic() - _LAG_SECONDS
        shown = [state for at, state in self._shown[vm["microvmId"]] if at <= seen]
        return vm | {"state": shown[-1]}

    def _TerminateMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        vm = self._vm(asked)
        if vm["state"] not in _TERMINATED:
            self._becomes(vm["microvmId"], "TERMINATING")
            self._begin(self._end(vm["microvmId"]))
        return {}

    def _CreateMicrovmAuthToken(self, asked: dict[str, Any]) -> dict[str, Any]:
        vm = self._vm(asked)
        if vm["state"] in _TERMINATED:
            raise Refused("ResourceNotFoundException")
        if asked["expirationInMinutes"] > 60 or asked["allowedPorts"] != [{"port": 8080}]:
            raise Refused("ValidationException")
        token = secrets.token_hex(32)
        if running := self._running.get(vm["microvmId"]):
            running.tokens.add(token)
        return {"authToken": {"X-aws-proxy-auth": token}}

    def _becomes(self, vm_id: str, state: str) -> None:
        self.vms[vm_id]["state"] = state
        self._shown[vm_id].append((time.monotonic(), state))

    # --- Lives ----------------------------------------------------------------------------------------------------------------

    async def _start(self, vm_id: str, payload: str) -> None:
        size = self.vms[vm_id]["imageArn"].rpartition(":")[2]
        running = self._running[vm_id] = Running(self._image.machine(vm_id), size)
        if self.vms[vm_id]["egressNetworkConnectors"] == [POLICY] and self._proxy is not None:
            await self._lead_to_proxy(running)
        if self._bucket_port:
            await self._lead_to_bucket(running)
        status = 0
        with suppress(OSError):
            status = await running.machine.run_hook(vm_id, payload)
        if self.vms[vm_id]["state"] in _TERMINATED:
            return
        running.said_at = time.monotonic()
        if status == 200:
            self._becomes(vm_id, "RUNNING")
            self._begin(self._watch(vm_id))
        else:
            self.vms[vm_id]["stateReason"] = f"The run hook was answered {status}."
            await self._end(vm_id)

    async def _watch(self, vm_id: str) -> None:
        """Put it to sleep when no byte has gone through the endpoint for so long, and note when it has ended by itself."""
        vm, running = self.vms[vm_id], self._running[vm_id]
        while vm["state"] not in _TERMINATED:
            await asyncio.sleep(0.25)
            if time.time() > vm["startedAt"] + vm["maximumDurationInSeconds"]:
                self.happened["old age"] += 1
                self._becomes(vm_id, "TERMINATING")
                await self._end(vm_id)
            if vm["state"] == "RUNNING" and time.monotonic() - running.said_at > self._idle_seconds:
                await self._suspend(vm_id)
            elif vm["state"] == "RUNNING" and not running.machine.is_alive:
                await self._ended(vm_id)

    async def _suspend(self, vm_id: str) -> None:
        running = self._running[vm_id]
        async with running.waking:
            if self.vms[vm_id]["state"] != "RUNNING":
                return
            self._becomes(vm_id, "SUSPENDING")
            await asyncio.to_thread(running.machine.suspend)
            # Connections outlive no sleep: neither inbound ones nor outbound ones.
            for each in running.open:
                each.cancel()
            self._becomes(vm_id, "SUSPENDED")
            self.happened["sleep"] += 1

    async def _wake(self, vm_id: str) -> None:
        running = self._running[vm_id]
        async with running.waking:
            if self.vms[vm_id]["state"] != "SUSPENDED":
                return
            await asyncio.sleep(_WAKE_SECONDS)
            await asyncio.to_thread(running.machine.resume)
            running.said_at, running.is_fresh = time.monotonic(), True
            self._becomes(vm_id, "RUNNING")
            self.happened["wake"] += 1

    async def _end(self, vm_id: str) -> None:
        if running := self._running.get(vm_id):
            async with running.waking:
                await asyncio.to_thread(running.machine.end)
        await self._ended(vm_id)

    async def _ended(self, vm_id: str) -> None:
        if self.vms[vm_id]["state"] == "TERMINATED":
            return
        self._becomes(vm_id, "TERMINATED")
        if running := self._running.get(vm_id):
            for each in running.open:
                each.cancel()
            for door in running.doors:
                door.close()

    # --- The public endpoint --------------------------------------------------------------------------------------------------

    async def _serve_endpoint(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request. Its connection ends with the answer."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            vm_id, _, path = target.removeprefix("/").partition("/")
            if status := await self._admit(vm_id, head):
                await _say(writer, status)
                return
            with self._running[vm_id].noted():
                await self._pass_on(self._running[vm_id], f"{method} /{path} HTTP/1.1".encode(), head, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            with suppress(OSError):
                await _say(writer, 502)
        finally:
            writer.close()

    async def _admit(self, vm_id: str, head: bytes) -> int:
        """The status that the endpoint answers itself; 0 if it passes the request on. A VM that sleeps is woken."""
        vm, running = self.vms.get(vm_id), self._running.get(vm_id)
        if vm is None or vm["state"] in _TERMINATED or _header(head, "x-aws-proxy-auth") not in (running.tokens if running else ()):
            return 403
        assert running is not None
        if _header(head, "x-aws-proxy-port") != "8080":
            return 403
        if len(running.open) >= _CONNECTIONS[running.size]:
            self.happened["429"] += 1
            return 429
        while vm["state"] in ("SUSPENDING", "SUSPENDED"):
            await self._wake(vm_id)
            await asyncio.sleep(0)
        if running.is_fresh:
            running.is_fresh = False
            if self._chance.random() < 1 / 3:
                await asyncio.sleep(_HOLD_SECONDS)
                self.happened["502"] += 1
                return 502
        return 502 if vm["state"] == "PENDING" else 0

    async def _pass_on(
        self, running: Running, line: bytes, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until the machine has answered, or the client has gone."""
        hidden = (b"x-aws-proxy-", b"connection:")
        fields = [each for each in head.split(b"\r\n")[1:] if each and not each.lower().startswith(hidden)]
        far_reader, far_writer = await asyncio.open_connection(sock=await running.machine.connected(8080), limit=_HEAD_BYTES_MAX)
        far_writer.write(b"\r\n".join([line, *fields, b"connection: close", b"", b""]))

        async def answer() -> None:
            answered = await far_reader.readuntil(b"\r\n\r\n")
            writer.write(answered[:-2] + b"connection: close\r\n\r\n")
            await self._pump(running, far_reader, writer)

        ways = [asyncio.create_task(self._pump(running, reader, far_writer)), asyncio.create_task(answer())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in ways:
                each.cancel()
            far_writer.close()

    async def _pump(self, running: Running, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes at the machine's rate, both ways together."""
        while data := await reader.read(_PIECE):
            now = running.said_at = time.monotonic()
            self.endpoint_bytes += len(data)
            running.free_at = max(now, running.free_at) + len(data) / _BYTES_A_SECOND[running.size]
            if running.free_at - now > 0.05:
                await asyncio.sleep(running.free_at - now)
            writer.write(data)
            await writer.drain()

    # --- The way out ----------------------------------------------------------------------------------------------------------

    async def _lead_to_bucket(self, running: Running) -> None:
        """What the gateway endpoint does: the bucket's address leads to it, from the machine's network."""
        door = running.machine.new_socket()
        door.bind(("127.0.0.1", self._bucket_port))
        door.listen(64)

        async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.happened["bucket"] += 1
            try:
                with running.noted():
                    await _join((reader, writer), await asyncio.open_connection("127.0.0.1", self._bucket_port))
            except OSError:
                pass
            finally:
                writer.close()

        running.doors.append(await asyncio.start_server(through, sock=door))

    async def _lead_to_proxy(self, running: Running) -> None:
        """What the connector ``policy`` does: the proxy's address in the machine's network, and no other."""
        pid = str(running.machine.pid)
        add = ["nsenter", "--net", "--target", pid, "ip", "address", "add", f"{PROXY_ADDRESS}/32", "dev", "lo"]
        while (await (await asyncio.create_subprocess_exec(*add)).wait()) != 0:
            await asyncio.sleep(0.05)
        door = running.machine.new_socket()
        door.bind((PROXY_ADDRESS, PROXY_PORT))
        door.listen(64)

        async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert self._proxy is not None
            path, key = self._proxy
            try:
                if line := await reader.readline():  # A look whether somebody listens says nothing.
                    self.places.add(place_in(line.rstrip(b"\n"), key()))
                    with running.noted():
                        await _join((reader, writer), await asyncio.open_unix_connection(path))
            except OSError:
                pass
            finally:
                writer.close()

        running.doors.append(await asyncio.start_server(through, sock=door))

    # --- The thread -----------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        api = await asyncio.start_server(self._serve_api, "127.0.0.1", 0)
        endpoint = await asyncio.start_server(self._serve_endpoint, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX)
        self.url, self._endpoint = (f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (api, endpoint))
        self._servers = (api, endpoint)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for vm_id in self.alive():
            self._becomes(vm_id, "TERMINATING")
            await self._end(vm_id)
        for task in (others := asyncio.all_tasks() - {asyncio.current_task()}):
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(120)


def _header(head: bytes, name: str) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return ""


async def _join(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter], far: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    ways = [asyncio.create_task(_copy(near[0], far[1])), asyncio.create_task(_copy(far[0], near[1]))]
    try:
        await asyncio.gather(*ways)
    finally:
        for each in ways:
            each.cancel()
        far[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


async def _say(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
    await writer.drain()
