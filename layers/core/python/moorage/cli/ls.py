"""``moorage ls``: the responses of a tenant, what runs first of all, and what each of those waits for."""

import argparse
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from moorage.cli.output import add_json, at_least_one, duration, moment, say_json, table
from moorage.cli.pages import entries
from moorage.cli.target import find
from moorage.command_hints import typed_here
from moorage.terminal import clear_screen, say

_SHOWN: Final = 20
_WATCH_SECONDS: Final = 2.0
_RUNNING: Final = "queued,in_progress"
_HEAD: Final = ("RESPONSE", "STATUS", "MODEL", "CREATED", "TOOK", "TOKENS", "DOLLARS", "WAITS FOR, OR WAS ASKED")
_DETAIL_CHARS: Final = 70


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Responses of the key's tenant, newest first. Those that run say what they wait for."
    parser.add_argument("--status", help="with commas: queued, in_progress, completed, incomplete, failed, cancelled")
    parser.add_argument("--running", action="store_const", const=_RUNNING, dest="status", help="only what runs")
    parser.add_argument("--model", help="only responses of this model")
    parser.add_argument("--container", help="only responses that used this container")
    parser.add_argument("--conversation", help="only responses of this conversation")
    parser.add_argument("--key", help="only responses that this key (key_...) asked for")
    parser.add_argument("--metadata", action="append", default=[], metavar="NAME=VALUE", type=_pair, help="may be given several times")
    parser.add_argument("-n", "--limit", type=at_least_one, default=_SHOWN, metavar="N", help=f"how many; by default {_SHOWN}")
    parser.add_argument("-w", "--watch", action="store_true", help="show it again every two seconds (Ctrl-C ends it)")
    add_json(parser)
    parser.set_defaults(run=_run)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        while True:
            found = list(itertools.islice(_found(http, options), options.limit))
            _show(found, options, now=time.time())
            if not options.watch:
                return 0
            time.sleep(_WATCH_SECONDS)


def _found(http: httpx.Client, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    query = {name: getattr(options, name) for name in ("status", "model", "container", "conversation", "key")}
    query |= {f"metadata[{name}]": value for name, value in options.metadata}
    return entries(http, "/responses", {"limit": min(100, options.limit), **{name: each for name, each in query.items() if each}})


def _show(rows: list[dict[str, Any]], options: argparse.Namespace, *, now: float) -> None:
    if options.json:
        for row in rows:
            say_json(row)
        return
    if options.watch:
        clear_screen()
    say(table(_HEAD, [_cells(row, now) for row in rows]))


def _cells(row: Mapping[str, Any], now: float) -> tuple[str, ...]:
    usage, end = row["usage"], row["ended_at"]
    return (
        row["id"],
        row["status"],
        row["model"],
        moment(row["created_at"]),
        duration((now if end is None else end) - row["created_at"]),
        str(usage["total_tokens"]) if usage else "",
        "" if row["cost_usd"] is None else f"{row['cost_usd']:.6f}",
        _last(row, now)[:_DETAIL_CHARS],
    )


def _last(row: Mapping[str, Any], now: float) -> str:
    if (wait := row["waiting_for"]) is not None:
        return waiting(wait, now)
    return typed_here(row["error"]["message"]) if row["error"] else str(row["input_preview"])


def waiting(wait: Mapping[str, Any], now: float) -> str:
    """The cause of a response's wait, and its length."""
    return typed_here(f"{wait['kind']} {duration(now - wait['since'] / 1000)}: {wait['detail']}")
