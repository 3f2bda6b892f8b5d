"""``moorage pause``: a response stands still before its next step."""

import argparse
from collections.abc import Mapping

from moorage.cli.output import add_json, say_json
from moorage.cli.target import answer_of, find
from moorage.command_hints import typed_here
from moorage.terminal import say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "The step that runs comes to its end, and no other begins. 'moorage resume' lets it go on, days later too."
    add_action(parser, "pause")


def add_action(parser: argparse.ArgumentParser, action: str) -> None:
    """The arguments of this command and of its opposite."""
    parser.add_argument("response_ids", metavar="RESPONSE_ID", nargs="+", help="resp_..., with tools or in the background")
    add_json(parser)
    parser.set_defaults(run=_run, action=action)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        for response_id in options.response_ids:
            response = answer_of(http.post(f"/responses/{response_id}/{options.action}"))
            if options.json:
                say_json({"id": response_id, "status": response["status"], "waiting_for": response.get("waiting_for")})
            else:
                say(typed_here(f"{response_id}  {response['status']}  {response.get('waiting_for') or ''}".rstrip()))
    return 0
