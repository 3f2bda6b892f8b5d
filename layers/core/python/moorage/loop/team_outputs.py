"""Outputs of the client's calls that come while a response with a team runs, by ``response.inject`` of the WebSocket.

They lie in the records of the agent that has called (``store/lanes.py: answer``), and become items of its at the beginning of its next
step, as messages do. An agent that has all of its outputs goes on, in place of waiting for its client (``loop/team.py``). The output of
an ``async`` call finds an agent that did not wait for it: it ends its wait for messages, or begins another turn.
"""

from collections.abc import Collection, Sequence
from typing import Final

from moorage.loop import decide
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.tools.multi_agent.room import AgentTeam
from moorage.tools.registry import ROOMS
from moorage.tools.room import makes_calls
from moorage.wire.types import Item

ANSWERS: Final = frozenset(room.output_type for room in ROOMS if room.output_type is not None and not makes_calls(room)) - frozenset(
    {AgentTeam.output_type}
)
"""Types of outputs for calls that a client may run. They begin a step of an agent only if its client has sent them meanwhile."""
_OF_PROGRAMS: Final = frozenset(room.output_type for room in ROOMS if room.output_type is not None and makes_calls(room))
HEARD: Final = ANSWERS | _OF_PROGRAMS | frozenset(AgentTeam.id_prefixes) - {AgentTeam.call_type}
"""Items that stand at the beginning of a step of an agent, before its model is asked."""


async def unread(stores: Stores, stored: StoredResponse, own: Collection[Item], *, is_late: bool | None = None) -> list[Item]:
    """Outputs for the calls of an agent that are not yet among its items, which are its ``own``. ``is_late``: only those that it did
    not wait for (``async``), or only the others."""
    if not stored.takes_outputs:
        return []
    answered = {item["call_id"] for item in own if item["type"] in ANSWERS}
    left_open = {item["call_id"] for item in own if item.get("async")}
    outputs = await stores.lanes.outputs(stored, stored.lane) if left_open or not is_late else []
    fresh = [item for item in outputs if item["call_id"] not in answered]
    return fresh if is_late is None else [item for item in fresh if (item["call_id"] in left_open) is is_late]


async def has_all(stores: Stores, stored: StoredResponse, made: Sequence[Item]) -> bool:
    """Whether the client has answered all that an agent has asked in a step that has ``made`` this."""
    if not stored.takes_outputs:
        return False
    asked = {item.get("call_id") for item in made if decide.is_for_client(item)}
    return bool(asked) and asked <= {item["call_id"] for item in await stores.lanes.outputs(stored, stored.lane)}
