"""One request and its answer as they pass: counted, and searched for echoes of secrets without being held back."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import brotli
import zstandard
from mitmproxy import http
from moorage.egress.store import Entry
from moorage.egress.substitution import Scrubber

_PIECE_BYTES_MAX = 1 << 20
"""Decompressed at a time, so that a small answer cannot blow up the proxy."""


@dataclass(slots=True)
class Exchange:
    entry: Entry
    scrubber: Scrubber = field(repr=False)
    bytes_sent: int = 0
    bytes_received: int = 0

    def count_request(self, data: bytes) -> bytes:
        self.bytes_sent += len(data)
        return data

    def scrub_head(self, response: http.Response) -> None:
        """Mask echoes in the status line and the headers, and let the body follow through :meth:`body`."""
        if self.scrubber:
            response.data.reason = self.scrubber.text(response.data.reason)
            response.headers.fields = tuple(
                (self.scrubber.text(name), self.scrubber.text(value)) for name, value in response.headers.fields
            )

    def body(self, response: http.Response, *, is_http1: bool) -> Callable[[bytes], Iterator[bytes]]:
        """The function that the body streams through. A compressed one is unpacked, since an echo in it could not be seen."""
        unpacker = _unpacker(response.headers.get("content-encoding", "")) if self.scrubber else None
        if unpacker is None:
            return self._plain
        for name in ("content-encoding", "content-length", "etag", "digest", "content-digest", "content-md5"):
            response.headers.pop(name, None)
        if is_http1:
            response.headers["transfer-encoding"] = "chunked"
        return lambda data: self._unpacked(unpacker, data)

    def _plain(self, data: bytes) -> Iterator[bytes]:
        self.bytes_received += len(data)
        # mitmproxy would write an empty piece as the chunk that ends the body.
        if passed := self.scrubber.chunk(data) if self.scrubber else data:
            yield passed

    def _unpacked(self, unpack: "Unpacker", data: bytes) -> Iterator[bytes]:
        self.bytes_received += len(data)
        for piece in unpack(data) if data else ():
            if piece and (scrubbed := self.scrubber.chunk(piece)):
                yield scrubbed
        if not data and (rest := self.scrubber.chunk(b"")):
            yield rest


class Unpacker(Protocol):
    def __call__(self, data: bytes, /) -> Iterator[bytes]: ...


def _unpacker(encoding: str) -> Unpacker | None:
    """None if the body is plain, or packed in a way that nobody here can undo (the request asked for a plain one)."""
    match encoding.strip().lower():
        case "gzip" | "x-gzip":
            return _zlib(zlib.MAX_WBITS | 16)
        case "deflate":
            return _zlib(zlib.MAX_WBITS)
        case "br":
            brotli_unpacker = brotli.Decompressor()
            return lambda data: iter([brotli_unpacker.process(data)])
        case "zstd":
            zstd_unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            return lambda data: iter([zstd_unpacker.decompress(data)])
        case _:
            return None


def _zlib(window_bits: int) -> Unpacker:
    unpacker = zlib.decompressobj(window_bits)

    def unpack(data: bytes) -> Iterator[bytes]:
        while data and not unpacker.eof:
            yield unpacker.decompress(data, _PIECE_BYTES_MAX)
            data = unpacker.unconsumed_tail

    return unpack
