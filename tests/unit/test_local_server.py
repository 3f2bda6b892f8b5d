import asyncio
import io
import json
import socket

from moorage.local.address import Address
from moorage.local.server import reap
from moorage.telemetry import open_log

from tests.opened_logs import close_log


async def test_the_embedded_stack_sends_events_at_once() -> None:
    """Without TCP_NODELAY an event waits for the acknowledgement of the one before, which a client may hold back for 40 ms."""
    accepted: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            accepted.set_result(transport)

    async with await asyncio.get_running_loop().create_server(Protocol, sock=Address().bound()) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        transport = await accepted
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        transport.abort()
        writer.close()
        await writer.wait_closed()


async def test_a_response_that_cannot_be_taken_up_keeps_no_idle_sandbox_alive() -> None:
    done: list[str] = []

    async def recover() -> int:
        done.append("recover")
        raise AssertionError("a record that nobody reads any more")

    async def expire() -> int:
        done.append("expire")
        return 1

    handler = open_log(out := io.StringIO())
    try:
        await reap(recover, expire)
    finally:
        close_log(handler)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (done, [(line["message"], line["error"]) for line in told]) == (
        ["recover", "expire"],
        [("the reaper stumbled", "AssertionError")],
    )
