from __future__ import annotations

import asyncio
import collections
import os
from typing import Deque

from configuration import ServerConfig
from execs import Execs
from process_groups import largest_group


class ProcessLimit:
    """Ends commands that breed without end.

    The kernel refuses processes beyond the limit, and a program that meets it once or twice may still do its work. A fork bomb goes
    on: it is refused many times a second, and while it lives no other command can start anything. So its family is ended, and where
    it has left its family, everything.
    """

    LOOK_SECONDS = 0.5
    LOOKS = 4
    REFUSALS_MAX = 64
    """Refused forks within ``LOOKS`` looks. A shell that waits for room tries again after 1, 2, 4 and 8 seconds."""
    FULL_SHARE = 0.95
    """Where nobody counts refusals: a crowd of this share of the limit, at each of ``LOOKS`` looks."""

    def __init__(self, config: ServerConfig, execs: Execs) -> None:
        self._config = config
        self._execs = execs
        self._looks: Deque[int] = collections.deque(maxlen=self.LOOKS)
        self._has_struck = False

    async def watch(self) -> None:
        if os.getpid() != 1 and self._execs.processes.other_uid is None:
            return  # not alone here: others' processes would be taken for the commands'
        while True:
            await self._execs.until_busy()
            self.look()
            await asyncio.sleep(self.LOOK_SECONDS)

    def look(self) -> None:
        refused = self._execs.vitals.refused_forks()
        if refused is None:
            is_bomb = self._stays_full()
        else:
            self._looks.append(refused)
            is_bomb = self._looks[-1] - self._looks[0] >= self.REFUSALS_MAX
        if is_bomb:
            self._strike()
        elif len(self._looks) == self.LOOKS:
            self._has_struck = False

    def _stays_full(self) -> bool:
        self._looks.append(largest_group(self._execs.processes.other_uid).all)
        full = self.FULL_SHARE * self._config.processes_max
        return len(self._looks) == self.LOOKS and all(count >= full for count in self._looks)

    def _strike(self) -> None:
        largest = largest_group(self._execs.processes.other_uid)
        if largest.all < self._config.processes_max / 2:
            return  # It has ended already; what runs now is another command.
        notice = (
            f"\nToo many processes: a container may have {self._config.processes_max}, and a command went on starting more. It was "
            "ended with all that it had started.\n"
        )
        if self._has_struck or largest.size < largest.all / 2:
            self._execs.kill_all(notice)
        else:
            self._execs.end_family(largest.leader, notice)
        self._has_struck = True
        self._looks.clear()
