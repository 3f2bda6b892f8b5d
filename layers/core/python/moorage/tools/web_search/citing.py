"""Where an answer names pages that its model has read of: ``url_citation`` annotations.

A page is named by a Markdown link, or by its bare address. Only pages that a search or a call of this conversation has brought are
cited: what a model names from its memory it has not read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from moorage import limits
from moorage.wire.types import Item

_ADDRESS: Final = r"https?://[^\s()<>\[\]\"]+(?:\([^\s()<>\[\]\"]*\)[^\s()<>\[\]\"]*)*"
"""Pages of encyclopedias have pairs of parentheses in their names."""
_NAMED: Final = re.compile(
    rf"\[([^\[\]\n]{{1,{limits.WEB_TITLE_CHARS_MAX}}})\]\(<?({_ADDRESS})>?(?:\s+\"[^\"\n]{{0,300}}\")?\)|({_ADDRESS})"
)
_ENDS: Final = ".,;:!?'*_`"
"""Marks behind a bare address that are the sentence's."""


def citations(text: str, items: Sequence[Item]) -> list[dict[str, Any]]:
    """By position. Indexes count characters: ``text[start_index:end_index]`` names the page."""
    if "://" not in text:
        return []
    titles = _titles(items)
    found = (_citation(named, titles) for named in _NAMED.finditer(text)) if titles else ()
    return [citation for citation in found if citation is not None][: limits.CITATIONS_MAX]


def _titles(items: Iterable[Item]) -> Mapping[str, tuple[str, str]]:
    """The address and title of each page of the calls, by its key for comparison."""
    return {_key(url): (url, title) for url, title in _brought(items)}


def _brought(items: Iterable[Item]) -> Iterator[tuple[str, str]]:
    for item in items:
        if item["type"] == "web_search_call":
            for result in item.get("results") or ():
                yield result["url"], result.get("title") or result["url"]


def _citation(named: re.Match[str], titles: Mapping[str, tuple[str, str]]) -> dict[str, Any] | None:
    address = named[2] or named[3].rstrip(_ENDS)
    page = titles.get(_key(address))
    if page is None:
        return None
    end = named.end() if named[2] else named.start() + len(address)
    return {"type": "url_citation", "start_index": named.start(), "end_index": end, "url": page[0], "title": page[1]}


def _key(url: str) -> str:
    """Models leave a slash at the end out, or the fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.netloc.lower()}{parts.path.rstrip('/')}?{parts.query}"
