"""``/v1/responses``: create, retrieve, delete, cancel, list input items."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from moorage import limits
from moorage.api import sse
from moorage.api.answers import JsonResponse
from moorage.api.bodies import read_body
from moorage.api.foreground import Foreground, erase, failure
from moorage.api.view import View
from moorage.errors import bad_request, server_error
from moorage.loop import finish, recover, tool_step
from moorage.loop.create import Prepared, prepare, start_background, start_sandbox
from moorage.runtime import Runtime
from moorage.store.responses import Snapshot
from moorage.wire.queries import parse_page, parse_retrieval
from moorage.wire.requests import parse_create
from moorage.wire.responses import deleted, list_object, listed_item

router = APIRouter()

@router.post("/responses")
async def create(request: Request) -> Response:
    runtime: Runtime = request.app.state.runtime
    wanted = parse_create(await read_body(request), web_search=runtime.settings.web_search)
    prepared = await prepare(runtime, request.state.tenant_id, wanted)
    request.state.response_id = prepared.stored.response_id
    headers = {"x-moorage-notice": " ".join(wanted.notices)} if wanted.notices else {}
    view = View.of(wanted.include, include_obfuscation=wanted.include_obfuscation)
    if wanted.background:
        return await _create_in_background(runtime, prepared, view, headers)
    run = Foreground(runtime, prepared)
    if wanted.stream:
        return sse.stream(_chunks(run, view), headers)
    return await _answer(run, view, headers)


async def _create_in_background(
    runtime: Runtime, prepared: Prepared, view: View, headers: dict[str, str]
) -> Response:
    queued = await start_background(runtime, prepared)
    sandbox = start_sandbox(runtime, prepared.stored)
    if sandbox is not None:
        runtime.keep(sandbox)
    if prepared.is_streamed:
        log = runtime.responses.log_of(prepared.stored)
        return sse.stream(sse.tail(log, -1, view), headers)
    return JsonResponse(queued, headers=headers)


async def _chunks(run: Foreground, view: View) -> AsyncIterator[bytes]:
    async with aclosing(run.batches()) as batches:
        async for events in batches:
            yield sse.encode(events, view) if events else sse.KEEP_ALIVE


async def _answer(run: Foreground, view: View, headers: dict[str, str]) -> Response:
    """The response object when it has ended. After a minute of silence the body begins with white space, which JSON allows, so that
    no idle limit on the way cuts the connection."""
    task = asyncio.create_task(run.final())
    done, _ = await asyncio.wait({task}, timeout=limits.JSON_SILENCE_SECONDS)
    if not done:
        return StreamingResponse(_patiently(task, view), media_type="application/json", headers=headers)
    try:
        response = await task
    except Exception as error:
        if run.is_handed_over:
            # The SDKs send a request that met a 500 again. This one goes on by itself, and its commands must not run twice.
            raise server_error("The connection to the running response was lost.", is_retryable=False) from error
        raise
    if response["status"] == "failed" and not response["output"]:
        raise failure(response["error"]["code"], response["error"]["message"])
    return JsonResponse(view.response(response), headers=headers)


async def _patiently(task: asyncio.Task[dict[str, Any]], view: View) -> AsyncIterator[bytes]:
    try:
        while not task.done():
            yield b" "
            await asyncio.wait({task}, timeout=limits.KEEP_ALIVE_SECONDS)
        yield bytes(JsonResponse(view.response(await task)).body)
    finally:
        task.cancel()


@router.get("/responses/{response_id}")
async def retrieve(request: Request, response_id: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    retrieval = parse_retrieval(request.query_params.multi_items())
    snapshot = await _snapshot(runtime, request.state.tenant_id, response_id)
    view = View.of(
        (*retrieval.include, *snapshot.stored.request["include"]), include_obfuscation=retrieval.include_obfuscation
    )
    if not retrieval.stream:
        return JsonResponse(view.response(await current_object(runtime, snapshot)))
    after = -1 if retrieval.starting_after is None else retrieval.starting_after
    log = runtime.responses.log_of(snapshot.stored)
    if snapshot.last is not None and snapshot.is_final and after >= snapshot.last.following - 1:
        raise bad_request(
            f"The response ended with event {snapshot.last.following - 1}: nothing comes after {after}.", param="starting_after"
        )
    return sse.stream(sse.tail(log, after, view))


async def _snapshot(runtime: Runtime, tenant_id: str, response_id: str) -> Snapshot:
    snapshot = await runtime.responses.snapshot(tenant_id, response_id)
    return await recover.declare_lost(runtime, snapshot)


async def current_object(runtime: Runtime, snapshot: Snapshot) -> dict[str, Any]:
    """The response as it stands: the final event's object, or what its finished items come to."""
    if snapshot.is_final:
        return snapshot.final_object
    stored = snapshot.stored
    is_queued = snapshot.last is not None and snapshot.last.events[-1]["type"] == "response.queued"
    done = await runtime.responses.done_items(stored)
    return finish.object_of(
        stored,
        status="queued" if is_queued else "in_progress",
        now=int(runtime.clock()),
        output=[done[index] for index in sorted(done)],
    )


@router.delete("/responses/{response_id}")
async def delete(request: Request, response_id: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    tenant_id: str = request.state.tenant_id
    snapshot = await runtime.responses.snapshot(tenant_id, response_id)
    if not snapshot.is_final:
        await _stop(runtime, snapshot)
    await erase(runtime, snapshot.stored)
    return JsonResponse(deleted(response_id, "response"))


@router.post("/responses/{response_id}/cancel")
async def cancel(request: Request, response_id: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    snapshot = await runtime.responses.snapshot(request.state.tenant_id, response_id)
    if not snapshot.stored.is_background:
        raise bad_request("Cannot cancel a synchronous response.")
    view = View.of(snapshot.stored.request["include"])
    if snapshot.is_final:
        return JsonResponse(view.response(snapshot.final_object))
    return JsonResponse(view.response(await _stop(runtime, snapshot)))


async def _stop(runtime: Runtime, snapshot: Snapshot) -> dict[str, Any]:
    """Flag it, kill what runs, write the end, stop the execution: each works without the next."""
    stored = snapshot.stored
    await runtime.responses.request_cancel(stored)
    if snapshot.last is not None:
        await tool_step.kill_running(runtime, stored, snapshot.last.writer.step)
    ended = await finish.end_from_outside(runtime, stored, status="cancelled")
    if stored.is_looping:
        await runtime.executions.stop(stored.execution)
    return ended


@router.get("/responses/{response_id}/input_items")
async def input_items(request: Request, response_id: str) -> Response:
    """The items of the request, and those of the responses before it, newest first unless asked otherwise."""
    runtime: Runtime = request.app.state.runtime
    page = parse_page(request.query_params.multi_items())
    snapshot = await runtime.responses.snapshot(request.state.tenant_id, response_id)
    items = list(snapshot.stored.input_items)
    if page.order == "desc":
        items.reverse()
    if page.after is not None:
        at = next((i for i, item in enumerate(items) if item["id"] == page.after), None)
        if at is None:
            raise bad_request(f"No item with id '{page.after}' in this list.", param="after")
        items = items[at + 1 :]
    shown = [listed_item(item, page.include) for item in items[: page.limit]]
    return JsonResponse(list_object(shown, has_more=len(items) > page.limit))
