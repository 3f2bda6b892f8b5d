"""Once a minute: take up responses whose process died, and end what nobody uses any more.

Two functions, because they live in different places: Step Functions is reached from outside the sandboxes' network, sandboxes only
from inside it. Both are harmless to run twice, or twice at once.
"""

import asyncio
from functools import cache
from typing import Any

from moorage.loop.expire import expire
from moorage.loop.recover import recover
from moorage.runtime import Runtime, build_runtime
from moorage.settings import Settings
from moorage.telemetry import open_log, tell


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
    """Entry point: what nobody uses any more, and the warm pool."""
    settled = _loop().run_until_complete(expire(_runtime()))
    tell("expired", {"settled": settled})
