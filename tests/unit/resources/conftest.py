"""A real table and a real bucket for every test: those of one machine."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from moorage.containers.containers import Containers
from moorage.files.store import FileStore
from moorage.store.dynamodb import DynamoTable
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.s3 import S3Blobs
from moorage.store.sqlite_table import SqliteTable

from tests.ministack import Ministack, aws_clients, new_table_and_bucket
from tests.unit.resources.places import Places, places_of
from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, FakeProvisioner, Store
from tests.unit.resources.world import World


@pytest.fixture(scope="session")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def store(executor: ThreadPoolExecutor, tmp_path: Path) -> Iterator[Store]:
    journal = Journal(tmp_path / "store")
    yield Store(SqliteTable(journal), FileBlobs(journal, executor), journal)
    journal.close()


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


@pytest.fixture
def aws_store(ministack: Ministack, executor: ThreadPoolExecutor) -> Iterator[Store]:
    """For what only a bucket on AWS can do."""
    clients = aws_clients(ministack.endpoint)
    table_name, bucket_name = new_table_and_bucket(clients)
    yield Store(DynamoTable(clients.dynamodb, table_name, executor), S3Blobs(clients.s3, bucket_name, executor))
    clients.dynamodb.delete_table(TableName=table_name)
    for client in (clients.dynamodb, clients.s3, clients.stepfunctions, clients.lambda_):
        client.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def places(store: Store, clock: Clock) -> Places:
    return places_of(store, clock)


@pytest.fixture
async def service(store: Store, clock: Clock) -> AsyncIterator[Service]:
    built = build_service(store, clock)
    yield built
    await built.http.aclose()
    await built.sdk.close()
    await built.stranger.close()


@pytest.fixture
def world(store: Store, clock: Clock) -> World:
    provisioner = FakeProvisioner()
    files = FileStore(store.table, store.blobs, clock=clock)

    def containers(strict_expiry: bool) -> Containers:
        return Containers(
            store.table,
            store.blobs,
            provisioner,
            files,
            clock=clock,
            sandbox_key=lambda: b"k" * 32,
            strict_expiry=strict_expiry,
            connect=provisioner.connect,
        )

    return World(store, clock, provisioner, files, containers(False), containers(True))
