"""An index that lies in the bucket, and is searched in memory.

    T/<tenant>/K/<store>/I/<file>/<version>              what is compared of a file's chunks
    T/<tenant>/K/<store>/I/<file>/<version>.attributes   its attributes, if they were changed since
    T/<tenant>/K/<store>/X/<file>/<version>              its text
    T/<tenant>/K/<store>/M/<kind>/<name>                 copies of many of the first two kinds (``bundles.py``)
    T/<tenant>/K/<store>/stamp                           another one after each change

An object is written once, under a version later than all before. The latest version counts, and its writer deletes the earlier ones. So
writers share no object. Two writers of different files never meet; of two writers of one file the later version stays, in any order of
their ends. A manifest with conditional writes would make writers of one store wait for each other. A file is there from the moment its
segment is, because its text is written before.

A process keeps the objects that it has read, in blocks, up to a bound. The objects of a version never change, so a listing shows
outdated ones. It takes a request for each thousand files, and is made only if the store's stamp is another one than before the last
listing. After each change the writer puts a new random stamp behind it, without reading the others' stamps.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing, suppress
from dataclasses import field
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.knowledge import bundles as bundling
from moorage.knowledge import segments, terms
from moorage.knowledge.blocks import Block, BlockFile, BlockLayout
from moorage.knowledge.bundles import BundlePrefixes, Directories, IndexBundles
from moorage.knowledge.embeddings import Embeddings
from moorage.knowledge.filters import matches
from moorage.knowledge.index import Attributes, Hit, IndexedFile, IndexRef, SearchOptions
from moorage.knowledge.neighbours import Candidates, ChunkDigest, Neighbours, VectorsGone
from moorage.knowledge.ranking import Query, Rankings
from moorage.knowledge.segments import Segment
from moorage.model.embedding_models import EmbeddedTexts
from moorage.parallel import side_by_side, worked
from moorage.store import object_keys
from moorage.store.blobs import BlobNotFound, Blobs
from moorage.telemetry import tell

_ATTRIBUTES = ".attributes"
_BOUNDS = bundling.BundleLimits()


@dataclass(frozen=True, slots=True)
class _FileObjects:
    """The latest objects of a file."""

    segment: str
    bytes: int
    """Of the segment."""
    attributes: str | None
    attributes_bytes: int


@dataclass(slots=True)
class _LoadedStore:
    """A process's copy of a store's index."""

    blocks: list[Block] = field(default_factory=list)
    stamp: bytes | None = None
    """As it was before :attr:`listed` was read."""
    listed: list[_FileObjects] = field(default_factory=list)
    told: Mapping[str, ChunkDigest] = field(default_factory=dict)
    """What is read in place of segments, by these (``neighbours.py``)."""
    attributes: dict[str, Attributes] = field(default_factory=dict)
    """What the objects of this name say."""
    directories: Directories = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self.blocks)

    @property
    def keys(self) -> set[str]:
        return {key for block in self.blocks for key in block.keys}


@dataclass(frozen=True, slots=True)
class _IndexPart:
    """Segments that are read from one kind of objects."""

    place: BundlePrefixes
    sizes: Mapping[str, int]
    """Of these objects, by their names."""
    keys: Mapping[str, str]
    """The segments' own, by these names."""


@dataclass(frozen=True, slots=True)
class _HitSource:
    """The place of a hit's text, and its owner."""

    store: IndexRef
    file: IndexedFile
    key: str
    start: int
    end: int


class ObjectIndex:
    def __init__(
        self,
        blobs: Blobs,
        embeddings: Embeddings,
        *,
        clock: Callable[[], float],
        neighbours: Neighbours | None = None,
        cache_bytes_max: int = limits.INDEX_CACHE_BYTES_MAX,
        block_chunks: int = limits.INDEX_BLOCK_CHUNKS,
        bundle_bounds: bundling.BundleLimits = _BOUNDS,
    ) -> None:
        self._blobs = blobs
        self._embeddings = embeddings
        self._clock = clock
        self._neighbours = neighbours
        self._cache_bytes_max = cache_bytes_max
        self._block_chunks = block_chunks
        self._latest_version = 0
        self._bundles = IndexBundles(blobs, self._version, bundle_bounds)
        self._held: OrderedDict[str, _LoadedStore] = OrderedDict()
        """By the prefix of the store; what was used last stands last."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._gone: dict[str, bytes | None] = {}
        """Stores whose vectors are not where they should be, by their prefixes: the stamp that they had then."""

    # --- writing ---

    async def put_file(self, store: IndexRef, file: IndexedFile, chunks: Sequence[str]) -> int:
        """Embed and store the chunks of a file, in place of those that it had; answers how many bytes they take. Raises
        :class:`~moorage.errors.UpstreamError` if the embedding model does."""
        version = self._version()
        vectors: list[bytes] = []
        for start in range(0, len(chunks), limits.EMBEDDED_AT_ONCE):
            batch = [chunk or " " for chunk in chunks[start : start + limits.EMBEDDED_AT_ONCE]]
            vectors += (await self._embed(store, batch)).vectors
        segment, text = await worked(lambda: segments.of(file, chunks, vectors, store.dimension))
        packed = segment.to_bytes()
        told = await self._neighbours.put(store, version, segment) if self._neighbours else 0
        await self._blobs.put_bytes(object_keys.index_text(store.tenant, store.store_id, file.file_id, version), text)
        await self._blobs.put_bytes(object_keys.index_segment(store.tenant, store.store_id, file.file_id, version), packed)
        for prefix in _prefixes(store, file.file_id):
            await self._delete_before(prefix, version)
        if self._neighbours:
            await self._neighbours.delete_before(store, file.file_id, version, segment.chunks if told else 0)
        await self._stamp(store)
        return len(packed) + len(text) + told

    async def _embed(self, store: IndexRef, texts: Sequence[str]) -> EmbeddedTexts:
        return await self._embeddings.embed(store.tenant, store.model, texts, store.dimension, draws_on=store.draws_on)

    async def set_attributes(self, store: IndexRef, file_id: str, attributes: Attributes) -> bool:
        """All of them anew. Nothing happens if the file is not there. Answers whether :meth:`tidy` has something to do then."""
        version = self._version()
        prefix = object_keys.index_segments(store.tenant, store.store_id, file_id)
        if _latest([entry async for entry in self._blobs.list_sizes(prefix)]) is None:
            return False
        await self._blobs.put_bytes(f"{prefix}{version}{_ATTRIBUTES}", orjson.dumps(dict(attributes)))
        await self._delete_before(prefix, version, only=_ATTRIBUTES)
        await self._stamp(store)
        return await self._has_copies(store)

    async def delete_file(self, store: IndexRef, file_id: str) -> bool:
        """Nothing finds it from here on. Answers whether copies may be left that :meth:`tidy` clears away."""
        deleted = [await self._blobs.delete_prefix(prefix) for prefix in _prefixes(store, file_id)]
        if self._neighbours:
            await self._neighbours.delete_file(store, file_id)
        if any(deleted):  # a stamp of a store that has gone would be left behind
            await self._stamp(store)
        return await self._has_copies(store)  # also if an earlier attempt has deleted it

    async def tidy(self, store: IndexRef) -> bool:
        """Do a part of the work that makes later searches quick, and clear away leftovers of deleted files; True if it changed
        anything, and there may be more to do.

        Searches give the same answer before, after, and if it breaks off. So there is no stamp; but for vectors that the vector bucket
        lacked, and has now.
        """
        listed = await self._listed(store)
        done = []
        told: Mapping[str, ChunkDigest] = {}
        if self._neighbours:
            over = f"{_microseconds(self._clock() - limits.INDEXING_LAST_SECONDS):016x}"
            done = [await self._neighbours.delete_gone(store, {each.segment for each in listed}, over)]
            told = await self._neighbours.told(store)
            missing = self._versions(each.segment for each in listed if each.segment not in told)
            if await self._neighbours.put_again(store, missing):
                done.append(True)
                await self._stamp(store)
        attributes = {each.attributes: each.attributes_bytes for each in listed if each.attributes is not None}
        parts = self._parts(store, told, {each.segment: each.bytes for each in listed})
        copied = [*((part.place, part.sizes) for part in parts), (_attributes_place(store), attributes)]
        done += [await self._bundles.tidy(place, _small(sizes)) for place, sizes in copied]
        return any(done)

    async def _versions(self, keys: Iterable[str]) -> AsyncGenerator[tuple[str, Segment], None]:
        for key in keys:
            with suppress(BlobNotFound):
                yield key.rpartition("/")[2], await self._segment(key)

    async def _has_copies(self, store: IndexRef) -> bool:
        return any([await self._bundles.are_there(part.place) for part in self._parts(store, {}, {})])

    async def delete(self, store: IndexRef) -> None:
        """With all its files."""
        await self._blobs.delete_prefix(object_keys.index_objects(store.tenant, store.store_id))
        if self._neighbours:
            await self._neighbours.delete(store)
        self._held.pop(object_keys.index_objects(store.tenant, store.store_id), None)

    async def _stamp(self, store: IndexRef) -> None:
        await self._blobs.put_bytes(object_keys.index_stamp(store.tenant, store.store_id), secrets.token_bytes(16))

    def _version(self) -> str:
        """Later than all that this process has given; of two processes, that of the later clock."""
        self._latest_version = max(self._latest_version + 1, _microseconds(self._clock()))
        return f"{self._latest_version:016x}"

    async def _delete_before(self, prefix: str, version: str, *, only: str = "") -> None:
        for key in [key async for key, _ in self._blobs.list_prefix(prefix) if key.removeprefix(prefix) < version]:
            if key.endswith(only):
                await self._blobs.delete(key)

    # --- reading ---

    async def chunks(self, store: IndexRef, file_id: str) -> list[str]:
        """The text of a file as it was put; empty if it is not there."""
        prefix = object_keys.index_segments(store.tenant, store.store_id, file_id)
        listed = _latest([entry async for entry in self._blobs.list_sizes(prefix)])
        if listed is None:
            return []
        try:
            segment = await self._segment(listed.segment)
            packed = await self._blobs.get_bytes(object_keys.index_text_of(listed.segment))
        except BlobNotFound:
            return []  # It was deleted, or put anew, this moment.
        return await worked(lambda: segments.texts(segment, packed))

    async def search(self, stores: Sequence[IndexRef], queries: Sequence[str], options: SearchOptions) -> list[Hit]:
        """The chunks that fit best, the best first, by all queries together."""
        asked = await self._queries(stores, queries, options)
        for _ in stores:
            try:
                return await self._search(stores, asked, options)
            except VectorsGone as gone:
                await self._compare_here(gone.store)
        return await self._search(stores, asked, options)

    async def _compare_here(self, store: IndexRef) -> None:
        """Until the store changes: by then its vectors may be in place."""
        prefix = object_keys.index_objects(store.tenant, store.store_id)
        self._gone[prefix] = await self._read_stamp(store)
        self._held.pop(prefix, None)
        tell("vector_index_gone", {"tenant_id": store.tenant, "vector_store_id": store.store_id})

    async def _search(self, stores: Sequence[IndexRef], asked: Sequence[Query], options: SearchOptions) -> list[Hit]:
        rankings = Rankings(asked, options)
        looked: list[tuple[IndexRef, BlockLayout, Mapping[str, Attributes]]] = []
        elsewhere: dict[IndexRef, Candidates] = {}
        for store in dict.fromkeys(stores):
            changed: dict[str, Attributes] = {}
            async with aclosing(self._blocks(store, changed)) as blocks:
                async for block in blocks:
                    allowed = _allowed(block.layout, changed, options)
                    await worked(partial(rankings.look, len(looked), block, store.model, allowed))
                    if not block.has_vectors:
                        elsewhere.setdefault(store, Candidates()).add(len(looked), block.layout, allowed)
                    looked.append((store, block.layout, changed))
        if self._neighbours:
            await self._neighbours.rank(rankings, elsewhere)
        best = await worked(rankings.best)
        found = [_found(*looked[number], chunk) for _, (number, chunk), _ in best]
        texts = await side_by_side(self._text, found, at_once=limits.INDEX_READS_AT_ONCE)
        return [
            Hit(each.store.store_id, each.file.file_id, each.file.filename, each.file.attributes, ranked.score, text, ranked.ranks)
            for ranked, each, text in zip(best, found, texts, strict=True)
            if text is not None
        ]

    async def _queries(self, stores: Sequence[IndexRef], queries: Sequence[str], options: SearchOptions) -> list[Query]:
        has_vectors = options.ranker == "none" or options.weights.embedding > 0
        models = {(store.model, store.dimension): store for store in stores} if has_vectors else {}
        asked = [query[: limits.SEARCH_QUERY_CHARS_MAX] for query in queries]
        vectors = {store.model: (await self._embed(store, asked)).vectors for store in models.values()}
        return [
            Query(tuple(terms.counts(query)), {model: segments.query(found[number]) for model, found in vectors.items()})
            for number, query in enumerate(asked)
        ]

    async def _text(self, found: _HitSource) -> str | None:
        try:
            stream = self._blobs.get_stream(found.key, start=found.start, end=found.end - 1)
            return segments.text(b"".join([piece async for piece in stream]))
        except BlobNotFound:
            return None  # It was deleted, or put anew, while it was searched.

    async def _segment(self, key: str) -> Segment:
        return Segment.from_bytes(await self._blobs.get_bytes(key))

    # --- what a process holds ---

    async def _blocks(self, store: IndexRef, changed: dict[str, Attributes]) -> AsyncGenerator[Block, None]:
        """All of a store as it is now; ``changed`` is told the attributes that were changed since their files were put, by segment."""
        prefix = object_keys.index_objects(store.tenant, store.store_id)
        lock = self._locks.setdefault(prefix, asyncio.Lock())
        async with lock:
            held = self._held.pop(prefix, None) or _LoadedStore()
            self._held[prefix] = held
            stamp = await self._read_stamp(store)
            if stamp is None or stamp != held.stamp:
                is_gone = prefix in self._gone and self._gone[prefix] == stamp
                held.told = await self._neighbours.told(store) if self._neighbours and not is_gone else {}
                held.stamp, held.listed = stamp, await self._listed(store)
            listed = held.listed
            changed.update(await self._changed(store, held, listed))
            beyond = await self._fill(store, held, {file.segment: file.bytes for file in listed})
            self._make_room(prefix)
            ready = list(held.blocks)
        for block in ready:
            yield block
        async with aclosing(self._read(store, held, beyond)) as blocks:
            async for block in blocks:
                yield block

    async def _fill(self, store: IndexRef, held: _LoadedStore, wanted: Mapping[str, int]) -> dict[str, int]:
        """Read missing segments; returns those that do not fit, with their lengths."""
        true = [block for block in held.blocks if block.has_vectors or block.keys <= held.told.keys()]
        held.blocks = _still_good(true, wanted.keys(), self._block_chunks)
        async with aclosing(self._read(store, held, _without(wanted, held.keys))) as blocks:
            async for block in blocks:
                if held.bytes + block.bytes > self._cache_bytes_max:
                    break
                held.blocks.append(block)
            else:
                return {}
        return _without(wanted, held.keys)

    async def _read_stamp(self, store: IndexRef) -> bytes | None:
        try:
            return await self._blobs.get_bytes(object_keys.index_stamp(store.tenant, store.store_id))
        except BlobNotFound:
            return None

    async def _listed(self, store: IndexRef) -> list[_FileObjects]:
        prefix = object_keys.index_segments(store.tenant, store.store_id)
        files: dict[str, list[tuple[str, int]]] = {}
        async for key, size in self._blobs.list_sizes(prefix):
            files.setdefault(key.removeprefix(prefix).partition("/")[0], []).append((key, size))
        latest = (_latest(found) for found in files.values())
        return [each for each in latest if each is not None]

    async def _changed(self, store: IndexRef, held: _LoadedStore, listed: Sequence[_FileObjects]) -> dict[str, Attributes]:
        names = {each.attributes: each.segment for each in listed if each.attributes is not None}
        held.attributes = {name: value for name, value in held.attributes.items() if name in names}
        missing = [name for name in names if name not in held.attributes]
        async with aclosing(self._bundles.read(_attributes_place(store), missing, held.directories)) as found:
            async for name, data in found:
                held.attributes[name] = orjson.loads(data)
        missing = [name for name in missing if name not in held.attributes]
        values = await side_by_side(self._attributes, missing, at_once=limits.INDEX_READS_AT_ONCE)
        held.attributes |= {name: value for name, value in zip(missing, values, strict=True) if value is not None}
        return {names[name]: value for name, value in held.attributes.items()}

    async def _attributes(self, name: str) -> Attributes | None:
        try:
            value: Attributes = orjson.loads(await self._blobs.get_bytes(name))
        except BlobNotFound:
            return None
        return value

    async def _read(self, store: IndexRef, held: _LoadedStore, missing: Mapping[str, int]) -> AsyncGenerator[Block, None]:
        """Segments become blocks as soon as there are enough chunks for one."""
        for part in self._parts(store, held.told, missing):
            sources: list[BlockFile] = []
            chunks = 0
            async with aclosing(self._sources(part, held)) as read:
                async for source in read:
                    sources.append(source)
                    chunks += source.segment.chunks
                    if chunks >= self._block_chunks:
                        yield await worked(partial(Block.of, sources))
                        sources, chunks = [], 0
            if sources:
                yield await worked(partial(Block.of, sources))

    def _parts(self, store: IndexRef, told: Mapping[str, ChunkDigest], segments: Mapping[str, int]) -> list[_IndexPart]:
        """These segments (with their lengths) by their place; those without vectors for themselves."""
        here = {key: size for key, size in segments.items() if key not in told}
        parts = [_IndexPart(_segment_place(store), here, {key: key for key in here})]
        if self._neighbours:
            there = {key: told[key] for key in segments if key in told}
            names = {each.name: key for key, each in there.items()}
            parts.append(_IndexPart(self._neighbours.place(store), {each.name: each.bytes for each in there.values()}, names))
        return parts

    async def _sources(self, part: _IndexPart, held: _LoadedStore) -> AsyncGenerator[BlockFile, None]:
        """From bundles, as far as these have them; the rest one by one."""
        left = dict(sorted(part.sizes.items()))
        async with aclosing(self._bundles.read(part.place, left, held.directories)) as found:
            async for name, data in found:
                del left[name]
                yield BlockFile(part.keys[name], Segment.from_bytes(data))
        for some in _groups(left):
            for source in await side_by_side(self._source, [(name, part.keys[name]) for name in some], at_once=len(some)):
                if source is not None:
                    yield source

    async def _source(self, place: tuple[str, str]) -> BlockFile | None:
        name, key = place
        try:
            return BlockFile(key, await self._segment(name))
        except BlobNotFound:
            return None

    def _make_room(self, prefix: str) -> None:
        """Drop the least recently used first, but never the store that is being read."""
        total = sum(held.bytes for held in self._held.values())
        for name in list(self._held):
            if total <= self._cache_bytes_max:
                return
            if name != prefix:
                total -= self._held.pop(name).bytes


def _prefixes(store: IndexRef, file_id: str) -> tuple[str, str]:
    """The prefixes of a file's objects; the searched ones come first."""
    of_file = (store.tenant, store.store_id, file_id)
    return object_keys.index_segments(*of_file), object_keys.index_texts(*of_file)


def _segment_place(store: IndexRef) -> BundlePrefixes:
    """The places of those, and copies of them."""
    objects = object_keys.index_segments(store.tenant, store.store_id)
    return BundlePrefixes(object_keys.index_bundles(store.tenant, store.store_id, "segments"), objects)


def _attributes_place(store: IndexRef) -> BundlePrefixes:
    objects = object_keys.index_segments(store.tenant, store.store_id)
    return BundlePrefixes(object_keys.index_bundles(store.tenant, store.store_id, "attributes"), objects)


def _latest(entries: Sequence[tuple[str, int]]) -> _FileObjects | None:
    """Of all objects of one file, with their lengths. None without a segment."""
    segment = max((entry for entry in entries if not entry[0].endswith(_ATTRIBUTES)), default=None)
    if segment is None:
        return None
    none: tuple[str | None, int] = (None, 0)
    changed = max((entry for entry in entries if entry[0].endswith(_ATTRIBUTES) and entry[0] > segment[0]), default=none)
    return _FileObjects(*segment, *changed)


def _microseconds(time: float) -> int:
    return int(time * 1_000_000)


def _small(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if size <= limits.INDEX_BUNDLED_BYTES_MAX}


def _without(wanted: Mapping[str, int], keys: AbstractSet[str]) -> dict[str, int]:
    return {key: size for key, size in wanted.items() if key not in keys}


def _still_good(blocks: Sequence[Block], wanted: AbstractSet[str], block_chunks: int) -> list[Block]:
    """Bundles of wanted objects alone. If something is missing from all of them, the small ones are made anew with it, so
    that a store that grows file by file does not end as a block for each file."""
    whole = [block for block in blocks if block.keys <= wanted]
    if sum(len(block.keys) for block in whole) == len(wanted):
        return whole
    return [block for block in whole if block.chunks >= block_chunks // 2]


def _allowed(layout: BlockLayout, changed: Mapping[str, Attributes], options: SearchOptions) -> npt.NDArray[np.bool_] | None:
    if options.filters is None:
        return None
    fits = [
        matches(options.filters, changed.get(key, attributes), filename)
        for (key, _, filename), attributes in zip(layout.sources, layout.attributes, strict=True)
    ]
    return np.array(fits, np.bool_)[layout.file_of]


def _found(store: IndexRef, layout: BlockLayout, changed: Mapping[str, Attributes], chunk: int) -> _HitSource:
    number = int(layout.file_of[chunk])
    key, file_id, filename = layout.sources[number]
    file = IndexedFile(file_id, filename, changed.get(key, layout.attributes[number]))
    return _HitSource(store, file, object_keys.index_text_of(key), int(layout.text_starts[chunk]), int(layout.text_ends[chunk]))


def _groups(sizes: Mapping[str, int]) -> list[list[str]]:
    """As many of these objects together as are read side by side, by number and by bytes."""
    groups: list[list[str]] = []
    room = 0
    for key, size in sizes.items():
        if not groups or len(groups[-1]) == limits.INDEX_READS_AT_ONCE or size > room:
            groups.append([])
            room = limits.INDEX_READ_BYTES
        groups[-1].append(key)
        room -= size
    return groups
