"""What S3 answers with a 200 that is none, and what a signed URL opens."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moorage.store.blobs import Blobs
from moorage.store.s3 import S3Blobs
from moorage.store.throttling import is_throttle


@pytest.fixture
def s3() -> Iterator[tuple[Blobs, Stubber]]:
    client = boto3.client("s3", "us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
    with Stubber(client) as stubber, ThreadPoolExecutor(1) as executor:
        stubber.add_response("list_objects_v2", {"Contents": [{"Key": "C/a"}, {"Key": "C/b"}], "IsTruncated": False})
        yield S3Blobs(client, "bucket", executor), stubber
        stubber.assert_no_pending_responses()


async def test_what_is_below_a_prefix_is_erased(s3: tuple[Blobs, Stubber]) -> None:
    blobs, stubber = s3
    wanted = {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "C/a"}, {"Key": "C/b"}], "Quiet": True}}
    stubber.add_response("delete_objects", {}, wanted)
    assert await blobs.delete_prefix("C/") == 2


def kept(code: str) -> dict[str, Any]:
    return {"Errors": [{"Key": "C/b", "Code": code, "Message": "Please try again."}]}


async def test_an_object_that_s3_has_kept_for_a_moment_is_erased_then(s3: tuple[Blobs, Stubber]) -> None:
    blobs, stubber = s3
    stubber.add_response("delete_objects", kept("InternalError"))
    stubber.add_response("delete_objects", {}, {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "C/b"}], "Quiet": True}})
    assert await blobs.delete_prefix("C/") == 2


@pytest.mark.parametrize(("code", "is_passing"), [("SlowDown", True), ("AccessDenied", False)])
async def test_one_that_s3_keeps_does_not_pass_for_erased(s3: tuple[Blobs, Stubber], code: str, is_passing: bool) -> None:
    blobs, stubber = s3
    for _ in range(3):
        stubber.add_response("delete_objects", kept(code))
    with pytest.raises(ClientError, match=code) as told:
        await blobs.delete_prefix("C/")
    assert is_throttle(told.value) is is_passing


def test_a_url_to_put_is_for_one_key_one_method_a_time_and_these_bytes() -> None:
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    client = boto3.client("s3", "eu-west-1", aws_access_key_id="a", aws_secret_access_key="s", config=config)
    with ThreadPoolExecutor(1) as executor:
        blobs = S3Blobs(client, "bucket", executor)
        urls = [
            blobs.signed_put_url("T/acme/C/c/abc", size=size, sha256=sha256 * 32, seconds=300)
            for size in (5, 6)
            for sha256 in ("00", "ff")
        ]
        urls += [
            blobs.signed_get_url("T/acme/C/c/abc", seconds=300),
            blobs.signed_put_url("T/acme/C/d/abc", size=5, sha256="00" * 32, seconds=300),
        ]
    parts = [urlsplit(url) for url in urls]
    assert [each.path for each in parts] == [*["/bucket/T/acme/C/c/abc"] * 5, "/bucket/T/acme/C/d/abc"]
    queries = [dict(parse_qsl(each.query)) for each in parts]
    signed = "content-length;host;x-amz-checksum-sha256"
    assert [each["X-Amz-SignedHeaders"] for each in queries] == [*[signed] * 4, "host", signed]
    assert {each["X-Amz-Expires"] for each in queries} == {"300"}
    assert len({each["X-Amz-Signature"] for each in queries}) == 6
