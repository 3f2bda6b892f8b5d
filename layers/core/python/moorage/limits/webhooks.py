"""Bounds of webhooks: of what a tenant may register, and of how long an event is sent to a receiver that does not take it."""

from typing import Final

WEBHOOK_ENDPOINTS_MAX: Final = 32
"""Of one tenant: each final event of a background response is sent to all that ask for it."""

WEBHOOK_URL_CHARS_MAX: Final = 2_048
WEBHOOK_NAME_CHARS_MAX: Final = 256

WEBHOOK_SECONDS_MAX: Final = 10
"""One attempt, from the look-up of the name to the answer's status; Standard Webhooks advises 15 to 30, but a receiver that notes the
event and works later needs one."""

WEBHOOK_LEASE_SECONDS: Final = 60
"""For how long an attempt has its delivery to itself; if its process dies, the next one begins then."""
assert WEBHOOK_LEASE_SECONDS > 2 * WEBHOOK_SECONDS_MAX, "an attempt ends well before it is taken for dead"

WEBHOOK_PAUSE_SECONDS_MIN: Final = 5
WEBHOOK_PAUSE_GROWTH: Final = 3
WEBHOOK_PAUSE_SECONDS_MAX: Final = 3600
"""Between attempts: 5 s, 15 s, 45 s ... and from the seventh on an hour, so that a receiver that is back has its events within one."""

WEBHOOK_RETRY_SECONDS: Final = 72 * 3600
"""How long an event is tried, as OpenAI does (guide "Webhooks"), and after how long without any success an endpoint is switched off."""

WEBHOOK_ATTEMPTS_SHOWN: Final = 20
"""The latest ones of each delivery are kept: about 80 fit into 72 hours."""

WEBHOOK_LOG_SECONDS: Final = 30 * 24 * 3600
"""How long a delivery is listed."""

WEBHOOK_OLD_SECRET_SECONDS: Final = 24 * 3600
"""How long a rotated secret goes on to sign where that is asked for (``keep_old_secret_active_for_24_hours``)."""

WEBHOOK_ENDPOINTS_AT_ONCE: Final = 32
WEBHOOK_ATTEMPTS_AT_ONCE: Final = 8
"""In one round: endpoints side by side, and attempts side by side at one of them."""

WEBHOOK_DUE_READ: Final = 500
WEBHOOK_ATTEMPTS_MAX: Final = 64
"""Deliveries that a round reads at once, and attempts at one endpoint that come of them; the others are put off, so that they do not
stand before those of other endpoints."""

WEBHOOK_PENDING_COUNTED_MAX: Final = 10_000
"""More than that is as much to whoever reads a gauge."""

WEBHOOK_ROUND_SECONDS_MAX: Final = 45
"""After which a round begins nothing more: the next one starts within a minute."""
