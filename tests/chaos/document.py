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
    if not reports:
        return "\n## Histories\n\nNo history was played since a stack has a store of its own.\n"
    lines = [
        "\n## Histories\n",
        "| seed | seconds | faults that took effect | responses | commands, seen to begin | readers | files | deletes | violations |",
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
        f"\nTotal: {sum(total.values())} faults, {sum(one['responses'] for one in reports)} responses, "
        f"{sum(one['commands'] for one in reports)} commands, {sum(len(one['violations']) for one in reports)} violations."
    )
    return "\n".join(lines) + "\n"


def back() -> str:
    """The time to recovery of each kind of process, measured under load."""
    seconds: dict[str, list[float]] = {}
    for one in _reports():
        for victim, measured in one.get("back", {}).items():
            seconds.setdefault(victim, []).extend(measured)
    if not seconds:
        return ""
    lines = [
        "\n## Recovery after a SIGKILL\n",
        "The same histories measured these times, under their own load and the machine's. A stack is back when it reports so, a child\n"
        "when its new process is there.\n",
        "| process | times | median | longest |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {victim} | {len(measured)} | {statistics.median(measured):.1f} s | {max(measured):.1f} s |"
        for victim, measured in sorted(seconds.items())
    ]
    return "\n".join(lines) + "\n"


def faults() -> str:
    """What commits to the store and requests to the model met."""
    if not _reports():
        return ""
    counts: Counter[str] = Counter()
    for one in _reports():
        for operation, met in one.get("faults", {}).items():
            counts[operation] += sum(met.values())
    return (
        f"\n## Faults of calls\n\nThe store had {counts['journal write']} late commits. The model's provider gave {counts['upstream']} "
        "answers that were refusals, garbage or cut off.\n"
    )


def before() -> str:
    """One sentence of the histories that were played while an emulator of AWS kept a stack's records."""
    old = [one for one in _all_reports() if _had_emulator(one)]
    blows, responses = sum(sum(one["struck"].values()) for one in old), sum(one["responses"] for one in old)
    wrong = sum(len(one["violations"]) for one in old)
    return (
        f"\nBefore, an emulator of AWS kept a stack's records. {len(old)} histories ran then: {blows} faults, {responses} responses, "
        f"{wrong} violations.\nEach violation has a test now (above).\n"
    )


def _reports() -> list[dict[str, Any]]:
    """Histories of a stack that has a store of its own."""
    return [one for one in _all_reports() if not _had_emulator(one)]


def _had_emulator(report: dict[str, Any]) -> bool:
    return any(name.startswith("emulator") for name in report["struck"])


def _all_reports() -> list[dict[str, Any]]:
    return [json.loads(line) for line in HISTORIES.read_text().splitlines()] if HISTORIES.exists() else []


def soak() -> str:
    if not SOAK.exists():
        return ""
    report = json.loads(SOAK.read_text())
    lines = [
        f"\n## A soak of {report['minutes']:g} minutes\n",
        f"{report['responses']} responses.\n",
        "| measure | when warm | at the end |",
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
    DOCUMENT.write_text(told + MARK + histories() + before() + back() + faults() + soak())


if __name__ == "__main__":
    write()
