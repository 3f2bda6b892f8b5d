"""Domain secrets: what a container holds in place of a credential, and how the credential itself is kept.

A request names a secret, its domain and its value. The container gets an environment variable of that name whose content is a
random placeholder; the value is sealed at once and only the proxy can open it, to put it in the placeholder's place on the way to
the secret's own domain (``substitution.py``).

Sealing is an envelope: KMS makes one data key per container (``GenerateDataKey``) under the encryption context
``{tenant, container}``; the values are AES-256-GCM ciphertexts under it, with tenant, container, name and domain as additional
data, so that a stored ciphertext moved to another record does not open. The API may only generate keys; the proxy may only decrypt
them. An operator's named secrets are sealed likewise under ``{secret: name}`` and are looked up by the proxy at each reading, so
that a rotated value takes effect by itself.

Values are never part of a ``repr``, a log line, an error or an event.
"""

import os
import re
import secrets as random
from asyncio import get_running_loop
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from moorage import limits
from moorage.egress.policy import EgressRequest, Policy, Reason, decide, normalise_pattern
from moorage.errors import bad_request, invalid_type, invalid_value, missing_parameter, unknown_parameter, unsupported_value

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient

PLACES: Final = ("headers", "basic_auth", "query")
"""Where a placeholder may be swapped: in a header's text; inside the base64 of ``Authorization: Basic``; in the URL's query."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_PLACEHOLDER: Final = "MOORAGE_SECRET_{name}_{random}"
_NONCE_BYTES: Final = 12
"""NIST SP 800-38D; a fresh data key per container keeps random nonces far from repeating."""

_RESERVED_PREFIXES: Final = ("LD_", "BASH", "MOORAGE_", "GLIBC_", "MALLOC_")
_RESERVED_NAMES: Final = frozenset(
    {"PATH", "HOME", "SHELL", "USER", "PWD", "OLDPWD", "IFS", "ENV", "TERM", "LANG", "TMPDIR", "PS4", "PROMPT_COMMAND", "SHELLOPTS"}
    | {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB"}
    | {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}
)
"""Variables that steer programs or belong to the sandbox; a secret under such a name would break it."""


@dataclass(frozen=True, slots=True)
class DomainSecret:
    """One entry of ``domain_secrets``. ``value`` None refers to the operator's secret of the same name."""

    name: str
    domain: str
    value: str | None = field(default=None, repr=False)
    methods: tuple[str, ...] = ()
    """Empty: any method but TRACE and CONNECT."""
    path_prefixes: tuple[str, ...] = ()
    """Empty: any path."""
    places: tuple[str, ...] = ("headers",)


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


@dataclass(frozen=True, slots=True)
class OpenSecret:
    """A secret in the proxy's memory."""

    name: str
    domain: str
    placeholder: str
    value: str = field(repr=False)
    methods: tuple[str, ...] = ()
    path_prefixes: tuple[str, ...] = ()
    places: tuple[str, ...] = ("headers",)


# --- Requests -----------------------------------------------------------------------------------------------------------------


def validate_domain_secrets(
    network_policy: Mapping[str, Any] | None, policy: Policy, *, param: str = "network_policy"
) -> tuple[DomainSecret, ...]:
    """The secrets of a request whose ``policy`` has been validated. Raises :class:`ApiError` 400, never with a value in it."""
    listed = None if network_policy is None else network_policy.get("domain_secrets")
    if listed is None:
        return ()
    param = f"{param}.domain_secrets"
    if not isinstance(listed, list | tuple):
        raise invalid_type(param, "an array of objects", type(listed).__name__)
    if not 1 <= len(listed) <= limits.DOMAIN_SECRETS_MAX:
        raise invalid_value(param, f"it takes 1 to {limits.DOMAIN_SECRETS_MAX} secrets, not {len(listed)}.")
    secrets = tuple(_domain_secret(entry, policy, f"{param}[{index}]") for index, entry in enumerate(listed))
    names = [secret.name for secret in secrets]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise invalid_value(f"{param}[{index}].name", f"'{name}' is given twice; each becomes one environment variable.")
    return secrets


def _domain_secret(entry: Any, policy: Policy, param: str) -> DomainSecret:
    if not isinstance(entry, Mapping):
        raise invalid_type(param, "an object", type(entry).__name__)
    if unknown := sorted(entry.keys() - {"domain", "name", "value", "methods", "path_prefixes", "places"}):
        raise unknown_parameter(f"{param}.{unknown[0]}")
    return DomainSecret(
        name=_name(_string(entry, "name", param), f"{param}.name"),
        domain=_domain(_string(entry, "domain", param), policy, f"{param}.domain"),
        value=None if entry.get("value") is None else checked_value(_string(entry, "value", param), f"{param}.value"),
        methods=_words(entry, "methods", param, _METHOD.fullmatch, "an HTTP method in capitals"),
        path_prefixes=_words(entry, "path_prefixes", param, lambda text: is_plain_path(text), "a path that starts with '/'"),
        places=_words(entry, "places", param, lambda text: text in PLACES, f"one of {', '.join(PLACES)}") or ("headers",),
    )


def _string(entry: Mapping[str, Any], key: str, param: str) -> str:
    value = entry.get(key)
    if value is None:
        raise missing_parameter(f"{param}.{key}")
    if not isinstance(value, str):
        raise invalid_type(f"{param}.{key}", "a string", type(value).__name__)
    return value


def _name(name: str, param: str) -> str:
    if len(name) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise invalid_value(param, "it becomes an environment variable: letters, digits and '_', not starting with a digit.")
    if is_reserved(name):
        raise invalid_value(param, f"'{name}' is a variable that the container itself needs. Choose another name.")
    return name


def is_reserved(name: str) -> bool:
    """Would an environment variable of this name change how the container's programs run or reach the proxy?"""
    upper = name.upper()
    return (
        upper in _RESERVED_NAMES
        or upper.startswith(_RESERVED_PREFIXES)
        or upper.endswith(("_PROXY", "_CA_BUNDLE", "_CERT_FILE", "_CA_CERTS"))
    )


def _domain(domain: str, policy: Policy, param: str) -> str:
    name = normalise_pattern(domain)
    if name is None or name.startswith("*"):
        raise invalid_value(param, "a secret goes to one full domain name, without a wildcard.")
    if decide(EgressRequest(name, 443), policy).reason not in (Reason.ALLOWED_EXACT, Reason.ALLOWED_WILDCARD):
        raise invalid_value(param, f"'{name}' is not among 'allowed_domains'. A secret can only go to an allowed domain.")
    return name


def checked_value(value: str, param: str) -> str:
    """A value that can stand in a header; anything else could smuggle one in or could not be sent."""
    if not 1 <= len(value) <= limits.DOMAIN_SECRET_CHARS_MAX:
        raise invalid_value(param, f"it takes 1 to {limits.DOMAIN_SECRET_CHARS_MAX} characters.")
    if not (value.isascii() and value.isprintable()):
        raise invalid_value(param, "it takes printable ASCII characters only, since it is sent in an HTTP header.")
    return value


def _words(entry: Mapping[str, Any], key: str, param: str, is_valid: Any, what: str) -> tuple[str, ...]:
    words = entry.get(key)
    if words is None:
        return ()
    if not isinstance(words, list | tuple):
        raise invalid_type(f"{param}.{key}", "an array of strings", type(words).__name__)
    for index, word in enumerate(words):
        if not isinstance(word, str) or not is_valid(word):
            raise unsupported_value(f"{param}.{key}[{index}]", str(word)[:80], f"It takes {what}.")
    return tuple(words)


def is_plain_path(path: str) -> bool:
    """A path that every server reads alike: absolute, without dot segments, backslashes, doubled or encoded separators."""
    bare = path.partition("?")[0]
    lowered = bare.lower()
    return (
        bare.startswith("/")
        and bare.isascii()
        and bare.isprintable()
        and not any(trick in lowered for trick in ("//", "\\", "%2e", "%2f", "%5c", "%25", "%00", ";"))
        and not any(segment in (".", "..") for segment in bare.split("/"))
    )


# --- Sealing ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataKey:
    plaintext: bytes = field(repr=False)
    wrapped: bytes = field(repr=False)


class KeyLost(Exception):
    """What was wrapped is not this key's: it was wrapped with one that the deployment no longer has."""


class KeyService(Protocol):
    """What wraps data keys: KMS, or a fake in tests."""

    @property
    def key_id(self) -> str: ...

    async def generate(self, context: Mapping[str, str]) -> DataKey: ...

    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """Raises :class:`KeyLost`."""


class KmsKeys:
    """KMS as the key service; boto3 is synchronous, so that each call runs on the given pool."""

    def __init__(self, client: "KMSClient", key_id: str, executor: Executor) -> None:
        self._client = client
        self.key_id = key_id
        self._executor = executor

    async def generate(self, context: Mapping[str, str]) -> DataKey:
        answer = await get_running_loop().run_in_executor(
            self._executor,
            lambda: self._client.generate_data_key(KeyId=self.key_id, KeySpec="AES_256", EncryptionContext=context),
        )
        return DataKey(answer["Plaintext"], answer["CiphertextBlob"])

    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        return await get_running_loop().run_in_executor(self._executor, self._unwrapped, wrapped, context)

    def _unwrapped(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        refused = self._client.exceptions
        try:
            answer = self._client.decrypt(KeyId=self.key_id, CiphertextBlob=wrapped, EncryptionContext=context)
        except (refused.IncorrectKeyException, refused.InvalidCiphertextException) as error:
            raise KeyLost(f"{self.key_id} did not wrap this") from error
        return answer["Plaintext"]


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
        ciphertext = encrypt(secret.value, key.plaintext, _bound_to(context, secret.name, secret.domain))
    return SealedSecret(
        secret.name, secret.domain, new_placeholder(secret.name), secret.methods, secret.path_prefixes, secret.places, ciphertext
    )


def unseal(sealed: SealedSecret, key: bytes, context: Mapping[str, str]) -> OpenSecret:
    """Raises ``cryptography.exceptions.InvalidTag`` if the record was changed or moved."""
    assert sealed.ciphertext is not None, "an operator's secret is opened from the operator's record"
    return opened(sealed, decrypt(sealed.ciphertext, key, _bound_to(context, sealed.name, sealed.domain)))


def opened(sealed: SealedSecret, value: str) -> OpenSecret:
    return OpenSecret(sealed.name, sealed.domain, sealed.placeholder, value, sealed.methods, sealed.path_prefixes, sealed.places)


def encrypt(value: str, key: bytes, bound_to: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value.encode(), bound_to)


def decrypt(ciphertext: bytes, key: bytes, bound_to: bytes) -> str:
    return AESGCM(key).decrypt(ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:], bound_to).decode()


def _bound_to(context: Mapping[str, str], name: str, domain: str) -> bytes:
    return "\n".join([*(f"{key}={context[key]}" for key in sorted(context)), name, domain]).encode()


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

    def may_be_used_by(self, tenant_id: str) -> bool:
        return not self.tenants or tenant_id in self.tenants


async def seal_operator_secret(name: str, domain: str, value: str, tenants: tuple[str, ...], keys: KeyService) -> OperatorSecret:
    """Raises :class:`ApiError` 400 for a name, domain or value that no request could use."""
    _name(name, "name")
    normal = normalise_pattern(domain)
    if normal is None or normal.startswith("*"):
        raise invalid_value("domain", "a secret goes to one full domain name, without a wildcard.")
    checked_value(value, "value")
    context = operator_context(name)
    key = await keys.generate(context)
    return OperatorSecret(name, normal, tenants, key.wrapped, encrypt(value, key.plaintext, _bound_to(context, name, normal)))


async def open_operator_secret(secret: OperatorSecret, keys: KeyService) -> str:
    context = operator_context(secret.name)
    key = await keys.unwrap(secret.wrapped_key, context)
    return decrypt(secret.ciphertext, key, _bound_to(context, secret.name, secret.domain))


def check_operator_secret(secret: DomainSecret, found: OperatorSecret | None, tenant_id: str) -> None:
    """A request's reference must meet a secret of that name for that very domain, open to the tenant; unknown and foreign look
    alike."""
    if found is None or not found.may_be_used_by(tenant_id) or found.domain != secret.domain:
        raise bad_request(
            f"'{secret.name}' has no 'value', and this deployment has no secret of that name for '{secret.domain}'. Give a value, "
            "or ask the operator to define the secret.",
            param="network_policy.domain_secrets",
            code="secret_not_found",
        )
