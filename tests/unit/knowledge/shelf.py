"""An index over a bucket in memory, that tells what was asked of the bucket."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from moorage.knowledge.bundles import BundleLimits
from moorage.knowledge.index import IndexedFile, IndexRef, SearchOptions
from moorage.knowledge.neighbours import Neighbours
from moorage.knowledge.object_index import ObjectIndex

from tests.unit.knowledge.embedders import Counted, FakeEmbedder, embeddings_of
from tests.unit.knowledge.vector_service import FakeS3Vectors
from tests.unit.store.memory import MemoryBlobs

STORE = IndexRef("t", "vs_1", "pairs", 4)
CATS = IndexedFile("file-cats", "cats.md", {"year": 2026, "kind": "pets"})
TRADE = IndexedFile("file-trade", "trade.md", {"year": 2025})


class CountedBlobs(MemoryBlobs):
    """It counts what is read, and may let another writer go first."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.lists = 0
        self.vectors = FakeS3Vectors()
        """The vector bucket beside it."""
        self.before_read: dict[str, str] = {}
        """What is deleted when something is about to be read, by a part of its name."""

    async def list_sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        self.lists += "/V/" not in prefix
        async for entry in super().list_sizes(prefix):
            yield entry

    async def get_bytes(self, key: str) -> bytes:
        self.read.append(key)
        for part, prefix in self.before_read.items():
            if part in key:
                await self.delete_prefix(prefix)
        return await super().get_bytes(key)


class Shelf:
    """One process's index, over a bucket that others may share."""

    has_vector_bucket: ClassVar[bool] = False
    """Of all that are made."""

    def __init__(self, blobs: CountedBlobs | None = None, bundles: BundleLimits | None = None, **bounds: int) -> None:
        self.blobs = blobs or CountedBlobs()
        self.model = FakeEmbedder()
        self.other_model = FakeEmbedder("other", 3)
        self.now = 1_800_000_000.0
        self.counted = Counted()
        embeddings = embeddings_of(self.model, self.other_model, meter=self.counted)
        neighbours = Neighbours(self.blobs.vectors.bucket(), self.blobs) if self.has_vector_bucket else None
        self.index = ObjectIndex(
            self.blobs, embeddings, clock=lambda: self.now, neighbours=neighbours, bundle_bounds=bundles or BundleLimits(), **bounds
        )

    async def found(self, *queries: str, store: IndexRef = STORE, **options: Any) -> list[tuple[str, float, str]]:
        hits = await self.index.search([store], queries, SearchOptions(**options))
        return [(hit.file_id, hit.score, hit.text) for hit in hits]

    async def texts(self, *queries: str, **options: Any) -> list[str]:
        """Of what is alike at all."""
        return [text for _, _, text in await self.found(*queries, **{"score_threshold": 0.01} | options)]

    def segments_read(self) -> int:
        count = sum("/I/" in key or "/V/" in key for key in self.blobs.read)
        self.blobs.read.clear()
        return count

    def kinds_read(self) -> dict[str, int]:
        """How many objects were asked for since the last look: segments and attributes (I), texts (X), bundles (M), stamps."""
        counted = Counter(key.split("/")[4] for key in self.blobs.read)
        self.blobs.read.clear()
        return dict(counted)

    async def tidy(self, store: IndexRef = STORE) -> int:
        """To the end; answers in how many parts."""
        parts = 0
        while await self.index.tidy(store):
            parts += 1
            assert parts < 100
        return parts


async def put_cats(shelf: Shelf, numbers: Sequence[int], chunks: int = 4) -> None:
    for number in numbers:
        file = IndexedFile(f"file-{number:02d}", f"{number}.md")
        await shelf.index.put_file(STORE, file, [f"cat {number} {chunk}" for chunk in range(chunks)])
