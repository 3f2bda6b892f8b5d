"""What the streaming function holds of memory: Lambda ends a function that takes more than its setting, in the middle of an answer.

The model's server is reached over TLS, as on AWS: there what is sent is in memory once more while it is encrypted.
"""

import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from moorage import limits
from moorage.files.store import FileStore
from moorage.store.api_keys import ApiKeys
from moorage.store.dynamodb import DynamoTable
from moorage.store.s3 import S3Blobs

from infra.bundling import ROOT
from infra.config import Config
from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsClients, Ministack, aws_clients, new_table_and_bucket
from tests.tls import certificate
from tests.twin.functions import Environment

RESERVE_MIB: Final = 24
"""For the Web Adapter (a program in Rust of 3 MB) and what Lambda itself puts beside a function."""

_NAMES: Final = ("CLUSTER", "SUBNETS", "SECURITY_GROUP", "TASK_DEFINITION_1G")


class _Model(BaseHTTPRequestHandler):
    """Takes a request of any length, and answers unless it is asked for something else."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        left = int(self.headers["content-length"])
        ending = b""
        while left:
            piece = self.rfile.read(min(left, limits.MIB))
            left, ending = left - len(piece), (ending + piece)[-1000:]
        self.close_connection = True
        if b"fail" in ending:
            self.send_response(400)
            self.end_headers()
            return
        said = [{"content": "Read."}, {}]
        chunks = [{"index": 0, "delta": each, "finish_reason": None if each else "stop"} for each in said]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"".join(b"data: %b\n\n" % json.dumps({"id": "c", "choices": [each]}).encode() for each in chunks))
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@dataclass(frozen=True)
class Place:
    """Where the function finds what it needs."""

    variables: dict[str, str]
    package: Path
    clients: AwsClients


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    tls = certificate(tmp_path, "127.0.0.1")
    model = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    model.socket = tls.wrap_socket(model.socket, server_side=True)
    threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    emulator = Ministack.start()
    try:
        clients = aws_clients(emulator.endpoint)
        table, bucket = new_table_and_bucket(clients)
        package = tmp_path / "package"
        shutil.copytree(ROOT / "functions" / "responses", package)
        url = f"https://127.0.0.1:{model.server_address[1]}/v1"
        (package / "models.toml").write_text(
            f'[[models]]\nname = "m"\nprovider = "chat_completions"\nbase_url = "{url}"\nfiles = true\n'
            "context_window_tokens = 400_000_000\n"
        )
        variables = {
            "AWS_ENDPOINT_URL": emulator.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_LWA_READINESS_CHECK_PATH": "/healthz",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(Config().model_memory_mib),
            "SSL_CERT_FILE": str(tmp_path / "certificate.pem"),
            "MOORAGE_TABLE": table,
            "MOORAGE_BUCKET": bucket,
            "MOORAGE_CONTENT_KEY": "ab" * 32,
            "MOORAGE_PROVISIONER": "fargate",
            **{f"MOORAGE_FARGATE_{name}": "none" for name in _NAMES},
        }
        yield Place(variables, package, clients)
    finally:
        emulator.stop()
        model.shutdown()
        model.server_close()


async def _zeros(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // limits.MIB):
        yield bytes(limits.MIB)


async def test_the_largest_input_has_room_in_the_streaming_function_again_and_again(place: Place) -> None:
    table, bucket = place.variables["MOORAGE_TABLE"], place.variables["MOORAGE_BUCKET"]
    with ThreadPoolExecutor(4) as executor:
        records = DynamoTable(place.clients.dynamodb, table, executor)
        files = FileStore(records, S3Blobs(place.clients.s3, bucket, executor), clock=time.time)
        _, secret = await ApiKeys(records, clock=time.time).create("acme", name="memory")
        sizes = {"largest.pdf": limits.INPUT_FILE_BYTES_MAX, "another.pdf": limits.INPUT_FILE_BYTES_MAX // 2}
        largest, another = [
            await files.create("acme", filename=name, purpose="user_data", chunks=_zeros(size)) for name, size in sizes.items()
        ]
    function = await Environment(place.package, [ROOT / "layers" / "core"], place.variables).ready()
    try:
        for word, ids, ends in (
            ("read", [largest.id], "response.completed"),
            ("fail", [largest.id], "response.failed"),
            ("fail", [largest.id], "response.failed"),
            ("read", [largest.id, another.id], "response.completed"),
        ):
            parts = [{"type": "input_file", "file_id": each} for each in ids]
            content = [*parts, {"type": "input_text", "text": word}]
            body = {"model": "m", "input": [{"role": "user", "content": content}], "stream": True}
            assert await _ending(function, secret, body) == ends, function.log()[-2000:]
        assert function.peak_mib() <= Config().model_memory_mib - RESERVE_MIB
    finally:
        await function.end()


async def _ending(function: Environment, secret: str, body: dict[str, Any]) -> str:
    """The last event of a streamed response."""
    answer = await function.answer(
        {
            "httpMethod": "POST",
            "path": "/v1/responses",
            "multiValueHeaders": {"authorization": [f"Bearer {secret}"], "content-type": ["application/json"]},
            "multiValueQueryStringParameters": None,
            "requestContext": {},
            "body": json.dumps(body),
            "isBase64Encoded": False,
        }
    )
    text = (await answer.aread()).decode()
    await answer.aclose()
    return text.rpartition("event: ")[2].partition("\n")[0]
