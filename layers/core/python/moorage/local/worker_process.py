"""A worker of the loop, as the child of a stack."""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import IO

from moorage.dataclass import dataclass
from moorage.local import step_worker
from moorage.local.processes import ChildProcess, begin_program, comes_up, end_now, fork, has_threads, noted, take_name
from moorage.local.supervision import Child
from moorage.store.execution_rows import worker_socket

WORKER_STOP_SECONDS_MAX = 5


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One of those that play the loop (``step_worker.py``)."""

    state_dir: Path
    number: int
    workers: int
    environment: dict[str, str] = field(repr=False)
    lock: IO[str]
    """Of the state folder: it holds it until it ends, for it has the store open."""

    @property
    def log_file(self) -> Path:
        return self.state_dir / f"worker-{self.number}.log"

    @property
    def socket_path(self) -> Path:
        return worker_socket(self.state_dir, self.number)

    def child(self, closes: Sequence[socket.socket]) -> Child:
        """Started, and not waited for: executions wait until it takes them. It begins as a copy of this process, without the sockets
        that it ``closes``: so it has nothing to import, and shares the memory of modules. One that is started again is a program of its
        own, because by then this process has threads."""

        def work() -> None:
            take_name(step_worker.NAME)
            for each in closes:
                each.close()
            os.environ.clear()
            os.environ.update(self.environment)
            asyncio.run(step_worker.serve(self.number, self.workers))

        process = noted(self._process_note, self._program if has_threads() else partial(fork, work, self.log_file))
        return Child("A worker of the loop", process, self.start, str(self.log_file), str(self.socket_path))

    @property
    def _process_note(self) -> Path:
        return self.state_dir / f"worker-{self.number}.process"

    def _program(self) -> ChildProcess:
        command = [sys.executable, "-m", "moorage.local.step_worker", str(self.number), str(self.workers)]
        return begin_program(command, self.log_file, environment=self.environment, lock=self.lock)

    def start(self) -> ChildProcess:
        process = noted(self._process_note, self._program)
        if not comes_up(process, self.socket_path):
            end_now(process)
            raise SystemExit(f"moorage: A worker of the loop did not start; its last words are in {self.log_file}.")
        return process
