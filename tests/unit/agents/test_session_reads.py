"""What lists of a session's parts read from the table: each log once, however many parts there are."""

from moorage.agents.session_store import SessionRecord

from tests.simulation.clock import run
from tests.unit.agents.sessions import SessionLab
from tests.unit.agents.test_session_teams import asked, played
from tests.unit.loop.lab import TENANT, Turn, say
from tests.unit.loop.teams import ask, spawn, wait


async def reads(lab: SessionLab, path: str, *, expected: int) -> int:
    """Requests to the table for a list of so many entries."""
    before = lab.lab.table.reads
    assert len(await asked(lab, path)) == expected
    return lab.lab.table.reads - before


def team(*names: str) -> dict[str, list[Turn]]:
    scripts = {f"root__{name}": [say(f"{name} is done")] for name in names}
    spawned = [spawn(name, call_id=f"call_{name}") for name in names]
    return {"root": [*spawned, *(wait() for _ in names), say("All are done.")], **scripts}


def test_a_list_of_subagents_reads_the_turn_once_and_the_steps_of_each() -> None:
    async def story() -> None:
        two, five = await played(**team("a", "b")), await played(**team("a", "b", "c", "d", "e"))
        more = await reads(five, "/subagents", expected=5) - await reads(two, "/subagents", expected=2)
        assert more == 3, "one for the steps of each further subagent"

    run(story())


def test_a_list_of_a_subagents_turns_reads_its_steps_once() -> None:
    async def story() -> None:
        found = []
        for tasks in (1, 4):
            again = [
                step
                for number in range(1, tasks)
                for step in (ask("followup_task", f"call_{number + 1}", target="a", message="Once more."), wait())
            ]
            scripts = {"root": [spawn("a"), wait(), *again, say("Done.")], "root__a": [say("First.")]}
            lab = await played(**scripts)
            (subagent,) = await asked(lab, "/subagents")
            found.append(await reads(lab, f"/subagents/{subagent['id']}/turns", expected=tasks))
        assert found[0] == found[1]

    run(story())


async def sessions_of(count: int, turns: int) -> SessionLab:
    lab = await SessionLab.begun(say("Hello."), first=None, has_container=False)
    sessions = lab.lab.runtime.stores.agent_sessions
    others: list[SessionRecord] = [lab.session]
    while len(others) < count:
        others.append(sessions.new(TENANT, {"model": "m"}, None))
        await sessions.create(others[-1])
    for session in others:
        for _ in range(turns):
            lab.lab.model.turns.append(say("Hello."))
            of = SessionLab(lab.served, session)
            await of.say("go")
            await of.play()
    return lab


async def reads_of_list(count: int, turns: int) -> int:
    lab = await sessions_of(count, turns)
    before = lab.lab.table.reads
    assert len((await lab.served.get("/agents/sessions")).json()["data"]) == count
    return lab.lab.table.reads - before


async def test_a_list_of_sessions_reads_as_much_of_each_however_many_turns_it_has() -> None:
    one, three, long = await reads_of_list(1, 1), await reads_of_list(3, 1), await reads_of_list(3, 4)
    assert long == three
    assert (three - one) // 2 <= 3, "its last turn, and what that turn's response has come to"
