"""The stand-in for the Web Adapter does as the adapter itself (``make judges``)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from tests.twin.functions import BROKE_OFF, StreamingFunction


class Dying:
    """An answer whose function dies in the middle."""

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise httpx.ReadError("the connection was lost")

    async def aclose(self) -> None:
        """Nothing is left open."""


class Frozen:
    is_frozen = False

    def freeze(self) -> None:
        self.is_frozen = True


async def test_a_function_that_dies_in_the_middle_ends_its_answer_in_good_order() -> None:
    environment: Any = Frozen()
    answer: Any = Dying()
    body = StreamingFunction(Path(), [], {})._body(environment, answer)
    assert [piece async for piece in body] == [b"data: 1\n\n", BROKE_OFF]
    assert environment.is_frozen
