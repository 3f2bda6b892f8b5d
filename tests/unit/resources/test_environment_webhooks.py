"""Endpoints that ask for it hear of environments: each thing once, whatever dies."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.environments.opening import open_environment
from moorage.environments.shapes import HOSTED_ENVIRONMENT
from moorage.files.store import FileStore
from moorage.store.sealed import Sealer
from moorage.webhooks.event_types import ENVIRONMENT_TYPES
from moorage.webhooks.store import Delivery, Endpoint, Webhooks
from moorage.wire.queries import PageQuery

from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, Store

HOSTED: Any = {"type": "openai_hosted"}
IDLE_SECONDS = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60 + 61
TENANT = "ten_a"


@pytest.fixture
async def service(store: Store, clock: Clock) -> AsyncIterator[Service]:
    built = build_service(store, clock)
    yield built
    await built.http.aclose()
    await built.sdk.close()
    await built.stranger.close()


async def listened(service: Service) -> Endpoint:
    webhooks = service.runtime.stores.webhooks
    made: Endpoint = await webhooks.create(TENANT, name="a", url="https://a.example", event_types=ENVIRONMENT_TYPES, secret="whsec_")
    return made


async def told(service: Service, endpoint: Endpoint) -> list[tuple[str, str]]:
    """What, and of which environment, in the order of the events' ids. None has been tried: the reaper does that."""
    deliveries, _ = await service.runtime.stores.webhooks.page(endpoint, PageQuery(limit=100, order="asc"))
    due = await service.runtime.stores.webhooks.due(service.clock())
    assert {each.id for each in due} == {each.id for each in deliveries}
    events = [orjson.loads(each.body) for each in deliveries]
    assert all(event["data"].keys() == {"id"} for event in events)
    return [(event["type"].removeprefix("agent.environment."), event["data"]["id"]) for event in events]


async def prewarmed(service: Service, **spec: Any) -> str:
    wanted: Any = {**HOSTED, **spec}
    made = await service.sdk.beta.agents.environments.create(environment=wanted)
    await asyncio.gather(*service.runtime.process.tasks)
    return made.id


async def swept(service: Service, seconds: float = IDLE_SECONDS) -> None:
    service.clock.advance(seconds)
    await service.runtime.computers.containers.sweep.expire_due(service.clock())


async def test_a_prewarmed_environment_is_ready_once_and_suspended_each_time(service: Service) -> None:
    endpoint = await listened(service)
    made = await prewarmed(service)
    await swept(service)
    await swept(service)
    assert await told(service, endpoint) == [("ready", made), ("suspended", made)]
    await service.runtime.computers.containers.sandboxes.ensure(TENANT, made)
    await swept(service)
    assert await told(service, endpoint) == [("ready", made), ("suspended", made), ("suspended", made)]


async def test_a_prewarmed_environment_that_cannot_be_set_up_has_failed(service: Service) -> None:
    service.provisioner.programs = lambda sandbox, command: (3, "no\n")
    endpoint = await listened(service)
    made = await prewarmed(service, setup_commands=[{"command": "false"}])
    await swept(service)
    assert await told(service, endpoint) == [("failed", made)]


async def test_the_environment_of_a_session_is_suspended_and_not_ready(service: Service) -> None:
    endpoint = await listened(service)
    record = await open_environment(service.runtime, TENANT, HOSTED_ENVIRONMENT(HOSTED), param="environment", kind="session")
    assert record is not None
    await service.runtime.computers.containers.sandboxes.ensure(TENANT, record.id)
    await swept(service)
    assert await told(service, endpoint) == [("suspended", record.id)]


async def test_an_environment_whose_files_are_erased_has_expired(service: Service) -> None:
    endpoint = await listened(service)
    made = await prewarmed(service)
    await swept(service)
    await swept(service, limits.RETENTION_SECONDS + IDLE_SECONDS)
    assert await told(service, endpoint) == [("ready", made), ("suspended", made), ("expired", made)]
    assert await service.runtime.computers.containers.peek(TENANT, made) is None


async def test_where_expired_containers_do_not_come_back_none_is_suspended(store: Store, clock: Clock) -> None:
    service = build_service(store, clock, strict_expiry=True)
    endpoint = await listened(service)
    made = await prewarmed(service)
    await swept(service)
    await swept(service, limits.RETENTION_SECONDS + IDLE_SECONDS)
    assert await told(service, endpoint) == [("ready", made), ("expired", made)]


async def test_other_containers_and_deletions_are_not_told(service: Service) -> None:
    endpoint = await listened(service)
    plain = await service.sdk.containers.create(name="mine")
    await service.runtime.computers.containers.sandboxes.ensure(TENANT, plain.id)
    await swept(service)
    made = await prewarmed(service)
    await service.sdk.containers.delete(made)
    assert await told(service, endpoint) == [("ready", made)]


async def test_an_endpoint_hears_what_it_asks_for_from_its_own_tenant(service: Service) -> None:
    webhooks = service.runtime.stores.webhooks
    deaf = await webhooks.create(TENANT, name="a", url="https://a.example", event_types=["response.completed"], secret="whsec_")
    foreign = await webhooks.create("ten_b", name="a", url="https://a.example", event_types=ENVIRONMENT_TYPES, secret="whsec_")
    await prewarmed(service)
    assert [(await webhooks.page(each, PageQuery()))[0] for each in (deaf, foreign)] == [[], []]


class Died(Exception):
    """The process is gone."""


class Mortal(Webhooks):
    """Its process dies before the next delivery is written."""

    async def add(self, delivery: Delivery) -> bool:
        raise Died


async def test_what_a_dead_process_has_not_told_is_told_by_the_sweep(service: Service) -> None:
    endpoint = await listened(service)
    store, clock, provisioner = service.store, service.clock, service.provisioner
    files = FileStore(store.table, store.blobs, clock=clock)
    seal = Sealer(lambda: b"k" * 32)

    def process(webhooks: Webhooks) -> Containers:
        key = {"clock": clock, "sandbox_key": lambda: b"k" * 32, "connect": provisioner.connect}
        return Containers(store.table, store.blobs, provisioner, files, webhooks=webhooks, **key)  # type: ignore[arg-type]

    mortal, living = process(Mortal(store.table, seal, clock=clock)), service.runtime.computers.containers
    made = await living.reserve(TENANT, name="environment", environment="prewarmed")
    with pytest.raises(Died):
        await mortal.sandboxes.ensure(TENANT, made.id)
    clock.advance(IDLE_SECONDS)
    with pytest.raises(Died):
        await mortal.sweep.expire_due(clock())
    assert await told(service, endpoint) == []
    await swept(service)
    assert await told(service, endpoint) == [("ready", made.id), ("suspended", made.id)]
