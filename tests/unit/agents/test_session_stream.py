"""The events of a session: told as they come or again, whole or from anywhere on, and of what is deleted meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from moorage.agents.session_routes import _KEEP_ALIVE, _written
from moorage.agents.session_stream import Cursor
from moorage.wire.types import Event
from openai._streaming import SSEDecoder

from tests.simulation.clock import run
from tests.unit.agents.sessions import WEIGH, SessionLab, names
from tests.unit.loop.approvals import both
from tests.unit.loop.lab import CONTAINER, SHELL_TOOL, Turn, broken, call, say, shell

ASKS: dict[str, Any] = {
    **SHELL_TOOL,
    "environment": {"type": "container_reference", "container_id": CONTAINER},
    "require_approval": "always",
}


async def told_while(lab: SessionLab, *work: Callable[[], Awaitable[object]], after: Cursor | None = None) -> list[Event]:
    """What a reader hears while this happens, one thing after the other; he has heard of each before the next."""
    reading = asyncio.create_task(lab.replay(after))
    for each in work:
        await asyncio.sleep(5)
        await each()
    return await reading


async def steered_by(lab: SessionLab, text: str) -> None:
    """A message comes while the model is asked."""

    async def before() -> None:
        await lab.say(text)

    lab.lab.model.before_answer = before
    await lab.play()


async def told_live(*turns: Turn, ends: str) -> tuple[SessionLab, list[Event]]:
    lab = await SessionLab.begun(*turns, tools=[WEIGH])

    async def answered(call_id: str) -> None:
        assert (await lab.send(await lab.result(call_id, "3 kg"))).status_code == 202
        await lab.play()

    stories: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "completed": [lab.play],
        "answered": [lab.play, lambda: answered("call_1"), lambda: answered("call_2")],
        "cancelled": [lab.play, lambda: answered("call_1"), lab.cancel],
        "steered": [lambda: steered_by(lab, "stop there")],
    }
    return lab, await told_while(lab, *stories[ends])


WEIGHS = (call("weigh", "{}", "call_1"), call("weigh", "{}", "call_2"), say("Done."))


@pytest.mark.parametrize(
    ("turns", "ends"),
    [
        ((shell("a", "b"), broken("half"), say("Done.")), "completed"),
        (WEIGHS, "answered"),
        (WEIGHS, "cancelled"),
        ((shell("a"), say("Done.")), "steered"),
    ],
    ids=["completed", "answered", "cancelled", "steered"],
)
def test_a_turn_is_told_again_as_it_was_told(turns: tuple[Turn, ...], ends: str) -> None:
    async def story() -> None:
        lab, live = await told_live(*turns, ends=ends)
        assert len({event["event_id"] for event in live}) == len(live)
        assert await lab.replay() == live
        for position, event in enumerate(live[:-1]):
            assert await lab.replay(Cursor.of(event["event_id"], "after")) == live[position + 1 :], event
        indexes = [event["output_index"] for event in live if event["type"].endswith("item.added")]
        placed = [index for index in indexes if index is not None]
        assert placed == list(range(len(placed)))

    run(story())


def test_a_turn_that_was_cancelled_while_it_waited_is_told_to_its_end() -> None:
    async def story() -> None:
        _, live = await told_live(*WEIGHS, ends="cancelled")
        assert [name for name in names(live) if "." not in name or name.startswith("turn.c")] == [
            "created",
            "in_progress",
            "turn.created",
            "requires_action",
            "in_progress",
            "requires_action",
            "turn.cancelled",
            "idle",
        ]

    run(story())


def test_a_turn_whose_response_is_deleted_ends_for_its_readers() -> None:
    async def story() -> None:
        lab = await SessionLab.begun(say("one"))
        (turn,) = await lab.turns()

        async def delete() -> None:
            assert (await lab.served.delete(f"/responses/{turn['response_ids'][0]}")).status_code == 200

        live = await told_while(lab, delete)
        assert names(live)[-2:] == ["turn.failed", "idle"]
        assert live[-2]["turn"]["error"]["code"] == "resource_not_found"
        assert await lab.replay(Cursor.of(live[-3]["event_id"], "after")) == live[-2:]

    run(story())


def test_a_turn_is_told_as_it_is_although_one_of_its_responses_was_deleted() -> None:
    async def story() -> None:
        lab = await SessionLab.begun(call("weigh", "{}"), say("Done."), has_container=False, tools=[WEIGH])
        await lab.play()
        assert (await lab.send(await lab.result("call_1", "3 kg"))).status_code == 202
        await lab.play()
        (turn,) = await lab.turns()
        assert len(turn["response_ids"]) == 2
        assert (await lab.served.delete(f"/responses/{turn['response_ids'][0]}")).status_code == 200
        (ended,) = [event for event in await lab.replay() if event["type"].endswith("turn.completed")]
        assert (ended["turn"], ended["usage"]) == (turn, turn["usage"])

    run(story())


@pytest.mark.parametrize("with_team", [False, True])
def test_a_call_without_a_result_ends_with_its_turn(with_team: bool) -> None:
    async def story() -> None:
        turns = both(call("weigh", "{}", "call_1"), call("weigh", "{}", "call_2")), say("Well.")
        lab = await SessionLab.begun(*turns, has_container=False, tools=[WEIGH], multi_agent={"enabled": with_team})
        await lab.play()
        assert (await lab.send(await lab.result("call_1", "3 kg"))).status_code == 202
        assert await statuses(lab) == ["in_progress", "in_progress"]
        assert (await lab.cancel()).status_code == 202
        assert await statuses(lab) == ["incomplete", "incomplete"]
        told = await lab.replay()
        assert [event["item"]["status"] for event in told if event["type"].endswith("item.done")] == ["incomplete", "incomplete"]
        assert names(told)[-3:] == ["turn.item.done", "turn.cancelled", "idle"]

    async def statuses(lab: SessionLab) -> list[str]:
        items = (await lab.served.get(f"{lab.path}/items", order="asc")).json()["data"]
        return [item["status"] for item in items if item["type"] == "function_call"]

    run(story())


def test_a_deleted_session_ends_for_its_readers() -> None:
    async def story() -> None:
        lab = await SessionLab.begun(say("one"))

        async def delete() -> None:
            assert (await lab.served.delete(f"{lab.path}?force=true")).status_code == 200

        assert names(await told_while(lab, delete))[-1] in ("turn.item.added", "turn.cancelled", "idle")

    run(story())


def test_a_person_is_asked_within_the_turn_and_the_turn_goes_on() -> None:
    async def story() -> None:
        lab = await SessionLab.begun(shell("a"), shell("b", call_id="call_2"), say("Done."), has_container=False, tools=[ASKS])

        async def decide(decision: str) -> None:
            (action,) = (await lab.shown())["required_actions"]
            event = {"type": "agent.session.input.mcp_approval_request_result", "request_id": action["request_id"]}
            answer = await lab.send({**event, "response": {"type": "mcp_tool_call", "decision": decision}})
            assert answer.status_code == 202, answer.text
            await lab.play()

        live = await told_while(lab, lab.play, lambda: decide("approve"), lambda: decide("deny"))
        assert [name for name in names(live) if "." not in name] == [
            "created",
            "in_progress",
            "requires_action",
            "in_progress",
            "requires_action",
            "in_progress",
            "idle",
        ]
        assert len({event["event_id"] for event in live}) == len(live)
        logged = [event for event in live if event["event_id"].count("_") == 1]
        assert logged == await lab.replay()
        for position, event in enumerate(live):
            if event["type"] == "agent.session.requires_action":  # A connection that was cut there goes on behind it.
                told = await lab.replay(Cursor.of(event["event_id"], "after"))
                assert told == [live[position + 1], *(each for each in live[position + 2 :] if each in logged)]

    run(story())


def test_a_silence_after_an_event_is_none_for_the_sdk() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        event: Event = {"type": "agent.session.idle", "event_id": "evt_0000000100000001"}
        for piece in (_KEEP_ALIVE.body, _written(event, obfuscates=False)) * 2:
            yield piece

    async def story() -> list[str | None]:
        return [event.event async for event in SSEDecoder().aiter_bytes(pieces())]

    assert asyncio.run(story()) == ["agent.session.idle"] * 2


@pytest.mark.parametrize("odd", ["evt_", "1", "evt_+000000100000001", "evt_0000_00100000001", "msg_0000000100000001"])
async def test_what_is_no_id_of_an_event_is_refused(odd: str) -> None:
    lab = await SessionLab.begun(first=None)
    answer = await lab.served.get(f"{lab.path}/events", after=odd)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


def test_a_session_that_cannot_go_on_is_told_as_failed_once() -> None:
    async def story() -> None:
        lab = await SessionLab.begun(shell("a"), say("Done."))
        known = lab.lab.runtime.computers.containers.known  # type: ignore[attr-defined]

        async def before() -> None:
            await lab.say("more")
            known.clear()

        async def again() -> None:
            known.add(CONTAINER)
            await lab.say("again")
            await lab.play()

        lab.lab.model.before_answer = before
        live = await told_while(lab, lab.play, again)
        failed = [event for event in live if event["type"] == "agent.session.failed"]
        assert [event["session"]["error"] for event in failed] == ["Container with id 'cntr_1' not found."]
        assert [event for event in live if event not in failed] == await lab.replay()

    run(story())
