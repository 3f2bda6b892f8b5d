"""What is used of ministack beyond its address, and where it is changed; ``tests/contract/test_ministack.py`` holds each of these.

* Its first state waits 150 ms in each execution; ours does not.
* It waits after each invocation for words of the function, 5 ms at least; ours takes those that are there.
* Its workers get the credentials of this start, and no others.
* Executions that have ended and words of functions are kept in bounded number, where ministack keeps them for ever; and events that
  tell of executions are not kept at all, since nobody reads them.
* The keys of the key service are taken out and put back as one document.
"""

import json
import time
from types import SimpleNamespace
from typing import Final

from ministack.core import lambda_runtime, persistence
from ministack.services import cloudwatch_logs, eventbridge, kms, stepfunctions

FIRST_PAUSE_SECONDS: Final = 0.15
EXECUTIONS_KEPT_MAX: Final = 50
"""Of those that have ended. ``store/executions.py`` takes one that is not there for one that has ended."""
LOG_STREAMS_KEPT_MAX: Final = 100
"""Of one function; ministack begins one for each invocation."""
_KMS_READS: Final = frozenset(
    {"Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateRandom", "ListAliases", "ListKeys", "ReEncrypt"}
)


def begin_executions_at_once() -> None:
    """``_run_execution`` sleeps before its first state, and nothing else there sleeps for exactly so long."""

    def sleep(seconds: float) -> None:
        if seconds != FIRST_PAUSE_SECONDS:
            time.sleep(seconds)

    stepfunctions.time = SimpleNamespace(**{**vars(time), "sleep": sleep})


def wait_for_no_words() -> None:
    """Of functions, which go to the log of the next invocation where they come late."""
    lambda_runtime.Worker._drain_stderr_bounded = lambda_runtime.Worker._drain_stderr


def give_credentials(access_key_id: str, secret_access_key: str) -> None:
    """To function workers, in place of those that ministack makes up for a role."""
    given = {"AWS_ACCESS_KEY_ID": access_key_id, "AWS_SECRET_ACCESS_KEY": secret_access_key}
    lambda_runtime.execution_credentials = lambda config: dict(given)


def forget_what_ended() -> None:
    """To be called now and then."""
    executions = stepfunctions._executions._data
    ended = [key for key, execution in list(executions.items()) if execution["status"] != "RUNNING"]
    for key in ended[: max(0, len(ended) - EXECUTIONS_KEPT_MAX)]:
        executions.pop(key, None)
    for group in list(cloudwatch_logs._log_groups._data.values()):
        streams = group["streams"]
        for name in list(streams)[: max(0, len(streams) - LOG_STREAMS_KEPT_MAX)]:
            streams.pop(name, None)
    cloudwatch_logs._log_records._data.clear()
    eventbridge._events_log._data.clear()


def changes_keys(operation: str) -> bool:
    """Whether an operation of the key service leaves something that must be kept."""
    return operation not in _KMS_READS


def keys_document() -> str:
    return json.dumps(kms.get_state(), default=persistence._json_default)


def restore_keys(document: str | None) -> None:
    if document is not None:
        kms.load_persisted_state(json.loads(document, object_hook=persistence._json_object_hook))

