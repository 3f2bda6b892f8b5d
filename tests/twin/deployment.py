"""The loop as it is deployed, on a clock that is only counted: model steps outside of the sandboxes' network, tool steps inside, Step
Functions before them, and ECS and S3, which can be told to take no requests for a while.

The steps, the containers' lives and the Fargate provisioner are the real ones; what they speak to is in memory.
"""

import asyncio
import hashlib
import importlib.util
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from types import ModuleType
from typing import Any, cast

from botocore.exceptions import ClientError
from moorage.containers.containers import Containers
from moorage.local.state_machine import State, StateMachine
from moorage.loop.tasks import TASKS, Throttled
from moorage.runtime import Runtime
from moorage.sandbox.by_tier import Reaches
from moorage.sandbox.exec_client import ExecClient, ExecEnded, ExecEvent, ExecOutput, ExecStarted
from moorage.sandbox.fargate import EXEC_PORT, FargateProvisioner, FargateSettings, StartedTask
from moorage.sandbox.provisioner import CONFIG_VARIABLE, Handle
from moorage.sandbox.reach_only import ReachOnlyProvisioner
from moorage.store.blobs import Blob
from moorage.store.responses import StoredResponse
from moorage.store.throttling import is_throttle

from tests.infra.conftest import ROOT
from tests.unit.loop.lab import Lab, Turn, first_state
from tests.unit.resources.support import FakeClient, FakeSandbox
from tests.unit.store.memory import MemoryBlobs

INSIDE = ("ToolStep", "ParseStep")
"""The steps that live in the sandboxes' network (``infra/agent_loop.py``)."""

START_SECONDS = 30.0
"""From ECS's taking an order to a task that runs."""


@cache
def function(name: str) -> ModuleType:
    """A function's handler, as Lambda would import it."""
    spec = importlib.util.spec_from_file_location(f"{name}_handler", ROOT / "functions" / name / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Refusals:
    """A service that refuses a share of what it is asked, for so long from one of its requests on."""

    code: str
    from_request: int
    share: float = 1.0
    seconds: float = 60.0
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    asked: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    _until: float = 0.0

    def meet(self, operation: str) -> None:
        self.asked[operation] += 1
        now = asyncio.get_running_loop().time()
        if self.asked.total() == self.from_request:
            self._until = now + self.seconds
        if now < self._until and self.chance.random() < self.share:
            self.refused[operation] += 1
            raise ClientError({"Error": {"Code": self.code, "Message": "slow down"}}, operation)


class Bucket(MemoryBlobs):
    def __init__(self) -> None:
        super().__init__()
        self.refusals: Refusals | None = None

    async def _ask(self, operation: str) -> None:
        if self.refusals is not None:
            await asyncio.sleep(0.05)
            self.refusals.meet(operation)

    async def put_bytes(self, key: str, data: bytes) -> Blob:
        await self._ask("PutObject")
        await super().put_bytes(key, data)
        return Blob(key, len(data), hashlib.sha256(data).hexdigest())

    async def get_bytes(self, key: str) -> bytes:
        await self._ask("GetObject")
        return await super().get_bytes(key)

    async def list_sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        await self._ask("ListObjectsV2")
        async for each in super().list_sizes(prefix):
            yield each


class AtOnce(Executor):
    """Runs what it is given in the caller's thread: the clock stands still meanwhile."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Ecs:
    """A cluster: an order becomes a task, which runs after a while and is told of by an event; and what is in it."""

    def __init__(self, now: Callable[[], float], tell: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._now, self._tell = now, tell
        self.refusals: Refusals | None = None
        self.tasks: dict[str, dict[str, Any]] = {}
        self.sandboxes: dict[str, FakeSandbox] = {}
        """By the address at which the task listens."""
        self.programs: Callable[[FakeSandbox, str], tuple[int, str]] | None = None
        """What runs in the next ones."""
        self._ordered: dict[str, str] = {}
        self._starting: set[asyncio.Task[None]] = set()

    def run_task(self, *, clientToken: str, overrides: dict[str, Any], **request: Any) -> dict[str, Any]:
        self._ask("RunTask")
        if clientToken in self._ordered:
            return {"tasks": [self.tasks[self._ordered[clientToken]]], "failures": []}
        arn = f"arn:aws:ecs:us-east-1:000000000000:task/moorage/{len(self.tasks) + 1}"
        self._ordered[clientToken] = arn
        (variable,) = overrides["containerOverrides"][0]["environment"]
        assert variable["name"] == CONFIG_VARIABLE
        self.tasks[arn] = {
            "taskArn": arn,
            "lastStatus": "PROVISIONING",
            "desiredStatus": "RUNNING",
            "createdAt": datetime.fromtimestamp(self._now(), UTC),
            "startedBy": request["startedBy"],
            "group": request["group"],
            "tags": request["tags"],
            "attachments": [],
        }
        address = f"10.42.0.{len(self.tasks)}"
        self.sandboxes[address] = FakeSandbox(arn, json.loads(variable["value"])["token_sha256"], programs=self.programs)
        starting = asyncio.ensure_future(self._start(arn, address))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return {"tasks": [dict(self.tasks[arn])], "failures": []}

    async def _start(self, arn: str, address: str) -> None:
        await asyncio.sleep(START_SECONDS)
        task = self.tasks[arn]
        if task["desiredStatus"] == "STOPPED":
            return
        task["lastStatus"], task["startedAt"] = "RUNNING", datetime.fromtimestamp(self._now(), UTC)
        task["attachments"] = [{"details": [{"name": "privateIPv4Address", "value": address}]}]
        await self._tell(task)

    def describe_tasks(self, *, tasks: list[str], **_: Any) -> dict[str, Any]:
        self._ask("DescribeTasks")
        return {"tasks": [dict(self.tasks[arn]) for arn in tasks if arn in self.tasks]}

    def list_tasks(self, *, startedBy: str | None = None, **_: Any) -> dict[str, Any]:
        self._ask("ListTasks")
        wanted = (task for task in self.tasks.values() if task["desiredStatus"] == "RUNNING")
        return {"taskArns": [task["taskArn"] for task in wanted if startedBy in (None, task["startedBy"])]}

    def stop_task(self, *, task: str, **_: Any) -> dict[str, Any]:
        self._ask("StopTask")
        self.tasks[task] |= {"desiredStatus": "STOPPED", "lastStatus": "STOPPED"}
        return {}

    def _ask(self, operation: str) -> None:
        if self.refusals is not None:
            self.refusals.meet(operation)

    @property
    def running(self) -> list[str]:
        return [arn for arn, task in self.tasks.items() if task["lastStatus"] == "RUNNING"]


class Shell(FakeClient):
    """A sandbox whose commands take a second, and leave a file that is called as they are. Where it has programs, they do that."""

    def __init__(self, sandbox: FakeSandbox | None, handle: Handle, begun: dict[str, str]) -> None:
        super().__init__(sandbox, replace(handle, token=hashlib.sha256(handle.token.encode()).hexdigest()))
        self._begun = begun

    async def exec(self, exec_id: str, command: str, **options: Any) -> AsyncGenerator[ExecEvent, None]:
        sandbox = self._alive()
        is_new = exec_id not in self._begun
        self._begun.setdefault(exec_id, command)
        if sandbox.programs is not None:
            async for event in super().exec(exec_id, command, timeout_ms=options["timeout_ms"], max_output_length=0):
                yield event
            return
        if is_new:
            sandbox.write(command, f"written by {command}".encode())
        await asyncio.sleep(1)
        self._alive()
        for event in (ExecStarted(0), ExecOutput(1, "stdout", f"{command}\n"), ExecEnded(2, "exit", 0, 0, None)):
            if event.n > options["after"]:
                yield event


class ClockedLab(Lab):
    """Its clock is the event loop's."""

    _epoch = 0.0

    @property
    def now(self) -> float:
        return self._epoch + asyncio.get_running_loop().time()

    @now.setter
    def now(self, at: float) -> None:
        self._epoch = at - asyncio.get_running_loop().time()


def with_containers(runtime: Runtime, containers: Containers) -> Runtime:
    return replace(runtime, computers=replace(runtime.computers, containers=containers))


class Deployment:
    """For one tenant, on the running event loop."""

    def __init__(self, *turns: Turn, seed: int = 0) -> None:
        self.bucket = Bucket()
        self.lab = ClockedLab(*turns, blobs=self.bucket)
        self.ecs = Ecs(lambda: self.lab.now, self._tell)
        self.begun: dict[str, str] = {}
        """Commands by what the exec server knows them: each once."""
        self.tasks: list[str] = []
        """Those that were run, in order."""
        self.machine = StateMachine(self._invoke, random.Random(seed))
        runtime = self.lab.runtime
        settings = FargateSettings("moorage", ("subnet",), "sg", None, {1: "definition"}, has_events=True)
        fargate = FargateProvisioner(cast("Any", self.ecs), settings, AtOnce(), clock=lambda: self.lab.now)
        self.outside = with_containers(runtime, self._containers(fargate, connect=None))
        reach = ReachOnlyProvisioner(can_reach=self._listens)
        self.inside = with_containers(runtime, self._containers(reach, connect=self._connect))

    def _containers(
        self, provisioner: Any, connect: Callable[[Handle], ExecClient] | None, reaches: Reaches | None = None
    ) -> Containers:
        runtime = self.lab.runtime
        return Containers(
            runtime.stores.table,
            self.bucket,
            provisioner,
            runtime.stores.files,
            clock=runtime.clock,
            sandbox_key=lambda: b"k" * 32,
            connect=connect,
            reaches=reaches,
            has_browsers=True,
            can_start=not isinstance(provisioner, ReachOnlyProvisioner),
        )

    async def _listens(self, endpoint: str) -> bool:
        return endpoint.removeprefix("http://").removesuffix(f":{EXEC_PORT}") in self.ecs.sandboxes

    def _connect(self, handle: Handle) -> ExecClient:
        address = handle.endpoint.removeprefix("http://").removesuffix(f":{EXEC_PORT}")
        return cast("ExecClient", Shell(self.ecs.sandboxes.get(address), handle, self.begun))

    async def _tell(self, task: dict[str, Any]) -> None:
        """EventBridge, and the function behind it."""
        started = StartedTask.from_event({**task, "createdAt": str(task["createdAt"]), "startedAt": str(task["startedAt"])})
        assert started is not None
        await function("placement").note(self.outside.computers.containers, started)

    async def _invoke(self, name: str, given: State) -> Any:
        try:
            return await self._function(name, given)
        except ClientError as error:
            if is_throttle(error):
                raise Throttled(str(error)) from error
            raise

    async def _function(self, name: str, given: State) -> Any:
        self.tasks.append(name)
        return await TASKS[name](self.inside if name in INSIDE else self.outside, given)

    async def response(self, text: str = "go") -> StoredResponse:
        """One in the background, with a container that has a file, before its execution runs."""
        record = await self.outside.computers.containers.reserve("t", name="auto")
        await self.outside.computers.containers.add_file(record, filename="given.txt", chunks=_one(b"given"))
        return await self.lab.background(text, container_id=record.id)

    async def run(self, stored: StoredResponse) -> str:
        return await self.machine.run(first_state(stored).to_json())

    async def files(self, stored: StoredResponse) -> dict[str, bytes]:
        """What is stored of its container."""
        assert stored.container_id is not None
        record = await self.outside.computers.containers.get("t", stored.container_id)
        rows = await self.outside.computers.containers.files_of("t", record.id)
        return {row.path: b"".join([chunk async for chunk in self.outside.computers.containers.content(row)]) for row in rows}


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data
