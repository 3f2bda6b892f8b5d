"""``make up`` on a clone that is set up, until its API is healthy: seconds, and processor time of all that took part. Then the first
container of that stack."""

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from moorage.local.exports import read_exports

from tests.bench.report import Table
from tests.processes import descendants
from tests.stack import SHELL, clean_environment, say, script, shell

STARTS: int = 5
_SECONDS_MAX = 120
_LOOK_SECONDS = 0.005
Start = tuple[float, float, float]
"""Seconds by the clock, and of processors; and those of the first container."""


def starts(trees: Sequence[Path]) -> list[Table]:
    """One table for each clone. They take turns; the first start of each, which warms the disk's cache, does not count."""
    seen: list[list[Start]] = [[] for _ in trees]
    for _ in range(STARTS + 1):
        for tree, found in zip(trees, seen, strict=True):
            with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
                found.append(_start(tree, Path(folder)))
    note = (
        f"With a new state folder, and the programs of sandboxes told to the model. The first start of a day asks a sandbox for them, "
        f"and does not count. Median of {STARTS}."
    )
    names = (
        "`make up` until healthy",
        "processor time of all its processes until then",
        "right then, `container_auto` to the first byte of output",
    )
    return [
        Table(
            "A start",
            ("", "ms"),
            [(name, f"{1000 * statistics.median(start[at] for start in found[1:]):.0f}") for at, name in enumerate(names)],
            note,
        )
        for found in seen
    ]


def _start(tree: Path, folder: Path) -> Start:
    exports = folder / "env"
    environment = clean_environment() | {"MOORAGE_STATE_DIR": str(folder), "MOORAGE_PORT": "0"}
    began = time.monotonic()
    command = ["make", "--no-print-directory", "up"]
    process = subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        while not exports.exists():
            assert process.poll() is None, f"{tree} did not start"
            assert time.monotonic() - began < _SECONDS_MAX, f"{tree} did not start in time"
            time.sleep(_LOOK_SECONDS)
        values = read_exports(exports)
        url = values["OPENAI_BASE_URL"]
        assert httpx.get(f"{url.removesuffix('v1')}healthz").status_code == 200
        seconds = time.monotonic() - began
        used = sum(_processor_seconds(pid) for pid in (process.pid, *descendants(process.pid)))
        return seconds, used, _until_output(url, values["OPENAI_API_KEY"])
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_SECONDS_MAX)


def _until_output(url: str, key: str) -> float:
    """Without an SDK, whose own first request takes longer."""
    body = {"model": "demo", "input": script(shell("echo hello"), say("end")), "tools": [SHELL], "stream": True}
    began = time.monotonic()
    with httpx.stream("POST", f"{url}/responses", json=body, headers={"authorization": f"Bearer {key}"}, timeout=60) as answer:
        for line in answer.iter_lines():
            if line == "event: response.shell_call_output_content.delta":
                return time.monotonic() - began
    raise AssertionError("the command printed nothing")


def _processor_seconds(pid: int) -> float:
    """Of a process and of its children that have ended (proc(5): fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
