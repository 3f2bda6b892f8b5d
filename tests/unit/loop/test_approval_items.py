"""What a response waits for in its place is decided by an item too, as clients of the API answer: once, whoever else decides."""

import asyncio
from typing import Any

import httpx
import pytest
from moorage import ids
from moorage.store.responses import StoredResponse

from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.approvals import ASKS, approvals_of, begun, both, decided, ended, played, ran
from tests.unit.loop.lab import say, shell
from tests.unit.loop.test_pause import run_all


def answer(approval_id: str, approve: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": approval_id, "approve": approve, **more}


async def sent(served: Served, stored: StoredResponse, *items: dict[str, Any], by: str = "key-a", **more: Any) -> httpx.Response:
    body = {"model": "m", "previous_response_id": stored.response_id, "input": list(items), "background": True, **more}
    return await served.post("/responses", {name: value for name, value in body.items() if value is not None}, by)


async def goes_on(served: Served, waits: "asyncio.Task[httpx.Response]") -> None:
    """Run what the decision of a request starts, which waits for it."""
    async with asyncio.timeout(60):
        while not await played(served):
            assert not waits.done(), waits.result().text
            await asyncio.sleep(0)


async def test_an_item_decides_and_the_response_that_waited_is_the_answer() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    told = await sent(served, stored, answer(approval["id"], reason="Go on."))
    assert told.status_code == 200, told.text
    assert (told.json()["id"], told.json()["status"]) == (stored.response_id, "in_progress")
    assert ("waiting_for" in told.json(), "x-moorage-notice" in told.headers) == (False, False)
    (approval,) = await approvals_of(served, stored)
    assert (approval["status"], approval["decided_by"], approval["reason"]) == ("approved", KEY_A, "Go on.")
    assert await played(served) == [f"{stored.response_id}-p1"]
    assert ((await ended(served, stored))["status"], ran(served)) == ("completed", ["call_1-0"])


async def test_a_denial_by_item_reaches_the_model_with_its_reason() -> None:
    served, stored = await begun(shell("rm x"), say("As you wish."))
    (approval,) = await approvals_of(served, stored)
    await sent(served, stored, answer(approval["id"], False, reason="Keep it."))
    await played(served)
    await ended(served, stored)
    assert ran(served) == []
    assert "They say: Keep it." in str(served.lab.model.requests[1].items[-1])


async def test_several_are_decided_at_once() -> None:
    served, stored = await begun(both(shell("rm a"), shell("rm b", call_id="call_2")), say("done"))
    first, second = await approvals_of(served, stored)
    await sent(served, stored, answer(first["id"]), answer(second["id"], False))
    await played(served)
    await ended(served, stored)
    assert ran(served) == ["call_1-0"]


async def test_of_several_none_is_decided_if_one_was_decided_otherwise_before() -> None:
    served, stored = await begun(both(shell("rm a"), shell("rm b", call_id="call_2")), say("done"))
    first, second = await approvals_of(served, stored)
    await decided(served, second["id"], False)
    told = await sent(served, stored, answer(first["id"]), answer(second["id"]))
    assert (told.status_code, told.json()["error"]["code"]) == (409, "approval_decided")
    assert [each["status"] for each in await approvals_of(served, stored)] == ["waiting", "denied"]


async def test_of_an_item_and_a_route_one_wins_and_the_call_runs_once() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    told = await asyncio.gather(
        sent(served, stored, answer(approval["id"])),
        decided(served, approval["id"], False),
        sent(served, stored, answer(approval["id"], False)),
        decided(served, approval["id"], True),
    )
    approved = (await approvals_of(served, stored))[0]["status"] == "approved"
    assert [each.status_code for each in told] == ([200, 409, 409, 200] if approved else [409, 200, 200, 409])
    assert await played(served) == [f"{stored.response_id}-p1"]
    assert ran(served) == (["call_1-0"] if approved else [])


async def test_a_client_that_sends_its_answer_again_after_the_end_gets_the_response() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    await sent(served, stored, answer(approval["id"]))
    await played(served)
    again = await sent(served, stored, answer(approval["id"]), background=False)
    assert (again.status_code, again.json()) == (200, await ended(served, stored))
    other = await sent(served, stored, answer(approval["id"], False))
    assert (other.status_code, other.json()["error"]["code"]) == (409, "approval_decided")
    assert (ran(served), len(served.lab.executions.started)) == (["call_1-0"], 2)


async def test_a_client_in_the_foreground_waits_until_the_response_ends_or_asks_again() -> None:
    served, stored = await begun(shell("rm a"), shell("rm b", call_id="call_2"), say("done"))
    (first,) = await approvals_of(served, stored)
    waits = asyncio.create_task(sent(served, stored, answer(first["id"]), background=False))
    await goes_on(served, waits)
    asked = (await waits).json()
    _, second = await approvals_of(served, stored)
    assert (asked["status"], second["id"] in asked["waiting_for"]) == ("in_progress", True)
    waits = asyncio.create_task(sent(served, stored, answer(second["id"]), background=False))
    await goes_on(served, waits)
    assert (await waits).json() == await ended(served, stored)


async def test_a_stream_begins_with_the_response_and_tells_its_end() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    waits = asyncio.create_task(sent(served, stored, answer(approval["id"]), stream=True))
    await goes_on(served, waits)
    text = (await waits).text
    assert text.startswith("event: response.created\n")
    assert "event: response.completed\n" in text


async def test_what_the_request_says_beside_the_decision_changes_nothing_and_that_is_told() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    told = await sent(served, stored, answer(approval["id"]), instructions="Be brief.", tools=[])
    assert told.headers["x-moorage-notice"] == (
        "The response goes on as it was begun; this request changes nothing of it by 'instructions', 'tools'."
    )


async def test_a_response_of_a_conversation_is_found_by_it() -> None:
    served, stored = await begun(shell("rm x"), shell("rm x"), say("done"))
    lab = served.lab
    mine, foreign = [(await lab.runtime.stores.conversations.create("t", metadata={})).id for _ in range(2)]
    stored = await lab.background(tools=[ASKS], conversation_id=mine)
    await run_all(lab, stored.response_id)
    (approval,) = await approvals_of(served, stored)
    other = await sent(served, stored, answer(approval["id"]), previous_response_id=None, conversation=foreign)
    assert (other.status_code, "No approval request found" in other.text) == (400, True)
    told = await sent(served, stored, answer(approval["id"]), previous_response_id=None, conversation=mine)
    assert (told.status_code, told.json()["id"]) == (200, stored.response_id)


@pytest.mark.parametrize(
    ("items", "more", "status", "words"),
    [
        ([answer("{id}"), {"role": "user", "content": "And hurry."}], {}, 400, "no other items beside it"),
        ([answer("{id}"), answer("{id}", False)], {}, 400, "each answer once"),
        ([answer("{id}"), answer("{other}")], {}, 400, "approvals of one response"),
        ([answer("{missing}")], {}, 404, "not found"),
        ([answer("{id}", reason="x" * 4_001)], {}, 400, "string too long"),
        ([answer("{id}")], {"model": "other"}, 400, "with the model 'm'"),
        ([answer("{id}")], {"previous_response_id": None}, 400, "No approval request found"),
        ([answer("{id}")], {"by": "key-b"}, 404, "not found"),
        ([{"role": "user", "content": "Go on."}], {}, 400, "still running"),
    ],
)
async def test_what_is_no_answer_is_refused_and_decides_nothing(
    items: list[dict[str, Any]], more: dict[str, Any], status: int, words: str
) -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    names = {
        "{id}": approval["id"],
        "{missing}": ids.approval_id(stored.response_id, 7),
        "{other}": ids.approval_id(ids.new_response_id(0), 0),
    }
    given = [{**item, **({"approval_request_id": names[item["approval_request_id"]]} if "approve" in item else {})} for item in items]
    told = await sent(served, stored, *given, **more)
    assert (told.status_code, words in told.json()["error"]["message"]) == (status, True), told.text
    assert [each["status"] for each in await approvals_of(served, stored)] == ["waiting"]
    assert await played(served) == []
