"""The results of a search, by any engine."""

from typing import Any
from urllib.parse import urlsplit

from moorage import limits
from moorage.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SearchResult:
    url: str
    title: str
    text: str
    published_at: str | None = None

    def to_json(self) -> dict[str, Any]:
        when = {} if self.published_at is None else {"published_at": self.published_at}
        return {"url": self.url, "title": self.title, "text": self.text, **when}


class SearchFailed(Exception):
    """The engine gave nothing. The message gives the reason, without the engine's own words."""


def is_address(url: str) -> bool:
    """Whether a page may stand there."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and len(url) <= limits.WEB_URL_CHARS_MAX
