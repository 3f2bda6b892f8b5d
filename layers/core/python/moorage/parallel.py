"""Work beside the event loop, and many small pieces of it side by side."""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from importlib import import_module
from threading import Lock
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

import orjson

from moorage import limits
from moorage.dataclass import dataclass

T = TypeVar("T")
R = TypeVar("R")

_tenant: Final[ContextVar[str]] = ContextVar("tenant", default="")


@contextmanager
def working_for(tenant_id: str) -> Iterator[None]:
    """Work on threads inside is this tenant's, and takes turns with that of others."""
    token = _tenant.set(tenant_id)
    try:
        yield
    finally:
        _tenant.reset(token)


@dataclass(frozen=True, slots=True)
class _Work(Generic[R]):
    tenant_id: str
    is_large: bool
    do: Callable[[], R]
    done: "Future[R]"

    def run(self) -> None:
        if not self.done.set_running_or_notify_cancel():
            return  # Whoever wanted it has gone.
        try:
            result = self.do()
        except BaseException as error:  # For whoever waits for it.
            self.done.set_exception(error)
        else:
            self.done.set_result(result)


class FairThreads:
    """Threads shared by tenants in turns.

    A tenant has a few of them at most, so that one is free for another tenant. Of large works one runs at a time, for all tenants:
    several threads that wait for the interpreter leave the event loop the last place in the queue.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(limits.WORK_THREADS, "work")
        self._lock = Lock()
        self._waiting: dict[tuple[str, bool], deque[_Work[Any]]] = {}
        """By tenant, and by whether it is large; whose turn is next stands first."""
        self._running: Counter[str] = Counter()
        self._large = 0

    def begin(self, tenant_id: str, work: Callable[[], R], *, is_large: bool) -> "Future[R]":
        """Do it when its tenant has its turn. Work that is cancelled before is left out."""
        done: Future[R] = Future()
        with self._lock:
            self._waiting.setdefault((tenant_id, is_large), deque()).append(_Work(tenant_id, is_large, work, done))
        self._threads.submit(self._do_next)
        return done

    def _do_next(self) -> None:
        """Does nothing if no work may begin: the end of a running one comes back for it."""
        with self._lock:
            work = self._taken()
        if work is None:
            return
        work.run()
        with self._lock:
            self._running[work.tenant_id] -= 1
            if not self._running[work.tenant_id]:
                del self._running[work.tenant_id]
            self._large -= work.is_large
            again = 2 if self._waiting else 0
        for _ in range(again):  # Its end makes room for one of its tenant, and for another large one.
            self._threads.submit(self._do_next)

    def _taken(self) -> "_Work[Any] | None":
        for turn in self._waiting:
            tenant_id, is_large = turn
            if self._running[tenant_id] < limits.TENANT_WORK_THREADS_MAX and not (is_large and self._large):
                waiting = self._waiting.pop(turn)
                work = waiting.popleft()
                if waiting:
                    self._waiting[turn] = waiting  # Behind all others.
                self._running[tenant_id] += 1
                self._large += is_large
                return work
        return None


_THREADS: Final = FairThreads()


class _TenantThreads(Executor):
    """One tenant's work on those threads, as an event loop asks for it: the loop of a test has a clock that waits for no thread."""

    def __init__(self, tenant_id: str, *, is_large: bool) -> None:
        self._tenant_id, self._is_large = tenant_id, is_large

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> "Future[R]":
        return _THREADS.begin(self._tenant_id, partial(fn, *args, **kwargs), is_large=self._is_large)


async def worked(work: Callable[[], R], *, is_large: bool = False) -> R:
    """Run ``work`` on a thread, in its tenant's turn, and return its result.

    It is for work of the processor; :func:`asyncio.to_thread` is for waits for a disk.
    """
    run = copy_context().run
    turn = _TenantThreads(_tenant.get(), is_large=is_large)
    return await asyncio.get_running_loop().run_in_executor(turn, lambda: run(work))


async def imported(name: str) -> None:
    """Return when a module is there that takes long to import: on a thread, since neighbours wait for the loop."""
    if name not in sys.modules:
        await asyncio.to_thread(import_module, name)


async def beside(size_bytes: int, work: Callable[[], R]) -> R:
    """The result of ``work`` on an input of this size: here if it is small, on a thread otherwise.

    The interpreter lets the loop in between two steps of a thread's Python; a single call into C holds it up to its end. So large
    inputs come one after the other, and the loop has its turn between two of them.
    """
    if size_bytes <= limits.WORKED_HERE_BYTES_MAX:
        return work()
    return await worked(work, is_large=size_bytes >= limits.WORKED_ALONE_BYTES_MIN)


def outweighs(values: Iterable[Any], most: int) -> bool:
    """Whether more than ``most`` values are in there, a text counting one for each 256 characters: the time to write them as JSON with
    each character escaped.

    Looks at no more than that.
    """
    count, rest = 0, list[Collection[Any]]([list(values)])
    while rest:
        some = rest.pop()
        count += len(some)
        if count > most:
            break
        for value in some:
            kind = type(value)  # JSON has no subclasses, and three out of four values are no container.
            if kind is str:
                if len(value) > 255:
                    count += len(value) // 256
            elif kind is dict:
                rest.append(value.values())
            elif kind is list or kind is tuple:
                rest.append(value)
    return count > most


async def as_json(value: Any) -> bytes:
    """Its JSON, written on a thread if that takes long. Nobody may change it meanwhile."""
    if outweighs([value], limits.LOWERED_HERE_MAX):
        return await worked(lambda: orjson.dumps(value))
    return orjson.dumps(value)


class Breath:
    """Lets others of the event loop in, in work that goes on for long without waiting for anything. Tasks may share one."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def taken(self) -> None:
        """Call it often; it gives way after ``LOOP_PIECE_SECONDS`` of work."""
        while perf_counter() - self._since >= limits.LOOP_PIECE_SECONDS:
            before = self._since
            await asyncio.sleep(0)
            if self._since == before:  # Of those who gave way together, the first one begins the next piece.
                self._since = perf_counter()


async def side_by_side(work: Callable[[T], Awaitable[R]], things: Iterable[T], *, at_once: int) -> list[R]:
    """The results of ``work``, in their order.

    An error is raised after all have been tried: one that hangs or fails must not keep the others from being done.
    """
    wanted = list(things)
    if len(wanted) <= 1:
        return [await work(thing) for thing in wanted]
    room, breath = asyncio.Semaphore(at_once), Breath()

    async def one(thing: T) -> R:
        async with room:
            await breath.taken()  # On one machine the table answers without a wait.
            return await work(thing)

    results = await asyncio.gather(*(one(thing) for thing in wanted), return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise problems[0]
    return [result for result in results if not isinstance(result, BaseException)]
