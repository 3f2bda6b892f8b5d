"""``moorage agents``: saved agents."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from moorage.cli.actions import CommandActions
from moorage.cli.output import moment, say_json, told
from moorage.cli.pages import delete_action, list_action
from moorage.cli.target import answer_of, find
from moorage.cli.transfer import download, upload
from moorage.terminal import say

_list: Final = list_action(
    "/agents",
    ("AGENT", "VERSION", "CREATED", "MODEL", "NAME"),
    lambda one: (one["id"], str(one["version"]), moment(one["created_at"]), one["model"], one["name"] or ""),
)
_delete: Final = delete_action("/agents/{agent_id}", "{agent_id} is deleted.")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Saved agents: a model with its instructions and tools."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "all agents, newest first (without ACTION too)")
    show = actions.add("show", _show, "the settings of an agent")
    show.add_argument("--version", type=int, metavar="N", help="an earlier version; by default the latest")
    delete = actions.add("delete", _delete, "delete an agent with its versions")
    exported = actions.add("export", _export, "an agent with its versions and sessions, as an archive")
    exported.add_argument("agent_id", metavar="AGENT_ID", help="agent_... from the list")
    exported.add_argument("to", metavar="PATH", type=Path, nargs="?", help="a file or a folder; by default AGENT_ID.tar, here")
    imported = actions.add("import", _import, "an agent with its sessions out of an archive that 'export' has made")
    imported.add_argument("archive", metavar="FILE", type=Path)
    imported.add_argument("--vault", metavar="VAULT_ID", action="append", default=[], help="a vault for its sessions; repeatable")
    imported.add_argument("--no-network", action="store_true", help="their environments reach nothing; by default what they reached")
    for action in (show, delete):
        action.add_argument("agent_id", metavar="AGENT_ID", help="agent_... from the list")


def _show(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    query = {} if options.version is None else {"version": options.version}
    with find(environ).http() as http:
        agent = answer_of(http.get(f"/agents/{options.agent_id}", params=query))
    if options.json:
        say_json(agent)
        return 0
    tools = ", ".join(tool.get("name") or tool.get("server_label") or tool["type"] for tool in agent["tools"]) or "none"
    say(f"{agent['id']}  version {agent['version']}, {moment(agent['updated_at'])}  {agent['name'] or ''}".rstrip())
    say(f"model  {agent['model']}\ntools  {tools}")
    if agent["instructions"]:
        say(f"\n{agent['instructions']}")
    return 0


def _export(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        written = download(http, f"/agents/{options.agent_id}/export", options.to or Path(), f"{options.agent_id}.tar")
    size = written.stat().st_size
    return told(options, {"id": options.agent_id, "path": str(written), "bytes": size}, f"{written}  {size} bytes")


def _import(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    asked: dict[str, Any] = {"vault_ids": options.vault, "network": "disabled" if options.no_network else "keep"}
    with find(environ).http() as http:
        file = upload(http, options.archive, "user_data")
        try:
            made = answer_of(http.post("/agents/import", json={**asked, "file_id": file["id"]}))
        finally:
            http.delete(f"/files/{file['id']}")
    if options.json:
        say_json(made)
        return 0
    say(f"{made['agent']['id']} is {made['imported_from']}.")
    for session in made["sessions"]:
        without = f"  without {', '.join(session['left_out'])}" if session["left_out"] else ""
        say(f"{session['id']} is {session['imported_from']}.{without}")
    return 0
