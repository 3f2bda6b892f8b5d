"""What cannot be had for now is waited for in the state machine, with an end, a reason that can be read, and a way to cancel."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from moorage import limits
from moorage.api.responses import current_object
from moorage.errors import SandboxHostAway, StorageFull, UpstreamError
from moorage.loop.stop import stop
from moorage.state import LoopState, Next
from moorage.store import keys
from moorage.store.responses import StoredResponse
from moorage.store.table import Record
from openai.types.responses import Response

from tests.stack import assert_well_formed
from tests.unit.loop.lab import FakeSandboxes, Lab, Turn, broken, call, first_state, say, shell, texts
from tests.unit.loop.teams import TeamLab, ask, spawn, text_of, wait

AWAY = "What starts sandboxes on this machine does not answer."
LOST = (
    "[The container stopped while this command was running, and the command was not run again. Its processes are gone; files that "
    "were saved before are still in /mnt/data.]"
)


class AwayFor(FakeSandboxes):
    """The launcher answers again after so many questions."""

    asked_in_vain = 0
    times = 10**9

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        if self.asked_in_vain < self.times:
            self.asked_in_vain += 1
            raise SandboxHostAway
        return await super().ensure(tenant_id, container_id, seen=seen)

    async def place(self, tenant_id: str, container_id: str) -> None:
        raise AssertionError("nobody is there who could place one")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool step leaves at once what the state machine waits for."""
    monkeypatch.setattr(limits, "SANDBOX_HOST_WAIT_SECONDS", -1)


async def turn(lab: Lab, state: LoopState) -> LoopState:
    """The state machine as far as its next model step."""
    if state.next is Next.TOOLS:
        await lab.tools(state)
    if state.next is Next.WAIT:
        lab.now += state.wait_seconds
    return await lab.step(state)


async def waiting_for(lab: Lab, stored: StoredResponse) -> str | None:
    snapshot = await lab.responses.snapshot(stored.tenant_id, stored.response_id)
    return (await current_object(lab.runtime.stores, lab.runtime.clock, snapshot)).get("waiting_for")


async def test_a_launcher_that_comes_back_runs_the_waiting_command_once() -> None:
    sandboxes = AwayFor()
    sandboxes.times = 6
    lab = Lab(shell("make"), say("Done."), sandboxes=sandboxes)
    stored = await lab.background()
    state, pauses, reasons = first_state(stored), [], set()
    while state.next is not Next.DONE:
        state = await turn(lab, state)
        if state.next is Next.WAIT:
            pauses.append(state.wait_seconds)
            reasons.add(await waiting_for(lab, stored))
    response = await lab.object_of(stored)
    assert (pauses, reasons) == ([1, 2, 4, 8, 15, 15], {AWAY})
    assert [item["output"][0]["stdout"] for item in response["output"] if item["type"] == "shell_call_output"] == ["make\n"]
    assert (response["status"], response.get("waiting_for"), len(sandboxes.executed)) == ("completed", None, 1)
    assert_well_formed(await lab.events(stored))


async def test_a_launcher_that_never_comes_back_is_told_to_the_model() -> None:
    lab = Lab(shell("make"), say("So be it."), sandboxes=AwayFor())
    stored = await lab.background()
    state = first_state(stored)
    while state.next is not Next.DONE:
        state = await turn(lab, state)
    response = await lab.object_of(stored)
    (output,) = [item["output"][0] for item in response["output"] if item["type"] == "shell_call_output"]
    assert output["stderr"] == f"[This command could not be run: the container could not be reached. {AWAY}]"
    assert response["status"] == "completed"
    waited = lab.now - stored.created_at
    assert limits.SANDBOX_PATIENCE_SECONDS < waited < limits.SANDBOX_PATIENCE_SECONDS + 60


async def test_a_program_that_finds_no_launcher_has_an_output_of_its_own() -> None:
    program = call("run_program", '{"code": "..."}', "call_program")
    lab = Lab(program, say("So be it."), sandboxes=AwayFor())
    stored = await lab.background(tools=[{"type": "programmatic_tool_calling"}])
    state = first_state(stored)
    while state.next is not Next.DONE:
        state = await turn(lab, state)
    output = (await lab.object_of(stored))["output"]
    assert [item["type"] for item in output] == ["program", "program_output", "message"]
    assert len({item["id"] for item in output}) == 3
    assert AWAY in output[1]["result"]


async def test_a_run_that_was_taken_for_dead_may_end_a_call_beside_the_next_one() -> None:
    """Two give up at the same moment, and what the model reads of it stands in the log once."""
    lab = Lab(shell("make"), say("So be it."), sandboxes=AwayFor())
    stored = await lab.background()
    state = await turn(lab, await turn(lab, await turn(lab, first_state(stored))))
    lab.now += limits.SANDBOX_PATIENCE_SECONDS + 1
    stands = {name: asyncio.Event() for name in ("second begins", "first ends", "second ends")}
    writes = Counter[bool]()

    async def before_write(record: Record) -> None:
        is_first = asyncio.current_task() is first
        writes[is_first] += 1
        if record["SK"].startswith(keys.event.prefix):
            stands["first ends" if is_first else "second ends"].set()
            await (stands["second ends"].wait() if is_first else first)
        elif writes[is_first] == 2:  # The first is the note that they wait for the container.
            if not is_first:
                stands["second begins"].set()
            await stands["second begins" if is_first else "first ends"].wait()

    lab.table.before_write = before_write
    first = asyncio.create_task(lab.tools(state))
    await lab.tools(state)
    assert all(event.is_set() for event in stands.values())
    lab.table.before_write = None
    while state.next is not Next.DONE:
        state = await turn(lab, state)
    assert_well_formed(await lab.events(stored))
    (output,) = [item["output"][0] for item in (await lab.object_of(stored))["output"] if item["type"] == "shell_call_output"]
    assert output["stderr"] == f"[This command could not be run: the container could not be reached. {AWAY}]"


async def test_a_response_that_waits_can_be_cancelled() -> None:
    lab = Lab(shell("make"), sandboxes=AwayFor())
    stored = await lab.background()
    state = await turn(lab, await lab.step(first_state(stored)))
    assert state.next is Next.WAIT
    await stop(lab.runtime, await lab.responses.snapshot(stored.tenant_id, stored.response_id))
    assert (await lab.object_of(stored))["status"] == "cancelled"
    assert (await turn(lab, state)).next is Next.DONE


class Dying(FakeSandboxes):
    """Launcher, sandbox and step worker die in the middle of the first command."""

    is_dead = False

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        if self.is_dead:
            raise SandboxHostAway
        live = await super().ensure(tenant_id, container_id, seen=seen)
        whole = live.exec

        async def exec_(identity: str, command: str, **options: Any) -> Any:
            async for event in whole(identity, command, **options):
                if event.n == 2:
                    self.is_dead = True
                    raise _WorkerDied
                yield event

        return _LiveWith(live, exec_)


class _WorkerDied(Exception):
    pass


class _LiveWith:
    """A live container with another way to run commands."""

    def __init__(self, live: Any, exec_: Any) -> None:
        self._live, self.exec, self.record, self.notes = live, exec_, live.record, ()
        self.client = cast("Any", SimpleNamespace(exec=exec_))

    async def __aenter__(self) -> "_LiveWith":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._live.__aexit__()


async def test_a_command_that_had_begun_is_lost_and_never_said_not_to_have_run() -> None:
    lab = Lab(shell("make"), say("end"), sandboxes=Dying())
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    with pytest.raises(_WorkerDied):
        await lab.tools(state)
    state = await lab.step(state)
    lab.now += limits.SANDBOX_PATIENCE_SECONDS + 1
    await lab.tools(replace(state, next=Next.TOOLS))
    while state.next is not Next.DONE:
        lab.now += limits.SANDBOX_PATIENCE_SECONDS + 1
        state = await turn(lab, state)
    response = await lab.object_of(stored)
    (output,) = [item["output"][0] for item in response["output"] if item["type"] == "shell_call_output"]
    assert output == {"stdout": "", "stderr": LOST, "outcome": {"type": "exit", "exit_code": 137}}
    assert_well_formed(await lab.events(stored))


class Refusing:
    """A store that takes no files, as often as said."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error = times, error

    async def sync(self, live: Any, **_: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return SimpleNamespace(notes=(), changed=(), at_ms=0)


@pytest.mark.parametrize(
    ("times", "stderr"),
    [
        (limits.STORING_ATTEMPTS_MAX - 1, "!\n"),
        (
            10**9,
            "!\n\n[Note: what changed under /mnt/data could not be stored. It is there as long as the container runs, and the next "
            "command tries to store it again.]",
        ),
    ],
    ids=["soon well again", "refuses for good"],
)
@pytest.mark.parametrize(
    "error",
    [ClientError({"Error": {"Code": "InternalError", "Message": "no"}}, "PutObject"), StorageFull()],
    ids=["S3 fails", "the disk is full"],
)
async def test_files_that_cannot_be_stored_do_not_keep_a_call_from_its_end(times: int, stderr: str, error: Exception) -> None:
    lab = Lab(shell("make"), say("end"))
    cast("Any", lab.runtime.computers.containers).artifacts = Refusing(times, error)
    stored = await lab.background()
    state, runs = await lab.step(first_state(stored)), 0
    while True:
        runs += 1
        assert runs <= limits.STORING_ATTEMPTS_MAX
        try:
            await lab.tools(state)
        except type(error):
            continue
        break
    await lab.run(stored, await lab.step(state))
    response = await lab.object_of(stored)
    (output,) = [item["output"][0] for item in response["output"] if item["type"] == "shell_call_output"]
    assert (response["status"], output["stdout"], output["stderr"].rstrip("\n")) == ("completed", "make\n", stderr.rstrip("\n"))
    assert (runs, len(lab.sandboxes.executed)) == (limits.STORING_ATTEMPTS_MAX, 1)


async def test_a_call_whose_runs_all_fail_ends_the_response() -> None:
    """The runs of the tool step crash before they get anywhere: the state machine's retries are over, and the model step looks."""
    lab = Lab(shell("make"))
    stored = await lab.background()
    state, rounds = await lab.step(first_state(stored)), 0
    while state.next is not Next.DONE:
        rounds += 1
        state = await lab.step(state)
    response = await lab.object_of(stored)
    assert (response["error"]["code"], response["error"]["message"]) == (
        "server_error",
        f"A tool call failed in {limits.CALL_ROUNDS_MAX} rounds in a row.",
    )
    assert rounds == limits.CALL_ROUNDS_MAX + 1
    assert_well_formed(await lab.events(stored))


async def test_a_call_that_is_sent_round_for_a_day_ends_the_response() -> None:
    lab = Lab(shell("make"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    lab.now += limits.RESPONSE_SECONDS_MAX + 1
    assert (await lab.step(state)).next is Next.DONE
    assert (await lab.object_of(stored))["error"]["code"] == "loop_limit_exceeded"


def refused() -> Turn:
    return [UpstreamError("The connection to the model upstream failed (ConnectError).", is_retryable=True)]


async def test_an_outage_of_an_hour_is_survived_in_the_background() -> None:
    outage = 3600
    lab = Lab(shell("make"), *[refused() for _ in range(100)])
    stored = await lab.background()
    state, pauses, reason = first_state(stored), [], None
    while state.next is not Next.DONE:
        if lab.now - stored.created_at > outage:
            lab.model.turns[:] = [say("Back.")]
        state = await turn(lab, state)
        if state.next is Next.WAIT:
            pauses.append(state.wait_seconds)
            reason = await waiting_for(lab, stored)
    response = await lab.object_of(stored)
    assert (response["status"], texts(response["output"]), pauses[:7]) == ("completed", ["Back."], [2, 4, 8, 16, 32, 60, 60])
    assert reason == "The model's provider, which is asked again: The connection to the model upstream failed (ConnectError)."
    assert lab.sandboxes.executed == sorted(set(lab.sandboxes.executed))
    assert_well_formed(await lab.events(stored))


async def test_an_outage_that_does_not_end_ends_the_response() -> None:
    lab = Lab(*[refused() for _ in range(limits.WAITS_MAX + 1)])
    stored = await lab.background()
    state = first_state(stored)
    while state.next is not Next.DONE:
        state = await turn(lab, state)
    error = (await lab.object_of(stored))["error"]
    assert (error["code"], error["message"]) == (
        "server_error",
        f"The model's provider gave no answer after {limits.WAITS_MAX} pauses.",
    )


async def test_a_client_in_the_foreground_is_told_at_once() -> None:
    lab = Lab(*[refused() for _ in range(10)])
    stored = await lab.background(is_background=False)
    state = await lab.step(first_state(stored))
    assert (state.next, (await lab.object_of(stored))["status"]) == (Next.DONE, "failed")


async def test_a_break_before_an_outage_loses_no_item_and_says_nothing_twice() -> None:
    """Half an answer, then nobody there, then the whole answer: ``output_text`` is the whole answer alone."""
    lab = Lab(broken("The answer "), refused(), refused(), say("The answer is 42."))
    stored = await lab.background()
    state = first_state(stored)
    while state.next is not Next.DONE:
        state = await turn(lab, state)
    events = await lab.events(stored)
    assert_well_formed(events)
    response = await lab.object_of(stored)
    assert [(item["status"], item["content"] == []) for item in response["output"]] == [("incomplete", True), ("completed", False)]
    streamed = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    read = Response.model_validate(response | {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True})
    assert (streamed, read.output_text) == ("The answer The answer is 42.", "The answer is 42.")


async def test_a_message_that_nobody_says_anew_keeps_its_beginning() -> None:
    lab = Lab([*broken("The answer ")[:-1], UpstreamError("No.", is_retryable=False)])
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert (response["status"], texts(response["output"])) == ("failed", ["The answer "])


async def test_an_agent_is_interrupted_twice_while_its_command_waits_for_a_sandbox() -> None:
    """It has got a further task in between, so that the command still waits."""

    def interrupts(call_id: str) -> Turn:
        return ask("interrupt_agent", call_id, target="a")

    further = ask("followup_task", "call_3", target="a", message="More.")
    lab = TeamLab(
        AwayFor(),
        root=[spawn("a"), interrupts("call_2"), further, interrupts("call_4"), wait(), say("Done.")],
        root__a=[shell("a1"), say("never")],
    )
    lab.loses_executions = True
    stored = await lab.begin()
    root, child = stored.response_id, f"{stored.response_id}-l1"
    for name in (root, child, child, root, child, root, f"{child}-1", root):
        await lab.task(name)
    assert lab.states[f"{child}-1"].next is Next.WAIT
    await lab.play()
    response = await lab.object_of(stored)
    told = [text_of(item).partition("Payload:\n")[2] for item in response["output"] if item.get("recipient") == "/root"]
    assert told == ["This agent ended its turn without an answer: interrupted."] * 2
    assert response["status"] == "completed"
