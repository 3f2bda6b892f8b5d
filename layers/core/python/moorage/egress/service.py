"""The way out, as the API sees it: open it for a container, close it, list its decisions.

The proxy's side of the same records is ``grants.py``.
"""

import asyncio
import hashlib
import secrets as random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.fleet import ProxyFleet
from moorage.egress.keys import DataKey, KeyService
from moorage.egress.policy import EgressOpening, EgressPolicy, EgressReason, sentence
from moorage.egress.policy import admit as admit_policy
from moorage.egress.secrets import (
    SealedSecret,
    container_context,
    seal,
)
from moorage.egress.secrets import admit as admit_secrets
from moorage.egress.store import EgressLogEntry, EgressStore, GrantRecord
from moorage.errors import ConditionFailed, bad_request
from moorage.settings import Settings
from moorage.store.table import Table
from moorage.telemetry import Metric, tell
from moorage.wire.network_policy import DomainSecret, NetworkPolicy


@dataclass(frozen=True, slots=True)
class EgressGrant:
    """A sandbox's access to the proxy."""

    username: str
    """The container's id."""
    password: str = field(repr=False)
    """The proxy credential, 256 random bits. The container can read it; it only says whose policy applies."""
    placeholders: Mapping[str, str]
    """Environment variables: the secrets' names and what stands in for their values."""


def ceiling(settings: Settings) -> EgressPolicy:
    """The widest policy that this deployment gives to any container, without domains of its own."""
    return EgressPolicy(
        ceiling=settings.allowed_egress_domains,
        ports=settings.egress_ports,
        own_networks=settings.egress_own_networks,
        allowed_networks=settings.egress_allowed_networks,
        mirrors=tuple(urlsplit(mirror).hostname or "" for mirror in (settings.python_mirror, settings.npm_mirror) if mirror),
    )


def credential_sha256(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


class EgressService:
    def __init__(
        self,
        table: Table,
        keys: KeyService | None,
        settings: Settings,
        clock: Callable[[], int],
        fleet: ProxyFleet | None = None,
    ) -> None:
        """``keys`` None: this deployment seals no secrets. ``clock`` gives Unix seconds. ``fleet`` None: the proxy always runs."""
        self.store = EgressStore(table)
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._fleet = fleet
        self._ca_pem = ""

    async def admit(self, tenant_id: str, asked: NetworkPolicy, *, param: str = "network_policy") -> EgressPolicy:
        """The policy that a request asks for, with its secrets, as far as this deployment can grant it. Raises :class:`ApiError`
        400."""
        policy = admit_policy(asked, ceiling(self._settings), param=param)
        if policy.domains and self._settings.egress_proxy is None:
            raise bad_request(
                f"'{param}' asks for a network, and this deployment runs no egress proxy (MOORAGE_EGRESS_PROXY). Use "
                "{'type': 'disabled'}, or ask the operator to start one.",
                param=param,
                code="network_unavailable",
            )
        if asked.domain_secrets and self._keys is None:
            raise bad_request(
                f"'{param}.domain_secrets' cannot be kept: this deployment has no key for them (MOORAGE_EGRESS_KEY).",
                param=f"{param}.domain_secrets",
                code="secrets_unavailable",
            )
        named = [secret.name for secret in asked.domain_secrets if secret.value is None]
        found = await asyncio.gather(*(self.store.load_operator_secret(name) for name in named))
        operators = {secret.name: secret for secret in found if secret is not None}
        admit_secrets(asked.domain_secrets, operators, tenant_id, param=param)
        return policy

    async def open(
        self,
        tenant_id: str,
        container_id: str,
        policy: EgressPolicy,
        secrets: tuple[DomainSecret, ...] = (),
        *,
        installs: bool = False,
    ) -> EgressGrant | None:
        """Let a container out as far as its admitted policy says; None if that is nowhere. One that ``installs`` packages has a grant
        also then.

        A repeated call writes everything anew with a fresh credential. The older credential ends; this harms only an unused sandbox.
        """
        if not policy.domains and not installs:
            await self.store.delete(tenant_id, container_id)
            return None
        context = container_context(tenant_id, container_id)
        key: DataKey | None = None
        if any(secret.value is not None for secret in secrets):
            assert self._keys is not None, "secrets were admitted without a key service"
            key = await self._keys.generate(context)
        grant = GrantRecord(
            tenant_id=tenant_id,
            container_id=container_id,
            credential_sha256="",
            domains=policy.domains,
            version="",
            expires_at=0,
            seal=random.token_hex(8),
            wrapped_key=None if key is None else key.wrapped,
            secrets=tuple(seal(secret, key, context) for secret in secrets),
            asks_hosts=policy.asks_hosts,
            asks_secrets=policy.asks_secrets,
        )
        password = random.token_urlsafe(32)
        issued = self._issued(grant, password)
        await self._learn_ca()
        await self.store.save(issued)
        return _shown(issued, password)

    async def replace_secrets(self, tenant_id: str, container_id: str, secrets: tuple[DomainSecret, ...]) -> bool:
        """Give a container's admitted secrets these values; the proxy uses them as soon as it reads the grant again
        (``EGRESS_POLICY_SECONDS_MAX``), also for a sandbox that runs. False, and nothing is changed, if they are not the secrets that
        the container knows: its environment could not hold their placeholders.
        """
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            with suppress(ConditionFailed):  # Somebody else replaced them in this moment: these values are newer, or as new.
                return await self._replace_secrets(tenant_id, container_id, secrets)
        return await self._replace_secrets(tenant_id, container_id, secrets)

    async def _replace_secrets(self, tenant_id: str, container_id: str, secrets: tuple[DomainSecret, ...]) -> bool:
        grant = await self.store.load(tenant_id, container_id)
        known = () if grant is None else grant.secrets
        if sorted(map(_use_of, secrets)) != sorted(map(_use_of, known)):
            return False
        if grant is None or not any(secret.value is not None for secret in secrets):
            return True  # the operator's secrets are looked up by name at every use
        assert self._keys is not None, "secrets were admitted without a key service"
        context = container_context(tenant_id, container_id)
        key = await self._keys.generate(context)
        placeholders = {secret.name: secret.placeholder for secret in known}
        sealed = tuple(replace(seal(secret, key, context), placeholder=placeholders[secret.name]) for secret in secrets)
        await self.store.replace_secrets(replace(grant, seal=random.token_hex(8), wrapped_key=key.wrapped, secrets=sealed), grant.seal)
        return True

    async def renew(self, tenant_id: str, container_id: str, *, password: str | None = None) -> EgressGrant | None:
        """A fresh credential for a new sandbox of the same container, with the policy and the placeholders it had; None if it has
        no network. The old sandbox's credential ends. The proxy is started if it rests.

        ``password`` is for a start that may have to be repeated: with the same one, a sandbox that is on its way keeps its own.
        """
        grant = await self.store.load(tenant_id, container_id)
        if grant is None:
            return None
        password = password or random.token_urlsafe(32)
        issued = self._issued(replace(grant, is_live=True), password)
        await self._learn_ca()
        try:
            await self.store.renew(issued, grant.credential_sha256)
        except ConditionFailed:
            return None  # the container was deleted in this moment
        if self._fleet is not None:
            await self._fleet.set_wanted(True)
        return _shown(issued, password)

    async def pause(self, tenant_id: str, container_id: str) -> None:
        """The container's sandbox has stopped: its credential ends, its policy and its placeholders stay for :meth:`renew`."""
        await self.store.pause(tenant_id, container_id)

    async def settle_fleet(self) -> None:
        """Have the proxy run or rest as the running sandboxes need it. To be called about once a minute.

        A sandbox that starts just as the proxy is put to rest wakes it again by itself or, at the latest, by the next call.
        """
        if self._fleet is not None and not await self._fleet.set_wanted(await self.store.is_any_live()):
            tell("egress_proxy_down", {}, {Metric.PROXY_DOWN: 1})

    def _issued(self, grant: GrantRecord, password: str) -> GrantRecord:
        """The grant with this credential."""
        return replace(
            grant,
            credential_sha256=credential_sha256(password),
            version=random.token_hex(8),
            expires_at=self._clock() + self._settings.retention_seconds,
        )

    async def close(self, tenant_id: str, container_id: str) -> None:
        """End a container's way out, within seconds also for open connections. Its log stays."""
        await self.store.delete(tenant_id, container_id)

    async def log(
        self, tenant_id: str, container_id: str, *, after: str | None = None, descending: bool = True, limit: int = 100
    ) -> list[EgressLogEntry]:
        """The container's decisions, newest first unless asked otherwise, beyond the entry ``after``."""
        return await self.store.entries(tenant_id, container_id, after=after, descending=descending, limit=limit)

    async def refusals_since(self, tenant_id: str, container_id: str, at_ms: int) -> str:
        """For the end of a command's output: the hosts refused since ``at_ms``, the reasons, and the way to allow them; often empty.

        curl and git hide the body of a refused CONNECT, so that the model would otherwise only see "403".
        """
        entries = await self.store.entries(tenant_id, container_id, after=f"{max(0, at_ms):013d}", descending=False, limit=50)
        refused = {(entry.host, entry.port, entry.reason): entry for entry in entries if entry.decision == "denied"}
        return "".join(f"[egress] {entry_sentence(entry)}\n" for entry in refused.values())

    async def wanted(self, tenant_id: str, container_id: str, since_ms: int) -> list[EgressOpening]:
        """The hosts that the proxy has refused since then for want of an approval, and that are still undecided; each once, in order.

        Hosts beyond the bound of questions are refused, and so found, again.
        """
        entries = await self._entries_since(tenant_id, container_id, since_ms)
        wanted = dict.fromkeys(opening for entry in reversed(entries) for opening in _wanted_by(entry))
        if not wanted:
            return []
        grant = await self.store.load(tenant_id, container_id)
        opened = frozenset[EgressOpening]() if grant is None else grant.opened
        return [opening for opening in wanted if opening not in opened][: limits.EGRESS_WANTED_MAX]

    async def _entries_since(self, tenant_id: str, container_id: str, since_ms: int) -> list[EgressLogEntry]:
        """From the newest; at most ``EGRESS_WANTED_PAGES_MAX`` pages of allowed requests, logged too, lie before them."""
        found: list[EgressLogEntry] = []
        after: str | None = None
        for _ in range(limits.EGRESS_WANTED_PAGES_MAX):
            page = await self.store.entries(
                tenant_id, container_id, after=after, descending=True, limit=limits.EGRESS_WANTED_ENTRIES_MAX
            )
            found += [entry for entry in page if entry.at_ms >= since_ms]
            if len(page) < limits.EGRESS_WANTED_ENTRIES_MAX or page[-1].at_ms < since_ms:
                break
            after = page[-1].id
        return found

    async def allow(self, tenant_id: str, container_id: str, openings: Iterable[EgressOpening]) -> None:
        """A person has allowed these, for as long as the container is kept. Harmless to do twice; the proxy looks before it refuses.

        Hosts that the container's policy does not ask about are left aside: clients may send back any question, also made-up ones.
        """
        named = dict.fromkeys(openings)
        grant = await self.store.load(tenant_id, container_id) if named else None
        if grant is None:
            return
        for opening in named:
            if opening not in grant.opened and grant.asks_for(opening):
                await self.store.allow(tenant_id, container_id, opening, self._clock() + self._settings.retention_seconds)

    def ca_pem(self) -> str:
        """The proxy's CA certificate for the sandboxes; known once a grant has been made or renewed."""
        return self._ca_pem

    async def _learn_ca(self) -> None:
        if self._ca_pem:
            return
        if self._settings.egress_ca is not None:
            self._ca_pem = await asyncio.to_thread(Path(self._settings.egress_ca).read_text)
        elif self._keys is not None:
            from moorage.egress.ca import ensure_sealed_ca  # With a library that others have no use for.

            self._ca_pem = (await ensure_sealed_ca(self.store, self._keys)).certificate_pem


def _wanted_by(entry: EgressLogEntry) -> list[EgressOpening]:
    match entry.reason:
        case EgressReason.HOST_NEEDS_APPROVAL:
            return [EgressOpening("host", entry.host)]
        case EgressReason.SECRET_NEEDS_APPROVAL:
            return [EgressOpening("secret", name) for name in entry.secrets]
        case _:
            return []


def _shown(grant: GrantRecord, password: str) -> EgressGrant:
    return EgressGrant(grant.container_id, password, {secret.name: secret.placeholder for secret in grant.secrets})


def _use_of(secret: DomainSecret | SealedSecret) -> tuple[Any, ...]:
    """The scope of a secret, without its value."""
    is_operators = secret.value is None if isinstance(secret, DomainSecret) else secret.ciphertext is None
    return (secret.name, secret.domain, secret.methods, secret.path_prefixes, secret.places, is_operators, secret.more_domains)


def entry_sentence(entry: EgressLogEntry) -> str:
    """The model's text about it, or the text that it would have had."""
    return sentence(EgressReason(entry.reason), entry.host, entry.port)
