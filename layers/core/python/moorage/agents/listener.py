"""What sessions hear of the loop: the end of each of their responses."""

from functools import partial

from moorage.agents.artifacts import publish_of
from moorage.agents.turns import Payer, advance, is_wanted, note_error, passes, tell_end
from moorage.automations.by_agents import act
from moorage.errors import ApiError
from moorage.runtime import Runtime, SessionHooks
from moorage.store.responses import StoredResponse


def attend(runtime: Runtime) -> Runtime:
    """Let sessions go on when their responses end: for every process that ends responses."""
    runtime.sessions = SessionHooks(partial(_ended, runtime), partial(is_wanted, runtime.stores), partial(act, runtime))
    return runtime


async def _ended(runtime: Runtime, stored: StoredResponse) -> None:
    """A response of a session has ended. What cannot be done now is done by who looks at the response next: it stays on the loop's
    list as long as this fails."""
    assert stored.session_id is not None
    try:
        session = await runtime.stores.agent_sessions.get(stored.tenant_id, stored.session_id)
    except ApiError:
        return  # It was deleted.
    if stored.container_id is not None:
        await publish_of(runtime, session, stored.response_id)
    await tell_end(runtime, session, stored.response_id)
    try:
        await advance(runtime, session, Payer.of(stored), may_begin=False)
    except ApiError as error:
        if passes(error):
            raise
        await note_error(runtime, session, error, stored.response_id)
