"""Where calls of a container run, if a deployment has sandboxes of two kinds.

A task of Fargate is reached from inside of the sandboxes' network, by the tool step. A MicroVM is reached from outside, so its calls
run in the service step. The container's record decides anew at each round: another deployment may have moved its memory tier.
"""

from contextlib import suppress
from dataclasses import replace

from moorage.errors import ApiError
from moorage.runtime import Runtime
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse


async def placed(runtime: Runtime, stored: StoredResponse, state: LoopState) -> LoopState:
    """The state, with the calls of a container that is reached from here sent to the service step."""
    if runtime.settings.provisioner != "by_tier" or state.next is not Next.TOOLS or stored.container_id is None:
        return state
    if set(state.calls) <= set(state.services):
        return state
    with suppress(ApiError):  # A container that was deleted is found out by the call.
        record = await runtime.computers.containers.get(stored.tenant_id, stored.container_id)
        if runtime.computers.containers.sandboxes.reaches(record):
            return replace(state, services=state.calls)
    return state
