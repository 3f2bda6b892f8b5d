"""Every bounded input at its bound, and a neighbour who asks meanwhile: one tenant's request never takes the API from the others.

The inputs stand in ``bounded_requests.py`` and ``bounded_stories.py``. Turns of the API's event loop, and a neighbour's wait, are
counted in processor time of the loop's thread, because a busy machine lets everybody wait. Of many requests at once it is that of all
threads of the API, for the loop waits while another one has the interpreter. ``pytest -rP`` shows the longest turn of each case.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from moorage.local.logs import API
from moorage.local.turn_meter import VARIABLE

from tests.mcp_servers import LOOPBACK, Odd, beside, serving
from tests.scenarios.bounded_requests import NETWORK_DOMAIN, REQUESTS, Bounds, Share
from tests.scenarios.bounded_stories import STORIES, Site, Story
from tests.scenarios.test_tenants import make_key
from tests.stack import Stack
from tests.upstream import MockUpstream

_NEIGHBOUR_SECONDS_MAX = 1.0
_TURN_MS_MAX = 50.0
"""On two processors that others keep busy the longest piece took 40 ms."""
_COLLECTING_MS_MAX = 200.0
"""Of the garbage collector in one turn. It looks at all that is alive in one piece, whichever request it comes upon."""
_TURN_MS_TOLD = 20
_NEIGHBOUR_REST_SECONDS = 0.02
_GROWTH_MAX = 3.0
"""Of processor time, where the input is twice as large: linear work takes twice the time, quadratic work four times."""
_SECONDS_LEAST = 0.2
"""What takes less is compared with this: the kernel counts in hundredths of a second."""
_AGAIN_MAX = 4
_CROWD = 24
"""Requests of one tenant at once."""
_CROWD_BYTES = 28 * 1024 * 1024
_NEIGHBOUR_TEXT = "a " * 150_000
"""Of a neighbour's request that has its own turn on a thread."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    state_dir = Path(tmp_path_factory.mktemp("site"))
    models, odd = state_dir / "models.toml", Odd()
    with MockUpstream(records=False) as upstream, beside(lambda: serving(odd)) as running:
        models.write_text(
            f'[[models]]\nname = "served"\nprovider = "chat_completions"\nbase_url = "{upstream.url}"\n'
            'context_window_tokens = 8_000_000\n[[models]]\nname = "demo"\nprovider = "demo"\n'
        )
        settings = {
            "MOORAGE_MODELS_FILE": str(models),
            VARIABLE: str(_TURN_MS_TOLD),
            "MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK),
            "MOORAGE_ALLOWED_EGRESS_DOMAINS": f"*.{NETWORK_DOMAIN}",
        }
        stack = Stack(state_dir / "state", settings).start()
        try:
            with stack.http() as http:
                assert http.get("/models").status_code == 200  # The turn in which the stack started has ended.
            yield Site(stack, upstream, odd, f"{running.url}/mcp")
        finally:
            stack.stop()


@dataclass(frozen=True)
class Measured:
    """Seconds of processor time: of the API for the whole, and of its loop for the neighbour's slowest answer."""

    whole_seconds: float
    slowest_seconds: float
    longest_turn: dict[str, Any]
    """Of the loop, as the log tells it."""

    @property
    def is_bounded(self) -> bool:
        collecting_ms = self.longest_turn["collecting_ms"]
        is_short = self.longest_turn["ms"] - collecting_ms < _TURN_MS_MAX and collecting_ms < _COLLECTING_MS_MAX
        return self.slowest_seconds < _NEIGHBOUR_SECONDS_MAX and is_short


@contextmanager
def neighbour(stack: Stack) -> Iterator[list[float]]:
    """Seconds of processor time that the loop had from each of its requests to its answer."""
    took: list[float] = []
    ending = threading.Event()

    def ask() -> None:
        with stack.http() as http:
            while not (ending.is_set() and took):  # a request may be refused before this has asked once
                begun = loop_seconds(stack)
                assert http.get("/models", timeout=120).status_code == 200
                took.append(loop_seconds(stack) - begun)
                ending.wait(_NEIGHBOUR_REST_SECONDS)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        ending.set()
        thread.join()


def loop_seconds(stack: Stack) -> float:
    """Processor time so far of the thread of the API's event loop, which is the process's first one (``proc(5)``)."""
    assert stack.process is not None
    return int(Path(f"/proc/{stack.process.pid}/schedstat").read_text().split()[0]) / 1e9


def processor_seconds(stack: Stack) -> float:
    """The same of all its threads."""
    assert stack.process is not None
    fields = Path(f"/proc/{stack.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def long_turns(stack: Stack) -> Iterator[list[dict[str, Any]]]:
    """The loop's turns of that time that took long, the longest first; there when the block ends."""
    path, found = stack.state_dir / API, list[dict[str, Any]]()
    begins = path.stat().st_size if path.exists() else 0
    yield found
    with path.open("rb") as log:
        log.seek(begins)
        lines = [json.loads(line) for line in log]
    found += sorted((line for line in lines if line.get("message") == "loop_turn"), key=lambda line: -line["ms"])


def watched(site: Site, play: Callable[[Bounds], Any]) -> None:
    """Play it with a neighbour beside it. What takes long is played by half, which must take about half the work.

    A second measurement is taken where the first one is too large, for processors are shared: what is slow by itself is so each time.
    """
    measured = _beside_a_neighbour(site, play)
    whole = measured.whole_seconds
    for _ in range(_AGAIN_MAX):
        if not measured.is_bounded:
            measured = _beside_a_neighbour(site, play)
    assert measured.is_bounded, measured
    if whole < _GROWTH_MAX * _SECONDS_LEAST:
        return
    half = _worked(site, play, 0.5)
    for _ in range(_AGAIN_MAX):
        if whole >= _GROWTH_MAX * half:
            whole, half = min(whole, _worked(site, play, 1.0)), max(half, _worked(site, play, 0.5))
    assert whole < _GROWTH_MAX * half, f"{half:.2f} s for half of it, {whole:.2f} s for all"


def _beside_a_neighbour(site: Site, play: Callable[[Bounds], Any]) -> Measured:
    before = processor_seconds(site.stack)
    with long_turns(site.stack) as turns, neighbour(site.stack) as took:
        play(Share())
    longest = turns[0] if turns else {"ms": 0.0, "collecting_ms": 0.0}
    print("the longest turn:", longest["ms"], "ms, the collector's part", longest.get("collecting_ms"), "at", longest.get("where"))
    return Measured(processor_seconds(site.stack) - before, max(took), longest)


def _worked(site: Site, play: Callable[[Bounds], Any], part: float) -> float:
    before = processor_seconds(site.stack)
    play(Share(part))
    return max(processor_seconds(site.stack) - before, _SECONDS_LEAST)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_at_its_bound_does_not_take_the_api_from_others(site: Site, name: str) -> None:
    def play(at: Bounds) -> None:
        answer = site.post("/responses", {"model": "demo", **REQUESTS[name](at)})
        assert answer.status_code in (200, 400, 404, 413), answer.text[:2_000]

    watched(site, play)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_else_is_at_its_bound_does_not_take_the_api_from_others(site: Site, story: Story) -> None:
    def play(at: Bounds) -> None:
        site.upstream.forget()
        story(at, site)

    watched(site, play)


@pytest.mark.parametrize("items", [4, 9_000], ids=["of four texts", "of many items"])
def test_a_crowd_of_large_requests_leaves_others_their_turn(site: Site, items: int) -> None:
    """Whoever sends them is told of too many at once, and another tenant's requests are answered as ever."""
    said = [{"role": "user", "content": "a" * (_CROWD_BYTES // items)}] * items
    body = json.dumps({"model": "demo", "input": said}).encode()
    key = make_key(site.stack, f"neighbour-{items}")
    took: dict[str, list[float]] = {}
    for _ in range(_AGAIN_MAX + 1):
        statuses, took = _crowded(site.stack, body, key)
        assert statuses <= {400, 429, None}  # It is too long for the model, or one too many; None: the answer was lost for it.
        if max(map(max, took.values())) < _NEIGHBOUR_SECONDS_MAX:
            return
    raise AssertionError({name: max(seconds) for name, seconds in took.items()})


def _crowded(stack: Stack, body: bytes, key: str) -> tuple[set[int | None], dict[str, list[float]]]:
    """What became of the crowd's requests, and what each of the neighbour's took: processor time of all of the API's threads."""
    statuses: set[int | None] = set()
    crowd = [threading.Thread(target=lambda: statuses.add(_sent(stack, body))) for _ in range(_CROWD)]
    wanted: dict[str, Callable[[httpx.Client], httpx.Response]] = {
        "models": lambda http: http.get("/models"),
        "a short request": lambda http: http.post("/responses", json={"model": "demo", "input": "hi"}),
        "a longer request": lambda http: http.post("/responses", json={"model": "demo", "input": _NEIGHBOUR_TEXT}),
    }
    took: dict[str, list[float]] = {name: [] for name in wanted}
    waited = 0.0

    def ask(name: str) -> None:
        nonlocal waited
        with stack.http(key) as http:
            while any(one.is_alive() for one in crowd):
                begun, since = processor_seconds(stack), time.monotonic()
                assert wanted[name](http).status_code == 200
                took[name].append(processor_seconds(stack) - begun)
                waited = max(waited, time.monotonic() - since)
                time.sleep(_NEIGHBOUR_REST_SECONDS)

    neighbours = [threading.Thread(target=ask, args=(name,)) for name in wanted]
    for one in [*crowd, *neighbours]:
        one.start()
    for one in [*crowd, *neighbours]:
        one.join()
    print("the longest wait:", round(waited, 2), "s;", {name: max(seconds) for name, seconds in took.items()})
    return statuses, took


def _sent(stack: Stack, body: bytes) -> int | None:
    """The status of its answer. It is sent as the kernel takes it: a client that works on it would keep the neighbours from asking."""
    at = urlsplit(stack.url)
    assert at.hostname is not None
    assert at.port is not None
    head = (
        f"POST {at.path}/responses HTTP/1.1\r\nhost: {at.netloc}\r\nauthorization: Bearer {stack.key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    try:
        with socket.create_connection((at.hostname, at.port)) as connection:
            connection.sendall(head.encode())
            connection.sendall(body)
            return int(connection.recv(65_536).split()[1])
    except (OSError, IndexError):
        return None  # An answer that comes before the body has been sent ends the connection.
