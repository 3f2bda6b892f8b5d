"""How long a page of the list takes among many responses, and a response as of an event among many:
``python -m tests.bench.lists --responses 100000 --events 100000``.

Their records are written straight into the table of a local stack, as short responses in the foreground are; the pages are asked for
over HTTP, as a client does. How many requests to the table a page costs is held by a test (``tests/unit/api/test_response_list.py``).
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import boto3
import httpx
from moorage import ids, limits
from moorage.parallel import side_by_side
from moorage.store.blobs import Blobs
from moorage.store.event_log import Batch, Writer
from moorage.store.responses import Responses, StoredResponse
from moorage.store.table import Record, Table
from moorage.wire.parameters import Parameters

from tests.stack import Stack

_RARE: Final = 1_000
"""Every so-maniest response failed."""
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


class _Collected(Table):
    """Keeps what would be written."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.client, table.name, ThreadPoolExecutor(1))
        self.records: list[Record] = []

    async def write_many(self, puts: Any = (), deletes: Any = ()) -> None:
        self.records += puts


async def fill(table: Table, blobs: Blobs, count: int, now: int) -> None:
    """Responses that ended in the last days, one a second."""
    collected = _Collected(table)
    responses = Responses(collected, blobs, now_ms=lambda: now * 1000, retention_seconds=limits.RETENTION_SECONDS)
    for number in range(count):
        stored = StoredResponse(
            ids.new_response_id(0),
            "default",
            now - count + number,
            Parameters("demo"),
            {"model": "demo", "metadata": {}, "previous_response_id": None},
            [{"type": "message", "role": "user", "content": f"question {number}"}],
            expires_at=now + limits.RETENTION_SECONDS,
        )
        status = "failed" if number % _RARE == 0 else "completed"
        response: dict[str, Any] = {"id": stored.response_id, "status": status, "model": "demo", "output": [], "usage": USAGE}
        event = {"type": f"response.{status}", "sequence_number": 0, "response": response}
        await responses.create(stored, Batch(0, (event,), Writer(0, 1)))
    parts = [collected.records[start : start + 25] for start in range(0, len(collected.records), 25)]
    await side_by_side(table.write_many, parts, at_once=16)


async def fill_log(table: Table, blobs: Blobs, count: int, now: int) -> str:
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
    batches = [Batch(start, tuple(numbered[start : start + _BATCH]), Writer(0, 1)) for start in range(0, len(numbered), _BATCH)]
    await responses.create(stored, batches[0])
    await side_by_side(responses.log_of(stored).append, batches[1:], at_once=16)
    return stored.response_id


def timed_at(http: httpx.Client, response_id: str, number: int) -> None:
    took: list[float] = []
    for _ in range(_FOLDS):
        began = time.perf_counter()
        answer = http.get(f"/responses/{response_id}", params={"at": number})
        took.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    print(f"as of event {number:32} {_FOLDS:3} times  median {1000 * statistics.median(took):9.1f} ms  max {1000 * max(took):7.1f} ms")


def timed(http: httpx.Client, name: str, query: Mapping[str, Any], path: str = "/responses", pages: int = _PAGES) -> None:
    """Follow the pages, and tell the median and the longest."""
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
    median, longest = 1000 * statistics.median(took), 1000 * max(took)
    print(f"{name:44} {len(took):3} pages  {shown:5} rows  median {median:7.1f} ms  max {longest:7.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder)).start()
        try:
            _measure(stack, options.responses, options.events)
        finally:
            stack.stop()


def _measure(stack: Stack, count: int, events: int) -> None:
    now, executor = int(time.time()), ThreadPoolExecutor(16)
    aws = stack.aws()
    table = Table(boto3.client("dynamodb", **aws), "moorage", executor)
    began = time.perf_counter()
    asyncio.run(fill(table, Blobs(boto3.client("s3", **aws), "moorage", executor), count, now))
    long = asyncio.run(fill_log(table, Blobs(boto3.client("s3", **aws), "moorage", executor), events, now))
    print(f"{count} responses and {events} events written in {time.perf_counter() - began:.0f} s")
    with stack.http() as http:
        http.get("/models")
        timed(http, "newest first, 20 a page", {"limit": 20})
        timed(http, "oldest first, 100 a page", {"limit": 100, "order": "asc"})
        timed(http, "from the middle", {"limit": 20, "created_before": now - count // 2})
        timed(http, f"failed (one in {_RARE}), 20 a page", {"limit": 20, "status": "failed"})
        timed(http, "no such model", {"limit": 20, "model": "none"})
        timed(http, "usage by day, added up", {}, "/usage", 1)
        timed(http, "usage by day, added up by hours", {}, "/usage", 1)
        for number in (1, events // 2, events - 1):
            timed_at(http, long, number)
        time.sleep(limits.USAGE_SETTLED_SECONDS + 1)
        timed(http, "usage by day, added up and kept", {}, "/usage", 1)
        timed(http, "usage by day, what was kept", {}, "/usage", 1)


if __name__ == "__main__":
    main()
