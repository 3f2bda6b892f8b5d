"""``/v1/responses/{id}/events``, ``/steps`` and ``/trace``: the log of a response as pages of JSON with its times, its loop, unrolled,
what each of its steps sent to the model, and all of it as OpenTelemetry has it.

Extensions of ours. The stream of a response is OpenAI's and shows no times; these pages do.
"""

from typing import Annotated, cast

from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.api.view import ResponseView
from moorage.errors import response_not_ended
from moorage.loop import prompt, recover
from moorage.loop.step_history import unroll
from moorage.loop.traces import whole_document
from moorage.store.event_log import TimestampedEvent
from moorage.store.listing import part_of
from moorage.wire.answers import Event, ListOf
from moorage.wire.operator_answers import LoggedEvent, ResponseStep, ResponseTrace, StepPrompt
from moorage.wire.queries import LogPage, OldestFirstPage
from moorage.wire.responses import list_object

router = Router()


@router.get(
    "/responses/{response_id}/events",
    "listResponseEvents",
    "The log of a response, with the times of its events, oldest first",
)
async def list_events(caller: Caller, response_id: str, wanted: Annotated[LogPage, query_of(LogPage)]) -> ListOf[LoggedEvent]:
    stored = await caller.runtime.stores.responses.load(caller.tenant_id, response_id)
    view = ResponseView.of({*stored.parameters.include, *wanted.include}, caller.runtime.command, include_obfuscation=False)
    told, going_on = await caller.runtime.stores.responses.log_of(stored).page(
        after=wanted.after, limit=wanted.limit, descending=wanted.order == "desc", types=wanted.types
    )
    contents = caller.runtime.stores.contents_of(caller.tenant_id, view.include)
    whole = [TimestampedEvent(await contents.event(each.event), each.at_ms) for each in told]
    page = list_object([_as_object(each, view) for each in whole], has_more=going_on is not None)
    # Where a filter left out what came last, the place to go on from is none of the page's own.
    return page if going_on is None else {**page, "last_id": str(going_on)}


def _as_object(told: TimestampedEvent, view: ResponseView) -> LoggedEvent:
    return {
        "id": str(told.event["sequence_number"]),
        "object": "response.event",
        "at": told.at_ms,
        "event": cast("Event", view.event(told.event)),
    }


@router.get(
    "/responses/{response_id}/steps",
    "listResponseSteps",
    "The loop of a response, unrolled, and what it waits for",
)
async def list_steps(
    caller: Caller, response_id: str, page: Annotated[OldestFirstPage, query_of(OldestFirstPage)]
) -> ListOf[ResponseStep]:
    snapshot = await recover.declare_lost(caller.runtime, await caller.runtime.stores.responses.snapshot(caller.tenant_id, response_id))
    steps = part_of(await unroll(caller.runtime, snapshot), page, lambda step: step.id)
    return steps.shown(lambda step: step.to_json(caller.runtime.command))


@router.get("/responses/{response_id}/steps/{step_id}/prompt", "retrieveResponsePrompt", "What a model step was sent")
async def retrieve_prompt(caller: Caller, response_id: str, step_id: str) -> StepPrompt:
    snapshot = await caller.runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    sent = await prompt.sent(caller.runtime, snapshot, step_id)
    return sent.to_json()


@router.get(
    "/responses/{response_id}/trace",
    "retrieveResponseTrace",
    "The trace of a response that has ended, as OTLP's JSON",
)
async def retrieve_trace(caller: Caller, response_id: str) -> ResponseTrace:
    snapshot = await caller.runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    if not snapshot.is_final:
        raise response_not_ended(response_id)
    steps = await unroll(caller.runtime, snapshot)
    return cast("ResponseTrace", await whole_document(caller.runtime.settings, snapshot, steps))
