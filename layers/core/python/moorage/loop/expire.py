"""Ending unused things, and keeping the warm pool filled: the reaper's other half, beside ``recover.py``.

Called once a minute from the place that can stop sandboxes. On AWS ``Sweep.retire_idle`` names them, called from the place that can
reach them. Every part is harmless to run twice, or by two reapers at once.
"""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, cast

from moorage.inputs import purge_inputs
from moorage.loop.usage_ledger import keep_due
from moorage.recount import recount_due
from moorage.runtime import Runtime
from moorage.telemetry import Metric, tell


async def expire(runtime: Runtime) -> int:
    """End idle and lost sandboxes, surplus ones of the warm pool, containers past their retention, and an unused proxy; returns the
    number of settled things.

    Raises an error after all have been tried.
    """
    settled, problems = 0, []
    for part in _parts(runtime):
        try:
            settled += await part or 0
        except Exception as problem:  # what stops one part (a service that is throttled) must not stop the others
            problems.append(problem)
    if problems:
        raise ExceptionGroup("the reaper could not do all of its work", problems)
    return settled


def _parts(runtime: Runtime) -> Iterator[Awaitable[int | None]]:
    yield runtime.containers.sweep.expire_due(runtime.clock())
    if runtime.warm_pool is not None:
        yield runtime.warm_pool.settle()
    yield _look_at_fleet(runtime)
    yield _purge_expired(runtime, runtime.clock())
    yield runtime.egress.settle_fleet()
    yield keep_due(runtime)
    yield recount_due(runtime, runtime.clock())  # the longest, and what waits for nobody


async def _purge_expired(runtime: Runtime, now: float) -> int:
    """Erase everything whose time has come, with its bytes: files, vector stores, uploads, unused bundles of skills, fetched inputs.
    DynamoDB's own TTL would drop the records and leave the bytes in S3."""
    ended = await runtime.files.purge_due(now) + await runtime.uploads.purge_due(now) + await runtime.skills.purge_due(now)
    ended += await runtime.vector_stores.sweep.purge_due(now)
    return ended + await purge_inputs(runtime, now)


async def _look_at_fleet(runtime: Runtime) -> int:
    """Count the sandboxes, stop those that are lost, and delete image versions that none needs. Nothing is said of none: a metric that
    is sent costs $0.30 a month, and a deployment at rest should cost nothing."""
    alive = [] if runtime.fleet is None else await runtime.fleet.running()
    if alive:
        tell("sandboxes", {}, {Metric.SANDBOXES_ALIVE: len(alive)})
    # Where there are orphans to look for, the fleet is theirs.
    stopped = 0 if runtime.orphans is None else await runtime.orphans.stop_lost(cast("Sequence[Any]", alive))
    pruned = 0 if runtime.image_versions is None else await runtime.image_versions.prune(cast("Sequence[Any]", alive))
    return stopped + pruned
