"""The steps of a team as operators see them, and what each agent was sent."""

from moorage.loop.prompt import sent
from moorage.loop.step_history import unroll

from tests.unit.loop.lab import say, shell
from tests.unit.loop.teams import TeamLab, spawn, wait


def team() -> TeamLab:
    return TeamLab(
        root=[spawn("a"), shell("r1"), wait(), say("Done.")],
        root__a=[shell("a1"), spawn("b", fork_turns="none"), wait(), say("a is done")],
        root__a__b=[shell("b1"), say("b is done")],
    )


async def test_each_step_tells_its_agent_and_what_it_has_used() -> None:
    lab = team()
    stored = await lab.begin()
    await lab.play()
    snapshot = await lab.responses.snapshot(stored.tenant_id, stored.response_id)
    steps = await unroll(lab.runtime, snapshot)
    models = [step for step in steps if step.call_id is None]
    counted = {name: sum(step.agent == name for step in models) for name in ("/root", "/root/a", "/root/a/b")}
    assert counted == {"/root": 4, "/root/a": 4, "/root/a/b": 2}
    assert [(step.agent, step.type) for step in steps if step.call_id is not None] == [
        ("/root", "shell_call"),
        ("/root/a", "shell_call"),
        ("/root/a/b", "shell_call"),
    ]
    assert {step.usage.input_tokens if step.usage else 0 for step in models} == {10}
    used = {each["agent_name"]: each["total_tokens"] for each in snapshot.final_object["usage"]["agents"]}
    assert used == {name: 12 * steps for name, steps in counted.items()}
    assert {step.status for step in steps} == {"completed"}


async def test_the_prompt_of_each_step_is_what_its_agent_was_sent() -> None:
    lab = team()
    stored = await lab.begin()
    await lab.play()
    snapshot = await lab.responses.snapshot(stored.tenant_id, stored.response_id)
    steps = [step for step in await unroll(lab.runtime, snapshot) if step.call_id is None]
    for name in lab.team.scripts:
        shown = [(await sent(lab.runtime, snapshot, step.id)).request.items for step in steps if step.agent == name]
        assert shown == lab.team.prompts(name)
