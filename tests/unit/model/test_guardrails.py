"""Bedrock's guardrails: what a model's request says of one, and how an answer ends in which it has intervened."""

from typing import Any

import botocore.session
import botocore.validate
import httpx
import orjson
import pytest
from moorage.model import base
from moorage.model.base import Delta, ModelRequest
from moorage.model.catalog import ModelCatalog

from tests.unit.model.encodings import aws_frame

ARN = "arn:aws:bedrock:us-east-1:111122223333:guardrail/abc123def456"
BLOCKED = "Sorry, that cannot be answered."
INTERVENED = b"".join(
    [
        aws_frame({"role": "assistant"}, event_type="messageStart"),
        aws_frame({"delta": {"text": BLOCKED}, "contentBlockIndex": 0}, event_type="contentBlockDelta"),
        aws_frame({"contentBlockIndex": 0}, event_type="contentBlockStop"),
        aws_frame({"stopReason": "guardrail_intervened"}, event_type="messageStop"),
        aws_frame({"usage": {"inputTokens": 3, "outputTokens": 0}, "metrics": {"latencyMs": 1}}, event_type="metadata"),
    ]
)


async def asked(guardrail: str | None) -> tuple[dict[str, Any], list[Delta]]:
    """The body that Bedrock gets of a model with this guardrail, and what its answer becomes."""
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(orjson.loads(request.content))
        return httpx.Response(200, headers={"content-type": "application/vnd.amazon.eventstream"}, stream=httpx.ByteStream(INTERVENED))

    named = f"guardrail = '{guardrail}'\n" if guardrail else ""
    text = f"[[models]]\nname = 'm'\nprovider = 'bedrock_converse'\nregion = 'us-east-1'\nkey = 'env:KEY'\n{named}"
    catalog = ModelCatalog.load(text, {"KEY": "k3y"})
    provider = catalog.provider(catalog.resolve("m"), httpx.MockTransport(answer))
    deltas = [delta async for delta in provider.stream(ModelRequest(model="m", items=({"role": "user", "content": "hello"},)))]
    (body,) = bodies
    return body, deltas


@pytest.mark.parametrize(("guardrail", "identifier", "version"), [("abc123:1", "abc123", "1"), (f"{ARN}:DRAFT", ARN, "DRAFT")])
async def test_each_request_names_the_models_guardrail(guardrail: str, identifier: str, version: str) -> None:
    body, _ = await asked(guardrail)
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "hello"}]}],
        "guardrailConfig": {"guardrailIdentifier": identifier, "guardrailVersion": version, "streamProcessingMode": "sync"},
    }
    shape = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
    assert shape is not None
    assert botocore.validate.ParamValidator().validate({"modelId": "m", **body}, shape).generate_report() == ""


async def test_without_a_guardrail_a_request_names_none() -> None:
    body, _ = await asked(None)
    assert "guardrailConfig" not in body


async def test_an_intervention_ends_the_answer_with_its_words_as_a_filter_does() -> None:
    _, deltas = await asked("abc123:1")
    words = [delta for delta in deltas if isinstance(delta, base.TextDelta)]
    assert (words, deltas[-1]) == ([base.TextDelta(BLOCKED)], base.StreamFinished("content_filter"))
