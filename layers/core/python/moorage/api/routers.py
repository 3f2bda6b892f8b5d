"""All routes, for the ways of running that serve everything from one process."""

from moorage.api import responses

ROUTERS = (responses.router,)
"""In order of match."""
