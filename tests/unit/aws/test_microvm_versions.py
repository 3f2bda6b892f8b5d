"""Old versions of a MicroVM image are deleted, but for those that a machine runs or that a function may still start."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from moorage.errors import SandboxStarting
from moorage.sandbox.lambda_microvm import LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.microvm_versions import MicrovmVersions
from moorage.sandbox.provisioner import SandboxSpec

from tests.unit.aws.microvm_service import STARTED_AT, FakeMicrovms, Refused

IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage"
CLOSED = "arn:aws:lambda:us-east-1:000000000000:network-connector:closed"
HOUR, DAY = 3_600, 86_400


class World:
    """A deployment of which six images were made, a day apart, and whose functions start the newest."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.service, self.now, self.executor = FakeMicrovms(), float(STARTED_AT), executor
        self.service.images[IMAGE] = CLOSED
        self.service.tags[IMAGE] = {"moorage:deployment": "moorage"}
        for number in range(1, 7):
            self.service.builds(IMAGE, f"{number}.0", self.now - (6 - number) * DAY)
        self.provisioner = self.of("6.0")
        self.versions = MicrovmVersions(self.provisioner, ["6.0"], lambda: self.now)

    def of(self, version: str) -> LambdaMicrovmProvisioner:
        settings = MicrovmSettings({1: IMAGE}, CLOSED, "moorage", {1: version})
        return LambdaMicrovmProvisioner(self.service.client, lambda: self.service.core, settings, self.executor)

    async def vm(self, version: str, state: str) -> str:
        """A machine that a function of an earlier deployment has started."""
        with pytest.raises(SandboxStarting):
            await self.of(version).start(SandboxSpec("acme", f"cntr_{version}", version[0] * 40))
        vm_id = list(self.service.vms)[-1]
        self.service.becomes(state, vm_id)
        return vm_id

    async def hours(self, count: int) -> None:
        for _ in range(count):
            self.now += HOUR
            await self.versions.prune(await self.provisioner.running())

    def left(self) -> list[str]:
        return list(self.service.versions[IMAGE])


@pytest.fixture
def world() -> Iterator[World]:
    with ThreadPoolExecutor(1) as executor:
        world = World(executor)
        yield world
        world.service.close()


async def test_the_newest_versions_stay_and_older_ones_go_one_an_hour(world: World) -> None:
    await world.hours(1)
    assert world.left() == ["2.0", "3.0", "4.0", "5.0", "6.0"]
    await world.hours(10)
    assert world.left() == ["4.0", "5.0", "6.0"]


async def test_a_look_within_the_hour_asks_nothing(world: World) -> None:
    await world.hours(1)
    world.service.calls.clear()
    world.now += HOUR - 1
    assert await world.versions.prune([]) == 0
    assert world.service.calls == []


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUSPENDING", "SUSPENDED"])
async def test_a_version_that_a_machine_runs_stays_until_the_machine_has_ended(world: World, state: str) -> None:
    vm_id = await world.vm("2.0", state)
    await world.hours(10)
    assert world.left() == ["2.0", "4.0", "5.0", "6.0"]
    world.service.becomes("TERMINATED", vm_id)
    await world.hours(1)
    assert world.left() == ["4.0", "5.0", "6.0"]


async def test_versions_that_were_the_newest_a_day_ago_stay(world: World) -> None:
    """Executions of functions that name one may run on, and a container's next machine is of that version."""
    for number in range(7, 10):
        world.service.builds(IMAGE, f"{number}.0", world.now)
    await world.hours(10)
    assert world.left() == ["5.0", "6.0", "7.0", "8.0", "9.0"]
    await world.hours(20)
    assert world.left() == ["6.0", "7.0", "8.0", "9.0"], "the functions name 6.0: the deployment of the others was rolled back"


async def test_a_version_whose_build_failed_counts_for_nothing_and_goes_after_a_day(world: World) -> None:
    for number in range(7, 10):
        world.service.builds(IMAGE, f"{number}.0", world.now, "FAILED")
    await world.hours(10)
    assert world.left() == ["4.0", "5.0", "6.0", "7.0", "8.0", "9.0"]
    await world.hours(20)
    assert world.left() == ["4.0", "5.0", "6.0"]


@pytest.mark.parametrize("code", ["ConflictException", "ThrottlingException", "AccessDeniedException"])
async def test_a_version_that_aws_does_not_let_go_is_asked_for_at_the_next_look(world: World, code: str) -> None:
    """A deployment changes the image just now, for example."""
    world.service.faults.append(("DeleteMicrovmImageVersion", Refused(code)))
    await world.hours(1)
    assert len(world.left()) == 6
    await world.hours(1)
    assert world.left() == ["2.0", "3.0", "4.0", "5.0", "6.0"]


async def test_versions_of_an_image_that_may_be_anothers_stay(world: World) -> None:
    world.service.tags[IMAGE] = {}
    await world.hours(10)
    assert len(world.left()) == 6
