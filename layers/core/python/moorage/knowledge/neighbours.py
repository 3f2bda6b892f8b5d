"""The vectors of an index, compared by S3 Vectors instead of in memory.

The bucket keeps the whole index: the versions of files, their words, texts, attributes and vectors. A vector bucket holds the vectors a
second time, so that a search does not have to read them. So filters, deletions and replacements have one truth. A vector bucket can be
added, lost or left out; missing vectors are compared in memory.

    T/<tenant>/K/<store>/V/<vector bucket>/<file>/<version>.<chunks>    what is compared of a file's chunks, without the vectors

It is written before the first vector and deleted after the last. So a replacement, a deletion or a cleanup finds the vectors of a dead
writer: their keys follow from it. A version counts when its segment is there; the segment is written last. Results of the vector bucket
for other versions are dropped.

An index that somebody has deleted by hand is missing until the next work on its store. Until then a search compares in memory. After an
index is made, the earlier notes are not true any more, and are taken back. Tidying then puts the vectors again.
"""

import hashlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import MoorageError
from moorage.knowledge.blocks import BlockLayout
from moorage.knowledge.bundles import BundlePrefixes
from moorage.knowledge.index import IndexRef
from moorage.knowledge.ranking import Place as ChunkPlace
from moorage.knowledge.ranking import Rankings
from moorage.knowledge.segments import Floats, Segment
from moorage.parallel import side_by_side
from moorage.store import object_keys
from moorage.store.blobs import Blobs
from moorage.store.vector_bucket import IndexNotFound, NoRoomForIndex, VectorBucket
from moorage.telemetry import tell


@dataclass(slots=True)
class Candidates:
    """The chunks of one store that a search may find and that have their vectors elsewhere."""

    first: dict[str, ChunkPlace] = field(default_factory=dict)
    """Where the first chunk of each file's version stands."""
    is_whole: bool = True
    """Whether the store has no others."""

    def add(self, number: int, layout: BlockLayout, allowed: npt.NDArray[np.bool_] | None) -> None:
        """Those of one block."""
        starts: list[int] = np.flatnonzero(np.diff(layout.file_of, prepend=-1)).tolist()
        for start in starts:
            key, _, _ = layout.sources[int(layout.file_of[start])]
            if allowed is None or allowed[start]:
                self.first[_version_of(key)] = (number, start)
            else:
                self.is_whole = False

    def places(self, found: Sequence[tuple[str, float]]) -> list[tuple[float, ChunkPlace]]:
        """Likeness and place of the vector bucket's results that are part of the store."""
        placed: list[tuple[float, ChunkPlace]] = []
        for key, distance in found:
            version, _, chunk = key.rpartition("/")
            if version in self.first:
                number, start = self.first[version]
                placed.append((1 - distance, (number, start + int(chunk))))
        return placed


class ChunkDigest(NamedTuple):
    """The object with the compared content of a file's chunks, without their vectors."""

    name: str
    bytes: int


class VectorsGone(MoorageError):
    """The vector bucket should have a store's vectors, and has no index for it."""

    def __init__(self, store: IndexRef) -> None:
        super().__init__(f"The index of the vector store {store.store_id} is missing.")
        self.store = store


@dataclass(frozen=True, slots=True)
class _NeighbourSearch:
    which: int
    """The number of the query."""
    store: IndexRef
    vector: list[float]
    candidates: Candidates
    words: list[str] | None
    """The versions that it is narrowed to; all if there is none."""


class Neighbours:
    def __init__(self, bucket: VectorBucket, blobs: Blobs) -> None:
        self._bucket = bucket
        self._blobs = blobs

    # --- writing ---

    async def put(self, store: IndexRef, version: str, segment: Segment) -> int:
        """The vectors of a version that is about to be there; answers how many bytes it takes in the bucket.

        If the vector bucket refuses vectors, they stay to be compared in memory.
        """
        if not _has_meaning(store, segment):
            return 0
        name, told = self._name(store, segment.file.file_id, version, segment.chunks), segment.without_vectors().to_bytes()
        await self._blobs.put_bytes(name, told)
        try:
            await self._put_all(store, version, segment)
        except NoRoomForIndex as error:
            tell("vector_bucket_full", {"tenant_id": store.tenant, "vector_store_id": store.store_id, "why": str(error)})
            await self._blobs.delete(name)
            return 0
        return len(told)

    async def put_again(self, store: IndexRef, missing: AsyncIterator[tuple[str, Segment]]) -> int:
        """Put the vectors of versions that are there without a record; of some of them.

        The record is written last: after a death before it, the vectors are compared in memory and put once more.
        """
        put = 0
        async for version, segment in missing:
            if not _has_meaning(store, segment):
                continue
            try:
                await self._put_all(store, version, segment)
            except NoRoomForIndex:
                break
            name = self._name(store, segment.file.file_id, version, segment.chunks)
            await self._blobs.put_bytes(name, segment.without_vectors().to_bytes())
            put += 1
            if put == limits.VECTORS_PUT_AGAIN_MAX:
                break
        return put

    async def _put_all(self, store: IndexRef, version: str, segment: Segment) -> None:
        meaning = np.flatnonzero(segment.vectors.any(axis=1))
        for rows in _groups(meaning, limits.VECTOR_NUMBERS_PUT_MAX // store.dimension):
            numbers = segment.vectors[rows].astype(np.float16).tolist()  # as the segment will have them
            vectors = [(f"{segment.file.file_id}/{version}/{row}", each) for row, each in zip(rows.tolist(), numbers, strict=True)]
            await self._put(store, vectors, version)

    async def _put(self, store: IndexRef, vectors: Sequence[tuple[str, Sequence[float]]], version: str) -> None:
        try:
            await self._bucket.put(index_of(store), vectors, word=version)
        except IndexNotFound:
            before = [name for name in await self._told(store) if f"/{version}." not in name]
            if await self._bucket.create_index(index_of(store), dimension=store.dimension):
                for name in before:  # Their vectors went with the index that was there, or come in vain: their writer will see it.
                    await self._blobs.delete(name)
            await self._bucket.put(index_of(store), vectors, word=version)

    async def delete_before(self, store: IndexRef, file_id: str, version: str, chunks: int) -> None:
        """Delete the vectors of versions before this one. If this one was deleted meanwhile, delete its vectors too."""
        own, there = self._name(store, file_id, version, chunks), await self._told(store, file_id)
        gone = [own] if chunks and own not in there else []
        for name in (*(each for each in there if each < own), *gone):
            await self._delete(store, name)

    async def delete_file(self, store: IndexRef, file_id: str) -> None:
        for name in await self._told(store, file_id):
            await self._delete(store, name)

    async def delete_gone(self, store: IndexRef, segments: Collection[str], before: str) -> bool:
        """Delete vectors of earlier versions that are no part of the store with these segments; True if there were any.

        A later version may be about to be there.
        """
        told = await self.told(store)
        gone = [each.name for key, each in told.items() if key not in segments and key.rpartition("/")[2] < before]
        for name in gone:
            await self._delete(store, name)
        return bool(gone)

    async def delete(self, store: IndexRef) -> None:
        """All of a store's vectors. Their part of the bucket is deleted with the rest of the store."""
        await self._bucket.delete_index(index_of(store))

    async def _delete(self, store: IndexRef, name: str) -> None:
        version, chunks = _version_of(name).rsplit(".", 1)
        await self._bucket.delete(index_of(store), [f"{version}/{chunk}" for chunk in range(int(chunks))])
        await self._blobs.delete(name)

    # --- reading ---

    async def told(self, store: IndexRef) -> dict[str, ChunkDigest]:
        """The objects to read in place of segments, by these."""
        segments = object_keys.index_segments(store.tenant, store.store_id)
        objects = self._blobs.list_sizes(self.place(store).objects)
        return {segments + _version_of(name).rsplit(".", 1)[0]: ChunkDigest(name, size) async for name, size in objects}

    def place(self, store: IndexRef) -> BundlePrefixes:
        """The places of these, and copies of them."""
        kind = f"neighbours/{self._bucket.name}"
        bundles = object_keys.index_bundles(store.tenant, store.store_id, kind)
        return BundlePrefixes(bundles, object_keys.index_neighbours(store.tenant, store.store_id, self._bucket.name))

    async def _told(self, store: IndexRef, file_id: str | None = None) -> list[str]:
        prefix = object_keys.index_neighbours(store.tenant, store.store_id, self._bucket.name, file_id)
        return [name async for name, _ in self._blobs.list_prefix(prefix)]

    def _name(self, store: IndexRef, file_id: str, version: str, chunks: int) -> str:
        return f"{object_keys.index_neighbours(store.tenant, store.store_id, self._bucket.name, file_id)}{version}.{chunks}"

    async def rank(self, rankings: Rankings, candidates: Mapping[IndexRef, Candidates]) -> None:
        """Tell the rankings the candidates that are most like each query."""
        looks = [look for store, each in candidates.items() for look in _looks(rankings, store, each)]
        found = await side_by_side(self._found, looks, at_once=limits.NEIGHBOUR_LOOKS_AT_ONCE)
        for look, places in zip(looks, found, strict=True):
            rankings.add(look.which, look.store.model, places)

    async def _found(self, look: _NeighbourSearch) -> list[tuple[float, ChunkPlace]]:
        places: list[tuple[float, ChunkPlace]] = []
        for most in limits.NEIGHBOURS_ASKED:
            try:
                found = await self._bucket.nearest(index_of(look.store), look.vector, most=most, words=look.words)
            except IndexNotFound as error:
                if not await self._told(look.store):
                    return []  # The store was deleted this moment.
                raise VectorsGone(look.store) from error
            places = look.candidates.places(found)
            if len(places) >= limits.RANKED_DEPTH or len(found) < most:
                break
        return places


def _looks(rankings: Rankings, store: IndexRef, candidates: Candidates) -> Iterator[_NeighbourSearch]:
    words: list[list[str] | None] = [None]
    if not candidates.is_whole:
        versions = sorted({version.rpartition("/")[2] for version in candidates.first})
        size = limits.NEIGHBOUR_VERSIONS_MAX
        words = [versions[start : start + size] for start in range(0, len(versions), size)]
    for which, query in enumerate(rankings.queries):
        vector: Floats | None = query.vectors.get(store.model)
        if vector is not None and vector.any() and candidates.first:
            for some in words:
                yield _NeighbourSearch(which, store, vector.tolist(), candidates, some)


def _has_meaning(store: IndexRef, segment: Segment) -> bool:
    """Whether there is something to compare, and an index can be made for it."""
    return store.dimension <= limits.VECTOR_DIMENSION_MAX and bool(segment.vectors.any())


def _version_of(name: str) -> str:
    """``<file>/<version>`` at the end of an object's name."""
    return "/".join(name.rsplit("/", 2)[1:])


def index_of(store: IndexRef) -> str:
    """The name of a store's index: lower-case letters, digits and hyphens, 63 at most. Tenants' names may be longer."""
    digits = hashlib.sha256(f"{store.tenant}/{store.store_id}".encode()).hexdigest()
    return f"vs-{digits[:60]}"


def _groups(rows: npt.NDArray[np.intp], size: int) -> list[npt.NDArray[np.intp]]:
    size = min(max(size, 1), limits.VECTORS_WRITTEN_AT_ONCE)
    return [rows[start : start + size] for start in range(0, len(rows), size)]
