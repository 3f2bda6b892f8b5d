"""What came of each step, kept in a file after each, so that an afternoon that was interrupted goes on where it stopped."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

Outcome = Literal["proved", "failed", "skipped"]
WORDS: Final = {"proved": "yes", "failed": "NO", "skipped": "skipped"}


@dataclass
class Came:
    outcome: Outcome
    said: str
    seconds: float = 0.0


@dataclass
class Record:
    name: str
    region: str
    began_at: float
    """Unix seconds."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Of the deployment; empty while there is none."""
    sandboxes: int = 0
    """That were started, for the estimate of what was spent."""
    came: dict[str, Came] = field(default_factory=dict)
    """By the step's name."""

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        """None where no afternoon was begun."""
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        return cls(**{**found, "came": {name: Came(**each) for name, each in found["came"].items()}})

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1))
        beside.replace(path)

    def is_done(self, step: str) -> bool:
        """A step that failed is tried again."""
        return step in self.came and self.came[step].outcome != "failed"

    def report(self, steps: Sequence[tuple[str, str]], spent: str) -> str:
        """In Markdown, to be attached to an issue. ``steps`` are names and what each proves."""
        lines = [
            f"# An afternoon with `{self.name}` in {self.region}",
            "",
            "| step | proved | seconds | what was seen | what it proves |",
            "|---|---|---|---|---|",
        ]
        for name, proves in steps:
            came = self.came.get(name, Came("skipped", "not reached"))
            said = " ".join(came.said.split()).replace("|", "\\|")
            lines.append(f"| {name} | {WORDS[came.outcome]} | {came.seconds:.0f} | {said} | {proves} |")
        return "\n".join([*lines, "", spent, ""])
