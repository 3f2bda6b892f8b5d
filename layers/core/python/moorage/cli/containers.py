"""``moorage containers``: a tenant's containers, and what one of them tried to reach."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from moorage.cli.show import add_json, listing, moment
from moorage.cli.target import answer_of, find

_PAGE: Final = 100


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "containers",
        help="containers, and their decisions about the network",
        description="Show the containers of the key's tenant, or what one of them tried to reach.",
    )
    add_json(parser)
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(metavar="ACTION")
    listed = actions.add_parser("list", help="the tenant's containers, newest first (without ACTION too)")
    add_json(listed, is_inherited=True)
    listed.set_defaults(run=_list)
    egress = actions.add_parser("egress", help="what a container tried to reach, and what came of it")
    egress.add_argument("container_id", metavar="CONTAINER_ID", help="cntr_... from the list")
    add_json(egress, is_inherited=True)
    egress.set_defaults(run=_egress)


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        return listing(
            options,
            _all(http, "/containers"),
            ("CONTAINER", "STATUS", "MEMORY", "LAST ACTIVE", "NAME"),
            lambda one: (one["id"], one["status"], one["memory_limit"], moment(one["last_active_at"]), one["name"]),
        )


def _egress(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        entries = list(_all(http, f"/containers/{options.container_id}/egress"))
    entries.reverse()
    code = listing(
        options,
        entries,
        ("TIME", "DECISION", "HOST", "REASON", "COUNT"),
        lambda one: (
            moment(one["created_at"]),
            one["decision"],
            f"{one['host']}:{one['port']}",
            one["reason"] or "",
            str(one["count"]),
        ),
    )
    if not options.json:
        for sentence in dict.fromkeys(one["message"] for one in entries if one["message"]):
            print(sentence)
    return code


def _all(http: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    """Every entry of a list, page by page."""
    after: dict[str, str] = {}
    while True:
        page = answer_of(http.get(path, params={"limit": _PAGE, **after}))
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["last_id"]}
