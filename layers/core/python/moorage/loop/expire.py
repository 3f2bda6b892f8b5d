"""Ending unused things, and keeping the warm pool filled: the reaper's other half, beside ``recover.py``.

Called once a minute from the place that can stop sandboxes. On AWS ``Sweep.retire_idle`` names them, called from the place that can
reach them. Every part is harmless to run twice, or by two reapers at once.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

from moorage.inputs import purge_inputs
from moorage.loop.usage_ledger import keep_due
from moorage.recount import recount_due
from moorage.runtime import Computers, Runtime, SandboxFleet
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
    yield runtime.computers.containers.sweep.expire_due(runtime.clock())
    if runtime.computers.warm_pool is not None:
        yield runtime.computers.warm_pool.settle()
    yield _look_at_fleets(runtime.computers)
    yield _purge_expired(runtime, runtime.clock())
    yield runtime.computers.egress.settle_fleet()
    yield keep_due(runtime)
    yield recount_due(runtime.stores, runtime.computers.containers, runtime.clock())  # the longest, and what waits for nobody


async def _purge_expired(runtime: Runtime, now: float) -> int:
    """Erase everything whose time has come, with its bytes: files, vector stores, uploads, unused bundles of skills, fetched inputs.
    DynamoDB's own TTL would drop the records and leave the bytes in S3."""
    stores = runtime.stores
    ended = await stores.files.purge_due(now) + await stores.uploads.purge_due(now) + await stores.skills.purge_due(now)
    ended += await runtime.vector_stores.sweep.purge_due(now)
    return ended + await purge_inputs(stores.table, stores.blobs, now)


async def _look_at_fleets(computers: Computers) -> int:
    """Count the sandboxes, stop those that are lost, and delete image versions that none needs. Nothing is said of none: a metric that
    is sent costs $0.30 a month, and a deployment at rest should cost nothing."""
    listed = await asyncio.gather(*(fleet.owner.running() for fleet in computers.fleets), return_exceptions=True)
    alive = sum(len(sandboxes) for sandboxes in listed if not isinstance(sandboxes, BaseException))
    if alive:
        tell("sandboxes", {}, {Metric.SANDBOXES_ALIVE: alive})
    looks = (_look_at_fleet(fleet, sandboxes) for fleet, sandboxes in zip(computers.fleets, listed, strict=True))
    settled = await asyncio.gather(*looks, return_exceptions=True)
    if problems := [each for each in settled if isinstance(each, BaseException)]:
        raise problems[0]
    return sum(each for each in settled if not isinstance(each, BaseException))


async def _look_at_fleet(fleet: SandboxFleet, alive: Sequence[Any] | BaseException) -> int:
    if isinstance(alive, BaseException):
        raise alive
    # Where there are orphans to look for, the sandboxes are of their kind.
    stopped = 0 if fleet.orphans is None else await fleet.orphans.stop_lost(alive)
    pruned = 0 if fleet.image_versions is None else await fleet.image_versions.prune(alive)
    return stopped + pruned
