"""Lists of the API, page by page."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from moorage.cli.target import answer_of

_PAGE: Final = 100


def entries(http: httpx.Client, path: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Every entry of a list. A page may be empty and not be the last."""
    after: dict[str, str] = {}
    while True:
        page = answer_of(http.get(path, params={"limit": _PAGE, **(query or {}), **after}))
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["last_id"]}
