"""The client that the conformance package of the Model Context Protocol tries: what lists and calls servers' tools for responses.

python tests/conformance/remote_client.py http://localhost:1234/mcp      the scenario's name comes by the environment
"""

import asyncio
import os
import sys
from typing import Any, Final
from urllib.parse import urlsplit

from moorage.egress.fetch import Fetcher
from moorage.settings import Settings
from moorage.tools.mcp import session
from moorage.tools.mcp.servers import McpServer

_CALLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "tools_call": ("add_numbers", {"a": 5, "b": 3}),
    "sse-retry": ("test_reconnection", {}),
}


async def main(url: str) -> None:
    networks, ports = ("127.0.0.0/8", "::1/128"), (urlsplit(url).port or 80,)
    settings = Settings("memory", "memory", content_key="ab" * 32, fetch_allowed_networks=networks, egress_ports=ports)
    server, fetcher = McpServer(url), Fetcher.of(settings)
    listed = {tool["name"] for tool in await session.list_tools(server, fetcher)}
    if (call := _CALLS.get(os.environ["MCP_CONFORMANCE_SCENARIO"])) is not None:
        name, arguments = call
        assert name in listed, listed
        called = await session.call_tool(server, fetcher, name, arguments)
        assert called.error is None, called.error
        print(called.output)


asyncio.run(main(sys.argv[1]))
