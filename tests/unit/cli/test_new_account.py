"""What an account lacks for its first deploy, by botocore's own models."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from moorage.cli.checks import new_account
from moorage.cli.checks.findings import Finding, Level

ROLE = {
    "Role": {
        "Path": "/",
        "RoleName": "AWSServiceRoleForECS",
        "RoleId": "AROA0123456789ABCDEF",
        "Arn": "arn:aws:iam::1:role/ecs-role-x",
        "CreateDate": 0,
    }
}
ARM = "Concurrently running builds for ARM/Small environment"


class Account:
    def __init__(self) -> None:
        options: Any = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        options["config"] = Config(retries={"total_max_attempts": 1})
        self.clients = {name: boto3.client(name, **options) for name in ("service-quotas", "iam", "ec2", "s3vectors")}
        self.stubs = {name: Stubber(client) for name, client in self.clients.items()}

    def has(self, *, builds: float | None = 1, role: bool = True, zones: tuple[str, ...] = ("us-east-1a",)) -> None:
        quotas = [{"QuotaName": "Concurrently running builds for Linux/Small environment", "Value": 0.0}]
        quotas += [] if builds is None else [{"QuotaName": ARM, "Value": builds}]
        self.stubs["service-quotas"].add_response("list_service_quotas", {"Quotas": quotas})
        if role:
            self.stubs["iam"].add_response("get_role", ROLE)
        else:
            self.stubs["iam"].add_client_error("get_role", "NoSuchEntity")
        named = [{"ZoneName": f"us-east-1{letter}", "State": "available"} for letter in "ba"]
        self.stubs["ec2"].add_response("describe_availability_zones", {"AvailabilityZones": named})
        self.stubs["ec2"].add_response("describe_vpc_endpoint_services", {"ServiceDetails": [{"AvailabilityZones": list(zones)}]})

    def findings(self, **settings: Any) -> list[Finding]:
        return list(new_account.findings(self.clients.__getitem__, settings, "us-east-1"))


@pytest.fixture
def account() -> Iterator[Account]:
    account = Account()
    for stub in account.stubs.values():
        stub.activate()
    yield account
    for client in account.clients.values():
        client.close()


def test_an_account_that_has_everything_is_found_good(account: Account) -> None:
    account.has()
    assert [(finding.level, finding.what) for finding in account.findings()] == [
        (Level.OK, "CodeBuild: 1 small ARM builds at once"),
        (Level.OK, "ECS has its role"),
        (Level.OK, "the zone us-east-1a has endpoints for image pulls"),
    ]


BUILDS, ROLES, ZONES = "CodeBuild: 1 small ARM builds at once", "ECS has its role", "the zone us-east-1a has endpoints for image pulls"
NEEDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no sandboxes": ({"provisioner": "none", "allowed_egress_domains": ["*"]}, []),
    "an image that is there": ({"sandbox_image": "registry.example/sandbox"}, [ROLES, ZONES]),
    "an image that is there, and a browser": ({"sandbox_image": "registry.example/sandbox", "computer": True}, [BUILDS, ROLES, ZONES]),
    "MicroVMs": ({"provisioner": "lambda_microvm"}, [BUILDS]),
    "MicroVMs with a proxy": ({"provisioner": "lambda_microvm", "allowed_egress_domains": ["a.example"]}, [BUILDS, ROLES]),
    "both": ({"provisioner": {"1g": "lambda_microvm", "16g": "fargate"}}, [BUILDS, ROLES, ZONES]),
    "an owner's network": ({"vpc": {"id": "vpc-0123456789abcdef0"}}, [BUILDS, ROLES]),
}


@pytest.mark.parametrize(("settings", "found"), NEEDS.values(), ids=NEEDS.keys())
def test_only_what_the_settings_need_is_asked_for(settings: dict[str, Any], found: list[str], account: Account) -> None:
    account.has()
    assert [finding.what for finding in account.findings(**settings)] == found


LACKS: dict[str, tuple[dict[str, Any], int, Level, str]] = {
    "room for a build": ({"builds": 0}, 0, Level.FAIL, "set sandbox_image"),
    "a cluster ever": ({"role": False}, 1, Level.FAIL, "create-service-linked-role --aws-service-name ecs.amazonaws.com"),
    "an endpoint in the first zone": ({"zones": ("us-east-1b",)}, 2, Level.WARN, "Deploy to another region"),
}


@pytest.mark.parametrize(("lack", "number", "level", "advice"), LACKS.values(), ids=LACKS.keys())
def test_what_is_missing_is_said_with_what_to_do(
    lack: dict[str, Any], number: int, level: Level, advice: str, account: Account
) -> None:
    account.has(**lack)
    found = account.findings()
    assert found[number].level is level
    assert advice in found[number].advice
    assert all(finding.level is Level.OK for index, finding in enumerate(found) if index != number)


def test_s3_vectors_is_asked_where_there_is_to_be_a_vector_bucket(account: Account) -> None:
    account.has()
    account.stubs["s3vectors"].add_response("list_vector_buckets", {"vectorBuckets": []}, {"maxResults": 1})
    assert account.findings(vector_bucket=True)[-1] == Finding(Level.OK, "S3 Vectors answers", "")


def test_a_region_without_s3_vectors_is_told_before_the_deploy(account: Account) -> None:
    account.has()
    service = account.clients["s3vectors"]

    def nowhere(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url=service.meta.endpoint_url)

    service.meta.events.register("before-send.s3vectors", nowhere)
    account.stubs["s3vectors"].deactivate()
    found = account.findings(vector_bucket=True)[-1]
    assert (found.level, found.what) == (Level.FAIL, "S3 Vectors does not answer in us-east-1")
    assert "Turn vector_bucket off" in found.advice


def test_quotas_that_nobody_has_changed_are_the_defaults(account: Account) -> None:
    account.has(builds=None)
    assert account.findings()[0].what == "CodeBuild: default quotas"


def test_a_check_that_may_not_be_made_is_a_warning(account: Account) -> None:
    account.stubs["service-quotas"].add_client_error("list_service_quotas", "AccessDeniedException")
    account.stubs["iam"].add_client_error("get_role", "AccessDenied")
    account.stubs["ec2"].add_client_error("describe_availability_zones", "UnauthorizedOperation")
    assert [finding.level for finding in account.findings()] == [Level.WARN] * 3
