"""Requests that come twice run once.

With ``Idempotency-Key`` the client says so: for a day the key belongs to the first request of its tenant that brought it. A repeat gets
the same response (attached to while it runs), or the same answer. Another body under the same key is refused.

The SDKs send no key when they try again by themselves after a time-out, but they count their tries (``x-stainless-retry-count``). A
response with a broken connection and running commands leaves a note. The first retry with the same body takes it, and goes on with that
response. Other work is stopped when its client goes, so there the retry may begin anew. If this process cannot see the client go (on
AWS the gateway keeps that to itself), only a key helps.
"""

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage import large_bodies, limits
from moorage.api.answers import JsonResponse
from moorage.api.caller import Caller
from moorage.dataclass import dataclass
from moorage.errors import (
    ApiError,
    bad_request,
    idempotency_key_gone,
    idempotency_key_pending,
    idempotency_key_reused,
)
from moorage.parallel import beside
from moorage.runtime import Runtime
from moorage.store.idempotency_keys import IdempotencyClaim, IdempotencyKeys
from moorage.store.responses import Snapshot, StoredResponse
from moorage.store.table import TABLE_ERRORS
from moorage.telemetry import tell_error

KEY_HEADER: Final = "idempotency-key"
_RETRY_HEADER: Final = "x-stainless-retry-count"
_REPLAYED: Final = "idempotency-replayed"
_OWN_WAYS: Final = re.compile(r"/v1/(responses(/[^/]+/fork)?|chat/completions)")
"""Routes whose answers are found by their response."""
_STREAMS: Final = re.compile(r"/v1/agents/sessions")
"""A route whose answer may be a stream, which is found by what the request has made."""
_TELLS: Final = re.compile(r"/v1/agents/sessions/[^/]+/events")
"""A route that can tell what a request with a key has done whose process died: what it writes bears a mark of the key."""
MARK: Final = "repeat_mark"
SINCE: Final = "repeat_since"
"""What such a route finds in its state: the mark, and when the key was claimed by a request that was not answered."""
MADE: Final = "made"
"""In the state of a request that is answered by a stream: the id of what it has made, or of what the first request with its key has
made. The stream of that can be told again, however often it was cut."""
_BOUNDARY: Final = re.compile(r'boundary="?([^";,]+)', re.IGNORECASE)


def key_of(headers: Headers) -> str | None:
    """Raises :class:`ApiError` for a key that cannot be one."""
    key = headers.get(KEY_HEADER)
    if key is None:
        return None
    if not 0 < len(key) <= limits.IDEMPOTENCY_KEY_CHARS_MAX:
        raise bad_request(f"The header 'Idempotency-Key' has 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} characters.")
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True)
class IdempotentCreate:
    """One request for a response, and its state shared with its repeats."""

    runtime: Runtime
    repeats: IdempotencyKeys
    tenant_id: str
    request_id: str
    api_key: str
    """Its digest."""
    digest: str
    """Of the request; empty if its client cannot come back."""
    key: str | None
    retry_count: int | None
    """None for a client that does not count."""

    @classmethod
    async def of(cls, request: Request, caller: Caller, body: bytes) -> "IdempotentCreate":
        runtime = caller.runtime
        key, count = key_of(request.headers), request.headers.get(_RETRY_HEADER, "")
        retry_count = int(count) if count.isdecimal() and len(count) < 4 else None  # A header may hold a raised digit.
        digest = ""
        if key is not None or retry_count is not None:
            told = hashlib.sha256(f"{request.url.path}\n".encode())
            await beside(len(body), partial(told.update, body))
            digest = told.hexdigest()
        return cls(
            runtime,
            IdempotencyKeys(runtime.stores.table, runtime.clock),
            caller.tenant_id,
            request.state.request_id,
            request.state.key_digest,
            digest,
            key,
            retry_count,
        )

    @property
    def outlives_client(self) -> bool:
        """A repeat will ask for this one's result, so it goes on without its client."""
        return self.key is not None

    @property
    def may_return(self) -> bool:
        """Its client can come back for the response."""
        return self.key is not None or self.retry_count is not None

    @cached_property
    def _note(self) -> str:
        """The identity of a retry without a key: the request, and the API key that sent it."""
        return hashlib.sha256(f"{self.api_key} {self.digest}".encode()).hexdigest()

    async def earlier(self) -> Snapshot | None:
        """The response of an earlier attempt, if there is one to go on with. Raises :class:`ApiError`."""
        if self.key is not None:
            claim = await self._claimed(self.key)
            return None if claim is None else await self._of_claim(claim)
        if self.retry_count:
            response_id = await self._adopted()
            return None if response_id is None else await self._snapshot(response_id)
        return None

    async def _claimed(self, key: str) -> IdempotencyClaim | None:
        """The claim of an earlier request.

        An unstored response may have been answered before its claim says so: while its answer is being stored here, the retry waits.
        """
        until = asyncio.get_running_loop().time() + limits.RETRY_NOTE_SECONDS
        while (claim := await self.repeats.find(self.tenant_id, key)) is not None and not claim.is_stored and not claim.has_ended:
            if not self.runtime.process.attempts[self._note] or asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(limits.RETRY_NOTE_POLL_SECONDS)
        return claim

    async def _adopted(self) -> str | None:
        """The response of an attempt that lost its connection.

        A retry may be here before it was seen to break: while the same request is being answered here, its note is waited for; longer
        if the break was seen, because then the note is on its way.
        """
        began = asyncio.get_running_loop().time()
        while (response_id := await self.repeats.adopt(self.tenant_id, self._note)) is None:
            is_left = self.runtime.process.farewells[self._note] > 0
            patience = limits.RETRY_FAREWELL_SECONDS if is_left else limits.RETRY_NOTE_SECONDS
            if not self.runtime.process.attempts[self._note] or asyncio.get_running_loop().time() - began > patience:
                return None
            await asyncio.sleep(limits.RETRY_NOTE_POLL_SECONDS)
        return response_id

    def entered(self) -> None:
        """Its answer begins; :meth:`left` follows."""
        self.runtime.process.attempts[self._note] += 1

    async def begin(self, stored: StoredResponse) -> Snapshot | None:
        """Claim the key for this response. It must not run if another one has the key: that one is the answer."""
        if self.key is None:
            return None
        other = await self.repeats.claim(self.tenant_id, self.key, self._claim(stored))
        if other is None:
            return None
        snapshot = await self._of_claim(other)
        return await self.begin(stored) if snapshot is None else snapshot

    async def left(self, stored: StoredResponse, *, has_ended: bool, is_handed_over: Awaitable[bool]) -> None:
        """The connection is over; ``is_handed_over`` may not be known yet."""
        self.runtime.process.farewells[self._note] += 1
        try:
            await self._note_end(stored, has_ended=has_ended, is_handed_over=await is_handed_over)
        finally:
            for counted in (self.runtime.process.attempts, self.runtime.process.farewells):
                counted[self._note] -= 1
                if not counted[self._note]:
                    del counted[self._note]

    async def _note_end(self, stored: StoredResponse, *, has_ended: bool, is_handed_over: bool) -> None:
        if self.key is not None:
            if not stored.is_stored and has_ended:
                await self.repeats.settle(self.tenant_id, self.key, replace(self._claim(stored), has_ended=True))
            elif not stored.is_stored and not is_handed_over:
                await self.repeats.release(self.tenant_id, self.key, self._claim(stored))
        elif self.retry_count is not None and not has_ended and is_handed_over:
            await self.repeats.leave(self.tenant_id, self._note, stored.response_id)

    async def _of_claim(self, claim: IdempotencyClaim) -> Snapshot | None:
        """The response of the request that has the key. None if nothing came of it: the key is free again."""
        assert self.key is not None
        if claim.digest != self.digest or claim.response_id is None:
            raise idempotency_key_reused()
        snapshot = await self._snapshot(claim.response_id)
        if snapshot is not None and not _came_to_nothing(snapshot):
            return snapshot
        age = abs(self.runtime.clock() - claim.claimed_at)  # The clock may have been set back since.
        if snapshot is None and not claim.is_stored and (claim.has_ended or age > limits.RESPONSE_SECONDS_MAX):
            raise idempotency_key_gone()
        if snapshot is None and (not claim.is_stored or age < limits.REPEAT_PENDING_SECONDS):
            raise idempotency_key_pending()
        await self.repeats.release(self.tenant_id, self.key, claim)
        return None

    async def _snapshot(self, response_id: str) -> Snapshot | None:
        try:
            return await self.runtime.stores.responses.snapshot(self.tenant_id, response_id)
        except ApiError:
            return None

    def _claim(self, stored: StoredResponse) -> IdempotencyClaim:
        return IdempotencyClaim(
            self.request_id, int(self.runtime.clock()), self.digest, response_id=stored.response_id, is_stored=stored.is_stored
        )


def _came_to_nothing(snapshot: Snapshot) -> bool:
    """A response that failed before its first output was answered as an error, so that clients try again."""
    return snapshot.is_final and snapshot.final_object["status"] == "failed" and not snapshot.final_object["output"]


class IdempotentRequests:
    """``Idempotency-Key`` for all other requests that create: the first answer is kept and given again."""

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._repeats = IdempotencyKeys(runtime.stores.table, runtime.clock)
        self._clock = runtime.clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = scope["type"] != "http" or scope["method"] != "POST" or _OWN_WAYS.fullmatch(scope["path"]) is not None
        headers = Headers(scope=scope)
        if is_own or KEY_HEADER not in headers:
            await self._app(scope, receive, send)
            return
        try:
            answer = await self._answer(scope, receive, send, headers)
        except ApiError as error:
            answer = JsonResponse(error.envelope(), status_code=error.status, headers=error.headers)
        if answer is not None:
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> Response | None:
        """The answer of another request with this key; None if this one is the first, and has been answered."""
        tenant_id, key = scope["state"]["tenant_id"], key_of(headers)
        assert key is not None
        claim = IdempotencyClaim(scope["state"]["request_id"], int(self._clock()))
        other = await self._repeats.claim(tenant_id, key, claim)
        tells = _TELLS.fullmatch(scope["path"]) is not None
        if tells:
            scope["state"][MARK] = key
            if other is not None and self._is_dead(other):
                receive = await _of_the_same(other, scope, headers, receive)
                scope["state"][SINCE] = min(other.claimed_at, int(self._clock()))  # The clock may have been set back since.
                await self._repeats.release(tenant_id, key, other)
                other = await self._repeats.claim(tenant_id, key, claim)
        digest = _RequestDigest.of(scope, headers)
        if other is not None and other.response_id is not None and _STREAMS.fullmatch(scope["path"]) is not None:
            receive = await _of_the_same(other, scope, headers, receive)
            scope["state"][MADE] = other.response_id
            await self._app(scope, receive, send)
            return None
        if other is not None:
            return await self._again(other, digest, receive)
        kept = _StoredAnswer()
        is_noted = False

        async def note_digest() -> None:
            await self._repeats.settle(tenant_id, key, replace(claim, digest=digest.value()))

        async def note_made() -> None:
            nonlocal is_noted
            if is_noted or MADE not in scope["state"]:
                return
            is_noted = True
            made = replace(claim, digest=digest.value(), response_id=scope["state"][MADE])
            try:
                await self._repeats.settle(tenant_id, key, made)
            except (ApiError, *TABLE_ERRORS) as error:  # It is made: a repeat hears that the key is pending.
                tell_error(error, "what a request with a key has made was not noted", tenant_id=tenant_id)

        try:
            await self._app(scope, digest.read_from(receive, note_digest if tells else None), kept.sending(send, note_made))
        finally:
            try:
                if MADE in scope["state"]:
                    await note_made()  # Its stream may have failed before it began.
                elif kept.last is not None and kept.status < 400:
                    answer = replace(claim, digest=digest.value(), status=kept.status, content_type=kept.content_type, body=kept.body)
                    await self._repeats.settle(tenant_id, key, answer)
                elif not tells or 0 < kept.status < 500:  # Of others nobody knows what was written before they failed.
                    await self._repeats.release(tenant_id, key, claim)
            except (ApiError, *TABLE_ERRORS) as error:
                if kept.last is None:
                    raise
                # The client has its status by now: a repeat hears that the key is pending.
                tell_error(error, "an answer to a request with a key was not kept", tenant_id=tenant_id)
            finally:
                if kept.last is not None:
                    await send(kept.last)
        return None

    def _is_dead(self, other: IdempotencyClaim) -> bool:
        """Whether the process that answers another request must have died. A claim from the future is older than a clock that was set
        back."""
        is_pending = not other.status and other.response_id is None
        return is_pending and abs(self._clock() - other.claimed_at) >= limits.REPEAT_PENDING_SECONDS

    async def _again(self, other: IdempotencyClaim, digest: "_RequestDigest", receive: Receive) -> Response:
        read = digest.read_from(receive)
        while (message := await read())["type"] == "http.request" and message.get("more_body"):
            pass
        if not other.status:
            raise idempotency_key_pending() if other.response_id is None else idempotency_key_reused()
        if other.digest != digest.value():
            raise idempotency_key_reused()
        if not other.body:
            raise idempotency_key_gone()
        headers = {"content-type": other.content_type, _REPLAYED: "true"}
        return Response(other.body, status_code=other.status, headers=headers)


async def _of_the_same(other: IdempotencyClaim, scope: Scope, headers: Headers, receive: Receive) -> Receive:
    """The repeated request, if the process of the first one has died. A request with an incomplete body has done nothing."""
    if not other.digest:
        return receive
    digest, messages, size = _RequestDigest.of(scope, headers), deque[Message](), 0
    read = digest.read_from(receive)
    while not messages or (messages[-1].get("more_body") and size <= limits.REQUEST_BODY_BYTES_MAX):
        messages.append(await read())
        size += len(messages[-1].get("body", b""))
        await large_bodies.counted(len(messages[-1].get("body", b"")))
    if digest.value() != other.digest:
        raise idempotency_key_reused()

    async def again() -> Message:
        return messages.popleft() if messages else await receive()

    return again


class _RequestDigest:
    """Of a request, while its body is read. A form's boundary is left out: clients draw a new one for each try."""

    def __init__(self, told: bytes, boundary: bytes) -> None:
        self._hash = hashlib.sha256(told)
        self._boundary = boundary
        self._tail = b""

    @classmethod
    def of(cls, scope: Scope, headers: Headers) -> "_RequestDigest":
        kind = headers.get("content-type", "")
        boundary = _BOUNDARY.search(kind) if kind.lower().startswith("multipart/") else None
        told = f"{scope['path']}?{scope['query_string'].decode('latin-1')}\n"
        return cls(told.encode(), boundary[1].encode() if boundary else b"")

    def read_from(self, receive: Receive, when_whole: Callable[[], Awaitable[None]] | None = None) -> Receive:
        async def read() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._update(message.get("body", b""))
                if when_whole is not None and not message.get("more_body"):
                    await when_whole()
            return message

        return read

    def _update(self, piece: bytes) -> None:
        if not self._boundary:
            self._hash.update(piece)
            return
        text = (self._tail + piece).replace(self._boundary, b"")
        held = len(self._boundary) - 1
        self._hash.update(text[:-held])
        self._tail = text[-held:]

    def value(self) -> str:
        whole = self._hash.copy()
        whole.update(self._tail)
        return whole.hexdigest()


class _StoredAnswer:
    """An answer on its way out. Its last piece goes when it is stored: a client that has it may repeat the request at once."""

    def __init__(self) -> None:
        self.status = 0
        self.content_type = ""
        self.body = b""
        """Empty if it is too long to be kept."""
        self.last: Message | None = None
        self._size = 0

    def sending(self, send: Send, when_begun: Callable[[], Awaitable[None]]) -> Callable[[Message], Awaitable[None]]:
        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                await when_begun()
                self.status = message["status"]
                self.content_type = Headers(raw=message["headers"]).get("content-type", "application/json")
            elif message["type"] == "http.response.body":
                self._add(message.get("body", b""))
                if not message.get("more_body"):
                    self.last = message
                    return
            await send(message)

        return keep

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        self.body = self.body + piece if self._size <= limits.IDEMPOTENCY_ANSWER_BYTES_MAX else b""
