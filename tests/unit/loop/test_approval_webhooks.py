"""Endpoints that ask for it hear that a person's word is wanted: once for each question, whatever dies."""

import orjson
import pytest
from moorage.webhooks import delivery as webhooks
from moorage.webhooks.event_types import APPROVAL_REQUESTED
from moorage.webhooks.store import Delivery

from tests.unit.api.served import Served
from tests.unit.loop.approvals import ASKS, approvals_of, both, decided, played
from tests.unit.loop.lab import CONTAINER, say, shell
from tests.unit.loop.test_egress_approvals import CURL, HOST, lab_of, refused
from tests.unit.loop.test_pause import run_all
from tests.unit.loop.test_webhooks import endpoint_at, lab_with, log_of
from tests.unit.store.deaths import Death, at_each_death


def told(deliveries: list[Delivery]) -> list[tuple[str, str]]:
    return [(each.event_type, orjson.loads(each.body)["data"]["id"]) for each in deliveries]


async def test_each_question_is_told_once_to_the_endpoints_that_name_the_type() -> None:
    turn = both(shell("rm a"), shell("rm b", call_id="call_2"))
    async with lab_with(turns=(turn, say("done"))) as (lab, receiver):
        served = Served.of(lab)
        named, other = await endpoint_at(lab, receiver, APPROVAL_REQUESTED), await endpoint_at(lab, receiver, "response.completed")
        stored = await lab.background(tools=[ASKS])
        await run_all(lab, stored.response_id)
        await lab.runtime.process.rest(60)
        first, second = await approvals_of(served, stored)
        assert sorted(told(await log_of(lab, named))) == sorted((APPROVAL_REQUESTED, each["id"]) for each in (first, second))
        event = receiver.sent[0].event
        assert event["data"] == {"id": event["data"]["id"], "response_id": stored.response_id}
        await decided(served, first["id"], True)
        await played(served)
        await decided(served, second["id"], True)
        await played(served)
        await lab.runtime.process.rest(60)
        assert len(await log_of(lab, named)) == 2, "what waits on is not told again"
        assert told(await log_of(lab, other)) == [("response.completed", stored.response_id)]


@pytest.mark.parametrize("of_host", [False, True])
@at_each_death
async def test_a_question_is_told_once_wherever_a_process_dies(death: Death, of_host: bool) -> None:
    lab = await lab_of(*([CURL] * 3))
    nowhere = await lab.runtime.stores.webhooks.create(
        "t", name="mine", url="http://127.0.0.1:9/", event_types=[APPROVAL_REQUESTED], secret=webhooks.new_secret()
    )
    if of_host:
        stored = await lab.background(has_gated_network=True)
        await refused(lab, HOST, CONTAINER)
    else:
        stored = await lab.background(tools=[ASKS])
    await lab.run_with_deaths(stored, death)
    lab.table.before_write = None
    await lab.runtime.process.rest(60)
    (approval,) = await lab.runtime.stores.approvals.of("t", stored.response_id)
    assert told(await log_of(lab, nowhere)) == [(APPROVAL_REQUESTED, approval.id)]
    assert (await lab.responses.load("t", stored.response_id)).awaits == (approval.id,)
