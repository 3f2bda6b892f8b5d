"""Writes the tables of ``docs/durability.md`` from the histories that were played: ``python -m tests.chaos.document``."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
HISTORIES: Final = HERE / "histories.jsonl"
SOAK: Final = HERE / "soak.json"
DOCUMENT: Final = HERE.parents[1] / "docs" / "durability.md"

MARK: Final = "<!-- What follows is made by tests/chaos/document.py -->\n"


def histories() -> str:
    if not HISTORIES.exists():
        return ""
    reports: list[dict[str, Any]] = [json.loads(line) for line in HISTORIES.read_text().splitlines()]
    lines = [
        "\n## Histories\n",
        "| seed | seconds | blows that struck | responses | commands, seen to begin | readers | files | deletes | violations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in reports:
        struck = ", ".join(f"{count} {name}" for name, count in sorted(one["struck"].items()))
        lines.append(
            f"| {one['seed']} | {one['seconds']} | {struck} | {one['responses']} | {one['commands']}, {one['begun']} "
            f"| {one['readers']} | {one['files']} | {one['deleted']} | {len(one['violations'])} |"
        )
    total: Counter[str] = Counter()
    for one in reports:
        total.update(one["struck"])
    lines.append(
        f"\nTogether: {sum(total.values())} blows, {sum(one['responses'] for one in reports)} responses, "
        f"{sum(one['commands'] for one in reports)} commands, {sum(len(one['violations']) for one in reports)} violations."
    )
    return "\n".join(lines) + "\n"


def soak() -> str:
    if not SOAK.exists():
        return ""
    report = json.loads(SOAK.read_text())
    lines = [
        f"\n## A soak of {report['minutes']:g} minutes\n",
        f"{report['responses']} responses.\n",
        "| what | when warm | at the end |",
        "|---|---|---|",
    ]
    lines += [f"| {row['what']} | {_shown(row, 'when warm')} | {_shown(row, 'at the end')} |" for row in report["rows"]]
    return "\n".join(lines) + "\n"


def _shown(row: dict[str, Any], column: str) -> str:
    value = row[column]
    if value is None:
        return "—"
    return f"{value / 2**20:.0f} MiB" if row["what"].endswith(("RSS", "bytes")) else str(value)


if __name__ == "__main__":
    told, _, _ = DOCUMENT.read_text().partition(MARK)
    DOCUMENT.write_text(told + MARK + histories() + soak())
