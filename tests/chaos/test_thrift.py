"""What judges budgets and webhooks in ``make chaos`` is shown histories that went wrong, and names what is wrong with each."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.chaos.thrift import AT_ONCE, KEY_TOKENS, STEP_TOKENS, TENANT_TOKENS, TREE_TOKENS, Seen, judged, untold, untried
from tests.receivers import HANG_UP, receiving


def row(tokens: int, *, key_id: str = "key_1", response_id: str = "resp_1", forked_from: str | None = None) -> dict[str, Any]:
    return {"id": response_id, "key_id": key_id, "forked_from": forked_from, "usage": {"total_tokens": tokens}}


def standing(used: int) -> dict[str, Any]:
    return {"used": {"total_tokens": used}}


UNUSED = {"id": "resp_failed", "key_id": "key_2", "forked_from": None, "usage": None}
OTHERS = row(TENANT_TOKENS - KEY_TOKENS, key_id="key_2")
TREE = [row(STEP_TOKENS, response_id="resp_root"), row(TREE_TOKENS - STEP_TOKENS, response_id="resp_fork", forked_from="resp_root")]
WELL = Seen(
    of_tenant=[row(KEY_TOKENS), OTHERS, UNUSED],
    key_id="key_1",
    standings={"key": standing(KEY_TOKENS), "tenant": standing(TENANT_TOKENS)},
    held={"key": 0, "tenant": 0},
    forked=[*TREE, row(10_000, response_id="resp_without_budget")],
    roots=["resp_root"],
)
STEP_MORE = replace(
    WELL,
    of_tenant=[row(KEY_TOKENS + STEP_TOKENS), OTHERS],
    standings={"key": standing(KEY_TOKENS + STEP_TOKENS), "tenant": standing(TENANT_TOKENS + STEP_TOKENS)},
    forked=[*TREE, row(STEP_TOKENS, response_id="resp_last", forked_from="resp_root")],
)
COUNTED_WELL = {"key": standing(10 * KEY_TOKENS), "tenant": standing(10 * TENANT_TOKENS)}


@pytest.mark.parametrize("seen", [WELL, STEP_MORE], ids=["to the limit", "a step more"])
def test_a_history_that_went_well_is_left_alone(seen: Seen) -> None:
    assert (judged(seen, forward_jumps=0), untried(seen)) == ([], [])


def test_a_clock_that_was_set_forward_may_cost_what_ran_at_once() -> None:
    tokens = KEY_TOKENS + STEP_TOKENS * (1 + AT_ONCE)
    seen = replace(WELL, of_tenant=[row(tokens)], standings={"key": standing(tokens), "tenant": standing(tokens)})
    assert judged(seen, forward_jumps=1) == []
    assert "the key's budget was overrun" in str(judged(seen, forward_jumps=0))


WRONG = {
    "two steps more of the key": (
        replace(WELL, of_tenant=[row(KEY_TOKENS + 2 * STEP_TOKENS), OTHERS], standings=COUNTED_WELL),
        ["the key's budget was overrun", "the tenant's budget was overrun"],
    ),
    "two steps more of another key": (
        replace(WELL, of_tenant=[row(KEY_TOKENS), OTHERS, row(2 * STEP_TOKENS, key_id="key_2")], standings=COUNTED_WELL),
        ["the tenant's budget was overrun"],
    ),
    "two steps more of a tree": (
        replace(WELL, forked=[*TREE, row(2 * STEP_TOKENS, response_id="resp_last", forked_from="resp_root")]),
        ["the budget of the tree of resp_root was overrun"],
    ),
    "a step that was not counted": (
        replace(WELL, standings={"key": standing(KEY_TOKENS - 1), "tenant": standing(TENANT_TOKENS)}),
        [f"the key's budget has counted {KEY_TOKENS - 1} tokens of {KEY_TOKENS}"],
    ),
    "something that is held": (
        replace(WELL, held={"key": 0, "tenant": 1}),
        ["the tenant's budget holds 1 tokens for nobody"],
    ),
}


@pytest.mark.parametrize(("seen", "wrong"), WRONG.values(), ids=WRONG)
def test_what_went_wrong_is_named(seen: Seen, wrong: list[str]) -> None:
    found = judged(seen, forward_jumps=0)
    assert len(found) == len(wrong)
    assert all(one.startswith(words) for one, words in zip(found, wrong, strict=True)), found


UNTRIED = {
    "of the key": (
        replace(WELL, of_tenant=[row(KEY_TOKENS - 1), OTHERS, row(1, key_id="key_2")]),
        f"the key's budget was never used up: {KEY_TOKENS - 1} of {KEY_TOKENS} tokens",
    ),
    "of a tree": (
        replace(WELL, forked=TREE[:1]),
        f"the budget of the tree of resp_root was never used up: {STEP_TOKENS} of {TREE_TOKENS} tokens",
    ),
    "of no tree": (replace(WELL, roots=[]), "no tree of forks was ever begun"),
}


@pytest.mark.parametrize(("seen", "named"), UNTRIED.values(), ids=UNTRIED)
def test_a_limit_that_nobody_came_to_was_not_tried(seen: Seen, named: str) -> None:
    assert (judged(seen, forward_jumps=0), untried(seen)) == ([], [named])


def told(response_id: str, status: str) -> dict[str, Any]:
    return {"type": f"response.{status}", "data": {"id": response_id}}


def test_an_end_of_which_nobody_was_told_is_named() -> None:
    ends = {"resp_1": "response.completed", "resp_2": "response.cancelled"}
    heard = [told("resp_1", "completed"), told("resp_1", "completed"), told("resp_3", "failed")]
    assert untold(ends, [*heard, told("resp_2", "cancelled")]) == []
    assert untold(ends, heard) == ["resp_2: nobody was told of its end"]
    assert untold(ends, [*heard, told("resp_2", "cancelled"), told("resp_2", "completed")]) == [
        "resp_2 ended with response.cancelled, and was told of as ['response.cancelled', 'response.completed']"
    ]
    assert untold({}, heard) == ["no response in the background has ended"]


async def test_an_event_that_the_receiver_did_not_take_was_not_heard() -> None:
    async with receiving(500, HANG_UP) as receiver, httpx.AsyncClient() as http:
        for _ in range(3):
            with suppress(httpx.HTTPError):
                await http.post(receiver.url, json=told("resp_1", "completed"))
            heard = untold({"resp_1": "response.completed"}, receiver.taken)
            assert heard == ([] if len(receiver.sent) == 3 else ["resp_1: nobody was told of its end"])
