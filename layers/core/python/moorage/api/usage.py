"""``/v1/usage``: what was used, added up. An extension of ours.

It is summed from the list of responses, of whose entries nothing but the index is read. It reaches as far back as responses are kept;
those that were deleted meanwhile still count, and those with ``store: false`` never did, because nothing is written of them. What was
embedded is counted for itself (``store/embedding_usage.py``), by whole hours. So is the time of sandboxes that no response has paid for
(``store/sandbox_usage.py``).

The sums of hours and days in which nothing changes any more are kept (``loop/usage_ledger.py``): a month of responses costs what its
last hour does.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, cast

from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.loop.budget import standings
from moorage.loop.usage_ledger import UsageLedger
from moorage.model.prices import usd
from moorage.store.embedding_usage import EmbeddingCounts, EmbeddingUsageEntry
from moorage.store.sandbox_usage import SandboxRest
from moorage.store.usage_sums import TOKENS, Sum, Sums
from moorage.wire.operator_answers import UsageGroup, UsageList
from moorage.wire.queries import UsageQuery
from moorage.wire.responses import list_object

router = Router()


@router.get(
    "/usage",
    "usage",
    "What was used, added up by day, model, key or tool",
)
async def usage(caller: Caller, wanted: Annotated[UsageQuery, query_of(UsageQuery)]) -> UsageList:
    since, until = wanted.span(int(caller.runtime.clock()))
    totals: dict[str, Sum] = defaultdict(Sum)
    parts: dict[str, dict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
    for day, sums in await UsageLedger(caller.runtime, caller.tenant_id, since, until).by_day():
        for name, each in _groups(day, sums, wanted.group_by):
            totals[name].join(each)
        for name, each in _groups(day, sums, wanted.split_by) if wanted.split_by else ():
            parts[_day(day)][name].join(each)
    embedded: dict[str, EmbeddingCounts] = defaultdict(EmbeddingCounts)
    if wanted.group_by != "tool":
        for used in await caller.runtime.stores.embedding_usage.between(caller.tenant_id, since, until):
            embedded[_group_of(used, wanted.group_by)].join(used.embedding)
    rests: dict[str, SandboxRest] = defaultdict(SandboxRest)
    if wanted.group_by != "tool":
        for hour, rest in await caller.runtime.stores.sandbox_usage.between(caller.tenant_id, since, until):
            rests[_day(hour) if wanted.group_by == "day" else ""].join(rest)
    names = sorted(totals.keys() | embedded.keys() | rests.keys())
    groups = [_as_object(totals[name], embedded[name], rests[name], name, wanted.group_by) for name in names]
    if wanted.split_by:
        groups = [{**each, "parts": _parts(parts[each["id"]], wanted.split_by)} for each in groups]
    budgets = await standings(caller.runtime.stores, caller.tenant_id, caller.draws_on)
    return {**list_object(groups, has_more=False), "budgets": budgets}


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


def _parts(sums: Mapping[str, Sum], split_by: str) -> list[UsageGroup]:
    """The usage of responses. Embeddings, and sandboxes without a paying response, are in the day alone."""
    return [_as_object(each, EmbeddingCounts(), SandboxRest(), name, split_by) for name, each in sorted(sums.items())]


def _group_of(used: EmbeddingUsageEntry, group_by: str) -> str:
    match group_by:
        case "day":
            return _day(used.hour)
        case "model":
            return used.model
        case _:
            return used.key_id


def _day(moment: int) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).date().isoformat()


def _as_object(total: Sum, embedding: EmbeddingCounts, rest: SandboxRest, name: str, group_by: str) -> UsageGroup:
    """Tokens and dollars belong to a response, or to embeddings, and not to one of its tools: by tool there are none."""
    dollars = usd(total.nanodollars + embedding.nanodollars + rest.nanodollars)
    cost = {"cost_usd": dollars, "unpriced_responses": total.unpriced}
    sandboxes = {"seconds": rest.seconds, "cost_usd": usd(rest.nanodollars)}
    embeddings = {"requests": embedding.requests, "tokens": embedding.tokens, "unpriced_requests": embedding.unpriced}
    counted = {name: total.tokens[name] for name in TOKENS}
    tokens = {} if group_by == "tool" else {**counted, **cost, "embeddings": embeddings, "sandboxes": sandboxes}
    group = {
        "id": name,
        "object": "usage.group",
        "group_by": group_by,
        "responses": total.responses,
        "by_status": dict(total.statuses),
        "tool_calls": total.tool_calls,
        **tokens,
    }
    return cast("UsageGroup", group)
