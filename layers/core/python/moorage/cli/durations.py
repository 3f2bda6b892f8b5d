"""Durations as people type them: ``30m``, ``12h``, ``30d``, ``2w``."""

from typing import Final

_UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds_of(text: str) -> int | None:
    """None for text that is no duration."""
    count, unit = text[:-1], _UNITS.get(text[-1:])
    return int(count) * unit if unit is not None and count.isascii() and count.isdigit() else None
