"""What a connection knows beside the store: unstored responses that can be continued, and input that waits for a request.

Both are there as long as the connection lasts.
"""

from dataclasses import field

from moorage import limits
from moorage.dataclass import dataclass
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
    steering: dict[tuple[str, str | None], list[Item]] = field(default_factory=dict)
    """Messages that steered a response in a lane, which waits for outputs of its client."""

    async def hold(self, response_id: str, stream_id: str | None, messages: list[Item]) -> bool:
        """Keep messages for the request that goes on from this response in its lane. False if there is no room."""
        if len(self.steering) >= limits.WEBSOCKET_RECENT_MAX:
            return False
        self.steering[response_id, stream_id] = messages
        return True

    async def held(self, response_id: str | None, stream_id: str | None) -> list[Item]:
        return [] if response_id is None else self.steering.get((response_id, stream_id), [])

    async def release(self, response_id: str, stream_id: str | None) -> None:
        """They have become input of a response."""
        self.steering.pop((response_id, stream_id), None)

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
