"""The tables of ``docs/benchmarks.md``: each program that measures puts its own in."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPORT: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def beside(self, before: "Table | None") -> "Table":
        """With the figures of the release before, and how many times those the present ones are."""
        if before is None:
            return self
        head = (*self.head[:-1], f"{self.head[-1]} now".strip(), f"{before.head[-1]} before".strip(), "×")
        figures = {row[:-1]: row[-1] for row in before.rows}
        rows = [(*row, figures.get(row[:-1], ""), _ratio(row[-1], figures.get(row[:-1], ""))) for row in map(tuple, self.rows)]
        return Table(self.title, head, rows, self.note)

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", *([self.note, ""] if self.note else [])]
        lines += [" | ".join(["", *row, ""]).strip() for row in (self.head, ["---"] * len(self.head), *self.rows)]
        return "\n".join(lines)


def _ratio(now: str, before: str) -> str:
    """Of the first number of each, behind a name such as ``p50``."""
    (new, *_), (old, *_) = (re.findall(r"\b\d+(?:\.\d+)?", text) or [""] for text in (now, before))
    return f"{float(new) / float(old):.2f}" if new and old and float(old) else ""


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    load_average = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({model}), Linux {platform.release()}, Python {platform.python_version()}; the load average at the "
        f"start was {load_average:.1f}, so other work was {'running too' if load_average > 0.8 else 'not running'}."
    )


def report(tables: Sequence[Table]) -> None:
    """Put the tables into the page, in place of those that it has."""
    page = REPORT.read_text()
    for table in tables:
        before, _, rest = page.partition(f"\n\n## {table.title}\n")
        _, heading, behind = rest.partition("\n\n## ")
        page = f"{before.rstrip()}\n\n{table.markdown()}\n" + (f"\n## {behind}" if heading else "")
    REPORT.write_text(page)
