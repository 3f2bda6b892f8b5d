"""A process's picture of a part of a store: segments of several files side by side, turned so that words lead to chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.knowledge.index import Attributes
from moorage.knowledge.segments import Floats, Integers, Segment

_FILE_BYTES: Final = 1_000
"""What a file takes besides its chunks: its names and attributes."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a block holds."""

    key: str
    """Of its segment."""
    segment: Segment


@dataclass(frozen=True, slots=True)
class Layout:
    """Which chunk is whose, and where its text lies."""

    sources: tuple[tuple[str, str, str], ...]
    """Key, id and name of each file."""
    attributes: tuple[Attributes, ...]
    """Of each file, as they were when it was put."""
    file_of: npt.NDArray[np.int32]
    """The number of each chunk's file."""
    text_starts: Integers
    text_ends: Integers


@dataclass(frozen=True, slots=True)
class Block:
    layout: Layout
    keys: frozenset[str]
    """Of its segments."""
    vectors: Floats
    lengths: Floats
    words: Integers
    """Ascending; each is there once for each chunk that has it."""
    chunk_of: npt.NDArray[np.int32]
    """The chunk of each of ``words``."""
    counts: Floats

    @property
    def chunks(self) -> int:
        return len(self.lengths)

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        own = (self.vectors, self.lengths, self.words, self.chunk_of, self.counts)
        layout = (self.layout.file_of, self.layout.text_starts, self.layout.text_ends)
        return sum(array.nbytes for array in (*own, *layout)) + _FILE_BYTES * len(self.keys)

    @classmethod
    def of(cls, sources: Sequence[Source]) -> "Block":
        segments = [source.segment for source in sources]
        sizes = [segment.chunks for segment in segments]
        words = np.concatenate([segment.words for segment in segments])
        of_each = np.concatenate([np.diff(segment.starts) for segment in segments])
        order = np.argsort(words, kind="stable")
        layout = Layout(
            sources=tuple((source.key, source.segment.file.file_id, source.segment.file.filename) for source in sources),
            attributes=tuple(segment.file.attributes for segment in segments),
            file_of=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            text_starts=np.concatenate([segment.places[:-1] for segment in segments]),
            text_ends=np.concatenate([segment.places[1:] for segment in segments]),
        )
        return cls(
            layout=layout,
            keys=frozenset(source.key for source in sources),
            vectors=np.concatenate([segment.vectors for segment in segments]),
            lengths=np.concatenate([segment.lengths for segment in segments]).astype(np.float32),
            words=words[order],
            chunk_of=np.repeat(np.arange(sum(sizes), dtype=np.int32), of_each)[order],
            counts=np.concatenate([segment.counts for segment in segments])[order].astype(np.float32),
        )

    def postings(self, word: int) -> slice:
        """Where a word stands among :attr:`words`."""
        # The word must be of the array's own type: with another one, numpy converts the whole array.
        wanted = np.uint32(word)
        return slice(int(np.searchsorted(self.words, wanted, "left")), int(np.searchsorted(self.words, wanted, "right")))
