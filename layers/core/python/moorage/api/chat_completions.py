"""``POST /v1/chat/completions``: for clients that know only the older protocol.

The request becomes one for a response that is not stored (``wire/chat.py``) and goes the same way: same models, keys, limits and tools.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

from fastapi import Request
from starlette.responses import Response

from moorage.api import sse
from moorage.api.answers import BodyPiece
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.foreground import AttachedStream, Foreground, failure
from moorage.api.idempotency import IdempotentCreate
from moorage.api.responses import CreateAnswer, until_of
from moorage.api.routing import EVENTS, Router
from moorage.errors import ApiError
from moorage.loop.budget import draw_last
from moorage.loop.create import prepare
from moorage.parallel import beside
from moorage.wire.chat import ChatRequest, in_our_names, parse_chat
from moorage.wire.chat_answers import Chunks, completion
from moorage.wire.events import CREATED, IN_PROGRESS, QUEUED, one_line
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Event

router = Router()

_KEEP_ALIVE: Final = b": keep-alive\n\n"
_DONE: Final = b"data: [DONE]\n\n"
_OPENINGS: Final = frozenset({CREATED, QUEUED, IN_PROGRESS})


@router.post(
    "/chat/completions",
    "createChatCompletion",
    "Ask a model in the older protocol",
    answers="ChatCompletion",
    sends=EVENTS,
    body="CreateChatCompletion",
    statuses=(404, 502, 503),
)
async def create(request: Request, caller: Caller, body: RawBody) -> Response:
    runtime = caller.runtime
    until = until_of(runtime.settings)
    wanted = await beside(len(body), lambda: parse_chat(body, web_search=runtime.models.web_search))
    notices = wanted.create.notices
    headers = {"x-moorage-notice": " ".join(notices)} if notices else {}
    attempt = await IdempotentCreate.of(request, caller, body)
    earlier = await attempt.earlier()
    if earlier is None:
        try:
            prepared = await prepare(runtime, caller.tenant_id, wanted.create, key_id=caller.key_id, draws_on=caller.draws_on)
        except ApiError as error:
            raise in_our_names(error) from error
        earlier = await attempt.begin(prepared.stored)
        if earlier is not None:
            await draw_last(runtime, prepared.stored, TokenUsage(), 0, ())
    stored = prepared.stored if earlier is None else earlier.stored
    takes_back = wanted.create.is_hosted or not wanted.create.stream
    run = (
        Foreground(runtime, prepared, until=until, attempt=attempt, takes_back=takes_back)
        if earlier is None
        else AttachedStream(attempt, stored, until=until)
    )
    request.state.response_id = stored.response_id
    if wanted.create.stream:
        return await _streamed(run, wanted, headers)
    show = partial(completion, stop=wanted.stop)
    return await CreateAnswer(runtime, stored, run, show, headers, request.receive, shows_failures=False).give()


async def _streamed(run: Foreground | AttachedStream, wanted: ChatRequest, headers: dict[str, str]) -> Response:
    """The stream begins with its first event, so that an immediate failure is an HTTP error, as these clients expect."""
    batches = run.batches()
    begun: list[Event] = []
    async for events in batches:
        begun += events
        if not events or events[-1]["type"] not in _OPENINGS:
            break
    chunks = Chunks(wanted.create.is_hosted, wanted.stop, wanted.includes_usage)
    first = [chunk for event in begun for chunk in chunks.of(event)]
    if chunks.error is not None:
        await batches.aclose()
        error = chunks.error
        raise failure(
            error["code"], error["message"], error.get("param"), run.retry_after_seconds, is_worth_repeating=run.is_worth_repeating
        )
    return sse.stream(_pieces(batches, chunks, first), headers, begins_at_once=True)


async def _pieces(
    batches: AsyncGenerator[list[Event], None], chunks: Chunks, first: list[dict[str, object]]
) -> AsyncGenerator[BodyPiece, None]:
    async with aclosing(batches):
        yield _piece(first, chunks)
        while not chunks.is_over:
            events = await anext(batches, None)
            if events is None:
                break
            yield _piece([chunk for event in events for chunk in chunks.of(event)], chunks)


def _piece(made: list[dict[str, object]], chunks: Chunks) -> BodyPiece:
    lines = [b"data: " + one_line(chunk) + b"\n\n" for chunk in made]
    if chunks.error is not None:
        lines.append(b"data: " + one_line({"error": chunks.error}) + b"\n\n")
    if chunks.is_over:
        lines.append(_DONE)
    return BodyPiece(b"".join(lines) or _KEEP_ALIVE, chunks.is_over)
