"""What the tests of this folder share: a clock that stands still, and a look into the table and the bucket."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from moorage import limits
from moorage.errors import (
    SandboxCapacity,
    SandboxError,
    SandboxFileMissing,
    SandboxGone,
    SandboxOrdered,
    SandboxStarting,
    SandboxUnreachable,
)
from moorage.sandbox.exec_client import ExecClient, ExecEnded, ExecEvent, ExecOutput, FileListing, SandboxFile, SandboxHealth
from moorage.sandbox.provisioner import Handle, SandboxSpec, SandboxStatus
from moorage.store import keys
from moorage.store.blobs import Blobs
from moorage.store.dynamodb import encode
from moorage.store.journal import Journal
from moorage.store.record_text import load_record
from moorage.store.table import Table


@dataclass
class Clock:
    """Unix time that stands still until a test moves it."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Store:
    table: Table
    blobs: Blobs
    journal: Journal | None = None
    """Where both are, to look into; None on AWS."""

    def records(self) -> list[dict[str, Any]]:
        """Every record, as DynamoDB writes it, but for tenants' sums of stored bytes, which stay."""
        assert self.journal is not None
        found = [encode(load_record(item)) for (item,) in self.journal.reader.execute("SELECT item FROM records")]
        return [item for item in found if item["SK"]["S"] != keys.TOTAL]

    def objects(self) -> list[str]:
        """Every key of the bucket."""
        assert self.journal is not None
        return [key for (key,) in self.journal.reader.execute("SELECT key FROM objects ORDER BY key")]


@dataclass
class FakeTerminal:
    """Shows what is typed, and ends at ``exit``."""

    command: str
    size: tuple[int, int]
    shown: str = ""
    outcome: str | None = None
    exit_code: int | None = None

    def end(self, outcome: str, exit_code: int) -> None:
        self.outcome, self.exit_code = outcome, exit_code


@dataclass
class FakeSandbox:
    """A directory in memory behind the exec client's file calls; it dies when it is told to."""

    sandbox_id: str
    token: str
    files: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    """Path below /mnt/data to content, time and inode."""
    others: dict[str, str] = field(default_factory=dict)
    """Path to ``symlink`` or ``other``."""
    is_alive: bool = True
    is_asleep: bool = False
    """Any request wakes it."""
    has_processes: bool = False
    torn: set[str] = field(default_factory=set)
    """Calls whose connection is torn once, though it lives."""
    is_cut_off: bool = False
    """What stands before it answers in its place."""
    running: int = 0
    silent: set[str] = field(default_factory=set)
    """The calls that it does not answer, though it lives."""
    refused: set[str] = field(default_factory=set)
    """Paths that it refuses to write."""
    skills: dict[str, bytes] = field(default_factory=dict)
    """Folder to bundle."""
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    requests_to_read: int = 0
    terminals: dict[str, "FakeTerminal"] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    programs: Callable[["FakeSandbox", str], tuple[int, str]] | None = None
    """What a command comes to: its exit code, and what it says."""
    before_write: Callable[[], Awaitable[object]] | None = None
    """Called before a file is written through the API, once; a test lets somebody else come then."""
    clock_ns: int = 0
    inodes: int = 100
    has_just_answered: bool = False
    """A connection to it is open."""

    def write(self, path: str, data: bytes) -> None:
        """What a command does when it writes a file."""
        self.clock_ns += 1_000
        self.inodes += 1
        inode = self.files[path][2] if path in self.files else self.inodes
        self.files[path] = (data, self.clock_ns, inode)

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)


class FakeClient:
    """Stands for ExecClient."""

    reaches_bucket = False

    def __init__(self, sandbox: FakeSandbox | None, handle: Handle) -> None:
        self.sandbox = sandbox
        self.handle = handle
        self.is_closed = False

    def _alive(self, call: str = "") -> FakeSandbox:
        assert not self.is_closed
        if self.sandbox is not None and self.sandbox.is_cut_off:
            raise SandboxUnreachable
        if self.sandbox is None or not self.sandbox.is_alive or call in self.sandbox.silent:
            raise SandboxGone("The container does not answer.")
        self.sandbox.is_asleep = False
        if call in self.sandbox.torn:
            self.sandbox.torn.remove(call)
            raise SandboxGone("torn")
        if self.handle.token != self.sandbox.token:
            raise SandboxError("The token is wrong.")
        return self.sandbox

    @property
    def has_just_answered(self) -> bool:
        return self.sandbox is not None and self.sandbox.has_just_answered

    def looks_only(self) -> None:
        """None of these sleeps."""

    async def health(self) -> SandboxHealth:
        return SandboxHealth(1, "boot", self._alive("health").running)

    async def list_files(self, root: str = "/mnt/data") -> FileListing:
        sandbox = self._alive("list_files")
        regular = [SandboxFile(path, len(data), mtime_ns, inode, "file") for path, (data, mtime_ns, inode) in sandbox.files.items()]
        strange: list[Any] = [SandboxFile(path, 0, 0, 0, kind) for path, kind in sandbox.others.items()]  # type: ignore[arg-type]
        return FileListing(tuple(regular + strange), is_complete=True, has_processes=sandbox.has_processes)

    async def read_file(self, path: str) -> AsyncIterator[bytes]:
        sandbox = self._alive()
        if path not in sandbox.files:
            raise SandboxFileMissing(path)
        sandbox.reads.append(path)
        sandbox.requests_to_read += 1
        yield sandbox.files[path][0]

    async def read_files(self, paths: Sequence[str]) -> AsyncGenerator[bytes | None, None]:
        self._alive().requests_to_read += 1
        for path in paths:
            sandbox = self._alive()
            content, _, _ = sandbox.files.get(path, (None, 0, 0))
            if content is None or len(content) > limits.BATCH_FILE_BYTES_MAX:
                yield None
            else:
                sandbox.reads.append(path)
                yield content

    async def write_file(self, path: str, content: AsyncIterator[bytes]) -> None:
        sandbox = self._alive("write_file")
        hook, sandbox.before_write = sandbox.before_write, None
        if hook is not None:
            await hook()
        data = b"".join([chunk async for chunk in content])
        name = path.removeprefix("/mnt/data/")
        if name in sandbox.refused:
            raise SandboxError("No space left on device.")
        self._alive().write(name, data)
        sandbox.writes.append(name)

    async def set_variables(self, variables: Mapping[str, str]) -> None:
        self._alive().variables.update(variables)

    async def exec(
        self,
        exec_id: str,
        command: str,
        *,
        timeout_ms: int,
        max_output_length: int,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> AsyncGenerator[ExecEvent, None]:
        sandbox = self._alive()
        assert sandbox.programs is not None, "no program is expected to run here"
        exit_code, said = sandbox.programs(sandbox, command)
        self._alive()
        yield ExecOutput(0, "stdout", said)
        yield ExecEnded(1, "timeout" if exit_code < 0 else "exit", exit_code, 0, None)

    async def put_skill(self, directory: str, archive: bytes) -> None:
        self._alive().skills.setdefault(directory, archive)

    async def delete_file(self, path: str) -> None:
        self._alive().files.pop(path.removeprefix("/mnt/data/"), None)

    async def ask(self, method: str, path: str, *, json: Any = None, params: Any = None, content: bytes = b"") -> dict[str, Any]:
        """Of terminals."""
        sandbox = self._alive()
        _, _, _, terminal_id, *action = path.split("/")
        if method == "PUT":
            sandbox.terminals.setdefault(terminal_id, FakeTerminal(json["command"], (json["rows"], json["columns"])))
            return {}
        if terminal_id not in sandbox.terminals:
            raise SandboxGone("unknown")
        terminal = sandbox.terminals[terminal_id]
        match action:
            case ["size"]:
                terminal.size = (json["rows"], json["columns"])
                return {}
            case ["kill"]:
                was_open = terminal.outcome is None
                if was_open:
                    terminal.end("killed", 137)
                return {"killed": was_open}
        if terminal.outcome is not None:
            return {"input": "ended"}
        if content == b"x" * len(content) and len(content) > 10_000:
            return {"input": "full"}
        terminal.shown += content.decode()
        if content == b"exit":
            terminal.end("exit", 3)
        return {"input": "taken"}

    async def last_line(self, kind: str, method: str, path: str, *, params: Any) -> dict[str, Any]:
        terminals, terminal_id = self._alive().terminals, path.split("/")[3]
        if terminal_id not in terminals:
            raise SandboxGone("unknown")
        terminal, after = terminals[terminal_id], int(params["after"])
        shown = {"begin": after, "output": terminal.shown[after:], "next": len(terminal.shown)}
        return {**shown, "outcome": terminal.outcome, "exit_code": terminal.exit_code}

    async def aclose(self) -> None:
        self.is_closed = True


class FakeProvisioner:
    """Starts sandboxes in memory, one per container at a time, as the interface asks."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.by_container: dict[str, str] = {}
        self.starts = 0
        self.programs: Callable[[FakeSandbox, str], tuple[int, str]] | None = None
        self.before_write: Callable[[], Awaitable[object]] | None = None
        """Of the next sandbox."""
        self.problems: list[SandboxError] = []
        """Raised by the next starts, one each."""
        self.room = sys.maxsize
        """So many sandboxes at once; another start is refused."""
        self.is_slow = False
        """Starts begin and are not over yet."""
        self.answers = asyncio.Event()
        """Starts have begun, and answer when this is set."""
        self.answers.set()
        self.ends_at = 0
        """When those that are started now are ended, whatever they do; 0 for never."""
        self.is_told = False
        """Somebody hears when a start is over: it is only an order."""
        self.asked: list[SandboxSpec] = []
        """What every call of start was given ..."""
        self.specs: list[SandboxSpec] = []
        """... and those that sandboxes were started with."""

    async def start(self, spec: SandboxSpec) -> Handle:
        self.asked.append(spec)
        if self.problems:
            raise self.problems.pop(0)
        sandbox_id = self.by_container.get(spec.container_id)
        if sandbox_id is None or not self.sandboxes[sandbox_id].is_alive:
            if len(self.running()) >= self.room:
                raise SandboxCapacity(f"{self.room} sandboxes of this account are running; no account has more at once.")
            self.starts += 1
            sandbox_id = f"sb-{self.starts}"
            self.sandboxes[sandbox_id] = FakeSandbox(sandbox_id, spec.token, programs=self.programs, before_write=self.before_write)
            self.by_container[spec.container_id] = sandbox_id
            self.specs.append(spec)
        await self.answers.wait()
        if self.is_told:
            raise SandboxOrdered(sandbox_id)
        if self.is_slow:
            raise SandboxStarting(1)
        return Handle(f"fake:{sandbox_id}", spec.token, sandbox_id, self.ends_at)

    async def find(self, spec: SandboxSpec) -> str | None:
        sandbox_id = self.by_container.get(spec.container_id)
        return sandbox_id if sandbox_id is not None and self.sandboxes[sandbox_id].token == spec.token else None

    async def stop(self, sandbox_id: str) -> None:
        self.sandboxes[sandbox_id].is_alive = False

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return handle

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.is_alive:
            return SandboxStatus.STOPPED
        return SandboxStatus.ASLEEP if sandbox.is_asleep else SandboxStatus.RUNNING

    def connect(self, handle: Handle) -> ExecClient:
        return cast("ExecClient", FakeClient(self.sandboxes.get(handle.endpoint.removeprefix("fake:")), handle))

    def running(self) -> list[str]:
        return [sandbox_id for sandbox_id, sandbox in self.sandboxes.items() if sandbox.is_alive]


async def chunked(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    """A stream of these bytes."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
