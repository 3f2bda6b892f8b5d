"""Loaded by every Python process of a stack that is played with: its clock may be set, and what it asks of AWS may go wrong.

``MOORAGE_CHAOS`` names a folder. ``clock`` in it holds seconds that are added to the time of day, ``faults`` how many of a thousand
requests of the runtime meet one: they are read at each use, so that a running stack can be told. ``count`` gets a line for each fault.
The time that signatures carry is not changed, because botocore takes it from C; nor is the clock of the emulator, which checks it.
"""

import os
import random
import sys
import time
from typing import Any

_FOLDER = os.environ.get("MOORAGE_CHAOS")
_LATE_SECONDS = (0.2, 2.0)


class Told:
    """A number in a file that somebody else writes."""

    def __init__(self, name: str) -> None:
        self._descriptor = os.open(f"{_FOLDER}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> float:
        return float(os.pread(self._descriptor, 32, 0) or b"0")


def _set_clock(offset: Told) -> None:
    of_day, of_day_ns = time.time, time.time_ns
    time.time = lambda: of_day() + offset()
    time.time_ns = lambda: of_day_ns() + int(offset() * 1e9)


def _break_requests(rate: Told) -> None:
    import botocore.endpoint
    from botocore.awsrequest import AWSResponse
    from botocore.exceptions import ConnectionClosedError
    from botocore.parsers import ResponseParserError

    original = botocore.endpoint.Endpoint._get_response  # type: ignore[attr-defined]
    dice = random.Random(os.environ["MOORAGE_CHAOS_SEED"] + str(os.getpid()))
    os.register_at_fork(after_in_child=lambda: dice.seed(os.environ["MOORAGE_CHAOS_SEED"] + str(os.getpid())))

    def refused(request: Any, status: int, code: str) -> Any:
        error = {"Error": {"Code": code, "Message": "chaos"}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
        return (AWSResponse(request.url, status, {}, None), error), None  # type: ignore[arg-type]

    def closed(request: Any) -> Any:
        return None, ConnectionClosedError(endpoint_url=request.url)

    def broken(self: Any, request: Any, operation: Any, context: Any) -> Any:
        if "moorage/" not in str(context["client_config"].user_agent) or dice.random() * 1000 >= rate():
            return original(self, request, operation, context)
        fault = dice.choice(("throttle", "error", "reset", "late", "lost reply", "corrupt body"))
        _note(operation, fault)
        if fault == "late":
            time.sleep(dice.uniform(*_LATE_SECONDS))
            return original(self, request, operation, context)
        if fault in ("lost reply", "corrupt body"):
            original(self, request, operation, context)
            if fault == "corrupt body":
                raise ResponseParserError("chaos: the body is cut")
            return closed(request)
        if fault == "reset":
            return closed(request)
        code = "SlowDown" if operation.service_model.service_name == "s3" else "ThrottlingException"
        return refused(request, 503, code) if fault == "throttle" else refused(request, 500, "InternalServerError")

    botocore.endpoint.Endpoint._get_response = broken  # type: ignore[attr-defined]


def _note(operation: Any, fault: str) -> None:
    descriptor = os.open(f"{_FOLDER}/count", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{operation.service_model.service_name} {operation.name}\t{fault}\n".encode())
    os.close(descriptor)


if _FOLDER and "moorage.local.aws.server" not in sys.orig_argv:
    _set_clock(Told("clock"))
    _break_requests(Told("faults"))
