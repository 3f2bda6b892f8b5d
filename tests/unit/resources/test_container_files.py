"""A container's files: what is given, written, deleted and refused, between the bucket and the sandbox."""

import hashlib
from dataclasses import replace
from typing import cast

import pytest
from moorage import limits
from moorage.errors import ApiError, StorageFull
from moorage.sandbox.exec_client import ExecClient, FileListing

from tests.unit.resources.support import FakeClient, chunked
from tests.unit.resources.vector_stores import before
from tests.unit.resources.world import World


async def test_files_given_by_id_are_in_the_sandbox_and_in_the_list(world: World) -> None:
    one = await world.files.create("ten", filename="a.csv", purpose="user_data", chunks=chunked(b"one"))
    two = await world.files.create("ten", filename="a.csv", purpose="user_data", chunks=chunked(b"two"))
    record = await world.new(files=[one, two])
    await world.files.delete("ten", one.id)
    live = await world.containers.sandboxes.ensure("ten", record.id)
    assert {path: data for path, (data, _, _) in world.sandbox(live).files.items()} == {"a.csv": b"one", "a-2.csv": b"two"}
    assert await world.stored(record) == {"/mnt/data/a.csv": ("user", b"one"), "/mnt/data/a-2.csv": ("user", b"two")}


async def test_an_unknown_file_id_is_a_404_that_names_its_parameter(world: World) -> None:
    with pytest.raises(ApiError) as caught:
        await world.containers.named("ten", {"file-none": "file_ids[2]"})
    assert (caught.value.status, caught.value.param, caught.value.code) == (404, "file_ids[2]", "file_not_found")


async def test_a_file_added_to_a_running_container_is_there_at_the_next_command(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.add_file(live.record, filename="../../etc/passwd", chunks=chunked(b"x"))
    again = await world.containers.sandboxes.ensure("ten", record.id)
    assert world.sandbox(again).writes == ["passwd"]
    await world.containers.sandboxes.ensure("ten", record.id)
    assert world.sandbox(again).writes == ["passwd"]


async def test_a_file_added_while_a_command_runs_is_brought_to_it(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.add_file(live.record, filename="go", chunks=chunked(b"!"))
    assert await world.containers.sandboxes.bring_files(live)
    assert world.sandbox(live).writes == ["go"]
    await world.containers.artifacts.sync(live)
    assert await world.stored(record) == {"/mnt/data/go": ("user", b"!")}
    assert await world.containers.sandboxes.bring_files(live)
    await world.containers.sandboxes.ensure("ten", record.id)
    assert world.sandbox(live).writes == ["go"]


async def test_a_command_that_has_lost_its_sandbox_is_brought_nothing(world: World) -> None:
    record = await world.new()
    lost = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(lost).is_alive = False
    live = await world.containers.sandboxes.ensure("ten", record.id)
    await world.containers.add_file(live.record, filename="go", chunks=chunked(b"!"))
    assert not await world.containers.sandboxes.bring_files(lost)
    assert world.sandbox(live).writes == []


@pytest.mark.parametrize("is_slow", [False, True], ids=["a start", "a start whose claim is renewed"])
async def test_a_file_added_while_the_sandbox_starts_is_there_at_its_first_command(world: World, is_slow: bool) -> None:
    record = await world.new()
    await world.containers.add_file(record, filename="first", chunks=chunked(b"1"))

    async def add_another() -> None:
        world.clock.advance(limits.CONTAINER_START_LEASE_SECONDS - 1 if is_slow else 0)
        await world.containers.add_file(record, filename="second", chunks=chunked(b"2"))

    world.provisioner.before_write = add_another
    live = await world.containers.sandboxes.ensure("ten", record.id)
    assert world.sandbox(live).writes == ["first", "second"]


async def test_an_upload_beats_the_sandboxes_older_file(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a.txt", b"old")
    await world.containers.add_file(live.record, filename="a.txt", chunks=chunked(b"new"))
    await world.containers.artifacts.sync(live)
    again = await world.containers.sandboxes.ensure("ten", record.id)
    assert world.sandbox(again).files["a.txt"][0] == b"new"
    assert await world.stored(record) == {"/mnt/data/a.txt": ("user", b"new")}


async def test_what_a_command_writes_is_stored_and_listed_as_the_assistants(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("out/plot.png", b"png")
    artifacts = await world.containers.artifacts.sync(live)
    assert [file.path for file in artifacts.changed] == ["/mnt/data/out/plot.png"]
    assert artifacts.notes == ()
    assert await world.stored(record) == {"/mnt/data/out/plot.png": ("assistant", b"png")}


@pytest.mark.parametrize("change", ["new", "changed", "deleted"])
async def test_a_file_given_while_a_commands_files_are_stored_stays(world: World, change: str) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    sandbox = world.sandbox(live)
    if change != "new":
        sandbox.write("a.txt", b"old")
        await world.containers.artifacts.sync(live)
    if change == "deleted":
        del sandbox.files["a.txt"]
    else:
        sandbox.write("a.txt", b"a command's")
    sandbox.write("b.txt", b"its neighbour")

    async def give(*_: object) -> None:
        await world.containers.add_file(live.record, filename="a.txt", chunks=chunked(b"given"))

    before(live.client, "list_files", give)
    synced = await world.containers.artifacts.sync(live)
    shown = {"/mnt/data/a.txt": ("user", b"given"), "/mnt/data/b.txt": ("assistant", b"its neighbour")}
    assert ([file.path for file in synced.changed], [file.path for file in synced.files]) == (["/mnt/data/b.txt"], sorted(shown))
    assert await world.stored(record) == shown
    again = await world.containers.sandboxes.ensure("ten", record.id)
    assert {path: content for path, (content, _, _) in world.sandbox(again).files.items()} == {
        "a.txt": b"given",
        "b.txt": b"its neighbour",
    }


async def test_the_later_listing_of_two_syncs_at_once_is_stored(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a.txt", b"first")

    async def sync_first_and_write(*_: object) -> None:
        await world.containers.artifacts.sync(live)
        world.sandbox(live).write("a.txt", b"second")

    before(live.client, "list_files", sync_first_and_write)
    synced = await world.containers.artifacts.sync(live)
    assert [(file.path, file.bytes) for file in synced.changed] == [("/mnt/data/a.txt", len(b"second"))]
    assert await world.stored(record) == {"/mnt/data/a.txt": ("assistant", b"second")}


async def test_two_syncs_of_the_same_files_both_tell_them(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a.txt", b"a")
    syncs = [await world.containers.artifacts.sync(live)]
    world.sandbox(live).write("b.txt", b"b")
    world.sandbox(live).rename("a.txt", "c.txt")

    async def sync_too(*_: object) -> None:
        syncs.append(await world.containers.artifacts.sync(live))

    before(live.client, "list_files", sync_too)
    syncs.append(await world.containers.artifacts.sync(live))
    told = [sorted(file.path for file in synced.changed) for synced in syncs]
    assert told == [["/mnt/data/a.txt"], *[["/mnt/data/b.txt", "/mnt/data/c.txt"]] * 2]
    assert set(await world.stored(record)) == {"/mnt/data/b.txt", "/mnt/data/c.txt"}


async def test_a_crowd_of_small_files_is_read_by_few_requests_and_large_ones_alone(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    written = {f"small/{number:04d}": f"{number}".encode() for number in range(1_000)}
    written |= {f"large/{number}": bytes([number]) * (limits.BATCH_FILE_BYTES_MAX + 1) for number in range(3)}
    for path, content in written.items():
        world.sandbox(live).write(path, content)
    artifacts = await world.containers.artifacts.sync(live)
    stored = {file.path.removeprefix("/mnt/data/"): file.sha256 for file in artifacts.changed}
    assert stored == {path: hashlib.sha256(content).hexdigest() for path, content in written.items()}
    assert world.sandbox(live).requests_to_read == limits.BATCHES_MAX + 3
    assert sorted(world.sandbox(live).reads) == sorted(written)


class Outdated(FakeClient):
    """Lists what was there a while ago."""

    listing: FileListing

    async def list_files(self, root: str = "/mnt/data") -> FileListing:
        return self.listing


async def test_a_file_that_vanishes_or_grows_before_it_is_read_with_others_is_no_trouble(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    sandbox = world.sandbox(live)
    for number in range(100):
        sandbox.write(f"{number:02d}", b"small")
    outdated = Outdated(sandbox, live.handle)
    outdated.listing = await live.client.list_files()
    del sandbox.files["03"]
    sandbox.write("04", b"x" * (limits.BATCH_FILE_BYTES_MAX + 1))
    artifacts = await world.containers.artifacts.sync(replace(live, client=cast("ExecClient", outdated)))
    assert {file.path: file.bytes for file in artifacts.changed} == {
        f"/mnt/data/{number:02d}": limits.BATCH_FILE_BYTES_MAX + 1 if number == 4 else 5 for number in range(100) if number != 3
    }
    assert artifacts.notes == ()


async def test_a_listing_that_came_with_a_command_is_enough_where_nothing_has_changed(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a.txt", b"a")
    first = await world.containers.artifacts.sync(live)
    same = await live.client.list_files()

    async def is_asked(*_: object) -> None:
        raise AssertionError("nothing has changed")

    before(live.client, "list_files", is_asked)
    again = await world.containers.artifacts.sync(live, listing=same)
    assert again == replace(first, changed=())


@pytest.mark.parametrize("shown", ["less", "another", "not all"])
async def test_a_listing_that_differs_from_the_rows_is_made_anew(world: World, shown: str) -> None:
    """Rows may be newer than it: what it does not show may have been brought since."""
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    sandbox = world.sandbox(live)
    sandbox.write("a.txt", b"a")
    older = await live.client.list_files()
    sandbox.write("a.txt" if shown == "another" else "b.txt", b"new")
    if shown == "not all":
        older = replace(older, is_complete=False)
    stored = await world.containers.artifacts.sync(live)
    synced = await world.containers.artifacts.sync(live, listing=older)
    assert synced == replace(stored, changed=())


async def test_a_file_that_finds_a_full_disk_is_stored_when_there_is_room(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("out.txt", b"out")

    async def is_full(*_: object) -> None:
        raise StorageFull

    before(world.store.blobs, "put_bytes", is_full)
    with pytest.raises(StorageFull):
        await world.containers.artifacts.sync(live)
    synced = await world.containers.artifacts.sync(live)
    assert ([file.path for file in synced.changed], synced.notes) == (["/mnt/data/out.txt"], ())


async def test_unchanged_files_are_not_read_again(world: World) -> None:
    record = await world.new()
    await world.containers.add_file(record, filename="in.txt", chunks=chunked(b"in"))
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("out.txt", b"out")
    await world.containers.artifacts.sync(live)
    again = await world.containers.artifacts.sync(live)
    assert world.sandbox(live).reads == ["out.txt"]
    assert again.changed == ()
    assert [file.path for file in again.files] == ["/mnt/data/in.txt", "/mnt/data/out.txt"]


async def test_the_same_bytes_are_stored_once(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a.txt", b"same")
    await world.containers.artifacts.sync(live)
    world.sandbox(live).write("a.txt", b"same")
    world.sandbox(live).write("b.txt", b"same")
    await world.containers.artifacts.sync(live)
    assert len(world.store.objects()) == 1
    assert set(await world.stored(record)) == {"/mnt/data/a.txt", "/mnt/data/b.txt"}


async def test_deletions_and_renames_follow(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    for name in ("kept", "deleted", "old-name"):
        world.sandbox(live).write(name, name.encode())
    await world.containers.artifacts.sync(live)
    world.sandbox(live).rename("old-name", "new-name")
    del world.sandbox(live).files["deleted"]
    world.sandbox(live).reads.clear()
    artifacts = await world.containers.artifacts.sync(live)
    assert world.sandbox(live).reads == []
    assert [file.path for file in artifacts.changed] == ["/mnt/data/new-name"]
    assert await world.stored(record) == {
        "/mnt/data/kept": ("assistant", b"kept"),
        "/mnt/data/new-name": ("assistant", b"old-name"),
    }


async def test_a_note_about_what_is_not_saved_is_given_once(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).others = {"link": "symlink", "socket": "other"}
    first = await world.containers.artifacts.sync(live)
    second = await world.containers.artifacts.sync(live)
    assert first.notes == (
        "Note: sockets, pipes and devices are not saved: /mnt/data/socket.",
        "Note: symbolic links are not saved: /mnt/data/link.",
    )
    assert second.notes == ()


async def test_a_file_that_the_sandbox_refuses_is_kept_and_named(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).refused = {"big"}
    await world.containers.add_file(live.record, filename="big", chunks=chunked(b"big"))
    assert not await world.containers.sandboxes.bring_files(live)
    again = await world.containers.sandboxes.ensure("ten", record.id)
    assert again.notes == ("Note: /mnt/data/big could not be put into the container: No space left on device.",)
    await world.containers.artifacts.sync(again)
    assert await world.stored(record) == {"/mnt/data/big": ("user", b"big")}


async def test_a_deleted_file_is_gone_from_the_sandbox_the_list_and_the_bucket(world: World) -> None:
    record = await world.new()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    world.sandbox(live).write("a", b"a")
    (file,) = (await world.containers.artifacts.sync(live)).changed
    await world.containers.delete_file(live.record, file.id)
    assert world.sandbox(live).files == {}
    assert world.store.objects() == []
    assert await world.stored(record) == {}
