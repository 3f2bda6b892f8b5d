"""Sessions with more responses than a chain names, and sessions that are older than what is kept of their responses."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from moorage import limits
from moorage.loop.notes import Notes, carried, visible
from moorage.store import keys
from moorage.store.table import Record
from moorage.wire.types import Item

from tests.unit.agents.sessions import WEIGH, SessionLab, message
from tests.unit.loop.lab import TENANT, call, say

DAY = 24 * 3600
TURNS = 2 * limits.AGENT_SESSION_CHAIN_MAX + 2


def units(record: Record) -> int:
    """Of a write of the record alone, without its entry in the index."""
    return math.ceil(size_of(record) / 1024)


def size_of(value: Any) -> int:
    """As DynamoDB counts it, roughly."""
    if isinstance(value, Mapping):
        return sum(len(name) + size_of(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return len(value) if isinstance(value, str | bytes) else 8


async def talk(lab: SessionLab, texts: Iterable[str], *, seconds: float = 1) -> None:
    """A turn for each text, which the model answers with ``re: `` and the text."""
    for text in texts:
        lab.lab.now += seconds
        lab.lab.model.turns.append(say(f"re: {text}"))
        await lab.say(text)
        await lab.play()


async def test_a_session_remembers_all_of_it_beyond_the_length_of_a_chain() -> None:
    lab = await SessionLab.begun(first=None, has_container=False)
    texts = [f"message {number}" for number in range(TURNS)]
    await talk(lab, texts)
    assert lab.asked() == texts
    turns = await lab.turns()
    assert [turn["status"] for turn in turns] == ["completed"] * TURNS
    lines = [line for text in texts for line in (f"user: {text}", f"assistant: re: {text}")]
    assert await lab.items() == lines[:100]  # The page.
    # A prompt grows at its end alone, also where a response takes over what was said.
    prompts = [list(request.items) for request in lab.lab.model.requests]
    assert [after[: len(before)] == before for before, after in pairwise(prompts)] == [True] * (TURNS - 1)


async def test_a_page_of_items_begins_at_its_turn_without_reading_all_turns() -> None:
    lab = await SessionLab.begun(first=None, has_container=False)
    await talk(lab, [f"message {number}" for number in range(TURNS)])
    place = f"{lab.path}/items"
    first = (await lab.served.get(place, order="asc", limit=100)).json()["data"]
    lab.lab.table.longest_answer = 0
    for number in (0, 1, 60, 61):  # Messages of the user, and of the agent.
        page = (await lab.served.get(place, order="asc", limit=3, after=first[number]["id"])).json()["data"]
        assert page == first[number + 1 : number + 4]
    assert lab.lab.table.longest_answer <= limits.AGENT_SESSION_TURNS_READ
    unknown = await lab.served.get(place, after="msg_unknown")
    assert unknown.status_code == 400


async def test_a_turn_writes_no_more_in_a_long_session_than_in_a_short_one() -> None:
    lab = await SessionLab.begun(first=None, has_container=False)
    table, written = lab.lab.table, list[tuple[int, int, int]]()
    for number in range(TURNS):
        before = table.writes
        await talk(lab, [f"message {number}"])
        turn = (await lab.turns_kept())[-1]
        of_response = units(table.records[keys.response(TENANT, turn.current), keys.META])
        of_turn = units(table.records[keys.agent_session(TENANT, lab.session.id), keys.turn(turn.number)])
        written.append((table.writes - before, of_response, of_turn))
    assert {(requests, of_turn) for requests, _, of_turn in written} == {(written[0][0], 1)}
    # What was said moves into an object once it is long, and a chain has at most 32 links of 24 bytes.
    others = [of_response for number, (_, of_response, _) in enumerate(written) if number % limits.AGENT_SESSION_CHAIN_MAX]
    assert max(others) <= written[0][1] + 1


async def test_a_turn_goes_on_beyond_the_length_of_a_chain() -> None:
    lab = await SessionLab.begun(call("weigh", "{}", "call_0"), tools=[WEIGH], has_container=False)
    await lab.play()
    rounds = limits.AGENT_SESSION_CHAIN_MAX + 2
    for number in range(rounds):
        last = number == rounds - 1
        lab.lab.model.turns.append(say("Done.") if last else call("weigh", "{}", f"call_{number + 1}"))
        assert (await lab.send(await lab.result(f"call_{number}", f"{number} kg"))).status_code == 202
        await lab.play()
    (turn,) = await lab.turns()
    assert (turn["status"], len(turn["response_ids"])) == ("completed", rounds + 1)
    assert lab.asked() == ["go", *(f"call_{number}: {number} kg" for number in range(rounds))]


async def test_a_session_in_use_outlives_the_retention_of_its_responses() -> None:
    lab = await SessionLab.begun(first=None, has_container=False)
    days = [f"day {number}" for number in range(0, 130, 26)]
    await talk(lab, days, seconds=26 * DAY)
    assert lab.asked() == days
    # What was said is a view of the responses that are kept: of the last thirty days.
    assert await lab.items() == [line for day in days[-2:] for line in (f"user: {day}", f"assistant: re: {day}")]
    turns = await lab.turns()
    assert [(turn["id"][5:13], turn["status"]) for turn in turns] == [("00000004", "completed"), ("00000005", "completed")]
    total = len(days) * 12
    assert (await lab.shown())["usage"]["total_tokens"] == total
    told = await lab.replay(turns=5)
    ended = [event["turn_id"] for event in told if event["type"] == "agent.session.turn.completed"]
    assert ended == [turn["id"] for turn in turns]


async def test_a_session_that_rests_for_longer_than_the_retention_begins_anew() -> None:
    lab = await SessionLab.begun(first=None, has_container=False)
    await talk(lab, ["long ago"])
    lab.lab.now += 31 * DAY
    assert ((await lab.shown())["status"], await lab.turns(), await lab.items()) == ("idle", [], [])
    await talk(lab, ["hello again"])
    assert (lab.asked(), [turn["id"][5:13] for turn in await lab.turns()]) == (["hello again"], ["00000002"])


async def test_a_session_that_has_expired_turns_is_deleted_whole() -> None:
    lab = await SessionLab.begun(first=None, has_container=False)
    await talk(lab, ["one", "two"], seconds=20 * DAY)
    assert (await lab.served.ask("DELETE", lab.path)).status_code == 200
    left = [sk for pk, sk in lab.lab.table.records if pk == keys.agent_session(TENANT, lab.session.id)]
    assert left == [keys.GONE]


async def test_the_responses_of_a_turn_have_a_bound() -> None:
    lab = await SessionLab.begun(call("weigh", "{}", "call_0"), tools=[WEIGH], has_container=False)
    await lab.play()
    key = keys.agent_session(TENANT, lab.session.id), keys.turn(1)
    lab.lab.table.records[key]["count"] = limits.AGENT_TURN_RESPONSES_MAX
    answer = await lab.send(await lab.result("call_0", "3 kg"))
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "A turn has at most 1000 responses. Cancel it, and begin another one.",
    )


async def test_an_input_that_was_taken_over_is_no_input_of_its_response() -> None:
    """A message that is sent again is looked for among what requests have brought."""
    lab = await SessionLab.begun(first=None, has_container=False)
    lab.lab.model.turns.append(say("re: first"))
    assert (await lab.send_again("key", message("first"))).status_code == 202
    await lab.play()
    await talk(lab, [f"message {number}" for number in range(limits.AGENT_SESSION_CHAIN_MAX)])
    turn = (await lab.turns_kept())[limits.AGENT_SESSION_CHAIN_MAX]
    stored = await lab.lab.responses.load(TENANT, turn.current)
    assert (len(stored.ancestors), len(stored.input_items), len(stored.own_input)) == (0, 2 * limits.AGENT_SESSION_CHAIN_MAX + 1, 1)


# --- What is taken over ------------------------------------------------------------------------------------------------------------


def read(item: Item) -> Notes | None:
    return None if item["encrypted_content"] == "foreign" else Notes("notes", tuple(item["recent"]), item["user_tokens"])


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


MESSAGES = st.builds(said, st.sampled_from(["user", "assistant", "developer"]), st.sampled_from(["a", "b", "long " * 20]))
COMPACTIONS = st.builds(
    lambda content, recent, tokens: {"type": "compaction", "encrypted_content": content, "recent": recent, "user_tokens": tokens},
    st.sampled_from(["ours", "ours", "foreign"]),
    st.lists(MESSAGES, max_size=3),
    st.sampled_from([0, 5, 12, 40, 1000]),
)
ITEMS = st.lists(st.one_of(MESSAGES, MESSAGES, MESSAGES, COMPACTIONS), max_size=14)


@given(ITEMS, st.lists(MESSAGES, max_size=5))
def test_what_is_taken_over_shows_a_model_the_same(items: list[Item], then: list[Item]) -> None:
    taken = carried(items, read)
    assert visible([*taken, *then], read) == visible([*items, *then], read)
    assert carried(taken, read) == taken
