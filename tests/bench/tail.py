"""How long an event takes from the log to a client that follows it."""

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from moorage import ids
from moorage.store.bell import BELL, Bell
from moorage.store.event_log import LogWriter, LogWriterId
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.responses import Responses, StoredResponse
from moorage.store.sqlite_table import SqliteTable
from moorage.wire.parameters import Parameters

from tests.stack import Stack

_EVENTS = 60


async def tail_latencies(running: Stack) -> list[float]:
    """Seconds for each of so many events, written by this process and read over SSE."""
    journal = Journal(running.state_dir / "store")
    table, blobs = SqliteTable(journal), FileBlobs(journal, ThreadPoolExecutor(4))
    bell = Bell(running.state_dir / BELL)
    responses = Responses(table, blobs, now_ms=lambda: int(time.time() * 1000), retention_seconds=3600, bell=bell)
    now = int(time.time())
    stored = StoredResponse(
        ids.new_response_id(0), "default", now, Parameters("demo"), {}, [], is_background=True, is_streamed=True, expires_at=now + 3600
    )
    await responses.create(stored)
    writer = LogWriter(responses.log_of(stored), LogWriterId(0, 1), 0)
    written: dict[int, float] = {}
    seen: dict[int, float] = {}
    reading = asyncio.create_task(_read(running, stored.response_id, seen))
    chance = random.Random(1)
    for number in range(_EVENTS):
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        writer.add({"type": "response.output_text.delta", "delta": f"{number}"})
        await writer.flush()
        written[number] = time.perf_counter()
    writer.add({"type": "response.completed", "response": {"status": "completed", "output": []}})
    await writer.flush()
    await reading
    return [max(0.0, seen[number] - written[number]) for number in range(_EVENTS)]


async def _read(running: Stack, response_id: str, seen: dict[int, float]) -> None:
    headers = {"authorization": f"Bearer {running.key}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as client,
        client.stream("GET", f"{running.url}/responses/{response_id}", params={"stream": "true"}) as answer,
    ):
        assert answer.is_success, (await answer.aread()).decode()
        number = 0
        async for line in answer.aiter_lines():
            if line == "event: response.output_text.delta":
                seen[number] = time.perf_counter()
                number += 1
