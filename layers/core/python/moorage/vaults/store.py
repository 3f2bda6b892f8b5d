"""Vaults, and the credentials in them.

A vault and its credentials are one partition. What a credential is for stands in clear; its secrets are one text that only this
deployment opens, with the credential's id inside: a text that was moved to another record does not open there. Each change counts the
record's ``generation``, so that a rotation and a refresh at once come one after the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

import orjson

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import (
    ConditionFailed,
    credential_busy,
    credential_not_found,
    credential_unreadable,
    too_many_credentials,
    vault_busy,
    vault_not_found,
)
from moorage.files.store import Clock
from moorage.ids import new_credential_id, new_listed_id
from moorage.store import keys
from moorage.store.listing import Page, gone_record, listing_attributes, read_page, unknown_after
from moorage.store.sealed import Sealer
from moorage.store.table import Record, Table, Write
from moorage.wire.queries import PageQuery

KIND: Final = "vaults"
Metadata = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class VaultRecord:
    tenant_id: str
    id: str
    created_at: int
    name: str | None
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Auth:
    """A credential: its public fields, and its secrets."""

    shown: Mapping[str, Any]
    """``type``, and the fields of its answer but ``expires_at``."""
    secrets: Mapping[str, str] = field(repr=False)
    """By the names that they have in requests."""
    expires_at: int | None = None
    """Of an access token, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class CredentialRecord:
    tenant_id: str
    vault_id: str
    id: str
    created_at: int
    updated_at: int
    """By a person; a refresh changes nothing that a person has set."""
    name: str
    metadata: Metadata
    shown: Mapping[str, Any]
    sealed: str = field(repr=False)
    expires_at: int | None = None
    generation: int = 1
    life_seconds: int = 0
    """Of the access token, as the endpoint that gave it has said; 0 if a person gave it."""
    refresh_until: int = 0
    """Somebody is refreshing it, at most until then (Unix seconds)."""
    refresh_failed_at: int = 0
    refresh_error: str = ""
    """Why the latest refresh has failed, as a client may read it; empty if it has not."""

    @property
    def type(self) -> str:
        return str(self.shown["type"])


_CREDENTIAL: Final = Codec(
    CredentialRecord, beside=("tenant_id",), sparse=("life_seconds", "refresh_until", "refresh_failed_at", "refresh_error")
)
_ROTATED: Final = {"life_seconds": 0, "refresh_failed_at": 0, "refresh_error": ""}
"""What is forgotten with the secrets that it was about."""


class Vaults:
    def __init__(self, table: Table, sealer: Sealer, *, clock: Clock) -> None:
        self._table = table
        self._sealer = sealer
        self._clock = clock

    # --- Vaults ---

    async def create(self, tenant_id: str, *, name: str | None, metadata: Metadata) -> VaultRecord:
        now = self._clock()
        vault = VaultRecord(tenant_id, new_listed_id("vault", now), int(now), name, dict(metadata))
        await self._table.put(
            {
                "PK": keys.vault(tenant_id, vault.id),
                "SK": keys.META,
                "id": vault.id,
                "created_at": vault.created_at,
                "name": name,
                "metadata": dict(metadata),
                "credentials": 0,
                "made": 0,
                **listing_attributes(tenant_id, KIND, vault.created_at, vault.id),
            }
        )
        return vault

    async def get(self, tenant_id: str, vault_id: str, *, param: str | None = None) -> VaultRecord:
        """Raises 404 for an unknown, deleted or foreign one."""
        record = await self._table.get(keys.vault(tenant_id, vault_id), keys.META)
        if record is None:
            raise vault_not_found(vault_id, param=param)
        return _vault(tenant_id, record)

    async def page(self, tenant_id: str, page: PageQuery, metadata: Metadata) -> Page[VaultRecord]:
        """Those with all of this metadata."""
        found = await read_page(
            self._table, tenant_id, KIND, page, pk_of=keys.vault, keep=lambda record: _has(record["metadata"], metadata)
        )
        return found.read(lambda record: _vault(tenant_id, record))

    async def update(self, tenant_id: str, vault_id: str, changes: Mapping[str, Any]) -> VaultRecord:
        """``changes`` of ``name`` and ``metadata``."""
        if not changes:
            return await self.get(tenant_id, vault_id)
        try:
            changed = await self._table.update(keys.vault(tenant_id, vault_id), keys.META, set=changes)
        except ConditionFailed as error:
            raise vault_not_found(vault_id) from error
        return _vault(tenant_id, changed)

    async def delete(self, tenant_id: str, vault_id: str) -> None:
        """With its credentials, which go first, so that a deletion that breaks off can be repeated. One that is added meanwhile counts
        the record, and goes too."""
        pk = keys.vault(tenant_id, vault_id)
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            vault = await self._table.get(pk, keys.META)
            if vault is None:
                raise vault_not_found(vault_id)
            below = await self._table.query(pk, prefix=keys.credential.prefix)
            await self._table.write_many(deletes=[(pk, record["SK"]) for record in below])
            gone = gone_record(pk, keys.GONE, vault["created_at"], vault_id, self._clock())
            if not await self._table.replace([gone], pk=pk, sk=keys.META, condition={"made": vault["made"]}):
                return
        raise vault_busy(vault_id)

    # --- Credentials ---

    async def add(self, tenant_id: str, vault_id: str, *, name: str, auth: Auth, metadata: Metadata) -> CredentialRecord:
        now = self._clock()
        credential_id = new_credential_id(now)
        made = CredentialRecord(
            tenant_id=tenant_id,
            vault_id=vault_id,
            id=credential_id,
            created_at=int(now),
            updated_at=int(now),
            name=name,
            metadata=dict(metadata),
            shown=auth.shown,
            sealed=self._sealed(tenant_id, credential_id, auth),
            expires_at=auth.expires_at,
        )
        pk = keys.vault(tenant_id, vault_id)
        counted = Write(
            pk, keys.META, add={"credentials": 1, "made": 1}, below={"credentials": limits.VAULT_CREDENTIALS_MAX}, is_there=True
        )
        if 1 in await self._table.write_together([_record(made)], [counted]):
            await self.get(tenant_id, vault_id)
            raise too_many_credentials(limits.VAULT_CREDENTIALS_MAX)
        return made

    async def credential(self, tenant_id: str, vault_id: str, credential_id: str) -> CredentialRecord:
        """Raises 404 for what is unknown, deleted or foreign, as :meth:`get` does."""
        record = await self._table.get(keys.vault(tenant_id, vault_id), keys.credential(credential_id))
        if record is None:
            await self.get(tenant_id, vault_id)
            raise credential_not_found(credential_id)
        return _CREDENTIAL.unpack(record, tenant_id=tenant_id)

    async def credentials(self, tenant_id: str, vault_id: str, *, param: str | None = None) -> list[CredentialRecord]:
        """All of a vault's, oldest first."""
        await self.get(tenant_id, vault_id, param=param)
        found = await self._table.query(keys.vault(tenant_id, vault_id), prefix=keys.credential.prefix)
        return [_CREDENTIAL.unpack(record, tenant_id=tenant_id) for record in found]

    async def credential_page(self, tenant_id: str, vault_id: str, page: PageQuery, metadata: Metadata) -> Page[CredentialRecord]:
        """As :meth:`page`. Ids begin with the time, so that one that was deleted an hour ago or less still marks its place."""
        every = await self.credentials(tenant_id, vault_id)
        if (after := page.after) is not None:
            await self._check_place(tenant_id, vault_id, after)
            every = [each for each in every if (each.id > after if page.order == "asc" else each.id < after)]
        found = [each for each in every if _has(each.metadata, metadata)][:: 1 if page.order == "asc" else -1]
        return Page.of(found, page.limit)

    async def _check_place(self, tenant_id: str, vault_id: str, credential_id: str) -> None:
        pk = keys.vault(tenant_id, vault_id)
        if not await self._table.get_many([(pk, keys.credential(credential_id)), (pk, keys.gone(credential_id))]):
            raise unknown_after(credential_id)

    async def change(
        self,
        tenant_id: str,
        vault_id: str,
        credential_id: str,
        *,
        rotate: Callable[[Auth], Auth] | None = None,
        metadata: Metadata | None = None,
    ) -> CredentialRecord:
        """``rotate`` makes the next secrets of those that are there, and may be asked several times."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            there = await self.credential(tenant_id, vault_id, credential_id)
            changes: dict[str, Any] = {} if metadata is None else {"metadata": dict(metadata)}
            if rotate is not None:
                changes |= _ROTATED | self.packed(there, rotate(self.opened(there)))
            if not changes:
                return there
            changed = await self.write(there, {**changes, "updated_at": int(self._clock())})
            if changed is not None:
                return changed
        raise credential_busy(credential_id)

    async def remove(self, tenant_id: str, vault_id: str, credential_id: str) -> None:
        there = await self.credential(tenant_id, vault_id, credential_id)
        pk = keys.vault(tenant_id, vault_id)
        gone = gone_record(pk, keys.gone(credential_id), there.created_at, credential_id, self._clock())
        counted = Write(pk, keys.META, add={"credentials": -1}, is_there=True)
        if await self._table.write_together([gone], [counted], [(pk, keys.credential(credential_id))]):
            raise credential_not_found(credential_id)

    def opened(self, credential: CredentialRecord) -> Auth:
        """Raises :class:`~moorage.errors.ApiError` if this deployment has no key for it any more."""
        text = self._sealer.open(credential.tenant_id, credential.sealed)
        held = {} if text is None else orjson.loads(text)
        if held.pop("id", None) != credential.id:
            raise credential_unreadable(credential.id)
        return Auth(credential.shown, held, credential.expires_at)

    def packed(self, credential: CredentialRecord, auth: Auth) -> dict[str, Any]:
        """The changes that give it this."""
        sealed = self._sealed(credential.tenant_id, credential.id, auth)
        return {"shown": dict(auth.shown), "sealed": sealed, "expires_at": auth.expires_at}

    async def write(self, credential: CredentialRecord, changes: Mapping[str, Any]) -> CredentialRecord | None:
        """The record with these changes; None if somebody else has changed it since it was read, or it is gone."""
        try:
            changed = await self._table.update(
                keys.vault(credential.tenant_id, credential.vault_id),
                keys.credential(credential.id),
                set={**changes, "generation": credential.generation + 1},
                condition={"generation": credential.generation},
            )
        except ConditionFailed:
            return None
        return _CREDENTIAL.unpack(changed, tenant_id=credential.tenant_id)

    def _sealed(self, tenant_id: str, credential_id: str, auth: Auth) -> str:
        return self._sealer.seal(tenant_id, orjson.dumps({**auth.secrets, "id": credential_id}).decode())


def _vault(tenant_id: str, record: Record) -> VaultRecord:
    return VaultRecord(tenant_id, record["id"], record["created_at"], record["name"], record["metadata"])


def _record(credential: CredentialRecord) -> Record:
    place = {"PK": keys.vault(credential.tenant_id, credential.vault_id), "SK": keys.credential(credential.id)}
    return {**place, **_CREDENTIAL.pack(credential)}


def _has(metadata: Metadata, wanted: Metadata) -> bool:
    return all(metadata.get(name) == value for name, value in wanted.items())
