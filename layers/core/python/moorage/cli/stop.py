"""``moorage stop``: end what runs, one response or many.

One, or all of the key's tenant, are cancelled through the API. A tenant by name is the operator's business: its responses are marked in
the table, and every step that runs sees that within a second or two.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import httpx

from moorage.cli.output import add_json, say_json
from moorage.cli.pages import entries
from moorage.cli.target import Target, TargetError, answer_of, find
from moorage.terminal import say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Cancel a response, or all that run in the background. Commands that run are killed."
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("response_id", metavar="RESPONSE_ID", nargs="?", help="resp_... of a response in the background")
    which.add_argument("--all", action="store_true", help="all that run, of the key's tenant")
    which.add_argument("--key", metavar="KEY_ID", help="all that run and that this key (key_...) asked for")
    which.add_argument("--tenant", metavar="TENANT", help="all that the loop runs of this tenant; needs the table")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    target = find(environ)
    if options.tenant:
        return _told([{"id": each, "status": "cancelling"} for each in asyncio.run(_mark(target, options.tenant))], options)
    with target.http() as http:
        if options.response_id:
            return _told([answer_of(http.post(f"/responses/{options.response_id}/cancel"))], options)
        query = {"status": "queued,in_progress", **({"key": options.key} if options.key else {})}
        running = list(entries(http, "/responses", query))
        code = _told([_cancelled(http, each["id"]) for each in running if each["background"]], options)
        left = [each["id"] for each in running if not each["background"]]
    if left:
        say(f"Not cancelled, because a client waits for them: {', '.join(left)}. They end when it leaves.", out=sys.stderr)
    return 1 if left else code


def _cancelled(http: httpx.Client, response_id: str) -> dict[str, Any]:
    """One that has ended or gone meanwhile is none that runs."""
    try:
        return answer_of(http.post(f"/responses/{response_id}/cancel"))
    except TargetError as error:
        return {"id": response_id, "status": str(error)}


def _told(responses: list[dict[str, Any]], options: argparse.Namespace) -> int:
    for response in responses:
        if options.json:
            say_json({"id": response["id"], "status": response["status"]})
        else:
            say(f"{response['id']}  {response['status']}")
    if not responses and not options.json:
        say("Nothing runs.")
    return 0


async def _mark(target: Target, tenant_id: str) -> list[str]:
    """Ask for the end of all that the loop runs of a tenant; their ids."""
    from moorage.store import keys
    from moorage.store.response_list import ResponseList

    table = target.table()
    running = [entry.response_id for entry in await ResponseList(table).running(tenant_id)]
    for response_id in running:
        await table.update(keys.response(tenant_id, response_id), keys.META, set={"cancel_requested": True})
    return running
