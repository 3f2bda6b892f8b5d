"""The tables and buckets that the contract is held against: one machine's, the fakes, and what stands in for AWS where it is.

ministack comes with the test tools. DynamoDB Local is asked where ``make judges`` has fetched it, and LocalStack where
``TESTS_LOCALSTACK`` names its address.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from moorage.store.blobs import Blobs
from moorage.store.dynamodb import DynamoTable
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.s3 import S3Blobs
from moorage.store.schema import create_table
from moorage.store.sqlite_table import SqliteTable
from moorage.store.table import Table

from tests.judges import dynamodb_local
from tests.ministack import AwsClients, Ministack, aws_clients
from tests.unit.store.memory import MemoryBlobs, MemoryTable

TABLES: Final = ("sqlite", "memory", "ministack", "dynamodb-local", "localstack")
BUCKETS: Final = ("files", "memory", "ministack", "localstack")
LOCALSTACK: Final = "TESTS_LOCALSTACK"


@dataclass(frozen=True)
class Bucket:
    blobs: Blobs
    leftovers: Callable[[], int]
    """How many files without a name there are, or uploads that nobody has ended."""

    async def names(self) -> list[str]:
        return [key async for key, _ in self.blobs.list_prefix("")]


class Places:
    """Emulators, started when they are first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._executor = stack.enter_context(ThreadPoolExecutor(16))
        self._known: dict[str, AwsClients] = {}

    def table(self, kind: str, folder: Path, stack: ExitStack) -> Table:
        if kind == "sqlite":
            return SqliteTable(self._journal(folder, stack))
        if kind == "memory":
            return MemoryTable()
        name, client = f"table-{secrets.token_hex(6)}", self._clients(kind).dynamodb
        create_table(client, name)
        stack.callback(client.delete_table, TableName=name)
        return DynamoTable(client, name, self._executor)

    def bucket(self, kind: str, folder: Path, stack: ExitStack) -> Bucket:
        if kind == "memory":
            return Bucket(MemoryBlobs(time.time), lambda: 0)
        if kind == "files":
            journal = self._journal(folder, stack)
            return Bucket(FileBlobs(journal, self._executor), lambda: len(_files(folder) - _named(journal)))
        name, client = f"bucket-{secrets.token_hex(6)}", self._clients(kind).s3
        client.create_bucket(Bucket=name)
        return Bucket(S3Blobs(client, name, self._executor), lambda: len(client.list_multipart_uploads(Bucket=name).get("Uploads", [])))

    def _journal(self, folder: Path, stack: ExitStack) -> Journal:
        journal = Journal(folder)
        stack.callback(journal.close)
        return journal

    def _clients(self, kind: str) -> AwsClients:
        if kind not in self._known:
            self._known[kind] = aws_clients(self._started(kind))
        return self._known[kind]

    def _started(self, kind: str) -> str:
        match kind:
            case "ministack":
                server = Ministack.start()
                self._stack.callback(server.stop)
                return server.endpoint
            case "dynamodb-local":
                if reason := dynamodb_local.reason_without():
                    pytest.skip(reason)
                return self._stack.enter_context(dynamodb_local.running()).url
            case _:
                if LOCALSTACK not in os.environ:
                    pytest.skip(f"{LOCALSTACK} names no LocalStack")
                return os.environ[LOCALSTACK]


def _files(folder: Path) -> set[str]:
    return {path.name for place in ("objects", "incoming") for path in (folder / place).rglob("*") if path.is_file()}


def _named(journal: Journal) -> set[str]:
    found = journal.reader.execute("SELECT value ->> 0 FROM objects, json_each(files) UNION SELECT file FROM garbage")
    return {str(name) for (name,) in found}


def places() -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(stack)
