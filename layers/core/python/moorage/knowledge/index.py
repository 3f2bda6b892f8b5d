"""The search of vector stores: chunks of files, with their embeddings and their words.

A :class:`VectorIndex` knows nothing of the API's records. The caller names the stores and files to search; unknown ones are treated as
absent. Everything here may be done twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from moorage import limits

Attributes = Mapping[str, str | float | bool]


@dataclass(frozen=True, slots=True)
class IndexRef:
    """A store, and the embedding model that it was begun with: vectors of different models cannot be compared."""

    tenant: str
    store_id: str
    model: str
    dimension: int
    draws_on: tuple[str, ...] = field(default=(), compare=False)
    """The budgets of whoever has something embedded for it."""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    file_id: str
    filename: str
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the two rankings in their fusion (``ranking_options.hybrid_search``)."""

    embedding: float = 1.0
    text: float = 1.0


EQUAL: Final = Weights()

Ranker = Literal["auto", "default-2024-11-15", "none"]
"""``none``: by the likeness of embeddings alone, without a fusion."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    filters: Mapping[str, Any] | None = None
    """As ``wire/attribute_filters.py`` has checked it."""
    max_num_results: int = limits.SEARCH_RESULTS_DEFAULT
    ranker: Ranker = "auto"
    score_threshold: float = 0.0
    weights: Weights = EQUAL


@dataclass(frozen=True, slots=True)
class Rank:
    """The position of a chunk in one ranking."""

    place: int
    """1 is the first."""
    score: float
    """What it is ranked by: the cosine, or the sum of BM25."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The position of a chunk in both, the best of all queries; None if one ranking does not have it."""

    embedding: Rank | None = None
    text: Rank | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    store_id: str
    file_id: str
    filename: str
    attributes: Attributes
    score: float
    """0 to 1."""
    text: str
    ranks: Ranks = Ranks()


class VectorIndex(Protocol):
    async def put_file(self, store: IndexRef, file: IndexedFile, chunks: Sequence[str]) -> int:
        """Embed and store the chunks of a file, in place of those that it had; answers how many bytes they take. Raises
        :class:`~moorage.errors.UpstreamError` if the embedding model does."""
        ...

    async def set_attributes(self, store: IndexRef, file_id: str, attributes: Attributes) -> bool:
        """All of them anew. Nothing happens if the file is not there. Answers whether :meth:`tidy` has something to do then."""
        ...

    async def delete_file(self, store: IndexRef, file_id: str) -> bool:
        """Nothing finds it from here on. Answers whether copies may be left that :meth:`tidy` clears away."""
        ...

    async def delete(self, store: IndexRef) -> None:
        """With all its files."""
        ...

    async def tidy(self, store: IndexRef) -> bool:
        """Do a part of the work that makes later searches quick, and clear away leftovers of deleted files; True if it changed
        anything, and there may be more to do.

        Searches give the same answer before, after, and if it breaks off.
        """
        ...

    async def chunks(self, store: IndexRef, file_id: str) -> list[str]:
        """The text of a file as it was put; empty if it is not there."""
        ...

    async def search(self, stores: Sequence[IndexRef], queries: Sequence[str], options: SearchOptions) -> list[Hit]:
        """The chunks that fit best, the best first, by all queries together."""
        ...
