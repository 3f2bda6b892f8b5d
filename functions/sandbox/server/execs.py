from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import os
import signal
from typing import Any, Deque, Dict, List, Tuple

from command_environment import CommandEnvironment
from configuration import ServerConfig
from exec_record import ExecRecord
from health import HealthCounters
from process_groups import kill_all_of, kill_session
from processes import Processes, found
from python_runs import LanguageSession
from request_errors import RequestError, field
from sessions import CommandSessions
from shell_run import ShellRun
from terminals import Terminals
from transcript import Spool, Transcript

TIMEOUT_MS_MAX = 4 * 3600 * 1000
OUTPUT_CHARS_MAX = 1_000_000
FINISHED_EXECS_MAX = 1_000
FINISHED_BYTES_MAX = 64 * 1024 * 1024
FORGOTTEN_IDS_MAX = 100_000
"""Ids of execs whose events were dropped. They must not run again, so the id is remembered much longer than the events."""


class Execs:
    """All execs by id: those that run, and the newest of those that have ended."""

    def __init__(self, config: ServerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.processes = Processes(config)
        self._config = config
        self.vitals = HealthCounters(config)
        self._untold = ""
        self._by_id: Dict[str, ExecRecord] = {}
        self._open: Dict[str, ExecRecord] = {}
        """Those that run."""
        self._ended: Deque[str] = collections.deque()
        """Ids of the others, in the order of their ends."""
        self._ended_bytes = 0
        self._forgotten: Dict[str, None] = {}
        self.surroundings = CommandEnvironment(config, self.processes.other_uid)
        python = [config.python, "-u", config.python_session]
        node = [found("node", config.path) or "node", config.javascript_session]
        self._sessions = {
            "python": self._language("Python", python),
            "javascript": self._language("JavaScript", node),
        }
        self.activity = asyncio.Event()
        shared = (loop, config, self.processes, self.vitals, self.surroundings, self.activity.set)
        self.sessions = CommandSessions(*shared)
        self.terminals = Terminals(*shared)

    @property
    def running(self) -> int:
        """Waited-for execs; a session that nobody looks at holds up no end of its sandbox."""
        return len(self._open) + self.sessions.looked_at + self.terminals.watched

    def get(self, exec_id: str) -> ExecRecord:
        record = self._by_id.get(exec_id)
        if record is not None:
            return record
        if exec_id in self._forgotten:
            raise RequestError(410, "forgotten_exec", f"'{exec_id}' has ended, and its output is no longer kept.")
        raise RequestError(404, "unknown_exec", f"The container knows no '{exec_id}'; it was probably started anew.")

    def start_command(self, exec_id: str, body: Dict[str, Any]) -> ExecRecord:
        command, env, cwd = field(body, "command", str), field(body, "env", dict, {}), body.get("cwd") or self._config.workspace
        if "\0" in command or "\0" in str(cwd) or any("\0" in f"{name}{value}" for name, value in env.items()):
            raise RequestError(400, "invalid_request", "A command cannot contain a null byte.")
        record, is_new = self._record(exec_id, command, body)
        if is_new:
            ShellRun(
                self._loop,
                self.processes,
                record,
                self._finished,
                command=command,
                cwd=self.surroundings.directory(str(cwd)),
                env=self.surroundings.variables(env),
            )
        return record

    def start_code(self, language: str, exec_id: str, body: Dict[str, Any]) -> ExecRecord:
        code, is_reset = field(body, "code", str), field(body, "reset", bool, False)
        record, is_new = self._record(exec_id, code, body)
        if is_new:
            self._sessions[language].run(record, None if is_reset else code)
        return record

    def _language(self, name: str, program: List[str]) -> LanguageSession:
        return LanguageSession(
            self._loop, self._config, self.processes, self.surroundings, self._finished, language=name, program=program
        )

    async def until_busy(self) -> None:
        """Return when there is something to watch: a process, or an exec that was just started."""
        self.activity.clear()
        if not self.processes.has_children():
            await self.activity.wait()

    def end_family(self, leader: int, notice: str) -> None:
        """End one process group with its session, and say why: to its exec, or to the next one if it has ended already."""
        for record in list(self._by_id.values()):
            if record.leader == leader and record.kill("killed"):
                record.output("stderr", notice.encode())
                return
        if self.sessions.end_family(leader, notice) or self.terminals.end_family(leader, notice):
            return
        self._untold = notice
        kill_session(leader, (), self.processes.other_uid)

    def kill_all(self, notice: str) -> None:
        """End every exec and every background process, and say why."""
        self._untold = notice
        for record in list(self._by_id.values()):
            if not record.is_finished:
                self._untold = ""
                record.output("stderr", notice.encode())
                record.kill("killed")
        self.sessions.kill_all(notice)
        self.terminals.kill_all(notice)
        if self.processes.other_uid is not None:
            kill_all_of(self.processes.other_uid)
        elif os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)

    def _finished(self) -> None:
        """Forget the oldest events beyond the bounds, but not that they were."""
        for exec_id in [exec_id for exec_id, record in self._open.items() if record.is_finished]:
            self._ended.append(exec_id)
            self._ended_bytes += self._open.pop(exec_id).transcript.event_bytes
        while len(self._ended) > 1 and (len(self._ended) > FINISHED_EXECS_MAX or self._ended_bytes > FINISHED_BYTES_MAX):
            exec_id = self._ended.popleft()
            transcript = self._by_id.pop(exec_id).transcript
            self._ended_bytes -= transcript.event_bytes
            transcript.forget()
            self._forgotten[exec_id] = None
            if len(self._forgotten) > FORGOTTEN_IDS_MAX:
                del self._forgotten[next(iter(self._forgotten))]

    def _record(self, exec_id: str, text: str, body: Dict[str, Any]) -> Tuple[ExecRecord, bool]:
        fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if exec_id in self._by_id or exec_id in self._forgotten:
            known = self.get(exec_id)
            if known.fingerprint != fingerprint:
                raise RequestError(409, "exec_id_in_use", f"'{exec_id}' is the id of another command.")
            return known, False
        timeout_ms, chars_max = field(body, "timeout_ms", int), field(body, "max_output_length", int)
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX or not 0 <= chars_max <= OUTPUT_CHARS_MAX:
            raise RequestError(400, "invalid_request", "timeout_ms or max_output_length is out of range.")
        spool = Spool(self._config.spool_dir, exec_id, self._config.spool_bytes_max)
        record = self._by_id[exec_id] = self._open[exec_id] = ExecRecord(
            self._loop, fingerprint, timeout_ms, Transcript(chars_max, spool), self.vitals
        )
        self._untold, news = "", self._untold
        if news:
            record.transcript.add_text("stderr", news)
        self.activity.set()
        return record, True
