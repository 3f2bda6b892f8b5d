"""Records as earlier versions wrote them are read as what they were, and written as they were: both run side by side for a while."""

import zlib
from typing import Any

import orjson
import pytest
from moorage.codec import Codec
from moorage.conversations import store as conversations
from moorage.egress import store as egress
from moorage.egress.secrets import SealedSecret
from moorage.state import OUTCOME, Next, PendingCall, StepOutcome
from moorage.store import api_keys, idempotency_keys, keys
from moorage.store.responses import Responses, StoredResponse
from moorage.store.s3 import S3Blobs
from moorage.wire.parameters import Parameters
from moorage.wire.responses import TokenUsage

from tests.unit.store.memory import MemoryTable

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 5},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 9},
    "total_tokens": 120,
}

RECORDS: dict[str, tuple[Codec[Any], dict[str, Any], dict[str, Any], Any]] = {
    "what a step came to": (
        OUTCOME,
        {
            "next": "tools",
            "next_index": 7,
            "calls": [
                {"call_id": "a", "type": "shell_call", "call_index": 2, "output_index": 4, "output_item_id": "sho_1"},
                {"call_id": "b", "type": "x_call", "call_index": 3, "output_index": 3, "output_item_id": "x_1", "where": "service"},
            ],
            "usage": USAGE,
            "calls_made": 2,
            "is_last": True,
            "status": "completed",
            "incomplete_reason": None,
            "service_tier": None,
        },
        {},
        StepOutcome(
            Next.TOOLS,
            7,
            (PendingCall("a", "shell_call", 2, 4, "sho_1"), PendingCall("b", "x_call", 3, 3, "x_1", "service")),
            TokenUsage(100, 20, 60, 5, 9),
            2,
            is_last=True,
        ),
    ),
    "a conversation": (
        conversations._CONVERSATION,
        {"tenant_id": "t", "id": "conv_1", "created_at": 5, "metadata": {"a": "b"}, "batches": 2},
        {},
        conversations.ConversationRecord("t", "conv_1", 5, {"a": "b"}, 2),
    ),
    "a key": (
        api_keys._KEY,
        {"key_id": "key_1", "tenant": "t", "name": "mine", "tier": "", "created_at": 5},
        {},
        api_keys.ApiKey("key_1", "t", "mine", 5),
    ),
    "a repeat": (
        idempotency_keys._CLAIM,
        {
            "request_id": "req_1",
            "claimed_at": 5,
            "digest": "d",
            "stored": False,
            "ended": True,
            "status": 200,
            "content_type": "application/json",
            "body": b"{}",
        },
        {},
        idempotency_keys.IdempotencyClaim(
            "req_1", 5, "d", None, is_stored=False, has_ended=True, status=200, content_type="application/json", body=b"{}"
        ),
    ),
    "a way out": (
        egress._GRANT,
        {"credential_sha256": "c", "domains": ["a.example"], "version": "v", "seal": "s", "wrapped_key": b"w", "ttl": 9},
        {"tenant_id": "t", "container_id": "cntr_1"},
        egress.GrantRecord("t", "cntr_1", "c", ("a.example",), "v", 9, "s", b"w"),
    ),
    "a sealed secret": (
        egress._SECRET,
        {
            "name": "n",
            "domain": "a.example",
            "placeholder": "p",
            "methods": ["GET"],
            "path_prefixes": [],
            "places": ["header"],
            "ciphertext": b"x",
        },
        {},
        SealedSecret("n", "a.example", "p", ("GET",), (), ("header",), b"x"),
    ),
    "the deployment's CA": (
        egress._AUTHORITY,
        {"certificate_pem": "pem", "wrapped_key": b"w", "ciphertext": b"x", "sealed_under": "k"},
        {},
        egress.SealedAuthority("pem", b"w", b"x", "k"),
    ),
    "a decision of the proxy": (
        egress._ENTRY,
        {
            "id": "0000000000001-00000000",
            "at_ms": 1,
            "host": "a.example",
            "port": 443,
            "method": "GET",
            "path": "/",
            "decision": "allowed",
            "reason": "domain",
            "address": None,
            "secrets": ["n"],
            "bytes_sent": 1,
            "bytes_received": 2,
            "count": 1,
            "status": 200,
            "error": None,
        },
        {"tenant_id": "t", "container_id": "cntr_1"},
        egress.EgressLogEntry(
            id="0000000000001-00000000",
            at_ms=1,
            tenant_id="t",
            container_id="cntr_1",
            host="a.example",
            port=443,
            method="GET",
            path="/",
            decision="allowed",
            reason="domain",
            secrets=("n",),
            bytes_sent=1,
            bytes_received=2,
            status=200,
        ),
    ),
}


@pytest.mark.parametrize(("codec", "record", "beside", "value"), RECORDS.values(), ids=RECORDS)
def test_a_record_is_read_as_what_it_was_and_written_as_it_was(
    codec: Codec[Any], record: dict[str, Any], beside: dict[str, Any], value: Any
) -> None:
    assert codec.unpack({"PK": "p", "SK": "s", **record}, **beside) == value
    assert codec.pack(value) == record


@pytest.mark.parametrize(
    ("codec", "record", "value"),
    [
        (
            OUTCOME,
            {**RECORDS["what a step came to"][1], "calls": [], "status": "failed"},
            StepOutcome(Next.TOOLS, 7, (), TokenUsage(100, 20, 60, 5, 9), 2, True, status="failed"),
        ),
        (api_keys._KEY, {"key_id": "key_1", "tenant": "t", "name": "", "created_at": 5}, api_keys.ApiKey("key_1", "t", "", 5)),
        (
            egress._AUTHORITY,
            {"certificate_pem": "pem", "wrapped_key": b"w", "ciphertext": b"x"},
            egress.SealedAuthority("pem", b"w", b"x"),
        ),
    ],
    ids=["a step without a tier", "a key without a tier", "a CA that does not name its key"],
)
def test_what_came_later_is_its_default(codec: Codec[Any], record: dict[str, Any], value: Any) -> None:
    assert codec.unpack({name: inner for name, inner in record.items() if name != "service_tier"}) == value


async def test_a_response_is_read_as_what_it_was_and_written_as_it_was() -> None:
    table = MemoryTable()
    responses = Responses(table, S3Blobs(None, "bucket", None), now_ms=lambda: 8_000, retention_seconds=60)  # type: ignore[arg-type]
    body: dict[str, Any] = {"request": {"model": "m", "temperature": 0.5, "tool_choice": "auto"}, "echo": {"model": "m"}, "input": []}
    record = {
        "PK": keys.response("t", "resp_1"),
        "SK": keys.META,
        "created_at": 5,
        "ancestors": b"",
        "background": True,
        "stream": False,
        "store": True,
        "heartbeat_at_ms": 7_000,
        "ttl": 99,
        "conversation": "conv_1",
        "container": "cntr_1",
        "programs": "python",
        "looping": True,
        "execution": "resp_1",
        "secrets": {"h": "sealed"},
        "body": zlib.compress(orjson.dumps(body), 1),
    }
    stored = StoredResponse(
        "resp_1",
        "t",
        5,
        Parameters("m", temperature=0.5),
        {"model": "m"},
        [],
        (),
        "conv_1",
        "cntr_1",
        "python",
        is_background=True,
        expires_at=99,
        heartbeat_at_ms=7_000,
        is_looping=True,
        execution="resp_1",
        secrets={"h": "sealed"},
        is_owed=False,  # It does not stand on the loop's list.
    )
    await table.put(record)
    assert await responses.load("t", "resp_1") == stored
    table.records.clear()
    await responses.create(stored)
    (written,) = table.records.values()
    listed = {"GSI1PK": keys.INFLIGHT, "GSI1SK": f"T#t#{keys.listed(5, 'resp_1')}"}
    expected = {**record, **listed, "heartbeat_at_ms": 8_000, "body": written["body"]}
    assert written == expected
    assert orjson.loads(zlib.decompress(written["body"])) == {
        **body,
        "request": {**body["request"], "parallel_tool_calls": True, "truncation": "disabled"},
    }
    assert (await responses.inflight_of("t"), await responses.inflight_of("other")) == (["resp_1"], [])
    # An older version put it on the loop's list by its time alone: the reaper ends it all the same.
    await table.put({**written, "GSI1SK": keys.listed(5, "resp_1")})
    assert await responses.inflight() == [("t", "resp_1")]
