"""A response that is paused stands still before its next step, without an execution, and goes on where it stood, once."""

from typing import Any

import pytest
from moorage import limits
from moorage.loop.recover import recover
from moorage.loop.stop import stop
from moorage.state import LoopState, Next
from moorage.store import keys

from tests.stack import assert_well_formed
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, first_state, say, shell


async def paused(served: Served, response_id: str) -> dict[str, Any]:
    answer = await served.post(f"/responses/{response_id}/pause")
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def resumed(served: Served, response_id: str) -> list[str]:
    """The executions that were started for it since."""
    before = set(served.lab.executions.started)
    answer = await served.post(f"/responses/{response_id}/resume")
    assert answer.status_code == 200, answer.text
    return [name for name in served.lab.executions.started if name not in before]


async def run_all(lab: Lab, name: str) -> LoopState:
    """An execution from its beginning to its end."""
    state = LoopState.from_json(lab.executions.started[name])
    while state.next is not Next.DONE:
        if state.next is Next.TOOLS:
            await lab.tools(state)
        state = await lab.step(state)
    lab.executions.states[name] = "SUCCEEDED"
    return state


@pytest.mark.parametrize("steps_before", [0, 1, 2, 3])
async def test_it_stands_still_before_any_step_and_goes_on_there(steps_before: int) -> None:
    served = Served.of(Lab(shell("one"), shell("two", call_id="call_2"), say("done")))
    stored = await served.lab.background()
    state = first_state(stored)
    for number in range(steps_before):
        if number % 2 == 1:
            await served.lab.tools(state)
        else:
            state = await served.lab.step(state)
    await paused(served, stored.response_id)
    if state.next is Next.TOOLS:
        await served.lab.tools(state)
    assert (await served.lab.step(state)).next is Next.DONE
    served.lab.executions.states[stored.response_id] = "SUCCEEDED"
    standing = (await served.get(f"/responses/{stored.response_id}")).json()
    assert standing["waiting_for"] == "It is paused: POST /v1/responses/{id}/resume, or 'moorage resume', lets it go on."
    (row,) = (await served.get("/responses", status="queued,in_progress")).json()["data"]
    assert (row["waiting_for"]["kind"], row["waiting_for"]["since"]) == ("pause", int(served.lab.now * 1000))
    (name,) = await resumed(served, stored.response_id)
    await run_all(served.lab, name)
    ended = await served.lab.object_of(stored)
    assert (ended["status"], ended.get("waiting_for"), len(served.lab.sandboxes.executed)) == ("completed", None, 2)
    assert_well_formed(await served.lab.events(stored))


async def test_every_answer_names_the_command_that_resumes_it_as_its_reader_types_it() -> None:
    served = Served.of(Lab(shell("one"), say("done")))
    served.lab.runtime.command = ".venv/bin/moorage"
    stored = await served.lab.background()
    state = await served.lab.step(first_state(stored))
    told = "It is paused: POST /v1/responses/{id}/resume, or '.venv/bin/moorage resume', lets it go on."
    await paused(served, stored.response_id)
    await served.lab.step(state)
    served.lab.executions.states[stored.response_id] = "SUCCEEDED"
    place = f"/responses/{stored.response_id}"
    (row,) = (await served.get("/responses", status="in_progress")).json()["data"]
    assert (await served.get(place)).json()["waiting_for"] == row["waiting_for"]["detail"] == told
    waits = [step["waiting_for"] for step in (await served.get(f"{place}/steps")).json()["data"] if step["waiting_for"]]
    assert [wait["detail"] for wait in waits] == [told]


async def test_a_command_that_has_not_begun_is_not_begun() -> None:
    served = Served.of(Lab(shell("one"), say("done")))
    stored = await served.lab.background()
    state = await served.lab.step(first_state(stored))
    await paused(served, stored.response_id)
    await served.lab.tools(state)
    assert served.lab.sandboxes.executed == []


async def test_the_reaper_leaves_paused_responses_alone() -> None:
    served = Served.of(Lab(shell("one"), say("done")))
    stored = await served.lab.background()
    state = await served.lab.step(first_state(stored))
    await paused(served, stored.response_id)
    await served.lab.step(state)
    served.lab.executions.states.clear()  # As a local stack finds it after a restart.
    for _ in range(3):
        served.lab.now += 24 * 3600
        assert await recover(served.lab.runtime) == 0
    (name,) = await resumed(served, stored.response_id)
    await run_all(served.lab, name)
    assert (await served.lab.object_of(stored))["status"] == "completed", "the days of the pause count for no bound"


async def test_a_process_that_dies_between_the_flag_and_the_execution_is_made_up_for() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await paused(served, stored.response_id)
    await served.lab.step(first_state(stored))
    served.lab.executions.states[stored.response_id] = "SUCCEEDED"
    await served.lab.responses.unpark(await served.lab.responses.load("t", stored.response_id))
    served.lab.now += limits.RECOVERY_SECONDS + 1
    assert await recover(served.lab.runtime) == 1
    (name,) = [name for name in served.lab.executions.started if name != stored.response_id]
    await run_all(served.lab, name)
    assert (await served.lab.object_of(stored))["status"] == "completed"


async def test_a_response_that_goes_on_before_it_stood_still_keeps_its_execution() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await paused(served, stored.response_id)
    assert await resumed(served, stored.response_id) == []
    await served.lab.run(stored)
    assert (await served.lab.object_of(stored))["status"] == "completed"


async def test_of_two_that_let_it_go_on_one_starts_it() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await paused(served, stored.response_id)
    await served.lab.step(first_state(stored))
    seen = await served.lab.responses.load("t", stored.response_id)
    first, second = await served.lab.responses.unpark(seen), await served.lab.responses.unpark(seen)
    assert (first.parked_at, second.parked_at) == (seen.parked_at, 0)


async def test_a_step_that_parks_at_the_moment_of_a_resume_is_found() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await paused(served, stored.response_id)
    early = await served.lab.responses.load("t", stored.response_id)
    await served.lab.step(first_state(stored))
    assert (await served.lab.responses.unpark(early)).parked_at == int(served.lab.now)


async def test_a_parked_step_that_runs_again_stays_parked_since_the_same_time() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await paused(served, stored.response_id)
    await served.lab.step(first_state(stored))
    since = (await served.lab.responses.load("t", stored.response_id)).parked_at
    served.lab.now += 60
    assert (await served.lab.step(first_state(stored))).next is Next.DONE
    assert (await served.lab.responses.load("t", stored.response_id)).parked_at == since


async def test_what_stands_still_can_be_cancelled() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await paused(served, stored.response_id)
    await served.lab.step(first_state(stored))
    await stop(served.lab.runtime, await served.lab.responses.snapshot("t", stored.response_id))
    assert (await served.lab.object_of(stored))["status"] == "cancelled"
    assert await resumed(served, stored.response_id) == []


async def test_a_response_that_has_ended_is_answered_and_left_alone() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await served.lab.run(stored)
    before = dict(served.lab.table.records[keys.response("t", stored.response_id), keys.META])
    assert (await paused(served, stored.response_id))["status"] == "completed"
    assert await resumed(served, stored.response_id) == []
    assert served.lab.table.records[keys.response("t", stored.response_id), keys.META] == before


async def test_a_response_without_calls_is_not_paused_and_a_foreign_one_unknown() -> None:
    served = Served.of(Lab(say("done")))
    foreground = served.lab.stored(is_background=False, is_looping=False)
    await served.lab.responses.create(foreground)
    assert (await served.post(f"/responses/{foreground.response_id}/pause")).status_code == 400
    background = await served.lab.background()
    for action in ("pause", "resume"):
        assert (await served.post(f"/responses/{background.response_id}/{action}", by="key-b")).status_code == 404
