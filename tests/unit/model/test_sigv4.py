"""Requests signed with IAM credentials."""

from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from moorage.errors import UpstreamError
from moorage.model.base import ModelRequest
from moorage.model.bedrock_converse import BedrockConverse
from moorage.model.http import Upstream
from moorage.net.sigv4 import AwsAuth

from tests.unit.model.encodings import CONVERSE, Said, answer, folded, hello, replies

CREDENTIALS = Credentials("AKIDEXAMPLE", "secret", "session-token")


def served(auth: AwsAuth, seen: list[httpx.Request]) -> BedrockConverse:
    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return replies(CONVERSE, CONVERSE.encode(answer(Said(("ok",)))))

    transport = httpx.MockTransport(handler)
    return BedrockConverse(Upstream(transport, "https://bedrock-runtime.eu-west-1.amazonaws.com", auth=auth, retries_max=0))


async def test_a_signature_is_the_one_that_botocore_makes_for_the_same_request() -> None:
    seen: list[httpx.Request] = []
    auth = AwsAuth(lambda: CREDENTIALS, "bedrock", "eu-west-1")
    request = ModelRequest("eu.anthropic.claude-haiku-4-5-20251001-v1:0", hello().items)
    assert folded([delta async for delta in served(auth, seen).stream(request)]).items == (("message", "ok"),)
    (sent,) = seen
    path = "/model/eu.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse-stream"
    assert str(sent.url) == f"https://bedrock-runtime.eu-west-1.amazonaws.com{path}"
    assert sent.headers["x-amz-security-token"] == "session-token"
    assert sent.headers["authorization"] == _signature(sent)


def _signature(sent: httpx.Request) -> str:
    """What botocore signs for the request, at the time that the request was signed."""
    again = AWSRequest("POST", str(sent.url), data=sent.content, headers={"content-type": "application/json", "host": sent.url.host})
    again.context["timestamp"] = sent.headers["x-amz-date"]
    again.headers["X-Amz-Date"] = sent.headers["x-amz-date"]
    again.headers["X-Amz-Security-Token"] = "session-token"
    signer = SigV4Auth(CREDENTIALS.get_frozen_credentials(), "bedrock", "eu-west-1")
    canonical = signer.canonical_request(again)
    signature = signer.signature(signer.string_to_sign(again, canonical), again)
    names = signer.signed_headers(signer.headers_to_sign(again))
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(again)}, SignedHeaders={names}, Signature={signature}"


def _raises() -> Any:
    raise BotoCoreError


@pytest.mark.parametrize(("credentials", "words"), [(lambda: None, "no AWS credentials"), (_raises, "could not be loaded")])
async def test_without_credentials_the_error_says_so(credentials: Any, words: str) -> None:
    provider = served(AwsAuth(credentials, "bedrock", "eu-west-1"), [])
    with pytest.raises(UpstreamError, match=words):
        [delta async for delta in provider.stream(hello())]


def test_credentials_are_in_no_repr() -> None:
    assert "secret" not in repr(AwsAuth(lambda: CREDENTIALS, "bedrock", "eu-west-1"))
