"""Which chunks fit a search best: the likeness of embeddings (cosine), shared words (BM25), and the fusion of both rankings.

Reciprocal rank fusion adds up ``weight / (60 + place)`` over the rankings that a chunk stands in; the sum is given as a share of what
the first place in all of them would make, which is 1. So a score tells how well a chunk stands among the others, and not how well it
answers: something stands first even where nothing fits. Blocks are looked through one by one, and kept by nobody.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage import limits
from moorage.knowledge.blocks import Block
from moorage.knowledge.index import Rank, Ranks, SearchOptions
from moorage.knowledge.segments import Floats

Place = tuple[int, int]
"""The number of a block, and of a chunk in it."""
Ranking = Sequence[tuple[float, Place]]


class Ranked(NamedTuple):
    score: float
    place: Place
    ranks: Ranks


@dataclass(frozen=True, slots=True)
class Query:
    words: tuple[int, ...]
    vectors: Mapping[str, Floats]
    """By the model that made it; empty if embeddings do not count."""


@dataclass(slots=True)
class Likeness:
    """The chunks of one model's stores that are most like one query so far."""

    found: list[tuple[float, Place]] = field(default_factory=list)

    def look(self, number: int, scores: Floats, allowed: npt.NDArray[np.bool_] | None) -> None:
        lowest = self.found[-1][0] if len(self.found) == limits.RANKED_DEPTH else 0.0
        if better := _best(scores, allowed, lowest):
            self.add((float(scores[at]), (number, at)) for at in better)

    def add(self, found: Iterable[tuple[float, Place]]) -> None:
        self.found = sorted([*self.found, *found], key=_by_score)[: limits.RANKED_DEPTH]


@dataclass(frozen=True, slots=True)
class _Words:
    """What one block has of one query's words."""

    number: int
    chunks: int
    allowed: npt.NDArray[np.bool_] | None
    postings: tuple[tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.uint16]], ...]
    """For each word: the chunks that have it, and how often."""
    lengths: Floats


@dataclass(slots=True)
class Sharing:
    """The words of one query in all stores. How rare a word is, is known when all blocks have been looked through."""

    words: tuple[int, ...]
    blocks: list[_Words] = field(default_factory=list)
    chunks: int = 0
    length: float = 0.0

    def look(self, number: int, block: Block, allowed: npt.NDArray[np.bool_] | None) -> None:
        self.chunks += block.chunks
        self.length += float(block.lengths.sum(dtype=np.float64))
        where = [block.postings(word) for word in self.words]
        if any(place.start < place.stop for place in where):
            # Copies: what is seen through would keep the whole block.
            postings = tuple((block.chunk_of[place].copy(), block.counts[place].copy()) for place in where)
            self.blocks.append(_Words(number, block.chunks, allowed, postings, block.lengths))

    def ranked(self) -> list[tuple[float, Place]]:
        best = Likeness()
        rarities = [self._rarity(word) for word in range(len(self.words))]
        for block in self.blocks:
            best.look(block.number, self._scores(block, rarities), block.allowed)
        return best.found

    def _rarity(self, word: int) -> float:
        having = sum(len(block.postings[word][0]) for block in self.blocks)
        return math.log(1 + (self.chunks - having + 0.5) / (having + 0.5))

    def _scores(self, block: _Words, rarities: Sequence[float]) -> Floats:
        mean = self.length / self.chunks
        scores = np.zeros(block.chunks, np.float32)
        for rarity, (chunks, counts) in zip(rarities, block.postings, strict=True):
            weights = limits.BM25_K1 * (1 - limits.BM25_B + limits.BM25_B * block.lengths[chunks] / mean)
            scores[chunks] += rarity * (limits.BM25_K1 + 1) * counts / (counts + weights)
        return scores


class Rankings:
    """One search over blocks that come one by one."""

    def __init__(self, queries: Sequence[Query], options: SearchOptions) -> None:
        self.queries = queries
        self.options = options
        self.likeness: dict[tuple[int, str], Likeness] = {}
        has_words = options.ranker != "none" and options.weights.text > 0
        self.sharing = [Sharing(query.words) for query in queries] if has_words else []

    def look(self, number: int, block: Block, model: str, allowed: npt.NDArray[np.bool_] | None) -> None:
        """``allowed`` says of each chunk whether it may be found; all may if there is none."""
        for which, query in enumerate(self.queries):
            if model in query.vectors and block.has_vectors:
                # Not by BLAS: its threads wait for each other where other work has the processors, for ten times as long.
                scores: Floats = np.einsum("ij,j->i", block.vectors, query.vectors[model])
                self.likeness.setdefault((which, model), Likeness()).look(number, scores, allowed)
        for sharing in self.sharing:
            sharing.look(number, block, allowed)

    def add(self, which: int, model: str, found: Iterable[tuple[float, Place]]) -> None:
        """What somebody else has found to be like a query: likeness and place."""
        self.likeness.setdefault((which, model), Likeness()).add(found)

    def best(self) -> list[Ranked]:
        """The best first, as many as are wanted."""
        alike = [likeness.found for likeness in self.likeness.values()]
        shared = [sharing.ranked() for sharing in self.sharing]
        scores = _most_alike(alike) if self.options.ranker == "none" else self._fused(alike, shared)
        wanted = [(round(score, 4), place) for place, score in scores.items()]
        enough = [found for found in wanted if found[0] >= self.options.score_threshold]
        best = sorted(enough, key=_by_score)[: self.options.max_num_results]
        by_embedding, by_text = _ranks(alike), _ranks(shared)
        return [Ranked(score, place, Ranks(by_embedding.get(place), by_text.get(place))) for score, place in best]

    def _fused(self, alike: Sequence[Ranking], shared: Sequence[Ranking]) -> dict[Place, float]:
        weights = self.options.weights
        scores: dict[Place, float] = {}
        for ranking in alike:
            _add(scores, ranking, weights.embedding)
        for ranking in shared:
            _add(scores, ranking, weights.text)
        most = len(self.queries) * (weights.embedding + weights.text) / (limits.RANK_CONSTANT + 1)
        return {place: score / most for place, score in scores.items()}


def _most_alike(rankings: Sequence[Ranking]) -> dict[Place, float]:
    scores: dict[Place, float] = {}
    for ranking in rankings:
        for score, place in ranking:
            scores[place] = max(scores.get(place, 0.0), min(score, 1.0))
    return scores


def _ranks(rankings: Sequence[Ranking]) -> dict[Place, Rank]:
    """Of each chunk the best place that it has in any of them."""
    best: dict[Place, Rank] = {}
    for ranking in rankings:
        for number, (score, place) in enumerate(ranking, 1):
            if place not in best or (number, -score) < (best[place].place, -best[place].score):
                best[place] = Rank(number, score)
    return best


def _add(scores: dict[Place, float], ranking: Ranking, weight: float) -> None:
    for rank, (_, place) in enumerate(ranking, 1):
        scores[place] = scores.get(place, 0.0) + weight / (limits.RANK_CONSTANT + rank)


def _best(scores: Floats, allowed: npt.NDArray[np.bool_] | None, lowest: float) -> list[int]:
    """The chunks with the highest scores above the lowest that counts, in any order."""
    above = scores > lowest
    at: npt.NDArray[np.intp] = np.flatnonzero(above if allowed is None else above & allowed)
    if len(at) > limits.RANKED_DEPTH:
        at = at[np.argpartition(-scores[at], limits.RANKED_DEPTH)[: limits.RANKED_DEPTH]]
    found: list[int] = at.tolist()
    return found


def _by_score(found: tuple[float, Place]) -> tuple[float, Place]:
    """The higher first; what is equal in the order in which it was looked at, so that a search says the same twice."""
    return -found[0], found[1]
