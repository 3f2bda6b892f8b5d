"""Who sees to a sandbox: the first model step while the model thinks, and a later one when a tool step came back without."""

import asyncio
import gc
import logging

import pytest
from moorage.loop.prewarm import SandboxPrewarm
from moorage.state import Next

from tests.unit.loop.lab import Lab, first_state, say, shell


async def test_the_first_step_of_a_background_response_has_a_sandbox_ready_for_its_calls() -> None:
    lab = Lab(shell("ls"), say("Done."))
    lab.sandboxes.is_there = False
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    assert (state.next, lab.sandboxes.is_there) == (Next.TOOLS, True)
    await lab.run(stored, state)
    assert ((await lab.object_of(stored))["status"], lab.sandboxes.placings) == ("completed", 1)


async def test_a_call_without_a_sandbox_goes_back_to_the_model_step_for_one() -> None:
    lab = Lab(shell("ls"), say("Done."))
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    lab.sandboxes.is_there = False
    await lab.tools(state)
    assert lab.sandboxes.executed == []
    again = await lab.step(state)
    assert (again, lab.sandboxes.placings) == (state, 2)
    await lab.run(stored, again)
    assert [item["type"] for item in (await lab.object_of(stored))["output"]] == ["shell_call", "shell_call_output", "message"]
    assert len(lab.sandboxes.executed) == 1
    assert len(lab.model.requests) == 2


async def test_a_sandbox_that_cannot_be_had_ahead_does_not_end_the_response(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise ConnectionError("ECS is silent")

    lab = Lab(shell("ls"), say("Done."))
    lab.sandboxes.before_place = refuse
    stored = await lab.background()
    with caplog.at_level(logging.ERROR):
        await lab.run(stored)
    assert (await lab.object_of(stored))["status"] == "completed"
    assert "no sandbox could be had ahead of its calls" in caplog.text


async def test_what_stood_in_its_way_is_told_although_nobody_waits_for_it_any_more(caplog: pytest.LogCaptureFixture) -> None:
    """A stack that is stopped in the middle of a response leaves it to itself."""

    def refuse() -> None:
        raise ConnectionError("the launcher is gone")

    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    lab = Lab()
    lab.sandboxes.before_place = refuse
    standby = SandboxPrewarm.begin(lab.runtime.computers.containers, await lab.background())
    assert standby is not None
    await asyncio.wait({standby.task})
    del standby
    gc.collect()
    assert unheard == []
    assert "no sandbox could be had ahead of its calls" in caplog.text
