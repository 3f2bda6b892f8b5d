"""The large bodies of a tenant, in turn: what is made of a body takes memory and processor time of the process that serves all tenants.

A body is counted while it comes. Then it waits until those of its tenant that are in work leave room for it. It leaves when
a model is asked, or when the answer begins: a request that waits for a model keeps none of the others waiting.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import too_many_large_bodies

Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Tenant:
    """In bytes."""

    held: int = 0
    in_work: int = 0
    coming: int = 0
    """How many large ones come; this alone is no number of bytes."""
    waiting: "deque[tuple[BodyInWork, asyncio.Future[None]]]" = field(default_factory=deque)

    def has_room(self, size: int) -> bool:
        return not self.in_work or self.in_work + size <= limits.TENANT_INPUT_BYTES_MAX


class BodyInWork:
    """One request's body."""

    def __init__(self, tenant: _Tenant, sleep: Sleep) -> None:
        self._tenant = tenant
        self._sleep = sleep
        self.size = 0
        self._answer = 0
        self._is_coming = False
        self._is_in_work = False

    async def count(self, size: int) -> None:
        """So many bytes more have come. Raises :class:`~moorage.errors.ApiError` (429) when the tenant has too many of them here. Of
        several large ones each rests before its next piece: the event loop would read from all of them before it looks at others."""
        tenant = self._tenant
        self.size += size
        tenant.held += size
        if tenant.held > max(limits.TENANT_INPUT_BYTES_HELD_MAX, self.size):
            raise too_many_large_bodies()
        if not self._is_coming and self.size > limits.WORKED_HERE_BYTES_MAX:
            self._is_coming = True
            tenant.coming += 1
        if self._is_coming and tenant.coming > 1:
            await self._sleep(size * tenant.coming / limits.TENANT_INPUT_BYTES_PER_SECOND)

    async def enter(self) -> None:
        """Return when there is room for it; at once if it is small."""
        tenant = self._tenant
        self._come()
        if self.size <= limits.WORKED_HERE_BYTES_MAX:
            return
        if not tenant.waiting and tenant.has_room(self.size):
            self.begin()
            return
        turn = asyncio.get_running_loop().create_future()
        tenant.waiting.append((self, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if (self, turn) in tenant.waiting:
                tenant.waiting.remove((self, turn))
            raise

    def begin(self) -> None:
        self._is_in_work = True
        self._tenant.in_work += self.size

    def leave(self) -> None:
        """It may be called again."""
        tenant = self._tenant
        self._come()
        tenant.held -= self.size
        tenant.in_work -= self.size * self._is_in_work
        self.size, self._is_in_work = 0, False
        while tenant.waiting and tenant.has_room(tenant.waiting[0][0].size):
            body, turn = tenant.waiting.popleft()
            if not turn.done():
                body.begin()
                turn.set_result(None)

    def answer(self, size: int, *, may_refuse: bool) -> None:
        """Hold an answer until its client has it, however slowly it reads. Raises as :meth:`count` does, if it may."""
        self._tenant.held += size
        self._answer += size
        if may_refuse and self._tenant.held > max(limits.TENANT_INPUT_BYTES_HELD_MAX, self._answer):
            raise too_many_large_bodies()

    def end(self) -> None:
        """The request is over."""
        self.leave()
        self._tenant.held -= self._answer
        self._answer = 0

    def _come(self) -> None:
        self._tenant.coming -= self._is_coming
        self._is_coming = False


_current: Final[ContextVar[BodyInWork | None]] = ContextVar("body_in_work", default=None)


class BodiesInWork:
    """Of one process."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._tenants: defaultdict[str, _Tenant] = defaultdict(_Tenant)

    @contextmanager
    def of(self, tenant_id: str) -> Iterator[BodyInWork]:
        """The request that is served inside, and in tasks that begin there."""
        tenant = self._tenants[tenant_id]
        body = BodyInWork(tenant, self._sleep)
        token = _current.set(body)
        try:
            yield body
        finally:
            _current.reset(token)
            body.end()
            if not tenant.held and not tenant.waiting:
                self._tenants.pop(tenant_id, None)


async def counted(size: int) -> None:
    """Of the body of the request that is served here; raises as :meth:`BodyInWork.count` does."""
    if (body := _current.get()) is not None:
        await body.count(size)


async def entered() -> None:
    """The body has come, and work on it may begin."""
    if (body := _current.get()) is not None:
        await body.enter()


def answered(size: int, *, may_refuse: bool) -> None:
    """So many bytes of its answer wait for its client; raises as :meth:`BodyInWork.count` does. What has changed something may not be
    refused any more."""
    if (body := _current.get()) is not None:
        body.answer(size, may_refuse=may_refuse)


def left() -> None:
    """The work on it is done."""
    if (body := _current.get()) is not None:
        body.leave()
