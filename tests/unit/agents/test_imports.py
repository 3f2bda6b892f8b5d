"""Imports whose process dies: the reaper makes them whole, or leaves nothing of them."""

from contextlib import suppress

import pytest
from moorage import limits
from moorage.agents.exports import export
from moorage.agents.imports import import_agent, settle_imports
from moorage.store.table import Record
from moorage.wire.queries import PageQuery

from tests.unit.agents.sessions import PAYER, SessionLab
from tests.unit.loop.lab import TENANT, say
from tests.unit.store.deaths import Death, Died

BEFORE_THE_AGENT = 12
"""Writes of an import of two sessions, before the one of the agent."""


async def importing(lab: SessionLab) -> None:
    (file,) = (await lab.lab.runtime.stores.files.page(TENANT, PageQuery())).entries
    await import_agent(lab.lab.runtime, file, vault_ids=(), keeps_network=True, key_id=PAYER.key_id)


async def with_archive() -> SessionLab:
    """An agent with two sessions of one turn each, and its archive as a file."""
    lab = await SessionLab.begun(first=None)
    agent = (await lab.served.post("/agents", {"model": "m", "name": "clerk"})).json()
    for answer in ("one", "two"):
        lab.lab.model.turns.append(say(answer))
        body = {"agent_id": agent["id"], "environment": {"type": "none"}, "input": "go"}
        assert (await lab.served.post("/agents/sessions", body)).status_code == 200
        await lab.play()
    runtime = lab.lab.runtime
    await runtime.stores.files.create(TENANT, filename="a.tar", purpose="user_data", chunks=export(runtime, TENANT, agent["id"]))
    return lab


def kept(lab: SessionLab) -> dict[tuple[str, str], Record]:
    return {key: record for key, record in lab.lab.table.records.items() if key[1] != "GONE"}


async def shown(lab: SessionLab) -> tuple[int, int]:
    """Agents, and sessions."""
    agents, sessions = [(await lab.served.get(path)).json()["data"] for path in ("/agents", "/agents/sessions")]
    return len(agents), len(sessions)


async def dying_import(lab: SessionLab, moment: int) -> None:
    """What stands there at the moment stays: a process that is dead takes nothing back."""
    table, dies = lab.lab.table, Death(moment)
    left: list[dict[tuple[str, str], Record]] = []

    async def before_write(record: Record) -> None:
        try:
            await dies(record)
        except Died:
            left.append(dict(table.records))
            raise

    table.before_write = before_write
    with pytest.raises(Died):
        await importing(lab)
    table.before_write = None
    table.records.clear()
    table.records.update(left[0])
    assert await settle_imports(lab.lab.runtime) == 0, "it may go on still"
    lab.lab.now += limits.AGENT_IMPORT_SECONDS_MAX


@pytest.mark.parametrize("moment", range(BEFORE_THE_AGENT))
async def test_what_a_dead_import_has_left_is_deleted_whole(moment: int) -> None:
    lab = await with_archive()
    before, seen = kept(lab), await shown(lab)
    await dying_import(lab, moment)
    assert await shown(lab) == seen, "nobody sees a half"
    with suppress(Died):
        lab.lab.table.before_write = Death(1)  # A reaper dies too.
        await settle_imports(lab.lab.runtime)
    lab.lab.table.before_write = None
    await settle_imports(lab.lab.runtime)
    assert kept(lab) == before
    assert await settle_imports(lab.lab.runtime) == 0


@pytest.mark.parametrize("moment", [BEFORE_THE_AGENT, BEFORE_THE_AGENT + 1])
async def test_an_import_that_died_behind_its_agent_is_made_whole(moment: int) -> None:
    lab = await with_archive()
    agents, sessions = await shown(lab)
    await dying_import(lab, moment)
    await settle_imports(lab.lab.runtime)
    assert await shown(lab) == (agents + 1, sessions + 2)
    assert await settle_imports(lab.lab.runtime) == 0


async def test_an_import_that_was_made_stays() -> None:
    lab = await with_archive()
    await importing(lab)
    made = kept(lab)
    lab.lab.now += limits.AGENT_IMPORT_SECONDS_MAX
    assert await settle_imports(lab.lab.runtime) == 0
    assert kept(lab) == made
