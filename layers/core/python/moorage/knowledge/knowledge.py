"""A process's means for searching files: the embedding models and the index. Both are made on first use."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import httpx

from moorage import limits
from moorage.knowledge.embeddings import Embeddings, EmbeddingSource, Meter
from moorage.parallel import imported
from moorage.store.blobs import Blobs
from moorage.store.budgets import Budgets
from moorage.store.vector_bucket import VectorBucket

if TYPE_CHECKING:
    from moorage.knowledge.object_index import ObjectIndex


class Knowledge:
    def __init__(
        self,
        catalog: EmbeddingSource,
        transport: httpx.AsyncBaseTransport,
        blobs: Blobs,
        meter: Meter,
        budgets: Budgets,
        clock: Callable[[], float],
        vector_bucket: Callable[[], VectorBucket] | None = None,
        cache_bytes_max: int = limits.INDEX_CACHE_BYTES_MAX,
    ) -> None:
        self._catalog = catalog
        self._transport = transport
        self._blobs = blobs
        self._meter = meter
        self._budgets = budgets
        self._clock = clock
        self.vector_bucket = vector_bucket
        self._cache_bytes_max = cache_bytes_max

    @cached_property
    def embeddings(self) -> Embeddings:
        return Embeddings.of(self._catalog, self._transport, self._meter, self._budgets)

    @cached_property
    def index(self) -> "ObjectIndex":
        """Made at once. A process that serves others asks :meth:`opened_index`."""
        from moorage.knowledge.neighbours import Neighbours
        from moorage.knowledge.object_index import ObjectIndex

        neighbours = None if self.vector_bucket is None else Neighbours(self.vector_bucket(), self._blobs)
        return ObjectIndex(
            self._blobs, self.embeddings, clock=self._clock, neighbours=neighbours, cache_bytes_max=self._cache_bytes_max
        )

    async def opened_index(self) -> "ObjectIndex":
        """Its modules take a tenth of a second, and most processes never search: they are imported on a thread."""
        await imported("moorage.knowledge.object_index")
        return self.index
