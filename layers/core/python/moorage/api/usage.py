"""``/v1/usage``: what was used, added up. An extension of ours.

It is summed from the list of responses, of whose entries nothing but the index is read. It reaches as far back as responses are kept;
those that were deleted meanwhile still count, and those with ``store: false`` never did, because nothing is written of them. What was
embedded is counted for itself (``store/embedding_usage.py``), by whole hours.

The sums of hours and days in which nothing changes any more are kept (``store/usage_sums.py``), so that a month of responses costs what
its last hour does.
"""

import asyncio
import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from moorage import limits
from moorage.api.answers import JsonResponse
from moorage.api.caller import Caller
from moorage.errors import bad_request
from moorage.loop.budget import standings
from moorage.model.prices import usd
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.store.embedding_usage import Embedding, Used
from moorage.store.response_list import Entry, Range
from moorage.store.usage_sums import DAY_SECONDS, HOUR_SECONDS, TOKENS, KeptSums, Span, Sum, Sums, UsageSums, day_of, hours_of
from moorage.wire.queries import UsageWanted, parse_usage
from moorage.wire.responses import list_object

router = APIRouter()


async def _wanted(request: Request, caller: Caller) -> UsageWanted:
    return parse_usage(request.query_params.multi_items(), now=int(caller.runtime.clock()))


@router.get("/usage")
async def usage(caller: Caller, wanted: Annotated[UsageWanted, Depends(_wanted)]) -> Response:
    totals: dict[str, Sum] = defaultdict(Sum)
    for day, sums in await _Ledger(caller.runtime, caller.tenant_id, wanted).by_day():
        for name, each in _groups(day, sums, wanted.group_by):
            totals[name].join(each)
    embedded: dict[str, Embedding] = defaultdict(Embedding)
    if wanted.group_by != "tool":
        for used in await caller.runtime.embedding_usage.between(caller.tenant_id, wanted.since, wanted.until):
            embedded[_group_of(used, wanted.group_by)].join(used.embedding)
    names = sorted(totals.keys() | embedded.keys())
    summed = list_object([_as_object(totals[name], embedded[name], name, wanted.group_by) for name in names], has_more=False)
    return JsonResponse(summed | {"budgets": await standings(caller.runtime, caller.tenant_id, caller.draws_on)})


@dataclass(slots=True)
class _Found:
    """What an hour of the list came to."""

    sums: Sums = field(default_factory=Sums)
    rows: int = 0
    unended: set[str] = field(default_factory=set)

    def see(self, entry: Entry) -> None:
        if entry.row is None:
            self.unended.add(entry.response_id)
            return
        self.unended.discard(entry.response_id)
        self.rows += 1
        self.sums.add(entry.row)


class _Ledger:
    def __init__(self, runtime: Runtime, tenant_id: str, wanted: UsageWanted) -> None:
        self._list = runtime.response_list
        self._clock = runtime.clock
        self._tenant_id = tenant_id
        self._wanted = wanted
        self._kept = UsageSums(runtime.table, tenant_id, retention_seconds=runtime.settings.retention_seconds)
        self._running: list[int] = []
        """When those began that have not ended."""

    async def by_day(self) -> list[tuple[int, Sums]]:
        days = [Span(day, DAY_SECONDS) for day in range(day_of(self._wanted.since), self._wanted.until + 1, DAY_SECONDS)]
        running, known = await asyncio.gather(self._list.running(self._tenant_id), self._kept.known(days))
        self._running = [entry.created_at for entry in running]

        async def of_day(day: Span) -> tuple[int, Sums]:
            return day.start, await self._of_day(day, known.get(day))

        return await side_by_side(of_day, days, at_once=limits.SWEEP_AT_ONCE)

    async def _of_day(self, day: Span, known: KeptSums | None) -> Sums:
        """A day of which nothing is kept is read as a whole. Where it proves to be large that is noted, and from then on it is read by
        its hours until it can be kept."""
        if self._is_wanted_whole(day):
            if known is not None and known.sums is not None:
                return known.sums
            if known is None or not self._may_change(day):
                return await self._of_whole_day(day, known)
        return await self._of_hours([hour for hour in hours_of(day) if self._is_wanted(hour)])

    async def _of_whole_day(self, day: Span, known: KeptSums | None) -> Sums:
        whole = _Found()
        for found in (await self._read(day.start, day.end - 1)).values():
            whole.sums.join(found.sums)
            whole.rows += found.rows
            whole.unended |= found.unended
        if whole.rows >= limits.USAGE_KEPT_ROWS_MIN:
            await self._note(day, known, whole)
        return whole.sums

    async def _of_hours(self, hours: Sequence[Span]) -> Sums:
        known = await self._kept.known(hours)
        joined = Sums()
        missing: list[Span] = []
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

    async def _note(self, span: Span, known: KeptSums | None, found: _Found) -> None:
        is_settled = not self._may_change(span) and not found.unended
        await self._kept.note(span, known, found.sums, now=int(self._clock()), is_settled=is_settled)

    def _may_change(self, span: Span) -> bool:
        """Whether a response that was created in it may still end. One in the foreground is listed from its first heartbeat on, and one
        that the loop carries is on the loop's own list."""
        return self._clock() - span.end < limits.USAGE_OPEN_SECONDS or any(span.holds(at) for at in self._running)

    def _is_wanted(self, span: Span) -> bool:
        return span.start <= self._wanted.until and span.end > self._wanted.since

    def _is_wanted_whole(self, span: Span) -> bool:
        return self._wanted.since <= span.start and (span.end - 1 <= self._wanted.until or self._wanted.until >= self._clock())

    async def _read(self, first: int, last: int) -> dict[int, _Found]:
        """The responses that were created between two times, both included and as far as they are wanted, by the hour."""
        first, last = max(first, self._wanted.since), min(last, self._wanted.until)
        found: dict[int, _Found] = {}
        going_on: str | None = None
        for _ in range(limits.USAGE_DAY_READS_MAX):
            part = Range(going_on, False, first, last)
            entries, going_on = await self._list.read(self._tenant_id, part, limits.USAGE_READ_ENTRIES)
            for entry in entries:
                found.setdefault(entry.created_at - entry.created_at % HOUR_SECONDS, _Found()).see(entry)
            if going_on is None:
                return found
        raise bad_request(
            "There are too many responses to add up in one request. Ask for less time with 'from' and 'to'.", param="from"
        )


def _runs(hours: Sequence[Span]) -> list[list[Span]]:
    """Hours that follow each other, together: each run is one range of the list."""
    runs: list[list[Span]] = []
    for hour in hours:
        if runs and runs[-1][-1].end == hour.start:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs


def _groups(day: int, sums: Sums, group_by: str) -> Iterator[tuple[str, Sum]]:
    match group_by:
        case "day":
            yield from ((_day(day), each) for each in sums.by_model_and_key.values())
        case "model":
            yield from ((model, each) for (model, _), each in sums.by_model_and_key.items())
        case "key":
            yield from ((key_id, each) for (_, key_id), each in sums.by_model_and_key.items())
        case _:
            yield from sums.by_tool.items()


def _group_of(used: Used, group_by: str) -> str:
    match group_by:
        case "day":
            return _day(used.hour)
        case "model":
            return used.model
        case _:
            return used.key_id


def _day(moment: int) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).date().isoformat()


def _as_object(total: Sum, embedding: Embedding, name: str, group_by: str) -> dict[str, Any]:
    """Tokens and dollars belong to a response, or to what was embedded, and not to one of its tools: by tool there are none."""
    cost = {"cost_usd": usd(total.nanodollars + embedding.nanodollars), "unpriced_responses": total.unpriced}
    embeddings = {"requests": embedding.requests, "tokens": embedding.tokens, "unpriced_requests": embedding.unpriced}
    counted = {name: total.tokens[name] for name in TOKENS}
    tokens = {} if group_by == "tool" else {**counted, **cost, "embeddings": embeddings}
    return {
        "id": name,
        "object": "usage.group",
        "group_by": group_by,
        "responses": total.responses,
        "by_status": dict(total.statuses),
        "tool_calls": total.tool_calls,
        **tokens,
    }
