"""Sessions of a container: terminals that people sit at, from a command line or a page.

No process holds one. The record holds the known state, and the sandbox holds the running programs. Each request reads both together, so
it may come to another process. If sandboxes are started by processes that cannot reach them (on AWS), opening one has its sandbox
started, and the first request that reaches it opens the terminal there. Opening twice opens once.

A session does not outlive its sandbox: it is ``lost`` then, and the container's files are as they were stored last.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, Literal, TypeVar
from urllib.parse import quote

from moorage import limits
from moorage.containers.artifacts import Artifacts
from moorage.containers.lifecycle import ContainerSandboxes, LiveContainer
from moorage.containers.sandbox_wait import SandboxWait
from moorage.containers.store import ContainerRecord, ContainerStore
from moorage.dataclass import dataclass
from moorage.errors import (
    SandboxError,
    SandboxGone,
    SandboxStarting,
    container_elsewhere,
    sandbox_unavailable,
    session_input_full,
    session_not_running,
    too_many_sessions,
)
from moorage.sandbox.exec_client import ExecClient
from moorage.terminals.store import ContainerSession, ContainerSessions, Outcome


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """A terminal's output behind an offset."""

    begin: int
    """Where ``output`` begins: beyond the offset that was asked for, where what lay between is not kept any more."""
    output: str
    next: int
    """The offset behind it."""
    outcome: Literal["exit", "timeout", "killed"] | None
    """None while it runs, and as long as there is more to read."""
    exit_code: int | None


class SandboxTerminal:
    """One of them."""

    def __init__(self, client: ExecClient, terminal_id: str) -> None:
        self._client = client
        self._path = f"/v1/terminals/{quote(terminal_id, safe='')}"

    async def open(self, command: str, *, rows: int, columns: int) -> None:
        """Run the command there, a shell if it is empty; one that is open stays as it is."""
        await self._client.ask("PUT", self._path, json={"command": command, "rows": rows, "columns": columns})

    async def read(self, after: int, *, wait_ms: int) -> TerminalOutput:
        """The output behind ``after``, as soon as there is some, or when it has ended; after ``wait_ms`` nothing."""
        query = {"after": str(after), "wait_ms": str(wait_ms)}
        return TerminalOutput(**await self._client.last_line("shown", "GET", self._path, params=query))

    async def type(self, text: str, input_id: str) -> Literal["taken", "ended", "full"]:
        """In the order of the calls; whoever calls before another call has returned leaves the order open. ``full``: its program reads
        nothing, and too much waits for it."""
        data = text.encode("utf-8", "surrogatepass")
        answer = await self._client.ask("POST", f"{self._path}/input", params={"id": input_id}, content=data)
        became: Literal["taken", "ended", "full"] = answer["input"]
        return became

    async def resize(self, *, rows: int, columns: int) -> None:
        await self._client.ask("POST", f"{self._path}/size", json={"rows": rows, "columns": columns})

    async def close(self) -> bool:
        """End its processes; False if it had ended, or is unknown."""
        return bool((await self._client.ask("POST", f"{self._path}/kill"))["killed"])


_T = TypeVar("_T")
_BEHIND_ALL: Final = 1 << 52
"""More than any terminal shows: nothing is left to be read there."""


@dataclass(frozen=True, slots=True)
class TerminalRead:
    """A reader's answer."""

    session: ContainerSession
    begin: int
    output: str
    next: int


class TerminalSessions:
    def __init__(
        self, rows: ContainerSessions, store: ContainerStore, sandboxes: ContainerSandboxes, waiting: SandboxWait, artifacts: Artifacts
    ) -> None:
        self._rows = rows
        self._store = store
        self._sandboxes = sandboxes
        self._waiting = waiting
        self._artifacts = artifacts

    async def open(self, container: ContainerRecord, command: str, *, rows: int, columns: int) -> ContainerSession:
        """A new one. It has begun when this returns, unless its sandbox has still to start."""
        if len(await self._rows.open(container)) >= limits.SESSIONS_OPEN_MAX:
            await self._see_ends(container)
            if len(await self._rows.open(container)) >= limits.SESSIONS_OPEN_MAX:
                raise too_many_sessions(limits.SESSIONS_OPEN_MAX)
        session = await self._rows.add(container, command, rows=rows, columns=columns)
        try:
            return await self._start(session, container)
        except BaseException:
            await asyncio.shield(self._rows.drop(session))
            raise

    async def list(self, container: ContainerRecord) -> list[ContainerSession]:
        """Those that may be running: nobody has seen their end, and their sandbox is there."""
        sessions = await self._rows.open(container)
        if not sessions:
            return []
        container = await self._store.get(container.tenant_id, container.id)
        return [session for session in sessions if not _is_lost(session, container)]

    async def get(self, tenant_id: str, session_id: str) -> ContainerSession:
        """How it stands; one that has not begun is helped on."""
        session, container = await self._rows.get(tenant_id, session_id)
        return session if session.status != "starting" else await self._start(session, container)

    async def read(self, tenant_id: str, session_id: str, after: int, *, wait_ms: int) -> TerminalRead:
        """Its output behind an offset, as soon as there is some."""
        session, container = await self._rows.get(tenant_id, session_id)
        try:
            live, session = await self._live(session, container)
        except SandboxStarting as error:
            await asyncio.sleep(min(wait_ms / 1000, max(error.retry_after_seconds, limits.CONTAINER_POLL_SECONDS)))
            return TerminalRead(session, after, "", after)
        except SandboxGone:
            return TerminalRead(await self._lost(session), after, "", after)
        except SandboxError as error:
            raise sandbox_unavailable(error) from error
        async with live:
            shown = await self._shown(session, live, after, wait_ms)
            if shown is None:
                return TerminalRead(await self._lost(session), after, "", after)
            if shown.outcome is not None:
                session = await self._ended(session, live, shown.outcome, shown.exit_code)
            return TerminalRead(session, shown.begin, shown.output, shown.next)

    async def type(self, tenant_id: str, session_id: str, text: str, input_id: str) -> ContainerSession:
        session, live = await self._running(tenant_id, session_id)
        async with live:
            match await self._asked(session, SandboxTerminal(live.client, session.id).type(text, input_id)):
                case "taken":
                    return session
                case "full":
                    raise session_input_full(session.id)
                case "ended":
                    raise session_not_running(session.id, "has ended")

    async def resize(self, tenant_id: str, session_id: str, *, rows: int, columns: int) -> ContainerSession:
        session, live = await self._running(tenant_id, session_id)
        async with live:
            await self._asked(session, SandboxTerminal(live.client, session.id).resize(rows=rows, columns=columns))
        return await self._rows.resized(session, rows=rows, columns=columns)

    async def close(self, tenant_id: str, session_id: str) -> None:
        """End it, and forget it."""
        session, container = await self._rows.get(tenant_id, session_id)
        if session.status == "running":
            with suppress(SandboxError):
                live, session = await self._live(session, container)
                async with live:
                    terminal = SandboxTerminal(live.client, session.id)
                    if await terminal.close():
                        await self._until_over(terminal)
                        await self._keep_files(live)
        await self._rows.drop(session)

    async def _start(self, session: ContainerSession, container: ContainerRecord) -> ContainerSession:
        """Open it if that can be done from here; else have its sandbox started, unless one is on its way."""
        try:
            if self._sandboxes.reaches(container):
                live, session = await self._live(session, container)
                await live.aclose()
            elif container.sandbox is None or container.sandbox.endpoint is None or container.sandbox.state == "stopping":
                await self._sandboxes.place(session.tenant_id, session.container_id)
        except SandboxStarting:
            return session
        except SandboxGone:
            return await self._lost(session)
        except SandboxError as error:
            raise sandbox_unavailable(error) from error
        return session

    async def _live(self, session: ContainerSession, container: ContainerRecord) -> tuple[LiveContainer, ContainerSession]:
        """Its sandbox; the session is opened there if it is not open yet. Raises :class:`SandboxStarting` and :class:`SandboxGone`."""
        if not self._sandboxes.reaches(container):
            raise container_elsewhere(container.id)
        if session.outcome == "lost":
            raise SandboxGone("Its sandbox is gone.")
        if session.incarnation:
            if _is_lost(session, container):
                raise SandboxGone("Its sandbox is gone.")
            return self._sandboxes.reach(await self._store.touch(container)), session
        live = await self._waiting.sandbox_now(session.tenant_id, session.container_id)
        try:
            await self._store.note_processes(live.record)
            await SandboxTerminal(live.client, session.id).open(session.command, rows=session.rows, columns=session.columns)
            return live, await self._rows.begun(session, live.record.incarnation)
        except BaseException:
            await live.aclose()
            raise

    async def _running(self, tenant_id: str, session_id: str) -> tuple[ContainerSession, LiveContainer]:
        session, container = await self._rows.get(tenant_id, session_id)
        if session.status == "ended":
            raise session_not_running(session.id, "has ended")
        try:
            live, session = await self._live(session, container)
        except SandboxStarting as error:
            raise session_not_running(session.id, "has not begun: its container is starting") from error
        except SandboxGone as error:
            await self._lost(session)
            raise session_not_running(session.id, "is lost: its sandbox is gone") from error
        except SandboxError as error:
            raise sandbox_unavailable(error) from error
        return session, live

    async def _shown(self, session: ContainerSession, live: LiveContainer, after: int, wait_ms: int) -> TerminalOutput | None:
        """None if the sandbox is gone, or knows nothing of it. A connection that was only torn is made again."""
        terminal = SandboxTerminal(live.client, session.id)
        with suppress(SandboxGone):
            return await terminal.read(after, wait_ms=wait_ms)
        if not await self._sandboxes.confirm_gone(live):
            with suppress(SandboxGone):
                return await terminal.read(after, wait_ms=0)
        return None

    async def _asked(self, session: ContainerSession, asked: Awaitable[_T]) -> _T:
        try:
            return await asked
        except SandboxGone as error:
            raise session_not_running(session.id, "does not answer: read its output, which says whether it is lost") from error
        except SandboxError as error:
            raise sandbox_unavailable(error) from error

    async def _see_ends(self, container: ContainerRecord) -> None:
        """Note the ends that nobody has read yet, as far as the sandbox can be reached from here."""
        sessions = await self._rows.open(container)
        container = await self._store.get(container.tenant_id, container.id)
        there = [session for session in sessions if session.incarnation and not _is_lost(session, container)]
        for session in sessions:
            if _is_lost(session, container):
                await self._lost(session)
        if not there or not self._sandboxes.reaches(container):
            return
        with suppress(SandboxError):  # Then they count on.
            async with self._sandboxes.reach(container, looks_only=True) as live:
                has_ended = False
                for session in there:
                    shown = await self._shown(session, live, _BEHIND_ALL, 0)
                    if shown is None:
                        await self._lost(session)
                    elif shown.outcome is not None:
                        await self._rows.ended(session, shown.outcome, shown.exit_code)
                        has_ended = True
                if has_ended:
                    await self._keep_files(live)

    async def _lost(self, session: ContainerSession) -> ContainerSession:
        noted, _ = await self._rows.ended(session, "lost", None)
        return noted

    async def _ended(self, session: ContainerSession, live: LiveContainer, outcome: Outcome, code: int | None) -> ContainerSession:
        """Note its end and store its leftovers, for the first reader who sees it."""
        noted, is_first = await self._rows.ended(session, outcome, code)
        if is_first:
            await self._keep_files(live)
        return noted

    async def _until_over(self, terminal: SandboxTerminal) -> None:
        """A killed program takes a moment to end; its last output is dropped."""
        after, shown = 0, None
        while shown is None or (shown.outcome is None and shown.output):
            shown = await terminal.read(after, wait_ms=limits.SESSION_CLOSE_MS_MAX)
            after = shown.next

    async def _keep_files(self, live: LiveContainer) -> None:
        with suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(limits.SESSION_STORE_SECONDS):
                await self._artifacts.sync(live)


def _is_lost(session: ContainerSession, container: ContainerRecord) -> bool:
    """Whether the sandbox that it was opened in is gone. ``container`` is to be read after the session, or together with it."""
    if not session.incarnation:
        return False
    sandbox = container.sandbox
    return container.incarnation != session.incarnation or sandbox is None or sandbox.state != "running"
