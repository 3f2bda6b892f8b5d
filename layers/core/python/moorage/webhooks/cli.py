"""``moorage webhooks``: addresses that hear of background responses, of approvals that wait, and of sessions of agents."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from moorage.cli.actions import CommandActions
from moorage.cli.output import listing, moment, say_json, told
from moorage.cli.pages import delete_action, list_action
from moorage.cli.target import answer_of, find
from moorage.terminal import say
from moorage.webhooks.event_types import EVENT_TYPES

_HEAD: Final = ("EVENT", "TYPE", "RESPONSE", "ENDED", "STATUS", "ATTEMPTS", "LAST ANSWER")

_list: Final = list_action(
    "/webhook_endpoints",
    ("ENDPOINT", "STATUS", "CREATED", "NAME", "URL"),
    lambda one: (one["id"], one["status"], moment(one["created_at"]), one["name"], one["url"]),
)
_delete: Final = delete_action("/webhook_endpoints/{endpoint_id}", "{endpoint_id} gets nothing more.")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Addresses that hear of ends of background responses and of waiting approvals, and what was sent to them."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "all endpoints, newest first (without ACTION too)")
    create = actions.add("create", _create, "make an endpoint; its secret is shown once")
    create.add_argument("url", metavar="URL", help="https://...")
    create.add_argument("--name", help="by default the URL")
    create.add_argument("--event", action="append", choices=EVENT_TYPES, dest="events", help="may be repeated; by default all")
    delete = actions.add("delete", _delete, "send it nothing more")
    test = actions.add("test", _test, "send a sample event now, and show the answer")
    test.add_argument("--event", choices=EVENT_TYPES, default=EVENT_TYPES[0], help=f"by default {EVENT_TYPES[0]}")
    deliveries = actions.add("deliveries", _deliveries, "deliveries to an endpoint, newest first")
    deliveries.add_argument("-n", "--limit", type=int, default=20, metavar="N", help="how many; by default 20")
    for action in (delete, test, deliveries):
        action.add_argument("endpoint_id", metavar="ENDPOINT_ID", help="wh_... from the list")


def _create(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The secret is a line of its own: it is shown once."""
    wanted = {"name": options.name or options.url, "url": options.url, "event_types": options.events or list(EVENT_TYPES)}
    with find(environ).http() as http:
        made = answer_of(http.post("/webhook_endpoints", json=wanted))
    if options.json:
        say_json(made)
    else:
        say(f"{made['id']}\n{made['signing_secret']}")
    return 0


def _test(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """A failure if the endpoint did not take it: scripts ask for that."""
    with find(environ).http() as http:
        said = answer_of(http.post(f"/webhook_endpoints/{options.endpoint_id}/test", json={"event_type": options.event}))
    told(options, said, f"It answered {said['status_code']}.")
    return 0 if 200 <= said["status_code"] < 300 else 1


def _deliveries(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        page = answer_of(http.get(f"/webhook_endpoints/{options.endpoint_id}/deliveries", params={"limit": options.limit}))
    return listing(options, page["data"], _HEAD, _cells)


def _cells(delivery: Mapping[str, Any]) -> tuple[str, ...]:
    last = delivery["attempts"][-1] if delivery["attempts"] else {}
    return (
        delivery["id"],
        delivery["event_type"],
        delivery["response_id"] or delivery["session_id"] or "",
        moment(delivery["created_at"]),
        delivery["status"],
        str(delivery["attempt_count"]),
        str(last.get("status_code") or last.get("error") or ""),
    )
