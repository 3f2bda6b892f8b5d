"""Large files by signed URLs: the exec server gets and puts them itself, at the address that it is told."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from moorage.errors import SandboxError, SandboxFileMissing
from moorage.sandbox.exec_client import ExecClient, SignedPlace

from tests.unit.sandbox.support import collect_bytes, pieces, run

CONTENT = bytes(range(256)) * 8_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Bucket:
    """Answers as S3 does, once a request; ``status`` and ``breaks`` are its moods."""

    objects: dict[str, bytes] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    status: str = "200 OK"
    breaks: bool = False
    port: int = 0

    def place(self, target: str) -> SignedPlace:
        return SignedPlace(f"http://bucket.example.com:{self.port}{target}", "127.0.0.1")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        with suppress(asyncio.IncompleteReadError):
            await self._answer(head, reader, writer)
        writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split("\r\n")[0].split(" ")
        body = b""
        if method == "PUT":
            size = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            self.objects[target] = await reader.readexactly(size)
        else:
            body = self.objects.get(target, b"")
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        writer.write(body[: len(body) // 2] if self.breaks else body)


@pytest.fixture
async def bucket() -> AsyncIterator[Bucket]:
    bucket = Bucket()
    server = await asyncio.start_server(bucket.serve, "127.0.0.1", 0)
    bucket.port = server.sockets[0].getsockname()[1]
    yield bucket
    server.close()


async def put(client: ExecClient, place: SignedPlace, path: str, *, size: int = 1) -> None:
    await client.store_file(path, place, size=size, sha256=SHA256)


async def test_a_file_is_fetched_from_the_bucket(client: ExecClient, bucket: Bucket) -> None:
    bucket.objects["/b/key?X-Amz-Signature=1"] = CONTENT
    assert await client.fetch_file("deep/fetched.bin", bucket.place("/b/key?X-Amz-Signature=1")) == SHA256
    assert await collect_bytes(client, "deep/fetched.bin") == CONTENT
    assert f"Host: bucket.example.com:{bucket.port}\r\n" in bucket.heads[0], "signed with its name, and reached by its address"


async def test_a_file_is_stored_in_the_bucket(client: ExecClient, bucket: Bucket) -> None:
    await client.write_file("stored.bin", pieces(CONTENT))
    assert await client.file_digest("stored.bin", len(CONTENT)) == SHA256
    await client.store_file("stored.bin", bucket.place("/b/key?X-Amz-Signature=2"), size=len(CONTENT), sha256=SHA256)
    assert bucket.objects == {"/b/key?X-Amz-Signature=2": CONTENT}
    assert f"\r\nx-amz-checksum-sha256: {base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()}\r\n" in bucket.heads[0]


async def test_only_the_bytes_that_were_asked_for_are_stored(client: ExecClient, bucket: Bucket) -> None:
    await client.write_file("grown.bin", pieces(b"first, and what came later"))
    sha256 = await client.file_digest("grown.bin", 5)
    await client.store_file("grown.bin", bucket.place("/b/key?"), size=5, sha256=sha256)
    assert (sha256, bucket.objects) == (hashlib.sha256(b"first").hexdigest(), {"/b/key?": b"first"})


async def test_a_file_that_became_shorter_is_not_stored(client: ExecClient, bucket: Bucket) -> None:
    await client.write_file("short.bin", pieces(b"first"))
    for transfer in (client.file_digest("short.bin", 6), put(client, bucket.place("/b/key?"), "short.bin", size=6)):
        with pytest.raises(SandboxError, match="became shorter"):
            await transfer
    assert bucket.objects == {}


async def test_a_fetch_that_breaks_off_leaves_the_file_as_it_was(client: ExecClient, bucket: Bucket) -> None:
    await client.write_file("kept.txt", pieces(b"kept"))
    bucket.objects["/b/key?"], bucket.breaks = CONTENT, True
    with pytest.raises(SandboxError, match="it broke off"):
        await client.fetch_file("kept.txt", bucket.place("/b/key?"))
    assert await collect_bytes(client, "kept.txt") == b"kept"


@pytest.mark.parametrize("status", ["403 Forbidden", "503 Slow Down"])
async def test_a_refusal_is_told_without_the_url(client: ExecClient, bucket: Bucket, status: str) -> None:
    await client.write_file("refused.bin", pieces(b"x"))
    bucket.status = status
    place = bucket.place("/b/key?X-Amz-Signature=secret")
    for transfer in (client.fetch_file("refused.bin", place), put(client, place, "refused.bin")):
        with pytest.raises(SandboxError) as refused:
            await transfer
        assert refused.value.message == f"The storage of files failed: it answered {status[:3]}."


async def test_nobody_at_the_address_is_told(client: ExecClient, bucket: Bucket) -> None:
    await client.write_file("there.bin", pieces(b"x"))
    bucket.port = 1
    with pytest.raises(SandboxError, match="it cannot be reached"):
        await put(client, bucket.place("/b/key?"), "there.bin")


async def test_what_is_no_file_is_not_stored(client: ExecClient, bucket: Bucket) -> None:
    await run(client, "ln -s /etc/passwd to-passwd; mkfifo a-pipe")
    for path in ("none", "to-passwd", "a-pipe", "../../etc/passwd"):
        with pytest.raises((SandboxFileMissing, SandboxError)):
            await put(client, bucket.place("/b/key?"), path)
    assert bucket.heads == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://bucket.example.com/x", "http:///x"])
async def test_other_addresses_are_refused(client: ExecClient, url: str) -> None:
    with pytest.raises(SandboxError, match="must be an address of HTTP or HTTPS"):
        await client.fetch_file("x", SignedPlace(url, "127.0.0.1"))


async def test_over_tls_the_certificate_has_to_be_the_hosts(client: ExecClient, bucket: Bucket) -> None:
    place = bucket.place("/b/key?")
    with pytest.raises(SandboxError, match="it cannot be reached"):
        await client.fetch_file("x", SignedPlace(place.url.replace("http:", "https:"), place.address))
