"""``moorage logs``: what a local stack told its operator. One line for each request, step and failure, of whichever process."""

import argparse
import datetime
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import orjson

from moorage.cli.output import at_least_one, say_json
from moorage.cli.target import TargetError, local_state
from moorage.local.logs import API, STEPS, Line, LogLines, lines_of, parsed
from moorage.terminal import one_line, say

_LINES: Final = 100
_PAUSE_SECONDS: Final = 0.2
_NOT_SHOWN: Final = frozenset({"timestamp", "level", "message", "service", "location", "_aws"})
_COLOURS: Final = {"ERROR": "red", "WARNING": "yellow"}
_COUNTS: Final = "sandboxes"
"""How many there are, every few seconds: for metrics and programs. It would push all else out of a person's last hundred lines."""


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the last lines of the local stack's log, or all that name a response, a container or a request. On AWS the same lines "
        "are in CloudWatch Logs, a group for each function."
    )
    parser.add_argument("id", metavar="ID", nargs="?", default="", help="resp_..., cntr_..., call_... or a request's id")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes (Ctrl-C ends it)")
    count = f"how many without an ID; by default {_LINES}"
    parser.add_argument("-n", "--lines", type=at_least_one, default=_LINES, metavar="N", help=count)
    parser.add_argument("--json", action="store_true", help="the lines as they were written, for programs")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if (state_dir := local_state(environ)) is None:
        raise TargetError(
            "There is no local stack here (no .moorage/ with one that has been started): 'moorage up' starts one. The lines of a "
            "deployment on AWS are in CloudWatch Logs, a group for each function."
        )
    ends = {path: path.stat().st_size for path in lines_of(state_dir)}
    written = sorted(_written(ends), key=lambda line: str(line.get("timestamp", "")))
    chosen = [line for line in written if _is_asked_for(line, options)]
    if options.id and not chosen and not options.follow:
        raise TargetError(f"No line of the log names '{options.id}'. 'moorage ls' lists the responses.")
    for line in chosen if options.id else chosen[-options.lines :]:
        _show(line, options.json)
    if options.follow:
        for line in _coming(state_dir, ends):
            if _is_asked_for(line, options):
                _show(line, options.json)
    return 0


def _written(ends: Mapping[Path, int]) -> Iterator[Line]:
    for path, end in ends.items():
        with path.open("rb") as file:
            yield from parsed(file.read(end))


def _coming(state_dir: Path, ends: Mapping[Path, int]) -> Iterator[Line]:
    """Whatever is written from now on. A file that was put aside is read to its end, and then the one in its place."""
    readers = [LogLines(state_dir / name, ends.get(state_dir / name, 0)) for name in (API, STEPS)]
    while True:
        came = sorted((line for reader in readers for line in reader.read()), key=lambda line: str(line.get("timestamp", "")))
        yield from came
        time.sleep(_PAUSE_SECONDS)


def _is_asked_for(line: Line, options: argparse.Namespace) -> bool:
    is_shown = options.json or line.get("message") != _COUNTS
    return is_shown and (not options.id or options.id in line.values())


def _show(line: Line, is_json: bool, out: TextIO | None = None) -> None:
    shown = sys.stdout if out is None else out
    if is_json:
        say_json(line)
        return
    fields = "  ".join(f"{name}={_value(value)}" for name, value in line.items() if name not in _NOT_SHOWN)
    level = str(line.get("level", ""))
    said = f"{_clock(str(line.get('timestamp', '')))}  {one_line(str(line.get('message', '')))}  {one_line(fields)}"
    say(said.rstrip(), colour=_COLOURS.get(level, ""), out=shown)


def _value(value: Any) -> str:
    """A metric is a list of one number."""
    match value:
        case [one]:
            return _value(one)
        case str():
            return value if " " not in value else orjson.dumps(value).decode()
    return orjson.dumps(value, default=str).decode()


def _clock(timestamp: str) -> str:
    """RFC 3339 as the time of this place, to the millisecond."""
    try:
        return datetime.datetime.fromisoformat(timestamp).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except ValueError:
        return timestamp
