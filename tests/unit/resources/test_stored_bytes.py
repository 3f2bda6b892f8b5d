"""A tenant's limit of stored bytes, by the routes that store something and by what gives room back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from moorage import limits
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord
from moorage.errors import ApiError, SandboxGone
from moorage.recount import recount_due
from moorage.store import keys
from moorage.store.stored_bytes import KINDS, Holder

from tests.unit.resources.service import Service
from tests.unit.resources.support import FakeSandbox, chunked
from tests.unit.resources.vector_stores import WHALES, run, store_with
from tests.unit.resources.world import IDLE


def limit(service: Service, most: int) -> None:
    service.runtime.stores.files.stored.most = most


async def used(service: Service, tenant: str = "ten_a") -> dict[str, int]:
    """What is counted, by kind; and that the sum is that of the entries."""
    standing = await service.runtime.stores.files.stored.standing(tenant)
    records = await service.store.table.query(keys.stored(tenant), after=keys.TOTAL)
    assert sum(record["bytes"] for record in records) == standing.used == sum(standing.of.values())
    return {kind: size for kind, size in standing.of.items() if size}


def upload(service: Service, size: int, *, sdk: Any = None, **options: Any) -> Any:
    return (sdk or service.sdk).files.create(file=("a.txt", b"x" * size), purpose="user_data", **options)


async def refused(request: Any) -> None:
    with pytest.raises(openai.RateLimitError) as error:
        await request
    assert (error.value.code, error.value.type) == ("storage_limit_reached", "insufficient_quota")
    assert error.value.response.headers["x-should-retry"] == "false"


# --- Files -------------------------------------------------------------------------------------------------------------------------


async def test_files_are_taken_until_the_tenant_is_full_and_a_deletion_makes_room(service: Service) -> None:
    limit(service, 100)
    first = await upload(service, 60)
    await upload(service, 40)
    objects = service.store.objects()
    await refused(upload(service, 1))
    assert (await used(service), service.store.objects()) == ({"file": 100}, objects)
    await service.sdk.files.delete(first.id)
    assert await used(service) == {"file": 40}
    await refused(upload(service, 61))  # more than there is room for: nothing of it is kept
    assert len(service.store.objects()) == 1
    await upload(service, 60)
    assert await used(service) == {"file": 100}


async def test_a_full_tenant_does_not_disturb_another(service: Service) -> None:
    limit(service, 100)
    await upload(service, 100)
    await upload(service, 100, sdk=service.stranger)
    assert (await used(service), await used(service, "ten_b")) == ({"file": 100}, {"file": 100})


async def test_uploads_at_once_do_not_pass_the_limit_together(service: Service) -> None:
    limit(service, 100)
    answers = await asyncio.gather(*(upload(service, 30) for _ in range(8)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == [*["FileObject"] * 3, *["RateLimitError"] * 5]
    assert (await used(service), len(service.store.objects())) == ({"file": 90}, 3)


async def test_a_file_that_expires_makes_room(service: Service) -> None:
    await upload(service, 60, expires_after={"anchor": "created_at", "seconds": 3600})
    service.clock.advance(3600)
    assert await service.runtime.stores.files.purge_due(service.clock()) == 1
    assert await used(service) == {}


def in_parts(service: Service, size: int) -> Any:
    return service.sdk.uploads.create(bytes=size, filename="a", mime_type="text/plain", purpose="user_data")


def part(service: Service, upload_id: str, size: int) -> Any:
    return service.sdk.uploads.parts.create(upload_id, data=b"x" * size)


async def test_an_upload_without_room_is_refused_at_the_start_and_in_parts(service: Service) -> None:
    limit(service, 100)
    await refused(in_parts(service, 101))
    begun, other = await in_parts(service, 60), await in_parts(service, 60)
    first = await part(service, begun.id, 60)
    assert await used(service) == {"file": 60}
    await refused(part(service, other.id, 41))
    await refused(upload(service, 41))
    assert (await used(service), len(service.store.objects())) == ({"file": 60}, 1)
    done = await service.sdk.uploads.complete(begun.id, part_ids=[first.id])
    assert (done.status, await used(service)) == ("completed", {"file": 60})
    await service.sdk.uploads.complete(begun.id, part_ids=[first.id])
    assert await used(service) == {"file": 60}  # completed twice, it counts once


async def test_parts_of_one_upload_at_once_do_not_pass_the_limit_together(service: Service) -> None:
    limit(service, 100)
    begun = await in_parts(service, 90)
    answers = await asyncio.gather(*(part(service, begun.id, 30) for _ in range(8)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == [*["RateLimitError"] * 5, *["UploadPart"] * 3]
    assert (await used(service), len(service.store.objects())) == ({"file": 90}, 3)


@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_an_upload_that_comes_to_nothing_gives_its_room_back(service: Service, end: str) -> None:
    begun = await in_parts(service, 60)
    await part(service, begun.id, 50)
    assert await used(service) == {"file": 50}
    if end == "cancelled":
        await service.sdk.uploads.cancel(begun.id)
    else:
        service.clock.advance(limits.UPLOAD_SECONDS)
        assert await service.uploads.purge_due(service.clock()) == 1
    assert (await used(service), service.store.objects()) == ({}, [])


async def test_parts_of_a_pending_upload_are_there_when_everything_is_counted_again(service: Service) -> None:
    begun = await in_parts(service, 60)
    await part(service, begun.id, 50)
    assert (await recounted(service), await used(service)) == (0, {"file": 50})


async def test_an_upload_whose_checksum_is_another_goes_on_and_counts(service: Service) -> None:
    begun = await in_parts(service, 60)
    only = await part(service, begun.id, 60)
    with pytest.raises(openai.BadRequestError):
        await service.sdk.uploads.complete(begun.id, part_ids=[only.id], md5="0" * 32)
    assert await used(service) == {"file": 60}
    await service.sdk.uploads.complete(begun.id, part_ids=[only.id])
    assert await used(service) == {"file": 60}


async def test_a_part_that_comes_in_when_its_upload_has_been_cancelled_leaves_nothing(service: Service) -> None:
    begun = await in_parts(service, 60)

    async def late() -> AsyncIterator[bytes]:
        yield b"x" * 30
        await service.sdk.uploads.cancel(begun.id)
        yield b"x" * 30

    with pytest.raises(ApiError, match="is cancelled"):
        await service.uploads.add_part("ten_a", begun.id, late())
    assert (await used(service), service.store.objects()) == ({}, [])


# --- Containers --------------------------------------------------------------------------------------------------------------------


async def container(service: Service) -> ContainerRecord:
    made = await service.sdk.containers.create(name="c")
    record: ContainerRecord = await service.runtime.computers.containers.get("ten_a", made.id)
    return record


async def live(service: Service, record: ContainerRecord) -> LiveContainer:
    return await service.runtime.computers.containers.sandboxes.ensure("ten_a", record.id)  # type: ignore[no-any-return]


def sandbox(service: Service, container: LiveContainer) -> FakeSandbox:
    return service.provisioner.sandboxes[container.handle.sandbox_id]


async def names(service: Service, record: ContainerRecord) -> dict[str, int]:
    rows = await service.runtime.computers.containers.files_of("ten_a", record.id)
    return {row.filename: row.bytes for row in rows}


async def test_a_containers_files_count_and_what_does_not_fit_is_refused(service: Service) -> None:
    limit(service, 100)
    record = await container(service)
    file = await upload(service, 40)
    add = service.sdk.containers.files.create
    copied = await add(record.id, file_id=file.id)
    assert await used(service) == {"file": 40, "container": 40}
    await refused(add(record.id, file=("b.txt", b"y" * 21)))
    other = await upload(service, 15)
    await refused(add(record.id, file_id=other.id))
    await refused(service.sdk.containers.create(name="d", file_ids=[file.id]))
    await add(record.id, file=("b.txt", b"y" * 5))
    assert await used(service) == {"file": 55, "container": 45}
    await service.sdk.containers.files.delete(copied.id, container_id=record.id)
    assert await used(service) == {"file": 55, "container": 5}
    await service.sdk.containers.delete(record.id)
    assert await used(service) == {"file": 55}


async def test_a_file_deleted_during_a_command_leaves_the_room_it_has_taken(service: Service) -> None:
    record = await container(service)
    old = await service.sdk.containers.files.create(record.id, file=("old.txt", b"o" * 40))
    async with await live(service, record) as running:
        sandbox(service, running).write("new.bin", b"n" * 30)
        read = running.client.read_file

        async def deletes(path: str) -> Any:
            twice = [service.sdk.containers.files.delete(old.id, container_id=record.id) for _ in range(2)]
            await asyncio.gather(*twice, return_exceptions=True)
            async for chunk in read(path):
                yield chunk

        running.client.read_file = deletes  # type: ignore[method-assign]
        await service.runtime.computers.containers.artifacts.sync(running)
    assert (await used(service), await names(service, record)) == ({"container": 30}, {"new.bin": 30})


async def test_content_that_a_container_has_already_counts_once(service: Service) -> None:
    limit(service, 100)
    record = await container(service)
    for name in ("a.txt", "b.txt"):
        await service.sdk.containers.files.create(record.id, file=(name, b"x" * 40))
    assert (await used(service), await names(service, record)) == ({"container": 40}, {"a.txt": 40, "b.txt": 40})


async def test_what_a_command_leaves_is_stored_as_far_as_it_fits_and_the_model_is_told(service: Service) -> None:
    limit(service, 100)
    file = await upload(service, 50)
    record = await container(service)
    async with await live(service, record) as running:
        for name, size in (("a.txt", 30), ("b.txt", 40), ("c.txt", 20)):
            sandbox(service, running).write(name, name.encode() * (size // 5))
        synced = await service.runtime.computers.containers.artifacts.sync(running)
        assert [row.filename for row in synced.changed] == ["a.txt", "c.txt"]
        assert synced.notes == (
            "Note: the storage of this account is full: at most 100 bytes are saved of all its files, containers and vector stores "
            "together; not saved: /mnt/data/b.txt. They stay in this sandbox, and are saved after a later command once something else "
            "was deleted; what was saved of them before stays saved.",
        )
        assert await used(service) == {"file": 50, "container": 50}
        assert (await service.runtime.computers.containers.artifacts.sync(running)).notes == ()  # said once
        await service.sdk.files.delete(file.id)
        synced = await service.runtime.computers.containers.artifacts.sync(running)
        assert ([row.filename for row in synced.changed], synced.notes) == (["b.txt"], ())
    assert await used(service) == {"container": 90}


async def test_a_stored_file_that_a_command_changes_stays_as_it_was_where_there_is_no_room(service: Service) -> None:
    limit(service, 100)
    record = await container(service)
    async with await live(service, record) as running:
        sandbox(service, running).write("a.txt", b"a" * 60)
        await service.runtime.computers.containers.artifacts.sync(running)
        sandbox(service, running).write("a.txt", b"b" * 50)
        synced = await service.runtime.computers.containers.artifacts.sync(running)
        assert (synced.changed, len(synced.notes)) == ((), 1)
        (row,) = await service.runtime.computers.containers.files_of("ten_a", record.id)
        assert b"".join([chunk async for chunk in service.runtime.computers.containers.content(row)]) == b"a" * 60
        sandbox(service, running).write("a.txt", b"c" * 40)
        assert [row.bytes for row in (await service.runtime.computers.containers.artifacts.sync(running)).changed] == [40]
    assert await used(service) == {"container": 100}  # how it was is kept, too


async def test_content_that_a_command_only_copies_takes_no_room(service: Service) -> None:
    record = await container(service)
    async with await live(service, record) as running:
        sandbox(service, running).write("a.txt", b"a" * 60)
        await service.runtime.computers.containers.artifacts.sync(running)
        sandbox(service, running).write("b.txt", b"a" * 60)
        sandbox(service, running).write("a.txt", b"a" * 60)
        await service.runtime.computers.containers.artifacts.sync(running)
    assert (await used(service), await names(service, record)) == ({"container": 60}, {"a.txt": 60, "b.txt": 60})


async def test_of_a_sandbox_that_dies_meanwhile_what_was_stored_is_counted(service: Service) -> None:
    record = await container(service)
    async with await live(service, record) as running:
        box = sandbox(service, running)
        box.write("large.bin", b"a" * (limits.BATCH_FILE_BYTES_MAX + 1))
        box.write("small.txt", b"b" * 10)
        read = running.client.read_file

        async def dies(path: str) -> Any:
            if path == "large.bin":
                box.is_alive = False
            async for chunk in read(path):
                yield chunk

        running.client.read_file = dies  # type: ignore[method-assign]
        with pytest.raises(SandboxGone):
            await service.runtime.computers.containers.artifacts.sync(running)
    assert await used(service) == {"container": 10}


async def test_what_nothing_names_any_more_makes_room_when_its_sandbox_is_stopped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONTAINER_PAST_BYTES_MAX", 0)
    monkeypatch.setattr(limits, "CONTAINER_OBJECT_SECONDS_MIN", -(10**9))
    record = await container(service)
    async with await live(service, record) as running:
        for letter in (b"a", b"b", b"c"):
            sandbox(service, running).write("a.txt", letter * 30)
            await service.runtime.computers.containers.artifacts.sync(running)
    assert await used(service) == {"container": 90}
    service.clock.advance(IDLE)
    await service.runtime.computers.containers.sweep.expire_due(service.clock())
    assert await used(service) == {"container": 30}


async def test_what_a_container_lent_counts_until_its_borrower_is_gone(service: Service) -> None:
    source = await container(service)
    await service.sdk.containers.files.create(source.id, file=("a.txt", b"x" * 40))
    containers = service.runtime.computers.containers
    copy, _ = await containers.copy(await containers.get("ten_a", source.id), at_ms=int(service.clock() * 1000))
    assert await used(service) == {"container": 40}  # nothing was copied
    await service.sdk.containers.delete(source.id)
    assert await used(service) == {"container": 40}
    await service.sdk.containers.delete(copy.id)
    assert (await used(service), service.store.objects()) == ({}, [])


async def test_a_response_whose_files_do_not_fit_is_refused_before_it_begins(service: Service) -> None:
    limit(service, 50)
    file = await upload(service, 40)
    stored = await service.runtime.stores.files.get("ten_a", file.id)
    with pytest.raises(ApiError, match="40 of 50 bytes"):
        await service.runtime.computers.containers.reserve("ten_a", name="auto", files=[stored])
    assert await used(service) == {"file": 40}


# --- Vector stores -----------------------------------------------------------------------------------------------------------------


async def test_a_vector_store_counts_what_it_says_and_a_full_tenant_adds_nothing_to_it(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES)
    assert store.usage_bytes > 0
    assert await used(service) == {"file": len(WHALES), "vector_store": store.usage_bytes}
    other = await upload(service, 10)
    limit(service, 10)
    await refused(service.sdk.vector_stores.files.create(store.id, file_id=other.id))
    await refused(service.sdk.vector_stores.file_batches.create(store.id, file_ids=[other.id]))
    await service.sdk.vector_stores.files.delete(ids["whales_md"], vector_store_id=store.id)
    assert await used(service) == {"file": len(WHALES) + 10}


async def test_a_file_that_is_read_anew_counts_once(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES)
    await service.sdk.vector_stores.files.create(store.id, file_id=ids["whales_md"])
    await run(service)
    again = await service.sdk.vector_stores.retrieve(store.id)
    assert await used(service) == {"file": len(WHALES), "vector_store": again.usage_bytes}


@pytest.mark.parametrize("end", ["deleted", "expired"])
async def test_a_vector_store_that_ends_makes_room(service: Service, end: str) -> None:
    store, _ = await store_with(service, whales_md=WHALES)
    if end == "deleted":
        await service.sdk.vector_stores.delete(store.id)
    else:
        await service.sdk.vector_stores.update(store.id, expires_after={"anchor": "last_active_at", "days": 1})
        service.clock.advance(2 * 24 * 3600)
        assert await service.runtime.vector_stores.sweep.purge_due(service.clock()) == 1
    assert await used(service) == {"file": len(WHALES)}


# --- Counting again ----------------------------------------------------------------------------------------------------------------


async def forget_all(service: Service) -> None:
    """As if an older version had stored it."""
    records = await service.store.table.query(keys.stored("ten_a"))
    await service.store.table.write_many(deletes=[(record["PK"], record["SK"]) for record in records])


async def recounted(service: Service) -> int:
    """All rounds of a look through; answers how many entries were wrong."""
    wrong = 0
    for _ in range(50):
        if not await service.runtime.stores.files.stored.due(service.clock()):
            return wrong
        wrong += await recount_due(service.runtime.stores, service.runtime.computers.containers, service.clock())
    raise AssertionError("it never ends")


@pytest.mark.parametrize("together", [1, 500])
async def test_what_an_older_version_stored_is_counted_once_somebody_asks(
    service: Service, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECOUNT_TOGETHER", together)
    record = await container(service)
    await service.sdk.containers.files.create(record.id, file=("a.txt", b"x" * 40))
    for size in (10, 20):
        await upload(service, size)
    store, _ = await store_with(service, whales_md=WHALES)
    expected = {"file": 30 + len(WHALES), "container": 40, "vector_store": store.usage_bytes}
    assert await used(service) == expected
    await forget_all(service)
    assert await used(service) == {}
    assert await recounted(service) == 5
    assert await used(service) == expected
    service.clock.advance(limits.RECOUNT_SECONDS)
    assert await recounted(service) == 0


async def test_bytes_of_an_older_version_count_for_tenants_that_run_commands(service: Service) -> None:
    await upload(service, 30)
    await forget_all(service)
    record = await container(service)
    async with await live(service, record) as running:
        await service.runtime.stores.files.stored.correct(Holder.container("ten_a", record.id), 5)  # a sandbox was stopped, and counted
        sandbox(service, running).write("a.txt", b"a" * 10)
        await service.runtime.computers.containers.artifacts.sync(running)
        assert await recounted(service) == 1
    assert await used(service) == {"file": 30, "container": 15}


async def test_what_is_counted_of_things_that_are_gone_is_found(service: Service) -> None:
    stored = service.runtime.stores.files.stored
    for kind in KINDS:
        await stored.add(Holder("ten_a", kind, f"{kind}_gone"), 10)
    kept = await upload(service, 5)
    assert await recounted(service) == 3
    assert await used(service) == {"file": 5}
    await service.sdk.files.delete(kept.id)
    assert await used(service) == {}


async def test_a_container_in_use_is_not_counted_in_the_middle_of_what_it_stores(service: Service) -> None:
    record = await container(service)
    await service.sdk.containers.files.create(record.id, file=("a.txt", b"x" * 40))
    async with await live(service, record):
        stored = service.runtime.stores.files.stored
        await stored.add(Holder.container("ten_a", record.id), 7)  # room that a command's end has taken
        assert await recounted(service) == 0
    assert await used(service) == {"container": 47}


async def test_room_is_taken_by_what_was_put_into_a_container_in_one_moment(service: Service) -> None:
    """Both look before either has stored anything; the one that finds no room in the end leaves no row."""
    limit(service, 100)
    record = await container(service)
    containers = service.runtime.computers.containers
    puts = (containers.add_file(record, filename=name, chunks=chunked(name.encode() * 60)) for name in ("a", "b"))
    answers = await asyncio.gather(*puts, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["ApiError", "ContainerFileRecord"]
    assert len(await names(service, record)) == 1
    objects = [key for key in service.store.objects() if record.id in key]
    assert await used(service) == {"container": 60 * len(objects)}


async def test_a_late_refusal_counts_only_its_own_bytes(service: Service) -> None:
    limit(service, 100)
    record = await container(service)
    await service.runtime.stores.blobs.put_bytes(f"T/ten_a/C/{record.id}/{'0' * 64}", b"y" * 30)  # on its way in

    async def long() -> AsyncIterator[bytes]:
        yield b"x" * 80
        await upload(service, 50)

    with pytest.raises(ApiError, match="100 bytes"):
        await service.runtime.computers.containers.add_file(record, filename="a.txt", chunks=long())
    assert (await used(service), await names(service, record)) == ({"file": 50, "container": 80}, {})


async def test_a_round_looks_at_some_tenants_and_the_next_one_at_those_who_wait(service: Service) -> None:
    stored = service.runtime.stores.files.stored
    tenants = [f"ten_{number:03}" for number in range(limits.RECOUNT_TENANTS + 1)]
    for tenant in tenants:
        await stored.add(Holder(tenant, "file", "file_gone"), 10)
        await stored.standing(tenant)
    assert [due.tenant_id for due in sorted(await stored.due(service.clock()), key=lambda due: due.tenant_id)] == tenants[:-1]
    assert await recounted(service) == len(tenants)
    assert [await used(service, tenant) for tenant in tenants] == [{}] * len(tenants)
