"""What the next response of a session goes on from.

Mostly it names the responses before it, as any response of a chain does. Before that chain grows long, or its oldest response
expires, a response has what was said as input of its own, as a fork has. So a session is bounded neither by the length of a chain nor
by the retention of its responses, and the records of its responses stay small.
"""

from collections.abc import Sequence

from moorage import limits
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.loop.chain import chain_items
from moorage.loop.notes import carried, reader
from moorage.runtime import Runtime
from moorage.store.responses import Snapshot, StoredResponse
from moorage.wire.types import Item


async def owned_past(
    runtime: Runtime, session: SessionRecord, turn: TurnRecord | None, previous: Snapshot, then: Sequence[Item]
) -> list[Item] | None:
    """What was said, for a response that has it as its own; None for one that goes on from ``previous``. ``then`` is what it brings.
    What a compaction has replaced is left out: no model would see it. Raises :class:`~moorage.errors.ApiError`."""
    age = runtime.clock() - _rooted_at(session, turn)
    is_young = age < runtime.settings.retention_seconds * limits.AGENT_SESSION_CHAIN_SHARE
    if is_young and len(previous.stored.ancestors) + 1 < limits.AGENT_SESSION_CHAIN_MAX:
        return None
    chain = await runtime.stores.responses.chain(session.tenant_id, previous.stored.response_id)
    return carried(chain_items(chain.parts, then=then), reader(runtime.stores, session.tenant_id))


def root_of(session: SessionRecord, turn: TurnRecord | None, stored: StoredResponse) -> int:
    """When the chain of a session's next response began (Unix seconds)."""
    return _rooted_at(session, turn) if stored.ancestors else stored.created_at


def _rooted_at(session: SessionRecord, turn: TurnRecord | None) -> int:
    return session.created_at if turn is None or not turn.rooted_at else turn.rooted_at
