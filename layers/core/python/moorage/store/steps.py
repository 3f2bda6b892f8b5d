"""Steps and tool calls of a running response: the runs of each, its result, and the items that it finished.

One record for each step and one for each tool call. It is the fence: starting raises ``attempt``. A run that finds the work done
returns the stored result, and a run that finds too many attempts gives up. A writer of a lower attempt meets the higher one in the
event log (``store/event_log.py``), or here at its end, and stops.

The next step also finds its input here. The end of a step or call and its items are one write. One query returns the state of the round
before and the items for the model. Items that are large lie in the bucket.
"""

import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import Any, Final

from botocore.exceptions import ClientError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import Superseded
from moorage.parallel import worked
from moorage.state import OUTCOME, StepOutcome
from moorage.store import keys, object_keys
from moorage.store.blobs import Blobs
from moorage.store.event_log import OutputPlaces, WriteBehind
from moorage.store.packing import packed, unpacked
from moorage.store.responses import StoredResponse
from moorage.store.table import TABLE_ERRORS, Record, Table, Write
from moorage.store.throttling import is_throttle
from moorage.wire.types import Item


@dataclass(frozen=True, slots=True)
class StepAttempt:
    attempt: int
    """Runs so far, this one included."""
    yields: int
    """Runs that ended in good order to wait for something."""
    outcome: StepOutcome | None
    refusals: int = 0
    """Runs that ended because AWS was asked too much."""

    @property
    def crashes(self) -> int:
        return self.attempt - 1 - self.yields - self.refusals


@dataclass(frozen=True, slots=True)
class CallAttempt:
    attempt: int
    """Runs so far, this one included."""
    yields: int
    """Runs that ended in good order with the command still going."""
    sandbox: int | None
    """The incarnation that the commands were started in; None before the first start."""
    is_finished: bool
    refusals: int = 0
    """Runs that ended because AWS was asked too much."""

    @property
    def crashes(self) -> int:
        return self.attempt - 1 - self.yields - self.refusals


@dataclass(frozen=True, slots=True)
class CallRounds:
    """How often a tool call was sent round again, and why."""

    rounds: int
    """With this one."""
    yields: int
    waits: int
    """Rounds that ended in good order for want of the container."""
    is_host_away: bool
    """The last of them, because what starts sandboxes did not answer."""

    @property
    def fruitless(self) -> int:
        return self.rounds - self.yields - self.waits


@dataclass(frozen=True, slots=True)
class Step:
    """A model step that has ended; its tool calls may still run."""

    outcome: StepOutcome
    following: int
    """Number of the next event when it ended."""
    items: Mapping[int, Item]
    """What it has made, by output index; the outputs of its calls are theirs. Below 0 stand calls that fill no item."""
    places: Mapping[int, int] | None = None
    """Of an agent in a team: the indexes in the response of what its calls fill."""
    next_output: int = 0
    """The response's next output index when it ended, then."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a response has come, as one query sees it."""

    outcomes: Mapping[int, StepOutcome] = field(default_factory=dict)
    """Of the steps that were asked for and have ended."""
    finished: frozenset[tuple[int, str]] = frozenset()
    """Step and id of their calls that are finished."""
    items: dict[int, Item] = field(default_factory=dict)
    """All finished items of the response, by output index."""
    results: Mapping[tuple[int, str], Item] = field(default_factory=dict)
    """What calls have come to that fill no item, by step and call id; of the steps that were asked for."""

    def unfinished(self, step: int) -> tuple[str, ...]:
        """Ids of the calls of an ended step that still have to run."""
        assert step in self.outcomes, f"step {step} has calls but no outcome"
        return tuple(call.call_id for call in self.outcomes[step].calls if (step, call.call_id) not in self.finished)


@dataclass(frozen=True, slots=True)
class _Known:
    """The steps below ``steps`` are over, calls included: their items are these, and never change."""

    steps: int = 0
    items: dict[int, Item] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepAccount:
    """The operator's view of the record of a step, or of a call. Times are in milliseconds, None if they are not known."""

    step: int
    call_id: str | None
    attempts: int
    """Runs that the record has counted."""
    yields: int
    """Runs that ended in good order, with more to do."""
    waits: int
    """Runs of a call that ended in good order for want of the container."""
    begun_at_ms: int | None
    run_at_ms: int | None
    """When the latest run began."""
    first_output_at_ms: int | None
    ended_at_ms: int | None
    why: str | None
    """What the latest run that had to wait was waiting for."""
    outcome: StepOutcome | None
    following: int | None
    """Number of the next event when a step ended."""
    is_finished: bool
    files_at_ms: int | None = None
    """When a call ended, by the times of its container's files."""
    is_last_answer: bool = False
    """The model was offered no calls, because a budget was used up."""
    request_id: str | None = None
    """What the model's upstream called the latest request of a step that has ended."""


class Steps:
    def __init__(self, table: Table, blobs: Blobs, *, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._blobs = blobs
        self._now_ms = now_ms
        self._known: dict[tuple[str, int], _Known] = {}
        """By partition and lane."""

    # --- model steps ---

    async def begin(self, stored: StoredResponse, step: int, *, is_last_answer: bool = False) -> StepAttempt:
        """Count a run of a model step.

        Harmless to run twice: each run takes a higher number. ``is_last_answer``: no calls are offered, because a budget is used up.
        The record keeps this to show later the request that the model got.
        """
        now = self._now_ms()
        last = {"last_answer": True} if is_last_answer else {}
        record = await self._table.update(
            _pk(stored),
            keys.attempt(step),
            add={"attempt": 1},
            set={"ttl": stored.expires_at, "run_ms": now, **last},
            set_once={"begun_ms": now},
            remove=() if is_last_answer else ("last_answer",),
            must_exist=False,
        )
        outcome = record.get("outcome")
        return StepAttempt(
            record["attempt"] + _unrecorded(stored, step),
            record.get("yields", 0),
            OUTCOME.unpack(outcome) if outcome else None,
            record.get("refusals", 0),
        )

    async def postpone(self, stored: StoredResponse, step: int, why: str | None = None) -> None:
        """This run ends in good order; the step is to be run again."""
        await self._table.update(_pk(stored), keys.attempt(step), add={"yields": 1}, set={} if why is None else {"why": why})

    async def ending(
        self,
        stored: StoredResponse,
        step: int,
        attempt: int,
        outcome: StepOutcome,
        items: Mapping[int, Item],
        *,
        begun_at_ms: int | None = None,
        first_output_at_ms: int | None = None,
        request_id: str | None = None,
    ) -> WriteBehind:
        """What stores the result of a step. Its condition fails if a later attempt has begun: that one may write more into the log than
        this one knows of (:func:`superseded`). ``begun_at_ms`` is told of a run that was not begun here."""
        recorded = attempt - _unrecorded(stored, step)
        first: Record = {} if first_output_at_ms is None else {"first_ms": first_output_at_ms}
        first |= {} if request_id is None else {"request": request_id}
        packed = await self._packed(stored, f"step-{step}-{attempt}", items)

        def write(following: int, places: OutputPlaces | None) -> Write:
            team: Record = {}
            if places is not None:
                filled = {str(call.output_index): places.known[call.output_index] for call in outcome.calls if call.output_index >= 0}
                team = {"places": filled, "next_output": places.next_output}
            return Write(
                _pk(stored),
                keys.attempt(step),
                set={
                    "outcome": OUTCOME.pack(outcome),
                    "following": following,
                    "ttl": stored.expires_at,
                    "ended_ms": self._now_ms(),
                    **first,
                    **team,
                    **packed,
                },
                set_once={} if begun_at_ms is None else {"begun_ms": begun_at_ms},
                condition={"attempt": recorded} if recorded else {},
                absent=() if recorded else ("attempt",),
            )

        return write

    async def get(self, tenant_id: str, response_id: str, step: int) -> Step | None:
        """A model step, None if it has not ended."""
        record = await self._table.get(keys.response(tenant_id, response_id), keys.attempt(step))
        return None if record is None else await self.of_record(record)

    async def of_record(self, record: Record) -> Step | None:
        """The same from its record."""
        if "outcome" not in record:
            return None
        (items,) = await self._unpacked([record])
        places = {int(own): place for own, place in record["places"].items()} if "places" in record else None
        return Step(OUTCOME.unpack(record["outcome"]), record["following"], items, places, record.get("next_output", 0))

    async def last(self, stored: StoredResponse) -> tuple[int, Step | None]:
        """The last step of its lane that was begun, and its result if it has ended; for a reader that finds the loop without an
        owner."""
        records = await self._table.query(_pk(stored), prefix=keys.attempts_of(stored.lane), descending=True, limit=1)
        if not records:
            return stored.lane * limits.LANE_STEPS, None
        step, _ = keys.step_of(records[0]["SK"])
        return step, await self.get(stored.tenant_id, stored.response_id, step)

    # --- tool calls ---

    async def begin_call(self, stored: StoredResponse, step: int, call_id: str, sandbox: int | None) -> CallAttempt:
        """Count a run of a tool call and note, once, the incarnation of the sandbox that its commands are started in."""
        now = self._now_ms()
        once = {} if sandbox is None else {"sandbox": sandbox}
        record = await self._table.update(
            _pk(stored),
            keys.attempt(step, call_id),
            add={"attempt": 1},
            set={"ttl": stored.expires_at, "run_ms": now},
            set_once={"begun_ms": now, **once},
            remove=("waiting_since", "host_away"),
            must_exist=False,
        )
        return CallAttempt(
            record["attempt"],
            record.get("yields", 0),
            record.get("sandbox"),
            bool(record.get("finished")),
            record.get("refusals", 0),
        )

    async def postpone_call(self, stored: StoredResponse, step: int, call_id: str) -> None:
        """This run ends in good order with the command still going."""
        await self._table.update(_pk(stored), keys.attempt(step, call_id), add={"yields": 1})

    async def await_container(self, stored: StoredResponse, step: int, call_id: str, *, now: int, is_host_away: bool, why: str) -> int:
        """This run ends in good order for want of the container. Returns since when (Unix seconds) the call has been waiting for it."""
        record = await self._table.update(
            _pk(stored),
            keys.attempt(step, call_id),
            add={"waits": 1},
            set={"ttl": stored.expires_at, "host_away": is_host_away, "why": why},
            set_once={"waiting_since": now},
            must_exist=False,
        )
        since: int = record["waiting_since"]
        return since

    async def send_again(self, stored: StoredResponse, step: int, call_id: str) -> CallRounds:
        """Count that an unfinished call is sent round again."""
        record = await self._table.update(
            _pk(stored), keys.attempt(step, call_id), add={"rounds": 1}, set={"ttl": stored.expires_at}, must_exist=False
        )
        return CallRounds(record["rounds"], record.get("yields", 0), record.get("waits", 0), bool(record.get("host_away")))

    async def ending_call(
        self, stored: StoredResponse, step: int, call_id: str, output_index: int, item: Item, *, files_at_ms: int = 0
    ) -> Write:
        """What says that the call is finished, and ``item`` its output. Two runs that get there write the same; its condition fails if
        the response is gone. ``files_at_ms`` is told of a call that has stored the files of its container."""
        packed = await self._packed(stored, f"call-{output_index}", {output_index: item})
        files = {"files_ms": files_at_ms} if files_at_ms else {}
        return Write(
            _pk(stored),
            keys.attempt(step, call_id),
            set={"finished": True, "ended_ms": self._now_ms(), **files, **packed},
            is_there=True,
        )

    # --- both ---

    @asynccontextmanager
    async def forgiving(self, stored: StoredResponse, step: int, call_id: str | None = None) -> AsyncIterator[None]:
        """A run, begun before, that AWS refuses something because it is asked too much is none that died: it may be run again as often
        as that lasts."""
        try:
            yield
        except ClientError as error:
            if is_throttle(error):
                with suppress(*TABLE_ERRORS):  # It counts as a death then.
                    await self._table.update(_pk(stored), keys.attempt(step, call_id), add={"refusals": 1})
            raise

    # --- all of it ---

    async def accounts(self, tenant_id: str, response_id: str, *, since: int = 0) -> list[StepAccount]:
        """The operator's view of a lane's steps from ``since`` on and their calls, in order."""
        records = await self._table.query(
            keys.response(tenant_id, response_id),
            prefix=keys.attempts_of(keys.lane_of(since)),
            after=keys.attempts_below(since),
        )
        if len(records) <= limits.STEPS_TOLD_HERE_MAX:
            return list(map(_account, records))
        return await worked(lambda: list(map(_account, records)))

    async def read(self, tenant_id: str, response_id: str, *, since: int | None = None, lane: int = 0) -> Progress:
        """Everything that has been finished in a lane, and how its steps from ``since`` on stand.

        A process that has read an earlier step of the same response reads only new records: past ones never change.
        """
        pk = keys.response(tenant_id, response_id)
        known = self._known.get((pk, lane), _Known(lane * limits.LANE_STEPS))
        first = known.steps if since is None else min(since, known.steps)
        records = await self._table.query(pk, prefix=keys.attempts_of(lane), after=keys.attempts_below(first))
        found = await self._unpacked(records)
        fresh: dict[int, dict[int, Item]] = {}
        outcomes: dict[int, StepOutcome] = {}
        finished: set[tuple[int, str]] = set()
        results: dict[tuple[int, str], Item] = {}
        for record, items in zip(records, found, strict=True):
            step, call_id = keys.step_of(record["SK"])
            fresh.setdefault(step, {}).update((index, item) for index, item in items.items() if index >= 0)
            if call_id is not None:
                results.update(((step, call_id), item) for index, item in items.items() if index < 0)
            if "outcome" in record:
                outcomes[step] = OUTCOME.unpack(record["outcome"])
            if "finished" in record and call_id is not None:
                finished.add((step, call_id))
        everything = dict(known.items)
        for items in fresh.values():
            everything |= items
        progress = Progress(outcomes, frozenset(finished), everything, results)
        self._remember((pk, lane), known, progress, fresh)
        return progress

    def forget(self, tenant_id: str, response_id: str) -> None:
        """The response is being deleted."""
        pk = keys.response(tenant_id, response_id)
        for place in [place for place in self._known if place[0] == pk]:
            del self._known[place]

    def _remember(self, place: tuple[str, int], known: _Known, progress: Progress, fresh: Mapping[int, Mapping[int, Item]]) -> None:
        steps, items = known.steps, dict(known.items)
        while steps in progress.outcomes and not progress.unfinished(steps):
            items |= fresh[steps]
            steps += 1
        self._known.pop(place, None)
        self._known[place] = _Known(steps, items)
        while len(self._known) > limits.KNOWN_RESPONSES_MAX:
            self._known.pop(next(iter(self._known)))

    # --- items ---

    async def _packed(self, stored: StoredResponse, name: str, items: Mapping[int, Item]) -> dict[str, Any]:
        """Items as an attribute. Large ones have gone to the bucket by then, under this name."""
        body = await packed([[index, item] for index, item in sorted(items.items())])
        name = f"lane-{stored.lane}-{name}" if stored.lane else name
        if len(body) <= limits.ITEM_INLINE_BYTES_MAX:
            return {"items": body}
        key = object_keys.response_blob(stored.tenant_id, stored.response_id, name)
        await self._blobs.put_bytes(key, body)
        return {"blob": key}

    async def _unpacked(self, records: Iterable[Record]) -> list[dict[int, Item]]:
        """The items of each record; none if its work has not ended."""
        whole = [record if "outcome" in record or "finished" in record else _NOTHING_YET for record in records]
        for record in whole:
            assert "items" in record or "blob" in record, f"{record['PK']} {record['SK']} was ended by an older version"
        return [_pairs(await unpacked(body)) for body in await self._blobs.inlined(whole, "items")]


def _account(record: Record) -> StepAccount:
    step, call_id = keys.step_of(record["SK"])
    return StepAccount(
        step=step,
        call_id=call_id,
        attempts=record.get("attempt", 0),
        yields=record.get("yields", 0),
        waits=record.get("waits", 0),
        begun_at_ms=record.get("begun_ms"),
        run_at_ms=record.get("run_ms"),
        first_output_at_ms=record.get("first_ms"),
        ended_at_ms=record.get("ended_ms"),
        why=record.get("why"),
        outcome=OUTCOME.unpack(record["outcome"]) if "outcome" in record else None,
        following=record.get("following"),
        is_finished=bool(record.get("finished")),
        files_at_ms=record.get("files_ms"),
        is_last_answer=bool(record.get("last_answer")),
        request_id=record.get("request"),
    )


_NOTHING_YET: Final[Record] = {"items": zlib.compress(b"[]")}


def _pairs(items: Iterable[tuple[int, Item]]) -> dict[int, Item]:
    return dict(items)


def superseded(stored: StoredResponse, step: int, attempt: int) -> Superseded:
    """Of a run whose result was not stored."""
    return Superseded(f"attempt {attempt} of step {step} of {stored.response_id} is not the latest")


def _unrecorded(stored: StoredResponse, step: int) -> int:
    """The first attempt of a foreground response's first step runs in the API process, without a record."""
    return 1 if step == 0 and not stored.is_background else 0


def _pk(stored: StoredResponse) -> str:
    return keys.response(stored.tenant_id, stored.response_id)
