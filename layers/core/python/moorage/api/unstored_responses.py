"""Unstored responses that can be continued: on their connection only, and as long as it lasts."""

from dataclasses import dataclass, field

from moorage import limits
from moorage.wire.types import Item


@dataclass(frozen=True, slots=True)
class UnstoredResponse:
    """An unstored response: the items up to its end, and the lane that it ran in."""

    items: list[Item]
    stream_id: str | None
    own_bytes: int


@dataclass(slots=True)
class UnstoredResponses:
    """The unstored responses of one connection, those not used for longest first."""

    kept: dict[str, UnstoredResponse] = field(default_factory=dict)
    bytes_total: int = 0

    async def items(self, response_id: str | None) -> list[Item] | None:
        if response_id is None or response_id not in self.kept:
            return None
        self.kept[response_id] = self.kept.pop(response_id)
        return self.kept[response_id].items

    async def remember(self, response_id: str, kept: UnstoredResponse) -> None:
        self.kept[response_id] = kept
        self.bytes_total += kept.own_bytes
        while len(self.kept) > limits.WEBSOCKET_RECENT_MAX or self.bytes_total > limits.WEBSOCKET_RECENT_BYTES_MAX:
            self.forget(next(iter(self.kept)))

    async def fail(self, response_id: str | None, stream_id: str | None) -> None:
        """A continuation of this response failed in this lane."""
        if response_id is not None and response_id in self.kept and self.kept[response_id].stream_id == stream_id:
            self.forget(response_id)

    def forget(self, response_id: str) -> None:
        self.bytes_total -= self.kept.pop(response_id).own_bytes
