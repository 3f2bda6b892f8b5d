"""The log of a process for its operator: one line of JSON for each request and each step, with its metrics.

A line holds ids, counts and times, never content or secrets. Metrics ride on it in CloudWatch's embedded metric format, so that they
cost no request: CloudWatch reads them from the log. Code calls :func:`tell`, or :func:`tell_error` after catching an unexpected error.
The rim calls :func:`open_log` once and decides the form. Without it nothing is written.
"""

import logging
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from os import PathLike
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, TextIO

import orjson
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from aws_lambda_powertools.metrics import EphemeralMetrics

from moorage import tracing

NAMESPACE: Final = "moorage"
_ROOT: Final = "moorage"
_log: Final = logging.getLogger(f"{_ROOT}.telemetry")


class Metric(StrEnum):
    """Every metric that moorage itself emits. The dashboard names these and no others."""

    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105
    """Milliseconds from the start of a foreground response to its first output."""
    ROUNDS = "Rounds"
    """Model steps."""
    TOOL_CALLS = "ToolCalls"
    """Hosted calls that a model step asked for."""
    INPUT_TOKENS = "InputTokens"
    OUTPUT_TOKENS = "OutputTokens"
    CACHED_TOKENS = "CachedTokens"
    SANDBOX_START = "SandboxStart"
    """Milliseconds from the claim on a sandbox until it has its files."""
    SANDBOXES_ALIVE = "SandboxesAlive"
    """Sandboxes that run or start, of containers and of the warm pool: once a minute, while there are any."""
    WARM_POOL_HITS = "WarmPoolHits"
    """Containers that took a waiting sandbox from the warm pool."""
    WARM_POOL_MISSES = "WarmPoolMisses"
    """Containers that could have, but none was there; one that had died while it waited counts in both."""
    EGRESS_DENIED = "EgressDenied"
    PROXY_DOWN = "ProxyDown"
    """Looks, one a minute, that found the egress proxy wanted and not running."""
    WRONG_NETWORK = "WrongNetwork"
    """MicroVMs that were given another network than was asked for, and were ended."""
    ERRORS = "Errors"
    """Requests answered with 5xx, and responses that failed."""


_UNITS: Final = {Metric.TIME_TO_FIRST_TOKEN: "Milliseconds", Metric.SANDBOX_START: "Milliseconds"}


_about: Final[ContextVar[Mapping[str, Any]]] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def about(**ids: Any) -> Iterator[None]:
    """All lines inside carry these fields too, errors included: code far below a response's step does not know the response."""
    token = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(token)


def tell(event: str, fields: Mapping[str, Any], metrics: Mapping[Metric, float] | None = None) -> None:
    """One line: ``event`` is its ``message``; fields that are None are left out. ``fields`` are ids, counts and times."""
    if not _log.isEnabledFor(logging.INFO):
        return
    said = {name: value for name, value in {**_trace(), **_about.get(), **fields}.items() if value is not None}
    _log.info(event, extra={**said, **(embedded(metrics) if metrics else {})})


def _trace() -> dict[str, str]:
    trace = tracing.current()
    return {} if trace is None else {"trace_id": trace.trace_id}


_CAUSES_MAX: Final = 4
_FRAMES_MAX: Final = 6


def tell_error(error: BaseException, event: str = "error", **ids: Any) -> None:
    """One line of level ERROR: the class and the innermost frames of the error and its causes, as ``file:line:function``.

    Never a message: it may quote a request, an answer or a secret.
    """
    if not _log.hasHandlers():
        return
    first, *causes = [{"error": _class_name(each), "where": _where(each)} for each in _chain(error)]
    said = {name: value for name, value in {**_trace(), **_about.get(), **ids}.items() if value is not None}
    _log.error(event, extra={**said, **first, **({"causes": causes} if causes else {})})


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, its cause, and so on, as a traceback would show them; of a group first those that are in it."""
    left = [error]
    for _ in range(_CAUSES_MAX):
        if not left:
            return
        each = left.pop(0)
        yield each
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        cause = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if cause is not None:
            left.append(cause)


def _class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _where(error: BaseException) -> list[str]:
    """The innermost frames, outermost first; a file is named with its folder."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return [f"{'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.lineno}:{frame.name}" for frame in frames]


def embedded(metrics: Mapping[Metric, float]) -> dict[str, Any]:
    """The metrics in the embedded metric format, to be merged into a line. The dimension ``service`` is the deployment's."""
    form = _form(_service[0], tuple(metrics))
    head = {**form["_aws"], "Timestamp": round(time.time() * 1000)}
    return {**form, "_aws": head, **{name.value: [float(value)] for name, value in metrics.items()}}


@cache
def _form(service: str, names: tuple[Metric, ...]) -> dict[str, Any]:
    """The format of lines with these metrics. Nearly all lines have one of a few sets."""
    collected = EphemeralMetrics(namespace=NAMESPACE, service=service)
    for name in names:
        collected.add_metric(name=name.value, unit=_UNITS.get(name, "Count"), value=0)
    return dict(collected.serialize_metric_set())


_service: Final = [NAMESPACE]
"""The name of this process's deployment: :func:`open_log` sets it."""


def open_log(out: TextIO | None = None, *, level: str = "INFO", service: str = NAMESPACE) -> logging.Handler:
    """Write the log of moorage's modules to ``out`` (standard output) as lines of JSON. For a process's entry point, once."""
    return _attach(logging.StreamHandler(sys.stdout if out is None else out), level, service)


def log_to_file(path: str | PathLike[str], *, level: str = "INFO", service: str = NAMESPACE) -> logging.Handler:
    """The same to the end of a file that other processes write too, and that may be emptied meanwhile."""
    return _attach(logging.FileHandler(path, encoding="utf-8"), level, service)


def _attach(handler: logging.Handler, level: str, service: str) -> logging.Handler:
    _service[0] = service
    formatter = LambdaPowertoolsFormatter(
        service=service,
        location=None,
        utc=True,
        use_rfc3339=True,
        json_serializer=_json,
        json_deserializer=str,  # Else it tries each message as JSON; none is.
    )
    handler.setFormatter(formatter)
    logger = logging.getLogger(_ROOT)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return handler


def _json(line: Any) -> str:
    return orjson.dumps(line, default=str).decode()
