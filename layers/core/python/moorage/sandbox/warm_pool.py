"""Sandboxes that were started before anybody wanted one.

A Fargate task needs 20 to 60 seconds to start; one that waits already is had by one transaction and one request. The pool wraps
another provisioner and holds sandboxes without a network, so many of each memory tier as the operator says (a task's security group
is fixed when it starts, so a container with a network policy starts one of its own).

* ``SLOT#<tier>#<n>`` is a sandbox that waits. It is put only if the number is free, so that two refills at once cannot overshoot.
* A **claim** deletes the slot and puts ``CLAIM#<pool id>`` (the sandbox's new container) and, into the container's partition,
  ``WARM#<hash of the token>`` (this incarnation's sandbox), all or nothing. Of two claimants of a slot one wins, and a repeated start
  finds the same sandbox. That nothing was there is recorded too, or a repeated start would take a second sandbox.
* The sandbox then takes the container's token in place of the pool's; that one is dead from there on (``POST /v1/claim``). It serves
  that container, once; nothing ever comes back to the pool.

On AWS the two are done in two places, as every start is: the claim outside the sandboxes' network, the rest by the tool step inside.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from moorage import limits
from moorage.errors import ConditionFailed, SandboxCapacity, SandboxElsewhere, SandboxError, SandboxGone, SandboxStarting
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import POOLED, Handle, Provisioner, SandboxSpec, SandboxStatus
from moorage.store import keys
from moorage.store.table import Record, Table
from moorage.telemetry import Metric, tell

_TENANT: Final = "pool"
_TIERS: Final = {gib: tier for tier, gib in limits.MEMORY_LIMITS.items()}


class PooledSandbox(Protocol):
    @property
    def sandbox_id(self) -> str: ...


class PooledProvisioner(Provisioner, Protocol):
    """A provisioner that knows all its sandboxes."""

    @property
    def revision(self) -> str:
        """The version of sandboxes' start: another one after a deployment has changed their image, size or network."""
        ...

    async def running(self) -> Sequence[PooledSandbox]: ...


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class WarmPool:
    def __init__(
        self,
        table: Table,
        fleet: PooledProvisioner,
        sizes: Mapping[str, int],
        *,
        key: Callable[[], bytes],
        clock: Callable[[], float],
        connect: Callable[[Handle], ExecClient] | None = ExecClient,
    ) -> None:
        """``sizes`` by memory tier; ``key`` derives the tokens of waiting sandboxes; ``clock`` gives Unix seconds.

        ``connect`` None: sandboxes cannot be reached from here. The process that reaches a claimed one gives it its container's token.
        """
        self._table = table
        self._fleet = fleet
        self._sizes = sizes
        self._key = key
        self._clock = clock
        self._connect = connect

    # --- A provisioner ------------------------------------------------------------------------------------------------------

    async def start(self, spec: SandboxSpec) -> Handle:
        """The sandbox that was claimed for this token, one that waits, or a new one."""
        if spec.egress is not None or spec.env or spec.is_read_only:
            return await self._fleet.start(spec)  # what waits has no network, no variables, and a workspace that can be changed
        got, tier = await self._table.get(*_warm_key(spec)), _TIERS[spec.memory_gib]
        if got is None and tier in self._sizes:
            got = await self._claim(tier, spec)
        if got is not None and got["pool_id"] is not None:
            handle = await self._take_over(got, spec)
            if handle is not None:
                return handle
            await self._table.update(*_warm_key(spec), set={"pool_id": None})
            _tell(spec, Metric.WARM_POOL_MISSES)
        return await self._fleet.start(spec)

    async def find(self, spec: SandboxSpec) -> str | None:
        got = await self._table.get(*_warm_key(spec))
        if got is not None and got["pool_id"] is not None:
            return str(got["sandbox_id"])
        return await self._fleet.find(spec)

    async def stop(self, sandbox_id: str) -> None:
        await self._fleet.stop(sandbox_id)

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return await self._fleet.add_skill(handle, directory, archive)

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return await self._fleet.desk(handle, starts=starts)

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        return await self._fleet.describe(sandbox_id)

    async def _claim(self, tier: str, spec: SandboxSpec) -> Record:
        """The ``WARM#`` record of this token: with a sandbox if one waited, else without."""
        token_sha256 = hash_of(spec.token)
        pk, sk = _warm_key(spec)
        slots = await self._table.query(keys.POOL, prefix=keys.pool_slots(tier))
        ready = [slot for slot in slots if slot["sandbox_id"] is not None and slot["revision"] == self._fleet.revision]
        # Claimants begin at different slots, so that many at once seldom want the same one.
        first = int(token_sha256[:8], 16) % len(ready) if ready else 0
        for slot in ready[first:] + ready[:first]:
            pool_id = slot["pool_id"]
            warm = {
                "PK": pk,
                "SK": sk,
                "pool_id": pool_id,
                "sandbox_id": slot["sandbox_id"],
                "endpoint": slot["endpoint"],
                "claimed_at": int(self._clock()),
            }
            claim = {
                "PK": keys.POOL,
                "SK": keys.pool_claim(pool_id),
                "pool_id": pool_id,
                "tenant_id": spec.tenant_id,
                "container_id": spec.container_id,
                "token_sha256": token_sha256,
                "sandbox_id": slot["sandbox_id"],
            }
            failed = await self._table.replace([warm, claim], pk=keys.POOL, sk=slot["SK"], condition={"pool_id": pool_id})
            if not failed:
                _tell(spec, Metric.WARM_POOL_HITS)
                return warm
            if 0 in failed:
                return await self._got(spec)  # another run of this start was faster
        nothing: Record = {"PK": pk, "SK": sk, "pool_id": None}
        try:
            await self._table.put(nothing, if_absent=True)
        except ConditionFailed:
            return await self._got(spec)
        _tell(spec, Metric.WARM_POOL_MISSES)
        return nothing

    async def _got(self, spec: SandboxSpec) -> Record:
        record = await self._table.get(*_warm_key(spec))
        if record is None:
            raise SandboxError("The container was deleted while its sandbox started.")
        return record

    async def _take_over(self, got: Record, spec: SandboxSpec) -> Handle | None:
        """The claimed sandbox, once it knows its container; None if it has ended.

        A sandbox that refuses (it hangs, or was started under another key of the deployment) is handed over all the same: its first
        user ends it, as any other.
        """
        handle = Handle(got["endpoint"], spec.token, got["sandbox_id"])
        if self._connect is None:
            return handle if await self._fleet.describe(handle.sandbox_id) == SandboxStatus.RUNNING else None
        try:
            async with asyncio.timeout(limits.WARM_ANSWER_SECONDS):
                await self._introduce(handle, got["pool_id"], spec)
        except (SandboxGone, TimeoutError) as error:
            with suppress(SandboxElsewhere):
                if await self._fleet.describe(handle.sandbox_id) == SandboxStatus.STOPPED:
                    return None
            if self._clock() - got["claimed_at"] <= limits.WARM_CLAIMED_SECONDS_MAX:
                raise SandboxStarting(limits.CONTAINER_POLL_SECONDS) from error
        except SandboxError:
            pass
        return handle

    async def _introduce(self, handle: Handle, pool_id: str, spec: SandboxSpec) -> None:
        """Give the sandbox its container's token, unless an earlier run of this start has done so."""
        assert self._connect is not None
        async with self._connect(self._waiting(pool_id, handle.sandbox_id, handle.endpoint)) as client:
            try:
                await client.claim(hash_of(spec.token))
            except SandboxGone:
                raise
            except SandboxError:
                pass
            else:
                return
        async with self._connect(handle) as client:
            await client.health()

    # --- The reaper -----------------------------------------------------------------------------------------------------------

    async def settle(self) -> int:
        """Drop dead, stale and surplus sandboxes, fill empty slots, and return the number of dropped ones.

        To be called about once a minute; harmless twice, or twice at once.
        """
        slots = await self._table.query(keys.POOL, prefix=keys.POOL_SLOT_PREFIX)
        wanted = await asyncio.gather(*map(self._is_wanted, slots))
        dropped = sum([await self._drop(slot) for slot, is_wanted in zip(slots, wanted, strict=True) if not is_wanted])
        waiting = {slot["SK"]: slot for slot, is_wanted in zip(slots, wanted, strict=True) if is_wanted}
        for tier, size in self._sizes.items():
            for number in range(size):
                slot = waiting.get(keys.pool_slot(tier, number)) or await self._open(tier, number)
                if slot is not None and slot["sandbox_id"] is None:
                    dropped += await self._start(slot)
        await self._forget_claims()
        return dropped

    async def _is_wanted(self, slot: Record) -> bool:
        """Whether it is one of those that the operator wants now, and still alive."""
        _, tier, number = slot["SK"].split("#")
        age = self._clock() - slot["made_at"]
        is_too_much = int(number) >= self._sizes.get(tier, 0)
        if is_too_much or slot["revision"] != self._fleet.revision or age >= limits.WARM_SANDBOX_SECONDS_MAX:
            return False
        return age < limits.WARM_START_SECONDS_MAX if slot["sandbox_id"] is None else await self._answers(slot)

    async def _answers(self, slot: Record) -> bool:
        if self._connect is None:
            return await self._fleet.describe(slot["sandbox_id"]) == SandboxStatus.RUNNING
        try:
            async with (
                asyncio.timeout(limits.WARM_ANSWER_SECONDS),
                self._connect(self._waiting(slot["pool_id"], slot["sandbox_id"], slot["endpoint"])) as client,
            ):
                await client.health()
        except (SandboxError, TimeoutError):
            return False
        return True

    async def _open(self, tier: str, number: int) -> Record | None:
        """A new slot under a free number; None if somebody else opened one there."""
        slot: Record = {
            "PK": keys.POOL,
            "SK": keys.pool_slot(tier, number),
            "pool_id": f"{POOLED}{secrets.token_hex(16)}",
            "revision": self._fleet.revision,
            "made_at": int(self._clock()),
            "sandbox_id": None,
        }
        try:
            await self._table.put(slot, if_absent=True)
        except ConditionFailed:
            return None
        return slot

    async def _start(self, slot: Record) -> bool:
        """Start the slot's sandbox, or see whether it answers by now; True if the slot was given up."""
        try:
            handle = await self._fleet.start(self._spec(slot))
        except (SandboxStarting, SandboxCapacity):
            return False  # the next round asks again
        except SandboxError as error:
            tell("warm_pool_start_failed", {"reason": error.message})
            return await self._drop(slot)
        pool_id = slot["pool_id"]
        try:
            ready = {"sandbox_id": handle.sandbox_id, "endpoint": handle.endpoint}
            await self._table.update(keys.POOL, slot["SK"], set=ready, condition={"pool_id": pool_id, "sandbox_id": None})
        except ConditionFailed as error:
            if error.item is None or error.item["pool_id"] != pool_id:
                await self._stop_unclaimed(pool_id, handle.sandbox_id)
        return False

    async def _stop_unclaimed(self, pool_id: str, sandbox_id: str) -> None:
        """Stop a sandbox that lost its slot, unless a container has it: another round was faster and it was claimed at once."""
        if await self._table.get(keys.POOL, keys.pool_claim(pool_id)) is None:
            await self._fleet.stop(sandbox_id)

    async def _drop(self, slot: Record) -> bool:
        """Close the slot, so that nobody can claim it, and stop its sandbox. On Fargate one that could not be stopped is an orphan."""
        try:
            closed = await self._table.delete(keys.POOL, slot["SK"], condition={"pool_id": slot["pool_id"]})
        except ConditionFailed:
            return False  # somebody has claimed or dropped it
        assert closed is not None
        try:
            sandbox_id = closed["sandbox_id"] or await self._fleet.find(self._spec(slot))
            if sandbox_id is not None:
                await self._fleet.stop(sandbox_id)
        except SandboxError as error:
            tell("warm_pool_stop_failed", {"reason": error.message})
        return True

    async def _forget_claims(self) -> None:
        """Claims on sandboxes that have ended say nothing any more."""
        claims = await self._table.query(keys.POOL, prefix=keys.pool_claim.prefix)
        if not claims:
            return
        # Asked after the claims: what they name had been started by then, so what is not running now has ended.
        running = {each.sandbox_id for each in await self._fleet.running()}
        await self._table.write_many(deletes=[(keys.POOL, claim["SK"]) for claim in claims if claim["sandbox_id"] not in running])

    def _spec(self, slot: Record) -> SandboxSpec:
        _, tier, _ = slot["SK"].split("#")
        pool_id = slot["pool_id"]
        return SandboxSpec(_TENANT, pool_id, self._token(pool_id), limits.MEMORY_LIMITS[tier], is_unclaimed=True)

    def _waiting(self, pool_id: str, sandbox_id: str, endpoint: str) -> Handle:
        return Handle(endpoint, self._token(pool_id), sandbox_id)

    def _token(self, pool_id: str) -> str:
        """Derived, so that the table holds nothing that opens a sandbox."""
        return hmac.new(self._key(), f"pool\0{pool_id}".encode(), hashlib.sha256).hexdigest()


def _warm_key(spec: SandboxSpec) -> tuple[str, str]:
    return keys.container(spec.tenant_id, spec.container_id), keys.warm(hash_of(spec.token))


def _tell(spec: SandboxSpec, metric: Metric) -> None:
    tell("warm_pool", {"tenant_id": spec.tenant_id, "container_id": spec.container_id}, {metric: 1})
