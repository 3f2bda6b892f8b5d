"""``GET /v1/responses``: the responses of a tenant, newest first. An extension of ours, in the envelope of OpenAI's lists.

A page costs one query of the index, another of what runs, and one read of the responses that it shows; filters look at the index alone
(``store/response_list.py``), and of a long list only if it may have what they want (``store/list_search.py``).
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import field, replace
from typing import Annotated, Any, Final

from fastapi import Request
from starlette.responses import Response

from moorage import limits
from moorage.api.answers import JsonResponse
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.dataclass import dataclass
from moorage.errors import ApiError, upgrade_required
from moorage.loop import recover
from moorage.loop.waiting import wait_of
from moorage.model.prices import usd
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.store.list_search import ListSearch
from moorage.store.response_list import ListedResponse, ListFilter, ListRange, ResponseRow, tags_of
from moorage.store.responses import Ancestor, Snapshot
from moorage.store.usage_sums import UsageSums
from moorage.wire.answers import ListOf
from moorage.wire.events import QUEUED
from moorage.wire.operator_answers import ResponseSummary
from moorage.wire.queries import ResponsesPage

router = Router()

_RUNNING: Final = frozenset({"queued", "in_progress"})


@router.get(
    "/responses",
    "listResponses",
    "The responses, newest first; with an upgrade a WebSocket, and 426 where none can pass",
    answers=ListOf[ResponseSummary],
    statuses=(101, 426),
)
async def list_responses(request: Request, caller: Caller, wanted: Annotated[ResponsesPage, query_of(ResponsesPage)]) -> Response:
    if _is_handshake(request):
        raise upgrade_required()
    return JsonResponse(await ResponseListing(caller.runtime, caller.tenant_id, wanted).read())


def _is_handshake(request: Request) -> bool:
    """What arrives here is no WebSocket, but may have been meant as one: something on the way cannot carry it. Codex goes on over HTTP
    at once after a 426, and after several seconds of retries otherwise. API Gateway takes ``Upgrade`` away and leaves the others."""
    headers = request.headers
    return "upgrade" in headers or "sec-websocket-key" in headers or "websocket" in headers.get("openai-beta", "")


@dataclass(slots=True)
class ResponseListing:
    """One page."""

    runtime: Runtime
    tenant_id: str
    wanted: ResponsesPage
    _read: int = 0
    """Responses that were read."""
    _last: str | None = None
    """Id of the last response that was looked at."""
    _has_more: bool = False
    _is_cut: bool = False
    """There may be more, and this page has looked at enough."""
    _read_bytes: int = 0
    """Of JSON, of the responses that were read."""
    _shown: list[dict[str, Any]] = field(default_factory=list)

    async def read(self) -> dict[str, Any]:
        async with aclosing(self._groups()) as groups:
            async for entries in groups:
                await self._show(entries)
                if self._has_more or self._is_cut:
                    break
        is_short = self._is_cut and not self._has_more
        shown = self._shown
        return {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            # Of a page that ended early it is the place to go on from, which need not be one of its own.
            "last_id": self._last if is_short else shown[-1]["id"] if shown else None,
            "has_more": self._has_more or is_short,
        }

    async def _show(self, entries: Sequence[ListedResponse]) -> None:
        """Add those of them that are wanted, as far as the page takes them."""
        size = self.wanted.limit + 1
        for start in range(0, len(entries), size):
            if self._read >= limits.LIST_READ_RESPONSES_MAX:
                self._is_cut = True
                return
            part = entries[start : start + size]
            self._read += len(part)
            for entry, shown, is_read in await self._summaries(part):
                if not is_read:
                    self._is_cut = True
                    return
                if shown is not None:
                    if len(self._shown) == self.wanted.limit:
                        self._has_more = True
                        return
                    self._shown.append(shown)
                self._last = entry.response_id

    async def _groups(self) -> AsyncGenerator[list[ListedResponse], None]:
        """Entries that may be wanted, in order and without repeats, a group at a time."""
        descending = self.wanted.order == "desc"
        after = None
        if self.wanted.after is not None:
            after = await self.runtime.stores.response_list.place(self.tenant_id, self.wanted.after)
        part = ListRange(after, descending, self.wanted.created_after, self.wanted.created_before)
        running = [entry for entry in await self.runtime.stores.response_list.running(self.tenant_id) if part.holds(entry.place)]
        if self.wanted.statuses and self.wanted.statuses <= _RUNNING:
            young = int(self.runtime.clock()) - limits.LIST_FOREGROUND_SECONDS
            part = replace(part, created_from=max(young, part.created_from or 0))
        search = self._search(part)
        async with aclosing(search.parts(self.wanted.limit + 1)) as parts:
            async for entries, reached in parts:
                between = [entry for entry in running if reached is None or _is_reached(entry.place, reached, descending)]
                running = [entry for entry in running if entry not in between]
                candidates = _in_order([*entries, *between], descending)
                matching = [entry for entry in candidates if self._may_be_wanted(entry, search.sought)]
                if matching:
                    yield matching
                if candidates:
                    self._last = candidates[-1].response_id
        self._is_cut |= search.is_cut

    def _search(self, part: ListRange) -> ListSearch:
        runtime, retention_seconds = self.runtime, self.runtime.settings.retention_seconds
        kept = UsageSums(runtime.stores.table, self.tenant_id, retention_seconds=retention_seconds)
        now = int(runtime.clock())
        return ListSearch(runtime.stores.response_list, kept, self.tenant_id, part, self._sought, now, reach_seconds=retention_seconds)

    def _may_be_wanted(self, entry: ListedResponse, sought: ListFilter) -> bool:
        """As far as the index tells."""
        if entry.row is None:
            return not self.wanted.statuses or bool(self.wanted.statuses & _RUNNING)
        return sought.admits(entry.row.traits)

    @property
    def _sought(self) -> ListFilter:
        wanted = self.wanted
        return ListFilter(
            wanted.statuses,
            wanted.model[: limits.LISTED_MODEL_CHARS_MAX],
            wanted.key,
            wanted.conversation,
            wanted.container,
            tags_of(self.tenant_id, wanted.metadata),
            wanted.has_container,
        )

    async def _summaries(self, entries: Sequence[ListedResponse]) -> list[tuple[ListedResponse, dict[str, Any] | None, bool]]:
        """What is shown of each; None for one that is not wanted, or has gone. The responses themselves are let go at once. The last
        ones are not read where those before them have so many bytes as one page reads."""
        links = [Ancestor(entry.response_id, entry.final_number) for entry in entries if entry.row is not None]
        ended = await self.runtime.stores.responses.readers(self.tenant_id, links, self._of_ended)

        async def one(entry: ListedResponse) -> tuple[ListedResponse, dict[str, Any] | None, bool]:
            if self._read_bytes >= limits.PAGE_BYTES_MAX:
                return entry, None, False
            shown, size = None, 0
            if entry.row is None:
                shown, size = await self._of_running(entry)
            elif entry.response_id in ended:
                shown, size = await ended[entry.response_id]()
            self._read_bytes += size
            return entry, shown, True

        return await side_by_side(one, entries, at_once=limits.RECORDS_UNPACKED_AT_ONCE)

    def _of_ended(self, snapshot: Snapshot) -> tuple[dict[str, Any] | None, int]:
        shown = summary(snapshot) | {"waiting_for": None} if self._is_wanted(snapshot) else None
        return shown, snapshot.size_bytes

    async def _of_running(self, entry: ListedResponse) -> tuple[dict[str, Any] | None, int]:
        try:
            snapshot = await self.runtime.stores.responses.snapshot(self.tenant_id, entry.response_id)
        except ApiError:
            return None, 0
        size = snapshot.size_bytes
        if not snapshot.stored.is_stored:
            return None, size
        snapshot = await recover.declare_lost(self.runtime, snapshot)
        return await self._summary(snapshot) if self._is_wanted(snapshot) else None, size

    def _is_wanted(self, snapshot: Snapshot) -> bool:
        """As far as the response itself tells."""
        wanted, stored = self.wanted, snapshot.stored
        metadata = stored.echo.get("metadata") or {}
        return (
            stored.expires_at > self.runtime.clock()
            and (not wanted.statuses or status_of(snapshot) in wanted.statuses)
            and _agrees(stored.parameters.model, wanted.model)
            and _agrees(stored.key_id, wanted.key)
            and _agrees(stored.conversation_id, wanted.conversation)
            and _agrees(stored.container_id, wanted.container)
            and wanted.has_container in (None, stored.container_id is not None)
            and all(metadata.get(name) == value for name, value in wanted.metadata.items())
        )

    async def _summary(self, snapshot: Snapshot) -> dict[str, Any]:
        stored, wait = snapshot.stored, None
        if not snapshot.is_final:
            wait = wait_of(snapshot, await self.runtime.stores.steps.accounts(stored.tenant_id, stored.response_id))
        return summary(snapshot) | {"waiting_for": None if wait is None else wait.to_json(self.runtime.command)}


def _agrees(value: str | None, wanted: str) -> bool:
    return not wanted or value == wanted


def _is_reached(place: str, end: str, descending: bool) -> bool:
    return place >= end if descending else place <= end


def _in_order(entries: Sequence[ListedResponse], descending: bool) -> list[ListedResponse]:
    """Each response once, as one that has ended if it has."""
    best: dict[str, ListedResponse] = {}
    for entry in entries:
        if entry.response_id not in best or entry.row is not None:
            best[entry.response_id] = entry
    return sorted(best.values(), key=lambda entry: entry.place, reverse=descending)


def status_of(snapshot: Snapshot) -> str:
    if snapshot.is_final:
        return str(snapshot.final_object["status"])
    is_queued = snapshot.last is not None and snapshot.last.events[-1]["type"] == QUEUED
    return "queued" if is_queued else "in_progress"


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """A response in a list: without its output, and with an operator's first questions answered."""
    stored = snapshot.stored
    final = snapshot.final_object if snapshot.is_final else {}
    row = None
    if final:
        row = ResponseRow.of(
            final, key_id=stored.key_id, conversation_id=stored.conversation_id, container_id=stored.container_id, tags=""
        )
    return {
        "id": stored.response_id,
        "object": "response.summary",
        "created_at": stored.created_at,
        "ended_at": snapshot.last.at_ms // 1000 if final and snapshot.last is not None else None,
        "status": status_of(snapshot),
        "model": stored.parameters.model,
        "background": stored.is_background,
        "metadata": stored.echo.get("metadata") or {},
        "previous_response_id": stored.echo.get("previous_response_id"),
        "forked_from": stored.forked_from,
        "conversation": None if stored.conversation_id is None else {"id": stored.conversation_id},
        "container_id": stored.container_id,
        "session_id": stored.session_id,
        "key_id": stored.key_id or None,
        "input_preview": first_words(stored.input_items),
        "output_preview": first_words_of_answer(final["output"]) if final else None,
        "tool_calls": None if row is None else dict(row.tools),
        "usage": final.get("usage"),
        "cost_usd": None if row is None or row.nanodollars is None else usd(row.nanodollars),
        "error": final.get("error"),
        "incomplete_details": final.get("incomplete_details"),
    }


def first_words(items: Sequence[dict[str, Any]]) -> str:
    """The beginning of the user's last message."""
    for item in reversed(items):
        if item.get("type", "message") == "message" and item.get("role") == "user":
            content = item["content"]
            texts = [content] if isinstance(content, str) else [part["text"] for part in content if part.get("type") == "input_text"]
            return _preview(texts)
    return ""


def first_words_of_answer(output: Sequence[dict[str, Any]]) -> str:
    """The beginning of the last message; empty if nothing was answered."""
    for item in reversed(output):
        if item["type"] == "message":
            return _preview([part.get("text") or part.get("refusal") or "" for part in item.get("content", ())])
    return ""


def _preview(texts: Sequence[str]) -> str:
    words = " ".join(texts).lstrip()[: limits.LISTED_PREVIEW_READ_CHARS].split()
    return " ".join(words)[: limits.LISTED_PREVIEW_CHARS]
