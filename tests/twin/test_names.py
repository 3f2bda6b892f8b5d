"""What functions in the sandboxes' network dial, in every region, passes the DNS firewall, the routes and the endpoints' policies.

The names come from the product's own clients (``names.py``), and what is asked of each service from the recorded calls.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra.app import check_region
from tests.infra.conftest import masked, synthesise_in
from tests.twin import calls
from tests.twin.calls import checks, own_name
from tests.twin.names import SERVICES, Names, dialled
from tests.twin.network import NetworkTwin, Place, Service
from tests.twin.template import ACCOUNT, REGION, Template

REGIONS = boto3.Session().get_available_regions("dynamodb", "aws")
GROUP = "NetworkFunctionGroup"
SUBNET = "NetworkVpcfunctionsSubnet"


def inside(template: Template) -> dict[str, dict[str, Any]]:
    """Variables of the functions in the network, by their own names."""
    functions = {own_name(name): each for name, each in template.of_type("AWS::Lambda::Function")}
    return {name: each["Environment"]["Variables"] for name, each in functions.items() if "VpcConfig" in each}


def told(template: Template, **more: str) -> dict[str, str]:
    """What clients are made by: variables of one of these functions, but for the file that lies beside its code."""
    (first, *others) = inside(template).values()
    assert all(each["MOORAGE_PROVISIONER"] == first["MOORAGE_PROVISIONER"] for each in others)
    return {**{name: value.strip("<>") for name, value in first.items() if name != "MOORAGE_SETTINGS_FILE"}, **more}


@pytest.fixture(scope="module")
def names(default: Template) -> Names:
    return dialled(told(default), REGIONS)


def refusals(template: Template, region: str, names: Names) -> list[str]:
    """What stands in the way of what these functions dial."""
    network, place = NetworkTwin(template.in_region(region)), Place(SUBNET, GROUP)
    dialled_names = [name for hosts in names[region].values() for name in hosts]
    found = [f"{name} is not answered for in {region}" for name in dialled_names if not network.resolves(name)]
    unreached = [service for service in names[region] if not network.connects(place, Service(service), 443)]
    found += [f"no way leads to {service} in {region}" for service in unreached]
    return found


def test_clients_dial_names_that_the_firewall_admits_in_every_region(default: Template, full: Template, names: Names) -> None:
    for region in REGIONS:
        check_region(region)
        for template in (default, full):
            assert refusals(template, region, names) == []
    assert {service: bool(hosts) for service, hosts in names["us-east-1"].items()} == dict.fromkeys(SERVICES, True)


def test_a_client_that_knows_its_account_dials_an_admitted_name(default: Template) -> None:
    """Of the table: https://docs.aws.amazon.com/sdkref/latest/guide/feature-account-endpoints.html"""
    named = dialled(told(default, AWS_ACCOUNT_ID=ACCOUNT), [REGION])
    assert named[REGION]["dynamodb"] == [f"{ACCOUNT}.ddb.{REGION}.amazonaws.com"]
    assert refusals(default, REGION, named) == []


def test_whatever_these_functions_ask_passes_the_endpoints_policies(default: Template, full: Template) -> None:
    for template in (default, full):
        network = NetworkTwin(template)
        on = {"table": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/moorage", "index": "*", "bucket": network.bucket}
        asked = {check for name in inside(template) for operation in calls.recorded()[name] for check in checks(operation)}
        assert {check.action.split(":")[0] for check in asked} == set(SERVICES)
        refused = [
            check
            for check in asked
            if not network.lets_through(check.action.split(":")[0], check.action, on.get(check.on, f"{network.bucket}/T/acme/file"))
        ]
        assert refused == []


def test_a_template_read_for_another_region_is_the_one_that_is_synthesised_there(default: Template, tmp_path: Path) -> None:
    """But for the hashes over the region's name in the ids of versions, the dashboard, and the price of a sandbox with its source."""

    def text(resources: Mapping[str, Any]) -> str:
        rest = {name: each for name, each in resources.items() if "Dashboard" not in each["Type"]}
        return re.sub(r'"MOORAGE_SANDBOX_PRICE[A-Z_]*": "[^"]*"', "", masked({"Resources": rest}))

    assert text(default.in_region("eu-west-1").resources) == text(synthesise_in("eu-west-1", tmp_path).resources)


# --- What this would have found ---


def test_the_global_name_of_s3_would_have_been_found(default: Template) -> None:
    """botocore's own default in us-east-1."""
    legacy = {REGION: {"s3": [boto3.client("s3", region_name=REGION).meta.endpoint_url.removeprefix("https://")]}}
    assert legacy == {REGION: {"s3": ["s3.amazonaws.com"]}}
    assert refusals(default, REGION, legacy) == [f"s3.amazonaws.com is not answered for in {REGION}"]
