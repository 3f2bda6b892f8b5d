"""Writes the tables of ``docs/durability.md`` from the histories that were played: ``python -m tests.chaos.document``."""

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
HISTORIES: Final = HERE / "histories.jsonl"
SOAK: Final = HERE / "soak.json"
DOCUMENT: Final = HERE.parents[1] / "docs" / "durability.md"

MARK: Final = "<!-- What follows is made by tests/chaos/document.py -->\n"


def histories() -> str:
    reports = _reports()
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


def back() -> str:
    """How long it takes until what was killed is there again, as it was measured under load."""
    seconds: dict[str, list[float]] = {}
    for one in _reports():
        for victim, measured in one.get("back", {}).items():
            seconds.setdefault(victim, []).extend(measured)
    if not seconds:
        return ""
    lines = [
        "\n## There again after a SIGKILL\n",
        "Measured by the same histories, under their load and the machine's; a stack is there when it has said so, "
        "a child\nwhen its new process is, the emulator when a request gets through to the table.\n",
        "| what | times | median | longest |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {victim} | {len(measured)} | {statistics.median(measured):.1f} s | {max(measured):.1f} s |"
        for victim, measured in sorted(seconds.items())
    ]
    return "\n".join(lines) + "\n"


def faults() -> str:
    """What requests to AWS and to the model met."""
    counts: dict[str, Counter[str]] = {}
    for one in _reports():
        for operation, met in one.get("faults", {}).items():
            counts.setdefault(operation, Counter()).update(met)
    if not counts:
        return ""
    upstream, kinds = counts.pop("upstream", Counter())["all"], sorted({kind for met in counts.values() for kind in met})
    lines = ["\n## Faults on the way\n", f"| request | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    lines += [f"| `{operation}` | {' | '.join(str(met[kind]) for kind in kinds)} |" for operation, met in sorted(counts.items())]
    lines.append(f"\nAnswers of the model's provider that were refusals, garbage or broken off: {upstream}.")
    return "\n".join(lines) + "\n"


def _reports() -> list[dict[str, Any]]:
    return [json.loads(line) for line in HISTORIES.read_text().splitlines()] if HISTORIES.exists() else []


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


def write() -> None:
    told, _, _ = DOCUMENT.read_text().partition(MARK)
    DOCUMENT.write_text(told + MARK + histories() + back() + faults() + soak())


if __name__ == "__main__":
    write()
