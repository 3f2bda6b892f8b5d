"""What the tests of this folder share: a clock that stands still, and a look into the table and the bucket."""

from dataclasses import dataclass
from typing import Any

from moorage.store.blobs import Blobs
from moorage.store.table import Table

from tests.ministack import AwsClients


@dataclass
class Clock:
    """Unix time that stands still until a test moves it."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Store:
    table: Table
    blobs: Blobs
    clients: AwsClients

    def records(self) -> list[dict[str, Any]]:
        """Every raw item of the table."""
        return self.clients.dynamodb.scan(TableName=self.table.name)["Items"]

    def objects(self) -> list[str]:
        """Every key of the bucket."""
        return [entry["Key"] for entry in self.clients.s3.list_objects_v2(Bucket=self.blobs.bucket).get("Contents", [])]
