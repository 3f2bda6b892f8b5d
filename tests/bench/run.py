"""``make bench``: what moorage adds to a request, measured on this machine. ``make cost`` counts what a request costs on AWS.

Starts a mock model upstream (50 deltas, no delay) and the embedded stack in front of it, each as a process of its own, measures, prints
tables and writes ``docs/benchmarks.md``. After ``make bench-peers`` the gateways that it installed are measured in the same run.
``make bench BEFORE=tree`` measures the moorage of another clone (one that ``make setup-dev`` has set up) in the same run.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from moorage import limits

from tests.bench import bench_computer
from tests.bench.load import Endpoint, Load, alone, load
from tests.bench.peers import PEERS, Peer
from tests.bench.report import REPORT, Table, machine, report
from tests.bench.starting import starts
from tests.bench.tail import tail_latencies
from tests.stack import Stack, say, script, shell

ROOT = Path(__file__).resolve().parents[2]
ALONE_REQUESTS = 60
RUNS = 3
CLIENTS = ((1, 60), (8, 160), (64, 256))
"""Clients at once, and requests of all of them together."""
ROUNDS = 20
CHAIN = 200
NAMES = ("moorage", "moorage before")
TOOLS: list[dict[str, Any]] = [{"type": "shell", "environment": {"type": "container_auto"}}]


def ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


# --- the processes ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    """The mock model server; yields its base URL."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "upstream.py"), "--deltas", "50"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def stack(state_dir: Path, base_url: str | None, tree: Path = ROOT) -> Iterator[Stack]:
    """The embedded stack of a tree, in front of the mock or with the scripted model."""
    chosen = {} if base_url is None else {"MOORAGE_UPSTREAM_URL": base_url, "MOORAGE_UPSTREAM_KIND": "chat_completions"}
    if base_url is not None:
        chosen["MOORAGE_UPSTREAM_MODEL"] = "mock"
    # It finds its programs as any start does, and so has a sandbox ready.
    running = Stack(state_dir, chosen, tree=tree, finds_programs=True).start()
    try:
        yield running
    finally:
        running.stop()


def direct(base_url: str) -> Endpoint:
    body: dict[str, object] = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
    return Endpoint("direct", f"{base_url}/chat/completions", body)


def ours(running: Stack, name: str = "moorage", **body: Any) -> Endpoint:
    return Endpoint(name, f"{running.url}/responses", {"model": "mock", "input": "hi"} | body, running.key)


# --- requests --------------------------------------------------------------------------------------------------------------------


async def latency(endpoints: Sequence[Endpoint]) -> Table:
    """One client, one request after the other. The endpoints take turns, so that a busy machine is busy for all of them."""
    first: dict[str, list[float]] = {endpoint.name: [] for endpoint in endpoints}
    total: dict[str, list[float]] = {endpoint.name: [] for endpoint in endpoints}
    for _ in range(RUNS):
        for endpoint in endpoints:
            timings = await alone(endpoint.streaming(True), ALONE_REQUESTS)
            first[endpoint.name].append(statistics.median(timing.first for timing in timings))
            total[endpoint.name].append(statistics.median(timing.total for timing in timings))
    bare = endpoints[0].name
    rows = []
    for name in first:
        one, whole = statistics.median(first[name]), statistics.median(total[name])
        added = (one - statistics.median(first[bare]), whole - statistics.median(total[bare]))
        rows.append((name, ms(one), ms(whole), *(("", "") if name == bare else map(ms, added))))
    note = (
        f"Milliseconds, median of {ALONE_REQUESTS} requests, median of {RUNS} runs. The upstream sends 50 deltas without a pause. "
        "moorage stores the response, and passes deltas that arrive together on as one."
    )
    return Table("One streaming request", ("", "first delta", "total", "added, first delta", "added, total"), rows, note)


async def throughput(endpoints: Sequence[Endpoint], memory: dict[str, Callable[[], str]]) -> Table:
    rows = []
    for endpoint in endpoints:
        for is_streaming in (True, False):
            for clients, requests in CLIENTS:
                best = await load(endpoint.streaming(is_streaming), clients, requests)
                rows.append(_load_row(endpoint.name, is_streaming, best, memory.get(endpoint.name, lambda: "")()))
    head = ("", "mode", "clients", "requests/s", "p50 ms", "p95 ms", "p99 ms", "errors", "RSS MB")
    return Table("Requests a second", head, rows, "50 deltas each; one API process; the load comes from the same machine.")


def _load_row(name: str, is_streaming: bool, seen: Load, memory: str) -> tuple[str, ...]:
    shares = (ms(seen.percentile(share)) for share in (0.5, 0.95, 0.99)) if seen.totals else ("", "", "")
    return (name, "stream" if is_streaming else "json", str(seen.clients), f"{seen.rate:.0f}", *shares, str(seen.errors), memory)


def resident_mb(pid: int) -> str:
    """Resident memory of a process, in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return f"{kilobytes / 1024:.0f}"


def cpu_ms(pid: int) -> float:
    """Milliseconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1000


async def processor(endpoint: Endpoint, pid: int) -> Table:
    rows = []
    for is_streaming in (True, False):
        used = cpu_ms(pid)
        await load(endpoint.streaming(is_streaming), 4, 300)
        rows.append(("stream" if is_streaming else "json", f"{(cpu_ms(pid) - used) / 300:.1f}"))
    note = "Processor time of the API process for one request, without the machine's other work."
    return Table("Processor time", ("mode", "ms"), rows, note)


def chain(running: Stack) -> Table:
    """A response at the end of a long chain, against one without."""
    with running.http() as http:
        previous: str | None = None
        for _ in range(CHAIN):
            body = {"model": "mock", "input": "hi"} | ({"previous_response_id": previous} if previous else {})
            previous = http.post("/responses", json=body).json()["id"]
        request = {"model": "mock", "input": "hi"}
        plain = [_timed(partial(http.post, "/responses", json=request)) for _ in range(15)]
        longer = request | {"previous_response_id": previous}
        long = [_timed(partial(http.post, "/responses", json=longer)) for _ in range(15)]
    rows = [("no chain", ms(statistics.median(plain))), (f"{CHAIN} responses before it", ms(statistics.median(long)))]
    return Table("A long chain", ("", "ms"), rows, "One request, not streamed, median of 15.")


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    assert call().status_code == 200
    return time.perf_counter() - began


# --- the loop --------------------------------------------------------------------------------------------------------------------


def rounds(running: Stack) -> Table:
    """A background run of many rounds, each a model step and a tool step with the command ``true``."""
    with running.http() as http:
        turns = [shell("true")] * ROUNDS
        _run(http, script(shell("true"), say("warm")))
        seconds = []
        for _ in range(RUNS):
            few = _run(http, script(shell("true"), say("end")))
            many = _run(http, script(*turns, say("end")))
            seconds.append((many - few) / (ROUNDS - 1))
    rows = [("a round: model step, tool step, command `true`", ms(statistics.median(seconds)))]
    return Table("A round of the loop", ("", "ms"), rows, f"From runs of {ROUNDS} rounds less runs of one, median of {RUNS}.")


def _run(http: Any, text: str) -> float:
    began = time.perf_counter()
    body = {"model": "demo", "input": text, "tools": TOOLS, "background": True, "stream": True}
    with http.stream("POST", "/responses", json=body) as answer:
        last = [line for line in answer.iter_lines() if line.startswith("event: ")][-1]
    assert last == "event: response.completed", last
    return time.perf_counter() - began


# --- the computer ----------------------------------------------------------------------------------------------------------------


def computer(running: Stack) -> Table:
    rows = bench_computer.measure(running, first=20, idle=limits.TENANT_SANDBOXES_MAX, megabytes=500)
    note = "Through the API and the OpenAI SDK. Peak memory is the largest growth of the API process, unless the row says otherwise."
    return Table("Containers and large files", ("", ""), rows, note)


# --- the report ------------------------------------------------------------------------------------------------------------------


def write(tables: Sequence[Table], seen_machine: str) -> None:
    """The head of the page and these tables; what else it has stays."""
    about = "Made by `make bench`; it holds measured figures only. [aws.md](aws.md) has the cost of a response on AWS, by `make cost`."
    head = f"# Benchmarks\n\n{about}\n\n{time.strftime('%Y-%m-%d')}, on {seen_machine}\n"
    _, _, others = REPORT.read_text().partition("\n## ")
    REPORT.write_text(f"{head}\n## {others}")
    report(tables)


async def measure(state_dir: Path, candidates: Sequence[Peer], before: Path | None) -> list[Table]:
    tables = []
    trees = [ROOT] if before is None else [ROOT, before]
    with upstream() as base_url, contextlib.ExitStack() as running:
        stacks = [running.enter_context(stack(state_dir / f"a{at}", base_url, tree=tree)) for at, tree in enumerate(trees)]
        releases = [ours(each, name) for each, name in zip(stacks, NAMES, strict=False)]
        endpoints = [direct(base_url), *releases]
        pids = {endpoint.name: _pid(each) for endpoint, each in zip(releases, stacks, strict=True)}
        for peer in candidates:
            if peer.is_installed():
                try:
                    pids[peer.name] = running.enter_context(peer.start(base_url, state_dir / peer.name))
                except RuntimeError as error:
                    print(f"{peer.name} is left out: {error}")
                    continue
                endpoints.append(peer.endpoint())
        tables.append(shown(await latency(endpoints)))
        tables.append(shown(await throughput(endpoints[1:], {name: partial(resident_mb, pid) for name, pid in pids.items()})))
        tables.append(shown(_pair([await processor(endpoint, pids[endpoint.name]) for endpoint in releases])))
        tables.append(shown(_pair([chain(each) for each in stacks])))
    with contextlib.ExitStack() as running:
        stacks = [running.enter_context(stack(state_dir / f"b{at}", None, tree=tree)) for at, tree in enumerate(trees)]
        tables.append(shown(_pair([rounds(each) for each in stacks])))
        tables.append(shown(_tail_table(await tail_latencies(stacks[0]))))
    tables.append(shown(_pair(starts(trees))))
    computers = []
    for at, tree in enumerate(trees):
        with stack(state_dir / f"d{at}", None, tree=tree) as one:
            computers.append(await asyncio.to_thread(computer, one))  # It has loops of its own.
    tables.append(shown(_pair(computers)))
    return tables


def _pid(running: Stack) -> int:
    assert running.process is not None
    return running.process.pid


def _pair(tables: Sequence[Table]) -> Table:
    return tables[0].beside(tables[1] if tables[1:] else None)


def _tail_table(seconds: list[float]) -> Table:
    ordered = sorted(seconds)
    rows = [(f"p{share}", ms(ordered[int(len(ordered) * share / 100)])) for share in (50, 95)]
    note = "From the end of an append to the event at the client, over SSE, while events come at random 50 to 300 ms."
    return Table("Following the event log", ("", "ms"), rows, note)


def shown(table: Table) -> Table:
    print(f"\n{table.markdown()}", flush=True)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-report", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--no-peers", action="store_true", help="leave out the gateways that make bench-peers installed")
    parser.add_argument("--before", type=Path, help="a clone of another release, set up, to be measured in the same run")
    options = parser.parse_args()
    seen_machine = machine()
    print(seen_machine)
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        tables = asyncio.run(measure(Path(folder), () if options.no_peers else PEERS, options.before))
    if not options.no_report:
        write(tables, seen_machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
