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
    "agent.environment.ready",
    "agent.environment.failed",
    "agent.environment.suspended",
    "agent.environment.expired",
    "moorage.approval.requested",
]
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
"""OpenAI's types for the ends of responses, for sessions of agents and their environments, and one of ours."""
SESSION_CREATED: Final[EventType] = "agent.session.created"
SESSION_IN_PROGRESS: Final[EventType] = "agent.session.in_progress"
SESSION_ACTION_REQUIRED: Final[EventType] = "agent.session.action_required"
SESSION_IDLE: Final[EventType] = "agent.session.idle"
SESSION_FAILED: Final[EventType] = "agent.session.failed"
SESSION_TYPES: Final = (SESSION_CREATED, SESSION_IN_PROGRESS, SESSION_ACTION_REQUIRED, SESSION_IDLE, SESSION_FAILED)
ENVIRONMENT_READY: Final[EventType] = "agent.environment.ready"
ENVIRONMENT_FAILED: Final[EventType] = "agent.environment.failed"
ENVIRONMENT_SUSPENDED: Final[EventType] = "agent.environment.suspended"
ENVIRONMENT_EXPIRED: Final[EventType] = "agent.environment.expired"
ENVIRONMENT_TYPES: Final = (ENVIRONMENT_READY, ENVIRONMENT_FAILED, ENVIRONMENT_SUSPENDED, ENVIRONMENT_EXPIRED)
APPROVAL_REQUESTED: Final[EventType] = "moorage.approval.requested"
