"""``moorage approvals``: the calls that wait for a person's word, and the decisions."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from moorage.cli.actions import CommandActions
from moorage.cli.output import listing, moment, say_json
from moorage.cli.pages import entries
from moorage.cli.target import TargetError, answer_of, find
from moorage.ids import response_of
from moorage.terminal import say
from moorage.tools.approval_text import asked


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Calls of responses in the background that wait for a person's word: list them, allow them, deny them."
    parser.set_defaults(response_id=None)
    actions = CommandActions(parser, default=_list)
    listed = actions.add("list", _list, "waiting calls, newest first (the default ACTION)")
    listed.add_argument("response_id", metavar="RESPONSE_ID", nargs="?", help="all of this response, decided ones too")
    for name, does in (("approve", "let a call run"), ("deny", "do not let it run; the model is told why")):
        decided = actions.add(name, _decide, does, approve=name == "approve")
        decided.add_argument("approval_ids", metavar="APPROVAL_ID", nargs="+", help="apr_... from the list")
        decided.add_argument("--reason", help="kept with the decision, and told to the model where it is denied")
    linked = actions.add("link", _link, "make a link for a decision without a key")
    linked.add_argument("approval_id", metavar="APPROVAL_ID")
    linked.add_argument("--hours", type=int, default=24, metavar="N", help="how long it is valid, at most 168; by default 24")


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    path = "/approvals" if options.response_id is None else f"/responses/{options.response_id}/approvals"
    with find(environ).http() as http:
        return listing(
            options,
            entries(http, path),
            ("APPROVAL", "STATUS", "ASKED", "CALL"),
            lambda one: (one["id"], one["status"], moment(one["created_at"]), _asked(one["call"])),
        )


def _asked(call: Mapping[str, Any]) -> str:
    """On one line, and still whole."""
    texts = asked(call)
    return texts[0] if len(texts) == 1 else orjson.dumps(texts).decode()


def _decide(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    code = 0
    with find(environ).http() as http:
        for approval_id in options.approval_ids:
            try:
                decided = _decided(http, approval_id, options)
            except TargetError as error:
                say(f"{approval_id}  {error}", out=sys.stderr)
                code = 1
                continue
            if options.json:
                say_json(decided)
            else:
                say(f"{approval_id}  {decided['status']}  {_asked(decided['call'])}")
    return code


def _link(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    path = f"/responses/{_response_of(options.approval_id)}/approvals/{options.approval_id}/link"
    with find(environ).http() as http:
        made = answer_of(http.post(path, json={"expires_in_seconds": options.hours * 3600}))
        whole = str(http.base_url).rstrip("/").removesuffix("/v1") + made["path"]
    if options.json:
        say_json(made | {"url": whole})
    else:
        say(whole)
    return 0


def _response_of(approval_id: str) -> str:
    response_id = response_of(approval_id)
    if response_id is None:
        raise TargetError("This is no id of an approval: 'moorage approvals' lists those that wait.")
    return response_id


def _decided(http: httpx.Client, approval_id: str, options: argparse.Namespace) -> dict[str, Any]:
    body = {"approve": options.approve, **({"reason": options.reason} if options.reason else {})}
    return answer_of(http.post(f"/responses/{_response_of(approval_id)}/approvals/{approval_id}", json=body))
