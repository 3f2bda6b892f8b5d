"""Serve the chat page, and pass its messages on to moorage: ``python serve.py [PORT]``.

The key stays in this process. The page gets the events of the response as they come. Whoever reaches the port can use the key, so it
listens on this machine alone; an app for others checks its users here.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from openai import OpenAI, OpenAIError

PAGE = Path(__file__).with_name("index.html").read_bytes()
MESSAGE_BYTES_MAX = 100_000
CLIENT = OpenAI()


class Chat(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._begin(200 if self.path == "/" else 404, "text/html; charset=utf-8")
        if self.path == "/":
            self.wfile.write(PAGE)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        # Only the page of this server may send: another site's page has another origin.
        if self.headers.get("origin", "").partition("://")[2] != self.headers.get("host") or length > MESSAGE_BYTES_MAX:
            self._begin(403, "text/plain")
            return
        message = json.loads(self.rfile.read(length))
        self._begin(200, "text/event-stream")
        try:
            stream = CLIENT.responses.create(
                model=os.environ.get("MOORAGE_MODEL", "demo"),
                input=str(message["input"]),
                previous_response_id=message.get("previous_response_id"),
                tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
                stream=True,
            )
            for event in stream:
                self._send(event.to_json(indent=None))
        except OpenAIError as error:
            self._send(json.dumps({"type": "error", "error": {"message": str(error)}}))

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("cache-control", "no-store")
        self.end_headers()

    def _send(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8765), Chat)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
