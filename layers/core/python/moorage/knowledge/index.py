"""The search of vector stores: chunks of files, with their embeddings and their words.

An index (``object_index.py``) knows nothing of the API's records. The caller names the stores and files to search; unknown ones are
treated as absent. Everything here may be done twice.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

from moorage import limits
from moorage.dataclass import dataclass

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
