"""Hosts and secrets of a container that a person has to allow first (``network_policy.require_approval``).

The proxy refuses them, and its log says so. When the calls of a round have ended, that log is read: a response in the background waits
in its place, as for a call; any other one ends with the question. What is allowed is noted for the container, and the model reads that
it may try again. Harmless to run twice: each host and each secret is asked for once in a response, under an id that follows from it.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from moorage import ids, limits
from moorage.approvals.store import Approval
from moorage.approvals.waiting import announce, approval_of, denial_of, stand_still
from moorage.egress.policy import EgressOpening
from moorage.egress.service import EgressService
from moorage.errors import Superseded
from moorage.loop.lanes import seen_as
from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.tools.capabilities import RunsInContainer
from moorage.tools.mcp import network
from moorage.tools.registry import ROOMS
from moorage.wire.types import Item

_BEYOND_CALLS: Final = 1 << 31
"""The ids of approvals of calls hold their output indexes, which are less."""
_OF_NO_CALL: Final = -1


def waits_in_place(stored: StoredResponse) -> bool:
    return stored.has_gated_network and stored.parks(True)


async def stands_still(runtime: Runtime, stored: StoredResponse, step: int) -> bool:
    """Open the allowed hosts; whether the response waits for more from now on. Called when all calls of a round have ended."""
    stores = runtime.stores
    if not waits_in_place(stored) or stored.container_id is None:
        return False
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        asked = await _asked(stores, stored)
        allowed = [EgressOpening.of_key(approval.opens) for approval in asked if approval.status == "approved"]
        await runtime.computers.egress.allow(stored.tenant_id, stored.container_id, allowed)
        known = {approval.opens for approval in asked}
        missing = [
            _approval(runtime.clock, stored, step, each)
            for each in await _wanted(runtime.computers.egress, stored)
            if each.key not in known
        ]
        if missing:
            await stores.approvals.ask(stored, missing)
        waiting = [approval for approval in (*asked, *missing) if approval.is_waiting]
        if not waiting:
            return False
        await announce(runtime, stored, waiting)
        if await stand_still(stores, runtime.clock, stored, waiting):
            return True
        stored = await seen_as(stores, await stores.responses.load(stored.tenant_id, stored.response_id), stored.lane)
    raise Superseded(f"the approvals of {stored.response_id} are decided faster than they are read")


async def news(stores: Stores, egress: EgressService, stored: StoredResponse, made: Iterable[Item]) -> list[Item]:
    """Items to put before the model: what was decided, or the questions with which the response ends. ``made`` is what it has made so
    far."""
    items = list(made)
    if not stored.has_gated_network:
        return []
    if not waits_in_place(stored):
        if stored.agent is not None and not _has_just_run(items):
            return []  # Another agent of the team asks, whose commands wanted it.
        there = {network.opening_of(item) for item in items}
        return [network.question(each) for each in await _wanted(egress, stored) if each not in there]
    told = {item.get("approval_request_id") for item in items}
    over = [each for each in await _asked(stores, stored) if not each.is_waiting and each.id not in told]
    return [network.decided(EgressOpening.of_key(each.opens), each.id, denial_of(each)) for each in over]


def _has_just_run(items: Sequence[Item]) -> bool:
    """Whether the latest that an agent has got is what a call in the container came to."""
    last = next((item for item in reversed(items) if network.opening_of(item) is None), None)
    return last is not None and isinstance(ROOMS.of_item(last["type"]), RunsInContainer)


async def open_allowed(egress: EgressService, stored: StoredResponse, own_input: Sequence[Item], items: Sequence[Item]) -> None:
    """Open the hosts that the items of this request allow, from the questions of the responses before it."""
    if stored.has_gated_network and stored.container_id is not None:
        await egress.allow(stored.tenant_id, stored.container_id, network.allowed_by(own_input, items))


async def _asked(stores: Stores, stored: StoredResponse) -> list[Approval]:
    return [each for each in await stores.approvals.of(stored.tenant_id, stored.response_id) if each.opens]


async def _wanted(egress: EgressService, stored: StoredResponse) -> list[EgressOpening]:
    assert stored.container_id is not None
    return await egress.wanted(stored.tenant_id, stored.container_id, stored.created_at * 1000)


def _approval(clock: Callable[[], float], stored: StoredResponse, step: int, opening: EgressOpening) -> Approval:
    index = _BEYOND_CALLS | (zlib.crc32(opening.key.encode()) & (_BEYOND_CALLS - 1))
    approval_id = ids.approval_id(stored.response_id, index)
    return approval_of(clock, stored, step, approval_id, call_id="", call_index=_OF_NO_CALL, call_type="network", opens=opening.key)
