"""Sums of a tenant's use, from the list of its responses (``store/response_list.py``).

Sums of final hours and days are kept (``store/usage_sums.py``) at each addition: by a client's question, and by the reaper from then
on. So little is left to add up at a question.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError, bad_request
from moorage.parallel import Breath, side_by_side
from moorage.runtime import Runtime
from moorage.store import usage_sums
from moorage.store.list_digest import ListDigest
from moorage.store.response_list import ListedResponse, ListRange
from moorage.store.usage_sums import DAY_SECONDS, HOUR_SECONDS, StoredSums, Sums, TimeSpan, UsageSums, day_of, hours_of


async def keep_due(runtime: Runtime) -> int:
    """The reaper's part: keep past sums of each tenant with an earlier question; returns the number of checked tenants.

    Harmless to run twice, or twice at once.
    """
    tenants = await usage_sums.due(runtime.stores.table, runtime.clock())
    return len(await side_by_side(lambda tenant_id: _keep(runtime, tenant_id), tenants, at_once=1))


async def _keep(runtime: Runtime, tenant_id: str) -> None:
    now = int(runtime.clock())
    reach = min(runtime.settings.retention_seconds, limits.USAGE_DAYS_MAX * DAY_SECONDS)
    ledger = UsageLedger(runtime, tenant_id, day_of(now - reach), now)
    found: list[tuple[int, Sums]] | None = None
    with suppress(ApiError):  # More than is added up at once: no more is kept than there was.
        found = await ledger.by_day()
    if found is not None and not any(sums.by_model_and_key for _, sums in found):
        await ledger.kept.look_again(None)
        return
    next_hour = now - now % HOUR_SECONDS + HOUR_SECONDS
    soon = now + limits.USAGE_SETTLED_SECONDS
    await ledger.kept.look_again(soon if ledger.is_unnoted else next_hour + limits.USAGE_OPEN_SECONDS)


@dataclass(slots=True)
class _HourSums:
    """The sums of an hour of the list."""

    sums: Sums = field(default_factory=Sums)
    digest: ListDigest = field(default_factory=ListDigest)
    rows: int = 0
    unended: set[str] = field(default_factory=set)

    def see(self, entry: ListedResponse) -> None:
        if entry.row is None:
            self.unended.add(entry.response_id)
            return
        self.unended.discard(entry.response_id)
        self.rows += 1
        self.sums.add(entry.row)
        self.digest.add(entry.created_at, entry.row)

    def join(self, later: "_HourSums") -> None:
        self.sums.join(later.sums)
        self.digest.join(later.digest)
        self.rows += later.rows
        self.unended |= later.unended


class UsageLedger:
    """The sums of a tenant's responses in a time, both ends included (Unix seconds)."""

    def __init__(self, runtime: Runtime, tenant_id: str, since: int, until: int) -> None:
        self._list = runtime.stores.response_list
        self._clock = runtime.clock
        self._tenant_id = tenant_id
        self._since = since
        self._until = until
        self.kept = UsageSums(runtime.stores.table, tenant_id, retention_seconds=runtime.settings.retention_seconds)
        self.is_unnoted = False
        """Another look, in a while, will find more to keep."""
        self._running: list[int] = []
        """When those began that have not ended."""

    async def by_day(self) -> list[tuple[int, Sums]]:
        days = [TimeSpan(day, DAY_SECONDS) for day in range(day_of(self._since), self._until + 1, DAY_SECONDS)]
        running, known = await asyncio.gather(self._list.running(self._tenant_id), self.kept.known(days))
        self._running = [entry.created_at for entry in running]

        async def of_day(day: TimeSpan) -> tuple[int, Sums]:
            return day.start, await self._of_day(day, known.get(day))

        return await side_by_side(of_day, days, at_once=limits.SWEEP_AT_ONCE)

    async def _of_day(self, day: TimeSpan, known: StoredSums | None) -> Sums:
        """A day without kept sums is read whole.

        If it proves to be large that is noted, and from then on it is read by its hours until it can be kept.
        """
        if self._is_wanted_whole(day):
            if known is not None and known.sums is not None:
                return known.sums
            if known is None or not self._may_change(day):
                return await self._of_whole_day(day, known)
        return await self._of_hours([hour for hour in hours_of(day) if self._is_wanted(hour)])

    async def _of_whole_day(self, day: TimeSpan, known: StoredSums | None) -> Sums:
        whole = _HourSums()
        for found in (await self._read(day.start, day.end - 1)).values():
            whole.join(found)
        if whole.rows >= limits.USAGE_KEPT_ROWS_MIN:
            await self._note(day, known, whole)
        return whole.sums

    async def _of_hours(self, hours: Sequence[TimeSpan]) -> Sums:
        known = await self.kept.known(hours)
        joined = Sums()
        missing: list[TimeSpan] = []
        for hour in hours:
            kept = known.get(hour)
            if kept is not None and kept.sums is not None and self._is_wanted_whole(hour):
                joined.join(kept.sums)
            else:
                missing.append(hour)
        for run in _runs(missing):
            found = await self._read(run[0].start, run[-1].end - 1)
            for hour in run:
                if (part := found.get(hour.start)) is None:
                    continue
                joined.join(part.sums)
                if part.rows >= limits.USAGE_KEPT_ROWS_MIN and self._is_wanted_whole(hour) and not self._may_change(hour):
                    await self._note(hour, known.get(hour), part)
        return joined

    async def _note(self, span: TimeSpan, known: StoredSums | None, found: _HourSums) -> None:
        is_settled = not self._may_change(span) and not found.unended
        now = int(self._clock())
        self.is_unnoted |= await self.kept.note(span, known, found.sums, found.digest, now=now, is_settled=is_settled)

    def _may_change(self, span: TimeSpan) -> bool:
        """Whether a response that was created in it may still end. One in the foreground is listed from its first heartbeat on, and one
        that the loop carries is on the loop's own list."""
        return self._clock() - span.end < limits.USAGE_OPEN_SECONDS or any(span.holds(at) for at in self._running)

    def _is_wanted(self, span: TimeSpan) -> bool:
        return span.start <= self._until and span.end > self._since

    def _is_wanted_whole(self, span: TimeSpan) -> bool:
        return self._since <= span.start and (span.end - 1 <= self._until or self._until >= self._clock())

    async def _read(self, first: int, last: int) -> dict[int, _HourSums]:
        """The responses that were created between two times, both included and as far as they are wanted, by the hour."""
        first, last = max(first, self._since), min(last, self._until)
        found: dict[int, _HourSums] = {}
        going_on: str | None = None
        breath = Breath()
        for _ in range(limits.USAGE_DAY_READS_MAX):
            part = ListRange(going_on, False, first, last)
            entries, going_on = await self._list.read(self._tenant_id, part, limits.USAGE_READ_ENTRIES)
            for entry in entries:
                found.setdefault(entry.created_at - entry.created_at % HOUR_SECONDS, _HourSums()).see(entry)
                await breath.taken()
            if going_on is None:
                return found
        raise bad_request(
            "There are too many responses to add up in one request. Ask for less time with 'from' and 'to'.", param="from"
        )


def _runs(hours: Sequence[TimeSpan]) -> list[list[TimeSpan]]:
    """Hours that follow each other, together: each run is one range of the list."""
    runs: list[list[TimeSpan]] = []
    for hour in hours:
        if runs and runs[-1][-1].end == hour.start:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs
