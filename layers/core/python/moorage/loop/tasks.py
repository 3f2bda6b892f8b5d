"""The tasks of the state machine, by the names in its definition. Lambda runs them, and so do the workers of one machine.

Each takes what the state machine gives it, and answers what follows. Each may run twice, or twice at once, like the step behind it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from moorage.loop import documents, recover
from moorage.loop import model_step as model
from moorage.loop import tool_step as tool
from moorage.parallel import working_for
from moorage.runtime import Runtime
from moorage.state import LoopState
from moorage.store.throttling import is_throttle
from moorage.vector_stores.jobs import IndexState

State = dict[str, Any]
Task = Callable[[Runtime, State], Awaitable[State]]


class Throttled(Exception):
    """The table, the bucket or Step Functions takes no more requests now. The state machine knows the name and waits, for minutes; what
    the step has begun is in its records, and the next attempt goes on from them."""


async def run(runtime: Runtime, name: str, given: State) -> State:
    """Run a task, ``ModelStep`` for example. Raises :class:`Throttled`, and the step's own errors."""
    with throttles_named(), working_for(given["tenant_id"]):
        return await TASKS[name](runtime, given)


@contextmanager
def throttles_named() -> Iterator[None]:
    """Raises :class:`Throttled` in place of a service's own refusal."""
    try:
        yield
    except Exception as error:
        if is_throttle(error):
            raise Throttled(str(error)) from error
        raise


async def _model_step(runtime: Runtime, given: State) -> State:
    return (await model.model_step(runtime, LoopState.from_json(given))).to_json()


async def _tool_step(runtime: Runtime, given: State) -> State:
    await tool.tool_step(
        runtime,
        tenant_id=given["tenant_id"],
        response_id=given["response_id"],
        step=given["step"],
        call_id=given["call_id"],
        container_id=given.get("container_id"),
    )
    return {}


async def _continue_step(runtime: Runtime, given: State) -> State:
    return (await recover.continue_loop(runtime.stores, LoopState.from_json(given))).to_json()


async def _fail_response(runtime: Runtime, given: State) -> State:
    await recover.fail_response(runtime, LoopState.from_json(given))
    return {}


async def _index_step(runtime: Runtime, given: State) -> State:
    return (await runtime.vector_stores.indexing.index_step(IndexState.from_json(given))).to_json()


async def _parse_step(runtime: Runtime, given: State) -> State:
    if "response_id" in given:
        return (await documents.read_step(runtime, LoopState.from_json(given))).to_json()
    return (await runtime.vector_stores.indexing.parse_step(IndexState.from_json(given))).to_json()


TASKS: Final[Mapping[str, Task]] = {
    "ModelStep": _model_step,
    "ToolStep": _tool_step,
    "ServiceStep": _tool_step,
    "ContinueStep": _continue_step,
    "FailResponse": _fail_response,
    "IndexStep": _index_step,
    "ParseStep": _parse_step,
}
"""``ServiceStep`` is a call that runs outside of the sandboxes' network: the same step, on AWS in a function that is elsewhere and may
do less. ``IndexStep`` and ``ParseStep`` are of an execution that reads the files of a vector store, from outside and inside of it.
``ParseStep`` also reads the documents of a response's input, where the model step cannot."""
