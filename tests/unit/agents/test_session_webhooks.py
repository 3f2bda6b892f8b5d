"""Endpoints that ask for it hear what a session does: each thing once, whatever dies."""

from contextlib import suppress
from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.loop.recover import recover
from moorage.store.table import Record
from moorage.webhooks import delivery as webhooks
from moorage.webhooks.event_types import SESSION_TYPES
from moorage.webhooks.store import Endpoint

from tests.unit.agents.sessions import WEIGH, SessionLab
from tests.unit.agents.test_session_input import decided
from tests.unit.agents.test_session_stream import ASKS
from tests.unit.loop.lab import CONTAINER, TENANT, Turn, call, say, shell
from tests.unit.loop.test_webhooks import log_of

HERE = {"environment_type": "openai_hosted", "environment_id": CONTAINER}


class Died(Exception):
    """The process is gone."""


async def listened(*turns: Turn, **settings: Any) -> tuple[SessionLab, Endpoint]:
    """A session without a turn, and an endpoint that asks for all events of sessions, and never answers."""
    lab = await SessionLab.begun(*turns, first=None, **settings)
    secret = webhooks.new_secret()
    created = await lab.lab.runtime.stores.webhooks.create(
        TENANT, name="mine", url="http://127.0.0.1:9/", event_types=SESSION_TYPES, secret=secret
    )
    return lab, created


async def told(lab: SessionLab, endpoint: Endpoint) -> list[tuple[str, Any]]:
    """In the order of their ids, which is that of time."""
    await lab.lab.runtime.process.rest(60)
    events = sorted((each.id, orjson.loads(each.body)) for each in await log_of(lab.lab, endpoint))
    names = [(event["type"].removeprefix("agent.session."), event["data"]) for _, event in events]
    assert all(data.pop("id") == lab.session.id for _, data in names)
    return names


async def test_a_turn_with_a_function_is_told_step_by_step() -> None:
    lab, endpoint = await listened(call("weigh", "{}"), say("3 kg."), tools=[WEIGH])
    await lab.say("go")
    await lab.play()
    lab.lab.now += 1
    assert (await lab.send(await lab.result("call_1", "3 kg"))).status_code == 202
    lab.lab.now += 1
    await lab.play()
    waits = {"required_action": {"type": "function_call"}}
    assert sorted(await told(lab, endpoint), key=str) == sorted(
        [("in_progress", HERE), ("action_required", waits), ("in_progress", HERE), ("idle", HERE)], key=str
    )


async def test_a_question_to_a_person_is_an_action_of_the_session() -> None:
    lab, endpoint = await listened(shell("a"), say("Done."), has_container=False, tools=[ASKS])
    await lab.say("go")
    await lab.play()
    (action,) = (await lab.shown())["required_actions"]
    lab.lab.now += 1
    assert (await lab.send(decided(action["request_id"]))).status_code == 202
    await lab.play()
    nowhere = {"environment_type": "none"}
    asked = {"required_action": {"type": "mcp_approval_request"}}
    assert sorted(await told(lab, endpoint), key=str) == sorted(
        [("in_progress", nowhere), ("action_required", asked), ("idle", nowhere)], key=str
    )


async def test_a_cancelled_turn_and_a_session_that_cannot_go_on_are_told() -> None:
    lab, endpoint = await listened(call("weigh", "{}"), tools=[WEIGH])
    await lab.say("go")
    await lab.play()
    lab.lab.now += 1
    assert (await lab.cancel()).status_code == 202
    lab.lab.runtime.computers.containers.known.clear()  # type: ignore[attr-defined]
    assert (await lab.send({"type": "agent.session.input.message", "input": [MESSAGE]})).status_code == 404
    found = [name for name, _ in await told(lab, endpoint)]
    assert sorted(found) == ["action_required", "idle", "in_progress"]


MESSAGE = {"role": "user", "content": [{"type": "input_text", "text": "more"}]}


async def test_a_session_is_told_when_it_was_made() -> None:
    lab, endpoint = await listened(say("Hello."))
    body = {"agent": {"model": "m"}, "environment": {"type": "none"}, "input": "hi"}
    made = (await lab.served.post("/agents/sessions", body)).json()
    await lab.lab.runtime.process.rest(60)
    events = [orjson.loads(each.body) for each in await log_of(lab.lab, endpoint)]
    found = sorted((event["type"], event["data"]["id"], event["data"]["environment_type"]) for event in events)
    assert found == [(f"agent.session.{name}", made["id"], "none") for name in ("created", "in_progress")]


@pytest.mark.parametrize("died_at", range(1, 24))
async def test_the_end_of_a_turn_is_told_once_wherever_a_process_dies(died_at: int) -> None:
    lab, endpoint = await listened(say("Done."), say("Done."), say("Done."))
    await lab.say("go")
    left = died_at

    async def dies(record: Record) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died

    lab.lab.table.before_write = dies
    with suppress(Died):
        await lab.play()
    lab.lab.table.before_write = None
    lab.lab.executions.states = dict.fromkeys(lab.lab.executions.states, "ABORTED")
    for _ in range(3):
        lab.lab.now += limits.RECOVERY_SECONDS + 1
        await recover(lab.lab.runtime)
        await lab.play()
    assert sorted(name for name, _ in await told(lab, endpoint)) == ["idle", "in_progress"]
