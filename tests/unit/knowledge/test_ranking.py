"""The rankings for themselves: words as they are compared, BM25 against another implementation, and the model that comes along."""

import math
import random
from typing import Any

import bm25s
import numpy as np
import pytest
from moorage import limits
from moorage.knowledge import segments, terms
from moorage.knowledge.blocks import Block, BlockFile
from moorage.knowledge.embeddings import Embeddings
from moorage.knowledge.index import IndexedFile, IndexRef, Rank, Ranks, SearchOptions, Weights
from moorage.knowledge.object_index import ObjectIndex
from moorage.knowledge.ranking import Query, Rankings
from moorage.knowledge.static_model import StaticEmbedder, is_installed

from tests.bench import retrieval, short_documents
from tests.unit.knowledge.embedders import Counted, no_budgets
from tests.unit.store.memory import MemoryBlobs

ALIKE = [
    ("Cats", "cat"),
    ("queries", "query"),
    ("ＦＵＬＬ width", "full width"),
    ("Straße", "STRASSE"),
    ("read_after", "read after"),
    ("QX-42", "qx 42"),
    ("glass", "glass"),
    ("ﬁnal", "final"),
    ("東京タワー", "東京タワー"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_words_are_compared_in_one_form(one: str, other: str) -> None:
    assert terms.counts(one) == terms.counts(other)


def test_words_that_differ_stay_different() -> None:
    assert len(terms.counts("bus buses us as is gas class news lens a b 1 2")) == 13
    assert terms.counts("the cat the") == terms.counts("cat the the")
    assert terms.counts("") == terms.counts("… — !") == {}


def test_scripts_without_spaces_are_found_by_their_parts() -> None:
    assert terms.counts("塔").keys() <= terms.counts("塔").keys()
    assert terms.counts("東京").keys() <= terms.counts("私は東京タワーに行く").keys()
    assert not terms.counts("京都").keys() & terms.counts("東京タワー").keys()
    assert terms.counts("v2東京").keys() == {*terms.counts("v2").keys(), *terms.counts("東京").keys()}


def test_what_is_no_word_is_kept_short() -> None:
    assert terms.counts("a" * 1_000_000) == terms.counts("a" * 64)


def block_of(texts: list[str], vectors: list[list[float]] | None = None) -> Block:
    numbers = np.array(vectors or [[0.0, 0.0]] * len(texts), "<f4")
    made, _ = segments.of(IndexedFile("file-1", "a.md"), texts, [row.tobytes() for row in numbers], numbers.shape[1])
    return Block.of([BlockFile("key", segments.Segment.from_bytes(made.to_bytes()))])


def test_bm25_ranks_as_another_implementation_does() -> None:
    drawn = random.Random(7)
    words = [f"w{number}" for number in range(60)]
    texts = [" ".join(drawn.choices(words, weights=range(1, 61), k=drawn.randint(3, 80))) for _ in range(300)]
    other = bm25s.BM25(method="lucene", k1=limits.BM25_K1, b=limits.BM25_B)
    other.index([text.split() for text in texts], show_progress=False)
    blocks = [block_of(texts[:100]), block_of(texts[100:])]
    for _ in range(20):
        asked = drawn.sample(words, 3)
        rankings = Rankings([Query(tuple(terms.counts(" ".join(asked))), {})], SearchOptions())
        for number, block in enumerate(blocks):
            rankings.look(number, block, "", None)
        found = {100 * number + chunk: score for score, (number, chunk) in rankings.sharing[0].ranked().found}
        scores: Any = other.get_scores(asked)
        best = sorted(found, key=lambda chunk: -found[chunk])[:50]
        # Lucene leaves the factor (k1 + 1) out, which is the same for all.
        assert [found[chunk] for chunk in best] == pytest.approx([(limits.BM25_K1 + 1) * scores[chunk] for chunk in best], rel=1e-4)
        assert len(found) == min(limits.RANKED_DEPTH, int((scores > 0).sum()))


def test_likeness_is_the_cosine_whatever_the_length_of_a_vector() -> None:
    block = block_of(["a", "b", "c", "d"], [[3, 4], [0.1, 0], [-1, 0], [0, 0]])
    query = segments.query(np.array([10, 0], "<f4").tobytes())
    rankings = Rankings([Query((), {"m": query})], SearchOptions(ranker="none"))
    rankings.look(0, block, "m", None)
    best = rankings.best()
    assert [found[:2] for found in best] == [(1.0, (0, 1)), (pytest.approx(0.6, abs=1e-3), (0, 0)), (0.0, (0, 2))]
    cosines = {place: score for score, place in rankings.likeness[0, "m"].found}
    assert [found.ranks for found in best] == [Ranks(Rank(place, cosines[0, at])) for place, at in ((1, 1), (2, 0), (3, 2))]
    assert cosines[0, 2] == -1, "the least alike is found too; what has no meaning is not"


def test_a_score_is_the_weighted_mean_of_the_cosine_and_the_share_of_the_words() -> None:
    block = block_of(["alpha", "alpha beta gamma", "delta"], [[1, 0], [1, 0.1], [1, 5]])
    query = Query(tuple(terms.counts("alpha")), {"m": segments.query(np.array([1, 0], "<f4").tobytes())})
    rankings = Rankings([query], SearchOptions(weights=Weights(embedding=1, text=2)))
    rankings.look(0, block, "m", None)
    best = rankings.best()
    rarity = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    most = (limits.BM25_K1 + 1) * rarity
    shared = {place: score for score, place in rankings.sharing[0].ranked().found}
    cosines = {place: score for score, place in rankings.likeness[0, "m"].found}
    assert [found.place for found in best] == [(0, 0), (0, 1), (0, 2)]
    means = [(cosines[place] + 2 * shared.get(place, 0) / most) / 3 for _, place, _ in best]
    assert [found.score for found in best] == pytest.approx(means, abs=1e-4)
    (_, _, first), (_, _, second), (_, _, third) = best
    assert (first.text, second.text, third.text) == (Rank(1, shared[0, 0]), Rank(2, shared[0, 1]), None)
    assert [ranks.embedding and ranks.embedding.place for ranks in (first, second, third)] == [1, 2, 3]


def test_a_chance_word_is_a_small_share_and_a_rare_one_a_large_one() -> None:
    block = block_of(["the end of the tale", "order QX-42", "sea and sky"])
    scores = {}
    for asked in ("end of something never heard", "order QX-42"):
        rankings = Rankings([Query(tuple(terms.counts(asked)), {})], SearchOptions(weights=Weights(embedding=0, text=1)))
        rankings.look(0, block, "", None)
        scores[asked] = [(place, score) for score, place, _ in rankings.best()]
    ((tale, chance),), ((order, rare),) = scores.values()
    assert (tale, order) == ((0, 0), (0, 1))
    assert chance < 0.2 < 0.4 < rare


def test_what_misses_the_best_of_one_ranking_has_no_more_than_the_last_of_them() -> None:
    """What is known of it is that it has less; to take it for nothing would lose a chunk that shares rare words."""
    many = limits.RANKED_DEPTH + 1
    block = block_of(["x"] * (many - 1) + ["anchor"], [[1, number / many] for number in range(many)])
    query = Query(tuple(terms.counts("anchor")), {"m": segments.query(np.array([1, 0], "<f4").tobytes())})
    rankings = Rankings([query], SearchOptions(max_num_results=1))
    rankings.look(0, block, "m", None)
    (best,) = rankings.best()
    last, share = rankings.likeness[0, "m"].found[-1][0], rankings.sharing[0].ranked().found[0][0] / rankings.sharing[0].most()
    assert (best.place, best.ranks.embedding) == ((0, many - 1), None)
    assert best.score == pytest.approx((last + share) / 2, abs=1e-4)


def test_of_several_queries_the_best_place_of_a_chunk_is_told() -> None:
    block = block_of(["alpha", "alpha beta gamma", "beta"])
    rankings = Rankings([Query(tuple(terms.counts(words)), {}) for words in ("alpha", "beta")], SearchOptions())
    rankings.look(0, block, "", None)
    places = {place: ranks.text.place for _, place, ranks in rankings.best() if ranks.text}
    assert places == {(0, 0): 1, (0, 1): 2, (0, 2): 1}


def test_the_many_are_cut_to_the_best() -> None:
    block = block_of([f"x {number}" for number in range(1_000)], [[1, number / 1_000] for number in range(1_000)])
    query = Query((), {"m": segments.query(np.array([1, 0], "<f4").tobytes())})
    rankings = Rankings([query], SearchOptions(max_num_results=50))
    rankings.look(0, block, "m", None)
    rankings.look(1, block, "m", np.arange(1_000) >= 990)
    assert {chunk for _, (number, chunk), _ in rankings.best() if number == 0} <= set(range(60))
    assert len(rankings.likeness[0, "m"].found) == limits.RANKED_DEPTH


# --- The model that comes along -----------------------------------------------------------------------------------------------------


async def test_the_small_model_knows_what_is_alike_and_asks_nobody() -> None:
    model = StaticEmbedder()
    assert is_installed()
    embedded = await model.embed(["A kitten is sleeping.", "The cat takes a nap.", "Interest rates were raised."], 256)
    kitten, cat, rates = (np.frombuffer(vector, "<f4") for vector in embedded.vectors)
    assert [round(float(np.linalg.norm(vector)), 4) for vector in (kitten, cat, rates)] == [1.0, 1.0, 1.0]
    assert float(kitten @ cat) > 0.3 > float(kitten @ rates)
    assert embedded.tokens == 18


async def test_its_vectors_may_be_shorter_and_a_text_may_be_empty() -> None:
    model = StaticEmbedder()
    (whole,), (short,) = (await model.embed(["tide"], 256)).vectors, (await model.embed(["tide"], 64)).vectors
    beginning = np.frombuffer(whole, "<f4")[:64]
    assert np.frombuffer(short, "<f4") == pytest.approx(beginning / np.linalg.norm(beginning), abs=1e-6)
    assert (await model.embed(["", "x"], 8)).vectors[0] == bytes(32)
    assert [model.takes(size) for size in (0, 1, 256, 257)] == [False, True, True, False]


async def test_a_paraphrase_finds_its_document_among_ten() -> None:
    model = StaticEmbedder()
    embeddings = Embeddings(model, {model.name: model}, Counted(), {}, no_budgets())
    index = ObjectIndex(MemoryBlobs(), embeddings, clock=lambda: 1.8e9)
    store = IndexRef("t", "vs_1", model.name, model.dimension)
    await index.put_file(store, IndexedFile("file-1", "a.md"), short_documents.TEXTS)
    missed: dict[str, set[str]] = {"both": set(), "vectors": set(), "words": set()}
    for asked, answer in short_documents.QUESTIONS:
        for name, weights in (("both", Weights(1, 1)), ("vectors", Weights(1, 0)), ("words", Weights(0, 1))):
            hits = await index.search([store], [asked], SearchOptions(weights=weights))
            if not hits or hits[0].text != short_documents.TEXTS[answer]:
                missed[name].add(asked)
            assert name == "words" or len(hits) == 10, "nothing is cut off but by a threshold"
    assert missed["both"] == missed["vectors"] == {"how animals navigate"}
    assert "end of life of stars" in missed["words"]


@pytest.mark.parametrize(
    "tried", [retrieval.short(), retrieval.paraphrases(60), retrieval.codes(300, 60)], ids=lambda tried: tried.name
)
async def test_both_rankings_find_no_less_than_the_better_of_them(tried: retrieval.Set) -> None:
    """``make bench`` asks the same of all of its questions, and of docstrings."""
    assert retrieval.worse(await retrieval.quality(tried)) == []


def test_a_set_in_which_they_find_less_is_named() -> None:
    rows = [
        *(("codes", "BM25", "1.000", "0.9", "1", "1"), ("codes", "vectors", "0.5", "0.5", "1", "1")),
        ("codes", "both", "1.000", "0.8", "1", "1"),
    ]
    assert retrieval.worse(rows) == ["codes: nDCG@10"]
