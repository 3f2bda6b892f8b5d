"""Steps that run twice, late, or in the wrong company: the log stays well formed, and no command runs twice."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from moorage import limits
from moorage.errors import Superseded
from moorage.model.base import CallDelta, CallStarted, StreamFinished, UsageReported
from moorage.state import Next
from moorage.store.event_log import LogWriter, LogWriterId
from moorage.store.table import Record
from moorage.wire.types import Tool

from tests.simulation import clock
from tests.stack import assert_well_formed
from tests.unit.loop.lab import SHELL_TOOL, TENANT, Lab, Turn, broken, call, first_state, say, shell, texts
from tests.unit.store.deaths import Death, at_each_death


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


async def test_a_run_with_a_shell_reads_like_a_transcript() -> None:
    lab = Lab(shell("ls", "pwd"), say("Two commands."))
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert (response["status"], kinds(response)) == ("completed", ["shell_call", "shell_call_output", "message"])
    assert response["output"][1]["output"] == [
        {"stdout": f"{command}\n", "stderr": "!\n", "outcome": {"type": "exit", "exit_code": 0}} for command in ("ls", "pwd")
    ]
    assert response["usage"]["total_tokens"] == 24


@pytest.mark.parametrize(("minutes", "is_told"), [(31, False), (30, True), (2, True)])
async def test_a_model_is_told_that_its_containers_machine_is_about_to_end(minutes: int, is_told: bool) -> None:
    lab = Lab(shell("serve &"), say("end"))
    lab.sandboxes.ends_at = lab.now + minutes * 60
    stored = await lab.background()
    await lab.run(stored)
    (output,) = (await lab.object_of(stored))["output"][1]["output"]
    note = (
        f"\n[Note: the container's machine has reached its greatest age and ends within {minutes} minutes, its commands two minutes "
        "before. Files in /mnt/data are kept, processes are not. The command after that runs in a new machine.]"
    )
    assert output["stderr"] == "!\n" + (note if is_told else "")


@at_each_death
async def test_whenever_a_process_dies_the_retry_ends_the_response_and_runs_nothing_twice(death: Death) -> None:
    lab = Lab(*[turn for _ in range(3) for turn in (shell("make", "test"), say("Done."))])
    stored = await lab.background()
    await lab.run_with_deaths(stored, death)
    events = await lab.events(stored)
    assert_well_formed(events)
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    whole = [item for item in response["output"] if item.get("status") != "incomplete"]
    outputs = [item for item in whole if item["type"] == "shell_call_output"]
    assert [[one["stdout"] for one in item["output"]] for item in outputs] == [["make\n", "test\n"]] * len(outputs)
    assert sorted(set(lab.sandboxes.executed)) == sorted(lab.sandboxes.executed)


async def test_a_finished_step_answers_the_same_again() -> None:
    lab = Lab(shell("ls"))
    stored = await lab.background()
    first = await lab.step(first_state(stored))
    again = await lab.step(first_state(stored))
    assert (first, len(lab.model.requests)) == (again, 1)


async def test_a_finished_call_is_not_run_again() -> None:
    lab = Lab(shell("ls"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    await lab.tools(state)
    before = await lab.events(stored)
    await lab.tools(state)
    assert (await lab.events(stored), lab.sandboxes.held) == (before, 0)


async def test_a_call_whose_run_died_before_it_said_so_is_only_marked() -> None:
    lab = Lab(shell("ls"), say("end"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    await lab.tools(state)
    record = lab.table.records[f"T#{TENANT}#R#{stored.response_id}", "AT#000000#call_1"]
    del record["finished"]
    await lab.run(stored, state)
    assert_well_formed(await lab.events(stored))


async def test_a_late_batch_of_a_dead_tool_step_is_folded_in_whole() -> None:
    """The predecessor's last batch, with the end of the command and of the item, comes after its successor has looked."""
    lab = Lab(shell("ls"), say("end"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    twin = Lab(sandboxes=lab.sandboxes)
    twin.table.records = dict(lab.table.records)
    await twin.tools(state)  # What the predecessor would have written.
    (late,) = [b for b in await twin.responses.log_of(stored).read_from(0) if b.writer.call_id == "call_1"]
    await lab.runtime.stores.steps.begin_call(stored, 0, "call_1", 1)
    log = lab.responses.log_of(stored)

    async def predecessor_first(record: Record) -> None:
        if record["SK"].startswith("EV#"):
            lab.table.before_write = None
            await log.append(late)

    lab.table.before_write = predecessor_first
    await lab.run(stored, state)
    assert_well_formed(await lab.events(stored))
    assert (await lab.object_of(stored))["status"] == "completed"


async def test_a_superseded_model_step_stops_and_says_so() -> None:
    lab = Lab(say("old"), say("new"))
    stored = await lab.background()
    state = first_state(stored)

    async def successor() -> None:
        await lab.step(state)

    lab.model.before_answer = successor
    lab.model.turns.reverse()
    assert await lab.step(state) == replace(state, next=Next.DONE)
    events = await lab.events(stored)
    assert_well_formed(events)
    assert len(texts(events[-1]["response"]["output"])) == 1


async def test_a_model_step_that_meets_a_late_predecessor_looks_again() -> None:
    """The predecessor opens an item while its successor waits for the model: two items of one index must not come of it."""
    lab = Lab(say("from the successor"), say("from the third"))
    stored = await lab.background()
    state = first_state(stored)
    await lab.runtime.stores.steps.begin(stored, 0)  # The predecessor, not heard of since.

    async def predecessor() -> None:
        log = lab.responses.log_of(stored)
        last = (await log.read_from(0))[-1]
        writer = LogWriter(log, LogWriterId(0, 1), last.following)
        item = {"id": "msg_late", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        writer.add({"type": "response.output_item.added", "output_index": 0, "item": item})
        await writer.flush()

    lab.model.before_answer = predecessor
    with pytest.raises(Superseded):
        await lab.step(state)
    await lab.run(stored, state)
    events = await lab.events(stored)
    assert_well_formed(events)
    statuses = [(item["id"] == "msg_late", item["status"]) for item in events[-1]["response"]["output"]]
    assert statuses == [(True, "incomplete"), (False, "completed")]


async def test_a_response_ended_by_two_processes_has_one_end() -> None:
    lab = Lab(say("from the predecessor"), say("from the successor"))
    stored = await lab.background()
    state = first_state(stored)
    stands, woken = asyncio.Event(), asyncio.Event()

    async def stand_still(record: Record) -> None:
        if record["SK"].startswith("EV#"):
            lab.table.before_write = None
            stands.set()
            await woken.wait()

    lab.table.before_write = stand_still
    predecessor = asyncio.create_task(lab.step(state))
    await stands.wait()

    async def go_on(record: Record) -> None:
        """The successor has read where the log ends, and begins its attempt."""
        lab.table.before_write = None
        woken.set()
        await predecessor

    lab.table.before_write = go_on
    assert await lab.step(state) == replace(state, next=Next.DONE)
    assert_well_formed(await lab.events(stored))
    assert texts((await lab.object_of(stored))["output"]) == ["from the predecessor"]


async def test_a_call_that_a_later_run_has_taken_over_is_left_to_it() -> None:
    """It has read what that one wrote, so that no write of its own would meet it."""
    lab = Lab(shell("ls"), say("end"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    await lab.runtime.stores.steps.begin_call(stored, 0, "call_1", 1)  # A predecessor, which died.
    log = lab.responses.log_of(stored)

    async def later_run(record: Record) -> None:
        """It begins when this one has, and writes before it looks."""
        if record["SK"].startswith("AT#"):
            lab.table.before_write = None
            last = (await log.read_from(0))[-1]
            writer = LogWriter(log, LogWriterId(0, 3, "call_1"), last.following)
            said = {"output_index": 1, "command_index": 0, "delta": {"stdout": "ls"}}
            writer.add({"type": "response.shell_call_output_content.delta", **said})
            await writer.flush()

    lab.table.before_write = later_run
    before = len(await lab.events(stored))
    await lab.tools(state)
    assert len(await lab.events(stored)) == before + 1
    assert lab.sandboxes.executed == []


async def test_a_broken_stream_is_asked_again_without_its_half_item() -> None:
    lab = Lab(broken("half a sen"), say("Whole."))
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert [(item["status"], [part["text"] for part in item["content"]]) for item in response["output"]] == [
        ("incomplete", []),
        ("completed", ["Whole."]),
    ]
    assert lab.model.requests[1].items == lab.model.requests[0].items


async def test_a_cancelled_response_is_not_asked_about_again() -> None:
    lab = Lab(say("never"))
    stored = await lab.background()
    await lab.responses.request_cancel(stored)
    await lab.run(stored)
    assert ((await lab.object_of(stored))["status"], lab.model.requests) == ("cancelled", [])


async def test_a_step_that_keeps_crashing_fails_the_response() -> None:
    lab = Lab()
    stored = await lab.background()
    for _ in range(5):
        await lab.runtime.stores.steps.begin(stored, 0)
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


async def test_waits_are_not_counted_as_crashes() -> None:
    lab = Lab(say("at last"))
    stored = await lab.background()
    for _ in range(20):
        await lab.runtime.stores.steps.begin(stored, 0)
        await lab.runtime.stores.steps.postpone(stored, 0)
    await lab.run(stored)
    assert (await lab.object_of(stored))["status"] == "completed"


async def test_arguments_that_do_not_fit_are_told_to_the_model_and_to_nobody_else() -> None:
    lab = Lab(call("shell", '{"commands": 7}', "call_1"), call("shell", "ls", "call_2"), say("I see."))
    stored = await lab.background()
    await lab.run(stored)
    assert kinds(await lab.object_of(stored)) == ["message"]
    told = [(item["type"], item["call_id"]) for item in lab.model.requests[-1].items if "call_id" in item]
    assert told == [(kind, call_id) for call_id in ("call_1", "call_2") for kind in ("function_call", "function_call_output")]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([SHELL_TOOL], "There is no such tool. These can be called: shell."),
        ([], "There is no such tool: no tool can be called now. Answer in words."),
    ],
)
async def test_a_call_of_a_tool_that_was_not_offered_is_told_to_the_model_alone(tools: list[Tool], said: str) -> None:
    lab = Lab(call("send money!", "{}"), say("I cannot."))
    stored = await lab.background(tools=tools)
    await lab.run(stored)
    assert kinds(await lab.object_of(stored)) == ["message"]
    assert lab.model.requests[-1].items[-2:] == (
        {"type": "function_call", "call_id": "call_1", "name": "send_money_", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": said},
    )


async def test_a_misfit_beside_a_call_that_runs_is_dropped() -> None:
    lab = Lab([*call("shell", '{"commands": 7}', "call_1")[:-1], *shell("ls", call_id="call_2")], say("I see."))
    stored = await lab.background()
    await lab.run(stored)
    assert kinds(await lab.object_of(stored)) == ["shell_call", "shell_call_output", "message"]


async def test_a_model_that_never_calls_its_tool_rightly_fails_the_response() -> None:
    lab = Lab(*[call("shell", '{"commands": 7}')] * limits.STEP_ATTEMPTS_MAX)
    stored = await lab.background()
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert "do not fit" in response["error"]["message"]


SEVERAL_CALLS: Turn = [
    *(CallStarted("shell", "call_1"), CallDelta('{"commands": 7}')),
    *(CallStarted("shell", "call_2"), CallDelta('{"commands": ["ls"]}')),
    *(CallStarted("shell", "call_3"), CallDelta("7")),
    *(CallStarted("shell", "call_4"), CallDelta('{"commands": ["pwd"]}')),
    *(CallStarted("python", "call_5"), CallDelta('{"code": "1"}')),
    *(UsageReported(10, 2), StreamFinished("tool_calls")),
]
"""Two that do not fit, which nobody sees, one that runs, and two that are over a bound of one."""


@at_each_death
async def test_a_call_that_never_runs_is_answered_once_after_any_death(death: Death) -> None:
    tools = [SHELL_TOOL, {"type": "code_interpreter", "container": {"type": "auto"}}]
    lab = Lab(*[turn for _ in range(3) for turn in (SEVERAL_CALLS, say("Done."))])
    stored = await lab.background(tools=tools, parameters={"max_tool_calls": 1})

    shown = iter((0, 0, 1, 1, 2) * 2)

    async def written() -> None:
        """Each call that is shown reaches the log before the next is made: a process may die between any two."""
        expected = next(shown)
        while sum(event["type"] == "response.output_item.done" for event in await lab.events(stored)) < expected:
            await asyncio.sleep(0)

    lab.model.before_call = written
    await lab.run_with_deaths(stored, death)
    events, response = await lab.events(stored), await lab.object_of(stored)
    ends = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert_well_formed(events)
    assert (response["status"], sorted(ends)) == ("completed", list(range(len(response["output"]))))
    calls = [item["id"] for item in response["output"] if item["type"] in ("function_call", "shell_call")]
    outputs = [item["id"] for item in response["output"] if item["type"].endswith("_output")]
    assert (len(outputs), response["output"][-1]["type"]) == (len(calls), "message")
    interpreted = [item["status"] for item in response["output"] if item["type"] == "code_interpreter_call"]
    assert interpreted == ["failed"] * len(interpreted)


@pytest.mark.parametrize(("ceiling", "asked"), [(17, [17]), (18, [18, 16])])
async def test_a_response_ends_where_its_tokens_do_not_suffice_for_another_turn(ceiling: int, asked: list[int]) -> None:
    lab = Lab(shell("ls"), say("Two files."))
    stored = await lab.background(parameters={"max_output_tokens": ceiling})
    await lab.run(stored)
    response = await lab.object_of(stored)
    assert [request.max_output_tokens for request in lab.model.requests] == asked
    cut = {"reason": "max_output_tokens"}
    assert (response["status"], response["incomplete_details"]) == (("incomplete", cut) if len(asked) == 1 else ("completed", None))


def test_a_round_takes_nine_requests_to_the_table() -> None:
    """Five of the model step and four of the tool step, beside those of the container; each takes time on the way to the answer. Nobody
    waits: where a round takes a second, it looks whether it was cancelled, too."""

    async def taken(rounds: int) -> int:
        lab = Lab(*[shell("ls")] * rounds, say("end"))
        await lab.run(await lab.background())
        return lab.table.reads + lab.table.writes

    assert (clock.run(taken(4)) - clock.run(taken(1))) / 3 == 9
