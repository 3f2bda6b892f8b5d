"""Containers of a model's upstream, and whose they are: the tenant whose response made one, and nobody else.

They live at the upstream, under the operator's account, which knows no tenants. A record here is what makes one reachable.
"""

from collections.abc import Iterable

from moorage.files.store import Clock
from moorage.store import keys
from moorage.store.table import Table


class UpstreamContainers:
    def __init__(self, table: Table, *, clock: Clock, retention_seconds: int) -> None:
        self._table = table
        self._clock = clock
        self._retention_seconds = retention_seconds

    async def note(self, tenant_id: str, container_id: str, model: str) -> None:
        """A response of the tenant's has made this container by the model of this public name, or used it again."""
        await self._table.put(
            {
                "PK": keys.container(tenant_id, container_id),
                "SK": keys.UPSTREAM,
                "model": model,
                "ttl": int(self._clock()) + self._retention_seconds,
            }
        )

    async def model_of(self, tenant_id: str, container_id: str) -> str | None:
        """The public name of the model behind its upstream; None if that is not for this tenant to know."""
        record = await self._table.get(keys.container(tenant_id, container_id), keys.UPSTREAM)
        return None if record is None or record["ttl"] <= self._clock() else str(record["model"])

    async def known(self, tenant_id: str, container_ids: Iterable[str]) -> frozenset[str]:
        """Those of the containers that are the tenant's."""
        return frozenset([each for each in sorted(set(container_ids)) if await self.model_of(tenant_id, each) is not None])
