"""Calls that wait for a person's word."""

from typing import Final

from moorage.limits.units import KIB

APPROVAL_PATTERNS_MAX: Final = 128
"""Patterns of one filter. Each is compared with each piece of a command."""

APPROVAL_PATTERN_CHARS_MAX: Final = 512

APPROVAL_REASON_CHARS_MAX: Final = 4_000
"""What a person says about a decision: the model reads all of it."""

APPROVAL_LINK_SECONDS_DEFAULT: Final = 24 * 3600
APPROVAL_LINK_SECONDS_MAX: Final = 7 * 24 * 3600
"""Of a link that decides without a key: whoever has it may."""

APPROVAL_FORM_BYTES_MAX: Final = 64 * KIB
"""What a browser sends for a decision: a reason in percent code takes nine bytes a letter at most, so all of it and more."""

APPROVAL_SECONDS_MIN: Final = 60
"""Time-outs are seen to once a minute (``loop/recover.py``)."""

APPROVAL_SECONDS_MAX: Final = 30 * 24 * 3600
"""As long as responses are kept: after that nobody could be told."""
