"""One request to the model, and its result.

A step may take several turns: a stream that broke off is asked for again, and a call that does not fit its tool, or breaks its grammar,
is repaired (``loop/ask.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import orjson

from moorage import ids, limits
from moorage.containers.citations import citations
from moorage.containers.store import ContainerFileRecord
from moorage.dataclass import dataclass
from moorage.errors import UnfitAnswer, UpstreamError
from moorage.loop import context, decide, programs, upstream_shell
from moorage.loop.assemble import Assembler, HeldCall, is_json
from moorage.loop.cancellation import Cancellable, CancelWatch
from moorage.loop.prompt import Prompt, StepPosition
from moorage.loop.prompt_stage import rooms_of
from moorage.loop.sinks import Sink
from moorage.model.base import HOSTED_SHELL, CallDelta, CallStarted, ItemDone, ItemOpened, ItemRelayed, StreamStarted, TextDelta
from moorage.parallel import Breath
from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse
from moorage.tools.capabilities import AsksApproval, CitesSources
from moorage.tools.lowering import NOT_OFFERED, LoweredInput, is_hosted, lowered_for_programs
from moorage.tools.registry import ROOMS
from moorage.tools.source_marks import SourceMark
from moorage.wire import grammar, json_answers
from moorage.wire.item import made_by
from moorage.wire.types import Item

_REFUSED: Final = 400


@dataclass(frozen=True, slots=True)
class ModelTurn:
    runtime: Runtime
    stored: StoredResponse
    position: StepPosition
    sink: Sink

    async def run(self, before: list[Item], watch: CancelWatch | None) -> tuple[Assembler, UpstreamError | None]:
        """Run the model on ``before``. Returns its output and the error that broke it off, if there was one: the open item is
        ``incomplete`` then.

        Raises :class:`UpstreamError` when the input cannot fit the model, and the error that ends the ``watch``.
        """
        assembler, error, went_without_tools = await self._asked(before, watch, keeps_tools=False)
        if went_without_tools and error is not None and error.status == _REFUSED and not assembler.has_begun:
            # LiteLLM refuses calls in messages for Anthropic's models where no tools are offered.
            assembler, error, _ = await self._asked(before, watch, keeps_tools=True)
        return assembler, error

    async def _asked(
        self, before: list[Item], watch: CancelWatch | None, *, keeps_tools: bool
    ) -> tuple[Assembler, UpstreamError | None, bool]:
        """The same of one request, and whether it went without its tools."""
        entry = self.runtime.models.catalog.resolve(self.stored.parameters.model)
        provider = self.runtime.models.catalog.provider(entry, self.runtime.models.http)
        prompt = Prompt(self.runtime, self.stored, self.position, entry, provider.native_tools, keeps_tools)
        async with Cancellable(watch):
            lowered = await prompt.lowered(before)
        request = prompt.request(lowered)
        went_without_tools = not keeps_tools and prompt.wants_words(before)
        assembler = self._assembler(lowered, {} if "custom" in provider.native_tools else self._grammars(before))
        assembler.taken_call_ids.update(item["call_id"] for item in before if "call_id" in item)
        noted: set[str] = set()
        has_shell, breath = HOSTED_SHELL in provider.native_tools, Breath()
        try:
            async with Cancellable(watch), aclosing(provider.stream(request)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, StreamStarted):
                        self.sink.note_request(delta.request_id)
                    if has_shell and isinstance(delta, ItemOpened | ItemRelayed):
                        await upstream_shell.note(self.runtime.stores, self.stored.tenant_id, entry.name, delta.item, noted)
                    if isinstance(delta, TextDelta) and assembler.annotate is None:
                        assembler.annotate = await self._annotate(before)
                    assembler.feed(delta)
                    await breath.taken()
        except UpstreamError as error:
            assembler.abandon(is_said_anew=error.is_retryable)
            return assembler, error, went_without_tools
        return assembler, None, went_without_tools

    def of_program(self, program: Item, calls: Sequence[Mapping[str, str]], items: Sequence[Item]) -> Assembler | None:
        """The calls that a program has asked for, as if the model had made them; None if one of them fits no tool. ``items`` are those
        of its conversation."""
        tools = self.stored.parameters.tools
        lowered = lowered_for_programs(tools, items, programs=self.stored.programs, given=self.stored.given)
        if not all(programs.fits(lowered.restore(call["name"]), call["arguments"]) for call in calls):
            return None
        assembler = self._assembler(lowered, {})
        assembler.caller, assembler.is_named_anew = made_by(program["call_id"]), False
        for call in calls:
            assembler.feed(CallStarted(call["name"], call["call_id"]))
            assembler.feed(CallDelta(call["arguments"]))
            assembler.feed(ItemDone())
        return assembler

    def _assembler(self, lowered: LoweredInput, grammars: dict[tuple[str | None, str], dict[str, Any]]) -> Assembler:
        return Assembler(
            self.stored.response_id,
            self.sink.emit,
            self.position.next_index,
            lowered.restore,
            seal=partial(self.runtime.stores.sealer.seal, self.stored.tenant_id),
            seals_text="reasoning.encrypted_content" in self.stored.parameters.include,
            summarises=bool((self.stored.parameters.reasoning or {}).get("summary")),
            container_id=self.stored.container_id,
            offered=tuple(lowered.names),
            hosts=lambda room: any(ROOMS.of_tool(tool["type"]) is room and is_hosted(tool) for tool in self.stored.parameters.tools),
            checks_text=json_answers.is_asked_for(self._format),
            opens_with="{" if json_answers.begins_with_a_brace(self._format) else "",
            holds=lambda original: (original.namespace, original.name) in grammars,
            shown=self._shown,
            is_of_team=self.stored.agent is not None,
            is_named_anew=self.stored.lane > 0,
            asynchronous=lowered.asynchronous,
            mark_kinds=frozenset(
                kind
                for room in rooms_of(self.stored.parameters.tools)
                if isinstance(room, CitesSources)
                for kind in room.citation_marks
            ),
        )

    def _shown(self, item: Item, index: int) -> Item:
        room = ROOMS.of_item(item["type"])
        if not isinstance(room, AsksApproval):
            return item
        approval_id = (
            ids.approval_id(self.stored.response_id, index, self.stored.lane) if self.stored.parks(room.pauses_in_place) else None
        )
        return room.hold_for_approval(item, self.stored.parameters.tools, approval_id)

    @property
    def _format(self) -> Mapping[str, Any]:
        return (self.stored.parameters.text or {}).get("format") or {}

    async def fault(self, assembler: Assembler) -> str | None:
        """The place and reason if the turn's answer is not the requested JSON; None if it is, or if the turn has no answer."""
        if not json_answers.is_asked_for(self._format) or has_calls(assembler):
            return None
        text = "" if _says_nothing(assembler) else assembler.last_text()
        return None if text is None else await json_answers.fault_of(text, self._format)

    def unfit(self, fault: str) -> UnfitAnswer | None:
        """The error of an answer with this fault; None if it is handed out unchanged."""
        if not json_answers.is_binding(self._format):
            return None
        wanted = "the schema" if self._format["type"] == "json_schema" else "'json_object'"
        return UnfitAnswer(f"The model's answer does not fit {wanted} {fault}.")

    def complaint(self, text: str, fault: str) -> list[Item]:
        """An answer that does not fit, and the text for its model before it answers again."""
        said = [{"type": "message", "role": "assistant", "content": text}] if text.strip() else []
        return [*said, {"type": "message", "role": "user", "content": f"{_UNFIT.format(fault)}{self._reminder()}"}]

    def _reminder(self) -> str:
        """The schema: a server that ignores it may never have shown it."""
        if self._format["type"] != "json_schema":
            return ""
        schema = orjson.dumps(self._format["schema"]).decode()
        return f" The schema is: {schema}" if len(schema) <= limits.ANSWER_SCHEMA_CHARS_TOLD_MAX else ""

    async def repair(self, assembler: Assembler, before: list[Item], *, checks_grammars: bool) -> list[Item]:
        """Repair: calls that cannot run, each with an output that gives the reason to the model. There is no such tool, or the
        arguments do not fit it, or break its grammar. Only upstreams that enforce these themselves make no such calls.

        Empty if there is nothing to repair, and also if the client has to answer, or the loop to run, another call of this turn: no
        model can be asked again before that has been done.
        """
        finished = assembler.finished
        is_whole = finished is not None and not finished.is_cut
        if not is_whole or has_calls(assembler) or (assembler.held and not checks_grammars):
            return []
        repairs = [_misfit(held, assembler.offered) for held in assembler.misfits]
        grammars = self._grammars(before)
        for held in assembler.held:
            async with self.runtime.process.grammar_places:
                verdict = await grammar.check(grammars[held.original.namespace, held.original.name], held.input)
            if verdict.outcome != "invalid":
                return []
            repairs.append(self._broken(held, verdict.message))
        return [call for call, _ in repairs] + [output for _, output in repairs]

    def _broken(self, held: HeldCall, complaint: str) -> tuple[Item, Item]:
        call = held.item(ids.new_item_id("ctc", self.stored.response_id)) | {"status": "completed", "input": held.input}
        return call, {
            "id": ids.new_item_id("ctco", self.stored.response_id),
            "type": "custom_tool_call_output",
            "call_id": held.call_id,
            "output": complaint,
        }

    def _grammars(self, before: list[Item]) -> dict[tuple[str | None, str], dict[str, Any]]:
        """The formats of custom tools that have a grammar, by namespace and name."""
        named = [
            (namespace, tool)
            for outer in [*self.stored.parameters.tools, *context.tools_of(before)]
            for namespace, tool in (
                [(outer["name"], inner) for inner in outer["tools"]] if outer["type"] == "namespace" else [(None, outer)]
            )
        ]
        return {
            (namespace, tool["name"]): tool["format"]
            for namespace, tool in named
            if tool["type"] == "custom" and (tool.get("format") or {}).get("type") == "grammar"
        }

    async def _annotate(self, before: list[Item]) -> Callable[[str, Sequence[SourceMark]], list[dict[str, Any]]]:
        """Citations of tools' results and of the container's files. The files are only read when a text may name them."""
        rooms = dict.fromkeys(room for item in before if isinstance(room := ROOMS.of_item(item["type"]), CitesSources))
        files: list[ContainerFileRecord] = []
        if self.stored.container_id is not None:
            files = await self.runtime.computers.containers.files_of(self.stored.tenant_id, self.stored.container_id)

        def annotate(text: str, marks: Sequence[SourceMark]) -> list[dict[str, Any]]:
            found = [citation for room in rooms for citation in room.citations(text, marks, before)]
            return sorted([*citations(text, files), *found], key=_place)

        return annotate


def _place(citation: Mapping[str, Any]) -> int:
    """Its beginning, or the place that it marks."""
    place: int = citation["start_index"] if "start_index" in citation else citation["index"]
    return place


def has_calls(assembler: Assembler) -> bool:
    """Whether the turn made calls that the client or the loop has to answer."""
    return any(decide.is_hosted(item) or decide.is_own(item) or decide.is_for_client(item) for item in assembler.items.values())


def _says_nothing(assembler: Assembler) -> bool:
    """Whether the turn has ended, and made nothing but reasoning."""
    is_whole = assembler.finished is not None and not assembler.finished.is_cut
    says = assembler.has_answer_open or assembler.misfits or assembler.held
    return is_whole and not says and all(item["type"] == "reasoning" for item in assembler.items.values())


_UNFIT: Final = "This answer is not the JSON that was asked for, {}. Answer again, with the whole JSON and nothing else."
_NO_JSON: Final = "The arguments are not valid JSON. Call the tool again, with one JSON object as its arguments."
_MISFIT: Final = "The arguments do not fit this tool's parameters. Read its description and call it again."
_NAMES_TOLD_MAX: Final = 64
"""A model has the list of its tools in front of it already."""


def _misfit(held: HeldCall, offered: tuple[str, ...]) -> tuple[Item, Item]:
    """Under the name that the model used."""
    call = {"type": "function_call", "call_id": held.call_id, "name": held.original.name, "arguments": held.arguments}
    output = _complaint(held, offered)
    return call, {"type": "function_call_output", "call_id": held.call_id, "output": output}


def _complaint(held: HeldCall, offered: tuple[str, ...]) -> str:
    if held.original.type == NOT_OFFERED:
        return _no_such_tool(offered)
    return _MISFIT if is_json(held.arguments) else _NO_JSON


def _no_such_tool(offered: tuple[str, ...]) -> str:
    if not offered:
        return "There is no such tool: no tool can be called now. Answer in words."
    return f"There is no such tool. These can be called: {', '.join(offered[:_NAMES_TOLD_MAX])}."
