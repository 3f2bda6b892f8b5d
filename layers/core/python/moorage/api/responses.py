"""``/v1/responses``: create, retrieve, delete, cancel, list input items."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from operator import itemgetter
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive

from moorage import limits
from moorage.api import sse
from moorage.api.answers import BodyPiece, JsonResponse, StreamedResponse
from moorage.api.bodies import RawBody, body_of
from moorage.api.caller import Caller
from moorage.api.foreground import AttachedStream, ContinuedStream, Foreground, failure
from moorage.api.idempotency import IdempotentCreate
from moorage.api.queries import query_of
from moorage.api.routing import EVENTS, Router
from moorage.api.view import ResponseView, listed_item
from moorage.approvals.waiting import decide_by_request, notice
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerFileRecord
from moorage.dataclass import dataclass
from moorage.errors import ApiError, bad_request, server_error
from moorage.files.store import Clock
from moorage.loop import finish, paused, recover
from moorage.loop.budget import check_budget, draw_last
from moorage.loop.create import PreparedResponse, prepare, start_background
from moorage.loop.fold import fold
from moorage.loop.past_responses import PastResponse, as_of
from moorage.loop.stop import erase, stop
from moorage.loop.waiting import reason_of
from moorage.parallel import beside
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.store.budgets import Scope
from moorage.store.item_contents import Contents
from moorage.store.listing import part_of
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.telemetry import tell_error
from moorage.webhooks import delivery as webhooks
from moorage.wire.answers import Deleted, Item, ListOf
from moorage.wire.answers import Response as ResponseObject
from moorage.wire.create import CREATE, Budget
from moorage.wire.events import QUEUED
from moorage.wire.queries import PageWithIncludes, Retrieval
from moorage.wire.requests import CreateRequest, parse_create
from moorage.wire.responses import TokenUsage, deleted, list_object

router = Router()

_CLIENT_GONE: Final = 499
"""For the line of the request: nobody reads it."""


@router.post(
    "/responses",
    "createResponse",
    "Ask a model, with or without a computer",
    answers=ResponseObject,
    sends=EVENTS,
    body=("CreateResponse", CREATE),
    statuses=(404, 502, 503),
)
async def create(request: Request, caller: Caller, body: RawBody) -> Response:
    wanted = await beside(len(body), lambda: parse_create(body, web_search=caller.runtime.models.web_search))

    going_on = await decide_by_request(caller.runtime.stores, caller.runtime.clock, caller.tenant_id, caller.key_id, wanted)
    if going_on is not None:
        return await _go_on(request, caller, body, wanted, going_on)

    async def prepared() -> PreparedResponse:
        return await prepare(caller.runtime, caller.tenant_id, wanted, key_id=caller.key_id, draws_on=caller.draws_on)

    return await begin(request, caller, body, wanted, prepared)


async def _go_on(request: Request, caller: Caller, body: bytes, wanted: CreateRequest, decided_on: Snapshot) -> Response:
    """The answer to a request that has decided a waiting response's approval: that response, as its client wants it."""
    runtime, stored = caller.runtime, decided_on.stored
    request.state.response_id = stored.response_id
    said = notice(body)
    view = ResponseView.of(
        (*wanted.include, *stored.parameters.include), runtime.command, include_obfuscation=wanted.include_obfuscation
    )
    form = AnswerForm(request, runtime, view, {"x-moorage-notice": said} if said else {}, until_of(runtime.settings))
    if wanted.stream:
        return form.of_log(stored)
    if wanted.background:
        return await form.of_object(decided_on)
    return await form.of_run(ContinuedStream(runtime.stores, stored, until=form.until), stored)


async def begin(
    request: Request, caller: Caller, body: bytes, wanted: CreateRequest, prepared_by: Callable[[], Awaitable[PreparedResponse]]
) -> Response:
    """Run a new response, unless an earlier attempt of the request has begun it, and answer as its client wants."""
    runtime = caller.runtime
    headers = {"x-moorage-notice": " ".join(wanted.notices)} if wanted.notices else {}
    view = ResponseView.of(wanted.include, runtime.command, include_obfuscation=wanted.include_obfuscation)
    form = AnswerForm(request, runtime, view, headers, until_of(runtime.settings))
    attempt = await IdempotentCreate.of(request, caller, body)
    earlier = await attempt.earlier()
    if earlier is None:
        prepared = await prepared_by()
        earlier = await attempt.begin(prepared.stored)
        if earlier is not None:
            await draw_last(runtime, prepared.stored, TokenUsage(), 0, ())
    if earlier is not None:
        request.state.response_id = earlier.stored.response_id
        return await _give_again(attempt, earlier, form)
    stored = prepared.stored
    request.state.response_id = stored.response_id
    if wanted.background:
        queued = await start_background(runtime.stores, prepared)
        return form.of_log(stored) if prepared.is_streamed else JsonResponse(queued, headers=headers)
    run = Foreground(runtime, prepared, until=form.until, attempt=attempt)
    return form.stream_of(run, stored) if wanted.stream else await form.of_run(run, stored)


async def _give_again(attempt: IdempotentCreate, earlier: Snapshot, form: "AnswerForm") -> Response:
    """The response of an earlier request, as that one asked for it."""
    stored = earlier.stored
    if stored.is_background and not stored.is_streamed:
        return await form.of_object(earlier)
    run = AttachedStream(attempt, stored, until=form.until)
    return form.stream_of(run, stored) if stored.is_streamed else await form.of_run(run, stored)


def until_of(settings: Settings) -> float | None:
    """When (event loop time) the answer to a request that begins now must be over; None for never."""
    seconds = settings.stream_seconds_max
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


async def _pieces(run: Foreground | AttachedStream, view: ResponseView, contents: Contents) -> AsyncGenerator[BodyPiece, None]:
    async with aclosing(run.batches()) as batches:
        async for events in batches:
            yield await sse.encode(events, view, contents)


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A create's answer, as its client asked for it."""

    request: Request
    runtime: Runtime
    view: ResponseView
    headers: dict[str, str]
    until: float | None
    """The end of the answer, in the event loop's time."""

    def of_log(self, stored: StoredResponse) -> Response:
        """A stream of all events, from the log."""
        log, contents = self.runtime.stores.responses.log_of(stored), self._contents(stored)
        return sse.stream(sse.tail(log, -1, self.view, contents, until=self.until), self.headers)

    def stream_of(self, run: Foreground | AttachedStream, stored: StoredResponse) -> Response:
        """A stream of all events, as they come."""
        pieces = _pieces(run, self.view, self._contents(stored))
        return sse.stream(pieces, self.headers, begins_at_once=isinstance(run, Foreground))

    async def of_object(self, snapshot: Snapshot) -> Response:
        """The response object at this moment."""
        response = await current_object(self.runtime.stores, self.runtime.clock, snapshot, self.view.include)
        return JsonResponse(self.view.response(response), headers=self.headers)

    async def of_run(self, run: Foreground | AttachedStream | ContinuedStream, stored: StoredResponse) -> Response:
        """The response object at its end."""
        show, receive = self.view.response, self.request.receive
        return await CreateAnswer(self.runtime, stored, run, show, self.headers, receive, include=self.view.include).give()

    def _contents(self, stored: StoredResponse) -> Contents:
        return self.runtime.stores.contents_of(stored.tenant_id, self.view.include)


@dataclass(frozen=True, slots=True)
class CreateAnswer:
    """The one answer to a create without a stream."""

    runtime: Runtime
    stored: StoredResponse
    run: Foreground | AttachedStream | ContinuedStream
    show: Callable[[dict[str, Any]], dict[str, Any]]
    """The response object as its client is to see it."""
    headers: dict[str, str]
    receive: Receive
    shows_failures: bool = True
    """Whether its protocol has a place for a response that failed after some words: chat completions have none."""
    include: frozenset[str] = frozenset()
    """What its client has asked to include."""

    async def give(self) -> Response:
        """The response object when it has ended. After a silence the body begins with white space, which JSON allows, so that no idle
        limit on the way cuts the connection."""
        task = asyncio.create_task(self._outcome())
        gone = asyncio.create_task(self._client_gone())
        try:
            await asyncio.wait({task, gone}, timeout=self.runtime.settings.json_silence_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not task.done() and gone.done():
            task.cancel()
            return Response(status_code=_CLIENT_GONE)
        if not task.done():
            return StreamedResponse(self._patiently(task), media_type="application/json", headers=self.headers)
        try:
            response = await task
        except Exception as error:
            if self.run.is_handed_over:
                # The SDKs send a request that met a 500 again. This one goes on by itself, and its commands must not run twice.
                raise server_error("The connection to the running response was lost.", is_retryable=False) from error
            raise
        if response["status"] == "failed" and not (self.shows_failures and response["output"]):
            reason = response["error"]
            raise failure(
                reason["code"],
                reason["message"],
                reason["param"],
                self.run.retry_after_seconds,
                is_worth_repeating=self.run.is_worth_repeating,
            )
        return JsonResponse(self.show(response), headers=self.headers)

    async def _client_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _outcome(self) -> dict[str, Any]:
        """The ended response, or how it stands when the time of this request is over and it goes on without it."""
        ended = await self.run.final()
        if ended is not None:
            return await self.runtime.stores.contents_of(self.stored.tenant_id, self.include).response(ended)
        snapshot = await self.runtime.stores.responses.snapshot(self.stored.tenant_id, self.stored.response_id)
        return await current_object(self.runtime.stores, self.runtime.clock, snapshot, self.include)

    async def _patiently(self, task: asyncio.Task[dict[str, Any]]) -> AsyncGenerator[BodyPiece, None]:
        try:
            while not task.done():
                yield BodyPiece(b" ")
                await asyncio.wait({task}, timeout=limits.KEEP_ALIVE_SECONDS)
            yield BodyPiece(orjson.dumps(self.show(await self._outcome_or_failure(task))), is_last=True)
        finally:
            task.cancel()

    async def _outcome_or_failure(self, task: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
        """The status line has gone out: an error from here on is a response that failed."""
        try:
            return await task
        except Exception as error:
            tell_error(error, "a response failed after its answer had begun", response_id=self.stored.response_id)
            reason = finish.error_of(error)
            if self.run.is_handed_over:
                reason = {"code": "server_error", "message": "The connection to the running response was lost. Retrieve it by its id."}
            return finish.object_of(self.stored, status="failed", now=int(self.runtime.clock()), error=reason)


@router.get(
    "/responses/{response_id}",
    "retrieveResponse",
    "A stored response, as it is or as it was at an event, or its stream from an event on",
    answers=ResponseObject,
    sends=EVENTS,
)
async def retrieve(caller: Caller, response_id: str, retrieval: Annotated[Retrieval, query_of(Retrieval)]) -> Response:
    runtime = caller.runtime
    snapshot = await _snapshot(runtime, caller.tenant_id, response_id)
    include = (*retrieval.include, *snapshot.stored.parameters.include)
    view = ResponseView.of(include, runtime.command, include_obfuscation=retrieval.include_obfuscation)
    if retrieval.at is not None:
        return JsonResponse(await as_it_was(runtime, snapshot, retrieval.at, view))
    if not retrieval.stream:
        shown = view.response(await current_object(runtime.stores, runtime.clock, snapshot, view.include))
        session_id = snapshot.stored.session_id
        return JsonResponse(shown if session_id is None else shown | {"session_id": session_id})
    after = -1 if retrieval.starting_after is None else retrieval.starting_after
    log = runtime.stores.responses.log_of(snapshot.stored)
    if snapshot.last is not None and snapshot.is_final and after >= snapshot.last.following - 1:
        raise bad_request(
            f"The response ended with event {snapshot.last.following - 1}: nothing comes after {after}.", param="starting_after"
        )
    contents = runtime.stores.contents_of(caller.tenant_id, view.include)
    return sse.stream(sse.tail(log, after, view, contents, until=until_of(runtime.settings)))


async def _snapshot(runtime: Runtime, tenant_id: str, response_id: str) -> Snapshot:
    snapshot = await runtime.stores.responses.snapshot(tenant_id, response_id)
    return await recover.declare_lost(runtime, snapshot)


async def current_object(stores: Stores, clock: Clock, snapshot: Snapshot, include: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The response as it stands: the final event's object, or what its finished items come to; with its contents, as far as they are
    to be included."""
    return await stores.contents_of(snapshot.stored.tenant_id, include).response(await _standing_object(stores, clock, snapshot))


async def _standing_object(stores: Stores, clock: Clock, snapshot: Snapshot) -> dict[str, Any]:
    if snapshot.is_final:
        return snapshot.final_object
    stored = snapshot.stored
    is_queued = snapshot.last is not None and snapshot.last.events[-1]["type"] == QUEUED
    standing = finish.object_of(
        stored,
        status="queued" if is_queued else "in_progress",
        now=int(clock()),
        output=await _finished_items(stores, stored),
    )
    why = reason_of(stored)
    return standing if why is None else standing | {"waiting_for": why}


async def _finished_items(stores: Stores, stored: StoredResponse) -> list[dict[str, Any]]:
    """Of a response that runs, in output order. The log alone has the order of what the agents of a team have made."""
    if stored.agent is not None:
        folded = fold(await stores.responses.log_of(stored).read_all())
        return [folded.items[index] for index in sorted(folded.done)]
    done = (await stores.steps.read(stored.tenant_id, stored.response_id)).items
    return [done[index] for index in sorted(done)]


@router.delete("/responses/{response_id}", "deleteResponse", "Delete a response", answers=Deleted[Literal["response"]])
async def delete(caller: Caller, response_id: str) -> Response:
    runtime = caller.runtime
    snapshot = await runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    if snapshot.is_final:
        # Nobody could any more if who ended it died before he had.
        await webhooks.announce(runtime, snapshot.stored, webhooks.ResponseEnd.of(snapshot))
    else:
        await stop(runtime, snapshot)
    await erase(runtime.stores, snapshot.stored)
    return JsonResponse(deleted(response_id, "response"))


@router.post("/responses/{response_id}/cancel", "cancelResponse", "Stop a background response", answers=ResponseObject)
async def cancel(caller: Caller, response_id: str) -> Response:
    runtime = caller.runtime
    snapshot = await runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    if not snapshot.stored.is_background:
        raise bad_request("Cannot cancel a synchronous response.")
    view = ResponseView.of(snapshot.stored.parameters.include, runtime.command)
    if snapshot.is_final:
        return JsonResponse(view.response(await current_object(runtime.stores, runtime.clock, snapshot, view.include)))
    stopped = await runtime.stores.contents_of(caller.tenant_id, view.include).response(await stop(runtime, snapshot))
    return JsonResponse(view.response(stopped))


@router.post("/responses/{response_id}/pause", "pauseResponse", "Stop before the next step", answers=ResponseObject)
async def pause(caller: Caller, response_id: str) -> Response:
    """The step that runs comes to its end, and no other begins, until the response may go on."""
    runtime = caller.runtime
    snapshot = await runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    if not snapshot.is_final and not snapshot.stored.is_pause_requested:
        if not snapshot.stored.is_looping:
            raise bad_request("This response takes a single step so far, in answer to its client: there is nothing to pause.")
        await runtime.stores.responses.request_pause(snapshot.stored)
    return await _standing(runtime, caller.tenant_id, response_id)


@router.post("/responses/{response_id}/resume", "resumeResponse", "Go on with a paused response", answers=ResponseObject)
async def resume(caller: Caller, response_id: str) -> Response:
    """A paused response goes on; another is left as it is."""
    runtime = caller.runtime
    snapshot = await runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    if not snapshot.is_final and snapshot.stored.is_pause_requested:
        await paused.resume(runtime.stores, runtime.clock, snapshot.stored)
    return await _standing(runtime, caller.tenant_id, response_id)


@router.post(
    "/responses/{response_id}/budget", "raiseBudget", "Another budget; what stood still for want of it goes on", answers=ResponseObject
)
async def raise_budget(caller: Caller, response_id: str, wanted: Annotated[Budget, body_of(Budget)]) -> Response:
    """Another budget in the place of the old one; a response that stood still for want of it goes on."""
    runtime = caller.runtime
    snapshot = await runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    if snapshot.is_final:
        raise bad_request("The response has ended: its budget is of no use any more.")
    check_budget(runtime.models.catalog, snapshot.stored.parameters.model, wanted)
    tree = Scope("tree", response_id)
    if str(tree) in snapshot.stored.draws_on:
        await runtime.stores.budgets.put(caller.tenant_id, tree, wanted, expires_at=snapshot.stored.expires_at)
        wanted["scope"] = "tree"
    elif wanted.get("scope") == "tree":
        raise bad_request("This response began with a budget of its own: its forks do not draw from it.", param="budget.scope")
    await runtime.stores.responses.set_budget(snapshot.stored, wanted)
    if snapshot.stored.is_pause_requested:
        await paused.resume(runtime.stores, runtime.clock, snapshot.stored)
    return await _standing(runtime, caller.tenant_id, response_id)


async def _standing(runtime: Runtime, tenant_id: str, response_id: str) -> Response:
    snapshot = await runtime.stores.responses.snapshot(tenant_id, response_id)
    view = ResponseView.of(snapshot.stored.parameters.include, runtime.command)
    return JsonResponse(view.response(await current_object(runtime.stores, runtime.clock, snapshot)))


@router.get("/responses/{response_id}/input_items", "listInputItems", "What a response was asked", answers=ListOf[Item])
async def input_items(caller: Caller, response_id: str, page: Annotated[PageWithIncludes, query_of(PageWithIncludes)]) -> Response:
    """The items of the request, and those of the responses before it, newest first unless asked otherwise."""
    snapshot = await caller.runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    items, has_more = part_of(snapshot.stored.input_items, page, itemgetter("id"))
    whole = await caller.runtime.stores.contents_of(caller.tenant_id, frozenset(page.include)).items(items)
    return JsonResponse(list_object([listed_item(item, page.include) for item in whole], has_more=has_more))


async def as_it_was(runtime: Runtime, snapshot: Snapshot, number: int, view: ResponseView) -> dict[str, Any]:
    then = await as_of(runtime, snapshot, number)
    files = await _files(runtime.computers.containers, snapshot, then)
    files_at = None if files is None else then.files_at_ms
    whole = await runtime.stores.contents_of(snapshot.stored.tenant_id, view.include).response(then.response)
    return view.response(whole) | {
        "as_of": {
            "sequence_number": then.number,
            "said_at": then.at_ms,
            "steps": then.steps,
            "usage": then.usage.to_json(),
            "cost_usd": then.cost_usd,
            "boundary": then.boundary.number,
            "container_id": snapshot.stored.container_id,
            "files_at": files_at,
            "files": None if files is None else [_shown(file) for file in files],
        }
    }


async def _files(containers: Containers, snapshot: Snapshot, then: PastResponse) -> list[ContainerFileRecord] | None:
    """None if they are not known (any more), and without a container."""
    container_id = snapshot.stored.container_id
    if container_id is None or then.files_at_ms is None:
        return None
    with suppress(ApiError):  # The container was deleted, or that was too long ago.
        record = await containers.get(snapshot.stored.tenant_id, container_id)
        return await containers.files_at(record, then.files_at_ms)
    return None


def _shown(file: ContainerFileRecord) -> dict[str, Any]:
    return {"id": file.id, "path": file.path, "bytes": file.bytes, "source": file.source, "sha256": file.sha256}
