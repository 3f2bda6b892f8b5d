"""Input, ends and cancels that meet, and processes that die in between: nothing is lost, doubled or left without an end."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from moorage import limits
from moorage.errors import ApiError, StorageFull
from moorage.loop.recover import recover
from moorage.state import LoopState
from moorage.store import keys
from moorage.store.table import Record

from tests.unit.agents.sessions import WEIGH, SessionLab, in_short, message, names
from tests.unit.loop.approvals import both
from tests.unit.loop.lab import Turn, call, say, shell
from tests.unit.loop.test_pause import run_all
from tests.unit.store.deaths import Death, Died


async def statuses(lab: SessionLab) -> list[str]:
    return [turn["status"] for turn in await lab.turns()]


async def recovered(lab: SessionLab) -> None:
    """What the reaper does once nothing has moved for a while."""
    lab.lab.executions.states = dict.fromkeys(lab.lab.executions.states, "ABORTED")
    for _ in range(3):
        lab.lab.now += limits.RECOVERY_SECONDS + 1
        await recover(lab.lab.runtime)
        await lab.play()


async def steer(lab: SessionLab, text: str, then: Callable[[], None] = lambda: None) -> None:
    """A message comes while the model is asked."""

    async def before() -> None:
        await lab.say(text)
        then()

    lab.lab.model.before_answer = before


async def test_a_cancel_ends_the_turn_although_its_response_ends_meanwhile_with_a_call() -> None:
    lab = await SessionLab.begun(call("weigh", "{}"), tools=[WEIGH])

    async def end_first(record: Record) -> None:
        if record.get("cancel_requested"):
            lab.lab.table.before_write = None
            await lab.play()

    lab.lab.table.before_write = end_first
    assert (await lab.cancel()).status_code == 202
    assert await statuses(lab) == ["cancelled"]


async def test_a_cancel_ends_the_turn_although_a_message_was_to_go_on_with_it() -> None:
    lab = await SessionLab.begun(shell("a"), say("never"))
    await steer(lab, "more")

    async def end_first(record: Record) -> None:
        if record.get("cancel_requested"):
            lab.lab.table.before_write = None
            await run_all(lab.lab, next(iter(lab.lab.executions.started)))

    lab.lab.table.before_write = end_first
    assert (await lab.cancel()).status_code == 202
    await lab.play()
    assert await statuses(lab) == ["cancelled"]


async def test_a_response_takes_the_room_of_the_one_that_it_goes_on_from() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."))
    lab.lab.runtime.settings = replace(lab.lab.runtime.settings, running_responses_max=1)
    await steer(lab, "more")
    await lab.play()
    assert await statuses(lab) == ["completed"]
    assert lab.asked() == ["go", "more"]


async def test_a_session_whose_turn_cannot_go_on_says_so_and_is_tried_again() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."))
    known = lab.lab.runtime.computers.containers.known  # type: ignore[attr-defined]
    there = set(known)
    await steer(lab, "more", known.clear)
    await lab.play()
    shown = await lab.shown()
    assert (shown["status"], shown["error"]) == ("failed", "Container with id 'cntr_1' not found.")
    known |= there
    await lab.say("again")
    await lab.play()
    assert (await statuses(lab), lab.asked()) == (["completed"], ["go", "more", "again"])
    assert ((await lab.shown())["status"], names(await lab.replay())[-2:]) == ("idle", ["turn.completed", "idle"])


async def test_a_call_that_was_cancelled_beside_a_command_has_an_answer_later() -> None:
    lab = await SessionLab.begun(both(call("weigh", "{}", "call_f"), shell("a", call_id="call_s")), say("Well."), tools=[WEIGH])
    (name,) = lab.lab.executions.started
    await lab.lab.step(LoopState.from_json(lab.lab.executions.started[name]))
    assert (await lab.cancel()).status_code == 202
    assert lab.lab.executions.states[name] == "ABORTED"
    await lab.say("go on")
    await lab.play()
    assert await statuses(lab) == ["cancelled", "completed"]
    assert lab.asked() == ["go", "call_f: The turn ended before this call was answered.", "go on"]


async def test_a_result_that_came_before_the_cancel_is_told_later() -> None:
    lab = await SessionLab.begun(both(call("weigh", "{}", "call_f"), shell("a", call_id="call_s")), say("Well."), tools=[WEIGH])
    await lab.lab.step(LoopState.from_json(next(iter(lab.lab.executions.started.values()))))
    assert (await lab.send(await lab.result("call_f", "3 kg"))).status_code == 202
    assert (await lab.cancel()).status_code == 202
    await lab.say("go on")
    await lab.play()
    assert lab.asked() == ["go", "call_f: 3 kg", "go on"]


async def test_a_session_goes_on_from_what_is_left_after_a_response_was_deleted() -> None:
    lab = await SessionLab.begun(say("one"), say("two"), say("three"))
    await lab.play()
    await lab.say("more")
    await lab.play()
    last = (await lab.turns())[-1]["response_ids"][-1]
    assert (await lab.served.delete(f"/responses/{last}")).status_code == 200
    await lab.say("again")
    await lab.play()
    assert lab.asked() == ["go", "again"]
    assert await statuses(lab) == ["completed", "failed", "completed"]


async def test_a_session_goes_on_although_a_result_was_deleted_with_its_response() -> None:
    lab = await SessionLab.begun(call("weigh", "{}"), say("3 kg."), say("More."), say("Again."), tools=[WEIGH])
    await lab.play()
    assert (await lab.send(await lab.result("call_1", "3 kg"))).status_code == 202
    await lab.play()
    await lab.say("more")
    await lab.play()
    holding = (await lab.turns())[0]["response_ids"][1]
    assert (await lab.served.delete(f"/responses/{holding}")).status_code == 200
    await lab.say("again")
    await lab.play()
    assert lab.asked() == ["go", "call_1: The output of this call was deleted.", "more", "again"]
    assert await statuses(lab) == ["failed", "completed", "completed"]


async def test_a_result_is_taken_once() -> None:
    lab = await SessionLab.begun(call("weigh", "{}"), say("Done."), tools=[WEIGH])
    await lab.play()
    result = await lab.result("call_1", "3 kg")
    twice = await lab.send(result, result)
    assert (twice.status_code, twice.json()["error"]["param"]) == (400, "events")
    refused: list[Any] = []

    async def another_first(record: Record) -> None:
        lab.lab.table.before_write = None
        refused.append(await lab.send(result))

    lab.lab.table.before_write = another_first
    late = await lab.send(result)
    assert (refused[0].status_code, late.status_code) == (202, 400)
    assert late.json()["error"]["message"] == "Unknown pending tool call: call_1"
    await lab.play()
    assert (await statuses(lab), lab.asked()) == (["completed"], ["go", "call_1: 3 kg"])


@pytest.mark.parametrize("died_at", range(4))
async def test_a_message_whose_process_dies_is_there_once_or_not_at_all(died_at: int) -> None:
    lab = await SessionLab.begun(say("one"), say("two"), first=None)
    lab.lab.table.before_write = Death(died_at)
    died = False
    try:
        await lab.say("go")
    except Died:
        died = True
    lab.lab.table.before_write = None
    await recovered(lab)
    begun = await statuses(lab)
    assert begun == (["completed"] if begun else [])
    assert begun or died
    assert await lab.lab.responses.inflight() == []
    await lab.say("more")
    await lab.play()
    assert lab.asked() == [*(["go"] if begun else []), "more"]


@pytest.mark.parametrize("died_at", range(14))
async def test_a_message_that_comes_during_a_turn_is_taken_once_whenever_a_process_dies(died_at: int) -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."), say("Done."), say("Done."))
    await steer(lab, "more", lambda: setattr(lab.lab.table, "before_write", Death(died_at)))
    try:
        await lab.play()
    except Died:
        lab.lab.table.before_write = None
        lab.lab.sandboxes.executed.clear()
        await recovered(lab)
    lab.lab.table.before_write = None
    await lab.play()
    assert [item for item in await lab.items() if item.startswith("user")] == ["user: go", "user: more"]
    assert (await lab.shown())["status"] == "idle"
    assert set(await statuses(lab)) == {"completed"}
    assert await lab.lab.responses.inflight() == []


@pytest.mark.parametrize("died_at", range(12))
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_message_that_is_sent_again_after_a_death_is_taken_once(died_at: int, is_running: bool) -> None:
    lab = await SessionLab.begun(shell("a"), say("One."), say("Two."), say("Three."), say("Four."), first="go" if is_running else None)
    lab.lab.table.before_write = Death(died_at)
    with suppress(Died):
        await lab.send_again("key", message("more"))
    lab.lab.table.before_write = None
    if not is_running:
        assert (await lab.send_again("other", message("go"))).status_code == 202
    assert (await lab.send_again("key", message("more"))).status_code in (202, 409)
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    for _ in range(2):
        assert (await lab.send_again("key", message("more"))).status_code == 202
        await lab.play()
    await recovered(lab)
    assert sorted(item for item in await lab.items() if item.startswith("user")) == ["user: go", "user: more"]


@pytest.mark.parametrize("died_at", range(12))
async def test_another_message_under_the_key_of_a_dead_request_is_refused(died_at: int) -> None:
    lab = await SessionLab.begun(say("One."), say("Two."), say("Three."), first=None)
    lab.lab.table.before_write = Death(died_at)
    with suppress(Died):
        await lab.send_again("key", message("go"))
    lab.lab.table.before_write = None
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    another = await lab.send_again("key", message("something else"))
    if another.status_code == 202:
        assert died_at <= 1, "the first one may have been taken"
        return
    assert (another.status_code, another.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert (await lab.send_again("key", message("go"))).status_code == 202
    await lab.play()
    await recovered(lab)
    assert [item for item in await lab.items() if item.startswith("user")] == ["user: go"]


@pytest.mark.parametrize("died_at", range(12))
async def test_a_result_that_is_sent_again_after_a_death_is_accepted(died_at: int) -> None:
    lab = await SessionLab.begun(call("weigh", "{}"), say("3 kg."), tools=[WEIGH])
    await lab.play()
    result = await lab.result("call_1", "3 kg")
    lab.lab.table.before_write = Death(died_at)
    with suppress(Died):
        await lab.send_again("key", result)
    lab.lab.table.before_write = None
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    assert (await lab.send_again("key", result)).status_code == 202
    await lab.play()
    await recovered(lab)
    assert await statuses(lab) == ["completed"]
    assert [item for item in await lab.items() if "output" in item] == ["function_call_output 3 kg completed"]


class FullDisk:
    """The ``before_write`` of a table whose disk has room for so many records."""

    def __init__(self, writes: int) -> None:
        self._writes_left = writes

    async def __call__(self, record: Record) -> None:
        self._writes_left -= 1
        if self._writes_left < 0:
            raise StorageFull


async def sends_a_result_as_its_response_ends(lab: SessionLab, then: Callable[[Record], Awaitable[None]]) -> dict[str, Any]:
    """The result of a function whose response still runs a command, and has ended once the result waits."""
    await lab.lab.step(LoopState.from_json(next(iter(lab.lab.executions.started.values()))))
    result = await lab.result("call_f", "3 kg")

    async def end_first(record: Record) -> None:
        if record["SK"].startswith(keys.INPUT_PREFIX):
            lab.lab.table.before_write = None
            await run_all(lab.lab, next(iter(lab.lab.executions.started)))
            lab.lab.table.before_write = then

    lab.lab.table.before_write = end_first
    return result


def weighs_beside_a_command() -> Turn:
    return both(call("weigh", "{}", "call_f"), shell("a", call_id="call_s"))


@pytest.mark.parametrize("room", range(3))
@pytest.mark.parametrize("key", ["", "key"])
async def test_a_result_that_finds_a_full_disk_is_refused_and_taken_later(key: str, room: int) -> None:
    lab = await SessionLab.begun(weighs_beside_a_command(), say("Well."), say("Well."), tools=[WEIGH])
    result = await sends_a_result_as_its_response_ends(lab, FullDisk(room))

    async def send() -> int:
        return (await (lab.send_again(key, result) if key else lab.send(result))).status_code

    assert await send() == 507
    assert await lab.lab.runtime.stores.agent_sessions.inputs(lab.session) == []
    lab.lab.table.before_write = None
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    assert await send() == 202
    await lab.play()
    assert (await statuses(lab), lab.asked()) == (["completed"], ["go", "call_f: 3 kg"])


@pytest.mark.parametrize("died_at", range(3))
async def test_a_result_sent_again_goes_on_where_its_process_died(died_at: int) -> None:
    lab = await SessionLab.begun(weighs_beside_a_command(), say("Well."), say("Well."), tools=[WEIGH])
    result = await sends_a_result_as_its_response_ends(lab, Death(died_at))
    with suppress(Died):
        await lab.send_again("key", result)
    lab.lab.table.before_write = None
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    assert (await lab.send_again("key", result)).status_code == 202
    await recovered(lab)
    assert (await statuses(lab), lab.asked()) == (["completed"], ["go", "call_f: 3 kg"])


async def test_a_message_is_answered_although_a_full_disk_keeps_no_answer_for_its_key() -> None:
    lab = await SessionLab.begun(say("One."), first=None)

    async def full_at_the_answer(record: Record) -> None:
        if record.get("status") == 202:
            raise StorageFull

    lab.lab.table.before_write = full_at_the_answer
    assert (await lab.send_again("key", message("go"))).status_code == 202
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    lab.lab.table.before_write = None
    assert (await lab.send_again("key", message("go"))).status_code == 202
    await lab.play()
    assert await lab.items() == ["user: go", "assistant: One."]


async def test_a_message_is_known_again_after_the_clock_was_set_back() -> None:
    lab = await SessionLab.begun(say("One."), say("Two."), say("Three."), first=None)

    async def die_at_the_answer(record: Record) -> None:
        if record.get("status") == 202:
            raise Died

    lab.lab.table.before_write = die_at_the_answer
    with suppress(Died):
        await lab.send_again("key", message("one"))
    lab.lab.table.before_write = None
    await lab.play()
    lab.lab.now -= 1000
    await lab.say("two")
    await lab.play()
    lab.lab.now += limits.REPEAT_PENDING_SECONDS + 1
    assert (await lab.send_again("key", message("one"))).status_code == 202
    await lab.play()
    assert [item for item in await lab.items() if item.startswith("user")] == ["user: one", "user: two"]


async def test_two_messages_at_once_are_both_taken() -> None:
    lab = await SessionLab.begun(say("one"), say("two"), say("three"), first=None)

    async def another_first(record: Record) -> None:
        lab.lab.table.before_write = None
        await lab.say("other")

    lab.lab.table.before_write = another_first
    await lab.say("go")
    await lab.play()
    assert sorted(item for item in await lab.items() if item.startswith("user")) == ["user: go", "user: other"]
    assert set(await statuses(lab)) == {"completed"}


@pytest.mark.parametrize("moment", range(6))
async def test_a_message_that_meets_a_deletion_leaves_nothing_behind(moment: int) -> None:
    lab = await SessionLab.begun(say("one"), say("two"), say("three"))
    await lab.play()
    left = moment

    async def delete_first(record: Record) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            lab.lab.table.before_write = None
            assert (await lab.served.delete(f"{lab.path}?force=true")).status_code == 200

    lab.lab.table.before_write = delete_first
    refused = None
    try:
        await lab.say("go on")
    except ApiError as error:
        refused = error.code
    assert refused in (None, "session_not_found")
    lab.lab.table.before_write = None
    await lab.served.delete(f"{lab.path}?force=true")
    await lab.play()
    rows = [key for key in lab.lab.table.records if lab.session.id in key[0]]
    assert [sort_key for _, sort_key in rows] == ["GONE"]
    assert await lab.lab.responses.inflight() == []
    assert [key for key in lab.lab.table.records if key[0].startswith("T#t#R#") and key[1] == "META"] == []


async def test_a_deletion_that_broke_off_can_be_repeated_and_shows_no_session() -> None:
    lab = await SessionLab.begun(shell("a"), say("never"))
    lab.lab.table.before_write = Death(1)
    assert (await lab.served.delete(f"{lab.path}?force=true")).status_code == 500
    lab.lab.table.before_write = None
    assert (await lab.served.get(lab.path)).status_code == 404
    assert (await lab.served.get("/agents/sessions")).json()["data"] == []
    with pytest.raises(ApiError, match="not found"):
        await lab.say("more")
    assert (await lab.served.delete(f"{lab.path}?force=true")).status_code == 200
    assert (await lab.served.delete(f"{lab.path}?force=true")).status_code == 404


async def test_a_page_of_items_begins_at_its_turn_however_many_there_are() -> None:
    lab = await SessionLab.begun(*[say(f"a{number}") for number in range(60)], first=None)
    for number in range(60):
        await lab.say(f"u{number}")
        await lab.play()
    path, found = f"{lab.path}/items", list[str]()
    for order in ("asc", "desc"):
        after: dict[str, str] = {}
        seen: list[str] = []
        reads: list[int] = []
        has_more = True
        while has_more:
            before = lab.lab.table.reads
            page = (await lab.served.get(path, order=order, limit=7, **after)).json()
            reads.append(lab.lab.table.reads - before)
            seen += [in_short(item) for item in page["data"]]
            has_more, after = page["has_more"], {"after": page["data"][-1]["id"]}
        expected = [word for number in range(60) for word in (f"user: u{number}", f"assistant: a{number}")]
        assert seen == (expected if order == "asc" else expected[::-1])
        assert max(reads) < 40, reads
        found += seen
    missing = await lab.served.get(path, after="msg_none")
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "after")


async def test_a_page_of_long_items_is_shorter() -> None:
    """It ends with its turn. These fail, because no model reads so much."""
    lab = await SessionLab.begun(first=None)
    for number in range(3):
        await lab.say(f"{number}" * (limits.PAGE_BYTES_MAX * 3 // 5))
        await lab.play()
    first = (await lab.served.get(f"{lab.path}/items", order="asc", limit=100)).json()
    second = (await lab.served.get(f"{lab.path}/items", order="asc", limit=100, after=first["data"][-1]["id"])).json()
    assert [(len(page["data"]), page["has_more"]) for page in (first, second)] == [(2, True), (1, False)]


async def test_a_page_of_long_sessions_is_shorter() -> None:
    lab = await SessionLab.begun(first=None)
    body = {"environment": {"type": "none"}, "input": "hi"}
    for number in range(3):
        lab.lab.now += 1
        agent = {"model": "m", "instructions": f"{number}" * (limits.PAGE_BYTES_MAX * 2 // 5)}
        assert (await lab.served.post("/agents/sessions", {**body, "agent": agent})).status_code == 200
    first = (await lab.served.get("/agents/sessions", order="desc")).json()
    second = (await lab.served.get("/agents/sessions", order="desc", after=first["last_id"])).json()
    assert [(len(page["data"]), page["has_more"]) for page in (first, second)] == [(2, True), (2, False)]


async def test_a_plain_turn_writes_one_record_more_than_a_response() -> None:
    lab = await SessionLab.begun(say("one"), say("two"), first=None)
    before = lab.lab.table.writes
    stored = await lab.lab.background()
    await run_all(lab.lab, stored.response_id)
    of_response, before = lab.lab.table.writes - before, lab.lab.table.writes
    await lab.say("go")
    await lab.play()
    assert lab.lab.table.writes - before == of_response + 1


async def test_input_that_waits_keeps_its_order_although_the_clock_is_set_back() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."))

    async def before() -> None:
        for text in ("first", "second", "third"):
            await lab.say(text)
            lab.lab.now -= 3600

    lab.lab.model.before_answer = before
    await lab.play()
    assert lab.asked() == ["go", "first", "second", "third"]


async def test_a_list_of_artifacts_does_not_begin_behind_an_unknown_one() -> None:
    lab = await SessionLab.begun(first=None)
    answer = await lab.served.get(f"{lab.path}/artifacts", after="artifact_1")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")
