"""The screens of containers: a person looks at a container's browser, and takes it over for a while.

Who has control is known to the desk alone, as a lease that ends by itself. No text of a person's is kept here or there, and none is
written into a log.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from moorage import limits
from moorage.containers.lifecycle import ContainerSandboxes
from moorage.containers.sandbox_wait import SandboxWait
from moorage.containers.store import ContainerRecord, ContainerStore
from moorage.errors import (
    DeskHeld,
    DeskNotStarted,
    DeskUnavailable,
    SandboxError,
    SandboxGone,
    SandboxStarting,
    sandbox_unavailable,
)
from moorage.errors.screens import screen_closed, screen_held, screen_unavailable
from moorage.sandbox.desk_client import ActionOutcome, DeskClient, DeskFrame, DeskLease

_NO_BROWSERS: Final = "The sandboxes of this deployment have no browser: 'computer' in cdk.json gives them one."
_CLOSED: Final = "Its browser does not run: take control, and it is started."


class ContainerScreens:
    def __init__(
        self, store: ContainerStore, sandboxes: ContainerSandboxes, waiting: SandboxWait, *, has_browsers: bool = False
    ) -> None:
        """``has_browsers`` is asked where sandboxes are out of reach: elsewhere each of them says it."""
        self._has_browsers = has_browsers
        self._store = store
        self._sandboxes = sandboxes
        self._waiting = waiting

    async def look(self, container: ContainerRecord, after: int, *, wait_ms: int) -> DeskFrame | None:
        """The newest picture behind number ``after``, as soon as there is one; None if no browser runs. Looking is no use of the
        container, starts nothing, and wakes nothing that sleeps."""
        if container.sandbox is None or container.sandbox.state != "running" or not self._sandboxes.reaches(container):
            return None
        try:
            async with self._sandboxes.reach(container, looks_only=True) as live, self._sandboxes.desk(live, starts=False) as desk:
                return await desk.frame(after, wait_ms=wait_ms)
        except (DeskNotStarted, DeskUnavailable, SandboxGone):
            return None
        except SandboxError as error:
            raise sandbox_unavailable(error) from error

    async def take(self, tenant_id: str, container_id: str, holder: str) -> DeskLease:
        """Take control, or keep it; the browser is started if it does not run. From where no sandbox is reached only that is begun,
        and whoever reaches them does the rest when it is asked again."""
        if not self._sandboxes.reaches(await self._store.get(tenant_id, container_id)):
            if not self._has_browsers:
                raise screen_unavailable(_NO_BROWSERS)
            await self._sandboxes.place(tenant_id, container_id)
            raise sandbox_unavailable(SandboxStarting(limits.CONTAINER_POLL_SECONDS))
        try:
            async with await self._waiting.sandbox_now(tenant_id, container_id) as live, self._sandboxes.desk(live) as desk:
                await desk.start()
                return await desk.take(holder)
        except DeskUnavailable as error:
            raise screen_unavailable(error.message) from error
        except DeskHeld as error:
            raise screen_held(error.message) from error
        except SandboxError as error:
            raise sandbox_unavailable(error) from error

    async def give(self, container: ContainerRecord, holder: str) -> DeskLease:
        """Give control back. Of a browser that does not run nobody has any."""
        try:
            async with self._desk(container) as desk:
                return await desk.give(holder)
        except (DeskNotStarted, DeskUnavailable, SandboxGone):
            return DeskLease("", 0)
        except SandboxError as error:
            raise sandbox_unavailable(error) from error

    async def act(
        self, container: ContainerRecord, holder: str, number: int, actions: Sequence[Mapping[str, Any]]
    ) -> tuple[ActionOutcome, ...]:
        """A person's actions, once for each number."""
        try:
            async with self._desk(container) as desk:
                return await desk.input(holder, number, actions)
        except DeskHeld as error:
            raise screen_held(error.message) from error
        except (DeskNotStarted, DeskUnavailable, SandboxGone) as error:
            raise screen_closed(_CLOSED) from error
        except SandboxError as error:
            raise sandbox_unavailable(error) from error

    @asynccontextmanager
    async def _desk(self, container: ContainerRecord) -> AsyncIterator[DeskClient]:
        """Of a browser that runs; to act on it is use of its container."""
        if container.sandbox is None or container.sandbox.state != "running" or not self._sandboxes.reaches(container):
            raise DeskUnavailable(_CLOSED)
        container = await self._store.touch(container)
        async with self._sandboxes.reach(container) as live, self._sandboxes.desk(live, starts=False) as desk:
            yield desk
