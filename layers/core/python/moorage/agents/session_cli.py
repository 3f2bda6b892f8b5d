"""``moorage sessions``: sessions of agents."""

import argparse
from collections.abc import Mapping
from typing import Final

from moorage.cli.actions import CommandActions
from moorage.cli.output import moment, say_json, told
from moorage.cli.pages import entries, list_action
from moorage.cli.target import answer_of, find
from moorage.terminal import say

_list: Final = list_action(
    "/agents/sessions",
    ("SESSION", "STATUS", "ACTIVE", "MODEL", "AGENT"),
    lambda one: (
        one["id"],
        one["status"],
        moment(one["last_active_at"]),
        one["agent"]["model"],
        one["agent"]["name"] or one["agent"]["id"],
    ),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Sessions of agents: their turns, forks, and the end of one."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "all sessions, newest first (without ACTION too)")
    show = actions.add("show", _show, "a session with its turns, oldest first")
    fork = actions.add("fork", _fork, "another session that goes on from the end of a turn, with a copy of its environment")
    fork.add_argument("--turn", metavar="TURN_ID", help="turn_... of 'show'; by default the last one that has ended")
    cancel = actions.add("cancel", _cancel, "cancel the turn of a session")
    delete = actions.add("delete", _delete, "delete a session with its turns and its container")
    delete.add_argument("--force", action="store_true", help="also if it is busy: its turn is cancelled")
    for action in (show, fork, cancel, delete):
        action.add_argument("session_id", metavar="SESSION_ID", help="session_... from the list")


def _show(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    place = f"/agents/sessions/{options.session_id}"
    with find(environ).http() as http:
        session = answer_of(http.get(place))
        turns = list(entries(http, f"{place}/turns", {"order": "asc"}))
    if options.json:
        say_json({**session, "turns": turns})
        return 0
    environment = session["environment"].get("id", "none")
    say(f"{session['id']}  {session['status']}  {session['error'] or ''}".rstrip())
    say(f"model  {session['agent']['model']}\nenvironment  {environment}")
    for turn in turns:
        say(f"{turn['id']}  {turn['status']}  {moment(turn['created_at'])}  {', '.join(turn['response_ids'])}")
    return 0


def _fork(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    body = {} if options.turn is None else {"turn_id": options.turn}
    with find(environ).http() as http:
        made = answer_of(http.post(f"/agents/sessions/{options.session_id}/fork", json=body))
    return told(options, made, f"{made['id']} goes on from {made['forked_from']['turn_id']}.")


def _cancel(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        events = {"events": [{"type": "agent.session.input.cancel"}]}
        answer_of(http.post(f"/agents/sessions/{options.session_id}/events", json=events))
    cancelled = {"id": options.session_id, "cancelled": True}
    return told(options, cancelled, f"The turn of {options.session_id} is cancelled.")


def _delete(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    query = {"force": "true"} if options.force else {}
    with find(environ).http() as http:
        gone = answer_of(http.delete(f"/agents/sessions/{options.session_id}", params=query))
    return told(options, gone, f"{options.session_id} is deleted.")
