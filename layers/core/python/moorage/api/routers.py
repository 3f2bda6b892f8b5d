"""All routes, for the ways of running that serve everything from one process."""

from moorage.api import containers, conversations, files, models, responses, uploads, websocket

ROUTERS = (
    responses.router,
    websocket.router,
    conversations.router,
    models.router,
    files.router,
    uploads.router,
    containers.router,
)
"""In order of match."""
