"""Hears from ECS that a sandbox runs, or has stopped, and notes it where the tool step looks: in the container's record.

Nobody has to ask ECS then. Events come at least once, in any order, and now and then not at all: noting twice is harmless, and whoever
waits for a sandbox of which nobody has heard orders it again, which finds it.
"""

import asyncio
from functools import cache
from typing import Any, Final

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from moorage.containers.containers import Containers
from moorage.runtime import runtime_of_process
from moorage.sandbox.fargate import StartedTask
from moorage.telemetry import Metric, tell

_loop: Final = cache(asyncio.new_event_loop)
_runtime: Final = cache(runtime_of_process)


def handle(event: dict[str, Any], _context: object) -> None:
    """Entry point of the function."""
    task = StartedTask.from_event(event["detail"])
    if task is not None:
        _loop().run_until_complete(note(_runtime().computers.containers, task))


async def note(containers: Containers, task: StartedTask) -> None:
    """Write it into the record of the container that waits for it, if one does."""
    sandboxes = containers.sandboxes
    is_noted = await sandboxes.announce(task.tenant_id, task.container_id, task.sandbox_id, task.endpoint, task.belongs_to)
    if is_noted and task.endpoint is not None:
        said = {"tenant_id": task.tenant_id, "container_id": task.container_id, "duration_ms": task.took_ms}
        tell("sandbox_started", said, {Metric.SANDBOX_START: task.took_ms})
