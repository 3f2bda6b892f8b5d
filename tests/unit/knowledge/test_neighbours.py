"""Vectors in S3 Vectors: that a search says the same as in memory, how much it asks, and what writers that die, race or are refused
leave. ``test_index.py`` tells what an index does; here stands what only this way of it can do wrong."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from moorage import limits
from moorage.errors import VectorBucketError
from moorage.knowledge.embeddings import Embeddings
from moorage.knowledge.index import IndexedFile, IndexRef, SearchOptions, Weights
from moorage.knowledge.knowledge import Knowledge
from moorage.knowledge.neighbours import Candidates, Neighbours
from moorage.knowledge.object_index import ObjectIndex
from moorage.knowledge.ranking import Query, Rankings
from moorage.model.embedding_models import EmbeddedTexts
from moorage.runtime import build_runtime
from moorage.settings import Settings

from tests.unit.knowledge.embedders import Counted, no_budgets
from tests.unit.knowledge.vector_service import BUCKET, FakeS3Vectors
from tests.unit.resources.service import NoModels
from tests.unit.store.memory import MemoryBlobs

DIMENSION = 24
STORE = IndexRef("acme", "vs_1", "drawn", DIMENSION)
WORDS = ("anchor", "bosun", "capstan", "davit", "ebb", "fathom", "galley", "halyard", "keel", "lee", "mast", "oar")


class DrawnEmbedder:
    """The vector of a text is the sum of its words', which are drawn once for all: chunks are more or less alike."""

    name = "drawn"
    dimension = DIMENSION

    def takes(self, dimension: int) -> bool:
        return True

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        return EmbeddedTexts([self._vector(text, dimension) for text in texts], 0)

    def _vector(self, text: str, dimension: int) -> bytes:
        return sum((_drawn(word, dimension) for word in text.split()), np.zeros(dimension, "<f4")).tobytes()


@cache
def _drawn(word: str, dimension: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(list(word.encode())).normal(size=dimension).astype("<f4")


class Desk:
    """One process's index, with a vector bucket or without, over a bucket that others may share."""

    def __init__(
        self, vectors: FakeS3Vectors | None, blobs: MemoryBlobs | None = None, *, arn: str = BUCKET, now: float = 1.8e9
    ) -> None:
        self.blobs = blobs or MemoryBlobs()
        self.now = now
        embedder = DrawnEmbedder()
        bucket = None if vectors is None else vectors.bucket(arn)
        self.neighbours = None if bucket is None else Neighbours(bucket, self.blobs)
        embeddings = Embeddings(embedder, {embedder.name: embedder}, Counted(), {}, no_budgets())
        self.index = ObjectIndex(self.blobs, embeddings, clock=lambda: self.now, neighbours=self.neighbours)

    async def put(self, number: int, *chunks: str, store: IndexRef = STORE) -> None:
        await self.index.put_file(store, file_of(number), chunks)

    async def found(self, *queries: str, store: IndexRef = STORE, **options: Any) -> list[tuple[str, str, float]]:
        hits = await self.index.search([store], queries, SearchOptions(**options))
        return [(hit.file_id, hit.text, hit.score) for hit in hits]

    def notes(self) -> list[str]:
        return [key for key in self.blobs.objects if "/V/" in key]


def assert_alike(got: list[tuple[str, str, float]], expected: list[tuple[str, str, float]], what: str) -> None:
    """The same hits with the same scores, as far as two bytes a number tell likenesses apart: neighbours may change places, also with
    the one that just misses the end."""
    scores, wanted = ({hit[:2]: hit[2] for hit in hits} for hits in (got, expected))
    assert len(scores) == len(wanted), what
    for hit in scores.keys() | wanted.keys():
        assert abs(scores.get(hit, min(scores.values())) - wanted.get(hit, min(wanted.values()))) < 5e-3, (what, hit)
    assert [score for *_, score in got] == sorted(scores.values(), reverse=True), what


def file_of(number: int) -> IndexedFile:
    return IndexedFile(
        f"file-{number:03d}", f"{number}.md", {"number": number, "kind": "odd" if number % 2 else "even", "draft": number < 3}
    )


def comparison(kind: str, key: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


OPTIONS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "vectors alone": {"weights": Weights(1, 0)},
    "words alone": {"weights": Weights(0, 1)},
    "weighted": {"weights": Weights(3, 1)},
    "without a fusion": {"ranker": "none"},
    "above a score": {"ranker": "none", "score_threshold": 0.6},
    "few": {"max_num_results": 3},
    "many": {"max_num_results": 50},
    "eq": {"filters": comparison("eq", "kind", "odd")},
    "ne": {"filters": comparison("ne", "kind", "odd")},
    "gt": {"filters": comparison("gt", "number", 20)},
    "gte of texts": {"filters": comparison("gte", "kind", "f")},
    "lt": {"filters": comparison("lt", "number", 7)},
    "lte": {"filters": comparison("lte", "number", 0)},
    "in": {"filters": comparison("in", "number", [1, 5, 9, "9"])},
    "nin": {"filters": comparison("nin", "number", [1, 5, 9])},
    "a boolean": {"filters": comparison("eq", "draft", True)},
    "a name": {"filters": comparison("eq", "filename", "11.md")},
    "an attribute that none has": {"filters": comparison("ne", "colour", "red")},
    "both": {"filters": {"type": "and", "filters": [comparison("eq", "kind", "even"), comparison("gt", "number", 10)]}},
    "one of two": {"filters": {"type": "or", "filters": [comparison("eq", "draft", True), comparison("gt", "number", 25)]}},
    "none fits": {"filters": comparison("eq", "kind", "neither")},
}


async def test_a_search_says_the_same_as_in_memory() -> None:
    here, there = Desk(None), Desk(FakeS3Vectors())
    draw = random.Random(7)
    for number in range(30):
        chunks = [" ".join(draw.choices(WORDS, k=6)) + f" n{number} c{chunk}" for chunk in range(draw.randrange(1, 25))]
        await here.put(number, *chunks)
        await there.put(number, *chunks)
    for desk in (here, there):
        await desk.index.set_attributes(STORE, "file-004", {"number": 400, "kind": "odd"})
        await desk.index.delete_file(STORE, "file-005")
    for name, options in OPTIONS.items():
        for queries in (["anchor mast keel"], ["halyard", "oar bosun lee"], ["nothing that is there"]):
            expected, got = await here.found(*queries, **options), await there.found(*queries, **options)
            assert_alike(got, expected, name)


# --- how much is asked ----------------------------------------------------------------------------------------------------------------


async def test_writing_searching_and_deleting_take_as_few_calls_as_there_must_be() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(1, *(f"anchor {chunk}" for chunk in range(1_200)))
    assert vectors.calls == {"PutVectors": 4, "CreateIndex": 1}, "three, and the one that found no index"
    vectors.calls.clear()
    await desk.put(2, "mast")
    assert vectors.calls == {"PutVectors": 1}
    vectors.calls.clear()
    assert await desk.found("anchor", "mast", max_num_results=1)
    assert vectors.calls == {"QueryVectors": 4}, "two pages for each query"
    vectors.calls.clear()
    await desk.found("anchor", weights=Weights(0, 1))
    assert vectors.calls == {}
    await desk.index.delete_file(STORE, "file-001")
    assert (vectors.calls, vectors.vectors()) == ({"DeleteVectors": 3}, [key for key in vectors.vectors() if "file-002" in key])
    vectors.calls.clear()
    await desk.index.delete(STORE)
    assert (vectors.calls, vectors.indexes, desk.blobs.objects) == ({"DeleteIndex": 1}, {}, {})


async def test_whoever_searches_reads_no_vector() -> None:
    vectors, blobs, read = FakeS3Vectors(), MemoryBlobs(), list[str]()
    await Desk(vectors, blobs).put(1, "anchor", "mast")
    get = blobs.get_bytes

    async def noted(key: str) -> bytes:
        read.append(key)
        return await get(key)

    blobs.get_bytes = noted  # type: ignore[method-assign]
    assert await Desk(vectors, blobs).found("anchor", ranker="none", max_num_results=1) == [("file-001", "anchor", 1.0)]
    assert sorted(key.split("/")[4] for key in read) == ["V", "X", "stamp"]


async def test_what_is_told_of_vectors_is_copied_into_bundles_too() -> None:
    vectors, blobs, read = FakeS3Vectors(), MemoryBlobs(), list[str]()
    desk = Desk(vectors, blobs)
    for number in range(limits.INDEX_LOOSE_MAX + 8):
        await desk.put(number, f"anchor {number}")
    while await desk.index.tidy(STORE):
        pass
    assert [key.split("/")[4:7] for key in blobs.objects if "/M/" in key] == [["M", "neighbours", "moorage-vectors"]]
    get = blobs.get_bytes

    async def noted(key: str) -> bytes:
        read.append(key)
        return await get(key)

    blobs.get_bytes = noted  # type: ignore[method-assign]
    other = Desk(vectors, blobs)
    assert await other.found("anchor 7", ranker="none", max_num_results=1) == [("file-007", "anchor 7", 1.0)]
    assert sorted(key.split("/")[4] for key in read) == ["M", "X", "stamp"]
    assert await other.index.delete_file(STORE, "file-007"), "a copy of it may be left"
    while await desk.index.tidy(STORE):
        pass
    assert [key for key, data in blobs.objects.items() if b"file-007" in data] == []
    assert len(await Desk(vectors, blobs).found("anchor", max_num_results=50)) == limits.INDEX_LOOSE_MAX + 7


async def test_a_filter_narrows_by_files_and_never_asks_for_more_than_a_thousand_at_once() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(0, "anchor")
    vector = np.frombuffer((await DrawnEmbedder().embed(["anchor"], DIMENSION)).vectors[0], "<f4")
    rankings = Rankings([Query((), {"drawn": vector}), Query((), {"drawn": vector})], SearchOptions())
    candidates = Candidates({f"file-{n:05d}/{n:016x}": (0, n) for n in range(limits.VECTOR_STORE_FILES_MAX)}, is_whole=False)
    assert desk.neighbours is not None
    await desk.neighbours.rank(rankings, {STORE: candidates})
    narrowed = [asked["filter"]["version"]["$in"] for asked in vectors.asked]
    assert [len(words) for words in narrowed] == [1_000] * 20
    assert len({word for words in narrowed for word in words}) == limits.VECTOR_STORE_FILES_MAX


async def test_a_look_that_can_find_nothing_is_not_taken() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(0, "anchor")
    assert await desk.found("anchor", filters=comparison("eq", "number", 1)) == []
    assert await desk.found("", ranker="none") == []
    assert vectors.calls["QueryVectors"] == 0


async def test_a_long_models_vectors_are_put_in_smaller_parts_or_compared_in_memory() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    wide = IndexRef("acme", "vs_wide", "drawn", 4_096)
    await desk.put(0, *(f"anchor {chunk}" for chunk in range(70)), store=wide)
    assert vectors.calls["PutVectors"] == 1 + math.ceil(70 / (limits.VECTOR_NUMBERS_PUT_MAX // 4_096))
    vectors.calls.clear()
    wider = IndexRef("acme", "vs_wider", "drawn", 4_097)
    await desk.put(0, "anchor", store=wider)
    assert await desk.found("anchor", store=wider, ranker="none") == [("file-000", "anchor", 1.0)]
    assert vectors.calls == {}


# --- what goes wrong ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["throttled", "lost"])
async def test_a_call_that_is_throttled_or_whose_reply_gets_lost_is_made_again(fault: str) -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(0, "anchor", "mast")
    vectors.faults.extend([("PutVectors", fault), ("QueryVectors", fault)])
    await desk.put(0, "keel", "mast")
    assert len(vectors.vectors()) == 2
    assert (await desk.found("keel", ranker="none", max_num_results=1)) == [("file-000", "keel", 1.0)]
    assert vectors.calls == {"PutVectors": 4, "CreateIndex": 1, "DeleteVectors": 1, "QueryVectors": 2}


async def test_what_was_made_or_deleted_though_its_reply_got_lost_is_no_error() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    vectors.faults.append(("CreateIndex", "lost"))
    await desk.put(0, "anchor", "mast")
    assert len(vectors.vectors()) == 2
    vectors.faults.append(("DeleteIndex", "lost"))
    await desk.index.delete(STORE)
    assert (vectors.indexes, desk.blobs.objects) == ({}, {})


async def test_what_a_writer_that_died_has_left_is_not_found_and_goes_with_the_next_one() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(1, "anchor mast")

    async def dies(key: str, data: bytes) -> Any:
        if "/X/" in key:
            raise ConnectionError
        return await put(key, data)

    put, desk.blobs.put_bytes = desk.blobs.put_bytes, dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await desk.put(0, *(f"anchor {chunk}" for chunk in range(450)))
    desk.blobs.put_bytes = put  # type: ignore[method-assign]
    assert len(vectors.vectors()) == 451
    assert [text for _, text, _ in await desk.found("anchor", ranker="none")] == ["anchor mast"], "beyond the first two hundred"
    assert [asked["topK"] for asked in vectors.asked] == [200, 200, 800, 800, 800, 800, 800]
    await desk.put(0, "keel")
    assert len(vectors.vectors()) == 2


async def test_tidying_up_clears_away_what_no_writer_comes_back_for() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    desk = Desk(vectors, blobs)
    await desk.put(1, "mast")
    await desk.put(0, "anchor")
    await Desk(None, blobs).index.delete_file(STORE, "file-000")  # by a function that knows of no vector bucket
    assert not await desk.index.tidy(STORE), "its writer may still be at it"
    assert len(vectors.vectors()) == 2
    desk.now += limits.INDEXING_LAST_SECONDS + 1
    assert await desk.index.tidy(STORE)
    assert not await desk.index.tidy(STORE)
    assert ([key.split("/")[0] for key in vectors.vectors()], len(desk.notes())) == (["file-001"], 1)
    assert [text for _, text, _ in await desk.found("anchor mast")] == ["mast"]


async def test_a_file_that_is_deleted_while_it_is_put_leaves_no_vector() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(1, "mast")

    def deleted(operation: str) -> None:
        """Whoever deletes the file sees what is told of its vectors, and the vectors come after that."""
        for key in desk.notes() if operation == "PutVectors" else []:
            if "file-000" in key:
                del desk.blobs.objects[key]

    vectors.before = deleted
    await desk.put(0, "anchor", "keel")
    assert [key.split("/")[0] for key in vectors.vectors()] == ["file-001"]
    assert len(desk.notes()) == 1
    assert [text for _, text, _ in await desk.found("anchor", max_num_results=1)] == ["anchor"], "until whoever reads it takes it back"


async def test_of_two_writers_the_later_ones_vectors_count_whoever_ends_first() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    late, early = Desk(vectors, blobs, now=1.8e9 + 1), Desk(vectors, blobs)
    await late.put(0, "mast")
    await early.put(0, "anchor", "keel")
    assert [text for _, text, _ in await early.found("anchor mast keel", ranker="none")] == ["mast"]
    assert len(vectors.vectors()) == 3, "the earlier one's go with the next"
    await Desk(vectors, blobs, now=1.8e9 + 2).put(0, "oar")
    assert (len(vectors.vectors()), len(early.notes())) == (1, 1)


async def test_a_vector_bucket_without_room_for_an_index_leaves_the_store_in_memory() -> None:
    vectors = FakeS3Vectors(indexes_max=1)
    desk, other = Desk(vectors), IndexRef("acme", "vs_2", "drawn", DIMENSION)
    await desk.put(0, "anchor")
    await desk.put(0, "anchor", store=other)
    vectors.asked.clear()
    assert await desk.found("anchor", store=other, ranker="none") == [("file-000", "anchor", 1.0)]
    assert (vectors.asked, len(desk.notes())) == ([], 1)


async def test_a_deleted_index_is_made_again_with_the_next_file() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    desk, other = Desk(vectors, blobs), Desk(vectors, blobs, now=1.8e9 + 100)
    for number in range(3):
        await desk.put(number, f"anchor {WORDS[number]}")
    await desk.put(3, "anchor", store=(elsewhere := IndexRef("acme", "vs_2", "drawn", DIMENSION)))
    expected = await Desk(None, blobs).found("anchor", ranker="none")
    assert_alike(await desk.found("anchor", ranker="none"), expected, "by the index")
    vectors.indexes.clear()
    for each in (desk, other):
        assert_alike(await each.found("anchor", ranker="none"), expected, "in memory")
    assert len(await desk.index.search([STORE, elsewhere], ["anchor"], SearchOptions())) == 4, "of two stores, both gone"
    asked = vectors.calls["QueryVectors"]
    await desk.found("anchor", ranker="none")
    assert vectors.calls["QueryVectors"] == asked, "nobody asks for what is known to be gone"
    await other.put(4, "anchor oar")
    assert ([key.split("/")[0] for key in vectors.vectors()], len(desk.notes())) == (["file-004"], 2), "what was told is taken back"
    expected = await Desk(None, blobs).found("anchor", ranker="none")
    for each in (desk, other):
        assert_alike(await each.found("anchor", ranker="none"), expected, "the new one by the index, the others in memory")
    while await other.index.tidy(STORE):
        pass
    assert [key.split("/")[0] for key in vectors.vectors()] == ["file-000", "file-001", "file-002", "file-004"]
    vectors.asked.clear()
    for each in (desk, other, Desk(vectors, blobs)):
        assert_alike(await each.found("anchor", ranker="none"), expected, "by the index again")
    assert len(vectors.asked) == 3


async def test_older_files_come_into_the_vector_bucket_by_the_sweep() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    for number in range(limits.VECTORS_PUT_AGAIN_MAX + 1):
        await Desk(None, blobs).put(number, f"anchor {number}")
    await Desk(None, blobs).put(99, "")
    desk = Desk(vectors, blobs)
    assert await desk.index.tidy(STORE)
    assert len(vectors.vectors()) == limits.VECTORS_PUT_AGAIN_MAX
    while await desk.index.tidy(STORE):
        pass
    assert (len(vectors.vectors()), len(desk.notes())) == (limits.VECTORS_PUT_AGAIN_MAX + 1, limits.VECTORS_PUT_AGAIN_MAX + 1)
    full = Desk(FakeS3Vectors(indexes_max=0), blobs, arn=BUCKET)
    for key in desk.notes():
        del blobs.objects[key]
    assert not await full.index.tidy(STORE), "there is no room, and nobody tries again and again"


async def test_a_death_while_vectors_are_put_again_leaves_a_file_that_is_found() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    await Desk(None, blobs).put(0, "anchor")
    desk = Desk(vectors, blobs)
    vectors.faults.append(("PutVectors", "AccessDeniedException"))
    with pytest.raises(VectorBucketError, match="refuses this"):
        await desk.index.tidy(STORE)
    assert (await desk.found("anchor", ranker="none"), desk.notes()) == ([("file-000", "anchor", 1.0)], [])
    assert await desk.index.tidy(STORE)
    assert (len(vectors.vectors()), len(desk.notes())) == (1, 1)


async def test_a_vector_bucket_that_somebody_has_deleted_leaves_everything_in_memory() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    desk = Desk(vectors, blobs)
    await desk.put(0, "anchor")
    vectors.is_there = False
    await desk.put(1, "anchor mast")
    assert [file for file, *_ in await desk.found("anchor", ranker="none")] == ["file-000", "file-001"]
    assert not await desk.index.tidy(STORE)


REFUSALS: dict[str, tuple[str, str]] = {
    "rights": ("AccessDeniedException", "refuses this: its operator finds why in the logs"),
    "a key": ("KmsDisabledException", "refuses this: its operator finds why in the logs"),
    "a quota": ("ServiceQuotaExceededException", "refuses this: its operator finds why in the logs"),
    "an outage": ("ServiceUnavailableException", "is busy or away; try again later"),
    "a throttle": ("TooManyRequestsException", "is busy or away; try again later"),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_what_is_refused_is_told_as_what_it_is_and_stores_nothing(what: str) -> None:
    code, words = REFUSALS[what]
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(0, "anchor")
    before = {key: data for key, data in desk.blobs.objects.items() if "/V/" not in key}
    vectors.faults.extend([("PutVectors", code)] * 6)
    with pytest.raises(VectorBucketError) as put:
        await desk.put(0, "mast")
    assert {key: data for key, data in desk.blobs.objects.items() if "/V/" not in key} == before
    vectors.faults.clear()
    vectors.faults.extend([("QueryVectors", code)] * 6)
    with pytest.raises(VectorBucketError) as asked:
        await desk.found("anchor")
    for told in (put.value, asked.value):
        assert (told.message, told.is_retryable) == (f"The vector bucket {words} ({code}).", "later" in words)


async def test_vectors_of_another_length_are_refused_and_what_there_is_stays() -> None:
    vectors = FakeS3Vectors()
    desk = Desk(vectors)
    await desk.put(0, "anchor")
    vectors.dimensions = dict.fromkeys(vectors.dimensions, 3)
    with pytest.raises(VectorBucketError, match="ValidationException"):
        await desk.put(0, "mast")
    assert await desk.index.chunks(STORE, "file-000") == ["anchor"]


# --- with and without a vector bucket -------------------------------------------------------------------------------------------------


async def test_a_vector_bucket_may_come_go_and_be_another_one() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    without, with_one = Desk(None, blobs), Desk(vectors, blobs, now=1.8e9 + 1)
    await without.put(0, "anchor mast")
    await with_one.put(1, "anchor keel")
    expected = await without.found("anchor mast", ranker="none")
    assert {file for file, *_ in expected} == {"file-000", "file-001"}
    assert_alike(await with_one.found("anchor mast", ranker="none"), expected, "some here, some there")
    assert len(vectors.vectors()) == 1, "what was there before is compared in memory"
    elsewhere = Desk(vectors, blobs, arn=BUCKET + "-restored")
    assert_alike(await elsewhere.found("anchor mast", ranker="none"), expected, "what another bucket has is compared in memory")


async def test_tenants_and_stores_have_indexes_of_their_own() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    desk = Desk(vectors, blobs)
    stores = [IndexRef(tenant, store, "drawn", DIMENSION) for tenant in ("acme", "Ünï/x", "a" * 300) for store in ("vs_1", "vs_2")]
    for number, store in enumerate(stores):
        await desk.put(number, f"anchor {number}", store=store)
    assert len(vectors.indexes) == 6
    for number, store in enumerate(stores):
        assert [text for _, text, _ in await desk.found("anchor", store=store)] == [f"anchor {number}"]
    await desk.index.delete(stores[0])
    assert [len(await desk.found("anchor", store=store)) for store in stores] == [0, 1, 1, 1, 1, 1]


async def test_a_process_speaks_to_the_vector_bucket_that_its_settings_name() -> None:
    vectors, blobs = FakeS3Vectors(), MemoryBlobs()
    knowledge = Knowledge(NoModels(), cast("Any", None), blobs, Counted(), no_budgets(), lambda: 1.8e9, vectors.bucket)
    store = IndexRef("acme", "vs_1", knowledge.embeddings.default.name, knowledge.embeddings.default.dimension)
    await knowledge.index.put_file(store, file_of(0), ["Spring tides come with new and full moon."])
    assert [hit.text for hit in await knowledge.index.search([store], ["tide"], SearchOptions())] == [
        "Spring tides come with new and full moon."
    ]
    assert vectors.calls == {"PutVectors": 2, "CreateIndex": 1, "QueryVectors": 1}


def test_a_runtime_has_a_vector_client_only_with_a_vector_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    settings = Settings(
        "t", "b", content_key="00" * 32, models_file=str(Path(__file__).parents[3] / "models.toml"), provisioner="elsewhere"
    )
    assert build_runtime(settings).models.knowledge.vector_bucket is None
    made = build_runtime(replace(settings, vector_bucket=BUCKET)).models.knowledge.vector_bucket
    assert made is not None
    bucket = made()
    assert (bucket.name, bucket.client.meta.service_model.service_name) == ("moorage-vectors", "s3vectors")
