"""All routes, for the ways of running that serve everything from one process."""

from moorage.api import (
    chat_completions,
    compact,
    containers,
    conversations,
    egress,
    files,
    input_tokens,
    models,
    responses,
    skills,
    uploads,
    websocket,
)

ROUTERS = (
    responses.router,
    websocket.router,
    input_tokens.router,
    compact.router,
    chat_completions.router,
    conversations.router,
    models.router,
    files.router,
    uploads.router,
    containers.router,
    egress.router,
    skills.router,
)
"""In order of match."""
