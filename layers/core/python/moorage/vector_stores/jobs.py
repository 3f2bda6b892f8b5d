"""The executions that read the files of vector stores: one of a store at a time, and one for as long as there is something to read.

An execution of the loop's state machine has states of its own for it (``IndexStep``, ``ParseStep``). Its record (``JOB``) stands while
it has work, and names it; whoever adds files makes the record first, so that there is always somebody who finds what is to be done: the
execution, or the reaper, which starts another one if none runs.

Of one tenant ``INDEXING_TENANT_MAX`` run at once; other jobs wait (``is_waiting``). An execution that ends starts the next one, and the
reaper does if none has.
"""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.files.store import Clock
from moorage.parallel import side_by_side
from moorage.store import keys, schema
from moorage.store.executions import ENDED, Executions
from moorage.store.table import Record, Table
from moorage.vector_stores.records import VectorStoreRecord


@dataclass(frozen=True, slots=True)
class Job:
    tenant_id: str
    store_id: str
    execution: str
    started_at: int
    runs: int = 1
    """Executions in a row that have settled no file."""
    container_id: str | None = None
    """Where documents are parsed."""
    is_waiting: bool = False
    """Nothing runs for it until others of the tenant's have ended."""

    @property
    def pk(self) -> str:
        return keys.vector_store(self.tenant_id, self.store_id)


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of an execution: ids, a word and two counts."""

    tenant_id: str
    store_id: str
    execution: str
    next: str = "index"
    rounds: int = 0
    """Steps so far."""
    rests: int = 0
    """Waits in a row for something that could not be had."""

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "IndexState":
        return STATE.unpack(state)

    def to_json(self) -> dict[str, Any]:
        return STATE.pack(self)


JOB: Final = Codec(Job, sparse=("is_waiting",))
STATE: Final = Codec(IndexState)


class Jobs:
    def __init__(self, table: Table, executions: Executions, *, clock: Clock) -> None:
        self._table = table
        self._executions = executions
        self._clock = clock

    async def work(self, store: VectorStoreRecord, add: Callable[[], Awaitable[None]]) -> None:
        """Have ``add`` note the work, and see to it that an execution does it."""
        made = await self._make(store.tenant_id, store.id)
        await add()
        # One that was there may have found nothing to do, and ended, before the notes were there.
        made = made or await self._make(store.tenant_id, store.id)
        if made is not None and not made.is_waiting:
            await self._executions.start_soon(made.execution, _state(made).to_json(), None)

    async def _make(self, tenant_id: str, store_id: str) -> Job | None:
        """The record, made for an execution that its maker has to start if it is not to wait; None if there is one."""
        others = await self._entries(tenant_id, limits.INDEXING_TENANT_MAX)
        is_waiting = len(others) == limits.INDEXING_TENANT_MAX
        return await self._put(Job(tenant_id, store_id, _name(store_id), int(self._clock()), is_waiting=is_waiting))

    async def _entries(self, tenant_id: str, most: int) -> list[Record]:
        """So many of a tenant's jobs, also waiting ones; by the index, so perhaps late."""
        return await self._table.query(keys.INDEXING, prefix=_entry(tenant_id), index=schema.INDEX, limit=most)

    async def _put(self, job: Job) -> Job | None:
        listed = {"GSI1PK": keys.INDEXING, "GSI1SK": f"{_entry(job.tenant_id)}{job.store_id}"}
        try:
            await self._table.put({"PK": job.pk, "SK": keys.INDEXING_JOB, **listed, **JOB.pack(job)}, if_absent=True)
        except ConditionFailed:
            return None
        return job

    async def of(self, state: IndexState) -> Job | None:
        """The record of an execution; None if another one has taken its place, or the store is erased."""
        record = await self._table.get(keys.vector_store(state.tenant_id, state.store_id), keys.INDEXING_JOB)
        job = None if record is None else JOB.unpack(record)
        return job if job is not None and job.execution == state.execution else None

    async def change(self, job: Job, **changed: Any) -> Job | None:
        """None if it is another execution's by now."""
        try:
            record = await self._table.update(job.pk, keys.INDEXING_JOB, set=changed, condition={"execution": job.execution})
        except ConditionFailed:
            return None
        return JOB.unpack(record)

    async def end(self, job: Job) -> None:
        """There is nothing to do. A later note makes a record of its own."""
        with suppress(ConditionFailed):
            await self._table.delete(job.pk, keys.INDEXING_JOB, condition={"execution": job.execution})

    async def start_next(self, tenant_id: str) -> None:
        """One of a tenant's has ended: another may begin. Harmless to run twice."""
        # Among so many there is one that waits, if any does, unless two have just begun at once.
        entries = await self._entries(tenant_id, 2 * limits.INDEXING_TENANT_MAX)
        waiting = [job for job in await self._read(entries) if job.is_waiting]
        if waiting:
            await self._start(min(waiting, key=_begun))

    async def resume(self, job: Job) -> Job | None:
        """Take back an end; None if another process has made a record meanwhile: it starts an execution of its own."""
        return await self._put(replace(job, container_id=None))

    async def recover(self) -> int:
        """Start an execution for each record without one; answers how many. Harmless to run twice, or twice at once."""
        jobs = await self._read(await self._table.query(keys.INDEXING, index=schema.INDEX))
        running = Counter(job.tenant_id for job in jobs if not job.is_waiting)
        following: list[Job] = []
        for job in sorted(jobs, key=_begun):
            if job.is_waiting and running[job.tenant_id] < limits.INDEXING_TENANT_MAX:
                running[job.tenant_id] += 1
                following.append(job)
        begun = await side_by_side(self._start, following, at_once=limits.SWEEP_AT_ONCE)
        unfinished = [job for job in jobs if not job.is_waiting]
        return sum(begun) + sum(await side_by_side(self._recover, unfinished, at_once=limits.SWEEP_AT_ONCE))

    async def _read(self, entries: Sequence[Record]) -> list[Job]:
        records = await self._table.get_many((entry["PK"], entry["SK"]) for entry in entries)
        return [JOB.unpack(record) for record in records]

    async def _start(self, job: Job) -> bool:
        """One that has waited. False if somebody else has started it, or it has to be tried again."""
        started = await self.change(job, execution=_name(job.store_id), started_at=int(self._clock()), is_waiting=False)
        return started is not None and await self._executions.start_soon(started.execution, _state(started).to_json(), None)

    async def _recover(self, job: Job) -> bool:
        now = int(self._clock())
        status = await self._executions.status(job.execution)
        # One that nobody has heard of may still be on its way; one that has ended has left its record, and nobody else will.
        is_lost = status in ENDED or (status is None and abs(now - job.started_at) >= limits.RECOVERY_SECONDS)
        if not is_lost:
            return False
        successor = await self.change(job, execution=_name(job.store_id), started_at=now, runs=job.runs + 1)
        if successor is None:
            return False
        return await self._executions.start_soon(successor.execution, _state(successor).to_json(), None)


def _entry(tenant_id: str) -> str:
    """How the index's keys of a tenant's jobs begin."""
    return f"{tenant_id}#"


def _begun(job: Job) -> int:
    return job.started_at


def _state(job: Job) -> IndexState:
    return IndexState(job.tenant_id, job.store_id, job.execution)


def _name(store_id: str) -> str:
    """Names of executions have 80 characters at most."""
    return f"{store_id[:60]}-{secrets.token_hex(4)}"
