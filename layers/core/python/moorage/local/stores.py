"""Where a stack on one machine keeps its table and its bucket: in its state folder, or where ``AWS_ENDPOINT_URL`` says.

The second is for LocalStack, or for a table and a bucket in an account of AWS. The API, the loop and the sandboxes stay on this
machine.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.local.housekeeping import tidy
from moorage.local.takeover import STORE, take_over
from moorage.store.journal import Journal
from moorage.store.schema import create_table

ENDPOINT: Final = "AWS_ENDPOINT_URL"
_ENDPOINTS: Final = (ENDPOINT, "AWS_ENDPOINT_URL_DYNAMODB")
"""https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html"""
NAME: Final = "moorage"
"""Of a table and a bucket that nobody has named."""


@dataclass(frozen=True, slots=True)
class FolderStores:
    state_dir: Path
    aws: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        return {"MOORAGE_STORE_DIR": str(self.state_dir / STORE)}

    def prepare(self) -> None:
        """Take over an older version's state, and tidy up. Raises :class:`SettingsConflict`."""
        take_over(self.state_dir)
        journal = Journal(self.state_dir / STORE)
        tidy(journal)
        journal.close()


@dataclass(frozen=True, slots=True)
class AwsStores:
    aws: dict[str, str] = field(repr=False)
    """The variables by which boto3 finds it."""
    table: str
    bucket: str

    @property
    def settings(self) -> dict[str, str]:
        return {"MOORAGE_TABLE": self.table, "MOORAGE_BUCKET": self.bucket}

    def prepare(self) -> None:
        """Make both unless they are there. Raises :class:`SettingsConflict`."""
        import boto3  # net/aws.py

        try:
            create_table(boto3.client("dynamodb"), self.table)
            buckets = boto3.client("s3")
            try:
                buckets.head_bucket(Bucket=self.bucket)
            except ClientError:
                buckets.create_bucket(Bucket=self.bucket)
        except (ClientError, BotoCoreError) as error:
            raise SettingsConflict(f"The table and the bucket that {ENDPOINT} points to cannot be used: {error}.") from error


def store_place(environ: Mapping[str, str], state_dir: Path) -> FolderStores | AwsStores:
    if not any(environ.get(name) for name in _ENDPOINTS):
        return FolderStores(state_dir)
    aws = {name: value for name, value in environ.items() if name.startswith("AWS_")}
    return AwsStores(aws, environ.get("MOORAGE_TABLE") or NAME, environ.get("MOORAGE_BUCKET") or NAME)
