"""Who has the mouse and the keys: the model, or a person with a lease.

What a person does is forgotten when it has been answered: no text of theirs is kept, here or anywhere.
"""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable, Dict, List, Optional

from request_errors import RequestError

HOLDER_CHARS_MAX = 200
KEPT_MAX = 32
"""Answers to a person's inputs; one is asked for again within seconds."""


class DeskControl:
    def __init__(self, loop: asyncio.AbstractEventLoop, lease_seconds: float) -> None:
        self._loop = loop
        self._lease_seconds = lease_seconds
        self._holder = ""
        self._since = 0.0
        self._until = 0.0
        self._told: List[str] = []
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._inputs: "Dict[int, asyncio.Task[Dict[str, Any]]]" = {}
        self._last_number = 0

    @property
    def holder(self) -> str:
        """Empty: the model."""
        return self._holder

    def change(self, holder: str, action: str) -> Dict[str, Any]:
        if action not in ("take", "give") or not 0 < len(holder) <= HOLDER_CHARS_MAX:
            raise RequestError(400, "invalid_request", "'action' is 'take' or 'give', and 'holder' says who.")
        if action == "take":
            if self._holder not in ("", holder):
                raise RequestError(409, "desk_held", "Another person has control of the browser.")
            if self._holder != holder:
                self._inputs, self._last_number, self._since = {}, 0, self._loop.time()
            self._lend(holder)
        elif self._holder == holder:
            self._free()
        left = max(0.0, self._until - self._loop.time()) if self._holder else 0.0
        return {"holder": self._holder, "ms": round(left * 1000)}

    async def until_free(self, cancelled: asyncio.Event) -> None:
        """Until nobody has control, or the batch that waits for that is cancelled."""
        waiting = [self._loop.create_task(event.wait()) for event in (self._is_free, cancelled)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def take_notes(self) -> List[str]:
        """What the model is told of people who had control since it was asked last."""
        told, self._told = self._told, []
        return told

    def input(self, holder: str, number: int, do: Callable[[], Awaitable[Dict[str, Any]]]) -> "asyncio.Task[Dict[str, Any]]":
        """Do it, or find what was done under this number."""
        if self._holder != holder:
            raise RequestError(409, "desk_held", "Whoever gives input must have taken control before.")
        self._lend(holder)
        if number in self._inputs:
            return self._inputs[number]
        if number <= self._last_number:
            raise RequestError(410, "forgotten_exec", f"Input {number} was done, and its answer is no longer kept.")
        self._last_number = number
        task = self._inputs[number] = self._loop.create_task(_of(do))
        if len(self._inputs) > KEPT_MAX:
            del self._inputs[next(iter(self._inputs))]
        return task

    def _lend(self, holder: str) -> None:
        self._holder, self._until = holder, self._loop.time() + self._lease_seconds
        self._is_free.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._lease_seconds, self._free)

    def _free(self) -> None:
        if self._holder:
            seconds = max(1, round(self._loop.time() - self._since))
            self._told = [f"A person had control of the browser for {seconds} s before this. Look at the page before you go on."]
        self._holder = ""
        if self._timer is not None:
            self._timer.cancel()
        self._is_free.set()


async def _of(do: Callable[[], Awaitable[Dict[str, Any]]]) -> Dict[str, Any]:
    return await do()
