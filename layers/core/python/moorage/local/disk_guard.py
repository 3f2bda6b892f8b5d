"""Who has filled the disk: nobody but the one that did is to suffer for it.

Three sums are bounded: what one sandbox holds (its exec server sees to that), what all sandboxes of a tenant hold, and what is left of
the disk under all of them. When a sum is over its bound, the sandbox that grew most is told to write no more, and why; its commands are
stopped. One that holds no more than its share of the disk is never the one. A sandbox that was told and goes on, so that half of the
reserve is gone, is stopped with its files.
"""

import collections
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.sandbox.provisioner import is_pooled


class DiskWarning(StrEnum):
    """The words for a sandbox; each ends with a full stop, because the exec server goes on from there."""

    FINE = ""
    TENANT = "The disk is full: the containers of this account together hold more than they may, and this one has grown most."
    MACHINE = "The disk of this machine is nearly full, and this container has grown most."


@dataclass(frozen=True, slots=True)
class DiskLimits:
    reserve: int = limits.DISK_RESERVE_BYTES
    share_min: int = limits.DISK_SHARE_BYTES_MIN
    tenant_max: int = limits.TENANT_DISK_BYTES_MAX


@dataclass(frozen=True, slots=True)
class DiskUse:
    sandbox_id: str
    tenant_id: str
    used: int


def account_of(tenant_id: str, container_id: str) -> str:
    """The owner of a sandbox's sum. One of the warm pool may serve any tenant by now, so it counts alone."""
    return container_id if is_pooled(container_id) else tenant_id


@dataclass(slots=True)
class DiskGrowth:
    """One sandbox's bytes at each look of the last minute."""

    samples: "collections.deque[int]"
    verdict: DiskWarning = DiskWarning.FINE

    @property
    def bytes(self) -> int:
        return max(0, self.samples[-1] - self.samples[0])

    @property
    def is_growing(self) -> bool:
        return len(self.samples) > 1 and self.samples[-1] > self.samples[-2]


_SAMPLES: Final = int(limits.DISK_GROWTH_SECONDS / limits.DISK_LOOK_SECONDS)


@dataclass(slots=True)
class DiskGuard:
    bounds: DiskLimits
    _growths: dict[str, DiskGrowth] = field(default_factory=dict)

    def look(self, uses: Iterable[DiskUse], free: int) -> Mapping[str, DiskWarning]:
        """The verdict on each sandbox. ``free`` is the rest of the disk after all held bytes have been written to it."""
        by_id = {use.sandbox_id: use for use in uses}
        self._growths = {sandbox_id: self._grown(use) for sandbox_id, use in by_id.items()}
        by_tenant: dict[str, list[DiskUse]] = collections.defaultdict(list)
        for use in by_id.values():
            by_tenant[use.tenant_id].append(use)
        for of_tenant in by_tenant.values():
            excess = sum(use.used for use in of_tenant) - self.bounds.tenant_max
            self._judge(DiskWarning.TENANT, of_tenant, excess, self.bounds.tenant_max // len(of_tenant))
        everybody = list(by_id.values())
        share = max(0, free + sum(use.used for use in everybody) - self.bounds.reserve) // max(1, len(everybody))
        self._judge(DiskWarning.MACHINE, everybody, self.bounds.reserve - free, max(share, self.bounds.share_min))
        return {sandbox_id: growth.verdict for sandbox_id, growth in self._growths.items()}

    def to_stop(self, free: int) -> list[str]:
        """Warned sandboxes that have taken half of the reserve all the same: they go with their content."""
        if free >= self.bounds.reserve // 2:
            return []
        return [sandbox_id for sandbox_id, growth in self._growths.items() if growth.verdict is DiskWarning.MACHINE]

    def _grown(self, use: DiskUse) -> DiskGrowth:
        growth = self._growths.get(use.sandbox_id) or DiskGrowth(collections.deque([0], maxlen=_SAMPLES))
        growth.samples.append(use.used)
        return growth

    def _judge(self, verdict: DiskWarning, uses: list[DiskUse], excess: int, share: int) -> None:
        """Tell one more when the sum is too high and those that were told no longer grow; take it back when there is room again."""
        told = [use for use in uses if self._growths[use.sandbox_id].verdict is verdict]
        if excess <= 0:
            for use in told:
                self._growths[use.sandbox_id].verdict = DiskWarning.FINE
        elif not any(self._growths[use.sandbox_id].is_growing for use in told):
            over = [use for use in uses if use.used > share and self._growths[use.sandbox_id].verdict is DiskWarning.FINE]
            if over and (not told or any(self._growths[use.sandbox_id].is_growing for use in over)):
                worst = max(over, key=lambda use: (self._growths[use.sandbox_id].bytes, use.used))
                self._growths[worst.sandbox_id].verdict = verdict
