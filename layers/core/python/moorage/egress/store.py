"""What the table knows of a container's way out: its policy, its sealed secrets, its proxy credential and its decisions.

Everything but the credential's record lies in the container's partition, so that deleting the container takes it along; the
credential's record only leads there and is worth nothing without the policy it leads to. The proxy believes the policy record,
which repeats the credential's hash: an old credential ends with the next write of that record.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field, replace
from typing import Final

from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.egress.policy import EgressOpening
from moorage.egress.secrets import OperatorSecret, SealedSecret
from moorage.errors import ConditionFailed
from moorage.hosts import covers, listed, normalise
from moorage.store import keys
from moorage.store.table import Record, Table


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """One container's permission to use the proxy."""

    tenant_id: str
    container_id: str
    credential_sha256: str
    domains: tuple[str, ...]
    version: str
    """Changes with every credential."""
    expires_at: int
    """Unix seconds; the records' TTL."""
    seal: str = ""
    """Names the secrets that belong together: it changes when they do, in one write, and so they are seen all old or all new."""
    wrapped_key: bytes | None = field(default=None, repr=False)
    secrets: tuple[SealedSecret, ...] = ()
    is_live: bool = False
    """A sandbox may use it now."""
    asks_hosts: tuple[str, ...] = ()
    asks_secrets: tuple[str, ...] = ()
    opened: frozenset[EgressOpening] = frozenset()
    """What a person has allowed of those."""
    installer_sha256: str = ""
    """Of a second credential, which reaches the operator's package mirrors too, until :meth:`EgressStore.close_mirrors`."""

    def asks_for(self, opening: EgressOpening) -> bool:
        """Whether it is something that a person is asked about."""
        if opening.kind == "secret":
            return opening.name in self.asks_secrets
        is_host = normalise(opening.name) == opening.name and listed(opening.name, self.domains) is not None
        return is_host and any(covers(pattern, opening.name) for pattern in self.asks_hosts)


@dataclass(frozen=True, slots=True)
class SealedAuthority:
    """The deployment's CA as the table holds it."""

    certificate_pem: str
    wrapped_key: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)
    sealed_under: str = ""
    """The key service's key; empty in records of earlier versions."""


@dataclass(frozen=True, slots=True)
class EgressLogEntry:
    """One decision, as it is logged, stored and listed. It has no place for a value: paths carry no query."""

    id: str
    """``<milliseconds, 13 digits>-<8 hex digits>``: sorts by time."""
    at_ms: int
    tenant_id: str
    container_id: str
    host: str
    port: int
    method: str
    path: str | None
    """None for a tunnel: what goes through it is not opened."""
    decision: str
    """``allowed`` or ``denied``."""
    reason: str
    address: str | None = None
    secrets: tuple[str, ...] = ()
    """Names of the secrets that were put in."""
    bytes_sent: int = 0
    """From the container to the host, of the body or the tunnel."""
    bytes_received: int = 0
    count: int = 1
    """Equal decisions in quick succession are kept as one."""
    status: int | None = None
    error: str | None = None
    """Why an allowed request still failed (the host did not answer, its certificate did not hold)."""


_GRANT: Final = Codec(
    GrantRecord,
    names={"expires_at": "ttl"},
    sparse=("asks_hosts", "asks_secrets", "installer_sha256"),
    beside=("tenant_id", "container_id", "secrets", "is_live", "opened"),
)
_SECRET: Final = Codec(SealedSecret, sparse=("more_domains",))
_OPERATOR_SECRET: Final = Codec(OperatorSecret)
_AUTHORITY: Final = Codec(SealedAuthority)
_ENTRY: Final = Codec(EgressLogEntry, beside=("tenant_id", "container_id"))


class EgressStore:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def save(self, grant: GrantRecord) -> None:
        """Write a grant over whatever the container had.

        The policy is written last: until then the proxy refuses the new credential, and afterwards the old one.
        """
        pk = keys.container(grant.tenant_id, grant.container_id)
        stale = await self._records(pk)
        await self._table.write_many(puts=[*_secret_records(pk, grant), _credential_record(grant)])
        await self._table.put(_policy_record(pk, grant))
        await self._table.write_many(deletes=_sealed_otherwise(stale, grant.seal))
        await self._forget_credentials(record for record in stale if record.get("credential_sha256") != grant.credential_sha256)

    async def renew(self, grant: GrantRecord, earlier_credential_sha256: str) -> None:
        """Write the grant's credential, last of all into the policy, and nothing of its secrets, and of what was allowed, but for how
        long they are kept: they may be replaced in this moment. Raises ``ConditionFailed`` if the container has no grant any more."""
        pk = keys.container(grant.tenant_id, grant.container_id)
        await self._table.write_many(puts=[_credential_record(grant)])
        for secret in grant.secrets:
            with suppress(ConditionFailed):  # Replaced by one that is kept as long.
                await self._table.update(pk, keys.egress_sealed(grant.seal, secret.name), set={"ttl": grant.expires_at})
        for opening in grant.opened:
            with suppress(ConditionFailed):
                await self._table.update(pk, keys.egress_opened(opening.key), set={"ttl": grant.expires_at})
        policy = _policy_record(pk, grant)
        await self._table.update(pk, keys.EGRESS_POLICY, set={name: policy[name] for name in _OF_THE_CREDENTIAL & policy.keys()})
        if earlier_credential_sha256 not in ("", grant.credential_sha256):
            await self._table.delete(keys.egress_credential(earlier_credential_sha256), keys.META)

    async def replace_secrets(self, grant: GrantRecord, seal: str) -> None:
        """Write the grant's secrets and the key that opens them in place of those under ``seal``, and nothing of its credential: a
        sandbox may be using it. Raises ``ConditionFailed`` if somebody else has replaced them."""
        pk = keys.container(grant.tenant_id, grant.container_id)
        before = await self._records(pk)
        await self._table.write_many(puts=_secret_records(pk, grant))
        changes = {"seal": grant.seal, "wrapped_key": grant.wrapped_key}
        try:
            await self._table.update(pk, keys.EGRESS_POLICY, set=changes, condition={"seal": seal})
        except ConditionFailed:
            await self._table.write_many(deletes=[(pk, record["SK"]) for record in _secret_records(pk, grant)])
            raise
        # What has just been replaced stays until the next time: the proxy may be reading it.
        await self._table.write_many(deletes=_sealed_otherwise(before, seal))

    async def pause(self, tenant_id: str, container_id: str) -> None:
        """End the credential and keep the rest, for a sandbox that has stopped; harmless if there is none."""
        pk = keys.container(tenant_id, container_id)
        stale = await self._table.get(pk, keys.EGRESS_POLICY)
        if stale is None or not stale["credential_sha256"]:
            return
        with suppress(ConditionFailed):  # Somebody renewed it in this moment: then it is not ours to end.
            await self._table.update(
                pk,
                keys.EGRESS_POLICY,
                set={"credential_sha256": ""},
                remove=("GSI1PK", "GSI1SK", "installer_sha256"),
                condition={"version": stale["version"]},
            )
            await self._forget_credentials([stale])

    async def open_mirrors(self, tenant_id: str, container_id: str, installer_sha256: str) -> None:
        """For the installation of its sandbox's packages alone, which has the credential with this hash. Harmless to repeat, and for a
        container without a grant."""
        grant = await self.load(tenant_id, container_id)
        if grant is None:
            return
        await self._table.put(_credential_record(replace(grant, credential_sha256=installer_sha256)))
        with suppress(ConditionFailed):  # The container was deleted in this moment.
            pk = keys.container(tenant_id, container_id)
            await self._table.update(pk, keys.EGRESS_POLICY, set={"installer_sha256": installer_sha256})

    async def close_mirrors(self, tenant_id: str, container_id: str, installer_sha256: str) -> None:
        """The packages of its sandbox are installed, or cannot be. Harmless to repeat, and for a container without a grant."""
        with suppress(ConditionFailed):
            await self._table.update(keys.container(tenant_id, container_id), keys.EGRESS_POLICY, remove=("installer_sha256",))
        await self._table.delete(keys.egress_credential(installer_sha256), keys.META)

    async def is_any_live(self) -> bool:
        """May any sandbox of this deployment use the proxy now?"""
        return bool(await self._table.query(keys.EGRESS_LIVE, index="GSI1", limit=1))

    async def delete(self, tenant_id: str, container_id: str) -> None:
        """End a container's permission; its log stays. The policy goes first."""
        pk = keys.container(tenant_id, container_id)
        stale = await self._records(pk)
        await self._table.delete(pk, keys.EGRESS_POLICY)
        await self._table.write_many(deletes=[(pk, record["SK"]) for record in stale if record["SK"] != keys.EGRESS_POLICY])
        await self._forget_credentials(stale)

    async def _forget_credentials(self, records: Iterable[Record]) -> None:
        names = ("credential_sha256", "installer_sha256")
        hashes = [record[name] for record in records for name in names if record.get(name)]
        await self._table.write_many(deletes=[(keys.egress_credential(digest), keys.META) for digest in hashes])

    async def holder(self, credential_sha256: str) -> tuple[str, str] | None:
        """``(tenant_id, container_id)`` that a credential was made for, whether or not it still holds."""
        record = await self._table.get(keys.egress_credential(credential_sha256), keys.META)
        return None if record is None else (record["tenant_id"], record["container_id"])

    async def load(self, tenant_id: str, container_id: str) -> GrantRecord | None:
        records = await self._records(keys.container(tenant_id, container_id))
        if not records or records[0]["SK"] != keys.EGRESS_POLICY:
            return None
        policy, *others = records
        prefix = keys.egress_sealed(policy["seal"], "")
        return _GRANT.unpack(
            policy,
            tenant_id=tenant_id,
            container_id=container_id,
            secrets=tuple(_SECRET.unpack(record) for record in others if record["SK"].startswith(prefix)),
            is_live="GSI1PK" in policy,
            opened=frozenset(
                EgressOpening.of_key(keys.egress_opened.read(record["SK"]))
                for record in others
                if record["SK"].startswith(keys.egress_opened.prefix)
            ),
        )

    async def allow(self, tenant_id: str, container_id: str, opening: EgressOpening, expires_at: int) -> None:
        """Note an approval. Harmless to do twice."""
        pk = keys.container(tenant_id, container_id)
        await self._table.put({"PK": pk, "SK": keys.egress_opened(opening.key), "ttl": expires_at})

    async def _records(self, pk: str) -> list[Record]:
        return await self._table.query(pk, prefix=keys.EGRESS_POLICY, up_to=keys.EGRESS_SEALED_PREFIX + "\uffff")

    # --- The operator's secrets ---

    async def save_operator_secret(self, secret: OperatorSecret) -> None:
        await self._table.put({"PK": keys.EGRESS_OPERATOR_SECRETS, "SK": secret.name, **_OPERATOR_SECRET.pack(secret)})

    async def load_operator_secret(self, name: str) -> OperatorSecret | None:
        record = await self._table.get(keys.EGRESS_OPERATOR_SECRETS, name)
        return None if record is None else _OPERATOR_SECRET.unpack(record)

    async def list_operator_secrets(self) -> list[OperatorSecret]:
        return [_OPERATOR_SECRET.unpack(record) for record in await self._table.query(keys.EGRESS_OPERATOR_SECRETS)]

    async def delete_operator_secret(self, name: str) -> bool:
        """False if there was none."""
        return await self._table.delete(keys.EGRESS_OPERATOR_SECRETS, name) is not None

    # --- The CA ---

    async def load_ca(self) -> SealedAuthority | None:
        record = await self._table.get(keys.EGRESS_CA, keys.META)
        return None if record is None else _AUTHORITY.unpack(record)

    async def save_ca(self, authority: SealedAuthority) -> SealedAuthority:
        """Keep it unless another was first; the answer is the one that is kept."""
        try:
            await self._table.put({"PK": keys.EGRESS_CA, "SK": keys.META, **_AUTHORITY.pack(authority)}, if_absent=True)
        except ConditionFailed:
            kept = await self.load_ca()
            assert kept is not None, "the CA's record is never deleted"
            return kept
        return authority

    async def replace_ca(self, lost: SealedAuthority, authority: SealedAuthority) -> SealedAuthority:
        """Keep it in the place of one that nobody can open any more, unless another was first; the answer is the one that is kept."""
        condition = {"wrapped_key": lost.wrapped_key}
        try:
            await self._table.update(keys.EGRESS_CA, keys.META, set=_AUTHORITY.pack(authority), condition=condition)
        except ConditionFailed:
            kept = await self.load_ca()
            assert kept is not None, "the CA's record is never deleted"
            return kept
        return authority

    # --- The log ---

    async def append(self, entries: Iterable[EgressLogEntry], expires_at: int) -> None:
        """Keep decisions; an entry that is already there (a tunnel that has ended) is written over."""
        await self._table.write_many(puts=[_entry_record(entry, expires_at) for entry in entries])

    async def entries(
        self, tenant_id: str, container_id: str, *, after: str | None = None, descending: bool = True, limit: int = 100
    ) -> list[EgressLogEntry]:
        """Decisions from the newest (or the oldest), beyond the one with the id ``after``."""
        pk = keys.container(tenant_id, container_id)
        place = None if after is None else keys.egress_entry(after)
        records = await self._table.query_beyond(pk, place, prefix=keys.egress_entry.prefix, descending=descending, limit=limit)
        return [_ENTRY.unpack(record, tenant_id=tenant_id, container_id=container_id) for record in records]


def _policy_record(pk: str, grant: GrantRecord) -> Record:
    live = {"GSI1PK": keys.EGRESS_LIVE, "GSI1SK": pk} if grant.is_live else {}
    return {
        **live,
        "PK": pk,
        "SK": keys.EGRESS_POLICY,
        **_GRANT.pack(grant),
    }


def _credential_record(grant: GrantRecord) -> Record:
    return {
        "PK": keys.egress_credential(grant.credential_sha256),
        "SK": keys.META,
        "tenant_id": grant.tenant_id,
        "container_id": grant.container_id,
        "ttl": grant.expires_at,
    }


_OF_THE_CREDENTIAL: Final = frozenset({"GSI1PK", "GSI1SK", "credential_sha256", "version", "ttl"})
"""Attributes of the policy that a new credential changes."""


def _secret_records(pk: str, grant: GrantRecord) -> list[Record]:
    return [
        {"PK": pk, "SK": keys.egress_sealed(grant.seal, secret.name), "ttl": grant.expires_at, **_SECRET.pack(secret)}
        for secret in grant.secrets
    ]


def _sealed_otherwise(records: Iterable[Record], seal: str) -> list[tuple[str, str]]:
    """Keys of the sealed secrets among these records that ``seal`` does not name."""
    kept = (keys.EGRESS_POLICY, keys.egress_sealed(seal, ""))
    return [(record["PK"], record["SK"]) for record in records if not record["SK"].startswith(kept)]


def _entry_record(entry: EgressLogEntry, expires_at: int) -> Record:
    pk = keys.container(entry.tenant_id, entry.container_id)
    return {"PK": pk, "SK": keys.egress_entry(entry.id), "ttl": expires_at, **_ENTRY.pack(entry)}
