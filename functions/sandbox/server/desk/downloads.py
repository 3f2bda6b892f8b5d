"""Files that the browser saves, brought to the container's workspace; and files of the workspace that a page asks for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from typing import Any, Callable, Dict, List, Set

from request_errors import RequestError

from desk.actions import NO_FILE, ActionError
from desk.tabs import Tabs
from desk.ways import FILE_BYTES_MAX, Ways

RUNNING_MAX = 4
TOLD_MAX = 20
UPLOADS_MAX = 10
SETTLE_SECONDS = 2.0
"""Small files are there at the end of the batch that asked for them."""


class Downloads:
    def __init__(self, loop: asyncio.AbstractEventLoop, tabs: Tabs, ways: Ways, directory: Callable[[], str]) -> None:
        self._loop = loop
        self._tabs = tabs
        self._ways = ways
        self._directory = directory
        self._names: Dict[str, Dict[str, str]] = {}
        self._saving: Set["asyncio.Task[None]"] = set()
        self._done: List[Dict[str, Any]] = []

    async def begin(self) -> None:
        await self._tabs.pipe.ask(
            "Browser.setDownloadBehavior",
            behavior="allowAndName",
            downloadPath=os.path.join(self._directory(), "downloads"),
            eventsEnabled=True,
        )

    def hear(self, method: str, params: Dict[str, Any]) -> None:
        guid = params["guid"]
        if method == "Browser.downloadWillBegin":
            self._names[guid] = {"name": params["suggestedFilename"], "url": params["url"]}
            if len(self._names) > RUNNING_MAX:
                self._refuse(guid, f"{RUNNING_MAX} files are on their way already.")
        elif guid not in self._names:
            return
        elif params["state"] == "inProgress":
            if max(params["receivedBytes"], params["totalBytes"]) > FILE_BYTES_MAX:
                self._refuse(guid, f"It is larger than {FILE_BYTES_MAX >> 20} MiB.")
        elif params["state"] == "canceled":
            self._end(guid, "", 0, "It was broken off.")
        else:
            task = self._loop.create_task(self._save(guid))
            self._saving.add(task)
            task.add_done_callback(self._saving.discard)

    async def settle(self) -> None:
        """Give files that are almost there the time to arrive."""
        deadline = self._loop.time() + SETTLE_SECONDS
        while self._names and self._loop.time() < deadline:
            self._tabs.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._tabs.changed.wait(), max(0.0, deadline - self._loop.time()))

    def take(self) -> List[Dict[str, Any]]:
        """Those that have ended since it was asked last."""
        done, self._done = self._done, []
        return done

    async def bring(self, paths: List[str]) -> List[str]:
        """Copies of files of the workspace, for a page: of all of them, or of none. Raises :class:`ActionError`."""
        if len(paths) > UPLOADS_MAX:
            raise ActionError(f"{NO_FILE} {UPLOADS_MAX} files are given at once at most.")
        copies = os.path.join(self._directory(), "uploads", secrets.token_hex(8))
        try:
            return [await self._copied(path, os.path.join(copies, str(number))) for number, path in enumerate(paths)]
        except BaseException:
            shutil.rmtree(copies, ignore_errors=True)
            raise

    async def _copied(self, path: str, directory: str) -> str:
        """A page is told the name, and nothing of the directories above it."""
        os.makedirs(directory)
        target = os.path.join(directory, os.path.basename(path) or "file")
        try:
            await self._ways.fetch(path, target)
        except RequestError as error:
            raise ActionError(f"{NO_FILE} {error}") from error
        except (OSError, EOFError, ValueError) as error:
            raise ActionError(f"{NO_FILE} '{path}' cannot be read.") from error
        return target

    async def _save(self, guid: str) -> None:
        source = os.path.join(self._directory(), "downloads", guid)
        try:
            size = os.stat(source).st_size
            path = await self._ways.save(self._names[guid]["name"], source)
            self._end(guid, path, size, "")
        except RequestError as error:
            self._end(guid, "", 0, str(error))
        except (OSError, EOFError):
            self._end(guid, "", 0, "The container did not take it.")
        finally:
            with contextlib.suppress(OSError):
                os.unlink(source)

    def _refuse(self, guid: str, reason: str) -> None:
        self._tabs.pipe.begin("Browser.cancelDownload", guid=guid)
        self._end(guid, "", 0, reason)

    def _end(self, guid: str, path: str, size: int, error: str) -> None:
        known = self._names.pop(guid, None)
        if known is not None and len(self._done) < TOLD_MAX:
            self._done.append({"url": known["url"][:2_000], "path": path, "size": size, "error": error})
        self._tabs.changed.set()
