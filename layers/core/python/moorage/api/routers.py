"""All routes, for the ways of running that serve everything from one process."""

from moorage.api import containers, conversations, files, models, responses, uploads

ROUTERS = (
    responses.router,
    conversations.router,
    models.router,
    files.router,
    uploads.router,
    containers.router,
)
"""In order of match."""
