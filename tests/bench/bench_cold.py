"""What a cold start of each function costs before its first line: unzipped size and time to import, as a table.

    python -m tests.bench.bench_cold [--runs 5]

Sizes are those of the packages for Lambda (arm64), imports are timed on this machine with the same packages for its own Python: a
fresh process each, the fastest of some runs, with byte code compiled, as the packages have it if they were made with Python 3.13.
"""

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra import bundling

SIZE_MB_MAX = 40
IMPORT_MS_MAX = 600

_CORE = bundling.ROOT / "layers" / "core"
_MODULES = {
    "responses": "app",
    "containers": "handler",
    "files": "handler",
    "steps": "handler",
    "authorizer": "handler",
    "reaper": "handler",
}
"""The module that Lambda imports, by function."""

_TIMED = "import time; start = time.perf_counter(); import {module}; print((time.perf_counter() - start) * 1000)"


@dataclass(frozen=True)
class Row:
    function: str
    size_mb: float
    import_ms: float

    @property
    def is_within_goals(self) -> bool:
        return self.size_mb <= SIZE_MB_MAX and self.import_ms <= IMPORT_MS_MAX


def measure(runs: int, folder: Path) -> Iterator[Row]:
    for target in ("lambda", "host"):
        bundling.install(bundling.RUNTIME_LOCK, folder / target, target, lambda name: name not in bundling.SEARCH_PACKAGES)
        bundling.slim(folder / target)
    bundling.install(bundling.RUNTIME_LOCK, folder / "search", "lambda", lambda name: name in bundling.SEARCH_PACKAGES)
    bundling.slim(folder / "search")
    size, search = _megabytes(folder / "lambda") + _megabytes(_CORE / "python" / "moorage"), _megabytes(folder / "search")
    print(f"The layer for functions that search adds {search:.1f} MB.")
    compileall.compile_dir(folder / "host", quiet=2)
    for function, module in _MODULES.items():
        source = bundling.ROOT / "functions" / function
        times = [_import_ms(folder / "host", source, module) for _ in range(runs + 1)][1:]  # the first one reads the disk
        yield Row(function, size + _megabytes(source), min(times))


def _import_ms(packages: Path, source: Path, module: str) -> float:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, (packages, _CORE / "python")))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", _TIMED.format(module=module)],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _megabytes(folder: Path) -> float:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts) / 1e6


def main() -> None:
    """Print the table; the exit code is 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(options.runs, Path(folder)))
    print(f"{'function':12} {'size, MB':>9} {'import, ms':>11}   goals: {SIZE_MB_MAX} MB, {IMPORT_MS_MAX} ms")
    for row in rows:
        print(f"{row.function:12} {row.size_mb:9.1f} {row.import_ms:11.0f}{'' if row.is_within_goals else '   missed'}")
    sys.exit(not all(row.is_within_goals for row in rows))


if __name__ == "__main__":
    main()
