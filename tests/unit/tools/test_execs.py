"""An exec is followed to its end over connections that break."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from moorage.errors import SandboxGone
from moorage.sandbox.exec_client import ExecEnded, ExecEvent, ExecOutput, ExecStarted, FileListing, PythonEvent
from moorage.tools.execs import FollowedExec, SandboxLost, follow
from moorage.tools.run import Workplace

SAID = ExecOutput(1, "stdout", "a")
ENDED = ExecEnded(2, "exit", 0, 0, None)
FILES = FileListing((), is_complete=True)
EXITED = {"type": "exit", "exit_code": 0}


@dataclass
class FakeWorkplace:
    """A sandbox whose connection breaks after so many events, once for each number."""

    breaks: list[int]
    events: Sequence[ExecEvent] = (ExecStarted(0), SAID, ENDED, FILES)
    asked: list[int] = field(default_factory=list)
    is_lost: bool = False
    lives: bool = True

    async def is_alive(self) -> bool:
        return self.lives

    async def begin(self, after: int) -> AsyncIterator[ExecEvent | PythonEvent]:
        self.asked.append(after)
        left = self.breaks.pop(0) if self.breaks else len(self.events)
        for event in self.events:
            if not left:
                raise SandboxGone("torn")
            left -= 1
            if getattr(event, "n", after + 1) > after:
                yield event

    async def followed(self, exec_: FollowedExec) -> list[ExecEvent | PythonEvent]:
        return [event async for event in follow(exec_, self.begin, cast("Workplace", self))]


async def test_a_broken_connection_is_asked_for_the_rest() -> None:
    place, exec_ = FakeWorkplace([0, 1, 2]), FollowedExec(0)
    assert await place.followed(exec_) == [SAID, ENDED]
    assert (place.asked, exec_.output, exec_.files) == ([-1, -1, -1, 1], {"stdout": "a", "stderr": "", "outcome": EXITED}, FILES)


async def test_a_connection_that_breaks_behind_the_end_leaves_out_the_files() -> None:
    place, exec_ = FakeWorkplace([3]), FollowedExec(0)
    assert await place.followed(exec_) == [SAID, ENDED]
    assert (place.asked, exec_.output, exec_.files) == ([-1], {"stdout": "a", "stderr": "", "outcome": EXITED}, None)


async def test_a_dead_sandbox_has_lost_what_had_not_ended() -> None:
    with pytest.raises(SandboxLost):
        await FakeWorkplace([2], lives=False).followed(FollowedExec(0))
