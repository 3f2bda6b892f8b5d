"""One model step: context in, events and items out, and a decision about what follows.

:func:`model_step` is the state machine's task. :func:`ask` is its core, which the API process also runs for the first step of a
foreground response (``loop/inline.py``).

Running twice is harmless: each run takes a higher attempt, finds a stored outcome or takes over where the log ends, and its
predecessor's next write finds the slot taken.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from moorage import ids, limits
from moorage.errors import ApiError, Superseded, UpstreamError
from moorage.loop import attempts, compact, context, decide, finish, truncate
from moorage.loop.assemble import Assembler
from moorage.loop.fold import Folded, fold
from moorage.loop.sinks import LogSink, Sink
from moorage.loop.state import Call, LoopState, Next, Outcome
from moorage.model.base import Item, ModelRequest, TextDelta, UsageReported
from moorage.model.lowering import is_hosted, lower
from moorage.model.tokens import estimate_frame
from moorage.runtime import Runtime
from moorage.store.event_log import Batch, LogWriter, Writer
from moorage.store.responses import Snapshot, StoredResponse
from moorage.telemetry import Metric, tell
from moorage.tools.citations import citations
from moorage.tools.inputs import resolve_inputs
from moorage.wire import grammar
from moorage.wire.responses import Usage

_MISFIT: Final = "The arguments do not fit this tool's parameters. Read its description and call it again."


@dataclass(frozen=True, slots=True)
class Position:
    """Where a step begins."""

    step: int
    next_index: int = 0
    usage: Usage = Usage()
    calls_made: int = 0
    service_tier: str | None = None

    @classmethod
    def after(cls, outcome: Outcome, step: int) -> "Position":
        return cls(step, outcome.next_index, outcome.usage, outcome.calls_made, outcome.service_tier)


async def model_step(runtime: Runtime, state: LoopState) -> LoopState:
    """The task ``ModelStep``. Raises only what a retry may mend."""
    # The two reads do not wait for each other. What the second finds was true at some moment of this run, and more is not needed: an
    # outcome is written once, and a call that ends in between is sent round once more and found finished.
    snapshot, before = await asyncio.gather(
        runtime.responses.snapshot(state.tenant_id, state.response_id), _round_before(runtime, state)
    )
    stored = snapshot.stored
    if snapshot.is_final:
        await runtime.responses.settle(stored)
        return state.done()
    if stored.is_cancel_requested:
        await finish.end_from_outside(runtime, stored, status="cancelled")
        return state.done()
    if state.next is Next.TOOLS:
        return await _after_tools(runtime, snapshot, state, before)
    return await _run(runtime, snapshot, state, before.outcome)


async def _round_before(runtime: Runtime, state: LoopState) -> attempts.Round:
    """What this run goes on from: the step whose calls have been sent round, or the outcome of the step before."""
    tenant_id, response_id = state.tenant_id, state.response_id
    if state.next is Next.TOOLS:
        return await attempts.round_of(runtime.table, tenant_id, response_id, state.step)
    if state.step == 0:
        return attempts.Round(None, {})
    return attempts.Round(await attempts.outcome_of(runtime.table, tenant_id, response_id, state.step - 1), {})


async def _after_tools(runtime: Runtime, snapshot: Snapshot, state: LoopState, before: attempts.Round) -> LoopState:
    """The calls of ``state.step`` have been sent round: send the unfinished ones again, or go on to the next step."""
    stored, outcome, calls = snapshot.stored, before.outcome, before.calls
    assert outcome is not None, f"step {state.step} of {stored.response_id} has calls but no outcome"
    unfinished = [call.call_id for call in outcome.calls if not (call.call_id in calls and calls[call.call_id].is_finished)]
    if unfinished:
        return replace(state, next=Next.TOOLS, calls=tuple(unfinished))
    if outcome.is_last:
        return await _end(runtime, snapshot, replace(state, step=state.step + 1), outcome)
    return await _run(runtime, snapshot, replace(state, step=state.step + 1, next=Next.MODEL, calls=()), outcome)


async def _end(runtime: Runtime, snapshot: Snapshot, state: LoopState, outcome: Outcome) -> LoopState:
    """The response ends although no model was asked: the client has calls to answer."""
    attempt = await attempts.begin_step(runtime.table, snapshot.stored, state.step)
    async with _sink(runtime, snapshot, state.step, attempt.attempt) as sink:
        await conclude(runtime, snapshot.stored, sink, outcome, {})
    return state.done()


async def _run(runtime: Runtime, snapshot: Snapshot, state: LoopState, previous: Outcome | None) -> LoopState:
    """``previous`` is the outcome of the step before, None for the first."""
    stored = snapshot.stored
    if state.step - state.from_step >= limits.EXECUTION_ROUNDS_MAX:
        return replace(state, next=Next.CONTINUE, calls=())
    attempt, done = await asyncio.gather(
        attempts.begin_step(runtime.table, stored, state.step), _done_before(runtime, stored, state.step)
    )
    if attempt.outcome is not None:
        return state_after(state, attempt.outcome)
    refusal = _bound(runtime, stored, state.step, attempt)
    if refusal is not None:
        await finish.end_from_outside(runtime, stored, status="failed", error=refusal)
        return state.done()
    try:
        return await _attempt(runtime, snapshot, state, attempt.attempt, previous, done)
    except Superseded:
        return await _superseded(runtime, stored, state)
    except asyncio.CancelledError:  # The watch saw that the response was cancelled.
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        await finish.end_from_outside(runtime, stored, status="cancelled")
        return state.done()
    except ApiError as error:  # What the request refers to is gone: no retry will mend that.
        await finish.end_from_outside(runtime, stored, status="failed", error=finish.error_of(error))
        return state.done()


async def _done_before(runtime: Runtime, stored: StoredResponse, step: int) -> dict[int, Item]:
    """The finished items of the steps before; there are none before the first."""
    return await runtime.responses.done_items(stored) if step else {}


def _bound(runtime: Runtime, stored: StoredResponse, step: int, attempt: attempts.StepAttempt) -> dict[str, Any] | None:
    """Why this response must not go on, if so."""
    if attempt.crashes >= limits.STEP_ATTEMPTS_MAX:
        return {"code": "server_error", "message": f"The model step failed {limits.STEP_ATTEMPTS_MAX} times in a row."}
    if attempt.yields >= limits.WAITS_MAX:
        return {"code": "rate_limit_exceeded", "message": f"The model's provider asked to wait {limits.WAITS_MAX} times."}
    if step >= limits.ROUNDS_MAX:
        return {"code": "loop_limit_exceeded", "message": f"The response reached its limit of {limits.ROUNDS_MAX} model steps."}
    if runtime.clock() - stored.created_at > limits.RESPONSE_SECONDS_MAX:
        hours = limits.RESPONSE_SECONDS_MAX // 3600
        return {"code": "loop_limit_exceeded", "message": f"The response ran for its limit of {hours} hours."}
    return None


async def _superseded(runtime: Runtime, stored: StoredResponse, state: LoopState) -> LoopState:
    """Another attempt took over, or the response was ended. Either way this run's answer must fit what happens there."""
    snapshot = await runtime.responses.snapshot(state.tenant_id, state.response_id)
    if snapshot.is_final:
        return state.done()
    raise Superseded(f"step {state.step} of {stored.response_id} is being run by a later attempt")


def _sink(runtime: Runtime, snapshot: Snapshot, step: int, attempt: int) -> LogSink:
    """A sink at the end of the log as the snapshot saw it; if the log has grown since, the first write finds out."""
    log = runtime.responses.log_of(snapshot.stored)
    following = 0 if snapshot.last is None else snapshot.last.following
    return LogSink(LogWriter(log, Writer(step, attempt), following, on_predecessor=_look_again))


def _look_again(late: Batch, pending: Any) -> Any:
    """A run that was taken for dead wrote after this one had looked: its items are not known here, and theirs are the next indexes."""
    raise Superseded(f"{late.writer} wrote late, at {late.first}: the next attempt takes that up")


async def _attempt(
    runtime: Runtime,
    snapshot: Snapshot,
    state: LoopState,
    attempt: int,
    previous: Outcome | None,
    done: dict[int, Item] | None,
) -> LoopState:
    stored, began = snapshot.stored, time.perf_counter()
    position = Position(0) if previous is None else Position.after(previous, state.step)
    async with _sink(runtime, snapshot, state.step, attempt) as sink:
        if snapshot.last is None:
            for event in finish.opening_events(stored):
                sink.emit(event)
        if state.step == 0 and attempt == 1 and stored.is_background:
            response = finish.object_of(stored, status="in_progress", now=int(runtime.clock()))
            sink.emit({"type": "response.in_progress", "response": response})
        made: dict[int, Item] = {}
        outputs: dict[str, Item] = {}
        if attempt > 1:
            made, outputs, position = await _take_over(runtime, stored, sink, position)
            done = None  # It has been added to.
        outcome, items = await ask(
            runtime, stored, position, sink, made=made, outputs=outputs, done=done, cancelled=_cancel_watch(runtime, stored)
        )
        await sink.flush()
        if outcome.next is Next.WAIT:
            await attempts.yield_step(runtime.table, stored, state.step)
        elif outcome.next is not Next.DONE:  # The final event holds the items, and no step follows that would look for them.
            await runtime.responses.put_done(stored, items)
            await attempts.end_step(runtime.table, stored, state.step, outcome)
    tell_step(stored, position, outcome, attempt=attempt, began=began)
    return state_after(state, outcome)


def tell_step(
    stored: StoredResponse,
    position: Position,
    outcome: Outcome,
    *,
    attempt: int,
    began: float,
    first_output_ms: int | None = None,
) -> None:
    """The line and the metrics of a model step that began at ``began`` (``time.perf_counter``)."""
    counts = {
        Metric.INPUT_TOKENS: outcome.usage.input_tokens - position.usage.input_tokens,
        Metric.OUTPUT_TOKENS: outcome.usage.output_tokens - position.usage.output_tokens,
        Metric.CACHED_TOKENS: outcome.usage.cached_tokens - position.usage.cached_tokens,
        Metric.TOOL_CALLS: len(outcome.calls),
        Metric.ROUNDS: 1,
    }
    if first_output_ms is not None:
        counts[Metric.TIME_TO_FIRST_TOKEN] = first_output_ms
    if outcome.next is Next.DONE and outcome.status == "failed":
        counts[Metric.ERRORS] = 1
    tell(
        "model_step",
        {
            "response_id": stored.response_id,
            "tenant_id": stored.tenant_id,
            "step": position.step,
            "attempt": attempt,
            "duration_ms": round((time.perf_counter() - began) * 1000),
            "next": outcome.next.value,
            "status": outcome.status if outcome.next is Next.DONE else None,
            "wait_seconds": outcome.wait_seconds or None,
        },
        counts,
    )


def _cancel_watch(runtime: Runtime, stored: StoredResponse) -> Callable[[], Any]:
    async def watch() -> None:
        """Returns when somebody asked for the end of this response; polls once a second (one read unit)."""
        await asyncio.sleep(limits.CANCEL_POLL_SECONDS)
        while not await runtime.responses.is_cancel_requested(stored.tenant_id, stored.response_id):
            await asyncio.sleep(limits.CANCEL_POLL_SECONDS)

    return watch


async def _take_over(
    runtime: Runtime, stored: StoredResponse, sink: LogSink, position: Position
) -> tuple[dict[int, Item], dict[str, Item], Position]:
    """Pick up what a dead predecessor left: its finished items count, its open one is closed as ``incomplete``.

    The outputs of hosted calls that it had announced stay open (by call id): this attempt goes on with them.
    """
    log = runtime.responses.log_of(stored)
    folded = fold(await log.read_all())
    sink.writer.next_number = max(sink.writer.next_number, folded.next_number)
    outputs: dict[str, Item] = {
        str(folded.items[index].get("call_id", folded.items[index]["id"])): folded.items[index] | {"output_index": index}
        for index in folded.open
        if folded.items[index]["type"] in ("shell_call_output", "code_interpreter_call")
    }
    kept = {item["output_index"] for item in outputs.values()}
    rest = Folded(items=folded.items, done=folded.done | kept)
    for event in finish.closing_events(rest):
        sink.emit(event)
    await sink.flush()
    await runtime.responses.put_done(stored, {index: folded.items[index] for index in rest.done - kept})
    made = {
        index: item
        for index, item in folded.items.items()
        if index >= position.next_index and not (index in kept and item["type"] == "shell_call_output")
    }
    next_index = max(folded.items, default=-1) + 1
    return made, outputs, replace(position, next_index=max(next_index, position.next_index))


def state_after(state: LoopState, outcome: Outcome) -> LoopState:
    """The state machine's next state."""
    match outcome.next:
        case Next.TOOLS:
            return replace(state, next=Next.TOOLS, calls=tuple(call.call_id for call in outcome.calls))
        case Next.MODEL:
            return replace(state, step=state.step + 1, next=Next.MODEL, calls=())
        case Next.WAIT:
            return state.waiting(outcome.wait_seconds)
        case _:
            return state.done()


# --- the core: ask the model -----------------------------------------------------------------------------------------------------


async def ask(
    runtime: Runtime,
    stored: StoredResponse,
    position: Position,
    sink: Sink,
    *,
    made: dict[int, Item] | None = None,
    outputs: dict[str, Item] | None = None,
    chain: list[Item] | None = None,
    done: dict[int, Item] | None = None,
    cancelled: Callable[[], Any] | None = None,
) -> tuple[Outcome, dict[int, Item]]:
    """Ask the model, emit its events, decide what follows, and emit what belongs to that.

    ``made`` are this step's items from a predecessor, ``outputs`` the tool outputs that it has announced; ``chain`` is the context
    before this response and ``done`` what it has finished, if the caller has loaded them already. When the response
    ends here, its final event has been written.
    Returns the outcome and the items that are to be kept for the next step.
    """
    request = stored.request
    older = chain if chain is not None else await load_chain(runtime, stored)
    if done is None:
        done = await runtime.responses.done_items(stored) if position.step or made else {}
    items: dict[int, Item] = dict(made or {})
    usage, next_index, service_tier = position.usage, position.next_index, position.service_tier
    repairs: list[Item] = []
    try:
        shortened = await compact.in_response(
            runtime, stored, [*older, *stored.input_items, *context.own_items(done | items)]
        )
    except UpstreamError as unsummarised:
        return await _refused(runtime, stored, sink, position, unsummarised, items)
    if shortened is not None:
        hand = _HandOver(stored, sink, next_index, {}, items)
        hand.whole(shortened[0])
        next_index, usage = hand.next_index, usage + shortened[1]
    if compact.is_triggered(stored):
        outcome = Outcome(Next.DONE, next_index, usage=usage, calls_made=position.calls_made)
        await conclude(runtime, stored, sink, outcome, done | items)
        return outcome, items
    for tries_left in reversed(range(limits.STEP_ATTEMPTS_MAX)):
        finished, misfits = None, dict[int, str]()
        if items and not repairs:
            decision = decide.after_model(
                items, None, calls_made=position.calls_made, max_tool_calls=request.get("max_tool_calls")
            )
            if decision.next is not Next.MODEL or decision.refused:
                break
        before = compact.visible([*older, *stored.input_items, *context.own_items(done | items), *repairs])
        turn = _Turn(runtime, stored, replace(position, next_index=next_index, usage=usage), sink)
        try:
            assembler, error = await turn.run(before, cancelled)
        except UpstreamError as too_long:
            return await _refused(runtime, stored, sink, replace(position, next_index=next_index, usage=usage), too_long, items)
        repair = await turn.repair(assembler, before) if tries_left and not repairs else []
        if not repair:
            assembler.release()
        is_visible = assembler.next_index > next_index
        items |= assembler.items
        next_index = assembler.next_index
        if error is not None and not (error.is_retryable and is_visible):
            return await _refused(runtime, stored, sink, replace(position, next_index=next_index, usage=usage), error, items)
        usage += _tokens(assembler.usage)
        service_tier = assembler.usage.service_tier or service_tier
        finished = assembler.finished
        misfits = dict.fromkeys(assembler.misfits, _MISFIT)
        repairs = repair or repairs
        if finished is not None and not repair:
            break
    decision = decide.after_model(
        {index: item for index, item in items.items() if index not in misfits},
        finished,
        calls_made=position.calls_made,
        max_tool_calls=request.get("max_tool_calls"),
    )
    if decision.next is Next.MODEL and finished is None and not decision.refused:
        broken = UpstreamError("The model's stream broke off again and again.", is_retryable=False)
        return await _refused(runtime, stored, sink, replace(position, next_index=next_index, usage=usage), broken, items)
    has_client_calls = any(decide.is_for_client(item) for index, item in items.items() if index not in misfits)
    if misfits and decision.next is Next.DONE and decision.status == "completed" and not has_client_calls:
        decision = replace(decision, next=Next.MODEL)
    hand = _HandOver(stored, sink, next_index, outputs or {}, items)
    hand.refuse(decision.refused)
    hand.correct(misfits)
    outcome = Outcome(
        next=decision.next,
        calls=tuple(hand.announce(index) for index in decision.hosted),
        next_index=hand.next_index,
        usage=usage,
        calls_made=position.calls_made + len(decision.hosted),
        is_last=decision.is_last,
        status=decision.status,
        incomplete_reason=decision.incomplete_reason,
        service_tier=service_tier,
    )
    if outcome.next is Next.DONE:
        await conclude(runtime, stored, sink, outcome, done | items)
    return outcome, items


def _tokens(usage: UsageReported) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request to the model."""

    runtime: Runtime
    stored: StoredResponse
    position: Position
    sink: Sink

    async def run(
        self, before: list[Item], cancelled: Callable[[], Any] | None
    ) -> tuple[Assembler, UpstreamError | None]:
        """What the model made of it, and the error that broke it off, if one did: the open item is ``incomplete`` then.

        Raises :class:`UpstreamError` when the input cannot fit the model.
        """
        request = self.stored.request
        entry = self.runtime.catalog.resolve(request["model"])
        provider = self.runtime.catalog.provider(entry, self.runtime.http)
        choice = decide.tool_choice_of(
            request["tool_choice"],
            step=self.position.step,
            calls_made=self.position.calls_made,
            max_tool_calls=request.get("max_tool_calls"),
        )
        resolved = await resolve_inputs(
            self.runtime, self.stored.tenant_id, before, has_container=self.stored.container_id is not None
        )
        ceiling = request.get("max_output_tokens")
        fitting = truncate.fit(
            resolved,
            frame_tokens=estimate_frame(request.get("instructions"), request["tools"]),
            window_tokens=entry.context_window_tokens,
            output_tokens=ceiling,
            is_auto=request.get("truncation") == "auto",
        )
        lowered = lower(
            tuple(fitting),
            tuple(request["tools"]),
            choice,
            provider.native_tools,
            compaction_text=compact.opener(self.runtime, self.stored.tenant_id),
        )
        model_request = ModelRequest(
            model=entry.upstream_model,
            items=lowered.items,
            instructions=request.get("instructions"),
            tools=lowered.tools,
            tool_choice=lowered.tool_choice,
            parallel_tool_calls=request["parallel_tool_calls"],
            text=request.get("text"),
            reasoning=request.get("reasoning"),
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            top_logprobs=request.get("top_logprobs"),
            max_output_tokens=None if ceiling is None else max(1, ceiling - self.position.usage.output_tokens),
            prompt_cache_key=request.get("prompt_cache_key"),
            include=tuple(request.get("include") or ()),
            extra=request.get("extra") or {},
        )
        grammars = {} if "custom" in provider.native_tools else _grammars([*request["tools"], *context.tools_of(before)])
        assembler = Assembler(
            self.stored.response_id,
            self.sink.emit,
            self.position.next_index,
            lowered.restore,
            container_id=self.stored.container_id,
            is_shell_hosted=any(tool["type"] == "shell" and is_hosted(tool) for tool in request["tools"]),
            holds=lambda original: (original.namespace, original.name) in grammars,
        )
        watch = None if cancelled is None else asyncio.create_task(_cancel(cancelled, asyncio.current_task()))
        try:
            async with aclosing(provider.stream(model_request)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, TextDelta) and assembler.annotate is None:
                        assembler.annotate = await self._annotate()
                    assembler.feed(delta)
        except UpstreamError as error:
            assembler.abandon()
            return assembler, error
        finally:
            if watch is not None:
                watch.cancel()
        return assembler, None


    async def repair(self, assembler: Assembler, before: list[Item]) -> list[Item]:
        """Custom calls whose inputs break their tool's grammar, each with an output that says where: what the model reads before it
        tries again. Only upstreams that enforce grammars themselves make no such calls.

        Empty if there is nothing to repair, and also if the client has to answer, or the loop to run, another call of this turn: no
        model can be asked again before that has been done.
        """
        finished = assembler.finished
        is_whole = finished is not None and not finished.is_cut
        others = any(decide.is_hosted(item) or decide.is_for_client(item) for item in assembler.items.values())
        if not assembler.held or not is_whole or others:
            return []
        grammars = _grammars([*self.stored.request["tools"], *context.tools_of(before)])
        calls, outputs = [], []
        for held in assembler.held:
            verdict = await grammar.check(grammars[held.original.namespace, held.original.name], held.input)
            if verdict.outcome != "invalid":
                return []
            call = held.item(ids.new_item_id("ctc", self.stored.response_id))
            calls.append(call | {"status": "completed", "input": held.input})
            outputs.append(
                {
                    "id": ids.new_item_id("ctco", self.stored.response_id),
                    "type": "custom_tool_call_output",
                    "call_id": held.call_id,
                    "output": verdict.message,
                }
            )
        return [*calls, *outputs]

    async def _annotate(self) -> Callable[[str], list[dict[str, Any]]]:
        """Citations of the container's files; these are only looked up when there is a text that may name them."""
        if self.stored.container_id is None:
            return lambda text: []
        files = await self.runtime.containers.files_of(self.stored.tenant_id, self.stored.container_id)
        return lambda text: citations(text, files)


def _grammars(tools: list[dict[str, Any]]) -> dict[tuple[str | None, str], dict[str, Any]]:
    """The formats of custom tools that have a grammar, by namespace and name."""
    named = [
        (namespace, tool)
        for outer in tools
        for namespace, tool in (
            [(outer["name"], inner) for inner in outer["tools"]] if outer["type"] == "namespace" else [(None, outer)]
        )
    ]
    return {
        (namespace, tool["name"]): tool["format"]
        for namespace, tool in named
        if tool["type"] == "custom" and (tool.get("format") or {}).get("type") == "grammar"
    }


async def _cancel(cancelled: Callable[[], Any], step: asyncio.Task[Any] | None) -> None:
    with suppress(asyncio.CancelledError):
        await cancelled()
        assert step is not None
        step.cancel()


@dataclass(slots=True)
class _HandOver:
    """Emits what stands between a model step and its tool calls."""

    stored: StoredResponse
    sink: Sink
    next_index: int
    announced: dict[str, Item]
    items: dict[int, Item]

    def announce(self, index: int) -> Call:
        """Open the output of a hosted call, so that outputs appear in the order of their calls however long each takes."""
        item = self.items[index]
        if item["type"] == "code_interpreter_call":
            return Call(item["id"], item["type"], index, index, item["id"])
        known = self.announced.get(item["call_id"])
        if known is not None:
            return Call(item["call_id"], item["type"], index, known["output_index"], known["id"])
        output = self._output(item, [])
        # The live API says "completed" from the start; clients know that it is done by output_item.done.
        added = self._open(output)
        return Call(item["call_id"], item["type"], index, added, output["id"])

    def refuse(self, indexes: tuple[int, ...]) -> None:
        """Hosted calls over a bound get an output that says that they were not run."""
        for index in indexes:
            item = self.items[index]
            said = "This call was not run: the limit of tool calls is reached. Answer with what you have."
            if item["type"] == "code_interpreter_call":
                self.items[index] = item | {"status": "failed", "outputs": [{"type": "logs", "logs": said}]}
                self._done(index)
                continue
            outcome = {"stdout": "", "stderr": said, "outcome": {"type": "exit", "exit_code": 1}}
            output = self._output(item, [outcome for _ in item["action"]["commands"]])
            self.whole(output)

    def correct(self, misfits: dict[int, str]) -> None:
        """Calls that did not fit their tool get an output that says what would: the model calls again, the client sees no call."""
        for index in sorted(misfits):
            self.whole(
                {
                    "id": ids.new_item_id("fco", self.stored.response_id),
                    "type": "function_call_output",
                    "call_id": self.items[index]["call_id"],
                    "status": "completed",
                    "output": misfits[index],
                }
            )

    def _output(self, call: Item, output: list[dict[str, Any]]) -> Item:
        return {
            "id": ids.new_item_id("sho", self.stored.response_id),
            "type": "shell_call_output",
            "call_id": call["call_id"],
            "status": "completed",
            "max_output_length": call["action"].get("max_output_length"),
            "output": output,
        }

    def _open(self, item: Item) -> int:
        index = self.next_index
        self.next_index += 1
        added = item | ({"output": []} if item["type"] == "shell_call_output" else {})
        self.sink.emit({"type": "response.output_item.added", "output_index": index, "item": added})
        return index

    def whole(self, item: Item) -> None:
        """Add an item that is complete from the start."""
        index = self._open(item)
        self.items[index] = item
        self._done(index)

    def _done(self, index: int) -> None:
        self.sink.emit({"type": "response.output_item.done", "output_index": index, "item": self.items[index]})


async def load_chain(runtime: Runtime, stored: StoredResponse) -> list[Item]:
    """The items before this response: of its ancestors, all read at once, or of its conversation."""
    if stored.conversation_id is not None:
        items: list[Item] = await runtime.conversations.load_items(stored.tenant_id, stored.conversation_id)
        return items
    snapshots = await runtime.responses.snapshots(stored.tenant_id, stored.ancestors)
    return chain_items(snapshots)


def chain_items(snapshots: list[Any]) -> list[Item]:
    """Inputs and outputs of ended responses, in order."""
    items: list[Item] = []
    for snapshot in snapshots:
        items += snapshot.stored.input_items
        if snapshot.is_final:
            items += context.output_items(snapshot.final_object["output"], is_cut=snapshot.final_object["status"] == "incomplete")
    return context.answer_orphans(items)


async def _refused(
    runtime: Runtime,
    stored: StoredResponse,
    sink: Sink,
    position: Position,
    error: UpstreamError,
    items: dict[int, Item],
) -> tuple[Outcome, dict[int, Item]]:
    """The model did not answer: wait in the state machine if it asked for that, otherwise the response fails."""
    can_wait = isinstance(sink, LogSink) and error.is_retryable and error.retry_after_seconds is not None
    if can_wait and not items:
        seconds = min(round(error.retry_after_seconds or 1), limits.WAIT_SECONDS_MAX)
        outcome = Outcome(Next.WAIT, position.next_index, usage=position.usage, wait_seconds=max(1, seconds))
        return outcome, {}
    outcome = Outcome(
        Next.DONE, position.next_index, usage=position.usage, calls_made=position.calls_made, status="failed"
    )
    done = await runtime.responses.done_items(stored) if position.step else {}
    failure = {"code": error.code, "message": error.message, "param": error.param}
    await conclude(runtime, stored, sink, outcome, done | items, error=failure)
    return outcome, items


async def conclude(
    runtime: Runtime,
    stored: StoredResponse,
    sink: Sink,
    outcome: Outcome,
    items: dict[int, Item],
    *,
    error: dict[str, Any] | None = None,
) -> None:
    """Write the final event, then what hangs on the end: the conversation grows, the loop's claim is dropped."""
    if not items and outcome.next_index:
        items = await runtime.responses.done_items(stored)
    response = finish.object_of(
        stored,
        status=outcome.status,
        now=int(runtime.clock()),
        output=[items[index] for index in sorted(items)],
        usage=outcome.usage,
        error=None if error is None else {"code": error["code"], "message": error["message"]},
        incomplete_reason=outcome.incomplete_reason,
        service_tier=outcome.service_tier,
    )
    if stored.conversation_id is not None and outcome.status != "failed":
        await runtime.conversations.append(
            stored.tenant_id,
            stored.conversation_id,
            [*stored.input_items, *context.output_items(response["output"], is_cut=outcome.status == "incomplete")],
            source=stored.response_id,
        )
    events = finish.final_events(response)
    if error is not None:
        events[0]["error"]["param"] = error.get("param")
    for event in events[:-1]:
        sink.emit(event)
    await sink.end(events[-1])
    await runtime.responses.settle(stored)
