"""How many sandboxes one machine holds, and how much memory they may use together: all of them, and those of one tenant.

Memory is counted by each sandbox's limit, not by its use. What they hold of the disk is looked after while they run
(``local/disk_guard.py``).
"""

from collections.abc import Collection

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxCapacity, SandboxError


@dataclass(frozen=True, slots=True)
class SandboxShare:
    """One sandbox's share of its machine."""

    tenant_id: str
    memory_gib: int


@dataclass(frozen=True, slots=True)
class MachineBounds:
    sandboxes_max: int = limits.LOCAL_SANDBOXES_MAX
    tenant_sandboxes_max: int = limits.TENANT_SANDBOXES_MAX
    memory_gib_max: int = limits.LOCAL_MEMORY_GIB_MAX
    tenant_memory_gib_max: int = limits.TENANT_MEMORY_GIB_MAX

    def check(self, held: Collection[SandboxShare], new: SandboxShare) -> None:
        """Raises :class:`SandboxCapacity` if ``new`` would be too much beside ``held``, and :class:`SandboxError` if it is too
        much by itself."""
        memory_gib_max = min(self.memory_gib_max, self.tenant_memory_gib_max)
        if new.memory_gib > memory_gib_max:
            raise SandboxError(
                f"This sandbox would have {new.memory_gib} GiB of memory. On this machine the sandboxes of an account together have "
                f"{memory_gib_max} GiB at most."
            )
        own = [each for each in held if each.tenant_id == new.tenant_id]
        if len(held) >= self.sandboxes_max:
            raise SandboxCapacity(f"{self.sandboxes_max} sandboxes are running on this machine; it takes no more.")
        if len(own) >= self.tenant_sandboxes_max:
            raise SandboxCapacity(f"{self.tenant_sandboxes_max} sandboxes of this account are running; no account has more at once.")
        if _memory_of(held) + new.memory_gib > self.memory_gib_max:
            raise SandboxCapacity(f"All sandboxes of this machine together have {self.memory_gib_max} GiB of memory at most.")
        if _memory_of(own) + new.memory_gib > self.tenant_memory_gib_max:
            raise SandboxCapacity(f"All sandboxes of this account together have {self.tenant_memory_gib_max} GiB of memory at most.")


def _memory_of(shares: Collection[SandboxShare]) -> int:
    return sum(each.memory_gib for each in shares)
