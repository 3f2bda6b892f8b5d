"""``make soak``: a local stack under load for half an hour, and what grows in it: memory, descriptors, files, rows.

Exits with 1 if something grows that must not: a process by more than a tenth and 32 MiB, or its descriptors by more than 32, between
the end of the first fifth, when all is warm, and the last one.
"""

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from moorage.local.launcher import NAME as LAUNCHER
from moorage.local.step_worker import NAME as WORKER

from tests.chaos import document
from tests.chaos.run import Load, Told
from tests.processes import descendants
from tests.stack import Stack

KINDS: Final = {
    "launcher": f"({LAUNCHER})",
    "worker": f"({WORKER})",
}
_SAMPLE_SECONDS: Final = 10
_GROWTH_BYTES: Final = 32 * 1024 * 1024
_GROWTH_DESCRIPTORS: Final = 32

Sample = dict[str, int]


def sample(stack: Stack) -> Sample:
    """By name; of several processes of a kind the largest."""
    assert stack.process is not None
    found: Sample = {}
    processes = {stack.process.pid: "API", **{pid: _kind(pid, line) for pid, line in descendants(stack.process.pid).items()}}
    for pid, kind in processes.items():
        if kind:
            for name, value in (("RSS", _rss(pid)), ("descriptors", _descriptors(pid))):
                found[f"{kind}: {name}"] = max(found.get(f"{kind}: {name}", 0), value)
    store = stack.state_dir / "store"
    with closing(sqlite3.connect(f"file:{store / 'journal.sqlite'}?mode=ro", uri=True)) as journal:
        for table in ("records", "objects", "garbage"):
            (found[f"journal: {table}"],) = journal.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
    found["journal: bytes"] = sum(path.stat().st_size for path in store.glob("journal.sqlite*"))
    found["files"] = sum(len(files) for _, _, files in os.walk(stack.state_dir))
    return found


def _kind(pid: int, line: str) -> str:
    return next((kind for kind, words in KINDS.items() if words in line), "")


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def verdicts(samples: list[Sample]) -> list[str]:
    """What grows although it must not."""
    fifth = max(1, len(samples) // 5)
    wrong = []
    for name in samples[-1]:
        # The launcher holds a few descriptors for each sandbox, and those of ended responses idle for twenty minutes.
        if not name.endswith((": RSS", ": descriptors")) or name == "launcher: descriptors":
            continue
        early = statistics.median(one.get(name, 0) for one in samples[fifth : 2 * fifth] or samples)
        late = statistics.median(one.get(name, 0) for one in samples[-fifth:])
        if name.endswith("RSS") and late > 1.1 * early + _GROWTH_BYTES:
            wrong.append(f"{name} grew from {early / 2**20:.0f} to {late / 2**20:.0f} MiB")
        if name.endswith("descriptors") and late > early + _GROWTH_DESCRIPTORS:
            wrong.append(f"{name} grew from {early:.0f} to {late:.0f}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--docs", action="store_true", help="note the figures, and write docs/durability.md anew")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    stack = Stack(folder / "state").start()
    told = Told()
    load = Load(stack, told, seed=1)
    load.start()
    samples: list[Sample] = []
    began = time.monotonic()
    while time.monotonic() - began < options.minutes * 60:
        time.sleep(_SAMPLE_SECONDS)
        samples.append(sample(stack))
    load.stop()
    code = stack.stop()
    first, last = samples[max(1, len(samples) // 5) - 1], samples[-1]
    rows = [{"what": name, "when warm": first.get(name), "at the end": last[name]} for name in sorted(last)]
    report = {"minutes": options.minutes, "responses": len(told.responses), "errors": dict(told.errors), "rows": rows}
    print(json.dumps(report, indent=2))
    if options.docs:
        document.SOAK.write_text(json.dumps(report) + "\n")
        document.write()
    wrong = verdicts(samples) + ([f"the stack ended with {code}"] if code else [])
    print("\n".join(wrong) or "Nothing grows that must not.")
    if wrong:
        print(f"The stack's words are in {folder}.")
    else:
        shutil.rmtree(folder)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
