"""A file's part of an index, as it lies in the bucket: two objects that are written once.

The *segment* holds the compared content: an embedding for each chunk, the words of each chunk with their counts, and its text's place
lies. The *text* holds the chunks, each packed for itself, so that a hit is read without the others.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from moorage.dataclass import dataclass
from moorage.knowledge import terms
from moorage.knowledge.index import IndexedFile

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.uint32]

_FORMAT: Final = 1
_LAYOUT: Final[tuple[tuple[str, np.dtype[Any]], ...]] = (
    ("vectors", np.dtype("<f2")),
    ("words", np.dtype("<u4")),
    ("counts", np.dtype("<u2")),
    ("starts", np.dtype("<u4")),
    ("lengths", np.dtype("<u4")),
    ("places", np.dtype("<u4")),
)
"""Two bytes for each number of an embedding: their likeness changes by less than a thousandth."""
_COUNT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Segment:
    file: IndexedFile
    vectors: Floats
    """A row for each chunk, of length 1. Without numbers where they are compared elsewhere."""
    words: Integers
    """Those of the first chunk, then those of the second ..."""
    counts: npt.NDArray[np.uint16]
    """How often each of ``words`` stands in its chunk."""
    starts: Integers
    """Where each chunk's words begin, and at last where they end."""
    lengths: Integers
    """Of each chunk, in words."""
    places: Integers
    """Where each chunk begins in the text, and at last where it ends."""

    @property
    def chunks(self) -> int:
        return len(self.lengths)

    def without_vectors(self) -> "Segment":
        return replace(self, vectors=np.zeros((self.chunks, 0), np.float32))

    def to_bytes(self) -> bytes:
        arrays = [getattr(self, name).astype(kind).tobytes() for name, kind in _LAYOUT]
        header = orjson.dumps(
            {
                "format": _FORMAT,
                "file_id": self.file.file_id,
                "filename": self.file.filename,
                "attributes": dict(self.file.attributes),
                "dimension": self.vectors.shape[1],
                "bytes": [len(array) for array in arrays],
            }
        )
        return b"".join((len(header).to_bytes(4, "little"), header, *arrays))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "Segment":
        behind = 4 + int.from_bytes(data[:4], "little")
        header = orjson.loads(data[4:behind])
        assert header["format"] == _FORMAT, header["format"]
        arrays: dict[str, Any] = {}
        for (name, kind), size in zip(_LAYOUT, header["bytes"], strict=True):
            arrays[name] = np.frombuffer(data, kind, size // kind.itemsize, behind)
            behind += size
        vectors = arrays.pop("vectors").astype(np.float32).reshape(len(arrays["lengths"]), header["dimension"])
        return cls(IndexedFile(header["file_id"], header["filename"], header["attributes"]), vectors, **arrays)


def of(file: IndexedFile, chunks: Sequence[str], vectors: Sequence[bytes], dimension: int) -> tuple[Segment, bytes]:
    """The two objects of a file; ``vectors`` are float32, little-endian."""
    words, counts, lengths = [], [], []
    for chunk in chunks:
        # Turned into arrays at once: the words of all chunks of a long file as objects take half a gigabyte.
        counted = terms.counts(chunk)
        words.append(np.fromiter(counted, np.uint32, len(counted)))
        counts.append(np.fromiter((min(times, _COUNT_MAX) for times in counted.values()), np.uint16, len(counted)))
        lengths.append(counted.total())
    packed = [zlib.compress(chunk.encode("utf-8", "surrogatepass"), 6) for chunk in chunks]
    segment = Segment(
        file=file,
        vectors=_normal(np.frombuffer(b"".join(vectors), "<f4").reshape(len(chunks), dimension)),
        words=np.concatenate(words) if words else np.zeros(0, np.uint32),
        counts=np.concatenate(counts) if counts else np.zeros(0, np.uint16),
        starts=_ends(len(each) for each in words),
        lengths=np.array(lengths, np.uint32),
        places=_ends(len(each) for each in packed),
    )
    return segment, b"".join(packed)


def texts(segment: Segment, packed: bytes) -> list[str]:
    """All chunks out of a file's text."""
    places = segment.places.tolist()
    return [text(packed[start:end]) for start, end in pairwise(places)]


def text(packed: bytes) -> str:
    return zlib.decompress(packed).decode("utf-8", "surrogatepass")


def _ends(lengths: Iterator[int] | Any) -> Integers:
    return np.fromiter(accumulate(lengths, initial=0), np.uint32)


def _normal(vectors: npt.NDArray[Any]) -> Floats:
    """Of length 1, so that their product is their cosine. A chunk without a meaning has none."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    out = np.zeros(vectors.shape, np.float32)
    np.divide(vectors, lengths, out=out, where=lengths > 0)
    return out


def query(vector: bytes) -> Floats:
    normal: Floats = _normal(np.frombuffer(vector, "<f4").reshape(1, -1))[0]
    return normal
