"""Stand-ins: a table in memory and a key service that keeps its word about contexts."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from moorage.egress.keys import DataKey, KeyLost
from moorage.store.table import Record, Write

from tests.unit.store.memory import MemoryTable


class SteppingTable(MemoryTable):
    """A table in memory that can be down, and before whose writes somebody else does something."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.steps = 0
        self.at_write: tuple[int, Callable[[], Awaitable[object]]] | None = None
        """Before the write of this number (the first one is 1) somebody else does something. Ends are not counted."""

    def _check(self) -> None:
        if self.is_down:
            raise ConnectionError("the table does not answer")

    async def _step_aside(self) -> None:
        self._check()
        self.steps += 1
        if self.at_write is not None and self.at_write[0] == self.steps:
            other, self.at_write = self.at_write[1], None
            await other()

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        self._check()
        return await super().get(pk, sk, consistent=consistent)

    async def query(self, pk: str, **bounds: Any) -> list[Record]:
        self._check()
        return await super().query(pk, **bounds)

    async def write(self, write: Write) -> Record | None:
        if not write.is_end:
            await self._step_aside()
        return await super().write(write)

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
        await self._step_aside()
        for record in puts:
            await super().write(Write.put(record))
        for pk, sk in deletes:
            await super().write(Write(pk, sk, is_end=True))


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
