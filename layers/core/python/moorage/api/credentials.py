"""The API key that a request brings, and how many connections one may hold."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers

from moorage import limits
from moorage.errors import too_many_connections


def secret_of(headers: Headers) -> str:
    """The API key; empty without one."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


class Places:
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
