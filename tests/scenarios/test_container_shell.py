"""``moorage containers shell`` at a real terminal, against a real stack."""

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.stack import Stack

PATIENCE_SECONDS = 90.0


@dataclass
class Person:
    """Somebody at a terminal: what they see, and what they type."""

    process: "subprocess.Popen[bytes]"
    terminal: int
    seen: str = ""
    at: int = 0
    """How far they have looked."""

    def sees(self, text: str) -> None:
        """Look on until it is there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.seen.find(text, self.at)) < 0:
            assert time.monotonic() < deadline, self.seen
            ready, _, _ = select.select([self.terminal], [], [], 0.2)
            if ready:
                try:
                    self.seen += os.read(self.terminal, 65_536).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert text in self.seen[self.at :], self.seen
        self.at = found + len(text)

    def prompt(self) -> None:
        self.sees("/mnt/data$ ")

    def types(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def resizes(self, rows: int, columns: int) -> None:
        size(self.terminal, rows, columns)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)


def size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def at_a_terminal(stack: Stack, *arguments: str) -> Iterator[Person]:
    ours, theirs = os.openpty()
    size(theirs, 33, 101)
    process = subprocess.Popen(
        [sys.executable, "-c", LED_BY_IT, "containers", "shell", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "MOORAGE_STATE_DIR": str(stack.state_dir)},
    )
    os.close(theirs)
    try:
        yield Person(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


LED_BY_IT = """
import fcntl, sys, termios
from moorage.cli.main import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the window of this session: its changes are told to it
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def container_id(stack: Stack) -> Iterator[str]:
    with stack.http() as http:
        made = http.post("/containers", json={"name": "shell"}).json()["id"]
        yield made
        http.delete(f"/containers/{made}")


def test_a_person_works_at_a_shell_leaves_it_and_comes_back(stack: Stack, container_id: str) -> None:
    with at_a_terminal(stack, container_id) as person:
        person.prompt()
        person.types("stty size\r")
        person.sees("33 101")
        person.resizes(40, 132)
        person.types("until [ \"$(stty size)\" = '40 132' ]; do sleep 0.05; done; echo wi'der'\r")
        person.sees("wider")
        person.prompt()
        # Said by the program itself: until it has the terminal, what is typed interrupts the shell, which goes on to start it.
        person.types("sh -c 'echo be\"\"gun; exec sleep 1000' || echo code=$?\r")
        person.sees("begun")
        person.types("\x03")
        person.prompt()
        person.types("echo kept > note.txt; cd /tmp\r")
        person.sees("/tmp$ ")
        person.types("\x1d")
        person.sees("--session ")
        begin = person.at
        person.sees("\n")
        assert person.exit_code() == 0
    session_id = person.seen[begin : person.at].strip()
    with at_a_terminal(stack, container_id, "--session", session_id) as person:
        person.sees("wider")  # what was shown before is shown again
        person.types("pwd; exit 7\r")
        person.sees("/tmp\r\nexit")
        assert person.exit_code() == 7
    with stack.http() as http:
        tree = http.get(f"/containers/{container_id}/tree").json()["data"]
        assert [entry["path"] for entry in tree] == ["/mnt/data/note.txt"]
        assert http.get(f"/containers/{container_id}/sessions").json()["data"] == []


def test_a_terminal_gives_exit_codes_and_tells_its_end_from_elsewhere(stack: Stack, container_id: str) -> None:
    with at_a_terminal(stack, container_id, "test -t 0 && echo a ter'minal'; exit 3") as person:
        person.sees("a terminal")
        assert person.exit_code() == 3
    with at_a_terminal(stack, container_id, "echo be'gun'; sleep 1000") as person, stack.http() as http:
        person.sees("begun")
        (session,) = http.get(f"/containers/{container_id}/sessions").json()["data"]
        assert http.delete(f"/containers/{container_id}").status_code == 200
        person.sees("moorage:")
        assert person.exit_code() == 1
        assert http.get(f"/sessions/{session['id']}/output").status_code == 404
