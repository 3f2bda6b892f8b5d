"""Bounds of hosted computers: their calls, their pictures, and what models and people see of them."""

from typing import Final

COMPUTER_ACTIONS_MAX: Final = 25
"""Of one call. The desk does no more in one batch, and takes 60 s for it at most (``functions/sandbox/README.md``)."""

COMPUTER_WIDTH_DEFAULT: Final = 1280
COMPUTER_HEIGHT_DEFAULT: Final = 800
"""Of the screen in pixels, where the tool says nothing. Models were trained on screens of about this size."""

COMPUTER_SIDE_MIN: Final = 320
COMPUTER_SIDE_MAX: Final = 2560
"""Of a screen's width and height. Upstreams shrink larger pictures by themselves, and coordinates would not fit any more."""

COMPUTER_QUALITY: Final = 85
"""Of the pictures, which are JPEG: a page of 1280 by 800 comes to 120 KiB in 45 ms. As PNG it is 800 KiB, in 70 ms."""

COMPUTER_OUTPUTS_SENT: Final = 3
"""The latest outputs that a model sees whole, at least; of older ones it reads a line. They are left out in steps of as many."""

COMPUTER_ELEMENTS_CHARS_MAX: Final = 12_000
COMPUTER_TEXT_CHARS_MAX: Final = 8_000
"""Of one output: elements of the page with their numbers, and the words of the page; about 3,000 and 2,000 tokens."""

COMPUTER_NAME_CHARS_MAX: Final = 200
"""Of an element's name or value, a tab's title, a host."""

COMPUTER_WORDS_CHARS_MAX: Final = 2_000
"""Of a URL, a dialog's message, or a note. A page chooses them."""

COMPUTER_PLACES_MAX: Final = 20
"""Of tabs, downloads, refusals or notes that one output tells."""

COMPUTER_ELEMENTS_MAX: Final = 200
"""Of one output. The desk tells no more."""

# --- People at the screen of a container ------------------------------------------------------------------------------

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
