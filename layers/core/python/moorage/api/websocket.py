"""The WebSocket transport of ``/v1/responses``: the same requests and events, one JSON object a frame.

One connection carries many responses. Frames of one lane (``stream_id``; without it the unnamed one) are answered one after another,
lanes side by side, but only so many at once; the others wait. A response with ``store: false`` can be continued on its connection only,
from memory. A continuation that fails in the parent's lane makes the parent forgotten: clients expect that, and start again with their
whole input. ``response.interrupt``, ``response.steer`` (``running_responses.py``) and ``response.inject`` (``injected_outputs.py``)
reach a response while it runs.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

import orjson
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketDisconnected

from moorage import limits
from moorage.api import injected_outputs
from moorage.api.caller import Caller
from moorage.api.credentials import secret_of, takes_teams
from moorage.api.foreground import Foreground, status_of
from moorage.api.routing import Router
from moorage.api.running_responses import INTERRUPTED, RunningResponse, SteeringInput, required_input, steer_failed
from moorage.api.unstored_responses import UnstoredResponse, UnstoredResponses
from moorage.api.view import ResponseView
from moorage.dataclass import dataclass
from moorage.errors import (
    ApiError,
    MoorageError,
    bad_request,
    invalid_api_key,
    not_found,
    rate_limited,
    server_error,
    too_many_streams,
)
from moorage.loop import context, team
from moorage.loop.create import PreparedResponse, prepare, warm_up
from moorage.loop.model_step import STEERED
from moorage.parallel import Breath, beside
from moorage.runtime import Runtime
from moorage.store.event_log import FINAL_TYPES
from moorage.telemetry import tell_error
from moorage.wire import client_events
from moorage.wire.events import frame as encoded
from moorage.wire.requests import CreateEvent, parse_create_event, parse_stream_id
from moorage.wire.types import Event, Item
from moorage.wire.validation import parse_object

router = Router()
_NORMAL: Final = 1000
_GONE: Final = 1006
_POLICY_VIOLATION: Final = 1008
"""Close codes, RFC 6455 section 7.4.1."""


class _KeyRevoked(MoorageError):
    """The key that opened the connection is none any more."""


class _BadOutputs(MoorageError):
    """A client has sent outputs that cannot be any."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


@router.websocket("/responses")
async def connect(socket: WebSocket, caller: Caller) -> None:
    state, key = socket.app.state, socket.state.key_digest
    with state.websockets.place(key):
        await socket.accept()
        admit = partial(state.rate_limits.admit, key)
        is_known = partial(_is_known, caller, socket)
        await Connection(
            caller.runtime,
            caller.tenant_id,
            socket,
            key_id=caller.key_id,
            draws_on=caller.draws_on,
            admit=admit,
            is_known=is_known,
            takes_outputs=takes_teams(socket.headers),
        ).serve()


async def _is_known(caller: Caller, socket: WebSocket) -> bool:
    """Whether the key that opened the connection still belongs to its tenant: it may have been revoked since."""
    try:
        found = await caller.runtime.identity.caller_of(secret_of(socket.headers))
    except ApiError as error:
        return error.status >= 500  # an issuer that cannot be reached has taken nothing away
    return found is not None and found.tenant_id == caller.tenant_id


@dataclass(frozen=True, slots=True)
class _ReceivedFrame:
    body: dict[str, Any]
    size: int
    """Bytes."""
    stream_id: str | None
    parent: str | None
    """``previous_response_id``."""
    steers: tuple[SteeringInput, ...] = ()
    """Of a successor, which nobody has asked for by a frame: what it begins with."""

    @property
    def type(self) -> Any:
        return self.body.get("type")


class Socket(Protocol):
    """The carrier of the frames: this process's own connection, or one that API Gateway holds (``api/gateway_socket.py``)."""

    async def receive(self) -> Mapping[str, Any]: ...

    async def send_text(self, data: str) -> None: ...

    async def close(self, code: int, reason: str | None = None) -> None: ...


class Connection:
    def __init__(
        self,
        runtime: Runtime,
        tenant_id: str,
        socket: Socket,
        *,
        key_id: str = "",
        draws_on: tuple[str, ...] = (),
        admit: Callable[[int], Awaitable[object]],
        is_known: Callable[[], Awaitable[bool]],
        seconds_max: float = limits.WEBSOCKET_SECONDS_MAX,
        until: float | None = None,
        recent: UnstoredResponses | None = None,
        stream_ids: Iterable[str] = (),
        takes_outputs: bool = False,
    ) -> None:
        """``admit`` is told the bytes of each frame and raises :class:`ApiError` when the key's rate is used up.
        ``is_known`` says whether the key is still one. ``until`` is the end of this process, in the event loop's time; ``recent`` and
        ``stream_ids`` come from its predecessors. With ``takes_outputs`` a team's response stays open for its client.
        """
        self._runtime = runtime
        self._tenant_id = tenant_id
        self._key_id = key_id
        self._draws_on = draws_on
        self._socket = socket
        self._admit = admit
        self._is_known = is_known
        self._seconds_max = seconds_max
        self._until = until
        self._takes_outputs = takes_outputs
        self._recent = recent or UnstoredResponses()
        self._waiting: dict[str | None, deque[_ReceivedFrame]] = {}
        """By lane; a lane is here as long as it is busy."""
        self._places = asyncio.Semaphore(limits.WEBSOCKET_ACTIVE_MAX)
        self._stream_ids: set[str] = set(stream_ids)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[str, RunningResponse] = {}
        """By id."""
        self._ended: deque[str] = deque(maxlen=limits.WEBSOCKET_RECENT_MAX)
        """Ids of responses that have ended on this connection."""

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing waits."""
        return not self._waiting

    @property
    def stream_ids(self) -> frozenset[str]:
        return frozenset(self._stream_ids)

    async def work_on(self, seconds: float) -> None:
        """Wait until a lane has come to its end, or for so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def serve(self) -> None:
        """Answer frames until the client goes away or its time is over.

        Work that still runs then is cancelled, unless the state machine has it: the same as for a client that drops an HTTP stream.
        """
        try:
            async with asyncio.timeout(self._seconds_max):
                await self._receive()
        except _KeyRevoked:
            await self._refuse(invalid_api_key(), None)
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.close(_POLICY_VIOLATION, "The API key was revoked.")
        except TimeoutError:
            await self._close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _receive(self) -> None:
        breath = Breath()
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            await breath.taken()  # One packet may bring thousands of frames.
            text = message.get("text")
            body = message["bytes"] if text is None else text.encode()
            try:
                frame = await beside(len(body), partial(_frame, body))
            except ApiError as error:
                await self._refuse(error, None)
                continue
            if not await self._is_known():
                raise _KeyRevoked
            try:
                await self._admit(len(body))
                client_events.check_type(frame.body)  # At once: what is no request waits for no response.
                if frame.type == client_events.INTERRUPT:
                    self._interrupt(frame)
                elif frame.type == client_events.STEER:
                    await self._steer(frame)
                elif frame.type == client_events.INJECT:
                    await self._inject(frame)
                else:
                    self._enqueue(frame)
            except _BadOutputs as bad:
                await self._refuse(bad.error, frame.stream_id)
                with suppress(WebSocketDisconnect, RuntimeError):
                    await self._socket.close(_POLICY_VIOLATION, "The outputs were no outputs.")
                return
            except ApiError as error:
                await self._refuse(error, frame.stream_id)

    def _enqueue(self, frame: _ReceivedFrame) -> None:
        self._check_room(frame)
        parent = self._running.get(frame.parent or "")
        if parent is not None:
            self._end_outputs(parent)  # Its client goes on from its end, and brings the outputs then.
        if frame.stream_id is not None and frame.stream_id not in self._stream_ids:
            if len(self._stream_ids) >= limits.WEBSOCKET_STREAM_IDS_MAX:
                raise too_many_streams(limits.WEBSOCKET_STREAM_IDS_MAX)
            self._stream_ids.add(frame.stream_id)
        if frame.stream_id in self._waiting:
            self._waiting[frame.stream_id].append(frame)
            return
        self._waiting[frame.stream_id] = deque([frame])
        task = asyncio.create_task(self._work(frame.stream_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _interrupt(self, frame: _ReceivedFrame) -> None:
        """Raises :class:`ApiError` for a response of another connection. One that has ended has told so."""
        response_id = client_events.parse_interrupt(frame.body)
        running = self._running.get(response_id)
        if running is not None:
            running.is_interrupted = True
            self._end(running, INTERRUPTED)
        elif response_id not in self._ended:
            raise not_found(f"No response '{response_id}' runs on this connection.", param="response_id", code="response_not_found")

    def _end(self, running: RunningResponse, reason: str) -> None:
        """Also if the connection ends meanwhile: processes in a sandbox are stopped after the client was told of the end."""
        running.is_ending = True
        self._runtime.process.keep(asyncio.create_task(self._ended_by(running, reason)))

    async def _ended_by(self, running: RunningResponse, reason: str) -> None:
        """A failure leaves the response as it is: it goes on, and its own end is told."""
        try:
            await running.foreground.interrupt(reason)
        except Exception as error:
            tell_error(error, "a response was not interrupted", response_id=running.stored.response_id, tenant_id=self._tenant_id)

    async def _steer(self, frame: _ReceivedFrame) -> None:
        """Take it, or give it back with the reason. The receive loop notices a client that has gone."""
        response_id = frame.parent or ""
        running = self._running.get(response_id)
        try:
            messages = client_events.parse_steer(frame.body)
            code, message = self._why_not(response_id, running, frame.size)
            if running is not None and not code:
                body = running.successor(messages)
                await beside(frame.size, lambda: parse_create_event(body, web_search=self._runtime.models.web_search))
                code, message = self._why_not(response_id, self._running.get(response_id), frame.size)  # It may have ended meanwhile.
        except ApiError as error:
            code, message = "invalid_input", error.message
        number, stream_id = (0, None) if running is None else (running.number, running.stream_id)
        with suppress(WebSocketDisconnect):
            if running is None or code:
                steer = {"previous_response_id": response_id, "input": frame.body.get("input")}
                await self._send(steer_failed(number, code, message, steer), stream_id)
                return
            steering = SteeringInput.of(frame.body, messages, frame.size)
            running.steers.append(steering)
            await self._send(steering.accepted(number), stream_id)
            self._end_at_boundary(running)

    async def _inject(self, frame: _ReceivedFrame) -> None:
        """Take outputs, or give them back with the reason. Raises :class:`_BadOutputs`: as at OpenAI the connection ends then."""
        try:
            response_id, given = client_events.parse_inject(frame.body)
            running = self._running.get(response_id)
            is_taken = (
                running is not None
                and not (running.is_over or running.is_interrupted)
                and await injected_outputs.inject(self._runtime, running, given, frame.size)
            )
        except ApiError as error:
            raise _BadOutputs(error) from error
        with suppress(WebSocketDisconnect):
            if running is not None and is_taken:
                await self._send(injected_outputs.created(running), running.stream_id)
                return
            is_known, number = running is not None or response_id in self._ended, 0 if running is None else running.number
            answer = injected_outputs.failed(response_id, given, number=number, is_known=is_known)
            await self._send(answer, None if running is None else running.stream_id)

    def _end_outputs(self, running: RunningResponse) -> None:
        if running.stored.takes_outputs and not running.is_over:
            self._runtime.process.keep(asyncio.create_task(self._outputs_ended(running)))

    async def _outputs_ended(self, running: RunningResponse) -> None:
        """After a failure the reaper does it."""
        try:
            await team.end_outputs(self._runtime, running.stored)
        except Exception as error:
            tell_error(error, "a response waits on", response_id=running.stored.response_id, tenant_id=self._tenant_id)

    def _why_not(self, response_id: str, running: RunningResponse | None, size: int) -> tuple[str, str]:
        """Why a response cannot be steered by a frame of this size, as code and sentence; empty if it can."""
        if running is None and response_id not in self._ended:
            return "response_not_found", f"No response '{response_id}' runs on this connection."
        if running is None or running.is_over:
            return "response_already_completed", f"The response '{response_id}' has ended. Go on from it with 'response.create'."
        if running.is_interrupted:
            return "response_not_active", f"The response '{response_id}' is being interrupted. Go on from it with 'response.create'."
        if not running.can_be_steered:
            return "steering_not_supported", "A response with a conversation, 'context_management' or a team cannot be steered."
        waiting = sum(steering.size for one in self._running.values() for steering in one.steers)
        if len(running.steers) >= limits.WEBSOCKET_STEERS_MAX or waiting + size > limits.WEBSOCKET_WAITING_BYTES_MAX:
            return "too_many_pending_steers", f"Too much input waits for the end of '{response_id}' already."
        return "", ""

    def _end_at_boundary(self, running: RunningResponse) -> None:
        if running.steers and running.is_at_boundary:
            self._end(running, STEERED)

    def _check_room(self, frame: _ReceivedFrame) -> None:
        waiting = [one for lane in self._waiting.values() for one in lane]
        if len(waiting) >= limits.WEBSOCKET_WAITING_MAX or (
            sum(one.size for one in waiting) + frame.size > limits.WEBSOCKET_WAITING_BYTES_MAX
        ):
            raise rate_limited("Too many requests of this connection wait for their turn. Retry when one has ended.", 1)

    async def _work(self, stream_id: str | None) -> None:
        """One lane, until nothing waits in it."""
        waiting = self._waiting[stream_id]
        with suppress(WebSocketDisconnect):  # The receiving side notices too, and ends the connection.
            while waiting:
                async with self._places:
                    following: _ReceivedFrame | None = waiting.popleft()
                    while following is not None:
                        following = await self._answer(following)
        del self._waiting[stream_id]

    async def _answer(self, frame: _ReceivedFrame) -> _ReceivedFrame | None:
        """Answer one frame. Returns that of a successor, if the response was steered."""
        running: RunningResponse | None = None
        try:
            if not await self._is_known():
                raise invalid_api_key()  # While the frame waited for its turn.
            if self._is_time_over():
                raise rate_limited("What answers this connection is about to be changed for another one. Please retry.", 1)
            held = await self._recent.held(frame.parent, frame.stream_id)
            body = _with_messages(frame.body, held)
            event = await beside(frame.size, lambda: parse_create_event(body, web_search=self._runtime.models.web_search))
            recent = await self._recent.items(frame.parent)
            prepared = await prepare(
                self._runtime,
                self._tenant_id,
                event.request,
                recent=recent,
                key_id=self._key_id,
                draws_on=self._draws_on,
                takes_outputs=self._takes_outputs,
            )
            if held and frame.parent is not None:
                await self._recent.release(frame.parent, frame.stream_id)
            running = RunningResponse(
                prepared.stored, frame.stream_id, Foreground(self._runtime, prepared, until=self._until), frame.body
            )
            response = await self._run(event, prepared, running)
        except WebSocketDisconnect:
            raise
        except ApiError as error:
            await self._fail(frame, running, error)
        except Exception as error:
            tell_error(error, "unhandled error", tenant_id=self._tenant_id)
            await self._fail(frame, running, server_error())
        else:
            await self._conclude(frame, prepared, response)
            return await self._successor(frame, running, response)
        return None

    async def _fail(self, frame: _ReceivedFrame, running: RunningResponse | None, error: ApiError) -> None:
        """A request that was refused, or (``running``) a response with an end that this connection cannot tell."""
        await self._recent.fail(frame.parent, frame.stream_id)
        if running is not None:
            await self._give_back(running.steers, running.number, "response_not_active", error.message, frame.stream_id)
        elif frame.steers:
            await self._give_back(frame.steers, 0, "successor_creation_failed", error.message, frame.stream_id)
            return
        await self._refuse(error, frame.stream_id)

    async def _give_back(self, steers: Iterable[SteeringInput], number: int, code: str, message: str, stream_id: str | None) -> None:
        for steering in steers:
            await self._send(steering.failed(number, code, message), stream_id)

    async def _successor(self, frame: _ReceivedFrame, running: RunningResponse, response: dict[str, Any]) -> _ReceivedFrame | None:
        """The frame that continues an ended response after steering it; None if there is none, or if it waits."""
        steers, number = running.steers, running.number
        if not steers:
            return None
        if response["status"] in ("failed", "cancelled") or running.is_interrupted:
            message = f"The response '{response['id']}' ended as '{response['status']}'."
            await self._give_back(steers, number, "response_not_active", message, frame.stream_id)
            return None
        messages = [message for steering in steers for message in steering.messages]
        if not required_input(response["output"]):
            return replace(frame, body=running.successor(messages), parent=response["id"], steers=tuple(steers))
        if not await self._recent.hold(response["id"], frame.stream_id, messages):
            message = "Too much input waits on this connection."
            await self._give_back(steers, number, "too_many_pending_steers", message, frame.stream_id)
            return None
        for steering in steers:
            await self._send(steering.pending(number, response["output"]), frame.stream_id)
        return None

    async def _run(self, event: CreateEvent, prepared: PreparedResponse, running: RunningResponse) -> dict[str, Any]:
        """Send the events; the response object of the last one."""
        response_id = prepared.stored.response_id
        view = ResponseView.of(event.request.include, self._runtime.command, include_obfuscation=event.request.include_obfuscation)
        if not event.generate:
            return await self._send_all(await warm_up(self._runtime, prepared), view, running) or {}
        self._running[response_id] = running
        try:
            async with aclosing(running.foreground.batches()) as batches:
                async for events in batches:
                    response = await self._send_all(events, view, running)
                    if response is not None:
                        return response
                    self._end_at_boundary(running)
        finally:
            del self._running[response_id]
            self._ended.append(response_id)
            self._end_outputs(running)
        seconds = self._runtime.settings.stream_seconds_max
        assert seconds is not None, "a response's events ended without a final one"
        raise bad_request(
            f"The response runs for longer than the {seconds} seconds that this connection can show of it. It goes on: read it with "
            f"GET /v1/responses/{prepared.stored.response_id}?stream=true, from 'starting_after' on.",
            code="time_limit_exceeded",
        )

    def _is_time_over(self) -> bool:
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    async def _send_all(self, events: list[Event], view: ResponseView, running: RunningResponse) -> dict[str, Any] | None:
        for event in await self._runtime.stores.contents_of(self._tenant_id).events(events):
            shown = view.event(event)
            if event["type"] == "error":
                shown = event | {"status": status_of(event["error"]["code"])}
            running.hear(event)
            await self._send(shown, running.stream_id)
            if event["type"] in FINAL_TYPES:
                response: dict[str, Any] = event["response"]
                return response
        return None

    async def _conclude(self, frame: _ReceivedFrame, prepared: PreparedResponse, response: dict[str, Any]) -> None:
        if response["status"] == "failed":
            await self._recent.fail(frame.parent, frame.stream_id)
        elif not prepared.stored.is_stored:
            output = context.output_items(response["output"], is_cut=response["status"] == "incomplete")
            items = [*prepared.chain, *prepared.stored.input_items, *output]
            own_bytes = frame.size + len(orjson.dumps(response["output"]))
            await self._recent.remember(response["id"], UnstoredResponse(context.answer_orphans(items), frame.stream_id, own_bytes))

    async def _refuse(self, error: ApiError, stream_id: str | None) -> None:
        headers = {"headers": error.headers} if error.headers else {}
        with suppress(WebSocketDisconnect):
            await self._send({"type": "error", "status": error.status, "error": error.payload() | headers}, stream_id)

    async def _send(self, event: Event, stream_id: str | None) -> None:
        """Raises :class:`WebSocketDisconnect` each time once the client has gone; starlette does so the first time alone."""
        try:
            await self._socket.send_text(encoded(event, stream_id).decode())
        except WebSocketDisconnected as error:
            raise WebSocketDisconnect(_GONE) from error

    async def _close(self) -> None:
        minutes = limits.WEBSOCKET_SECONDS_MAX // 60
        error = bad_request(
            f"A WebSocket connection lives for {minutes} minutes. Open a new one to go on.", code="websocket_connection_limit_reached"
        )
        await self._refuse(error, None)
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.close(_NORMAL)


def _with_messages(body: dict[str, Any], messages: list[Item]) -> dict[str, Any]:
    """A request that has steering messages before its own input. An input that is none stays, to be refused."""
    own = [] if body.get("input") is None else body["input"]
    if isinstance(own, str):
        own = [{"type": "message", "role": "user", "content": own}] if own else []
    return body | {"input": [*messages, *own]} if messages and isinstance(own, list) else body


def _frame(body: bytes) -> _ReceivedFrame:
    """The fields of a frame that are needed before its turn; the rest is checked then. Raises :class:`ApiError`."""
    value = parse_object(body)
    parent = value.get("previous_response_id")
    return _ReceivedFrame(value, len(body), parse_stream_id(value), parent if isinstance(parent, str) else None)
