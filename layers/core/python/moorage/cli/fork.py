"""``moorage fork``: a new response from an event of an old one."""

import argparse
from collections.abc import Mapping
from typing import Any

from moorage.cli.output import add_json, say_json
from moorage.cli.target import answer_of, find
from moorage.terminal import say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Begin a new response where an old one was at one of its events, with its container's files as they were then."
    parser.add_argument("response_id", metavar="RESPONSE_ID", help="resp_..., of a stored response")
    parser.add_argument("--at", type=int, metavar="EVENT", help="a number from its log (its /events); by default its end")
    parser.add_argument("--input", metavar="TEXT", help="what to say to it there")
    parser.add_argument("--model", help="another model")
    parser.add_argument("--container", choices=("copy", "share", "none"), help="by default a copy of its container")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    given = {name: getattr(options, name) for name in ("at", "input", "model", "container")}
    body = {"background": True} | {name: value for name, value in given.items() if value is not None}
    with find(environ).http() as http:
        response = answer_of(http.post(f"/responses/{options.response_id}/fork", json=body))
    if options.json:
        say_json({"id": response["id"], "status": response["status"], "forked_from": response["forked_from"]})
        return 0
    origin = response["forked_from"]
    say(f"{response['id']}  {response['status']}  from event {origin['at']} of {origin['response_id']}")
    if origin["container"] is not None:
        say(_told(origin["container"]))
    return 0


def _told(container: Mapping[str, Any]) -> str:
    files = "" if container["files"] is None else f", {container['files']} files"
    notice = "" if container["notice"] is None else f" {container['notice']}"
    return f"container {container['container_id']} ({container['mode']}{files}).{notice}"
