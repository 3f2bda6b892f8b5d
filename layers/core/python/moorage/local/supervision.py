"""The stack's children are watched: one that dies is started again, and one that cannot live ends the stack with a sentence.

One that is stopped (SIGSTOP) or does not answer any more is as good as dead, and is killed first. A systemd unit or a person starts a
stack that has ended; so giving up is said once, with an exit code, instead of being tried for ever.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import MoorageError
from moorage.local.logs import cut
from moorage.local.processes import ChildProcess, is_stopped, stop_process

Address = str | tuple[str, int]
"""The path of a Unix socket, or host and port."""
_log = logging.getLogger("moorage.local")


class ChildKeepsDying(MoorageError):
    """A child dies as soon as it is started."""


@dataclass(slots=True)
class Child:
    """One of the stack's processes."""

    name: str
    process: ChildProcess
    restart: Callable[[], ChildProcess]
    """Start it again and return when it answers. Raises ``SystemExit`` with its last words if it does not."""
    last_words: str
    """Where they are to be found."""
    address: Address
    """Where it listens."""
    ready_at: float | None = field(default_factory=time.monotonic)
    """None until it is."""
    young_deaths: int = 0
    """In a row."""

    def died(self, now: float) -> None:
        """Note one more death; raises :class:`ChildKeepsDying` after too many soon after a start, one after the other."""
        is_young = self.ready_at is None or now - self.ready_at < limits.CHILD_YOUTH_SECONDS
        self.young_deaths = self.young_deaths + 1 if is_young else 0
        if self.young_deaths > limits.CHILD_DEATHS_MAX:
            raise ChildKeepsDying(
                f"{self.name} was started {self.young_deaths} times and died at once each time, so the stack ends. "
                f"Its last words are in {self.last_words}; 'moorage doctor' looks for the usual causes."
            )


def stop_child(child: Child, seconds_max: int) -> None:
    """Its running processes: it may have been started again."""
    stop_process(child.process, seconds_max)


@dataclass(slots=True)
class ChildHealth:
    """For how long a child has been stopped or silent."""

    child: Child
    clock: Callable[[], float]
    stopped_since: float | None = None
    silent_since: float | None = None

    async def look(self) -> str | None:
        """Its fault of too long a time; None if it may live."""
        now = self.clock()
        self.stopped_since = _since(self.stopped_since, now, holds=is_stopped(self.child.process.pid))
        if self.stopped_since is not None and now - self.stopped_since >= limits.CHILD_STOPPED_SECONDS_MAX:
            return "was stopped"
        self.silent_since = _since(self.silent_since, now, holds=not await answers(self.child.address))
        if self.silent_since is not None and self.clock() - self.silent_since >= limits.CHILD_SILENCE_SECONDS_MAX:
            return "does not answer"
        return None


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now if before is None else before


async def answers(address: Address) -> bool:
    """Whether a server that is told at once that there is nothing to come ends the connection too: the kernel alone does not."""
    try:
        async with asyncio.timeout(limits.CHILD_ANSWER_SECONDS):
            if isinstance(address, str):
                reader, writer = await asyncio.open_unix_connection(address)
            else:
                reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write_eof()
                await reader.read()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
    return True


@dataclass(slots=True)
class Supervisor:
    children: list[Child]
    clock: Callable[[], float] = time.monotonic

    async def watch(self) -> None:
        """Until it is cancelled. Raises :class:`ChildKeepsDying`."""
        watches = [asyncio.create_task(self._watch(child)) for child in self.children]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.wait(watches)
        for watch in done:
            watch.result()

    async def _watch(self, child: Child) -> None:
        while True:
            await self._until_dead(child)
            child.died(self.clock())
            _log.error("%s died (exit code %s) and is started again", child.name, child.process.returncode)
            try:
                await self._start_again(child)
            except (SystemExit, OSError) as error:
                # It counts as one more death when it is looked at again.
                _log.error("%s did not start again: %s", child.name, error)
                await asyncio.sleep(limits.CHILD_PAUSE_SECONDS)

    async def _until_dead(self, child: Child) -> None:
        unwell = asyncio.create_task(self._until_unwell(child))
        try:
            while child.process.poll() is None:
                cut(Path(child.last_words))
                await asyncio.sleep(limits.CHILD_POLL_SECONDS)
                if unwell.done() and child.process.poll() is None:
                    _log.error("%s %s and is killed", child.name, unwell.result())
                    child.process.kill()
        finally:
            unwell.cancel()

    async def _until_unwell(self, child: Child) -> str:
        health = ChildHealth(child, self.clock)
        while (wrong := await health.look()) is None:
            await asyncio.sleep(limits.CHILD_LOOK_SECONDS)
        return wrong

    async def _start_again(self, child: Child) -> None:
        child.ready_at = None
        loop = asyncio.get_running_loop()
        starting = loop.run_in_executor(None, child.restart)
        try:
            await asyncio.shield(starting)
        finally:
            # What is being started when the stack is told to stop must be known, so that it can be stopped.
            await asyncio.wait({starting}, timeout=limits.CHILD_LAST_START_SECONDS_MAX)
            if starting.done() and starting.exception() is None:
                child.process = starting.result()
        child.ready_at = self.clock()
