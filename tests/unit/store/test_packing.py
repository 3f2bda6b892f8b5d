"""A value comes back from its packed bytes, by a window that suits its size."""

import zlib

import orjson
import pytest
from moorage.store.packing import packed, unpacked


@pytest.mark.parametrize("size", [0, 1, 250, 256, 510, 512, 513, 4_000, 32_000, 40_000, 300_000])
async def test_packed_json_of_any_size_comes_back_and_is_as_small(size: int) -> None:
    value = {"text": " ".join(str(number * number) for number in range(size))[:size]}
    body = await packed(value)
    assert await unpacked(body) == value
    assert len(body) <= 1.01 * len(zlib.compress(orjson.dumps(value), 1))
