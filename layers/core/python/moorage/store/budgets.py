"""Shared limits of a key, a tenant, or a response with its forks: one record for each, shared by all that draw from it.

The record holds the limits. For each measure it counts the used and the *held* amount: a running response holds the likely cost of its
next step. Each response has an entry beside the counters, with its use so far and its held amount. Before a step, one write corrects
its entry and the counters if they are below the limits. So no step begins once the limit is reached, even if many responses draw at the
same time. Only steps that had begun can pass it. At its end a response takes its entry away.

The cost of a step is an estimate. Tool calls are the exception: their number cannot be estimated. So calls are counted when they have
been asked for and before one of them runs, if the limit of calls is not reached then: of all that ask at the same time, one step passes
it.

A write is conditional on the entry as it was read. So a step that is run twice counts once. A process that dies in between leaves its
amount held. The next refused response gives back amounts that are held longer than ``until``.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, MoorageError
from moorage.files.store import Clock
from moorage.store import keys
from moorage.store.table import Record, Table
from moorage.wire.operator_answers import BudgetShown

Kind = Literal["key", "tenant", "tree", "session"]
_KINDS: Final[Mapping[str, Kind]] = {"key": "key", "tenant": "tenant", "tree": "tree", "session": "session"}
OnLimit = Literal["stop", "pause", "finish"]

MEASURES: Final = ("usd", "input_tokens", "output_tokens", "total_tokens", "tool_calls", "wall_seconds")
"""As on the wire; dollars are counted in billionths, in whole numbers."""
_CALLS: Final = "tool_calls"
_NANO: Final = 1_000_000_000
Amounts = Mapping[str, int]
"""By measure; what is missing is nothing."""


def amount(value: float) -> str:
    """All digits of a measure, as people read it: no exponent, and no zeros behind the last digit of dollars."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


class BudgetContended(MoorageError):
    """An entry was changed again and again while it was being changed. A later try succeeds."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The subject of a budget."""

    kind: Kind
    name: str
    """Id of the key, name of the tenant, id of the response at the root of the tree, or id of an agent's session."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def of(cls, text: str) -> "Scope":
        kind, _, name = text.partition(":")
        return cls(_KINDS[kind], name)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """How a budget stands."""

    scope: Scope
    limits: Mapping[str, float]
    on_limit: OnLimit
    used: Mapping[str, float]
    held: Mapping[str, float]
    """Of this, by steps that run or were lost a moment ago. ``used`` does not have it."""

    def to_json(self) -> BudgetShown:
        return {
            "scope": self.scope.kind,
            "id": self.scope.name,
            "limits": dict(self.limits),
            "on_limit": self.on_limit,
            "used": dict(self.used),
            "held": dict(self.held),
        }


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """A limit that was reached."""

    scope: Scope
    name: str
    limit: float
    used: float
    held: float
    on_limit: OnLimit

    @property
    def message(self) -> str:
        what = {"key": "the API key", "tenant": "the tenant", "tree": "the forks of", "session": "the session"}[self.scope.kind]
        held = f" ({amount(self.held)} more is held by steps that run)" if self.held else ""
        return f"The budget of {what} '{self.scope.name}' is used up: {self.name} {amount(self.used)} of {amount(self.limit)}{held}."


@dataclass(frozen=True, slots=True)
class _Entry:
    """The use of one response, and its holds."""

    used: Amounts
    held: Amounts
    until: int
    """Unix seconds."""

    def total(self, name: str) -> int:
        return self.used.get(name, 0) + self.held.get(name, 0)

    def pack(self) -> dict[str, Any]:
        return {"used": dict(self.used), "held": dict(self.held), "until": self.until}


class Budgets:
    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    # --- whose they are ---

    async def put(self, tenant_id: str, scope: Scope, budget: Mapping[str, Any], *, expires_at: int | None = None) -> None:
        """Set the limits. Earlier use stays counted. ``expires_at`` is of a tree."""
        given = {name: _counted(name, budget[name]) for name in MEASURES if name in budget}
        await self._table.update(
            keys.budgets(tenant_id),
            str(scope),
            set={"limits": given, "on_limit": budget.get("on_limit", "stop"), **({} if expires_at is None else {"ttl": expires_at})},
            set_once={_counter(name): 0 for name in MEASURES},
            must_exist=False,
        )

    async def reset(self, tenant_id: str, scope: Scope) -> None:
        """Begin to count anew. Running responses count from their next step on. Raises ConditionFailed if there is no budget."""
        record = await self._table.get(keys.budgets(tenant_id), str(scope))
        if record is None:
            raise ConditionFailed
        held = [name for name in record if name.startswith(_ENTRY)]
        counters = {_counter(name): 0 for name in MEASURES}
        await self._table.update(keys.budgets(tenant_id), str(scope), set=counters, remove=held)

    async def remove(self, tenant_id: str, scope: Scope) -> None:
        await self._table.delete(keys.budgets(tenant_id), str(scope))

    async def standing(self, tenant_id: str, scope: Scope) -> BudgetStatus | None:
        record = await self._table.get(keys.budgets(tenant_id), str(scope))
        return None if record is None else _standing(scope, record, int(self._clock()))

    # --- who draws from them ---

    async def begin(self, tenant_id: str, scope: Scope, response_id: str, used: Amounts, holding: Amounts) -> BudgetReached | None:
        """Hold the likely cost of the next step of a response. ``used`` is its use so far. The limit, if it is reached; the response's
        use is counted in any case.

        A response with use but no entry has ended, or is older than the budget. Its use is counted already, or does not count.
        """
        return await self._draw(tenant_id, scope, response_id, used, _Entry(used, holding, 0), bounds=MEASURES)

    async def count_calls(
        self, tenant_id: str, scope: Scope, response_id: str, used: Amounts, calls: int, *, is_bounded: bool
    ) -> BudgetReached | None:
        """So many calls are about to run of a response that has used so much. The limit of calls, if that ``is_bounded`` and was
        reached before; then they are not counted, and must not run."""
        record = await self._table.get(keys.budgets(tenant_id), str(scope))
        if record is None or _CALLS not in record["limits"]:
            return None
        following = _Entry({**used, _CALLS: used.get(_CALLS, 0) + calls}, {}, 0)
        return await self._draw(tenant_id, scope, response_id, used, following, bounds=(_CALLS,) if is_bounded else ())

    async def _draw(
        self, tenant_id: str, scope: Scope, response_id: str, used: Amounts, wanted: _Entry, *, bounds: Collection[str]
    ) -> BudgetReached | None:
        """Turn the entry of a response that has used so much into the ``wanted`` one, if the limits of ``bounds`` are not reached."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            record = await self._table.get(keys.budgets(tenant_id), str(scope))
            if record is None:
                return None
            before = _entry(record, response_id)
            known = before or _Entry(used, {}, 0)
            now = int(self._clock())
            following = replace(wanted, until=now + limits.BUDGET_HOLD_SECONDS)
            # What this response has used meanwhile counts before it is asked whether there is something left.
            room = {
                _counter(name): limit - (used.get(name, 0) - known.total(name))
                for name, limit in dict(record["limits"]).items()
                if name in bounds
            }
            try:
                await self._write(tenant_id, scope, response_id, record, before, following, known, below=room)
            except ConditionFailed as failed:
                found = failed.item
                if found is None or _entry(found, response_id) != before or found["limits"] != record["limits"]:
                    continue
                if await self._give_back(tenant_id, scope, found, now, but=response_id):
                    continue
                if await self._counted(tenant_id, scope, response_id, used):
                    return _reached(scope, await self._table.get(keys.budgets(tenant_id), str(scope)) or found, now)
            else:
                return None
        raise BudgetContended(f"{scope} of {tenant_id}")

    async def end(self, tenant_id: str, scope: Scope, response_id: str, used: Amounts) -> None:
        """A response has ended: count its use and hold nothing more. Harmless to repeat."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            record = await self._table.get(keys.budgets(tenant_id), str(scope))
            before = None if record is None else _entry(record, response_id)
            if record is None or before is None:
                return
            try:
                await self._write(tenant_id, scope, response_id, record, before, None, before, used=used)
            except ConditionFailed:
                continue
            return
        raise BudgetContended(f"{scope} of {tenant_id}")

    async def release(self, tenant_id: str, scope: Scope, response_id: str, used: Amounts) -> None:
        """A response is paused: count its use and hold nothing. Harmless to repeat."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            if await self._counted(tenant_id, scope, response_id, used):
                return
        raise BudgetContended(f"{scope} of {tenant_id}")

    async def charge_tenant(self, tenant_id: str, used: Amounts) -> None:
        """Count use outside of any response in the tenant's budget, if it has one. Twice counts twice."""
        with suppress(ConditionFailed):
            added = {_counter(name): amount for name, amount in used.items()}
            await self._table.update(keys.budgets(tenant_id), str(Scope("tenant", tenant_id)), add=added)

    async def _counted(self, tenant_id: str, scope: Scope, response_id: str, used: Amounts) -> bool:
        """Count the use of a paused response, and hold nothing. False if its entry changed meanwhile."""
        record = await self._table.get(keys.budgets(tenant_id), str(scope))
        before = None if record is None else _entry(record, response_id)
        if record is None or before is None:
            return True
        try:
            after = _Entry(used, {}, int(self._clock()) + limits.BUDGET_HOLD_SECONDS)
            await self._write(tenant_id, scope, response_id, record, before, after, before)
        except ConditionFailed:
            return False
        return True

    async def _write(
        self,
        tenant_id: str,
        scope: Scope,
        response_id: str,
        record: Record,
        before: _Entry | None,
        after: _Entry | None,
        known: _Entry,
        *,
        used: Amounts | None = None,
        below: Mapping[str, int] | None = None,
    ) -> None:
        """Turn the entry of a response from ``before`` to ``after``, and the counters with it; None is no entry.

        ``used`` is the counted use of a response that gives its entry up.
        """
        name = f"{_ENTRY}{response_id}"
        then = after if after is not None else _Entry(used or {}, {}, 0)
        changes = {_counter(measure): then.total(measure) - known.total(measure) for measure in MEASURES}
        await self._table.update(
            keys.budgets(tenant_id),
            str(scope),
            set={} if after is None else {name: after.pack()},
            remove=(name,) if after is None else (),
            add={counter: change for counter, change in changes.items() if change},
            condition={"limits": record["limits"]} | ({} if before is None else {name: record[name]}),
            absent=(name,) if before is None else (),
            below=below or {},
        )

    async def _give_back(self, tenant_id: str, scope: Scope, record: Record, now: int, *, but: str) -> bool:
        """Take back amounts that are held too long, by dead processes or by slow steps; True if there were any.

        The entry stays, because a step that takes long counts at its end; those of responses that must have ended by now go.
        """
        has_given = False
        for name in [name for name in record if name.startswith(_ENTRY)]:
            entry = _entry(record, name.removeprefix(_ENTRY))
            assert entry is not None
            is_over = entry.until + limits.RESPONSE_SECONDS_MAX < now
            if name == f"{_ENTRY}{but}" or entry.until > now or not (any(entry.held.values()) or is_over):
                continue
            after = None if is_over else _Entry(entry.used, {}, entry.until)
            try:
                await self._write(tenant_id, scope, name.removeprefix(_ENTRY), record, entry, after, entry, used=entry.used)
            except ConditionFailed:
                continue
            has_given = has_given or any(entry.held.values())
        return has_given


_ENTRY: Final = "h_"


def _counter(name: str) -> str:
    return f"c_{name}"


def _counted(name: str, value: float) -> int:
    return round(value * _NANO) if name == "usd" else int(value)


def _shown(name: str, count: int) -> float:
    return count / _NANO if name == "usd" else count


def _entry(record: Record, response_id: str) -> _Entry | None:
    packed = record.get(f"{_ENTRY}{response_id}")
    return None if packed is None else _Entry(packed["used"], packed["held"], packed["until"])


def _standing(scope: Scope, record: Record, now: int) -> BudgetStatus:
    entries = [entry for name in record if name.startswith(_ENTRY) and (entry := _entry(record, name.removeprefix(_ENTRY)))]
    all_held = {name: sum(entry.held.get(name, 0) for entry in entries) for name in MEASURES}
    still_held = {name: sum(entry.held.get(name, 0) for entry in entries if entry.until > now) for name in MEASURES}
    return BudgetStatus(
        scope,
        {name: _shown(name, limit) for name, limit in record["limits"].items()},
        record["on_limit"],
        {name: _shown(name, record[_counter(name)] - all_held[name]) for name in MEASURES},
        {name: _shown(name, count) for name, count in still_held.items()},
    )


def _reached(scope: Scope, record: Record, now: int) -> BudgetReached:
    standing = _standing(scope, record, now)
    name = next(
        (name for name, limit in standing.limits.items() if standing.used[name] + standing.held[name] >= limit),
        next(iter(standing.limits)),
    )
    return BudgetReached(scope, name, standing.limits[name], standing.used[name], standing.held[name], standing.on_limit)
