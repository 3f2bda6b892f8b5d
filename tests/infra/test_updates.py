"""Pairs of templates: what an update does to a deployment that stands (``updates.py``).

The pairs here are of templates that other tests have made already. ``each_setting.py`` goes through all settings one by one.
"""

import gzip
import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.infra import updates
from tests.infra.conftest import COMPANY, EVERYTHING, MICROVMS, Stacks, shared
from tests.infra.updates import Update, beyond, faults

RELEASED = Path(__file__).with_name("snapshots") / "released.json.gz"
"""Templates of the last release, as CloudFormation has them: ``pytest tests/infra/test_updates.py --record-release``."""

OTHERS: dict[str, dict[str, Any]] = {
    "no sandboxes": {"provisioner": "none"},
    "canary": {"rollout": "canary", "table_read_units": 10, "table_write_units": 5, "drain": True},
    "MicroVMs": {"rollout": "linear", **MICROVMS},
    "egress": {"allowed_egress_domains": ["pkg.example.com"]},
    "customer key": {"customer_managed_key": True},
    "given key": {"kms_key_arn": COMPANY["kms_key_arn"]},
    "another image": {"image_edition": "2026-12"},
    "other packages": {"bundle_for": "host"},
}
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


@pytest.mark.parametrize("name", ["everything", *OTHERS])
def test_settings_go_on_and_off_on_a_deployment_that_stands(
    name: str, stacks: Stacks, everything: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = OTHERS.get(name, EVERYTHING)
    with_it = shared(settings, tmp_path_factory) if name in OTHERS else everything
    # Without sandboxes, what they run in ends when the setting comes, and not when it goes.
    assert beyond(faults(Update(stacks, with_it)), {"provisioner", "kms_key_arn"} & settings.keys()) == []
    assert beyond(faults(Update(with_it, stacks)), settings) == []


@pytest.mark.parametrize("known", [ZONES, ZONES[:2]], ids=["three zones", "two zones"])
def test_zones_are_added_and_removed(known: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    """In an account whose zones the CDK knows, in a region that has as many as are wanted, and in one that has not."""
    by_zones = [shared(zones(wanted), tmp_path_factory, zones=known) for wanted in (1, 2, 3)]
    assert [len(each.of_type("AWS::EC2::Subnet")) for each in by_zones] == [3 * min(wanted, len(known)) for wanted in (1, 2, 3)]
    for before, after in permutations(by_zones, 2):
        assert beyond(faults(Update(before, after)), ["availability_zones"]) == []


def zones(wanted: int) -> dict[str, Any]:
    """With both networks."""
    return {**OTHERS["egress"], "availability_zones": wanted}


def test_the_last_release_is_followed_by_this_one(stacks: Stacks, everything: Stacks, pytestconfig: pytest.Config) -> None:
    present = {"default": stacks, "everything": everything}
    if pytestconfig.getoption("record_release"):
        text = json.dumps({name: [each.state, each.service] for name, each in present.items()}, sort_keys=True)
        RELEASED.write_bytes(gzip.compress(text.encode(), mtime=0))
    released = json.loads(gzip.decompress(RELEASED.read_bytes()))
    for name, (state, service) in released.items():
        assert faults(Update(Stacks(state, service, []), present[name])) == []


def test_another_recipient_of_alarms_is_told(everything: Stacks) -> None:
    other = json.loads(json.dumps(everything.service).replace("owner@example.com", "other@example.com"))
    assert faults(Update(everything, Stacks(everything.state, other, []))) == []


def test_another_image_publishes_the_functions_that_start_sandboxes_anew(
    stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sandboxes that wait ready with the old image are replaced because the functions are told of the new one."""
    after = shared(OTHERS["another image"], tmp_path_factory)
    assert len(Update(stacks, after).replaced) == 4
    starting = ("ModelStep", "Containers")
    before, now = ({n for n in each.of_type("AWS::Lambda::Version") if any(s in n for s in starting)} for each in (stacks, after))
    assert len(before) == len(now) == 2
    assert before.isdisjoint(now)


# --- What this would have found ---

Change = Callable[[str, dict[str, Any]], None]


def changed(stacks: Stacks, change: Change) -> Stacks:
    state, service = (json.loads(json.dumps(each)) for each in (stacks.state, stacks.service))
    for template in (state, service):
        for name, resource in template["Resources"].items():
            change(name, resource)
    return Stacks(state, service, [])


def with_revisions(stacks: Stacks) -> Stacks:
    """Functions that know a task definition by its revision, and policies that do."""
    (task,) = [name for name in stacks.of_type("AWS::ECS::TaskDefinition") if name.startswith("SandboxTask1g")]

    def change(_: str, resource: dict[str, Any]) -> None:
        variables = resource["Properties"].get("Environment", {}) if resource["Type"] == "AWS::Lambda::Function" else {}
        if "MOORAGE_FARGATE_TASK_DEFINITION_1G" in variables.get("Variables", {}):
            variables["Variables"]["MOORAGE_FARGATE_TASK_DEFINITION_1G"] = {"Ref": task}
        if resource["Type"] == "AWS::IAM::Policy":
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                if statement["Action"] == "ecs:RunTask":
                    statement["Resource"] = [{"Ref": task}]

    return changed(stacks, change)


def test_an_image_that_strands_live_versions_would_have_been_found(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> None:
    before, after = (with_revisions(each) for each in (stacks, shared(OTHERS["another image"], tmp_path_factory)))
    update = Update(before, after)
    assert {line.split(":")[0] for line in updates.versions_broken(update)} >= {"ModelStep", "Responses", "Containers", "IndexStep"}
    denied = [line for line in updates.versions_denied(update) if "ecs:RunTask" in line]
    assert {line.split()[0] for line in denied} == {"ModelStep", "Responses", "Containers", "IndexStep"}
    assert all(line.endswith("task-definition/moorage-sandbox-1g:1") for line in denied)


def test_versions_that_go_on_with_the_old_image_would_have_been_found(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Before variables told of the image, its update changed no function's text."""
    after = shared(OTHERS["another image"], tmp_path_factory)
    old, new = (set(each.of_type("AWS::Lambda::Version")) for each in (stacks, after))
    resources = {name: resource for name, resource in after.service["Resources"].items() if name not in new}
    service = {"Resources": resources | {name: stacks.service["Resources"][name] for name in old}}
    stale = updates.versions_stale(Update(with_revisions(stacks), with_revisions(Stacks(after.state, service, []))))
    assert {line.split()[0] for line in stale} >= {"ModelStep", "Responses", "Containers", "IndexStep"}


def test_zones_without_addresses_of_their_own_would_have_been_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As the CDK deals out addresses where none are reserved."""
    one, two = (shared(zones(wanted), tmp_path_factory, zones=ZONES) for wanted in (1, 2))

    def in_order(number: int) -> Change:
        def change(name: str, resource: dict[str, Any]) -> None:
            if resource["Type"] == "AWS::EC2::Subnet" and "functionsSubnet1" in name:
                resource["Properties"]["CidrBlock"] = f"10.42.{16 * number}.0/24"

        return change

    update = Update(changed(one, in_order(1)), changed(two, in_order(2)))
    (conflict,) = updates.subnets_overlap(update)
    assert [word for word in conflict.split() if "/" in word] == ["10.42.16.0/20", "10.42.16.0/24"]
    assert [line for line in updates.lost(update) if "functionsSubnet1" in line and line.endswith("is made anew")]


@pytest.mark.parametrize("kind", ["AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::StepFunctions::StateMachine"])
def test_data_and_executions_that_are_made_anew_would_have_been_found(kind: str, stacks: Stacks) -> None:
    name = {"AWS::DynamoDB::Table": "TableName", "AWS::S3::Bucket": "BucketName"}.get(kind, "StateMachineName")

    def rename(_: str, resource: dict[str, Any]) -> None:
        if resource["Type"] == kind:
            resource["Properties"][name] = "another-name"

    found = updates.lost(Update(stacks, changed(stacks, rename)))
    assert found
    assert all(line.endswith("is made anew") for line in found)


def test_a_name_that_is_taken_would_have_been_found(everything: Stacks) -> None:
    """A budget is made anew for another recipient, and had a name of its own."""

    def named(address: str) -> Change:
        def change(_: str, resource: dict[str, Any]) -> None:
            if resource["Type"] == "AWS::Budgets::Budget":
                resource["Properties"]["Budget"]["BudgetName"] = "moorage"
                resource["Properties"]["NotificationsWithSubscribers"][0]["Subscribers"][0]["Address"] = address

        return change

    found = faults(Update(changed(everything, named("a@example.com")), changed(everything, named("b@example.com"))))
    (name,) = everything.of_type("AWS::Budgets::Budget")
    assert found == [f"{name} is made while {name} has its name"]
