"""The sandboxes that a container has had: when each was ordered, ran and ended, and why. One record for each that has ended, written as
it ends; the latest ``limits.CONTAINER_LIVES_MAX`` are kept. What the container has now stands in its own record."""

from typing import Final, Literal

from moorage import limits
from moorage.codec import Codec
from moorage.containers.store import ContainerRecord, End
from moorage.dataclass import dataclass
from moorage.store import keys
from moorage.store.table import Table
from moorage.wire.operator_answers import SandboxRun, SandboxState


@dataclass(frozen=True, slots=True)
class SandboxLife:
    """Times are in milliseconds, 0 if they are not known."""

    incarnation: int
    ordered_at_ms: int
    running_at_ms: int
    ended_at_ms: int
    end: End | Literal[""] = ""
    """Empty while it is there."""
    state: SandboxState = "ended"
    refusal: str = ""
    """Why it could not be started so far."""

    def to_json(self) -> SandboxRun:
        return {
            "id": f"sandbox_{self.incarnation}",
            "object": "container.sandbox",
            "status": self.state,
            "ordered_at": self.ordered_at_ms or None,
            "started_at": self.running_at_ms or None,
            "ended_at": self.ended_at_ms or None,
            "end": self.end or None,
            "refusal": self.refusal or None,
        }


_LIFE: Final = Codec(SandboxLife, beside=("state", "refusal"))


class ContainerLives:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def of(self, container: ContainerRecord) -> list[SandboxLife]:
        """The latest first, with the one that is there."""
        pk = keys.container(container.tenant_id, container.id)
        records = await self._table.query(pk, prefix=keys.sandbox_life.prefix)
        lives = [_LIFE.unpack(record, state="ended", refusal="") for record in records]
        present = container.sandbox
        if present is not None:
            lives = [each for each in lives if each.incarnation != container.incarnation]
            times = (container.ordered_at_ms, container.running_at_ms, 0)
            lives.append(SandboxLife(container.incarnation, *times, state=present.state, refusal=present.refusal))
        return sorted(lives, key=lambda life: -life.incarnation)

    async def note_end(self, container: ContainerRecord, end: End, at_ms: int) -> None:
        """Of its present sandbox. Twice is once: the record is named by the incarnation."""
        life = SandboxLife(container.incarnation, container.ordered_at_ms, container.running_at_ms, at_ms, container.ending or end)
        place = keys.sandbox_life(container.incarnation % limits.CONTAINER_LIVES_MAX)
        await self._table.put({"PK": keys.container(container.tenant_id, container.id), "SK": place, **_LIFE.pack(life)})
