"""How the command line shows things: columns, times, colours on a terminal."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

_COLOURS: Final = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, as wide as their longest cell."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join(shown)


def moment(seconds: float) -> str:
    """Unix seconds as local time."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def paint(text: str, colour: str, out: TextIO) -> str:
    """The text in a colour where somebody sees it, plain in files and pipes."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if out.isatty() else text
