"""Places for work that runs side by side, shared out fairly between tenants.

A place that gets free goes to the tenant that has the fewest, and among those to the one that was served least lately. One tenant never
has all places: what another one begins need not wait for the end of a long piece of work.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage import limits


def share_of(places: int) -> int:
    """How many of them one tenant may have; at least one."""
    return max(1, places - places // limits.TENANT_PLACES_KEPT_FROM)


class TenantPlaces:
    def __init__(self, places: int) -> None:
        self._free = places
        self._share = share_of(places)
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By tenant; the one that was served last stands last."""

    @asynccontextmanager
    async def place(self, tenant_id: str) -> AsyncIterator[None]:
        """Hold a place while the block runs; wait for it as long as there is none."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant_id, deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            self._forget(tenant_id, turn)
            raise
        try:
            yield
        finally:
            self._give_back(tenant_id)

    def _serve(self) -> None:
        while self._free:
            able = [tenant_id for tenant_id in self._waiting if self._taken[tenant_id] < self._share]
            if not able:
                return
            tenant_id = min(able, key=self._taken.__getitem__)
            waiting = self._waiting.pop(tenant_id)
            turn = waiting.popleft()
            if waiting:
                self._waiting[tenant_id] = waiting
            if turn.cancelled():
                continue
            self._free -= 1
            self._taken[tenant_id] += 1
            turn.set_result(None)

    def _forget(self, tenant_id: str, turn: "asyncio.Future[None]") -> None:
        """The waiter was cancelled, perhaps in the moment of its turn."""
        if not turn.cancelled():
            self._give_back(tenant_id)
        elif turn in (waiting := self._waiting.get(tenant_id, deque())):
            waiting.remove(turn)
            if not waiting:
                del self._waiting[tenant_id]

    def _give_back(self, tenant_id: str) -> None:
        self._free += 1
        self._taken[tenant_id] -= 1
        if not self._taken[tenant_id]:
            del self._taken[tenant_id]
        self._serve()
