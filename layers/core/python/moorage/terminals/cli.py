"""``moorage containers shell``: this terminal as one in a container.

Keys go there as they are typed, Ctrl-C too, what is shown there is shown here, and the size follows the window. The session is the
container's: a connection that breaks is made again, and one that is left (by the detach key, or with this process) goes on and can be
come back to.
"""

import argparse
import codecs
import os
import secrets
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import httpx

from moorage.cli.target import TargetError, answer_of, find
from moorage.dataclass import dataclass
from moorage.terminal import clear_status, pass_on, say, show_status

_READ_BYTES: Final = 4_096
_PAUSE_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 120.0
"""For an API that does not answer: a local stack that is started anew is back by then."""
_DETACH: Final = "ctrl-]"
_CODES: Final = {"killed": 137, "timeout": 124, "lost": 1}
_TOLD: Final = {
    "killed": "The session was ended from elsewhere.",
    "timeout": "The session has run for four hours, as long as one may, and was ended.",
    "lost": "The session is lost: its container's sandbox has ended. The files are as they were stored last.",
}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A terminal in a container: a shell, or COMMAND. Its exit code becomes this one's. The detach key leaves it running; --session "
        "comes back to it."
    )
    parser.add_argument("container_id", metavar="CONTAINER_ID")
    parser.add_argument("command", metavar="COMMAND", nargs="*", help="as a shell takes it; words are joined by spaces")
    parser.add_argument("--session", metavar="SESSION_ID", help="go on with this one (csess_...)")
    parser.add_argument("--detach-key", default=_DETACH, metavar="KEY", help="ctrl- and a letter or one of [\\]^_; by default ctrl-]")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise TargetError(
            "A shell needs a terminal, and stdin or stdout is none. Without one: "
            f"moorage containers exec {options.container_id} 'COMMAND'"
        )
    detach = _key(options.detach_key)
    with find(environ).http() as http:
        session = _AttachedTerminal(http, options.container_id, options.session or _opened(http, options))
        return _Window(session, detach).sit()


def _key(named: str) -> bytes:
    letter = named.lower().removeprefix("ctrl-").upper()
    if not named.lower().startswith("ctrl-") or len(letter) != 1 or not "A" <= letter <= "_":
        raise TargetError(f"'{named}' is no key to detach with: ctrl-a to ctrl-z, or ctrl- and one of [\\]^_.")
    return bytes([ord(letter) - 64])


def _opened(http: httpx.Client, options: argparse.Namespace) -> str:
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    wanted: dict[str, Any] = {"columns": max(1, columns), "rows": max(1, rows)}
    if options.command:
        wanted["command"] = " ".join(options.command)
    return str(answer_of(http.post(f"/containers/{options.container_id}/sessions", json=wanted))["id"])


@dataclass
class _AttachedTerminal:
    """A session of the API's, asked for again if the connection breaks."""

    http: httpx.Client
    container_id: str
    id: str

    def output(self, after: int) -> dict[str, Any]:
        return self._asked("GET", f"/sessions/{self.id}/output", params={"starting_after": after})

    def help_on(self) -> None:
        self._asked("GET", f"/containers/{self.container_id}/sessions/{self.id}")

    def type(self, text: str) -> bool:
        """False if it cannot be typed now. It is typed once, however often it is sent."""
        piece = {"text": text, "id": secrets.token_hex(8)}
        return self._tried("POST", f"/sessions/{self.id}/input", json=piece).is_success

    def resize(self, columns: int, rows: int) -> None:
        self._tried("POST", f"/sessions/{self.id}/resize", json={"columns": max(1, columns), "rows": max(1, rows)})

    def close(self) -> None:
        self.http.delete(f"/sessions/{self.id}")

    def _asked(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return answer_of(self._tried(method, path, **arguments))

    def _tried(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                answer = self.http.request(method, path, **arguments)
                if answer.status_code < 500 or time.monotonic() > deadline:
                    return answer
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)


@dataclass
class _Window:
    """This terminal. One thread shows the output, this one sends the keys."""

    session: _AttachedTerminal
    detach: bytes
    code: int | None = None
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        # They go with the process: the reader may still write when the window is left.
        self._wakes, self._wake_end = os.pipe()

    def sit(self) -> int:
        """Until it has ended, or is left; the exit code."""
        reader = threading.Thread(target=self._show, daemon=True)
        with _raw(sys.stdin.fileno()), self._window_changes():
            reader.start()
            is_left = self._send()
        if is_left:
            clear_status()
            say(f"\nLeft running: moorage containers shell {self.session.container_id} --session {self.session.id}", out=sys.stderr)
            return 0
        reader.join()
        if self.failure is not None:
            raise self.failure
        assert self.code is not None
        return self.code

    def _show(self) -> None:
        try:
            self._follow()
        except Exception as error:
            self.failure = error
        finally:
            os.write(self._wake_end, b"e")

    def _follow(self) -> None:
        after, is_shown = 0, False
        while True:
            answer = self.session.output(after)
            after = answer["next"]
            if answer["status"] == "starting":
                show_status("the container is starting")
                self.session.help_on()
                continue
            if not is_shown:
                clear_status()
                is_shown = True
            pass_on(answer["output"])
            if answer["status"] == "ended" and not answer["output"]:
                self._end(answer)
                return

    def _end(self, answer: Mapping[str, Any]) -> None:
        outcome = answer["outcome"]
        self.code = answer["exit_code"] if outcome == "exit" else _CODES[outcome]
        if outcome in _TOLD:
            say(f"\r\nmoorage: {_TOLD[outcome]}\r", out=sys.stderr)
        self.session.close()

    def _send(self) -> bool:
        """Keys, as long as there are any; True if the person leaves."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            ready, _, _ = select.select([sys.stdin.fileno(), self._wakes], [], [])
            if self._wakes in ready:
                if b"e" in os.read(self._wakes, _READ_BYTES):
                    return False
                self.session.resize(*os.get_terminal_size(sys.stdout.fileno()))
                continue
            keys = os.read(sys.stdin.fileno(), _READ_BYTES)
            before, left, _ = keys.partition(self.detach)
            if not self._typed(decoder.decode(before)):
                return False
            if left or not keys:  # The terminal is gone: nobody can type any more.
                return True

    def _typed(self, text: str) -> bool:
        """Send it when there is somebody to take it; False if it has ended meanwhile."""
        while text and not self.session.type(text):
            ready, _, _ = select.select([self._wakes], [], [], _PAUSE_SECONDS)
            if ready and b"e" in os.read(self._wakes, _READ_BYTES):
                return False
        return True

    @contextmanager
    def _window_changes(self) -> Iterator[None]:
        def tell(_number: int, _frame: FrameType | None) -> None:
            os.write(self._wake_end, b"w")

        before = signal.signal(signal.SIGWINCH, tell)
        try:
            # It may have another size than the session was opened with, or left with.
            os.write(self._wake_end, b"w")
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Every key as it is; the terminal is as it was afterwards."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
