from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shlex
import signal
from typing import Callable, Dict, Generic, List, Optional, TypeVar, Union

from awake_timer import AwakeTimer
from command_environment import CommandEnvironment
from configuration import ServerConfig
from health import HealthCounters
from process_groups import kill_session
from processes import Processes
from shell_run import DRAIN_SECONDS, shell_arguments
from streams import PipeReader
from terminal import PseudoTerminal
from unread_output import UnreadOutput

Id = TypeVar("Id")
OneSession = TypeVar("OneSession", bound="Session")

UNREAD_CHARS_MAX = 1024 * 1024
"""What is kept of what nobody has looked at yet."""
INTERRUPT = b"\x03"
NOT_STARTED = 126
"""What shells say of a command that is there and cannot be run."""


class Session:
    """A command that goes on between looks at it, at a terminal of its own or without one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        processes: Processes,
        vitals: HealthCounters,
        on_ended: Callable[[], None],
        *,
        has_terminal: bool,
        seconds_max: float,
    ) -> None:
        self._loop = loop
        self._processes = processes
        self._vitals = vitals
        self._mark = vitals.mark()
        self._on_ended = on_ended
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = UnreadOutput(UNREAD_CHARS_MAX)
        self._ending: Optional[int] = None
        """The exit code, while late output is still awaited."""
        self._killed_as: Optional[str] = None
        self._timer = AwakeTimer(loop, seconds_max, lambda: self.kill("timeout"))
        self.leader: Optional[int] = None
        self.exit_code: Optional[int] = None
        self.outcome: Optional[str] = None
        """``exit``, ``timeout`` or ``killed`` once it has ended."""
        self.ended = asyncio.Event()
        self._output: Union[PseudoTerminal, PipeReader]
        if has_terminal:
            self._output = PseudoTerminal(loop, self.output, self._maybe_finish, processes.other_uid)
        else:
            self._output = PipeReader(loop, self.output, self._maybe_finish)

    def start(self, command: str, *, shell: str, is_login: bool, cwd: str, env: Dict[str, str]) -> None:
        if is_login:
            # What a login reads sets PATH anew, and the container's own programs would be gone.
            command = f"PATH={shlex.quote(env['PATH'])}:$PATH\n{command}"
        arguments, script = shell_arguments([shell, "-l"] if is_login else [shell], command)
        try:
            self._spawn(arguments, script, cwd, env)
        except OSError as error:
            self._add(f"The command could not be started in {cwd}: {error.strerror}.\n")
            self._ending = NOT_STARTED
            self._finish()
        finally:
            if script is not None:
                os.close(script)

    def _spawn(self, arguments: List[str], script: Optional[int], cwd: str, env: Dict[str, str]) -> None:
        terminal = self._output if isinstance(self._output, PseudoTerminal) else None
        stdin = os.open(os.devnull, os.O_RDONLY) if terminal is None else terminal.command_fd
        stdout = terminal.command_fd if terminal is not None else self._writing_fd
        try:
            self.leader = self._processes.spawn(
                arguments,
                self._shell_ended,
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stdout,
                pass_fds=() if script is None else (script,),
                has_terminal=terminal is not None,
            )
        except OSError:
            if terminal is not None:
                terminal.let_go()
            raise
        finally:
            if terminal is None:
                os.close(stdin)
                os.close(stdout)

    @property
    def _writing_fd(self) -> int:
        assert isinstance(self._output, PipeReader)
        return self._output.writing_fd

    @property
    def has_terminal(self) -> bool:
        return isinstance(self._output, PseudoTerminal)

    async def type(self, data: bytes, deadline: float) -> Optional[int]:
        """Bytes that its program took until then; None if there is nothing to type into. A command without a terminal can still be
        interrupted."""
        if isinstance(self._output, PseudoTerminal):
            return await self._output.type(data, deadline)
        if data != INTERRUPT:
            return None
        if self.leader is not None and self._ending is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, signal.SIGINT)
        return len(data)

    def kill(self, outcome: str) -> bool:
        """End it as ``timeout`` or ``killed``; False if it has ended."""
        if self._ending is not None or self.leader is None:
            return False
        self._killed_as = self._killed_as or outcome
        inodes = (self._output.inode,) if isinstance(self._output, PipeReader) else ()
        kill_session(self.leader, inodes, self._processes.other_uid)
        return True

    def take(self) -> Dict[str, object]:
        """Its output since the last look, and its state."""
        chars = self._unread.chars
        return {"output": self._unread.take(), "chars": chars, "outcome": self.outcome, "exit_code": self.exit_code}

    def output(self, data: bytes, is_last: bool = False) -> None:
        self._add(self._decoder.decode(data, is_last))

    def _add(self, text: str) -> None:
        if self.outcome is None:
            self._unread.add(text)

    def _shell_ended(self, exit_code: int) -> None:
        self._ending = exit_code
        if isinstance(self._output, PseudoTerminal):
            self._output.let_go()
        self._output.drain()
        self._maybe_finish()
        if self.outcome is None:
            self._loop.call_later(DRAIN_SECONDS, self._finish)

    def _maybe_finish(self) -> None:
        if self._ending is not None and not self._output.is_open:
            self._finish()

    def _finish(self) -> None:
        if self.outcome is not None:
            return
        self._timer.cancel()
        self._output.discard_from_now()
        self.output(b"", is_last=True)
        self._add(self._vitals.news_since(self._mark))
        self.exit_code, self.outcome = self._ending, self._killed_as or "exit"
        self.ended.set()
        self._on_ended()


class SessionGroup(Generic[Id, OneSession]):
    """The sessions of one kind, by their ids."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        processes: Processes,
        vitals: HealthCounters,
        surroundings: CommandEnvironment,
        on_begun: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._config = config
        self._processes = processes
        self._vitals = vitals
        self._surroundings = surroundings
        self._on_begun = on_begun
        self._by_id: Dict[Id, OneSession] = {}

    @property
    def running(self) -> int:
        return sum(session.outcome is None for session in self._by_id.values())

    def end_family(self, leader: int, notice: str) -> bool:
        """End the session of this process, and say why; False if there is none."""
        for session in self._by_id.values():
            if session.leader == leader and session.outcome is None:
                session.output(notice.encode())
                session.kill("killed")
                return True
        return False

    def kill_all(self, notice: str) -> None:
        for session in list(self._by_id.values()):
            if session.outcome is None:
                session.output(notice.encode())
                session.kill("killed")
