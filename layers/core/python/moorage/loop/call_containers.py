"""The response's container, for a call that runs in it: waited for at the beginning, tidied up after at the end."""

import asyncio
from dataclasses import replace
from typing import Final

from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.dataclass import dataclass
from moorage.errors import ApiError, SandboxError, SandboxGone, StorageFull
from moorage.runtime import Runtime
from moorage.sandbox.exec_client import FileListing
from moorage.store.responses import StoredResponse
from moorage.store.table import TABLE_ERRORS, Record
from moorage.telemetry import tell_error
from moorage.tools.run import CallLeftovers

_NOT_STORED: Final = (
    "Note: what changed under /mnt/data could not be stored. It is there as long as the container runs, and the next command tries to "
    "store it again."
)

_ENDS_SOON: Final = (
    "Note: the container's machine has reached its greatest age and ends within {minutes} minutes, its commands two minutes before. "
    "Files in /mnt/data are kept, processes are not. The command after that runs in a new machine."
)


async def container_of(containers: Containers, stored: StoredResponse, seen: Record | None) -> LiveContainer:
    """The running container. ``seen`` is its record as this run found it."""
    assert stored.container_id is not None
    return await containers.waiting.sandbox(stored.tenant_id, stored.container_id, seen=seen)


async def bring_files(containers: Containers, live: LiveContainer) -> None:
    """Bring a call that runs the files that clients add meanwhile, until it is cancelled. A failure says nothing of the call."""
    while True:
        await asyncio.sleep(limits.CONTAINER_FILES_POLL_SECONDS)
        try:
            if not await containers.sandboxes.bring_files(live):
                return
        except ApiError:
            return  # The container was deleted.
        except (SandboxError, *TABLE_ERRORS):
            continue


@dataclass(frozen=True, slots=True)
class CallCleanup:
    """The work after the end of a call's commands."""

    runtime: Runtime
    container_id: str
    live: LiveContainer
    began_at_ms: int
    has_failed: bool
    """Earlier runs could not store the workspace."""
    files_after_ms: int
    """When the response began, by the times of the files."""

    async def leave(self, listing: FileListing | None) -> CallLeftovers:
        """The model's notes about the container, once its files are stored, and the files."""
        stored = await self._stored(listing)
        return replace(stored, notes=self.live.notes + stored.notes + await self._refusals() + self._end_of_life())

    async def _stored(self, listing: FileListing | None) -> CallLeftovers:
        """Store the workspace, and what there is to say of that. A store that refuses fails this run, and the next one tries again; but
        commands that have ended need not wait for it for ever."""
        try:
            synced = await self.runtime.computers.containers.artifacts.sync(self.live, after_ms=self.files_after_ms, listing=listing)
        except SandboxGone:
            return CallLeftovers()
        except (StorageFull, *TABLE_ERRORS) as error:
            if not self.has_failed:
                raise
            tell_error(error, "the files of a container could not be stored", container_id=self.container_id)
            return CallLeftovers((_NOT_STORED,))
        return CallLeftovers(synced.notes, tuple(sorted(synced.changed, key=lambda file: file.path)), synced.at_ms)

    def _end_of_life(self) -> tuple[str, ...]:
        """A word to the processes of a sandbox that is about to end."""
        left = self.live.record.seconds_left(self.runtime.clock())
        if left > limits.SANDBOX_REPLACED_SECONDS:
            return ()
        return (_ENDS_SOON.format(minutes=max(1, int(left // 60))),)

    async def _refusals(self) -> tuple[str, ...]:
        """The egress proxy's refusals meanwhile, and how to allow them: many tools hide the proxy's own words."""
        record = self.live.record
        if record.network_policy["type"] == "disabled":
            return ()
        await asyncio.sleep(2 * limits.EGRESS_LOG_SECONDS)  # The proxy writes its log behind.
        said = await self.runtime.computers.egress.refusals_since(record.tenant_id, self.container_id, self.began_at_ms)
        return tuple(said.splitlines())
