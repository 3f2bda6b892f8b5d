"""The API key of a request, its rights, and its number of connections."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from moorage import limits
from moorage.errors import admin_only, key_is_code, key_reads_only, too_many_connections
from moorage.store.api_keys import CODE, MEMBER, READ, ApiKey

_TEAMS: Final = "responses_multi_agent=v1"
EXCHANGE: Final = "/v1/console/session"
_OF_THE_TENANT: Final = "/v1/webhook_endpoints"
"""What concerns all of a tenant's people: where its events are sent to."""
_LOOKING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def secret_of(headers: Headers) -> str:
    """The API key; empty without one."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def takes_teams(headers: Headers) -> bool:
    """Whether a client has asked for OpenAI's beta of teams, so that it knows the events of ``response.inject``."""
    return any(_TEAMS in (part.strip() for part in value.split(",")) for value in headers.getlist("openai-beta"))


def check_scope(key: ApiKey, scope: Scope) -> None:
    """Raises :class:`ApiError` for an action that this key may not do."""
    if key.scope == CODE and scope["path"] != EXCHANGE:
        raise key_is_code()
    if scope["type"] == "http" and (scope["method"] in _LOOKING or (scope["method"], scope["path"]) == ("DELETE", EXCHANGE)):
        return
    if key.scope == READ:
        raise key_reads_only()
    if key.scope == MEMBER and scope["path"].startswith(_OF_THE_TENANT):
        raise admin_only()


class ConnectionCounts:
    """How many connections of each key are open in this process."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def place(self, key: str) -> Iterator[None]:
        """Raises :class:`ApiError` when the key has none left."""
        if self._open[key] >= limits.WEBSOCKETS_PER_KEY_MAX:
            raise too_many_connections(limits.WEBSOCKETS_PER_KEY_MAX)
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            self._open += Counter()  # Keys without a connection are forgotten.
