"""WebSocket connections that API Gateway holds: their records, and the frames that wait for a worker.

API Gateway brings each frame to a function of its own, but a connection is one conversation: its lanes have an order, and parallel work
is counted. So a connection has one worker at a time, and a mailbox. A function with a frame puts it into the mailbox and counts it in
the connection's record. If the connection has no worker, it calls one. The worker takes the frames, and leaves when its work is done,
under the condition that no frame was counted since its last look: so no frame is left lying.

A worker keeps its hold by writing on. A worker with an expired hold is dead, and its unfinished answers are lost to the client: the
connection is closed then, as it breaks when a server dies.
"""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, too_many_connections
from moorage.store import keys
from moorage.store.table import Record, Table
from moorage.wire.types import Item


@dataclass(frozen=True, slots=True)
class SocketOpening:
    """A connection and the key that opened it."""

    connection_id: str
    tenant_id: str
    digest: str
    """Hash of the key itself, which may be revoked."""
    counts_as: str
    """Hash of the key that it was made of, or its own: under it requests are counted."""
    budgets: tuple[str, ...]
    opened_at: int
    place: int = 0
    """Among the connections of the key."""
    token_expires_at: int = 0
    """Unix seconds; 0 for keys, which the table knows."""
    takes_outputs: bool = False
    """Its client may send outputs to a team that runs."""

    @property
    def closes_at(self) -> int:
        return self.opened_at + limits.WEBSOCKET_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class SocketFrame:
    name: str
    """Its sort key, by which frames stand in the order in which they came."""
    text: str


@dataclass(frozen=True, slots=True)
class FrameArrival:
    """A frame lies in the mailbox."""

    call: str | None = None
    """The hold that a worker has to be called with; None if one is there."""
    is_abandoned: bool = False
    """The connection's worker has died."""


@dataclass(frozen=True, slots=True)
class SocketWork:
    opened: SocketOpening
    lanes: frozenset[str]
    """Names of lanes that earlier workers have seen."""


_OPENED: Final = Codec(SocketOpening, beside=("connection_id",))


class SocketAbandoned(Exception):
    """The worker of the connection has died."""


class Sockets:
    def __init__(self, table: Table, *, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock

    # --- opening and closing ---

    async def open(self, opened: SocketOpening) -> None:
        """Take one of the key's places. Raises 429 if there is none."""
        place = await self._take_place(opened)
        packed = _OPENED.pack(opened) | {"place": place}
        await self._table.put({**_key(opened.connection_id), **packed, "arrived": 0, "ttl": _kept_until(opened.opened_at)})

    async def _take_place(self, opened: SocketOpening) -> int:
        now, pk = int(self._clock()), keys.socket_places(opened.counts_as)
        taken = {record["SK"]: record for record in await self._table.query(pk)}
        for place in range(limits.WEBSOCKETS_PER_KEY_MAX):
            sk = keys.socket_place(place)
            there = taken.get(sk)
            mine = {"connection": opened.connection_id, "until": _kept_until(opened.opened_at), "ttl": _kept_until(opened.opened_at)}
            try:
                if there is None:
                    await self._table.put({"PK": pk, "SK": sk, **mine}, if_absent=True)
                elif there["until"] <= now:  # The gateway does not always tell that a connection has ended.
                    await self._table.update(pk, sk, set=mine, condition={"connection": there["connection"]})
                else:
                    continue
            except ConditionFailed as error:
                if (error.item or {}).get("connection") != opened.connection_id:
                    continue  # Another connection has taken it in this moment.
            return place
        raise too_many_connections(limits.WEBSOCKETS_PER_KEY_MAX)

    async def close(self, connection_id: str) -> None:
        """Forget it, its mailbox, and its responses that could be continued. Harmless to repeat."""
        records = await self._table.query(keys.socket(connection_id))
        for record in records:
            if record["SK"] == keys.META:
                opened = _opened(record)
                with suppress(ConditionFailed):
                    place = keys.socket_place(opened.place)
                    pk = keys.socket_places(opened.counts_as)
                    await self._table.delete(pk, place, condition={"connection": connection_id})
        await self._table.write_many(deletes=[(record["PK"], record["SK"]) for record in records])

    async def find(self, connection_id: str) -> SocketOpening | None:
        record = await self._table.get(keys.socket(connection_id), keys.META)
        return None if record is None else _opened(record)

    # --- the mailbox ---

    async def arrive(self, connection_id: str, frame_id: str, at_ms: int, text: str) -> FrameArrival | None:
        """Put a frame into the mailbox; None if the connection is not open any more."""
        pk, name = keys.socket(connection_id), keys.socket_frame(at_ms, frame_id)
        ends = _kept_until(int(self._clock()))
        await self._table.put({"PK": pk, "SK": name, "text": text, "ttl": ends})
        try:
            record = await self._table.update(pk, keys.META, add={"arrived": 1})
        except ConditionFailed:
            await self._table.delete(pk, name)
            return None
        if record.get("holder") is None:
            return FrameArrival(call=frame_id if await self._hold(connection_id, frame_id) else None)
        return FrameArrival(is_abandoned=record["until_ms"] < self._now_ms())

    async def _hold(self, connection_id: str, holder: str) -> bool:
        """False if somebody else was faster; his worker finds the frame."""
        try:
            changes = {"holder": holder, "until_ms": self._held_until_ms()}
            await self._table.update(keys.socket(connection_id), keys.META, set=changes, absent=["holder"])
        except ConditionFailed:
            return False
        return True

    async def give_up(self, connection_id: str, holder: str) -> list[SocketFrame]:
        """No worker could be called: the waiting frames of the mailbox, for error answers."""
        frames = await self.frames(connection_id)
        await self.take(connection_id, frames)
        with suppress(ConditionFailed):
            await self._table.update(keys.socket(connection_id), keys.META, remove=_HOLD, condition={"holder": holder})
        return frames

    # --- the worker's side ---

    async def begin(self, connection_id: str, holder: str) -> SocketWork | None:
        """Begin to work under a hold; None if the connection has gone, or somebody works under this hold already: functions may be
        called twice. Raises :class:`SocketAbandoned` if its worker has died.
        """
        changes = {"is_begun": True, "until_ms": self._held_until_ms()}
        try:
            record = await self._table.update(
                keys.socket(connection_id), keys.META, set=changes, condition={"holder": holder}, absent=["is_begun"]
            )
        except ConditionFailed as error:
            there = error.item or {}
            if there.get("holder") == holder and there["until_ms"] < self._now_ms():
                raise SocketAbandoned from error
            return None
        return SocketWork(_opened(record), frozenset(record.get("lanes", ())))

    async def look(self, connection_id: str, holder: str) -> int | None:
        """The number of frames so far; None if the connection has gone, or the hold is lost."""
        record = await self._table.get(keys.socket(connection_id), keys.META)
        return int(record["arrived"]) if record is not None and record.get("holder") == holder else None

    async def hold_on(self, connection_id: str, holder: str) -> None:
        """Say that the worker lives. Raises :class:`ConditionFailed` as :meth:`look` says None."""
        changes = {"until_ms": self._held_until_ms()}
        await self._table.update(keys.socket(connection_id), keys.META, set=changes, condition={"holder": holder})

    async def frames(self, connection_id: str) -> list[SocketFrame]:
        records = await self._table.query(keys.socket(connection_id), prefix=keys.FRAME_PREFIX)
        return [SocketFrame(record["SK"], record["text"]) for record in records]

    async def take(self, connection_id: str, frames: list[SocketFrame]) -> None:
        await self._table.write_many(deletes=[(keys.socket(connection_id), frame.name) for frame in frames])

    async def leave(self, connection_id: str, holder: str, *, arrived: int, lanes: frozenset[str]) -> bool:
        """End the hold; False if frames have come since the worker looked, or the connection has gone."""
        try:
            await self._table.update(
                keys.socket(connection_id),
                keys.META,
                set={"lanes": sorted(lanes)},
                remove=_HOLD,
                condition={"holder": holder, "arrived": arrived},
            )
        except ConditionFailed:
            return False
        return True

    # --- what can be continued on the connection ---

    async def keep(self, opened: SocketOpening, response_id: str, stream_id: str | None, items: list[Item]) -> bool:
        """An unstored response with all that was said before it; False if it is too long for a record."""
        body = zlib.compress(orjson.dumps(items), 1)
        if len(body) > limits.ITEM_INLINE_BYTES_MAX:
            return False
        key = {"PK": keys.socket(opened.connection_id), "SK": keys.socket_kept(response_id)}
        await self._table.put({**key, "items": body, "stream_id": stream_id, "ttl": _kept_until(opened.opened_at)})
        return True

    async def kept(self, connection_id: str, response_id: str) -> tuple[list[Item], str | None] | None:
        """The items, and the lane that it ran in."""
        record = await self._table.get(keys.socket(connection_id), keys.socket_kept(response_id))
        return None if record is None else (orjson.loads(zlib.decompress(record["items"])), record["stream_id"])

    async def forget(self, connection_id: str, response_id: str) -> None:
        await self._table.delete(keys.socket(connection_id), keys.socket_kept(response_id))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _held_until_ms(self) -> int:
        return self._now_ms() + limits.WEBSOCKET_HOLD_SECONDS * 1000


_HOLD: Final = ("holder", "until_ms", "is_begun")


def _key(connection_id: str) -> dict[str, Any]:
    return {"PK": keys.socket(connection_id), "SK": keys.META}


def _opened(record: Record) -> SocketOpening:
    return _OPENED.unpack(record, connection_id=keys.socket.read(record["PK"]))


def _kept_until(opened_at: int) -> int:
    """Longer than any connection of the gateway lives."""
    return opened_at + limits.WEBSOCKET_GATEWAY_SECONDS_MAX + limits.WEBSOCKET_HOLD_SECONDS
