from __future__ import annotations

import asyncio
import contextlib

READ_BYTES = 64 * 1024


async def forward(socket_path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection from 127.0.0.1 to the proxy's Unix socket: in a sandbox without a network the only way out."""
    try:
        far_reader, far_writer = await asyncio.open_unix_connection(socket_path)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
    finally:
        writer.close()
        far_writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(READ_BYTES)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()
