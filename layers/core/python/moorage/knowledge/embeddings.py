"""Which embedding model answers to which name.

The first that is configured is what new stores are made with; without any it is the small one that comes along, and where that is not
installed, Titan at Bedrock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import httpx

from moorage import errors
from moorage.knowledge import static_model
from moorage.knowledge.static_model import StaticEmbedder
from moorage.model.embedding_models import TITAN_TABLE, Embedder, EmbeddingTable, embedder_of
from moorage.model.http import Upstream


class Configured(Protocol):
    """What of the catalogue is needed here."""

    @property
    def embeddings(self) -> tuple[EmbeddingTable, ...]: ...

    def embedding_upstream(self, table: EmbeddingTable, transport: httpx.AsyncBaseTransport) -> Upstream: ...


@dataclass(frozen=True, slots=True)
class Embeddings:
    default: Embedder
    by_name: Mapping[str, Embedder]

    def find(self, name: str) -> Embedder:
        """Raises the API's model_not_found."""
        found = self.by_name.get(name)
        if found is None:
            raise errors.embedding_model_not_found(name, tuple(self.by_name))
        return found

    @classmethod
    def of(cls, catalog: Configured, transport: httpx.AsyncBaseTransport) -> "Embeddings":
        has_own = static_model.is_installed()
        tables = catalog.embeddings or (() if has_own else (TITAN_TABLE,))
        made = [(table, embedder_of(table, catalog.embedding_upstream(table, transport))) for table in tables]
        own: dict[str, Embedder] = {static_model.NAME: StaticEmbedder()} if has_own else {}
        by_name = own | {name: embedder for table, embedder in made for name in (table.name, *table.aliases)}
        return cls(made[0][1] if made else own[static_model.NAME], by_name)
