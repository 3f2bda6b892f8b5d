"""JSON of any size as the bytes of a record or an object.

What is short is packed where it stands. What is long is written, packed and unpacked on a thread: zlib lets the event loop go on, and a
neighbour has its turn between two records. Nobody may change a value until it is packed.
"""

import zlib
from typing import Any

import orjson

from moorage import limits
from moorage.parallel import outweighs, worked


async def packed(value: Any, level: int = 1) -> bytes:
    if outweighs([value], limits.LOWERED_HERE_MAX):
        return await worked(lambda: _packed(value, level))
    body = orjson.dumps(value)
    if len(body) <= limits.PACKED_HERE_BYTES_MAX:
        return zlib.compress(body, level)
    return await worked(lambda: zlib.compress(body, level))


def _packed(value: Any, level: int) -> bytes:
    return zlib.compress(orjson.dumps(value), level)


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
