"""Bodies in every coding, for the arena's servers: ``python -m tests.egress.packing DIRECTORY``, in the proxy's environment.

It prints how many pieces the proxy makes of each body, by name.
"""

import gzip
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import brotli
import zstandard

from functions.egress_proxy.unpacking import unpacker

BOMB_BYTES = 1 << 28
VALUE = b"packed-value-0123456789"
"""Of the secret that every body repeats."""


def plain() -> bytes:
    """Neither too easy nor too hard to pack, with echoes at places that no piece's edge respects."""
    words = random.Random(7)
    return b"".join(words.randbytes(40).hex().encode() + b" " * 300 + (VALUE if number % 50 == 0 else b"") for number in range(1_500))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def halves(data: bytes) -> tuple[bytes, bytes]:
    return data[: len(data) // 2], data[len(data) // 2 :]


WHOLE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip-members": lambda data: b"".join(map(gzip.compress, halves(data))) + b"\0" * 512,
    "deflate": zlib.compress,
    "deflate-raw": raw_deflate,
    "br": brotli.compress,
    "zstd": zstd,
    "zstd-frames": lambda data: b"".join(map(zstd, halves(data))),
    "gzip-in-br": lambda data: brotli.compress(gzip.compress(data)),
    "gzip-twice": lambda data: gzip.compress(gzip.compress(data)),
}


def zeros() -> Iterator[bytes]:
    piece = bytes(1 << 20)
    return (piece for _ in range(BOMB_BYTES >> 20))


def bombs() -> Iterator[tuple[str, bytes]]:
    zipper, deflater, broder = zlib.compressobj(1, wbits=31), zlib.compressobj(1), brotli.Compressor(quality=3)
    yield "gzip", b"".join(map(zipper.compress, zeros())) + zipper.flush()
    yield "deflate", b"".join(map(deflater.compress, zeros())) + deflater.flush()
    yield "br", b"".join(map(broder.process, zeros())) + broder.finish()
    packer = zstandard.ZstdCompressor().compressobj()
    yield "zstd", b"".join(map(packer.compress, zeros())) + packer.flush()


EMPTY = gzip.compress(b"")
SKIPPED = b"\x50\x2a\x4d\x18\0\0\0\0"
"""A frame of zstd that stands for nothing."""
EMPTIES = 1_000_000


def pieces() -> dict[str, int]:
    bodies = {
        ("br",): brotli.compress(plain()),
        ("zstd",): zstd(plain()),
        ("gzip", "gzip"): gzip.compress(EMPTY * 100_000),
        ("zstd", "gzip"): gzip.compress(SKIPPED * 100_000),
    }
    return {",".join(packed): sum(1 for _ in unpacker(packed)(body)) for packed, body in bodies.items()}


def main(directory: Path) -> None:
    directory.mkdir()
    (directory / "plain").write_bytes(plain())
    for name, pack in WHOLE.items():
        (directory / name).write_bytes(pack(plain()))
    (directory / "gzip-broken").write_bytes(gzip.compress(plain())[:-100])
    for name, content in bombs():
        (directory / f"bomb-{name}").write_bytes(content)
        if name == "br":
            (directory / "bomb-br-in-gzip").write_bytes(gzip.compress(content))
    (directory / "empties-in-gzip").write_bytes(gzip.compress(EMPTY * EMPTIES))
    print(json.dumps(pieces()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
