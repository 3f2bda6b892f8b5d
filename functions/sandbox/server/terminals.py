"""Sessions with a person in front of them: a command at a terminal, which is opened, typed into, read and closed by single requests.

They differ from those that a model looks at (``sessions.py``) in how they are read. What was shown stays, up to a bound, and a reader
says how far it has read, so that one whose connection broke loses nothing, and several may watch. Everything may be asked for twice:
opening an id opens it once, and a piece of input that has an id is typed once.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import shlex
import struct
import termios
from collections import deque
from typing import Any, AsyncIterator, Callable, Deque, Dict, Optional, Tuple

from health import HealthCounters
from processes import Processes
from request_errors import RequestError, field
from scrollback import Scrollback
from session import Session, SessionGroup
from terminal import PseudoTerminal
from transcript import HEARTBEAT_SECONDS

OPEN_MAX = 16
"""Beside the sessions of models: a local sandbox has 64 terminals."""
ENDED_MAX = 64
SECONDS_MAX = 4 * 3600
WAIT_MS_MAX = 60_000
SHOWN_CHARS_MAX = 1024 * 1024
READ_CHARS_MAX = 256 * 1024
INPUT_BYTES_MAX = 256 * 1024
"""That a program has not taken yet: somebody pastes into one that does not read."""
INPUT_IDS_MAX = 256
SIDE_MAX = 1_000
PAUSE_SECONDS = 0.005
"""What comes within this time is told together: an echo, and the prompt behind it."""
WATCHED_SECONDS = 60
"""A terminal that somebody has read or typed into within this time is in use."""

VARIABLES = {"TERM": "xterm-256color"}
PROMPT = r"\w\$ "
"""Given to the shell that it is of: one that runs a command alone drops the variable."""


class TerminalSession(Session):
    """A command at a terminal that people read and type into."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, processes: Processes, vitals: HealthCounters, on_ended: Callable[[], None]
    ) -> None:
        self._shown = Scrollback(SHOWN_CHARS_MAX)
        self._news = asyncio.Event()
        super().__init__(loop, processes, vitals, on_ended, has_terminal=True, seconds_max=SECONDS_MAX)
        self._waiting = bytearray()
        """What was typed and not taken yet."""
        self._typing: Optional["asyncio.Task[None]"] = None
        self._input_ids: Deque[str] = deque(maxlen=INPUT_IDS_MAX)
        self._used_at = loop.time()

    @property
    def is_watched(self) -> bool:
        return self.outcome is None and self._loop.time() - self._used_at < WATCHED_SECONDS

    def resize(self, rows: int, columns: int) -> None:
        """Programs in the foreground hear of it by SIGWINCH."""
        assert isinstance(self._output, PseudoTerminal)
        if self._output.is_open:
            fcntl.ioctl(self._output.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, input_id: str, data: bytes) -> str:
        """Type it as fast as the program takes it, behind what waits already: ``taken``, unless it has ``ended``, or too much waits
        (``full``)."""
        self._used_at = self._loop.time()
        if input_id and input_id in self._input_ids:
            return "taken"
        if self.outcome is not None:
            return "ended"
        if len(self._waiting) + len(data) > INPUT_BYTES_MAX:
            return "full"
        if input_id:
            self._input_ids.append(input_id)
        self._waiting += data
        if self._typing is None or self._typing.done():
            self._typing = self._loop.create_task(self._type_all())
        return "taken"

    async def read(self, offset: int, seconds: float) -> AsyncIterator[bytes]:
        """Heartbeats until there is output behind the offset, or it has ended, or time is up; last the output."""
        deadline = self._loop.time() + seconds
        while True:
            self._used_at = self._loop.time()
            self._news.clear()
            left = deadline - self._loop.time()
            if self._shown.end > offset or self.outcome is not None or left <= 0:
                break
            try:
                await asyncio.wait_for(self._news.wait(), min(left, HEARTBEAT_SECONDS))
                await asyncio.sleep(PAUSE_SECONDS)
            except asyncio.TimeoutError:
                yield b'{"type":"heartbeat"}\n'
        begin, text = self._shown.after(offset, READ_CHARS_MAX)
        next_offset = begin + len(text)
        is_all = next_offset == self._shown.end
        told = {
            "type": "shown",
            "begin": begin,
            "output": text,
            "next": next_offset,
            "outcome": self.outcome if is_all else None,
            "exit_code": self.exit_code if is_all else None,
        }
        yield json.dumps(told, separators=(",", ":")).encode() + b"\n"

    def _add(self, text: str) -> None:
        if self.outcome is None and text:
            self._shown.add(text)
            self._news.set()

    def _finish(self) -> None:
        super()._finish()
        self._news.set()

    async def _type_all(self) -> None:
        assert isinstance(self._output, PseudoTerminal)
        while self._waiting and self.outcome is None and self._output.is_open:
            typed = await self._output.type(bytes(self._waiting), self._loop.time() + 1)
            del self._waiting[:typed]


class Terminals(SessionGroup[str, TerminalSession]):
    @property
    def watched(self) -> int:
        """Those that somebody sits at."""
        return sum(session.is_watched for session in self._by_id.values())

    def open(self, terminal_id: str, body: Dict[str, Any]) -> TerminalSession:
        """Open it, or find the one of this id."""
        known = self._by_id.get(terminal_id)
        if known is not None:
            return known
        command, (rows, columns) = field(body, "command", str, ""), size_of(body)
        if "\0" in command:
            raise RequestError(400, "invalid_request", "A command cannot contain a null byte.")
        if self.running >= OPEN_MAX:
            raise RequestError(429, "too_many_sessions", f"{OPEN_MAX} terminals of this container are open: close one of them first.")
        session = TerminalSession(self._loop, self._processes, self._vitals, self._drop_ended)
        self._by_id[terminal_id] = session
        session.resize(rows, columns)
        shell = self._processes.shell
        session.start(
            command or f"PS1={shlex.quote(PROMPT)} exec {shlex.quote(shell)}",
            shell=shell,
            is_login=False,
            cwd=self._surroundings.directory(self._config.workspace),
            env=self._surroundings.variables(VARIABLES),
        )
        self._on_begun()
        return session

    def get(self, terminal_id: str) -> TerminalSession:
        session = self._by_id.get(terminal_id)
        if session is None:
            raise RequestError(404, "unknown_exec", f"There is no terminal '{terminal_id}'.")
        return session

    def close(self, terminal_id: str) -> bool:
        """End its processes; False if it had ended, or there is none."""
        session = self._by_id.get(terminal_id)
        return session is not None and session.kill("killed")

    def _drop_ended(self) -> None:
        ended = [terminal_id for terminal_id, session in self._by_id.items() if session.outcome is not None]
        for terminal_id in ended[: max(0, len(ended) - ENDED_MAX)]:
            del self._by_id[terminal_id]


def size_of(body: Dict[str, Any]) -> Tuple[int, int]:
    rows, columns = field(body, "rows", int, 24), field(body, "columns", int, 80)
    if not (1 <= rows <= SIDE_MAX and 1 <= columns <= SIDE_MAX):
        raise RequestError(400, "invalid_request", f"rows and columns are 1 to {SIDE_MAX}.")
    return rows, columns
