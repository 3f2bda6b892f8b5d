"""A remote call in figures: what the guarded way costs over the protocol's own SDK, on loopback.

    python -m tests.bench.bench_mcp [--calls 200]

Both open a connection for each call, because nothing is kept between calls here; the server is the same, in a thread of its own. The
calls take turns, so that what else the machine does falls on both alike. Prints a table.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from moorage.egress.fetch import Fetcher
from moorage.settings import Settings
from moorage.tools.mcp import session
from moorage.tools.mcp.servers import McpServer

from tests.mcp_servers import LOOPBACK, Depot, depot_beside

_WARM: Final = 10
_NAME: Final = "find_part"
_ARGUMENTS: Final[dict[str, Any]] = {"sku": "A-7"}


async def measure(url: str, port: int, calls: int) -> dict[str, list[float]]:
    """Milliseconds of each call, by the way it took."""
    settings = Settings("memory", "memory", content_key="ab" * 32, fetch_allowed_networks=LOOPBACK, egress_ports=(port,))
    fetcher = Fetcher.of(settings)
    plain: dict[str, Any] = {"type": "mcp", "server_label": "depot", "server_url": url}
    server = McpServer.of_request(plain)

    async def guarded() -> None:
        assert (await session.call_tool(server, fetcher, _NAME, _ARGUMENTS)).output == "14 of A-7 in stock"

    request = types.CallToolRequest(params=types.CallToolRequestParams(name=_NAME, arguments=_ARGUMENTS))

    async def bare() -> None:
        # Its own client would load every certificate of the system, for an address without TLS.
        http = httpx2.AsyncClient(verify=False, trust_env=False)
        async with http, Client(streamable_http_client(url, http_client=http)) as client:
            assert not (await client.session.send_request(request, types.CallToolResult)).is_error

    ways: dict[str, Callable[[], Awaitable[None]]] = {"bare SDK": bare, "guarded": guarded}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(calls + _WARM):
        for name, call in ways.items():
            began = time.perf_counter()
            await call()
            if number >= _WARM:
                taken[name].append((time.perf_counter() - began) * 1000)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    with depot_beside(Depot()) as running:
        taken = asyncio.run(measure(f"{running.url}/mcp", running.port, options.calls))
    for name, milliseconds in taken.items():
        print(f"{name:10} p50 {statistics.median(milliseconds):6.1f} ms  p95 {statistics.quantiles(milliseconds, n=20)[-1]:6.1f} ms")
    added = statistics.median(taken["guarded"]) - statistics.median(taken["bare SDK"])
    print(f"{'added':10} p50 {added:6.1f} ms")


if __name__ == "__main__":
    main()
