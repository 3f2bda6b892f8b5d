"""MicroVMs for one memory tier and Fargate for another, in one deployment: each call runs where its container is reached, and each
sandbox is found, woken, stopped and reaped by who started it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.sandbox.by_tier import ByTierProvisioner, ProvisionersByTier
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.fargate import FargateProvisioner, FargateSettings
from moorage.sandbox.lambda_microvm import LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.provisioner import Handle
from moorage.sandbox.reach_only import ReachOnlyProvisioner
from moorage.state import LoopState
from moorage.store.responses import Ancestor, StoredResponse

from tests.simulation.clock import run
from tests.twin.deployment import AtOnce, Deployment, Shell, with_containers
from tests.twin.test_refused_minutes import asks_for
from tests.unit.aws.microvm_service import FakeMicrovms
from tests.unit.loop.lab import say
from tests.unit.resources.support import FakeSandbox

IMAGE, CLOSED = "arn:aws:lambda:us-east-1:1:microvm-image:moorage-{}", "arn:aws:lambda:us-east-1:1:network-connector:closed"
IDLE_SECONDS = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60


class Machines(FakeMicrovms):
    """On the clock of the deployment."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self.starts_as, self.images, self._now = "RUNNING", {IMAGE.format(tier): CLOSED for tier in ("1g", "4g", "16g")}, now

    def _RunMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        answer = super()._RunMicrovm(asked)
        self.vms[answer["microvmId"]]["startedAt"] = self._now()
        return answer


class Both(Deployment):
    """Of one tenant, with a service of MicroVMs beside ECS."""

    def __init__(self, *turns: Any, microvms: tuple[str, ...] = ("1g",)) -> None:
        super().__init__(*turns)
        self.vms, self.machines = Machines(lambda: self.lab.now), dict[str, FakeSandbox]()
        self.deploy(microvms)

    def deploy(self, microvms: tuple[str, ...]) -> None:
        """Another version of the functions, which gives these tiers MicroVMs, and the others tasks."""
        by_tier = ProvisionersByTier(frozenset(microvms))
        definitions = {gib: "definition" for tier, gib in limits.MEMORY_LIMITS.items() if tier not in microvms}
        fargate = FargateProvisioner(
            cast("Any", self.ecs),
            FargateSettings("moorage", ("subnet",), "sg", None, definitions, has_events=True),
            AtOnce(),
            clock=lambda: self.lab.now,
        )
        images = {limits.MEMORY_LIMITS[tier]: IMAGE.format(tier) for tier in microvms}
        machines = LambdaMicrovmProvisioner(self.vms.client, lambda: self.vms.core, MicrovmSettings(images, CLOSED), AtOnce())
        runtime = replace(self.lab.runtime, settings=replace(self.lab.runtime.settings, provisioner="by_tier"))
        both = ByTierProvisioner(fargate, machines, by_tier.microvms)
        self.outside = with_containers(runtime, self._containers(both, self._connect_out, by_tier.is_outside))
        reach = ReachOnlyProvisioner(can_reach=self._listens)
        self.inside = with_containers(self.lab.runtime, self._containers(reach, self._connect, by_tier.is_inside))

    def _connect_out(self, handle: Handle) -> ExecClient:
        assert handle.sandbox_id in self.vms.vms, "outside of their network no task is reached"
        if handle.sandbox_id not in self.machines:
            config = json.loads(self.vms.payloads[list(self.vms.vms).index(handle.sandbox_id)])
            self.machines[handle.sandbox_id] = FakeSandbox(handle.sandbox_id, config["token_sha256"])
        return cast("ExecClient", Shell(self.machines[handle.sandbox_id], handle, self.begun))

    async def made(self, memory_limit: str) -> str:
        return (await self.outside.computers.containers.reserve("t", name=memory_limit, memory_limit=memory_limit)).id

    async def answered(self, container_id: str, *, after: StoredResponse | None = None) -> StoredResponse:
        """A response that has ended, in this container."""
        ancestors: tuple[Ancestor, ...] = ()
        if after is not None:
            last = (await self.lab.responses.log_of(after).read_from(0))[-1]
            ancestors = (*after.ancestors, Ancestor(after.response_id, last.first))
        stored = await self.lab.background(container_id=container_id, ancestors=ancestors)
        await self.run(stored)
        return stored

    async def stdout(self, stored: StoredResponse) -> list[str]:
        output = (await self.lab.object_of(stored))["output"]
        return [piece["stdout"] for item in output if item["type"] == "shell_call_output" for piece in item["output"]]

    async def names(self, stored: StoredResponse) -> list[str]:
        """Of the files that are stored of its container."""
        return sorted(path.removeprefix("/mnt/data/") for path in await self.files(stored))

    async def minute(self) -> None:
        """The reaper's functions, outside and inside."""
        await self.inside.computers.containers.sweep.retire_idle(self.lab.now)
        await self.outside.computers.containers.sweep.expire_due(self.lab.now)

    def states(self) -> list[str]:
        return [vm["state"] for vm in self.vms.vms.values()]


def test_a_chain_of_responses_works_in_containers_of_both_kinds() -> None:
    async def story() -> None:
        place = Both(*(turn for name in ("one.txt", "two.txt", "three.txt") for turn in (asks_for(name), say("So."))))
        small, large = await place.made("1g"), await place.made("16g")
        first = await place.answered(small)
        second = await place.answered(large, after=first)
        third = await place.answered(small, after=second)
        assert [await place.stdout(each) for each in (first, second, third)] == [["one.txt\n"], ["two.txt\n"], ["three.txt\n"]]
        calls = [task for task in place.tasks if task != "ModelStep"]
        assert calls == ["ServiceStep", "ToolStep", "ServiceStep"], "each call once, and where its container is reached"
        assert (place.states(), len(place.ecs.running)) == (["RUNNING"], 1), "the third has found the machine of the first"
        assert await place.names(third) == ["one.txt", "three.txt"]
        assert await place.names(second) == ["two.txt"]

    run(story())


def test_idle_sandboxes_are_stopped_by_who_started_them_and_their_files_kept() -> None:
    async def story() -> None:
        place = Both(*(turn for name in ("one.txt", "two.txt") for turn in (asks_for(name), say("So."))))
        containers = [await place.made("1g"), await place.made("16g")]
        answered = [await place.answered(each) for each in containers]
        place.lab.now += IDLE_SECONDS + 1
        await place.minute()
        await place.minute()
        assert (place.states(), place.ecs.running) == (["TERMINATED"], [])
        assert [await place.names(each) for each in answered] == [["one.txt"], ["two.txt"]]

    run(story())


@pytest.mark.parametrize("moved_to", [("1g", "16g"), ()], ids=["to MicroVMs", "to Fargate"])
def test_a_deployment_that_moves_a_tier_leaves_its_sandboxes_where_they_are(moved_to: tuple[str, ...]) -> None:
    """Until they end. Then their containers get one of the other kind, with their files."""

    async def story() -> None:
        place = Both(*(turn for name in ("one.txt", "two.txt", "three.txt") for turn in (asks_for(name), say("So."))))
        container = await place.made("16g" if moved_to else "1g")
        await place.answered(container)
        place.deploy(moved_to)
        second = await place.answered(container)
        assert [task for task in place.tasks if task != "ModelStep"] == ["ToolStep" if moved_to else "ServiceStep"] * 2
        assert len(place.vms.vms) + len(place.ecs.tasks) == 1
        place.lab.now += IDLE_SECONDS + 1
        await place.minute()
        await place.minute()
        assert set(place.states()) <= {"TERMINATED"}
        assert place.ecs.running == []
        third = await place.answered(container, after=second)
        assert (len(place.vms.vms), len(place.ecs.tasks)) == (1, 1)
        assert [task for task in place.tasks if task != "ModelStep"][-1] == ("ServiceStep" if moved_to else "ToolStep")
        assert await place.names(third) == ["one.txt", "three.txt", "two.txt"]

    run(story())


def test_a_call_that_is_sent_to_the_wrong_place_goes_round_and_runs_once() -> None:
    """An execution's state may be older than a deployment."""

    async def story() -> None:
        place = Both(asks_for("one.txt"), say("So."))
        container = await place.made("1g")
        stored = await place.lab.background(container_id=container)
        asked = await place._invoke("ModelStep", place.lab.executions.started[stored.response_id])
        assert asked["next"] == "service"
        given = {**asked, "call_id": asked["calls"][0]}
        await place._invoke("ToolStep", given)
        assert (place.begun, await place.lab.responses.is_gone("t", stored.response_id)) == ({}, False)
        await place.machine.run(LoopState.from_json(asked).to_json() | {"next": "service"})
        assert (await place.stdout(stored), list(place.begun.values())) == (["one.txt\n"], ["one.txt"])

    run(story())


def test_a_session_is_answered_by_the_function_that_reaches_its_container() -> None:
    async def story() -> None:
        place = Both()
        opened = {}
        for memory_limit in ("1g", "16g"):
            record = await place.outside.computers.containers.get("t", await place.made(memory_limit))
            opened[memory_limit] = await place.outside.computers.containers.sessions.open(record, "", rows=24, columns=80)
        assert [session.status for session in opened.values()] == ["running", "starting"]
        read = place.outside.computers.containers.sessions.read
        assert (await read("t", opened["1g"].id, 0, wait_ms=0)).session.status == "running"
        with pytest.raises(ApiError) as elsewhere:
            await read("t", opened["16g"].id, 0, wait_ms=0)
        assert (elsewhere.value.status, elsewhere.value.code) == (421, "container_elsewhere")

    run(story())
