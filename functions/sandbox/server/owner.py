"""What the server and the owner of its sandbox tell each other: lines of JSON over a socket that no command has.

The owner sees all sandboxes and the machine's disk. It says ``{"reason": text}``: why this container should write no more, empty if it
may. The server says ``{"used": bytes}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

from disk_quota import DiskQuota

REPORT_SECONDS = 0.5


class Owner:
    def __init__(self, quota: DiskQuota) -> None:
        self._quota = quota

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the owner leaves. Its last words do not hold any longer then."""
        reporting = asyncio.ensure_future(self._report(writer))
        try:
            async for line in reader:
                self._quota.hear(json.loads(line)["reason"])
        except (OSError, ValueError):
            pass  # torn, or too long a line
        finally:
            reporting.cancel()
            writer.close()
            self._quota.hear("")

    async def _report(self, writer: asyncio.StreamWriter) -> None:
        """Report the used bytes at each change."""
        told = -1
        while True:
            if self._quota.charged != told:
                told = self._quota.charged
                with contextlib.suppress(OSError):
                    writer.write(json.dumps({"used": told}).encode() + b"\n")
                    await writer.drain()
            await asyncio.sleep(REPORT_SECONDS)
