"""The emulator's address is nobody's open door: what is signed with the credentials of the start passes, unchanged, from no page."""

import hashlib
import time
from dataclasses import replace
from functools import cache
from typing import Any, cast
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from moorage.local.aws.gate import Asked, Credentials, Gate

CREDENTIALS = Credentials("KEY", "secret")
AUTHORITY = "127.0.0.1:4321"
GATE = Gate(CREDENTIALS, AUTHORITY)


@cache
def session(credentials: Credentials) -> Any:
    """It reads what a service is like once."""
    return boto3.Session(credentials.access_key_id, credentials.secret_access_key, region_name="us-east-1")


def requests_of_boto3(service: str, operation: str, credentials: Credentials = CREDENTIALS, **request: Any) -> Asked:
    """What boto3 would send."""
    sent: list[Any] = []

    def keep(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        answer: Any = AWSResponse(request.url, 500, {}, None)  # type: ignore[arg-type]
        answer._content = b"{}"
        return cast("AWSResponse", answer)

    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    client = session(credentials).client(service, endpoint_url=f"http://{AUTHORITY}", config=config)
    client.meta.events.register("before-send", keep)
    with pytest.raises(client.exceptions.ClientError):
        getattr(client, operation)(**request)
    client.close()
    (prepared,) = sent
    url = urlsplit(prepared.url)
    headers = {name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in prepared.headers.items()}
    body = prepared.body or b""
    content = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else body.read()
    return Asked(prepared.method, url.path, url.query, {"host": AUTHORITY} | headers, content)


KEY = {"PK": {"S": "p"}, "SK": {"S": "s"}}
SENT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "the table": ("dynamodb", "get_item", {"TableName": "t", "Key": KEY}),
    "an object": ("s3", "put_object", {"Bucket": "b", "Key": "T/t/a b&c=ä+?", "Body": b"bytes"}),
    "an object read in part": ("s3", "get_object", {"Bucket": "b", "Key": "T/x", "Range": "bytes=0-1"}),
    "a listing": ("s3", "list_objects_v2", {"Bucket": "b", "Prefix": "T/a b/", "ContinuationToken": "x&y=z "}),
    "objects to delete": ("s3", "delete_objects", {"Bucket": "b", "Delete": {"Objects": [{"Key": "k"}]}}),
    "a part": ("s3", "upload_part", {"Bucket": "b", "Key": "k", "UploadId": "u", "PartNumber": 2, "Body": b"x"}),
    "a function": ("lambda", "invoke", {"FunctionName": "moorage-model_step", "Payload": b"{}"}),
    "the state machine": ("stepfunctions", "describe_execution", {"executionArn": "arn:aws:states:us-east-1:0:execution:m:r"}),
    "a key": ("kms", "create_key", {"Description": "d"}),
}


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_what_boto3_signs_with_these_credentials_passes(sent: tuple[str, str, dict[str, Any]]) -> None:
    service, operation, request = sent
    assert GATE.refusal(requests_of_boto3(service, operation, **request)) is None


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_other_credentials_do_not(sent: tuple[str, str, dict[str, Any]]) -> None:
    service, operation, request = sent
    guessed = requests_of_boto3(service, operation, Credentials("KEY", "guessed"), **request)
    assert GATE.refusal(guessed) == "The signature does not fit the request."
    foreign = requests_of_boto3(service, operation, Credentials("test", "test"), **request)
    assert GATE.refusal(foreign) == "The request is not signed with the credentials of this start."


ASKED = requests_of_boto3("dynamodb", "get_item", TableName="t", Key=KEY)
HEADERS = dict(ASKED.headers)


def with_header(name: str, value: str | None) -> Asked:
    headers = {key: other for key, other in ASKED.headers.items() if key != name}
    return replace(ASKED, headers=headers if value is None else headers | {name: value})


OTHER_BODY = b'{"TableName": "other"}'
REFUSED = {
    "another body": replace(ASKED, body=OTHER_BODY),
    "another body, and its hash": replace(
        ASKED, body=OTHER_BODY, headers=HEADERS | {"x-amz-content-sha256": hashlib.sha256(OTHER_BODY).hexdigest()}
    ),
    "a hash of nothing": with_header("x-amz-content-sha256", hashlib.sha256(b"").hexdigest()),
    "another path": replace(ASKED, path="/2015-03-31/functions"),
    "another query": replace(ASKED, query="Action=x"),
    "another method": replace(ASKED, method="PUT"),
    "another operation": with_header("x-amz-target", "DynamoDB_20120810.DeleteTable"),
    "another time": with_header("x-amz-date", "20200101T000000Z"),
    "no signature": with_header("authorization", None),
    "half a signature": with_header("authorization", ASKED.headers["authorization"][:-1]),
    "an older signature": with_header("authorization", "AWS KEY:c2lnbmF0dXJl"),
    "another name of this machine": with_header("host", "localhost:4321"),
    "a name that was rebound": with_header("host", "evil.example:4321"),
    "a page": with_header("origin", "https://evil.example"),
    "a page without a name": with_header("origin", "null"),
    "a page's image": with_header("sec-fetch-site", "cross-site"),
    "a page of this machine": with_header("sec-fetch-site", "same-site"),
}


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED)
def test_what_was_changed_or_comes_from_elsewhere_is_refused(asked: Asked) -> None:
    assert GATE.refusal(asked) is not None


def test_a_signature_ends() -> None:
    assert GATE.refusal(ASKED, now=time.time() + 16 * 60) == "The signature has expired, or the clock was set."


def test_each_start_draws_its_own() -> None:
    assert Credentials.new() != Credentials.new()
    assert "secret" not in repr(CREDENTIALS)
