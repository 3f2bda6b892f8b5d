"""MicroVMs that live and belong to nobody.

A VM takes no tags, and no answer of AWS has its client token. So each VM of this deployment's images that is in no ``LIFE#`` record by
its id is lost, once it is older than any start. It is noted when it is first seen and ended at a later look: the index of records is
eventually consistent, and one look could miss a record that is just being moved in it.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.store import keys, schema
from moorage.store.table import Table
from moorage.telemetry import tell_error

_LOOKS_APART_SECONDS: Final = 30
"""The reaper looks once a minute. Two that overlap are one look."""
_DUE_SECONDS_MAX: Final = limits.CONTAINER_IDLE_MINUTES_MAX * 60 + 3_600
"""No record of a sandbox is due later than that; a container's own ``PURGE`` records mostly are."""


@dataclass(frozen=True, slots=True)
class RunningMicrovm:
    sandbox_id: str
    started_at: float
    """Unix seconds."""
    image: str
    """The ARN of its image, and the version of it that it runs."""
    version: str


class MicrovmStopper(Protocol):
    async def stop(self, sandbox_id: str) -> None: ...


class LostMicrovms:
    def __init__(self, table: Table, owner: MicrovmStopper, clock: Callable[[], float]) -> None:
        self._table = table
        self._owner = owner
        self._clock = clock

    async def stop_lost(self, running: Sequence[RunningMicrovm]) -> int:
        """End the VMs that had no record now and at an earlier look; answers how many. ``running`` is what lives. To be called about
        once a minute, so that one is ended in its sixth minute at the latest; harmless twice."""
        now = self._clock()
        seen = {record["SK"]: int(record["seen_at"]) for record in await self._table.query(keys.LOST_MICROVMS)}
        owned = await self._owned(now) if running else set()
        lost = {vm.sandbox_id: vm.started_at for vm in running if vm.sandbox_id not in owned}
        stopped = [
            sandbox_id
            for sandbox_id, started_at in lost.items()
            if seen.get(sandbox_id, now) + _LOOKS_APART_SECONDS <= now
            and started_at + limits.ORPHAN_SECONDS_MIN <= now
            and await self._stop(sandbox_id)
        ]
        await self._table.write_many(
            puts=[{"PK": keys.LOST_MICROVMS, "SK": sandbox_id, "seen_at": int(now)} for sandbox_id in lost.keys() - seen.keys()],
            deletes=[(keys.LOST_MICROVMS, sandbox_id) for sandbox_id in seen if sandbox_id not in lost or sandbox_id in stopped],
        )
        return len(stopped)

    async def _owned(self, now: float) -> set[str]:
        entries = await self._table.query(keys.ALIVE, up_to=keys.due(int(now) + _DUE_SECONDS_MAX, "~"), index=schema.INDEX)
        names = [(entry["PK"], entry["SK"]) for entry in entries if entry["SK"].startswith(keys.life.prefix)]
        lives = await self._table.get_many(names, consistent=True)
        return {life["sandbox_id"] for life in lives if life["sandbox_id"] is not None}

    async def _stop(self, sandbox_id: str) -> bool:
        """Whether it was ended. One that AWS does not let end keeps its note, and with it the next attempt; others are ended."""
        try:
            await self._owner.stop(sandbox_id)
        except SandboxError:
            return False
        except (BotoCoreError, ClientError) as error:
            tell_error(error, "a lost MicroVM was not ended", sandbox_id=sandbox_id)
            return False
        return True
