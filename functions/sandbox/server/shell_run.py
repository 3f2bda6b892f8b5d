from __future__ import annotations

import asyncio
import os
from typing import Callable, Dict, List, Optional, Tuple

from exec_record import ExecRecord
from process_groups import kill_session
from processes import Processes
from streams import PipeReader, memory_file

ARGUMENT_BYTES_MAX = 120_000
"""Linux takes 128 KiB in one argument; a longer command goes to the shell as a file in memory."""
DRAIN_SECONDS = 0.1
"""When the shell has ended but something still holds its output open (a background service), wait this long for more."""


class ShellRun:
    """Runs one command in a shell and feeds its exec."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        processes: Processes,
        record: ExecRecord,
        on_finished: Callable[[], None],
        *,
        command: str,
        cwd: str,
        env: Dict[str, str],
    ) -> None:
        self._loop = loop
        self._processes = processes
        self._exec = record
        self._exit_code: Optional[int] = None
        self._pipes = [
            PipeReader(self._loop, lambda data: record.output("stdout", data), self._maybe_finish),
            PipeReader(self._loop, lambda data: record.output("stderr", data), self._maybe_finish),
        ]
        record.begin(self._kill, on_finished)
        self._pid: Optional[int] = None
        try:
            self._pid = record.leader = self._spawn(command, cwd, env)
        except OSError as error:
            record.output("stderr", f"The command could not be started: {error.strerror}.\n".encode())
            self._exit_code = 126
        finally:
            for pipe in self._pipes:
                pipe.close_writing_end()

    def _spawn(self, command: str, cwd: str, env: Dict[str, str]) -> int:
        stdin = os.open(os.devnull, os.O_RDONLY)
        arguments, script = shell_arguments([self._processes.shell], command)
        try:
            return self._processes.spawn(
                arguments,
                self._shell_ended,
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=self._pipes[0].writing_fd,
                stderr=self._pipes[1].writing_fd,
                pass_fds=() if script is None else (script,),
            )
        finally:
            os.close(stdin)
            if script is not None:
                os.close(script)

    def _kill(self) -> None:
        if self._pid is not None and self._exit_code is None:
            kill_session(self._pid, tuple(pipe.inode for pipe in self._pipes), self._processes.other_uid)

    def _shell_ended(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._exec.settle()
        for pipe in self._pipes:
            pipe.drain()
        self._maybe_finish()
        if not self._exec.is_finished:
            self._loop.call_later(DRAIN_SECONDS, self._finish)

    def _maybe_finish(self) -> None:
        if self._exit_code is not None and not any(pipe.is_open for pipe in self._pipes):
            self._finish()

    def _finish(self) -> None:
        for pipe in self._pipes:
            pipe.discard_from_now()
        assert self._exit_code is not None
        self._exec.finish(self._exit_code)


def shell_arguments(shell: List[str], command: str) -> Tuple[List[str], Optional[int]]:
    """What a shell (its program and options) is called with to run a command, and the file that it needs for that; the caller closes
    it."""
    if len(command.encode()) <= ARGUMENT_BYTES_MAX:
        return [*shell, "-c", command], None
    script = memory_file(command.encode())
    return [*shell, f"/dev/fd/{script}"], script
