"""The one reader of the environment.

Everything that differs between a laptop, an emulator and an AWS account is a field here. boto3 reads ``AWS_ENDPOINT_URL``, region
and credentials by itself, as everywhere.
"""

import difflib
import hashlib
import ipaddress
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, unquote, urlsplit

from moorage.hosts import normalise, normalise_origin, normalise_pattern
from moorage.limits import (
    AUTO_IDLE_SECONDS_MIN,
    AUTOMATIONS_MAX,
    CODE_SECONDS_MAX,
    COMMAND_TIMEOUT_MS_MAX,
    CONTAINER_IDLE_MINUTES_DEFAULT,
    JSON_SILENCE_SECONDS,
    MEMORY_LIMITS,
    PROGRAMS_CHARS_MAX,
    RUNNING_RESPONSES_MAX,
    STORED_BYTES_MAX,
    WARM_SANDBOXES_MAX,
)

ProvisionerKind = Literal["launcher", "fargate", "elsewhere", "docker", "lambda_microvm", "by_tier"]
"""``fargate`` starts sandboxes and cannot reach them, ``elsewhere`` is for their network: it reaches them and cannot start them.
``by_tier`` is ``lambda_microvm`` for memory tiers with an image of MicroVMs, and ``fargate`` for the others."""


class SettingsError(ValueError):
    """A setting is missing or wrong; the message names the variable and its values."""


@dataclass(frozen=True, slots=True)
class Settings:
    table_name: str
    bucket_name: str
    state_machine_arn: str | None = None
    """None only in functions that never start the loop, and where ``executions_file`` holds the executions."""
    executions_file: str | None = None
    """On one machine: the file of the executions, beside which the sockets of their workers lie, and the bell of the logs."""
    store_dir: str | None = None
    """On one machine: the folder of the table and the bucket, which then need no AWS (``store/journal.py``)."""
    models_file: str = "models.toml"
    content_key: str | None = field(default=None, repr=False)
    """32 bytes as hex: the key that seals ``encrypted_content`` and other secrets (``store/deployment_keys.py``)."""
    content_key_edition: str = ""
    """Changes with it, so that a deployment publishes anew what has read it."""
    content_key_secret: str | None = None
    """The ARN of a secret of Secrets Manager that holds it, instead."""
    sandbox_key: str | None = field(default=None, repr=False)
    """What follows from it for sandboxes' tokens, for processes that are not told the key itself."""
    provisioner: ProvisionerKind = "launcher"
    launcher_socket: str | None = None
    """Unix socket of the local sandbox owner (``provisioner = launcher``)."""
    warm_pool: Mapping[str, int] = field(default_factory=dict)
    """Sandboxes without a network that wait for a container, by memory tier (``1g:2,4g:1``). Not for ``lambda_microvm``."""
    web_search: Literal["refuse", "ignore"] = "refuse"
    """What becomes of a ``web_search`` tool where ``models.toml`` names no search engine: 400, or left out with a notice."""
    code_seconds_max: int = CODE_SECONDS_MAX
    """How long one run of the code interpreter may take."""
    sandbox_programs: str = ""
    """What a command finds in a sandbox, in words for the model; empty if nobody knows. A local stack asks its launcher, and an AWS
    deployment says what it has put into its image."""
    sandbox_browser: bool = False
    """Whether there is a browser beside sandboxes. A local stack looks for one, and an AWS deployment has put it into its image."""
    auto_idle_seconds: int = 0
    """After so many idle seconds the sandbox of a ``container_auto`` stops, if no process is left in it; 0: with its container."""
    strict_expiry: bool = False
    """An expired container is refused with OpenAI's error instead of being revived."""
    drain: bool = False
    """No response is begun any more, and those that run come to their end."""
    allowed_egress_domains: tuple[str, ...] = ()
    """The operator's ceiling: exact names and ``*.example.com``. Empty means that no container may have a network."""
    egress_proxy: str | None = None
    """Where sandboxes reach the proxy: ``unix:/path`` locally, ``http://host:3128`` on AWS."""
    egress_key: str | None = None
    """What seals ``domain_secrets``: a KMS key (id, alias or ARN), with which the API generates data keys and the proxy decrypts them;
    or ``file:`` and the path of a key file."""
    egress_ca: str | None = None
    """A file with the proxy's CA certificate, for the sandboxes to trust. None: the CA is kept in the table, sealed under
    ``egress_key``, and made there when it is first needed."""
    egress_service: str | None = None
    """``<cluster>/<service>`` of the proxy on ECS, which is started and stopped as sandboxes need it. None: it always runs."""
    egress_places_key: str | None = field(default=None, repr=False)
    """For the proxy: what the names of containers are signed with that share an address (hexadecimal). None: each has its own."""
    egress_ports: tuple[int, ...] = (80, 443)
    """Ports that containers may reach; ``MOORAGE_EGRESS_PORTS`` adds to 80 and 443."""
    egress_own_networks: tuple[str, ...] = ()
    """The deployment's own address ranges (the VPC's CIDR): never reachable, whatever a name resolves to."""
    egress_allowed_networks: tuple[str, ...] = ()
    """Private ranges that the operator opens to allowed names (an internal mirror). Metadata addresses stay closed."""
    python_mirror: str | None = None
    """The index that ``packages.python`` of environments are installed from, for pip. Its host is a name, and reached by the proxy."""
    npm_mirror: str | None = None
    """The registry of ``packages.npm``."""
    fetch_allowed_networks: tuple[str, ...] = ()
    """Private ranges from which the API itself fetches what a request names by URL (``file_url``), for every tenant."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call ``/v1`` from a browser, each as a whole. Empty: none."""
    oidc_issuer: str | None = None
    """Whose tokens are taken beside API keys (``identity/tokens.py``), as the tokens themselves say it. None: nobody's."""
    oidc_audience: str | None = None
    """What tokens for this API name as their audience."""
    oidc_client_id: str | None = None
    """The console as the issuer knows it. None: nobody signs in to the console with the issuer."""
    oidc_client_secret: str | None = field(default=None, repr=False)
    """Where the issuer has given it one."""
    oidc_console_url: str | None = None
    """Where browsers find the console; the issuer sends them back below it."""
    oidc_at_gateway: bool = False
    """On AWS, for a function that reaches no issuer: the authorizer has checked the token, and says what it found."""
    oidc_scopes: str = "openid profile"
    """What signing in asks of the issuer."""
    oidc_tenants: tuple[str, ...] = ()
    """Tenants that tokens may name; ``*`` is any. Where there is one alone, a token need not name it."""
    oidc_tenant_claim: str = "tenant"
    oidc_role_claim: str = "roles"
    oidc_roles: Mapping[str, str] = field(default_factory=lambda: {"admin": "admin", "member": "member", "reader": "reader"})
    """``admin``, ``member`` or ``reader`` by what the claim says."""
    presigned_downloads: bool = False
    """Content downloads answer 302 to S3 (API Gateway cannot carry large bodies)."""
    retention_seconds: int = 30 * 24 * 3600
    stream_seconds_max: int | None = None
    """When an answer that is still being written is broken off in good order: what runs it (Lambda) ends soon after. None: never."""
    json_silence_seconds: int = JSON_SILENCE_SECONDS
    """A create without a stream that takes longer begins its body with white space, for what stands between here and the client and
    cuts idle connections."""
    requests_per_minute: int = 0
    """Of one API key, over all processes; 0 is no limit."""
    tokens_per_minute: int = 0
    """The same for input tokens, by estimate."""
    running_responses_max: int = RUNNING_RESPONSES_MAX
    """Of one tenant at once in the state machine."""
    tenant_sandboxes_max: int = 0
    """Sandboxes of one tenant at once; 0 is no bound. The launcher has its own."""
    tenant_vcpus_max: int = 0
    """vCPUs of them together, by what Fargate gives each tier of memory; 0 is no bound."""
    tenant_starts_per_second: int = 0
    """Sandboxes that one tenant may start a second; more wait. 0 is no bound."""
    sandbox_price: tuple[float, float] = (0.0, 0.0)
    """Dollars of an hour of a vCPU and of a GiB that a sandbox is given; 0 where its time costs nothing."""
    sandbox_price_source: str = "MOORAGE_SANDBOX_PRICE"
    """Where they stand, for who reads what a response has cost."""
    automations_max: int = AUTOMATIONS_MAX
    """Of one tenant."""
    stored_bytes_max: int = STORED_BYTES_MAX
    """Of one tenant's files, containers and vector stores together."""
    audit_file: str | None = None
    """On one machine: the file of the audit trail (``store/audit.py``)."""
    audit_log_group: str | None = None
    """On AWS: the log group of the audit trail. None keeps none."""
    log_level: str = "INFO"
    log_file: str | None = None
    """Where the steps' lines go beside standard output, so that those of all workers stand in one place."""
    name: str = "moorage"
    """The deployment's: a dimension of its metrics."""
    usage_plans: tuple[str, ...] = ()
    """Tiers of tenants with a usage plan of their own at the gateway, and ``*`` for all others; empty where there are none."""
    vector_bucket: str | None = None
    """ARN of the vector bucket (S3 Vectors) that compares the vectors of vector stores; None compares them in memory."""
    websocket_endpoint: str | None = None
    """The management API of the gateway's WebSocket stage, by which events are sent on its connections."""
    screens_function: str | None = None
    """The function in the sandboxes' network that shows browsers, and reaches tasks beside MicroVMs, if this one is outside of it."""
    websocket_worker: str | None = None
    """The function that works for a connection of the gateway while something runs on it."""
    otlp_endpoint: str | None = None
    """Where the traces of responses are sent to; None: nowhere."""
    otlp_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What goes with them, most often a key."""
    otlp_service_name: str | None = None
    upstream: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Model keys and endpoints by variable name: ``OPENAI_API_KEY``, ``ANTHROPIC_API_KEY``, ``MOORAGE_UPSTREAM_*`` and whatever
    ``models.toml`` refers to as ``env:NAME``."""
    docker: Mapping[str, str] = field(default_factory=dict)
    """``MOORAGE_DOCKER_*``: ``socket`` of the engine, and what ``sandbox/docker.py: DockerSettings`` has."""
    fargate: Mapping[str, str] = field(default_factory=dict)
    """``MOORAGE_FARGATE_*``: cluster, subnets, security groups, task definitions by memory tier."""
    microvm: Mapping[str, str] = field(default_factory=dict)
    """``MOORAGE_MICROVM_*``: images by memory tier, the egress connector."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Read ``MOORAGE_*`` (and the upstreams' keys) from ``environ``, by default the process's environment."""
        env = _completed(os.environ if environ is None else environ)
        told: dict[str, Any] = {variable.field: variable.read(name, env[name]) for name, variable in VARIABLES.items() if env.get(name)}
        for name in ("MOORAGE_TABLE", "MOORAGE_BUCKET"):
            if "store_dir" in told:
                told.setdefault(VARIABLES[name].field, "")
            elif not env.get(name):
                raise SettingsError(f"{name} is not set. 'make up' sets it locally; the CDK app sets it on AWS.")
        for group, prefix in GROUPS.items():
            told[group] = {name.removeprefix(prefix).lower(): value for name, value in env.items() if name.startswith(prefix)}
        settings = cls(**told, upstream=dict(env))
        if settings.warm_pool and settings.provisioner == "lambda_microvm":
            raise SettingsError("MOORAGE_WARM_POOL needs the provisioner 'fargate', 'docker' or 'launcher'.")
        _check_identity(settings)
        return settings

    @property
    def function_memory_mib(self) -> int | None:
        """Of the Lambda function that this is, as Lambda says; None anywhere else."""
        said = self.upstream.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
        return None if said is None else int(said)

    def to_environment(self) -> dict[str, str]:
        """The variables that :meth:`from_environment` reads these settings from, but for the upstreams' keys: a deployment gives them
        to its functions.

        Settings with their default are not among them.
        """
        defaults = {field.name: _default(field) for field in fields(self)}
        written = {
            name: variable.write(value)
            for name, variable in VARIABLES.items()
            if (value := getattr(self, variable.field)) != defaults[variable.field]
        }
        for group, prefix in GROUPS.items():
            written |= {prefix + name.upper(): value for name, value in getattr(self, group).items()}
        return written


def _check_identity(settings: Settings) -> None:
    """Check the settings of tokens together. Nobody's tokens are taken for any audience or any tenant by leaving something out."""
    if settings.oidc_issuer is None:
        if settings.oidc_audience or settings.oidc_client_id or settings.oidc_tenants:
            raise SettingsError("MOORAGE_OIDC_AUDIENCE, MOORAGE_OIDC_CLIENT_ID and MOORAGE_OIDC_TENANTS need MOORAGE_OIDC_ISSUER.")
        return
    if not (settings.oidc_audience or settings.oidc_client_id):
        raise SettingsError("MOORAGE_OIDC_ISSUER needs MOORAGE_OIDC_AUDIENCE, MOORAGE_OIDC_CLIENT_ID or both.")
    if not settings.oidc_tenants:
        raise SettingsError("MOORAGE_OIDC_ISSUER needs MOORAGE_OIDC_TENANTS: the tenants that tokens may name, or '*'.")
    if (settings.oidc_client_id is None) != (settings.oidc_console_url is None):
        raise SettingsError("MOORAGE_OIDC_CLIENT_ID and MOORAGE_OIDC_CONSOLE_URL belong together; set both or neither.")


def _default(field: "Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


OTHER_VARIABLES: Final = frozenset(
    {
        *("MOORAGE_URL", "MOORAGE_API_KEY", "MOORAGE_MODEL"),  # for clients: the command line, .moorage/env
        *("MOORAGE_PORT", "MOORAGE_STATE_DIR", "MOORAGE_TOOLBOX", "MOORAGE_EGRESS_HOSTS", "MOORAGE_EGRESS_UPSTREAM_CA"),  # local stacks
        *("MOORAGE_HOST", "MOORAGE_PUBLISHED", "MOORAGE_TLS_CERT", "MOORAGE_TLS_KEY", "MOORAGE_METRICS_PORT", "MOORAGE_SETTINGS_FILE"),
        *("MOORAGE_WORKERS", "MOORAGE_STEPS_MAX", "MOORAGE_LOOP_TURN_MS"),
        *("MOORAGE_UPSTREAM_URL", "MOORAGE_UPSTREAM_KIND", "MOORAGE_UPSTREAM_MODEL", "MOORAGE_UPSTREAM_KEY"),
        *("MOORAGE_UPSTREAM_AWS_PROFILE", "MOORAGE_DEMO_DELTA_MS", "MOORAGE_OLLAMA_MODELS"),
        "MOORAGE_BENCH_COUNTS",  # tests/bench/counting
    }
)
"""Variables that are no fields of :class:`Settings`."""


def unknown_variables(environ: Mapping[str, str], models_toml: str = "") -> list[str]:
    """A sentence for each ``MOORAGE_*`` without a meaning: most are mistyped. References of ``models.toml`` have one."""
    known, families = frozenset(VARIABLES) | OTHER_VARIABLES, tuple(GROUPS.values())
    return [
        f"{name} is no setting{nearest(name, known)}."
        for name in sorted(environ)
        if name.startswith("MOORAGE_") and name not in known and not name.startswith(families) and name not in models_toml
    ]


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the known one that is like it, if there is one."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; {near[0]} is" if near else ""


def usage_key(name: str, tenant_id: str) -> str:
    """The API key of a tenant in a tier, or (``*``) of all others, under which API Gateway counts requests at the deployment ``name``.

    Nobody sends it (``apiKeySource`` is ``AUTHORIZER``), so it opens nothing. API Gateway takes 20 to 128 characters.
    """
    return hashlib.sha256(f"{name}/{tenant_id}".encode()).hexdigest()


def _completed(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, and the file beside the function with its long lists: Lambda takes 4 KB of variables.

    If both hold a variable, the environment counts.
    """
    file = environ.get("MOORAGE_SETTINGS_FILE")
    if not file:
        return environ
    try:
        kept: Mapping[str, str] = json.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"MOORAGE_SETTINGS_FILE names {file}, which cannot be read: {error}.") from error
    return {**kept, **environ}


def environment() -> Mapping[str, str]:
    """The process's environment, for the command line: it looks for a deployment before it has settings."""
    return os.environ


def as_deployed(models_toml: str, name: str) -> str:
    """``models.toml`` as the deployment ``name`` reads it. ``env:NAME`` names a variable on a laptop; on AWS it becomes
    ``ssm:/<deployment>/NAME``, so that one file serves both."""
    return re.sub(r"([\"'])env:(\w+)\1", rf'"ssm:/{name}/\2"', models_toml)


def api_port(environ: Mapping[str, str]) -> int:
    """The port of the local stack; 0 is any free port."""
    port = _whole("MOORAGE_PORT", environ.get("MOORAGE_PORT") or "8080")
    if not 0 <= port < 65536:
        raise SettingsError(f"MOORAGE_PORT takes a port number, not '{port}'.")
    return port


def warm_pool_sizes(words: Iterable[str]) -> Mapping[str, int]:
    """``("1g:2", "4g:1")`` as numbers by memory tier; raises :class:`ValueError` with the end of a sentence."""
    sizes: dict[str, int] = {}
    for word in words:
        tier, _, number = word.partition(":")
        if tier not in MEMORY_LIMITS or tier in sizes or not number.isdecimal() or not 0 < int(number) <= WARM_SANDBOXES_MAX:
            raise ValueError(
                f"takes a memory tier ({', '.join(MEMORY_LIMITS)}) with a number from 1 to {WARM_SANDBOXES_MAX}, each once, "
                f"such as '1g:2', not '{word}'"
            )
        sizes[tier] = int(number)
    return sizes


# --- Variables -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Variable:
    field: str
    read: Callable[[str, str], Any]
    """Of the variable's name and its text, which is not empty. Raises :class:`SettingsError` that names it."""
    write: Callable[[Any], str] = str


def _text(name: str, text: str) -> str:
    return text


def _hexadecimal(name: str, text: str) -> str:
    try:
        bytes.fromhex(text)
    except ValueError as error:
        raise SettingsError(f"{name} must be hexadecimal.") from error
    return text


def _whole(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise SettingsError(f"{name} must be a whole number, not '{text}'.") from error
    if number < 0:
        raise SettingsError(f"{name} is '{text}'; it takes no negative number.")
    return number


def _switch(name: str, text: str) -> bool:
    """Other words are refused: taken for off, a misspelt word would turn a feature off."""
    match text.lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise SettingsError(f"{name} is '{text}'; it takes 'true' or 'false'.")


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise SettingsError(f"{name} is '{text}'; it takes {', '.join(words)}.")
        return text

    return read


def _warm_pool(name: str, text: str) -> Mapping[str, int]:
    try:
        return warm_pool_sizes(_words(name, text))
    except ValueError as error:
        raise SettingsError(f"{name} {error}.") from error


def _domains(name: str, text: str) -> tuple[str, ...]:
    domains = []
    for word in _words(name, text):
        pattern = normalise_pattern(word)
        if pattern is None:
            raise SettingsError(
                f"{name} takes domain names such as 'pkg.example.com', '*.example.com' or '*', not '{word}'. Write internationalised "
                "names in their 'xn--' form."
            )
        domains.append(pattern)
    return tuple(domains)


def _origins(name: str, text: str) -> tuple[str, ...]:
    origins = {word: normalise_origin(word) for word in _words(name, text)}
    for word, origin in origins.items():
        if origin is None:
            raise SettingsError(f"{name} takes origins such as 'https://app.example.com', without a path or an asterisk, not '{word}'.")
    return tuple(dict.fromkeys(origin for origin in origins.values() if origin is not None))


def issuer_of(text: str) -> str | None:
    """An issuer's address (OpenID Connect Core 1.0, section 2), or one of its places: over TLS, or on this machine. None for others."""
    parts = urlsplit(text)
    is_here = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    is_one = (parts.scheme == "https" or is_here) and parts.hostname and not (parts.query or parts.fragment or parts.username)
    return text if is_one else None


def _issuer(name: str, text: str) -> str:
    if issuer_of(text) is None:
        raise SettingsError(f"{name} takes an address that begins with https, without a query, not '{text}'.")
    return text


def role_of(word: str) -> tuple[str, str]:
    """``staff:member`` as a pair; raises :class:`ValueError` with the end of a sentence. The role stands behind the last colon."""
    said, _, role = word.rpartition(":")
    if not said or role not in _ROLES:
        raise ValueError(f"takes what the claim says and one of {', '.join(_ROLES)}, such as 'staff:member', not '{word}'")
    return said, role


_ROLES: Final = ("admin", "member", "reader")


def _roles(name: str, text: str) -> Mapping[str, str]:
    try:
        return dict(map(role_of, _words(name, text)))
    except ValueError as error:
        raise SettingsError(f"{name} {error}.") from error


def _role_list(roles: Mapping[str, str]) -> str:
    return _listed(f"{said}:{role}" for said, role in roles.items())


def _code_seconds(name: str, text: str) -> int:
    seconds, most = _whole(name, text), COMMAND_TIMEOUT_MS_MAX // 1000
    if not 0 < seconds <= most:
        raise SettingsError(f"{name} takes 1 to {most} seconds, not '{seconds}'.")
    return seconds


def _auto_idle_seconds(name: str, text: str) -> int:
    seconds, most = _whole(name, text), CONTAINER_IDLE_MINUTES_DEFAULT * 60
    if seconds and not AUTO_IDLE_SECONDS_MIN <= seconds <= most:
        raise SettingsError(f"{name} takes {AUTO_IDLE_SECONDS_MIN} to {most} seconds, or 0, not '{seconds}'.")
    return seconds


def _ports(name: str, text: str) -> tuple[int, ...]:
    words = _words(name, text)
    if not all(word.isdigit() and 0 < int(word) < 65536 for word in words):
        raise SettingsError(f"{name} takes port numbers, not '{text}'.")
    return tuple(sorted({80, 443, *map(int, words)}))


def _price(name: str, text: str) -> tuple[float, float]:
    try:
        vcpu, gib = map(float, _words(name, text))
    except ValueError:
        vcpu = gib = -1.0
    if not (0 <= vcpu < math.inf and 0 <= gib < math.inf):
        raise SettingsError(f"{name} takes the dollars of an hour of a vCPU and of a GiB, such as '0.03238,0.00356', not '{text}'.")
    return vcpu, gib


def _networks(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(word)) for word in _words(name, text))
    except ValueError as error:
        raise SettingsError(f"{name} takes address ranges such as '10.0.0.0/16': {error}.") from error


def _words(name: str, text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)


def _listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _sizes(sizes: Mapping[str, int]) -> str:
    return _listed(f"{tier}:{number}" for tier, number in sizes.items())


def _one_line(name: str, text: str) -> str:
    if len(text) > PROGRAMS_CHARS_MAX or not text.isprintable():
        raise SettingsError(f"{name} must be one line of at most {PROGRAMS_CHARS_MAX} characters.")
    return text


def _web_address(name: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{name} takes the address of a collector that speaks OTLP over HTTP, such as 'http://127.0.0.1:4318'.")
    return text


def mirror(name: str, text: str) -> str:
    """Sandboxes read it: it holds no secret."""
    parts = urlsplit(text)
    host = None if parts.hostname is None else normalise(parts.hostname)
    if parts.scheme not in ("http", "https") or host is None or "@" in parts.netloc or not text.isprintable() or " " in text:
        raise SettingsError(
            f"{name} takes the address of an index of packages, such as 'https://packages.example.com/simple', with a name for its "
            "host and without a password."
        )
    return text


def _vector_bucket(name: str, text: str) -> str:
    if not re.fullmatch(r"arn:aws[-a-z0-9]*:s3vectors:[a-z0-9-]+:[0-9]{12}:bucket/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", text):
        raise SettingsError(f"{name} takes the ARN of a vector bucket of S3 Vectors, not '{text}'.")
    return text


def _headers(name: str, text: str) -> Mapping[str, str]:
    """``name=value`` with commas, percent-encoded (OpenTelemetry specification, "OTLP Exporter")."""
    pairs = [word.partition("=") for word in text.split(",") if word.strip()]
    if not all(equals and key.strip() for key, equals, _ in pairs):
        raise SettingsError(f"{name} takes headers such as 'authorization=Bearer%20...,x-team=ours'.")
    return {key.strip().lower(): unquote(value.strip()) for key, _, value in pairs}


def _header_list(headers: Mapping[str, str]) -> str:
    return _listed(f"{name}={quote(value)}" for name, value in headers.items())


def _on_or_off(value: bool) -> str:
    return str(value).lower()


VARIABLES: Final[Mapping[str, _Variable]] = {
    "MOORAGE_TABLE": _Variable("table_name", _text),
    "MOORAGE_BUCKET": _Variable("bucket_name", _text),
    "MOORAGE_STATE_MACHINE_ARN": _Variable("state_machine_arn", _text),
    "MOORAGE_EXECUTIONS_FILE": _Variable("executions_file", _text),
    "MOORAGE_STORE_DIR": _Variable("store_dir", _text),
    "MOORAGE_MODELS_FILE": _Variable("models_file", _text),
    "MOORAGE_CONTENT_KEY": _Variable("content_key", _text),
    "MOORAGE_CONTENT_KEY_EDITION": _Variable("content_key_edition", _text),
    "MOORAGE_CONTENT_KEY_SECRET": _Variable("content_key_secret", _text),
    "MOORAGE_SANDBOX_KEY": _Variable("sandbox_key", _text),
    "MOORAGE_PROVISIONER": _Variable("provisioner", _one_of(*get_args(ProvisionerKind))),
    "MOORAGE_LAUNCHER_SOCKET": _Variable("launcher_socket", _text),
    "MOORAGE_WARM_POOL": _Variable("warm_pool", _warm_pool, _sizes),
    "MOORAGE_WEB_SEARCH": _Variable("web_search", _one_of("refuse", "ignore")),
    "MOORAGE_CODE_SECONDS_MAX": _Variable("code_seconds_max", _code_seconds),
    "MOORAGE_SANDBOX_PROGRAMS": _Variable("sandbox_programs", _one_line),
    "MOORAGE_AUTO_IDLE_SECONDS": _Variable("auto_idle_seconds", _auto_idle_seconds),
    "MOORAGE_SANDBOX_BROWSER": _Variable("sandbox_browser", _switch, _on_or_off),
    "MOORAGE_STRICT_EXPIRY": _Variable("strict_expiry", _switch, _on_or_off),
    "MOORAGE_DRAIN": _Variable("drain", _switch, _on_or_off),
    "MOORAGE_ALLOWED_EGRESS_DOMAINS": _Variable("allowed_egress_domains", _domains, _listed),
    "MOORAGE_EGRESS_PROXY": _Variable("egress_proxy", _text),
    "MOORAGE_EGRESS_KEY": _Variable("egress_key", _text),
    "MOORAGE_EGRESS_CA": _Variable("egress_ca", _text),
    "MOORAGE_EGRESS_SERVICE": _Variable("egress_service", _text),
    "MOORAGE_EGRESS_PLACES_KEY": _Variable("egress_places_key", _hexadecimal),
    "MOORAGE_EGRESS_PORTS": _Variable("egress_ports", _ports, _listed),
    "MOORAGE_EGRESS_OWN_NETWORKS": _Variable("egress_own_networks", _networks, _listed),
    "MOORAGE_EGRESS_ALLOWED_NETWORKS": _Variable("egress_allowed_networks", _networks, _listed),
    "MOORAGE_PYTHON_MIRROR": _Variable("python_mirror", mirror),
    "MOORAGE_NPM_MIRROR": _Variable("npm_mirror", mirror),
    "MOORAGE_FETCH_ALLOWED_NETWORKS": _Variable("fetch_allowed_networks", _networks, _listed),
    "MOORAGE_CORS_ORIGINS": _Variable("cors_origins", _origins, _listed),
    "MOORAGE_OIDC_ISSUER": _Variable("oidc_issuer", _issuer),
    "MOORAGE_OIDC_AUDIENCE": _Variable("oidc_audience", _text),
    "MOORAGE_OIDC_CLIENT_ID": _Variable("oidc_client_id", _text),
    "MOORAGE_OIDC_CLIENT_SECRET": _Variable("oidc_client_secret", _text),
    "MOORAGE_OIDC_CONSOLE_URL": _Variable("oidc_console_url", _issuer),
    "MOORAGE_OIDC_AT_GATEWAY": _Variable("oidc_at_gateway", _switch, _on_or_off),
    "MOORAGE_OIDC_SCOPES": _Variable("oidc_scopes", _text),
    "MOORAGE_OIDC_TENANTS": _Variable("oidc_tenants", _words, _listed),
    "MOORAGE_OIDC_TENANT_CLAIM": _Variable("oidc_tenant_claim", _text),
    "MOORAGE_OIDC_ROLE_CLAIM": _Variable("oidc_role_claim", _text),
    "MOORAGE_OIDC_ROLES": _Variable("oidc_roles", _roles, _role_list),
    "MOORAGE_PRESIGNED_DOWNLOADS": _Variable("presigned_downloads", _switch, _on_or_off),
    "MOORAGE_RETENTION_SECONDS": _Variable("retention_seconds", _whole),
    "MOORAGE_STREAM_SECONDS_MAX": _Variable("stream_seconds_max", lambda name, text: _whole(name, text) or None),
    "MOORAGE_JSON_SILENCE_SECONDS": _Variable("json_silence_seconds", _whole),
    "MOORAGE_REQUESTS_PER_MINUTE": _Variable("requests_per_minute", _whole),
    "MOORAGE_TOKENS_PER_MINUTE": _Variable("tokens_per_minute", _whole),
    "MOORAGE_RUNNING_RESPONSES_MAX": _Variable("running_responses_max", _whole),
    "MOORAGE_TENANT_SANDBOXES_MAX": _Variable("tenant_sandboxes_max", _whole),
    "MOORAGE_TENANT_VCPUS_MAX": _Variable("tenant_vcpus_max", _whole),
    "MOORAGE_TENANT_STARTS_PER_SECOND": _Variable("tenant_starts_per_second", _whole),
    "MOORAGE_SANDBOX_PRICE": _Variable("sandbox_price", _price, _listed),
    "MOORAGE_SANDBOX_PRICE_SOURCE": _Variable("sandbox_price_source", _text),
    "MOORAGE_AUTOMATIONS_MAX": _Variable("automations_max", _whole),
    "MOORAGE_STORED_BYTES_MAX": _Variable("stored_bytes_max", _whole),
    "MOORAGE_AUDIT_FILE": _Variable("audit_file", _text),
    "MOORAGE_AUDIT_LOG_GROUP": _Variable("audit_log_group", _text),
    "MOORAGE_LOG_FILE": _Variable("log_file", _text),
    "MOORAGE_LOG_LEVEL": _Variable("log_level", _one_of("DEBUG", "INFO", "WARNING", "ERROR")),
    "MOORAGE_NAME": _Variable("name", _text),
    "MOORAGE_USAGE_PLANS": _Variable("usage_plans", _words, _listed),
    "MOORAGE_VECTOR_BUCKET": _Variable("vector_bucket", _vector_bucket),
    "MOORAGE_WEBSOCKET_ENDPOINT": _Variable("websocket_endpoint", _text),
    "MOORAGE_SCREENS_FUNCTION": _Variable("screens_function", _text),
    "MOORAGE_WEBSOCKET_WORKER": _Variable("websocket_worker", _text),
    "OTEL_EXPORTER_OTLP_ENDPOINT": _Variable("otlp_endpoint", _web_address),
    "OTEL_EXPORTER_OTLP_HEADERS": _Variable("otlp_headers", _headers, _header_list),
    "OTEL_SERVICE_NAME": _Variable("otlp_service_name", _text),
}
"""Each variable, and the field that it sets."""

GROUPS: Final = {"docker": "MOORAGE_DOCKER_", "fargate": "MOORAGE_FARGATE_", "microvm": "MOORAGE_MICROVM_"}
"""Fields that take all variables with a prefix."""
