"""Subagents of a session: how they are told, read and ended, over the lanes of a response."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from moorage.agents.session_stream import Cursor, SessionReader
from moorage.model.base import MessageStarted, StreamFinished, TextDelta
from moorage.wire.types import Event, Item

from tests.simulation.clock import run
from tests.unit.agents.sessions import SECONDS_MAX, WEIGH, SessionLab, in_short, message
from tests.unit.agents.test_session_stream import ASKS
from tests.unit.loop.lab import Turn, call, say, shell
from tests.unit.loop.teams import TeamLab, ask, spawn, wait
from tests.unit.store.deaths import Death

TEAM: dict[str, Any] = {"enabled": True}


async def session_of(lab: TeamLab, **settings: Any) -> SessionLab:
    return await SessionLab.over(lab, multi_agent=TEAM, **settings)


async def played(**scripts: list[Turn]) -> SessionLab:
    """A session whose turn has ended."""
    lab = TeamLab(**scripts)
    session = await session_of(lab)
    await lab.play()
    return session


async def asked(lab: SessionLab, path: str, **query: Any) -> list[dict[str, Any]]:
    answer = await lab.served.get(f"{lab.path}{path}", order="asc", limit=100, **query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


def told(events: list[Event], turn_id: str) -> list[str]:
    """What is told of a turn, but for pieces of items."""
    found = []
    for event in events:
        if event.get("turn_id") == turn_id and not event["type"].endswith((".delta", "content_part.added", ".text.done")):
            name = event["type"].removeprefix("agent.session.turn.")
            found.append(f"{name} {event['item']['type']}" if "item" in event else name)
    return found


def of_item(item: Item) -> str:
    kinds = {"agent_message": "heard", "create_subagent_call": "starts", "send_subagent_input_call": "tells"}
    if item["type"] in kinds:
        return f"{kinds[item['type']]}: {item['content'][0]['text']}"
    return item["type"] if item["type"].endswith("subagents_call") else in_short(item)


TWICE_OPEN = ("created", "closed", "active", "closed")
TWO: dict[str, list[Turn]] = {
    "root": [spawn("a"), spawn("b", "Look at b.", call_id="call_2"), wait(), wait(), say("Both are done.")],
    "root__a": [shell("a1"), say("a is done")],
    "root__b": [shell("b1"), say("b is done")],
}


def test_subagents_have_their_turns_and_items() -> None:
    async def story() -> None:
        lab = await played(**TWO)
        first, second = await asked(lab, "/subagents")
        session = await lab.shown()
        assert {name: first[name] for name in first if name not in ("id", "opened_at", "closed_at", "usage")} == {
            "object": "agent.session.subagent",
            "session_id": lab.session.id,
            "parent_agent_id": session["agent"]["id"],
            "name": "/root/a",
            "instructions": [{"type": "output_text", "text": "Do it."}],
            "status": "closed",
            "cost_usd": None,
        }
        assert second["name"] == "/root/b"
        (turn,) = await asked(lab, f"/subagents/{first['id']}/turns")
        assert (turn["status"], turn["subagent_id"], turn["usage"]) == ("completed", first["id"], first["usage"])
        assert turn["usage"]["total_tokens"] > 0
        assert (await lab.served.get(f"{lab.path}/turns/{turn['id']}")).json() == turn
        items = await asked(lab, f"/subagents/{first['id']}/items")
        assert [of_item(item) for item in items] == ["heard: Do it.", "$ a1 completed", "assistant: a is done"]
        assert await asked(lab, f"/subagents/{first['id']}/turns/{turn['id']}/items") == items
        assert await asked(lab, f"/turns/{turn['id']}/items") == items
        root = [of_item(item) for item in await asked(lab, "/items")]
        assert [item for item in root if not item.startswith("heard")] == [
            "user: go",
            "starts: Do it.",
            "starts: Look at b.",
            "wait_for_subagents_call",
            "wait_for_subagents_call",
            "assistant: Both are done.",
        ]
        assert {item for item in root if item.startswith("heard")} == {"heard: a is done", "heard: b is done"}

    run(story())


def test_a_team_is_told_in_one_stream_and_again_behind_any_event() -> None:
    async def story() -> None:
        lab = await played(**TWO)
        whole = await lab.replay()
        assert len({event["event_id"] for event in whole}) == len(whole)
        for position, event in enumerate(whole[:-1]):
            assert await lab.replay(Cursor.of(event["event_id"], "after")) == whole[position + 1 :], event
        first, second = await asked(lab, "/subagents")
        (root,) = await lab.turns()
        (turn,) = await asked(lab, f"/subagents/{second['id']}/turns")
        assert told(whole, turn["id"]) == [
            "created",
            "in_progress",
            "item.added agent_message",
            "item.added command_execution",
            "item.done command_execution",
            "item.added message",
            "output_text.done",
            "content_part.done",
            "item.done message",
            "completed",
        ]
        closing = [event["type"].removeprefix("agent.session.") for event in whole[-4:]]
        assert closing == ["subagent.closed", "subagent.closed", "turn.completed", "idle"]
        ends = [event["subagent"] for event in whole if event["type"] == "agent.session.subagent.closed"]
        assert ends == [{**each, "usage": None} for each in (first, second)]
        asked_for = [event["item"] for event in whole if event["type"] == "agent.session.turn.item.done"]
        waits = [item["recipient_agent_ids"] for item in asked_for if item["type"] == "wait_for_subagents_call"]
        assert waits == [[first["id"], second["id"]]] * 2
        assert {event["turn"]["subagent_id"] for event in whole if event.get("turn_id") == root["id"] and "turn" in event} == {None}

    run(story())


def test_items_of_a_turn_are_the_same_while_it_runs_and_afterwards() -> None:
    async def story() -> None:
        lab = await played(**TWO)
        whole = await lab.replay()
        (root,) = await lab.turns()
        seen: dict[str, Item] = {}
        for event in whole:
            if "item" in event and event["turn_id"] == root["id"]:
                seen[event["item"]["id"]] = event["item"]
        assert await asked(lab, "/items") == list(seen.values())

    run(story())


def test_a_further_task_is_a_further_turn() -> None:
    async def story() -> None:
        lab = await played(
            root=[spawn("a"), wait(), ask("followup_task", "call_2", target="a", message="Once more."), wait(), say("Done.")],
            root__a=[say("one"), say("two")],
        )
        (subagent,) = await asked(lab, "/subagents")
        turns = await asked(lab, f"/subagents/{subagent['id']}/turns")
        assert [turn["status"] for turn in turns] == ["completed", "completed"]
        said = [[of_item(item) for item in await asked(lab, f"/turns/{turn['id']}/items")] for turn in turns]
        assert said == [["heard: Do it.", "assistant: one"], ["heard: Once more.", "assistant: two"]]
        assert subagent["usage"]["total_tokens"] == sum(turn["usage"]["total_tokens"] for turn in turns)
        (call,) = [item for item in await asked(lab, "/items") if item["type"] == "send_subagent_input_call"]
        assert (call["recipient_agent_id"], call["status"]) == (subagent["id"], "completed")

    run(story())


def test_a_subagent_that_stopped_at_a_bound_is_opened_again_by_a_further_task() -> None:
    async def story() -> None:
        lab = await played(
            root=[spawn("a"), wait(), ask("followup_task", "call_2", target="a", message="Once more."), wait(), say("Done.")],
            root__a=[[MessageStarted(), TextDelta("half"), StreamFinished("max_output_tokens")]],
        )
        (subagent,) = await asked(lab, "/subagents")
        turns = await asked(lab, f"/subagents/{subagent['id']}/turns")
        assert [(turn["status"], turn["error"]["message"]) for turn in turns] == [("failed", "The subagent's answer was cut.")] * 2
        names = [event["type"].removeprefix("agent.session.") for event in await lab.replay()]
        assert [name for name in names if name.startswith("subagent")] == [f"subagent.{name}" for name in TWICE_OPEN]

    run(story())


def test_a_subagent_without_an_answer_has_failed_or_was_interrupted() -> None:
    async def story() -> None:
        lab = await played(
            root=[spawn("a"), shell("r1"), ask("interrupt_agent", "call_2", target="a"), wait(), say("Done.")],
            root__a=[shell(f"a{number}") for number in range(9)],
        )
        (subagent,) = await asked(lab, "/subagents")
        (turn,) = await asked(lab, f"/subagents/{subagent['id']}/turns")
        assert (turn["status"], turn["error"]) == ("cancelled", None)

    run(story())


def test_cancelling_the_turn_cancels_the_subagents() -> None:
    async def story() -> None:
        lab = TeamLab(root=[spawn("a"), wait(), say("never")], root__a=[shell(f"a{number}") for number in range(9)])
        session = await session_of(lab)
        with pytest.raises(AssertionError, match="never end"):
            await lab.play(most=3)
        (busy,) = await asked(session, "/subagents")
        assert (busy["status"], busy["closed_at"]) == ("active", None)
        assert (await session.cancel()).status_code == 202
        (subagent,) = await asked(session, "/subagents")
        (turn,) = await asked(session, f"/subagents/{subagent['id']}/turns")
        assert (subagent["status"], turn["status"]) == ("closed", "cancelled")
        ends = [event["type"].removeprefix("agent.session.") for event in (await session.replay())[-4:]]
        assert ends == ["turn.cancelled", "subagent.closed", "turn.cancelled", "idle"]

    run(story())


def test_a_message_during_the_turn_of_a_team_begins_the_next_one() -> None:
    async def story() -> None:
        lab = TeamLab(root=[spawn("a"), wait(), say("One."), say("Two.")], root__a=[say("a is done")])
        session = await session_of(lab)
        assert (await session.send(message("And then?"))).status_code == 202
        await lab.play()
        assert [turn["status"] for turn in await session.turns()] == ["completed", "completed"]
        items = [of_item(item) for item in await asked(session, "/items")]
        assert items[-2:] == ["user: And then?", "assistant: Two."]

    run(story())


def test_subagents_wait_for_results_of_the_client_and_go_on_in_the_same_turn() -> None:
    async def story() -> None:
        weigh = call("weigh", '{"parcel": "x"}', "call_w")
        lab = TeamLab(
            root=[spawn("a"), spawn("b", call_id="call_2"), wait(), wait(), say("Done.")],
            root__a=[weigh, say("a is done")],
            root__b=[weigh, shell("b1"), say("b is done")],
        )
        session = await session_of(lab, tools=[WEIGH])
        await lab.play()
        shown = await session.shown()
        assert (shown["status"], len(shown["required_actions"])) == ("requires_action", 2)
        first, second = await asked(session, "/subagents")
        assert [each["status"] for each in (first, second)] == ["active", "active"]
        events = await told_until(session, "agent.session.requires_action")
        calls = [event["item"] for event in events if event.get("item", {}).get("type") == "function_call"]
        (mine,) = [item for item in calls if item["turn_id"] == (await asked(session, f"/subagents/{first['id']}/turns"))[0]["id"]]
        for item in calls:
            result = {"type": "agent.session.input.tool_result", "turn_id": item["turn_id"], "call_id": item["call_id"]}
            assert (await session.send({**result, "success": True, "output": "3 kg"})).status_code == 202
        await lab.play()
        (turn,) = await session.turns()
        assert (turn["status"], len(turn["response_ids"])) == ("completed", 2)
        (of_first,) = await asked(session, f"/subagents/{first['id']}/turns")
        items = await asked(session, f"/turns/{of_first['id']}/items")
        assert [of_item(item) for item in items] == [
            "heard: Do it.",
            "function_call weigh completed",
            "function_call_output 3 kg completed",
            "assistant: a is done",
        ]
        assert items[1]["call_id"] == mine["call_id"]
        assert of_first["response_ids"] == turn["response_ids"]
        whole = await session.replay()
        assert [event["type"] for event in whole[: len(events)]] == [event["type"] for event in events]
        assert len({event["event_id"] for event in whole}) == len(whole)
        seen = {event["item"]["id"]: event["item"] for event in whole if event.get("turn_id") == turn["id"] and "item" in event}
        assert await asked(session, "/items") == list(seen.values())
        waits = [item["status"] for item in seen.values() if item["type"] == "wait_for_subagents_call"]
        assert waits == ["completed"] * len(waits)

    run(story())


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_person_decides_about_the_command_of_a_subagent(decision: str) -> None:
    async def story() -> None:
        lab = TeamLab(root=[spawn("a"), wait(), say("Done.")], root__a=[shell("a1"), say("a is done")])
        session = await session_of(lab, has_container=False, tools=[ASKS])
        await lab.play()
        shown = await session.shown()
        (action,) = shown["required_actions"]
        (turn,) = await session.turns()
        assert (shown["status"], turn["status"]) == ("requires_action", "waiting")
        assert (action["request"]["name"], action["request"]["arguments"]["action"]["commands"]) == ("shell_call", ["a1"])
        assert "agent.session.requires_action" in [
            event["type"] for event in await told_until(session, "agent.session.requires_action")
        ]
        answer = {"type": "mcp_tool_call", "decision": decision}
        event = {"type": "agent.session.input.mcp_approval_request_result", "request_id": action["request_id"], "response": answer}
        assert (await session.send(event)).status_code == 202
        await lab.play()
        (turn,) = await session.turns()
        assert (turn["status"], (await session.shown())["required_actions"]) == ("completed", [])
        (subagent,) = await asked(session, "/subagents")
        items = [of_item(item) for item in await asked(session, f"/subagents/{subagent['id']}/items")]
        ran = {"approve": "$ a1 completed", "deny": "$ a1 failed"}[decision]
        assert items == ["heard: Do it.", ran, "assistant: a is done"]
        assert lab.sandboxes.begun == (["a1"] if decision == "approve" else [])

    run(story())


def test_an_agent_of_an_earlier_turn_goes_on_in_the_next() -> None:
    async def story() -> None:
        lab = TeamLab(
            root=[
                spawn("a"),
                wait(),
                say("One."),
                ask("followup_task", "call_2", target="a", message="Once more."),
                wait(),
                say("Two."),
            ],
            root__a=[say("first"), say("second")],
        )
        session = await session_of(lab)
        await lab.play()
        await session.say("Go on.")
        await lab.play()
        assert [turn["status"] for turn in await session.turns()] == ["completed", "completed"]
        first, second = await asked(session, "/subagents")
        assert [(each["name"], each["status"], each["instructions"]) for each in (first, second)] == [
            ("/root/a", "closed", [{"type": "output_text", "text": "Do it."}]),
            ("/root/a", "closed", None),
        ]
        said = [[of_item(item) for item in await asked(session, f"/subagents/{each['id']}/items")] for each in (first, second)]
        assert said == [["heard: Do it.", "assistant: first"], ["heard: Once more.", "assistant: second"]]

    run(story())


async def told_until(session: SessionLab, name: str) -> list[Event]:
    found: list[Event] = []
    reader = SessionReader(session.lab.runtime, session.session, {"type": "none"}, Cursor(0, 0))
    async with asyncio.timeout(SECONDS_MAX), aclosing(reader.batches()) as batches:
        async for events in batches:
            found += events
            if any(event["type"] == name for event in events):
                return found
    return found


def test_a_subagent_of_another_session_or_tenant_is_not_found() -> None:
    async def story() -> None:
        lab = await played(**TWO)
        (first, _) = await asked(lab, "/subagents")
        (turn,) = await asked(lab, f"/subagents/{first['id']}/turns")
        one = f"{lab.path}/subagents/{first['id']}"
        for path in (one, f"{one}/items", f"{one}/turns", f"{one}/turns/{turn['id']}", f"{one}/turns/{turn['id']}/items"):
            assert (await lab.served.get(path)).status_code == 200
            assert (await lab.served.get(path, by="key-b")).status_code == 404
            wrong = path.replace(first["id"], f"{first['id'][:-1]}{'0' if first['id'][-1] != '0' else '1'}")
            assert (await lab.served.get(wrong)).json()["error"]["code"] == "subagent_not_found"

    run(story())


@pytest.mark.parametrize("died_at", range(0, 90, 3))
def test_whenever_a_process_dies_a_stream_is_told_again_as_it_was(died_at: int) -> None:
    async def story() -> None:
        lab = TeamLab(**TWO)
        session = await session_of(lab)
        lab.table.before_write = Death(died_at)
        await lab.play(newest_first=bool(died_at % 2))
        whole = await session.replay()
        assert len({event["event_id"] for event in whole}) == len(whole)
        middle = len(whole) // 2
        assert await session.replay(Cursor.of(whole[middle]["event_id"], "after")) == whole[middle + 1 :]
        for subagent in await asked(session, "/subagents"):
            (turn,) = await asked(session, f"/subagents/{subagent['id']}/turns")
            assert (subagent["status"], turn["status"]) == ("closed", "completed")
            items = [of_item(item) for item in await asked(session, f"/turns/{turn['id']}/items")]
            name = subagent["name"].removeprefix("/root/")
            assert [item for item in items if item.startswith(("$", "assistant: "))][-1] == f"assistant: {name} is done"
            assert len([item for item in items if item.startswith("$")]) == 1

    run(story())
