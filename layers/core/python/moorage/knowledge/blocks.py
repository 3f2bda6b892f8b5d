"""A process's picture of a part of a store: segments of several files side by side, turned so that words lead to chunks."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.dataclass import dataclass
from moorage.knowledge.index import Attributes
from moorage.knowledge.segments import Floats, Integers, Segment

_FILE_BYTES: Final = 1_000
"""What a file takes besides its chunks: its names and attributes."""

_SHORT_MAX: Final = 65_536
"""So many chunks can be told apart by two bytes."""


@dataclass(frozen=True, slots=True)
class BlockFile:
    """A file that a block holds."""

    key: str
    """Of its segment."""
    segment: Segment


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The file and text of each chunk."""

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
    layout: BlockLayout
    keys: frozenset[str]
    """Of its segments."""
    vectors: Floats
    lengths: Floats
    words: Integers
    """Ascending, each once."""
    starts: Integers
    """Where the chunks of each word begin, and at last where they end."""
    chunk_of: npt.NDArray[np.unsignedinteger]
    """The chunks that have the first word, then those that have the second ..."""
    counts: npt.NDArray[np.uint16]
    """How often each has it."""

    @property
    def chunks(self) -> int:
        return len(self.lengths)

    @property
    def has_vectors(self) -> bool:
        """Or they are compared elsewhere (``neighbours.py``). A block's segments are all of one kind."""
        return bool(self.vectors.shape[1])

    @property
    def bytes(self) -> int:
        """Its bytes in memory."""
        own = (self.vectors, self.lengths, self.words, self.starts, self.chunk_of, self.counts)
        layout = (self.layout.file_of, self.layout.text_starts, self.layout.text_ends)
        return sum(array.nbytes for array in (*own, *layout)) + _FILE_BYTES * len(self.keys)

    @classmethod
    def of(cls, sources: Sequence[BlockFile]) -> "Block":
        segments = [source.segment for source in sources]
        sizes = [segment.chunks for segment in segments]
        words = np.concatenate([segment.words for segment in segments])
        of_each = np.concatenate([np.diff(segment.starts) for segment in segments])
        order = np.argsort(words, kind="stable")
        words = words[order]
        starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))[: len(words)]
        # Four bytes for each word of each chunk are most of what an index takes.
        number: type[np.uint16 | np.uint32] = np.uint16 if sum(sizes) <= _SHORT_MAX else np.uint32
        layout = BlockLayout(
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
            words=words[starts],
            starts=np.append(starts, len(words)).astype(np.uint32),
            chunk_of=np.repeat(np.arange(sum(sizes), dtype=np.uint32), of_each)[order].astype(number),
            counts=np.concatenate([segment.counts for segment in segments])[order],
        )

    def postings(self, word: int) -> slice:
        """The chunks that have a word."""
        # The word must be of the array's own type: with another one, numpy converts the whole array.
        at = int(np.searchsorted(self.words, np.uint32(word)))
        if at == len(self.words) or int(self.words[at]) != word:
            return slice(0, 0)
        return slice(int(self.starts[at]), int(self.starts[at + 1]))
