"""The loop as a machine of rules: Hypothesis finds an order of deliveries, deaths and cancels that breaks it, and makes it short.

What it has once found is kept beside this file and played first.
"""

import asyncio
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from moorage import limits
from moorage.errors import Superseded
from moorage.loop.recover import restart
from moorage.loop.stop import stop
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse
from moorage.store.table import Record

from tests.simulation.clock import VirtualLoop, run
from tests.simulation.history import Died, History, Host, beginning, played
from tests.simulation.simulate import play, told
from tests.simulation.team_history import TeamHistory
from tests.stack import assert_well_formed
from tests.unit.loop.lab import Lab, broken, first_state, say, shell

FAILURES = DirectoryBasedExampleDatabase(Path(__file__).parent / "failures")
KINDS = (History, TeamHistory)
TURNS = {"one command": [shell("a")], "three at once": [shell("a", "b", "c")], "a break": [broken("half")], "nothing": []}


class Loop(RuleBasedStateMachine):
    """One response. The state machine's executions may be several: deliveries of old ones come late."""

    lab: Lab
    stored: StoredResponse
    state: LoopState

    @initialize(first=st.sampled_from(sorted(TURNS)), second=st.sampled_from(sorted(TURNS)))
    def begin(self, first: str, second: str) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.lab = Lab(*TURNS[first], *TURNS[second], *([say("Done.")] * 200), sandboxes=Host())
        self.stored = self.runner.run(self.lab.background())
        self.state = first_state(self.stored)
        self.late: list[LoopState] = [self.state]
        self.longest: list[dict[str, Any]] = []

    @precondition(lambda self: self.state.next is not Next.DONE)
    @rule()
    def deliver(self) -> None:
        """The next task of the execution, to its end."""
        self._deliver(self.state, is_current=True)

    @precondition(lambda self: self.state.next is not Next.DONE)
    @rule(writes=st.integers(0, 6))
    def deliver_and_die(self, writes: int) -> None:
        """Its process dies in the place of a write; the state machine will deliver it again."""
        left = writes

        async def before_write(record: Record) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        self.lab.table.before_write = before_write
        self._deliver(self.state, is_current=True)

    @rule(which=st.integers(0, 10**6))
    def deliver_late(self, which: int) -> None:
        """A task of long ago, once more: at-least-once delivery, or an owner that comes back from the dead."""
        self._deliver(self.late[which % len(self.late)], is_current=False)

    @rule()
    def cancel(self) -> None:
        snapshot = self.runner.run(self.lab.responses.snapshot(self.stored.tenant_id, self.stored.response_id))
        if not snapshot.is_final:
            self.runner.run(stop(self.lab.runtime, snapshot))

    @rule()
    def recover(self) -> None:
        """The execution was lost: the reaper starts another where the records say that it stood."""
        snapshot = self.runner.run(self.lab.responses.snapshot(self.stored.tenant_id, self.stored.response_id))
        if snapshot.is_final:
            return
        before = set(self.lab.executions.started)
        self.runner.run(restart(self.lab.runtime, snapshot.stored))
        for name in set(self.lab.executions.started) - before:
            self.state = LoopState.from_json(self.lab.executions.started[name])

    @rule(seconds=st.sampled_from([-600, 1, 60, 3600]))
    def set_clock(self, seconds: int) -> None:
        self.lab.now += seconds

    @rule(times=st.integers(1, 3))
    def lose_the_host(self, times: int) -> None:
        self.lab.sandboxes.away_for = times  # type: ignore[attr-defined]

    @invariant()
    def the_log_only_grows_and_has_no_gap(self) -> None:
        if not hasattr(self, "stored"):
            return
        events = self.runner.run(self.lab.events(self.stored))
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[: len(self.longest)] == self.longest
        self.longest = events

    @invariant()
    def no_command_has_begun_twice(self) -> None:
        if hasattr(self, "stored"):
            begun = self.lab.sandboxes.executed
            assert len(begun) == len(set(begun))

    def teardown(self) -> None:
        """Left alone, it ends, and ends well."""
        if not hasattr(self, "stored"):
            return
        for _ in range(400):
            if self.state.next is Next.DONE:
                break
            self._deliver(self.state, is_current=True)
        events = self.runner.run(self.lab.events(self.stored))
        assert_well_formed(events)
        self.runner.close()

    def _deliver(self, state: LoopState, *, is_current: bool) -> None:
        try:
            following = self.runner.run(self._task(state))
        except (Died, Superseded):
            following = state
        finally:
            self.lab.table.before_write = None
        self.late.append(following)
        if is_current:
            self.state = following

    async def _task(self, state: LoopState) -> LoopState:
        if state.next is Next.DONE:
            return state
        if state.next is Next.TOOLS:
            await self.lab.tools(state)
        return await self.lab.step(state)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool step leaves at once what the state machine waits for."""
    monkeypatch.setattr(limits, "SANDBOX_HOST_WAIT_SECONDS", -1)


class TestLoop(Loop.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(
        max_examples=40,
        stateful_step_count=25,
        deadline=None,
        database=FAILURES,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("numbers", [range(60), range(5000, 5060)], ids=str)
def test_histories_of_one_seed_end_well(numbers: range) -> None:
    for number in numbers:
        play(number)


@pytest.mark.parametrize("numbers", [range(60), range(5000, 5060)], ids=str)
def test_histories_of_teams_end_well(numbers: range) -> None:
    for number in numbers:
        play(number, TeamHistory)


def test_a_number_is_a_history_in_every_process() -> None:
    """Also in one whose sets are in another order than ours."""
    program = (
        "from tests.simulation import simulate; from tests.simulation.test_simulated import KINDS, played; simulate.prepare(); "
        "print([played(number, None, kind)[0].digest() for kind in KINDS for number in range(30)])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
    ).stdout
    here = [played(number, None, kind)[0].digest() for kind in KINDS for number in range(30)]
    assert printed == f"{here}\n"


def test_what_a_loop_leaves_behind_ends_with_it() -> None:
    ended: list[str] = []

    async def wait_for_nobody(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def begin() -> list[asyncio.Task[None]]:
        begun = [asyncio.create_task(wait_for_nobody(name)) for name in ("a", "b")]
        await asyncio.sleep(1)
        return begun

    begun = run(begin())
    assert (ended, [task.cancelled() for task in begun]) == (["a", "b"], [True, True])


def test_histories_leave_what_all_begin_with_as_it_was() -> None:
    before = deepcopy(beginning())
    for number in range(20):
        play(number)
    assert beginning() == before


class _NeverHeardOf(list[str]):
    def __contains__(self, name: object) -> bool:
        return False


class Forgetful(Host):
    """It does not know a command by its name, and runs it again for whoever comes to attach to it."""

    def __init__(self) -> None:
        super().__init__()
        self.executed = _NeverHeardOf()


class Careless(History):
    host_kind = Forgetful


def test_what_goes_wrong_is_told_with_the_blows_that_matter() -> None:
    going_wrong = ((number, *played(number, None, Careless)) for number in range(1000))
    number, history, said = next((number, history, said) for number, history, said in going_wrong if said and len(history.dealt) > 2)
    first, *blows, again = told(number, said, Careless).splitlines()
    assert first.startswith(f"history {number}: AssertionError: begun twice")
    assert 0 < len(blows) < len(history.dealt)
    assert again.startswith(f"  Again: python -m tests.simulation.simulate --histories 1 --from {number} --only ")
