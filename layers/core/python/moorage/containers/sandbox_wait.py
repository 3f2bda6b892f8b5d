"""A running sandbox for a caller that can wait for a start, for its host's return, or for room; and for one that cannot wait, but may
take an idle one's room.
"""

import asyncio
from contextlib import suppress

from moorage import limits
from moorage.containers.lifecycle import ContainerSandboxes, LiveContainer
from moorage.containers.sweep import AtWork, ContainerSweep
from moorage.dataclass import dataclass
from moorage.errors import ApiError, SandboxCapacity, SandboxElsewhere, SandboxHostAway, SandboxSettingUp, SandboxStarting
from moorage.store.responses import Responses
from moorage.store.table import Record


@dataclass(frozen=True, slots=True)
class SandboxWait:
    sandboxes: ContainerSandboxes
    sweep: ContainerSweep
    at_work: AtWork

    async def sandbox(self, tenant_id: str, container_id: str, *, seen: Record | None = None) -> LiveContainer:
        """The container with its sandbox. ``seen`` is its record, if the caller has just read it.

        If the tenant has as many as it may, the one that has been idle longest gives way. Raises :class:`SandboxElsewhere` if another
        place has to go first, and the obstacle if it lasts too long. If sandboxes are started elsewhere, the wait happened there.
        """
        began = asyncio.get_running_loop().time()
        pause = limits.SANDBOX_POLL_SECONDS_MIN
        while True:
            try:
                return await self.sandboxes.ensure(tenant_id, container_id, seen=seen)
            except SandboxElsewhere:
                raise
            except SandboxStarting as error:
                if asyncio.get_running_loop().time() - began > _patience(error):
                    raise
                # Mostly the start was begun beforehand, and is nearly over.
                await asyncio.sleep(min(pause, error.retry_after_seconds))
                pause *= limits.SANDBOX_POLL_GROWTH
            except SandboxCapacity:
                if asyncio.get_running_loop().time() - began > limits.SANDBOX_WAIT_SECONDS:
                    raise
                if not await self._makes_room(tenant_id):
                    if not self.sandboxes.can_start:
                        raise
                    await asyncio.sleep(limits.SANDBOX_CAPACITY_RETRY_SECONDS)
            seen = None

    async def sandbox_now(self, tenant_id: str, container_id: str) -> LiveContainer:
        """The same for a person: it does not wait for a start, and another sandbox gives way all the same."""
        while True:
            try:
                return await self.sandboxes.ensure(tenant_id, container_id)
            except SandboxCapacity:
                # Somebody else may have the room that was made; each time there is one fewer that is idle.
                if not await self._makes_room(tenant_id):
                    raise

    async def stops_noted(self, tenant_id: str) -> bool:
        """For places that can stop sandboxes and not reach all of them: whether a sandbox of the tenant has been stopped that was noted
        to be stopped, or is idle and can be reached.

        Raises :class:`SandboxElsewhere` if there is none, but one is idle that may be noted.
        """
        return await self.sweep.stop_noted(tenant_id) or await self.sweep.make_room(tenant_id, spared=await self.at_work(tenant_id))

    async def _makes_room(self, tenant_id: str) -> bool:
        try:
            return await self.sweep.make_room(tenant_id, spared=await self.at_work(tenant_id))
        except SandboxElsewhere:
            if self.sandboxes.can_start:
                return False  # No task of Fargate gives way to a MicroVM: who could note it does not wait for this start.
            raise


def _patience(error: SandboxStarting) -> float:
    match error:
        case SandboxHostAway():
            return limits.SANDBOX_HOST_WAIT_SECONDS
        case SandboxSettingUp():
            return limits.SANDBOX_WAIT_SECONDS + limits.SETUP_SECONDS_MAX
        case _:
            return limits.SANDBOX_WAIT_SECONDS


def of_responses(responses: Responses) -> AtWork:
    """Those of the tenant's responses that run: between two commands a model may think for long."""

    async def container_id(tenant_id: str, response_id: str) -> str | None:
        with suppress(ApiError):  # it was deleted in this moment
            return (await responses.load(tenant_id, response_id)).container_id
        return None

    async def at_work(tenant_id: str) -> set[str | None]:
        running = await responses.inflight_of(tenant_id)
        return set(await asyncio.gather(*(container_id(tenant_id, response_id) for response_id in running)))

    return at_work
