"""The end of a response: one final event, from any writer.

The final event is appended like every other, by compare-and-set, so that a response ends once: with the step's result, with
``cancelled``, or with ``failed`` by the reaper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.containers.containers import Containers
from moorage.errors import ApiError, ConditionFailed, passing_over_what_is_gone
from moorage.inputs import forget_inputs
from moorage.loop import context, traces
from moorage.loop.budget import cost_of, draw_last, pay_rent, seconds_run
from moorage.loop.fold import FoldedState, fold
from moorage.loop.sinks import Sink
from moorage.runtime import Runtime
from moorage.state import Next, StepOutcome
from moorage.store.event_log import STEP_OF_THE_END, EventBatch, LogWriterId
from moorage.store.lanes import AgentLane
from moorage.store.responses import ROOT_AGENT, StoredResponse
from moorage.store.stored_bytes import Holder
from moorage.stores import Stores
from moorage.telemetry import tell
from moorage.tools.capabilities import ReportsUsage
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool
from moorage.webhooks import delivery as webhooks
from moorage.wire.answers import AgentUsage
from moorage.wire.events import CREATED, ERROR, FAILED, OF_STATUS, OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE
from moorage.wire.responses import ResponseState, Status, TokenUsage, response_object
from moorage.wire.types import Event, Item

_GONE: Final = 404


def object_of(
    stored: StoredResponse,
    *,
    status: Status,
    now: int,
    output: list[Item] | None = None,
    usage: TokenUsage | None = None,
    error: dict[str, Any] | None = None,
    incomplete_reason: str | None = None,
    service_tier: str | None = None,
) -> dict[str, Any]:
    """The response object. ``error`` is ``{"code", "message"}`` with a ``param`` if there is one; ``now`` (Unix seconds) becomes
    ``completed_at`` if it completed."""
    return response_object(
        ResponseState(
            id=stored.response_id,
            created_at=stored.created_at,
            status=status,
            completed_at=now if status == "completed" else None,
            error=error,
            incomplete_reason=incomplete_reason,
            output=output or [],
            usage=usage,
            tool_usage=None if status in ("queued", "in_progress") else tool_usage(output or ()),
            echo=stored.echo,
            service_tier=service_tier,
        )
    )


def tool_usage(items: Sequence[Item]) -> dict[str, Any]:
    """The usage of the calls among a response's items, by tool."""
    return {name: used for room in _REPORTING for name, used in room.usage(items).items()}


_REPORTING: Final = tuple(room for room in ROOMS if isinstance(room, ReportsUsage))


def opening_events(stored: StoredResponse) -> list[Event]:
    """``response.created``, then ``queued`` in the background or ``in_progress`` in the foreground."""
    status: Status = "queued" if stored.is_background else "in_progress"
    response = object_of(stored, status=status, now=stored.created_at)
    return [{"type": CREATED, "response": response}, {"type": OF_STATUS[status], "response": response}]


def failure_events(response: dict[str, Any]) -> list[Event]:
    """An ``error`` event with the nested error of live streams, then ``response.failed``."""
    return [{"type": ERROR, "error": response["error"]}, {"type": FAILED, "response": response}]


def final_events(response: dict[str, Any]) -> list[Event]:
    """The last event or events of a log. The SDKs have no event for a cancelled response; its status says so."""
    if response["status"] == "failed":
        return failure_events(response)
    return [{"type": OF_STATUS[response["status"]], "response": response}]


def error_of(error: Exception) -> dict[str, Any]:
    """A response's words for the error that ended it: the API's own words, or a calm sentence."""
    if isinstance(error, ApiError):
        # SDKs know a closed set of codes here; this one is theirs for what lies in the request, and what it names may be gone.
        code = "invalid_prompt" if error.code is None or error.status == _GONE else error.code
        return {"code": code, "message": error.message, "param": error.param}
    return {"code": "server_error", "message": "The response could not be completed because of an internal error."}


async def conclude(
    runtime: Runtime,
    stored: StoredResponse,
    sink: Sink,
    outcome: StepOutcome,
    items: dict[int, Item],
    *,
    error: dict[str, Any] | None = None,
) -> None:
    """Write the final event, then its consequences: the conversation grows, the loop's claim is dropped."""
    response = object_of(
        stored,
        status=outcome.status,
        now=int(runtime.clock()),
        output=context.final_output((items[index] for index in sorted(items)), is_cut=outcome.status == "incomplete"),
        usage=outcome.usage,
        error=error,
        incomplete_reason=outcome.incomplete_reason,
        service_tier=outcome.service_tier,
    )
    cost = cost_of(runtime, stored, outcome.usage, response["output"], outcome.rent, seconds_run(runtime.clock, stored))
    response["usage"] |= {} if cost is None else {"cost": cost}
    if outcome.status != "failed":
        await _grow_conversation(runtime.stores, stored, response)
    # Before the end is seen: whatever dies in between runs the step again, and counts it again.
    await draw_last(runtime, stored, outcome.usage, outcome.calls_made, response["output"], outcome.rent)
    await pay_rent(runtime.computers.containers, stored, cost)
    events = final_events(response)
    for event in events[:-1]:
        sink.emit(event)
    ended_at_ms = await sink.end(events[-1])
    await drop_unused_copies(runtime.stores, runtime.computers.containers, stored)
    await webhooks.settle(runtime, stored, webhooks.ResponseEnd(outcome.status, ended_at_ms))
    traces.export_later(runtime, stored)


async def _grow_conversation(stores: Stores, stored: StoredResponse, response: dict[str, Any]) -> None:
    """The items join the response's conversation, if it has one. Harmless to run twice."""
    if stored.conversation_id is None:
        return
    output = context.output_items(response["output"], is_cut=response["status"] == "incomplete")
    await stores.conversations.append(
        stored.tenant_id,
        stored.conversation_id,
        [*stored.input_items[stored.conversation_items :], *output],
        source=stored.response_id,
        instead_of=stored.rewinds_to,
    )


async def end_from_outside(
    runtime: Runtime,
    stored: StoredResponse,
    *,
    status: Status,
    error: dict[str, Any] | None = None,
    incomplete_reason: str | None = None,
    drops_partial: bool = False,
    unread: Sequence[tuple[str, Item]] = (),
) -> dict[str, Any]:
    """End a response from outside its steps: cancel, and the verdict over a dead process. The use of its finished steps counts.

    ``unread`` are messages to agents of its team, and outputs for their calls, with the agents' names: those that nobody has read stand
    at the end, for the next response.

    Open items are closed as ``incomplete``, or left out (``drops_partial``). A step that is still running is superseded at its next
    write. When the response has ended meanwhile, its own end stands; either way the answer is the response object of the final event.
    """
    stores = runtime.stores
    log = stores.responses.log_of(stored)
    folded = fold(await log.read_all())
    outcomes = {} if folded.is_final else await _last_outcomes(stores, stored)
    for lane, used in (outcomes or {AgentLane(0): StepOutcome(Next.DONE, 0)}).items():
        drawn = replace(stored, lane=lane.number)
        await draw_last(runtime, drawn, used.usage, used.calls_made, () if lane.number else folded.output, used.rent)
    for _ in range(limits.END_TRIES_MAX):
        if folded.is_final:
            break
        end = _end(runtime, stored, folded, status, error, incomplete_reason, outcomes, drops_partial, unread)
        ended: dict[str, Any] = end.events[-1]["response"]
        await pay_rent(runtime.computers.containers, stored, (ended["usage"] or {}).get("cost"))
        if drops_partial or (stored.agent is not None and status in ("completed", "incomplete")):
            await _grow_conversation(stores, stored, ended)
        try:
            ended_at_ms = await log.append(end)
        except ConditionFailed:  # A step wrote first: look again at what there is to close.
            folded = fold(await log.read_all())
            continue
        await drop_unused_copies(stores, runtime.computers.containers, stored)
        tell_end(stored, status)
        traces.export_later(runtime, stored)
        await webhooks.settle(runtime, stored, webhooks.ResponseEnd(status, ended_at_ms))
        return ended
    assert folded.is_final, f"{stored.response_id} was written to {limits.END_TRIES_MAX} times while it was being ended"
    await drop_unused_copies(stores, runtime.computers.containers, stored)
    await webhooks.settle(runtime, stored)
    assert folded.response is not None
    return folded.response


async def drop_unused_copies(stores: Stores, containers: Containers, stored: StoredResponse) -> None:
    """Delete copies of a workspace that no agent has: a process died between the copy and its agent. Harmless to repeat."""
    if stored.agent is None:
        return
    copies = await stores.lanes.copies(stored)
    used = {lane.container for lane in await stores.lanes.all(stored)} if copies else set()
    for container_id in sorted(copies - used):
        with passing_over_what_is_gone():
            await containers.delete(stored.tenant_id, container_id)


def tell_end(stored: StoredResponse, status: Status) -> None:
    """The line of an end that no model step has come to: that one's own line says so."""
    tell("response_ended", {"response_id": stored.response_id, "tenant_id": stored.tenant_id, "status": status})


async def forget(stores: Stores, stored: StoredResponse) -> None:
    """Remove everything of a response. Harmless to run twice."""
    await stores.responses.delete(stored.tenant_id, stored.response_id)
    if stored.container_id is not None:  # Calls that run in one may have left pictures.
        await stores.files.stored.forget(Holder.response(stored.tenant_id, stored.response_id))
    stores.steps.forget(stored.tenant_id, stored.response_id)
    await forget_own_inputs(stores, stored)


async def forget_own_inputs(stores: Stores, stored: StoredResponse) -> None:
    """Remove the content of its input's URLs and documents, unless others still go on from there."""
    if stored.conversation_id is None:  # A conversation still shows the items to its model.
        # What a fork, or a response of a session, began with is its predecessor's too.
        is_shared = stored.forked_from is not None or stored.session_id is not None
        items = stored.own_input if is_shared else stored.input_items
        await forget_inputs(stores.table, stores.blobs, stored.tenant_id, items)


async def _last_outcomes(stores: Stores, stored: StoredResponse) -> dict[AgentLane, StepOutcome]:
    """The outcome of the latest ended model step, by agent; without a team there is one at most."""
    lanes = [AgentLane(0)] if stored.agent is None else await stores.lanes.all(stored)
    found: dict[AgentLane, StepOutcome] = {}
    for lane in lanes:
        accounts = await stores.steps.accounts(stored.tenant_id, stored.response_id, since=lane.number * limits.LANE_STEPS)
        outcome = next((account.outcome for account in reversed(accounts) if account.outcome is not None), None)
        if outcome is not None:
            found[lane] = outcome
    return found


def _usage_by_agent(
    runtime: Runtime, stored: StoredResponse, outcomes: Mapping[AgentLane, StepOutcome], output: Sequence[Item]
) -> list[AgentUsage]:
    used: list[AgentUsage] = []
    for lane, outcome in outcomes.items():
        own = [item for item in output if item.get("agent", {}).get("agent_name", ROOT_AGENT) == lane.name]
        cost = cost_of(runtime, stored, outcome.usage, own, None, 0)
        tokens: AgentUsage = {
            "agent_name": lane.name,
            "input_tokens": outcome.usage.input_tokens,
            "output_tokens": outcome.usage.output_tokens,
            "total_tokens": outcome.usage.input_tokens + outcome.usage.output_tokens,
        }
        used.append(tokens if cost is None else {**tokens, "cost": cost})
    return used


def _together(outcomes: Mapping[AgentLane, StepOutcome]) -> StepOutcome | None:
    """The use of a team's agents together; of one agent, its own."""
    if not outcomes:
        return None
    rents = [outcome.rent for outcome in outcomes.values() if outcome.rent is not None]
    first = next(iter(outcomes.values()))
    return replace(
        first,
        usage=sum((outcome.usage for outcome in outcomes.values()), TokenUsage()),
        calls_made=sum(outcome.calls_made for outcome in outcomes.values()),
        rent=min(rents, key=lambda rent: rent.since, default=None),
    )


def _end(
    runtime: Runtime,
    stored: StoredResponse,
    folded: FoldedState,
    status: Status,
    error: dict[str, Any] | None,
    incomplete_reason: str | None,
    outcomes: Mapping[AgentLane, StepOutcome],
    drops_partial: bool,
    unread: Sequence[tuple[str, Item]],
) -> EventBatch:
    outcome = _together(outcomes)
    first = folded.next_number
    events = opening_events(stored) if first == 0 else []
    if drops_partial:
        folded.drop_open()
    events += closing_events(folded)
    events += _unread_events(folded, unread)
    response = object_of(
        stored,
        status=status,
        now=int(runtime.clock()),
        output=context.final_output(folded.output, is_cut=status == "incomplete"),
        usage=None if outcome is None else outcome.usage,
        error=error,
        incomplete_reason=incomplete_reason,
        service_tier=None if outcome is None or status != "completed" else outcome.service_tier,
    )
    if outcome is not None:
        cost = cost_of(runtime, stored, outcome.usage, response["output"], outcome.rent, seconds_run(runtime.clock, stored))
        response["usage"] |= {} if cost is None else {"cost": cost}
        response["usage"] |= {} if stored.agent is None else {"agents": _usage_by_agent(runtime, stored, outcomes, response["output"])}
    events += final_events(response)
    numbered = tuple(event | {"sequence_number": first + i} for i, event in enumerate(events))
    return EventBatch(first, numbered, LogWriterId(STEP_OF_THE_END, 1))


def _unread_events(folded: FoldedState, unread: Sequence[tuple[str, Item]]) -> list[Event]:
    """Of what no agent has read; it is added to ``folded``."""
    read = {item.get("id") for item in folded.items.values()}
    events: list[Event] = []
    for name, sent in unread:
        if sent["id"] in read:
            continue
        index, agent = max(folded.items, default=-1) + 1, {"agent": {"agent_name": name}}
        folded.items[index] = item = sent | agent
        folded.done.add(index)
        events += [{"type": type_, "output_index": index, "item": item, **agent} for type_ in (OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE)]
    return events


def closing_events(folded: FoldedState, *, is_said_anew: bool = False) -> list[Event]:
    """``output_item.done`` with status ``incomplete`` for every item that is still open; they are marked done in ``folded``.

    ``is_said_anew``: the model is asked again, and a message that broke off gives up its text. SDKs join the texts of all messages
    (``output_text``), and would read its beginning twice.

    A compaction that is not written is left out: clients would send it back as one.
    """
    events: list[Event] = []
    for index in folded.open:
        item = folded.items[index]
        if item["type"] == "compaction":
            del folded.items[index]
            continue
        room = ROOMS.of_item(item["type"])
        item = folded.items[index] = room.incomplete_item(item) if isinstance(room, HostedTool) else item | {"status": "incomplete"}
        if item["type"] == "message" and is_said_anew:
            item["content"] = []
        folded.done.add(index)
        agent = {"agent": item["agent"]} if "agent" in item else {}
        events.append({"type": OUTPUT_ITEM_DONE, "output_index": index, "item": item, **agent})
    return events
