"""An event loop in which nobody waits: where every task does, its time jumps to the first that wakes."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Handle(asyncio.Handle):
    """One that does not ask the loop whether it is being debugged."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: "VirtualLoop", context: Context) -> None:
        self._context, self._loop, self._callback, self._args = context, loop, callback, args
        self._cancelled = False
        self._repr = self._source_traceback = None


class VirtualLoop(asyncio.BaseEventLoop):
    """It has neither files nor threads, so that there is nothing to ask the system for between two callbacks. What a callback raises
    ends the loop's run. A wait that nothing will end is a RuntimeError."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._made: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise RuntimeError("everybody waits, and nobody is going to wake")
            self._now = max(self._now, timers[0].when())
        while timers and timers[0].when() <= self._now:
            ready.append(heapq.heappop(timers))
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if not handle._cancelled:
                handle._context.run(handle._callback, *handle._args)

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> "asyncio.Task[Any]":
        """Without a name of its own, for which nobody asks."""
        task = asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)
        self._made.append(task)
        return task

    def close(self) -> None:
        super().close()
        self._made.clear()  # Each of them knows its loop.

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """What is meant for a thread runs at once: the loop's clock would not wait for a thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def unfinished(self) -> "list[asyncio.Task[Any]]":
        """Of its tasks. asyncio would look for them among those of all loops."""
        return [task for task in self._made if not task.done()]

    def _write_to_self(self) -> None:
        """Nobody sleeps outside of it, so that nobody is to be woken."""

    def _asyncgen_firstiter_hook(self, agen: object) -> None:
        """Nobody asks for those that are open; one that is dropped is closed all the same."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """In a loop of its own, whose time begins at nothing. What is left behind is cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        left = loop.unfinished()
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()
