"""A request becomes a response: what it refers to is looked up, its container is reserved, and it starts to run.

Foreground responses take their first step here, in the API process, and their events go straight to the client. Only when the model
asks for hosted tools does the state machine take over. Background responses start there.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from moorage import ids, limits
from moorage.errors import (
    ApiError,
    MoorageError,
    Superseded,
    bad_request,
    container_expired,
    container_not_found,
    rate_limited,
    time_over,
)
from moorage.inputs import admit_inputs, files_to_stage
from moorage.loop import context, finish
from moorage.loop.ask import Ask
from moorage.loop.chain import chain_items
from moorage.loop.compact import check_readable
from moorage.loop.fold import fold
from moorage.loop.model_step import tell_step
from moorage.loop.sinks import InlineSink
from moorage.loop.standby import Standby
from moorage.loop.turn import Position
from moorage.runtime import Runtime
from moorage.state import LoopState, Next, Outcome
from moorage.store.containers import ContainerRecord
from moorage.store.event_log import Batch, Writer
from moorage.store.responses import Ancestor, Snapshot, StoredResponse
from moorage.telemetry import Metric, tell
from moorage.tools.registry import ROOMS
from moorage.wire.choices import check_choice
from moorage.wire.environments import Environment
from moorage.wire.parameters import Parameters
from moorage.wire.requests import CreateRequest
from moorage.wire.responses import Usage, echo
from moorage.wire.types import Event, Item

_log: Final = logging.getLogger("moorage.loop")
_ROOM_SECONDS: Final = 5
"""When to ask again while too many responses run."""


def _cancelling() -> int:
    """How often the running task itself was cancelled."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@dataclass(frozen=True, slots=True)
class Prepared:
    stored: StoredResponse
    chain: list[Item]
    """The items before this response."""
    is_streamed: bool


async def prepare(
    runtime: Runtime, tenant_id: str, request: CreateRequest, *, recent: list[Item] | None = None
) -> Prepared:
    """Check and look up everything that the request refers to. Raises :class:`ApiError`; nothing has been written then, but for a
    container.

    ``recent`` are the items up to the previous response where only the client's connection knows them. They become input of this
    response, so that whatever runs it or goes on from it finds them.
    """
    entry = runtime.catalog.resolve(request.model)
    snapshots = await ancestors(runtime, tenant_id, request.previous_response_id) if recent is None else []
    if request.conversation_id is not None:
        chain = await runtime.conversations.load_items(tenant_id, request.conversation_id)
    else:
        chain = recent if recent is not None else chain_items(snapshots)
    input_items = await resolve_references(runtime, tenant_id, request.input_items, chain)
    context.check_calls(input_items, chain)
    check_choice(request.tool_choice, request.tools, [*chain, *input_items])
    check_readable(runtime, tenant_id, input_items, runtime.catalog.provider(entry, runtime.http).native_tools)
    await admit_inputs(runtime, tenant_id, input_items)
    await _check_room(runtime, tenant_id, request)
    container_id = await _container(runtime, tenant_id, request, [*chain, *input_items])
    response_id = ids.new_response_id()
    stored = StoredResponse(
        response_id=response_id,
        tenant_id=tenant_id,
        created_at=int(runtime.clock()),
        parameters=Parameters.of(request),
        echo=echo(request, container_id),
        input_items=[*(recent or ()), *input_items],
        ancestors=_links(snapshots),
        conversation_id=request.conversation_id,
        container_id=container_id,
        is_background=request.background,
        is_streamed=request.stream,
        is_stored=request.store,
        expires_at=runtime.responses.expiry(is_stored=request.store),
        is_looping=request.background,
        execution=response_id,
    )
    return Prepared(stored, chain if recent is None else [], request.stream)


async def _check_room(runtime: Runtime, tenant_id: str, request: CreateRequest) -> None:
    """Refuse what would run in the state machine beside too many others of the tenant's, before it takes anything."""
    is_hosted = request.environment is not None and request.environment.is_hosted
    if not request.background and not is_hosted:
        return
    most = runtime.settings.running_responses_max
    running = sum(tenant == tenant_id for tenant, _ in await runtime.responses.inflight())
    if running >= most:
        raise rate_limited(
            f"{running} responses of yours are running with tools or in the background; {most} may run at once. Retry when one has "
            "ended, or cancel one.",
            _ROOM_SECONDS,
        )


async def ancestors(runtime: Runtime, tenant_id: str, previous_response_id: str | None) -> list[Snapshot]:
    """The chain that a request goes on from, oldest first. Raises :class:`ApiError`."""
    if previous_response_id is None:
        return []
    snapshots = await runtime.responses.chain(tenant_id, previous_response_id)
    if not snapshots[-1].is_final:
        raise bad_request(
            f"Response '{previous_response_id}' is still running. Wait until it has ended, or cancel it.",
            param="previous_response_id",
        )
    if len(snapshots[-1].stored.ancestors) + 1 > limits.CHAIN_RESPONSES_MAX:
        raise bad_request(
            f"A chain has at most {limits.CHAIN_RESPONSES_MAX} responses. Use a conversation for longer ones.",
            param="previous_response_id",
        )
    return snapshots


def _links(snapshots: list[Snapshot]) -> tuple[Ancestor, ...]:
    if not snapshots:
        return ()
    previous = snapshots[-1]
    assert previous.last is not None
    return (*previous.stored.ancestors, Ancestor(previous.stored.response_id, previous.last.first))


async def resolve_references(
    runtime: Runtime, tenant_id: str, items: tuple[Item, ...], chain: list[Item]
) -> list[Item]:
    """Replace ``item_reference`` items by what they refer to: an item of the chain, or an item of any stored response.

    A code interpreter call that comes back without its outputs, because its client had not asked for them, gets them back: the
    model has to read them again.
    """
    known = {item["id"]: item for item in chain if "id" in item}
    stored = await _stored_items(runtime, tenant_id, {item["id"] for item in items if _is_partial(item)} - known.keys())
    resolved: list[Item] = []
    for item in items:
        if item["type"] != "item_reference":
            hidden = _hidden(item)
            found = None if hidden is None else (known | stored).get(item["id"], {}).get(hidden)
            resolved.append(item if hidden is None or found is None else item | {hidden: found})
        elif item["id"] in stored:
            resolved.append(stored[item["id"]])
        elif item["id"] not in known:
            raise ApiError(
                404,
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try again with `store` "
                "set to true, or remove this item from your input.",
                param="input",
            )
    return resolved


def _is_partial(item: Item) -> bool:
    """Whether the rest of an input item must be looked up."""
    return item["type"] == "item_reference" or _hidden(item) is not None


def _hidden(item: Item) -> str | None:
    """The field that a client has not sent back, because it never got it."""
    room = ROOMS.of_call(item["type"])
    return None if room is None or room.hidden is None or room.hidden in item else room.hidden


async def _stored_items(runtime: Runtime, tenant_id: str, item_ids: set[str]) -> dict[str, Item]:
    """Those of the items that stand in a stored response, by id; each response is read once."""
    response_ids = {ids.response_of(item_id) for item_id in item_ids} - {None}
    found: dict[str, Item] = {}

    async def read(response_id: str) -> None:
        with suppress(ApiError):
            snapshot = await runtime.responses.snapshot(tenant_id, response_id)
            output = snapshot.final_object["output"] if snapshot.is_final else []
            found.update({item["id"]: item for item in [*snapshot.stored.input_items, *output] if item.get("id") in item_ids})

    await asyncio.gather(*(read(response_id) for response_id in response_ids if response_id is not None))
    return found


async def _container(runtime: Runtime, tenant_id: str, request: CreateRequest, items: list[Item]) -> str | None:
    """Reserve the container that hosted calls will run in; clients read its id in ``response.created``."""
    environment = request.environment
    if environment is None or not environment.is_hosted:
        return None
    if environment.type == "container_reference":
        assert environment.container_id is not None
        record = await runtime.containers.use(tenant_id, environment.container_id, param=environment.param)
        record = await runtime.containers.add_files(record, environment.file_ids)
    else:
        record = await _auto_container(runtime, tenant_id, environment, items)
    inputs = await files_to_stage(runtime, tenant_id, items)
    if inputs:
        await runtime.containers.put_inputs(record, inputs)
    return record.id


async def _auto_container(
    runtime: Runtime, tenant_id: str, environment: Environment, items: list[Item]
) -> ContainerRecord:
    """The chain's container as long as it can be used, otherwise a new one."""
    last = context.container_of(items)
    if last is not None:
        try:
            record = await runtime.containers.use(tenant_id, last)
        except ApiError as error:
            if error.message not in (container_not_found(last).message, container_expired().message):
                raise
        else:
            policy = environment.network_policy
            if policy is None or await runtime.containers.has_policy(record, policy):
                return await runtime.containers.add_files(record, environment.file_ids)
    return await runtime.containers.reserve(
        tenant_id,
        name="auto",
        file_ids=environment.file_ids,
        memory_limit=environment.memory_limit or "1g",
        network_policy=environment.network_policy,
    )


async def start_background(runtime: Runtime, prepared: Prepared) -> dict[str, Any]:
    """Store the response, open its log, start its execution. Returns the queued response object."""
    stored = prepared.stored
    events = finish.opening_events(stored)
    numbered = tuple(event | {"sequence_number": i} for i, event in enumerate(events))
    await runtime.responses.create(stored, Batch(0, numbered, Writer(-1, 1)))
    await runtime.executions.start(
        stored.response_id, LoopState(stored.response_id, stored.tenant_id, stored.container_id).to_json()
    )
    queued: dict[str, Any] = events[-1]["response"]
    return queued


async def warm_up(runtime: Runtime, prepared: Prepared) -> list[Event]:
    """The events of a response that asks no model: its input, ready to be continued."""
    stored = prepared.stored
    if stored.conversation_id is not None:
        await runtime.conversations.append(
            stored.tenant_id, stored.conversation_id, stored.input_items, source=stored.response_id
        )
    response = finish.object_of(stored, status="completed", now=int(runtime.clock()), usage=Usage())
    unnumbered = [*finish.opening_events(stored), *finish.final_events(response)]
    events = [event | {"sequence_number": i} for i, event in enumerate(unnumbered)]
    if stored.is_stored:
        await runtime.responses.create(stored, Batch(0, tuple(events), Writer(0, 1)))
    return events


@dataclass(slots=True)
class Inline:
    """The first step of a foreground response, in this process."""

    runtime: Runtime
    prepared: Prepared
    listener: Callable[[Event], None]
    """Gets every event, numbered, at once."""
    is_handed_over: bool = False
    _ask: Ask | None = None
    _asking: asyncio.Task[Outcome] | None = None
    _is_time_over: bool = False
    _sink: InlineSink = field(init=False)
    _began: float = field(default_factory=time.perf_counter)
    _first_output_ms: int | None = None

    def __post_init__(self) -> None:
        stored, responses = self.prepared.stored, self.runtime.responses
        self._sink = InlineSink(self._hear)
        if stored.is_stored:
            self._sink.keep(responses.log_of(stored), partial(responses.create, stored))

    async def run(self) -> None:
        """Returns when the response has ended or the state machine has taken over (``is_handed_over``)."""
        stored, sink = self.prepared.stored, self._sink
        standby = Standby.begin(self.runtime, stored)
        pulse = asyncio.create_task(self._pulse()) if stored.is_stored else None
        try:
            for event in finish.opening_events(stored):
                sink.emit(event)
            ask = self._ask = Ask(self.runtime, stored, Position(0), sink, self.prepared.chain)
            self._asking = asyncio.create_task(ask.run())
            try:
                outcome = await self._asking
            except asyncio.CancelledError:
                if not self._is_time_over or _cancelling():
                    raise
                await self._break_off()
                return
            tell_step(stored, Position(0), outcome, attempt=1, began=self._began, first_output_ms=self._first_output_ms)
            if outcome.next is not Next.DONE:
                await self._hand_over(outcome, ask.items)
        except Superseded:
            raise
        except Exception as error:  # The rim of a response: whatever went wrong, its log gets an end.
            await self._fail(error)
        finally:
            if standby is not None and self.is_handed_over:
                self.runtime.keep(standby.task)
            elif standby is not None:
                await standby.give_up()
            if pulse is not None:
                pulse.cancel()
                with suppress(asyncio.CancelledError, MoorageError):
                    await pulse

    @property
    def retry_after_seconds(self) -> float | None:
        return None if self._ask is None else self._ask.retry_after_seconds

    def break_off(self) -> None:
        """This process must end soon: what is stored goes on in the state machine, what is not fails. Events of both still come. A step
        that is about to end does so."""
        self._is_time_over = True
        if self._asking is not None:
            self._asking.cancel()

    async def _break_off(self) -> None:
        if await self._sink.has_ended():
            return
        if not self.prepared.stored.is_stored:
            raise time_over(self.runtime.settings.stream_seconds_max or 0)
        await self._hand_over()

    def _hear(self, event: Event) -> None:
        if event["type"] == "response.output_item.added" and self._first_output_ms is None:
            self._first_output_ms = round((time.perf_counter() - self._began) * 1000)
        self.listener(event)

    async def _fail(self, error: Exception) -> None:
        """End the response as ``failed``. What is stored is ended in the log, where the client goes on reading; what is not, here."""
        stored, sink = self.prepared.stored, self._sink
        reason = finish.error_of(error)
        if reason["code"] == "server_error":
            _log.error("a response failed: %s", type(error).__name__, extra={"response_id": stored.response_id})
        tell("response_failed", {"response_id": stored.response_id, "tenant_id": stored.tenant_id}, {Metric.ERRORS: 1})
        if stored.is_stored:
            await sink.flush()
            await finish.end_from_outside(self.runtime, stored, status="failed", error=reason)
            return
        folded = fold(sink.unwritten)
        for event in finish.closing_events(folded):
            sink.emit(event)
        now = int(self.runtime.clock())
        events = finish.final_events(finish.object_of(stored, status="failed", now=now, output=folded.output, error=reason))
        for event in events[:-1]:
            sink.emit(event)
        await sink.end(events[-1])

    async def _hand_over(self, outcome: Outcome | None = None, items: dict[int, Item] | None = None) -> None:
        """The record first, the log next, the execution last: whatever is missing, the reaper can go on from there. Without an outcome
        the first step is taken up by another attempt, which finds in the log how far this one came."""
        runtime, stored, sink = self.runtime, self.prepared.stored, self._sink
        if sink.has_record:
            await sink.record()
            await runtime.responses.hand_over(stored)
        else:
            sink.keep(runtime.responses.log_of(stored), partial(runtime.responses.create, replace(stored, is_looping=True)))
        await sink.flush()
        state = LoopState(stored.response_id, stored.tenant_id, stored.container_id)
        if outcome is not None:
            await runtime.steps.end(stored, 0, 1, outcome, items or {}, following=sink.next_number)
            state = state.after(outcome)
        await runtime.executions.start(stored.response_id, state.to_json())
        self.is_handed_over = True

    async def _pulse(self) -> None:
        """Write behind what has come, and show that this process lives."""
        stored, sink = self.prepared.stored, self._sink
        await asyncio.sleep(limits.INLINE_RECORD_SECONDS)
        await sink.record()
        seconds = 0.0
        while True:
            await asyncio.sleep(limits.INLINE_BATCH_SECONDS_MAX)
            seconds += limits.INLINE_BATCH_SECONDS_MAX
            await sink.flush()
            if seconds >= limits.INLINE_HEARTBEAT_SECONDS:
                seconds = 0.0
                await self.runtime.responses.heartbeat(stored)

    async def abandon(self) -> None:
        """The client went away before the response had ended or been handed over: it is cancelled."""
        if self.prepared.stored.is_stored:
            await self._sink.record()
            await finish.end_from_outside(self.runtime, self.prepared.stored, status="cancelled")
