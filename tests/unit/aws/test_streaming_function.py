"""The streaming function, started by its own start command as the Lambda Web Adapter does it on AWS.

The adapter exists only there. What it does is small: start ``run.sh``, ask the readiness path until it answers, then turn each
invocation into one request on the port, with the invocation's context as headers, and pass bytes on as they come.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from moorage.store.api_keys import ApiKeys
from moorage.store.dynamodb import DynamoTable
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack, aws_clients, new_table_and_bucket

FUNCTION = Path(__file__).resolve().parents[3] / "functions" / "responses"
READINESS_PATH = "/healthz"
_START_SECONDS_MAX = 30
CONTEXT = {"x-amzn-request-context": json.dumps({"requestId": "r", "authorizer": {"tenantId": "somebody-else"}})}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
async def function(emulator: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with started(emulator, tmp_path_factory.mktemp("task")) as client:
        yield client


@asynccontextmanager
async def started(emulator: Ministack, task_root: Path) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the running function, with a key."""
    clients = aws_clients(emulator.endpoint)
    table_name, bucket_name = new_table_and_bucket(clients)
    with ThreadPoolExecutor(1) as executor:
        _, key = await ApiKeys(DynamoTable(clients.dynamodb, table_name, executor), clock=time.time).create("acme")
    for each in (clients.dynamodb, clients.s3, clients.stepfunctions, clients.lambda_):
        each.close()
    shutil.copytree(FUNCTION, task_root, dirs_exist_ok=True)
    (task_root / "models.toml").touch()
    port = _free_port()
    process = subprocess.Popen(
        ["./run.sh"],
        cwd=task_root,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "AWS_LWA_PORT": str(port),
            "AWS_ENDPOINT_URL": emulator.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_DEFAULT_REGION": REGION,
            "MOORAGE_TABLE": table_name,
            "MOORAGE_BUCKET": bucket_name,
            "MOORAGE_STATE_MACHINE_ARN": f"arn:aws:states:{REGION}:000000000000:stateMachine:none",
            "MOORAGE_CONTENT_KEY": "00" * 32,
            "MOORAGE_PROVISIONER": "launcher",
            "MOORAGE_LAUNCHER_SOCKET": str(task_root / "none.sock"),
            "MOORAGE_JSON_SILENCE_SECONDS": "1",
        },
        start_new_session=True,
    )
    base_url = f"http://127.0.0.1:{port}"
    try:
        _await_readiness(base_url, process)
        headers = {"authorization": f"Bearer {key}", **CONTEXT}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=30, trust_env=False) as client:
            yield client
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_readiness(base_url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, "the start command ended"
        try:
            if httpx.get(base_url + READINESS_PATH, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"nothing answered on {READINESS_PATH}")


def spoken(text: str, delta_ms: int) -> dict[str, Any]:
    """A streaming request to the demo model, with so much silence before each delta."""
    script = json.dumps([{"delta_ms": delta_ms}, {"say": text}])
    return {"model": "demo", "input": f"```moorage-script\n{script}\n```", "stream": True}


def events_in(data: bytes) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: "))
        for block in data.decode().split("\n\n")
        for line in block.splitlines()
        if line.startswith("data: {")
    ]


async def test_events_arrive_while_the_model_speaks(function: httpx.AsyncClient) -> None:
    arrivals: list[tuple[float, list[dict[str, Any]]]] = []
    async with function.stream("POST", "/v1/responses", json=spoken("one two three four five six", 60)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for chunk in answer.aiter_raw():
            arrivals.append((time.monotonic(), events_in(chunk)))
    events = [event for _, found in arrivals for event in found]
    deltas = [at for at, found in arrivals for event in found if event["type"] == "response.output_text.delta"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    assert arrivals[0][1][0]["type"] == "response.created"
    assert len(deltas) >= 4
    assert deltas[-1] - deltas[0] > 0.06 * (len(deltas) - 2), "the deltas came together: something holds them back"


async def test_a_stream_is_resumed_after_the_event_that_was_seen_last(function: httpx.AsyncClient) -> None:
    whole = events_in((await function.post("/v1/responses", json=spoken("one two three", 0))).content)
    response_id = whole[0]["response"]["id"]
    again = await function.get(f"/v1/responses/{response_id}", params={"stream": "true", "starting_after": "3"})
    rest = events_in(again.content)
    assert [event["sequence_number"] for event in rest] == [event["sequence_number"] for event in whole[4:]]
    assert [event["type"] for event in rest] == [event["type"] for event in whole[4:]]


async def test_a_client_that_goes_away_harms_nobody(function: httpx.AsyncClient) -> None:
    async with function.stream("POST", "/v1/responses", json=spoken("one two three four five six", 60)) as answer:
        async for _ in answer.aiter_raw():
            break
    other = await function.post("/v1/responses", json={"model": "demo", "input": "still there?"})
    assert other.json()["status"] == "completed"


def slow(*steps: dict[str, Any]) -> dict[str, Any]:
    """A create without a stream whose model says nothing for longer than the function keeps silent."""
    return {"model": "demo", "input": f"```moorage-script\n{json.dumps([{'sleep_ms': 2500}, *steps])}\n```"}


async def patient(function: httpx.AsyncClient, request: dict[str, Any]) -> tuple[bytes, Response]:
    """What the official SDK makes of the answer, and what came before the JSON."""
    key = function.headers["authorization"].removeprefix("Bearer ")
    async with AsyncOpenAI(base_url=f"{function.base_url}/v1", api_key=key, max_retries=0) as sdk:
        raw = await sdk.responses.with_raw_response.create(**request)
    return raw.content[: raw.content.index(b"{")], raw.parse()


async def test_a_long_create_without_a_stream_begins_with_white_space(function: httpx.AsyncClient) -> None:
    arrivals: list[tuple[float, bytes]] = []
    async with function.stream("POST", "/v1/responses", json=slow({"say": "at last"})) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        async for chunk in answer.aiter_raw():
            arrivals.append((time.monotonic(), chunk))
    assert arrivals[0][1] == b" "
    assert arrivals[-1][0] - arrivals[0][0] > 1, "the white space came with the answer: it kept nothing awake"
    space, response = await patient(function, slow({"say": "at last"}))
    assert (space, response.status, response.output_text) == (b" ", "completed", "at last")


async def test_a_model_that_fails_after_the_white_space_is_a_failed_response(function: httpx.AsyncClient) -> None:
    space, response = await patient(function, slow({"fail": {"status": 400, "times": 0}}, {"say": "never"}))
    assert response.error is not None
    assert (space, response.status, response.error.code) == (b" ", "failed", "invalid_prompt")


async def test_whatever_breaks_after_the_white_space_is_a_failed_response(tmp_path: Path) -> None:
    emulator = Ministack.start()
    try:
        async with started(emulator, tmp_path) as function:
            create = asyncio.create_task(patient(function, slow({"say": "nowhere to be written"})))
            await asyncio.sleep(1.5)  # The answer has begun, the model has not.
            emulator.stop()
            space, response = await create
    finally:
        emulator.stop()
    assert response.error is not None
    assert (space.strip(), response.object, response.status, response.error.code) == (b"", "response", "failed", "server_error")


async def test_the_key_says_who_calls_not_the_gateways_context(function: httpx.AsyncClient) -> None:
    answer = await function.get("/v1/models", headers={"authorization": "Bearer sk-moorage-unknown"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
