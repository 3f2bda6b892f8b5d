"""Lists of the API, page by page, and the actions that list resources and delete one."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import httpx

from moorage.cli.actions import Run
from moorage.cli.output import Row, listing, told
from moorage.cli.target import answer_of, find

_PAGE: Final = 100


def entries(http: httpx.Client, path: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Every entry of a list. A page may be empty and not be the last."""
    after: dict[str, str] = {}
    while True:
        page = answer_of(http.get(path, params={"limit": _PAGE, **(query or {}), **after}))
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["last_id"]}


def list_action(path: str, head: Sequence[str], cells: Callable[[Row], Sequence[str]]) -> Run:
    """Shows every entry of a list of the API as a row. ``path`` has the names of arguments in braces."""

    def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
        with find(environ).http() as http:
            return listing(options, entries(http, path.format_map(vars(options))), head, cells)

    return run


def delete_action(path: str, sentence: str) -> Run:
    """Deletes what is at ``path``, and says the ``sentence``; both have the names of arguments in braces."""

    def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
        with find(environ).http() as http:
            gone = answer_of(http.delete(path.format_map(vars(options))))
        return told(options, gone, sentence.format_map(vars(options)))

    return run
