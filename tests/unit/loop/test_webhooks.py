"""The end of a background response reaches every endpoint that asks for it, whatever dies and whatever the endpoint answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.errors import StorageFull
from moorage.loop import finish
from moorage.loop.recover import recover
from moorage.store import keys
from moorage.store.responses import StoredResponse
from moorage.webhooks import delivery as webhooks
from moorage.webhooks.event_types import EVENT_TYPES
from moorage.webhooks.store import Delivery, Endpoint
from moorage.wire.queries import PageQuery
from openai import InvalidWebhookSignatureError

from tests.receivers import HANG_UP, Answer, Receiver, receiving
from tests.unit.loop.lab import TENANT, Lab, Turn, say, shell
from tests.unit.store.deaths import Death, at_each_death

LATER = limits.WEBHOOK_LEASE_SECONDS + 1


@asynccontextmanager
async def lab_with(*answers: Answer, turns: tuple[Turn, ...] = ()) -> AsyncIterator[tuple[Lab, Receiver]]:
    """A laboratory that may reach a receiver on this machine, at the present time."""
    async with receiving(*answers) as receiver:
        lab = Lab(*turns)
        lab.now = time.time()
        reach(lab, receiver)
        yield lab, receiver
        await lab.runtime.process.rest(60)


def reach(lab: Lab, *receivers: Receiver) -> None:
    ports = (80, 443, *(receiver.port for receiver in receivers))
    lab.runtime.fetcher = Fetcher(allowed_networks=("127.0.0.0/8", "::1/128"), ports=ports)


async def endpoint_at(lab: Lab, receiver: Receiver, *event_types: str, tenant: str = TENANT, secret: str = "") -> Endpoint:
    return await lab.runtime.stores.webhooks.create(
        tenant, name="mine", url=receiver.url, event_types=event_types or EVENT_TYPES, secret=secret or webhooks.new_secret()
    )


async def completed(lab: Lab, **changes: Any) -> StoredResponse:
    """A response that a model has answered, with the first attempts at telling so."""
    lab.model.turns.append(say("done"))
    stored = await lab.background(**changes)
    await lab.run(stored)
    await lab.runtime.process.rest(60)
    return stored


async def log_of(lab: Lab, endpoint: Endpoint) -> list[Delivery]:
    return (await lab.runtime.stores.webhooks.page(endpoint, PageQuery()))[0]


async def only(lab: Lab, endpoint: Endpoint) -> Delivery:
    (delivery,) = await log_of(lab, endpoint)
    return delivery


def answers_of(delivery: Delivery) -> list[int | str | None]:
    return [attempt.status_code or attempt.error for attempt in delivery.attempts]


# --- What is sent ---


async def test_the_sdk_takes_the_event_of_a_completed_response() -> None:
    async with lab_with() as (lab, receiver):
        secret = webhooks.new_secret()
        await endpoint_at(lab, receiver, secret=secret)
        stored = await completed(lab)
        (sent,) = receiver.sent
        event = sent.unwrapped(secret)
        assert (event.type, event.data.id, event.created_at) == ("response.completed", stored.response_id, int(lab.now))
        assert sent.event == {
            "id": sent.headers["webhook-id"],
            "object": "event",
            "created_at": int(lab.now),
            "type": "response.completed",
            "data": {"id": stored.response_id},
        }
        with pytest.raises(InvalidWebhookSignatureError):
            sent.unwrapped(webhooks.new_secret())


def test_a_signature_is_that_of_the_specification() -> None:
    """Its own example."""
    signed = webhooks.signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("status", ["cancelled", "failed", "incomplete"])
async def test_an_end_from_outside_is_told_too(status: Any) -> None:
    async with lab_with() as (lab, receiver):
        await endpoint_at(lab, receiver)
        stored = await lab.background()
        await finish.end_from_outside(lab.runtime, stored, status=status, error={"code": "server_error", "message": "!"})
        await lab.runtime.process.rest(60)
        assert [(event["type"], event["data"]["id"]) for event in receiver.events] == [(f"response.{status}", stored.response_id)]


async def test_only_those_that_ask_for_it_hear_of_an_end() -> None:
    async with lab_with() as (lab, receiver):
        await endpoint_at(lab, receiver, "response.failed")
        await endpoint_at(lab, receiver, tenant="other")
        await completed(lab)
        await completed(lab, is_background=False)
        late = await endpoint_at(lab, receiver)
        assert receiver.sent == []
        assert await log_of(lab, late) == []


async def test_a_rotated_secret_signs_for_a_day_where_that_is_asked_for() -> None:
    async with lab_with() as (lab, receiver):
        old, new, newest = webhooks.new_secret(), webhooks.new_secret(), webhooks.new_secret()
        endpoint = await endpoint_at(lab, receiver, secret=old)
        endpoint = await lab.runtime.stores.webhooks.rotate(endpoint, new, is_old_kept=True)
        await completed(lab)
        assert [receiver.sent[0].unwrapped(secret).type for secret in (old, new)] == ["response.completed"] * 2
        assert len(lab.runtime.stores.webhooks.secrets(endpoint)) == 2
        lab.now += limits.WEBHOOK_OLD_SECRET_SECONDS
        assert lab.runtime.stores.webhooks.secrets(endpoint) == [new]
        endpoint = await lab.runtime.stores.webhooks.rotate(endpoint, newest, is_old_kept=False)
        assert lab.runtime.stores.webhooks.secrets(endpoint) == [newest]


async def test_a_secret_lies_sealed() -> None:
    async with lab_with() as (lab, receiver):
        secret = webhooks.new_secret()
        await endpoint_at(lab, receiver, secret=secret)
        assert secret.removeprefix("whsec_") not in str(lab.table.records)


# --- At least once ---


@at_each_death
async def test_whatever_write_a_process_dies_before_the_event_arrives(death: Death) -> None:
    """Each run dies once, before another one of its writes, the first attempt's included; the reaper does the rest."""
    async with lab_with(turns=(shell("ls"), say("done"), say("done"))) as (lab, receiver):
        await endpoint_at(lab, receiver)
        stored = await lab.background()
        await lab.run_with_deaths(stored, death)
        await lab.runtime.process.rest(60)
        lab.table.before_write = None
        lab.now += LATER
        await recover(lab.runtime)
        await lab.runtime.process.rest(60)
        await webhooks.deliver_due(lab.runtime)
        assert {(event["type"], event["data"]["id"]) for event in receiver.events} == {("response.completed", stored.response_id)}
        assert len({each.headers["webhook-id"] for each in receiver.sent}) == 1
        assert await lab.responses.inflight() == []


async def test_an_end_that_nobody_has_announced_is_announced_by_the_reaper() -> None:
    async with lab_with(turns=(say("done"),)) as (lab, receiver):
        await endpoint_at(lab, receiver)
        stored = await lab.background()

        async def dies_after_the_end(record: dict[str, Any]) -> None:
            if record["SK"].startswith("EVENT#"):
                raise ConnectionError

        lab.table.before_write = dies_after_the_end
        with pytest.raises(ConnectionError):
            await lab.run(stored)
        lab.table.before_write = None
        assert receiver.sent == []
        assert await lab.responses.inflight() == [(TENANT, stored.response_id)]
        await recover(lab.runtime)
        await lab.runtime.process.rest(60)
        assert [event["data"]["id"] for event in receiver.events] == [stored.response_id]
        assert await lab.responses.inflight() == []


async def test_an_end_for_which_the_disk_had_no_room_is_announced_when_it_has() -> None:
    async with lab_with(turns=(say("done"),)) as (lab, receiver):
        await endpoint_at(lab, receiver)
        stored = await lab.background()

        async def has_no_room_for_deliveries(record: dict[str, Any]) -> None:
            if "#W#" in record["PK"]:
                raise StorageFull

        lab.table.before_write = has_no_room_for_deliveries
        with pytest.raises(StorageFull):
            await lab.run(stored)
        assert await recover(lab.runtime) == 0
        assert await lab.responses.inflight() == [(TENANT, stored.response_id)]
        lab.table.before_write = None
        await recover(lab.runtime)
        await lab.runtime.process.rest(60)
        assert [event["data"]["id"] for event in receiver.events] == [stored.response_id]
        assert await lab.responses.inflight() == []


async def test_a_process_that_dies_in_the_middle_of_an_attempt_is_followed_by_another() -> None:
    async with lab_with() as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        has_come, never = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            has_come.set()
            await never.wait()

        receiver.before_answer = hang
        lab.model.turns.append(say("done"))
        await lab.run(await lab.background())
        await has_come.wait()
        for task in set(lab.runtime.process.tasks):
            task.cancel()
        await asyncio.wait(set(lab.runtime.process.tasks))
        receiver.before_answer = None
        assert await webhooks.deliver_due(lab.runtime) == 0  # As far as anybody knows it is being sent.
        lab.now += LATER
        assert await webhooks.deliver_due(lab.runtime) == 1
        assert len({each.headers["webhook-id"] for each in receiver.sent}) == 1
        assert (await only(lab, endpoint)).status == "delivered"
        never.set()


async def test_two_reapers_at_once_make_one_attempt() -> None:
    async with lab_with(500) as (lab, receiver):
        await endpoint_at(lab, receiver)
        await completed(lab)
        lab.now += LATER
        made = await asyncio.gather(*(webhooks.deliver_due(lab.runtime) for _ in range(3)))
        assert sorted(made) == [0, 0, 1]
        assert len(receiver.sent) == 2


async def test_a_response_that_is_deleted_before_its_end_was_announced_is_announced_first() -> None:
    async with lab_with(turns=(say("done"),)) as (lab, receiver):
        await endpoint_at(lab, receiver)
        stored = await lab.background()
        await lab.run(stored)
        await lab.runtime.process.rest(60)
        await webhooks.announce(lab.runtime, stored)
        await lab.runtime.process.rest(60)
        assert len(receiver.sent) == 1  # Telling twice adds nothing.
        await lab.responses.delete(TENANT, stored.response_id)
        await webhooks.announce(lab.runtime, stored)  # Whoever deletes it twice finds nothing to tell.


# --- What endpoints answer ---


async def test_an_endpoint_that_fails_gets_it_again_after_growing_pauses() -> None:
    async with lab_with(500, HANG_UP, "http://localhost/inward") as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        await completed(lab)
        pauses = []
        while (delivery := await only(lab, endpoint)).status == "pending":
            pauses.append(delivery.next_at - int(lab.now))
            lab.now = delivery.next_at - 1
            assert await webhooks.deliver_due(lab.runtime) == 0
            lab.now += 1
            assert await webhooks.deliver_due(lab.runtime) == 1
        assert answers_of(delivery) == [500, "the server did not answer", 307, 200]
        assert pauses == [5, 15, 45]
        assert [sent.path for sent in receiver.sent] == ["/hook"] * 4
        assert len({sent.body for sent in receiver.sent}) == 1
        assert len({sent.headers["webhook-signature"] for sent in receiver.sent}) == 4
        assert await webhooks.deliver_due(lab.runtime) == 0


def test_pauses_grow_to_an_hour() -> None:
    assert [webhooks.pause(count) for count in (1, 2, 3, 4, 5, 6, 7, 8, 80)] == [5, 15, 45, 135, 405, 1215, 3600, 3600, 3600]


async def test_after_three_days_of_failures_an_endpoint_is_switched_off() -> None:
    async with lab_with(*[500] * 100) as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        await completed(lab)
        began = lab.now
        while (delivery := await only(lab, endpoint)).status == "pending":
            lab.now = delivery.next_at
            await webhooks.deliver_due(lab.runtime)
        assert (delivery.status, len(delivery.attempts)) == ("failed", limits.WEBHOOK_ATTEMPTS_SHOWN)
        assert delivery.count == len(receiver.sent)
        assert 71 * 3600 < lab.now - began <= limits.WEBHOOK_RETRY_SECONDS
        assert (await lab.runtime.stores.webhooks.get(TENANT, endpoint.id)).failing_since == int(began)
        lab.now = began + limits.WEBHOOK_RETRY_SECONDS
        await completed(lab)
        assert (await lab.runtime.stores.webhooks.get(TENANT, endpoint.id)).is_disabled
        count = len(receiver.sent)
        await completed(lab)
        assert len(receiver.sent) == count  # It gets nothing more ...
        receiver.answers.clear()
        endpoint = await lab.runtime.stores.webhooks.get(TENANT, endpoint.id)
        await webhooks.send_sample(lab.runtime, endpoint, "response.completed")
        endpoint = await lab.runtime.stores.webhooks.get(TENANT, endpoint.id)
        assert (endpoint.is_disabled, endpoint.failing_since) == (False, 0)  # ... until it takes something.


@pytest.mark.parametrize("seconds", [60, 15 * 60, 365 * 24 * 3600])
async def test_nobody_waits_for_as_long_as_the_clock_was_set_back(seconds: int) -> None:
    """Neither for the first attempt again, nor for a second one."""
    async with lab_with(500, 500) as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        lab.now += seconds
        await completed(lab)
        lab.now += LATER
        assert await webhooks.deliver_due(lab.runtime) == 1
        lab.now -= seconds + LATER
        assert await webhooks.deliver_due(lab.runtime) == 1
        assert (await only(lab, endpoint)).status == "delivered"


async def test_a_pause_is_kept_where_clocks_of_machines_differ_a_little() -> None:
    async with lab_with(500) as (lab, receiver):
        await endpoint_at(lab, receiver)
        await completed(lab)
        lab.now -= limits.CLOCK_SKEW_SECONDS_MAX
        assert await webhooks.deliver_due(lab.runtime) == 0


async def test_an_attempt_that_nobody_ended_is_not_waited_for_either() -> None:
    async with lab_with() as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        lab.now += 15 * 60
        lab.model.turns.append(say("done"))
        await lab.run(await lab.background())
        for task in set(lab.runtime.process.tasks):
            task.cancel()
        lab.now -= 15 * 60
        assert await webhooks.deliver_due(lab.runtime) == 1
        assert (await only(lab, endpoint)).status == "delivered"


async def test_a_delivery_of_an_older_version_is_due_when_its_index_says_so() -> None:
    async with lab_with(500) as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        await completed(lab)
        delivery = await only(lab, endpoint)
        pk, sk = keys.webhook_deliveries(TENANT, endpoint.id), keys.webhook_delivery(delivery.id)
        await lab.table.update(pk, sk, set={"GSI1SK": keys.due(delivery.next_at, delivery.id)})
        assert await webhooks.deliver_due(lab.runtime) == 0
        lab.now = delivery.next_at
        assert await webhooks.deliver_due(lab.runtime) == 1


async def test_an_event_can_be_sent_again_by_hand() -> None:
    async with lab_with() as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        await completed(lab)
        delivery = await only(lab, endpoint)
        lab.now += 10 * 24 * 3600
        again = await lab.runtime.stores.webhooks.redeliver(endpoint, delivery.id)
        assert (again.status, again.next_at) == ("pending", int(lab.now))
        assert await webhooks.deliver_due(lab.runtime) == 1
        assert receiver.sent[0].body == receiver.sent[1].body
        assert answers_of(await only(lab, endpoint)) == [200, 200]


async def test_a_deleted_endpoint_gets_nothing_more() -> None:
    async with lab_with(500) as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        await completed(lab)
        await lab.runtime.stores.webhooks.delete(endpoint)
        lab.now += LATER
        assert await webhooks.deliver_due(lab.runtime) == 0
        assert len(receiver.sent) == 1
        assert await lab.runtime.stores.webhooks.due(lab.now + limits.WEBHOOK_RETRY_SECONDS) == []


async def test_an_endpoint_that_does_not_answer_keeps_nobody_waiting() -> None:
    """Of thirty events a few are tried at it, and the others are put off as long as those."""
    async with lab_with(*[HANG_UP] * 100) as (lab, silent), receiving(503) as other:
        reach(lab, silent, other)
        dead, alive = await endpoint_at(lab, silent), await endpoint_at(lab, other, "response.failed")
        for _ in range(30):
            await completed(lab)
        failed = await lab.background()
        await finish.end_from_outside(lab.runtime, failed, status="failed", error={"code": "server_error", "message": "!"})
        await lab.runtime.process.rest(60)
        assert (len(silent.sent), len(other.sent)) == (31, 1)
        lab.now += LATER
        assert await webhooks.deliver_due(lab.runtime) == limits.WEBHOOK_ATTEMPTS_AT_ONCE + 1
        assert len(other.sent) == 2
        assert (await only(lab, alive)).status == "delivered"
        assert all(delivery.next_at > lab.now for delivery in await log_of(lab, dead))


async def test_an_address_inside_is_not_sent_to() -> None:
    async with lab_with() as (lab, receiver):
        endpoint = await endpoint_at(lab, receiver)
        lab.runtime.fetcher = replace(lab.runtime.fetcher, allowed_networks=())
        await completed(lab)
        assert receiver.sent == []
        assert answers_of(await only(lab, endpoint)) == ["its host is not a public address"]


# --- What it costs ---


async def test_without_an_endpoint_nothing_is_written_of_it() -> None:
    lab = Lab(say("done"), say("done"))
    before = lab.table.writes
    await lab.run(await lab.background(is_background=False))
    foreground, before = lab.table.writes - before, lab.table.writes
    await lab.run(await lab.background())
    assert lab.table.writes - before == foreground
    assert not any("#W" in pk for pk, _ in lab.table.records)


async def test_an_event_that_is_taken_at_once_is_two_writes() -> None:
    async with lab_with() as (lab, receiver):
        await completed(lab)
        before = lab.table.writes
        await completed(lab)
        without, before = lab.table.writes - before, lab.table.writes
        await endpoint_at(lab, receiver)
        await completed(lab)
        assert lab.table.writes - before == without + 1 + 2  # The endpoint, the delivery, and what came of it.


async def test_an_end_is_announced_without_reading_it_again() -> None:
    async with lab_with() as (lab, receiver):
        await completed(lab)
        before = lab.table.reads
        await completed(lab)
        without = lab.table.reads - before
        await endpoint_at(lab, receiver)
        before = lab.table.reads
        await completed(lab)
        assert lab.table.reads - before == without
