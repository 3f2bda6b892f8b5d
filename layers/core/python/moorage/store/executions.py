"""Executions of the agent loop's state machine: the port. Each process of a deployment starts, stops and asks for them here.

An execution's name is the response's id, so that a double start is free: a name that exists already is left alone. AWS plays
executions in Step Functions (``step_functions.py``), one machine in its own workers (``execution_rows.py``).
"""

from typing import Any, Final, Protocol

from moorage.tracing import Trace

ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"})


class Executions(Protocol):
    async def start(self, name: str, state: dict[str, Any], trace: Trace | None) -> None:
        """Start an execution, in the trace of the response; one of this name that exists already is left alone."""
        ...

    async def start_soon(self, name: str, state: dict[str, Any], trace: Trace | None) -> bool:
        """The same for a response that is on the loop's list: False if no execution can be started now, and the reaper has to start
        it. Failing instead would make its client ask again, for work that is going to be done."""
        ...

    async def stop(self, name: str) -> None:
        """Stop an execution; one that has ended or never was is no error. A step that runs is not interrupted."""
        ...

    async def status(self, name: str) -> str | None:
        """``RUNNING``, one of :data:`ENDED`, or None if there is no such execution."""
        ...
