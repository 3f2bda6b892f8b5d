"""How a container's files were, and containers that begin with those of another one."""

import pytest
from moorage import limits
from moorage.containers.store import ContainerRecord, container_file_id
from moorage.containers.tree import entries_below
from moorage.errors import ApiError
from moorage.skills.attach import GivenSkill
from moorage.store import keys
from moorage.wire.queries import PageQuery

from tests.unit.resources.support import chunked
from tests.unit.resources.world import IDLE, World


async def command(world: World, record: ContainerRecord, **files: str | None) -> int:
    """A command that writes files (None removes one); answers as of when they are stored. A second goes by."""
    return await command_after(world, record, 0, **files)


async def command_after(world: World, record: ContainerRecord, after_ms: int, **files: str | None) -> int:
    """The same, in a response that began then."""
    world.clock.advance(1)
    live = await world.containers.sandboxes.ensure("ten", record.id)
    async with live:
        for name, text in files.items():
            if text is None:
                world.sandbox(live).files.pop(name)
            else:
                world.sandbox(live).write(name, text.encode())
        return (await world.containers.artifacts.sync(live, after_ms=after_ms)).at_ms


async def then(world: World, record: ContainerRecord, at_ms: int) -> dict[str, str]:
    """The files as they were."""
    current = await world.containers.get("ten", record.id)
    rows = await world.containers.past.files_at(current, at_ms)
    return {row.filename: b"".join([chunk async for chunk in world.containers.content(row)]).decode() for row in rows}


async def now(world: World, record: ContainerRecord) -> dict[str, str]:
    return {path.removeprefix("/mnt/data/"): content.decode() for path, (_, content) in (await world.stored(record)).items()}


def changes(world: World) -> int:
    return sum(item["SK"]["S"].startswith(keys.PAST_PREFIX) for item in world.store.records())


async def copied(world: World, record: ContainerRecord, at_ms: int | None) -> tuple[ContainerRecord, int]:
    return await world.containers.copy(await world.containers.get("ten", record.id), at_ms=at_ms)


async def stopped(world: World) -> None:
    """All sandboxes are idle for long enough, and what no row names for more than an hour."""
    world.clock.advance(IDLE + limits.CONTAINER_OBJECT_SECONDS_MIN + 1)
    await world.containers.sweep.expire_due(world.clock())


async def test_the_files_of_every_command_can_be_told(world: World) -> None:
    record = await world.new()
    began = int(world.clock() * 1000)
    first = await command(world, record, a="1", b="1")
    second = await command(world, record, a="2")
    third = await command(world, record, b=None)
    fourth = await command(world, record, b="4", c="4")
    same = await command(world, record)
    expected = [{}, {"a": "1", "b": "1"}, {"a": "2", "b": "1"}, {"a": "2"}, {"a": "2", "b": "4", "c": "4"}]
    assert [await then(world, record, at) for at in (began, first, second, third, fourth)] == expected
    assert (same, await now(world, record)) == (fourth, expected[-1])
    assert changes(world) == 2, "what only adds files writes nothing for the past"


async def test_one_file_of_the_past_is_found_by_its_id_also_when_it_is_gone(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1")
    second = await command(world, record, a="2")
    third = await command(world, record, a=None)
    current = await world.containers.get("ten", record.id)
    file_id = container_file_id(record.id, "/mnt/data/a")
    rows = [await world.containers.file_at(current, file_id, at) for at in (first, second)]
    assert [b"".join([chunk async for chunk in world.containers.content(row)]) for row in rows] == [b"1", b"2"]
    for wanted, at in ((file_id, third), (container_file_id(record.id, "/mnt/data/b"), first)):
        with pytest.raises(ApiError) as refused:
            await world.containers.file_at(current, wanted, at)
        assert refused.value.status == 404


async def test_a_copy_of_an_upload_names_it_as_long_as_it_is_there(world: World) -> None:
    given = await world.files.create("ten", filename="a.txt", purpose="user_data", chunks=chunked(b"one"))
    record = await world.new(files=[given])
    await command(world, record, **{"a.txt": "two", "b.txt": "new"})
    rows = await world.containers.files_of("ten", record.id)
    assert {row.filename: row.upload_id for row in rows} == {"a.txt": given.id, "b.txt": ""}
    entries = entries_below("/mnt/data", rows, None)
    assert [(entry["path"], entry["file_id"]) for entry in entries] == [("/mnt/data/a.txt", given.id), ("/mnt/data/b.txt", None)]


async def test_a_renamed_and_a_touched_file_are_what_they_were(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1", b="1")
    live = await world.containers.sandboxes.ensure("ten", record.id)
    async with live:
        world.sandbox(live).rename("a", "z")
    second = await command(world, record)
    third = await command(world, record, z="1")
    assert [await then(world, record, at) for at in (first, second)] == [{"a": "1", "b": "1"}, {"z": "1", "b": "1"}]
    assert third == second


async def test_a_clock_that_is_behind_leaves_the_order_of_the_changes(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1")
    world.clock.advance(-3600)
    second = await command(world, record, a="2")
    began = int(world.clock() * 1000) + 5_000_000
    third = await command_after(world, record, began, a="3")
    assert first < second
    assert third == began + 1
    assert [await then(world, record, at) for at in (first, second, began, third)] == [{"a": "1"}, {"a": "2"}, {"a": "2"}, {"a": "3"}]


async def test_what_comes_by_the_api_is_told_too(world: World) -> None:
    record = await world.new()
    await world.containers.add_file(record, filename="a", chunks=chunked(b"1"))
    first = int(world.clock() * 1000)
    world.clock.advance(1)
    await world.containers.add_file(await world.containers.get("ten", record.id), filename="a", chunks=chunked(b"2"))
    assert [await then(world, record, at) for at in (first, first + 1_000)] == [{"a": "1"}, {"a": "2"}]


async def test_a_file_that_its_user_deletes_is_gone_from_the_past_and_from_the_bucket(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="secret", b="1")
    await command(world, record, a="other")
    current = await world.containers.get("ten", record.id)
    (file,) = [file for file in await world.containers.files_of("ten", record.id) if file.filename == "a"]
    await world.containers.delete_file(current, file.id)
    assert await then(world, record, first) == {"b": "1"}
    await stopped(world)
    assert len(world.store.objects()) == 1


async def test_what_a_past_names_outlives_the_sandbox(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1")
    await command(world, record, a="2")
    await stopped(world)
    assert (await then(world, record, first), await now(world, record)) == ({"a": "1"}, {"a": "2"})


async def test_a_skill_stays_with_its_container_while_that_rests(world: World) -> None:
    skill = GivenSkill("counting", "Counts.", "ab" * 32, b"bundle")
    record = await world.new(skills=[skill])
    await command(world, record, a="1")
    await stopped(world)
    async with await world.containers.sandboxes.ensure("ten", record.id) as live:
        assert world.sandbox(live).skills == {skill.directory: b"bundle"}


@pytest.mark.parametrize("bound", ["CONTAINER_CHANGES_MAX", "CONTAINER_PAST_BYTES_MAX"])
async def test_the_past_is_bounded_and_says_from_when_on_it_is_known(world: World, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, bound, 2)
    record = await world.new()
    times = [await command(world, record, a=str(number)) for number in range(6)]
    await stopped(world)
    assert (changes(world), len(world.store.objects())) == (2, 3)
    for at, text in list(zip(times, "012345", strict=True))[3:]:
        assert await then(world, record, at) == {"a": text}
        await copied(world, record, at)
    for at in times[:3]:
        with pytest.raises(ApiError) as refused:
            await copied(world, record, at)
        assert refused.value.code == "workspace_expired"


async def test_a_long_run_looks_after_its_past_without_a_stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTAINER_CHANGES_MAX", 2)
    monkeypatch.setattr(limits, "CONTAINER_PRUNE_ONE_IN", 1)
    record = await world.new()
    for number in range(6):
        await command(world, record, a=str(number))
    assert changes(world) == 2


async def test_a_change_of_many_files_is_kept_in_several_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTAINER_PAST_ROWS_MAX", 7)
    record = await world.new()
    names = [f"f{number}" for number in range(10)]
    first = await command(world, record, **dict.fromkeys(names, "1"))
    second = await command(world, record, **dict.fromkeys(names, None))
    assert (len(await then(world, record, first)), await then(world, record, second)) == (10, {})
    assert changes(world) == 2


# --- copies ---


async def test_a_copy_has_the_files_of_then_and_no_byte_of_its_own(world: World) -> None:
    record = await world.new(idle_minutes=30, memory_limit="4g")
    first = await command(world, record, a="1", b="1")
    await command(world, record, a="2", c="2")
    before = world.store.objects()
    copy, files = await copied(world, record, first)
    assert (files, world.store.objects()) == (2, before)
    assert (copy.name, copy.idle_minutes, copy.memory_limit) == (record.name, 30, "4g")
    assert await now(world, copy) == {"a": "1", "b": "1"}
    live = await world.containers.sandboxes.ensure("ten", copy.id)
    async with live:
        assert {name: content.decode() for name, (content, _, _) in world.sandbox(live).files.items()} == {"a": "1", "b": "1"}
        assert await world.containers.sandboxes.is_news(live), "its model is told that no processes came along"


async def test_the_two_go_their_own_ways(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1", b="1")
    copy, _ = await copied(world, record, first)
    await command(world, copy, a="copy", b=None)
    await command(world, record, a="2", c="2")
    assert (await now(world, record), await now(world, copy)) == ({"a": "2", "b": "1", "c": "2"}, {"a": "copy"})


async def test_a_copy_without_files_has_what_else_there_was(world: World) -> None:
    record = await world.new(memory_limit="4g")
    await command(world, record, a="1")
    copy, files = await copied(world, record, None)
    assert (files, await now(world, copy), copy.memory_limit, copy.lenders) == (0, {}, "4g", ())


async def test_objects_stay_as_long_as_one_of_the_two_names_them(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1", b="own")
    copy, _ = await copied(world, record, first)
    await command(world, copy, b=None)
    await world.containers.delete("ten", record.id)
    assert await now(world, copy) == {"a": "1"}
    assert await then(world, copy, int(world.clock() * 1000) - 1_000) == {"a": "1", "b": "own"}
    await world.containers.delete("ten", copy.id)
    assert world.store.objects() == []
    assert not [item for item in world.store.records() if item["SK"]["S"].startswith(keys.lent.prefix)]


async def test_a_file_that_was_copied_survives_its_deletion_at_the_other(world: World) -> None:
    record = await world.new()
    first = await command(world, record, a="1")
    copy, _ = await copied(world, record, first)
    (file,) = await world.containers.files_of("ten", record.id)
    await world.containers.delete_file(await world.containers.get("ten", record.id), file.id)
    (copied_file,) = await world.containers.files_of("ten", copy.id)
    assert await now(world, copy) == {"a": "1"}
    await world.containers.delete_file(copy, copied_file.id)
    await command(world, record, b="1")
    await stopped(world)
    assert len(world.store.objects()) == 1


async def test_copies_of_copies_are_bounded_and_keep_what_they_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTAINER_LENDERS_MAX", 2)
    record = await world.new()
    at = await command(world, record, a="1")
    first, _ = await copied(world, record, at)
    at = await command(world, first, b="2")
    second, _ = await copied(world, first, at)
    for gone in (record, first):
        await world.containers.delete("ten", gone.id)
    assert await now(world, second) == {"a": "1", "b": "2"}
    with pytest.raises(ApiError) as refused:
        await copied(world, second, int(world.clock() * 1000))
    assert refused.value.code == "workspace_copied_too_often"
    await world.containers.delete("ten", second.id)
    assert world.store.objects() == []


async def test_a_container_that_is_deleted_meanwhile_is_not_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await world.new()
    first = await command(world, record, a="1")
    whole = world.containers.past.files_at

    async def deleted_meanwhile(container: ContainerRecord, at_ms: int) -> object:
        rows = await whole(container, at_ms)
        await world.containers.delete("ten", record.id)
        return rows

    monkeypatch.setattr(world.containers.past, "files_at", deleted_meanwhile)
    with pytest.raises(ApiError) as refused:
        await copied(world, record, first)
    assert refused.value.status == 404
    assert world.store.objects() == []
    assert (await world.containers.page("ten", PageQuery())).entries == []
