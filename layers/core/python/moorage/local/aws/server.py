"""The emulator's process: one gate, and behind it the table and the bucket.

It is given its folder, its listening socket (a descriptor's number) and, by the environment, the credentials of the start. At SIGTERM
it ends as soon as what was begun is on disk.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

import orjson
import uvicorn

from moorage.local.aws import bucket
from moorage.local.aws.bucket import BucketService
from moorage.local.aws.gate import Asked, Credentials, Gate
from moorage.local.aws.journal import Journal, NoRoom
from moorage.local.aws.leftovers import Leftovers
from moorage.local.aws.table import TableService
from moorage.local.aws.takeover import take_over
from moorage.local.processes import REFUSED_WRITES

JOURNAL: Final = "journal.sqlite"
_TABLE_TARGET: Final = "DynamoDB_20120810."
_UNKNOWN: Final = "There are a table and a bucket here, and nothing else of AWS."
_BODY_BYTES_MAX: Final = 256 * 1024 * 1024
_HOUSEKEEPING_SECONDS: Final = 5.0
_NO_ROOM: Final = "There is no room on the disk that holds the state: nothing of this write was kept."
_log: Final = logging.getLogger(__name__)


class Emulator:
    """The ASGI application."""

    def __init__(self, journal: Journal, gate: Gate, objects: Path) -> None:
        self.journal = journal
        self._gate = gate
        self._table = TableService(journal)
        self._bucket = BucketService(journal, objects)
        self._leftovers = Leftovers(journal)

    async def prepare(self) -> None:
        await self._bucket.tidy()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            await _answer(send, 413, {}, b"")
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        asked = Asked(scope["method"], path, scope["query_string"].decode("latin-1"), headers, body)
        refusal = self._gate.refusal(asked)
        if refusal is not None:
            await _answer(send, 403, _JSON, orjson.dumps({"__type": "AccessDeniedException", "message": refusal}))
            return
        target = headers.get("x-amz-target", "")
        is_bucket = "/s3/aws4_request" in headers["authorization"]
        try:
            if target.startswith(_TABLE_TARGET):
                status, answer = await self._table.handle(target.removeprefix(_TABLE_TARGET), body)
                await _answer(send, status, _JSON, orjson.dumps(answer))
            elif is_bucket:
                await self._serve_bucket(asked, send)
            else:
                await _answer(send, 400, _JSON, orjson.dumps({"__type": "UnknownOperationException", "message": _UNKNOWN}))
        except NoRoom:
            await self._refuse_write(send, is_xml=is_bucket)

    async def _serve_bucket(self, asked: Asked, send: Any) -> None:
        answer = await self._bucket.handle(bucket.Request(asked.method, asked.path, asked.query, asked.headers, asked.body))
        if isinstance(answer.body, bytes):
            length = {} if "content-length" in answer.headers else {"content-length": str(len(answer.body))}
            await _answer(send, answer.status, {**answer.headers, **length}, answer.body)
            return
        await _start(send, answer.status, answer.headers)
        async with contextlib.aclosing(answer.body) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _refuse_write(self, send: Any, *, is_xml: bool) -> None:
        if is_xml:
            refused = bucket.Refused(507, "InsufficientStorage", _NO_ROOM).answer()
            assert isinstance(refused.body, bytes)
            await _answer(send, refused.status, refused.headers, refused.body)
        else:
            await _answer(send, 507, _JSON, orjson.dumps({"__type": "InsufficientStorage", "message": _NO_ROOM}))

    async def keep_house(self) -> None:
        """Until it is cancelled: what has expired goes."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            try:
                await self._leftovers.expire(time.time())
                await self._leftovers.sweep(time.time())
                await self._bucket.sweep(time.time())
            except NoRoom:
                continue
            except Exception:
                _log.exception("the emulator stumbled over its housekeeping")


_JSON: Final = {"content-type": "application/x-amz-json-1.0"}


async def _body(receive: Any) -> bytes | None:
    """None if it is too long."""
    pieces, size = [], 0
    while True:
        message = await receive()
        piece = message.get("body", b"")
        size += len(piece)
        if size > _BODY_BYTES_MAX:
            return None
        pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces)


async def _start(send: Any, status: int, headers: Any) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _answer(send: Any, status: int, headers: Any, body: bytes) -> None:
    await _start(send, status, headers if "content-length" in headers else {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """Leaves signals to :func:`serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def serve(state_dir: Path, listener: socket.socket, credentials: Credentials) -> int:
    """Serve until SIGTERM; answers the exit code."""
    loop = asyncio.get_running_loop()
    host, port = listener.getsockname()
    journal = Journal(state_dir / JOURNAL)
    await take_over(state_dir, journal)
    emulator = Emulator(journal, Gate(credentials, f"{host}:{port}"), state_dir)
    await emulator.prepare()
    config = uvicorn.Config(
        emulator, log_level="warning", access_log=False, lifespan="off", http="httptools", ws="none", timeout_keep_alive=300
    )
    serving = asyncio.create_task(_Server(config).serve(sockets=[listener]))
    house = asyncio.create_task(emulator.keep_house())
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await asyncio.wait({serving, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    house.cancel()
    await journal.drain()
    return REFUSED_WRITES if journal.is_refusing else 0


def main() -> None:
    state_dir, listener = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    credentials = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(_serve_and_end(state_dir, listener, credentials))


async def _serve_and_end(state_dir: Path, listener: socket.socket, credentials: Credentials) -> None:
    """Ends the process, which holds nothing that is not stored."""
    code = await serve(state_dir, listener, credentials)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
