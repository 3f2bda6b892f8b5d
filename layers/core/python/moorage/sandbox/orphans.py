"""Sandboxes that run and belong to nobody.

Each sandbox has a ``LIFE#`` record from before it is started, so one without such a record was lost: its starter died at the wrong
moment, or a record was removed by hand. ECS would bill it for ever. A sandbox of the warm pool is owned by its slot, and once it is
claimed by the incarnation that claimed it. What has no owner is noted when it is first seen and stopped when it still has none a
while later, so that a record that is just being written or removed cannot make an orphan of anybody.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from moorage import limits
from moorage.errors import SandboxError
from moorage.parallel import side_by_side
from moorage.sandbox.provisioner import is_pooled
from moorage.sandbox.warm_pool import hash_of
from moorage.store import keys
from moorage.store.table import Record, Table


class Running(Protocol):
    """A sandbox as its owner lists it."""

    @property
    def sandbox_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def container_id(self) -> str: ...
    def belongs_to(self, token: str) -> bool:
        """Whether it was started for the incarnation that has this token."""
        ...


class SandboxLister(Protocol):
    async def running(self) -> Sequence[Running]: ...
    async def stop(self, sandbox_id: str) -> None: ...


class OrphanSandboxes:
    def __init__(self, table: Table, fleet: SandboxLister, token_of: Callable[[str, int], str], clock: Callable[[], float]) -> None:
        """``token_of`` gives the token of a container's incarnation; ``clock`` gives Unix seconds."""
        self._table = table
        self._fleet = fleet
        self._token_of = token_of
        self._clock = clock

    async def stop_lost(self, running: Sequence[Running]) -> int:
        """Stop what of the fleet had no owner now and at an earlier look; answers how many. ``running`` is what there is. To be called
        about once a minute; harmless twice."""
        pool = {record["pool_id"]: record for record in await self._table.query(keys.POOL)}
        seen = {record["SK"]: int(record["seen_at"]) for record in await self._table.query(keys.ORPHANS)}

        async def owned(sandbox: Running) -> bool:
            return await self._has_owner(sandbox, pool.get(sandbox.container_id))

        # One after the other, tens of thousands would take longer than the reaper may run.
        owners = await side_by_side(owned, running, at_once=limits.SWEEP_AT_ONCE)
        lost = {each.sandbox_id for each, is_owned in zip(running, owners, strict=True) if not is_owned}
        due = [sandbox_id for sandbox_id in lost if seen.get(sandbox_id, self._clock()) + limits.ORPHAN_SECONDS_MIN <= self._clock()]
        stopped = [sandbox_id for sandbox_id in due if await self._stop(sandbox_id)]
        # The note of one that found its owner or its end must go: a later doubt starts anew.
        await self._table.write_many(
            puts=[self._note(sandbox_id) for sandbox_id in lost - seen.keys()],
            deletes=[(keys.ORPHANS, sandbox_id) for sandbox_id in seen if sandbox_id not in lost or sandbox_id in stopped],
        )
        return len(stopped)

    async def _has_owner(self, sandbox: Running, place: Record | None) -> bool:
        """``place`` is the slot, or the claim on it, of a sandbox that was started for the warm pool."""
        tenant_id, container_id, was_started_for = sandbox.tenant_id, sandbox.container_id, sandbox.belongs_to
        if is_pooled(container_id):
            if place is None or place["SK"].startswith(keys.POOL_SLOT_PREFIX):
                return place is not None
            claim = place
            tenant_id, container_id = claim["tenant_id"], claim["container_id"]
            was_started_for = lambda token: hash_of(token) == claim["token_sha256"]  # noqa: E731
        lives = await self._table.query(keys.container(tenant_id, container_id), prefix=keys.life.prefix)
        return any(
            life["sandbox_id"] == sandbox.sandbox_id
            if life["sandbox_id"] is not None
            # It is being started, and its starter does not know yet which one it is.
            else was_started_for(self._token_of(life["container_id"], life["incarnation"]))
            for life in lives
        )

    async def _stop(self, sandbox_id: str) -> bool:
        try:
            await self._fleet.stop(sandbox_id)
        except SandboxError:
            return False  # the note stays, and with it the next attempt
        return True

    def _note(self, sandbox_id: str) -> Record:
        return {"PK": keys.ORPHANS, "SK": sandbox_id, "seen_at": int(self._clock())}
