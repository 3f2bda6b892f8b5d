"""Unused and abandoned things are stopped and erased: idle sandboxes, those of dead starters, containers past their time.

Every sandbox has a ``LIFE#`` record from before its start until its stop is known, and every container a ``PURGE`` record; the sweep
looks at the due ones. A deletion erases by the same code, and leaves the rest to the sweep.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace

from moorage import limits
from moorage.containers.announcements import Announcements
from moorage.containers.artifacts import Artifacts
from moorage.containers.history_store import ContainerPast
from moorage.containers.lifecycle import ContainerSandboxes
from moorage.containers.store import ContainerRecord, ContainerStore, End
from moorage.containers.transfers import bytes_of
from moorage.egress.service import EgressService
from moorage.errors import ConditionFailed, SandboxElsewhere, SandboxError
from moorage.files.store import Clock
from moorage.parallel import side_by_side
from moorage.sandbox.provisioner import Provisioner, SandboxStatus
from moorage.store import keys, object_keys
from moorage.store.blobs import Blobs
from moorage.store.stored_bytes import Holder, StoredBytes
from moorage.store.table import Record
from moorage.telemetry import tell_error

AtWork = Callable[[str], Awaitable[Collection[str | None]]]
"""The containers of a tenant that do not give way, though no command may run in them now."""


async def nobody(_tenant_id: str) -> tuple[()]:
    """No responses run here."""
    return ()


class ContainerSweep:
    def __init__(
        self,
        store: ContainerStore,
        past: ContainerPast,
        blobs: Blobs,
        provisioner: Provisioner,
        sandboxes: ContainerSandboxes,
        artifacts: Artifacts,
        stored: StoredBytes,
        *,
        announcements: Announcements,
        clock: Clock,
        egress: EgressService | None,
        at_work: AtWork,
    ) -> None:
        self._store = store
        self._past = past
        self._blobs = blobs
        self._provisioner = provisioner
        self._sandboxes = sandboxes
        self._artifacts = artifacts
        self._stored = stored
        self._announcements = announcements
        self._clock = clock
        self._egress = egress
        self._at_work = at_work

    async def expire_due(self, now: float) -> int:
        """Stop idle sandboxes, erase containers past their retention, finish others' leftovers; returns the number of settled ones. To
        be called about once a minute; harmless to run twice, or twice at once.

        If sandboxes cannot be reached, it leaves those that run to :meth:`retire_idle`."""

        async def settle(due: Record) -> bool:
            try:
                return await self._settle(due, now)
            except SandboxError:
                await self._store.postpone(due, int(now) + limits.CONTAINER_RETRY_SECONDS)
            except ConditionFailed:
                pass  # somebody used it in this moment: it comes up again when it is due
            return False

        return sum(await side_by_side(settle, await self._store.due(now), at_once=limits.SWEEP_AT_ONCE))

    async def retire_idle(self, now: float) -> int:
        """Store the files of idle sandboxes and note that they are to be stopped; answers how many were.

        For places that can reach sandboxes but not stop them; called as :meth:`expire_due` is, which stops them. Rounds that overlap
        share the work.
        """

        async def retire(due: Record) -> bool:
            record = await self._store.peek(due["tenant_id"], due["container_id"])
            if record is None or record.is_deleted or not self._sandboxes.reaches(record) or not await self._is_over(record, now):
                return False
            is_running = record.sandbox is not None and record.sandbox.state == "running"
            if is_running and await self._store.claim(due, now):
                with suppress(ConditionFailed, SandboxError):  # used in this moment, or asked again when the claim is over
                    return await self._retire(record) is not None
            return False

        return sum(await side_by_side(retire, await self._store.due(now), at_once=limits.SWEEP_AT_ONCE))

    async def make_room(self, tenant_id: str, *, spared: Collection[str | None]) -> bool:
        """Stop the tenant's sandbox that has been idle longest, so that another can be had; False if each is in use.

        Its container has its files, and is given another sandbox when it is used again. The ``spared`` containers are left alone, and
        one that was in use a moment ago: its next command may be on the way. Raises :class:`SandboxElsewhere` if the stop is only
        noted, and done elsewhere (:meth:`stop_noted`), and if only those are idle that are reached elsewhere.
        """
        is_elsewhere = False
        for record in await self._idle(tenant_id, spared):
            if not self._sandboxes.reaches(record):
                is_elsewhere = True
                continue
            try:
                if await self._expire(record):
                    return True
            except SandboxElsewhere:
                raise
            except (ConditionFailed, SandboxError):
                continue  # somebody uses it in this moment, or it cannot be stopped
        if is_elsewhere:
            raise SandboxElsewhere
        return False

    async def stop_noted(self, tenant_id: str) -> bool:
        """Stop those of the tenant that were noted to be stopped; False if there is none, or ECS is asked too much."""
        noted = [each for each in await self._with_sandbox(tenant_id) if each.sandbox is not None and each.sandbox.state == "stopping"]
        has_stopped = False
        for record in noted:
            with suppress(ConditionFailed, SandboxError):
                await self._sandboxes.end(record, record.sandbox_id, "idle")
                await self._collect(record)
                has_stopped = True
        return has_stopped

    async def _idle(self, tenant_id: str, spared: Collection[str | None]) -> list[ContainerRecord]:
        """The tenant's containers that have a sandbox and are not used, the longest idle first."""
        # A use is not always noted: the last one may have been so much later.
        horizon = self._clock() - limits.SANDBOX_IDLE_SECONDS_MIN - limits.CONTAINER_TOUCH_SECONDS
        idle = [each for each in await self._with_sandbox(tenant_id) if _is_idle(each, horizon) and each.id not in spared]
        return sorted(idle, key=lambda record: record.last_active_at)

    async def _with_sandbox(self, tenant_id: str) -> list[ContainerRecord]:
        return await self._store.peek_many(tenant_id, await self._store.live.containers(tenant_id))

    async def erase(self, tenant_id: str, container_id: str) -> None:
        """Stop the sandbox and erase the content of a container that is marked as deleted; but for objects that others name."""
        for life in await self._store.lives(tenant_id, container_id):
            if life["sandbox_id"] is None:
                # Somebody is starting it just now, or died over it: the sweep looks when that must be over, and if it is, it looks now.
                now = int(self._clock())
                if life["GSI1SK"] > keys.due(now, container_id):
                    await self._store.postpone(life, now + limits.CONTAINER_START_LEASE_SECONDS)
            else:
                await self._provisioner.stop(life["sandbox_id"])
                await self._store.drop(life)
        if self._egress is not None:
            await self._egress.close(tenant_id, container_id)
        await self._give_back(tenant_id, container_id)
        await self._drop_objects(tenant_id, container_id)
        await self._store.erase(tenant_id, container_id)

    async def _give_back(self, tenant_id: str, container_id: str) -> None:
        """Its borrowed objects are its lenders' alone again, or have no owner if the lenders are gone."""
        record = await self._store.peek(tenant_id, container_id)
        for lender_id in () if record is None else record.lenders:
            await self._past.give_back(tenant_id, lender_id, container_id)
            lender = await self._store.peek(tenant_id, lender_id)
            if lender is None or lender.is_deleted:
                await self._drop_objects(tenant_id, lender_id)

    async def _drop_objects(self, tenant_id: str, container_id: str) -> None:
        """Of a container that is gone, those that no other one names."""
        prefix = object_keys.container_objects(tenant_id, container_id)
        if not await self._past.borrowers(tenant_id, container_id):
            await self._blobs.delete_prefix(prefix)
            await self._stored.forget(Holder.container(tenant_id, container_id))
            return
        named = await self._past.named_by_borrowers(tenant_id, container_id)
        async for key, _ in self._blobs.list_prefix(prefix):
            if key not in named:
                await self._blobs.delete(key)
        await self._count(tenant_id, container_id)

    async def _count(self, tenant_id: str, container_id: str) -> None:
        """Correct the counted bytes of a container."""
        holder = Holder.container(tenant_id, container_id)
        await self._stored.settle(holder, lambda: bytes_of(self._blobs, tenant_id, container_id))

    async def _settle(self, due: Record, now: float) -> bool:
        record = await self._store.peek(due["tenant_id"], due["container_id"])
        if due["SK"] == keys.PURGE:
            return await self._settle_purge(due, record, now)
        if record is None or record.is_deleted:
            await self._stop_orphan(due)
            return True
        if record.incarnation != due["incarnation"] or record.sandbox is None:
            if due["sandbox_id"] is not None:
                await self._provisioner.stop(due["sandbox_id"])
            await self._store.drop(due)
            return True
        if not await self._is_over(record, now):
            await self._store.postpone(due, self._next_look(record, now))
            return False
        return await self._expire(record)

    def _next_look(self, record: ContainerRecord, now: float) -> int:
        """At a sandbox that is not over: soon, if only a response that runs keeps it."""
        at = self._store.idle_at(record)
        if at <= now:
            at = min(int(now) + limits.CONTAINER_RETRY_SECONDS, record.expires_at) if record.is_quiet else record.expires_at
        return self._store.before_end(record, at)

    async def _is_over(self, record: ContainerRecord, now: float) -> bool:
        """Whether the record's sandbox is to stop: with its container, or before it, if nothing lives in it and no response that
        runs will come back to it."""
        if record.expires_at <= now:
            return True
        if self._ends_soon(record, now):
            # Where all is stored, the next command of a response that runs finds another one better than the reaper does.
            is_last = record.seconds_left(now) <= limits.SANDBOX_LAST_SECONDS
            return is_last or not record.is_quiet or record.id not in await self._at_work(record.tenant_id)
        if record.sandbox is None or self._store.idle_at(record) > now:
            return False
        if record.sandbox.state == "stopping":
            return record.ending == "idle"
        is_left = record.sandbox.state == "running" and record.is_quiet
        return is_left and record.id not in await self._at_work(record.tenant_id)

    def _ends_soon(self, record: ContainerRecord, now: float) -> bool:
        """Whether the owner of its sandbox ends it within minutes."""
        is_there = record.sandbox is not None and (record.sandbox.state == "running" or record.ending == "limit")
        return is_there and record.seconds_left(now) <= limits.SANDBOX_STORED_SECONDS

    async def _settle_purge(self, due: Record, record: ContainerRecord | None, now: float) -> bool:
        if record is not None and not record.is_deleted and self._store.purge_at(record) > now:
            await self._store.postpone(due, self._store.purge_at(record))
            return False
        if record is not None and not record.is_deleted:
            await self._announcements.of_expiry(record)
            await self._store.mark_deleted(record)
        await self.erase(due["tenant_id"], due["container_id"])
        return True

    async def _stop_orphan(self, life: Record) -> None:
        """Stop a sandbox of a container that is deleted; its starter may have died before it noted the sandbox."""
        sandbox_id = life["sandbox_id"] or await self._sandboxes.find(life["tenant_id"], life["container_id"], life["incarnation"])
        if sandbox_id is not None:
            await self._provisioner.stop(sandbox_id)
        await self._store.drop(life)

    async def _expire(self, record: ContainerRecord) -> bool:
        """Stop an idle sandbox, unless something still runs in it."""
        assert record.sandbox is not None
        if record.sandbox.state == "starting":
            # Nobody came back for it, and it was not written down which sandbox it is, if there is one.
            await self._sandboxes.end(record, await self._sandboxes.find(record.tenant_id, record.id, record.incarnation), "failed")
            return True
        if record.sandbox.state == "running":
            retired = await self._retire(record) if self._sandboxes.reaches(record) else None
            if retired is None:
                return False
            record = retired
        await self._sandboxes.end(record, record.sandbox_id, "idle")
        await self._collect(record)
        return True

    async def _retire(self, record: ContainerRecord) -> ContainerRecord | None:
        """Store the files of an idle sandbox and have nobody be handed it any more; None if something still runs in it. Raises
        :class:`SandboxError` if it has to be asked again."""
        assert record.sandbox is not None
        end = await self._end_of(record)
        if end is None:
            if not self._ends_soon(record, self._clock()):  # Its end comes whether it is used or not.
                used = {"last_active_at": int(self._clock())}
                await self._store.change(record, set=used, condition={"incarnation": record.incarnation})
            return None
        stopping = replace(record.sandbox, state="stopping")
        return await self._store.turn(record, stopping, also={"ending": end}, condition={"last_active_at": record.last_active_at})

    async def _end_of(self, record: ContainerRecord) -> End | None:
        """Why it may be stopped; None if commands run in it, or processes that its owner does not end yet. Stores its files on the way,
        because background processes write without a command. Raises :class:`SandboxError` if it cannot say now, nor give its files:
        most often it can a minute later.

        One that sleeps is not woken for it, if its last command left no process."""
        now = self._clock()
        end: End = "limit" if record.expires_at > now and self._ends_soon(record, now) else "idle"
        if record.is_quiet and await self._sleeps(record):
            return end
        async with self._sandboxes.reach(record) as live:
            try:
                is_used = (await live.client.health()).running > 0
                if is_used and end == "idle":
                    return None
                await self._artifacts.sync(live)
            except SandboxError as error:
                if not await self._is_lost(record):
                    raise
                told = {"tenant_id": record.tenant_id, "container_id": record.id}
                tell_error(error, "a sandbox that nobody uses is ended without its latest files", **told)
                return "lost"
        has_time = end == "limit" and record.seconds_left(now) > limits.SANDBOX_LAST_SECONDS
        return None if has_time and (is_used or not record.is_quiet) else end

    async def _sleeps(self, record: ContainerRecord) -> bool:
        assert record.sandbox_id is not None, "what runs has a name"
        with suppress(SandboxError):
            return await self._provisioner.describe(record.sandbox_id) == SandboxStatus.ASLEEP
        return False

    async def _is_lost(self, record: ContainerRecord) -> bool:
        """Whether a sandbox that does not answer never will: it has ended, or was asked for long enough."""
        if self._clock() >= record.expires_at + limits.SANDBOX_SILENT_SECONDS_MAX:
            return True
        assert record.sandbox_id is not None, "what runs has a name"
        with suppress(SandboxElsewhere):
            return await self._provisioner.describe(record.sandbox_id) == SandboxStatus.STOPPED
        return False

    async def _collect(self, record: ContainerRecord) -> None:
        """Delete objects that no row names any more, of the past neither, and none of another container. Only now, with the sandbox
        stopped: a command's end could name them again."""
        prefix = object_keys.container_objects(record.tenant_id, record.id)
        await self._past.prune(record)
        named = await self._past.named(record) | await self._past.named_by_borrowers(record.tenant_id, record.id)
        horizon = self._clock() - limits.CONTAINER_OBJECT_SECONDS_MIN
        async for key, modified_at in self._blobs.list_prefix(prefix):
            if key not in named and modified_at < horizon:
                await self._blobs.delete(key)
        await self._count(record.tenant_id, record.id)


def _is_idle(record: ContainerRecord, horizon: float) -> bool:
    is_running = record.sandbox is not None and record.sandbox.state == "running"
    return is_running and not record.is_deleted and record.last_active_at <= horizon
