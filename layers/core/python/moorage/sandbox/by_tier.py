"""Two provisioners in one deployment: MicroVMs for some memory tiers, Fargate for the others.

The tier chooses at a start. From then on a sandbox's id says whose it is, so that a deployment which moves a tier leaves no sandbox
behind. Each process reaches one kind: MicroVMs from outside of the sandboxes' network, tasks of Fargate from inside.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Self

from moorage import limits
from moorage.dataclass import dataclass
from moorage.sandbox.provisioner import Handle, Provisioner, SandboxSpec, SandboxStatus

_TASK: Final = "arn:aws:ecs:"
"""What ECS's names of tasks begin with. Lambda's of MicroVMs have another service in them, or are no ARN."""

Reaches = Callable[[str, str | None], bool]
"""Whether a sandbox can be reached from here, by its container's ``memory_limit``, and by its id once it has one."""


@dataclass(frozen=True, slots=True)
class ProvisionersByTier:
    """The values of ``memory_limit`` whose containers get MicroVMs."""

    microvms: frozenset[str]

    @classmethod
    def of(cls, microvm_settings: Mapping[str, str]) -> Self:
        """By the images that ``MOORAGE_MICROVM_*`` names; with those of another kind of deployment nobody asks."""
        return cls(frozenset(tier for tier in limits.MEMORY_LIMITS if f"image_{tier}" in microvm_settings))

    def is_outside(self, memory_limit: str, sandbox_id: str | None) -> bool:
        """Whether it is a MicroVM, or will be one."""
        return memory_limit in self.microvms if sandbox_id is None else not is_task(sandbox_id)

    def is_inside(self, memory_limit: str, sandbox_id: str | None) -> bool:
        return not self.is_outside(memory_limit, sandbox_id)


def is_task(sandbox_id: str) -> bool:
    """Whether Fargate runs it."""
    return sandbox_id.startswith(_TASK)


class ByTierProvisioner:
    """Both, for processes that start sandboxes."""

    def __init__(self, fargate: Provisioner, microvms: Provisioner, microvm_tiers: Collection[str]) -> None:
        self._fargate = fargate
        self._microvms = microvms
        self._microvm_gib = {limits.MEMORY_LIMITS[tier] for tier in microvm_tiers}

    async def start(self, spec: SandboxSpec) -> Handle:
        return await (self._microvms if spec.memory_gib in self._microvm_gib else self._fargate).start(spec)

    async def find(self, spec: SandboxSpec) -> str | None:
        """Of Fargate's alone: no MicroVM is found by its container."""
        return await self._fargate.find(spec)

    async def stop(self, sandbox_id: str) -> None:
        await self._of(sandbox_id).stop(sandbox_id)

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return await self._of(handle.sandbox_id).add_skill(handle, directory, archive)

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return await self._of(handle.sandbox_id).desk(handle, starts=starts)

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        return await self._of(sandbox_id).describe(sandbox_id)

    def _of(self, sandbox_id: str) -> Provisioner:
        return self._fargate if is_task(sandbox_id) else self._microvms
