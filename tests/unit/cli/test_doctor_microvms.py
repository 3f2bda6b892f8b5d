"""The lines of ``moorage doctor --aws`` about MicroVMs, by botocore's own models."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber
from moorage.cli.checks import microvms
from moorage.cli.checks.findings import Finding, Level

from infra.microvms import BASE_IMAGE

ARN = f"arn:aws:lambda:us-east-1:aws:microvm-image:{BASE_IMAGE}"


class Account:
    def __init__(self) -> None:
        options: Any = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        options["config"] = Config(retries={"total_max_attempts": 1})
        self.clients = {name: boto3.client(name, **options) for name in ("service-quotas", "lambda-microvms")}
        self.stubs = {name: Stubber(client) for name, client in self.clients.items()}

    def has(self, *, gigabytes: float | None = 400, **states: str) -> None:
        versions = [
            {"imageArn": ARN, "imageVersion": f"{number[1:]}.0", "status": state, "createdAt": 0, "updatedAt": 0}
            for number, state in states.items()
        ]
        self.stubs["lambda-microvms"].add_response("list_managed_microvm_image_versions", {"items": versions}, {"imageIdentifier": ARN})
        quotas = [] if gigabytes is None else [{"QuotaName": "MicroVMs memory in GB", "Value": gigabytes}]
        self.stubs["service-quotas"].add_response("list_service_quotas", {"Quotas": quotas})

    def findings(self, **settings: Any) -> list[Finding]:
        chosen = {"provisioner": "lambda_microvm", **settings}
        return list(microvms.findings(self.clients.__getitem__, chosen, "us-east-1"))


@pytest.fixture
def account() -> Iterator[Account]:
    account = Account()
    for stub in account.stubs.values():
        stub.activate()
    yield account
    for client in account.clients.values():
        client.close()


def test_a_region_with_microvms_and_room_is_found_good(account: Account) -> None:
    account.has(v1="DEPRECATED", v2="AVAILABLE")
    assert account.findings() == [
        Finding(Level.OK, "MicroVMs: a base image is available in us-east-1"),
        Finding(Level.OK, "MicroVMs: 400 GB of memory at once, asleep or awake"),
    ]


def test_with_fargate_aws_is_asked_nothing(account: Account) -> None:
    assert [account.findings(provisioner=each) for each in ("fargate", {"1g": "fargate"})] == [[], []]


def test_microvms_of_one_tier_beside_fargate_are_looked_at_too(account: Account) -> None:
    account.has(v1="AVAILABLE")
    found = account.findings(provisioner={"1g": "lambda_microvm", "16g": "fargate"})
    assert [each.level for each in found] == [Level.OK, Level.OK]


def test_a_region_without_microvms_is_named(account: Account) -> None:
    """It refuses each call, and says no reason."""
    account.stubs["lambda-microvms"].add_client_error("list_managed_microvm_image_versions", "AccessDeniedException", "")
    account.stubs["service-quotas"].add_response("list_service_quotas", {"Quotas": []})
    found = account.findings()
    assert [(each.level, each.what) for each in found] == [
        (Level.FAIL, "Lambda offers no MicroVMs in us-east-1"),
        (Level.OK, f"MicroVMs: default quotas ({microvms._QUOTAS_PAGE})"),
    ]


def test_a_missing_right_is_told_from_a_missing_service(account: Account) -> None:
    error = ("list_managed_microvm_image_versions", "AccessDeniedException", "User is not authorized")
    account.stubs["lambda-microvms"].add_client_error(*error)
    account.stubs["service-quotas"].add_response("list_service_quotas", {"Quotas": []})
    assert account.findings()[0].level == Level.WARN


@pytest.mark.parametrize(
    ("state", "level"),
    [("AVAILABLE", Level.OK), ("DEPRECATED", Level.WARN), ("EXPIRING", Level.FAIL), ("EXPIRED", Level.FAIL), ("RECALLED", Level.FAIL)],
)
def test_a_pinned_base_image_is_looked_at(account: Account, state: str, level: Level) -> None:
    account.has(v1=state, v2="AVAILABLE")
    found = account.findings(microvm_base_version="1")[0]
    assert (found.level, found.what) == (level, f"MicroVMs: version 1 of the base image is {state}")


def test_little_room_is_said(account: Account) -> None:
    account.has(gigabytes=8, v1="AVAILABLE")
    assert account.findings()[1].level == Level.WARN
