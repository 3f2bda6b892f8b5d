"""Local sandboxes in figures: start, round trip, a gigabyte of output, memory of idle ones.

    python -m tests.bench.bench_exec [--starts 20] [--round-trips 200] [--idle 20] [--toolbox .venv-toolbox]

Everything goes the way of a tool step: launcher, bubblewrap, exec server, exec client. Prints a table. Where an engine can be started
(as root, with docker.io and mmdebstrap of Debian), its containers stand beside bubblewrap's sandboxes, one start of each in turn.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from moorage.errors import SandboxStarting
from moorage.sandbox.docker import DockerProvisioner, DockerSettings
from moorage.sandbox.docker_engine import Engine
from moorage.sandbox.exec_client import ExecClient, ExecEnded, SessionCommand
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import Handle, Provisioner, SandboxSpec

from tests.docker.engine import build_image, missing, started
from tests.unit.sandbox.support import TOKEN, execute, launcher, new_id, run

Row = tuple[str, str]
GIGABYTE = 1_000_000_000


async def measure(options: argparse.Namespace) -> list[Row]:
    extra = ("--toolbox", options.toolbox) if options.toolbox else ()
    with tempfile.TemporaryDirectory() as directory, launcher(Path(directory), *extra) as socket:
        async with LauncherProvisioner(str(socket)) as provisioner:
            rows = await beside_docker(provisioner, options, Path(directory))
            handle = await provisioner.start(SandboxSpec("bench", new_id(), TOKEN))
            (sandbox,) = await provisioner.running()
            async with ExecClient(handle) as client:
                rows.append(await round_trips(client, options.round_trips))
                rows.append(await python_round_trips(client, options.round_trips))
                rows += await sessions(client, options.round_trips)
                rows += await gigabyte(client, sandbox.pid)
            rows += await artifact(handle)
            await provisioner.stop(handle.sandbox_id)
            rows.append(await idle(provisioner, options.idle))
            return rows


async def beside_docker(provisioner: LauncherProvisioner, options: argparse.Namespace, folder: Path) -> list[Row]:
    """Starts and commands of both kinds, in turn: a machine that is busy for a while is so for both."""
    if why := missing():
        return [*await starts({"": provisioner}, options.starts), ("in containers of an engine", f"left out: {why}")]
    with started() as engine:
        await build_image(engine.socket)
        async with DockerProvisioner(DockerSettings(folder / "docker", "bench"), Engine(engine.socket)) as docker:
            kinds: dict[str, Provisioner] = {"": provisioner, ", Docker": docker}
            rows = await starts(kinds, options.starts)
            handle = await ready(docker, SandboxSpec("bench", new_id(), TOKEN))
            async with ExecClient(handle) as client:
                name, figures = await round_trips(client, options.round_trips)
            await docker.stop(handle.sandbox_id)
            return [*rows, (f"{name}, Docker", figures)]


async def starts(kinds: Mapping[str, Provisioner], count: int) -> list[Row]:
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(count):
        for kind, provisioner in kinds.items():
            began = time.perf_counter()
            handle = await ready(provisioner, SandboxSpec("bench", new_id(), TOKEN))
            seconds[kind].append(time.perf_counter() - began)
            await provisioner.stop(handle.sandbox_id)
    return [(f"start to healthy{kind}", percentiles(figures)) for kind, figures in seconds.items()]


async def ready(provisioner: Provisioner, spec: SandboxSpec) -> Handle:
    while True:
        try:
            return await provisioner.start(spec)
        except SandboxStarting:
            await asyncio.sleep(0.01)


async def round_trips(client: ExecClient, count: int) -> Row:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        await run(client, "echo hello")
        seconds.append(time.perf_counter() - began)
    return "exec round trip ('echo hello')", percentiles(seconds)


async def python_round_trips(client: ExecClient, count: int) -> Row:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        async for _ in client.python(new_id(), "1 + 1", timeout_ms=10_000, max_output_length=100):
            pass
        seconds.append(time.perf_counter() - began)
    return "Python session round trip ('1 + 1')", percentiles(seconds)


async def sessions(client: ExecClient, count: int) -> list[Row]:
    """A call of exec_command as its room makes it, beside the same command without any of us."""
    rows = []
    for has_terminal in (False, True):
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            look = await client.look(new_id(), SessionCommand("echo hello", has_terminal=has_terminal), wait_ms=10_000)
            seconds.append(time.perf_counter() - began)
            assert look.exit_code == 0
        rows.append((f"exec_command round trip{' at a terminal' if has_terminal else ''} ('echo hello')", percentiles(seconds)))
    bare = []
    for _ in range(count):
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec("bash", "-c", "echo hello", stdout=asyncio.subprocess.PIPE)
        await process.communicate()
        bare.append(time.perf_counter() - began)
    return [*rows, ("the same command by asyncio alone", percentiles(bare))]


async def gigabyte(client: ExecClient, server: int) -> list[Row]:
    before = status_mib(server, "VmRSS")
    began = time.perf_counter()
    events = [event async for event in execute(client, f"head -c {GIGABYTE} /dev/zero | tr '\\0' x", timeout_ms=120_000)]
    seconds = time.perf_counter() - began
    last = events[-1]
    assert isinstance(last, ExecEnded)
    assert last.truncated_chars == GIGABYTE - 20_000
    return [
        ("1 GB of output, read to its end", f"{seconds:.1f} s"),
        ("peak memory of the exec server at it", f"{status_mib(server, 'VmHWM'):.1f} MiB (before: {before:.1f} MiB)"),
    ]


async def artifact(handle: Handle) -> list[Row]:
    """500 MB up and down through the exec server, as artifacts are staged and stored."""
    size, piece = 500 * 1024 * 1024, bytes(1024 * 1024)

    async def content() -> AsyncIterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    async with ExecClient(handle) as client:
        before, began = own_peak_mib(), time.perf_counter()
        await client.write_file("big.bin", content())
        up, began = time.perf_counter() - began, time.perf_counter()
        received = 0
        async for data in client.read_file("big.bin"):
            received += len(data)
        assert received == size
        down = time.perf_counter() - began
    growth = own_peak_mib() - before
    return [("500 MiB file up / down", f"{up:.1f} s / {down:.1f} s, client's peak memory + {growth:.1f} MiB")]


async def idle(provisioner: LauncherProvisioner, count: int) -> Row:
    handles = [await provisioner.start(SandboxSpec("bench", new_id(), TOKEN)) for _ in range(count)]
    resident, shared_out = [], []
    for sandbox in await provisioner.running():
        processes = (sandbox.pid, parent(sandbox.pid))
        resident.append(sum(status_mib(pid, "VmRSS") for pid in processes))
        shared_out.append(sum(proportional_mib(pid) for pid in processes))
    for handle in handles:
        await provisioner.stop(handle.sandbox_id)
    text = f"{statistics.mean(resident):.1f} MiB RSS, {statistics.mean(shared_out):.1f} MiB without what is shared"
    return f"memory of an idle sandbox ({count} at once)", text


def percentiles(seconds: Sequence[float]) -> str:
    cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return f"p50 {cuts[9] * 1000:.1f} ms, p95 {cuts[18] * 1000:.1f} ms, n={len(seconds)}"


def own_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"{pid} has no {field}")


def proportional_mib(pid: int) -> float:
    """PSS; of the exec server only root may read it."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"{pid} has no PSS")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure local sandboxes.")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--round-trips", type=int, default=200)
    parser.add_argument("--idle", type=int, default=20)
    parser.add_argument("--toolbox", help="virtual environment to show to the sandboxes")
    rows = asyncio.run(measure(parser.parse_args(arguments)))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
