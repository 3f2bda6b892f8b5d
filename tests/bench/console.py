"""How quick the console is: ``python -m tests.bench.console``.

Chromium shows the pages as they are served, from an API that answers at once and streams a response of 20,000 events at 500 a second.
What is measured is the page alone: no model, no sandbox and no table has a part in it. Times are those of the machine: use a quiet one.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request
from moorage.api.console import Console as Pages
from playwright.sync_api import Browser, Page
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.browser import WHOLE, Console, chromium, context_of, long_log, page_of, skip_without

_EVENTS: Final = 20_000
_A_SECOND: Final = 500
_BURST: Final = 10
_VISITS: Final = 7
_SEEKS: Final = 60
_KEY: Final = "sk-moorage-bench"
_ROW: Final = {
    "object": "response.summary",
    "status": "completed",
    "model": "demo",
    "input_preview": "How many rows has the table?",
    "tool_calls": {"shell": 3},
    "usage": {"input_tokens": 900, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 100},
    "cost_usd": 0.01,
    "waiting_for": None,
    "error": None,
    "incomplete_details": None,
    "container_id": None,
    "metadata": {},
    "created_at": 1_800_000_000,
    "ended_at": 1_800_000_004,
}
_FRAMES: Final = """() => {
    window.frames_ = [];
    const look = (at) => { window.frames_.push(at); requestAnimationFrame(look); };
    requestAnimationFrame(look);
}"""
_SEEK: Final = """async (numbers) => {
    const took = [];
    for (const number of numbers) {
        const begun = performance.now();
        history.replaceState(null, "", location.hash.split("?")[0] + "?at=" + number);
        dispatchEvent(new HashChangeEvent("hashchange"));
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        took.push(performance.now() - begun);
    }
    return took;
}"""


@dataclass(frozen=True)
class Measure:
    name: str
    found: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def is_met(self) -> bool:
        return (self.most is None or self.found <= self.most) and (self.least is None or self.found >= self.least)

    def __str__(self) -> str:
        bound = f"≤ {self.most:,g}" if self.most is not None else f"≥ {self.least:,g}" if self.least is not None else ""
        return f"| {self.name} | {self.found:,.1f} {self.unit} | {bound} | {'met' if self.is_met else 'MISSED'} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=_EVENTS)
    options = parser.parse_args()
    if reason := skip_without(WHOLE):
        sys.stderr.write(f"Not measured: {reason}\n")
        return 1
    log = long_log(options.events)
    with serving(log) as base, chromium(WHOLE) as browser:
        measures = [*first_visit(browser, base), *live(browser, base, log)]
    print("| measure | found | bound | |\n|---|---:|---:|---|")
    print(*measures, sep="\n")
    return 0 if all(each.is_met for each in measures) else 1


# --- what is asked ---


@contextmanager
def serving(log: list[dict[str, Any]]) -> Iterator[str]:
    """The console beside an API of what a page of it asks for."""
    server = uvicorn.Server(uvicorn.Config(_app(log), port=0, log_level="warning", access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/console/"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)


def _app(log: list[dict[str, Any]]) -> FastAPI:
    app = FastAPI()
    Pages.beside_the_package().add_to(app)
    nothing = json.loads(page_of([]))
    rows = [_ROW | {"id": f"resp_{number:032x}"} for number in range(50)]
    key = {"id": "key_1", "name": "bench", "scope": "all", "created_at": 1, "expires_at": None}
    answers = {
        "me": {"tenant": "bench", "version": "0", "key": key, "limits": {}, "prices": []},
        "models": json.loads(page_of([{"id": "gpt-5"}])),
        "responses": json.loads(page_of(rows)),
        "usage": {"object": "list", "data": []},
        "responses/resp_long": log[0]["response"],
    }

    async def answer(request: Request, path: str) -> Response:
        if request.query_params.get("stream") == "true":
            after = int(request.query_params.get("starting_after", "-1"))
            return StreamingResponse(_paced(log[after + 1 :]), media_type="text/event-stream")
        return JSONResponse(answers.get(path, nothing))

    app.add_api_route("/v1/{path:path}", answer, methods=["GET"])
    return app


async def _paced(events: list[dict[str, Any]]) -> AsyncIterator[str]:
    begun = time.monotonic()
    for start in range(0, len(events), _BURST):
        await asyncio.sleep(max(0.0, begun + start / _A_SECOND - time.monotonic()))
        yield "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events[start : start + _BURST])


# --- what is measured ---


def first_visit(browser: Browser, base: str) -> list[Measure]:
    paints, lists, sizes = [], [], []
    for _ in range(_VISITS):
        page = _page(browser)
        page.goto(base + "#/runs")
        page.get_by_role("row").nth(10).wait_for()
        found = page.evaluate(
            "() => ({ paint: performance.getEntriesByName('first-contentful-paint')[0].startTime, list: performance.now(),"
            " size: performance.getEntriesByType('resource').filter((each) => each.name.includes('/console/')).reduce("
            " (sum, each) => sum + each.encodedBodySize, performance.getEntriesByType('navigation')[0].encodedBodySize) })"
        )
        paints.append(found["paint"])
        lists.append(found["list"])
        sizes.append(found["size"] / 1000)
        page.context.close()
    return [
        Measure("first paint, cold cache, median", statistics.median(paints), "ms", most=300),
        Measure("first fifty runs in the page, cold cache, median", statistics.median(lists), "ms"),
        Measure("first visit, packed", max(sizes), "kB", most=100),
    ]


def live(browser: Browser, base: str, log: list[dict[str, Any]]) -> list[Measure]:
    page = _page(browser)
    page.goto(base + "#/runs/resp_long?tab=events")
    tab = Console(page, base)
    page.get_by_role("slider").wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate(_FRAMES)
    before, begun = _busy(session), time.monotonic()
    nodes = heap = 0
    bound = begun + 3 * len(log) / _A_SECOND + 60
    while (reached := int(page.get_by_role("slider").get_attribute("aria-valuemax") or 0)) < len(log) - 1:
        assert time.monotonic() < bound, f"The page has reached event {reached} of {len(log)}."
        nodes = max(nodes, tab.nodes())
        page.wait_for_timeout(500)
    took, busy = time.monotonic() - begun, _busy(session) - before
    frames = page.evaluate("() => window.frames_")
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(frames))
    heap = tab.heap_bytes()
    seeks = sorted(page.evaluate(_SEEK, [(number * 7919) % len(log) for number in range(_SEEKS)]))
    page.context.close()
    return [
        Measure("events a second that the page kept up with", len(log) / took, "", least=0.95 * _A_SECOND),
        Measure("frames a second meanwhile", len(gaps) / (sum(gaps) / 1000), "", least=57),
        Measure("frames later than 33 ms", 100 * sum(gap > 33.4 for gap in gaps) / len(gaps), "%", most=2),
        Measure("longest frame", gaps[-1], "ms"),
        Measure("main thread busy", 100 * busy / took, "%"),
        Measure("elements, at most", nodes, "", most=2000),
        Measure("memory at the end", heap / 1024 / 1024, "MiB", most=150),
        Measure("from a place of the cursor to its frame, median", statistics.median(seeks), "ms"),
        Measure("the slowest of them", seeks[-1], "ms"),
    ]


def _page(browser: Browser) -> Page:
    page = context_of(browser).new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(f"sessionStorage.setItem('moorage.key', '{_KEY}')")
    return page


def _busy(session: Any) -> float:
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


if __name__ == "__main__":
    sys.exit(main())
