"""What large documents cost that are read for a vector store: the most memory that each process has held, on a stack of its own.

    python -m tests.bench.documents [--folder PLACE] [CASE ...]

By hand, and not in the suite: it uploads files of up to 512 MB. Memory is the high-water mark of each process (VmHWM), looked at every
50 ms: the workers that run the steps, the API, and the program that reads documents.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from moorage.local.step_worker import NAME
from openai import OpenAI

from tests.processes import descendants
from tests.stack import Stack

MB = 1_000_000
_SECONDS_MAX = 900
_LOOK_SECONDS = 0.05
_SENTENCE = b"The harbour master number %d counts the ships that come in with the tide and those that leave it again.\n"


def sentences(size: int) -> Iterator[bytes]:
    """Prose in lines; no two are alike."""
    made = number = 0
    while made < size:
        lines = b"".join(_SENTENCE % each for each in range(number, number + 5_000))[: size - made]
        made, number = made + len(lines), number + 5_000
        yield lines


def words(size: int) -> Iterator[bytes]:
    """Without an end of a sentence or a line: each word has to be looked at by itself."""
    yield from (piece.replace(b"\n", b" ").replace(b".", b"").ljust(len(piece)) for piece in sentences(size))


def latin(size: int) -> Iterator[bytes]:
    """In an encoding that it does not say, so that a sandbox reads it."""
    yield from (piece.replace(b"harbour", b"h\xe4fen  ") for piece in sentences(size))


def page(size: int) -> Iterator[bytes]:
    yield b"<html><body>"
    yield from (piece.replace(b"\n", b"<p>") for piece in sentences(size))


CASES: dict[str, tuple[str, int, Callable[[int], Iterator[bytes]]]] = {
    "text, 512 MB": ("large.txt", 512 * MB, sentences),
    "text in no known encoding, 512 MB": ("large.latin.txt", 512 * MB, latin),
    "page, 512 MB": ("large.html", 512 * MB, page),
    "text, 18 MB": ("most.txt", 18 * MB, sentences),
    "one line, 18 MB": ("line.txt", 18 * MB, words),
    "page, 18 MB": ("most.html", 18 * MB, page),
    "text, 0.1 MB": ("small.txt", MB // 10, sentences),
}


@dataclass
class Peaks:
    """Megabytes, by what a process does."""

    mb: dict[str, float] = field(default_factory=dict)

    def look(self, root: int) -> None:
        for pid, line in {root: "api", **descendants(root)}.items():
            if (kind := _kind(line)) and (high := _high_mb(pid)):
                self.mb[kind] = max(self.mb.get(kind, 0.0), high)


def _kind(line: str) -> str:
    for part, kind in (("moorage-text", "reader"), (f"({NAME})", "worker")):
        if part in line:
            return kind
    return "api" if line == "api" else ""


def _high_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / MB for line in lines if line.startswith("VmHWM:")), 0.0)


def measure(name: str, folder: Path) -> str:
    filename, size, pieces = CASES[name]
    path = folder / filename
    with path.open("wb") as file:
        file.writelines(pieces(size))
    stack = Stack(folder / "state").start()
    try:
        return _row(name, stack, path)
    finally:
        stack.stop()


def _row(name: str, stack: Stack, path: Path) -> str:
    assert stack.process is not None
    client: OpenAI = stack.client().with_options(timeout=_SECONDS_MAX)
    with path.open("rb") as file:
        uploaded = client.files.create(file=file, purpose="assistants")
    store = client.vector_stores.create(name=name)
    peaks, began = Peaks(), time.monotonic()
    added = client.vector_stores.files.create(store.id, file_id=uploaded.id)
    looked = began
    while added.status == "in_progress" and time.monotonic() - began < _SECONDS_MAX:
        peaks.look(stack.process.pid)
        if time.monotonic() - looked > 1:
            looked = time.monotonic()
            added = client.vector_stores.files.retrieve(uploaded.id, vector_store_id=store.id)
        time.sleep(_LOOK_SECONDS)
    came = added.status if added.last_error is None else added.last_error.message
    kinds = ("worker", "reader", "api")
    memory = " | ".join(f"{peaks.mb[kind]:,.0f}" if kind in peaks.mb else "-" for kind in kinds)
    return f"| {name} | {time.monotonic() - began:.0f} | {memory} | {came} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("cases", nargs="*", default=[*CASES])
    options = parser.parse_args()
    print("| document | s | index step, MB | parse step, MB | reader, MB | API, MB | what came of it |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.cases:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(measure(name, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
