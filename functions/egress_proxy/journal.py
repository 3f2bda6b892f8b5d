"""Every decision on one line of standard output and, if its container is known, in the table.

The line is canonical JSON: sorted keys, no spaces, ASCII. A refusal is written at once; what was allowed is written when it has
ended, with its bytes, and stands in the table from the beginning, so that a crash loses no decision. Writing never waits for the
table: entries are flushed in batches, equal ones as one, and a container that floods the log is counted rather than stored.
"""

import asyncio
import json
import secrets
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace

from moorage import limits
from moorage.egress.store import EgressLogEntry, EgressStore
from moorage.telemetry import Metric, embedded, tell_error

_PENDING_MAX = 20_000
"""Entries that wait for the table; what is more only goes to standard output."""


def new_entry_id(at_ms: int) -> str:
    return f"{at_ms:013d}-{secrets.token_hex(4)}"


class DecisionLog:
    def __init__(self, store: EgressStore, retention_seconds: int, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._retention_seconds = retention_seconds
        self._now_ms = now_ms
        self._pending: dict[str, EgressLogEntry] = {}
        self._wakeup = asyncio.Event()
        self._refused = asyncio.Event()
        self._writing = asyncio.Lock()

    def began(self, entry: EgressLogEntry) -> None:
        """Something was allowed and goes on."""
        self._keep(entry)

    def ended(self, entry: EgressLogEntry) -> None:
        """A refusal, or the end of an allowed request."""
        self._keep(entry)
        fields = {key: value for key, value in asdict(entry).items() if value not in (None, ())}
        counted = embedded({Metric.EGRESS_DENIED: entry.count}) if entry.decision == "denied" else {}
        write_line({"event": "egress", **fields, **counted})

    async def asked(self, entry: EgressLogEntry) -> None:
        """A refusal of which a person is asked when the command has ended: it stands in the table when this returns, and so before its
        client can have read it. Those that come while one is written are written together."""
        self.ended(entry)
        while entry.id in self._pending:
            await self.flush()
        async with self._writing:
            return  # Somebody else's flush may have taken it, and be writing still.

    def _keep(self, entry: EgressLogEntry) -> None:
        if entry.container_id and (len(self._pending) < _PENDING_MAX or entry.id in self._pending):
            self._pending[entry.id] = entry
            self._wakeup.set()
            if entry.decision == "denied":
                self._refused.set()

    async def run(self) -> None:
        """Flush until cancelled; the last entries are flushed by :meth:`flush`.

        The first refusal after a silence is written at once, because the end of a command's output tells of it.
        """
        while True:
            await self._wakeup.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.EGRESS_LOG_SECONDS):
                    await self._refused.wait()
            await self.flush()
            self._refused.clear()
            await asyncio.sleep(limits.EGRESS_LOG_SECONDS / 2)

    async def flush(self) -> None:
        async with self._writing:
            self._wakeup.clear()
            pending, self._pending = self._pending, {}
            if not pending:
                return
            try:
                await self._store.append(_bounded(list(pending.values())), self._now_ms() // 1000 + self._retention_seconds)
            except Exception as error:  # The log must not stop the proxy; the lines on standard output are there already.
                tell_error(error, "egress_log_failed", entries=len(pending))


def _bounded(entries: list[EgressLogEntry]) -> list[EgressLogEntry]:
    """Equal refusals as one, and a bounded number per container."""
    merged: dict[tuple[object, ...], EgressLogEntry] = {}
    for entry in entries:
        key: tuple[object, ...] = (entry.id,)
        if entry.decision == "denied":
            about = (entry.host, entry.port, entry.method, entry.path, entry.reason, entry.secrets)
            key = (entry.tenant_id, entry.container_id, *about)
        before = merged.get(key)
        merged[key] = entry if before is None else replace(before, count=before.count + entry.count)
    kept: dict[str, list[EgressLogEntry]] = defaultdict(list)
    for entry in merged.values():
        of_container = kept[entry.container_id]
        if len(of_container) < limits.EGRESS_LOG_ENTRIES_PER_FLUSH_MAX or entry.decision == "allowed":
            of_container.append(entry)
        else:
            of_container[-1] = replace(of_container[-1], count=of_container[-1].count + entry.count)
    return [entry for of_container in kept.values() for entry in of_container]


def write_line(fields: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n")
    sys.stdout.flush()
