"""Draw the states of a container's sandbox into docs/containers.md: ``python docs/states.py``."""

from pathlib import Path
from typing import Final

from moorage.containers.store import SANDBOX_TRANSITIONS

PAGE: Final = Path(__file__).with_name("containers.md")
BEGIN: Final = "<!-- drawn by docs/states.py from SANDBOX_TRANSITIONS -->\n"
END: Final = "<!-- end -->\n"


def drawing() -> str:
    """The states and what leads from one to the other, as Mermaid."""
    arrows = [
        f"    {before or '[*]'} --> {after or '[*]'}: {reason}"
        for before, ways in SANDBOX_TRANSITIONS.items()
        for after, reason in ways.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```", ""])


def drawn(page: str) -> str:
    """The page with the drawing of today."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + drawing() + END + after


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
