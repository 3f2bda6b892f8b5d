"""The loop in one process: the real steps, with a table, a bucket, a model and a container in memory.

lab = Lab(say("done"))                  # what the model will say, one turn each
stored = await lab.background("list the files")
await lab.run(stored)                   # as the state machine would: Route, ModelStep, RunTools, ...
assert lab.object_of(stored)["status"] == "completed"
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from moorage import ids
from moorage.containers.sandbox_wait import SandboxWait
from moorage.containers.sweep import nobody
from moorage.egress.fetch import Fetcher
from moorage.errors import SandboxElsewhere, UpstreamError, container_not_found
from moorage.identity.ended_sessions import EndedSessions
from moorage.inputs import Inputs
from moorage.knowledge.knowledge import Knowledge
from moorage.loop.create import start_background
from moorage.loop.model_step import model_step
from moorage.loop.tool_step import tool_step
from moorage.model.base import (
    CallDelta,
    CallStarted,
    Delta,
    MessageStarted,
    ModelRequest,
    StreamFinished,
    TextDelta,
    UsageReported,
)
from moorage.model.catalog import ModelEntry
from moorage.model.prices import Price
from moorage.model.remote_servers import RemoteServers
from moorage.net.transport import UpstreamTransport
from moorage.runtime import Computers, Identity, ModelAccess, Runtime
from moorage.sandbox.exec_client import ExecEnded, ExecOutput, ExecStarted, FileListing, PythonEnded, SessionCommand, SessionOutput
from moorage.settings import Settings
from moorage.state import LoopState, Next
from moorage.store.audit import Audit
from moorage.store.deployment_keys import DeploymentKeys
from moorage.store.responses import StoredResponse
from moorage.store.sealed import Sealer
from moorage.stores import Stores
from moorage.tracing import Trace
from moorage.vector_stores.vector_stores import VectorStores
from moorage.wire.parameters import Parameters
from moorage.wire.types import Event, Item

from tests.fake_desk import FakeDesk
from tests.unit.store.deaths import Death, Died
from tests.unit.store.memory import MemoryBlobs, MemoryTable

TENANT = "t"
CONTAINER = "cntr_1"
SHELL_TOOL: dict[str, Any] = {"type": "shell", "environment": {"type": "container_auto"}}
FUNCTION_ONLY = frozenset({"function"})

Turn = list[Delta | UpstreamError]


def say(text: str) -> Turn:
    return [MessageStarted(), TextDelta(text), UsageReported(10, 2), StreamFinished("stop")]


def call(name: str, arguments: str, call_id: str = "call_1") -> Turn:
    return [CallStarted(name, call_id), CallDelta(arguments), UsageReported(10, 2), StreamFinished("tool_calls")]


def shell(*commands: str, call_id: str = "call_1") -> Turn:
    listed = ", ".join(f'"{command}"' for command in commands)
    return call("shell", f'{{"commands": [{listed}]}}', call_id)


def broken(text: str) -> Turn:
    """A turn that stops in the middle of its text."""
    return [MessageStarted(), TextDelta(text), UpstreamError("gone", is_retryable=True)]


@dataclass
class FakeModel:
    turns: list[Turn]
    native_tools: frozenset[str] = FUNCTION_ONLY
    requests: list[ModelRequest] = field(default_factory=list)
    before_answer: Callable[[], Any] | None = None
    """Called when it is asked, once; a test lets somebody else write then."""
    before_call: Callable[[], Any] | None = None
    """Called before each call that it makes; a test waits until the log has what was said so far."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        hook, self.before_answer = self.before_answer, None
        if hook is not None:
            await hook()
        for delta in self.turns.pop(0):
            if isinstance(delta, UpstreamError):
                raise delta
            if isinstance(delta, CallDelta) and self.before_call is not None:
                await self.before_call()
            yield delta


@dataclass
class FakeSandboxes:
    """One container, always running, whose commands print their own text."""

    executed: list[str] = field(default_factory=list)
    """By what the exec server knows them."""
    begun: list[str] = field(default_factory=list)
    """What the shell was given, as often as it has begun."""
    incarnation: int = 1
    held: int = 0
    """Live containers that nobody has closed."""
    is_there: bool = True
    """Otherwise a sandbox has to be placed first."""
    can_start: bool = True
    ends_at: float = float("inf")
    """When the container's sandbox is ended, whatever it does."""
    paid: dict[str, int] = field(default_factory=dict)
    """Seconds, by each response."""
    before_pay: Callable[[], None] | None = None
    placings: int = 0
    before_place: Callable[[], None] | None = None
    prints: Callable[[str], str] = "{}\n".format
    """What a command says on stdout."""
    session_prints: Callable[[str], str] = lambda code: "printed\n"
    """What JavaScript says on stdout."""
    browser: FakeDesk = field(default_factory=FakeDesk)
    is_gone: bool = True
    """What is found where a connection broke."""

    async def place(self, tenant_id: str, container_id: str) -> None:
        self.placings += 1
        if self.before_place is not None:
            self.before_place()
        self.is_there = True

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        if not self.is_there:
            raise SandboxElsewhere
        self.held += 1
        left = lambda now: self.ends_at - now  # noqa: E731
        return _Live(self, SimpleNamespace(incarnation=self.incarnation, network_policy={"type": "disabled"}, seconds_left=left))

    async def running(self, tenant_id: str, container_id: str) -> Any:
        return None

    async def bring_files(self, live: Any) -> bool:
        """Clients add none."""
        return True

    async def is_news(self, live: Any) -> bool:
        return False

    async def confirm_gone(self, live: Any) -> bool:
        return self.is_gone

    @asynccontextmanager
    async def desk(self, live: Any) -> AsyncIterator[FakeDesk]:
        yield self.browser


class NoArtifacts:
    syncs = 0

    async def sync(self, live: Any, *, after_ms: int = 0, listing: FileListing | None = None) -> Any:
        self.syncs += 1
        return SimpleNamespace(notes=(), changed=(), at_ms=after_ms + self.syncs)


class NoSkills:
    async def of(self, record: Any) -> list[Any]:
        return []

    async def resolve(self, tenant_id: str, asked: Any, **_: Any) -> list[Any]:
        return []

    async def with_defaults(self, tenant_id: str, given: Any, default: Any, **_: Any) -> list[Any]:
        return []

    async def add(self, record: Any, skills: Any) -> Any:
        return record


class FakeContainers:
    """The container of :class:`FakeSandboxes`, in which commands leave no files, and copies of it."""

    def __init__(self, sandboxes: FakeSandboxes) -> None:
        self.sandboxes, self.artifacts, self.skills = sandboxes, NoArtifacts(), NoSkills()
        self.waiting = SandboxWait(cast("Any", sandboxes), cast("Any", None), nobody)
        self.known = {CONTAINER}
        self.has_setup = False
        self.copied: list[tuple[str, int | None]] = []
        """Which, and as of when."""

    async def files_of(self, tenant_id: str, container_id: str) -> list[Any]:
        return []

    async def pay(self, tenant_id: str, container_id: str, response_id: str, seconds: int) -> None:
        hook, self.sandboxes.before_pay = self.sandboxes.before_pay, None
        if hook is not None:
            hook()
        self.sandboxes.paid[response_id] = seconds

    async def use(self, tenant_id: str, container_id: str, *, param: str | None = None) -> Any:
        if container_id not in self.known:
            raise container_not_found(container_id, param=param)
        shown = {"programs": "", "network_policy": {"type": "disabled"}, "memory_limit": "1g", "has_setup": self.has_setup}
        return SimpleNamespace(id=container_id, tenant_id=tenant_id, **shown)

    async def peek(self, tenant_id: str, container_id: str) -> Any:
        """It has no environment to show."""
        return None

    async def copy(self, source: Any, *, at_ms: int | None, container_id: str | None = None, **_: Any) -> tuple[Any, int]:
        self.copied.append((source.id, at_ms))
        made = container_id or f"cntr_copy_{len(self.copied)}"
        self.known.add(made)
        return SimpleNamespace(id=made, tenant_id=source.tenant_id, programs="", network_policy={"type": "disabled"}), 3

    async def named(self, tenant_id: str, file_ids: Any) -> list[Any]:
        return []

    async def add_files(self, record: Any, files: Any) -> Any:
        return record

    async def get(self, tenant_id: str, container_id: str) -> Any:
        return await self.use(tenant_id, container_id)

    async def files_at(self, record: Any, at_ms: int) -> list[Any]:
        return [SimpleNamespace(id=f"cfile_{at_ms}", path=f"/mnt/data/{at_ms}", bytes=1, source="assistant", sha256=f"{at_ms}")]

    async def has_policy(self, record: Any, policy: Any) -> bool:
        return False

    async def delete(self, tenant_id: str, container_id: str) -> None:
        if container_id not in self.known:
            raise container_not_found(container_id)
        self.known.remove(container_id)


@dataclass
class _Live:
    sandboxes: FakeSandboxes
    record: Any
    notes: tuple[str, ...] = ()
    before_end: Callable[[], Awaitable[object]] | None = None
    """Called before a command ends; a test has it wait for something."""

    @property
    def client(self) -> "_Live":
        return self

    async def __aenter__(self) -> "_Live":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sandboxes.held -= 1

    async def exec(self, identity: str, command: str, **options: Any) -> AsyncIterator[Any]:
        """An exec is known by its id: the same one gives the same events again."""
        if identity not in self.sandboxes.executed:
            self.sandboxes.executed.append(identity)
            self.sandboxes.begun.append(command)
        after = options["after"]
        printed = ExecOutput(1, "stdout", self.sandboxes.prints(command))
        for event in (ExecStarted(0), printed, ExecOutput(2, "stderr", "!\n"), ExecEnded(3, "exit", 0, 0, None)):
            if isinstance(event, ExecEnded) and self.before_end is not None:
                await self.before_end()
            if event.n > after:
                yield event
        if options.get("files_max"):
            yield FileListing((), is_complete=True)

    async def look(self, look_id: str, session: SessionCommand | int, *, wait_ms: int, chars: str = "") -> SessionOutput:
        """Each command is a session that goes on, and each look is known by its id."""
        if look_id not in self.sandboxes.executed:
            self.sandboxes.executed.append(look_id)
        said = session.command if isinstance(session, SessionCommand) else f"typed {chars!r} into {session}"
        return SessionOutput(5_000, f"{said}\n", len(said) + 1, None, None, wait_ms / 1000, 0)

    async def javascript(self, exec_id: str, code: str, **options: Any) -> AsyncIterator[Any]:
        """Each call finds a new session, and answers with its code."""
        if exec_id not in self.sandboxes.executed:
            self.sandboxes.executed.append(exec_id)
        printed = ExecOutput(1, "stdout", self.sandboxes.session_prints(code))
        for event in (ExecStarted(0), printed, PythonEnded(2, "exit", 0, 0, None, code, (), True)):
            if event.n > options["after"]:
                yield event

    async def kill_session(self, look_id: str) -> bool:
        return True


@dataclass
class FakeExecutions:
    started: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    traces: dict[str, Trace | None] = field(default_factory=dict)
    is_busy: bool = False
    """It takes no more now."""

    async def start(self, name: str, state: dict[str, Any], trace: Trace | None) -> None:
        self.started.setdefault(name, state)
        self.traces.setdefault(name, trace)
        self.states.setdefault(name, "RUNNING")

    async def start_soon(self, name: str, state: dict[str, Any], trace: Trace | None) -> bool:
        if not self.is_busy:
            await self.start(name, state, trace)
        return not self.is_busy

    async def stop(self, name: str) -> None:
        self.states[name] = "ABORTED"

    async def status(self, name: str) -> str | None:
        return self.states.get(name)


def first_state(stored: StoredResponse) -> LoopState:
    """What an execution is started with."""
    return LoopState(stored.response_id, TENANT, stored.container_id)


class Lab:
    def __init__(
        self,
        *turns: Turn,
        native_tools: frozenset[str] = FUNCTION_ONLY,
        sandboxes: FakeSandboxes | None = None,
        table: MemoryTable | None = None,
        blobs: MemoryBlobs | None = None,
    ) -> None:
        self.now = 1_800_000_000.0
        self.table, self.blobs = table or MemoryTable(), blobs or MemoryBlobs()
        self.model = FakeModel(list(turns), native_tools)
        self.sandboxes, self.executions = sandboxes or FakeSandboxes(), FakeExecutions()
        self.entry = ModelEntry("m", "demo", "m", context_window_tokens=400_000)
        self.price: Price | None = None
        catalog = SimpleNamespace(
            resolve=lambda name: self.entry,
            provider=lambda found, http: self.model,
            price_of=lambda name: self.price,
            listing=lambda: [{"id": "m"}],
            remote_servers=RemoteServers(),
            searches_web=False,
            default_skills=(),
            embeddings=(),
        )
        settings = Settings("memory", "memory", content_key="ab" * 32)
        clock, keys = lambda: self.now, DeploymentKeys(settings, lambda arn: "")
        sealer, audit = Sealer(keys.content, keys.opening_anew), Audit(None, clock)
        stores = Stores.of(settings, self.table, self.blobs, sealer, cast("Any", self.executions), audit, clock=clock)
        http, containers = UpstreamTransport(), cast("Any", FakeContainers(self.sandboxes))
        knowledge = Knowledge(cast("Any", catalog), http, self.blobs, stores.embedding_usage, stores.budgets, clock)
        self.runtime = Runtime(
            settings=settings,
            keys=keys,
            stores=stores,
            models=ModelAccess(cast("Any", catalog), http, knowledge, settings.web_search),
            computers=Computers(containers, cast("Any", None)),
            identity=Identity(cast("Any", None), EndedSessions(self.table, clock)),
            vector_stores=VectorStores(self.table, self.blobs, stores.files, containers, stores.executions, knowledge, clock=clock),
            inputs=Inputs(self.table, self.blobs, stores.files, Fetcher(), clock=clock, retention_seconds=30 * 24 * 3600),
            clock=clock,
        )
        self.responses = stores.responses

    def stored(self, text: str = "go", **changes: Any) -> StoredResponse:
        response_id = ids.new_response_id(self.now)
        tools = changes.pop("tools", [SHELL_TOOL])
        parameters = Parameters("m", instructions="Be brief.", tools=tuple(tools), **changes.pop("parameters", {}))
        fields: dict[str, Any] = {
            "response_id": response_id,
            "tenant_id": TENANT,
            "created_at": int(self.now),
            "parameters": parameters,
            "echo": {"model": "m"},
            "input_items": [{"id": "msg_in", "type": "message", "role": "user", "content": text}],
            "container_id": CONTAINER,
            "is_background": True,
            "is_looping": True,
            "expires_at": self.responses.expiry(is_stored=True),
            "execution": response_id,
        }
        return StoredResponse(**(fields | changes))

    async def background(self, text: str = "go", **changes: Any) -> StoredResponse:
        """A response in the background, whose execution has been started."""
        stored = self.stored(text, **changes)
        await start_background(self.runtime.stores, cast("Any", SimpleNamespace(stored=stored)))
        return stored

    async def step(self, state: LoopState) -> LoopState:
        """One task of the state machine."""
        return await model_step(self.runtime, state)

    async def tools(self, state: LoopState) -> None:
        for call_id in state.calls:
            await tool_step(
                self.runtime,
                tenant_id=TENANT,
                response_id=state.response_id,
                step=state.step,
                call_id=call_id,
                container_id=state.container_id or "",
            )

    async def run(self, stored: StoredResponse, state: LoopState | None = None) -> LoopState:
        """The state machine, from this state to its end."""
        state = state or first_state(stored)
        while state.next is not Next.DONE:
            if state.next is Next.TOOLS:
                await self.tools(state)
            state = await self.step(state)
        return state

    async def run_with_deaths(self, stored: StoredResponse, death: Death) -> None:
        """The same, but for a process that dies before one of its writes, and is run again."""
        self.table.before_write = death
        state = first_state(stored)
        while state.next is not Next.DONE:
            try:
                if state.next is Next.TOOLS:
                    await self.tools(state)
                state = await self.step(state)
            except Died:
                self.table.before_write = None

    async def events(self, stored: StoredResponse) -> list[Event]:
        return await self.responses.log_of(stored).read_all()

    async def object_of(self, stored: StoredResponse) -> dict[str, Any]:
        return (await self.responses.snapshot(TENANT, stored.response_id)).final_object


def texts(items: list[Item]) -> list[str]:
    return [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
