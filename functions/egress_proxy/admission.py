"""Who of those that have connected is served next: the places take turns, and each has so many turns a second.

A new connection costs the proxy's one loop milliseconds, and a container can open hundreds in a second. So what comes is accepted at
once, which costs little, and waits by the place that it comes from. One connection is let in at each turn of the loop, whatever the
speed of the machine; and a client that has gone while it waited costs no more than a look.
"""

import asyncio
import select
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final

from moorage import limits

HasRoom = Callable[[str, Counter[str]], bool]
Serve = Callable[[socket.socket, str], object]
_PLACES_SWEPT_AT: Final = 1_024


class Admission:
    def __init__(self, has_room: HasRoom, clock: Callable[[], float] = time.monotonic) -> None:
        """``has_room`` says whether one more of a place may wait, beside those that wait already (by place)."""
        self._has_room = has_room
        self._clock = clock
        self._waiting: OrderedDict[str, deque[tuple[socket.socket, Serve]]] = OrderedDict()
        """In the order of their turns."""
        self._counts: Counter[str] = Counter()
        self._paid_until: dict[str, float] = {}
        """When a place has paid for what it has been let in with: a connection costs a part of a second."""
        self._has_come = asyncio.Event()

    def knock(self, connection: socket.socket, place: str, serve: Serve) -> None:
        """``connection`` waits for its turn to be served. It is closed at once if too many do."""
        if not self._has_room(place, self._counts):
            connection.close()
            return
        self._counts[place] += 1
        self._waiting.setdefault(place, deque()).append((connection, serve))
        self._has_come.set()

    async def run(self) -> None:
        """Let them in until cancelled."""
        try:
            while True:
                if (pause := self.admit_one()) is None:
                    self._has_come.clear()
                    await self._has_come.wait()
                else:
                    await self._pause(pause)
        finally:
            self.close()

    def close(self) -> None:
        """Send away those that wait."""
        for place in list(self._waiting):
            while place in self._waiting:
                self._next_of(place)[0].close()

    async def _pause(self, seconds: float) -> None:
        """Until then, or until another place may have come."""
        self._has_come.clear()
        if not seconds:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._has_come.wait()
        except TimeoutError:
            pass

    def admit_one(self) -> float | None:
        """Serve the next in turn; returns the seconds until the next turn, or None if nobody waits."""
        now = self._clock()
        pauses = []
        for place in list(self._waiting):
            pause = self._paid_until.get(place, now) - now - limits.EGRESS_BURST_SECONDS
            if pause > 0:
                pauses.append(pause)
                continue
            connection, serve = self._next_of(place)
            if _has_gone(connection):
                connection.close()
            else:
                self._pay(place, now)
                serve(connection, place)
            return 0.0
        return min(pauses, default=None)

    def _next_of(self, place: str) -> tuple[socket.socket, Serve]:
        queue = self._waiting[place]
        found = queue.popleft()
        self._counts[place] -= 1
        if queue:
            self._waiting.move_to_end(place)
        else:
            del self._waiting[place], self._counts[place]
        return found

    def _pay(self, place: str, now: float) -> None:
        if len(self._paid_until) >= _PLACES_SWEPT_AT:
            self._paid_until = {each: until for each, until in self._paid_until.items() if until > now}
        self._paid_until[place] = max(self._paid_until.get(place, now), now) + 1 / limits.EGRESS_CONNECTIONS_PER_SECOND_MAX


def _has_gone(connection: socket.socket) -> bool:
    """Whether the other end is closed both ways. One that has only said its last word still listens."""
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))
