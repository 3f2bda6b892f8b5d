"""Vaults and their credentials: bodies and answers, as OpenAI's SDK has them. No answer has a place for a secret."""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal, Required
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.wire.answers import Seconds
from moorage.wire.create import Metadata
from moorage.wire.network_policy import full_name, secret_value, variable_name
from moorage.wire.queries import PageQuery
from moorage.wire.query_strings import METADATA, choice, words
from moorage.wire.refusals import problem, wrong_value
from moorage.wire.validation import Fields, JsonValidator, Length, OneOf, wire

_VISIBLE: Final = re.compile(r"[\x20-\x7e]+")
"""RFC 6749, appendix A: what a client's id, a secret of it, and a token consist of."""
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
"""RFC 6749, section 3.3."""
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII)
"""RFC 3339, section 5.6."""
_RESERVED: Final = "CODEX_"


def _name(given: str) -> str:
    name = given.strip()
    if not 0 < len(name.encode()) <= limits.VAULT_NAME_BYTES_MAX:
        raise wrong_value(f"a name has 1 to {limits.VAULT_NAME_BYTES_MAX} bytes of UTF-8 between its outer spaces.")
    return name


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.isascii() or not url.isprintable() or " " in url:
        raise wrong_value("it must be an https address in ASCII.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise wrong_value("it must hold no user name, password or fragment.")
    return url


def _secret(value: str) -> str:
    if _VISIBLE.fullmatch(value) is None:
        raise wrong_value("it takes printable ASCII characters only.")
    return value


def _scope(value: str) -> str:
    if _SCOPE.fullmatch(value) is None:
        raise wrong_value("it must be scopes with one space between them.")
    return value


def _moment(value: str) -> int:
    """Unix seconds of a time of RFC 3339."""
    try:
        if _MOMENT.fullmatch(value) is not None:
            return int(datetime.fromisoformat(value.upper()).timestamp())
    except (ValueError, OverflowError):
        pass
    raise wrong_value("it must be a time such as '2027-01-31T12:00:00Z'.")


def moment_of(seconds: int | None) -> str | None:
    """A time as answers have it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _as_in_policies(check: Callable[[str, str], str]) -> AfterValidator:
    """What a network policy says of the same value."""

    def refusal(value: str, param: str) -> ApiError:
        try:
            check(value, param)
        except ApiError as error:
            return error
        raise AssertionError("a value that was refused is taken now")

    def look(value: str) -> str:
        try:
            return check(value, "")
        except ApiError:
            raise problem(partial(refusal, value)) from None

    return AfterValidator(look)


def _unreserved(name: str) -> str:
    if name.upper().startswith(_RESERVED):
        raise wrong_value(f"names that begin with '{_RESERVED}' are reserved.")
    return name


def _distinct(hosts: list[str]) -> list[str]:
    if len(set(hosts)) != len(hosts):
        raise wrong_value("a host is given twice.")
    return hosts


VaultName = Annotated[str, AfterValidator(_name)]
_Url = Annotated[str, Field(min_length=1, max_length=limits.MCP_URL_CHARS_MAX), AfterValidator(_address)]
_Secret = Annotated[str, Field(min_length=1, max_length=limits.VAULT_SECRET_CHARS_MAX), AfterValidator(_secret)]
_Value = Annotated[str, Field(min_length=1, max_length=limits.VAULT_SECRET_CHARS_MAX), _as_in_policies(secret_value)]
_Variable = Annotated[str, AfterValidator(_unreserved), _as_in_policies(variable_name)]
_Host = Annotated[str, _as_in_policies(full_name)]
_Parameter = Annotated[str, Field(min_length=1, max_length=limits.OAUTH_PARAMETER_CHARS_MAX), AfterValidator(_secret)]
_Scope = Annotated[str, Field(min_length=1, max_length=limits.OAUTH_PARAMETER_CHARS_MAX), AfterValidator(_scope)]
_Moment = Annotated[str, AfterValidator(_moment)]

# --- Vaults -------------------------------------------------------------------------------------------------------------


@wire
class ChangeVault(TypedDict, total=False):
    """``POST /v1/vaults`` and ``POST /v1/vaults/{vault_id}``: what is left out stays as it is, and null takes it away."""

    name: VaultName
    metadata: Metadata


CHANGE_VAULT: Final = JsonValidator[Fields](ChangeVault)


class Vault(TypedDict):
    id: str
    object: Literal["vault"]
    created_at: Seconds
    name: str | None
    metadata: Metadata


# --- Credentials --------------------------------------------------------------------------------------------------------


@wire
class StaticBearer(TypedDict):
    type: Literal["static_bearer"]
    mcp_server_url: _Url
    token: _Secret


@wire
class NoClientSecret(TypedDict):
    type: Literal["none"]


@wire
class ClientSecret(TypedDict):
    type: Literal["client_secret_basic", "client_secret_post"]
    client_secret: _Secret


@wire
class McpOauthRefresh(TypedDict, total=False):
    client_id: Required[_Parameter]
    refresh_token: Required[_Secret]
    token_endpoint: Required[_Url]
    token_endpoint_auth: Required[
        Annotated[
            NoClientSecret | ClientSecret,
            OneOf({"none": NoClientSecret, "client_secret_basic": ClientSecret, "client_secret_post": ClientSecret}),
        ]
    ]
    resource: _Parameter
    scope: _Scope


@wire
class McpOauth(TypedDict, total=False):
    type: Required[Literal["mcp_oauth"]]
    mcp_server_url: Required[_Url]
    access_token: Required[_Secret]
    expires_at: _Moment
    refresh: McpOauthRefresh


@wire
class UnrestrictedHosts(TypedDict):
    type: Literal["unrestricted"]


@wire
class LimitedHosts(TypedDict):
    type: Literal["limited"]
    allowed_hosts: Annotated[list[_Host], Length(limits.VAULT_HOSTS_MAX, minimum=1), AfterValidator(_distinct)]


@wire
class EnvironmentVariable(TypedDict):
    type: Literal["environment_variable"]
    secret_name: _Variable
    secret_value: _Value
    networking: Annotated[UnrestrictedHosts | LimitedHosts, OneOf({"unrestricted": UnrestrictedHosts, "limited": LimitedHosts})]


_AUTH: Final = {"static_bearer": StaticBearer, "mcp_oauth": McpOauth, "environment_variable": EnvironmentVariable}


@wire
class CreateCredential(TypedDict, total=False):
    """``POST /v1/vaults/{vault_id}/credentials``."""

    name: Required[VaultName]
    auth: Required[Annotated[StaticBearer | McpOauth | EnvironmentVariable, OneOf(_AUTH)]]
    metadata: Metadata


# --- Rotation -----------------------------------------------------------------------------------------------------------


@wire
class RotateStaticBearer(TypedDict):
    type: Literal["static_bearer"]
    token: _Secret


@wire
class RotateClientSecret(TypedDict, total=False):
    type: Required[Literal["client_secret_basic", "client_secret_post"]]
    client_secret: _Secret


@wire
class RotateRefresh(TypedDict, total=False):
    refresh_token: _Secret
    scope: _Scope
    token_endpoint_auth: Annotated[
        RotateClientSecret, OneOf({"client_secret_basic": RotateClientSecret, "client_secret_post": RotateClientSecret})
    ]


@wire
class RotateMcpOauth(TypedDict, total=False):
    """``expires_at`` and ``refresh.scope`` are taken away by null. A new ``access_token`` without ``expires_at`` takes it away too."""

    type: Required[Literal["mcp_oauth"]]
    access_token: _Secret
    expires_at: _Moment
    refresh: RotateRefresh


@wire
class RotateEnvironmentVariable(TypedDict):
    type: Literal["environment_variable"]
    secret_value: _Value


_ROTATED: Final = {
    "static_bearer": RotateStaticBearer,
    "mcp_oauth": RotateMcpOauth,
    "environment_variable": RotateEnvironmentVariable,
}


@wire
class UpdateCredential(TypedDict, total=False):
    """``POST /v1/vaults/{vault_id}/credentials/{credential_id}``."""

    auth: Annotated[RotateStaticBearer | RotateMcpOauth | RotateEnvironmentVariable, OneOf(_ROTATED)]
    metadata: Metadata


CREATE_CREDENTIAL: Final = JsonValidator[Fields](CreateCredential)
UPDATE_CREDENTIAL: Final = JsonValidator[Fields](UpdateCredential)

# --- Answers ------------------------------------------------------------------------------------------------------------


class StaticBearerAnswer(TypedDict):
    type: Literal["static_bearer"]
    mcp_server_url: str


class TokenEndpointAuthAnswer(TypedDict):
    type: Literal["none", "client_secret_basic", "client_secret_post"]


class McpOauthRefreshAnswer(TypedDict):
    client_id: str
    token_endpoint: str
    token_endpoint_auth: TokenEndpointAuthAnswer
    resource: str | None
    scope: str | None


class McpOauthAnswer(TypedDict):
    type: Literal["mcp_oauth"]
    mcp_server_url: str
    expires_at: str | None
    refresh: McpOauthRefreshAnswer | None


class UnrestrictedHostsAnswer(TypedDict):
    type: Literal["unrestricted"]


class LimitedHostsAnswer(TypedDict):
    type: Literal["limited"]
    allowed_hosts: list[str]


class EnvironmentVariableAnswer(TypedDict):
    type: Literal["environment_variable"]
    secret_name: str
    networking: UnrestrictedHostsAnswer | LimitedHostsAnswer


class VaultCredential(TypedDict):
    id: str
    object: Literal["vault.credential"]
    vault_id: str
    created_at: Seconds
    updated_at: Seconds
    name: str
    auth: StaticBearerAnswer | McpOauthAnswer | EnvironmentVariableAnswer
    metadata: Metadata


_STATUSES: Final = ("active", "archived")


@dataclass(frozen=True, slots=True)
class VaultPage(PageQuery):
    """The requested part of a list of vaults or credentials."""

    statuses: Annotated[frozenset[str], replace(words(*_STATUSES), name="status", schema=choice(*_STATUSES).schema)] = frozenset()
    metadata: Annotated[Mapping[str, str], METADATA] = field(default_factory=dict)

    @property
    def takes_active(self) -> bool:
        """Otherwise it takes archived ones alone, and there are none."""
        return not self.statuses or "active" in self.statuses
