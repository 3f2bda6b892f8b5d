"""What a request with a team may not ask for in this version, and one without a team may not go on with."""

from collections.abc import Sequence

from moorage import limits
from moorage.errors import invalid_value, unsupported_value
from moorage.loop import upstream_shell
from moorage.loop.prepare import ResolvedInput
from moorage.loop.team_items import agents_of, goes_on
from moorage.wire.requests import CreateRequest
from moorage.wire.types import Item


def check(request: CreateRequest, said: ResolvedInput) -> None:
    """Raises :class:`~moorage.errors.ApiError`."""
    if upstream_shell.goes_there(said.entry, request.tools):
        raise unsupported_value("multi_agent.enabled", "true", "Its shell runs at the provider of the model, without room for a team.")
    others = len(agents_of(said.items)) - 1
    if others > limits.TEAM_AGENTS_MAX:
        raise invalid_value("input", f"it has items of {others} agents beside /root, and {limits.TEAM_AGENTS_MAX} is the limit.")


def check_alone(items: Sequence[Item]) -> None:
    """A request without a team cannot go on with the agents of one. Raises :class:`~moorage.errors.ApiError`."""
    if not any("agent" in item for item in items):
        return
    root, *others = agents_of(items).values()
    if goes_on([root, *others]) and (goes_on(others) or any(agent.open_wait() is not None for agent in (root, *others))):
        raise invalid_value("multi_agent", "agents of a team wait for this request: give the 'multi_agent' of the one before.")
