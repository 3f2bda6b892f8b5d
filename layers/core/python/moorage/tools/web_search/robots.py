"""robots.txt as RFC 9309 has it: the pages of a server that a program with our name may read."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from moorage import limits
from moorage.egress.fetch import Fetcher, FetchError, FetchRefused

AGENT: Final = "moorage"
"""The name that the fetcher bears in ``User-Agent``."""


async def check(fetcher: Fetcher, url: str) -> None:
    """Raises :class:`FetchError` for a page that its server does not want to be read.

    A server without a robots.txt (4xx) hides nothing, one that cannot show it (5xx) hides all (section 2.3.1).
    """
    parts = urlsplit(url)
    try:
        rules = await _read(fetcher, f"{parts.scheme}://{parts.netloc}/robots.txt")
    except FetchRefused as error:
        if 400 <= error.status < 500:
            return
        raise FetchError(f"its robots.txt cannot be read: the server answered {error.status}") from error
    if not allows(rules, f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"):
        raise FetchError("its robots.txt does not allow that programs read it")


async def _read(fetcher: Fetcher, url: str) -> str:
    """As much of it as has to be read; what comes behind need not."""
    content = bytearray()
    async with fetcher.open(url, bytes_max=limits.WEB_PAGE_BYTES_MAX) as download:
        async for chunk in download.chunks:
            content += chunk
            if len(content) > limits.WEB_ROBOTS_BYTES_MAX:
                break
    return bytes(content[: limits.WEB_ROBOTS_BYTES_MAX]).decode("utf-8", "replace").removeprefix("\ufeff")


def allows(robots: str, path: str) -> bool:
    """The longest rule of our group that fits decides, an allowing one if two are as long. Without rules all is allowed."""
    wanted = unquote(path)
    fitting = [(len(pattern), is_allowed) for is_allowed, pattern in _rules(robots) if _fits(unquote(pattern), wanted)]
    return max(fitting, default=(0, True))[1]


def _rules(robots: str) -> list[tuple[bool, str]]:
    """Those for our name; those for everybody if none are."""
    groups: dict[str, list[tuple[bool, str]]] = {}
    agents: list[str] = []
    is_open = False
    for name, value in _lines(robots):
        if name == "user-agent":
            agents = [*(agents if is_open else []), value.lower()]
            groups.setdefault(value.lower(), [])
            is_open = True
        elif name in ("allow", "disallow"):
            is_open = False
            for agent in agents if value else ():
                groups[agent].append((name == "allow", value))
    return groups.get(AGENT, groups.get("*", []))


def _lines(robots: str) -> Iterator[tuple[str, str]]:
    for line in robots.splitlines():
        name, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def _fits(pattern: str, path: str) -> bool:
    """``*`` is anything, ``$`` at the end is the end; each piece is looked for once."""
    is_whole = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    for index, piece in enumerate(others):
        if is_whole and index == len(others) - 1:
            return path.endswith(piece) and len(path) - len(piece) >= at
        at = path.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return not is_whole or at == len(path)
