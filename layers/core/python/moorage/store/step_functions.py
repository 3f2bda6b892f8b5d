"""Executions on AWS: Step Functions plays them.

It answers a double start with the running execution, or, in emulators and for ended ones, with ``ExecutionAlreadyExists``, which means
the same here.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

import orjson
from botocore.exceptions import ClientError

from moorage.tracing import Trace

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_BUSY: Final = frozenset(
    {
        *("ExecutionLimitExceeded", "InternalServerError", "InternalFailure", "ServiceUnavailable", "RequestLimitExceeded"),
        *("ThrottlingException", "Throttling", "TooManyRequestsException"),
    }
)
"""Step Functions takes no more for now; botocore has tried five times by then."""


class StepFunctions:
    def __init__(self, client: "SFNClient", state_machine_arn: str, executor: Executor) -> None:
        self._client = client
        self._arn = state_machine_arn
        self._executor = executor

    async def start(self, name: str, state: dict[str, Any], trace: Trace | None) -> None:
        traced = {} if trace is None else {"traceHeader": trace.xray}
        await self._call(
            ("ExecutionAlreadyExists",),
            lambda: self._client.start_execution(stateMachineArn=self._arn, name=name, input=orjson.dumps(state).decode(), **traced),
        )

    async def start_soon(self, name: str, state: dict[str, Any], trace: Trace | None) -> bool:
        try:
            await self.start(name, state, trace)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _BUSY:
                raise
            return False
        return True

    async def stop(self, name: str) -> None:
        await self._call(
            ("ExecutionDoesNotExist", "ValidationException"),  # the latter: it ended in this moment
            lambda: self._client.stop_execution(executionArn=self._execution(name)),
        )

    async def status(self, name: str) -> str | None:
        answer = await self._call(
            ("ExecutionDoesNotExist",), lambda: self._client.describe_execution(executionArn=self._execution(name))
        )
        return None if answer is None else str(answer["status"])

    def _execution(self, name: str) -> str:
        return f"{self._arn.replace(':stateMachine:', ':execution:')}:{name}"

    async def _call(self, tolerated: tuple[str, ...], call: Callable[[], Any]) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except ClientError as error:
            if error.response["Error"]["Code"] not in tolerated:
                raise
            return None
