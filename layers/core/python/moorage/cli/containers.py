"""``moorage containers``: a tenant's containers, and what one of them tried to reach."""

import argparse
from collections.abc import Mapping

from moorage.cli.pages import entries
from moorage.cli.show import add_json, listing, moment
from moorage.cli.target import find
from moorage.terminal import say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show the containers of the key's tenant, or what one of them tried to reach."
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
            entries(http, "/containers"),
            ("CONTAINER", "STATUS", "MEMORY", "LAST ACTIVE", "NAME"),
            lambda one: (one["id"], one["status"], one["memory_limit"], moment(one["last_active_at"]), one["name"]),
        )


def _egress(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        found = list(entries(http, f"/containers/{options.container_id}/egress"))
    found.reverse()
    code = listing(
        options,
        found,
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
        for sentence in dict.fromkeys(one["message"] for one in found if one["message"]):
            say(sentence)
    return code
