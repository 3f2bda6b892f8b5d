"""A MicroVM that no record names is ended by its id, within six minutes; one that a record names never is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from moorage.errors import SandboxStarting
from moorage.sandbox.lambda_microvm import LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.lost_microvms import LostMicrovms
from moorage.sandbox.provisioner import SandboxSpec
from moorage.store import keys

from tests.unit.aws.microvm_service import STARTED_AT, FakeMicrovms, Refused
from tests.unit.store.memory import MemoryTable

IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage"
CLOSED = "arn:aws:lambda:us-east-1:000000000000:network-connector:closed"
MINUTE = 60


class World:
    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.service, self.table, self.now = FakeMicrovms(), MemoryTable(), float(STARTED_AT)
        self.service.images[IMAGE] = CLOSED
        self.service.tags[IMAGE] = {"moorage:deployment": "moorage"}
        settings = MicrovmSettings({1: IMAGE, 4: IMAGE}, CLOSED, "moorage")
        self.provisioner = LambdaMicrovmProvisioner(self.service.client, lambda: self.service.core, settings, executor)
        self.lost = LostMicrovms(self.table, self.provisioner, lambda: self.now)

    async def vm(self, name: str) -> str:
        """Start a container's VM, as a starter does that dies before it notes which one it is."""
        with pytest.raises(SandboxStarting):
            await self.provisioner.start(SandboxSpec("acme", f"cntr_{name}", name * 40))
        vm_id = list(self.service.vms)[-1]
        self.service.becomes("SUSPENDED", vm_id)
        return vm_id

    async def note(self, name: str, vm_id: str) -> None:
        pk = keys.container("acme", f"cntr_{name}")
        due = keys.due(int(self.now) + 20 * MINUTE, f"cntr_{name}")
        await self.table.put({"PK": pk, "SK": keys.life(1), "GSI1PK": keys.ALIVE, "GSI1SK": due, "sandbox_id": vm_id})

    async def minutes(self, count: int) -> None:
        for _ in range(count):
            self.now += MINUTE
            await self.lost.stop_lost(await self.provisioner.running())

    def states(self) -> dict[str, str]:
        return {vm_id: vm["state"] for vm_id, vm in self.service.vms.items()}

    def notes(self) -> list[str]:
        return [sk for pk, sk in self.table.records if pk == keys.LOST_MICROVMS]


@pytest.fixture
def world() -> Iterator[World]:
    with ThreadPoolExecutor(1) as executor:
        world = World(executor)
        yield world
        world.service.close()


async def test_lost_vms_are_ended_within_six_minutes_and_noted_ones_live(world: World) -> None:
    lost = [await world.vm(name) for name in "abcd"]
    mine = await world.vm("e")
    await world.note("e", mine)
    await world.minutes(4)
    assert world.states() == dict.fromkeys([*lost, mine], "SUSPENDED")
    await world.minutes(2)
    assert world.states() == dict.fromkeys(lost, "TERMINATED") | {mine: "SUSPENDED"}
    assert world.notes() == []
    await world.minutes(60)
    assert world.states()[mine] == "SUSPENDED"


async def test_looking_for_lost_vms_wakes_none(world: World) -> None:
    await world.note("a", await world.vm("a"))
    await world.minutes(10)
    assert set(world.service.calls) == {"RunMicrovm", "GetMicrovm", "ListTags", "ListMicrovms"}


async def test_a_vm_whose_record_is_missed_once_lives(world: World) -> None:
    vm_id = await world.vm("a")
    await world.note("a", vm_id)
    await world.minutes(10)
    await world.table.delete(keys.container("acme", "cntr_a"), keys.life(1))
    await world.minutes(1)
    assert world.notes() == [vm_id]
    await world.note("a", vm_id)
    await world.minutes(10)
    assert (world.states(), world.notes()) == ({vm_id: "SUSPENDED"}, [])


@pytest.mark.parametrize("tags", [{}, {"moorage:deployment": "another"}])
async def test_vms_of_an_image_that_may_be_anothers_are_left_alone(world: World, tags: dict[str, str]) -> None:
    world.service.tags[IMAGE] = tags
    vm_id = await world.vm("a")
    await world.minutes(10)
    assert world.states() == {vm_id: "SUSPENDED"}


async def test_a_lost_vm_that_cannot_be_ended_now_is_ended_at_the_next_look(world: World) -> None:
    vm_id = await world.vm("a")
    await world.minutes(4)
    world.service.faults.append(("TerminateMicrovm", Refused("ThrottlingException")))
    await world.minutes(1)
    assert world.states() == {vm_id: "SUSPENDED"}
    await world.minutes(1)
    assert world.states() == {vm_id: "TERMINATED"}


async def test_one_that_aws_does_not_let_end_keeps_no_other_from_its_end(world: World) -> None:
    await world.vm("a")
    await world.vm("b")
    await world.minutes(4)
    world.service.faults.append(("TerminateMicrovm", Refused("AccessDeniedException")))
    await world.minutes(1)
    assert sorted(world.states().values()) == ["SUSPENDED", "TERMINATED"]
    assert len(world.notes()) == 1
    await world.minutes(1)
    assert set(world.states().values()) == {"TERMINATED"}
