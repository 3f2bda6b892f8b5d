"""The tasks of the state machine, as Lambda handlers: each builds the runtime once per process and calls one function.

An event loop of the process's own is kept, so that connections to models and containers are reused by the next invocation.
"""

import asyncio
from collections.abc import Coroutine
from functools import cache
from typing import Any, Final, TypeVar

from botocore.exceptions import ClientError
from moorage import limits
from moorage.loop import model_step as model
from moorage.loop import recover
from moorage.loop import tool_step as tool
from moorage.runtime import Runtime, build_runtime
from moorage.settings import Settings
from moorage.state import LoopState
from moorage.store.throttling import is_throttle
from moorage.telemetry import log_to_file, open_log
from moorage.vector_stores.jobs import IndexState

T = TypeVar("T")
REST_SECONDS: Final = limits.WEBHOOK_SECONDS_MAX + 1


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _runtime() -> Runtime:
    settings = Settings.from_environment()
    open_log(level=settings.log_level, service=settings.name)
    if settings.log_file:
        log_to_file(settings.log_file, level=settings.log_level, service=settings.name)
    return build_runtime(settings)


class Throttled(Exception):
    """The table, the bucket or Step Functions takes no more requests now. The state machine knows the name and waits, for minutes; what
    the step has begun is in its records, and the next attempt goes on from them."""


def _done(work: Coroutine[Any, Any, T]) -> T:
    try:
        return _loop().run_until_complete(work)
    except ClientError as error:
        if is_throttle(error):
            raise Throttled(str(error)) from error
        raise


async def _with_rest(work: Coroutine[Any, Any, T]) -> T:
    """What a step leaves to be done beside it (an event, a trace) has to be done before Lambda stops the process's clock."""
    done = await work
    await _runtime().rest(REST_SECONDS)
    return done


def model_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    state = LoopState.from_json(event)
    return _done(_with_rest(model.model_step(_runtime(), state))).to_json()


def tool_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    _done(
        tool.tool_step(
            _runtime(),
            tenant_id=event["tenant_id"],
            response_id=event["response_id"],
            step=event["step"],
            call_id=event["call_id"],
            container_id=event.get("container_id"),
        )
    )
    return {}


def service_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    """A call that runs outside of the sandboxes' network: the same step, in a function that is elsewhere and may do less."""
    return tool_step(event, context)


def continue_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    state = LoopState.from_json(event)
    return _done(_with_rest(recover.continue_loop(_runtime(), state))).to_json()


def fail_response(event: dict[str, Any], context: object) -> dict[str, Any]:
    state = LoopState.from_json(event)
    _done(_with_rest(recover.fail_response(_runtime(), state)))
    return {}


def index_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Of an execution that reads the files of a vector store."""
    return _done(_runtime().vector_stores.indexing.index_step(IndexState.from_json(event))).to_json()


def parse_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    """The same from inside the sandboxes' network."""
    return _done(_runtime().vector_stores.indexing.parse_step(IndexState.from_json(event))).to_json()
