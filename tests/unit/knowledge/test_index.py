"""The index in the bucket: what is found and in which order, what concurrent writers leave, and what a process holds of it. Each test
is told twice: with the vectors compared in memory, and by S3 Vectors."""

import asyncio
from collections.abc import Awaitable, Iterator

import pytest
from moorage import limits
from moorage.errors import ApiError, UpstreamError
from moorage.knowledge.index import Hit, IndexedFile, IndexRef, Rank, Ranks, SearchOptions, Weights
from moorage.settings import Settings
from moorage.store.blobs import Blob

from tests.unit.knowledge.shelf import CATS, STORE, TRADE, CountedBlobs, Shelf, put_cats


@pytest.fixture(autouse=True, params=["in memory", "by S3 Vectors"])
def kind(request: pytest.FixtureRequest) -> Iterator[None]:
    Shelf.has_vector_bucket = request.param == "by S3 Vectors"
    yield
    Shelf.has_vector_bucket = False


async def shelf_with_two_files() -> Shelf:
    shelf = Shelf()
    await shelf.index.put_file(STORE, CATS, ["A cat purrs.", "Order number QX-42."])
    await shelf.index.put_file(STORE, TRADE, ["The market fell."])
    return shelf


# --- What is found --------------------------------------------------------------------------------------------------------------------


async def test_a_search_ranks_meaning_and_words_and_the_threshold_cuts() -> None:
    shelf = await shelf_with_two_files()
    assert await shelf.index.search([STORE], ["kitten"], SearchOptions()) == [
        Hit("vs_1", "file-cats", "cats.md", {"year": 2026, "kind": "pets"}, 0.5, "A cat purrs.", Ranks(Rank(1, 1.0))),
        Hit("vs_1", "file-trade", "trade.md", {"year": 2025}, 0.0, "The market fell.", Ranks(Rank(2, 0.0))),
    ]
    assert await shelf.texts("kitten") == ["A cat purrs."], "above a threshold"
    assert (await shelf.texts("order QX-42"), await shelf.texts("markets")) == (["Order number QX-42."], ["The market fell."])
    assert await shelf.found("nothing of this") == [], "a query without a meaning, and without a word that a chunk has"


async def test_several_queries_make_one_list_in_which_the_best_counts() -> None:
    shelf = await shelf_with_two_files()
    (one,), (other,) = await shelf.found("kitten", max_num_results=1), await shelf.found("market", max_num_results=1)
    assert await shelf.found("kitten", "market") == [other, one]
    assert shelf.model.asked[-1] == ["kitten", "market"]


async def test_weights_say_which_ranking_counts_and_one_that_does_not_is_not_asked_for() -> None:
    shelf = await shelf_with_two_files()
    asked = len(shelf.model.asked)
    (words,) = await shelf.found("kitten qx", weights=Weights(embedding=0, text=1))
    assert (words[2], len(shelf.model.asked)) == ("Order number QX-42.", asked)
    meaning = [("file-cats", 1.0, "A cat purrs."), ("file-trade", 0.0, "The market fell.")]
    assert await shelf.found("kitten qx", weights=Weights(embedding=1, text=0)) == meaning
    assert await shelf.found("kitten qx", weights=Weights(embedding=3, text=1), score_threshold=0.01) == [
        ("file-cats", 0.75, "A cat purrs."),
        ("file-cats", round(words[1] / 4, 4), "Order number QX-42."),
    ]


async def test_without_a_ranker_the_score_is_the_likeness_itself() -> None:
    shelf = await shelf_with_two_files()
    assert await shelf.found("market and tide", ranker="none") == [
        ("file-trade", 0.7071, "The market fell."),
        ("file-cats", 0.0, "A cat purrs."),
    ]


async def test_results_are_as_many_and_as_good_as_was_asked_for() -> None:
    shelf = Shelf()
    await shelf.index.put_file(STORE, CATS, [f"cat {'x ' * number}" for number in range(30)])
    assert len(await shelf.found("cat", max_num_results=7)) == 7
    scores = [score for _, score, _ in await shelf.found("cat", max_num_results=50)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 30
    assert [score for _, score, _ in await shelf.found("cat", max_num_results=50, score_threshold=0.6)] == [
        score for score in scores if score >= 0.6
    ]


async def test_filters_hold_for_files_and_their_names() -> None:
    shelf = await shelf_with_two_files()
    this_year = {"type": "eq", "key": "year", "value": 2026}
    assert await shelf.texts("cat market", filters=this_year) == ["A cat purrs."]
    assert await shelf.texts("cat market", filters={"type": "eq", "key": "filename", "value": "trade.md"}) == ["The market fell."]
    await shelf.index.set_attributes(STORE, "file-trade", {"year": 2026})
    assert sorted(await shelf.texts("cat market", filters=this_year)) == ["A cat purrs.", "The market fell."]
    hit = (await shelf.index.search([STORE], ["market"], SearchOptions()))[0]
    assert hit.attributes == {"year": 2026}
    await shelf.index.set_attributes(STORE, "file-trade", {})
    assert await shelf.texts("cat market", filters=this_year) == ["A cat purrs."]


async def test_attributes_of_a_file_that_is_not_there_are_nobodys() -> None:
    shelf = Shelf()
    await shelf.index.set_attributes(STORE, "file-gone", {"year": 2026})
    assert shelf.blobs.objects == {}


async def test_several_stores_are_one_search_also_with_different_models() -> None:
    shelf = await shelf_with_two_files()
    second = IndexRef("t", "vs_2", "other", 3)
    await shelf.index.put_file(second, IndexedFile("file-more", "more.md"), ["Another cat."])
    hits = await shelf.index.search([STORE, second, STORE], ["cat"], SearchOptions(score_threshold=0.01))
    assert sorted((hit.store_id, hit.text) for hit in hits) == [("vs_1", "A cat purrs."), ("vs_2", "Another cat.")]
    assert (shelf.model.asked[-1], shelf.other_model.asked[-1]) == (["cat"], ["cat"])


async def test_tenants_and_stores_do_not_see_each_other() -> None:
    shelf = await shelf_with_two_files()
    for other in (IndexRef("u", "vs_1", "pairs", 4), IndexRef("t", "vs_", "pairs", 4), IndexRef("t", "vs_12", "pairs", 4)):
        assert await shelf.found("cat", store=other) == []
        assert await shelf.index.chunks(other, "file-cats") == []
        await shelf.index.delete_file(other, "file-cats")
        await shelf.index.delete(other)
    assert await shelf.texts("cat") == ["A cat purrs."]
    assert all(key.startswith("T/t/K/vs_1/") for key in shelf.blobs.objects)


# --- What is written ------------------------------------------------------------------------------------------------------------------


async def test_a_file_is_replaced_whole_and_nothing_of_it_stays() -> None:
    shelf = await shelf_with_two_files()
    first = await shelf.index.put_file(STORE, CATS, ["A cat purrs.", "Order number QX-42."])
    count = len(shelf.blobs.objects)
    await shelf.index.set_attributes(STORE, "file-cats", {"year": 1})
    second = await shelf.index.put_file(STORE, CATS, ["A kitten sleeps."])
    assert (len(shelf.blobs.objects), second < first) == (count, True)
    assert await shelf.index.chunks(STORE, "file-cats") == ["A kitten sleeps."]
    hit = (await shelf.index.search([STORE], ["cat QX"], SearchOptions()))[0]
    assert (hit.text, hit.attributes) == ("A kitten sleeps.", CATS.attributes)


async def test_the_bytes_that_are_told_are_those_that_are_stored() -> None:
    shelf = Shelf()
    told = await shelf.index.put_file(STORE, CATS, ["A cat.", "🐈 ügly \ud800 text"])
    assert told == sum(len(value) for key, value in shelf.blobs.objects.items() if not key.endswith("/stamp"))
    assert await shelf.index.chunks(STORE, "file-cats") == ["A cat.", "🐈 ügly \ud800 text"]


async def test_a_file_may_have_no_chunk_and_a_chunk_no_word() -> None:
    shelf = Shelf()
    await shelf.index.put_file(STORE, CATS, [])
    await shelf.index.put_file(STORE, TRADE, ["", "…"])
    assert await shelf.index.chunks(STORE, "file-cats") == []
    assert await shelf.index.chunks(STORE, "file-trade") == ["", "…"]
    assert await shelf.found("cat") == []


async def test_a_deleted_file_and_a_deleted_store_leave_nothing() -> None:
    shelf = await shelf_with_two_files()
    assert await shelf.texts("cat") == ["A cat purrs."]
    await shelf.index.delete_file(STORE, "file-cats")
    await shelf.index.delete_file(STORE, "file-cats")
    assert await shelf.texts("cat") == []
    assert await shelf.texts("market") == ["The market fell."]
    await shelf.index.delete(STORE)
    assert (await shelf.found("market"), shelf.blobs.objects) == ([], {})


async def test_writers_of_one_store_lose_nothing_of_each_other() -> None:
    shared = CountedBlobs()
    shelves = [Shelf(shared) for _ in range(4)]
    files = [IndexedFile(f"file-{number:02d}", f"{number}.md") for number in range(24)]
    await asyncio.gather(*(shelves[number % 4].index.put_file(STORE, file, [f"cat word{number}"]) for number, file in enumerate(files)))
    for shelf in shelves:
        assert len(await shelf.found("cat", max_num_results=50)) == 24


async def test_of_two_writers_of_one_file_the_later_one_stays_whoever_ends_first() -> None:
    shared = CountedBlobs()
    slow, quick = Shelf(shared), Shelf(shared)
    quick.now += 1
    reached, let_go = asyncio.Event(), asyncio.Event()
    put = shared.put_bytes

    async def held_up(key: str, data: bytes) -> Blob:
        if "/I/" in key and not reached.is_set():
            reached.set()
            await let_go.wait()
        return await put(key, data)

    shared.put_bytes = held_up  # type: ignore[method-assign]
    writing = asyncio.ensure_future(slow.index.put_file(STORE, CATS, ["an old cat"]))
    await reached.wait()
    await quick.index.put_file(STORE, CATS, ["a new cat"])
    let_go.set()
    await writing
    assert await quick.index.chunks(STORE, "file-cats") == ["a new cat"]
    assert await slow.texts("cat") == ["a new cat"]


async def test_a_writer_that_dies_before_the_end_has_written_nothing() -> None:
    shelf = await shelf_with_two_files()
    put, count = shelf.blobs.put_bytes, len(shelf.blobs.objects)

    async def dies(key: str, data: bytes) -> Blob:
        if "/I/" in key:
            raise ConnectionError
        return await put(key, data)

    shelf.blobs.put_bytes = dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await shelf.index.put_file(STORE, CATS, ["half a kitten"])
    shelf.blobs.put_bytes = put  # type: ignore[method-assign]
    assert await shelf.texts("cat") == ["A cat purrs."]
    await shelf.index.put_file(STORE, CATS, ["a whole kitten"])
    assert await shelf.texts("kitten") == ["a whole kitten"]
    assert len(shelf.blobs.objects) == count, "what was left half is gone"


async def test_an_embedding_model_that_fails_stores_nothing_and_says_so() -> None:
    shelf = await shelf_with_two_files()
    shelf.model.is_down = True
    before = dict(shelf.blobs.objects)
    with pytest.raises(UpstreamError):
        await shelf.index.put_file(STORE, CATS, ["a kitten"])
    with pytest.raises(UpstreamError):
        await shelf.found("cat")
    assert shelf.blobs.objects == before


async def test_files_and_searches_are_counted_as_their_tenants() -> None:
    shelf = Shelf()
    await shelf.index.put_file(STORE, CATS, [f"cat {number}" for number in range(limits.EMBEDDED_AT_ONCE + 1)])
    await shelf.found("one cat", "two cats")
    await shelf.found("only words", weights=Weights(embedding=0, text=1))
    tokens = (2 * limits.EMBEDDED_AT_ONCE, 2, 4)
    assert shelf.counted.requests == [("t", "pairs", "", count, 2_000 * count) for count in tokens]


async def test_a_store_whose_model_is_gone_says_which_one() -> None:
    shelf = await shelf_with_two_files()
    with pytest.raises(ApiError, match=r"The embedding model 'old-one' does not exist .* This deployment has 'pairs' and 'other'"):
        await shelf.found("cat", store=IndexRef("t", "vs_1", "old-one", 4))


# --- What a process holds -------------------------------------------------------------------------------------------------------------


async def test_what_was_read_is_not_read_again_and_what_is_new_is_seen_at_once() -> None:
    shelf = Shelf(block_chunks=8)
    await put_cats(shelf, range(6))
    assert len(await shelf.found("cat", max_num_results=50)) == 24
    assert shelf.segments_read() == 6
    assert len(await shelf.found("cat", max_num_results=50)) == 24
    assert shelf.segments_read() == 0
    await put_cats(shelf, [6])
    assert len(await shelf.found("cat", max_num_results=50)) == 28
    assert shelf.segments_read() == 1, "whole blocks stay"
    await put_cats(shelf, [7])
    assert len(await shelf.found("cat", max_num_results=50)) == 32
    assert shelf.segments_read() <= 2, "a small block is made anew with what came"
    await shelf.index.delete_file(STORE, "file-00")
    assert len(await shelf.found("cat", max_num_results=50)) == 28


def test_a_function_holds_no_more_than_a_quarter_of_its_memory() -> None:
    told = {"MOORAGE_TABLE": "t", "MOORAGE_BUCKET": "b", "MOORAGE_CONTENT_KEY": "ab" * 32}
    small = Settings.from_environment(told | {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "384"})
    assert limits.index_cache_bytes(small.function_memory_mib) == 96 * 1024 * 1024
    assert limits.index_cache_bytes(10_240) == limits.INDEX_CACHE_BYTES_MAX
    assert limits.index_cache_bytes(Settings.from_environment(told).function_memory_mib) == limits.INDEX_CACHE_BYTES_MAX


@pytest.mark.parametrize("bound", [0, 1_500, 5_000, 10_000, 1_000_000])
async def test_results_are_the_same_whatever_a_process_may_hold(bound: int) -> None:
    shelf = Shelf(block_chunks=8)
    small = Shelf(shelf.blobs, block_chunks=8, cache_bytes_max=bound)
    await put_cats(shelf, range(12))
    for _ in range(2):
        assert sorted(await small.found("cat 3", max_num_results=4)) == sorted(await shelf.found("cat 3", max_num_results=4))
    held = sum(held.bytes for held in small.index._held.values())
    assert held <= bound


async def test_a_store_is_listed_again_only_after_a_change_whoever_has_made_it() -> None:
    shelf = await shelf_with_two_files()
    other = Shelf(shelf.blobs)
    other.now += 1

    async def listings(changed: Awaitable[object] | None) -> int:
        if changed is not None:
            await changed
        before = shelf.blobs.lists
        await shelf.found("cat")
        return shelf.blobs.lists - before

    assert [await listings(None) for _ in range(3)] == [1, 0, 0]
    assert await listings(other.index.put_file(STORE, CATS, ["A new cat."])) == 1
    assert await listings(other.index.set_attributes(STORE, "file-cats", {"year": 1})) == 1
    assert await listings(other.index.delete_file(STORE, "file-trade")) == 1
    assert await listings(None) == 0
    assert await listings(other.index.delete(STORE)) == 1


async def test_the_store_that_was_searched_longest_ago_makes_room() -> None:
    shelf = Shelf(cache_bytes_max=4_000)
    stores = [IndexRef("t", f"vs_{number}", "pairs", 4) for number in range(4)]
    for store in stores:
        await shelf.index.put_file(store, CATS, ["cat"])
    for store in (*stores, stores[0], stores[3]):
        await shelf.found("cat", store=store)
    assert 1 <= len(shelf.index._held) < 4
    shelf.segments_read()
    await shelf.found("cat", store=stores[3])
    assert shelf.segments_read() == 0


async def test_what_is_deleted_in_the_middle_of_a_search_is_left_out() -> None:
    shelf = await shelf_with_two_files()
    shelf.blobs.before_read = {"/X/file-cats": "T/t/K/vs_1/X/file-cats"}
    assert await shelf.texts("cat market") == ["The market fell."]
    await shelf.index.put_file(STORE, CATS, ["A cat purrs."])
    shelf.blobs.before_read = {f"/{part}/file-cats": f"T/t/K/vs_1/{part}/file-cats" for part in ("I", "V/moorage-vectors")}
    assert await shelf.texts("cat market") == ["The market fell."]
    await shelf.index.put_file(STORE, CATS, ["A cat purrs."])
    assert await shelf.index.chunks(STORE, "file-cats") == []


async def test_searches_at_once_read_a_store_once() -> None:
    shelf = await shelf_with_two_files()
    found = await asyncio.gather(*(shelf.texts("cat") for _ in range(5)))
    assert found == [["A cat purrs."]] * 5
    assert shelf.segments_read() == 2
