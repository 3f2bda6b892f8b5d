"""Each setting on and off, on a deployment that stands, one by one: ``make lint-template``. It takes minutes, so it is no part of
``make test``, whose pairs (``test_updates.py``) have several settings at once."""

from typing import Any

import pytest

from infra.config import CHOICES, Config
from tests.infra.conftest import BOTH, COMPANY, EVERYTHING, MICROVM_VPC, MICROVMS, NAMED, PRIVATE, Stacks, shared
from tests.infra.updates import GOES_WITH, Update, beyond, faults
from tests.unit.test_settings import EVERYTHING as SETTINGS

ALARMS: dict[str, Any] = {"alarm_email": "owner@example.com"}
NEEDS: dict[str, dict[str, Any]] = {
    "domain_name": {"certificate_arn": EVERYTHING["certificate_arn"]},
    "microvm_base_version": MICROVMS,
    "microvm_cidr": BOTH,
    "monthly_budget": ALARMS,
    "npm_mirror": {"allowed_egress_domains": ["pkg.example.com"]},
    "otlp_headers_secret": {"otlp_endpoint": "https://otlp.example.com"},
    "proxy_cidr": {"allowed_egress_domains": ["pkg.example.com"]},
    "proxy_memory_mib": {"allowed_egress_domains": ["pkg.example.com"]},
    "python_mirror": {"allowed_egress_domains": ["pkg.example.com"]},
    "sandboxes_alarm": ALARMS,
    "table_read_units": {"table_write_units": 5},
    "table_name": {"bucket_name": "another-bucket"},
    "websocket_domain_name": {"websocket": True, "websocket_certificate_arn": EVERYTHING["websocket_certificate_arn"]},
    "vpc": {"allowed_egress_domains": ["pkg.example.com"]},
}
"""What a setting takes beside it; it stands there before and after."""
TOGETHER = {"table_read_units", "table_name", "domain_name", "websocket_domain_name"}
"""Those that come and go with what they need."""

VALUES: dict[str, Any] = {
    **{name: getattr(SETTINGS, name) for name in CHOICES if "." not in name},
    **{name: EVERYTHING[name] for name in EVERYTHING if name not in ("certificate_arn", "websocket_certificate_arn")},
    **{name: COMPANY[name] for name in COMPANY.keys() - EVERYTHING.keys()},
    "authorizer_cache_seconds": 0,
    "bundle_for": "host",
    "content_key_edition": "2",
    "microvm_base_version": "1",
    "microvm_cidr": "192.168.32.0/20",
    "model_keys_kms_arn": COMPANY["kms_key_arn"],
    "log_retention_days": 7,
    "memory_tiers": ["1g", "4g"],
    "model_memory_mib": 1024,
    "object_versions_days": 30,
    **PRIVATE,
    "provisioner": "none",
    "proxy_cidr": "192.168.16.0/26",
    "proxy_memory_mib": 1024,
    "request_burst": 10,
    "requests_per_second": 10,
    "retention_days": 7,
    "rollout": "canary",
    "sandbox_image": "000000000000.dkr.ecr.us-east-1.amazonaws.com/sandbox:1",
    "sandbox_runtimes": "slim",
    "streams_percent": 0,
    "table_name": "another-table",
    "table_read_units": 10,
    "vpc_cidr": "192.168.0.0/20",
    "waf_address_requests": 100,
}
ANOTHER = {"provisioner", "memory_tiers", "table_name", "kms_key_arn", "vpc", "vpc_cidr", "microvm_cidr", "proxy_cidr"}
"""Those that put something in the place of what was there, when they come and when they go."""

NOT_ONE_BY_ONE = {
    "name": "another name is another deployment",
    "retain": "what is not kept is thrown away with it, as the setting says",
    "authorizer": "for emulators",
    "streaming": "for emulators",
    "certificate_arn": "with domain_name",
    "websocket_certificate_arn": "with websocket_domain_name",
    "bucket_name": "with table_name",
    "content_key_arn": "as table_name",
    "table_write_units": "with table_read_units",
}


def test_every_setting_is_looked_at() -> None:
    fields = set(Config.names())
    assert (fields - VALUES.keys() - NOT_ONE_BY_ONE.keys(), VALUES.keys() - fields, GOES_WITH.keys() - fields) == (set(), set(), set())


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_setting_goes_on_and_off(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    beside = NEEDS.get(name, {})
    without = shared({} if name in TOGETHER else beside, tmp_path_factory)
    with_it = shared({**beside, name: VALUES[name]}, tmp_path_factory)
    assert beyond(faults(Update(without, with_it)), ANOTHER & {name}) == []
    assert beyond(faults(Update(with_it, without)), [name, *(beside if name in TOGETHER else ())]) == []


def test_sandboxes_move_to_microvms_and_back(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> None:
    microvms = shared(MICROVMS, tmp_path_factory)
    assert beyond(faults(Update(stacks, microvms)), ["provisioner"]) == []
    assert beyond(faults(Update(microvms, stacks)), ["provisioner"]) == []


def test_microvms_come_beside_fargate_and_go(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tiers that are left out end with the setting."""
    fargate = shared({"allowed_egress_domains": BOTH["allowed_egress_domains"]}, tmp_path_factory)
    both = shared(BOTH, tmp_path_factory)
    assert beyond(faults(Update(fargate, both)), ["provisioner", "memory_tiers"]) == []
    assert beyond(faults(Update(both, fargate)), ["provisioner", "memory_tiers"]) == []


def test_fargate_comes_beside_microvms_and_goes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """``vpc_cidr`` is Fargate's then, so the network of MicroVMs is made anew with addresses of ``microvm_cidr``."""
    microvms = shared({**MICROVMS, "allowed_egress_domains": BOTH["allowed_egress_domains"]}, tmp_path_factory)
    both = shared(BOTH, tmp_path_factory)
    ends = ["provisioner", "memory_tiers", "vpc_cidr"]
    assert beyond(faults(Update(microvms, both)), ends) == []
    assert beyond(faults(Update(both, microvms)), ends) == []


BESIDE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "a name of a private API": (PRIVATE, NAMED, []),
    "tags of a private API's name": ({**PRIVATE, **NAMED}, {"tags": COMPANY["tags"]}, []),
    "zones of MicroVMs": (MICROVMS, {"availability_zones": 2}, ["availability_zones"]),
    "a network of MicroVMs": (MICROVMS, {"vpc_cidr": "192.168.0.0/20"}, ["vpc_cidr"]),
    "a VPC of the owner's for MicroVMs": (MICROVMS, {"vpc": MICROVM_VPC}, ["vpc"]),
}
"""What stands there before and after, what comes and goes, and what ends both ways."""


@pytest.mark.parametrize(("beside", "setting", "another"), BESIDE.values(), ids=BESIDE.keys())
def test_a_setting_goes_on_and_off_beside_another(
    beside: dict[str, Any], setting: dict[str, Any], another: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    without, with_it = (shared({**beside, **more}, tmp_path_factory) for more in ({}, setting))
    assert beyond(faults(Update(without, with_it)), another) == []
    assert beyond(faults(Update(with_it, without)), another) == []
