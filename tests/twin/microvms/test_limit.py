"""AWS ends a machine after eight hours, asleep or awake: it is replaced before, its commands are warned, and files are kept."""

from collections.abc import Iterator

import pytest
from moorage import limits
from moorage.sandbox.lambda_microvm import LIFE_SECONDS
from openai.types.responses import Response

from tests.processes import until
from tests.stack import Stack, outputs
from tests.twin.microvms.service import MicrovmTwin
from tests.twin.microvms.test_life import ask, container_of, vm_of


@pytest.fixture
def aging(twin: MicrovmTwin) -> Iterator[MicrovmTwin]:
    """A twin whose age of new machines a test sets."""
    yield twin
    twin.age_seconds = 0


def test_a_machine_in_its_last_half_hour_is_replaced_by_the_next_use(stack: Stack, aging: MicrovmTwin) -> None:
    aging.age_seconds = LIFE_SECONDS - limits.SANDBOX_REPLACED_SECONDS + 60
    first = ask(stack, "echo kept > note.txt; echo on")
    aging.age_seconds = 0
    second = ask(stack, "cat note.txt", previous_response_id=first.id)
    assert_revived(second)
    assert container_of(second) == container_of(first)
    until(lambda: len(alive_of(aging, stack, first.id)) == 1)


def assert_revived(response: Response) -> None:
    """It has read the kept file, and the model is told that processes are gone."""
    ((said, errors, code),) = outputs(response.output)[0]
    assert (said, "started again since it was last used" in errors, code) == ("kept\n", True, 0)


def alive_of(twin: MicrovmTwin, stack: Stack, response_id: str) -> list[str]:
    """Of the machines of its container that live."""
    container_id = container_of(stack.client().responses.retrieve(response_id))
    of_it = {
        str(each["sandbox_id"])
        for each in stack.records()
        if each["SK"].startswith("LIFE#") and each.get("container_id") == container_id
    }
    return [vm_id for vm_id in twin.alive() if vm_id in of_it]


def test_a_command_is_warned_and_ends_before_its_machine_and_its_files_are_kept(stack: Stack, aging: MicrovmTwin) -> None:
    aging.age_seconds = LIFE_SECONDS - limits.SANDBOX_LAST_SECONDS - 20
    first = ask(stack, "echo kept > note.txt; echo begun; sleep 100; echo late")
    ((said, errors, code),) = outputs(first.output)[0]
    assert said.startswith("begun\n")
    assert "late" not in said
    assert code != 0
    assert "has reached its greatest age and ends within" in said + errors + first.model_dump_json()
    aging.age_seconds = 0
    assert_revived(ask(stack, "cat note.txt", previous_response_id=first.id))


def test_a_machine_that_aws_ends_in_its_sleep_leaves_its_container_with_its_files(stack: Stack, aging: MicrovmTwin) -> None:
    first = ask(stack, "echo kept > note.txt; echo on")
    vm_id, ends = vm_of(stack, first), aging.happened["old age"]
    aging.sleep(vm_id)
    aging.grow_old(vm_id, 0)
    until(lambda: aging.vms[vm_id]["state"] == "TERMINATED")
    assert aging.happened["old age"] == ends + 1
    assert_revived(ask(stack, "cat note.txt", previous_response_id=first.id))
