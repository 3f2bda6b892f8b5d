"""Send one large file through the API and fetch it again, in a process of its own; prints how its memory grew.

    python -m tests.unit.resources.large_file ENDPOINT MEBIBYTES

Client and server share the process, so the growth of both is counted.
"""

import asyncio
import hashlib
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import uvicorn
from moorage.store.dynamodb import DynamoTable
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.s3 import S3Blobs
from moorage.store.sqlite_table import SqliteTable

from tests.ministack import aws_clients, new_table_and_bucket
from tests.unit.resources.service import build_app
from tests.unit.resources.support import Clock, FakeProvisioner, Store

MIB = 1024 * 1024
HEAD = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="large"\r\n\r\n'
)
TAIL = b"\r\n--x--\r\n"


def block(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * (MIB // 32)


async def body(mebibytes: int) -> AsyncIterator[bytes]:
    yield HEAD
    for number in range(mebibytes):
        yield block(number)
    yield TAIL


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def transfer(http: httpx.AsyncClient, mebibytes: int) -> None:
    """Up and down again; what comes back is what went in."""
    length = len(HEAD) + mebibytes * MIB + len(TAIL)
    headers = {"content-type": "multipart/form-data; boundary=x", "content-length": str(length)}
    made = (await http.post("/files", content=body(mebibytes), headers=headers)).json()
    assert made["bytes"] == mebibytes * MIB, made
    seen, expected = hashlib.sha256(), hashlib.sha256()
    for number in range(mebibytes):
        expected.update(block(number))
    async with http.stream("GET", f"/files/{made['id']}/content") as answer:
        async for chunk in answer.aiter_bytes():
            seen.update(chunk)
    assert seen.digest() == expected.digest()


def store_at(place: str, executor: ThreadPoolExecutor) -> Store:
    """At the address of an emulator, or in a folder."""
    if not place.startswith("http"):
        journal = Journal(Path(place))
        return Store(SqliteTable(journal), FileBlobs(journal, executor), journal)
    clients = aws_clients(place)
    table_name, bucket_name = new_table_and_bucket(clients)
    return Store(DynamoTable(clients.dynamodb, table_name, executor), S3Blobs(clients.s3, bucket_name, executor))


async def main(place: str, mebibytes: int) -> None:
    with ThreadPoolExecutor(8) as executor:
        store = store_at(place, executor)
        app = build_app(store, Clock(), FakeProvisioner())
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        headers = {"authorization": "Bearer key-a"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", headers=headers, timeout=300) as http:
            await transfer(http, 1)
            before, begun = peak_mib(), time.monotonic()
            await transfer(http, mebibytes)
            seconds = time.monotonic() - begun
        print(json.dumps({"growth_mib": round(peak_mib() - before, 1), "seconds": round(seconds, 1)}))
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
