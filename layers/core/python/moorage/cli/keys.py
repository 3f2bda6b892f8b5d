"""``moorage keys``: make, list and revoke API keys. They lie in the table, so that no server needs to run and none can be asked to."""

import argparse
import asyncio
import time
from collections.abc import Mapping
from typing import Any

from moorage.cli.show import moment, table
from moorage.cli.target import TargetError, find
from moorage.store.api_keys import ApiKeys


def add_to(commands: Any) -> None:
    actions = commands.add_parser("keys", help="API keys and the tenants behind them").add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key; it is shown once")
    create.add_argument("--tenant", required=True, help="whose key it is: a-z, 0-9 and '-'; the first key of a name makes the tenant")
    create.add_argument("--name", default="", help="a note for the list")
    create.set_defaults(run=_create)
    actions.add_parser("list", help="show all keys, never the keys themselves").set_defaults(run=_list)
    revoke = actions.add_parser("revoke", help="forget a key; processes that have just seen it obey within 30 seconds")
    revoke.add_argument("key_id", metavar="KEY_ID", help="key_... from the list")
    revoke.set_defaults(run=_revoke)


def _keys(environ: Mapping[str, str]) -> ApiKeys:
    return ApiKeys(find(environ).table(), clock=time.time)


def _create(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    made, secret = asyncio.run(_keys(environ).create(options.tenant, name=options.name))
    print(f"{secret}\n\n{made.key_id} for the tenant '{made.tenant_id}'. Keep the key now: only its hash is stored.")
    return 0


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    listed = asyncio.run(_keys(environ).page())
    rows = [(key.key_id, key.tenant_id, moment(key.created_at), key.name) for key in listed]
    print(table(("KEY", "TENANT", "CREATED", "NAME"), rows))
    return 0


def _revoke(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if not asyncio.run(_keys(environ).revoke(options.key_id)):
        raise TargetError(f"There is no key '{options.key_id}'. 'moorage keys list' shows them.")
    print(f"{options.key_id} is revoked.")
    return 0
