"""The states of a container's sandbox change along the table's arrows only, and the page shows the table."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from moorage.containers.store import SANDBOX_TRANSITIONS, ContainerRecord, ContainerStore, SandboxRecord, SandboxState
from moorage.errors import ConditionFailed

from docs import states
from tests.unit.store.memory import MemoryTable

STATES: tuple[SandboxState | None, ...] = (None, *get_args(SandboxState))
ARROWS = {(before, after) for before, ways in SANDBOX_TRANSITIONS.items() for after in ways}


async def container_with(state: SandboxState | None) -> tuple[ContainerStore, ContainerRecord]:
    store = ContainerStore(MemoryTable(), clock=lambda: 1_800_000_000.0, retention_seconds=3600)
    made = await store.create("t", name="c", idle_minutes=20, memory_limit="1g", network_policy={"type": "disabled"})
    way: dict[SandboxState | None, list[SandboxState]] = {
        None: [],
        "starting": ["starting"],
        "running": ["starting", "running"],
        "stopping": ["starting", "stopping"],
    }
    for step in way[state]:
        made = await store.turn(made, SandboxRecord(step, claim="c"))
    return store, made


@pytest.mark.parametrize(("before", "after"), sorted(product(STATES, STATES), key=str))
async def test_only_an_arrow_of_the_table_is_gone(before: SandboxState | None, after: SandboxState | None) -> None:
    store, container = await container_with(before)
    if before == after or (before, after) in ARROWS:
        await _go(store, container, after)
        now = await store.get("t", container.id)
        assert (None if now.sandbox is None else now.sandbox.state) == after
        return
    with pytest.raises(AssertionError, match=f"cannot go from {before} to {after}"):
        await _go(store, container, after)
    assert await store.get("t", container.id) == container


async def _go(store: ContainerStore, container: ContainerRecord, state: SandboxState | None) -> None:
    if state is None:
        await store.forget_sandbox(container)
    else:
        await store.turn(container, SandboxRecord(state, claim="d"))


async def test_a_state_changes_from_what_the_writer_has_seen_only() -> None:
    store, container = await container_with("starting")
    await store.turn(container, SandboxRecord("running", claim="c"))
    with pytest.raises(ConditionFailed):
        await store.turn(container, SandboxRecord("stopping", claim="c"))
    with pytest.raises(ConditionFailed):
        await store.forget_sandbox(replace(container, incarnation=5))


def test_the_page_shows_the_table() -> None:
    page = states.PAGE.read_text()
    assert states.drawn(page) == page, "run: python docs/states.py"
    assert all(reason in page for ways in SANDBOX_TRANSITIONS.values() for reason in ways.values())
