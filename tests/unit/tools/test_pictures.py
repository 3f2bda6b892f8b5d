"""What an image's first bytes say. The JPEG and WebP headers are written by hand from their standards."""

import struct

import pytest
from moorage.tools.image_generation.pictures import Picture, picture_of

from tests.drawing import VAST, png

JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0\1\1\0\0\1\0\1\0\0"
    b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 40, 60, 3) + bytes(9)
)
_VP8 = b"RIFF\0\0\0\0WEBPVP8 " + bytes(4) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 60, 40)
_VP8L = b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 59 | 39 << 14)
_VP8X = b"RIFF\0\0\0\0WEBPVP8X" + bytes(4) + bytes(4) + (59).to_bytes(3, "little") + (39).to_bytes(3, "little")

KNOWN = {
    "png": (png("a", 60, 40), "png"),
    "jpeg": (JPEG, "jpeg"),
    "webp, with loss": (_VP8, "webp"),
    "webp, without": (_VP8L, "webp"),
    "webp, extended": (_VP8X, "webp"),
}


@pytest.mark.parametrize(("content", "format_"), KNOWN.values(), ids=KNOWN)
def test_a_pictures_format_and_size_are_read_off_its_head(content: bytes, format_: str) -> None:
    found = picture_of(content)
    assert found is not None
    assert (found.format, found.size, found.media_type) == (format_, "60x40", f"image/{format_}")


@pytest.mark.parametrize("content", [each[0] for each in KNOWN.values()], ids=KNOWN)
def test_a_head_that_is_cut_off_is_no_picture_and_no_crash(content: bytes) -> None:
    sizes = {None if (found := picture_of(content[:length])) is None else found.size for length in range(len(content))}
    assert sizes <= {None, "60x40"}


@pytest.mark.parametrize(("kind", "side"), [("png", 2**31 - 1), ("jpeg", 2**16 - 1), ("webp", 2**24)], ids=["png", "jpeg", "webp"])
def test_a_vast_picture_is_measured_and_not_decoded(kind: str, side: int) -> None:
    assert picture_of(VAST[kind]) == Picture(VAST[kind], kind, f"{side}x{side}")


NO_PICTURES = {
    "nothing": b"",
    "text": b"hello",
    "a gif": b"GIF89a" + bytes(20),
    "a png of no width": png("a")[:16] + bytes(8),
    "a jpeg without a frame": b"\xff\xd8\xff\xd9",
}


@pytest.mark.parametrize("content", NO_PICTURES.values(), ids=NO_PICTURES)
def test_what_is_no_picture_is_none(content: bytes) -> None:
    assert picture_of(content) is None
