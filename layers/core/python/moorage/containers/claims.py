"""Who starts a container's sandbox: one process at a time, by a claim with an end.

The claim stands in the container's record, and every write about a sandbox that is being started or ended holds only while that
record's sandbox stands as the writer has seen it. Whoever was overtaken learns it by ``ConditionFailed`` and starts over.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from moorage import limits
from moorage.containers.store import ContainerRecord, ContainerStore, SandboxRecord
from moorage.errors import ConditionFailed, SandboxCapacity, SandboxError, SandboxStarting
from moorage.files.store import Clock
from moorage.store.table import TABLE_ERRORS

_T = TypeVar("_T")


def new_claim() -> str:
    """A second writer finds that it is not its turn."""
    return secrets.token_hex(8)


class Claims:
    def __init__(self, store: ContainerStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def take(self, record: ContainerRecord, incarnation: int) -> ContainerRecord:
        """Become the starter of this incarnation; ``ConditionFailed`` if another was faster."""
        earlier = record.sandbox if incarnation == record.incarnation else None
        sandbox = replace(earlier or SandboxRecord("starting", claim=""), claim=new_claim(), claimed_until=self._end())
        fresh = {} if earlier is not None else {"ordered_at_ms": self.now_ms(), "running_at_ms": 0, "ending": ""}
        fresh |= {"ends_at": 0} if earlier is None and record.ends_at else {}
        turn = self._store.turn(
            record, sandbox, also={"incarnation": incarnation, **fresh}, condition={"incarnation": record.incarnation}
        )
        taking = asyncio.ensure_future(turn)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError as error:
            # It may be written by now, and until its end nobody else would start the sandbox.
            with suppress(ConditionFailed, *TABLE_ERRORS):
                await self.release(await taking, error)
            raise

    async def renew(self, record: ContainerRecord) -> ContainerRecord:
        assert record.sandbox is not None
        return await self.write(record, replace(record.sandbox, claimed_until=self._end()))

    async def release(self, record: ContainerRecord, error: BaseException) -> None:
        """Give up the claim, so that the next caller need not wait for its end, and note the obstacle."""
        assert record.sandbox is not None
        is_refusal = not isinstance(error, SandboxStarting)
        if isinstance(error, SandboxError) and is_refusal:
            await self.note_refusal(record, error)
        else:
            await self.write(record, replace(record.sandbox, claimed_until=0))

    async def note_refusal(self, record: ContainerRecord, error: SandboxError) -> None:
        """Note the obstacle, for :meth:`say_refusal` in another place, and give up the claim."""
        assert record.sandbox is not None
        refused = replace(record.sandbox, refusal=error.message, refused_at=int(self._clock()), claimed_until=0)
        await self.write(record, refused, lacks_room=isinstance(error, SandboxCapacity))

    def say_refusal(self, record: ContainerRecord) -> None:
        """Raise the obstacle of another place, if that was just now."""
        sandbox = record.sandbox
        if sandbox is not None and sandbox.refused_at + limits.SANDBOX_REFUSAL_SECONDS > self._clock():
            raise (SandboxCapacity if record.lacks_room else SandboxError)(sandbox.refusal)

    async def write(self, record: ContainerRecord, sandbox: SandboxRecord, **others: Any) -> ContainerRecord:
        """Write as the claimant; ``ConditionFailed`` if the claim was taken over. ``others`` are more attributes of the record."""
        return await self._store.turn(record, sandbox, also=others)

    def seconds_left(self, record: ContainerRecord) -> float:
        """Seconds until the claim on the record runs out. One that lies further ahead than any can was made before the clock was set
        back, and has run out: its starter, if it lives, makes another."""
        assert record.sandbox is not None
        left = record.sandbox.claimed_until - self._clock()
        return left if left <= limits.CONTAINER_START_LEASE_SECONDS + limits.CLOCK_SKEW_SECONDS_MAX else 0.0

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _end(self) -> int:
        return int(self._clock()) + limits.CONTAINER_START_LEASE_SECONDS


class Lease:
    """Keeps a starter's claim alive while bytes flow."""

    def __init__(self, claims: Claims, record: ContainerRecord) -> None:
        self._claims = claims
        self._lock = asyncio.Lock()
        self.record = record

    async def watched(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await self._renew_if_due()
            yield chunk

    async def during(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of work that may take longer than a claim."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=limits.CONTAINER_START_LEASE_SECONDS / 4)
                await self._renew_if_due()
            return task.result()
        finally:
            task.cancel()

    async def _renew_if_due(self) -> None:
        async with self._lock:
            sandbox = self.record.sandbox
            if sandbox is None or sandbox.state != "starting":
                return
            if self._claims.seconds_left(self.record) < limits.CONTAINER_START_LEASE_SECONDS / 2:
                self.record = await self._claims.renew(self.record)
