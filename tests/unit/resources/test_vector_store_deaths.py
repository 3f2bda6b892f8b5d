"""Whatever dies while files are read, and however a store ends: nothing is lost, doubled or left behind."""

from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from botocore.exceptions import ClientError
from moorage import limits
from moorage.errors import UpstreamError

from tests.unit.resources.service import Service
from tests.unit.resources.vector_stores import BRIDGES, DAY, WHALES, Killed, before, found, left_of, reads, run, store_with, upload


async def test_a_process_that_dies_anywhere_in_a_step_loses_nothing_and_doubles_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every third write of an execution in turn, until one gets through: the next one takes up what was left."""
    monkeypatch.setattr(limits, "SANDBOX_WAIT_SECONDS", 0)
    service.provisioner.programs = reads("A report about glaciers.")
    table, executions = service.store.table, service.runtime.stores.executions
    left = [0]

    def dying(write: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def or_killed(what: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return await write(what)

        return or_killed

    doors = {"write": dying(table.write), "write_all": dying(table.write_all)}

    given = {"whales.md": WHALES, "glaciers.pdf": b"%PDF-1.7", "a.png": b"GIF8"}
    ids = [await upload(service, name, content) for name, content in given.items()]
    for writes in range(0, 90, 3):
        store = await service.sdk.vector_stores.create(file_ids=ids)
        left[0], deaths = writes, 0
        vars(table).update(doors)
        try:
            await run(service)
        except Killed:
            deaths = 1
        finally:
            for door in doors:
                vars(table).pop(door)
        executions.started.clear()
        service.clock.advance(limits.RECOVERY_SECONDS + 1)
        assert await service.runtime.vector_stores.jobs.recover() == deaths or not deaths
        await run(service)
        counts = (await service.sdk.vector_stores.retrieve(store.id)).file_counts
        assert (counts.completed, counts.failed, counts.in_progress, counts.total) == (2, 1, 0, 3), writes
        assert sorted(await found(service, store.id, "whale")) == ["glaciers.pdf", "whales.md"]
        assert [row for row in left_of(service) if "TODO#" in row or " JOB" in row] == []
        await service.sdk.vector_stores.delete(store.id)
        if not deaths:
            break
    else:
        pytest.fail("a step never got through")
    assert writes > 5


async def test_an_execution_that_was_never_started_is_found(service: Service) -> None:
    service.runtime.stores.executions.is_busy = True
    file_id = await upload(service, "a.txt", WHALES)
    store = await service.sdk.vector_stores.create(file_ids=[file_id])
    service.runtime.stores.executions.is_busy = False
    jobs = service.runtime.vector_stores.jobs
    assert await jobs.recover() == 0, "it may still be on its way"
    service.clock.advance(limits.RECOVERY_SECONDS + 1)
    assert (await jobs.recover(), await jobs.recover()) == (1, 0)
    await run(service)
    assert (await service.sdk.vector_stores.retrieve(store.id)).status == "completed"


async def test_an_execution_that_has_ended_before_its_work_is_replaced_at_once(service: Service) -> None:
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "a.txt", WHALES)])
    jobs, executions = service.runtime.vector_stores.jobs, service.runtime.stores.executions
    (name,) = executions.started
    executions.status_of[name] = "RUNNING"
    assert await jobs.recover() == 0
    executions.started.clear()
    executions.status_of[name] = "FAILED"
    assert (await jobs.recover(), await jobs.recover()) == (1, 0)
    await run(service)
    assert (await service.sdk.vector_stores.retrieve(store.id)).status == "completed"


async def test_files_that_are_added_at_the_end_of_an_execution_are_read(service: Service) -> None:
    store, _ = await store_with(service, a_txt=b"one")
    first, second = await upload(service, "b.txt", b"two"), await upload(service, "c.txt", b"three")
    await service.sdk.vector_stores.files.create(store.id, file_id=first)

    async def add(*_: Any) -> None:
        await service.sdk.vector_stores.files.create(store.id, file_id=second)

    before(service.runtime.vector_stores.jobs, "end", add)
    await run(service)
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 3


async def test_a_file_waits_out_a_throttled_bucket_however_often_its_step_is_tried(service: Service) -> None:
    """The state machine tries the step again by its own rules."""
    index = service.runtime.models.knowledge.index
    put_file, refusals = index.put_file, 3 * limits.INDEXING_ATTEMPTS_MAX

    async def is_refused(ref: Any, file: Any, chunks: Any) -> int:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise ClientError({"Error": {"Code": "SlowDown", "Message": "slow down"}}, "PutObject")
        return int(await put_file(ref, file, chunks))

    vars(index)["put_file"] = is_refused
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "good.txt", b"some words")])
    started = dict(service.runtime.stores.executions.started)
    while refusals:
        with pytest.raises(ClientError):
            await run(service)
        service.runtime.stores.executions.started.update(started)
    await run(service)
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 1


async def test_a_file_whose_steps_always_die_fails_and_lets_the_others_through(service: Service) -> None:
    index = service.runtime.models.knowledge.index
    put_file = index.put_file

    async def dies(ref: Any, file: Any, chunks: Any) -> int:
        if file.filename == "bad.txt":
            raise Killed
        return int(await put_file(ref, file, chunks))

    vars(index)["put_file"] = dies
    ids = [await upload(service, name, b"some words") for name in ("bad.txt", "good.txt")]
    store = await service.sdk.vector_stores.create(file_ids=ids)
    for _ in range(limits.INDEXING_ATTEMPTS_MAX + 1):
        try:
            await run(service)
        except Killed:
            service.clock.advance(limits.RECOVERY_SECONDS + 1)
            service.runtime.stores.executions.started.clear()
            await service.runtime.vector_stores.jobs.recover()
    await run(service)
    counts = (await service.sdk.vector_stores.retrieve(store.id)).file_counts
    assert (counts.completed, counts.failed, counts.in_progress) == (1, 1, 0)


async def test_an_embedding_model_that_is_away_is_waited_for(service: Service) -> None:
    async def away(*_: Any) -> None:
        raise UpstreamError("busy", is_retryable=True)

    before(service.runtime.models.knowledge.index, "put_file", away)
    file_id = await upload(service, "a.txt", WHALES)
    store = await service.sdk.vector_stores.create(file_ids=[file_id])
    assert await run(service) == ["index", "rest", "index"]
    assert (await service.sdk.vector_stores.retrieve(store.id)).status == "completed"


async def test_what_can_never_be_had_fails_after_a_while(service: Service) -> None:
    async def away(*_: Any) -> None:
        raise UpstreamError("busy", is_retryable=True)

    vars(service.runtime.models.knowledge.index)["put_file"] = away
    file_id = await upload(service, "a.txt", WHALES)
    store = await service.sdk.vector_stores.create(file_ids=[file_id])
    words = await run(service)
    assert words.count("rest") == limits.INDEXING_RESTS_MAX + 1
    failed = await service.sdk.vector_stores.files.retrieve(file_id, vector_store_id=store.id)
    assert failed.last_error is not None
    assert (failed.status, failed.last_error.code) == ("failed", "server_error")


# --- Ends ----------------------------------------------------------------------------------------------------------------------------


async def test_a_store_that_rests_too_long_expires_and_is_emptied(service: Service) -> None:
    file_id = await upload(service, "whales.md", WHALES)
    store = await service.sdk.vector_stores.create(file_ids=[file_id], expires_after={"anchor": "last_active_at", "days": 1})
    await run(service)
    sweep = service.runtime.vector_stores.sweep
    service.clock.advance(DAY - 60)
    assert await found(service, store.id, "whale") == ["whales.md"], "a search is a use"
    service.clock.advance(DAY - 60)
    assert await sweep.purge_due(service.clock()) == 0
    assert (await service.sdk.vector_stores.retrieve(store.id)).status == "completed"
    service.clock.advance(120)
    expired = await service.sdk.vector_stores.retrieve(store.id)
    assert (expired.status, expired.file_counts.total) == ("expired", 1)
    with pytest.raises(openai.BadRequestError, match="has expired"):
        await found(service, store.id, "whale")
    assert (await sweep.purge_due(service.clock()), await sweep.purge_due(service.clock())) == (1, 0)
    emptied = await service.sdk.vector_stores.retrieve(store.id)
    assert (emptied.status, emptied.file_counts.total, emptied.usage_bytes) == ("expired", 0, 0)
    assert left_of(service) == [f"T#ten_a#X#{store.id} META"]
    await service.sdk.vector_stores.delete(store.id)
    assert left_of(service) == []


async def test_a_deleted_store_leaves_nothing(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES, bridges_txt=BRIDGES)
    await service.sdk.vector_stores.delete(store.id)
    with pytest.raises(openai.NotFoundError):
        await found(service, store.id, "whale")
    assert left_of(service) == []
    assert {file.id async for file in service.sdk.files.list()} == set(ids.values())


async def test_a_store_that_is_deleted_while_it_is_read_leaves_nothing(service: Service) -> None:
    file_id = await upload(service, "whales.md", WHALES)
    store = await service.sdk.vector_stores.create(file_ids=[file_id])
    before(service.runtime.models.knowledge.index, "put_file", lambda *_: service.sdk.vector_stores.delete(store.id))
    await run(service)
    service.clock.advance(limits.INDEXING_LAST_SECONDS + 1)
    assert await service.runtime.vector_stores.sweep.purge_due(service.clock()) == 1
    assert left_of(service) == []


async def test_a_deletion_that_breaks_off_is_finished_by_the_sweep(service: Service) -> None:
    store, _ = await store_with(service, whales_md=WHALES)

    async def dies(*_: Any) -> None:
        raise Killed

    before(service.runtime.models.knowledge.index, "delete", dies)
    with pytest.raises(Killed):
        await service.runtime.vector_stores.delete(await service.runtime.vector_stores.stores.get("ten_a", store.id))
    with pytest.raises(openai.NotFoundError):
        await service.sdk.vector_stores.retrieve(store.id)
    assert await service.runtime.vector_stores.sweep.purge_due(service.clock()) == 1
    assert left_of(service) == []


# --- Many small files ----------------------------------------------------------------------------------------------------------------


async def kept_of(service: Service, word: bytes) -> list[str]:
    """The kinds of a store's objects in which a word stands in the open: segments (I), bundles of them (M)."""
    keys = [key for key in service.store.objects() if "/K/" in key]
    return [key.split("/")[4] for key in keys if word in await service.runtime.stores.blobs.get_bytes(key)]


async def test_many_small_files_are_brought_together_and_what_is_taken_out_is_cleared_away(service: Service) -> None:
    names = [f"note{number}_md" for number in range(limits.INDEX_LOOSE_MAX)]
    store, ids = await store_with(service, secret_md=b"The treasure lies in the bay.", **dict.fromkeys(names, b"A note on ships."))
    assert store.file_counts.completed == len(names) + 1
    assert await kept_of(service, b"secret.md") == ["I", "M"]
    await service.sdk.vector_stores.files.delete(ids["secret_md"], vector_store_id=store.id)
    assert await kept_of(service, b"secret.md") == ["M"]
    assert "secret.md" not in await found(service, store.id, "treasure", max_num_results=50)
    assert await run(service) == ["index", "index"], "an execution clears away"
    assert await kept_of(service, b"secret.md") == []
    await service.sdk.vector_stores.files.update(ids["note0_md"], vector_store_id=store.id, attributes={"deck": 1})
    assert await run(service) == ["index"]
    assert await found(service, store.id, "ships", filters={"type": "eq", "key": "deck", "value": 1}) == ["note0.md"]
    assert [row for row in left_of(service) if "TODO#" in row or " JOB" in row] == []
    await service.sdk.vector_stores.delete(store.id)


async def test_an_index_that_cannot_be_tidied_ends_the_work_on_a_store_at_last(service: Service) -> None:
    tried = []

    async def breaks_down(ref: Any) -> bool:
        tried.append(ref.store_id)
        raise Killed

    vars(service.runtime.models.knowledge.index)["tidy"] = breaks_down
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "whales.md", WHALES)])
    jobs, executions = service.runtime.vector_stores.jobs, service.runtime.stores.executions
    for _ in range(limits.INDEXING_RUNS_MAX + 1):
        with pytest.raises(Killed):
            await run(service)
        assert await found(service, store.id, "whale") == ["whales.md"]
        executions.started.clear()
        service.clock.advance(limits.RECOVERY_SECONDS + 1)
        assert await jobs.recover() == 1
    assert await run(service) == ["index"]
    assert (len(tried), await jobs.recover()) == (limits.INDEXING_RUNS_MAX + 1, 0)
