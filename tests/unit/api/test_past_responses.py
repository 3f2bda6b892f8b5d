"""``GET /v1/responses/{id}?at=N``: a response as of one of its events."""

from typing import Any

import pytest
from moorage import limits
from moorage.loop.fold import fold
from moorage.model.prices import Price
from moorage.state import Next
from moorage.store.responses import StoredResponse

from tests.unit.api.served import Served
from tests.unit.loop.lab import CONTAINER, Lab, first_state, say, shell


async def ran(served: Served, **changes: Any) -> StoredResponse:
    """Two commands and an answer, with a second between any two tasks."""
    stored = await served.lab.background("build it", files_at_ms=1_000, **changes)
    state = first_state(stored)
    while state.next is not Next.DONE:
        served.lab.now += 1
        if state.next is Next.TOOLS:
            await served.lab.tools(state)
        state = await served.lab.step(state)
    return stored


def built() -> Lab:
    return Lab(shell("make", call_id="call_1"), shell("test", call_id="call_2"), say("done"))


async def then(served: Served, stored: StoredResponse, at: int) -> dict[str, Any]:
    answer = await served.get(f"/responses/{stored.response_id}", at=at)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


@pytest.mark.parametrize("at_once", [1, 2, limits.EVENTS_FOLD_BATCHES])
async def test_each_event_of_a_log_has_its_response(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_FOLD_BATCHES", at_once)
    served = Served.of(built())
    stored = await ran(served)
    events = await served.lab.events(stored)
    statuses = []
    for number in range(len(events)):
        response = await then(served, stored, number)
        assert response["output"] == fold(events[: number + 1]).output or response["status"] == "completed"
        statuses.append(response["status"])
    assert (set(statuses[:2]), set(statuses[2:-1]), statuses[-1]) == ({"queued"}, {"in_progress"}, "completed")
    whole = (await served.get(f"/responses/{stored.response_id}")).json()
    assert {key: value for key, value in response.items() if key != "as_of"} == whole


async def test_usage_cost_and_files_are_those_of_then() -> None:
    served = Served.of(built())
    served.lab.price = Price(1_000.0, None, 5_000.0, {"shell_call": 0.5})
    stored = await ran(served)
    events = await served.lab.events(stored)
    outputs = [
        event["sequence_number"]
        for event in events
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "shell_call_output"
    ]
    seen = [(await then(served, stored, number))["as_of"] for number in (1, outputs[0] - 1, *outputs, len(events) - 1)]
    assert [(each["steps"], each["usage"]["total_tokens"], each["cost_usd"]) for each in seen] == [
        (0, 0, 0.0),
        (1, 12, 0.52),
        (1, 12, 0.52),
        (2, 24, 1.04),
        (3, 36, 1.06),
    ]
    assert [each["boundary"] for each in seen] == [0, 0, *outputs, len(events) - 1]
    assert {each["container_id"] for each in seen} == {CONTAINER}
    names = [[file["path"] for file in each["files"]] for each in seen]
    assert names == [[f"/mnt/data/{at}"] for at in (1_000, 1_000, 1_001, 1_002, 1_002)]
    assert seen[-1]["said_at"] > seen[0]["said_at"]


async def test_a_one_step_foreground_response_is_told_without_step_records() -> None:
    served = Served.of(Lab(say("hello")))
    answer = (await served.post("/responses", {"model": "m", "input": "hi"})).json()
    stored = await served.lab.responses.load("t", answer["id"])
    last = len(await served.lab.events(stored)) - 1
    first, whole = await then(served, stored, 0), await then(served, stored, last)
    assert (first["status"], first["output"], first["as_of"]["steps"], first["as_of"]["files"]) == ("in_progress", [], 0, None)
    assert (whole["output"], whole["as_of"]["steps"], whole["as_of"]["usage"]["total_tokens"]) == (answer["output"], 1, 12)


async def test_files_of_a_container_that_is_gone_are_not_known() -> None:
    served = Served.of(built())
    stored = await ran(served)
    containers: Any = served.lab.runtime.computers.containers
    containers.known.clear()
    assert (await then(served, stored, 1))["as_of"]["files"] is None


@pytest.mark.parametrize(
    ("query", "param"),
    [({"at": "10000"}, "at"), ({"at": "-1"}, "at"), ({"at": "end"}, "at"), ({"at": "1", "stream": "true"}, "at")],
    ids=str,
)
async def test_an_event_that_is_not_there_is_refused(query: dict[str, str], param: str) -> None:
    served = Served.of(built())
    stored = await ran(served)
    answer = await served.get(f"/responses/{stored.response_id}", **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_the_past_of_another_tenants_response_is_not_known() -> None:
    served = Served.of(built())
    stored = await ran(served)
    assert (await served.get(f"/responses/{stored.response_id}", by="key-b", at=1)).status_code == 404
