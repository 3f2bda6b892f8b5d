"""What bodies may say of a session: nothing is taken and left out, and each error names its field."""

from typing import Any

import pytest
from moorage.store.table import Record

from tests.unit.agents.sessions import WEIGH, SessionLab
from tests.unit.agents.test_session_stream import ASKS
from tests.unit.loop.approvals import both
from tests.unit.loop.lab import call, say, shell

MESSAGE: dict[str, Any] = {
    "type": "agent.session.input.message",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
}
NONE = {"type": "none"}


def decided(request_id: str, decision: str = "approve") -> dict[str, Any]:
    response = {"type": "mcp_tool_call", "decision": decision}
    return {"type": "agent.session.input.mcp_approval_request_result", "request_id": request_id, "response": response}


async def test_null_sets_back_what_it_names() -> None:
    lab = await SessionLab.begun(first=None, tools=[WEIGH], reasoning={"effort": "low", "summary": "auto"}, service_tier="flex")

    async def changed(**body: Any) -> dict[str, Any]:
        answer = await lab.served.post(lab.path, body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    assert (await changed(metadata={"a": "b"}))["metadata"] == {"a": "b"}
    assert (await changed(agent={"tools": []}))["metadata"] == {"a": "b"}
    assert (await changed(metadata=None))["metadata"] == {}
    agent = (await changed(agent={"reasoning": {"effort": None}, "service_tier": None}))["agent"]
    assert (agent["reasoning"], agent["service_tier"]) == ({"effort": None, "summary": "auto"}, "auto")
    agent = (await changed(agent={"reasoning": {"effort": "high"}, "tools": [WEIGH]}))["agent"]
    assert (agent["reasoning"]["effort"], len(agent["tools"])) == ("high", 1)
    assert (await changed(agent={"tools": None}))["agent"]["tools"] == []
    assert (await changed(agent={"reasoning": {}}))["agent"]["reasoning"]["effort"] == "high"


async def test_a_refusal_names_the_field_of_the_agent_where_it_stands() -> None:
    lab = await SessionLab.begun(first=None)
    for agent, param in (
        ({"model": "m", "tools": [WEIGH | {"name": "a b"}]}, "agent.tools[0].name"),
        ({"model": "m", "tools": [{"type": "web_search", "mode": "disabled"}, WEIGH | {"name": ""}]}, "agent.tools[1].name"),
    ):
        target = {"type": "new_session", "agent": agent, "environment": NONE, "input": MESSAGE["input"]}
        once = {"type": "once", "name": "report", "run_at": int(lab.lab.now) + 60, "target": target}
        for path, body, above in (
            ("/agents", agent, "agent."),
            ("/agents/sessions", {"agent": agent, "environment": NONE, "input": "hi"}, ""),
            (lab.path, {"agent": agent}, ""),
            ("/agents/automations", once, ""),
        ):
            error = (await lab.served.post(path, body)).json()["error"]
            named = param.removeprefix(above)
            assert error["param"] == (f"target.{named}" if body is once else named), path
            assert f"'{error['param']}'" in error["message"]


async def test_two_changes_at_once_are_both_made() -> None:
    lab = await SessionLab.begun(first=None)

    async def other_first(record: Record) -> None:
        lab.lab.table.before_write = None
        assert (await lab.served.post(lab.path, {"agent": {"service_tier": "flex"}})).status_code == 200

    lab.lab.table.before_write = other_first
    agent = (await lab.served.post(lab.path, {"agent": {"reasoning": {"effort": "low"}}})).json()["agent"]
    assert (agent["service_tier"], agent["reasoning"]["effort"]) == ("flex", "low")


async def test_a_session_overrides_its_saved_agent_with_null_too() -> None:
    lab = await SessionLab.begun(say("one"), first=None)
    saved = {"model": "m", "name": "clerk", "instructions": "Be brief.", "tools": [WEIGH], "reasoning": {"effort": "low"}}
    agent = (await lab.served.post("/agents", saved)).json()
    own = {"instructions": None, "tools": None, "reasoning": None}
    body = {"agent_id": agent["id"], "agent": own, "environment": NONE, "input": "hi"}
    made = (await lab.served.post("/agents/sessions", body)).json()["agent"]
    shown = {name: made[name] for name in ("name", "instructions", "tools", "reasoning")}
    nothing: dict[str, Any] = {"effort": None, "summary": None}
    assert shown == {"name": "clerk", "instructions": None, "tools": [], "reasoning": nothing}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"agent": {"model": "m"}}, "environment"),
        ({"agent": {"model": "m"}, "environment": NONE}, "input"),
        ({"agent": {"model": "m"}, "environment": NONE, "input": ""}, "input"),
        ({"agent": {"model": "m"}, "environment": NONE, "input": []}, "input"),
        ({"agent": {"model": "m"}, "environment": NONE, "input": 3}, "input"),
        ({"agent": {"model": "m", "metadata": {}}, "environment": NONE, "input": "x"}, "agent.metadata"),
        ({"agent": {"model": None}, "environment": NONE, "input": "x"}, "agent.model"),
        ({"agent": {}, "environment": NONE, "input": "x"}, "agent.model"),
        ({"agent_id": "AGENT", "agent": {"model": None}, "environment": NONE, "input": "x"}, "agent.model"),
        ({"agent_id": "AGENT", "agent": {"name": "other"}, "environment": NONE, "input": "x"}, "agent.name"),
        ({"agent_id": "agent_none", "environment": NONE, "input": "x"}, "agent_id"),
        ({"agent_id": "OTHERS", "environment": NONE, "input": "x"}, "agent_id"),
        ({"agent": {"model": "m"}, "environment": NONE, "input": "x", "stream_options": {}}, "stream_options"),
        ({"agent": {"model": "m"}, "environment": NONE, "input": "x", "metadata": {"a": 1}}, "metadata.a"),
        ({"agent": {"model": "m"}, "environment": NONE, "input": "x", "spend_control": {"limit": 0.5}}, "spend_control.limit"),
    ],
)
async def test_a_body_that_says_too_little_or_too_much_is_refused(body: dict[str, Any], param: str) -> None:
    lab = await SessionLab.begun(first=None)
    mine = (await lab.served.post("/agents", {"model": "m"})).json()["id"]
    others = (await lab.served.post("/agents", {"model": "m"}, by="key-b")).json()["id"]
    named = {"AGENT": mine, "OTHERS": others}
    sent = body | ({"agent_id": named.get(body["agent_id"], body["agent_id"])} if "agent_id" in body else {})
    answer = await lab.served.post("/agents/sessions", sent)
    error = answer.json()["error"]
    assert (answer.status_code in (400, 404), error["param"], error["type"]) == (True, param, "invalid_request_error"), error


@pytest.mark.parametrize(
    ("events", "param"),
    [
        (None, "events"),
        ([], "events"),
        ([3], "events[0]"),
        ([{}], "events[0].type"),
        ([{"type": "agent.session.input.message", "input": []}], "events[0].input"),
        ([{"type": "agent.session.input.message", "input": [{"role": "user", "content": []}]}], "events[0].input[0].content"),
        ([{"type": "agent.session.input.message", "input": [{"role": "system", "content": "x"}]}], "events[0].input[0].role"),
        ([MESSAGE, decided("apr_none")], None),
        ([{"type": "agent.session.input.computer_use_approval_request_result"}], "events[0].type"),
    ],
)
async def test_events_that_are_none_are_refused_whole(events: Any, param: str | None) -> None:
    lab = await SessionLab.begun(first=None)
    answer = await lab.served.post(f"{lab.path}/events", {"events": events})
    error = answer.json()["error"]
    assert (answer.status_code in (400, 404), error["param"], error["type"]) == (True, param, "invalid_request_error"), error
    assert await lab.turns() == []


async def test_the_reason_and_the_output_of_a_call_that_failed_are_both_told() -> None:
    lab = await SessionLab.begun(call("weigh", "{}"), say("Well."), tools=[WEIGH])
    await lab.play()
    result = await lab.result("call_1", "half")
    answer = await lab.send(result | {"error": "no"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "events[0].error")
    assert (await lab.send(result | {"success": False, "error": "It broke."})).status_code == 202
    await lab.play()
    (output,) = [item for item in lab.lab.model.requests[-1].items if item["type"] == "function_call_output"]
    assert [part["text"] for part in output["output"]] == ["It broke.", "half"]


async def test_a_call_that_has_a_result_is_not_asked_for_any_more() -> None:
    lab = await SessionLab.begun(both(call("weigh", "{}", "call_1"), call("weigh", "{}", "call_2")), say("Well."), tools=[WEIGH])
    await lab.play()
    assert [action["call_id"] for action in (await lab.shown())["required_actions"]] == ["call_1", "call_2"]
    assert (await lab.send(await lab.result("call_1", "3 kg"))).status_code == 202
    assert [action["call_id"] for action in (await lab.shown())["required_actions"]] == ["call_2"]


async def test_decisions_are_looked_at_together_before_one_counts() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."), has_container=False, tools=[ASKS])
    await lab.play()
    (action,) = (await lab.shown())["required_actions"]
    other = await SessionLab.begun(first=None)
    for events in (
        [decided(action["request_id"]), decided("apr_none")],
        [decided(action["request_id"]), decided(action["request_id"], "deny")],
    ):
        assert (await lab.send(*events)).status_code in (400, 404)
    assert (await other.send(decided(action["request_id"]))).status_code == 404
    assert (await lab.shown())["status"] == "requires_action"
    assert (await lab.send(decided(action["request_id"]))).status_code == 202
    await lab.play()
    assert (await lab.shown())["status"] == "idle"


async def test_a_request_that_is_refused_lets_no_call_run() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."), has_container=False, tools=[ASKS])
    await lab.play()
    (action,) = (await lab.shown())["required_actions"]
    nobody_asked = await lab.result("call_none", "3 kg")
    for others in ([nobody_asked], [nobody_asked, {"type": "agent.session.input.cancel"}]):
        assert (await lab.send(decided(action["request_id"]), *others)).status_code == 400
        await lab.play()
        assert (await lab.shown())["required_actions"] == [action]


async def test_a_decision_beside_one_that_comes_too_late_does_not_count() -> None:
    lab = await SessionLab.begun(both(shell("a"), shell("b", call_id="call_2")), say("Done."), has_container=False, tools=[ASKS])
    await lab.play()
    first, second = (await lab.shown())["required_actions"]
    assert (await lab.send(decided(first["request_id"], "deny"))).status_code == 202
    await lab.play()
    answer = await lab.send(decided(second["request_id"]), decided(first["request_id"]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "approval_decided")
    assert (await lab.shown())["required_actions"] == [second]


async def test_no_page_begins_behind_a_turn_that_is_not_there() -> None:
    lab = await SessionLab.begun(say("one"), say("two"))
    await lab.play()
    (turn,) = await lab.turns()
    for path in ("/turns", "/traces", "/items"):
        answer = await lab.served.get(f"{lab.path}{path}", after=f"{turn['id'][:-4]}0000")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after"), path


async def test_nothing_of_a_session_is_there_for_another_tenant() -> None:
    lab = await SessionLab.begun(say("one"))
    (turn,) = await lab.turns()
    for path in ("", "/events", "/items", "/turns", f"/turns/{turn['id']}", f"/turns/{turn['id']}/items", "/traces"):
        answer = await lab.served.get(f"{lab.path}{path}", by="key-b")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_not_found"), path
    assert (await lab.served.post(f"{lab.path}/events", {"events": [MESSAGE]}, by="key-b")).status_code == 404
    assert (await lab.served.delete(f"{lab.path}?force=true", by="key-b")).status_code == 404


async def test_an_id_that_a_model_uses_for_two_calls_is_another_one_for_the_second() -> None:
    lab = await SessionLab.begun(call("weigh", "{}"), say("One."), call("weigh", "{}"), say("Two."), tools=[WEIGH])
    await lab.play()
    first = await lab.result("call_1", "3 kg")
    assert (await lab.send(first)).status_code == 202
    await lab.play()
    await lab.say("again")
    await lab.play()
    late = await lab.send(first)
    assert (late.status_code, late.json()["error"]["message"]) == (400, "Unknown pending tool call: call_1")
    (action,) = (await lab.shown())["required_actions"]
    assert action["call_id"] != "call_1"
    assert (await lab.send(await lab.result(action["call_id"], "4 kg"))).status_code == 202
    await lab.play()
    assert [item for item in await lab.items() if "output" in item] == [
        "function_call_output 3 kg completed",
        "function_call_output 4 kg completed",
    ]
