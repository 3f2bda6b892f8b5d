"""JSON of any size as the bytes of a record or an object.

What is short is packed where it stands. What is long is packed and unpacked on a thread: zlib lets the event loop go on, and a
neighbour has its turn between two records.
"""

import asyncio
import zlib
from typing import Any

import orjson

from moorage import limits


async def packed(value: Any, level: int = 1) -> bytes:
    body = orjson.dumps(value)
    if len(body) <= limits.PACKED_HERE_BYTES_MAX:
        return zlib.compress(body, level)
    return await asyncio.to_thread(zlib.compress, body, level)


async def unpacked(body: bytes) -> Any:
    return _loaded(body) if len(body) <= limits.UNPACKED_HERE_BYTES_MAX else await asyncio.to_thread(_loaded, body)


def _loaded(body: bytes) -> Any:
    return orjson.loads(zlib.decompress(body))
