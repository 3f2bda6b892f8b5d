"""How many stores of one tenant are read at once, so that its files do not take the account's functions from others."""

from moorage import limits
from moorage.store import keys

from tests.unit.resources.service import Service
from tests.unit.resources.vector_stores import BRIDGES, WHALES, run, upload

MOST = limits.INDEXING_TENANT_MAX


async def filled(service: Service, stores: int) -> list[str]:
    """So many stores, each with a file to be read."""
    file_id = await upload(service, "whales.md", WHALES)
    made = [await service.sdk.vector_stores.create(file_ids=[file_id]) for _ in range(stores)]
    return [store.id for store in made]


async def statuses(service: Service, stores: list[str]) -> list[str]:
    return [(await service.sdk.vector_stores.retrieve(store_id)).status for store_id in stores]


async def test_a_tenants_stores_are_read_a_bounded_number_at_once_and_all_in_the_end(service: Service) -> None:
    stores, executions = await filled(service, 2 * MOST + 1), service.runtime.stores.executions
    at_once = []
    while executions.started:
        at_once.append(len(executions.started))
        await run(service)
    assert at_once == [MOST, MOST, 1]
    assert await statuses(service, stores) == ["completed"] * len(stores)
    assert [record for record in service.store.records() if record["SK"]["S"] == keys.INDEXING_JOB] == []


async def test_a_neighbour_does_not_wait_for_them(service: Service) -> None:
    await filled(service, MOST + 1)
    before = set(service.runtime.stores.executions.started)
    file = await service.stranger.files.create(file=("bridges.txt", BRIDGES), purpose="assistants")
    store = await service.stranger.vector_stores.create(file_ids=[file.id])
    (name,) = set(service.runtime.stores.executions.started) - before
    assert service.runtime.stores.executions.started[name]["store_id"] == store.id


async def test_one_that_waits_is_started_by_the_reaper_where_nobody_else_has(service: Service) -> None:
    stores, executions = await filled(service, MOST + 2), service.runtime.stores.executions
    jobs = service.runtime.vector_stores.jobs
    service.clock.advance(limits.RECOVERY_SECONDS + 1)
    assert await jobs.recover() == 0, "others still run"
    executions.is_busy = True
    await run(service)  # its successors could not be started
    executions.is_busy = False
    service.clock.advance(limits.RECOVERY_SECONDS + 1)
    assert (await jobs.recover(), await jobs.recover()) == (2, 0)
    await run(service)
    assert await statuses(service, stores) == ["completed"] * len(stores)


async def test_one_that_waits_takes_no_try_from_its_files(service: Service) -> None:
    stores = await filled(service, MOST + 1)
    for _ in range(limits.INDEXING_RUNS_MAX + 1):
        service.clock.advance(limits.RECOVERY_SECONDS + 1)
        assert await service.runtime.vector_stores.jobs.recover() == 0
    while service.runtime.stores.executions.started:
        await run(service)
    assert await statuses(service, stores) == ["completed"] * len(stores)
