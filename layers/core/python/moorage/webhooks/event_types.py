"""The types of events that webhook endpoints can ask for. The command line reads them too, and imports little."""

from typing import Final, Literal, get_args

EventType = Literal[
    "response.completed",
    "response.failed",
    "response.cancelled",
    "response.incomplete",
    "agent.session.created",
    "agent.session.in_progress",
    "agent.session.action_required",
    "agent.session.idle",
    "agent.session.failed",
    "moorage.approval.requested",
]
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
"""OpenAI's types for the ends of responses and for sessions of agents, and one of ours."""
SESSION_CREATED: Final[EventType] = "agent.session.created"
SESSION_IN_PROGRESS: Final[EventType] = "agent.session.in_progress"
SESSION_ACTION_REQUIRED: Final[EventType] = "agent.session.action_required"
SESSION_IDLE: Final[EventType] = "agent.session.idle"
SESSION_FAILED: Final[EventType] = "agent.session.failed"
SESSION_TYPES: Final = (SESSION_CREATED, SESSION_IN_PROGRESS, SESSION_ACTION_REQUIRED, SESSION_IDLE, SESSION_FAILED)
APPROVAL_REQUESTED: Final[EventType] = "moorage.approval.requested"
