"""``moorage containers``: a tenant's containers, and what one of them tried to reach."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from moorage.cli.show import moment, table
from moorage.cli.target import answer_of, find

_PAGE: Final = 100


def add_to(commands: Any) -> None:
    parser = commands.add_parser("containers", help="containers, and their decisions about the network")
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(metavar="ACTION")
    actions.add_parser("list", help="the tenant's containers, newest first").set_defaults(run=_list)
    egress = actions.add_parser("egress", help="what a container tried to reach, and what came of it")
    egress.add_argument("container_id", metavar="CONTAINER_ID")
    egress.set_defaults(run=_egress)


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        rows = [
            (one["id"], one["status"], one["memory_limit"], moment(one["last_active_at"]), one["name"])
            for one in _all(http, "/containers")
        ]
    print(table(("CONTAINER", "STATUS", "MEMORY", "LAST ACTIVE", "NAME"), rows))
    return 0


def _egress(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        entries = list(_all(http, f"/containers/{options.container_id}/egress"))
    rows = [
        (moment(one["created_at"]), one["decision"], f"{one['host']}:{one['port']}", one["reason"] or "", f"{one['count']}")
        for one in reversed(entries)
    ]
    print(table(("TIME", "DECISION", "HOST", "REASON", "COUNT"), rows))
    for sentence in dict.fromkeys(one["message"] for one in reversed(entries) if one["message"]):
        print(sentence)
    return 0


def _all(http: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    """Every entry of a list, page by page."""
    after: dict[str, str] = {}
    while True:
        page = answer_of(http.get(path, params={"limit": _PAGE, **after}))
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["last_id"]}
