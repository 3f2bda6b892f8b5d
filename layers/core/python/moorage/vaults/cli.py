"""``moorage vaults``: credentials of agents. What is secret goes in by a file or by standard input, and never comes out."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from moorage.cli.actions import CommandActions
from moorage.cli.output import moment, say_json, table, told
from moorage.cli.pages import delete_action, entries, list_action
from moorage.cli.target import TargetError, answer_of, find
from moorage.terminal import say

_HEAD = ("CREDENTIAL", "TYPE", "FOR", "UPDATED", "NAME")

_list: Final = list_action(
    "/vaults",
    ("VAULT", "CREATED", "NAME"),
    lambda one: (one["id"], moment(one["created_at"]), one["name"] or ""),
)
_credentials: Final = list_action("/vaults/{vault_id}/credentials", _HEAD, lambda one: _cells(one))
_delete: Final = delete_action("/vaults/{vault_id}", "{vault_id} is deleted.")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Credentials of agents: tokens of MCP servers, and values for the requests of containers."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "all vaults, newest first (without ACTION too)")
    create = actions.add("create", _create, "make a vault")
    create.add_argument("name", nargs="?", metavar="NAME", help="a word for people")
    show = actions.add("show", _show, "a vault and its credentials")
    delete = actions.add("delete", _delete, "delete a vault with its credentials")
    credentials = actions.add("credentials", _credentials, "the credentials of a vault, newest first")
    add = actions.add("add", _add, "put a credential into a vault")
    rotate = actions.add("rotate", _rotate, "replace the secrets of a credential")
    remove = actions.add("remove", _remove, "delete a credential")
    for action in (show, delete, credentials, add, rotate, remove):
        action.add_argument("vault_id", metavar="VAULT_ID", help="vault_... from the list")
    for action in (rotate, remove):
        action.add_argument("credential_id", metavar="CREDENTIAL_ID", help="cred_... of the vault")
    body = "JSON with 'name', 'auth' and 'metadata', as docs/vaults.md has them; by default standard input"
    add.add_argument("file", nargs="?", metavar="FILE", help=body)
    rotate.add_argument("file", nargs="?", metavar="FILE", help="JSON with 'auth', and 'metadata'; by default standard input")


def _create(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        made = answer_of(http.post("/vaults", json={} if options.name is None else {"name": options.name}))
    return told(options, made, made["id"])


def _show(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        vault = answer_of(http.get(f"/vaults/{options.vault_id}"))
        credentials = list(entries(http, f"/vaults/{options.vault_id}/credentials"))
    if options.json:
        say_json({**vault, "credentials": credentials})
        return 0
    say(f"{vault['id']}  {moment(vault['created_at'])}  {vault['name'] or ''}".rstrip())
    if vault["metadata"]:
        say("\n".join(f"{name}: {value}" for name, value in vault["metadata"].items()))
    say("\n" + (table(_HEAD, list(map(_cells, credentials))) if credentials else "no credentials"))
    return 0


def _add(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    body = _body(options.file)
    with find(environ).http() as http:
        made = answer_of(http.post(f"/vaults/{options.vault_id}/credentials", json=body))
    return told(options, made, made["id"])


def _rotate(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    body = _body(options.file)
    with find(environ).http() as http:
        changed = answer_of(http.post(_place(options), json=body))
    return told(options, changed, f"{options.credential_id} is changed.")


def _remove(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        gone = answer_of(http.delete(_place(options)))
    return told(options, gone, f"{options.credential_id} is deleted.")


def _place(options: argparse.Namespace) -> str:
    return f"/vaults/{options.vault_id}/credentials/{options.credential_id}"


def _body(file: str | None) -> Any:
    """A fault of it is told without its value."""
    where = "Standard input" if file is None else file
    try:
        text = sys.stdin.buffer.read() if file is None else Path(file).read_bytes()
    except OSError as error:
        raise TargetError(f"{where} cannot be read: {error.strerror}.") from error
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise TargetError(f"{where} is not JSON (line {error.lineno}, column {error.colno}).") from None
    if not isinstance(body, dict):
        raise TargetError(f"{where} holds no JSON object.")
    return body


def _cells(credential: dict[str, Any]) -> tuple[str, ...]:
    auth = credential["auth"]
    use = auth["mcp_server_url"] if "mcp_server_url" in auth else auth["secret_name"]
    return credential["id"], auth["type"], use, moment(credential["updated_at"]), credential["name"]
