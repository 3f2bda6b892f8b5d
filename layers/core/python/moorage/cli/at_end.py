"""Resources of a command, closed at its end: a program that runs commands in its own process runs on."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Final

_STACK: Final[ContextVar[ExitStack | None]] = ContextVar("_STACK", default=None)


@contextmanager
def closing_at_end() -> Iterator[None]:
    """While one runs."""
    with ExitStack() as stack:
        token = _STACK.set(stack)
        try:
            yield
        finally:
            _STACK.reset(token)


def at_end(close: Callable[[], object]) -> None:
    """Close something when the command ends. Outside of a command it is the caller's to close."""
    if (stack := _STACK.get()) is not None:
        stack.callback(close)


def threads(count: int) -> ThreadPoolExecutor:
    """A pool that ends with the command."""
    pool = ThreadPoolExecutor(count)
    at_end(pool.shutdown)
    return pool
