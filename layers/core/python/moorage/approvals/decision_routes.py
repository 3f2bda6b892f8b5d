"""A request for a response that brings nothing but decisions on calls which wait in their place: as clients answer a question in
OpenAI's form, with ``previous_response_id`` (or the conversation) of the response that asked.

No other response is begun by it. The decisions are those of ``POST /v1/responses/{id}/approvals/{approval_id}``, so the first of all
ways wins; and the answer is the response that waited, which goes on as it was begun.
"""

import asyncio
from typing import Any, Final

import orjson

from moorage import ids, limits
from moorage.api.caller import Caller
from moorage.approvals.store import ApprovalDecision
from moorage.approvals.waiting import decide, find
from moorage.errors import ApiError, approval_decided, bad_request, invalid_length
from moorage.loop.paused import stands_still
from moorage.runtime import Runtime
from moorage.store.event_log import FINAL_TYPES
from moorage.store.responses import Snapshot, StoredResponse
from moorage.tools.calls import CallApproval
from moorage.tools.capabilities import HasApprovalItems
from moorage.tools.registry import ROOMS
from moorage.wire.requests import CreateRequest

_HAS_A_SAY: Final = frozenset(
    {"previous_response_id", "conversation", "input", "model", "stream", "stream_options", "background", "include"}
)
"""Parameters of such a request that say something: where the decision goes, and how it is answered."""


async def decided(caller: Caller, wanted: CreateRequest) -> Snapshot | None:
    """Do what the request has decided, and the response that it was about; None for a request of another kind. Raises
    :class:`ApiError`; nothing is decided then, unless somebody else decides in the same moment."""
    verdicts = _verdicts(wanted)
    if not verdicts:
        return None
    response_id = ids.response_of(next(iter(verdicts)))
    if response_id is None or not await _is_meant(caller, wanted, response_id):
        return None
    if len(verdicts) < len(wanted.input_items):
        raise bad_request(
            "An approval that a running response waits for is answered by a request of its own: send no other items beside it, and "
            "each answer once.",
            param="input",
        )
    await _check(caller, wanted, response_id, verdicts)
    for verdict in verdicts.values():
        decision = ApprovalDecision(verdict.approve, caller.key_id, verdict.reason)
        await decide(caller.runtime, caller.tenant_id, response_id, verdict.approval_id, decision)
    return await caller.runtime.stores.responses.snapshot(caller.tenant_id, response_id)


def _verdicts(wanted: CreateRequest) -> dict[str, CallApproval]:
    """The request's decisions on calls that wait in their place, by the ids of their approvals."""
    found: dict[str, CallApproval] = {}
    for item in wanted.input_items:
        room = ROOMS.of_item(item["type"])
        verdict = room.approval_decision(item) if isinstance(room, HasApprovalItems) else None
        if verdict is not None and ids.is_approval(verdict.approval_id):
            found[verdict.approval_id] = verdict
    return found


async def _is_meant(caller: Caller, wanted: CreateRequest, response_id: str) -> bool:
    """Whether the request goes on from the response of its approval."""
    if wanted.previous_response_id is not None:
        return wanted.previous_response_id == response_id
    if wanted.conversation_id is None:
        return False
    stored = await caller.runtime.stores.responses.load(caller.tenant_id, response_id)
    return stored.conversation_id == wanted.conversation_id


async def _check(caller: Caller, wanted: CreateRequest, response_id: str, verdicts: dict[str, CallApproval]) -> None:
    stored = await caller.runtime.stores.responses.load(caller.tenant_id, response_id)
    if wanted.model != stored.parameters.model:
        raise bad_request(
            f"The response goes on as it was begun, with the model '{stored.parameters.model}': name that one.",
            param="model",
        )
    for index, verdict in enumerate(verdicts.values()):
        param, most = f"input[{index}]", limits.APPROVAL_REASON_CHARS_MAX
        if len(verdict.reason) > most:
            raise invalid_length(f"{param}.reason", "string", len(verdict.reason), 0, most)
        if ids.response_of(verdict.approval_id) != response_id:
            raise bad_request("One request answers approvals of one response.", param=f"{param}.approval_request_id")
        approval = await find(caller.runtime.stores, caller.tenant_id, response_id, verdict.approval_id)
        if not approval.is_waiting and (approval.status == "approved") != verdict.approve:
            raise approval_decided(approval.id, approval.status)


def notice(body: bytes) -> str:
    """The ignored parts of the request, for the ``x-moorage-notice`` header; empty if there are none."""
    given = sorted(name for name, value in orjson.loads(body).items() if value is not None and name not in _HAS_A_SAY)
    named = ", ".join(f"'{name}'" for name in given)
    return f"The response goes on as it was begun; this request changes nothing of it by {named}." if given else ""


class ContinuedStream:
    """As :class:`~moorage.api.foreground.Foreground` to the waiters for the end of the response that goes on."""

    is_handed_over: Final = True
    retry_after_seconds: Final = None
    is_worth_repeating: Final = True

    def __init__(self, runtime: Runtime, stored: StoredResponse, *, until: float | None) -> None:
        """``until`` in the event loop's time."""
        self._runtime = runtime
        self._stored = stored
        self._until = until

    async def final(self) -> dict[str, Any] | None:
        """The response object when the response has ended; None when it waits for a person again, or the time is over before."""
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        async for events in self._runtime.stores.responses.log_of(self._stored).tail(-1):
            if events is not None and events[-1]["type"] in FINAL_TYPES:
                response: dict[str, Any] = events[-1]["response"]
                return response
            if self._until is not None and loop.time() >= self._until:
                return None
            if events is None and loop.time() - looked_at >= limits.TAIL_POLL_SECONDS_MAX:
                looked_at = loop.time()
                if await self._stands_still():
                    return None
        return None

    async def _stands_still(self) -> bool:
        try:
            stored = await self._runtime.stores.responses.load(self._stored.tenant_id, self._stored.response_id)
        except ApiError:  # It was deleted meanwhile: whoever asks next is told.
            return True
        return stands_still(stored)
