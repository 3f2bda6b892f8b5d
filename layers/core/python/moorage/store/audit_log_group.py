"""The audit trail of a deployment on AWS: a log group of its own in CloudWatch Logs.

Each process writes a stream of its own, made with its first line. It may make streams and add lines, and neither read nor
delete any.
"""

import asyncio
import secrets
import time
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from moorage.telemetry import tell_error


class AuditLogGroup:
    def __init__(self, client: Any, group: str, executor: Executor | None) -> None:
        """``client`` is boto3's of CloudWatch Logs. ``executor`` None is the event loop's own."""
        self._client = client
        self._group = group
        self._executor = executor

    @cached_property
    def _stream(self) -> str:
        name = f"{datetime.now(UTC):%Y/%m/%d}/{secrets.token_hex(8)}"
        self._client.create_log_stream(logGroupName=self._group, logStreamName=name)
        return name

    async def write(self, line: bytes) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._put, line.decode())
        except (BotoCoreError, ClientError) as error:
            tell_error(error, "a line of the audit trail could not be written")

    def _put(self, line: str) -> None:
        event = {"timestamp": int(time.time() * 1000), "message": line}
        self._client.put_log_events(logGroupName=self._group, logStreamName=self._stream, logEvents=[event])
