"""An embedding model for tests: a vector says which of a few words a text has."""

from array import array
from collections.abc import Sequence

from moorage.errors import UpstreamError
from moorage.knowledge.embeddings import Embeddings, Meter
from moorage.model.embedding_models import EmbeddedTexts
from moorage.model.prices import Price
from moorage.store.budgets import Budgets

from tests.unit.store.memory import MemoryTable

WORDS = ("cat", "kitten", "market", "share", "tide", "moon", "bread", "oven")
"""Pairs that are like each other."""


class FakeEmbedder:
    """It knows pairs of words, and nothing else; it counts what it was asked."""

    def __init__(self, name: str = "pairs", dimension: int = 4) -> None:
        self.name = name
        self.dimension = dimension
        self.asked: list[list[str]] = []
        self.is_down = False

    def takes(self, dimension: int) -> bool:
        return dimension <= self.dimension

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        if self.is_down:
            raise UpstreamError("The model upstream is down.", is_retryable=True)
        assert all(texts), "upstreams refuse empty texts"
        self.asked.append(list(texts))
        return EmbeddedTexts([self._vector(text, dimension) for text in texts], sum(len(text.split()) for text in texts))

    def _vector(self, text: str, dimension: int) -> bytes:
        numbers = [0.0] * dimension
        for number, word in enumerate(WORDS):
            if word in text.lower():
                numbers[number // 2] += 1.0
        return array("f", numbers).tobytes()


def no_budgets() -> Budgets:
    """Until a test puts one there."""
    return Budgets(MemoryTable(), lambda: 1.8e9)


class Counted:
    """What was told of requests: tenant, model, key, tokens, cost."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, int, int | None]] = []

    async def count(self, tenant_id: str, model: str, key_id: str, tokens: int, nanodollars: int | None) -> None:
        self.requests.append((tenant_id, model, key_id, tokens, nanodollars))


def embeddings_of(*embedders: FakeEmbedder, meter: Meter | None = None) -> Embeddings:
    by_name = {embedder.name: embedder for embedder in embedders}
    return Embeddings(embedders[0], by_name, meter or Counted(), {"pairs": Price(input=2.0)}, no_budgets())
