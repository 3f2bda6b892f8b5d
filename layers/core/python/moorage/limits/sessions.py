"""Bounds of the sessions of a container: terminals that people sit at."""

from typing import Final

from moorage.limits.units import KIB

SESSIONS_OPEN_MAX: Final = 16
"""Of one container; its exec server opens no more either."""

SESSION_SIDE_MAX: Final = 1_000
"""Rows, and columns: a screen of 8K with small letters has 600 by 200."""

SESSION_INPUT_CHARS_MAX: Final = 64 * KIB
"""Of one request: a page that somebody pastes."""

SESSION_INPUT_ID_CHARS_MAX: Final = 64

SESSION_READ_MS_MAX: Final = 20_000
"""How long a reader waits for output: API Gateway gives an answer in one piece 29 s, and a sandbox may have to be looked for first."""

SESSION_SECONDS_MAX: Final = 4 * 3600
"""The exec server ends a session then, as it does a model's."""

SESSION_RECORD_SECONDS: Final = SESSION_SECONDS_MAX + 3600
"""When the table drops the record of one that nobody has closed."""

SESSION_STORE_SECONDS: Final = 8
"""For storing the files when a session ends, in the request that has seen it end; what takes longer is stored by the next command, or
when the container has nothing to do."""

SESSION_CLOSE_MS_MAX: Final = 5_000
"""For what is killed to be gone."""
