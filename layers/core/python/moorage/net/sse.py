"""Server-sent events out of bytes, fed in pieces of any size.

The format is the WHATWG one: lines end in LF, CRLF or CR; ``data:`` lines of one event are joined by LF; an empty line ends the
event; lines that begin with a colon are comments; one byte order mark at the beginning is passed over. Event ids and ``retry:`` play
no part with model upstreams.
"""

import codecs
from dataclasses import field
from typing import NamedTuple

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError


class ServerSentEvent(NamedTuple):
    data: str
    event: str = "message"


@dataclass(slots=True)
class SseParser:
    bytes_max: int = limits.UPSTREAM_EVENT_BYTES_MAX
    """Size of one event, in bytes."""
    _tail: list[bytes] = field(default_factory=list)
    """Pieces of a line that has not ended yet; the last byte may be a CR whose LF is still to come."""
    _tail_size: int = 0
    _data: list[bytes] = field(default_factory=list)
    _event: bytes = b""
    _size: int = 0
    _has_begun: bool = False

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """The events that end in this piece. Raises UpstreamError for an event that outgrows ``bytes_max``."""
        self._tail.append(piece)
        self._tail_size += len(piece)
        if self._size + self._tail_size > self.bytes_max + len(piece):
            raise self._too_large()
        if b"\n" not in piece and b"\r" not in piece and not self._ends_in_cr():
            return []
        whole = b"".join(self._tail)
        held = b"\r" if whole.endswith(b"\r") else b""
        lines = whole.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop() + held
        self._tail, self._tail_size = [rest], len(rest)
        if lines and not self._has_begun:
            self._has_begun = True
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        events: list[ServerSentEvent] = []
        for line in lines:  # Without a call for each line: a stream of tokens has little else.
            if not line:
                if data := b"\n".join(self._data):
                    kind = self._event.decode("utf-8", "replace") or "message"
                    events.append(ServerSentEvent(data.decode("utf-8", "replace"), kind))
                self._data, self._event, self._size = [], b"", 0
                continue
            field_name, _, value = line.partition(b":")  # A comment has no name.
            if field_name == b"data":
                value = value.removeprefix(b" ")
                self._size += len(value) + bool(self._data)  # A line feed joins them: an endless event may have empty lines alone.
                if self._size > self.bytes_max:
                    raise self._too_large()
                self._data.append(value)
            elif field_name == b"event":
                self._event = value.removeprefix(b" ")
        return events

    def _ends_in_cr(self) -> bool:
        return any(part.endswith(b"\r") for part in self._tail[-2:])

    def end(self) -> list[ServerSentEvent]:
        """The stream is over. Some servers forget the last empty line; what they said is not lost."""
        return self.feed(b"\n\n")

    def _too_large(self) -> UpstreamError:
        return UpstreamError(f"The model upstream sent an event of more than {self.bytes_max} bytes.", is_retryable=False)
