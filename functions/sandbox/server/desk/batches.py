"""What was asked for by an id, each done once: who lost the connection asks again, and nothing is clicked twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any, AsyncIterator, Awaitable, Callable, Dict

from request_errors import RequestError
from transcript import HEARTBEAT_SECONDS

RESULTS_MAX = 64
RESULTS_BYTES_MAX = 64 * 1024 * 1024
FORGOTTEN_MAX = 10_000


class Batch:
    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.line = b""
        self._is_over = asyncio.Event()
        self.cancelled = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def end(self, answer: Dict[str, Any]) -> None:
        self.line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        self._is_over.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Heartbeats, and last the result."""
        while not self.is_over:
            try:
                await asyncio.wait_for(self._is_over.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                yield b'{"type":"heartbeat"}\n'
        yield self.line


class Batches:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_id: Dict[str, Batch] = {}
        self._forgotten: Dict[str, None] = {}
        self._tasks: Dict[str, "asyncio.Task[None]"] = {}

    @property
    def running(self) -> int:
        return len(self._tasks)

    def get(self, batch_id: str) -> Batch:
        if batch_id in self._forgotten:
            raise RequestError(410, "forgotten_exec", f"'{batch_id}' is over, and its result is no longer kept.")
        if batch_id not in self._by_id:
            raise RequestError(404, "unknown_exec", f"The desk knows no '{batch_id}'; it was probably started anew.")
        return self._by_id[batch_id]

    def cancel(self, batch_id: str) -> bool:
        """Do no further action of it; False if it is over or unknown."""
        batch = self._by_id.get(batch_id)
        if batch is None or batch.is_over:
            return False
        batch.cancelled.set()
        return True

    def begin(self, batch_id: str, body: Dict[str, Any], run: Callable[[Batch], Awaitable[Dict[str, Any]]]) -> Batch:
        """Start it, or find the one of this id."""
        fingerprint = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if batch_id in self._by_id or batch_id in self._forgotten:
            known = self.get(batch_id)
            if known.fingerprint != fingerprint:
                raise RequestError(409, "exec_id_in_use", f"'{batch_id}' is the id of another batch.")
            return known
        batch = self._by_id[batch_id] = Batch(fingerprint)
        self._tasks[batch_id] = self._loop.create_task(self._follow(batch_id, batch, run))
        return batch

    async def _follow(self, batch_id: str, batch: Batch, run: Callable[[Batch], Awaitable[Dict[str, Any]]]) -> None:
        try:
            batch.end(await run(batch))
        finally:
            del self._tasks[batch_id]
            self._forget()

    def _forget(self) -> None:
        """Drop the oldest results beyond the bounds, but not that they were."""
        over = [batch_id for batch_id, batch in self._by_id.items() if batch.is_over]
        size = sum(len(self._by_id[batch_id].line) for batch_id in over)
        excess = len(over) - RESULTS_MAX
        for batch_id in over[:-1]:
            if excess <= 0 and size <= RESULTS_BYTES_MAX:
                return
            excess, size = excess - 1, size - len(self._by_id.pop(batch_id).line)
            self._forgotten[batch_id] = None
            if len(self._forgotten) > FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]
