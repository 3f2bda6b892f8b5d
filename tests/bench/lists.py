"""How long a page of the list takes among many responses, and a response as of an event among many:
``python -m tests.bench.lists [--responses 100000] [--events 100000] [--report]``.

With ``--report`` the table is put into ``docs/benchmarks.md``. The records are written straight into the table of a local stack, as
short responses in the foreground are; the pages are asked for over HTTP, as a client does: filters and usage at first, and again when
the reaper has kept what is over. How many requests to the table a page costs is held by tests
(``tests/unit/api/test_response_list.py``, ``test_list_search.py``).
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
from moorage import ids, limits
from moorage.parallel import side_by_side
from moorage.store import keys
from moorage.store.blobs import Blobs
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.responses import Responses, StoredResponse
from moorage.store.sqlite_table import SqliteTable
from moorage.store.table import Record
from moorage.store.table import Table as Records
from moorage.wire.parameters import Parameters

from tests.bench.report import Table, machine, report
from tests.bench.run import ms
from tests.stack import Stack

Row = tuple[str, ...]

_RARE: Final = 1_000
"""Every so-maniest response failed."""
_RARER: Final = 2_000
CONVERSATION: Final = f"conv_{'0' * 48}"
CONTAINER: Final = f"cntr_{'0' * 48}"
_PAGES: Final = 20
_PIECES: Final = 1_000
"""Events of one message of the long log."""
_BATCH: Final = 40
_FOLDS: Final = 5
USAGE: Final = {
    "input_tokens": 900,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 100,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 1_000,
}


class _Collected(SqliteTable):
    """Keeps what would be written."""

    def __init__(self, table: SqliteTable) -> None:
        super().__init__(table.journal)
        self.records: list[Record] = []

    async def write_many(self, puts: Any = (), deletes: Any = ()) -> None:
        self.records += puts


async def fill(table: SqliteTable, blobs: Blobs, count: int, now: int) -> None:
    """Responses that ended in the last days, one a second."""
    collected = _Collected(table)
    responses = Responses(collected, blobs, now_ms=lambda: now * 1000, retention_seconds=limits.RETENTION_SECONDS)
    for number in range(count):
        is_rare = number % _RARER == _RARER // 4
        stored = StoredResponse(
            ids.new_response_id(0),
            "default",
            now - count + number,
            Parameters("demo"),
            {"model": "demo", "metadata": {"team": "docs"} if is_rare else {}, "previous_response_id": None},
            [{"type": "message", "role": "user", "content": f"question {number}"}],
            conversation_id=CONVERSATION if is_rare else None,
            container_id=CONTAINER if is_rare else None,
            expires_at=now + limits.RETENTION_SECONDS,
        )
        status = "failed" if number % _RARE == 0 else "completed"
        response: dict[str, Any] = {"id": stored.response_id, "status": status, "model": "demo", "output": [], "usage": USAGE}
        event = {"type": f"response.{status}", "sequence_number": 0, "response": response}
        await responses.create(stored, EventBatch(0, (event,), LogWriterId(0, 1)))
    parts = [collected.records[start : start + 25] for start in range(0, len(collected.records), 25)]
    await side_by_side(table.write_many, parts, at_once=16)


async def fill_log(table: Records, blobs: Blobs, count: int, now: int) -> str:
    """A response that runs and has said so many events: commands with long output, a message after each, all in pieces."""
    responses = Responses(table, blobs, now_ms=lambda: now * 1000, retention_seconds=limits.RETENTION_SECONDS)
    stored = StoredResponse(
        ids.new_response_id(0), "default", now, Parameters("demo"), {"model": "demo"}, [], expires_at=now + limits.RETENTION_SECONDS
    )
    created: dict[str, Any] = {"id": stored.response_id, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": created}]
    for index in range(max(1, count // _PIECES)):
        item = {"id": f"msg_{index}", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": item},
            {"type": "response.content_part.added", "part": part, **place},
            *({"type": "response.output_text.delta", "delta": "word ", "logprobs": [], **place} for _ in range(_PIECES - 3)),
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    numbered = [event | {"sequence_number": number} for number, event in enumerate(events[:count])]
    batches = [
        EventBatch(start, tuple(numbered[start : start + _BATCH]), LogWriterId(0, 1)) for start in range(0, len(numbered), _BATCH)
    ]
    await responses.create(stored, batches[0])
    await side_by_side(responses.log_of(stored).append, batches[1:], at_once=16)
    return stored.response_id


def timed_at(http: httpx.Client, response_id: str, number: int) -> Row:
    took: list[float] = []
    for _ in range(_FOLDS):
        began = time.perf_counter()
        answer = http.get(f"/responses/{response_id}", params={"at": number})
        took.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    return f"as of event {number:,}", str(_FOLDS), "", ms(statistics.median(took)), ms(max(took))


def timed(http: httpx.Client, name: str, query: Mapping[str, Any], path: str = "/responses", pages: int = _PAGES) -> Row:
    """Follow the pages."""
    took: list[float] = []
    after: dict[str, str] = {}
    shown = 0
    for _ in range(pages):
        began = time.perf_counter()
        answer = http.get(path, params={**query, **after})
        took.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        shown += len(page["data"])
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    return name, str(len(took)), str(shown), ms(statistics.median(took)), ms(max(took))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--report", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    seen_machine = f"{time.strftime('%Y-%m-%d')}, on {machine()}"
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder)).start()
        try:
            rows = list(_measure(stack, options.responses, options.events))
        finally:
            stack.stop()
    note = (
        f"{options.responses:,} responses, one a second, and one response of {options.events:,} events. Over HTTP on a local stack, in "
        f"milliseconds. {seen_machine}"
    )
    table = Table("Lists of many responses", ("", "requests", "rows", "median", "max"), rows, note)
    print(f"\n{table.markdown()}")
    if options.report:
        report([table])


FILTERS: Final[Sequence[tuple[str, Mapping[str, Any]]]] = (
    (f"failed (one in {_RARE:,})", {"status": "failed"}),
    ("no such model", {"model": "none"}),
    (f"a conversation (one in {_RARER:,})", {"conversation": CONVERSATION}),
    (f"a container (one in {_RARER:,})", {"container": CONTAINER}),
    (f"metadata (one in {_RARER:,})", {"metadata[team]": "docs"}),
)


def _measure(stack: Stack, count: int, events: int) -> Iterator[Row]:
    now, executor = int(time.time()), ThreadPoolExecutor(16)
    journal = Journal(stack.state_dir / "store")
    table, blobs = SqliteTable(journal), FileBlobs(journal, executor)
    began = time.perf_counter()
    asyncio.run(fill(table, blobs, count, now))
    long = asyncio.run(fill_log(table, blobs, events, now))
    print(f"{count} responses and {events} events written in {time.perf_counter() - began:.0f} s")
    with stack.http() as http:
        http.get("/models")
        yield timed(http, "newest first, 20 a page", {"limit": 20})
        yield timed(http, "oldest first, 100 a page", {"limit": 100, "order": "asc"})
        yield timed(http, "from the middle", {"limit": 20, "created_before": now - count // 2})
        for name, query in FILTERS:
            yield timed(http, f"{name}, before anything is kept", {"limit": 20, **query})
        yield timed(http, "usage by day, before anything is kept", {}, "/usage", 1)
        for number in (1, events // 2, events - 1):
            yield timed_at(http, long, number)
        began = time.perf_counter()
        asyncio.run(_kept(table))
        print(f"kept after another {time.perf_counter() - began:.0f} s")
        for name, query in FILTERS:
            yield timed(http, name, {"limit": 20, **query})
        for group in ("day", "model", "key", "tool"):
            yield timed(http, f"usage by {group}", {"group_by": group}, "/usage", 1)


async def _kept(table: Records) -> None:
    """Until the reaper wants to look next when an hour is over: it has kept what there was."""
    while True:
        noted = await table.get(keys.usage("default"), keys.USAGE_FOLLOWED)
        if noted is not None and int(noted["GSI1SK"].partition("#")[0]) > time.time() + 2 * limits.USAGE_SETTLED_SECONDS:
            return
        await asyncio.sleep(1)


if __name__ == "__main__":
    main()
