"""The reaper's round: all of it is tried, whatever goes wrong."""

import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from moorage.loop.expire import expire
from moorage.settings import Settings
from moorage.telemetry import open_log

from tests.opened_logs import close_log

if TYPE_CHECKING:
    from moorage.runtime import Runtime


class World:
    """A runtime each of whose parts says that it was asked, and may fail."""

    def __init__(self, *failing: str, alive: int = 0) -> None:
        self.done: list[str] = []
        self._failing = failing
        part = self._part
        self.runtime = cast(
            "Runtime",
            SimpleNamespace(
                clock=lambda: 1_000.0,
                settings=Settings("t", "b"),
                vector_stores=SimpleNamespace(sweep=SimpleNamespace(purge_due=part("vector stores", 64))),
                stores=SimpleNamespace(
                    blobs=None,
                    files=SimpleNamespace(purge_due=part("files", 8), stored=SimpleNamespace(due=part("what is stored", []))),
                    uploads=SimpleNamespace(purge_due=part("uploads", 16)),
                    skills=SimpleNamespace(purge_due=part("skills", 32)),
                    table=SimpleNamespace(query=part(DUE, []), get_many=part("no inputs", [])),
                ),
                computers=SimpleNamespace(
                    containers=SimpleNamespace(sweep=SimpleNamespace(expire_due=part("containers", 1))),
                    warm_pool=SimpleNamespace(settle=part("pool", 2)),
                    egress=SimpleNamespace(settle_fleet=part("proxy", None)),
                    fleets=(
                        SimpleNamespace(
                            owner=SimpleNamespace(running=part("count", [object()] * alive)),
                            orphans=SimpleNamespace(stop_lost=part("orphans", 4)),
                            image_versions=SimpleNamespace(prune=part("image versions", 128)),
                        ),
                    ),
                ),
            ),
        )

    def _part(self, name: str, answer: Any) -> Any:
        async def do(*_arguments: Any, **_options: Any) -> Any:
            self.done.append(name)
            if name in self._failing:
                raise ConnectionError(name)
            return answer

        return do


DUE = "due in the table"
FLEET = ["count", "orphans", "image versions"]
ALL = ["containers", "pool", *FLEET, "files", "uploads", "skills", "vector stores", DUE, "proxy", DUE, "what is stored"]
"""The sandboxes are listed once, for the count and for the look at orphans."""


async def test_a_round_does_everything_and_counts_what_it_settled() -> None:
    world = World()
    assert await expire(world.runtime) == 255
    assert [part for part in world.done if part in ALL] == ALL


@pytest.mark.parametrize("failing", [("containers",), ("orphans",), ("pool", "proxy"), ("count",)], ids=" and ".join)
async def test_a_part_that_fails_is_told_when_the_others_are_done(failing: tuple[str, ...]) -> None:
    world = World(*failing)
    with pytest.raises(ExceptionGroup) as caught:
        await expire(world.runtime)
    assert [str(problem) for problem in caught.value.exceptions] == list(failing)
    without_a_list = {"orphans", "image versions"} if "count" in failing else {"image versions"} if "orphans" in failing else set()
    assert [part for part in world.done if part in ALL] == [part for part in ALL if part not in without_a_list]


async def test_a_fleet_that_cannot_be_listed_hides_no_lost_one_of_another() -> None:
    """Fargate beside MicroVMs."""
    world, broken, out = World(alive=2), World("count"), io.StringIO()
    cast("Any", world.runtime.computers).fleets = (*broken.runtime.computers.fleets, *world.runtime.computers.fleets)
    handler = open_log(out)
    with pytest.raises(ExceptionGroup, match="could not do all"):
        await expire(world.runtime)
    close_log(handler)
    assert [part for part in world.done if part in FLEET] == FLEET
    assert [line["SandboxesAlive"] for line in map(json.loads, out.getvalue().splitlines())] == [[2.0]]


@pytest.mark.parametrize("alive", [0, 3])
async def test_living_sandboxes_are_counted_while_there_are_any(alive: int) -> None:
    out = io.StringIO()
    handler = open_log(out)
    await expire(World(alive=alive).runtime)
    close_log(handler)
    told = [line["SandboxesAlive"] for line in map(json.loads, out.getvalue().splitlines())]
    assert told == ([[3.0]] if alive else [])
