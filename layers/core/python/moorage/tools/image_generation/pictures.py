"""Format and size from an image's first bytes. Nothing is decoded."""

import struct
from typing import Final

from moorage.dataclass import dataclass

_SOF: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of a JPEG that tell its size (ITU T.81, table B.1)."""


@dataclass(frozen=True, slots=True)
class Picture:
    content: bytes
    format: str
    """``png``, ``jpeg`` or ``webp``."""
    size: str
    """``WIDTHxHEIGHT``."""

    @property
    def media_type(self) -> str:
        return f"image/{self.format}"


def picture_of(content: bytes) -> Picture | None:
    """None for an unknown format."""
    for name, measure in (("png", _png), ("jpeg", _jpeg), ("webp", _webp)):
        try:
            size = measure(content)
        except (struct.error, IndexError):
            size = None
        if size is not None and min(size) > 0:
            return Picture(content, name, f"{size[0]}x{size[1]}")
    return None


def _png(content: bytes) -> tuple[int, int] | None:
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _jpeg(content: bytes) -> tuple[int, int] | None:
    if content[:2] != b"\xff\xd8":
        return None
    at = 2
    while content[at] == 0xFF:
        marker, length = content[at + 1], struct.unpack_from(">H", content, at + 2)[0]
        if marker in _SOF:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return width, height
        at += 2 + length
    return None


def _webp(content: bytes) -> tuple[int, int] | None:
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        return None
    match content[12:16]:
        case b"VP8X":
            return _int24(content, 24) + 1, _int24(content, 27) + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
    return None


def _int24(content: bytes, at: int) -> int:
    return content[at] | content[at + 1] << 8 | content[at + 2] << 16
