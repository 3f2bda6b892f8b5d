"""Copies in bundles: how few objects the first search of a process asks for, and that nothing that happens meanwhile changes what is
found."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
import pytest
from moorage import limits
from moorage.knowledge.bundles import BundleLimits, IndexBundle, MergePlan, planned
from moorage.knowledge.index import IndexedFile, SearchOptions
from moorage.store.blobs import Blob

from tests.unit.knowledge.shelf import STORE, CountedBlobs, Shelf, put_cats

SMALL = BundleLimits(loose_max=4, bundle_bytes=4_000, small_max=3, tidied_bytes=8_000)
"""So that a few files are many."""
BUNDLES = "T/t/K/vs_1/M/"


async def cold(shelf: Shelf) -> dict[str, int]:
    """What the first search of another process asks the bucket for."""
    other = Shelf(shelf.blobs)
    shelf.blobs.read.clear()
    assert len(await other.found("cat", max_num_results=3)) == 3
    return other.kinds_read()


def bundles_of(blobs: CountedBlobs) -> dict[str, bytes]:
    return {key: value for key, value in blobs.objects.items() if key.startswith(BUNDLES)}


async def test_the_first_search_of_a_process_asks_for_one_bundle_instead_of_each_file() -> None:
    shelf = Shelf()
    await put_cats(shelf, range(200), chunks=1)
    assert await cold(shelf) == {"stamp": 1, "I": 200, "X": 3}
    assert await shelf.tidy() == 1
    assert await cold(shelf) == {"stamp": 1, "M": 1, "X": 3}
    await put_cats(shelf, range(200, 200 + limits.INDEX_LOOSE_MAX - 1), chunks=1)
    assert await shelf.tidy() == 0, "a few that came later are read one by one"
    assert await cold(shelf) == {"stamp": 1, "M": 1, "I": limits.INDEX_LOOSE_MAX - 1, "X": 3}
    await put_cats(shelf, [900], chunks=1)
    assert await shelf.tidy() == 1
    assert await cold(shelf) == {"stamp": 1, "M": 2, "X": 3}


async def test_listings_are_one_of_the_files_and_one_of_the_bundles() -> None:
    shelf = Shelf()
    await put_cats(shelf, range(40), chunks=1)
    await shelf.tidy()
    before = shelf.blobs.lists
    await cold(shelf)
    assert shelf.blobs.lists - before == 2
    few = Shelf()
    await put_cats(few, range(limits.INDEX_LOOSE_MAX - 1), chunks=1)
    before = few.blobs.lists
    await cold(few)
    assert few.blobs.lists - before == 1, "few files are not looked for in bundles"


async def test_attributes_that_were_changed_are_bundled_too() -> None:
    shelf = Shelf()
    await put_cats(shelf, range(40), chunks=1)
    await shelf.tidy()
    for number in range(40):
        assert await shelf.index.set_attributes(STORE, f"file-{number:02d}", {"number": number})
    assert await cold(shelf) == {"stamp": 1, "I": 40, "M": 1, "X": 3}
    await shelf.tidy()
    assert await cold(shelf) == {"stamp": 1, "M": 2, "X": 3}
    (hit,) = await Shelf(shelf.blobs).index.search([STORE], ["cat"], SearchOptions({"type": "eq", "key": "number", "value": 17}))
    assert (hit.file_id, hit.attributes) == ("file-17", {"number": 17})


async def test_large_objects_stand_by_themselves_and_bundles_are_bounded() -> None:
    shelf = Shelf()
    words = [f"cat {' '.join(str(word) for word in range(chunk, 30_000 + chunk))}" for chunk in range(6)]
    await shelf.index.put_file(STORE, IndexedFile("file-large", "large"), words)
    await put_cats(shelf, range(40), chunks=1)
    await shelf.tidy()
    assert await cold(shelf) == {"stamp": 1, "M": 1, "I": 1, "X": 3}
    small = Shelf(bundles=BundleLimits(bundle_bytes=2_000))
    await put_cats(small, range(80), chunks=1)
    await small.tidy()
    assert len(bundles_of(small.blobs)) > 2
    assert all(len(value) < 2 * 2_000 for value in bundles_of(small.blobs).values())


async def test_nothing_of_a_deleted_or_replaced_file_stays() -> None:
    shelf = Shelf()
    await put_cats(shelf, range(40), chunks=1)
    await shelf.index.put_file(STORE, IndexedFile("file-secret", "secret-plan.md", {"code": "hush"}), ["cat"])
    await shelf.index.put_file(STORE, IndexedFile("file-other", "old-name.md"), ["cat"])
    assert not await shelf.index.delete_file(STORE, "file-none"), "there is nothing to tidy as long as there is no bundle"
    await shelf.tidy()
    assert await shelf.index.delete_file(STORE, "file-secret")
    await shelf.index.put_file(STORE, IndexedFile("file-other", "new-name.md"), ["cat"])
    assert [name for name, *_ in await shelf.found("cat", max_num_results=50) if name == "file-secret"] == []
    assert any(b"secret-plan" in value for value in shelf.blobs.objects.values())
    assert await shelf.index.delete_file(STORE, "file-secret"), "also an attempt that is repeated says what is left"
    await shelf.tidy()
    for gone in (b"secret", b"hush", b"old-name"):
        assert not any(gone in value for value in shelf.blobs.objects.values())


async def test_a_store_that_has_become_small_has_no_bundles() -> None:
    shelf = Shelf()
    await put_cats(shelf, range(limits.INDEX_LOOSE_MAX), chunks=1)
    await shelf.tidy()
    assert len(bundles_of(shelf.blobs)) == 1
    await shelf.index.delete_file(STORE, "file-00")
    assert (await shelf.tidy(), bundles_of(shelf.blobs)) == (1, {})
    await shelf.index.delete(STORE)
    assert (await shelf.tidy(), shelf.blobs.objects) == (0, {})


async def test_a_bundle_that_goes_while_it_is_read_is_done_without() -> None:
    shelf = Shelf()
    await put_cats(shelf, range(40), chunks=1)
    await shelf.tidy()
    shelf.blobs.before_read = {"/M/": BUNDLES}
    assert await cold(shelf) == {"stamp": 1, "M": 1, "I": 40, "X": 3}
    shelf.blobs.before_read = {}
    assert await shelf.tidy() == 1
    assert await cold(shelf) == {"stamp": 1, "M": 1, "X": 3}


async def test_two_that_tidy_at_once_leave_nothing_twice_at_last() -> None:
    shelf, reached, let_go = Shelf(), asyncio.Event(), asyncio.Event()
    await put_cats(shelf, range(40), chunks=1)
    put = shelf.blobs.put_bytes

    async def held_up(key: str, data: bytes) -> Blob:
        if "/M/" in key and not reached.is_set():
            reached.set()
            await let_go.wait()
        return await put(key, data)

    shelf.blobs.put_bytes = held_up  # type: ignore[method-assign]
    first = asyncio.ensure_future(shelf.index.tidy(STORE))
    await reached.wait()
    assert await Shelf(shelf.blobs).index.tidy(STORE)
    let_go.set()
    assert await first
    assert len(bundles_of(shelf.blobs)) == 2
    assert await shelf.tidy() == 1
    assert len(bundles_of(shelf.blobs)) == 1
    assert await cold(shelf) == {"stamp": 1, "M": 1, "X": 3}


# --- Whatever happens ----------------------------------------------------------------------------------------------------------------


class Killed(Exception):
    """The process that writes is dead."""


@dataclass
class Life:
    """A store that changes at random, whose writers die at random; and what it has to hold, by what was said to its writers."""

    seed: int
    shelf: Shelf = field(default_factory=lambda: Shelf(bundles=SMALL, block_chunks=8))
    files: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    left_until_death: int | None = None

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        blobs = self.shelf.blobs
        put, delete = blobs.put_bytes, blobs.delete

        async def mortal_put(key: str, data: bytes) -> Blob:
            self.live()
            return await put(key, data)

        async def mortal_delete(key: str) -> None:
            self.live()
            await delete(key)

        blobs.put_bytes, blobs.delete = mortal_put, mortal_delete  # type: ignore[method-assign]

    def live(self) -> None:
        if self.left_until_death is not None:
            self.left_until_death -= 1
            if self.left_until_death < 0:
                raise Killed

    async def step(self) -> None:
        self.shelf.now += 1
        name = f"file-{self.dice.randrange(60):02d}"
        match self.dice.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                text = f"cat {self.dice.randrange(10**6)}"
                await self.shelf.index.put_file(STORE, IndexedFile(name, f"{name}.md"), [text] * self.dice.choice((1, 1, 1, 5)))
                self.files[name] = (text, None)
            case 5:
                await self.shelf.index.delete_file(STORE, name)
                self.files.pop(name, None)
            case 6:
                await self.shelf.index.set_attributes(STORE, name, {"number": self.shelf.now})
                if name in self.files:
                    self.files[name] = (self.files[name][0], int(self.shelf.now))
            case _:
                await self.tidy_and_die()

    async def tidy_and_die(self) -> None:
        """Or not, if it is done before."""
        self.left_until_death = self.dice.choice((None, 0, 1, 2, 3))
        with suppress(Killed):
            await self.shelf.tidy()
        self.left_until_death = None

    async def found(self, shelf: Shelf) -> dict[str, tuple[str, int | None]]:
        hits = await shelf.index.search([STORE], ["cat"], SearchOptions(max_num_results=1_000))
        return {hit.file_id: (hit.text, hit.attributes.get("number")) for hit in hits}  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(12))
async def test_deaths_and_changes_lose_nothing_repeat_nothing_and_bring_nothing_back(seed: int) -> None:
    life = Life(seed)
    for number in range(120):
        await life.step()
        if number % 10 == 0:
            assert await life.found(life.shelf) == life.files
            assert await life.found(Shelf(life.shelf.blobs, bundles=SMALL, block_chunks=8)) == life.files
    await life.shelf.tidy()
    assert await life.found(Shelf(life.shelf.blobs, bundles=SMALL)) == life.files
    held = [part for value in bundles_of(life.shelf.blobs).values() for part in _names(value)]
    assert len(held) == len(set(held)), "nothing is copied twice"
    there = {key.partition("/I/")[2] for key in life.shelf.blobs.objects if "/I/" in key}
    assert set(held) <= there, "nothing of what has gone is left"
    assert len(there) - len(held) < 2 * SMALL.loose_max


def _names(bundle: bytes) -> list[str]:
    head = orjson.loads(bundle[4 : 4 + int.from_bytes(bundle[:4], "little")])
    return [name for name, _ in head["parts"]]


# --- What is done next ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[10], [10, 10, 10, 300], [700], [90, 200, 1_000], [1]])
def test_a_store_that_grows_has_few_bundles_and_copies_each_object_a_few_times(sizes: list[int]) -> None:
    bounds = BundleLimits(loose_max=4, bundle_bytes=2_000, tidied_bytes=8_000)
    live: dict[str, int] = {}
    bundles: list[IndexBundle] = []
    copied = 0
    for number in range(1_500):
        live[f"{number:04d}"] = sizes[number % len(sizes)]
        while plan := planned(live, bundles, bounds):
            gone = {bundle.key for bundle, _ in plan.bundles}
            parts = [key for _, own in plan.bundles for key in own] + list(plan.loose)
            copied += sum(live[key] for key in parts)
            bundles = [bundle for bundle in bundles if bundle.key not in gone] + _packed(number, live, parts, bounds.bundle_bytes)
        held = sum(len(bundle.parts) for bundle in bundles)
        full = [bundle for bundle in bundles if bundle.bytes >= bounds.bundle_bytes // 2]
        assert len(live) - held < bounds.loose_max
        assert len(bundles) - len(full) <= bounds.small_max
    assert copied <= 10 * sum(live.values())


def _packed(number: int, live: dict[str, int], keys: list[str], bytes_max: int) -> list[IndexBundle]:
    packed: list[dict[str, int]] = [{}]
    for key in keys:
        if sum(packed[-1].values()) + live[key] > bytes_max:
            packed.append({})
        packed[-1][key] = live[key]
    return [IndexBundle(f"{number}-{at}", parts) for at, parts in enumerate(packed)]


def test_a_great_deal_is_tidied_part_by_part() -> None:
    bounds = BundleLimits(loose_max=4, bundle_bytes=2_000, tidied_bytes=8_000)
    live = {f"{number:02d}": 1_000 for number in range(30)}
    stale = [IndexBundle(f"b{number}", {f"{number:02d}": 1_000, "gone": 1_000}) for number in range(10)]
    plan = planned(live, stale, bounds)
    assert plan is not None
    assert [bundle.key for bundle, _ in plan.bundles] == ["b0", "b1", "b2", "b3"]
    assert plan.loose == tuple(sorted(live)[10:18])
    assert planned({}, stale[:1], bounds) == MergePlan(((stale[0], frozenset()),))
    assert planned({}, [], bounds) is None
