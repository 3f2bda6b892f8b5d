"""The core of a model step: ask the model, emit its events, decide the next step, and emit its events too.

Steps of the state machine run it (``loop/model_step.py``), and the API process does for the first step of a foreground response
(``loop/create.py``); they differ in the sink.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from moorage import ids, limits
from moorage.dataclass import dataclass
from moorage.errors import UnfitAnswer, UpstreamError
from moorage.loop import (
    brief,
    budget,
    compact,
    context,
    decide,
    egress_approvals,
    finish,
    programs,
    team_calls,
    team_outputs,
    upstream_shell,
)
from moorage.loop.assemble import Assembler
from moorage.loop.cancellation import Cancellable, CancelWatch
from moorage.loop.decide import LoopDecision
from moorage.loop.notes import model_view, reader
from moorage.loop.outputs import Outputs
from moorage.loop.programs import OpenProgram
from moorage.loop.prompt import StepPosition
from moorage.loop.prompt_stage import RoomStage, outside, rooms_of
from moorage.loop.sinks import LogSink, Sink
from moorage.loop.team_calls import AgentCalls
from moorage.loop.team_items import known_to_root
from moorage.loop.turn import ModelTurn, has_calls
from moorage.model.base import StreamFinished
from moorage.runtime import Runtime
from moorage.state import Next, PendingCall, StepOutcome
from moorage.store.responses import StoredResponse
from moorage.telemetry import about, tell
from moorage.tools.capabilities import PreparesSteps
from moorage.tools.multi_agent.room import AgentTeam
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallRunner
from moorage.wire.types import Item


@dataclass(slots=True)
class ModelAsk:
    """One run of it. The next step needs the final ``items``."""

    runtime: Runtime
    stored: StoredResponse
    position: StepPosition
    sink: Sink
    chain: list[Item]
    """The context before this response."""
    items: dict[int, Item] = field(default_factory=dict)
    """The step's items by output index; to begin with those that a run before this one has made."""
    announced: dict[str, Item] = field(default_factory=dict)
    """Tool outputs that a run before this one has announced, by call id."""
    done: dict[int, Item] = field(default_factory=dict)
    """What the steps before this one have finished."""
    results: dict[str, Item] = field(default_factory=dict)
    """What programs have come to that the step before has run, by call id."""
    orders: dict[int, Item] = field(default_factory=dict)
    """What runs of programs are given, below 0: kept with the items, and no items of the response."""
    watch: CancelWatch | None = None
    """Says when nobody wants an answer any more."""
    retry_after_seconds: float | None = None
    """How long the provider that gave no answer asked to be left alone."""
    is_worth_repeating: bool = True
    """Whether a client may well send the same request again after a failure."""
    pauses: int = 0
    """How often this step has waited in the state machine for its provider."""
    waits_for: str | None = None
    """If the outcome is to wait: for what, in a sentence."""
    has_no_calls_left: bool = False
    """Its calls do not run, because those of a budget that it shares are used up."""
    _calls: AgentCalls | None = None
    """What it has asked of its team."""
    _programs: list[OpenProgram] = field(default_factory=list)
    """Those that run next."""
    _finished: StreamFinished | None = None
    """How the latest turn ended; None if it broke off, and before the first."""
    _broke_inside: bool = True
    """Whether the latest turn broke off in the middle of an item. Of a run that died nobody knows, so it counts as one that did."""
    _last_error: UpstreamError | None = None
    """What broke the latest turn off."""
    _repairs: list[Item] = field(default_factory=list)
    _has_complained: bool = False
    """The model was told that its answer is not the JSON that was asked for."""

    async def run(self) -> StepOutcome:
        """When the response ends here, its final event has been written."""
        with about(response_id=self.stored.response_id, tenant_id=self.stored.tenant_id):
            return await self._run()

    async def _run(self) -> StepOutcome:
        try:
            has_programs = bool(self._open_programs())
            if not has_programs:
                await self._compact()
            if not compact.is_triggered(self.stored):
                await self._prepare(has_programs=has_programs)
                if not self._resume():
                    if has_programs:
                        await self._hear()
                    await self._converse()
            decision = await self._counted(self._with_programs(self._decision()))
        except UpstreamError as error:
            return await self._give_up(error)
        await self._rented(decision)
        await self._settle(decision)
        outcome = self._follow(decision)
        if outcome.next is Next.DONE and self.stored.agent is None:
            await finish.conclude(self.runtime, self.stored, self.sink, outcome, self.done | self.items)
        return outcome

    def _context(self) -> list[Item]:
        """The whole items so far."""
        return [*self.chain, *self.stored.input_items, *context.own_items(self.done | self.items)]

    def _open_programs(self) -> list[OpenProgram]:
        """Of the response, or of the agent of a team."""
        return programs.open_programs(self._own_context())

    def _own_context(self) -> list[Item]:
        """What the response, or the agent of a team, knows; with calls that run and will hold their results."""
        own = self.done | self.items
        return [*self._before_own(), *(own[index] for index in sorted(own) if own[index].get("status") != "incomplete")]

    async def _hear(self, *, answers_only: bool = False) -> None:
        """Give an agent of a team its client's outputs, and but for ``answers_only`` what becomes a message to its model: late outputs,
        awaited results and its messages."""
        if self.stored.agent is None:
            return
        outputs = self._outputs()
        before = [*self._before_own(), *self.done.values()]
        own = (self.done | self.items).values()
        waits = team_calls.waits_over(before, self.items.values(), self.stored.response_id)
        answers = await team_outputs.unread(self.runtime.stores, self.stored, own, is_late=False if answers_only else None)
        others = () if answers_only else await team_calls.news(self.runtime.stores, self.stored, own)
        for item in [*(() if answers_only else waits), *answers, *others]:
            outputs.add(item)
        self.position = replace(self.position, next_index=outputs.next_index)

    async def _settle(self, decision: LoopDecision) -> None:
        """Do an agent's requests to its team."""
        if self.stored.agent is None:
            return
        room, outputs = ROOMS.of_call(AgentTeam.call_type), self._outputs()
        assert room is not None
        self._calls = AgentCalls(self.runtime, self.stored, self._said_before())
        await self.sink.flush()  # What is asked of others is in the log before they hear of it.
        settled = {item["call_id"]: item for item in self.items.values() if item["type"] == AgentTeam.output_type}
        for index in decision.own:
            call = self.items[index]
            if call["call_id"] in settled:
                await self._calls.recall(settled[call["call_id"]])
                continue
            said = await self._calls.settle(call, index)
            if said is not None:
                outputs.add({"id": outputs.new_id(room), **team_calls.output(call, said)})
        self.position = replace(self.position, next_index=outputs.next_index)

    def _said_before(self) -> list[Item]:
        """The agent's items before its model was asked."""
        own = [self.items[index] for index in sorted(self.items)]
        heard = itertools.takewhile(lambda item: item["type"] in team_outputs.HEARD, own)
        return [*self._before_own(), *context.own_items(self.done), *heard]

    def _before_own(self) -> Sequence[Item]:
        """The agent's items before this response."""
        return known_to_root([*self.chain, *self.stored.input_items])

    async def _compact(self, *, is_too_long: bool = False) -> bool:
        """True if there is less to read now."""
        outputs = self._outputs()
        shortened = await compact.in_response(
            self.runtime, self.stored, self._context(), self.watch, outputs.begin_compaction, is_too_long=is_too_long
        )
        if shortened is None:
            return False
        item, usage = shortened
        outputs.add(item)
        self.position = replace(self.position, next_index=outputs.next_index, usage=self.position.usage + usage)
        return True

    async def _prepare(self, *, has_programs: bool) -> None:
        """Let the rooms add items for the model, and open the calls that the client has allowed."""
        await self._tell_of_network()
        # The outputs of programs come before messages: model providers want them right behind their calls.
        await self._hear(answers_only=has_programs)
        for room in rooms_of(self.stored.parameters.tools):
            if not isinstance(room, PreparesSteps) or not room.needs_preparation(self.stored.input_items):
                continue
            stage = RoomStage(
                room,
                self.stored,
                self.sink,
                self.position.next_index,
                self.items,
                items=await model_view(self._context(), reader(self.runtime.stores, self.stored.tenant_id)),
                made=list((self.done | self.items).values()),
                outside=outside(self.runtime, self.stored),
            )
            async with Cancellable(self.watch):
                await room.prepare_step(stage)
            self.position = replace(self.position, next_index=stage.next_index)

    async def _tell_of_network(self) -> None:
        """Questions about the container's egress, and the decisions about them."""
        if self.position.step == 0:
            await egress_approvals.open_allowed(self.runtime.computers.egress, self.stored, self.stored.own_input, self._context())
            return
        outputs = self._outputs()
        for item in await egress_approvals.news(
            self.runtime.stores, self.runtime.computers.egress, self.stored, (self.done | self.items).values()
        ):
            room = ROOMS.of_item(item["type"])
            assert room is not None
            outputs.add({"id": ids.new_item_id(room.id_prefixes[item["type"]], self.stored.response_id), **item})
        self.position = replace(self.position, next_index=outputs.next_index)

    def _resume(self) -> bool:
        """Show the results of programs; False if none is open, so that the model is asked.

        An earlier run of the step may have shown a part of it.
        """
        for program in self._open_programs():
            result = self.results.get(program.call_id)
            if result is not None:
                self._show(program, result)
        if not self._open_programs():
            return False
        self._finished = StreamFinished("tool_calls")
        return True

    def _show(self, program: OpenProgram, result: Item) -> None:
        room = ROOMS.hosted(program.item["type"])
        assert room is not None
        if result["type"] == room.call_type:
            shown = {call["call_id"] for call in program.calls}
            turn = ModelTurn(self.runtime, self.stored, self.position, self.sink)
            fresh = [call for call in result["calls"] if call["call_id"] not in shown]
            made = turn.of_program(program.item, fresh, self._own_context())
            if made is not None:
                self.items |= made.items
                self.position = replace(self.position, next_index=made.next_index)
                return
            result = program.misfit(room)
        outputs = self._outputs()
        output = result | {"id": outputs.new_id(room)}  # One that its tool step has ended without a run has the program's own.
        outputs.add(output, added=room.empty_output(program.item, output["id"]))
        self.position = replace(self.position, next_index=outputs.next_index)

    def _with_programs(self, decision: LoopDecision) -> LoopDecision:
        """The same, with the programs that run next. None does while the client has calls to answer: the next response goes on."""
        hosted = tuple(index for index in decision.hosted if not programs.is_program(self.items[index]))
        ends = decision.is_last or decision.status != "completed" or any(map(decide.is_for_client, self.items.values()))
        refused = {self.items[index].get("call_id") for index in decision.refused}
        found = [] if ends else self._open_programs()
        self._programs = [program for program in found if program.is_ready and program.call_id not in refused]
        if self._programs:
            return replace(decision, next=Next.TOOLS, hosted=hosted)
        if decision.hosted and not hosted:
            return replace(decision, next=Next.DONE, hosted=(), is_last=False)
        return replace(decision, hosted=hosted)

    async def _converse(self) -> None:
        """Take turn after turn until the model is done."""
        for tries_left in reversed(range(limits.STEP_ATTEMPTS_MAX)):
            self._finished = None
            if self._has_enough():
                return
            if self._is_spent():
                self._finished = StreamFinished("max_output_tokens")
                return
            upstream_shell.check_answered(context.own_items(self.done | self.items), self.stored.container_id)
            try:
                if await self._turn(may_repair=tries_left > 0):
                    return
            except UpstreamError as error:
                # The threshold goes by an estimate; the provider counts.
                if error.code != "context_length_exceeded" or not await self._compact(is_too_long=True):
                    raise

    def _is_spent(self) -> bool:
        """Whether too little is left of the response's budget of tokens to ask for: OpenAI's API refuses a request for less."""
        ceiling, used = self.stored.parameters.max_output_tokens, self.position.usage.output_tokens
        return ceiling is not None and used > 0 and ceiling - used < limits.OUTPUT_TOKENS_MIN

    def _has_enough(self) -> bool:
        """Whether the items before a turn decide the next step already, after a broken turn or a dead run."""
        if not self.items or self._repairs:
            return False
        decision = self._after()
        return decision.next is not Next.MODEL or decision.goes_on or bool(decision.refused) or bool(decision.own)

    async def _turn(self, *, may_repair: bool) -> bool:
        """Ask once; False if the model is to be asked again, because it broke off or made a call that needs repair.

        Raises errors that must not be retried.
        """
        said = await model_view(self._context(), reader(self.runtime.stores, self.stored.tenant_id))
        before = [*brief.of(self.stored), *said, *self._repairs]
        turn = ModelTurn(self.runtime, self.stored, self.position, self.sink)
        assembler, error = await turn.run(before, self.watch)
        self._broke_inside = assembler.broke_inside
        unfit: UnfitAnswer | None = None
        repairs = await turn.repair(assembler, before, checks_grammars=not self._repairs) if may_repair else []
        if not repairs:
            repairs, unfit = await self._checked(turn, assembler, may_repair=may_repair)
        if not repairs:
            assembler.release()
        self.items |= assembler.items
        self.position = replace(self.position, next_index=assembler.next_index)
        is_final = not self.sink.takes_back and any(item["type"] != "reasoning" for item in assembler.items.values())
        if error is not None:
            try:
                # Before its first word an upstream was asked again already (``model/http.py``).
                if is_final or not (error.is_retryable and assembler.has_begun):
                    raise error
                self._last_error = error.again(is_retryable=not self.items)
            finally:
                del error  # It knows this frame, and by others the whole request: a circle that would stay in memory.
        self._take(assembler)
        if unfit is not None:
            raise unfit
        is_whole = self._finished is not None and not self._finished.is_cut
        if is_whole and assembler.misfits and not repairs and not has_calls(assembler):
            raise UpstreamError(
                "The model called tools that it was not offered, or with arguments that do not fit them, again and again.",
                is_retryable=False,
            )
        self._repairs += repairs
        return self._finished is not None and not repairs

    async def _checked(self, turn: ModelTurn, assembler: Assembler, *, may_repair: bool) -> tuple[list[Item], UnfitAnswer | None]:
        """The complaint for the model if its answer is not the requested JSON.

        There is one in a step, and only if everything shown so far can be taken back. Otherwise the error of the response, if it fails.
        """
        fault = await turn.fault(assembler)
        is_told = may_repair and not self._has_complained and (self.sink.takes_back or not assembler.has_shown_text)
        unfit = None if fault is None else turn.unfit(fault)
        if fault is None or not (is_told or unfit is not None):
            assembler.accept()
            return [], None
        text = assembler.last_text() or ""
        assembler.take_back()
        if not is_told:
            return [], unfit
        self._has_complained = True
        return turn.complaint(text, fault), None

    def _take(self, assembler: Assembler) -> None:
        self._finished = assembler.finished
        self.position = replace(
            self.position,
            usage=self.position.usage + assembler.usage.counted,
            service_tier=assembler.usage.service_tier or self.position.service_tier,
        )

    def _after(self) -> LoopDecision:
        return decide.after_model(
            self.items,
            self._finished,
            calls_made=self.position.calls_made,
            max_tool_calls=self.stored.parameters.max_tool_calls,
            own_container=self.stored.container_id,
            broke_inside=self._broke_inside,
        )

    def _decision(self) -> LoopDecision:
        """Raises :class:`UpstreamError` if the model never came to an end."""
        if compact.is_triggered(self.stored):
            return LoopDecision(Next.DONE)
        decision = self._after()
        if decision.next is Next.MODEL and self._finished is None and not (decision.refused or decision.own or decision.goes_on):
            raise self._last_error or UpstreamError("The model's stream broke off again and again.", is_retryable=False)
        return decision

    async def _counted(self, decision: LoopDecision) -> LoopDecision:
        """The decision, or the same without its calls, if others have used up the calls of a shared budget.

        Calls that an earlier run of the step has announced are counted already, and run.
        """
        position = self.position
        may_run = await budget.counts_calls(
            self.runtime,
            self.stored,
            position.usage,
            position.calls_made,
            list((self.done | self.items).values()),
            len(decision.hosted),
            rent=position.rent,
            is_bounded=not self.announced,
        )
        self.has_no_calls_left = not may_run
        return decision if may_run else decide.without_calls(decision)

    async def _rented(self, decision: LoopDecision) -> None:
        """The response pays for its container's sandbox from its first call there on, if that has a price."""
        in_sandbox = any(decide.where(self.items[index]) is CallRunner.SANDBOX for index in decision.hosted)
        if self.position.rent is None and (in_sandbox or self._programs):
            self.position = replace(self.position, rent=await budget.rent_of(self.runtime, self.stored))

    def _follow(self, decision: LoopDecision) -> StepOutcome:
        """Emit the events of a decision."""
        outputs = self._outputs()
        outputs.refuse(decision.refused)
        calls = [*(outputs.announce(index) for index in decision.hosted), *self._runs()]
        return StepOutcome(
            next=decision.next,
            calls=tuple(calls),
            next_index=outputs.next_index,
            usage=self.position.usage,
            calls_made=self.position.calls_made + len(decision.hosted),
            is_last=decision.is_last,
            status=decision.status,
            incomplete_reason=decision.incomplete_reason,
            service_tier=self.position.service_tier,
            had_no_calls_left=self.has_no_calls_left,
            rent=self.position.rent,
            wakes=tuple(self._calls.wakes) if self._calls else (),
            waits_until_ms=self._calls.waits_until_ms if self._calls else 0,
        )

    def _runs(self) -> Iterator[PendingCall]:
        """The runs of programs: calls that fill no item."""
        for place, program in enumerate(self._programs, 1):
            self.orders[-place] = program.order(self.stored.parameters.tools, self._own_context())
            where = str(decide.where(program.item))
            yield PendingCall(program.call_id, program.item["type"], -place, -place, program.item["id"], where)

    def _outputs(self) -> Outputs:
        return Outputs(self.stored, self.sink, self.position.next_index, self.announced, self.items)

    async def _give_up(self, error: UpstreamError) -> StepOutcome:
        """The model did not answer: wait in the state machine if that may help, otherwise the response fails."""
        position = self.position
        self.retry_after_seconds = error.retry_after_seconds
        self.is_worth_repeating = not isinstance(error, UnfitAnswer)
        pause = self._pause(error)
        if pause is not None:
            self.waits_for = f"The model's provider, which is asked again: {error.message}"
            return StepOutcome(Next.WAIT, position.next_index, usage=position.usage, wait_seconds=pause)
        outcome = StepOutcome(
            Next.DONE, position.next_index, usage=position.usage, calls_made=position.calls_made, status="failed", rent=position.rent
        )
        tell("response_failed", {"model": self.stored.parameters.model, "code": error.code, "param": error.param})
        failure = {"code": error.code, "message": error.message, "param": error.param}
        if self.stored.agent is not None:
            return replace(outcome, error=failure)
        await finish.conclude(self.runtime, self.stored, self.sink, outcome, self.done | self.items, error=failure)
        return outcome

    def _pause(self, error: UpstreamError) -> int | None:
        """Seconds until the provider is asked again; None if nobody waits for that.

        A client in the foreground waits as long as the provider asks for; a response in the background outlives an outage. The output
        so far stands in the log; the next run continues from it.
        """
        if not isinstance(self.sink, LogSink) or not error.is_retryable:
            return None
        if error.retry_after_seconds is not None:
            return max(1, min(round(error.retry_after_seconds), limits.WAIT_SECONDS_MAX))
        if not self.stored.is_background:
            return None
        return int(min(limits.WAIT_SECONDS_FIRST * 2 ** min(self.pauses, 10), limits.WAIT_SECONDS_MAX))
