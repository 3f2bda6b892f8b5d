"""A request becomes a response: its references are looked up, its container is reserved, and it starts to run.

Foreground responses take their first step here, in the API process, and their events go straight to the client. Only when the model
asks for hosted tools does the state machine take over. Background responses start there.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, Final

from moorage import ids, limits, tracing
from moorage.containers.containers import Containers, places
from moorage.containers.store import ContainerRecord
from moorage.dataclass import dataclass
from moorage.errors import (
    ApiError,
    ContainerLost,
    MoorageError,
    StorageFull,
    Superseded,
    draining,
    invalid_value,
    rate_limited,
    time_over,
    unsupported_value,
)
from moorage.files.store import StoredFile
from moorage.loop import context, finish, team_items, upstream_shell
from moorage.loop.ask import ModelAsk
from moorage.loop.budget import check_budget, draw_first, draw_last
from moorage.loop.call_places import placed
from moorage.loop.fold import fold
from moorage.loop.model_step import tell_step
from moorage.loop.prepare import ResolvedInput, check_tools, conceal, gather, line_of, with_instructions, with_map
from moorage.loop.prewarm import SandboxPrewarm
from moorage.loop.prompt import StepPosition
from moorage.loop.sinks import InlineSink
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.skills.attach import given
from moorage.state import LoopState, Next, StepOutcome
from moorage.store.budgets import Scope
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.responses import ROOT_AGENT, Ancestor, Snapshot, StoredResponse
from moorage.store.steps import superseded
from moorage.stores import Stores
from moorage.telemetry import Metric, tell, tell_error
from moorage.tools.function_items import is_async
from moorage.tools.lowering import is_hosted
from moorage.tools.registry import ROOMS
from moorage.vector_stores.attachments import DocumentsUnread
from moorage.wire.environments import Environment, takes_skills, with_skills
from moorage.wire.events import OUTPUT_ITEM_ADDED
from moorage.wire.parameters import Parameters
from moorage.wire.requests import CreateRequest
from moorage.wire.responses import Status, TokenUsage
from moorage.wire.types import Event, Item, Tool

_ROOM_SECONDS: Final = 5
"""When to ask again while too many responses run."""


def _cancelling() -> int:
    """How often the running task itself was cancelled."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@dataclass(frozen=True, slots=True)
class PreparedResponse:
    stored: StoredResponse
    chain: list[Item]
    """The items before this response."""
    is_streamed: bool


async def prepare(
    runtime: Runtime,
    tenant_id: str,
    request: CreateRequest,
    *,
    recent: list[Item] | None = None,
    key_id: str = "",
    draws_on: tuple[str, ...] = (),
    follows: str | None = None,
    session_id: str | None = None,
    takes_outputs: bool = False,
) -> PreparedResponse:
    """Check and look up everything that the request refers to. Raises :class:`ApiError`; nothing has been written then, but for a
    container.

    ``recent`` are the items up to the previous response if only the client's connection knows them. They become input of this response,
    so that every later step and response finds them. ``key_id`` is that of the API key that asks, and ``draws_on`` the budgets that it
    shares with others: from here on it holds a part of them. It takes the room of the response that it ``follows``, and is one of an
    agent's session (``session_id``). With ``takes_outputs`` its client may answer agents of a team while it runs.
    """
    if runtime.settings.drain:
        raise draining()
    if not runtime.stores.blobs.has_room():
        raise StorageFull
    tools, secrets = conceal(runtime, tenant_id, request.tools)
    request = replace(request, tools=tools) if secrets else request
    said = await gather(
        runtime,
        tenant_id,
        model=request.model,
        input_items=request.input_items,
        previous_response_id=request.previous_response_id,
        conversation_id=request.conversation_id,
        recent=recent,
        tools=request.tools,
        tool_choice=request.tool_choice,
    )
    await _check(runtime, tenant_id, request, said, follows, in_session=session_id is not None)
    response_id, expires_at = ids.new_response_id(now := runtime.clock()), runtime.stores.responses.expiry(is_stored=request.store)
    stored = StoredResponse(
        response_id=response_id,
        tenant_id=tenant_id,
        created_at=int(now),
        parameters=Parameters.of(request),
        echo={},
        input_items=[*(recent or ()), *said.input_items],
        recent_items=len(recent or ()),
        ancestors=_links(said.previous),
        conversation_id=request.conversation_id,
        is_background=request.background,
        is_streamed=request.stream,
        is_stored=request.store,
        expires_at=expires_at,
        is_looping=request.background,
        execution=response_id,
        secrets=secrets,
        key_id=key_id,
        trace=tracing.current(),
        draws_on=(*draws_on, *await _tree(runtime.stores, tenant_id, response_id, request, expires_at)),
        session_id=session_id,
        agent=None if request.multi_agent is None else ROOT_AGENT,
        takes_outputs=takes_outputs and request.multi_agent is not None,
    )
    await draw_first(runtime, stored, said.items)
    try:
        stored = await _placed(runtime, stored, request, said)
    except BaseException:
        await draw_last(runtime, stored, TokenUsage(), 0, ())
        raise
    return PreparedResponse(stored, said.chain if recent is None else [], request.stream)


async def _check(
    runtime: Runtime, tenant_id: str, request: CreateRequest, said: ResolvedInput, follows: str | None, *, in_session: bool
) -> None:
    """Refuse requests that this deployment cannot serve, or cannot serve now."""
    for budget in (request.budget, (request.multi_agent or {}).get("subagent_budget")):
        check_budget(runtime.models.catalog, request.model, budget)
    await check_tools(runtime, tenant_id, said, request.tools, in_session=in_session)
    if request.multi_agent is None:
        await _check_alone(said.items)
    else:
        await _check_team(request, said)
    if request.background or request.multi_agent is not None or any(map(is_hosted, request.tools)) or any(map(is_async, request.tools)):
        await _check_room(runtime.stores, runtime.settings, tenant_id, follows)


async def _check_team(request: CreateRequest, said: ResolvedInput) -> None:
    """Refuse what a request with a team may not ask for. Raises :class:`ApiError`."""
    if upstream_shell.goes_there(said.entry, request.tools):
        raise unsupported_value("multi_agent.enabled", "true", "Its shell runs at the provider of the model, without room for a team.")
    others = len(await team_items.agents_in(said.items)) - 1
    if others > limits.TEAM_AGENTS_MAX:
        raise invalid_value("input", f"it has items of {others} agents beside /root, and {limits.TEAM_AGENTS_MAX} is the limit.")


async def _check_alone(items: Sequence[Item]) -> None:
    """A request without a team cannot go on with the agents of one. Raises :class:`ApiError`."""
    if not any("agent" in item for item in items):
        return
    root, *others = (await team_items.agents_in(items)).values()
    is_waiting = any(agent.open_wait() is not None for agent in (root, *others))
    if team_items.goes_on([root, *others]) and (team_items.goes_on(others) or is_waiting):
        raise invalid_value("multi_agent", "agents of a team wait for this request: give the 'multi_agent' of the one before.")


async def _tree(stores: Stores, tenant_id: str, response_id: str, request: CreateRequest, expires_at: int) -> tuple[str, ...]:
    """The budget that a response shares with its forks, if its request says so, or with the agents of its team."""
    budget = request.budget
    if budget is None or (budget.get("scope") != "tree" and request.multi_agent is None):
        return ()
    tree = Scope("tree", response_id)
    await stores.budgets.put(tenant_id, tree, budget, expires_at=expires_at)
    return (str(tree),)


async def _placed(runtime: Runtime, stored: StoredResponse, request: CreateRequest, said: ResolvedInput) -> StoredResponse:
    """The response with the container of its calls, and the notes about it for model and client."""
    if upstream_shell.goes_there(said.entry, request.tools):
        await upstream_shell.admit(runtime.stores, stored.tenant_id, said.entry, request)
        container, skills, files = None, None, list[StoredFile]()
    else:
        container, skills, files = await _container(runtime, stored, request, said.items)
    container_id = None if container is None else container.id
    input_items = (
        said.input_items if container is None else await _with_files(runtime.computers.containers, container, request.environment, said)
    )
    if skills is not None:
        request = replace(request, tools=with_skills(request.tools, skills))
    return replace(
        stored,
        parameters=Parameters.of(request),
        echo=echo(request, container_id),
        input_items=[*stored.input_items[: stored.recent_items], *input_items],
        container_id=container_id,
        programs="" if container is None else container.programs,
        given=_given(request.environment, files),
        files_at_ms=0 if container is None else runtime.now_ms(),
        has_gated_network=container is not None and "require_approval" in container.network_policy,
    )


def echo(request: CreateRequest, container_id: str | None = None) -> dict[str, Any]:
    """The keys of the Response object that repeat the request, with the API's defaults filled in.

    ``container_id`` is the container that the hosted shell got: ``container_auto`` is answered as a reference to it, already in
    ``response.created``, and so files, policies and secrets never appear in a response; which version of a skill it has, does. A code
    interpreter's ``auto`` stays ``auto`` (recorded live), without them.
    """
    echoed: dict[str, Any] = {
        "background": request.background,
        "frequency_penalty": 0.0,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata,
        "model": request.model,
        "parallel_tool_calls": request.parallel_tool_calls,
        "presence_penalty": 0.0,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "prompt_cache_retention": request.prompt_cache_retention,
        "reasoning": {"effort": None, "summary": None, **(request.reasoning or {})},
        "safety_identifier": request.safety_identifier,
        "service_tier": request.service_tier or "auto",
        "store": request.store,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(request.text or {})},
        "tool_choice": request.tool_choice,
        "tools": [echoed_tool(tool, container_id) for tool in request.tools],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": request.truncation,
        "user": request.user,
    }
    if request.conversation_id is not None:
        echoed["conversation"] = {"id": request.conversation_id}
    if request.prompt_cache_options is not None:
        echoed["prompt_cache_options"] = {"mode": "implicit", "ttl": "30m", **request.prompt_cache_options}
    return echoed


def echoed_tool(tool: Tool, container_id: str | None = None) -> Tool:
    """A tool as the response shows it: complete, with nulls, and a hosted shell as a reference to its container."""
    if tool["type"] == "namespace":
        return {**tool, "tools": [echoed_tool(inner) for inner in tool["tools"]]}
    room = ROOMS.of_tool(tool["type"])
    return tool if room is None else room.response_tool(tool, container_id)


async def _with_files(
    containers: Containers, container: ContainerRecord, environment: Environment | None, said: ResolvedInput
) -> list[Item]:
    """The request's items, and before them the model's notes about the container's files."""
    items = said.input_items
    if environment is None or not (environment.has_file_map or environment.agents_md):
        return items
    files = await containers.files_of(container.tenant_id, container.id)
    if environment.has_file_map:
        items = with_map(items, said.chain, files)
    if environment.agents_md is not None:
        items = await with_instructions(items, said.chain, files, environment.agents_md, containers.head_of)
    return items


def _given(environment: Environment | None, files: list[StoredFile]) -> str:
    """The model's note about the request's files; nothing if the map of the files has them."""
    if environment is None or environment.has_file_map or not files:
        return ""
    return line_of(list(places(files)))


async def _check_room(stores: Stores, settings: Settings, tenant_id: str, follows: str | None = None) -> None:
    """Refuse a response that would exceed the tenant's number in the state machine."""
    most = settings.running_responses_max
    running = len({*await stores.responses.inflight_of(tenant_id)} - {follows})
    if running >= most:
        raise rate_limited(
            f"{running} responses of yours are running with tools or in the background; {most} may run at once. Retry when one has "
            "ended, or cancel one.",
            _ROOM_SECONDS,
        )


def _links(previous: Snapshot | None) -> tuple[Ancestor, ...]:
    if previous is None:
        return ()
    assert previous.last is not None
    return (*previous.stored.ancestors, Ancestor(previous.stored.response_id, previous.last.first))


async def _container(
    runtime: Runtime, stored: StoredResponse, request: CreateRequest, items: list[Item]
) -> tuple[ContainerRecord | None, list[dict[str, Any]] | None, list[StoredFile]]:
    """Reserve the container of hosted calls (clients read its id in ``response.created``), with its skills as they were found, and the
    files that the request names. An agent's session has all skills of its container. Without hosted calls there is neither.
    """
    containers = runtime.computers.containers
    tenant_id, environment = stored.tenant_id, request.environment
    if environment is None or not environment.is_hosted:
        return None, None, []
    known = await _known_container(containers, tenant_id, environment, items)
    skills = await containers.skills.resolve(tenant_id, environment.skills, param=environment.skills_param, container=known)
    if known is not None and stored.session_id is not None:
        skills = [given(row) for row in await containers.skills.of(known)]
    if takes_skills(request.tools):
        skills = await containers.skills.with_defaults(tenant_id, skills, runtime.models.catalog.default_skills, container=known)
    files = await containers.named(tenant_id, environment.file_ids)
    if known is None:
        record = await containers.reserve(
            tenant_id,
            name="auto",
            files=files,
            memory_limit=environment.memory_limit or "1g",
            network_policy=environment.network_policy,
            skills=skills,
            is_auto=True,
        )
    else:
        record = await containers.add_files(known, files)
        record = await containers.skills.add(record, skills)
    try:
        inputs = await runtime.inputs.to_stage(tenant_id, items)
        if inputs:
            await containers.put_inputs(record, inputs)
    except ApiError:
        if known is None:
            await containers.delete(tenant_id, record.id)
        raise
    return record, [skill.to_json() for skill in skills], files


async def _known_container(
    containers: Containers, tenant_id: str, environment: Environment, items: list[Item]
) -> ContainerRecord | None:
    """The container that is named, or the chain's as long as it can be used."""
    if environment.type == "container_reference":
        assert environment.container_id is not None
        return await containers.use(tenant_id, environment.container_id, param=environment.param)
    last = context.container_of(items, but=team_items.copies_of(items))
    if last is None:
        return None
    try:
        record = await containers.use(tenant_id, last)
    except ContainerLost:
        return None
    policy = environment.network_policy
    return record if policy is None or await containers.has_policy(record, policy) else None


async def start_background(stores: Stores, prepared: PreparedResponse) -> dict[str, Any]:
    """Store the response, open its log, start its execution. Returns the queued response object."""
    stored = prepared.stored
    queued = await write_down(stores, stored)
    await start(stores, stored)
    return queued


async def write_down(stores: Stores, stored: StoredResponse) -> dict[str, Any]:
    """Store a response in the background, and open its log. Returns the queued response object. Nothing runs it until it is started
    (:func:`start`): by the reaper, if the process dies in between."""
    events = finish.opening_events(stored)
    numbered = tuple(event | {"sequence_number": i} for i, event in enumerate(events))
    await stores.responses.create(stored, EventBatch(0, numbered, LogWriterId(-1, 1)))
    queued: dict[str, Any] = events[-1]["response"]
    return queued


async def start(stores: Stores, stored: StoredResponse) -> None:
    """Let a response run that was written down. Harmless to run twice."""
    await _start(stores, stored, LoopState(stored.response_id, stored.tenant_id, stored.container_id))


async def give_up(runtime: Runtime, stored: StoredResponse) -> None:
    """Remove a response that was written down and shall not run."""
    await draw_last(runtime, stored, TokenUsage(), 0, ())
    await finish.forget(runtime.stores, stored)


async def _start(stores: Stores, stored: StoredResponse, state: LoopState) -> None:
    """Its records are enough for the reaper to start it, if Step Functions takes no more now."""
    if not await stores.executions.start_soon(stored.response_id, state.to_json(), stored.trace):
        tell("start_postponed", {"response_id": stored.response_id, "tenant_id": stored.tenant_id})


async def warm_up(runtime: Runtime, prepared: PreparedResponse) -> list[Event]:
    """The events of a response that asks no model: its input, ready to be continued."""
    stored = prepared.stored
    if stored.conversation_id is not None:
        await runtime.stores.conversations.append(
            stored.tenant_id, stored.conversation_id, stored.input_items, source=stored.response_id
        )
    await draw_last(runtime, stored, TokenUsage(), 0, ())
    response = finish.object_of(stored, status="completed", now=int(runtime.clock()), usage=TokenUsage())
    unnumbered = [*finish.opening_events(stored), *finish.final_events(response)]
    events = [event | {"sequence_number": i} for i, event in enumerate(unnumbered)]
    if stored.is_stored:
        await runtime.stores.responses.create(stored, EventBatch(0, tuple(events), LogWriterId(0, 1)))
    return events


class _Later:
    """Work that begins after so many seconds. Most responses end before, and have no task for it."""

    def __init__(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._work())

    async def end(self) -> None:
        """Cancel it, and return when it is over."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, MoorageError):
                await self._task


@dataclass(slots=True)
class InlineFirstStep:
    """The first step of a foreground response, in this process."""

    runtime: Runtime
    prepared: PreparedResponse
    listener: Callable[[Event], None]
    """Gets every event, numbered, at once."""
    takes_back: bool = True
    """As in :class:`~moorage.loop.sinks.Sink`."""
    is_handed_over: bool = False
    is_handing_over: bool = False
    """From its first write on: an execution may have been started, whether or not this process has heard of it, so that it is not
    broken off any more."""
    _ask: ModelAsk | None = None
    _asking: asyncio.Task[StepOutcome] | None = None
    _is_time_over: bool = False
    _interruption: str | None = None
    """Why the response is to end as ``incomplete``."""
    _sink: InlineSink = field(init=False)
    _began_at_ms: int = field(init=False)
    _began: float = field(default_factory=time.perf_counter)
    _first_output_ms: int | None = None

    def __post_init__(self) -> None:
        stored, responses = self.prepared.stored, self.runtime.stores.responses
        self._began_at_ms = self.runtime.now_ms()
        self._sink = InlineSink(self._hear, self.runtime.now_ms, takes_back=self.takes_back)
        if stored.is_stored:
            self._sink.keep(responses.log_of(stored), partial(responses.create, stored))

    async def run(self) -> None:
        """Returns when the response has ended or the state machine has taken over (``is_handed_over``)."""
        stored, sink = self.prepared.stored, self._sink
        standby = SandboxPrewarm.begin(self.runtime.computers.containers, stored)
        pulse = _Later(limits.INLINE_RECORD_SECONDS, self._pulse) if stored.is_stored else None
        try:
            if stored.agent is not None:  # Its agents run side by side.
                self._open()
                await self._hand_over()
                return
            ask = self._ask = ModelAsk(self.runtime, stored, StepPosition(0), sink, self.prepared.chain)
            self._asking = asyncio.create_task(ask.run())
            self._open()  # After the task is made: the model has its request before the client has its first event.
            try:
                outcome = await self._asking
            except asyncio.CancelledError:
                if _cancelling() or not (self._is_time_over or self._interruption):
                    raise
                await self._break_off()
                return
            except DocumentsUnread:
                await _check_room(self.runtime.stores, self.runtime.settings, stored.tenant_id)
                await self._hand_over()
                return
            tell_step(stored, StepPosition(0), outcome, attempt=1, began=self._began, first_output_ms=self._first_output_ms)
            if outcome.next is not Next.DONE:
                await self._hand_over(outcome, ask.items | ask.orders)
        except Superseded:
            raise
        except Exception as error:  # The rim of a response: whatever went wrong, its log gets an end.
            await self._fail(error)
        finally:
            if standby is not None and self.is_handed_over:
                self.runtime.process.keep(standby.task)
            elif standby is not None:
                await standby.give_up()
            if pulse is not None:
                await pulse.end()

    def _open(self) -> None:
        for event in finish.opening_events(self.prepared.stored):
            self._sink.emit(event)

    @property
    def retry_after_seconds(self) -> float | None:
        return None if self._ask is None else self._ask.retry_after_seconds

    @property
    def is_worth_repeating(self) -> bool:
        return self._ask is None or self._ask.is_worth_repeating

    def break_off(self) -> None:
        """This process must end soon: stored responses go on in the state machine, others fail.

        Events of both still come. A step that is about to end does so.
        """
        self._is_time_over = True
        if self._asking is not None:
            self._asking.cancel()

    def interrupt(self, reason: str) -> bool:
        """End the response as ``incomplete`` for this reason, without half items. False if its first step is over."""
        self._interruption = reason
        return self._asking is not None and self._asking.cancel()

    async def _break_off(self) -> None:
        if await self._sink.has_ended():
            return
        if self._interruption is not None:
            await self._end("incomplete", incomplete_reason=self._interruption)
            return
        if not self.prepared.stored.is_stored:
            raise time_over(self.runtime.settings.stream_seconds_max or 0)
        await self._hand_over()

    def _hear(self, event: Event) -> None:
        if event["type"] == OUTPUT_ITEM_ADDED and self._first_output_ms is None:
            self._first_output_ms = round((time.perf_counter() - self._began) * 1000)
        self.listener(event)

    async def _fail(self, error: Exception) -> None:
        """End the response as ``failed``. A stored one is ended in the log, for its client's reads; another one, here."""
        stored = self.prepared.stored
        reason = finish.error_of(error)
        if reason["code"] == "server_error":
            tell_error(error, "a response failed", response_id=stored.response_id, tenant_id=stored.tenant_id)
        tell("response_failed", {"response_id": stored.response_id, "tenant_id": stored.tenant_id}, {Metric.ERRORS: 1})
        await self._end("failed", error=reason)

    async def _end(self, status: Status, *, error: dict[str, Any] | None = None, incomplete_reason: str | None = None) -> None:
        stored, sink, drops_partial = self.prepared.stored, self._sink, status == "incomplete"
        if stored.is_stored:
            await sink.flush()
            await finish.end_from_outside(
                self.runtime,
                stored,
                status=status,
                error=error,
                incomplete_reason=incomplete_reason,
                drops_partial=drops_partial,
            )
            return
        folded = fold(sink.unwritten)
        if drops_partial:
            folded.drop_open()
        await draw_last(self.runtime, stored, TokenUsage(), 0, folded.output)
        for event in finish.closing_events(folded):
            sink.emit(event)
        response = finish.object_of(
            stored,
            status=status,
            now=int(self.runtime.clock()),
            output=folded.output,
            error=error,
            incomplete_reason=incomplete_reason,
        )
        events = finish.final_events(response)
        for event in events[:-1]:
            sink.emit(event)
        await sink.end(events[-1])

    async def _hand_over(self, outcome: StepOutcome | None = None, items: dict[int, Item] | None = None) -> None:
        """The record first, the log next, the execution last: the reaper can go on from any of these points.

        Without an outcome another attempt takes the first step up, and finds this one's progress in the log.
        """
        runtime, stored, sink = self.runtime, self.prepared.stored, self._sink
        self.is_handing_over = True
        if sink.has_record:
            await sink.record()
            await runtime.stores.responses.hand_over(stored)
        else:
            sink.keep(
                runtime.stores.responses.log_of(stored), partial(runtime.stores.responses.create, replace(stored, is_looping=True))
            )
        await sink.flush()
        state = LoopState(stored.response_id, stored.tenant_id, stored.container_id)
        if outcome is not None:
            ending = await runtime.stores.steps.ending(
                stored,
                0,
                1,
                outcome,
                items or {},
                begun_at_ms=self._began_at_ms,
                first_output_at_ms=sink.first_output_at_ms,
                request_id=sink.request_id,
            )
            if await runtime.stores.table.write_in_turn([ending(sink.next_number, None)]) == 0:
                raise superseded(stored, 0, 1)
            state = await placed(runtime, stored, state.after(outcome))
        await _start(runtime.stores, stored, state)
        self.is_handed_over = True

    async def _pulse(self) -> None:
        """Write the new events, and show that this process lives."""
        stored, sink = self.prepared.stored, self._sink
        await sink.record()
        seconds = 0.0
        while True:
            await asyncio.sleep(limits.INLINE_BATCH_SECONDS_MAX)
            seconds += limits.INLINE_BATCH_SECONDS_MAX
            await sink.flush()
            if seconds >= limits.INLINE_HEARTBEAT_SECONDS:
                seconds = 0.0
                await self.runtime.stores.responses.heartbeat(stored)

    async def abandon(self) -> None:
        """The client went away before the response had ended or been handed over: it is cancelled."""
        if self.prepared.stored.is_stored:
            await self._sink.record()
            await finish.end_from_outside(self.runtime, self.prepared.stored, status="cancelled")
        else:
            await draw_last(self.runtime, self.prepared.stored, TokenUsage(), 0, ())
            await finish.forget_own_inputs(self.runtime.stores, self.prepared.stored)
