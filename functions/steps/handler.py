"""The tasks of the state machine, as Lambda handlers: each builds the runtime once per process and calls one function.

An event loop of the process's own is kept, so that connections to models and containers are reused by the next invocation.
"""

import asyncio
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from moorage.loop import model_step as model
from moorage.loop import recover
from moorage.loop import tool_step as tool
from moorage.loop.state import LoopState
from moorage.runtime import Runtime, build_runtime
from moorage.settings import Settings

_log: Final = Logger(service="moorage-steps")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _runtime() -> Runtime:
    return build_runtime(Settings.from_environment())


def model_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    state = LoopState.from_json(event)
    _log.info("model step", response_id=state.response_id, step=state.step, after=str(state.next))
    return _loop().run_until_complete(model.model_step(_runtime(), state)).to_json()


def tool_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    _log.info("tool step", response_id=event["response_id"], step=event["step"], call_id=event["call_id"])
    _loop().run_until_complete(
        tool.tool_step(
            _runtime(),
            tenant_id=event["tenant_id"],
            response_id=event["response_id"],
            step=event["step"],
            call_id=event["call_id"],
        )
    )
    return {}


def continue_step(event: dict[str, Any], context: object) -> dict[str, Any]:
    state = LoopState.from_json(event)
    _log.info("continue", response_id=state.response_id, step=state.step)
    return _loop().run_until_complete(recover.continue_loop(_runtime(), state)).to_json()


def fail_response(event: dict[str, Any], context: object) -> dict[str, Any]:
    state = LoopState.from_json(event)
    _log.error("response failed", response_id=state.response_id, step=state.step)
    _loop().run_until_complete(recover.fail_response(_runtime(), state))
    return {}
