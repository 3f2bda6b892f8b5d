"""The types of events that webhook endpoints can ask for. The command line reads them too, and imports little."""

from typing import Final, Literal, get_args

EventType = Literal["response.completed", "response.failed", "response.cancelled", "response.incomplete", "moorage.approval.requested"]
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
"""OpenAI's types for the ends of responses, and one of ours."""
APPROVAL_REQUESTED: Final[EventType] = "moorage.approval.requested"
