"""Pages of the web, read by our own fetching: each address is judged, each server's robots.txt heard, wherever a redirect leads, and
before anything is sent there.

What was read stays beside the response for as long as it is fresh (RFC 9111, section 4.2): a text that is looked for in a page is
looked for in what was opened.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import Download, Fetcher, FetchError
from moorage.parallel import worked
from moorage.store.item_contents import Contents
from moorage.tools.web_search import robots, text
from moorage.tools.web_search.engines import is_within
from moorage.tools.web_search.text import ReadablePage

_READABLE: Final = ("text/", "application/xhtml+xml", "application/json", "application/xml")


_MAX_AGE: Final = re.compile(r'(?:^|[\s,])max-age\s*=\s*"?(\d{1,9})', re.IGNORECASE)
_NOT_KEPT: Final = re.compile(r"(?:^|[\s,])(?:no-store|no-cache)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page, its final address, and its time of freshness."""

    page: ReadablePage
    url: str
    fresh_seconds: int


@dataclass(frozen=True, slots=True)
class ReadPages:
    """The pages that a response has read."""

    contents: Contents
    response_id: str
    now: Callable[[], float]

    async def get(self, url: str) -> FetchedPage | None:
        """One that is fresh still."""
        packed = await self.contents.kept(self.response_id, _name(url))
        if packed is None:
            return None
        found = orjson.loads(packed)
        left = int(found["fresh_until"] - self.now())
        return FetchedPage(ReadablePage(found["title"], found["text"]), found["url"], left) if left > 0 else None

    async def put(self, url: str, read: FetchedPage) -> None:
        if read.fresh_seconds > 0:
            page = {"url": read.url, "title": read.page.title, "text": read.page.text}
            packed = orjson.dumps(page | {"fresh_until": self.now() + read.fresh_seconds})
            await self.contents.keep(self.response_id, _name(url), packed)


def _name(url: str) -> str:
    return f"page-{hashlib.sha256(url.encode()).hexdigest()[:32]}"


def fresh_seconds(cache_control: str) -> int:
    """The time of freshness by these headers; 0 for a page that must not be kept."""
    if _NOT_KEPT.search(cache_control):
        return 0
    age = _MAX_AGE.search(cache_control)
    return limits.WEB_PAGE_FRESH_SECONDS if age is None else min(int(age[1]), limits.WEB_PAGE_FRESH_SECONDS_MAX)


async def open_page(fetcher: Fetcher, kept: ReadPages, url: str, domains: tuple[str, ...], blocked: tuple[str, ...]) -> ReadablePage:
    """The text of a page, as it was read a while ago, or anew. Raises :class:`FetchError`."""
    _check_domains(url, domains, blocked)
    known = await kept.get(url)
    if known is None:
        known = await read(fetcher, url, domains, blocked)
        await kept.put(url, known)
    _check_domains(known.url, domains, blocked)
    return known.page


async def read(fetcher: Fetcher, url: str, domains: tuple[str, ...], blocked: tuple[str, ...] = ()) -> FetchedPage:
    """A page of one of these domains, if there are any, and of none that is blocked. Raises :class:`FetchError`."""

    async def admit(address: str) -> None:
        _check_domains(address, domains, blocked)
        await robots.check(fetcher, address)

    await admit(url)
    async with fetcher.open(url, bytes_max=limits.WEB_PAGE_BYTES_MAX, may_follow=admit) as download:
        if not _is_readable(download):
            raise FetchError("it is no text, and nothing else can be read")
        content = b"".join([chunk async for chunk in download.chunks])
    # In a thread of its own: a page of some MiB would hold up all others that are being read.
    page = await worked(lambda: text.page_of(content, download.media_type, download.charset))
    return FetchedPage(page, download.url, fresh_seconds(download.cache_control))


def _check_domains(url: str, domains: tuple[str, ...], blocked: tuple[str, ...]) -> None:
    if not is_within(url, domains):
        raise FetchError("it is of none of the domains that the user has allowed")
    if not is_within(url, (), blocked):
        raise FetchError("it is of a domain that the user has blocked")


def _is_readable(download: Download) -> bool:
    kind = download.media_type
    return not kind or kind.startswith(_READABLE) or kind.endswith(("+json", "+xml"))


def places(page: ReadablePage, pattern: str) -> list[str]:
    """The surroundings of each place of a text in a page, in any case."""
    whole, wanted, at = page.text.lower(), pattern.lower(), 0
    found: list[str] = []
    while len(found) < limits.WEB_MATCHES_MAX and (start := whole.find(wanted, at)) >= 0:
        before, behind = max(0, start - limits.WEB_MATCH_CONTEXT_CHARS), start + len(wanted) + limits.WEB_MATCH_CONTEXT_CHARS
        found.append(page.text[before:behind].strip())
        at = behind
    return found
