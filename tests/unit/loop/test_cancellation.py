"""A look at the record that failed is no cancellation, and a watch that had one failure still sees the next."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from moorage.errors import CancelRequested, LostSight
from moorage.loop.cancellation import Cancellable, CancelWatch
from moorage.runtime import Process
from moorage.sandbox.exec_client import ExecEnded, ExecOutput, ExecStarted
from moorage.state import Next
from moorage.store.responses import StoredResponse

from tests.stack import assert_well_formed
from tests.unit.loop.lab import FakeSandboxes, Lab, first_state, say, shell

Look = Callable[[], Awaitable[bool]]


def looks(*seen: bool | Exception) -> Look:
    """What one look after the other finds; the last again and again."""
    left = list(seen)

    async def look() -> bool:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return look


def unreachable() -> EndpointConnectionError:
    return EndpointConnectionError(endpoint_url="http://table")


def watch(*seen: bool | Exception, blind_seconds: float = 60.0) -> CancelWatch:
    return CancelWatch(looks(*seen), poll_seconds=0, blind_seconds=blind_seconds)


async def forever() -> None:
    await asyncio.Event().wait()


# --- the watch ---


async def test_a_watch_that_failed_once_sees_what_comes_after() -> None:
    await watch(unreachable(), False, unreachable(), True).requested()


async def test_a_watch_without_news_ends_by_itself_and_cancels_nothing() -> None:
    with pytest.raises(LostSight) as lost:
        await watch(unreachable(), blind_seconds=0).requested()
    assert isinstance(lost.value.__cause__, EndpointConnectionError)


async def test_a_mistake_of_ours_is_not_taken_for_a_table_that_is_away() -> None:
    with pytest.raises(KeyError):
        await watch(KeyError("status")).requested()


# --- what it ends ---


@pytest.mark.parametrize(
    ("seen", "reason"), [((True,), CancelRequested), ((unreachable(),), LostSight), ((KeyError("status"),), KeyError)]
)
async def test_the_body_ends_with_what_the_watch_came_to(seen: tuple[bool | Exception, ...], reason: type[Exception]) -> None:
    with pytest.raises(reason):
        async with Cancellable(watch(*seen, blind_seconds=0)):
            await forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_that_ends_by_itself_is_left_alone() -> None:
    async with Cancellable(watch(False)):
        await asyncio.sleep(0)
    async with Cancellable(None):
        await asyncio.sleep(0)


async def test_a_watch_that_ends_as_its_body_does_cancels_nothing_afterwards() -> None:
    async with Cancellable(watch(True)):
        for _ in range(2):  # The watch is over by now, and what it would do about it is due next.
            await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_who_else_cancels_the_task_gets_his_way() -> None:
    async def body() -> None:
        async with Cancellable(watch(False)):
            await forever()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_body_is_its_own() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with Cancellable(watch(True)):
            raise ValueError("mine")


# --- in the steps ---


@dataclass
class Flag:
    """``responses.is_cancel_requested`` of a lab: what each look finds, and how often it was looked."""

    lab: Lab
    seen: list[bool | Exception]
    looks: int = 0
    looked: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.lab.runtime.process = Process(cancel_poll_seconds=0)
        self.lab.responses.is_cancel_requested = self.look  # type: ignore[method-assign]

    async def look(self, tenant_id: str, response_id: str) -> bool:
        found = self.seen[min(self.looks, len(self.seen) - 1)]
        async with self.looked:
            self.looks += 1
            self.looked.notify_all()
        if isinstance(found, Exception):
            raise found
        return found

    async def wait_for(self, looks: int) -> None:
        async with self.looked:
            await self.looked.wait_for(lambda: self.looks >= looks)


@dataclass
class SlowSandboxes(FakeSandboxes):
    """A command that ends when the flag has been looked at twice."""

    flag: Flag | None = None
    killed: list[str] = field(default_factory=list)

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        live = await super().ensure(tenant_id, container_id, seen=seen)
        live.exec = self._exec
        live.kill = self._kill
        return live

    async def running(self, tenant_id: str, container_id: str) -> Any:
        return await self.ensure(tenant_id, container_id)

    async def _exec(self, identity: str, command: str, **options: Any) -> AsyncIterator[Any]:
        self.executed.append(identity)
        yield ExecStarted(0)
        assert self.flag is not None
        await self.flag.wait_for(2)
        yield ExecOutput(1, "stdout", "made\n")
        yield ExecEnded(2, "exit", 0, 0, None)

    async def _kill(self, identity: str) -> None:
        self.killed.append(identity)


async def test_a_read_that_failed_kills_no_running_command() -> None:
    sandboxes = SlowSandboxes()
    lab = Lab(shell("make"), say("Done."), sandboxes=sandboxes)
    sandboxes.flag = Flag(lab, [unreachable(), False])
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert (response["status"], response["output"][1]["output"][0]["stdout"]) == ("completed", "made\n")
    assert (sandboxes.killed, len(sandboxes.executed), sandboxes.held) == ([], 1, 0)


async def test_a_cancellation_that_is_seen_after_a_read_that_failed_kills_what_runs() -> None:
    sandboxes = SlowSandboxes()
    lab = Lab(shell("make"), sandboxes=sandboxes)
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    sandboxes.flag = Flag(lab, [unreachable(), True])
    sandboxes.flag.wait_for = lambda looks: forever()  # type: ignore[method-assign]
    await lab.tools(state)
    assert (sandboxes.killed, state.next) == (sandboxes.executed, Next.TOOLS)


async def asked(seen: list[bool | Exception], *, looks: int) -> tuple[Lab, StoredResponse, int]:
    """A response whose model answers when the flag has been looked at so often."""
    lab = Lab(say("Done."))
    stored = await lab.background()
    flag = Flag(lab, seen)
    lab.model.before_answer = lambda: flag.wait_for(looks)
    await lab.run(stored)
    return lab, stored, flag.looks


async def test_a_model_step_hears_a_cancellation_after_a_read_that_failed() -> None:
    lab, stored, looks = await asked([unreachable(), True], looks=9)
    assert ((await lab.object_of(stored))["status"], looks) == ("cancelled", 2)


async def test_a_model_step_goes_on_after_a_read_that_failed() -> None:
    lab, stored, _ = await asked([unreachable(), False], looks=2)
    assert (await lab.object_of(stored))["status"] == "completed"


async def test_a_tool_step_that_sees_nothing_any_more_hands_its_running_command_over() -> None:
    sandboxes = SlowSandboxes()
    lab = Lab(shell("make"), say("Done."), sandboxes=sandboxes)
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    sandboxes.flag = Flag(lab, [LostSight(), False])
    await lab.tools(state)
    (call_id,) = state.calls
    attempt = await lab.runtime.stores.steps.begin_call(stored, 0, call_id, 1)
    assert (sandboxes.killed, attempt.is_finished, attempt.crashes) == ([], False, 0)
    await lab.run(stored, state)
    assert (await lab.object_of(stored))["status"] == "completed"


async def test_a_model_step_that_sees_nothing_any_more_is_run_again() -> None:
    lab = Lab(say("Done."), say("Done."))
    stored = await lab.background()
    flag = Flag(lab, [LostSight(), False])
    lab.model.before_answer = lambda: flag.wait_for(9)
    with pytest.raises(LostSight):
        await lab.step(first_state(stored))
    await lab.run(stored)
    assert (await lab.object_of(stored))["status"] == "completed"
