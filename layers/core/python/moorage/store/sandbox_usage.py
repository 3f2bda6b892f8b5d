"""The cost of sandboxes. From the first call that needs it to its end a response pays for its sandbox's time (``state.py: Rent``).
All other time of a sandbox is its tenant's: before that, between responses, under a person's hands, and idle until it is stopped.

That rest is known when a sandbox has ended (``store/live_sandboxes.py``). It is counted by the hour in the partition of the tenant's
sums of usage, and in the tenant's budget in dollars. A count that cannot be written is told in the log and lost: the sandbox has ended.
"""

from collections.abc import Callable
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import StorageFull
from moorage.settings import Settings
from moorage.store import keys, schema
from moorage.store.budgets import Budgets
from moorage.store.table import TABLE_ERRORS, Table
from moorage.store.usage_sums import HOUR_SECONDS
from moorage.telemetry import tell_error

_PREFIX: Final = "SANDBOXES#"


@dataclass(frozen=True, slots=True)
class SandboxPrice:
    """US dollars an hour, as AWS Fargate has it: by the processors and the memory that a sandbox is given."""

    vcpu_hour: float
    gib_hour: float
    source: str
    has_desks: bool = False
    """Whether each sandbox has memory for a browser too."""
    unpriced: frozenset[str] = frozenset()
    """Values of ``memory_limit`` whose sandboxes are paid for in another way."""

    @classmethod
    def of(cls, settings: Settings) -> "SandboxPrice | None":
        """None if sandboxes cost nothing: on a machine that is there anyway."""
        has_desks = settings.sandbox_browser and bool(settings.fargate)
        # Fargate's list prices say nothing of MicroVMs beside it.
        has_unpriced = settings.microvm.get("unpriced") == "true"
        unpriced = {tier for tier in limits.MEMORY_LIMITS if has_unpriced and f"image_{tier}" in settings.microvm}
        vcpu, gib = settings.sandbox_price or (0.0, 0.0)
        price = cls(vcpu, gib, settings.sandbox_price_source, has_desks=has_desks, unpriced=frozenset(unpriced))
        return price if vcpu or gib else None

    def nanodollars(self, memory_limit: str) -> int:
        """Of a second."""
        if memory_limit in self.unpriced:
            return 0
        vcpus, gib = limits.SANDBOX_CPU_UNITS[memory_limit] / limits.VCPU, limits.MEMORY_LIMITS[memory_limit]
        gib += limits.FARGATE_DESK_GIB[memory_limit] if self.has_desks else 0
        return round((vcpus * self.vcpu_hour + gib * self.gib_hour) * 1_000_000_000 / 3600)


@dataclass(slots=True)
class SandboxRest:
    """The unpaid time of some hour or of many."""

    seconds: int = 0
    nanodollars: int = 0

    def join(self, other: "SandboxRest") -> None:
        self.seconds += other.seconds
        self.nanodollars += other.nanodollars


class SandboxUsage:
    def __init__(
        self, table: Table, budgets: Budgets, price: SandboxPrice | None, *, clock: Callable[[], float], retention_seconds: int
    ) -> None:
        self._table = table
        self._budgets = budgets
        self._clock = clock
        self._retention_seconds = retention_seconds
        self.price = price

    async def count(self, tenant_id: str, memory_limit: str, seconds: int) -> None:
        """The rest of a sandbox that has ended."""
        if self.price is None or seconds <= 0:
            return
        now = int(self._clock())
        hour, nanodollars = now - now % HOUR_SECONDS, seconds * self.price.nanodollars(memory_limit)
        ttl = hour + HOUR_SECONDS + self._retention_seconds
        try:
            await self._table.update(
                keys.usage(tenant_id),
                _at(hour),
                set={"hour": hour, schema.TTL_ATTRIBUTE: ttl},
                add={"seconds": seconds, "nanodollars": nanodollars},
                must_exist=False,
            )
            await self._budgets.charge_tenant(tenant_id, {"usd": nanodollars})
        except (StorageFull, *TABLE_ERRORS) as error:
            tell_error(error, "the time of a sandbox could not be counted", tenant_id=tenant_id, seconds=seconds)

    async def between(self, tenant_id: str, since: int, until: int) -> list[tuple[int, SandboxRest]]:
        """By hour, of all hours that have a part in this time, both ends included."""
        before_first = _at(since - since % HOUR_SECONDS - 1)
        records = await self._table.query(keys.usage(tenant_id), prefix=_PREFIX, after=before_first)
        found = [(record["hour"], SandboxRest(record["seconds"], record["nanodollars"])) for record in records]
        return [(hour, rest) for hour, rest in found if hour <= until]


def _at(hour: int) -> str:
    return f"{_PREFIX}{hour:012d}"
