"""A filtered search of a tenant's list of responses. It reads only parts of the list if digests of it are kept.

A filter reads the beginning directly; a short list is read whole this way. From there on it asks the digests of days and hours
(``store/list_digest.py``) for the seconds that may match, and reads those alone, many at once. Parts without a digest are read whole:
the present hour, small days, and parts without an earlier question.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import groupby
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.parallel import side_by_side
from moorage.store.list_digest import DigestRange
from moorage.store.response_list import ListedResponse, ListFilter, ListRange, ResponseList
from moorage.store.usage_sums import DAY_SECONDS, TimeSpan, UsageSums, day_of, hours_of

Part = tuple[list[ListedResponse], str | None]
"""Entries in order, and the place up to which all that may be wanted has been given with them; None for the end of the list."""
_AFTER_ALL: Final = "\uffff"


@dataclass(slots=True)
class ListSearch:
    """One reading of the list, in one direction."""

    responses: ResponseList
    kept: UsageSums
    tenant_id: str
    part: ListRange
    sought: ListFilter
    now: int
    reach_seconds: int
    """How long responses are kept: further back nothing is asked for by days."""
    seen: int = 0
    """Entries that were looked at."""
    is_cut: bool = False
    """It has looked at enough, and there may be more."""

    async def parts(self, size: int) -> AsyncGenerator[Part, None]:
        """All that may be wanted, ``size`` of it being enough for a page."""
        is_plain = self.sought == ListFilter()
        first = size if is_plain else limits.LIST_FIRST_ENTRIES
        entries, going_on = await self.responses.read(self.tenant_id, self.part, first)
        self.seen += len(entries)
        yield entries, going_on
        if going_on is None:
            return
        rest = replace(self.part, after=going_on)
        async with aclosing(self._scan(rest, size) if is_plain else self._search(rest, size)) as parts:
            async for part in parts:
                yield part

    async def _scan(self, part: ListRange, size: int) -> AsyncGenerator[Part, None]:
        going_on: str | None = part.after
        is_first = True
        while is_first or going_on is not None:
            if self.seen >= limits.LIST_ENTRIES_MAX:
                self.is_cut = True
                return
            is_first = False
            entries, going_on = await self.responses.read(self.tenant_id, replace(part, after=going_on), size)
            self.seen += len(entries)
            yield entries, going_on

    async def _search(self, rest: ListRange, size: int) -> AsyncGenerator[Part, None]:
        async with aclosing(self._steps(rest)) as steps:
            async for here, stretches in steps:
                parts = self._scan(here, limits.LIST_READ_ENTRIES) if stretches is None else self._look(here, stretches, size)
                async with aclosing(parts):
                    async for entries, going_on in parts:
                        yield entries, _end(here) if going_on is None else going_on
                if self.is_cut:
                    return
        yield [], None

    async def _steps(self, rest: ListRange) -> AsyncGenerator[tuple[ListRange, list[DigestRange] | None], None]:
        """The parts of the list in order, and the places in each; None for everywhere."""
        assert rest.after is not None
        place = int(rest.after.partition("#")[0])
        if rest.descending:
            low, high = self.now - self.reach_seconds if rest.created_from is None else rest.created_from, place
        else:
            low, high = place, self.now if rest.created_to is None else rest.created_to
        days = [TimeSpan(start, DAY_SECONDS) for start in range(day_of(low), high + 1, DAY_SECONDS)]
        for start in range(0, len(days), limits.LIST_DAYS_TOGETHER):
            together = (days[::-1] if rest.descending else days)[start : start + limits.LIST_DAYS_TOGETHER]
            for is_told, spans in groupby(await self._told(together, rest.descending), lambda told: told[1] is not None):
                parts = list(spans)
                starts, ends = [span.start for span, _ in parts], [span.end for span, _ in parts]
                found = [each for _, stretches in parts for each in stretches or () if each.last >= low and each.first <= high]
                yield rest.within(min(starts), max(ends) - 1), found if is_told else None
        if not days:
            yield rest, None
        elif rest.descending:
            yield rest.within(None, days[0].start - 1), None
        else:
            yield rest.within(days[-1].end, None), None

    async def _told(self, days: Sequence[TimeSpan], descending: bool) -> list[tuple[TimeSpan, list[DigestRange] | None]]:
        """The days, or the hours of large ones, with their digests."""
        digests, known = await asyncio.gather(self.kept.digests(days), self.kept.known(days))
        is_open = self.now - limits.USAGE_OPEN_SECONDS
        large = {day for day in days if day not in digests and (day in known or day.end > is_open)}
        spans = [part for day in days for part in (hours_of(day)[:: -1 if descending else 1] if day in large else [day])]
        digests |= await self.kept.digests(hour for hour in spans if hour not in digests and hour.seconds != DAY_SECONDS)
        if not digests:
            await self.kept.follow(self.now)
        told = {span: digest.stretches(self.sought) for span, digest in digests.items()}
        return [(span, told[span][:: -1 if descending else 1] if span in told else None) for span in spans]

    async def _look(self, here: ListRange, stretches: Sequence[DigestRange], size: int) -> AsyncGenerator[Part, None]:
        """The rows there, of so many at once as may fill a page."""
        left = list(stretches)
        while left:
            taken = [left.pop(0)]
            while left and sum(stretch.rows for stretch in taken) < size:
                taken.append(left.pop(0))
            ranges = [here.within(stretch.first, stretch.last) for stretch in taken]
            found = await side_by_side(self._read, ranges, at_once=limits.SWEEP_AT_ONCE)
            entries = [entry for part in found for entry in part]
            self.seen += len(entries)
            yield entries, _end(ranges[-1])

    async def _read(self, part: ListRange) -> list[ListedResponse]:
        entries: list[ListedResponse] = []
        going_on: str | None = part.after
        is_first = True
        while is_first or going_on is not None:
            is_first = False
            more, going_on = await self.responses.read(self.tenant_id, replace(part, after=going_on), limits.LIST_READ_ENTRIES)
            entries += more
        return entries


def _end(part: ListRange) -> str:
    """The end of a part, in its direction."""
    if part.descending:
        return "" if part.created_from is None else f"{part.created_from:012d}"
    return _AFTER_ALL if part.created_to is None else f"{part.created_to:012d}{_AFTER_ALL}"
