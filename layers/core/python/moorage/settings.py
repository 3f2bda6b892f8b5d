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
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin
from urllib.parse import quote, unquote, urlsplit

from moorage.dataclass import dataclass
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
    RETENTION_SECONDS,
    RUNNING_RESPONSES_MAX,
    STORED_BYTES_MAX,
    WARM_SANDBOXES_MAX,
)


class SettingsError(ValueError):
    """A setting is missing or wrong; the message names the variable and its values."""


# --- How a variable is read ------------------------------------------------------------------------------------------------------


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


def _seconds_or_none(name: str, text: str) -> int | None:
    return _whole(name, text) or None


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
    sizes: dict[str, int] = {}
    for word in _words(name, text):
        tier, _, number = word.partition(":")
        if tier not in MEMORY_LIMITS or tier in sizes or not number.isdecimal() or not 0 < int(number) <= WARM_SANDBOXES_MAX:
            raise SettingsError(
                f"{name} takes a memory tier ({', '.join(MEMORY_LIMITS)}) with a number from 1 to {WARM_SANDBOXES_MAX}, each once, "
                f"such as '1g:2', not '{word}'."
            )
        sizes[tier] = int(number)
    return sizes


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


def _issuer(name: str, text: str) -> str:
    """An issuer's address (OpenID Connect Core 1.0, section 2), or one of its places: over TLS, or on this machine."""
    parts = urlsplit(text)
    is_here = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not (parts.scheme == "https" or is_here) or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise SettingsError(f"{name} takes an address that begins with https, without a query, not '{text}'.")
    return text


_ROLES: Final = ("admin", "member", "reader")


def _roles(name: str, text: str) -> Mapping[str, str]:
    """``staff:member`` for each. The role stands behind the last colon."""
    pairs = [(word, *word.rpartition(":")[::2]) for word in _words(name, text)]
    for word, said, role in pairs:
        if not said or role not in _ROLES:
            raise SettingsError(
                f"{name} takes what the claim says and one of {', '.join(_ROLES)}, such as 'staff:member', not '{word}'."
            )
    return {said: role for _, said, role in pairs}


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


def _one_line(name: str, text: str) -> str:
    if len(text) > PROGRAMS_CHARS_MAX or not text.isprintable():
        raise SettingsError(f"{name} must be one line of at most {PROGRAMS_CHARS_MAX} characters.")
    return text


def _web_address(name: str, text: str) -> str:
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", text):
        raise SettingsError(f"{name} takes the address of a collector that speaks OTLP over HTTP, such as 'http://127.0.0.1:4318'.")
    return text


def _mirror(name: str, text: str) -> str:
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
    return written(tuple(f"{name}={quote(value)}" for name, value in headers.items()))


def written(value: object) -> str:
    """A value as a variable spells it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple() | list():
            return ",".join(map(str, value))
        case Mapping():
            return ",".join(f"{key}:{each}" for key, each in value.items())
        case _:
            return str(value)


# --- Settings --------------------------------------------------------------------------------------------------------------------

ProvisionerKind = Literal["launcher", "fargate", "elsewhere", "docker", "lambda_microvm", "by_tier"]
"""``fargate`` starts sandboxes and cannot reach them, ``elsewhere`` is for their network: it reaches them and cannot start them.
``by_tier`` is ``lambda_microvm`` for memory tiers with an image of MicroVMs, and ``fargate`` for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """What an operator chooses: a variable on one machine, and on AWS the same name in ``cdk.json``.

    A field's type has the check of its variable. Its docstring is its row in ``docs/reference``, below the title of the comment.
    """

    # --- Models ---
    web_search: Literal["refuse", "ignore"] = "refuse"
    """``refuse`` answers 400 to ``web_search`` without a search engine in ``models.toml``; ``ignore`` drops the tool with a notice."""

    # --- Limits ---
    requests_per_minute: int = 0
    """Requests a minute of one key, over all processes; 0 is no limit."""
    tokens_per_minute: int = 0
    """Estimated input tokens a minute of one key; 0 is no limit."""
    automations_max: int = AUTOMATIONS_MAX
    """Automations of one tenant; one more is refused."""
    stored_bytes_max: int = STORED_BYTES_MAX
    """Bytes of one tenant's files, containers and vector stores (``docs/runs.md#stored-bytes``)."""
    tenant_sandboxes_max: int = 0
    """Sandboxes of one tenant at once; one more waits. 0 is no limit. A launcher has its own limit."""
    tenant_vcpus_max: int = 0
    """vCPUs of one tenant's Fargate sandboxes: 0.5 for ``1g``, 1 for ``4g``, 4 for ``16g``, 16 for ``64g``; 0 is no limit."""
    tenant_starts_per_second: int = 0
    """Sandbox starts a second of one tenant, of the 20 that ECS makes for an account; more wait. 0 is no limit."""
    code_seconds_max: Annotated[int, _code_seconds] = CODE_SECONDS_MAX
    """Seconds of one run of the code interpreter."""
    drain: bool = False
    """``true`` refuses new responses, while running ones end (``docs/aws.md#draining``)."""

    # --- Containers and sandboxes ---
    warm_pool: Annotated[Mapping[str, int], _warm_pool] = field(default_factory=dict)
    """Sandboxes without a network that wait for a container, such as ``1g:2,4g:1``; for Fargate, Docker and the launcher
    (``docs/sandbox.md#the-warm-pool``)."""
    sandbox_price: Annotated[tuple[float, float] | None, _price] = None
    """US dollars of a vCPU and of a GiB of a sandbox for an hour, such as ``0.03238,0.00356``, for budgets and costs
    (``docs/runs.md#what-sandboxes-cost``). By default sandboxes cost nothing, and on AWS Fargate's list prices."""
    sandbox_programs: Annotated[str, _one_line] = ""
    """One line about the programs of a sandbox, for the model. A local stack asks its launcher; an image that a deployment builds is
    known."""
    auto_idle_seconds: Annotated[int, _auto_idle_seconds] = 0
    """After so many idle seconds (30 to 1200) the sandbox of a ``container_auto`` stops, if no process is left in it; 0: with its
    container (``docs/aws.md#cheaper-turns-on-fargate``)."""
    strict_expiry: bool = False
    """``true`` refuses an expired container with OpenAI's error instead of reviving it."""

    # --- Network ---
    allowed_egress_domains: Annotated[tuple[str, ...], _domains] = ()
    """The most that policies of containers may allow, such as ``pkg.example.com,*.example.org``. Without it no container has a
    network."""
    python_mirror: Annotated[str | None, _mirror] = None
    """Index, for pip, that packages of environments are installed from (``docs/environments.md#packages``). Sandboxes read it: it
    holds no secret."""
    npm_mirror: Annotated[str | None, _mirror] = None
    """Registry that packages of npm are installed from."""
    cors_origins: Annotated[tuple[str, ...], _origins] = ()
    """Origins whose pages may call the API from a browser, such as ``https://app.example.com`` (``docs/clients.md#browsers``)."""

    # --- Sign-in ---
    oidc_issuer: Annotated[str | None, _issuer] = None
    """Address of the OpenID Connect issuer whose tokens open the API, beside API keys."""
    oidc_audience: str | None = None
    """Audience of tokens for this API."""
    oidc_tenants: tuple[str, ...] = ()
    """Tenants that tokens may name; ``*`` is any. A token need not name the only one."""
    oidc_tenant_claim: str = "tenant"
    """Claim with the tenant."""
    oidc_role_claim: str = "roles"
    """Claim with the roles: a list, or words."""
    oidc_roles: Annotated[Mapping[str, str], _roles] = field(default_factory=lambda: {role: role for role in _ROLES})
    """Roles by the words of that claim, such as ``platform:admin,staff:member,auditors:reader``."""
    oidc_client_id: str | None = None
    """Id of the console at the issuer; with it people sign in to the console."""
    oidc_console_url: Annotated[str | None, _issuer] = None
    """Address of the console in a browser; the issuer sends people back to ``signed-in`` below it."""
    oidc_scopes: str = "openid profile"
    """Scopes that signing in asks for."""

    # --- Telemetry ---
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe level that is logged: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``."""
    otlp_endpoint: Annotated[str | None, _web_address] = None
    """Collector of the traces of responses: OTLP over HTTP, without ``/v1/traces`` (``docs/runs.md#traces``)."""

    def check(self) -> None:
        """Check the settings of tokens together: nobody's tokens are taken for any audience or any tenant by leaving something out.

        Raises :class:`SettingsError` that names the variables.
        """
        if self.oidc_issuer is None:
            if self.oidc_audience or self.oidc_client_id or self.oidc_tenants:
                raise SettingsError("MOORAGE_OIDC_AUDIENCE, MOORAGE_OIDC_CLIENT_ID and MOORAGE_OIDC_TENANTS need MOORAGE_OIDC_ISSUER.")
            return
        if not (self.oidc_audience or self.oidc_client_id):
            raise SettingsError("MOORAGE_OIDC_ISSUER needs MOORAGE_OIDC_AUDIENCE, MOORAGE_OIDC_CLIENT_ID or both.")
        if not self.oidc_tenants:
            raise SettingsError("MOORAGE_OIDC_ISSUER needs MOORAGE_OIDC_TENANTS: the tenants that tokens may name, or '*'.")
        if (self.oidc_client_id is None) != (self.oidc_console_url is None):
            raise SettingsError("MOORAGE_OIDC_CLIENT_ID and MOORAGE_OIDC_CONSOLE_URL belong together; set both or neither.")

    def to_environment(self) -> dict[str, str]:
        """The variables that :meth:`Settings.from_environment` reads these settings from, but for the upstreams' keys: a deployment
        gives them to its functions.

        Settings with their default are not among them.
        """
        own = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        changed = {setting.name for setting in fields(self) if own[setting.name] != default_of(setting)}
        told = {name: variable.write(own[variable.field]) for name, variable in VARIABLES.items() if variable.field in changed}
        for group, prefix in GROUPS.items():
            told |= {prefix + name.upper(): value for name, value in own.get(group, {}).items()}
        return told


@dataclass(frozen=True, slots=True)
class Settings(OperatorSettings):
    """The operator's, and those that differ by the place of the process: a deployment sets them, or only one machine has them."""

    # --- Set by a deployment ---
    table_name: str
    """Name of the DynamoDB table."""
    bucket_name: str
    """Name of the S3 bucket."""
    state_machine_arn: str | None = None
    """ARN of the loop's state machine. None in functions that never start the loop, and beside ``executions_file``."""
    executions_file: str | None = None
    """File of the executions on one machine; the sockets of their workers and the bell of the logs lie beside it."""
    store_dir: str | None = None
    """Folder of records and objects on one machine, instead of table and bucket (``store/journal.py``)."""
    content_key: str | None = field(default=None, repr=False)
    """32 bytes as hex: the key that seals ``encrypted_content`` and other secrets (``store/deployment_keys.py``)."""
    content_key_edition: str = ""
    """Changes with the key, so that functions read it again."""
    content_key_secret: str | None = None
    """ARN of the Secrets Manager secret with that key."""
    sandbox_key: str | None = field(default=None, repr=False)
    """Key of the sandboxes' tokens, derived from the content key, for processes that are not told the key itself."""
    presigned_downloads: bool = False
    """``true`` answers downloads with a redirect to S3: API Gateway cannot carry large bodies."""
    usage_plans: tuple[str, ...] = ()
    """Tiers of tenants with a usage plan of their own at the gateway, and ``*`` for all others."""
    vector_bucket: Annotated[str | None, _vector_bucket] = None
    """ARN of the S3 Vectors bucket; without it vectors are compared in memory."""
    websocket_endpoint: str | None = None
    """Management API of the gateway's WebSocket stage, by which events are sent on its connections."""
    screens_function: str | None = None
    """Function in the sandboxes' network that shows browsers, and reaches tasks of Fargate, if this one is outside of it
    (``docs/computer.md#watch-and-take-over``)."""
    websocket_worker: str | None = None
    """Function that works for a WebSocket connection while something runs on it."""
    audit_file: str | None = None
    """File of the audit trail on one machine (``store/audit.py``)."""

    # --- Models ---
    models_file: str = "models.toml"
    """Path of the catalogue of models."""

    # --- Limits ---
    running_responses_max: int = RUNNING_RESPONSES_MAX
    """Responses of one tenant that run in the loop at once."""
    retention_seconds: int = RETENTION_SECONDS
    """Seconds that a stored response is kept."""
    stream_seconds_max: Annotated[int | None, _seconds_or_none] = None
    """Seconds until a stream ends in good order, before its Lambda function does; without it none is ended."""
    json_silence_seconds: int = JSON_SILENCE_SECONDS
    """Seconds of silence until an answer without stream begins with white space, for proxies that cut idle connections."""

    # --- Containers and sandboxes ---
    provisioner: ProvisionerKind = "launcher"
    """Place of sandboxes: ``launcher``, ``docker``, ``fargate``, ``lambda_microvm``, ``by_tier`` for the latter two by memory tier, or
    ``elsewhere`` inside their network."""
    launcher_socket: str | None = None
    """Unix socket of the launcher."""
    sandbox_browser: bool = False
    """``true``: there is a browser beside sandboxes, for computers (``docs/computer.md``). A local stack looks for one."""
    sandbox_price_source: str = "MOORAGE_SANDBOX_PRICE"
    """Source of that price, in words; a response's cost names it."""

    # --- Network ---
    egress_proxy: str | None = None
    """Address of the egress proxy: ``unix:/path`` or ``http://host:3128``."""
    egress_key: str | None = None
    """KMS key (id, alias or ARN) that seals ``domain_secrets``, or ``file:`` and the path of a key file."""
    egress_ca: str | None = None
    """File of the proxy's certificate authority; without it the authority lies sealed in the table, and is made when it is needed."""
    egress_service: str | None = None
    """``<cluster>/<service>`` of the proxy on ECS, started on demand; without it the proxy always runs."""
    egress_places_key: Annotated[str | None, _hexadecimal] = field(default=None, repr=False)
    """Key, in hexadecimal, of the lines by which MicroVMs that share an address name their container; for the proxy."""
    egress_ports: Annotated[tuple[int, ...], _ports] = (80, 443)
    """Ports beside 80 and 443 that containers may reach."""
    egress_own_networks: Annotated[tuple[str, ...], _networks] = ()
    """Address ranges of the deployment itself; they are never reachable."""
    egress_allowed_networks: Annotated[tuple[str, ...], _networks] = ()
    """Private ranges that allowed names may resolve to. Metadata addresses stay closed."""
    fetch_allowed_networks: Annotated[tuple[str, ...], _networks] = ()
    """Private ranges that the API itself may reach for every tenant: ``file_url``, webhooks, remote servers."""

    # --- Sign-in ---
    oidc_client_secret: str | None = field(default=None, repr=False)
    """Secret of the console at the issuer, if the issuer gave it one."""
    oidc_at_gateway: bool = False
    """On AWS, set by the deployment: a function that reaches no issuer takes the authorizer's word for tokens."""

    # --- Telemetry ---
    log_file: str | None = None
    """File of the steps' log lines, beside standard output, so that those of all workers stand in one place."""
    audit_log_group: str | None = None
    """Log group of the audit trail on AWS; ``moorage audit`` and commands that change keys need it too."""
    name: str = "moorage"
    """Name of the deployment, a dimension of its metrics."""
    otlp_headers: Annotated[Mapping[str, str], _headers, _header_list] = field(default_factory=dict, repr=False)
    """Headers for the collector, such as ``authorization=Bearer%20key``."""
    otlp_service_name: str | None = None
    """Name of the service in the traces."""

    upstream: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Model keys and endpoints by variable name: ``OPENAI_API_KEY``, ``ANTHROPIC_API_KEY``, ``MOORAGE_UPSTREAM_*`` and all that
    ``models.toml`` refers to as ``env:NAME``."""
    docker: Mapping[str, str] = field(default_factory=dict)
    """``MOORAGE_DOCKER_*``: ``socket`` of the engine, and the fields of ``sandbox/docker.py: DockerSettings``."""
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
        settings.check()
        return settings

    @property
    def function_memory_mib(self) -> int | None:
        """Of the Lambda function that this is, as Lambda says; None anywhere else."""
        said = self.upstream.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
        return None if said is None else int(said)


def default_of(setting: "Field[Any]") -> Any:
    """``MISSING`` where there is none."""
    return setting.default_factory() if setting.default_factory is not MISSING else setting.default


OTHER_VARIABLES: Final = frozenset(
    {
        *("MOORAGE_URL", "MOORAGE_API_KEY", "MOORAGE_MODEL"),  # for clients: the command line, .moorage/env
        *("MOORAGE_PORT", "MOORAGE_STATE_DIR", "MOORAGE_TOOLBOX", "MOORAGE_EGRESS_HOSTS", "MOORAGE_EGRESS_UPSTREAM_CA"),  # local stacks
        *("MOORAGE_HOST", "MOORAGE_PUBLISHED", "MOORAGE_TLS_CERT", "MOORAGE_TLS_KEY", "MOORAGE_METRICS_PORT", "MOORAGE_SETTINGS_FILE"),
        *("MOORAGE_WORKERS", "MOORAGE_STEPS_MAX", "MOORAGE_LOOP_TURN_MS"),
        *("MOORAGE_UPSTREAM_URL", "MOORAGE_UPSTREAM_KIND", "MOORAGE_UPSTREAM_MODEL", "MOORAGE_UPSTREAM_KEY"),
        *("MOORAGE_UPSTREAM_AWS_PROFILE", "MOORAGE_DEMO_DELTA_MS", "MOORAGE_OLLAMA_MODELS"),
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


# --- Variables -------------------------------------------------------------------------------------------------------------------

GROUPS: Final = {"docker": "MOORAGE_DOCKER_", "fargate": "MOORAGE_FARGATE_", "microvm": "MOORAGE_MICROVM_"}
"""Fields that take all variables with a prefix."""


@dataclass(frozen=True, slots=True)
class Variable:
    """How the environment names and spells a field."""

    field: str
    read: Callable[[str, str], Any]
    """Of the variable's name and its text, which is not empty. Raises :class:`SettingsError` that names it."""
    write: Callable[[Any], str]

    @classmethod
    def of(cls, setting: "Field[Any]") -> "Variable":
        """By the field's type; ``Annotated`` names a reader of its own, and perhaps a writer."""
        checks = get_args(setting.type)[1:] if get_origin(setting.type) is Annotated else ()
        read, write = (*checks, written)[:2] if checks else (_READERS.get(setting.type) or _one_of(*get_args(setting.type)), written)
        return cls(setting.name, read, write)


_READERS: Final[Mapping[Any, Callable[[str, str], Any]]] = {
    **dict.fromkeys((str, str | None), _text),
    int: _whole,
    bool: _switch,
    tuple[str, ...]: _words,
}

_NAMES: Final = {
    "table_name": "MOORAGE_TABLE",
    "bucket_name": "MOORAGE_BUCKET",
    "otlp_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "otlp_headers": "OTEL_EXPORTER_OTLP_HEADERS",
    "otlp_service_name": "OTEL_SERVICE_NAME",
}
"""Variables that are not ``MOORAGE_`` and the field's name."""

VARIABLES: Final[Mapping[str, Variable]] = {
    _NAMES.get(setting.name, f"MOORAGE_{setting.name.upper()}"): Variable.of(setting)
    for setting in fields(Settings)
    if setting.name != "upstream" and setting.name not in GROUPS
}
"""Each variable, and the field that it sets."""
