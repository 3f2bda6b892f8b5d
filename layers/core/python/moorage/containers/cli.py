"""``moorage containers``: a tenant's containers, their files, a command or a terminal in one, and what one tried to reach."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from moorage.cli.actions import CommandActions
from moorage.cli.output import listing, moment, say_json
from moorage.cli.pages import entries, list_action
from moorage.cli.target import TargetError, answer_of, find
from moorage.cli.transfer import download
from moorage.terminal import say
from moorage.terminals import cli as container_shell

_list: Final = list_action(
    "/containers",
    ("CONTAINER", "STATUS", "MEMORY", "LAST ACTIVE", "NAME"),
    lambda one: (one["id"], one["status"], one["memory_limit"], moment(one["last_active_at"]), one["name"]),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "The containers of the key's tenant: list them, copy files, run a command, see what one tried to reach."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "the tenant's containers, newest first (without ACTION too)")
    copy = actions.add("cp", _copy, "copy a file into a container, or out of it: one of the two is CONTAINER_ID:PATH")
    copy.add_argument("source", metavar="FROM", help="a file here, or cntr_...:/mnt/data/report.csv")
    copy.add_argument("target", metavar="TO", help="a file or folder here, or cntr_...: (it is put under /mnt/data by its own name)")
    tree = actions.add("tree", _tree, "the saved files of a container")
    tree.add_argument("container_id", metavar="CONTAINER_ID")
    tree.add_argument("path", metavar="PATH", nargs="?", default="/mnt/data")
    run = actions.add("exec", _exec, "run a command in a container; its exit code becomes this one's")
    run.add_argument("container_id", metavar="CONTAINER_ID")
    run.add_argument("command", metavar="COMMAND", nargs="+", help="as a shell takes it; words are joined by spaces")
    container_shell.add_to(actions.add_plain("shell", "a terminal in a container"))
    egress = actions.add("egress", _egress, "requests of a container to the network, with their outcome")
    egress.add_argument("container_id", metavar="CONTAINER_ID", help="cntr_... from the list")


def _copy(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    source, target = _place(options.source), _place(options.target)
    if (source is None) == (target is None):
        raise TargetError("One of the two is a place in a container: cntr_...:/mnt/data/file.")
    with find(environ).http() as http:
        if target is not None:
            copied = _put(http, Path(options.source), *target)
        else:
            assert source is not None
            copied = _get(http, *source, Path(options.target))
    if options.json:
        say_json(copied)
    else:
        say(f"{copied['path']}  {copied['bytes']} bytes")
    return 0


def _place(text: str) -> tuple[str, str] | None:
    """Container and path; None for a path here."""
    container_id, colon, path = text.partition(":")
    return (container_id, path) if colon and container_id.startswith("cntr_") else None


def _put(http: httpx.Client, source: Path, container_id: str, path: str) -> dict[str, Any]:
    """The file in the container."""
    folder, _, name = path.rpartition("/")
    if folder not in ("", "/mnt/data"):
        raise TargetError("Files are put into /mnt/data itself; a command may move them.")
    with source.open("rb") as content:
        made: dict[str, Any] = answer_of(http.post(f"/containers/{container_id}/files", files={"file": (name or source.name, content)}))
    return made


def _get(http: httpx.Client, container_id: str, path: str, to: Path) -> dict[str, Any]:
    """The file here."""
    wanted = path if path.startswith("/") else f"/mnt/data/{path}"
    tree = answer_of(http.get(f"/containers/{container_id}/tree"))["data"]
    found = next((one for one in tree if one["type"] == "file" and one["path"] == wanted), None)
    if found is None:
        raise TargetError(f"No saved file {wanted} in {container_id}. 'moorage containers tree {container_id}' lists them.")
    written = download(http, f"/containers/{container_id}/files/{found['id']}/content", to, wanted)
    return {"id": found["id"], "path": str(written), "bytes": found["bytes"]}


def _tree(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        found = answer_of(http.get(f"/containers/{options.container_id}/tree", params={"path": options.path}))["data"]
    ends = {"folder": "/", "file": ""}
    return listing(options, found, ("BYTES", "PATH"), lambda one: (str(one["bytes"]), one["path"] + ends[one["type"]]))


def _exec(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The scripted model asks for the command: no model decides about it. Nothing of it is kept."""
    calls = json.dumps([{"shell": {"commands": [" ".join(options.command)]}}, {"say": "done"}])
    body = {
        "model": "demo",
        "input": f"```moorage-script\n{calls}\n```",
        "store": False,
        "tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": options.container_id}}],
    }
    with find(environ).http() as http:
        response = answer_of(http.post("/responses", json=body))
    outputs = [output for item in response["output"] if item["type"] == "shell_call_output" for output in item["output"]]
    if not outputs:
        raise TargetError(f"The command was not run: {(response['error'] or {}).get('message', response['status'])}")
    for output in outputs:
        if options.json:
            say_json(output)
            continue
        say(output["stdout"], end="")
        say(output["stderr"], end="", out=sys.stderr)
    outcome = outputs[-1]["outcome"]
    return int(outcome["exit_code"]) if outcome["type"] == "exit" else 1


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
