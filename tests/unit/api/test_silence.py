"""What a client without a stream sees while its model says nothing, told by a clock that is only counted."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from moorage.api.answers import StreamedResponse
from moorage.api.responses import CreateAnswer
from moorage.settings import Settings

from tests.simulation.clock import run

ENDED = {"status": "completed", "output": []}


class SlowRun:
    """Ends after 60 seconds."""

    async def final(self) -> dict[str, Any]:
        await asyncio.sleep(60)
        return ENDED


class Unchanged:
    async def response(self, response: dict[str, Any]) -> dict[str, Any]:
        return response


async def connected() -> Any:
    """A client that waits."""
    await asyncio.sleep(1_000)


def test_unless_told_otherwise_white_space_comes_after_25_seconds() -> None:
    """Some proxies hang up after 30."""

    async def story() -> None:
        stores = SimpleNamespace(contents_of=lambda tenant_id, include: Unchanged())
        runtime = SimpleNamespace(settings=Settings("table", "bucket"), stores=stores)
        stored = SimpleNamespace(tenant_id="t", response_id="resp_1")
        answer = CreateAnswer(cast("Any", runtime), cast("Any", stored), cast("Any", SlowRun()), lambda shown: shown, {}, connected)
        response = await answer.give()
        assert isinstance(response, StreamedResponse)
        loop = asyncio.get_running_loop()
        sent: list[tuple[float, bytes]] = []

        async def send(message: Any) -> None:
            if message.get("body"):
                sent.append((round(loop.time()), message["body"]))

        await response({"type": "http"}, connected, send)
        assert sent == [(25, b" "), (40, b" "), (55, b" "), (60, b'{"status":"completed","output":[]}')]

    run(story())
