"""The operator's named secrets: credentials that requests refer to by name, without knowing them (``moorage secrets``)."""

from collections.abc import Callable

from moorage.egress.keys import KeyService
from moorage.egress.secrets import OperatorSecret, seal_operator_secret
from moorage.egress.store import EgressStore
from moorage.store.table import Table


class OperatorSecrets:
    def __init__(self, table: Table, keys: KeyService, clock: Callable[[], float]) -> None:
        """``clock`` gives Unix seconds."""
        self._store = EgressStore(table)
        self._keys = keys
        self._clock = clock

    async def define(self, name: str, domain: str, value: str, tenants: tuple[str, ...] = ()) -> OperatorSecret:
        """Keep a credential; one of the same name is replaced, and containers that use it get the new value with their next request.
        Raises :class:`ApiError` 400 for a name, domain or value that no request could use."""
        secret = await seal_operator_secret(name, domain, value, tenants, self._keys, set_at=int(self._clock()))
        await self._store.save_operator_secret(secret)
        return secret

    async def all(self) -> list[OperatorSecret]:
        """By name, sealed as they are stored."""
        return await self._store.list_operator_secrets()

    async def delete(self, name: str) -> bool:
        """False if there was none. Containers that use it keep their placeholder, without effect."""
        return await self._store.delete_operator_secret(name)
