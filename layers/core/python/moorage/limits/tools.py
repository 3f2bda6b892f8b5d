"""Bounds of tools that ask others: image models, the web, and remote MCP servers, which may do anything."""

from typing import Final

from moorage.limits.units import KIB, MIB

# --- Images that are drawn for a response, and those that it draws on -------------------------------------------------

IMAGE_CALL_SECONDS_MAX: Final = 420
"""One call. OpenAI's guide speaks of up to two minutes for a complex prompt; four high-quality edits of large inputs took five."""

IMAGE_BYTES_MAX: Final = 20 * MIB
"""Of one image, drawn or drawn on; each is held in memory. OpenAI's largest come to 4-8 MB as PNG, and it takes inputs of up to 50."""

IMAGE_ANSWER_BYTES_MAX: Final = 112 * MIB
"""Of an image model's answer: the image and three that come before it, in base64."""

IMAGE_EVENT_BYTES_MAX: Final = 28 * MIB
"""Of one event of it: an image in base64."""

IMAGE_REFUSAL_BYTES_MAX: Final = 64 * KIB
"""So much is read of an answer that is none."""

IMAGE_CALL_BYTES_MAX: Final = 1 * MIB
"""Of a call's item and its events as they are stored: the images stand beside them."""

IMAGE_PROMPT_CHARS_MAX: Final = 32_000
"""OpenAI's bound of ``prompt``; more is cut off. Stability's models take 10,000."""

IMAGES_DRAWN_ON_MAX: Final = 16
"""Images of one edit (OpenAI's bound)."""

IMAGES_PER_ROUND_MAX: Final = 8
"""Calls that one turn may make: each costs as much as a long answer."""

IMAGE_PARTS_MAX: Final = 3
"""The API's own bound of ``partial_images``."""

IMAGE_MASK_CHARS_MAX: Final = 256 * KIB
"""Of a mask that stands in the request; it lies in the response's record. Larger ones come by ``file_id``."""

assert IMAGE_EVENT_BYTES_MAX >= IMAGE_BYTES_MAX * 4 // 3
assert IMAGE_ANSWER_BYTES_MAX >= (IMAGE_PARTS_MAX + 1) * IMAGE_EVENT_BYTES_MAX

# --- Searching the web and reading its pages, which strangers wrote ---------------------------------------------------

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

# --- Remote MCP servers -----------------------------------------------------------------------------------------------

MCP_LIST_SECONDS_MAX: Final = 30
"""For one server to say what it offers, before a model can be asked; several are asked at once."""

MCP_CALL_SECONDS_MAX: Final = 300
"""One call of a remote tool, its connection included; SDKs wait 30 to 60 seconds, tools that search or build take minutes."""

MCP_GOODBYE_SECONDS_MAX: Final = 2
"""For a server to take the end of its session, which it is told when its result is here already."""

MCP_TOOLS_MAX: Final = 512
MCP_PAGES_MAX: Final = 32
"""Of one server's list. The largest public servers have about a hundred tools."""

MCP_LIST_BYTES_MAX: Final = 512 * KIB
"""Of the list's item, which stands in the log and in front of every model: a hundred tools take 80 KB."""

MCP_OUTPUT_BYTES_MAX: Final = 4 * MIB
"""Of the item of a call: its result stands in the log twice, and pictures come as base64."""

MCP_READ_CHARS_MAX: Final = 64 * KIB
"""Of the texts of one result that a model reads, some 16,000 tokens; the item has them whole."""

MCP_READ_PARTS_MAX: Final = 64
"""Texts and pictures of one result that a model reads as such; of more it reads the JSON, bounded. A result has room for 40,000
pictures of one pixel, which no window takes."""

MCP_MESSAGE_BYTES_MAX: Final = 6 * MIB
MCP_CONNECTION_BYTES_MAX: Final = 16 * MIB
"""What one message of a server, and one connection to it in all, may bring: more is no result but a flood."""

MCP_MESSAGE_VALUES_MAX: Final = 16_000
"""JSON values of one message, without schemas and structured results: 4,000 texts, or 1,000 tools. The SDK makes objects of them on the
event loop, within some 50 ms."""

MCP_ERROR_CHARS_MAX: Final = 2_000
"""Of a server's own words about what went wrong."""

MCP_URL_CHARS_MAX: Final = 2_048
MCP_HEADERS_MAX: Final = 32
MCP_HEADER_CHARS_MAX: Final = 8 * KIB
"""Of one header's value: what web servers commonly take in all."""
