"""Execs that calls run in a sandbox, followed over broken connections and over runs of the step that died.

An exec is known to the exec server by its id, once and for all: whoever names it again attaches to it, after the last event that is
known to him. The log says which of them are in it, by their numbers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import field
from typing import Any, Final, TypeVar

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxGone, SandboxUnreachable
from moorage.sandbox.exec_client import ExecEnded, ExecEvent, ExecOutput, FileListing, PythonEnded, PythonEvent
from moorage.tools.calls import NOT_ALLOWED, CallEnd
from moorage.tools.run import Workplace
from moorage.wire.types import Item

T = TypeVar("T")

REVIVED: Final = (
    "The container has been started again since it was last used: the files in /mnt/data are as they were saved, processes that ran "
    "before are gone."
)
KILLED: Final = "[The command was killed.]"
WORDS: Final = {
    CallEnd.DENIED: NOT_ALLOWED,
    CallEnd.REFUSED: "This call was not run: the limit of tool calls is reached. Answer with what you have.",
    CallEnd.LOST: "The container stopped while this command was running, and the command was not run again. Its processes are gone; "
    "files that were saved before are still in /mnt/data.",
    CallEnd.GAVE_UP: "This command could not be run: the container could not be reached.",
}
_EXIT_CODE_LOST: Final = 137
"""What a shell says of a command that was killed."""


def exec_id(response_id: str, call_id: str, index: int) -> str:
    """The exec server knows a command under this id, once and for all. A model may repeat its call ids; a response does not."""
    return f"{response_id.removeprefix('resp_')[:16]}-{call_id}-{index}"


def outcome_of(event: ExecEnded | PythonEnded) -> dict[str, Any]:
    """The ``outcome`` of the wire."""
    if event.outcome == "timeout":
        return {"type": "timeout"}
    return {"type": "exit", "exit_code": event.exit_code}


@dataclass(slots=True)
class FollowedExec:
    """One exec's output so far."""

    index: int
    text: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    outcome: dict[str, Any] | None = None
    offset: int = -1
    """Number of the last exec event that is in the log."""
    seen: int = -1
    """Number of the last exec event that was received."""
    files: FileListing | None = None
    """Those of the workspace behind it, if they came with its end."""

    @property
    def output(self) -> dict[str, Any]:
        return {**self.text, "outcome": self.outcome}

    @property
    def chars(self) -> int:
        return sum(len(text) for text in self.text.values())

    def recall(self, output: Item) -> None:
        """The log's part of it."""
        self.text = {"stdout": output["stdout"], "stderr": output["stderr"]}
        self.outcome = output.get("outcome")

    def lose(self) -> str:
        """It had begun, and its end is unknown. Returns the words for its stderr."""
        said = f"{chr(10) if self.text['stderr'] else ''}[{WORDS[CallEnd.LOST]}]"
        self.outcome = {"type": "exit", "exit_code": _EXIT_CODE_LOST}
        return said

    def take(self, event: ExecOutput) -> bool:
        """Add output; False if the log has it already."""
        if event.n <= self.seen:
            return False
        self.seen = event.n
        if event.n <= self.offset:
            return False
        self.text[event.stream] += event.text
        return True


class SandboxLost(Exception):
    """The sandbox is gone, and its processes with it."""


Begin = Callable[[int], AsyncIterator[ExecEvent | PythonEvent]]
"""Start or follow an exec, after the event of this number."""


async def follow(exec_: FollowedExec, begin: Begin, workplace: Workplace) -> AsyncIterator[ExecOutput | ExecEnded | PythonEnded]:
    """New output of an exec, up to its end. Raises :class:`SandboxLost`. Output that is only in memory is asked for again by number."""
    for _ in range(limits.CALL_ATTEMPTS_MAX):
        if workplace.is_lost:
            break
        try:
            async for event in begin(max(exec_.seen, -1)):
                match event:
                    case ExecOutput() if exec_.take(event):
                        yield event
                    case ExecEnded() | PythonEnded():
                        exec_.outcome = outcome_of(event)
                        yield event
                    case FileListing():
                        exec_.files = event
                    case _:
                        pass
            return
        except (SandboxGone, SandboxUnreachable):
            if exec_.outcome is not None:  # Only the files behind its end are missing.
                return
            if not await workplace.is_alive():
                break
    raise SandboxLost


async def merged(*streams: AsyncIterator[T]) -> AsyncIterator[T]:
    """The output of several, as it comes. An error of one ends all."""
    if len(streams) == 1:
        async for piece in streams[0]:
            yield piece
        return
    queue: asyncio.Queue[tuple[T] | asyncio.Task[None]] = asyncio.Queue()  # An exec's output is bounded where it is made.

    async def pump(stream: AsyncIterator[T]) -> None:
        async for piece in stream:
            queue.put_nowait((piece,))

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    try:
        left = len(tasks)
        while left:
            got = await queue.get()
            if isinstance(got, tuple):
                yield got[0]
            else:
                got.result()
                left -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
