"""A process that dies before one of its writes, at each of them in turn."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from itertools import count
from typing import Any

from moorage.store.table import Record


class Died(Exception):
    """The process is gone."""


class Death:
    """The ``before_write`` of a table, which lets so many writes through and no later one."""

    def __init__(self, writes: int) -> None:
        self._writes_left = writes
        self.has_come = False

    async def __call__(self, record: Record) -> None:
        self._writes_left -= 1
        if self._writes_left < 0:
            self.has_come = True
            raise Died


def deaths() -> Iterator[Death]:
    """One before each write of what is run again and again. The last run ends before its death comes."""
    for writes in count():
        death = Death(writes)
        yield death
        if not death.has_come:
            assert writes > 0, "what is run writes nothing"
            return


def at_each_death(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Run the test with each of these deaths."""

    @wraps(test)
    async def at_each(**given: Any) -> None:
        for number, death in enumerate(deaths()):
            try:
                await test(death=death, **given)
            except Exception as error:
                error.add_note(f"The process died before write {number}.")
                raise

    shape = inspect.signature(test)
    others = [parameter for name, parameter in shape.parameters.items() if name != "death"]
    vars(at_each)["__signature__"] = shape.replace(parameters=others)  # pytest has no fixture of that name.
    return at_each
