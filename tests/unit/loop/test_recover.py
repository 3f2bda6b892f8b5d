import io
import json
from dataclasses import replace
from typing import Any

import pytest
from moorage import limits
from moorage.errors import StorageFull
from moorage.loop.create import InlineFirstStep, PreparedResponse
from moorage.loop.finish import end_from_outside
from moorage.loop.recover import continue_loop, declare_lost, fail_response, recover
from moorage.state import LoopState, Next
from moorage.store import object_keys
from moorage.store.responses import StoredResponse
from moorage.telemetry import open_log

from tests.opened_logs import close_log
from tests.stack import assert_well_formed
from tests.unit.loop.lab import TENANT, Lab, first_state, say, shell


async def lost(lab: Lab) -> StoredResponse:
    """A background response whose execution has vanished, long enough ago."""
    stored = await lab.background()
    lab.executions.states.clear()
    lab.now += limits.RECOVERY_SECONDS + 1
    return stored


async def test_a_loop_without_an_execution_is_started_again_and_ends() -> None:
    lab = Lab(say("after all"))
    stored = await lost(lab)
    assert await recover(lab.runtime) == 1
    state = LoopState.from_json(lab.executions.started[f"{stored.response_id}-r1"])
    await lab.run(stored, state)
    assert_well_formed(await lab.events(stored))
    assert (await lab.object_of(stored))["status"] == "completed"


async def test_a_loop_that_runs_or_has_just_given_a_sign_is_left_alone() -> None:
    lab = Lab()
    await lab.background()
    quiet = await recover(lab.runtime)
    lab.now += limits.RECOVERY_SECONDS + 1
    assert (quiet, await recover(lab.runtime)) == (0, 0)


async def test_a_sign_of_life_from_before_the_clock_was_set_back_keeps_nobody_waiting() -> None:
    lab = Lab()
    await lab.background()
    lab.executions.states.clear()
    lab.now -= 900
    assert await recover(lab.runtime) == 1


async def test_what_an_older_version_has_begun_fails_and_is_not_gone_on_with_in_part() -> None:
    lab = Lab(shell("ls"), say("never asked"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    del lab.table.records[f"T#{TENANT}#R#{stored.response_id}", "AT#000000"]["items"]
    with pytest.raises(AssertionError, match="older version"):
        await lab.step(state)
    await fail_response(lab.runtime, state)  # What the state machine makes of a step that raises again and again.
    response = await lab.object_of(stored)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


async def test_two_reapers_start_one_successor() -> None:
    lab = Lab()
    stored = await lost(lab)
    first, second = await recover(lab.runtime), await recover(lab.runtime)
    assert (first, second, sorted(lab.executions.started)) == (1, 0, [stored.response_id, f"{stored.response_id}-r1"])


async def test_what_keeps_one_from_being_taken_up_is_told_and_stops_no_other() -> None:
    lab = Lab(say("first"), say("second"))
    full, other = await lab.background(), await lost(lab)

    async def has_no_room(record: dict[str, Any]) -> None:
        if full.response_id in record["PK"]:
            raise StorageFull

    lab.table.before_write = has_no_room
    handler = open_log(out := io.StringIO())
    try:
        assert await recover(lab.runtime) == 1
    finally:
        close_log(handler)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["message"], line["error"], line["response_id"]) for line in lines if line["level"] == "ERROR"] == [
        ("response_not_taken_up", "moorage.errors.kinds.StorageFull", full.response_id)
    ]
    assert f"{other.response_id}-r1" in lab.executions.started
    lab.table.before_write = None
    assert await recover(lab.runtime) == 1


async def test_a_restart_goes_on_where_the_records_say() -> None:
    lab = Lab(shell("ls"), say("end"))
    stored = await lab.background()
    await lab.step(first_state(stored))
    lab.executions.states.clear()
    lab.now += limits.RECOVERY_SECONDS + 1
    await recover(lab.runtime)
    state = LoopState.from_json(lab.executions.started[f"{stored.response_id}-r1"])
    assert (state.next, state.step, state.calls) == (Next.TOOLS, 0, ())
    await lab.run(stored, state)
    assert (await lab.object_of(stored))["status"] == "completed"
    assert len(lab.sandboxes.executed) == 1


async def test_a_loop_that_is_lost_again_and_again_fails() -> None:
    lab = Lab()
    stored = await lab.background()
    for _ in range(limits.RECOVERIES_MAX):
        lab.executions.states.clear()
        lab.now += limits.RECOVERY_SECONDS + 1
        assert await recover(lab.runtime) == 1
    lab.executions.states.clear()
    lab.now += limits.RECOVERY_SECONDS + 1
    await recover(lab.runtime)
    assert (await lab.object_of(stored))["error"]["code"] == "server_error"
    assert await lab.responses.inflight() == []


async def test_an_ended_response_that_is_still_listed_is_taken_off_the_list() -> None:
    lab = Lab()
    stored = await lab.background()
    record = dict(lab.table.records[f"T#{TENANT}#R#{stored.response_id}", "META"])
    await end_from_outside(lab.runtime, stored, status="cancelled")
    lab.table.records[f"T#{TENANT}#R#{stored.response_id}", "META"] = record
    assert (await recover(lab.runtime), await lab.responses.inflight()) == (0, [])


async def test_an_ended_response_that_was_not_to_be_stored_is_erased() -> None:
    lab = Lab()
    stored = await lab.background(is_stored=False)
    await end_from_outside(lab.runtime, stored, status="cancelled")
    lab.now += limits.RECOVERY_SECONDS + 1
    await recover(lab.runtime)
    assert (lab.table.records, lab.blobs.objects) == ({}, {})


WITH_A_FILE: dict[str, Any] = {
    "id": "msg_in",
    "type": "message",
    "role": "user",
    "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0="}],
}


@pytest.mark.parametrize("end", ["its process is gone", "its client is gone"])
async def test_what_files_of_an_input_gave_goes_with_a_response_that_was_not_to_be_stored(end: str) -> None:
    lab = Lab()
    await lab.blobs.put_bytes(f"{object_keys.input_objects(TENANT, 'msg_in')}1.txt", b"A report about glaciers.")
    if end == "its process is gone":
        stored = await lab.background(is_stored=False, input_items=[WITH_A_FILE])
        await end_from_outside(lab.runtime, stored, status="cancelled")
        lab.now += limits.RECOVERY_SECONDS + 1
        await recover(lab.runtime)
    else:
        stored = lab.stored(is_stored=False, is_background=False, is_looping=False, input_items=[WITH_A_FILE])
        await InlineFirstStep(lab.runtime, PreparedResponse(stored, [], is_streamed=True), lambda event: None).abandon()
    assert (lab.table.records, lab.blobs.objects) == ({}, {})


async def test_a_foreground_response_without_its_process_fails_once_it_has_been_silent() -> None:
    lab = Lab()
    stored = lab.stored(is_background=False, is_looping=False)
    await lab.responses.create(stored)
    early = await declare_lost(lab.runtime, await lab.responses.snapshot(TENANT, stored.response_id))
    lab.now += limits.INLINE_STALE_SECONDS
    late = await declare_lost(lab.runtime, await lab.responses.snapshot(TENANT, stored.response_id))
    assert (early.is_final, late.final_object["status"]) == (False, "failed")
    assert_well_formed(await lab.events(stored))


async def test_one_that_was_handed_over_is_not_lost() -> None:
    lab = Lab()
    stored = lab.stored(is_background=False, is_looping=True)
    await lab.responses.create(stored)
    lab.now += limits.INLINE_STALE_SECONDS
    snapshot = await lab.responses.snapshot(TENANT, stored.response_id)
    assert await declare_lost(lab.runtime, snapshot) == snapshot


async def test_a_long_loop_goes_on_in_a_successor_of_its_own_name() -> None:
    lab = Lab()
    stored = await lab.background()
    state = replace(first_state(stored), step=150, next=Next.CONTINUE)
    ended = await continue_loop(lab.runtime.stores, state)
    again = await continue_loop(lab.runtime.stores, state)
    name = f"{stored.response_id}-c150"
    assert (ended.next, again, lab.executions.started[name]) == (
        Next.DONE,
        ended,
        replace(state, next=Next.MODEL, from_step=150).to_json(),
    )
    assert (await lab.responses.load(TENANT, stored.response_id)).execution == name


async def test_a_response_fails_once_however_often_it_is_failed() -> None:
    lab = Lab()
    stored = await lab.background()
    state = first_state(stored)
    await fail_response(lab.runtime, state)
    before = await lab.events(stored)
    await fail_response(lab.runtime, state)
    assert await lab.events(stored) == before
    assert_well_formed(before)


async def test_attempts_are_counted_and_an_outcome_is_kept() -> None:
    lab = Lab()
    stored = lab.stored()
    first = await lab.runtime.stores.steps.begin(stored, 3)
    await lab.runtime.stores.steps.postpone(stored, 3)
    second = await lab.runtime.stores.steps.begin(stored, 3)
    assert ((first.attempt, first.crashes), (second.attempt, second.crashes)) == ((1, 0), (2, 0))
    third = await lab.runtime.stores.steps.begin(stored, 3)
    assert (third.crashes, third.outcome) == (1, None)


async def test_a_handed_over_response_begins_with_its_second_attempt() -> None:
    lab = Lab()
    stored = lab.stored(is_background=False)
    assert [(await lab.runtime.stores.steps.begin(stored, step)).attempt for step in (0, 1)] == [2, 1]


async def test_a_call_remembers_the_sandbox_that_its_commands_were_started_in() -> None:
    lab = Lab()
    stored = lab.stored()
    await lab.runtime.stores.steps.begin_call(stored, 0, "c", 4)
    again = await lab.runtime.stores.steps.begin_call(stored, 0, "c", 5)
    assert (again.sandbox, again.attempt) == (4, 2)


async def test_a_command_whose_sandbox_is_gone_is_not_run_again_and_says_so() -> None:
    lab = Lab(shell("make"), say("end"))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    await lab.runtime.stores.steps.begin_call(stored, 0, "call_1", 1)
    lab.sandboxes.incarnation = 2
    await lab.run(stored, state)
    output = (await lab.object_of(stored))["output"][1]["output"][0]
    assert (output["outcome"], lab.sandboxes.executed) == ({"type": "exit", "exit_code": 137}, [])
    assert "was not run again" in output["stderr"]
