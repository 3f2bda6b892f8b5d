"""Once a minute: take up responses whose process died, and end what nobody uses any more.

Two functions, because they live in different places: Step Functions is reached from outside the sandboxes' network, sandboxes only
from inside it. Both are harmless to run twice, or twice at once.
"""

import asyncio
from functools import cache
from typing import Any

from moorage.loop.recover import recover
from moorage.runtime import Runtime, build_runtime
from moorage.settings import Settings
from moorage.telemetry import open_log, tell
from moorage.tools.retention import purge_expired


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _runtime() -> Runtime:
    settings = Settings.from_environment()
    open_log(level=settings.log_level, service=settings.name)
    return build_runtime(settings)


def recover_responses(_event: Any, _context: object) -> None:
    """Entry point: loops without an execution, foreground responses without their process."""
    restarted = _loop().run_until_complete(recover(_runtime()))
    tell("recovered", {"restarted": restarted})


def expire_containers(_event: Any, _context: object) -> None:
    """Entry point: idle sandboxes and lost ones, what is past its retention, and a proxy that nobody needs any more."""
    settled = _loop().run_until_complete(_expire(_runtime()))
    tell("expired", {"settled": settled})


async def _expire(runtime: Runtime) -> int:
    settled = await runtime.containers.expire_due(runtime.clock())
    if runtime.orphans is not None:
        settled += await runtime.orphans.stop_lost()
    settled += await purge_expired(runtime, runtime.clock())
    await runtime.egress.settle_fleet()
    return settled
