"""The tasks of the state machine, as Lambda handlers: each builds the runtime once per process and runs one task.

An event loop of the process's own is kept, so that connections to models and containers are reused by the next invocation.
"""

import asyncio
from functools import cache
from typing import Any, Final

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from moorage import limits
from moorage.agents.listener import attend
from moorage.loop import tasks
from moorage.runtime import runtime_of_process

REST_SECONDS: Final = limits.WEBHOOK_SECONDS_MAX + 1
_loop: Final = cache(asyncio.new_event_loop)
_runtime: Final = cache(lambda: attend(runtime_of_process()))


def _done(name: str, event: dict[str, Any]) -> dict[str, Any]:
    return _loop().run_until_complete(_with_rest(name, event))


async def _with_rest(name: str, event: dict[str, Any]) -> dict[str, Any]:
    """What a step leaves to be done beside it (an event, a trace) has to be done before Lambda stops the process's clock."""
    done = await tasks.run(_runtime(), name, event)
    await _runtime().process.rest(REST_SECONDS)
    return done


def model_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("ModelStep", event)


def tool_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("ToolStep", event)


def service_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("ServiceStep", event)


def continue_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("ContinueStep", event)


def fail_response(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("FailResponse", event)


def index_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("IndexStep", event)


def parse_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    return _done("ParseStep", event)
