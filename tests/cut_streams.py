"""An address of the service whose streams of sessions are cut at every event, and go on behind it.

What a client reads as one stream comes over as many connections as it has events. They are asked for by ``Last-Event-ID`` and by
``?after=`` in turn. The stream of a create goes on as that of its session.
"""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx

from tests.stack import Stack

_SILENCE: Final = httpx.Timeout(60, read=5.0)
"""A connection that says nothing for so long is cut as well."""
_PASSED_ON: Final = ("accept", "authorization", "content-type", "idempotency-key", "last-event-id")


@dataclass
class Cuts:
    url: str = ""
    connections: int = 0
    """To the service, for streams."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, http: httpx.Client, cuts: Cuts) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.http, self.cuts = http, cuts


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        # A first connection from now on has no place to go on behind.
        with self.server.http.stream(self.command, self.path, headers=headers, content=body, timeout=60) as answer:
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers.get("content-type", "application/json"))
            self.send_header("connection", "close")
            self.end_headers()
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                self.wfile.write(answer.read())
                return
            self.server.cuts.connections += 1
            last = self._one_event(answer)
        events = self.path.partition("?")[0]
        ends_with_its_turn = self.command == "POST"
        if ends_with_its_turn:
            events = f"/agents/sessions/{json.loads(last['data'])['session']['id']}/events"
        while last and not (ends_with_its_turn and last["event"] == "agent.session.idle") and not self._is_left():
            self.server.cuts.connections += 1
            after: dict[str, Any] = {"params": {"after": last["id"]}, "headers": headers}
            if self.server.cuts.connections % 2:
                after = {"headers": headers | {"last-event-id": last["id"]}}
            with self.server.http.stream("GET", events, timeout=_SILENCE, **after) as answer:
                try:
                    last = self._one_event(answer)
                except httpx.ReadTimeout:
                    continue

    def _one_event(self, answer: httpx.Response) -> dict[str, str]:
        """Its fields, once it was passed on; none at the end."""
        found: dict[str, str] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                self.wfile.write(b": alive\n")
            elif line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif found:
                self.wfile.write("".join(f"{name}: {value}\n" for name, value in found.items()).encode() + b"\n")
                return found
        return {}

    def _is_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def do_any(self) -> None:
        try:
            self.pass_on()
        except (BrokenPipeError, ConnectionResetError, httpx.TransportError):
            self.close_connection = True

    do_GET = do_POST = do_DELETE = do_any

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def cutting(stack: Stack) -> Iterator[Cuts]:
    cuts = Cuts()
    with httpx.Client(base_url=stack.url) as http:
        server = _Server(http, cuts)
        cuts.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield cuts
        finally:
            server.shutdown()
            server.server_close()


def told(stack: Stack, session_id: str, idles: int) -> list[dict[str, Any]]:
    """All events of a session from its beginning, by one connection, until it was idle so many times."""
    found: list[dict[str, Any]] = []
    query = {"include_obfuscation": "false", "after": "0"}
    with stack.http() as http, http.stream("GET", f"/agents/sessions/{session_id}/events", params=query) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if [event["type"] for event in found].count("agent.session.idle") == idles:
                    return found
    raise AssertionError("the stream has ended")


def stories(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["event_id"], event["type"]) for event in events]
