"""``/v1/me`` and ``/v1/usage``: who asks, and what was used. Extensions of ours.

Usage is summed from the list of responses, of whose entries nothing but the index is read. It reaches as far back as responses are
kept; those that were deleted meanwhile still count, and those with ``store: false`` never did, because nothing is written of them.
"""

import datetime
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from moorage import __version__, limits
from moorage.api.answers import JsonResponse
from moorage.api.caller import Caller
from moorage.api.credentials import secret_of
from moorage.errors import bad_request
from moorage.loop.budget import standings
from moorage.model.prices import usd
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.store.response_list import Range, ResponseList, Row
from moorage.wire.queries import UsageWanted, parse_usage
from moorage.wire.responses import list_object

router = APIRouter()

_DAY_SECONDS: Final = 24 * 3600


@router.get("/me")
async def me(request: Request, caller: Caller) -> Response:
    """What the key of this request stands for."""
    runtime, settings = caller.runtime, caller.runtime.settings
    key = await runtime.api_keys.find(secret_of(request.headers))
    assert key is not None, "the gate has let a request without a key through"
    return JsonResponse(
        {
            "object": "me",
            "tenant": caller.tenant_id,
            "key": {
                "id": caller.key_id,
                "name": key.name,
                "created_at": key.created_at,
                "scope": key.scope or None,
                "expires_at": key.expires_at or None,
            },
            "limits": {
                "requests_per_minute": settings.requests_per_minute,
                "tokens_per_minute": settings.tokens_per_minute,
                "running_responses": settings.running_responses_max,
                "retention_seconds": settings.retention_seconds,
            },
            "budgets": await standings(runtime, caller.tenant_id, caller.draws_on),
            "prices": [_price(runtime, model["id"]) for model in runtime.catalog.listing()],
            "version": __version__,
        }
    )


def _price(runtime: Runtime, model: str) -> dict[str, Any]:
    """US dollars per million tokens and per call; null where they are not known."""
    price = runtime.catalog.price_of(model)
    return {"model": model, "price": None if price is None else asdict(price)}


async def _wanted(request: Request, caller: Caller) -> UsageWanted:
    return parse_usage(request.query_params.multi_items(), now=int(caller.runtime.clock()))


@router.get("/usage")
async def usage(caller: Caller, wanted: Annotated[UsageWanted, Depends(_wanted)]) -> Response:
    async def of_day(day: int) -> dict[str, Sum]:
        sums: dict[str, Sum] = {}
        first, last = max(day, wanted.since), min(day + _DAY_SECONDS - 1, wanted.until)
        async for row in _rows(caller.runtime.response_list, caller.tenant_id, first, last):
            for name, calls in _groups(day, row, wanted.group_by):
                sums.setdefault(name, Sum()).add(row, calls)
        return sums

    days = range(wanted.since - wanted.since % _DAY_SECONDS, wanted.until + 1, _DAY_SECONDS)
    totals: dict[str, Sum] = {}
    for sums in await side_by_side(of_day, days, at_once=limits.SWEEP_AT_ONCE):
        for name, each in sums.items():
            totals.setdefault(name, Sum()).join(each)
    summed = list_object([totals[name].to_json(name, wanted.group_by) for name in sorted(totals)], has_more=False)
    return JsonResponse(summed | {"budgets": await standings(caller.runtime, caller.tenant_id, caller.draws_on)})


async def _rows(listed: ResponseList, tenant_id: str, first: int, last: int) -> AsyncGenerator[Row, None]:
    """The rows of the responses that were created between two times, both included."""
    going_on: str | None = None
    for _ in range(limits.USAGE_DAY_READS_MAX):
        entries, going_on = await listed.read(tenant_id, Range(going_on, False, first, last), limits.USAGE_READ_ENTRIES)
        for entry in entries:
            if entry.row is not None:
                yield entry.row
        if going_on is None:
            return
    raise bad_request("There are too many responses to add up in one request. Ask for less time with 'from' and 'to'.", param="from")


def _groups(day: int, row: Row, group_by: str) -> Iterator[tuple[str, int]]:
    """What a response counts for, each with its calls of tools."""
    calls = sum(row.tools.values())
    match group_by:
        case "day":
            yield datetime.datetime.fromtimestamp(day, datetime.UTC).date().isoformat(), calls
        case "model":
            yield row.model, calls
        case "key":
            yield row.key_id, calls
        case _:
            yield from row.tools.items()


@dataclass(slots=True)
class Sum:
    responses: int = 0
    tool_calls: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    nanodollars: int = 0
    unpriced: int = 0
    """Responses whose price was not known."""

    def add(self, row: Row, tool_calls: int) -> None:
        self.responses += 1
        self.tool_calls += tool_calls
        self.statuses[row.status] += 1
        self.nanodollars += row.nanodollars or 0
        self.unpriced += row.nanodollars is None and bool(row.input_tokens or row.output_tokens)
        self.tokens.update(
            {
                "input_tokens": row.input_tokens,
                "cached_tokens": row.cached_tokens,
                "output_tokens": row.output_tokens,
                "reasoning_tokens": row.reasoning_tokens,
            }
        )

    def join(self, other: "Sum") -> None:
        self.responses += other.responses
        self.tool_calls += other.tool_calls
        self.statuses += other.statuses
        self.nanodollars += other.nanodollars
        self.unpriced += other.unpriced
        self.tokens.update(other.tokens)

    def to_json(self, name: str, group_by: str) -> dict[str, Any]:
        """Tokens and dollars belong to a response, and not to one of its tools: by tool there are none."""
        cost = {"cost_usd": usd(self.nanodollars), "unpriced_responses": self.unpriced}
        tokens = {} if group_by == "tool" else {**self.tokens, **cost}
        return {
            "id": name,
            "object": "usage.group",
            "group_by": group_by,
            "responses": self.responses,
            "by_status": dict(self.statuses),
            "tool_calls": self.tool_calls,
            **tokens,
        }
