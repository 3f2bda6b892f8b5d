from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import os
import secrets
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from command_environment import CommandEnvironment
from configuration import ServerConfig
from exec_record import ExecRecord
from process_groups import kill_session
from processes import Processes
from streams import PipeReader

RESULT_CHARS_MAX = 100_000
ANSWER_BYTES_MAX = 4 * 1024 * 1024


class LanguageSession:
    """A process (Python, or Node) that keeps its variables from run to run. Started by the first run; gone after a time-out."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        processes: Processes,
        surroundings: CommandEnvironment,
        on_finished: Callable[[], None],
        *,
        language: str,
        program: List[str],
    ) -> None:
        """``program`` is the started command, but for the two descriptors that it is spoken to by."""
        self._language = language
        self._program = program
        self._loop = loop
        self._config = config
        self._processes = processes
        self._surroundings = surroundings
        self._on_finished = on_finished
        self._queue: Deque[Tuple[ExecRecord, Optional[str]]] = collections.deque()
        self._current: Optional[ExecRecord] = None
        self._pid: Optional[int] = None
        self._is_new = False
        self._pipes: List[PipeReader] = []
        self._requests: Optional[int] = None
        self._request_path = ""
        self._answers = b""

    def run(self, record: ExecRecord, code: Optional[str]) -> None:
        """Run the code after the waiting ones; None ends the process, so that the next run begins a new one."""
        self._queue.append((record, code))
        self._next()

    def _next(self) -> None:
        while self._current is None and self._queue:
            record, code = self._queue.popleft()
            if record.was_killed:
                record.transcript.started()
                record.finish(137, self._outcome(None, []))
                continue
            self._current = record
            record.begin(self._kill, self._finished)
            if code is None:
                self._reset(record)
                continue
            try:
                if self._pid is None:
                    self._start()
                record.leader = self._pid
                self._send(code)
            except OSError as error:
                record.output("stderr", f"{self._language} could not be started: {error.strerror}.\n".encode())
                record.finish(126, self._outcome(None, []))
                self._kill()

    def _reset(self, record: ExecRecord) -> None:
        if self._pid is None:
            record.finish(0, self._outcome(None, []))
        else:
            self._kill()  # its end is that of the record

    def _start(self) -> None:
        loop = self._loop
        requests_reading, self._requests = os.pipe()
        os.set_blocking(self._requests, False)
        answers = PipeReader(loop, self._answered, lambda: None)
        self._pipes = [
            PipeReader(loop, lambda data: self._output("stdout", data), lambda: None),
            PipeReader(loop, lambda data: self._output("stderr", data), lambda: None),
            answers,
        ]
        self._answers = b""
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            self._pid = self._processes.spawn(
                [*self._program, str(requests_reading), str(answers.writing_fd)],
                self._ended,
                cwd=self._surroundings.directory(self._config.workspace),
                env=self._surroundings.variables({}),
                stdin=stdin,
                stdout=self._pipes[0].writing_fd,
                stderr=self._pipes[1].writing_fd,
                pass_fds=(requests_reading, answers.writing_fd),
            )
            self._is_new = True
        finally:
            os.close(stdin)
            os.close(requests_reading)
            for pipe in self._pipes:
                pipe.close_writing_end()

    def _send(self, code: str) -> None:
        """Hand over the code as a file: its name always fits into the pipe, so a session that reads no more cannot hold us up."""
        assert self._requests is not None
        path = self._request_path = os.path.join(self._config.spool_dir, f"{self._language.lower()}-{secrets.token_hex(8)}.json")
        os.makedirs(self._config.spool_dir, 0o755, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            json.dump({"code": code, "workspace": self._config.workspace, "result_chars_max": RESULT_CHARS_MAX}, file)
        self._answers = b""
        os.write(self._requests, path.encode() + b"\n")

    def _output(self, stream: str, data: bytes) -> None:
        if self._current is not None:
            self._current.output(stream, data)

    def _answered(self, data: bytes) -> None:
        if self._current is None:
            return  # code that writes on after its run would fill the memory
        self._answers += data
        if b"\n" not in self._answers and len(self._answers) < ANSWER_BYTES_MAX:
            return
        try:
            answer = json.loads(self._answers.split(b"\n", 1)[0])
            result, images, exit_code = answer["result"], [str(path) for path in answer["images"]], int(answer["exit_code"])
        except (ValueError, KeyError, TypeError):
            # The code has written to a descriptor that is not its own. Start afresh.
            self._current.kill("killed")
            return
        for pipe in self._pipes[:2]:
            pipe.drain()
        outcome = self._outcome(None if result is None else str(result), images)
        self._is_new = False
        self._current.finish(exit_code, outcome)

    def _ended(self, exit_code: int) -> None:
        for pipe in self._pipes[:2]:
            pipe.drain()
        for pipe in self._pipes:
            pipe.discard_from_now()
        if self._requests is not None:
            os.close(self._requests)
        self._requests = self._pid = None
        if self._current is not None:
            self._current.finish(exit_code, self._outcome(None, []))

    def _kill(self) -> None:
        if self._pid is not None:
            kill_session(self._pid, tuple(pipe.inode for pipe in self._pipes), self._processes.other_uid)

    def _finished(self) -> None:
        self._current = None
        with contextlib.suppress(OSError):
            os.unlink(self._request_path)
        self._on_finished()
        self._loop.call_soon(self._next)

    def _outcome(self, result: Optional[str], images: List[str]) -> Dict[str, Any]:
        return {"result": result, "images": images, "session_started": self._is_new}
