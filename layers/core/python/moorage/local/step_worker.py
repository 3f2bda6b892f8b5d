"""A worker of the loop: a process that takes executions from the file and plays them side by side (``store/execution_rows.py``).

``python -m moorage.local.step_worker NUMBER WORKERS`` is a child of the stack. It listens on a socket, where a connection wakes it and
the supervisor finds out whether it answers. It may die at any moment: its successor frees what it had, and whoever takes that runs the
steps again which it was running. At SIGTERM it frees what it has by itself, and ends at once.
"""

import asyncio
import fcntl
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from moorage import limits
from moorage.agents.listener import attend
from moorage.local.processes import take_name
from moorage.local.state_machine import ExecutionPosition, Invoke, State, StateMachine
from moorage.local.tenant_places import TenantPlaces, share_of
from moorage.loop import tasks
from moorage.runtime import build_runtime, relieve_collector
from moorage.settings import Settings, SettingsError
from moorage.store.execution_rows import ExecutionRows, TakenExecution, worker_socket
from moorage.telemetry import log_to_file, tell, tell_error

T = TypeVar("T")
NAME: Final = "moorage-worker"
"""Of its process."""

_LOOKS_A_SWEEP: Final = 120


def workers_from(environ: Mapping[str, str]) -> int:
    """``MOORAGE_WORKERS``: how many processes play the loop; no more than steps may run at once. Raises SettingsError."""
    return min(_count(environ, "MOORAGE_WORKERS", "processes", limits.EXECUTION_WORKERS), steps_max(environ))


def steps_max(environ: Mapping[str, str]) -> int:
    """``MOORAGE_STEPS_MAX``: how many steps may run at once, over all workers. Raises SettingsError."""
    return _count(environ, "MOORAGE_STEPS_MAX", "steps", limits.EXECUTION_STEPS_MAX)


def _count(environ: Mapping[str, str], name: str, of: str, otherwise: int) -> int:
    wanted = environ.get(name, "")
    if not wanted:
        return otherwise
    if not (wanted.isascii() and wanted.isdigit() and int(wanted) > 0):
        raise SettingsError(f"{name} takes a number of {of} from 1, not '{wanted}'.")
    return int(wanted)


class _Gone(Exception):
    """The execution was stopped, or has another worker."""


class StepWorker:
    def __init__(self, rows: ExecutionRows, invoke: Invoke, number: int, workers: int, *, steps: int, chance: random.Random) -> None:
        """``steps`` is how many may run at once here."""
        self._rows, self._number, self._workers = rows, number, workers
        self._run, self._places = invoke, TenantPlaces(steps)
        self._chance = chance
        self._woken = asyncio.Event()
        self.playing: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """There may be something to take."""
        self._woken.set()

    async def work(self) -> None:
        """Until it is cancelled."""
        await self._written(lambda: self._rows.free(self._number, self._workers, has_died=True))
        looks = 0
        while True:
            self._woken.clear()
            try:
                room = limits.EXECUTIONS_PLAYED_MAX - len(self.playing)
                for taken in await self._rows.take(self._number, room, share=share_of(limits.EXECUTIONS_PLAYED_MAX)):
                    self._begin(taken)
                if looks % _LOOKS_A_SWEEP == 0:
                    await self._rows.forget_ended()
            except Exception as error:  # A full disk, for example: it is tried again.
                tell_error(error, "executions could not be taken")
            looks += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.EXECUTION_LOOK_SECONDS):
                    await self._woken.wait()

    async def leave(self) -> None:
        """Free its executions for a successor. A task that it still plays finds that out when it goes on."""
        await self._rows.free(self._number, self._workers, has_died=False)

    def _begin(self, taken: TakenExecution) -> None:
        playing = asyncio.create_task(self._play(taken))
        self.playing.add(playing)
        playing.add_done_callback(self.playing.discard)

    async def _play(self, taken: TakenExecution) -> None:
        machine = StateMachine(self._invoke, self._chance)
        try:
            async with asyncio.timeout(machine.seconds_max):
                status = await self._played(machine, taken)
        except _Gone:
            return
        except TimeoutError:
            status = "TIMED_OUT"
        except Exception as error:
            tell_error(error, "an execution failed", execution=taken.name)
            status = "FAILED"
        await self._written(lambda: self._rows.end(taken.name, status))
        counts = {"transitions": machine.transitions, "invocations": machine.invocations}
        tell("execution_ended", {"execution": taken.name, "status": status, **counts})

    async def _played(self, machine: StateMachine, taken: TakenExecution) -> str:
        """How it ends."""

        async def keep(position: ExecutionPosition) -> None:
            stands_at = (position.state, position.data, position.retries)
            if not await self._written(lambda: self._rows.keep(taken.name, self._number, *stands_at)):
                raise _Gone

        position = machine.start(taken.data) if taken.state is None else ExecutionPosition(taken.state, taken.data, taken.retries)
        if taken.deaths > limits.EXECUTION_DEATHS_MAX:
            caught = machine.caught(position)
            if caught is None:
                return "FAILED"
            position = caught
            await keep(position)
        elif taken.deaths > 1:
            await asyncio.sleep(min(2.0 ** (taken.deaths - 2), limits.EXECUTION_PAUSE_SECONDS_MAX))
        ended = await machine.play(position, keep)
        return "SUCCEEDED" if machine.succeeds(ended) else "FAILED"

    async def _written(self, write: Callable[[], Awaitable[T]]) -> T:
        """A full disk is waited for, as long as an execution may take: finished work is not lost over it."""
        while True:
            try:
                return await write()
            except sqlite3.OperationalError as error:
                tell_error(error, "where an execution stands could not be written")
                await asyncio.sleep(limits.EXECUTION_PAUSE_SECONDS_MAX)

    async def _invoke(self, name: str, given: State) -> Any:
        async with self._places.place(given["tenant_id"]):
            try:
                return await self._run(name, given)
            except Exception as error:
                tell_error(error, "a step failed", task=name, response_id=given.get("response_id"))
                raise


async def serve(number: int, workers: int) -> None:
    """Until SIGTERM: it ends the process."""
    settings = Settings.from_environment()
    assert settings.executions_file is not None
    assert settings.log_file is not None
    log_to_file(settings.log_file, level=settings.log_level, service=settings.name)
    folder = Path(settings.executions_file).parent
    with _locked(folder / f"worker-{number}.lock"):
        runtime = attend(build_runtime(settings))
        rows = runtime.stores.executions
        assert isinstance(rows, ExecutionRows)
        steps = steps_max(os.environ) // workers
        worker = StepWorker(rows, partial(tasks.run, runtime), number, workers, steps=steps, chance=random.Random())

        async def take_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            worker.wake()
            with suppress(OSError):
                await reader.read()
            writer.transport.abort()

        working = asyncio.create_task(worker.work())
        server = await asyncio.start_unix_server(take_call, worker_socket(folder, number))
        relieve_collector()
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        await asyncio.wait({working, asyncio.create_task(told.wait())}, return_when=asyncio.FIRST_COMPLETED)
        server.close()
        if working.done():
            working.result()  # It ends by an error alone.
        with suppress(sqlite3.OperationalError):
            await worker.leave()
        os._exit(0)  # Steps that run are run again; nobody waits for them here.


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for the lock of this number: a predecessor that was told to end may take a moment."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    take_name(NAME)
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
