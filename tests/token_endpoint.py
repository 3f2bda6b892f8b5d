"""A small OAuth token endpoint on this machine: it refreshes tokens (RFC 6749, section 6), each refresh token once, and can be told to
be slow or wrong."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus

CLIENT = ("moorage", "client & secret")


@dataclass
class TokenEndpoint:
    port: int = 0
    refresh_token: str = "refresh-0"
    """The one that it takes next."""
    expires_in: Any = 3_600
    rotates: bool = True
    """Each refresh token is taken once, and another one comes with the answer."""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    """What it says instead, in order; bytes as they are."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The forms that came, with the ``authorization`` header in clear."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    has_been_asked: threading.Event = field(default_factory=threading.Event)
    given: int = 0

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/token"

    def answer(self, form: dict[str, str]) -> tuple[int, Any]:
        self.asked.append(form)
        self.has_been_asked.set()
        assert self.may_answer.wait(30), "nobody lets it answer"
        if self.answers:
            return self.answers.pop(0)
        if form["refresh_token"] != self.refresh_token:
            return 400, {"error": "invalid_grant", "error_description": f"used up: {form['refresh_token']}"}
        self.given += 1
        said: dict[str, Any] = {"access_token": f"access-{self.given}", "token_type": "Bearer", "expires_in": self.expires_in}
        if self.rotates:
            self.refresh_token = f"refresh-{self.given}"
            said["refresh_token"] = self.refresh_token
        return 200, said


@contextmanager
def token_endpoint() -> Iterator[TokenEndpoint]:
    endpoint = TokenEndpoint()
    endpoint.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode(), strict_parsing=True)
            words = {name: values[0] for name, values in form.items()}
            if self.headers["authorization"] is not None:
                pair = base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode()
                words["authorization"] = unquote_plus(pair)
            status, said = endpoint.answer(words)
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if status == 302:
                self.send_header("location", endpoint.url)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.may_answer.set()
            server.shutdown()
            thread.join()
