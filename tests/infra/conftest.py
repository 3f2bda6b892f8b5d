"""The synthesised templates, made once per session. Synthesis needs Node; without it these tests are skipped and say so."""

import copy
import fcntl
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.infra import synthesis
from tests.infra.synthesis import Done, context_of

ROOT = Path(__file__).resolve().parents[2]
DEFAULT: dict[str, Any] = {}
EVERYTHING = {
    "allowed_egress_domains": ["pkg.example.com", "*.files.example.com"],
    "alarm_email": "owner@example.com",
    "audit_retention_days": 365,
    "availability_zones": 2,
    "certificate_arn": "arn:aws:acm:us-east-1:000000000000:certificate/00000000-0000-0000-0000-000000000000",
    "computer": True,
    "cors_origins": ["https://app.example.com", "https://desk.example.com:8443"],
    "customer_managed_key": True,
    "domain_name": "api.example.com",
    "dual_stack": True,
    "image_edition": "2026-12",
    "monthly_budget": 200,
    "npm_mirror": "https://npm.example.com",
    "oidc": {
        "issuer": "https://login.example.com",
        "audience": "https://api.example.com",
        "tenants": ["acme", "other"],
        "tenant_claim": "custom:tenant",
        "role_claim": "cognito:groups",
        "roles": {"platform": "admin", "staff": "member", "auditors": "reader"},
        "client_id": "console",
        "client_secret": "arn:aws:secretsmanager:us-east-1:000000000000:secret:oidc-Ab12Cd",
        "console_url": "https://api.example.com/console/",
        "scopes": "openid",
    },
    "otlp_endpoint": "https://otlp.example.com",
    "otlp_headers_secret": "arn:aws:secretsmanager:us-east-1:000000000000:secret:otlp-Ab12Cd",
    "provisioned_concurrency": 2,
    "python_mirror": "https://python.example.com/simple",
    "sandbox_logs": True,
    "sandboxes_alarm": 100,
    "tls_minimum": "1.2",
    "usage_plans": {"research": {"requests_per_second": 5, "request_burst": 10, "requests_per_day": 1000}},
    "vector_bucket": True,
    "waf": True,
    "warm_pool": ["1g:2"],
    "websocket": True,
    "websocket_certificate_arn": "arn:aws:acm:us-east-1:000000000000:certificate/00000000-0000-0000-0000-000000000001",
    "websocket_domain_name": "socket.example.com",
}
"""Every option that adds resources, and another edition of the images."""
GIVEN_VPC: dict[str, Any] = {
    "id": "vpc-0123456789abcdef0",
    "sandbox_subnets": ["subnet-0000000000000000a", "subnet-0000000000000000b"],
    "function_subnets": ["subnet-0000000000000000c"],
    "endpoint_group": "sg-0000000000000000e",
}
GIVEN_GROUPS: dict[str, Any] = {"sandbox_group": "sg-0000000000000001a", "function_group": "sg-0000000000000001b"}
COMPANY: dict[str, Any] = {
    **{
        name: value
        for name, value in EVERYTHING.items()
        if name not in ("alarm_email", "availability_zones", "customer_managed_key", "waf")
    },
    "alarm_topic_arn": "arn:aws:sns:us-east-1:111122223333:pages",
    "kms_key_arn": "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000",
    "tags": {"CostCenter": "4711", "owner": "platform@example.com"},
    "vpc": {**GIVEN_VPC, "proxy_subnets": ["subnet-0000000000000000d"]},
    "waf_acl_arn": "arn:aws:wafv2:us-east-1:111122223333:regional/webacl/central/00000000-0000-0000-0000-000000000000",
}
"""Every option, with what a company has already in the place of what the deployment would make."""
MICROVMS: dict[str, Any] = {"provisioner": "lambda_microvm"}
BOTH: dict[str, Any] = {"provisioner": {"1g": "lambda_microvm", "16g": "fargate"}, "allowed_egress_domains": ["pkg.example.com"]}
"""MicroVMs and Fargate by memory tier."""
MICROVM_VPC: dict[str, Any] = {name: GIVEN_VPC[name] for name in ("id", "sandbox_subnets")}
PRIVATE: dict[str, Any] = {"private_api": ["vpce-0123456789abcdef0", "vpce-0123456789abcdef1"]}
NAMED: dict[str, Any] = {name: EVERYTHING[name] for name in ("domain_name", "certificate_arn")}


@dataclass(frozen=True)
class Stacks:
    """Both templates, and what cdk-nag found in them."""

    state: dict[str, Any]
    service: dict[str, Any]
    findings: list[str]

    @property
    def resources(self) -> dict[str, Any]:
        return {**self.state["Resources"], **self.service["Resources"]}

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties by logical id."""
        return {name: r.get("Properties", {}) for name, r in self.resources.items() if r["Type"] == kind}

    def one(self, kind: str, containing: str = "") -> dict[str, Any]:
        """The properties of the only resource of a kind whose logical id contains some text."""
        (found,) = [p for name, p in self.of_type(kind).items() if containing in name]
        return found

    def function(self, name: str) -> dict[str, Any]:
        (found,) = [f for key, f in self.of_type("AWS::Lambda::Function").items() if key.startswith(f"Functions{name}")]
        return found


ACCOUNT = "111122223333"


def synthesise(settings: dict[str, Any], output: Path, *, zones: tuple[str, ...] = ()) -> Done:
    """Without bundling: packages are another test's matter. ``zones`` are those of an account that is known; without, the CDK counts
    on two."""
    known = {f"availability-zones:account={ACCOUNT}:region={synthesis.REGION}": list(zones)} if zones else {}
    context = context_of(settings, **{"aws:cdk:bundling-stacks": []}, **known)
    return synthesis.synthesise(context, output, account=ACCOUNT if zones else None)


def synthesise_in(region: str, output: Path) -> Stacks:
    """The default deployment of another region."""
    done = synthesis.synthesise(context_of(DEFAULT, **{"aws:cdk:bundling-stacks": []}), output, region)
    assert done.returncode == 0, done.stderr[-4000:]
    return load(output)


def load(output: Path, deployment: str = "moorage") -> Stacks:
    findings = _findings(json.loads((output / "validation-report.json").read_text()))
    state, service = (json.loads((output / f"{name}.template.json").read_text()) for name in (f"{deployment}-state", deployment))
    return Stacks(state, service, findings)


def _findings(report: dict[str, Any]) -> list[str]:
    return [
        f"{violation['ruleName']} at {', '.join(c.get('constructPath', '?') for c in violation['violatingConstructs'])}"
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-templates", action="store_true", help="write the templates that tests/infra compares with")
    parser.addoption("--record-release", action="store_true", help="write those that a deployment of the last release has")


@pytest.fixture(scope="session", autouse=True)
def _node() -> None:
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: the CDK app cannot be synthesised here.")


def shared(settings: dict[str, Any], factory: pytest.TempPathFactory, *, zones: tuple[str, ...] = ()) -> Stacks:
    """The deployment of these settings, made once in a run. Other workers wait for it."""
    base = factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    output = run / f"assembly-{hashlib.sha256(json.dumps([settings, zones], sort_keys=True).encode()).hexdigest()[:16]}"
    with Path(f"{output}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(f"{output}.done").exists():
            done = synthesise(settings, output, zones=zones)
            assert done.returncode == 0, done.stderr[-4000:]
            Path(f"{output}.done").touch()
    return load(output)


@pytest.fixture(scope="session")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """The default deployment."""
    return shared(DEFAULT, tmp_path_factory)


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """A deployment with every option turned on."""
    return shared(EVERYTHING, tmp_path_factory)


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """A deployment with every option, on a company's own key, topic and web ACL."""
    return shared(COMPANY, tmp_path_factory)


def masked(template: dict[str, Any]) -> str:
    """A template without what every change of code changes: hashes of assets, and the loop's definition (it has its own file)."""
    template = copy.deepcopy(template)  # The one that is given is shared by all tests.
    for resource in template["Resources"].values():
        if "DefinitionString" in resource.get("Properties", {}):
            resource["Properties"]["DefinitionString"] = "agent_loop.asl.json"
    text = json.dumps(template, indent=1, sort_keys=True)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<hash>", text)
    text = re.sub(r'(:|"(?:Tag|MOORAGE_FARGATE_IMAGE)": ")[0-9a-f]{16}(?:-[0-9a-f]{16})?"', r'\1<hash>"', text)
    text = re.sub(r"(ApiRestApiDeployment[0-9A-F]{8})[0-9a-f]{32}", r"\1<hash>", text)
    return re.sub(r"(Functions(?:Dependencies|Core|\w+CurrentVersion)[0-9A-F]{8})[0-9a-f]{10,64}", r"\1<hash>", text)
