import hashlib
from collections.abc import AsyncIterator

import pytest
from moorage.limits import BLOB_PART_BYTES
from moorage.store.blobs import Blob, BlobNotFound, BlobTooLarge

from tests.unit.resources.support import Store, chunked


async def broken(data: bytes) -> AsyncIterator[bytes]:
    yield data
    raise ConnectionError("the client went away")


def of_length(length: int) -> bytes:
    return (b"0123456789abcdef" * (length // 16 + 1))[:length]


def open_uploads(store: Store) -> int:
    return len(store.clients.s3.list_multipart_uploads(Bucket=store.blobs.bucket).get("Uploads", []))


@pytest.mark.parametrize(
    "length",
    [0, 1, BLOB_PART_BYTES - 1, BLOB_PART_BYTES, BLOB_PART_BYTES + 1, 2 * BLOB_PART_BYTES, 2 * BLOB_PART_BYTES + 5],
)
async def test_a_stream_of_any_length_comes_back_as_it_went_in(store: Store, length: int) -> None:
    data = of_length(length)
    blob = await store.blobs.put_stream("T/a/F/x", chunked(data), bytes_max=length)
    assert blob == Blob("T/a/F/x", length, hashlib.sha256(data).hexdigest())
    assert await store.blobs.get_bytes("T/a/F/x") == data
    assert open_uploads(store) == 0


async def test_bytes_come_back_as_they_went_in(store: Store) -> None:
    blob = await store.blobs.put_bytes("T/a/F/x", b"hello")
    assert blob == Blob("T/a/F/x", 5, hashlib.sha256(b"hello").hexdigest())
    assert await store.blobs.get_bytes("T/a/F/x") == b"hello"


@pytest.mark.parametrize("length", [11, BLOB_PART_BYTES + 11])
async def test_a_stream_past_its_limit_leaves_nothing_behind(store: Store, length: int) -> None:
    with pytest.raises(BlobTooLarge):
        await store.blobs.put_stream("T/a/F/x", chunked(of_length(length)), bytes_max=length - 1)
    assert store.objects() == []
    assert open_uploads(store) == 0


@pytest.mark.parametrize("length", [11, 3 * BLOB_PART_BYTES])
async def test_a_stream_that_breaks_off_leaves_nothing_behind(store: Store, length: int) -> None:
    with pytest.raises(ConnectionError):
        await store.blobs.put_stream("T/a/F/x", broken(of_length(length)), bytes_max=10 * BLOB_PART_BYTES)
    assert store.objects() == []
    assert open_uploads(store) == 0


@pytest.mark.parametrize(("start", "end", "expected"), [(0, None, b"0123456789"), (3, None, b"3456789"), (0, 0, b"0"), (2, 4, b"234")])
async def test_a_range_has_both_its_ends(store: Store, start: int, end: int | None, expected: bytes) -> None:
    await store.blobs.put_bytes("T/a/F/x", b"0123456789")
    assert b"".join([chunk async for chunk in store.blobs.get_stream("T/a/F/x", start=start, end=end)]) == expected


@pytest.mark.parametrize("length", [11, BLOB_PART_BYTES + 11])
async def test_known_content_is_not_stored_again(store: Store, length: int) -> None:
    data = of_length(length)
    first = await store.blobs.put_addressed("T/a/C/c/", chunked(data), known={}, bytes_max=length)
    second = await store.blobs.put_addressed("T/a/C/c/", chunked(data), known={first.sha256: first.key}, bytes_max=length)
    assert second == first
    assert store.objects() == [first.key]


async def test_a_copy_is_independent_of_its_source(store: Store) -> None:
    await store.blobs.put_bytes("T/a/F/x", b"hello")
    await store.blobs.copy("T/a/F/x", "T/a/C/y")
    await store.blobs.delete("T/a/F/x")
    assert store.objects() == ["T/a/C/y"]
    assert await store.blobs.get_bytes("T/a/C/y") == b"hello"


async def test_a_missing_object_is_named_as_missing(store: Store) -> None:
    with pytest.raises(BlobNotFound):
        await store.blobs.get_bytes("T/a/F/none")
    with pytest.raises(BlobNotFound):
        await store.blobs.copy("T/a/F/none", "T/a/F/other")
    await store.blobs.delete("T/a/F/none")


async def test_deleting_a_prefix_spares_its_neighbours(store: Store) -> None:
    for key in ("T/a/C/c1/x", "T/a/C/c1/y", "T/a/C/c10/x", "T/b/C/c1/x"):
        await store.blobs.put_bytes(key, b"")
    assert await store.blobs.delete_prefix("T/a/C/c1/") == 2
    assert store.objects() == ["T/a/C/c10/x", "T/b/C/c1/x"]
