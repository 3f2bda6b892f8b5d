"""Repeated requests: the response, or the answer, that the first of them got.

A client says with ``Idempotency-Key`` that two requests are one. The first claims the key by one conditional write; the others find
who has it. What a response is, its log knows; of other requests the answer itself is kept.

A client's own retry after a lost connection brings no key. What it can be told by is a note that was left when its connection broke:
the note is taken by the first retry that sends the same body, and by no other.
"""

from collections.abc import Callable
from typing import Final

from moorage import limits
from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.store import keys
from moorage.store.table import Record, Table

_LEFT: Final = "LEFT#"


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The holder of a key."""

    request_id: str
    """Of the request that claimed it."""
    claimed_at: int
    digest: str = ""
    """Of the request; empty as long as its body has not come whole."""
    response_id: str | None = None
    is_stored: bool = True
    has_ended: bool = False
    status: int = 0
    """Of the answer that is kept; 0 if there is none."""
    content_type: str = ""
    body: bytes = b""


_CLAIM: Final = Codec(
    IdempotencyClaim,
    names={"is_stored": "stored", "has_ended": "ended"},
    nested={"body": FieldCodec(bytes, bytes)},
    sparse=("response_id",),
)


class IdempotencyKeys:
    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock

    async def find(self, tenant_id: str, key: str) -> IdempotencyClaim | None:
        record = await self._table.get(keys.repeat(tenant_id, key), keys.META)
        return None if record is None or record["ttl"] <= self._clock() else _CLAIM.unpack(record)

    async def claim(self, tenant_id: str, key: str, claim: IdempotencyClaim) -> IdempotencyClaim | None:
        """Claim the key; if another request has it, its claim."""
        record = self._record(tenant_id, key, claim)
        for _ in range(limits.REPEAT_CLAIMS_MAX):
            try:
                await self._table.put(record, if_absent=True)
                return None
            except ConditionFailed:
                there = await self._table.get(record["PK"], keys.META)
            if there is None:
                continue  # Given back in this moment.
            if there["ttl"] > self._clock():
                other = _CLAIM.unpack(there)
                # The answer to a write may get lost, and the write be sent again.
                return None if other.request_id == claim.request_id else other
            # It ran out, and the table has not removed it yet; somebody else may see that too, and have the key by now.
            await self.release(tenant_id, key, _CLAIM.unpack(there))
        raise AssertionError("a key that was removed is taken again each time")

    async def settle(self, tenant_id: str, key: str, claim: IdempotencyClaim) -> None:
        """Put down the result of the request that has the key."""
        await self._table.put(self._record(tenant_id, key, claim))

    async def release(self, tenant_id: str, key: str, claim: IdempotencyClaim) -> None:
        """Nothing came of it: the next request may try. Harmless if another one has the key by now."""
        try:
            await self._table.delete(keys.repeat(tenant_id, key), keys.META, condition={"request_id": claim.request_id})
        except ConditionFailed:
            return

    async def leave(self, tenant_id: str, digest: str, response_id: str) -> None:
        """The connection of a request with this digest is lost, and its response goes on."""
        now = int(self._clock())
        await self._table.put(
            {
                "PK": keys.repeat(tenant_id, digest),
                "SK": f"{_LEFT}{response_id}",
                "left_at": now,
                "ttl": now + limits.RETRY_SECONDS_MAX,
            }
        )

    async def adopt(self, tenant_id: str, digest: str) -> str | None:
        """The response that a retry with this digest goes on with. No other retry gets it."""
        pk = keys.repeat(tenant_id, digest)
        for record in await self._table.query(pk, prefix=_LEFT):
            if record["ttl"] <= self._clock():
                continue
            if await self._table.delete(pk, record["SK"]) is not None:
                return str(record["SK"]).removeprefix(_LEFT)
        return None

    def _record(self, tenant_id: str, key: str, claim: IdempotencyClaim) -> Record:
        return {
            "PK": keys.repeat(tenant_id, key),
            "SK": keys.META,
            **_CLAIM.pack(claim),
            "ttl": claim.claimed_at + limits.IDEMPOTENCY_SECONDS,
        }
