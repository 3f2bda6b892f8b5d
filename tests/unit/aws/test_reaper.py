"""The reaper's function outside of the sandboxes' network: what it takes up in one round."""

from dataclasses import replace

import pytest
from moorage import limits

from functions.reaper import handler
from tests.unit.loop.lab import TENANT, FakeExecutions
from tests.unit.loop.test_webhooks import completed, endpoint_at, lab_with


async def test_a_round_takes_up_responses_and_events_side_by_side() -> None:
    async with lab_with(500) as (lab, receiver):
        await endpoint_at(lab, receiver)
        await completed(lab)
        lost = await lab.background()
        lab.executions.states[lost.execution] = "FAILED"
        lab.now += limits.WEBHOOK_LEASE_SECONDS
        assert await handler.take_up(lab.runtime) == (1, 1, 0, 0)
        assert len(receiver.sent) == 2
        assert (await lab.responses.load(TENANT, lost.response_id)).execution.endswith("-r1")
        assert await handler.take_up(lab.runtime) == (0, 0, 0, 0)


class Away(FakeExecutions):
    async def status(self, name: str) -> str | None:
        raise ConnectionError


async def test_events_are_delivered_where_responses_cannot_be_taken_up() -> None:
    async with lab_with(500) as (lab, receiver):
        await endpoint_at(lab, receiver)
        await completed(lab)
        await lab.background()
        lab.runtime.stores = replace(lab.runtime.stores, executions=Away())
        lab.now += limits.WEBHOOK_LEASE_SECONDS
        with pytest.raises(ConnectionError):
            await handler.take_up(lab.runtime)
        assert len(receiver.sent) == 2
