"""JSON of any size as the bytes of a record or an object.

What is short is packed where it stands. What is long is written, packed and unpacked on a thread: zlib lets the event loop go on, and a
neighbour has its turn between two records. Nobody may change a value until it is packed.
"""

import zlib
from typing import Any, Final

import orjson

from moorage import limits
from moorage.parallel import outweighs, worked

_WINDOW_BITS_MIN: Final = 9
_WINDOW_BITS_OVER_MEMORY: Final = 7
"""zlib's own distance: a window of 15 bits and a memory level of 8."""


async def packed(value: Any, level: int = 1) -> bytes:
    if outweighs([value], limits.LOWERED_HERE_MAX):
        return await worked(lambda: _packed(value, level))
    body = orjson.dumps(value)
    if len(body) <= limits.PACKED_HERE_BYTES_MAX:
        return _compressed(body, level)
    return await worked(lambda: _compressed(body, level))


def _packed(value: Any, level: int) -> bytes:
    return _compressed(orjson.dumps(value), level)


def _compressed(body: bytes, level: int) -> bytes:
    """By a window as large as the body: for the usual one zlib takes and clears 256 KiB at each call, which for most bodies is most of
    the work."""
    bits = min(max(len(body).bit_length(), _WINDOW_BITS_MIN), zlib.MAX_WBITS)
    packer = zlib.compressobj(level, zlib.DEFLATED, bits, bits - _WINDOW_BITS_OVER_MEMORY)
    return packer.compress(body) + packer.flush()


async def unpacked(body: bytes) -> Any:
    return loaded(body) if len(body) <= limits.UNPACKED_HERE_BYTES_MAX else await worked(lambda: loaded(body))


async def unpacked_with_size(body: bytes) -> tuple[Any, int]:
    """The same, and how many bytes of JSON it is."""
    if len(body) <= limits.UNPACKED_HERE_BYTES_MAX:
        return _loaded_with_size(body)
    return await worked(lambda: _loaded_with_size(body))


def _loaded_with_size(body: bytes) -> tuple[Any, int]:
    text = zlib.decompress(body)
    return orjson.loads(text), len(text)


def loaded(body: bytes) -> Any:
    return orjson.loads(zlib.decompress(body))
