"""Pages of the web, read by our own fetching: each address is judged, each server's robots.txt heard, wherever a redirect leads."""

import asyncio
from typing import Final

from moorage import limits
from moorage.egress.fetch import Download, Fetcher, FetchError
from moorage.tools.web_search import robots, text
from moorage.tools.web_search.engines import is_within
from moorage.tools.web_search.text import Page

_READABLE: Final = ("text/", "application/xhtml+xml", "application/json", "application/xml")


async def read(fetcher: Fetcher, url: str, domains: tuple[str, ...]) -> Page:
    """The text of a page of one of these domains, if there are any. Raises :class:`FetchError`."""
    await _admit(fetcher, url, domains)
    async with fetcher.open(url, bytes_max=limits.WEB_PAGE_BYTES_MAX) as download:
        if download.url != url:
            await _admit(fetcher, download.url, domains)
        if not _is_readable(download):
            raise FetchError("it is no text, and nothing else can be read")
        content = b"".join([chunk async for chunk in download.chunks])
    # In a thread of its own: a page of some MiB would hold up all others that are being read.
    return await asyncio.to_thread(text.page_of, content, download.media_type, download.charset)


async def _admit(fetcher: Fetcher, url: str, domains: tuple[str, ...]) -> None:
    if not is_within(url, domains):
        raise FetchError("it is of none of the domains that the user has allowed")
    await robots.check(fetcher, url)


def _is_readable(download: Download) -> bool:
    kind = download.media_type
    return not kind or kind.startswith(_READABLE) or kind.endswith(("+json", "+xml"))


def places(page: Page, pattern: str) -> list[str]:
    """What stands around each place where a page has a text, in any case."""
    whole, wanted, at = page.text.lower(), pattern.lower(), 0
    found: list[str] = []
    while len(found) < limits.WEB_MATCHES_MAX and (start := whole.find(wanted, at)) >= 0:
        before, behind = max(0, start - limits.WEB_MATCH_CONTEXT_CHARS), start + len(wanted) + limits.WEB_MATCH_CONTEXT_CHARS
        found.append(page.text[before:behind].strip())
        at = behind
    return found
