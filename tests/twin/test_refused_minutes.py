"""A minute in which S3 or ECS takes no requests, played through the whole loop: nothing fails, no command runs twice, no file is lost,
and the time lost is bounded. (``test_throttles.py`` does the same for the table, Lambda and Step Functions.)"""

import base64
import random
from typing import Any

import pytest
from moorage import limits
from moorage.model.base import CallDelta, CallStarted, MessageStarted, StreamFinished, TextDelta, UsageReported

from tests.simulation.clock import run
from tests.stack import assert_well_formed
from tests.twin.deployment import START_SECONDS, Deployment, Refusals
from tests.unit.loop.lab import Turn, say, texts

MINUTE = 60.0
PAUSE_MAX = 30.0
"""The longest between two tries of the state machine."""

LONG = base64.b85encode(random.Random(7).randbytes(320_000)).decode()
"""Too long for a record, however well it is compressed: it goes to the bucket."""


def asks_for(command: str, *, saying: str = "So:") -> Turn:
    arguments = f'{{"commands": ["{command}"]}}'
    called: Turn = [CallStarted("shell", f"call_{command}"), CallDelta(arguments), UsageReported(10, 2), StreamFinished("tool_calls")]
    return [MessageStarted(), TextDelta(saying), *called]


def turns(saying: str) -> list[Turn]:
    """A file, another one, the end."""
    return [asks_for("one.txt", saying=saying), asks_for("two.txt", saying=saying), say(saying)]


class Again(list[Turn]):
    """What a model says that answers each question as often as it is asked: the steps are told apart by what they have been told."""

    def __init__(self, deployment: Deployment, said: list[Turn]) -> None:
        super().__init__(said)
        self.deployment = deployment

    def pop(self, index: Any = 0) -> Turn:
        items = self.deployment.lab.model.requests[-1].items
        step = sum(item["type"].endswith("call_output") for item in items)
        self.before(step)
        return self[step]

    def before(self, step: int) -> None:
        """A test has something happen while the model thinks."""


async def played(saying: str, *, s3: Refusals | None = None, ecs: Refusals | None = None, seed: int = 0) -> dict[str, Any]:
    """What came of a response with two commands."""
    deployment = Deployment(seed=seed)
    deployment.lab.model.turns = Again(deployment, turns(saying))
    stored = await deployment.response()
    deployment.bucket.refusals, deployment.ecs.refusals = s3, ecs
    began = deployment.lab.now
    end = await deployment.run(stored)
    seconds = deployment.lab.now - began
    deployment.bucket.refusals = None
    response = await deployment.lab.object_of(stored)
    assert_well_formed(await deployment.lab.events(stored))
    messages = [item for item in response["output"] if item["type"] == "message" and item["status"] == "completed"]
    outputs = [item["output"] for item in response["output"] if item["type"] == "shell_call_output"]
    return {
        "end": end,
        "status": response["status"],
        "error": response["error"],
        "said": texts(messages),
        "shown": [piece["stdout"] for output in outputs for piece in output],
        "begun": sorted(deployment.begun.values()),
        "sandboxes": len(deployment.ecs.running),
        "files": await deployment.files(stored),
        "seconds": seconds,
    }


def well(saying: str) -> dict[str, Any]:
    return {
        "end": "Done",
        "status": "completed",
        "error": None,
        "said": [saying] * 3,
        "shown": ["one.txt\n", "two.txt\n"],
        "begun": ["one.txt", "two.txt"],
        "sandboxes": 1,
        "files": {
            "/mnt/data/given.txt": b"given",
            "/mnt/data/one.txt": b"written by one.txt",
            "/mnt/data/two.txt": b"written by two.txt",
        },
    }


@pytest.mark.parametrize("saying", [pytest.param("So:", id="short"), pytest.param(LONG, id="long")])
def test_nobody_who_is_refused_nothing_waits_for_more_than_the_sandbox(saying: str) -> None:
    came = run(played(saying))
    assert came.pop("seconds") < START_SECONDS + 5
    assert came == well(saying)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("from_request", [1, 2, 3, 4, 6, 8, 10, 12])
def test_a_minute_without_s3_fails_nothing_and_loses_no_file(share: float, from_request: int) -> None:
    refusals = Refusals("SlowDown", from_request, share, MINUTE, random.Random(from_request))
    came = run(played(LONG, s3=refusals, seed=from_request))
    assert refusals.refused.total() > 0
    assert came.pop("seconds") < START_SECONDS + MINUTE + 2 * PAUSE_MAX
    assert came == well(LONG)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("from_request", [1, 2, 3])
def test_a_minute_without_ecs_fails_nothing_and_starts_one_sandbox(share: float, from_request: int) -> None:
    refusals = Refusals("ThrottlingException", from_request, share, MINUTE, random.Random(from_request))
    came = run(played("So:", ecs=refusals, seed=from_request))
    assert came.pop("seconds") < START_SECONDS + MINUTE + limits.CONTAINER_START_LEASE_SECONDS
    assert came == well("So:")


class DeadlyPause(Again):
    """The sandbox dies between the two commands, and from then on ECS takes no requests."""

    refusals: Refusals

    def before(self, step: int) -> None:
        ecs = self.deployment.ecs
        if step == 1 and ecs.refusals is None:
            ecs.refusals = self.refusals
            for sandbox in ecs.sandboxes.values():
                sandbox.is_alive = False


async def replaced() -> dict[str, Any]:
    deployment = Deployment()
    said = DeadlyPause(deployment, turns("So:"))
    said.refusals = Refusals("ThrottlingException", 1)
    deployment.lab.model.turns = said
    stored = await deployment.response()
    end = await deployment.run(stored)
    response = await deployment.lab.object_of(stored)
    outputs = [item["output"] for item in response["output"] if item["type"] == "shell_call_output"]
    return {
        "end": end,
        "is_refused": said.refusals.refused["StopTask"] > 0,
        "codes": [piece["outcome"] for output in outputs for piece in output],
        "begun": sorted(deployment.begun.values()),
        "tasks": [task["lastStatus"] for task in deployment.ecs.tasks.values()],
        "files": sorted(await deployment.files(stored)),
    }


def test_a_sandbox_that_dies_while_ecs_throttles_is_replaced_later() -> None:
    assert run(replaced()) == {
        "end": "Done",
        "is_refused": True,
        "codes": [{"type": "exit", "exit_code": 0}] * 2,
        "begun": ["one.txt", "two.txt"],
        "tasks": ["STOPPED", "RUNNING"],
        "files": ["/mnt/data/given.txt", "/mnt/data/one.txt", "/mnt/data/two.txt"],
    }
