"""Copies of many small objects in a few large ones, so that the first read of an index needs few requests.

    T/<tenant>/K/<store>/M/<kind>/<name>       a directory (names and lengths), and the bytes of each

The objects themselves stay in place, and their names are the truth. A bundle is only another place to read them from. They are written
once, and so are bundles, so a copy is never out of date: it is of something that is there, or of something that is gone, and nobody
asks for that. So everything works without a bundle. A writer that dies leaves no trace, and two writers at once leave copies;
:meth:`Bundles.tidy` removes the second copy. If a bundle is gone, its objects are read instead.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.parallel import side_by_side
from moorage.store.blobs import BlobNotFound, Blobs

T = TypeVar("T")

Directories = dict[str, Collection[str]]
"""What is known to stand in bundles, by their keys."""

_FORMAT: Final = 1
_HEAD_BYTES: Final = 64 * 1024
"""That are read of a bundle at first: the directory of some hundred objects."""
_LOOKS: Final = 3
"""At the list of bundles, while they change."""
_AT_ONCE: Final = limits.INDEX_READ_BYTES // limits.INDEX_BUNDLE_BYTES


@dataclass(frozen=True, slots=True)
class BundlePrefixes:
    """Of one kind of a store's objects: the prefix of their bundles, and their own."""

    bundles: str
    objects: str


@dataclass(frozen=True, slots=True)
class IndexBundle:
    key: str
    parts: Mapping[str, int]
    """Keys and lengths of the objects that it has copies of."""

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class BundleLimits:
    loose_max: int = limits.INDEX_LOOSE_MAX
    bundle_bytes: int = limits.INDEX_BUNDLE_BYTES
    small_max: int = limits.INDEX_BUNDLES_SMALL_MAX
    tidied_bytes: int = limits.INDEX_TIDIED_BYTES


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The bundles and objects to merge: the parts that only one bundle has, and objects without a bundle.

    The bundles go when that is done.
    """

    bundles: tuple[tuple[IndexBundle, frozenset[str]], ...]
    loose: tuple[str, ...] = ()


def planned(live: Mapping[str, int], bundles: Iterable[IndexBundle], bounds: BundleLimits) -> MergePlan | None:
    """The next merge for these objects (with their lengths) and their bundles; None if all is well."""
    loose = dict(live)
    clean: list[IndexBundle] = []
    others: list[tuple[IndexBundle, frozenset[str]]] = []
    for bundle in bundles:
        own = frozenset(loose.keys() & bundle.parts.keys())
        for key in own:
            del loose[key]
        if len(own) == len(bundle.parts):
            clean.append(bundle)
        else:
            others.append((bundle, own))
    if len(live) < bounds.loose_max:  # they are read one by one
        gone = ((bundle, frozenset[str]()) for bundle in (*clean, *(bundle for bundle, _ in others)))
        return MergePlan(tuple(gone)) if clean or others else None
    taken = _up_to(others, bounds.tidied_bytes, lambda other: other[0].bytes)
    added = _up_to(sorted(loose), bounds.tidied_bytes, live.__getitem__) if len(loose) >= bounds.loose_max else []
    pool = sum(live[key] for _, own in taken for key in own) + sum(map(live.__getitem__, added))
    taken += [(bundle, frozenset(bundle.parts)) for bundle in _small(clean, pool, bounds)]
    return MergePlan(tuple(taken), tuple(added)) if taken or added else None


def _small(clean: Iterable[IndexBundle], pool: int, bounds: BundleLimits) -> list[IndexBundle]:
    """Bundles to merge along with the rest: those no larger than all before.

    So an object is copied at most as often as doubling needs to fill a bundle. If too many bundles are less than half full, the smaller
    half is merged too.
    """
    small = sorted((bundle for bundle in clean if bundle.bytes < bounds.bundle_bytes // 2), key=lambda bundle: bundle.bytes)
    most = len(small) // 2 + 1 if len(small) > bounds.small_max else 0
    taken: list[IndexBundle] = []
    for bundle in small:
        if len(taken) >= most and (bundle.bytes > pool or pool > bounds.tidied_bytes):
            break
        taken.append(bundle)
        pool += bundle.bytes
    return taken


def _up_to(things: Iterable[T], bytes_max: int, bytes_of: Callable[[T], int]) -> list[T]:
    """The first of them, one at least."""
    taken: list[T] = []
    total = 0
    for thing in things:
        total += bytes_of(thing)
        if taken and total > bytes_max:
            break
        taken.append(thing)
    return taken


class IndexBundles:
    def __init__(self, blobs: Blobs, name: Callable[[], str], bounds: BundleLimits) -> None:
        self._blobs = blobs
        self._name = name
        """Later than all that this process has given."""
        self._bounds = bounds

    # --- reading ---

    async def read(
        self, place: BundlePrefixes, wanted: Collection[str], known: Directories
    ) -> AsyncGenerator[tuple[str, memoryview], None]:
        """Read those objects that are in bundles; ``known`` gets the content of these bundles. A few are not looked for."""
        left = set(wanted)
        for _ in range(_LOOKS):
            if len(left) < self._bounds.loose_max:
                return
            names = await self._unlooked(place, left, known)
            is_whole = True
            for some in [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]:
                for key, data in zip(some, await side_by_side(self._whole, some, at_once=_AT_ONCE), strict=True):
                    parts = None if data is None else dict(_parts(place, data))
                    if parts is None:
                        is_whole = False
                        continue
                    known[key] = frozenset(parts)
                    for name in [name for name in parts if name in left]:
                        left.discard(name)
                        yield name, parts[name]
            if is_whole:
                return

    async def _unlooked(self, place: BundlePrefixes, left: set[str], known: Directories) -> list[str]:
        """The bundles that may have something of it."""
        names = [key async for key, _ in self._blobs.list_sizes(place.bundles)]
        for gone in [key for key in known if key.startswith(place.bundles) and key not in names]:
            del known[gone]
        return [key for key in names if key not in known or not left.isdisjoint(known[key])]

    async def are_there(self, place: BundlePrefixes) -> bool:
        return [key async for key, _ in self._blobs.list_sizes(place.bundles)] != []

    async def _whole(self, key: str) -> memoryview | None:
        try:
            return memoryview(await self._blobs.get_bytes(key))
        except BlobNotFound:
            return None  # It was written anew, together with others.

    # --- writing ---

    async def tidy(self, place: BundlePrefixes, live: Mapping[str, int]) -> bool:
        """Bring the bundles nearer to the existing objects, with lengths in ``live``; True if it changed anything."""
        names = [key async for key, _ in self._blobs.list_sizes(place.bundles)]
        found = await side_by_side(lambda key: self._bundle(place, key), names, at_once=limits.INDEX_READS_AT_ONCE)
        plan = planned(live, [bundle for bundle in found if bundle is not None], self._bounds)
        if plan is None:
            return False
        await self._write(place, plan)
        for bundle, _ in plan.bundles:
            await self._blobs.delete(bundle.key)
        return True

    async def _bundle(self, place: BundlePrefixes, key: str) -> IndexBundle | None:
        try:
            head = await self._bytes(key, 0, _HEAD_BYTES)
            behind = _directory_end(head)
            if behind > len(head):
                head += await self._bytes(key, len(head), behind)
        except BlobNotFound:
            return None
        return IndexBundle(key, dict(_directory(place, memoryview(head))))

    async def _bytes(self, key: str, start: int, end: int) -> bytes:
        return b"".join([piece async for piece in self._blobs.get_stream(key, start=start, end=end - 1)])

    async def _write(self, place: BundlePrefixes, plan: MergePlan) -> None:
        held: list[tuple[str, memoryview]] = []
        size = 0
        async for key, data in self._pieces(place, plan):
            if held and size + len(data) > self._bounds.bundle_bytes:
                await self._put(place, held)
                held, size = [], 0
            held.append((key, data))
            size += len(data)
        if held:
            await self._put(place, held)

    async def _pieces(self, place: BundlePrefixes, plan: MergePlan) -> AsyncGenerator[tuple[str, memoryview], None]:
        for bundle, own in plan.bundles:
            data = await self._whole(bundle.key) if own else None
            for key, part in () if data is None else _parts(place, data):
                if key in own:
                    # A copy: what is seen through would keep the whole bundle.
                    yield key, memoryview(bytes(part))
        for start in range(0, len(plan.loose), limits.INDEX_READS_AT_ONCE):
            some = plan.loose[start : start + limits.INDEX_READS_AT_ONCE]
            for key, whole in zip(some, await side_by_side(self._whole, some, at_once=len(some)), strict=True):
                if whole is not None:
                    yield key, whole

    async def _put(self, place: BundlePrefixes, parts: Sequence[tuple[str, memoryview]]) -> None:
        names = [[key.removeprefix(place.objects), len(data)] for key, data in parts]
        head = orjson.dumps({"format": _FORMAT, "parts": names})
        # Two processes may be at it in the same moment.
        key = f"{place.bundles}{self._name()}-{secrets.token_hex(4)}"
        await self._blobs.put_bytes(key, b"".join((len(head).to_bytes(4, "little"), head, *(data for _, data in parts))))


def _directory_end(head: bytes | memoryview) -> int:
    return 4 + int.from_bytes(head[:4], "little")


def _directory(place: BundlePrefixes, data: memoryview) -> list[tuple[str, int]]:
    head = orjson.loads(data[4 : _directory_end(data)])
    assert head["format"] == _FORMAT, head["format"]
    return [(f"{place.objects}{name}", length) for name, length in head["parts"]]


def _parts(place: BundlePrefixes, data: memoryview) -> list[tuple[str, memoryview]]:
    names = _directory(place, data)
    ends = accumulate((length for _, length in names), initial=_directory_end(data))
    return [(key, data[start : start + length]) for (key, length), start in zip(names, ends, strict=False)]
