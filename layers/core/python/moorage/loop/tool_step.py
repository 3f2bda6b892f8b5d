"""One tool call: its commands run in the container, their output goes to the log as it appears.

Running twice is harmless. A command is known to the exec server by the call's id and its number, so a second run attaches to it and
goes on after the last exec event that is in the log. When the sandbox that the commands were started in is gone, they are not run
again: the output says that they were lost.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits
from moorage.containers.life import LiveContainer
from moorage.errors import (
    ApiError,
    LostSight,
    SandboxCapacity,
    SandboxElsewhere,
    SandboxError,
    SandboxGone,
    SandboxHostAway,
    SandboxStarting,
    Superseded,
)
from moorage.loop.cancellation import CancelWatch
from moorage.loop.chain import load_chain
from moorage.loop.fold import fold
from moorage.loop.sinks import LogSink
from moorage.model.base import Item
from moorage.runtime import Runtime
from moorage.sandbox.exec_client import Ended, ExecEvent, Heartbeat, Output, PythonEnded, PythonEvent, Started
from moorage.state import Call
from moorage.store import keys
from moorage.store.event_log import Batch, LogWriter, Writer
from moorage.store.responses import StoredResponse
from moorage.store.steps import CallAttempt, Step
from moorage.store.table import Record
from moorage.telemetry import tell
from moorage.tools import interpreter, shell

_log: Final = logging.getLogger(__name__)
_LOST: Final = (
    "The container stopped while this command was running, and the command was not run again. Its processes are gone; files that "
    "were saved before are still in /mnt/data."
)
_NOT_STORED: Final = (
    "Note: what changed under /mnt/data could not be stored. It is there as long as the container runs, and the next command tries to "
    "store it again."
)
_GAVE_UP: Final = "This command could not be run: the container could not be reached."


async def tool_step(
    runtime: Runtime, *, tenant_id: str, response_id: str, step: int, call_id: str, container_id: str
) -> None:
    """The task ``ToolStep``. Returns when the call is finished, or when another run must go on with it; the model step looks."""
    stored, made_by, container = await _look(runtime, tenant_id, response_id, step, container_id)
    if stored.is_cancel_requested:
        return
    call = next(call for call in made_by.outcome.calls if call.call_id == call_id)
    run = _Run(runtime, stored, step, made_by, call, container, runtime.now_ms())
    began = time.perf_counter()
    with suppress(Superseded):  # Another attempt goes on, or the response was ended: nothing is left to do here.
        await run.run()
    tell(
        "tool_step",
        {
            "response_id": response_id,
            "tenant_id": tenant_id,
            "step": step,
            "call_id": call_id,
            "call_type": call.type,
            "container_id": stored.container_id,
            "commands": len(run.commands),
            "ended": sum(command.outcome is not None for command in run.commands),
            "output_chars": sum(len(text) for command in run.commands for text in command.text.values()),
            "duration_ms": round((time.perf_counter() - began) * 1000),
        },
    )


async def _look(
    runtime: Runtime, tenant_id: str, response_id: str, step: int, container_id: str
) -> tuple[StoredResponse, Step, Record | None]:
    """The response, the step that made the call, and the container's record, by one request."""
    pk = keys.response(tenant_id, response_id)
    places = ((pk, keys.META), (pk, keys.attempt(step)), (keys.container(tenant_id, container_id), keys.META))
    there = {(record["PK"], record["SK"]): record for record in await runtime.table.get_many(places, consistent=True)}
    meta, attempt, container = map(there.get, places)
    stored = await runtime.responses.of_record(tenant_id, response_id, meta)
    made_by = None if attempt is None else await runtime.steps.of_record(attempt)
    assert made_by is not None, f"a tool step before the outcome of step {step} of {response_id}"
    return stored, made_by, container


async def kill_running(runtime: Runtime, stored: StoredResponse, step: int) -> None:
    """Kill the commands of a step's calls: the response is being cancelled."""
    made_by = await runtime.steps.get(stored.tenant_id, stored.response_id, step)
    if made_by is None or stored.container_id is None:
        return
    live = await runtime.containers.sandboxes.running(stored.tenant_id, stored.container_id)
    if live is None:
        return
    async with live:
        for call in made_by.outcome.calls:
            for index in range(_command_count(made_by.items[call.call_index])):
                with suppress(SandboxError):
                    await live.client.kill(shell.exec_id(stored.response_id, call.call_id, index))


@dataclass(slots=True)
class _Command:
    """One command's output so far."""

    text: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    outcome: dict[str, Any] | None = None
    offset: int = -1
    """Number of the last exec event that is in the log."""
    seen: int = -1
    """Number of the last exec event that was received."""
    ended: PythonEnded | None = None
    """How a run of the code interpreter ended; None as long as it has not, and if it was lost."""

    @property
    def output(self) -> dict[str, Any]:
        return {**self.text, "outcome": self.outcome}


@dataclass(slots=True)
class _Run:
    runtime: Runtime
    stored: StoredResponse
    step: int
    made_by: Step
    """The model step that made the call."""
    call: Call
    container: Record | None
    """Its record as this run found it."""
    began_at_ms: int
    is_interpreting: bool = False
    """The log says so already."""
    commands: list[_Command] = field(default_factory=list)

    @property
    def item(self) -> Item:
        """The call's own."""
        return self.made_by.items[self.call.call_index]

    async def run(self) -> None:
        try:
            live = await self._container()
        except SandboxStarting as error:
            await self._wait(error)
            return
        except (SandboxError, ApiError) as error:
            await self._unreachable(self.item, error.message)
            return
        async with live:
            attempt = await self.runtime.steps.begin_call(self.stored, self.step, self.call.call_id, live.record.incarnation)
            if not attempt.is_finished:
                await self._attend(live, attempt)

    async def _wait(self, reason: SandboxStarting) -> None:
        """The state machine sends the call round again, by way of the model step, which can start sandboxes everywhere; but not for
        ever."""
        now, is_host_away = int(self.runtime.clock()), isinstance(reason, SandboxHostAway)
        since = await self.runtime.steps.await_container(
            self.stored, self.step, self.call.call_id, now=now, is_host_away=is_host_away
        )
        if now - since > limits.SANDBOX_PATIENCE_SECONDS:
            await self._unreachable(self.item, reason.message)

    async def _attend(self, live: LiveContainer, attempt: CallAttempt) -> None:
        """Run the commands, or go on with them."""
        is_lost = attempt.sandbox != live.record.incarnation or attempt.crashes >= limits.CALL_ATTEMPTS_MAX
        log = self.runtime.responses.log_of(self.stored)
        batches = await log.read_from(0) if attempt.attempt > 1 else []
        self.commands = [_Command() for _ in range(_command_count(self.item))]
        closed = self._recall(batches)
        if closed is not None:
            await self._note_end(closed)
            return
        writer = LogWriter(
            log, Writer(self.step, attempt.attempt, self.call.call_id), self._following(batches), on_predecessor=self._fold_in
        )
        async with LogSink(writer) as sink:
            has_failed = attempt.crashes >= limits.STORING_ATTEMPTS_MAX - 1
            if not await self._work(sink, live, self.item, is_lost=is_lost, has_failed=has_failed):
                await sink.flush()
                await self.runtime.steps.postpone_call(self.stored, self.step, self.call.call_id)

    def _following(self, batches: list[Batch]) -> int:
        """Where the log goes on. If other calls have written since, the first write finds out."""
        return batches[-1].following if batches else self.made_by.following

    async def _note_end(self, closed: Item) -> None:
        """The log has the end of the call: now its record gets it."""
        await self.runtime.steps.end_call(self.stored, self.step, self.call.call_id, self.call.output_index, closed)

    async def _container(self) -> LiveContainer:
        """The running container; waits a while for one that starts."""
        assert self.stored.container_id is not None
        began = asyncio.get_running_loop().time()
        pause, seen = limits.SANDBOX_POLL_SECONDS_MIN, self.container
        while True:
            try:
                return await self.runtime.containers.sandboxes.ensure(self.stored.tenant_id, self.stored.container_id, seen=seen)
            except SandboxElsewhere:
                raise
            except SandboxStarting as error:
                patience = limits.SANDBOX_HOST_WAIT_SECONDS if isinstance(error, SandboxHostAway) else limits.SANDBOX_WAIT_SECONDS
                if asyncio.get_running_loop().time() - began > patience:
                    raise
                # Mostly the start was begun while the model was asked, and is nearly over.
                await asyncio.sleep(min(pause, error.retry_after_seconds))
                pause *= 2
            except SandboxCapacity:
                if asyncio.get_running_loop().time() - began > limits.SANDBOX_WAIT_SECONDS:
                    raise
                await asyncio.sleep(limits.SANDBOX_CAPACITY_RETRY_SECONDS)
            seen = None

    def _recall(self, batches: list[Batch]) -> Item | None:
        """What earlier runs of this call have put into the log; the whole item if they have closed it."""
        if not batches:
            return None
        folded = fold(event for batch in batches for event in batch.events)
        if self.call.output_index in folded.done:
            return folded.items[self.call.output_index]
        self.is_interpreting = folded.items.get(self.call.output_index, {}).get("status") == "interpreting"
        for index, output in enumerate(folded.items.get(self.call.output_index, {}).get("output") or []):
            command = self.commands[index]
            command.text = {"stdout": output["stdout"], "stderr": output["stderr"]}
            command.outcome = output.get("outcome")
        for batch in batches:
            self._advance(batch)
        return None

    def _advance(self, batch: Batch) -> None:
        if batch.writer.step == self.step and batch.writer.call_id == self.call.call_id:
            for index, offset in batch.offsets.items():
                self.commands[int(index)].offset = max(self.commands[int(index)].offset, offset)

    def _fold_in(
        self, batch: Batch, pending: list[tuple[dict[str, Any], dict[str, int]]]
    ) -> list[tuple[dict[str, Any], dict[str, int]]]:
        """A dead predecessor wrote late: what it wrote need not be written again."""
        ended = {_end_of(event) for event in batch.events} - {None}
        return [
            (event, offset)
            for event, offset in pending
            if _end_of(event) not in ended and all(n > batch.offsets.get(index, -1) for index, n in offset.items())
        ]

    async def _work(self, sink: LogSink, live: LiveContainer, item: Item, *, is_lost: bool, has_failed: bool) -> bool:
        """Run or follow the commands; False when time is up and another run must go on."""
        watch = asyncio.create_task(CancelWatch.of(self.runtime, self.stored).requested())
        work = asyncio.create_task(self._commands(sink, live, item, is_lost=is_lost))
        try:
            await asyncio.wait({watch, work}, timeout=limits.TOOL_STEP_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif not watch.done():
                return False
            else:
                watch.result()
                await kill_running(self.runtime, self.stored, self.step)
                raise Superseded(f"{self.stored.response_id} was cancelled")
        except LostSight:
            return False
        finally:
            watch.cancel()
            work.cancel()
            await asyncio.gather(watch, work, return_exceptions=True)
        await self._conclude(sink, live, item, has_failed=has_failed)
        return True

    async def _commands(self, sink: LogSink, live: LiveContainer, item: Item, *, is_lost: bool) -> None:
        if self.call.type == "code_interpreter_call" and not self.is_interpreting:
            self._tell(sink, "interpreting")
        if await self.runtime.containers.sandboxes.is_news(live) and not is_lost:
            self._note(sink, 0, f"[{shell.REVIVED}]\n")
        await asyncio.gather(*(self._command(sink, live, item, index, is_lost=is_lost) for index in range(len(self.commands))))

    async def _command(self, sink: LogSink, live: LiveContainer, item: Item, index: int, *, is_lost: bool) -> None:
        command = self.commands[index]
        if command.outcome is not None:
            return
        for _ in range(limits.CALL_ATTEMPTS_MAX):
            if is_lost:
                break
            try:
                async for event in self._events(live, item, index):
                    self._take(sink, index, event)
                return
            except SandboxGone:
                is_lost = not await self._is_alive(live)
        self._lose(sink, index)

    def _lose(self, sink: LogSink, index: int) -> None:
        """The command had begun, and nobody knows how it ended."""
        command = self.commands[index]
        self._note(sink, index, f"{'' if command.text['stderr'] in ('', None) else chr(10)}[{_LOST}]")
        command.outcome = {"type": "exit", "exit_code": 137}
        self._close(sink, index)

    async def _is_alive(self, live: LiveContainer) -> bool:
        """Whether it was only the connection that broke."""
        return not await self.runtime.containers.sandboxes.confirm_gone(live)

    def _events(self, live: LiveContainer, item: Item, index: int) -> AsyncIterator[ExecEvent | PythonEvent]:
        """The exec's events after what is known; those that are only in memory are asked for again by number."""
        identity = shell.exec_id(self.stored.response_id, self.call.call_id, index)
        after = max(self.commands[index].seen, -1)
        if item["type"] == "code_interpreter_call":
            return interpreter.events(
                live.client, identity, item["code"], after, seconds_max=self.runtime.settings.code_seconds_max
            )
        return shell.events(live.client, identity, item["action"], index, after)

    def _take(self, sink: LogSink, index: int, event: ExecEvent | PythonEvent) -> None:
        command = self.commands[index]
        match event:
            case Heartbeat() | Started():
                return
            case Output(n, stream, text):
                if n <= command.seen:
                    return
                command.seen = n
                if n > command.offset:
                    command.text[stream] += text
                    self._delta(sink, index, stream, text, n)
            case Ended() | PythonEnded():
                command.outcome = shell.outcome_of(event)
                if event.outcome == "killed":
                    self._note(sink, index, "[The command was killed.]")
                if isinstance(event, PythonEnded):
                    command.ended = event
                self._close(sink, index)

    def _note(self, sink: LogSink, index: int, text: str) -> None:
        """A word of ours in the command's stderr."""
        self.commands[index].text["stderr"] += text
        self._delta(sink, index, "stderr", text, None)

    def _delta(self, sink: LogSink, index: int, stream: str, text: str, n: int | None) -> None:
        if self.call.type != "shell_call":
            return  # The code interpreter has no output events: its outputs stand in the item.
        event = {
            "type": "response.shell_call_output_content.delta",
            "item_id": self.call.output_item_id,
            "output_index": self.call.output_index,
            "command_index": index,
            "delta": {stream: text},
        }
        sink.emit(event, offset=None if n is None else (index, n))

    def _close(self, sink: LogSink, index: int) -> None:
        if self.call.type != "shell_call":
            return
        sink.emit(
            {
                "type": "response.shell_call_output_content.done",
                "item_id": self.call.output_item_id,
                "output_index": self.call.output_index,
                "command_index": index,
                "output": [self.commands[index].output],
            }
        )

    async def _conclude(self, sink: LogSink, live: LiveContainer, item: Item, *, has_failed: bool) -> None:
        """Store what the commands left in the workspace, then close the item."""
        notes = live.notes + await self._stored(live, has_failed=has_failed) + await self._refusals(live)
        if item["type"] == "code_interpreter_call":
            whole = await self._interpreted(live, item, notes)
            self._tell(sink, "completed")
        else:
            whole = shell.finished(item, self.call.output_item_id, [command.output for command in self.commands], notes)
        await self._done(sink, whole)

    async def _stored(self, live: LiveContainer, *, has_failed: bool) -> tuple[str, ...]:
        """Store the workspace, and what there is to say of that. A store that refuses fails this run, and the next one tries again; but
        commands that have ended need not wait for it for ever."""
        try:
            return (await self.runtime.containers.artifacts.sync(live)).notes
        except SandboxGone:
            return ()
        except (BotoCoreError, ClientError):
            if not has_failed:
                raise
            _log.exception("the files of a container could not be stored", extra={"container_id": self.stored.container_id})
            return (_NOT_STORED,)

    def _tell(self, sink: LogSink, name: str) -> None:
        """An event of the code interpreter."""
        sink.emit(
            {
                "type": f"response.code_interpreter_call.{name}",
                "item_id": self.call.output_item_id,
                "output_index": self.call.output_index,
            }
        )

    async def _interpreted(self, live: LiveContainer, item: Item, notes: tuple[str, ...]) -> Item:
        command = self.commands[0]
        ended = command.ended
        if ended is not None and ended.session_started and await self._had_session():
            notes = (interpreter.NEW_SESSION, *notes)
        drawn = [] if ended is None else await interpreter.figures(live.client, ended.images)
        return interpreter.finished(item, command.output, ended, drawn, notes)

    async def _had_session(self) -> bool:
        """Whether the model has used a Python session of this container before this step, so that it counts on its variables."""
        progress = await self.runtime.steps.read(self.stored.tenant_id, self.stored.response_id)
        first = min(call.call_index for call in self.made_by.outcome.calls)
        earlier = [item for index, item in progress.items.items() if index < first]
        if not any(map(self._is_run_here, earlier)):
            earlier = [*await load_chain(self.runtime, self.stored), *self.stored.input_items]
        return any(map(self._is_run_here, earlier))

    def _is_run_here(self, item: Item) -> bool:
        return item["type"] == "code_interpreter_call" and item.get("container_id") == self.stored.container_id

    async def _refusals(self, live: LiveContainer) -> tuple[str, ...]:
        """What the egress proxy refused meanwhile, and how to allow it: many tools hide the proxy's own words."""
        if live.record.network_policy["type"] == "disabled":
            return ()
        await asyncio.sleep(2 * limits.EGRESS_LOG_SECONDS)  # The proxy writes its log behind.
        said = await self.runtime.egress.refusals_since(self.stored.tenant_id, live.record.id, self.began_at_ms)
        return tuple(said.splitlines())

    async def _done(self, sink: LogSink, whole: Item) -> None:
        sink.emit({"type": "response.output_item.done", "output_index": self.call.output_index, "item": whole})
        await sink.flush()
        await self._note_end(whole)

    async def _unreachable(self, item: Item, message: str) -> None:
        """No container can be had: the model is told, and may answer without."""
        attempt = await self.runtime.steps.begin_call(self.stored, self.step, self.call.call_id, None)
        if attempt.is_finished:
            return
        log = self.runtime.responses.log_of(self.stored)
        self.commands = [_Command() for _ in range(_command_count(item))]
        batches = await log.read_from(0) if attempt.attempt > 1 else []
        closed = self._recall(batches)
        if closed is not None:
            await self._note_end(closed)
            return
        async with LogSink(
            LogWriter(log, Writer(self.step, attempt.attempt, self.call.call_id), self._following(batches))
        ) as sink:
            if item["type"] == "code_interpreter_call" and not self.is_interpreting:
                self._tell(sink, "interpreting")
            for index, command in enumerate(self.commands):
                if command.outcome is None and attempt.sandbox is not None:
                    self._lose(sink, index)
                elif command.outcome is None:
                    self._note(sink, index, f"[{_GAVE_UP} {message}]")
                    command.outcome = {"type": "exit", "exit_code": 1}
                    self._close(sink, index)
            outputs = [command.output for command in self.commands]
            if item["type"] == "code_interpreter_call":
                whole = interpreter.finished(item, outputs[0], None, [], ())
                self._tell(sink, "completed")
            else:
                whole = shell.finished(item, self.call.output_item_id, outputs, ())
            await self._done(sink, whole)


_SAID_ONCE: Final = (
    "response.shell_call_output_content.done",
    "response.code_interpreter_call.interpreting",
    "response.code_interpreter_call.completed",
    "response.output_item.done",
)


def _end_of(event: dict[str, Any]) -> tuple[str, int | None] | None:
    """What an event says once of a command or of the call: that it ended, that the code interpreter has begun or ended."""
    is_end = event["type"] in _SAID_ONCE
    return (event["type"], event.get("command_index")) if is_end else None


def _command_count(item: Item) -> int:
    return 1 if item["type"] == "code_interpreter_call" else len(item["action"]["commands"])

