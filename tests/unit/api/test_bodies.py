"""Bodies of requests, as they come over the wire."""

import gzip
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from moorage import limits
from moorage.telemetry import open_log

from tests.opened_logs import close_log
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab

HEADERS = [(b"authorization", b"Bearer key-a"), (b"content-type", b"application/json")]


class Client:
    """It sends a body in pieces, which it makes as they are asked for, and may leave before it has sent them all."""

    def __init__(self, pieces: Iterator[bytes], *, is_packed: bool = False) -> None:
        self._pieces = pieces
        self._headers = [*HEADERS, (b"content-encoding", b"gzip")] if is_packed else HEADERS
        self.sent = 0
        self.answer: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        piece = next(self._pieces, None)
        if piece is None:
            return {"type": "http.disconnect"}
        self.sent += len(piece)
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(self, message: Any) -> None:
        self.answer.append(message)

    async def ask(self, served: Served, path: str = "/v1/responses") -> None:
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode()}
        rest = {"query_string": b"", "root_path": "", "headers": self._headers, "client": None, "server": None}
        await served.app({**scope, **rest}, self.receive, self.send)

    @property
    def code(self) -> Any:
        return json.loads(self.answer[1]["body"])["error"]["code"]


async def test_a_client_that_leaves_within_its_body_is_no_error() -> None:
    client, log = Client(iter([b'{"model": "m", '])), io.StringIO()
    handler = open_log(log)
    try:
        await client.ask(Served.of(Lab()))
    finally:
        close_log(handler)
    assert client.answer == []
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["message"], line["level"], line["status"]) for line in lines] == [("request", "INFO", 499)]


@pytest.mark.parametrize(
    ("member", "code", "bytes_max"),
    [
        (gzip.compress(b""), "invalid_body", limits.GZIP_MEMBERS_MAX * 24),
        (gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 10_000, "request_too_large", limits.REQUEST_BODY_BYTES_MAX + 60_000),
    ],
    ids=["members", "blocks"],
)
async def test_a_packed_body_that_unpacks_to_nothing_ends(member: bytes, code: str, bytes_max: int) -> None:
    def endless() -> Iterator[bytes]:
        yield member
        while True:
            yield member if code == "invalid_body" else member[10:]

    client = Client(endless(), is_packed=True)
    await client.ask(Served.of(Lab()))
    assert (client.code, client.sent <= bytes_max) == (code, True)
