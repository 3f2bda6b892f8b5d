"""All routes, for the ways of running that serve everything from one process."""

from moorage.api import (
    account,
    chat_completions,
    compact,
    console_session,
    containers,
    conversations,
    egress,
    files,
    forks,
    input_tokens,
    models,
    response_list,
    response_log,
    responses,
    skills,
    uploads,
    webhooks,
    websocket,
)

ROUTERS = (
    responses.router,
    forks.router,
    response_list.router,
    response_log.router,
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
    webhooks.router,
    account.router,
    console_session.router,
)
"""In order of match."""
