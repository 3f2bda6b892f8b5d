"""The number of a tenant's sandboxes, and its bounds: an entry for each, and their sum. The bounds are compared with the sum.

An entry is written with the ``LIFE#`` record of its sandbox and goes with it, in one transaction with the sum. So the cost of a start
does not grow with other tenants' sandboxes, and parallel starts do not pass the bounds. An entry without its ``LIFE#`` record comes
from a process of an earlier version; a start that finds no room drops it.

If sandboxes have a price, an entry also holds its sandbox's start, and the time that responses have paid: the rest is counted for the
tenant when it ends (``store/sandbox_usage.py``).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, SandboxStarting, StorageFull, TenantCapacity
from moorage.store import keys
from moorage.store.sandbox_usage import SandboxUsage
from moorage.store.table import TABLE_ERRORS, Record, Table, Write
from moorage.telemetry import tell_error


@dataclass(frozen=True, slots=True)
class SandboxBounds:
    """Of one tenant; 0 is no bound."""

    sandboxes: int = 0
    vcpus: int = 0
    """Of all its sandboxes together, by what Fargate gives each (``limits.SANDBOX_CPU_UNITS``)."""
    starts_per_second: int = 0
    """More wait; what was not used is there for ``limits.SANDBOX_STARTS_SECONDS`` at once."""


NO_BOUNDS: Final = SandboxBounds()
_PAID: Final = "paid"
"""How the attributes begin that say what each response has paid."""
_PAYER_CHARS: Final = 22
"""Of a response's id: enough to tell apart those of one sandbox, and few enough that thousands of them fit into its entry."""
_TIERS: Final = {cpu: tier for tier, cpu in limits.SANDBOX_CPU_UNITS.items()}


class LiveSandboxes:
    def __init__(self, table: Table, bounds: SandboxBounds, usage: SandboxUsage | None, *, clock: Callable[[], float]) -> None:
        self._table = table
        self._usage = usage if usage is not None and usage.price is not None else None
        self._bounds = bounds
        self._clock = clock

    async def begin(self, life: Record) -> None:
        """Write the ``LIFE#`` record of a sandbox that is to be started, and count it if that was not done before.

        Raises :class:`TenantCapacity` if the tenant has as many as it may, and :class:`SandboxStarting` if it starts too many
        at once.
        """
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            failed = await self._table.write_all([Write.put(life), *await self._counted(life)])
            if not failed:
                return
            if 1 in failed:  # It was counted when it was tried before.
                await self._table.put(life)
                return
            if 2 in failed and not await self._is_put_right(life):
                raise self._refusal()
        raise SandboxStarting(limits.CONTAINER_POLL_SECONDS)

    async def end(self, life: Record, *, seen: Record | None = None, is_refused: bool = False) -> None:
        """The sandbox of a ``LIFE#`` record is stopped, or (``is_refused``) never was: the record goes, and its entry. Raises
        ``ConditionFailed`` if the record does not stand as ``seen``."""
        place = keys.sandboxes(life["tenant_id"]), keys.live_sandbox(life["container_id"], life["incarnation"])
        entry = None if self._usage is None or is_refused else await self._table.get(*place)
        gone = Write(life["PK"], life["SK"], condition=seen or {}, is_end=True)
        failed = await self._table.write_all([gone, *self._uncounted(life)]) if "cpu" in life else (1,)
        if 0 in failed:
            raise ConditionFailed
        if failed:
            await self._table.write(gone)  # Nobody has counted it, or an earlier try has taken it out.
        elif self._usage is not None and entry is not None and "begun" in entry:
            paid = sum(seconds for name, seconds in entry.items() if name.startswith(_PAID))
            rest = int(self._clock()) - entry["begun"] - paid
            await self._usage.count(life["tenant_id"], _TIERS[entry["cpu"]], rest)

    async def pay(self, tenant_id: str, container_id: str, response_id: str, seconds: int) -> None:
        """A response that ends has paid so much of the time of the container's latest sandbox.

        Of two payments of one time the later counts. A failed write is told in the log and lost.
        """
        pk = keys.sandboxes(tenant_id)
        try:
            for entry in (await self._table.query(pk, prefix=keys.live_sandboxes(container_id)))[-1:]:
                await self._table.update(pk, entry["SK"], set={_paid_by(response_id): seconds})
        except ConditionFailed:
            pass  # It has just ended.
        except (StorageFull, *TABLE_ERRORS) as error:
            told = {"tenant_id": tenant_id, "container_id": container_id, "seconds": seconds}
            tell_error(error, "what a response has paid of its sandbox could not be counted", **told)

    async def containers(self, tenant_id: str) -> list[str]:
        """Those that have a sandbox, or are about to."""
        entries = await self._table.query(keys.sandboxes(tenant_id), after=keys.TOTAL)
        return list(dict.fromkeys(entry["container_id"] for entry in entries))

    async def _counted(self, life: Record) -> list[Write]:
        pk, bounds = keys.sandboxes(life["tenant_id"]), self._bounds
        names = {name: life[name] for name in ("container_id", "incarnation", "cpu")}
        names |= {} if self._usage is None else {"begun": int(self._clock())}
        entry = Write.put({"PK": pk, "SK": keys.live_sandbox(life["container_id"], life["incarnation"]), **names}, if_absent=True)
        below = {"sandboxes": bounds.sandboxes} if bounds.sandboxes else {}
        below |= {"cpu": bounds.vcpus * limits.VCPU - life["cpu"] + 1} if bounds.vcpus else {}
        # A sum that is not there yet passes no bound, and is opened then.
        paced = await self._pace(life["tenant_id"]) if bounds.starts_per_second else ({}, {})
        total = Write(pk, keys.TOTAL, add={"sandboxes": 1, "cpu": life["cpu"]}, below=below, set=paced[0], condition=paced[1])
        return [entry, total]

    async def _pace(self, tenant_id: str) -> tuple[dict[str, int], dict[str, int]]:
        """Until when the starts are used up, in milliseconds: as it will be, and as it is. It is the generic cell rate algorithm
        (ITU-T I.371)."""
        total = await self._opened(tenant_id)
        now, rate = int(self._clock() * 1000), self._bounds.starts_per_second
        used_up = max(total["used_up_ms"], now)
        if (wait := used_up - now - limits.SANDBOX_STARTS_SECONDS * 1000) > 0:
            raise SandboxStarting(wait / 1000)
        return {"used_up_ms": used_up + 1000 // rate}, {"used_up_ms": total["used_up_ms"]}

    async def _opened(self, tenant_id: str) -> Record:
        pk = keys.sandboxes(tenant_id)
        found = await self._table.get(pk, keys.TOTAL)
        if found is not None and "used_up_ms" in found:
            return found
        begin = {"sandboxes": 0, "cpu": 0, "used_up_ms": 0}
        return await self._table.update(pk, keys.TOTAL, set_once=begin, must_exist=False)

    async def _is_put_right(self, life: Record) -> bool:
        """Whether a refused write may be tried again: there is room now, or another process was faster."""
        total = await self._opened(life["tenant_id"])
        return self._has_room(total, life) or await self._drop_left(life["tenant_id"])

    def _has_room(self, total: Record, life: Record) -> bool:
        bounds = self._bounds
        is_few = not bounds.sandboxes or total["sandboxes"] < bounds.sandboxes
        return is_few and (not bounds.vcpus or total["cpu"] + life["cpu"] <= bounds.vcpus * limits.VCPU)

    async def _drop_left(self, tenant_id: str) -> bool:
        """Entries of sandboxes that have ended; False if there are none."""
        entries = await self._table.query(keys.sandboxes(tenant_id), after=keys.TOTAL)
        places = {(keys.container(tenant_id, e["container_id"]), keys.life(e["incarnation"])): e for e in entries}
        alive = {(life["PK"], life["SK"]) for life in await self._table.get_many(places, consistent=True)}
        left = [entry for place, entry in places.items() if place not in alive]
        for entry in left:
            with suppress(ConditionFailed):
                await self._table.write_all(self._uncounted({**entry, "tenant_id": tenant_id}))
        return bool(left)

    def _uncounted(self, life: Record) -> list[Write]:
        pk = keys.sandboxes(life["tenant_id"])
        return [
            Write(pk, keys.live_sandbox(life["container_id"], life["incarnation"]), is_there=True, is_end=True),
            Write(pk, keys.TOTAL, add={"sandboxes": -1, "cpu": -life["cpu"]}),
        ]

    def _refusal(self) -> TenantCapacity:
        bounds = self._bounds
        words = [f"{bounds.sandboxes} sandboxes"] if bounds.sandboxes else []
        words += [f"{bounds.vcpus} vCPUs in sandboxes"] if bounds.vcpus else []
        return TenantCapacity(
            f"This account has as many sandboxes as it may: {' or '.join(words)} at once. Delete a container that is not needed, make "
            "containers with a shorter expires_after or a smaller memory_limit, or ask the operator for more."
        )


def _paid_by(response_id: str) -> str:
    return f"{_PAID}_{response_id[:_PAYER_CHARS]}"
