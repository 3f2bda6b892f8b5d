"""Bounds of remote MCP servers, which may do anything."""

from typing import Final

from moorage.limits.units import KIB, MIB

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

MCP_ERROR_CHARS_MAX: Final = 2_000
"""Of a server's own words about what went wrong."""

MCP_URL_CHARS_MAX: Final = 2_048
MCP_HEADERS_MAX: Final = 32
MCP_HEADER_CHARS_MAX: Final = 8 * KIB
"""Of one header's value: what web servers commonly take in all."""
