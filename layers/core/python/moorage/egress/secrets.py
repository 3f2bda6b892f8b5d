"""Domain secrets: what a container holds in place of a credential, and how the credential itself is kept.

A request names a secret, its domain and its value. The container gets an environment variable of that name whose content is a
random placeholder; the value is sealed at once and only the proxy can open it, to put it in the placeholder's place on the way to
the secret's own domain (``substitution.py``).

Sealing is an envelope: the key service (``keys.py``) makes one data key per container under the context ``{tenant, container}``; the
values are AES-256-GCM ciphertexts under it, with tenant, container, name and domain as additional data, so that a stored ciphertext
moved to another record does not open. On AWS the API may only generate keys, and only the proxy decrypt them.
An operator's named secrets are sealed likewise under ``{secret: name}`` and are looked up by the proxy at each reading, so that a
rotated value takes effect by itself.

Values are never part of a ``repr``, a log line, an error or an event.
"""

import secrets as random
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Final

from moorage import sealing
from moorage.dataclass import dataclass
from moorage.egress.keys import DataKey, KeyService
from moorage.egress.redaction import forms_of, patterns_of
from moorage.errors import bad_request
from moorage.hosts import listed
from moorage.wire.network_policy import DEFAULT_PLACES, DomainSecret, full_name, secret_value, variable_name

_PLACEHOLDER: Final = "MOORAGE_SECRET_{name}_{random}"


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret as the table holds it."""

    name: str
    domain: str
    placeholder: str
    methods: tuple[str, ...]
    path_prefixes: tuple[str, ...]
    places: tuple[str, ...]
    ciphertext: bytes | None = field(repr=False)
    """Nonce, then AES-256-GCM ciphertext with its tag. None refers to the operator's secret of this name."""
    more_domains: tuple[str, ...] = ()
    """Patterns; they are sealed with it."""


@dataclass(frozen=True)
class OpenSecret:
    """A secret in the proxy's memory."""

    name: str
    domain: str
    placeholder: str
    value: str = field(repr=False)
    methods: tuple[str, ...] = ()
    path_prefixes: tuple[str, ...] = ()
    places: tuple[str, ...] = DEFAULT_PLACES
    more_domains: tuple[str, ...] = ()

    def goes_to(self, host: str) -> bool:
        """``host`` is normalised. Whether the container may reach it is asked before."""
        return host == self.domain or listed(host, self.more_domains) is not None

    @cached_property
    def echoes(self) -> frozenset[bytes]:
        """The redactor of answers of the domain. Made once, not for each request: a long value has many patterns."""
        return patterns_of(forms_of(self.value))


# --- Sealing ------------------------------------------------------------------------------------------------------------------


def container_context(tenant_id: str, container_id: str) -> dict[str, str]:
    return {"tenant": tenant_id, "container": container_id}


def operator_context(name: str) -> dict[str, str]:
    return {"secret": name}


def new_placeholder(name: str) -> str:
    """``MOORAGE_SECRET_<NAME>_<32 hex digits>``: 128 random bits, so that nobody guesses one and no text contains one by chance."""
    return _PLACEHOLDER.format(name=name.upper(), random=random.token_hex(16))


def seal(secret: DomainSecret, key: DataKey | None, context: Mapping[str, str]) -> SealedSecret:
    """``key`` is needed exactly when the secret carries a value."""
    ciphertext = None
    if secret.value is not None:
        assert key is not None, "a value without a data key"
        ciphertext = sealing.seal(secret.value, key.plaintext, _bound_to(context, secret.name, secret.domain, *secret.more_domains))
    return SealedSecret(
        secret.name,
        secret.domain,
        new_placeholder(secret.name),
        secret.methods,
        secret.path_prefixes,
        secret.places,
        ciphertext,
        secret.more_domains,
    )


def unseal(sealed: SealedSecret, key: bytes, context: Mapping[str, str]) -> OpenSecret:
    """Raises :class:`~moorage.sealing.SealBroken` if the record was changed or moved."""
    assert sealed.ciphertext is not None, "an operator's secret is opened from the operator's record"
    bound_to = _bound_to(context, sealed.name, sealed.domain, *sealed.more_domains)
    return opened(sealed, sealing.unseal(sealed.ciphertext, key, bound_to))


def opened(sealed: SealedSecret, value: str) -> OpenSecret:
    return OpenSecret(
        sealed.name,
        sealed.domain,
        sealed.placeholder,
        value,
        sealed.methods,
        sealed.path_prefixes,
        sealed.places,
        sealed.more_domains,
    )


def _bound_to(context: Mapping[str, str], name: str, *domains: str) -> bytes:
    return "\n".join([*(f"{key}={context[key]}" for key in sorted(context)), name, *domains]).encode()


# --- The operator's named secrets -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorSecret:
    """A credential that requests may refer to by name without knowing it."""

    name: str
    domain: str
    tenants: tuple[str, ...]
    """Tenants that may use it; empty: all."""
    wrapped_key: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)
    set_at: int = 0

    def may_be_used_by(self, tenant_id: str) -> bool:
        return not self.tenants or tenant_id in self.tenants


async def seal_operator_secret(
    name: str, domain: str, value: str, tenants: tuple[str, ...], keys: KeyService, *, set_at: int
) -> OperatorSecret:
    """Raises :class:`ApiError` 400 for a name, domain or value that no request could use."""
    name, domain, value = variable_name(name, "name"), full_name(domain, "domain"), secret_value(value, "value")
    context = operator_context(name)
    key = await keys.generate(context)
    ciphertext = sealing.seal(value, key.plaintext, _bound_to(context, name, domain))
    return OperatorSecret(name, domain, tenants, key.wrapped, ciphertext, set_at)


async def open_operator_secret(secret: OperatorSecret, keys: KeyService) -> str:
    context = operator_context(secret.name)
    key = await keys.unwrap(secret.wrapped_key, context)
    return sealing.unseal(secret.ciphertext, key, _bound_to(context, secret.name, secret.domain))


def admit(
    asked: Iterable[DomainSecret], operators: Mapping[str, OperatorSecret], tenant_id: str, *, param: str = "network_policy"
) -> None:
    """A reference without a value must meet an operator's secret of that name for that very domain, open to the tenant; unknown and
    foreign look alike. Raises :class:`ApiError` 400."""
    for secret in asked:
        found = operators.get(secret.name)
        if secret.value is None and (found is None or not found.may_be_used_by(tenant_id) or found.domain != secret.domain):
            raise bad_request(
                f"'{secret.name}' has no 'value', and this deployment has no secret of that name for '{secret.domain}'. Give a "
                "value, or ask the operator to define the secret.",
                param=f"{param}.domain_secrets",
                code="secret_not_found",
            )
