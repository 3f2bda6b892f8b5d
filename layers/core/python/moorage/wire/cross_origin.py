"""Headers for pages of named origins (the Fetch standard, "HTTP-CORS protocol"). The application and API Gateway say the same.

No answer allows credentials: a page sends a key or a token itself, and never a cookie.
"""

from collections.abc import Mapping
from typing import Final

from moorage import limits

ALLOW_ORIGIN: Final = "access-control-allow-origin"
PREFLIGHT: Final[Mapping[str, str]] = {
    "access-control-allow-methods": "GET, HEAD, POST, DELETE",
    # The asterisk stands for all headers but this one, where no credentials are allowed.
    "access-control-allow-headers": "authorization, *",
    "access-control-max-age": str(limits.PREFLIGHT_SECONDS),
    "vary": "origin",
}
"""What every preflight is told beside its origin."""

_READABLE: Final = (
    *("x-request-id", "openai-processing-ms", "openai-version", "x-moorage-notice"),
    *("retry-after", "retry-after-ms", "x-should-retry"),
    *(f"x-ratelimit-{word}-{what}" for word in ("limit", "remaining", "reset") for what in ("requests", "tokens")),
    *("content-disposition", "content-range", "accept-ranges"),
)
READABLE: Final[Mapping[str, str]] = {"access-control-expose-headers": ", ".join(_READABLE)}
"""What other answers are told: SDKs read the ids, the limits and the times to wait, and pages the names and sizes of files."""
