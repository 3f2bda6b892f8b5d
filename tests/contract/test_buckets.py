"""What every bucket does, whoever keeps it: the same tests over one machine's files, the fake, and what stands in for S3."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator

import pytest
from moorage.limits import BLOB_PART_BYTES
from moorage.store.blobs import Blob, BlobNotFound, BlobTooLarge

from tests.contract.stores import Bucket
from tests.unit.resources.support import chunked


async def broken(data: bytes) -> AsyncIterator[bytes]:
    yield data
    raise ConnectionError("the client went away")


def of_length(length: int) -> bytes:
    return (b"0123456789abcdef" * (length // 16 + 1))[:length]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "length",
    [0, 1, BLOB_PART_BYTES - 1, BLOB_PART_BYTES, BLOB_PART_BYTES + 1, 2 * BLOB_PART_BYTES, 2 * BLOB_PART_BYTES + 5],
)
async def test_a_stream_of_any_length_comes_back_as_it_went_in(bucket: Bucket, length: int) -> None:
    data = of_length(length)
    blob = await bucket.blobs.put_stream("T/a/F/x", chunked(data), bytes_max=length)
    assert blob == Blob("T/a/F/x", length, sha256(data))
    assert await bucket.blobs.get_bytes("T/a/F/x") == data
    assert bucket.leftovers() == 0


async def test_bytes_come_back_as_they_went_in(bucket: Bucket) -> None:
    for data in (b"hello", b"", b"another"):
        assert await bucket.blobs.put_bytes("T/a/F/x", data) == Blob("T/a/F/x", len(data), sha256(data))
        assert await bucket.blobs.get_bytes("T/a/F/x") == data
    assert await bucket.names() == ["T/a/F/x"]
    assert bucket.leftovers() == 0


@pytest.mark.parametrize("length", [11, BLOB_PART_BYTES + 11])
async def test_a_stream_past_its_limit_leaves_nothing_behind(bucket: Bucket, length: int) -> None:
    with pytest.raises(BlobTooLarge):
        await bucket.blobs.put_stream("T/a/F/x", chunked(of_length(length)), bytes_max=length - 1)
    with pytest.raises(BlobTooLarge):
        await bucket.blobs.put_addressed("T/a/F/", chunked(of_length(length)), known={}, bytes_max=length - 1)
    assert await bucket.names() == []
    assert bucket.leftovers() == 0


@pytest.mark.parametrize("length", [11, 3 * BLOB_PART_BYTES])
async def test_a_stream_that_breaks_off_leaves_nothing_behind(bucket: Bucket, length: int) -> None:
    with pytest.raises(ConnectionError):
        await bucket.blobs.put_stream("T/a/F/x", broken(of_length(length)), bytes_max=10 * BLOB_PART_BYTES)
    assert await bucket.names() == []
    assert bucket.leftovers() == 0


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (0, 0, b"0"), (2, 4, b"234"), (9, 99, b"9"), (10, None, b""), (12, 15, b"")],
)
async def test_a_range_has_both_its_ends(bucket: Bucket, start: int, end: int | None, expected: bytes) -> None:
    await bucket.blobs.put_bytes("T/a/F/x", b"0123456789")
    assert b"".join([chunk async for chunk in bucket.blobs.get_stream("T/a/F/x", start=start, end=end)]) == expected


async def test_a_range_of_a_large_object_has_both_its_ends(bucket: Bucket) -> None:
    data, start, end = of_length(2 * BLOB_PART_BYTES + 5), BLOB_PART_BYTES - 3, 2 * BLOB_PART_BYTES + 1
    await bucket.blobs.put_stream("T/a/F/x", chunked(data), bytes_max=len(data))
    assert b"".join([chunk async for chunk in bucket.blobs.get_stream("T/a/F/x", start=start, end=end)]) == data[start : end + 1]


@pytest.mark.parametrize("length", [11, BLOB_PART_BYTES + 11])
async def test_known_content_is_not_stored_again(bucket: Bucket, length: int) -> None:
    data = of_length(length)
    first = await bucket.blobs.put_addressed("T/a/C/c/", chunked(data), known={}, bytes_max=length)
    second = await bucket.blobs.put_addressed("T/a/C/c/", chunked(data), known={first.sha256: first.key}, bytes_max=length)
    assert second == first == Blob(first.key, length, sha256(data))
    assert (first.key == f"T/a/C/c/{first.sha256}") == (length < BLOB_PART_BYTES)
    assert await bucket.names() == [first.key]
    assert bucket.leftovers() == 0


async def test_a_copy_is_independent_of_its_source(bucket: Bucket) -> None:
    await bucket.blobs.put_bytes("T/a/F/x", b"hello")
    await bucket.blobs.copy("T/a/F/x", "T/a/C/y")
    await bucket.blobs.copy("T/a/C/y", "T/a/C/z")
    await bucket.blobs.delete("T/a/F/x")
    assert await bucket.names() == ["T/a/C/y", "T/a/C/z"]
    assert await bucket.blobs.inlined([{"blob": "T/a/C/y"}, {"text": b"inline"}, {"blob": "T/a/C/z"}], "text") == [
        *(b"hello", b"inline", b"hello")
    ]


async def test_a_missing_object_is_named_as_missing(bucket: Bucket) -> None:
    for missing in (bucket.blobs.get_bytes("T/a/F/none"), bucket.blobs.copy("T/a/F/none", "T/a/F/other")):
        with pytest.raises(BlobNotFound):
            await missing
    await bucket.blobs.delete("T/a/F/none")
    assert await bucket.blobs.delete_prefix("T/a/F/") == 0


async def test_an_object_that_is_deleted_while_it_is_read_is_read_to_its_end(bucket: Bucket) -> None:
    data = of_length(BLOB_PART_BYTES + 11)
    await bucket.blobs.put_stream("T/a/F/x", chunked(data), bytes_max=len(data))
    reading = bucket.blobs.get_stream("T/a/F/x")
    read = [await anext(reading)]
    await bucket.blobs.delete("T/a/F/x")
    read += [piece async for piece in reading]
    assert b"".join(read) == data


async def test_deleting_a_prefix_spares_its_neighbours(bucket: Bucket) -> None:
    for key in ("T/a/C/c1/x", "T/a/C/c1/y", "T/a/C/c10/x", "T/b/C/c1/x"):
        await bucket.blobs.put_bytes(key, b"")
    assert await bucket.blobs.delete_prefix("T/a/C/c1/") == 2
    assert await bucket.names() == ["T/a/C/c10/x", "T/b/C/c1/x"]


async def test_names_are_listed_in_order_page_by_page(bucket: Bucket) -> None:
    names = [f"T/a/{n:04}" for n in range(1005)]
    for start in range(0, len(names), 100):
        await asyncio.gather(*(bucket.blobs.put_bytes(name, name.encode()) for name in names[start : start + 100]))
    await bucket.blobs.put_bytes("T/b/é \U00010000+%2F&<", b"12345")
    assert await bucket.names() == [*names, "T/b/é \U00010000+%2F&<"]
    assert [key async for key, _ in bucket.blobs.list_prefix("T/a/00")] == names[:100]
    assert [one async for one in bucket.blobs.list_sizes("T/b")] == [("T/b/é \U00010000+%2F&<", 5)]
    assert await bucket.blobs.bytes_under("T/a/") == 8 * 1005
    assert await bucket.blobs.delete_prefix("T/a/") == 1005
    assert await bucket.names() == ["T/b/é \U00010000+%2F&<"]


async def test_a_name_tells_when_it_was_written(bucket: Bucket) -> None:
    before = time.time()
    await bucket.blobs.put_bytes("T/a/x", b"")
    ((_, at),) = [one async for one in bucket.blobs.list_prefix("T/a/")]
    assert int(before) <= at <= time.time()
