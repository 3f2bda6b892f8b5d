"""Pairs of templates: what an update does to a deployment that stands.

CloudFormation makes what is new before it deletes what is old, and functions that were published before go on with their variables.
"""

import ipaddress
import json
from itertools import permutations
from typing import Any

import pytest

from tests.infra.conftest import EVERYTHING, Stacks, shared


def subnets(stacks: Stacks) -> dict[str, dict[str, Any]]:
    return stacks.of_type("AWS::EC2::Subnet")


@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["default", "everything"])
def test_zones_are_added_and_removed_without_a_conflict_of_subnets(
    settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """EC2 refuses a subnet whose addresses another one of the VPC has (InvalidSubnet.Conflict), also one that is about to go."""
    by_zones = [subnets(shared({**settings, "availability_zones": zones}, tmp_path_factory)) for zones in (1, 2, 3)]
    for before, after in permutations(by_zones, 2):
        made = {name: subnet for name, subnet in after.items() if before.get(name) != subnet}
        conflicts = [
            (name, other)
            for name, subnet in made.items()
            for other, standing in before.items()
            if subnet["VpcId"] == standing["VpcId"]
            and ipaddress.ip_network(subnet["CidrBlock"]).overlaps(ipaddress.ip_network(standing["CidrBlock"]))
        ]
        assert conflicts == []


def test_another_image_leaves_published_versions_able_to_start_sandboxes(
    stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An update deregisters the revision before it, and ECS starts no inactive revision
    (https://docs.aws.amazon.com/AmazonECS/latest/developerguide/deregister-task-definition-v2.html)."""
    after = shared({"image_edition": "2026-12"}, tmp_path_factory)
    replaced = {
        name
        for name, properties in stacks.of_type("AWS::ECS::TaskDefinition").items()
        if after.of_type("AWS::ECS::TaskDefinition")[name] != properties
    }
    assert len(replaced) == 4
    for each in (stacks, after):
        for kind in ("AWS::Lambda::Function", "AWS::IAM::Policy"):
            told = {name: json.dumps(properties) for name, properties in each.of_type(kind).items()}
            assert [name for name, text in told.items() for old in replaced if f'"{old}"' in text] == []


def test_another_image_publishes_the_functions_that_start_sandboxes_anew(
    stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sandboxes that wait ready with the old image are replaced because the functions are told of the new one."""
    after = shared({"image_edition": "2026-12"}, tmp_path_factory)
    starting = ("ModelStep", "Containers")
    before, now = ({n for n in each.of_type("AWS::Lambda::Version") if any(s in n for s in starting)} for each in (stacks, after))
    assert len(before) == len(now) == 2
    assert before.isdisjoint(now)
