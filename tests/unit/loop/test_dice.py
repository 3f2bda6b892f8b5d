"""A toy tool goes the whole way of a hosted tool, though no module knows its name: offered, called, run outside of the sandboxes'
network, killed in the middle, taken over, bounded, and fed to the next turn."""

import asyncio
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from moorage.api.view import ResponseView
from moorage.cli.tail import TranscriptView as Tail
from moorage.errors import LostSight
from moorage.loop.chain import chain_items
from moorage.loop.fold import fold
from moorage.model.remote_servers import RemoteServers
from moorage.state import LoopState
from moorage.store.responses import StoredResponse
from moorage.tools.calls import CallEnd
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallLimits, RerunPolicy
from moorage.wire.types import Event

from tests.rooms.dice import CHARM, WORDS, Dice
from tests.stack import assert_well_formed
from tests.unit.loop.lab import SHELL_TOOL, Lab, Turn, call, first_state, say, shell
from tests.unit.loop.test_cancellation import Flag
from tests.unit.store.deaths import Death, at_each_death

DICE_TOOL: dict[str, Any] = {"type": "dice", "faces": 6}


def roll(count: int, call_id: str = "call_1") -> Turn:
    return call("roll", f'{{"count": {count}}}', call_id)


def together(*turns: Turn) -> Turn:
    """One turn with the calls of several."""
    return [delta for turn in turns for delta in turn[:-2]] + turns[-1][-2:]


@contextmanager
def table_with(dice: Dice, *turns: Turn) -> Iterator[Lab]:
    with ROOMS.lent(dice):
        yield Lab(*turns)


async def played(lab: Lab, **changes: Any) -> StoredResponse:
    """A response that is run to its end, with dice and no container."""
    stored = await lab.background(**({"tools": [DICE_TOOL], "container_id": None} | changes))
    await lab.run(stored)
    return stored


async def dice_of(lab: Lab, stored: StoredResponse) -> list[dict[str, Any]]:
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    return [item for item in response["output"] if item["type"] == "dice_call"]


def own(events: list[Event], item_id: str) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events if event.get("item_id") == item_id]


# --- the straight way ---


async def test_dice_are_offered_called_rolled_and_read() -> None:
    with table_with(Dice(), roll(2), say("Two fours.")) as lab:
        stored = await played(lab)
        events = await lab.events(stored)
        (item,) = await dice_of(lab, stored)
        assert_well_formed(events)
        assert lab.model.requests[0].tools[0]["description"] == "Roll dice with 6 faces."
        assert (item["status"], item["rolls"], lab.sandboxes.held) == ("completed", [4, 4], 0)
        assert own(events, item["id"]) == ["dice_call.rolling", "dice_call.rolled", "dice_call.rolled", "dice_call.completed"]
        asked, answered = lab.model.requests[1].items[-2:]
        assert (asked["name"], asked["arguments"], answered["output"]) == ("roll", '{"count":2}', "They fell: [4, 4]")


async def test_a_call_outside_of_the_sandboxes_network_has_its_own_branch() -> None:
    with table_with(Dice(), roll(1)) as lab:
        stored = await lab.background(tools=[DICE_TOOL], container_id=None)
        state = (await lab.step(first_state(stored))).to_json()
        (item,) = fold(await lab.events(stored)).items.values()
        assert (state["next"], state["calls"], state["container_id"]) == ("service", [item["id"]], None)
        assert LoopState.from_json(state).to_json() == state


async def test_a_round_mixes_dice_and_commands() -> None:
    with table_with(Dice(), together(roll(1), shell("ls", call_id="call_2")), say("Both.")) as lab:
        stored = await lab.background(tools=[DICE_TOOL, SHELL_TOOL])
        state = await lab.step(first_state(stored))
        assert [call["place"] for call in state.to_json()["routed"]] == ["service", "sandbox"]
        await lab.run(stored, state)
        response = await lab.object_of(stored)
        assert_well_formed(await lab.events(stored))
        assert [item["type"] for item in response["output"]] == ["dice_call", "shell_call", "shell_call_output", "message"]
        assert response["output"][0]["rolls"] == [4]
        assert response["output"][2]["output"][0]["stdout"] == "ls\n"


async def test_the_next_response_goes_on_from_dice() -> None:
    with table_with(Dice(), roll(1), say("A four.")) as lab:
        stored = await played(lab)
        snapshot = await lab.responses.snapshot("t", stored.response_id)
        assert [item["type"] for item in chain_items([snapshot.part])][1:] == ["dice_call", "message"]


# --- what is seen ---


async def test_clients_see_of_dice_what_they_include_and_operators_each_roll() -> None:
    with table_with(Dice(), roll(2), say("Two fours.")) as lab:
        stored = await played(lab)
        response = await lab.object_of(stored)
        shown = [ResponseView.of(include).response(response)["output"][0]["rolls"] for include in ((), ("dice_call.rolls",))]
        out = io.StringIO()
        Tail(out).show(await lab.events(stored))
        assert (shown, out.getvalue().count("rolled 4")) == ([None, [4, 4]], 2)


# --- secrets ---


async def test_a_secret_is_sealed_in_the_record_and_forgotten_when_the_response_has_ended() -> None:
    with table_with(Dice(), roll(1), say("Charmed.")) as lab:
        tool, values = Dice().extract_secrets(DICE_TOOL | {"charm": CHARM}, "secret_0", RemoteServers())
        sealed = {handle: lab.runtime.stores.sealer.seal("t", value) for handle, value in values.items()}
        stored = await lab.background(tools=[tool], container_id=None, secrets=sealed)
        key = ("T#t#R#" + stored.response_id, "META")
        found = (await lab.responses.snapshot("t", stored.response_id)).stored
        assert (found.secrets, CHARM in str(lab.table.records)) == (sealed, False)
        await lab.run(stored)
        (item,) = await dice_of(lab, stored)
        assert (tool["charm"], item["is_charmed"], "secrets" in lab.table.records[key]) == ("secret_0", True, False)


# --- over a bound ---


async def test_more_dice_than_a_round_allows_are_refused() -> None:
    turns = together(*(roll(1, f"call_{number}") for number in range(3)))
    with table_with(Dice(), turns, say("Enough.")) as lab:
        items = await dice_of(lab, await played(lab))
        assert [item["status"] for item in items] == ["completed", "completed", "failed"]
        assert items[2]["error"] == WORDS[CallEnd.REFUSED]


async def test_more_dice_than_a_response_allows_are_refused() -> None:
    with table_with(Dice(), together(roll(1), roll(1, "call_2")), say("Enough.")) as lab:
        items = await dice_of(lab, await played(lab, parameters={"max_tool_calls": 1}))
        assert [item["status"] for item in items] == ["completed", "failed"]


async def test_dice_that_say_more_than_their_bound_are_stopped_and_what_was_said_is_kept() -> None:
    dice = Dice(call_limits=CallLimits(seconds=5, bytes=1_000))
    with table_with(dice, roll(1_000), say("Enough.")) as lab:
        stored = await played(lab)
        (item,) = await dice_of(lab, stored)
        assert_well_formed(await lab.events(stored))
        assert item["error"] == f"{WORDS[CallEnd.TOO_LARGE]} It said more than 1000 bytes."
        assert item["rolls"] == [4] * (dice.rolled - 1), "the last one was over the bound"
        assert 1 < dice.rolled < 20


async def test_dice_that_roll_for_longer_than_their_bound_are_stopped() -> None:
    async def never() -> int:
        await asyncio.Event().wait()
        raise AssertionError

    with table_with(Dice(call_limits=CallLimits(seconds=0.01), roll=never), roll(1), say("Enough.")) as lab:
        (item,) = await dice_of(lab, await played(lab))
        assert item["error"] == f"{WORDS[CallEnd.TIME_OVER]} It took longer than 0.01 seconds."


# --- deaths ---


@pytest.mark.parametrize("again", RerunPolicy)
@at_each_death
async def test_whenever_a_process_dies_dice_do_what_their_kind_may(death: Death, again: RerunPolicy) -> None:
    dice = Dice(again)
    with table_with(dice, *[turn for _ in range(3) for turn in (roll(2), say("Done."))]) as lab:
        stored = await lab.background(tools=[DICE_TOOL], container_id=None)
        await lab.run_with_deaths(stored, death)
        events, items = await lab.events(stored), await dice_of(lab, stored)
        assert_well_formed(events)
        for item in items:
            said = own(events, item["id"])
            if item["status"] == "failed":
                assert (again, item["error"].startswith(WORDS[CallEnd.LOST])) == (RerunPolicy.ONCE, True)
            elif item["status"] == "completed":
                assert (item["rolls"], said.count("dice_call.rolling")) == ([4, 4], 1)
        whole = [item for item in items if item["status"] != "incomplete"]
        if again is RerunPolicy.ONCE:
            assert dice.rolled <= 2 * len(whole), "none is rolled again"


class Crash(Exception):
    pass


def crashing(times: int) -> Dice:
    left = times

    async def roll() -> int:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Crash
        return 6

    return Dice(roll=roll)


async def run_through_crashes(lab: Lab) -> StoredResponse:
    stored = await lab.background(tools=[DICE_TOOL], container_id=None)
    state = await lab.step(first_state(stored))
    for _ in range(9):
        try:
            await lab.tools(state)
        except Crash:
            continue
        break
    await lab.run(stored, state)
    return stored


async def test_dice_that_only_look_are_rolled_again_and_given_up_in_the_end() -> None:
    for crashes, expected in ((1, "completed"), (9, "failed")):
        dice = crashing(crashes)
        dice.rerun_policy = RerunPolicy.REPEAT  # type: ignore[misc]
        with table_with(dice, roll(1), say("Done.")) as lab:
            (item,) = await dice_of(lab, await run_through_crashes(lab))
            assert item["status"] == expected
            assert item.get("error", WORDS[CallEnd.GAVE_UP]).startswith(WORDS[CallEnd.GAVE_UP])


async def test_dice_that_may_have_fallen_are_not_rolled_again() -> None:
    with table_with(crashing(1), roll(1), say("Done.")) as lab:
        (item,) = await dice_of(lab, await run_through_crashes(lab))
        assert (item["status"], item["error"]) == ("failed", f"{WORDS[CallEnd.LOST]} An earlier run of it did not come to its end.")


async def test_dice_whose_step_sees_nothing_any_more_say_that_they_may_have_fallen() -> None:
    async def never() -> int:
        await asyncio.Event().wait()
        raise AssertionError

    with table_with(Dice(roll=never, call_limits=CallLimits(seconds=60)), roll(1), say("Done.")) as lab:
        stored = await lab.background(tools=[DICE_TOOL], container_id=None)
        state = await lab.step(first_state(stored))
        Flag(lab, [LostSight(), False])
        await lab.tools(state)
        await lab.run(stored, state)
        (item,) = await dice_of(lab, stored)
        assert item["error"].startswith(WORDS[CallEnd.LOST])


async def test_a_room_that_takes_anothers_words_is_refused() -> None:
    with ROOMS.lent(Dice()), pytest.raises(AssertionError, match="both say that they are"):
        ROOMS.add(Dice())
    assert ROOMS.of_tool("dice") is None
