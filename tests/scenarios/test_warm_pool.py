"""A container that takes a waiting sandbox, through the embedded stack: the state machine, the step functions and the launcher."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from moorage.telemetry import Metric

from tests.scenarios.test_telemetry import lines_of, metrics_of, step_log
from tests.stack import SHELL, Stack, outputs, say, script, shell

_SECONDS_MAX = 40


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(Path(tmp_path_factory.mktemp("pool")), {"MOORAGE_WARM_POOL": "1g:1"}).start()
    yield stack
    assert stack.stop() == 0


def sandboxes(stack: Stack) -> dict[str, str]:
    """What the launcher runs: sandbox ids and the ids that they were started under."""
    transport = httpx.HTTPTransport(uds=str(stack.state_dir / "launcher.sock"))
    with httpx.Client(base_url="http://launcher", transport=transport) as client:
        return {each["sandbox_id"]: each["container_id"] for each in client.get("/v1/sandboxes").json()["data"]}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_container_takes_the_sandbox_that_waits_and_the_pool_is_refilled(pooled: Stack) -> None:
    until(lambda: len(sandboxes(pooled)) == 1)
    waiting = sandboxes(pooled)
    assert all(started_as.startswith("pool_") for started_as in waiting.values())
    client = pooled.client()

    # A sandbox is offered when a round of the reaper has noted that it answers: until then a start is a miss.
    is_hit = False
    while not is_hit:
        response = client.responses.create(
            model="demo",
            input=script(shell("echo warm > /mnt/data/note.txt; cat /mnt/data/note.txt"), say("done")),
            tools=[SHELL],  # type: ignore[list-item]
        )
        assert response.status == "completed"
        assert outputs(response.output) == [[("warm\n", "", 0)]]
        container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
        is_hit = container_id not in sandboxes(pooled).values()

    # It serves its container from now on, and another one waits.
    again = client.responses.create(
        model="demo",
        input=script(shell("cat /mnt/data/note.txt"), say("done")),
        tools=[{"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}],
    )
    assert outputs(again.output) == [[("warm\n", "", 0)]]
    until(lambda: any(started_as.startswith("pool_") for id_, started_as in sandboxes(pooled).items() if id_ not in waiting))
    until(lambda: {Metric.WARM_POOL_HITS, Metric.SANDBOXES_ALIVE} <= metrics_of(lines_of(pooled_log(pooled))))
    client.containers.delete(container_id)
    until(lambda: not waiting.keys() & sandboxes(pooled).keys())


def pooled_log(stack: Stack) -> str:
    return (stack.state_dir / "api.log").read_text() + "\n" + step_log(stack)
