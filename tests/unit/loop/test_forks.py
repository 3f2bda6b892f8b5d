"""``POST /v1/responses/{id}/fork``: a new response from any event of an old one."""

from typing import Any

import pytest
from moorage import ids
from moorage.loop.forks import NO_PROCESSES
from moorage.store import keys
from moorage.store.responses import StoredResponse
from moorage.wire.types import Event, Item

from tests.stack import assert_well_formed
from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.lab import CONTAINER, Lab, call, first_state, say, shell, texts

LOOKED_UP: dict[str, Any] = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}, "strict": False}


async def ran(served: Served, **changes: Any) -> StoredResponse:
    """A response that has called its shell twice and said 'first'. The clock goes on between."""
    served.lab.model.turns[:0] = [shell("make", call_id="call_1"), shell("test", call_id="call_2"), say("first")]
    fields = {"files_at_ms": int(served.lab.now * 1000), "key_id": KEY_A, **changes}
    stored = await served.lab.background("build it", **fields)
    state = first_state(stored)
    while state.next != "done":
        served.lab.now += 1
        if state.next == "tools":
            await served.lab.tools(state)
        state = await served.lab.step(state)
    return stored


async def forked(served: Served, stored: StoredResponse, **body: Any) -> dict[str, Any]:
    answer = await served.post(f"/responses/{stored.response_id}/fork", {"background": False, **body})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def types(items: list[Item]) -> list[str]:
    return [item["type"] for item in items]


ROUND = ["shell_call", "shell_call_output"]


def closing(events: list[Event], type_: str, which: int = 0) -> int:
    """The number of the event that closed an item of a type."""
    found = [event for event in events if event["type"] == "response.output_item.done" and event["item"]["type"] == type_]
    return int(found[which]["sequence_number"])


@pytest.mark.parametrize(
    ("at", "begins_with"),
    [
        (lambda events: 0, ["message"]),
        (lambda events: closing(events, "shell_call"), ["message"]),
        (lambda events: closing(events, "shell_call_output") - 1, ["message"]),
        (lambda events: closing(events, "shell_call_output"), ["message", *ROUND]),
        (lambda events: closing(events, "shell_call", 1), ["message", *ROUND]),
        (lambda events: closing(events, "shell_call_output", 1), ["message", *ROUND, *ROUND]),
        (lambda events: closing(events, "message") - 1, ["message", *ROUND, *ROUND]),
        (lambda events: closing(events, "message"), ["message", *ROUND, *ROUND]),
        (lambda events: events[-1]["sequence_number"], ["message", *ROUND, *ROUND, "message"]),
        (lambda events: None, ["message", *ROUND, *ROUND, "message"]),
    ],
    ids=[
        "the beginning",
        "a call that is open",
        "the middle of its output",
        "behind a round",
        "the second call",
        "behind the second round",
        "the middle of the answer",
        "an answer whose response has not ended",
        "the last event",
        "no event",
    ],
)
async def test_a_fork_begins_at_the_boundary_before_the_event(at: Any, begins_with: list[str]) -> None:
    served = Served.of(Lab(say("second")))
    stored = await ran(served)
    events = await served.lab.events(stored)
    response = await forked(served, stored, **({} if at(events) is None else {"at": at(events)}))
    fork = await served.lab.responses.load("t", response["id"])
    assert (types(fork.input_items), response["status"], texts(response["output"])) == (begins_with, "completed", ["second"])
    assert fork.recent_items == len(begins_with)
    boundary = response["forked_from"]["at"]
    assert boundary <= events[-1]["sequence_number"] if at(events) is None else boundary <= at(events)
    assert_well_formed(await served.lab.events(fork))


async def test_a_fork_has_the_files_of_its_round_and_says_what_is_missing() -> None:
    served = Served.of(Lab(say("a"), say("b"), say("c")))
    stored = await ran(served)
    events = await served.lab.events(stored)
    began = stored.files_at_ms
    for at in (0, closing(events, "shell_call_output"), None):
        response = await forked(served, stored, **({} if at is None else {"at": at}))
    containers: Any = served.lab.runtime.computers.containers
    assert containers.copied == [(CONTAINER, began), (CONTAINER, began + 1), (CONTAINER, began + 2)]
    assert response["forked_from"] == {
        "response_id": stored.response_id,
        "at": events[-1]["sequence_number"],
        "container": {"mode": "copy", "container_id": "cntr_copy_3", "files": 3, "notice": NO_PROCESSES},
    }


async def test_calls_stand_in_the_forks_history_as_if_they_had_run_in_its_container() -> None:
    for mode, container_id in (("copy", "cntr_copy_1"), ("none", "cntr_copy_1"), ("share", CONTAINER)):
        served = Served.of(Lab(say("second")))
        stored = await ran(served)
        response = await forked(served, stored, container=mode)
        fork = await served.lab.responses.load("t", response["id"])
        named = {item["environment"]["container_id"] for item in fork.input_items if item["type"] == "shell_call"}
        assert (fork.container_id, named) == (container_id, {container_id})
        assert response["tools"][0]["environment"] == {"type": "container_reference", "container_id": container_id}


async def test_what_is_not_given_stays_and_what_is_given_counts() -> None:
    served = Served.of(Lab(say("second")))
    echo = {"model": "m", "metadata": {"a": "b"}}
    stored = await ran(served, parameters={"temperature": 0.5, "budget": {"tool_calls": 9}}, echo=echo)
    events = await served.lab.events(stored)
    response = await forked(
        served, stored, at=closing(events, "shell_call_output"), input="Stop there.", model="other", instructions="Be long."
    )
    fork = await served.lab.responses.load("t", response["id"])
    assert types(fork.input_items) == ["message", *ROUND, "message"]
    assert (fork.parameters.model, fork.parameters.instructions, fork.parameters.temperature) == ("other", "Be long.", 0.5)
    assert (fork.parameters.budget, response["metadata"]) == ({"tool_calls": 9}, {"a": "b"})
    assert served.lab.model.requests[-1].instructions == "Be long."


async def test_a_fork_runs_as_its_predecessor_did_unless_it_is_asked_otherwise() -> None:
    served = Served.of(Lab())
    stored = await ran(served)
    answer = (await served.post(f"/responses/{stored.response_id}/fork", {})).json()
    assert (answer["status"], answer["background"]) == ("queued", True)
    served.lab.model.turns.append(say("second"))
    streamed = await served.post(f"/responses/{stored.response_id}/fork", {"stream": True})
    assert "response.completed" in streamed.text


async def test_a_fork_calls_its_tools_and_can_be_forked_and_gone_on_from() -> None:
    served = Served.of(Lab())
    stored = await ran(served)
    answer = (await served.post(f"/responses/{stored.response_id}/fork", {"input": "Again.", "at": 0})).json()
    fork = await served.lab.responses.load("t", answer["id"])
    served.lab.model.turns += [shell("make", call_id="call_1"), say("second"), say("third"), say("fourth")]
    await served.lab.run(fork)
    again = await forked(served, fork, input="And again.")
    begun_with = (await served.lab.responses.load("t", again["id"])).input_items
    assert types(begun_with) == ["message", "message", *ROUND, "message", "message"]
    following = await served.post("/responses", {"model": "m", "previous_response_id": again["id"], "input": "Go on."})
    assert texts(following.json()["output"]) == ["fourth"]


async def test_a_response_that_runs_can_be_forked_and_goes_on() -> None:
    served = Served.of(Lab(shell("make"), say("second"), say("first")))
    stored = await served.lab.background(files_at_ms=1)
    state = await served.lab.step(first_state(stored))
    response = await forked(served, stored, input="And you?")
    assert types((await served.lab.responses.load("t", response["id"])).input_items) == ["message", "message"]
    await served.lab.run(stored, state)
    assert texts((await served.lab.object_of(stored))["output"]) == ["first"]


async def test_the_old_response_is_left_as_it_is_and_may_go() -> None:
    served = Served.of(Lab(say("second"), say("third")))
    stored = await ran(served)
    pk = keys.response("t", stored.response_id)
    before = {sk: record for (owner, sk), record in served.lab.table.records.items() if owner == pk}
    response = await forked(served, stored)
    assert {sk: record for (owner, sk), record in served.lab.table.records.items() if owner == pk} == before
    await served.lab.responses.delete("t", stored.response_id)
    following = await served.post("/responses", {"model": "m", "previous_response_id": response["id"], "input": "Go on."})
    assert texts(following.json()["output"]) == ["third"]
    asked = served.lab.model.requests[-1].items
    assert [item["type"] for item in asked].count("function_call_output") == 2


async def test_a_call_of_the_clients_is_answered_with_the_fork() -> None:
    served = Served.of(Lab(call("look_up", "{}", "call_9"), say("answered")))
    asked = (await served.post("/responses", {"model": "m", "input": "Look.", "tools": [LOOKED_UP]})).json()
    path = f"/responses/{asked['id']}/fork"
    refused = await served.post(path, {"input": "Well?"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "No tool output found for function call call_9.")
    output = {"type": "function_call_output", "call_id": "call_9", "output": "42"}
    assert texts((await served.post(path, {"input": [output]})).json()["output"]) == ["answered"]


async def test_a_request_that_comes_twice_forks_once() -> None:
    served = Served.of(Lab(say("second")))
    stored = await ran(served)
    path, headers = f"/responses/{stored.response_id}/fork", {"idempotency-key": "fork-1"}
    answers = [await served.ask("POST", path, headers=headers, json={"background": False}) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"at": 10_000}, "at", "event_not_found"),
        ({"at": -1}, "at", "integer_below_min_value"),
        ({"at": "now"}, "at", "invalid_type"),
        ({"container": "mine"}, "container", "invalid_value"),
        ({"container": "copy", "tools": []}, "container", "invalid_value"),
        (
            {
                "container": "copy",
                "tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_2"}}],
            },
            "container",
            "invalid_value",
        ),
        ({"rewind": True}, "rewind", "invalid_value"),
        ({"rewind": "yes"}, "rewind", "invalid_type"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unknown_parameter"),
        ({"conversation": "conv_1"}, "conversation", "unknown_parameter"),
        ({"store": False}, "store", "unknown_parameter"),
        ({"budget": {"tool_calls": 1, "on_limit": "pause"}}, "budget.on_limit", "invalid_value"),
        ({"budget": {"usd": 1}}, "budget.usd", "model_not_budgetable"),
    ],
    ids=str,
)
async def test_what_a_fork_cannot_be_is_refused_by_name_and_leaves_no_container(body: dict[str, Any], param: str, code: str) -> None:
    served = Served.of(Lab())
    stored = await ran(served)
    answer = await served.post(f"/responses/{stored.response_id}/fork", {"background": False, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
    containers: Any = served.lab.runtime.computers.containers
    assert containers.known == {CONTAINER}


async def test_a_response_without_its_container_or_files_says_how_to_go_on() -> None:
    served = Served.of(Lab(say("second")))
    stored = await ran(served, files_at_ms=0)
    path = f"/responses/{stored.response_id}/fork"
    unknown = await served.post(path, {"background": False})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "workspace_expired")
    containers: Any = served.lab.runtime.computers.containers
    containers.known.clear()
    gone = await served.post(path, {"background": False, "container": "share"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (400, "workspace_expired")
    assert texts((await forked(served, stored, tools=[]))["output"]) == ["second"]


async def test_the_secrets_of_a_tool_do_not_come_along() -> None:
    served = Served.of(Lab(say("second")))
    tool = {"type": "mcp", "server_label": "a", "server_url": "https://mcp.example.com", "server": "secret_0"}
    stored = served.lab.stored(tools=[tool], container_id=None)
    await served.lab.responses.create(stored)
    error = (await served.post(f"/responses/{stored.response_id}/fork", {})).json()["error"]
    assert (error["param"], "give 'tools' again" in error["message"]) == ("tools", True)


async def test_a_response_of_nobody_or_of_another_tenant_is_not_known() -> None:
    served = Served.of(Lab())
    stored = await ran(served)
    path = f"/responses/{stored.response_id}/fork"
    assert (await served.post(path, {}, by="key-b")).status_code == 404
    assert (await served.post(f"/responses/{ids.new_response_id(0)}/fork", {})).status_code == 404
    await served.lab.responses.delete("t", stored.response_id)
    assert (await served.post(path, {})).status_code == 404
