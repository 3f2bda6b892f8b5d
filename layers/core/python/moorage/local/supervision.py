"""The stack's children are watched: one that dies is started again, and one that cannot live ends the stack with a sentence.

A systemd unit or a person starts a stack that has ended; so giving up is said once, with an exit code, instead of being tried for ever.
"""

import asyncio
import logging
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moorage import limits
from moorage.errors import MoorageError
from moorage.local.logs import cut

_log = logging.getLogger("moorage.local")


class CannotLive(MoorageError):
    """A child dies as soon as it is started."""


@dataclass(slots=True)
class Child:
    """One of the stack's processes."""

    name: str
    process: "subprocess.Popen[bytes]"
    restart: Callable[[], "subprocess.Popen[bytes]"]
    """Start it again and return when it answers. Raises ``SystemExit`` with its last words if it does not."""
    last_words: str
    """Where they are to be found."""
    deaths: deque[float] = field(default_factory=deque)

    def died(self, now: float) -> None:
        """Note one more death; raises :class:`CannotLive` after too many in a short time."""
        self.deaths.append(now)
        while now - self.deaths[0] > limits.CHILD_DEATHS_SECONDS:
            self.deaths.popleft()
        if len(self.deaths) > limits.CHILD_DEATHS_MAX:
            raise CannotLive(
                f"{self.name} died {len(self.deaths)} times within {limits.CHILD_DEATHS_SECONDS} seconds, so the stack ends. "
                f"Its last words are in {self.last_words}; 'moorage doctor' looks for the usual causes."
            )


@dataclass(slots=True)
class Supervisor:
    children: list[Child]
    clock: Callable[[], float] = time.monotonic

    async def watch(self) -> None:
        """Until it is cancelled. Raises :class:`CannotLive`."""
        await asyncio.gather(*map(self._watch, self.children))

    async def _watch(self, child: Child) -> None:
        while True:
            while child.process.poll() is None:
                cut(Path(child.last_words))
                await asyncio.sleep(limits.CHILD_POLL_SECONDS)
            child.died(self.clock())
            _log.error("%s died (exit code %s) and is started again", child.name, child.process.returncode)
            try:
                child.process = await asyncio.to_thread(child.restart)
            except (SystemExit, OSError) as error:
                # It counts as one more death when it is looked at again.
                _log.error("%s did not start again: %s", child.name, error)
                await asyncio.sleep(limits.CHILD_PAUSE_SECONDS)
