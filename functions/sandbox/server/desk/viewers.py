"""Pictures for people who watch: made while somebody looks, and at no other time."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, Optional, Tuple

from desk.pipe import CdpError
from desk.tabs import Tab, Tabs

QUALITY = 60
UNSEEN_SECONDS = 10.0
"""After which nobody is taken to look any more."""


class Viewers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._number = 0
        self._picture = ""
        self._tab: Optional[Tab] = None
        """Which one is drawn."""
        self._timer: Optional[asyncio.TimerHandle] = None
        self._tabs: Optional[Tabs] = None
        self._drawn = asyncio.Event()

    def hear(self, params: Dict[str, Any]) -> None:
        self._show(params["data"])

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._drawn.set()

    async def frame(self, tabs: Tabs, after: int, seconds: float) -> Tuple[int, str]:
        """The newest one behind ``after`` with its number, as soon as there is one; an empty one if there is none in time."""
        self._tabs = tabs
        deadline = self._loop.time() + seconds
        while True:
            self._watch(tabs)
            if self._number > after and self._picture:
                return self._number, self._picture
            self._drawn.clear()
            try:
                # A tab that is opened or chosen meanwhile must be followed.
                left = deadline - self._loop.time()
                await asyncio.wait_for(self._drawn.wait(), max(0.0, min(left, 1.0)))
            except asyncio.TimeoutError:
                if self._loop.time() >= deadline:
                    return self._number, ""

    def _watch(self, tabs: Tabs) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(UNSEEN_SECONDS, self._unwatch)
        tab = tabs.shown
        if tab is None or tab is self._tab:
            return
        if self._tab is not None:
            tabs.pipe.begin("Page.stopScreencast", self._tab.session)
        self._tab = tab
        self._loop.create_task(self._begin(tabs, tab))

    async def _begin(self, tabs: Tabs, tab: Tab) -> None:
        """A screencast sends nothing while nothing moves, so that the first picture is taken."""
        try:
            await tabs.pipe.ask("Page.startScreencast", tab.session, format="jpeg", quality=QUALITY, everyNthFrame=1)
            shot = await tabs.pipe.ask("Page.captureScreenshot", tab.session, format="jpeg", quality=QUALITY)
            self._show(shot["data"])
        except (CdpError, asyncio.TimeoutError):
            if self._tab is tab:
                self._tab = None

    def _show(self, picture: str) -> None:
        self._number += 1
        self._picture = picture
        self._drawn.set()

    def _unwatch(self) -> None:
        tab, self._tab = self._tab, None
        if tab is not None and self._tabs is not None:
            self._tabs.pipe.begin("Page.stopScreencast", tab.session)
            self._picture = ""
