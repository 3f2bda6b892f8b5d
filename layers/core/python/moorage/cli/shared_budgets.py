"""``moorage keys budget``: what a key, or all keys of a tenant, may use together. The counters lie in the table."""

import argparse
import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from moorage.cli.actions import CommandActions
from moorage.cli.audit_trail import note
from moorage.cli.output import say_json, table
from moorage.cli.target import TargetError, find
from moorage.errors import ConditionFailed
from moorage.store.api_keys import ApiKey, ApiKeys
from moorage.store.audit import AuditKind
from moorage.store.budgets import MEASURES, Budgets, BudgetStatus, Scope, amount
from moorage.terminal import say

_HEAD: Final = ("BUDGET", "USED", "HELD", "LIMIT")


def add_to(actions: CommandActions) -> None:
    budget = actions.add("budget", _run, "set, show, reset or remove the budget of a key or of a tenant")
    budget.description = "Without a limit it shows how the budget stands. New limits take the place of the old; what was used stays."
    whose = budget.add_mutually_exclusive_group(required=True)
    whose.add_argument("key_id", metavar="KEY_ID", nargs="?", help="key_... from the list")
    whose.add_argument("--tenant", help="of all keys of this tenant together")
    for name in MEASURES:
        kind = float if name == "usd" else int
        budget.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=f"so many {name.replace('_', ' ')}")
    budget.add_argument("--on-limit", choices=("stop", "finish", "pause"), default="stop", help="what a response does that runs then")
    budget.add_argument("--reset", action="store_true", help="count anew from here on")
    budget.add_argument("--remove", action="store_true", help="no budget any more")


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    target = find(environ)
    change = _Change(options, target.table())
    code = asyncio.run(change.run())
    if change.done:
        note(target, environ, AuditKind.SETTING_CHANGED, {"setting": "budget", **change.done}, tenant_id=change.tenant_id)
    return code


class _Change:
    def __init__(self, options: argparse.Namespace, at: Any) -> None:
        self._options = options
        self.tenant_id = ""
        self.done: dict[str, Any] = {}
        """What was changed, for the audit trail; empty if that is nothing."""
        self._keys, self._budgets = ApiKeys(at, clock=time.time), Budgets(at, time.time)

    async def run(self) -> int:
        keys = await self._named()
        tenant_id = keys[0].tenant_id
        scope = Scope("tenant", tenant_id) if self._options.tenant else Scope("key", keys[0].key_id)
        limits = {name: value for name in MEASURES if (value := getattr(self._options, name)) is not None}
        wrong = next((name for name, value in limits.items() if value < 0), None)
        if wrong is not None:
            raise TargetError(f"--{wrong.replace('_', '-')} cannot be less than 0.")
        if self._options.remove:
            await self._budgets.remove(tenant_id, scope)
        if limits:
            await self._budgets.put(tenant_id, scope, limits | {"on_limit": self._options.on_limit})
        self._has_changed = bool(limits or self._options.remove)
        if self._has_changed:
            # After the budget: a key that is marked asks for it.
            for key in keys:
                await self._keys.mark(key.key_id, scope.kind, has_budget=not self._options.remove)
        if self._options.reset:
            await self._reset(tenant_id, scope)
        self.tenant_id = tenant_id
        if self._has_changed or self._options.reset:
            done = {"limits": limits, "removed": self._options.remove, "reset": self._options.reset}
            self.done = {"of": scope.kind, "name": scope.name, **{name: value for name, value in done.items() if value}}
        return self._show(scope, await self._budgets.standing(tenant_id, scope))

    async def _named(self) -> list[ApiKey]:
        found = [key for key in await self._keys.page() if self._options.tenant == key.tenant_id or self._options.key_id == key.key_id]
        if not found:
            whose = f"tenant '{self._options.tenant}'" if self._options.tenant else f"key '{self._options.key_id}'"
            raise TargetError(f"There is no {whose}. 'moorage keys list' shows the keys and whose they are.")
        return found

    async def _reset(self, tenant_id: str, scope: Scope) -> None:
        try:
            await self._budgets.reset(tenant_id, scope)
        except ConditionFailed as error:
            raise TargetError(f"The {scope.kind} '{scope.name}' has no budget.") from error

    def _show(self, scope: Scope, standing: BudgetStatus | None) -> int:
        if self._options.json:
            say_json(None if standing is None else standing.to_json())
        elif standing is None:
            say(f"The {scope.kind} '{scope.name}' has no budget.")
        else:
            rows = [(name, amount(standing.used[name]), amount(standing.held[name]), _limit(standing, name)) for name in MEASURES]
            say(f"The budget of the {scope.kind} '{scope.name}'; when it is used up: {standing.on_limit}.")
            say(table(_HEAD, rows))
            if self._has_changed:
                say("Processes that have just seen a key obey within 30 seconds.")
        return 0


def _limit(standing: BudgetStatus, name: str) -> str:
    return amount(standing.limits[name]) if name in standing.limits else ""
