"""Bounds of searching the web and reading its pages, which strangers wrote."""

from typing import Final

from moorage.limits.units import KIB, MIB

WEB_CALL_SECONDS_MAX: Final = 90
"""One call: a search, or a page with its robots.txt and one redirect; each request has its own bound besides."""

WEB_SEARCH_SECONDS_MAX: Final = 30
"""For the search engine's answer; a SearXNG asks many others and waits some seconds for each."""

WEB_SEARCH_BYTES_MAX: Final = 4 * MIB
"""Of that answer. Twenty results with excerpts take 100 KB."""

WEB_CALL_BYTES_MAX: Final = 1 * MIB
"""Of a call's item: what its excerpts and its page can come to at most, as JSON with every character escaped."""

WEB_QUERY_CHARS_MAX: Final = 400
WEB_QUERY_WORDS_MAX: Final = 50
"""What Brave takes in ``q``, the least of the engines; more is cut off."""

WEB_SITES_MAX: Final = 8
"""Domains that are written into a query as ``site:``, for engines that have no filter; with more, results alone are filtered."""

WEB_DOMAINS_MAX: Final = 100
"""The API's own bound of ``filters.allowed_domains``."""

WEB_URL_CHARS_MAX: Final = 2_048
"""Of a page's address; longer ones are cut by browsers and proxies on the way."""

WEB_TITLE_CHARS_MAX: Final = 300
WEB_EXCERPT_CHARS_MAX: Final = 2_000
"""Of one result; engines give 200 to 1,500 characters."""

WEB_PAGE_BYTES_MAX: Final = 4 * MIB
"""Of a page before it is read. The longest articles of Wikipedia have 2 MB of HTML. Reading takes a
second of processor time for each MiB at worst."""

WEB_PAGE_FRESH_SECONDS: Final = 600
"""How long a page that was read is not read again in the same response, where its server says nothing about that."""

WEB_PAGE_FRESH_SECONDS_MAX: Final = 24 * 3600
"""The same, whatever its server says: a response may run for days."""

WEB_ROBOTS_BYTES_MAX: Final = 500 * KIB
"""RFC 9309, section 2.5: at least so much of a robots.txt is read. What comes behind is not."""

WEB_PATTERN_CHARS_MAX: Final = 500
WEB_MATCHES_MAX: Final = 20
WEB_MATCH_CONTEXT_CHARS: Final = 300
"""Of what ``find_in_page`` looks for, the places that it shows, and what it shows around each."""
