"""The table and the bucket on the emulator."""

import contextlib

import boto3
from botocore.exceptions import ClientError

from moorage.store.schema import create_table

TABLE = "moorage"
BUCKET = "moorage"


def provision() -> None:
    """Make both. Harmless to repeat: they are kept."""
    create_table(boto3.client("dynamodb"), TABLE)
    with contextlib.suppress(ClientError):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
