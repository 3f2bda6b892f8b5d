"""``moorage secrets``: credentials of the operator's that containers may use without having them (docs/egress.md).

They lie in the table, sealed under the deployment's key; only the egress proxy opens them. A value comes from standard input or is
asked for: what stands on a command line can be read by every process of the machine, and stays in the shell's history.
"""

import argparse
import asyncio
import getpass
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import boto3

from moorage.cli.actions import CommandActions
from moorage.cli.at_end import threads
from moorage.cli.audit_trail import note
from moorage.cli.output import listing, moment, told
from moorage.cli.target import AWS_CONFIG, Target, TargetError, find
from moorage.egress.keys import key_service
from moorage.egress.operator_secrets import OperatorSecrets
from moorage.egress.secrets import OperatorSecret
from moorage.local.key_file import kept_keys, rotate_keys
from moorage.store.audit import AuditKind


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Set, list and delete the operator's named secrets. A request refers to one by its name and domain, in "
        "network_policy.domain_secrets, and gives no value."
    )
    actions = CommandActions(parser)
    put = actions.add("set", _set, "make a secret or replace its value, read from standard input or asked for")
    put.add_argument("name", metavar="NAME", help="the environment variable that holds its placeholder in a container")
    put.add_argument("--domain", required=True, help="the one host that it is sent to")
    put.add_argument("--tenant", action="append", default=[], help="who may use it; may be repeated; everybody if left out")
    actions.add("list", _list, "show all secrets, never their values")
    delete = actions.add("delete", _delete, "forget a secret; the proxy obeys within two seconds")
    delete.add_argument("name", metavar="NAME")
    actions.add("rotate-key", _rotate, "seal with a new key from now on (a stack on one machine)")


def _secrets(environ: Mapping[str, str]) -> OperatorSecrets:
    target = find(environ)
    kms = partial(boto3.client, "kms", **target.aws, config=AWS_CONFIG)
    keys = key_service(_key_of(target, environ), threads(1), kms)
    return OperatorSecrets(target.table(), keys, time.time)


def _key_of(target: Target, environ: Mapping[str, str]) -> str:
    if target.state_dir is not None:
        return kept_keys(target.state_dir)
    if key := environ.get("MOORAGE_EGRESS_KEY"):
        return key
    raise TargetError(
        "Set MOORAGE_EGRESS_KEY: the key that seals secrets. 'make deployed' shows it where containers may have a network."
    )


def _rotate(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    state_dir = find(environ).state_dir
    if state_dir is None:
        raise TargetError("KMS makes a new key each year by itself: only a stack on one machine has a key file.")
    made = rotate_keys(state_dir)
    note(find(environ), environ, AuditKind.SETTING_CHANGED, {"setting": "key of secrets", "name": made, "done": "made"})
    return told(options, {"key": made}, f"{made} seals what comes from now on. What was sealed before stays readable.")


def _set(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    secrets = _secrets(environ)
    made = asyncio.run(secrets.define(options.name, options.domain, _value(options.name), tuple(dict.fromkeys(options.tenant))))
    what = {"setting": "secret", "name": made.name, "domain": made.domain, "tenants": list(made.tenants), "done": "set"}
    note(find(environ), environ, AuditKind.SETTING_CHANGED, what)
    return told(options, _shown(made), f"{made.name} is set for {made.domain}.")


def _value(name: str) -> str:
    """One line: the break at its end is the editor's or echo's, not the value's."""
    if sys.stdin.isatty():
        return getpass.getpass(f"Value of {name} (it is not shown): ")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return listing(
        options,
        map(_shown, asyncio.run(_secrets(environ).all())),
        ("NAME", "DOMAIN", "TENANTS", "SET"),
        lambda row: (row["name"], row["domain"], ", ".join(row["tenants"]) or "all", moment(row["set_at"])),
    )


def _delete(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if not asyncio.run(_secrets(environ).delete(options.name)):
        raise TargetError(f"There is no secret '{options.name}'. 'moorage secrets list' shows them.")
    note(find(environ), environ, AuditKind.SETTING_CHANGED, {"setting": "secret", "name": options.name, "done": "deleted"})
    return told(options, {"name": options.name, "deleted": True}, f"{options.name} is deleted.")


def _shown(secret: OperatorSecret) -> dict[str, Any]:
    """Without its value."""
    return {"name": secret.name, "domain": secret.domain, "tenants": list(secret.tenants), "set_at": secret.set_at}
