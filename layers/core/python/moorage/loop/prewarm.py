"""A sandbox that gets ready while the model thinks, or after a tool step has come back without one.

On AWS the tool step lives in the sandboxes' network, from where none can be started: the steps outside do it for it.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final, Self

from moorage.containers.containers import Containers
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.store.responses import StoredResponse

_log: Final = logging.getLogger(__name__)


async def have_sandbox(containers: Containers, stored: StoredResponse) -> None:
    """See that the response's container has a sandbox or gets one; the tool step reports an obstacle."""
    if stored.container_id is not None:
        with suppress(ApiError):  # Deleted meanwhile.
            await containers.sandboxes.place(stored.tenant_id, stored.container_id)


@dataclass(slots=True)
class SandboxPrewarm:
    task: asyncio.Task[None]

    @classmethod
    def begin(cls, containers: Containers, stored: StoredResponse) -> Self | None:
        """None if the response has no container."""
        if stored.container_id is None:
            return None
        task = asyncio.create_task(have_sandbox(containers, stored))
        task.add_done_callback(_tell)
        return cls(task)

    async def ready(self) -> None:
        """Returns when the sandbox is there, or will not come: the response goes on either way, and its tool step sees why."""
        await asyncio.wait({self.task})

    async def give_up(self) -> None:
        """The waiter is gone. A started sandbox serves the next response, or is stopped when it has idled."""
        self.task.cancel()
        await self.ready()


def _tell(task: "asyncio.Task[None]") -> None:
    """Also if nobody waits for it any more, because the process ends or the step was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("no sandbox could be had ahead of its calls", exc_info=error)
