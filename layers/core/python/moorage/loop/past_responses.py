"""A response as of one of its events: its items, what it had used, and how the files of its container were.

The log says what had been said by then, and the records of the steps what had been used. A new response can begin at a *boundary*: at
the beginning, with the request alone; behind a round, when all calls that the model had made in one step were over; and at the end. An
event between two is taken for the boundary before it. So no call stands without its output, no reasoning without what it led to, and
the files are those that the last command had left.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

from moorage.dataclass import dataclass
from moorage.errors import bad_request
from moorage.loop import context, finish
from moorage.loop.budget import cost_of
from moorage.loop.fold import FoldedState, fold
from moorage.runtime import Runtime
from moorage.state import Rent
from moorage.store.responses import Snapshot, StoredResponse
from moorage.store.steps import StepAccount
from moorage.wire.events import OUTPUT_ITEM_DONE
from moorage.wire.responses import Status, TokenUsage
from moorage.wire.types import Event, Item


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A point for another response to begin at."""

    number: int
    """The last event before it."""
    items: Sequence[Item]
    """What the response had made by then, whole items only."""
    files_at_ms: int | None
    """When that was, by the times of the container's files; None without a container, and where it was not kept."""


@dataclass(frozen=True, slots=True)
class PastResponse:
    number: int
    """Of the event."""
    at_ms: int
    """When it was said."""
    response: dict[str, Any]
    """The response object as it stood."""
    usage: TokenUsage
    cost_usd: float | None
    """At the prices of now; None where they are not known."""
    steps: int
    """Model steps that had ended."""
    boundary: ForkPoint
    files_at_ms: int | None


async def as_of(runtime: Runtime, snapshot: Snapshot, number: int | None) -> PastResponse:
    """The response after the event of this number, None for the last one. Raises :class:`~moorage.errors.ApiError` for one that is not
    there (yet)."""
    stored, last = snapshot.stored, snapshot.last
    newest = -1 if last is None else last.following - 1
    if last is None or (number is not None and number > newest):
        what = "no events yet" if last is None else f"events 0 to {newest} so far"
        raise bad_request(f"Response '{stored.response_id}' has {what}.", param="at", code="event_not_found")
    wanted = newest if number is None else number
    accounts = await runtime.stores.steps.accounts(stored.tenant_id, stored.response_id)
    history = _History(stored, FoldedState(), {}, accounts)
    async for batches in runtime.stores.responses.log_of(stored).read_up_to(wanted):
        history.add([event for batch in batches for event in batch.events if event["sequence_number"] <= wanted])
        latest = batches[-1]
    response = history.response
    usage = TokenUsage.from_json(response["usage"]) if response["usage"] is not None else history.usage
    at_ms = latest.said_at(wanted - latest.first)
    ran = max(0, at_ms // 1000 - stored.created_at - stored.paused_seconds)
    cost = cost_of(runtime, stored, usage, response["output"], history.rent, ran)
    return PastResponse(
        number=wanted,
        at_ms=at_ms,
        response=response,
        usage=usage,
        cost_usd=None if cost is None else cost["usd"],
        steps=len(history.ended) + history.folded.is_final,
        boundary=history.boundary(),
        files_at_ms=history.files_at_ms(history.accounts),
    )


@dataclass(frozen=True, slots=True)
class _History:
    """The known facts of a response up to an event."""

    stored: StoredResponse
    folded: FoldedState
    closed_by: dict[int, int]
    """By output index, the number of the event that closed the item."""
    accounts: Sequence[StepAccount]
    """Of all its steps, later ones too."""

    def add(self, events: Sequence[Event]) -> None:
        """Events that follow those that are known."""
        fold(events, self.folded)
        done = [event for event in events if event["type"] == OUTPUT_ITEM_DONE]
        self.closed_by.update({event["output_index"]: event["sequence_number"] for event in done})

    @property
    def ended(self) -> list[StepAccount]:
        """Model steps that had ended, others following."""
        return [each for each in self.accounts if each.outcome is not None and (each.following or 0) <= self.folded.next_number]

    @property
    def usage(self) -> TokenUsage:
        outcomes = [each.outcome for each in self.ended if each.outcome is not None]
        return outcomes[-1].usage if outcomes else TokenUsage()

    @property
    def rent(self) -> Rent | None:
        outcomes = [each.outcome for each in self.ended if each.outcome is not None]
        return outcomes[-1].rent if outcomes else None

    @property
    def response(self) -> dict[str, Any]:
        if self.folded.is_final and self.folded.response is not None:
            return self.folded.response
        said = self.folded.response
        status: Status = "queued" if said is not None and said["status"] == "queued" else "in_progress"
        return finish.object_of(self.stored, status=status, now=self.stored.created_at, output=self.folded.output, usage=self.usage)

    def boundary(self) -> ForkPoint:
        if self.folded.is_final and self.folded.response is not None:
            final = self.folded.response
            items = context.output_items(final["output"], is_cut=final["status"] == "incomplete")
            return ForkPoint(self.folded.next_number - 1, items, self.files_at_ms(self.accounts))
        whole = next(index for index in count() if index not in self.closed_by)
        rounds = [each for each in self.ended if _items_of(each) <= whole]  # Those whose calls were over too.
        if not rounds:
            return ForkPoint(0, (), self.files_at_ms(()))
        last = rounds[-1]
        items = context.own_items({index: self.folded.items[index] for index in range(_items_of(last))})
        number = max([self.closed_by[index] for index in range(_items_of(last))], default=(last.following or 1) - 1)
        return ForkPoint(number, items, self.files_at_ms([each for each in self.accounts if each.step <= last.step]))

    def files_at_ms(self, accounts: Sequence[StepAccount]) -> int | None:
        """As of when the files of the container were stored, once the calls among these had ended."""
        if self.stored.container_id is None or not self.stored.files_at_ms:
            return None
        calls = {(step.step, call.call_id): call for step in self.ended if step.outcome for call in step.outcome.calls}
        over = [
            each
            for each in accounts
            if (call := calls.get((each.step, each.call_id or ""))) is not None and call.output_index in self.closed_by
        ]
        # A run that died between the log and its record told no time of its files: it ended no earlier than they were stored.
        return max([self.stored.files_at_ms, *(each.files_at_ms or each.ended_at_ms or 0 for each in over)])


def _items_of(step: StepAccount) -> int:
    """How many items there are once the calls of a step are over."""
    assert step.outcome is not None
    return step.outcome.next_index
