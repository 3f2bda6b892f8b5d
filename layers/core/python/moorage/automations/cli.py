"""``moorage automations``: input for sessions of agents at set times."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from moorage.cli.actions import CommandActions
from moorage.cli.output import moment, say_json, told
from moorage.cli.pages import delete_action, list_action
from moorage.cli.target import answer_of, find
from moorage.terminal import say

_list: Final = list_action(
    "/agents/automations",
    ("AUTOMATION", "STATUS", "TIMES", "NAME"),
    lambda one: (one["id"], one["status"], _times(one), one["name"]),
)
_delete: Final = delete_action("/agents/automations/{automation_id}", "{automation_id} is deleted.")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Automations: input for sessions of agents at set times."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "all automations, newest first (without ACTION too)")
    for name, run, about in (
        ("show", _show, "an automation and its latest invocations"),
        ("pause", _change, "invoke an automation no more"),
        ("resume", _change, "invoke an automation again"),
        ("delete", _delete, "delete an automation; sessions stay"),
    ):
        action = actions.add(name, run, about, action=name)
        action.add_argument("automation_id", metavar="AUTOMATION_ID", help="auto_... from the list")


def _times(automation: Mapping[str, Any]) -> str:
    if automation["type"] == "once":
        return moment(automation["run_at"])
    return f"{automation['expression']} ({automation['timezone']})"


def _show(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    path = f"/agents/automations/{options.automation_id}"
    with find(environ).http() as http:
        automation = answer_of(http.get(path))
        latest = answer_of(http.get(f"{path}/invocations", params={"limit": 10}))["data"]
    if options.json:
        say_json(automation | {"invocations": latest})
        return 0
    reason = f" ({automation['pause_reason']})" if automation["pause_reason"] else ""
    say(f"{automation['id']}  {automation['status']}{reason}  {automation['name']}")
    say(f"times   {_times(automation)}\ntarget  {automation['target'].get('session_id') or 'a new session'}")
    for one in latest:
        said = one["session_id"] or (one["error"] or {}).get("message") or ""
        say(f"{moment(one['scheduled_at'] or one['created_at'])}  {one['status']}  {said}".rstrip())
    return 0


def _change(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        automation = answer_of(http.post(f"/agents/automations/{options.automation_id}/{options.action}"))
    return told(options, automation, f"{options.automation_id} is {automation['status']}.")
