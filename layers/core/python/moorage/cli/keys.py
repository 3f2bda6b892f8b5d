"""``moorage keys``: make, list and revoke API keys. They lie in the table, so that no server needs to run and none can be asked to."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from moorage.cli import shared_budgets, tiers
from moorage.cli.actions import CommandActions
from moorage.cli.audit_trail import note
from moorage.cli.durations import seconds_of
from moorage.cli.output import listing, moment, say_json, told
from moorage.cli.target import TargetError, find
from moorage.store.api_keys import READ, ApiKey, ApiKeys
from moorage.store.audit import AuditKind
from moorage.terminal import say

_SECONDS_MAX: Final = 3650 * 86400


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make, list and revoke API keys, and say what they may use, in the deployment's table."
    actions = CommandActions(parser)
    create = actions.add("create", _create, "make a key and print it; it is shown once")
    create.add_argument("--tenant", required=True, help="whose key it is: a-z, 0-9 and '-'; the first key of a name makes the tenant")
    create.add_argument("--name", default="", help="a note for the list")
    create.add_argument("--tier", default="", help="the tenant's usage plan at the gateway (usage_plans in cdk.json); for all its keys")
    create.add_argument("--expires", type=_seconds, default=0, metavar="TIME", help="ends by itself after so long: 12h, 30d")
    create.add_argument("--read-only", action="store_true", help="may look, and change nothing")
    actions.add("list", _list, "show all keys, never the keys themselves")
    shared_budgets.add_to(actions)
    revoke = actions.add("revoke", _revoke, "forget a key; processes that have just seen it obey within 30 seconds")
    revoke.add_argument("key_id", metavar="KEY_ID", help="key_... from the list")


def _seconds(text: str) -> int:
    """``30m``, ``12h``, ``30d`` or ``52w`` in seconds."""
    seconds = seconds_of(text)
    if seconds is None or not 60 <= seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is no time from 1m to 3650d; for example 12h or 30d")
    return seconds


def _keys(environ: Mapping[str, str]) -> ApiKeys:
    return ApiKeys(find(environ).table(), clock=time.time)


def _create(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The key alone goes to standard output: KEY=$(moorage keys create ...)."""
    if options.tier:
        tiers.put(environ, options.tenant, options.tier)
    made, secret = asyncio.run(
        _keys(environ).create(
            options.tenant,
            name=options.name,
            tier=options.tier,
            scope=READ if options.read_only else "",
            seconds=options.expires,
        )
    )
    bounds_of = {"scope": made.scope, "expires_at": made.expires_at, "tier": made.tier}
    what = {"key_id": made.key_id, **{name: value for name, value in bounds_of.items() if value}}
    note(find(environ), environ, AuditKind.KEY_MADE, what, tenant_id=made.tenant_id)
    if options.json:
        say_json(_shown(made) | {"key": secret})
        return 0
    say(secret)
    bounds = [*(["may only look"] if made.scope else []), *([f"ends at {moment(made.expires_at)}"] if made.expires_at else [])]
    may = f" It {' and '.join(bounds)}." if bounds else ""
    say(f"{made.key_id} for the tenant '{made.tenant_id}'.{may} Keep the key now: only its hash is stored.", out=sys.stderr)
    return 0


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return listing(
        options,
        map(_shown, asyncio.run(_keys(environ).page())),
        ("KEY", "TENANT", "TIER", "MAY", "CREATED", "UNTIL", "NAME"),
        lambda key: (
            key["key_id"],
            key["tenant_id"],
            key["tier"],
            key["scope"] or "all",
            moment(key["created_at"]),
            _until(key),
            key["name"],
        ),
    )


def _shown(key: ApiKey) -> dict[str, Any]:
    return {name: value for name, value in asdict(key).items() if name not in ("parent", "sealed", "subject")}


def _until(key: Mapping[str, Any]) -> str:
    return moment(key["expires_at"]) if key["expires_at"] else ""


def _revoke(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    keys = _keys(environ)
    before = asyncio.run(keys.page())
    if not asyncio.run(keys.revoke(options.key_id)):
        raise TargetError(f"There is no key '{options.key_id}'. 'moorage keys list' shows them.")
    tenant_id = next((key.tenant_id for key in before if key.key_id == options.key_id), "")
    note(find(environ), environ, AuditKind.KEY_REVOKED, {"key_id": options.key_id}, tenant_id=tenant_id)
    if tenant := tiers.without_keys(before, options.key_id):
        tiers.take_out(environ, tenant)
    return told(options, {"key_id": options.key_id, "revoked": True}, f"{options.key_id} is revoked.")
