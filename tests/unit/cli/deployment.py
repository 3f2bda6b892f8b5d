"""A deployment as far as the command line asks for one: a server on 127.0.0.1 with the answers that a test gives it."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""Status, and JSON or a list of events or a string."""

MODELS: Answer = (200, {"object": "list", "data": [{"id": "demo", "object": "model", "created": 0, "owned_by": "moorage"}]})

CONTAINER: Answer = (200, {"id": "cntr_1"})


def completed(*events: Mapping[str, Any]) -> Answer:
    return 200, [*events, {"type": "response.completed", "sequence_number": 9, "response": {"status": "completed"}}]


def printed(text: str) -> Answer:
    """A response whose command printed this."""
    return 200, {"output": [{"type": "shell_call_output", "output": [{"stdout": text, "stderr": ""}]}]}


def refusal(status: int, message: str) -> Answer:
    return status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


@dataclass
class Deployment:
    answers: dict[str, list[Answer]]
    """By method and path, in order; the last one stays."""
    url: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        return {"MOORAGE_URL": self.url, "MOORAGE_API_KEY": "sk-moorage-test"}

    def answer(self, address: str, body: Any) -> Answer:
        self.requests.append((address, body))
        left = self.answers[address.split("?")[0]]
        return left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def serving(answers: Mapping[str, Answer | list[Answer]]) -> Iterator[Deployment]:
    deployment = Deployment({address: list(one) if isinstance(one, list) else [one] for address, one in answers.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            status, body = deployment.answer(f"{self.command} {self.path}", json.loads(self.rfile.read(length) or b"null"))
            self.send_response(status)
            self.end_headers()
            match body:
                case str():
                    self.wfile.write(body.encode())
                case list():
                    for event in body:
                        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                case _:
                    self.wfile.write(json.dumps(body).encode())

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        deployment.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield deployment
        finally:
            server.shutdown()
            thread.join()
