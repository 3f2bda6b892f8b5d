"""``network_policy``: the hosts that a container may reach, and the credentials that are put in on the way.

    {"type": "disabled"}
    {"type": "allowlist", "allowed_domains": ["api.example.com", "*.pkg.example"],
     "domain_secrets": [{"domain", "name", "value"?, "methods"?, "path_prefixes"?, "places"?}]?,
     "require_approval": "always" | "never" | {"hosts": ["*.example.com"]?, "secrets": ["NAME"]?}?}

Only this module reads one. :func:`parse_network_policy` takes the JSON value with the field that holds it, and returns one frozen
:class:`NetworkPolicy` or raises an :class:`~moorage.errors.ApiError` that names the field at fault; ``JSON_SCHEMA`` says the same for
documents. The function is pure: a caller that learns the field's place later asks again with it, by :func:`refusal`.

A policy that exists is therefore well-formed: domains are patterns (``hosts.py``), each secret goes to one full name among them, and
names, values, methods, paths and places are such as the proxy can use. Checks that depend on the deployment follow on the value:
``egress/policy.py: admit`` (the operator's ceiling) and ``egress/secrets.py: admit`` (the operator's named secrets).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal, TypeVar

from moorage import errors, hosts, limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.wire.types import type_name

_T = TypeVar("_T")

PLACES: Final = ("headers", "basic_auth", "query", "form")
"""Where a placeholder may be swapped: in a header's text; inside the base64 of ``Authorization: Basic``; in the URL's query; in a
form or a JSON body of bounded size, as a page sends what somebody signs in with."""
DEFAULT_PLACES: Final = ("headers",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSecret:
    """A credential that the egress proxy puts in the place of the placeholder ``$NAME``, in requests to ``domain``."""

    domain: str
    """One full name."""
    name: str
    value: str | None = field(default=None, repr=False)
    """None refers to the operator's secret of that name."""
    methods: tuple[str, ...] = ()
    """Empty: any method but TRACE and CONNECT."""
    path_prefixes: tuple[str, ...] = ()
    """Empty: any path."""
    places: tuple[str, ...] = DEFAULT_PLACES
    more_domains: tuple[str, ...] = ()
    """Patterns of further hosts that it goes to. A request's own secrets have none; a vault's may."""

    def to_json(self) -> dict[str, Any]:
        """The form to store and show: everything but the value."""
        shown: dict[str, Any] = {"domain": self.domain, "name": self.name}
        if self.methods:
            shown["methods"] = list(self.methods)
        if self.path_prefixes:
            shown["path_prefixes"] = list(self.path_prefixes)
        if self.places != DEFAULT_PLACES:
            shown["places"] = list(self.places)
        return shown


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    type: Literal["disabled", "allowlist"]
    allowed_domains: tuple[str, ...] = ()
    """Patterns, in the order of the request."""
    domain_secrets: tuple[DomainSecret, ...] = ()
    asks_hosts: tuple[str, ...] = ()
    """Patterns, among them ``*``: the first request to a host that one covers waits for a person's word."""
    asks_secrets: tuple[str, ...] = ()
    """Names of secrets whose first use waits for it."""

    @property
    def approvals(self) -> dict[str, list[str]]:
        """The hosts and secrets that need approval, as they are shown; empty if there are none."""
        asked = {"hosts": list(self.asks_hosts), "secrets": list(self.asks_secrets)}
        return {kind: names for kind, names in asked.items() if names}

    def to_json(self) -> dict[str, Any]:
        """The form to store and show: everything but the secrets' values."""
        if self.type == "disabled":
            return {"type": "disabled"}
        shown: dict[str, Any] = {"type": "allowlist", "allowed_domains": list(self.allowed_domains)}
        if self.domain_secrets:
            shown["domain_secrets"] = [secret.to_json() for secret in self.domain_secrets]
        return shown | ({"require_approval": self.approvals} if self.approvals else {})


def parse_network_policy(value: Any, param: str) -> NetworkPolicy:
    """The policy that ``value`` is. Raises :class:`ApiError` 400 naming the field below ``param``, never with a secret's value."""
    if type(value) is not dict:
        raise errors.invalid_type(param, "an object", type_name(value))
    kind = value.get("type")
    match kind:
        case "disabled":
            _check_fields(value, ("type",), (), param)
            return NetworkPolicy("disabled")
        case "allowlist":
            _check_fields(value, ("type", "allowed_domains"), ("domain_secrets", "require_approval"), param)
            return _allowlist(value, param)
        case None:
            raise errors.missing_parameter(f"{param}.type")
        case str():
            raise errors.invalid_choice(f"{param}.type", kind[:80], ("disabled", "allowlist"))
        case _:
            raise errors.invalid_type(f"{param}.type", "a string", type_name(kind))


def refusal(value: Any, param: str) -> ApiError:
    """The reason why :func:`parse_network_policy` has refused ``value``, told of ``param``."""
    try:
        parse_network_policy(value, param)
    except ApiError as error:
        return error
    raise AssertionError("a policy that was refused parses now")


def _allowlist(value: Mapping[str, Any], param: str) -> NetworkPolicy:
    domains = _array(value["allowed_domains"], f"{param}.allowed_domains", 1, limits.ALLOWED_DOMAINS_MAX, _pattern)
    given = value.get("domain_secrets")
    secrets = () if given is None else _domain_secrets(given, domains, f"{param}.domain_secrets")
    policy = NetworkPolicy("allowlist", domains, secrets)
    return _asking(policy, value.get("require_approval"), f"{param}.require_approval")


def _domain_secrets(given: Any, domains: tuple[str, ...], param: str) -> tuple[DomainSecret, ...]:
    secrets = _array(given, param, 1, limits.DOMAIN_SECRETS_MAX, _domain_secret)
    if (chars := sum(map(_chars, secrets))) > limits.DOMAIN_SECRETS_CHARS_MAX:
        message = f"the secrets have {chars} characters in all (values, names, domains, paths), and at most "
        raise errors.invalid_value(param, f"{message}{limits.DOMAIN_SECRETS_CHARS_MAX} are taken.")
    names: set[str] = set()
    for index, secret in enumerate(secrets):
        if hosts.listed(secret.domain, domains) is None:
            message = f"'{secret.domain}' is not among 'allowed_domains'. A secret can only go to an allowed domain."
            raise errors.invalid_value(f"{param}[{index}].domain", message)
        if secret.name in names:
            message = f"'{secret.name}' is given twice; each becomes one environment variable."
            raise errors.invalid_value(f"{param}[{index}].name", message)
        names.add(secret.name)
    return secrets


def _asking(policy: NetworkPolicy, given: Any, param: str) -> NetworkPolicy:
    """The policy with its approvals."""
    names = tuple(secret.name for secret in policy.domain_secrets)
    match given:
        case None | "never":
            return policy
        case "always":
            return replace(policy, asks_hosts=("*",), asks_secrets=names)
        case str():
            raise errors.invalid_choice(param, given[:80], ("always", "never"))
        case dict():
            _check_fields(given, (), ("hosts", "secrets"), param)
        case _:
            raise errors.invalid_type(param, "a string or an object", type_name(given))

    def secret(name: Any, at: str) -> str:
        text = _text(name, at, 1, limits.NAME_CHARS_MAX)
        if text not in names:
            raise errors.invalid_value(at, f"'{text[:80]}' is none of the names in 'domain_secrets'.")
        return text

    hosts_given, secrets_given = given.get("hosts"), given.get("secrets")
    if hosts_given is None and secrets_given is None:
        raise errors.invalid_value(param, "it names neither 'hosts' nor 'secrets'.")
    at = f"{param}.hosts"
    return replace(
        policy,
        asks_hosts=() if hosts_given is None else _array(hosts_given, at, 1, limits.ALLOWED_DOMAINS_MAX, _pattern_or_all),
        asks_secrets=() if secrets_given is None else _array(secrets_given, f"{param}.secrets", 1, limits.DOMAIN_SECRETS_MAX, secret),
    )


def _pattern_or_all(value: Any, param: str) -> str:
    return "*" if value == "*" else _pattern(value, param)


# --- Domains ------------------------------------------------------------------------------------------------------------------

_DOMAIN_CHARS_MAX: Final = 1_000
"""Of an entry as it is given: an internationalised one may be longer than the name that it stands for."""


def _pattern(value: Any, param: str) -> str:
    given = _text(value, param, 1, _DOMAIN_CHARS_MAX)
    pattern = hosts.normalise_pattern(given)
    if pattern is None or pattern == "*":
        raise errors.invalid_value(param, _why_no_domain(given))
    return pattern


def _why_no_domain(given: str) -> str:
    shown = given[:80]
    if "/" in given or ":" in given:
        return f"'{shown}' is not a domain. Give the host name alone, without scheme, port or path."
    if hosts.is_ip_literal(given):
        return f"'{shown}' is an address. Only domain names can be allowed."
    if not given.isascii() or hosts.normalise(given) is not None:
        return (
            f"'{shown}' is not a domain. Use a full name such as 'api.example.com' or '*.example.com', without scheme, port, "
            "path or address; write internationalised names in their 'xn--' form."
        )
    return f"'{shown}' is not a valid domain."


def full_name(value: Any, param: str) -> str:
    """The domain of a secret: one full name."""
    name = _pattern(value, param)
    if name.startswith("*"):
        raise errors.invalid_value(param, "a secret goes to one full domain name, without a wildcard.")
    return name


# --- Secrets ------------------------------------------------------------------------------------------------------------------

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_METHOD: Final = r"[A-Z]{1,20}"

_RESERVED_PREFIXES: Final = ("LD_", "BASH", "MOORAGE_", "GLIBC_", "MALLOC_")
_RESERVED_NAMES: Final = frozenset(
    {"PATH", "HOME", "SHELL", "USER", "PWD", "OLDPWD", "IFS", "ENV", "TERM", "LANG", "TMPDIR", "PS4", "PROMPT_COMMAND", "SHELLOPTS"}
    | {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB"}
    | {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}
)
"""Variables that steer programs or belong to the sandbox; a secret under such a name would break it."""
_RESERVED_SUFFIXES: Final = ("_PROXY", "_CA_BUNDLE", "_CERT_FILE", "_CA_CERTS")


def _domain_secret(value: Any, param: str) -> DomainSecret:
    if type(value) is not dict:
        raise errors.invalid_type(param, "an object", type_name(value))
    _check_fields(value, ("domain", "name"), ("value", "methods", "path_prefixes", "places"), param)
    given = value.get("value")
    return DomainSecret(
        domain=full_name(value["domain"], f"{param}.domain"),
        name=variable_name(value["name"], f"{param}.name"),
        value=None if given is None else secret_value(given, f"{param}.value"),
        methods=_words(value, "methods", param, _is_method, "an HTTP method in capitals"),
        path_prefixes=_words(value, "path_prefixes", param, is_plain_path, "a path that starts with '/'"),
        places=_words(value, "places", param, PLACES.__contains__, f"one of {', '.join(PLACES)}") or DEFAULT_PLACES,
    )


def _chars(secret: DomainSecret) -> int:
    texts = (secret.domain, secret.name, secret.value or "", *secret.methods, *secret.path_prefixes, *secret.places)
    return sum(map(len, texts))


def variable_name(value: Any, param: str) -> str:
    """The name of a secret: that of an environment variable without a meaning of its own in the container."""
    name = _text(value, param, 1, limits.NAME_CHARS_MAX)
    if re.fullmatch(_NAME, name) is None:
        raise errors.invalid_pattern(param, name[:80], _NAME)
    upper = name.upper()
    if upper in _RESERVED_NAMES or upper.startswith(_RESERVED_PREFIXES) or upper.endswith(_RESERVED_SUFFIXES):
        raise errors.invalid_value(param, f"'{name}' is a variable that the container itself needs. Choose another name.")
    return name


def secret_value(value: Any, param: str) -> str:
    """The value of a secret, as it can stand in a header. Anything else could smuggle one in, or could not be sent."""
    secret = _text(value, param, 1, limits.DOMAIN_SECRET_CHARS_MAX)
    if not (secret.isascii() and secret.isprintable()):
        raise errors.invalid_value(param, "it takes printable ASCII characters only, since it is sent in an HTTP header.")
    return secret


def _is_method(word: str) -> bool:
    return re.fullmatch(_METHOD, word) is not None


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


def _words(value: Mapping[str, Any], key: str, param: str, is_valid: Callable[[str], bool], what: str) -> tuple[str, ...]:
    if value.get(key) is None:
        return ()

    def word(given: Any, param: str) -> str:
        text = _text(given, param, 1, limits.IDENTIFIER_CHARS_MAX)
        if not is_valid(text):
            raise errors.unsupported_value(param, text[:80], f"It takes {what}.")
        return text

    return _array(value[key], f"{param}.{key}", 0, limits.DOMAIN_SECRETS_MAX, word)


# --- JSON ---------------------------------------------------------------------------------------------------------------------


def _check_fields(value: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...], param: str) -> None:
    for key in value:
        if key not in required and key not in optional:
            raise errors.unknown_parameter(f"{param}.{key[: limits.PARAM_NAME_CHARS_MAX]}")
    for key in required:
        if key not in value:
            raise errors.missing_parameter(f"{param}.{key}")


def _text(value: Any, param: str, chars_min: int, chars_max: int) -> str:
    if type(value) is not str:
        raise errors.invalid_type(param, "a string", type_name(value))
    if not chars_min <= len(value) <= chars_max:
        raise errors.invalid_length(param, "string", len(value), chars_min, chars_max)
    return value


def _array(value: Any, param: str, items_min: int, items_max: int, entry: Callable[[Any, str], _T]) -> tuple[_T, ...]:
    if type(value) is not list:
        raise errors.invalid_type(param, "an array", type_name(value))
    if not items_min <= len(value) <= items_max:
        raise errors.invalid_length(param, "array", len(value), items_min, items_max)
    return tuple(entry(element, f"{param}[{index}]") for index, element in enumerate(value))


# --- For documents ------------------------------------------------------------------------------------------------------------


def _object_schema(required: Mapping[str, Any], optional: Mapping[str, Any]) -> dict[str, Any]:
    nullable = {name: {"anyOf": [schema, {"type": "null"}]} for name, schema in optional.items()}
    return {
        "type": "object",
        "properties": {**required, **nullable},
        "additionalProperties": False,
        "required": list(required),
    }


def _words_schema(word: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(word), "maxItems": limits.DOMAIN_SECRETS_MAX}


_DOMAIN_SCHEMA: Final = {"type": "string", "minLength": 1, "maxLength": hosts.NAME_CHARS_MAX}
_SECRET_SCHEMA: Final = _object_schema(
    {
        "domain": _DOMAIN_SCHEMA,
        "name": {"type": "string", "maxLength": limits.NAME_CHARS_MAX, "minLength": 1, "pattern": f"^(?:{_NAME})$"},
    },
    {
        "value": {"type": "string", "minLength": 1, "maxLength": limits.DOMAIN_SECRET_CHARS_MAX},
        "methods": _words_schema({"type": "string", "pattern": f"^(?:{_METHOD})$"}),
        "path_prefixes": _words_schema({"type": "string", "minLength": 1, "maxLength": limits.IDENTIFIER_CHARS_MAX}),
        "places": _words_schema({"type": "string", "enum": list(PLACES)}),
    },
)

_ASKING_SCHEMA: Final = _object_schema(
    {},
    {
        "hosts": {"type": "array", "items": _DOMAIN_SCHEMA, "maxItems": limits.ALLOWED_DOMAINS_MAX, "minItems": 1},
        "secrets": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS_MAX},
            "maxItems": limits.DOMAIN_SECRETS_MAX,
            "minItems": 1,
        },
    },
)

JSON_SCHEMA: Final[Mapping[str, Any]] = {
    "oneOf": [
        _object_schema({"type": {"type": "string", "enum": ["disabled"]}}, {}),
        _object_schema(
            {
                "type": {"type": "string", "enum": ["allowlist"]},
                "allowed_domains": {"type": "array", "items": _DOMAIN_SCHEMA, "maxItems": limits.ALLOWED_DOMAINS_MAX, "minItems": 1},
            },
            {
                "domain_secrets": {"type": "array", "items": _SECRET_SCHEMA, "maxItems": limits.DOMAIN_SECRETS_MAX, "minItems": 1},
                "require_approval": {"anyOf": [{"type": "string", "enum": ["always", "never"]}, _ASKING_SCHEMA]},
            },
        ),
    ]
}
"""What :func:`parse_network_policy` takes, as far as a schema can tell."""
