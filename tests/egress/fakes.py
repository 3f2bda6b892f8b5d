"""Stand-ins: a table in memory and a key service that keeps its word about contexts."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from moorage.egress.keys import DataKey, KeyLost
from moorage.errors import ConditionFailed
from moorage.store.table import Record, Table


class MemoryTable:
    """As much of :class:`Table` as the egress store uses."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self.reads = 0
        self.is_down = False
        self.writes = 0
        self.at_write: tuple[int, Callable[[], Awaitable[object]]] | None = None
        """Before the write of this number (the first one is 1) somebody else does something."""

    def as_table(self) -> Table:
        return cast("Table", self)

    def _check(self) -> None:
        if self.is_down:
            raise ConnectionError("the table does not answer")
        self.reads += 1

    async def _step_aside(self) -> None:
        self.writes += 1
        if self.at_write is not None and self.at_write[0] == self.writes:
            other, self.at_write = self.at_write[1], None
            await other()

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        self._check()
        await self._step_aside()
        if if_absent and (record["PK"], record["SK"]) in self.records:
            raise ConditionFailed(self.records[record["PK"], record["SK"]])
        self.records[record["PK"], record["SK"]] = dict(record)

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        self._check()
        return self.records.get((pk, sk))

    async def delete(self, pk: str, sk: str, *, condition: Mapping[str, Any] | None = None) -> Record | None:
        self._check()
        return self.records.pop((pk, sk), None)

    async def update(
        self,
        pk: str,
        sk: str,
        *,
        set: Mapping[str, Any],
        remove: Iterable[str] = (),
        condition: Mapping[str, Any] | None = None,
    ) -> Record:
        self._check()
        await self._step_aside()
        record = self.records.get((pk, sk))
        if record is None or any(record.get(key) != value for key, value in (condition or {}).items()):
            raise ConditionFailed(record)
        kept = {key: value for key, value in record.items() if key not in tuple(remove)}
        self.records[pk, sk] = {**kept, **set}
        return self.records[pk, sk]

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
        self._check()
        await self._step_aside()
        for record in puts:
            self.records[record["PK"], record["SK"]] = dict(record)
        for key in deletes:
            self.records.pop(key, None)

    async def query(
        self,
        pk: str,
        *,
        prefix: str = "",
        after: str | None = None,
        up_to: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        index: str | None = None,
    ) -> list[Record]:
        self._check()
        if index is not None:
            return [record for record in self.records.values() if record.get("GSI1PK") == pk][:limit]
        found = [
            record
            for (partition, sort), record in sorted(self.records.items(), reverse=descending)
            if partition == pk
            and (sort.startswith(prefix) if up_to is None else prefix <= sort <= up_to)
            and (after is None or sort > after)
        ]
        return found[:limit]


class FakeKeys:
    """A key service whose wrapped keys open only under the context they were made for."""

    def __init__(self, key_id: str = "key") -> None:
        self.key_id = key_id
        self._made: dict[bytes, tuple[bytes, dict[str, str]]] = {}
        self.unwrapped = 0

    def has(self, key_id: str) -> bool:
        return key_id == self.key_id

    async def generate(self, context: Mapping[str, str]) -> DataKey:
        key = DataKey(os.urandom(32), os.urandom(16))
        self._made[key.wrapped] = (key.plaintext, dict(context))
        return key

    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        self.unwrapped += 1
        if wrapped not in self._made:
            raise KeyLost(self.key_id)
        plaintext, made_for = self._made[wrapped]
        if made_for != dict(context):
            raise PermissionError("the encryption context does not match")
        return plaintext


class FakeEcs:
    """One service's desired count, and how often it was set. What is desired runs, unless ``is_broken``."""

    def __init__(self) -> None:
        self.desired = 0
        self.is_broken = False
        self.updates: list[int] = []

    def describe_services(self, *, cluster: str, services: list[str]) -> dict[str, Any]:
        assert (cluster, services) == ("cluster", ["proxy"])
        return {"services": [{"desiredCount": self.desired, "runningCount": 0 if self.is_broken else self.desired}]}

    def update_service(self, *, cluster: str, service: str, desiredCount: int) -> None:
        self.desired = desiredCount
        self.updates.append(desiredCount)
