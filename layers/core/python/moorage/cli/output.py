"""How the command line shows things: columns, times, and JSON for programs."""

import argparse
import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from moorage.command_hints import typed_here
from moorage.terminal import inert_json, one_line, say

Row = dict[str, Any]


def add_json(parser: argparse.ArgumentParser, *, is_inherited: bool = False) -> None:
    """``--json``; ``is_inherited`` if the command above has it too, whose value would be overwritten otherwise."""
    default = argparse.SUPPRESS if is_inherited else False
    parser.add_argument("--json", action="store_true", default=default, help="one JSON object a line, for programs")


def at_least_one(text: str) -> int:
    """How many, of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1 on")
    return int(text)


def listing(options: argparse.Namespace, rows: Iterable[Row], head: Sequence[str], cells: Callable[[Row], Sequence[str]]) -> int:
    """Print rows as columns, or as they are with ``--json``. A human reads that there are none; a program reads nothing."""
    if options.json:
        for row in rows:
            say_json(row)
    else:
        shown = list(map(cells, rows))
        say(table(head, shown) if shown else "none")
    return 0


def told(options: argparse.Namespace, value: Row, sentence: str) -> int:
    """The result: a sentence for people, an object for programs."""
    if options.json:
        say_json(value)
    else:
        say(typed_here(sentence))
    return 0


def say_json(value: Any) -> None:
    """A line for programs."""
    say(inert_json(orjson.dumps(value).decode()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, as wide as their longest cell."""
    lines = [head, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join(shown)


def duration(seconds: float) -> str:
    """As long as one cares to know: ``0.42s``, ``41s``, ``3m12s``, ``2h05m``, ``3d04h``. Whole numbers are known to the second."""
    whole = max(0, int(seconds))
    if seconds < 10 and not isinstance(seconds, int):
        return f"{max(0.0, seconds):.2f}s"
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 24 * 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def moment(seconds: float) -> str:
    """Unix seconds as local time."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
