"""Bodies in their codings (``Content-Encoding``) undone in bounded pieces, since an echo in a packed body could not be seen.

A few bytes may stand for gigabytes, so an unpacker is a generator that makes the next piece when it is asked for it, and whoever passes
the pieces on asks when the client has taken what went before (``pacing.py``). What bounds a piece, in each coding:

* gzip and deflate: zlib's ``max_length``;
* br: ``output_buffer_limit``, from brotli 1.2 on. Older ones take one byte at a time: it ends one meta-block of 16 MiB at most (RFC
  7932, section 9.2), or a few;
* zstd: a block holds 128 KiB at most and takes four bytes at least (RFC 8878, section 3.1.1.2), so that a few bytes are fed at a time.

Each piece on its way costs the proxy more than its unpacking does. So small ones are gathered, and if many bytes stand for nothing
(empty members, metadata) an empty piece comes in between: then the proxy turns to its other clients.

A body of several members or frames (``cat a.gz b.gz``, bgzip, pigz, pzstd) is one body. One that breaks off, or that is none, is
:class:`UndecodableBody`.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Final

import brotli
import zstandard
from moorage import limits

Unpacker = Callable[[bytes], Iterator[bytes]]
"""Takes the next bytes (``b""``: there are no more) and gives what they stand for; a piece may be empty."""

WITH_WINDOW: Final = frozenset({"br", "zstd"})
"""Codings whose unpackers keep megabytes."""
_CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate", *WITH_WINDOW})
_ZSTD_SLICE_BYTES: Final = 16
_STEPS_MAX: Final = 2_048
"""Calls of a decoder for one piece: some milliseconds."""
_MEMBER: Final = b"\x1f\x8b"


class UndecodableBody(Exception):
    """A body is not in the coding that it says."""


def codings(fields: list[str]) -> tuple[str, ...] | None:
    """The codings of a message, innermost first, from its ``Content-Encoding`` fields; None if one of them cannot be undone here."""
    named = [word.strip().lower() for value in fields for word in value.split(",")]
    packed = tuple(word for word in named if word not in ("", "identity"))
    return packed if len(packed) <= limits.EGRESS_CODINGS_MAX and _CODINGS.issuperset(packed) else None


def unpacker(packed: tuple[str, ...]) -> Unpacker:
    """Undoes ``packed``, the outermost (last) first."""
    first, *rest = [_gathered(_unpacker(coding)) for coding in reversed(packed)]
    unpack = first
    for inner in rest:
        unpack = _chained(unpack, inner)
    return unpack


def _chained(outer: Unpacker, inner: Unpacker) -> Unpacker:
    def unpack(data: bytes) -> Iterator[bytes]:
        for piece in outer(data):
            yield b""
            if piece:
                yield from inner(piece)
        if not data:
            yield from inner(b"")

    return unpack


def _gathered(unpack: Unpacker) -> Unpacker:
    def gather(data: bytes) -> Iterator[bytes]:
        waiting: list[bytes] = []
        length = 0
        for step, piece in enumerate(unpack(data), 1):
            waiting.append(piece)
            length += len(piece)
            if length >= limits.EGRESS_PIECE_BYTES_MAX or not step % _STEPS_MAX:
                yield b"".join(waiting)
                waiting, length = [], 0
        if length:
            yield b"".join(waiting)

    return gather


def _unpacker(coding: str) -> Unpacker:
    match coding:
        case "gzip" | "x-gzip":
            return _Gzip()
        case "deflate":
            return _Deflate()
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
        case _:
            raise AssertionError(f"{coding} was not among the codings")


class _Gzip:
    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._begun = False
        self._between = b""
        """What came behind a member and is not yet known to begin another."""
        self._is_over = False

    def __call__(self, data: bytes) -> Iterator[bytes]:
        if not data:
            if self._begun and not self._member.eof:
                raise UndecodableBody("the gzip body breaks off")
            return
        while data and not self._is_over:
            if self._member.eof and not (data := self._next_member(data)):
                return
            self._begun = True
            yield _inflated(self._member, data)
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def _next_member(self, data: bytes) -> bytes:
        """What begins the next member. What follows the last one and is none is left out, as gzip itself does."""
        data = self._between + data
        if len(data) < len(_MEMBER):
            self._between = data
            return b""
        self._between = b""
        if not data.startswith(_MEMBER):
            self._is_over = True
            return b""
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        return data


class _Deflate:
    """zlib's format as the RFC has it, or the bare one that some servers send (RFC 9110, section 8.4.1.2)."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None
        self._head = b""

    def __call__(self, data: bytes) -> Iterator[bytes]:
        if not data:
            if self._head or (self._stream is not None and not self._stream.eof):
                raise UndecodableBody("the deflate body breaks off")
            return
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if _has_zlib_header(data) else -zlib.MAX_WBITS)
        while data and not self._stream.eof:
            yield _inflated(self._stream, data)
            data = self._stream.unconsumed_tail


def _has_zlib_header(data: bytes) -> bool:
    return data[0] & 0x0F == zlib.DEFLATED and (data[0] << 8 | data[1]) % 31 == 0


def _inflated(stream: "zlib._Decompress", data: bytes) -> bytes:
    try:
        return stream.decompress(data, limits.EGRESS_PIECE_BYTES_MAX)
    except zlib.error as error:
        raise UndecodableBody("the body is not in the coding that it says") from error


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self._begun = False
        self._is_bounded = hasattr(self._stream, "can_accept_more_data")

    def __call__(self, data: bytes) -> Iterator[bytes]:
        if not data:
            if self._begun and not self._stream.is_finished():
                raise UndecodableBody("the br body breaks off")
            return
        self._begun = True
        try:
            yield from self._bounded(data) if self._is_bounded else self._byte_by_byte(data)
        except brotli.error as error:
            raise UndecodableBody("the body is not in the coding that it says") from error

    def _bounded(self, data: bytes) -> Iterator[bytes]:
        piece = self._stream.process(data, output_buffer_limit=limits.EGRESS_PIECE_BYTES_MAX)
        # can_accept_more_data() becomes true while some output is still to come; only an empty piece says that there is none.
        while piece:
            yield piece
            piece = b"" if self._stream.is_finished() else self._stream.process(b"", output_buffer_limit=limits.EGRESS_PIECE_BYTES_MAX)

    def _byte_by_byte(self, data: bytes) -> Iterator[bytes]:
        for at in range(len(data)):
            piece = self._stream.process(data[at : at + 1])
            for start in range(0, max(1, len(piece)), limits.EGRESS_PIECE_BYTES_MAX):
                yield piece[start : start + limits.EGRESS_PIECE_BYTES_MAX]


class _Zstd:
    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=limits.EGRESS_ZSTD_WINDOW_BYTES_MAX)
        self._frame = self._decompressor.decompressobj()
        self._begun = False

    def __call__(self, data: bytes) -> Iterator[bytes]:
        if not data and self._begun and not self._frame.eof:
            raise UndecodableBody("the zstd body breaks off")
        for at in range(0, len(data), _ZSTD_SLICE_BYTES):
            rest = data[at : at + _ZSTD_SLICE_BYTES]
            while rest:
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj()
                self._begun = True
                try:
                    yield self._frame.decompress(rest)
                except zstandard.ZstdError as error:
                    raise UndecodableBody("the body is not in the coding that it says") from error
                rest = self._frame.unused_data if self._frame.eof else b""
