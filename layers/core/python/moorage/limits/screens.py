"""Bounds of people at the screen of a container."""

from typing import Final

SCREEN_READ_MS_MAX: Final = 20_000
"""How long a viewer waits for another picture: as long as a reader of a terminal waits for output."""

SCREEN_HOLDER_CHARS_MAX: Final = 64
"""Of the name by which one window of a person's is told from another."""

SCREEN_INPUT_ACTIONS_MAX: Final = 25
"""Of one request; the desk does no more in one batch."""

SCREEN_INPUT_CHARS_MAX: Final = 50_000
"""Of one text; the desk types no more at once."""

SCREEN_INPUT_NUMBER_MAX: Final = 2**31
"""Of inputs since control was taken."""

SCREEN_DRAG_POINTS_MAX: Final = 200
SCREEN_KEYS_MAX: Final = 8
SCREEN_KEY_CHARS_MAX: Final = 40
SCREEN_PIXELS_MAX: Final = 10_000
SCREEN_URL_CHARS_MAX: Final = 8_192
SCREEN_SCROLL_MAX: Final = 20_000
"""Of one action; the desk takes no more."""
