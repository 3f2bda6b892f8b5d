"""How many of the step functions' processes there are at once.

ministack starts one for each call, all at once and without end: after a kill in the middle of a hundred responses a hundred start side
by side, and keep a small machine from anything else. Where one cannot start, it ends all of the function, and whatever is refused
counts as a failure of the response. How they start is said in ``forks.py``.

Here a call waits a while for its turn; who waits for a start takes a process that has become free; and what is refused is a throttle,
which the state machine repeats. No step calls another one, so none waits for itself.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from ministack.core import lambda_runtime
from ministack.services import lambda_svc

WORKER_BYTES: Final = 40 * 1024 * 1024
"""What a process of a step takes, measured: 24 to 29 MiB of its own; the rest it shares with the others."""
MEMORY_SHARE: Final = 0.5
"""Of the machine's memory, for steps; sandboxes, the emulator and the API have the rest."""
WORKERS_MIN: Final = 8
WAIT_SECONDS_MAX: Final = 30.0
"""What a step leaves of ``TimeoutSeconds`` of its state: whoever has waited longer is told to come again."""
THROTTLED: Final = "Lambda.TooManyRequestsException"
_log: Final = logging.getLogger(__name__)

Invoke = Callable[[dict[str, Any], dict[str, Any], str], dict[str, Any]]


def workers_max() -> int:
    """What this machine has memory for, or the control group in which it runs."""
    return max(WORKERS_MIN, int(lambda_svc._memory_budget_bytes() * MEMORY_SHARE) // WORKER_BYTES)


def bound_workers(workers: int, starts: int, wait_seconds: float = WAIT_SECONDS_MAX) -> None:
    """Let at most ``workers`` steps run at once, and at most ``starts`` of their processes start at once."""
    lambda_svc._ACCOUNT_CONCURRENCY_CAP = 0
    lambda_svc._execute_function_warm = _in_turn(lambda_svc._execute_function_warm, workers, wait_seconds)
    lambda_svc.acquire_worker = _started(lambda_svc.acquire_worker, workers, starts)


def _in_turn(invoke: Invoke, workers: int, wait_seconds: float) -> Invoke:
    turns = threading.BoundedSemaphore(workers)

    def invoke_in_turn(function: dict[str, Any], event: dict[str, Any], request_id: str) -> dict[str, Any]:
        if not turns.acquire(timeout=wait_seconds):
            return _throttled("ConcurrentInvocationLimitExceeded", f"All {workers} processes of steps are at work.")
        try:
            return _known_to_the_machine(invoke(function, event, request_id))
        finally:
            turns.release()

    return invoke_in_turn


def _started(acquire: Callable[..., Any], workers: int, starts: int) -> Callable[..., Any]:
    places = threading.BoundedSemaphore(starts)

    def acquire_started(name: str, config: dict[str, Any], code: bytes, qualifier: str = "$LATEST") -> Any:
        free, _ = acquire(name, config, code, qualifier=qualifier, max_concurrency=1)  # None where all are at work
        if free is not None and _lives(free):
            return free, "reused"
        with places:
            worker = free or acquire(name, config, code, qualifier=qualifier)[0]
            if _lives(worker):
                return worker, "reused"
            if _count() > workers:
                lambda_runtime.reap_idle_workers(0)
            try:
                lambda_runtime.ensure_spawned(worker)
            except Exception:
                _log.exception("a process of the step functions could not start")
                _forget(worker)
                return None, "func_cap"
        return worker, "spawn"

    return acquire_started


def _lives(worker: Any) -> bool:
    return worker._proc is not None and worker._proc.poll() is None


def _count() -> int:
    with lambda_runtime._lock:
        return sum(len(entries) for entries in lambda_runtime._workers.values())


def _forget(worker: Any) -> None:
    with lambda_runtime._lock:
        for entries in lambda_runtime._workers.values():
            if worker in entries:
                entries.remove(worker)
    lambda_runtime.kill_workers([worker])


def _throttled(reason: str, message: str) -> dict[str, Any]:
    return _known_to_the_machine(lambda_svc._throttle_response(reason, message))


def _known_to_the_machine(result: dict[str, Any]) -> dict[str, Any]:
    """The state machine is told of an error by ``errorType``, which ministack's throttles lack."""
    if result.get("throttle"):
        result["body"]["errorType"] = THROTTLED
    return result
