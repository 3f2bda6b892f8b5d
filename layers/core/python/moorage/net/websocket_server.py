"""uvicorn's WebSocket protocol, with less work in one turn of the event loop for a frame as large as a body.

For such a frame it copies 32 MiB out of a buffer, unmasks them, decodes them, and the application encodes them again. Each takes ten
milliseconds or more, while all others wait. Only the unmasking is needed here.
"""

from collections.abc import Generator
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.streams import StreamReader

from moorage import limits


class _FrameReader(StreamReader):
    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        while len(self.buffer) < n and not self.eof:
            yield
        if len(self.buffer) != n:
            return (yield from super().read_exact(n))
        whole, self.buffer = self.buffer, bytearray()
        return whole


class WholeFrames(WebSocketsSansIOProtocol):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn.reader = _FrameReader()
        self.conn.parser = self.conn.parse()  # It reads from the reader that it began with.
        next(self.conn.parser)

    def handle_text(self, event: Frame) -> None:
        """A large text stays bytes. The JSON parser, on a thread, sees whether it is UTF-8."""
        if event.fin and len(event.data) > limits.WORKED_HERE_BYTES_MAX:
            self.handle_bytes(event)
        else:
            super().handle_text(event)
