"""The best chunks for a search: the likeness of embeddings (cosine), shared words (BM25), and a mean of both.

The words of a chunk count as a share: its BM25 score, divided by the highest possible one for the query's words. A word that no chunk
has counts in that most, so that a chance match of "of" or "the" is a small share, and one of a rare number a large one. The score is
the weighted mean of the cosine and the share: a convex combination of scores with bounds that do not depend on other results (Bruch,
Gai, Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", 2023). So it tells how well a chunk answers. Blocks are looked
through one by one, and kept by nobody.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage import limits
from moorage.dataclass import dataclass
from moorage.knowledge.blocks import Block
from moorage.knowledge.index import Rank, Ranks, SearchOptions, Weights
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
class TopChunks:
    """The chunks with the highest scores so far."""

    found: list[tuple[float, Place]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether there may be chunks that are not among them."""
        return len(self.found) == limits.RANKED_DEPTH

    @property
    def floor(self) -> float:
        """The most that others have; 0 if there are no others."""
        return self.found[-1][0] if self.is_full else 0.0

    def look(self, number: int, scores: Floats, allowed: npt.NDArray[np.bool_] | None) -> None:
        lowest = self.found[-1][0] if self.is_full else -math.inf
        if better := _best(scores, allowed, lowest):
            self.add((float(scores[at]), (number, at)) for at in better)

    def add(self, found: Iterable[tuple[float, Place]]) -> None:
        self.found = sorted([*self.found, *found], key=_by_score)[: limits.RANKED_DEPTH]


@dataclass(frozen=True, slots=True)
class _Words:
    """A block's share in the words of one query."""

    number: int
    chunks: int
    allowed: npt.NDArray[np.bool_] | None
    postings: tuple[tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.uint16]], ...]
    """For each word: the chunks that have it, and how often."""
    lengths: Floats


@dataclass(slots=True)
class QueryTerms:
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

    def ranked(self) -> TopChunks:
        """By BM25; a chunk that has none of the words is left out."""
        best = TopChunks()
        rarities = self._rarities()
        for block in self.blocks:
            scores = self._scores(block, rarities)
            best.look(block.number, scores, scores > 0 if block.allowed is None else (scores > 0) & block.allowed)
        return best

    def most(self) -> float:
        """A score of BM25 that no chunk reaches, however often it has all words."""
        return (limits.BM25_K1 + 1) * sum(self._rarities())

    def _rarities(self) -> list[float]:
        return [self._rarity(word) for word in range(len(self.words))]

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
        self.weights = Weights(1, 0) if options.ranker == "none" else options.weights
        self.likeness: dict[tuple[int, str], TopChunks] = {}
        self.sharing = [QueryTerms(query.words) for query in queries] if self.weights.text > 0 else []

    def look(self, number: int, block: Block, model: str, allowed: npt.NDArray[np.bool_] | None) -> None:
        """``allowed`` says of each chunk whether it may be found; all may if there is none."""
        for which, query in enumerate(self.queries):
            if model in query.vectors and block.has_vectors and query.vectors[model].any():
                # Not by BLAS: its threads wait for each other where other work has the processors, for ten times as long.
                scores: Floats = np.einsum("ij,j->i", block.vectors, query.vectors[model])
                meant = _with_meaning(block.vectors, scores, allowed)
                self.likeness.setdefault((which, model), TopChunks()).look(number, scores, meant)
        for sharing in self.sharing:
            sharing.look(number, block, allowed)

    def add(self, which: int, model: str, found: Iterable[tuple[float, Place]]) -> None:
        """Likeness and place that another index has found for a query."""
        self.likeness.setdefault((which, model), TopChunks()).add(found)

    def best(self) -> list[Ranked]:
        """The best first, as many as are wanted. Of several queries the one counts that a chunk answers best."""
        shared = [sharing.ranked() for sharing in self.sharing]
        scores: dict[Place, float] = {}
        for which in range(len(self.queries)):
            for place, score in self._scores(which, shared).items():
                scores[place] = max(scores.get(place, -1.0), score)
        best = sorted(((score, place) for place, score in scores.items()), key=_by_score)[: self.options.max_num_results]
        by_embedding, by_text = (_ranks([each.found for each in ranking]) for ranking in (self.likeness.values(), shared))
        shown = [(round(min(max(score, 0.0), 1.0), 4), place) for score, place in best]
        enough = [found for found in shown if found[0] >= self.options.score_threshold]
        return [Ranked(score, place, Ranks(by_embedding.get(place), by_text.get(place))) for score, place in enough]

    def _scores(self, which: int, shared: Sequence[TopChunks]) -> dict[Place, float]:
        """Of one query. If a chunk is not among the best of one ranking, it gets the last one's score there."""
        alike = [each for (query, _), each in self.likeness.items() if query == which]
        cosines = {place: score for each in alike for score, place in each.found}
        shares: dict[Place, float] = {}
        cosine_floor, share_floor = min((each.floor for each in alike if each.is_full), default=0.0), 0.0
        if shared and (most := self.sharing[which].most()):
            shares = {place: score / most for score, place in shared[which].found}
            share_floor = shared[which].floor / most
        embedding, text = self.weights.embedding, self.weights.text
        return {
            place: (embedding * cosines.get(place, cosine_floor) + text * shares.get(place, share_floor)) / (embedding + text)
            for place in cosines | shares
        }


def _with_meaning(vectors: Floats, scores: Floats, allowed: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    """The allowed chunks without those that have an embedding of zeros: such an embedding resembles none, and would count as half
    alike.
    """
    none = np.flatnonzero(scores == 0)
    empty = none[~vectors[none].any(axis=1)]
    if not len(empty):
        return allowed
    meant: npt.NDArray[np.bool_] = np.ones(len(scores), np.bool_) if allowed is None else allowed.copy()
    meant[empty] = False
    return meant


def _ranks(rankings: Sequence[Ranking]) -> dict[Place, Rank]:
    """Of each chunk the best place that it has in any of them."""
    best: dict[Place, Rank] = {}
    for ranking in rankings:
        for number, (score, place) in enumerate(ranking, 1):
            if place not in best or (number, -score) < (best[place].place, -best[place].score):
                best[place] = Rank(number, score)
    return best


def _best(scores: Floats, allowed: npt.NDArray[np.bool_] | None, lowest: float) -> list[int]:
    """The chunks with the highest scores above the lowest that counts, in any order."""
    above = scores > lowest
    at: npt.NDArray[np.intp] = np.flatnonzero(above if allowed is None else above & allowed)
    if len(at) > limits.RANKED_DEPTH:
        at = at[np.argpartition(-scores[at], limits.RANKED_DEPTH)[: limits.RANKED_DEPTH]]
    found: list[int] = at.tolist()
    return found


def _by_score(found: tuple[float, Place]) -> tuple[float, Place]:
    """The higher first; equal ones keep their order, so that a repeated search gives the same result."""
    return -found[0], found[1]
