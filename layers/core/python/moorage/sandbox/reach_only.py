"""Sandboxes that other processes start: what a process inside their network on AWS can do with them, which is to reach them.

The tool step lives there, where no way leads to ECS. What only ECS can do raises :class:`SandboxElsewhere`; the record of the container
says then what is wanted, and a process outside does it (``Sandboxes.place``, ``Sweep.expire_due``).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Never
from urllib.parse import urlsplit

from moorage.errors import SandboxElsewhere, SandboxStarting
from moorage.sandbox.provisioner import Handle, SandboxSpec, SandboxStatus

_POLL_SECONDS: Final = 0.5
_REACH_SECONDS: Final = 1.0


class ReachOnlyProvisioner:
    """A provisioner that starts and stops nothing."""

    def __init__(self, *, can_reach: Callable[[str], Awaitable[bool]] | None = None) -> None:
        """``can_reach(endpoint)`` says whether something listens there; by default a connection is tried."""
        self._can_reach = can_reach or _listens

    async def start(self, spec: SandboxSpec) -> Handle:
        """The sandbox that was placed, as soon as it listens."""
        if spec.placed is None:
            raise SandboxElsewhere
        if not await self._can_reach(spec.placed.endpoint):
            raise SandboxStarting(_POLL_SECONDS)
        return spec.placed

    async def find(self, spec: SandboxSpec) -> str | None:
        raise SandboxElsewhere

    async def stop(self, sandbox_id: str) -> None:
        raise SandboxElsewhere

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return handle

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        raise SandboxElsewhere

    async def running(self) -> list[Never]:
        raise SandboxElsewhere

    @property
    def revision(self) -> str:
        """Nothing is started here."""
        return ""


async def _listens(endpoint: str) -> bool:
    address = urlsplit(endpoint)
    try:
        async with asyncio.timeout(_REACH_SECONDS):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
