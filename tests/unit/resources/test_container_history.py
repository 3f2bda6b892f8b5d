"""What a container has been: its sandboxes with their times, the versions of its files, and all of them in one zip."""

import io
import tracemalloc
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from moorage import limits
from moorage.containers.archive import archive, named
from moorage.containers.store import ContainerFileRecord
from moorage.containers.versions import versions
from moorage.wire.operator_answers import SandboxRun

from tests.unit.resources.service import Service
from tests.unit.resources.test_container_past import command
from tests.unit.resources.world import IDLE, World

MIB = 1024 * 1024


async def told(world: World, container_id: str) -> list[SandboxRun]:
    record = await world.containers.get("ten", container_id)
    return [life.to_json() for life in await world.containers.lives.of(record)]


def life(number: int, status: str, *moments: float | None, end: str | None = None) -> dict[str, Any]:
    """``moments``: ordered, started, ended (seconds)."""
    names = ("ordered_at", "started_at", "ended_at")
    times = {name: None if at is None else int(at * 1000) for name, at in zip(names, moments, strict=True)}
    return {"id": f"sandbox_{number}", "object": "container.sandbox", "status": status, **times, "end": end, "refusal": None}


async def test_each_sandbox_is_told_with_its_times_and_why_it_ended(world: World) -> None:
    record = await world.new()
    assert await told(world, record.id) == []
    first = world.clock()
    live = await world.containers.sandboxes.ensure("ten", record.id)
    assert await told(world, record.id) == [life(1, "running", first, first, None)]
    world.clock.advance(5)
    world.sandbox(live).is_alive = False
    second = world.clock()
    await world.containers.sandboxes.ensure("ten", record.id)
    world.clock.advance(IDLE)
    await world.containers.sweep.expire_due(world.clock())
    assert await told(world, record.id) == [
        life(2, "ended", second, second, world.clock(), end="idle"),
        life(1, "ended", first, first, second, end="lost"),
    ]


async def test_the_latest_sandboxes_are_remembered_and_go_with_their_container(world: World) -> None:
    record = await world.new()
    for _ in range(limits.CONTAINER_LIVES_MAX + 2):
        live = await world.containers.sandboxes.ensure("ten", record.id)
        world.sandbox(live).is_alive = False
    seen = [each["id"] for each in await told(world, record.id)]
    assert seen == [f"sandbox_{number}" for number in range(limits.CONTAINER_LIVES_MAX + 2, 2, -1)] + ["sandbox_2"]
    await world.containers.delete("ten", record.id)
    assert await world.only_a_mark_is_left()


async def test_every_change_of_the_files_is_a_version(world: World) -> None:
    record = await world.new()
    written: list[dict[str, str | None]] = [{"a": "one"}, {"a": "three", "b": "x"}, {"b": None}]
    moments = [await command(world, record, **files) for files in written]
    current = await world.containers.get("ten", record.id)
    rows = await world.containers.files_of("ten", record.id)
    told = [version.to_json() for version in await versions(world.containers.past, current, rows)]

    def version(at_ms: int, files: int, size: int, **changes: str) -> dict[str, Any]:
        listed = [{"path": f"/mnt/data/{name}", "what": what} for name, what in changes.items()]
        head = {"id": str(at_ms), "object": "container.version", "at": at_ms, "files": files, "bytes": size}
        return head | {"change_count": len(listed), "changes": listed}

    assert told == [
        version(moments[2], 1, 5, b="removed"),
        version(moments[1], 2, 6, a="changed", b="added"),
        version(moments[0], 1, 3, a="added"),
    ]
    for each in told:
        rows = await world.containers.files_at(current, each["at"])
        assert (len(rows), sum(row.bytes for row in rows)) == (each["files"], each["bytes"])


async def test_a_container_is_saved_as_it_is_and_as_it_was(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    await service.sdk.containers.files.create(made.id, file=("a.txt", b"old"))
    service.clock.advance(1)
    await service.sdk.containers.files.create(made.id, file=("a.txt", b"new"))
    await service.sdk.containers.files.create(made.id, file=("empty", b""))
    changed = (await service.http.get(f"/containers/{made.id}/versions", params={"order": "asc"})).json()["data"]
    trees = [await service.http.get(f"/containers/{made.id}/tree", params={"at": each["at"]}) for each in changed]
    assert [len(tree.json()["data"]) for tree in trees] == [each["files"] for each in changed]
    answer = await service.http.get(f"/archives/{made.id}")
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{made.id}.zip"')
    assert unpacked(answer.content) == {"a.txt": b"new", "empty": b""}
    then = await service.http.get(f"/archives/{made.id}", params={"at": changed[0]["at"]})
    assert unpacked(then.content) == {"a.txt": b"old"}
    service.clock.advance(IDLE)
    assert (await service.http.get(f"/archives/{made.id}")).status_code == 200
    assert [each.status for each in (await service.sdk.containers.list()).data] == ["expired"]


async def test_what_is_too_much_for_one_archive_is_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await service.sdk.containers.create(name="work")
    await service.sdk.containers.files.create(made.id, file=("a.txt", b"four"))
    monkeypatch.setattr(limits, "ARCHIVE_BYTES_MAX", 3)
    refused = await service.http.get(f"/archives/{made.id}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "archive_too_large")
    wrong = await service.http.get(f"/archives/{made.id}", params={"as_of": "1"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "unknown_parameter")


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        assert zipped.testzip() is None
        return {name: zipped.read(name) for name in zipped.namelist()}


def file(path: str, size: int = 0) -> ContainerFileRecord:
    return ContainerFileRecord("ten", "cntr_1", path, size, 1_700_000_000, "user", "", "key")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/mnt/data/a/b.txt"], ["a/b.txt"]),
        (["/mnt/data/..\\..\\evil.exe"], [".._.._evil.exe"]),
        (["/mnt/data/../up"], ["__/up"]),
        (["/mnt/data/C:evil"], ["C_evil"]),
        (["/mnt/data/a\u202egpj.exe", "/mnt/data/a\nb"], ["a_b", "a_gpj.exe"]),
        (["/mnt/data/A.txt", "/mnt/data/a.txt", "/mnt/data/a-2.txt"], ["A.txt", "a-2.txt", "a-3.txt"]),
    ],
)
def test_no_name_leads_out_of_the_folder_or_hides_another(paths: list[str], names: list[str]) -> None:
    assert sorted(name for name, _ in named(map(file, paths))) == sorted(names)


def test_many_names_that_become_one_are_numbered() -> None:
    """Each by the next number: a tenant's odd names keep nobody else waiting, and no name grows."""
    paths = [f"/mnt/data/{chr(0xE000 + number)}" for number in range(5000)]
    assert [name for name, _ in named(map(file, paths))] == ["_", *(f"_-{number}" for number in range(2, 5001))]


async def test_an_archive_is_read_piece_by_piece() -> None:
    """A hundred files of 2 MiB in pieces of 64 KiB: no file is ever held."""
    piece, asked = b"x" * 65_536, 0

    async def content(_: ContainerFileRecord) -> AsyncIterator[bytes]:
        nonlocal asked
        for _number in range(32):
            asked += 1
            yield piece

    size = 0
    tracemalloc.start()
    async for chunk in archive([file(f"/mnt/data/{number}", 2 * MIB) for number in range(100)], content):
        size += len(chunk)
        assert size <= asked * len(piece) + 100 * 1024
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 200 * MIB
    assert peak < 2 * MIB
