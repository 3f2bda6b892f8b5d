"""What the operator may set, and what a wrong setting says."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from moorage.settings import VARIABLES, Settings, SettingsError

REQUIRED = {"MOORAGE_TABLE": "t", "MOORAGE_BUCKET": "b"}


def settings(**environment: str) -> Settings:
    return Settings.from_environment(REQUIRED | environment)


TAKEN: dict[str, tuple[dict[str, str], str, Any]] = {
    "web search is refused unless told otherwise": ({}, "web_search", "refuse"),
    "web search can be left out": ({"MOORAGE_WEB_SEARCH": "ignore"}, "web_search", "ignore"),
    "no sandbox waits unless told otherwise": ({}, "warm_pool", {}),
    "so many sandboxes wait as the operator says": ({"MOORAGE_WARM_POOL": "1g:2, 4g:1"}, "warm_pool", {"1g": 2, "4g": 1}),
    "code may run for two minutes": ({}, "code_seconds_max", 120),
    "code may run for as long as the operator says": ({"MOORAGE_CODE_SECONDS_MAX": "600"}, "code_seconds_max", 600),
    "an expired container is revived unless told otherwise": ({}, "strict_expiry", False),
    "an expired container can be refused": ({"MOORAGE_STRICT_EXPIRY": "true"}, "strict_expiry", True),
    "an idle sandbox stops with its container": ({}, "auto_idle_seconds", 0),
    "an idle sandbox stops before its container": ({"MOORAGE_AUTO_IDLE_SECONDS": "60"}, "auto_idle_seconds", 60),
    "nobody knows what programs there are": ({}, "sandbox_programs", ""),
    "what programs there are": ({"MOORAGE_SANDBOX_PROGRAMS": "python 3.11, go 1.19"}, "sandbox_programs", "python 3.11, go 1.19"),
    "a switch is turned on by 1 too": ({"MOORAGE_STRICT_EXPIRY": "1"}, "strict_expiry", True),
    "domains are read as requests' are": (
        {"MOORAGE_ALLOWED_EGRESS_DOMAINS": "API.Example.com, *.pkg.example bücher.example"},
        "allowed_egress_domains",
        ("api.example.com", "*.pkg.example", "xn--bcher-kva.example"),
    ),
    "no page may call the API unless told otherwise": ({}, "cors_origins", ()),
    "origins are as browsers write them": (
        {"MOORAGE_CORS_ORIGINS": "https://App.Example.com:443, http://localhost:5173 http://[::1]:80"},
        "cors_origins",
        ("https://app.example.com", "http://localhost:5173", "http://[::1]"),
    ),
    "vectors are compared in memory unless told otherwise": ({}, "vector_bucket", None),
    "vectors can be compared by S3 Vectors": (
        {"MOORAGE_VECTOR_BUCKET": "arn:aws-cn:s3vectors:cn-north-1:123456789012:bucket/our.vectors"},
        "vector_bucket",
        "arn:aws-cn:s3vectors:cn-north-1:123456789012:bucket/our.vectors",
    ),
    "a switch is turned off by 0 too": ({"MOORAGE_PRESIGNED_DOWNLOADS": "0"}, "presigned_downloads", False),
}


@pytest.mark.parametrize(("environment", "name", "value"), TAKEN.values(), ids=TAKEN.keys())
def test_a_setting_is_taken(environment: dict[str, str], name: str, value: Any) -> None:
    assert getattr(settings(**environment), name) == value


WRONG = {
    "another word for web search": ("MOORAGE_WEB_SEARCH", "maybe"),
    "a memory tier that does not exist": ("MOORAGE_WARM_POOL", "2g:1"),
    "a tier without a number": ("MOORAGE_WARM_POOL", "1g"),
    "a pool of nothing": ("MOORAGE_WARM_POOL", "1g:0"),
    "a tier twice": ("MOORAGE_WARM_POOL", "1g:1 1g:2"),
    "no time for code": ("MOORAGE_CODE_SECONDS_MAX", "0"),
    "days for code": ("MOORAGE_CODE_SECONDS_MAX", "100000"),
    "time in words": ("MOORAGE_CODE_SECONDS_MAX", "two minutes"),
    "a log level that is none": ("MOORAGE_LOG_LEVEL", "loud"),
    "a URL among the domains": ("MOORAGE_ALLOWED_EGRESS_DOMAINS", "pkg.example https://api.example.com"),
    "a domain that two readers take for two": ("MOORAGE_ALLOWED_EGRESS_DOMAINS", "straße.de"),
    "an address among the domains": ("MOORAGE_ALLOWED_EGRESS_DOMAINS", "10.0.0.1"),
    "programs in two lines": ("MOORAGE_SANDBOX_PROGRAMS", "python\ngo"),
    "programs without end": ("MOORAGE_SANDBOX_PROGRAMS", "python, " * 1_000),
    "a price of one number": ("MOORAGE_SANDBOX_PRICE", "0.03"),
    "a price below nothing": ("MOORAGE_SANDBOX_PRICE", "-1,0"),
    "a price that is no number": ("MOORAGE_SANDBOX_PRICE", "nan,0"),
    "an idle time that a pause between two commands is longer than": ("MOORAGE_AUTO_IDLE_SECONDS", "29"),
    "an idle time longer than the container's": ("MOORAGE_AUTO_IDLE_SECONDS", "1201"),
    "another word for on": ("MOORAGE_STRICT_EXPIRY", "enabled"),
    "a vector bucket by its name": ("MOORAGE_VECTOR_BUCKET", "our-vectors"),
    "an index in place of its vector bucket": ("MOORAGE_VECTOR_BUCKET", "arn:aws:s3vectors:eu-west-1:123456789012:bucket/our/index/vs"),
    "an issuer in clear text": ("MOORAGE_OIDC_ISSUER", "http://login.example.com"),
    "a role that there is not": ("MOORAGE_OIDC_ROLES", "staff:owner"),
    "any origin": ("MOORAGE_CORS_ORIGINS", "*"),
    "origins by a wildcard": ("MOORAGE_CORS_ORIGINS", "https://*.example.com"),
    "an address where an origin is wanted": ("MOORAGE_CORS_ORIGINS", "https://app.example.com/"),
    "a host where an origin is wanted": ("MOORAGE_CORS_ORIGINS", "app.example.com"),
    "the origin of a file": ("MOORAGE_CORS_ORIGINS", "null"),
    "an origin with a user": ("MOORAGE_CORS_ORIGINS", "https://me@app.example.com"),
    "an origin at no port": ("MOORAGE_CORS_ORIGINS", "https://app.example.com:0"),
    "an origin at an address in hexadecimal": ("MOORAGE_CORS_ORIGINS", "http://0x7f.1"),
    "a bucket for objects": ("MOORAGE_VECTOR_BUCKET", "arn:aws:s3:::our-bucket"),
    "a collector without a scheme": ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
    "a header without a value": ("OTEL_EXPORTER_OTLP_HEADERS", "authorization"),
}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        settings(**{name: value})


def test_a_warm_pool_needs_a_provisioner_that_can_have_one() -> None:
    with pytest.raises(SettingsError, match="needs the provisioner 'fargate', 'docker' or 'launcher'"):
        settings(MOORAGE_WARM_POOL="1g:1", MOORAGE_PROVISIONER="lambda_microvm")


def test_what_is_too_long_for_variables_lies_in_a_file_and_gives_way_to_them(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"MOORAGE_ALLOWED_EGRESS_DOMAINS": "a.example,b.example", "MOORAGE_NAME": "kept"}')
    settings = Settings.from_environment(
        {"MOORAGE_TABLE": "t", "MOORAGE_BUCKET": "b", "MOORAGE_NAME": "told", "MOORAGE_SETTINGS_FILE": str(file)}
    )
    assert (settings.allowed_egress_domains, settings.name) == (("a.example", "b.example"), "told")


@pytest.mark.parametrize("content", [None, "no json"])
def test_a_file_of_settings_that_cannot_be_read_is_named(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match="MOORAGE_SETTINGS_FILE names"):
        Settings.from_environment({"MOORAGE_SETTINGS_FILE": str(file)})


EVERYTHING = Settings(
    table_name="t",
    bucket_name="b",
    state_machine_arn="arn:aws:states:::m",
    executions_file="/var/lib/moorage/executions.sqlite",
    store_dir="/state/store",
    models_file="m.toml",
    content_key="00" * 32,
    content_key_secret="arn:aws:secretsmanager:::secret:s",
    sandbox_key="11" * 32,
    provisioner="fargate",
    launcher_socket="/run/launcher.sock",
    warm_pool={"1g": 2, "4g": 1},
    web_search="ignore",
    code_seconds_max=60,
    sandbox_programs="python 3.11, go 1.19",
    sandbox_browser=True,
    auto_idle_seconds=60,
    strict_expiry=True,
    drain=True,
    allowed_egress_domains=("a.example", "*.b.example"),
    egress_proxy="http://proxy:3128",
    egress_key="alias/k",
    egress_ca="/ca.pem",
    egress_service="c/s",
    egress_places_key="ab" * 32,
    egress_ports=(80, 443, 8443),
    egress_own_networks=("10.0.0.0/16",),
    egress_allowed_networks=("10.1.0.0/16", "10.2.0.0/16"),
    python_mirror="https://python.example.com/simple",
    npm_mirror="https://npm.example.com",
    fetch_allowed_networks=("10.9.0.0/16",),
    presigned_downloads=True,
    retention_seconds=60,
    stream_seconds_max=800,
    json_silence_seconds=5,
    audit_file="/var/moorage/audit.log",
    audit_log_group="/moorage/audit",
    oidc_issuer="https://login.example.com",
    oidc_audience="https://api.example.com",
    oidc_client_id="console",
    oidc_client_secret="secret",
    oidc_console_url="https://api.example.com/console/",
    oidc_at_gateway=True,
    oidc_scopes="openid",
    oidc_tenants=("acme",),
    oidc_tenant_claim="custom:tenant",
    oidc_role_claim="groups",
    oidc_roles={"platform:admins": "admin", "staff": "member"},
    cors_origins=("https://app.example.com", "http://localhost:5173"),
    requests_per_minute=6,
    tokens_per_minute=7,
    running_responses_max=8,
    automations_max=12,
    stored_bytes_max=9,
    content_key_edition="2",
    tenant_sandboxes_max=10,
    tenant_vcpus_max=11,
    tenant_starts_per_second=12,
    sandbox_price=(0.5, 0.25),
    sandbox_price_source="a list",
    log_file="/log",
    log_level="DEBUG",
    name="n",
    usage_plans=("*", "research"),
    websocket_endpoint="https://sockets.example.com/production",
    screens_function="arn:screens",
    websocket_worker="worker",
    vector_bucket="arn:aws:s3vectors:eu-west-1:123456789012:bucket/our-vectors",
    otlp_endpoint="http://collector:4318",
    otlp_headers={"authorization": "Bearer x,y", "x-team": "ours"},
    otlp_service_name="agents",
    docker={"image": "i"},
    fargate={"cluster": "c", "task_definition_1g": "d"},
    microvm={"image_1g": "i"},
)


def test_settings_are_read_from_the_variables_that_they_are_written_to() -> None:
    environment = EVERYTHING.to_environment()
    assert all(name.startswith(("MOORAGE_", "OTEL_")) for name in environment)
    assert environment["MOORAGE_WARM_POOL"] == "1g:2,4g:1"
    assert replace(Settings.from_environment(environment), upstream={}) == EVERYTHING


def test_each_setting_has_a_variable_and_each_variable_a_setting() -> None:
    own = {field.name for field in fields(Settings)} - {"upstream", "docker", "fargate", "microvm"}
    assert sorted(variable.field for variable in VARIABLES.values()) == sorted(own)
    left = {name for name in own if getattr(EVERYTHING, name) == getattr(Settings("t", "b"), name)}
    assert left == {"table_name", "bucket_name"}, "EVERYTHING sets each of them"


def test_what_is_left_to_its_default_is_not_written() -> None:
    assert Settings("t", "b").to_environment() == REQUIRED


@pytest.mark.parametrize("name", REQUIRED)
def test_a_setting_that_must_be_there_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is not set"):
        Settings.from_environment({key: value for key, value in REQUIRED.items() if key != name})
