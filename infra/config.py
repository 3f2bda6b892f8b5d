"""What an owner may choose about the deployment, in one typed model.

``cdk.json`` holds the values under the context key ``moorage``; ``-c moorage:<name>=<value>`` overrides one of them for one call.
A value that cannot work stops ``cdk synth`` with one sentence, long before CloudFormation would find it.
"""

import ipaddress
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from moorage.limits import MEMORY_LIMITS, RETENTION_SECONDS, TENANT_SANDBOXES_MAX, TENANT_STARTS_PER_SECOND, TENANT_VCPUS_MAX
from moorage.settings import VARIABLES, OperatorSettings, SettingsError, as_deployed, written
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, ValidationError, model_validator

CONTEXT_KEY = "moorage"
AVAILABILITY_ZONES_MAX = 3
"""Networks keep the addresses of the zones that a deployment does not use yet, so that the number can change later."""
CORS_ORIGINS_MAX = 20
"""Each is a comparison in the answer to a preflight."""
OWN_TAGS_MAX = 40
USAGE_TIERS_MAX = 50
"""An account has 300 usage plans in a region (API Gateway quotas); several deployments fit into it."""

SANDBOX_PREFIX_MAX = 20
"""A subnet of functions has eight bits more (``infra/network.py``), and EC2 makes none below 16 addresses."""
PROXY_PREFIX_MAX = 26
"""Three zones with a subnet of 16 addresses each."""

_PREFIX = f"{CONTEXT_KEY}:"
_PRIVATE = tuple(ipaddress.IPv4Network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))


class ConfigError(ValueError):
    """A setting of the deployment is wrong; the message is one sentence that names it."""


def _list(value: Any) -> Any:
    """``-c`` carries text only: a comma or a space separates the elements of a list."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _text(value: Any) -> Any:
    """``-c`` reads 1.2 as a number."""
    return str(value) if isinstance(value, float) else value


def _provisioner(value: Any) -> Any:
    """``fargate``, or another word, or one for each memory tier. The same word for each is that word."""
    if not isinstance(value, Mapping):
        if value not in ("none", "fargate", "lambda_microvm"):
            raise ValueError("takes 'none', 'fargate' or 'lambda_microvm', or one of the latter two for each memory tier")
        return value
    by_tier = {tier: value[tier] for tier in MEMORY_LIMITS if tier in value}
    if len(by_tier) < len(value) or not by_tier or not all(word in ("fargate", "lambda_microvm") for word in by_tier.values()):
        raise ValueError(f"takes 'fargate' or 'lambda_microvm' by memory tier, which are {', '.join(MEMORY_LIMITS)}")
    words = set(by_tier.values())
    return words.pop() if len(words) == 1 else by_tier


def _tiers(value: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [tier for tier in value if tier not in MEMORY_LIMITS]
    if unknown or not value:
        raise ValueError(f"takes one or more of {', '.join(MEMORY_LIMITS)}")
    return tuple(tier for tier in MEMORY_LIMITS if tier in value)


_ON_AWS: Final = {
    "tenant_sandboxes_max": TENANT_SANDBOXES_MAX,
    "tenant_vcpus_max": TENANT_VCPUS_MAX,
    "tenant_starts_per_second": TENANT_STARTS_PER_SECOND,
}
"""Defaults of a deployment: its tenants share the account's quotas."""

CHOICES: Final = {
    variable.field.replace("oidc_", "oidc."): variable
    for variable in VARIABLES.values()
    if variable.field in {setting.name for setting in fields(OperatorSettings)}
}
"""Keys of ``cdk.json`` that are variables elsewhere."""


def _chosen(values: dict[str, Any]) -> OperatorSettings:
    """The operator's settings, taken out of the values of ``cdk.json`` and read as variables are. Raises :class:`SettingsError`."""
    told: dict[str, Any] = {}
    for key, variable in CHOICES.items():
        group, _, name = key.rpartition(".")
        place = values.get(group) if group else values
        value = place.pop(name, None) if isinstance(place, dict) else None
        if value is not None:
            told[variable.field] = variable.read(f"'{key}'", written(value))
        if isinstance(value, list | dict) and not isinstance(told[variable.field], tuple | Mapping):
            raise SettingsError(f"'{key}' takes one value.")
    settings = OperatorSettings(**_ON_AWS | told)
    settings.check()
    return settings


def _tier_names(value: "dict[str, UsagePlan]") -> "dict[str, UsagePlan]":
    if len(value) > USAGE_TIERS_MAX:
        raise ValueError(f"takes up to {USAGE_TIERS_MAX} tiers; tenants are put into them by 'moorage keys create --tier'")
    for name in value:
        if not re.fullmatch(r"[a-z0-9-]{1,63}|\*", name):
            raise ValueError(f"takes plans by tier (a-z, 0-9 and '-') or '*' for tenants without one, not '{name}'")
    return value


def _tags(value: dict[str, str]) -> dict[str, str]:
    """Bounds of all services together (AWS General Reference, "Tag naming limits and requirements")."""
    if len(value) > OWN_TAGS_MAX:
        raise ValueError(f"takes up to {OWN_TAGS_MAX} tags: a resource has 50, and some are CloudFormation's and moorage's own")
    for name, text in value.items():
        if not re.fullmatch(r"[\w .:/=+@-]{1,128}", name) or not re.fullmatch(r"[\w .:/=+@-]{0,256}", text):
            raise ValueError(f"takes names of 1 to 128 and values of up to 256 letters, digits, spaces and '.:/=+-@_', not '{name}'")
        if name.lower().startswith(("aws:", "moorage")):
            raise ValueError(f"takes no names that begin with 'aws:' or 'moorage', which are AWS's and moorage's own, as '{name}'")
    return value


def _network(value: str, longest: int) -> str:
    """A private IPv4 network of 2^16 addresses or fewer, down to a prefix of ``longest``."""
    wanted = f"takes a private network such as 10.0.0.0/16, with a prefix of 16 to {longest}, not '{value}'"
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise ValueError(wanted) from error
    if not 16 <= network.prefixlen <= longest or not any(network.subnet_of(each) for each in _PRIVATE):
        raise ValueError(wanted)
    return str(network)


def _ids(kind: str) -> AfterValidator:
    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not re.fullmatch(f"{kind}-[0-9a-f]{{8,17}}", each):
                raise ValueError(f"takes ids such as '{kind}-0123456789abcdef0', not '{each}'")
        return tuple(dict.fromkeys(value))

    return AfterValidator(check)


Words = Annotated[tuple[str, ...], BeforeValidator(_list)]
SubnetIds = Annotated[Words, _ids("subnet")]
GroupId = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]


class UsagePlan(BaseModel):
    """API Gateway's limits for each tenant of a tier; a missing one is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_second: int | None = Field(default=None, ge=1, le=10_000)
    request_burst: int | None = Field(default=None, ge=1, le=5_000)
    requests_per_day: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.requests_per_second is None) != (self.request_burst is None):
            raise ValueError("requests_per_second and request_burst belong together; set both or neither")
        return self


class Oidc(BaseModel):
    """Of ``oidc``, what is the deployment's own affair; the rest are settings (``docs/sign-in.md``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_secret: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:secretsmanager:[^:]+:\d{12}:secret:[^:]+-[A-Za-z0-9]{6}$")
    """ARN of a secret of yours whose text is the client's."""


class GivenVpc(BaseModel):
    """An existing network: the deployment changes nothing of it (``docs/aws_company.md``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^vpc-[0-9a-f]{8,17}$")
    sandbox_subnets: Annotated[SubnetIds, Field(min_length=1)]
    function_subnets: SubnetIds = ()
    proxy_subnets: SubnetIds = ()
    """With a way to the internet that needs no public address."""
    endpoint_group: GroupId | None = None
    """Of the interface endpoints that images are pulled through. The groups of the deployment let out to it."""
    sandbox_group: GroupId | None = None
    """The following four stand in the place of groups of the deployment's own. Of a sandbox without a network policy; the only one of
    MicroVMs."""
    policy_sandbox_group: GroupId | None = None
    """Of a sandbox with one."""
    function_group: GroupId | None = None
    """Of the functions that reach sandboxes."""
    proxy_group: GroupId | None = None

    @property
    def has_groups(self) -> bool:
        return self.sandbox_group is not None

    def check_fargate(self, *, has_egress: bool) -> None:
        """Raises :class:`ValueError` if functions, images or the proxy have no place, or a place is for none."""
        if not self.function_subnets:
            raise ValueError("vpc.function_subnets is needed with provisioner 'fargate': functions reach sandboxes from there")
        if (self.sandbox_group is None) != (self.function_group is None):
            raise ValueError("vpc.sandbox_group and vpc.function_group belong together; set both or neither")
        if self.has_groups == (self.endpoint_group is not None):
            raise ValueError("vpc takes endpoint_group, or sandbox_group and function_group with rules of their own")
        if not self.has_groups and (self.policy_sandbox_group or self.proxy_group):
            raise ValueError("vpc.policy_sandbox_group and vpc.proxy_group need sandbox_group and function_group")
        wanted = {"proxy_subnets": has_egress, **dict.fromkeys(("policy_sandbox_group", "proxy_group"), has_egress and self.has_groups)}
        for name, is_wanted in wanted.items():
            if bool(getattr(self, name)) != is_wanted:
                raise ValueError(f"vpc.{name} {'is needed with' if is_wanted else 'needs'} allowed_egress_domains")

    def check_microvms(self) -> None:
        """Raises :class:`ValueError` for a place of what is in no network then."""
        for name in ("function_subnets", "proxy_subnets", "endpoint_group", "policy_sandbox_group", "function_group", "proxy_group"):
            if getattr(self, name):
                raise ValueError(f"vpc.{name} needs provisioner 'fargate': of MicroVMs only sandboxes are in a network")


class Config(BaseModel):
    """The choices, each with its default and the reason for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: InstanceOf[OperatorSettings] = Field(default_factory=lambda: _chosen({}))
    """In ``cdk.json`` each has its own name beside the other keys, and those of the issuer are in ``oidc``."""

    name: str = Field(default="moorage", pattern=r"^[a-z][a-z0-9-]{0,23}$")
    """Prefix of the stacks and of everything named; two deployments in one account differ in it."""

    provisioner: Annotated[
        Literal["none", "fargate", "lambda_microvm"] | dict[str, Literal["fargate", "lambda_microvm"]], BeforeValidator(_provisioner)
    ] = "fargate"
    """Place of sandboxes. ``none`` deploys no VPC: hosted shells are then refused, everything else works, idle costs nothing.
    ``lambda_microvm`` has not yet run on AWS (``docs/aws.md#lambda-microvms``). Or one of the two for each memory tier, such as
    ``{"1g": "lambda_microvm", "16g": "fargate"}`` (``docs/aws.md#both-by-memory-tier``)."""

    microvm_base_version: str | None = Field(default=None, pattern=r"^[0-9]+$")
    """With ``lambda_microvm``: version of AWS's base image that images are built on. By default the newest when they are built."""

    memory_tiers: Annotated[Words, AfterValidator(_tiers)] = tuple(MEMORY_LIMITS)
    """Values of ``memory_limit`` that can be had. Unused ones cost nothing on Fargate, and an image each as MicroVMs. The largest
    MicroVM has 32 GB: without this setting there are all tiers but ``64g``."""

    sandbox_image: str | None = None
    """An image that is already in a registry. By default CodeBuild builds it in the account, which needs no Docker here."""

    image_edition: str = Field(default="", pattern=r"^[\w.-]{0,32}$")
    """With another text the images are built anew: the packages of Debian and npm in them are those of the day of the build."""

    sandbox_runtimes: Literal["full", "slim"] = "full"
    """``slim``: the image that is built lacks Java, Go, PHP and Ruby, a third of it. Smaller images start sooner."""

    computer: bool = False
    """A browser beside each sandbox, in a second container with an image of its own: a task has 2 GiB of memory more, and 8 with
    ``64g``. It has not yet run on AWS (``docs/computer.md#fargate``)."""

    proxy_memory_mib: Literal[512, 1024, 2048, 4096, 8192] = 512
    """Memory of the egress proxy, one for all tenants. It gets 0.5 vCPU for each GiB, and costs by both while it runs."""

    vpc: GivenVpc | None = None
    """A VPC of yours with its subnets, for sandboxes and the functions that reach them, in place of one that the deployment makes
    (``docs/aws_company.md#a-network-of-yours``)."""

    vpc_cidr: Annotated[str, AfterValidator(lambda value: _network(value, SANDBOX_PREFIX_MAX))] = "10.42.0.0/16"
    """Addresses of the sandboxes' network: a sixteenth of them is for the sandboxes of a zone
    (``docs/aws_company.md#addresses-of-your-choice``)."""

    microvm_cidr: Annotated[str, AfterValidator(lambda value: _network(value, SANDBOX_PREFIX_MAX))] = "10.44.0.0/16"
    """Addresses of MicroVMs' network beside that of Fargate, if ``provisioner`` names both (``docs/aws.md#both-by-memory-tier``)."""

    proxy_cidr: Annotated[str, AfterValidator(lambda value: _network(value, PROXY_PREFIX_MAX))] = "10.43.0.0/24"
    """Addresses of the egress proxy's network, which is peered with the sandboxes'."""

    availability_zones: int = Field(default=1, ge=1, le=AVAILABILITY_ZONES_MAX)
    """Each zone beyond the first adds one more hourly fee per interface endpoint."""

    sandbox_logs: bool = False
    """The exec server's own log lines in CloudWatch: one more interface endpoint ($7.30 a month and zone)."""

    retention_days: int = Field(default=RETENTION_SECONDS // 86_400, ge=1, le=3_650)
    """Days that responses and their events are kept."""

    object_versions_days: int = Field(default=0, ge=0, le=3_650)
    """Days that the bucket keeps overwritten and deleted objects, so that they can be had again; 0 keeps none. AWS Backup needs it, and
    so does replication into another region (``docs/aws.md#a-lost-zone-a-lost-region``)."""

    audit_retention_days: Literal[0, 90, 365, 731, 1827, 3653] = 0
    """Days that the audit trail is kept, in a log group of its own; 0 keeps none (``docs/runs.md#the-audit-trail``)."""

    otlp_headers_secret: str | None = Field(
        default=None, pattern=r"^arn:aws[a-z-]*:secretsmanager:[^:]+:\d{12}:secret:[^:]+-[A-Za-z0-9]{6}$"
    )
    """ARN of a secret of yours whose text is the collector's headers, as ``OTEL_EXPORTER_OTLP_HEADERS`` has them."""

    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365] = 30
    """Days that CloudWatch keeps logs."""

    customer_managed_key: bool = False
    """Encrypt table, bucket and secret with a key of the account ($1 a month) instead of the services' own keys."""

    kms_key_arn: str | None = Field(default=None, pattern=r"^arn:aws:kms:[a-z0-9-]+:\d{12}:key/[0-9A-Za-z-]+$")
    """ARN of a key that is there already, in this region: it encrypts table, bucket, secret, vector bucket, log groups, topic of alarms
    and image repositories. Its policy has to let services use it (``docs/aws_company.md#a-key-of-your-own``)."""

    authorizer: bool = True
    """Check keys at the gateway too. The API checks every key itself; emulators without authorizers turn this off."""

    authorizer_cache_seconds: int = Field(default=300, ge=0, le=3_600)
    """Seconds that a revoked key may pass the gateway; the API itself refuses it at once."""

    streaming: bool = True
    """Stream answers through API Gateway (Lambda Web Adapter). Emulators buffer, so there Mangum serves the same app."""

    websocket: bool = False
    """A WebSocket API beside the REST API, for clients that keep one connection: $1 for a million messages, each event being one, and
    nothing at rest. Its address is another one (``docs/aws.md#websocket``)."""

    bundle_for: Literal["lambda", "host"] = "lambda"
    """The platform that packages are made for: Lambda's Python 3.13 on arm64, or this machine's Python (emulators)."""

    requests_per_second: int = Field(default=50, ge=1, le=10_000)
    """Throttling of the stage, for all tenants together: the cheapest protection of the account's Lambda concurrency."""

    request_burst: int = Field(default=100, ge=1, le=5_000)
    """Requests at once beyond that rate."""

    usage_plans: Annotated[dict[str, UsagePlan], AfterValidator(_tier_names)] = Field(default_factory=dict)
    """Limits at the gateway for each tenant of a tier; ``*`` stands for all tenants without one, together. AWS enforces them as well as
    it can, not to the last request (``docs/aws_platform.md#what-the-gateway-refuses``)."""

    provisioned_concurrency: int = Field(default=0, ge=0, le=1_000)
    """Environments of the streaming function that are kept started, so that no request meets a cold start: $3.76 a month each with the
    default memory."""

    model_memory_mib: int = Field(default=352, ge=256, le=10_240)
    """Memory, and so CPU, of the API and model functions. They wait for models most of their time, and waiting is billed by memory. The
    default has room for the largest input: 110 MiB of code, and three times the 50 MiB of files (``tests/twin/test_memory.py``)."""

    rollout: Literal["at_once", "canary", "linear"] = "at_once"
    """How a new version of the streaming function comes into use: ``canary`` turns a tenth of the requests to it for five minutes
    first, ``linear`` a tenth more each minute; both go back if it fails. Running requests stay as they are."""

    table_name: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9_.-]{3,255}$")
    """A table that is there already, in place of this deployment's own: one that was restored, or another deployment's
    (``docs/aws.md#restore``)."""

    bucket_name: str | None = Field(default=None, pattern=r"^[a-z0-9.-]{3,63}$")
    """The same for the bucket."""

    content_key_arn: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:secretsmanager:[^:]+:\d{12}:secret:.+-[A-Za-z0-9]{6}$")
    """The same for the secret with the content key, without which sealed content of an adopted table cannot be opened."""

    content_key_edition: str = Field(default="", pattern=r"^[\w.-]{0,32}$")
    """Another text after the content key was changed: functions are published anew, and sandboxes' tokens follow from the new key
    (``docs/aws.md#a-content-key-that-has-leaked``)."""

    streams_percent: int = Field(default=50, ge=0, le=90)
    """Of the account's Lambda concurrency, the share that streams may hold; the rest is for their steps. 0 reserves nothing. Nor does
    an account with less than 200, or one in which others have reserved so much that fewer than 100 would be left
    (``docs/aws_platform.md#throttling-and-room``)."""

    domain_name: str | None = Field(default=None, pattern=r"^[a-z0-9.-]+\.[a-z]+$")
    """A custom domain; an output shows its CNAME target, and the gateway's own host is closed. With ``private_api`` a private one
    (``docs/aws_company.md#a-private-api``)."""

    certificate_arn: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:acm:")
    """Certificate of ``domain_name`` in ACM, in the same region."""

    websocket_domain_name: str | None = Field(default=None, pattern=r"^[a-z0-9.-]+\.[a-z]+$")
    """A custom domain for the WebSocket API, which cannot share a name with the REST API."""

    websocket_certificate_arn: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:acm:")
    """Certificate of ``websocket_domain_name``."""

    tls_minimum: Annotated[Literal["1.2", "1.3"] | None, BeforeValidator(_text)] = None
    """The oldest TLS that the REST API takes, at the gateway's own host and at ``domain_name``. By default AWS chooses: its own host
    still takes TLS 1.0 (``docs/aws_company.md#tls``)."""

    dual_stack: bool = False
    """The API is reached by IPv6 too (``docs/aws_company.md#ipv6``)."""

    private_api: Annotated[Words, _ids("vpce")] = ()
    """Interface endpoints of ``execute-api``, such as ``["vpce-0123456789abcdef0"]``: the REST API is reached through these alone
    (``docs/aws_company.md#a-private-api``). By default it is reached from the internet."""

    model_keys_kms_arn: str | None = Field(default=None, pattern=r"^arn:aws:kms:[a-z0-9-]+:\d{12}:key/[0-9A-Za-z-]+$")
    """Key that encrypts the parameters and secrets with model keys, if that is neither the services' own nor ``kms_key_arn``
    (``docs/aws_company.md#model-keys``)."""

    alarm_email: str | None = Field(default=None, pattern=r"^[^@\s]+@[^@\s]+$")
    """Receiver of alarms. The first five alarms are made without one too, for the console; with one there are more ($0.10 a month
    each)."""

    alarm_topic_arn: str | None = Field(default=None, pattern=r"^arn:aws:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]+$")
    """A topic that is there already, in this region, and receives the alarms too, or alone (``docs/aws_company.md#alarms``)."""

    sandboxes_alarm: int = Field(default=0, ge=0)
    """Number of live sandboxes that triggers an alarm; 0 is no alarm."""

    monthly_budget: int = Field(default=0, ge=0)
    """Dollars a month of this deployment (by its tag); the recipient of alarms is told at 80 %, and when the forecast exceeds them; 0
    is none. Activate the tag ``moorage:deployment`` for cost allocation first."""

    vector_bucket: bool = False
    """S3 Vectors compares the vectors of vector stores. It costs by what is put and asked, and nothing at rest but its bytes. Not every
    region has it, and it has not yet run on AWS. By default functions read vectors from the bucket and compare them exactly
    (``docs/aws.md#vector-stores-and-s3-vectors``)."""

    waf: bool = False
    """AWS WAF before the API: managed reputation and bad-input rules and a bound for each address ($5 a month and $1 a rule)."""

    waf_address_requests: int = Field(default=2_000, ge=10, le=2_000_000_000)
    """With ``waf``: requests from one address in five minutes. All clients behind one NAT gateway share an address."""

    waf_acl_arn: str | None = Field(
        default=None, pattern=r"^arn:aws:wafv2:[a-z0-9-]+:\d{12}:regional/webacl/[A-Za-z0-9_-]+/[0-9A-Za-z-]+$"
    )
    """A web ACL that is there already, in this region, in place of ``waf`` (``docs/aws_company.md#firewall``)."""

    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(default_factory=dict)
    """Own tags of all resources, beside ``moorage:deployment`` (``docs/aws_company.md#tags``)."""

    oidc: Oidc | None = None
    """An object with the issuer of tokens beside API keys, and of people who sign in to the console (``docs/aws.md#sign-in``). Its keys
    are ``client_secret``, the ARN of a secret of yours with the client's secret, and those of ``oidc`` below."""

    table_read_units: int = Field(default=0, ge=0, le=40_000)
    """Provisioned capacity of the table; 0 is on demand, which costs nothing at rest."""

    table_write_units: int = Field(default=0, ge=0, le=40_000)
    """The same for writes; set both or neither."""

    retain: bool = True
    """Keep table and bucket when their stack is destroyed. Tests and throw-away deployments say ``false``."""

    @model_validator(mode="before")
    @classmethod
    def _settings_apart(cls, values: Any) -> Any:
        """The operator's settings are read and checked as their variables are."""
        if not isinstance(values, dict):
            return values
        rest = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
        return {"settings": _chosen(rest), **rest}

    @model_validator(mode="before")
    @classmethod
    def _tiers_of_provisioners(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if values.get("provisioner") == "lambda_microvm":
            return {"memory_tiers": tuple(tier for tier in MEMORY_LIMITS if tier != "64g"), **values}
        if isinstance(by_tier := values.get("provisioner"), Mapping):
            return {"memory_tiers": tuple(by_tier), **values}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.domain_name is None) != (self.certificate_arn is None):
            raise ValueError("domain_name and certificate_arn belong together; set both or neither")
        if (self.websocket_domain_name is None) != (self.websocket_certificate_arn is None):
            raise ValueError("websocket_domain_name and websocket_certificate_arn belong together; set both or neither")
        if self.websocket_domain_name and not self.websocket:
            raise ValueError("websocket_domain_name needs websocket")
        if self.websocket_domain_name and self.websocket_domain_name == self.domain_name:
            raise ValueError("websocket_domain_name is domain_name: API Gateway maps a name to one kind of API")
        if self.private_api:
            self._check_private()
        if bool(self.table_read_units) != bool(self.table_write_units):
            raise ValueError("table_read_units and table_write_units belong together; set both or neither")
        if isinstance(self.provisioner, dict):
            self._check_by_tier(self.provisioner)
        if "64g" in self.microvm_tiers:
            raise ValueError("memory_tiers cannot have 64g with provisioner 'lambda_microvm': the largest MicroVM has 32 GB of memory")
        if self._is_set("microvm_cidr") and not self.has_both:
            raise ValueError("microvm_cidr needs both provisioners: with one of them vpc_cidr has the sandboxes' addresses")
        if self.microvm_base_version and not self.has_microvms:
            raise ValueError("microvm_base_version needs provisioner 'lambda_microvm'")
        if self.sandbox_logs and not self.has_fargate:
            raise ValueError("sandbox_logs needs provisioner 'fargate': a MicroVM writes logs by a role only, and has none")
        if (self.table_name is None) != (self.bucket_name is None):
            raise ValueError("table_name and bucket_name belong together: records name objects; set both or neither")
        if self.content_key_arn and self.table_name is None:
            raise ValueError("content_key_arn belongs to an adopted table (table_name)")
        if self.computer and self.provisioner != "fargate":
            raise ValueError(
                "computer needs provisioner 'fargate' alone: a browser has a container of its own beside that of the commands"
            )
        warm_pool = self.settings.warm_pool.keys()
        if warm_pool & set(self.microvm_tiers) or (warm_pool and not self.has_fargate):
            raise ValueError("warm_pool needs provisioner 'fargate'; a MicroVM starts in seconds")
        if missing := sorted(warm_pool - set(self.memory_tiers)):
            raise ValueError(f"warm_pool names {', '.join(missing)}, which memory_tiers leaves out")
        if (self.monthly_budget or self.sandboxes_alarm) and not self.has_recipient:
            raise ValueError("monthly_budget and sandboxes_alarm need alarm_email or alarm_topic_arn: somebody has to be told")
        if self.kms_key_arn and self.customer_managed_key:
            raise ValueError("kms_key_arn names a key that is there, and customer_managed_key makes one; set one of them")
        if self.waf_acl_arn and self.waf:
            raise ValueError("waf_acl_arn names a web ACL that is there, and waf makes one; set one of them")
        if self.usage_plans and not self.authorizer:
            raise ValueError("usage_plans needs authorizer: it names the tenant of each request")
        self._check_egress()
        if self.vpc is not None:
            self._check_vpc(self.vpc)
        if self.provisioner == "none" and self._is_set("vpc_cidr"):
            raise ValueError("vpc_cidr needs sandboxes: provisioner 'none' deploys no network")
        self._check_overlaps()
        if self.otlp_headers_secret and not self.settings.otlp_endpoint:
            raise ValueError("otlp_headers_secret needs otlp_endpoint: the headers are the collector's")
        if len(self.settings.cors_origins) > CORS_ORIGINS_MAX:
            raise ValueError(f"cors_origins takes up to {CORS_ORIGINS_MAX} origins")
        if self.oidc and not self.settings.oidc_issuer:
            raise ValueError("oidc needs issuer: whose tokens are taken")
        if self.oidc and self.oidc.client_secret and not self.settings.oidc_client_id:
            raise ValueError("oidc.client_secret needs oidc.client_id")
        return self

    def _check_egress(self) -> None:
        mirrors = {name: getattr(self.settings, name) for name in ("python_mirror", "npm_mirror")}
        is_set = {**mirrors, **{name: self._is_set(name) for name in ("proxy_memory_mib", "proxy_cidr")}}
        if told := [name for name, value in is_set.items() if value and not self.has_egress]:
            raise ValueError(f"{told[0]} needs allowed_egress_domains: without them there is no proxy")
        for name, address in mirrors.items():
            if address and urlsplit(address).port not in (None, 80, 443):
                raise ValueError(f"{name} takes an address on port 80 or 443: the security groups open no other")
        if self.has_egress and self.provisioner == "none":
            raise ValueError("allowed_egress_domains needs sandboxes: with provisioner 'none' no proxy is deployed")
        if self.has_egress and self.has_microvms and self.vpc is not None:
            raise ValueError(
                "allowed_egress_domains does not go with vpc and provisioner 'lambda_microvm': it is reached from a network that "
                "the deployment makes"
            )

    def _check_by_tier(self, by_tier: Mapping[str, str]) -> None:
        if by_tier.keys() != set(self.memory_tiers):
            raise ValueError("memory_tiers and provisioner name different tiers: leave memory_tiers out")
        if self.vpc is not None:
            raise ValueError("vpc takes one provisioner for all memory tiers: the networks of two are made by the deployment")

    def _check_overlaps(self) -> None:
        """Both networks of sandboxes are peered with the proxy's."""
        names = ["vpc_cidr", *(["microvm_cidr"] if self.has_both else []), "proxy_cidr"]
        for first, second in itertools.combinations(names, 2):
            if ipaddress.IPv4Network(getattr(self, first)).overlaps(ipaddress.IPv4Network(getattr(self, second))):
                raise ValueError(f"{first} and {second} overlap: networks that are peered have no address in common")

    def _check_private(self) -> None:
        """Settings that a private API cannot have (API Gateway developer guide, "Private REST APIs")."""
        without = {
            "websocket": "a WebSocket API is public",
            "waf": "callers come through an endpoint of yours",
            "waf_acl_arn": "callers come through an endpoint of yours",
            "dual_stack": "a private API is reached by both kinds of address anyway",
        }
        for name, reason in without.items():
            if getattr(self, name):
                raise ValueError(f"private_api and {name} do not go together: {reason}")

    def _is_set(self, name: str) -> bool:
        """To something other than its default."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def _check_vpc(self, vpc: GivenVpc) -> None:
        if self.provisioner == "none":
            raise ValueError("vpc needs sandboxes: with provisioner 'none' nothing is in a network")
        for name in ("vpc_cidr", "proxy_cidr", "availability_zones"):
            if self._is_set(name):
                raise ValueError(f"vpc names a network that is there, and {name} is for one that is made; set one of them")
        if self.has_microvms:
            vpc.check_microvms()
        else:
            vpc.check_fargate(has_egress=self.has_egress)

    @property
    def has_fargate(self) -> bool:
        return bool(self.fargate_tiers)

    @property
    def has_microvms(self) -> bool:
        return bool(self.microvm_tiers)

    @property
    def has_both(self) -> bool:
        """Whether the memory tier of a container chooses between the two."""
        return self.has_fargate and self.has_microvms

    @property
    def fargate_tiers(self) -> tuple[str, ...]:
        return self._tiers_of("fargate")

    @property
    def microvm_tiers(self) -> tuple[str, ...]:
        return self._tiers_of("lambda_microvm")

    def _tiers_of(self, provisioner: str) -> tuple[str, ...]:
        by_tier = self.provisioner
        return tuple(tier for tier in self.memory_tiers if (by_tier.get(tier) if isinstance(by_tier, dict) else by_tier) == provisioner)

    @property
    def microvm_network(self) -> str:
        """Addresses of MicroVMs' network, where the deployment makes it."""
        return self.microvm_cidr if self.has_both else self.vpc_cidr

    @property
    def has_recipient(self) -> bool:
        """Whether anybody hears alarms."""
        return bool(self.alarm_email or self.alarm_topic_arn)

    @property
    def has_egress(self) -> bool:
        return bool(self.settings.allowed_egress_domains)

    @classmethod
    def names(cls) -> list[str]:
        """Of ``moorage`` in ``cdk.json``."""
        return sorted({*cls.model_fields, *(key.partition(".")[0] for key in CHOICES)} - {"settings"})

    @classmethod
    def _is_text(cls, name: str) -> bool:
        return name in cls.model_fields and cls.model_fields[name].annotation in (str, str | None)

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Self:
        """Read the ``moorage`` object and the ``moorage:<name>`` overrides of a CDK context. Raises :class:`ConfigError`."""
        values = dict(context.get(CONTEXT_KEY) or {})
        values |= {name: _parsed(context[_PREFIX + name], cls._is_text(name)) for name in _overridden(context)}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from error


def _overridden(context: Mapping[str, Any]) -> list[str]:
    return [key.removeprefix(_PREFIX) for key in context if key.startswith(_PREFIX)]


def _parsed(value: Any, is_text: bool) -> Any:
    """A value of ``-c``: JSON if it is JSON (true, 3, ["a"]), else text. The number of an edition or a version is text too."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return value if is_text and isinstance(parsed, int | float) else parsed


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"cdk.json: there is no setting '{place}'; the settings are {', '.join(Config.names())}."
    said = re.sub(r"MOORAGE_OIDC_(\w+)", lambda name: f"oidc.{name[1].lower()}", first["msg"].removeprefix("Value error, "))
    return f"cdk.json: {f'{place!r}: ' if place else ''}{said.removesuffix('.')}."


class Models(BaseModel):
    """``models.toml`` as it is deployed, and the rights that it needs."""

    model_config = ConfigDict(frozen=True)

    text: str
    parameters: tuple[str, ...]
    """SSM parameters that the file refers to, sorted."""
    secrets: tuple[str, ...]
    """Secrets of Secrets Manager that it refers to, by name or ARN, sorted."""
    uses_bedrock: bool
    guardrails: tuple[str, ...]
    """ARNs of the guardrails that its models name, but for their partition."""
    draws_by: tuple[str, ...]
    """ARNs of the models of Bedrock that draw images, but for their partition; none where another server does, or nothing."""
    embedding_parameters: tuple[str, ...]
    """Those of the parameters that its embedding models refer to."""
    embedding_secrets: tuple[str, ...]
    titan_regions: tuple[str | None, ...]
    """Where Bedrock's Titan embeds texts: None is the deployment's own region. It also serves where no embedding model is named."""
    has_upstream_shell: bool
    """Containers at an upstream: the function of their routes passes requests on."""

    @classmethod
    def from_file(cls, path: Path, config: Config) -> Self:
        """Read the file; raises :class:`ConfigError` when it is missing or not TOML."""
        try:
            text = as_deployed(path.read_text(), config.name)
            file = tomllib.loads(text)
            texts, embedding = _texts(file), file.get("embedding") or [{"provider": "bedrock_titan"}]
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path.name} cannot be read: {error}.") from error
        return cls(
            text=text,
            parameters=_named(texts, "ssm:"),
            secrets=_named(texts, "secretsmanager:"),
            uses_bedrock=any("bedrock" in text for text in _texts({**file, "image_generation": None, "embedding": None})),
            guardrails=_guardrails(file.get("models", [])),
            draws_by=_draws_by(file.get("image_generation", {})),
            embedding_parameters=_named(_texts(embedding), "ssm:"),
            embedding_secrets=_named(_texts(embedding), "secretsmanager:"),
            titan_regions=tuple(dict.fromkeys(model.get("region") for model in embedding if model.get("provider") == "bedrock_titan")),
            has_upstream_shell=any(model.get("shell") == "upstream" for model in file.get("models", [])),
        )


def _guardrails(models: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    named = [(model.get("region", "${AWS::Region}"), model["guardrail"].rpartition(":")[0]) for model in models if "guardrail" in model]
    arns = [
        identifier.removeprefix("arn:aws:")
        if identifier.startswith("arn:")
        else f"bedrock:{region}:${{AWS::AccountId}}:guardrail/{identifier}"
        for region, identifier in named
    ]
    return tuple(sorted(set(arns)))


def _draws_by(table: Mapping[str, Any]) -> tuple[str, ...]:
    if table.get("kind") != "bedrock":
        return ()
    region = table.get("region", "${AWS::Region}")
    return tuple(f"bedrock:{region}::foundation-model/{model}" for model in (table.get("model", ""), *table.get("models", ())))


def _named(texts: Iterable[str], kind: str) -> tuple[str, ...]:
    """The names among them that are of this kind, such as ``ssm:``."""
    return tuple(sorted({text.removeprefix(kind) for text in texts if text.startswith(kind)}))


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for element in value.values() for text in _texts(element)]
        case list():
            return [text for element in value for text in _texts(element)]
        case _:
            return []
