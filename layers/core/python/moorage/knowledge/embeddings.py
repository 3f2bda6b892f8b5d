"""The embedding model behind each name.

New stores use the first configured model. Without one, it is the small model that comes along, and if that is not
installed, Titan at Bedrock. Embeddings are counted for their tenant. Their cost is taken from the caller's budgets in dollars: held by
estimate before, settled after. Tokens of embeddings count in no budget of tokens: those are for models that answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import httpx

from moorage import errors
from moorage.dataclass import dataclass
from moorage.ids import new_id
from moorage.knowledge import static_model
from moorage.knowledge.static_model import StaticEmbedder
from moorage.model.embedding_models import TITAN_TABLE, EmbeddedTexts, Embedder, EmbeddingTable, embedder_of
from moorage.model.http import Upstream
from moorage.model.prices import OWN, Price
from moorage.model.tokens import estimate_text
from moorage.store.budget_draws import BudgetDraw
from moorage.store.budgets import Budgets
from moorage.wire.responses import TokenUsage


class EmbeddingSource(Protocol):
    """The parts of the catalogue that are needed here."""

    @property
    def embeddings(self) -> tuple[EmbeddingTable, ...]: ...

    def embedding_upstream(self, table: EmbeddingTable, transport: httpx.AsyncBaseTransport) -> Upstream: ...


class Meter(Protocol):
    async def count(self, tenant_id: str, model: str, key_id: str, tokens: int, nanodollars: int | None) -> None:
        """Note a request, its tokens and its cost; None for an unknown cost."""
        ...


@dataclass(frozen=True, slots=True)
class Embeddings:
    default: Embedder
    by_name: Mapping[str, Embedder]
    meter: Meter
    prices: Mapping[str, Price]
    """By the names of models; those are left out whose price is not known."""
    budgets: Budgets

    def find(self, name: str) -> Embedder:
        """Raises the API's model_not_found."""
        found = self.by_name.get(name)
        if found is None:
            raise errors.embedding_model_not_found(name, tuple(self.by_name))
        return found

    async def embed(
        self, tenant_id: str, name: str, texts: Sequence[str], dimension: int, *, key_id: str = "", draws_on: Iterable[str] = ()
    ) -> EmbeddedTexts:
        """``draws_on`` are the budgets that pay for it. Raises the API's model_not_found, budget_reached and model_not_budgetable, and
        :class:`~moorage.errors.UpstreamError`."""
        embedder = self.find(name)
        price = self.prices.get(embedder.name)
        draw = await BudgetDraw.of_dollars(self.budgets, tenant_id, new_id("emb"), draws_on)
        if draw.scopes:
            await draw.first(name, {} if price is None else {"usd": _cost(price, sum(map(estimate_text, texts)))})
        used: dict[str, int] = {}
        try:
            embedded = await embedder.embed(texts, dimension)
            cost = None if price is None else _cost(price, embedded.tokens)
            used["usd"] = cost or 0
        finally:
            await draw.end(used)
        await self.meter.count(tenant_id, embedder.name, key_id, embedded.tokens, cost)
        return embedded

    @classmethod
    def of(cls, catalog: EmbeddingSource, transport: httpx.AsyncBaseTransport, meter: Meter, budgets: Budgets) -> "Embeddings":
        has_own = static_model.is_installed()
        tables = _tables(catalog)
        made = [(table, embedder_of(table, catalog.embedding_upstream(table, transport))) for table in tables]
        own: dict[str, Embedder] = {static_model.NAME: StaticEmbedder()} if has_own else {}
        by_name = own | {name: embedder for table, embedder in made for name in (table.name, *table.aliases)}
        prices = {static_model.NAME: OWN} | {table.name: price for table in tables if (price := table.known_price()) is not None}
        return cls(made[0][1] if made else own[static_model.NAME], by_name, meter, prices, budgets)


def _cost(price: Price, tokens: int) -> int:
    return price.nanodollars(TokenUsage(input_tokens=tokens), {})


def names(catalog: EmbeddingSource) -> list[str]:
    """Of all embedding models, that of new stores first; no upstream is looked at."""
    configured = [name for table in _tables(catalog) for name in (table.name, *table.aliases)]
    own = [static_model.NAME] if static_model.is_installed() else []
    return list(dict.fromkeys([*configured, *own]))


def _tables(catalog: EmbeddingSource) -> tuple[EmbeddingTable, ...]:
    return catalog.embeddings or (() if static_model.is_installed() else (TITAN_TABLE,))
