"""Commands that go on between looks at them.

A *look* starts a session or types into one, waits until it has ended or its time is over, and answers with what was printed since the
look before it. Each has an id, is done once, and gives the same answer however often it is asked for: who lost the connection asks
again, and neither types twice nor loses a character.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
from typing import Any, AsyncIterator, Callable, Dict, Optional

from command_environment import CommandEnvironment
from configuration import ServerConfig
from health import HealthCounters
from processes import Processes, found
from request_errors import RequestError, field
from session import Session, SessionGroup
from transcript import HEARTBEAT_SECONDS

SESSIONS_MAX = 32
"""That run. Each has a terminal or a pipe, and up to a MiB that nobody has read; a local sandbox has 64 terminals."""
ENDED_MAX = 64
"""Sessions that have ended and that nobody has looked at since."""
REMEMBERED_MAX = 1_000
"""Sessions whose end has been told: how they ended is said once more to who asks."""
SECONDS_MAX = 4 * 3600
WAIT_MS_MAX = 300_000
TYPED_CHARS_MAX = 100_000
LOOKS_MAX = 256
LOOKS_CHARS_MAX = 16 * 1024 * 1024
"""Answers that are kept. A look is repeated within minutes, by whoever takes over a call whose process died."""
FORGOTTEN_MAX = 100_000
"""Ids of looks whose answers were dropped: what they did is not done again."""
NUMBERS = range(1_000, 100_000)
"""Drawn at random: a session of an earlier sandbox must not be taken for another one of this."""

TERMINAL = {"TERM": "xterm-256color", "NO_COLOR": "1"}


class SessionPoll:
    """One look, and its answer as soon as there is one."""

    def __init__(self, fingerprint: str, session: Session) -> None:
        self.fingerprint = fingerprint
        self.session = session
        self.answer: Dict[str, Any] = {}
        self.chars = 0
        self._is_over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def end(self, answer: Dict[str, Any]) -> None:
        self.answer, self.chars = answer, len(answer["output"])
        self._is_over.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Heartbeats, and last the answer."""
        while not self.is_over:
            try:
                await asyncio.wait_for(self._is_over.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                yield b'{"type":"heartbeat"}\n'
        yield json.dumps({"type": "look", **self.answer}, separators=(",", ":")).encode() + b"\n"


class CommandSessions(SessionGroup[int, Session]):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        processes: Processes,
        vitals: HealthCounters,
        surroundings: CommandEnvironment,
        on_begun: Callable[[], None],
    ) -> None:
        super().__init__(loop, config, processes, vitals, surroundings, on_begun)
        self._ends: Dict[int, Optional[int]] = {}
        """Exit codes of sessions whose end has been told."""
        self._looks: Dict[str, SessionPoll] = {}
        self._forgotten: Dict[str, None] = {}
        self._tasks: Dict[str, "asyncio.Task[None]"] = {}

    @property
    def looked_at(self) -> int:
        """Looks that are not over."""
        return sum(not look.is_over for look in self._looks.values())

    def look(self, look_id: str, body: Dict[str, Any]) -> SessionPoll:
        """Begin a look, or find the one of this id."""
        fingerprint = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        known = self._looks.get(look_id)
        if known is not None:
            if known.fingerprint != fingerprint:
                raise RequestError(409, "exec_id_in_use", f"'{look_id}' is the id of another look.")
            return known
        if look_id in self._forgotten:
            raise RequestError(410, "forgotten_exec", f"'{look_id}' is over, and its answer is no longer kept.")
        wait_ms, chars = field(body, "wait_ms", int), field(body, "chars", str, "")
        if not 0 <= wait_ms <= WAIT_MS_MAX or len(chars) > TYPED_CHARS_MAX:
            raise RequestError(400, "invalid_request", "wait_ms or chars is out of range.")
        number = body.get("session_id")
        if number is None:
            number = self._begin(body)
        session = self._session(number)
        if chars and not session.has_terminal and chars != "\x03":
            raise RequestError(409, "no_stdin", f"Session {number} has no terminal, and its stdin is closed.")
        look = self._looks[look_id] = SessionPoll(fingerprint, session)
        self._tasks[look_id] = self._loop.create_task(self._follow(look_id, look, number, chars, wait_ms / 1000))
        self._forget()
        return look

    def kill(self, look_id: str) -> bool:
        """Kill the session that a look has begun or looks at; False if it has ended, or there is none."""
        look = self._looks.get(look_id)
        return look is not None and look.session.kill("killed")

    def _begin(self, body: Dict[str, Any]) -> int:
        command, shell = field(body, "command", str), field(body, "program", str, "") or self._processes.shell
        cwd = os.path.join(self._config.workspace, field(body, "cwd", str, ""))
        has_terminal, is_login = field(body, "terminal", bool, False), field(body, "login", bool, False)
        if "\0" in command + shell + cwd:
            raise RequestError(400, "invalid_request", "A command cannot contain a null byte.")
        if self.running >= SESSIONS_MAX:
            raise RequestError(429, "too_many_sessions", f"{SESSIONS_MAX} sessions run in this container: end one of them first.")
        program = shell if "/" in shell else found(shell, self._config.path)
        if program is None or not os.access(program, os.X_OK):
            raise RequestError(400, "no_such_shell", f"There is no shell '{shell}' in this container.")
        number = self._free_number()
        session = self._by_id[number] = Session(
            self._loop,
            self._processes,
            self._vitals,
            self._drop_unseen,
            has_terminal=has_terminal,
            seconds_max=SECONDS_MAX,
        )
        session.start(
            command,
            shell=program,
            is_login=is_login,
            cwd=self._surroundings.directory(os.path.normpath(cwd)),
            env=self._surroundings.variables(TERMINAL if has_terminal else {}),
        )
        self._on_begun()
        return number

    def _session(self, number: Any) -> Session:
        session = self._by_id.get(number) if isinstance(number, int) else None
        if session is not None:
            return session
        if number in self._ends:
            raise RequestError(410, "ended_session", f"Session {number} has ended with exit code {self._ends[number]}.")
        raise RequestError(404, "unknown_session", f"There is no session {number}.")

    async def _follow(self, look_id: str, look: SessionPoll, number: int, chars: str, seconds: float) -> None:
        began, session = self._loop.time(), look.session
        untyped = 0
        if chars:
            data = chars.encode("utf-8", "surrogatepass")
            untyped = len(data) - (await session.type(data, began + seconds) or 0)
        left = began + seconds - self._loop.time()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(session.ended.wait(), max(0.0, left))
        told = session.take()
        if session.outcome is not None and self._by_id.pop(number, None) is not None:
            self._ends[number] = session.exit_code
            if len(self._ends) > REMEMBERED_MAX:
                del self._ends[next(iter(self._ends))]
        look.end({**told, "session_id": number, "seconds": self._loop.time() - began, "untyped_bytes": untyped})
        del self._tasks[look_id]

    def _free_number(self) -> int:
        while True:
            number = secrets.choice(NUMBERS)
            if number not in self._by_id and number not in self._ends:
                return number

    def _drop_unseen(self) -> None:
        """Of sessions that have ended while nobody looked, the newest stay; of the others only how they ended."""
        looked_at = {id(look.session) for look in self._looks.values() if not look.is_over}
        unseen = [number for number, each in self._by_id.items() if each.outcome is not None and id(each) not in looked_at]
        for number in unseen[: max(0, len(unseen) - ENDED_MAX)]:
            self._ends[number] = self._by_id.pop(number).exit_code

    def _forget(self) -> None:
        """Drop the oldest answers beyond the bounds, but not that they were."""
        over = [look_id for look_id, look in self._looks.items() if look.is_over]
        chars = sum(self._looks[look_id].chars for look_id in over)
        for look_id in over:
            if len(self._looks) <= LOOKS_MAX and chars <= LOOKS_CHARS_MAX:
                return
            chars -= self._looks.pop(look_id).chars
            self._forgotten[look_id] = None
            if len(self._forgotten) > FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]
