"""Secrets that were read from where they are kept, for a while: one that is rotated there is known here within minutes, and at once
if the old one is refused."""

import time
from collections.abc import Callable

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits


class CachedSecrets:
    def __init__(self, read: Callable[[str], str], clock: Callable[[], float] = time.time) -> None:
        """``clock`` gives seconds."""
        self._read = read
        self._clock = clock
        self._kept: dict[str, tuple[float, str]] = {}

    def value(self, name: str, *, refused: str | None = None) -> str:
        """A secret by its name. ``refused`` is a value that has just been refused: if it is what is known, it is read anew, unless
        that was done a moment ago."""
        read_at, known = self._kept.get(name, (0.0, None))
        age = self._clock() - read_at
        least = limits.SECRET_SECONDS_MIN if refused is not None and refused == known else limits.SECRET_SECONDS_MAX
        if known is not None and 0 <= age < least:
            return known
        try:
            value = self._read(name)
        except (BotoCoreError, ClientError):
            if known is None:
                raise
            value = known  # Most often it is good still; if not, its refusal says so.
        self._kept[name] = (self._clock(), value)
        return value
