"""Compaction: a long conversation becomes its user's messages, notes that carry its state, and its latest items.

It is asked for in three ways: by ``POST /v1/responses/compact``, by a ``compaction_trigger`` as the last input item, and by
``context_management`` when the prompt has grown beyond a threshold, or beyond the model's window. What a ``compaction`` item stands for
stays stored, but models do not see it any more (``loop/notes.py``).
"""

from collections.abc import Callable, Sequence
from typing import Self

from moorage import ids, limits
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError
from moorage.loop.cancellation import CancelWatch
from moorage.loop.notes import Notes, Reader, latest_of_user, reader, visible
from moorage.loop.summary import NotesWriter
from moorage.loop.truncate import cuts, stays
from moorage.model.catalog import ModelEntry
from moorage.model.compaction import CompactionSettings
from moorage.model.tokens import at_most, estimate_frame, estimate_items
from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse
from moorage.wire.parameters import Parameters
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The result of compacting a conversation."""

    runtime: Runtime
    tenant_id: str
    entry: ModelEntry
    """The model that goes on."""
    wanted: CompactionSettings
    threshold: int
    """In tokens: what is left must stay well below."""
    instructions: str | None = None
    watch: CancelWatch | None = None

    @classmethod
    def of(cls, runtime: Runtime, stored: StoredResponse, watch: CancelWatch | None) -> Self:
        parameters = stored.parameters
        entry = runtime.models.catalog.resolve(parameters.model)
        asked = min(parameters.context_management, key=lambda one: _threshold(one, entry), default={})
        wanted = entry.compaction.asked(asked)
        return cls(runtime, stored.tenant_id, entry, wanted, _threshold(asked, entry), parameters.instructions, watch)

    @property
    def user_tokens(self) -> int:
        return min(limits.COMPACTION_KEPT_TOKENS, self.threshold // 4)

    def recent(self, seen: Sequence[Item]) -> list[Item]:
        """The latest items that stay as they are: as many as are wanted, fewer if they are too long. A call stays with its output,
        and reasoning with what it led to."""
        items = [item for item in seen if not stays(item) and item["type"] != "compaction_trigger"]
        count = self.wanted.keep_recent_items
        if count is None:
            count = 0 if self.wanted.strategy == "llm" else len(items)
        room = round(self.threshold * limits.COMPACTION_RECENT_SHARE)
        possible = [0, *cuts(items)]
        wanted = max(cut for cut in possible if cut <= max(0, len(items) - count))
        return next((items[cut:] for cut in possible if cut >= wanted and estimate_items(items[cut:]) <= room), [])

    def gain(self, seen: Sequence[Item]) -> int:
        """How many tokens would go into the notes."""
        recent = self.recent(seen)
        kept = [*(item for item in seen if stays(item)), *latest_of_user(seen, recent, tokens_max=self.user_tokens), *recent]
        return estimate_items(list(seen)) - estimate_items(kept)

    async def carry_out(self, items: Sequence[Item]) -> tuple[Notes, TokenUsage]:
        """Raises :class:`UpstreamError`."""
        read = reader(self.runtime.stores, self.tenant_id)
        seen = visible(items, read)
        recent = tuple(self.recent(seen))
        if self.wanted.strategy == "truncate":
            return Notes(_earlier(items, read), recent, self.user_tokens, is_cut=True), TokenUsage()
        writer = NotesWriter(
            self.runtime.models,
            self.entry if self.wanted.model is None else self.runtime.models.catalog.resolve(self.wanted.model),
            self.wanted.prompt,
            self.instructions,
            self.watch,
        )
        text, usage = await writer.write(seen)
        return Notes(text, recent, self.user_tokens), usage

    def item(self, item_id: str, notes: Notes) -> Item:
        return {
            "id": item_id,
            "type": "compaction",
            "encrypted_content": self.runtime.stores.sealer.seal(self.tenant_id, notes.packed()),
        }


def is_triggered(stored: StoredResponse) -> bool:
    """Whether the request asks for a compaction and nothing else."""
    return bool(stored.input_items) and stored.input_items[-1]["type"] == "compaction_trigger"


async def in_response(
    runtime: Runtime,
    stored: StoredResponse,
    items: Sequence[Item],
    watch: CancelWatch | None,
    begin: Callable[[], str],
    *,
    is_too_long: bool = False,
) -> tuple[Item, TokenUsage] | None:
    """The ``compaction`` item that belongs into a running response before its model is asked, if one does. ``is_too_long`` says that
    the model does not take the prompt as it is. ``begin`` is called if a trigger has notes written: it tells the client, and answers
    the item's id.

    Raises :class:`UpstreamError` only when it was triggered: if it is a precaution, the model is asked anyway.
    """
    if is_triggered(stored) and items[-1]["type"] == "compaction":
        return None  # An earlier run of this step has made it.
    plan = CompactionPlan.of(runtime, stored, watch)
    if not is_triggered(stored) and not _is_due(plan, stored.parameters, items, is_too_long=is_too_long):
        return None
    is_told = is_triggered(stored) and plan.wanted.strategy == "llm"
    item_id = begin() if is_told else ids.new_item_id("cmp", stored.response_id)
    try:
        notes, usage = await plan.carry_out(items)
    except UpstreamError:
        if is_triggered(stored):
            raise
        return None
    return plan.item(item_id, notes), usage


def _is_due(plan: CompactionPlan, parameters: Parameters, items: Sequence[Item], *, is_too_long: bool) -> bool:
    """Over the threshold, and with enough after the last compaction to be worth another."""
    if not parameters.context_management or items[-1]["type"] == "compaction":
        return False
    has_notes = any(item["type"] == "compaction" for item in items)
    seen = visible(items, reader(plan.runtime.stores, plan.tenant_id))
    if not is_too_long:
        frame = estimate_frame(parameters.instructions, parameters.tools)
        if frame + at_most(seen) <= plan.threshold or frame + estimate_items(seen) <= plan.threshold:
            return False
    gain = plan.gain(seen)
    return gain > 0 and (is_too_long or not has_notes or gain * 4 >= plan.threshold)


async def compact(
    runtime: Runtime, tenant_id: str, entry: ModelEntry, items: Sequence[Item], instructions: str | None
) -> tuple[str, list[Item], TokenUsage]:
    """The new response's id, its output items, and the notes' cost. Raises :class:`UpstreamError`."""
    plan = CompactionPlan(runtime, tenant_id, entry, entry.compaction, _threshold({}, entry), instructions)
    notes, usage = await plan.carry_out(items)
    response_id = ids.new_response_id(runtime.clock())
    kept = [
        item | {"id": ids.new_item_id("msg", response_id), "status": "completed"}
        for item in latest_of_user(items, notes.recent, tokens_max=plan.user_tokens)
    ]
    return response_id, [*kept, plan.item(ids.new_item_id("cmp", response_id), notes)], usage


def _earlier(items: Sequence[Item], read: Reader) -> str:
    """The notes that there are already: they outlive a compaction that writes none."""
    found = [notes.text for item in items if item["type"] == "compaction" and (notes := read(item)) is not None]
    return found[-1] if found else ""


def _threshold(asked: dict[str, int], entry: ModelEntry) -> int:
    return asked.get("compact_threshold") or round(entry.context_window_tokens * limits.COMPACTION_WINDOW_SHARE)
