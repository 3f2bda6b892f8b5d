"""The bucket of the local stack, through boto3's own requests, and what is left of it after each kind of death."""

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.local.aws.bucket import Answer, BucketService, Request
from moorage.local.aws.journal import Journal, NoRoom


class Bucket:
    """The service with a short way to ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal.sqlite")
        self.service = BucketService(self.journal, folder)

    async def ask(self, method: str, path: str, query: str = "", body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        answer = await self.raw(method, path, query, body, **headers)
        content = answer.body if isinstance(answer.body, bytes) else b"".join([piece async for piece in answer.body])
        return answer.status, content

    async def raw(self, method: str, path: str, query: str = "", body: bytes = b"", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.service.handle(Request(method, path, query, named, body))

    def files(self) -> list[Path]:
        return [path for part in ("objects", "incoming") for path in (self.folder / part).rglob("*") if path.is_file()]

    def close(self) -> None:
        self.service.close()
        self.journal.close()


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[Bucket]:
    opened = Bucket(tmp_path)
    await opened.ask("PUT", "/moorage")
    yield opened
    opened.close()


async def test_an_object_comes_back_whole_in_part_and_by_any_name(bucket: Bucket) -> None:
    body = os.urandom(3_000_000)
    path = "/moorage/T/t%20%2B/%C3%A4/a%26b%3Cc"
    assert (await bucket.ask("PUT", path, body=body))[0] == 200
    assert await bucket.ask("GET", path) == (200, body)
    assert await bucket.ask("GET", path, range="bytes=5-1048580") == (206, body[5:1048581])
    assert await bucket.ask("GET", path, range="bytes=2999990-") == (206, body[2999990:])
    assert await bucket.ask("GET", path, range="bytes=-7") == (206, body[-7:])
    assert (await bucket.ask("GET", path, range="bytes=3000000-"))[0] == 416
    assert (await bucket.raw("HEAD", path)).headers["content-length"] == "3000000"


async def test_what_is_not_there_is_said(bucket: Bucket) -> None:
    assert (await bucket.ask("GET", "/moorage/none"))[0] == 404
    assert b"NoSuchKey" in (await bucket.ask("GET", "/moorage/none"))[1]
    assert b"NoSuchBucket" in (await bucket.ask("PUT", "/other/key"))[1]
    assert (await bucket.ask("DELETE", "/moorage/none"))[0] == 204
    assert (await bucket.ask("GET", "/moorage/none", "acl"))[0] == 404
    assert (await bucket.ask("GET", "/moorage", "versions"))[0] == 501


async def test_an_upload_in_parts_is_one_object_and_its_bytes_are_not_copied(bucket: Bucket) -> None:
    _, begun = await bucket.ask("POST", "/moorage/large", "uploads")
    upload = begun.decode().partition("<UploadId>")[2].partition("<")[0]
    parts = {2: b"b" * 100, 1: b"a" * 100, 3: b"c" * 7, 4: b"left out"}
    for number, part in parts.items():
        assert (await bucket.ask("PUT", "/moorage/large", f"partNumber={number}&uploadId={upload}", part))[0] == 200
    assert (await bucket.ask("GET", "/moorage/large"))[0] == 404
    before = {path.name for path in bucket.files()}
    listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>x</ETag></Part>" for number in (1, 2, 3))
    whole = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    assert (await bucket.ask("POST", "/moorage/large", f"uploadId={upload}", whole))[0] == 200
    assert await bucket.ask("GET", "/moorage/large") == (200, b"a" * 100 + b"b" * 100 + b"c" * 7)
    assert await bucket.ask("GET", "/moorage/large", range="bytes=98-203") == (206, b"aa" + b"b" * 100 + b"cccc")
    assert {path.name for path in bucket.files()} == before
    await bucket.service.sweep(0)
    assert len(bucket.files()) == 3
    assert (await bucket.ask("POST", "/moorage/large", f"uploadId={upload}", whole))[0] == 404


async def test_an_upload_that_is_given_up_or_forgotten_leaves_nothing(bucket: Bucket) -> None:
    for ending in ("abort", "forget"):
        _, begun = await bucket.ask("POST", "/moorage/large", "uploads")
        upload = begun.decode().partition("<UploadId>")[2].partition("<")[0]
        await bucket.ask("PUT", "/moorage/large", f"partNumber=1&uploadId={upload}", b"x")
        if ending == "abort":
            await bucket.ask("DELETE", "/moorage/large", f"uploadId={upload}")
        await bucket.service.sweep(10**12)
        await bucket.service.sweep(10**12)
        assert bucket.files() == []


async def test_listings_come_in_pages_in_order(bucket: Bucket) -> None:
    for n in range(7):
        await bucket.ask("PUT", f"/moorage/T/a/{n}%26", body=b"x")
    await bucket.ask("PUT", "/moorage/T/b/0", body=b"x")
    _, page = await bucket.ask("GET", "/moorage", "list-type=2&prefix=T%2Fa%2F&max-keys=5")
    text = page.decode()
    assert (text.count("<Contents>"), "<IsTruncated>true</IsTruncated>" in text) == (5, True)
    token = text.partition("<NextContinuationToken>")[2].partition("<")[0].replace("&amp;", "%26")
    _, page = await bucket.ask("GET", "/moorage", f"list-type=2&prefix=T%2Fa%2F&max-keys=5&continuation-token={token}")
    assert (page.decode().count("<Contents>"), "T/a/5&amp;" in page.decode()) == (2, True)


async def test_a_copy_is_its_own_object(bucket: Bucket) -> None:
    await bucket.ask("PUT", "/moorage/a", body=b"bytes")
    assert (await bucket.ask("PUT", "/moorage/b", x_amz_copy_source="moorage/a"))[0] == 200
    await bucket.ask("DELETE", "/moorage/a")
    await bucket.service.sweep(0)
    assert await bucket.ask("GET", "/moorage/b") == (200, b"bytes")


async def test_what_is_overwritten_or_deleted_is_unlinked_and_a_reader_that_has_begun_ends_well(bucket: Bucket) -> None:
    body = os.urandom(3_000_000)
    await bucket.ask("PUT", "/moorage/a", body=body)
    answer = await bucket.raw("GET", "/moorage/a")
    assert not isinstance(answer.body, bytes)
    got = await anext(answer.body)
    await bucket.ask("PUT", "/moorage/a", body=b"new")
    await bucket.ask("POST", "/moorage", "delete", b"<Delete><Object><Key>a</Key></Object></Delete>")
    await bucket.service.sweep(0)
    assert bucket.files() == []
    assert got + b"".join([piece async for piece in answer.body]) == body


async def test_a_backup_that_holds_the_files_keeps_them(bucket: Bucket) -> None:
    await bucket.ask("PUT", "/moorage/a", body=b"x")
    await bucket.ask("DELETE", "/moorage/a")
    with (bucket.folder / "objects.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        await bucket.service.sweep(0)
        assert len(bucket.files()) == 1
    await bucket.service.sweep(0)
    assert bucket.files() == []


async def test_a_start_keeps_what_has_a_name_and_drops_what_nobody_was_told_of(tmp_path: Path) -> None:
    first = Bucket(tmp_path)
    await first.ask("PUT", "/moorage")
    await first.ask("PUT", "/moorage/kept", body=b"kept")
    (kept,) = first.files()
    kept.rename(tmp_path / "incoming" / kept.name)  # The move was lost with the power.
    (tmp_path / "incoming" / ("0" * 32)).write_bytes(b"never committed")
    first.close()
    second = Bucket(tmp_path)
    assert await second.ask("GET", "/moorage/kept") == (200, b"kept")
    await second.service.tidy()
    assert await second.ask("GET", "/moorage/kept") == (200, b"kept")
    assert second.files() == [kept]
    second.close()


async def test_a_full_disk_refuses_the_object_and_leaves_no_file(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(NoRoom):
            await bucket.ask("PUT", "/moorage/a", body=b"x")
    assert (bucket.files(), bucket.journal.is_refusing) == ([], True)
    assert (await bucket.ask("GET", "/moorage/a"))[0] == 404
    assert (await bucket.ask("PUT", "/moorage/a", body=b"x"))[0] == 200
    assert not bucket.journal.is_refusing


async def test_file_and_folder_are_flushed_before_the_answer(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    whole = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    await bucket.ask("PUT", "/moorage/a", body=b"x")
    incoming = str(bucket.folder / "incoming")
    assert [path.startswith(incoming) for path in flushed] == [True, True]
    assert flushed[1] == incoming


async def test_many_writers_of_one_key_leave_one_object(bucket: Bucket) -> None:
    await asyncio.gather(*(bucket.ask("PUT", "/moorage/a", body=b"%d" % n) for n in range(40)))
    await bucket.service.sweep(0)
    assert len(bucket.files()) == 1
