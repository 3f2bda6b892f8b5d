"""The model request of a step: the items before it, in the form of its upstream.

The loop asks with it (``loop/turn.py``), and an operator may look at it afterwards (``sent``): then the items come from the log, up to
the step's beginning, and all else is the same. Only sealed parts stay so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import step_not_found
from moorage.loop import brief, context, decide, truncate, upstream_shell
from moorage.loop.chain import load_chain
from moorage.loop.fold import FoldedState, fold, of_lane
from moorage.loop.lanes import seen_as
from moorage.loop.notes import model_view, reader
from moorage.loop.repetition import is_repeating
from moorage.loop.step_history import StepHistory, unroll
from moorage.loop.team_outputs import HEARD
from moorage.model import reasoning
from moorage.model.base import HOSTED_SHELL, ModelRequest
from moorage.model.catalog import ModelEntry
from moorage.model.tokens import estimate_frame, estimate_item
from moorage.parallel import outweighs, worked
from moorage.runtime import Runtime
from moorage.state import Rent, StepOutcome
from moorage.store import keys
from moorage.store.responses import Snapshot, StoredResponse
from moorage.tools.lowering import LoweredInput, lower, without_calls_of_programs
from moorage.tools.registry import ROOMS
from moorage.tools.shell.sequential import one_command
from moorage.wire.operator_answers import StepPrompt
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item

_TOLD: Final = (
    "tool_choice", "parallel_tool_calls", "max_output_tokens", "temperature", "top_p", "top_logprobs", "text", "reasoning",
    "service_tier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user",
)  # fmt: skip
"""Parameters that go to the upstream; the others tell the loop what to do."""

_DATA_CHARS_SHOWN: Final = 64
"""Of the content of a file or a picture."""


@dataclass(frozen=True, slots=True)
class StepPosition:
    """The start of a step, or of a turn of it."""

    step: int
    next_index: int = 0
    usage: TokenUsage = TokenUsage()
    calls_made: int = 0
    service_tier: str | None = None
    rent: Rent | None = None

    @classmethod
    def after(cls, outcome: StepOutcome, step: int) -> "StepPosition":
        return cls(step, outcome.next_index, outcome.usage, outcome.calls_made, outcome.service_tier, outcome.rent)


def for_a_last_answer(stored: StoredResponse, before: StepOutcome) -> StoredResponse:
    """The response as one that has made all its calls: the model is offered none, and its calls are refused."""
    return replace(stored, parameters=replace(stored.parameters, max_tool_calls=before.calls_made))


@dataclass(frozen=True, slots=True)
class Prompt:
    runtime: Runtime
    stored: StoredResponse
    position: StepPosition
    entry: ModelEntry
    native_tools: frozenset[str]
    keeps_tools: bool = False
    """Some servers refuse messages with calls where no tools are offered: they are told of the tools, and that none may be called."""

    async def lowered(self, before: Sequence[Item], *, is_opened: bool = True) -> LoweredInput:
        """The input in the upstream's words, shortened if the request allows that. ``is_opened``: with the reasoning that only
        the upstream may read.

        Raises :class:`~moorage.errors.UpstreamError` when it cannot fit the model."""
        parameters, tenant_id = self.stored.parameters, self.stored.tenant_id
        choice = decide.tool_choice_of(
            parameters.tool_choice,
            step=self.position.step,
            calls_made=self.position.calls_made,
            max_tool_calls=parameters.max_tool_calls,
        )
        wants_words = self.wants_words(before)
        if wants_words:
            choice = "none"
        shown = await self.runtime.stores.contents_of(tenant_id).pictured(without_calls_of_programs(before))
        async with self.runtime.attachments(tenant_id, self.entry) as read:
            resolved = await self.runtime.inputs.resolve(
                tenant_id, shown, has_container=self.stored.container_id is not None, attachments=read
            )
        if HOSTED_SHELL in self.native_tools:
            resolved = await upstream_shell.with_own_containers(self.runtime.stores, tenant_id, resolved)
        if is_opened:
            open_sealed = partial(self.runtime.stores.sealer.open, tenant_id)
            resolved = [reasoning.opened(item, open_sealed) for item in resolved]

        tools = parameters.tools if self.stored.agent is None else (*parameters.tools, brief.TOOL)

        def fitted() -> LoweredInput:
            fitting = truncate.fit(
                resolved,
                frame_tokens=estimate_frame(parameters.instructions, tools),
                window_tokens=self.entry.context_window_tokens,
                output_tokens=parameters.max_output_tokens,
                is_auto=parameters.truncation == "auto",
            )
            return lower(
                tuple(fitting),
                tools,
                choice,
                self.native_tools,
                programs=self.stored.programs,
                given=self.stored.given,
                view=self.entry.view,
            )

        is_long = outweighs([*resolved, *tools], limits.LOWERED_HERE_MAX)
        lowered = await worked(fitted) if is_long else fitted()
        if self.entry.is_shell_sequential:
            lowered = one_command(lowered)
        return replace(lowered, tools=(), names={}) if wants_words and not self.keeps_tools else lowered

    def wants_words(self, before: Sequence[Item]) -> bool:
        """Whether the model is to answer now, and no tool is offered to it: it may make no more calls, or repeats the same ones.
        Small models go on calling offered tools; larger ones are left their tools, and their cached prefix.
        """
        most = self.stored.parameters.max_tool_calls
        has_no_calls_left = most is not None and self.position.calls_made >= most
        return self.entry.is_generic and self.position.step > 0 and (has_no_calls_left or is_repeating(before))

    def request(self, lowered: LoweredInput) -> ModelRequest:
        parameters = self.stored.parameters
        ceiling = parameters.max_output_tokens
        return ModelRequest.of(
            parameters,
            model=self.entry.upstream_model,
            items=lowered.items,
            tools=lowered.tools,
            tool_choice=lowered.tool_choice,
            max_output_tokens=None if ceiling is None else ceiling - self.position.usage.output_tokens,
            has_container=self.stored.container_id is not None,
        )


# --- afterwards -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """The request of a model step at its beginning. Finished items of a run that broke off were added behind it."""

    step: StepHistory
    request: ModelRequest

    def to_json(self) -> StepPrompt:
        request, usage = self.request, self.step.usage
        return {
            "id": self.step.id,
            "object": "response.prompt",
            "step": self.step.step,
            "model": request.model,
            "instructions": request.instructions,
            "tools": list(request.tools),
            "parameters": {name: value for name in _TOLD if (value := getattr(request, name)) is not None},
            "input": [_shown(item) for item in request.items],
            "estimated_tokens": {
                "frame": estimate_frame(request.instructions, request.tools),
                "input": [estimate_item(item) for item in request.items],
            },
            "usage": None if usage is None else usage.to_json(),
        }


async def sent(runtime: Runtime, snapshot: Snapshot, step_id: str) -> SentPrompt:
    """Raises 404 for a step that asked no model, and if the model is not there any more."""
    stores = runtime.stores
    stored = snapshot.stored
    steps = await unroll(runtime, snapshot)
    step = next((each for each in steps if each.id == step_id and each.call_id is None), None)
    if step is None or step.usage == TokenUsage():
        raise step_not_found(step_id)
    stored = await seen_as(stores, stored, keys.lane_of(step.step))
    first = stored.lane * limits.LANE_STEPS
    accounts = await stores.steps.accounts(stored.tenant_id, stored.response_id, since=first)
    outcomes = {each.step: each.outcome for each in accounts if each.call_id is None and each.outcome is not None}
    before = outcomes.get(step.step - 1)
    position = StepPosition(first) if before is None else StepPosition.after(before, step.step)
    following = outcomes.get(step.step)
    if before is not None and any(each.is_last_answer for each in accounts if (each.step, each.call_id) == (step.step, None)):
        stored = for_a_last_answer(stored, before)
    batches = await stores.responses.log_of(stored).read_from(0)
    log = fold(of_lane(batches, None if stored.agent is None else stored.lane)[0])
    made = _made_before(log, position.next_index, None if following is None else following.next_index)
    said = [*brief.of(stored), *await load_chain(stores, stored), *stored.input_items, *context.own_items(made)]
    entry = runtime.models.catalog.resolve(stored.parameters.model)
    prompt = Prompt(runtime, stored, position, entry, runtime.models.catalog.provider(entry, runtime.models.http).native_tools)
    lowered = await prompt.lowered(await model_view(said, reader(stores, stored.tenant_id)), is_opened=False)
    return SentPrompt(step, prompt.request(lowered))


def _made_before(log: FoldedState, first: int, following: int | None) -> Mapping[int, Item]:
    """The response's output before a step's model was asked, by output index: that of the steps before it (they have ended at
    ``first``), and the items that the step has put in front of its model.
    """
    own = sorted(index for index in log.items if index >= first and (following is None or index < following))
    put = max([*_put_in_front(log, own), *(index for index in own if log.items[index]["type"] == "compaction")], default=-1)
    return {index: item for index, item in log.items.items() if index in log.done and (index < first or index <= put)}


def _put_in_front(log: FoldedState, own: Sequence[int]) -> Iterator[int]:
    for index in own:
        item = log.items[index]
        if item["type"] in HEARD:
            yield index
            continue
        room = ROOMS.of_item(item["type"])
        is_call = room is not None and item["type"] == room.call_type
        if item.get("approval_request_id") is None and (is_call or not truncate.stays(item)):
            return
        yield index


def _shown(value: Any) -> Any:
    """The content of files and pictures is left out; the model was sent it."""
    match value:
        case dict():
            return {name: _shown(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_shown(inner) for inner in value]
        case str() if value.startswith("data:") and len(value) > _DATA_CHARS_SHOWN:
            return f"{value[:_DATA_CHARS_SHOWN]}... ({len(value)} characters)"
        case _:
            return value
