"""A TCP relay to the stack that notes the request lines, and a client's frames on a WebSocket, so that a program can tell how its
client spoke."""

import selectors
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_WHOLE_TEXT = 0x81


class Relay:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.requests: set[str] = set()
        self.frames: list[str] = []
        """Texts of uncompressed frames."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            rest = b""
            while True:
                for key, _ in ready.select():
                    source, sink = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    data = source.recv(65_536)
                    if not data:
                        return
                    if source is client and data.startswith((b"GET ", b"POST ")):
                        self.requests.add(b" ".join(data.split(b" ", 2)[:2]).decode())
                    elif source is client:
                        rest = self._note_frames(rest + data)
                    sink.sendall(data)

    def _note_frames(self, data: bytes) -> bytes:
        """Take the whole frames off, and answer what is left (RFC 6455, section 5.2: what a client sends is masked)."""
        while len(data) >= 2:
            start, size = {126: (4, data[2:4]), 127: (10, data[2:10])}.get(data[1] & 127, (2, bytes([data[1] & 127])))
            end = start + 4 + int.from_bytes(size)
            if len(data) < end:
                break
            mask, masked = data[start : start + 4], data[start + 4 : end]
            if data[0] == _WHOLE_TEXT:
                self.frames.append(bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked)).decode())
            data = data[end:]
        return data
