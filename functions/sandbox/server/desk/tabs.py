"""The pages of one browser: which there are, which one is shown, what they ask and tell."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from desk.pipe import BrowserGone, CdpError, CdpPipe

TABS_MAX = 10
SET_UP_SECONDS = 5.0
EMPTY_SECONDS = 10.0
"""More, in which an empty page answers on a machine that does much else."""
DIALOGS_MAX = 20
"""Alerts between two batches, after which their page is closed: one that asks for ever lets nothing else happen."""
NOTES_MAX = 20
MESSAGE_CHARS_MAX = 1_000
NO_PRINTING = "window.print = () => {}"
"""The print dialog is a window of the browser's, which no picture shows and nobody can close."""


class Dialog(NamedTuple):
    kind: str
    message: str
    default: str


class Chooser:
    """A page asks for files. No window shows it: keys write into a line of paths, as in the file dialog of a window."""

    def __init__(self, frame: str, node: int, is_multiple: bool) -> None:
        self.frame = frame
        """It goes with its frame."""
        self.node = node
        """The browser's own number of the file input."""
        self.is_multiple = is_multiple
        self.typed = ""

    @property
    def question(self) -> Dialog:
        kind, what = ("files", "files: type their paths, one a line,") if self.is_multiple else ("file", "a file: type its path,")
        return Dialog(kind, f"The page asks for {what} below /mnt/data or /workspace, and keypress ENTER. ESC gives none.", "")


class Tab:
    def __init__(self, number: int, target: str, session: str) -> None:
        self.number = number
        self.target = target
        self.session = session
        self.url = ""
        self.title = ""
        self.dialog: Optional[Dialog] = None
        self.is_loading = False
        self.is_crashed = False
        self.document = 0
        """Counts the documents it has shown: refs are of one."""
        self.setting_up: "List[asyncio.Future[Any]]" = []
        """What it was asked before it ran anything."""
        self.chooser: Optional[Chooser] = None


class Tabs:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_frame: Callable[[Dict[str, Any]], None]) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._pipe: Optional[CdpPipe] = None
        self._size = (0, 0)
        self._by_session: Dict[str, Tab] = {}
        self._attachments = 0
        self._alerts = 0
        self._notes: List[str] = []
        self._dropped_notes = 0
        self._replaced: Optional[Tab] = None
        self.shown: Optional[Tab] = None
        self.changed = asyncio.Event()
        """Set whenever something of the above has changed; whoever waits clears it first."""

    @property
    def all(self) -> List[Tab]:
        return sorted(self._by_session.values(), key=lambda tab: tab.number)

    @property
    def pipe(self) -> CdpPipe:
        assert self._pipe is not None, "the browser has not been started"
        return self._pipe

    async def attach(self, pipe: CdpPipe, width: int, height: int) -> None:
        """Meet every page before it runs anything, those of the future too."""
        self._pipe, self._size = pipe, (width, height)
        await pipe.ask("Target.setDiscoverTargets", discover=True)
        await pipe.ask("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        while self.shown is None:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10.0)
        await self._until_set_up(self.shown)

    async def _until_set_up(self, tab: Tab) -> None:
        """An address that is opened before is opened by another process, which does not know yet that somebody listens: that it is
        there would never be told."""
        await asyncio.wait(tab.setting_up, timeout=SET_UP_SECONDS)

    def note(self, sentence: str) -> None:
        if sentence in self._notes:
            return
        if len(self._notes) < NOTES_MAX:
            self._notes.append(sentence)
        else:
            self._dropped_notes += 1

    def take_notes(self) -> List[str]:
        """What has happened since it was asked last."""
        notes, self._notes = self._notes, []
        if self._dropped_notes:
            notes.append(f"({self._dropped_notes} more such things happened.)")
        self._alerts = self._dropped_notes = 0
        return notes

    async def describe(self) -> None:
        """Learn addresses and titles anew: the browser tells of a new title only with the next address."""
        for info in (await self.pipe.ask("Target.getTargets"))["targetInfos"]:
            self._described(info)

    async def show(self, tab: Tab) -> None:
        self.shown = tab
        self.changed.set()
        await self.pipe.ask("Page.bringToFront", tab.session)

    async def open(self, url: str) -> None:
        before = self._attachments
        await self.pipe.ask("Target.createTarget", url=url)
        while self._attachments == before:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10.0)
        if self.shown is not None:
            await self._until_set_up(self.shown)

    async def replace(self, tab: Tab) -> Tab:
        """A page by an empty one in another process, and return that. A page that crashed tells nothing any more, and one that computes
        for ever holds on."""
        self._replaced = tab
        await self.open("about:blank")
        self._by_session.pop(tab.session, None)
        self.pipe.begin("Target.closeTarget", targetId=tab.target)
        assert self.shown is not None, "a tab was just opened"
        _, silent = await asyncio.wait(self.shown.setting_up, timeout=0 if self.shown.is_crashed else EMPTY_SECONDS)
        if self.shown.is_crashed or silent:
            # A page that takes all memory can take Chromium's zygotes with it, which start every page. Another browser is of use.
            self.pipe.close()
            raise BrowserGone("The browser starts no page any more.")
        self.shown.number = tab.number
        return self.shown

    async def close(self, tab: Tab) -> None:
        """The last one is emptied: a browser without a page ends."""
        if len(self._by_session) == 1:
            await self.replace(tab)
        else:
            try:
                await self.pipe.ask("Target.closeTarget", targetId=tab.target)
            except BrowserGone:
                raise
            except CdpError:
                pass  # The page has closed itself meanwhile.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._until_detached(tab), SET_UP_SECONDS)

    async def _until_detached(self, tab: Tab) -> None:
        """What is asked of the page that is shown would be asked of this one before."""
        while tab.session in self._by_session:
            self.changed.clear()
            await self.changed.wait()

    async def answer(self, tab: Tab, is_accepted: bool, text: str = "") -> None:
        dialog, tab.dialog = tab.dialog, None
        if dialog is not None:
            await self.pipe.ask("Page.handleJavaScriptDialog", tab.session, accept=is_accepted, promptText=text)

    def hear(self, session: str, method: str, params: Dict[str, Any]) -> None:
        if method == "Target.attachedToTarget":
            self._attached(params)
        elif method == "Target.detachedFromTarget":
            self._detached(params["sessionId"])
        elif method == "Target.targetInfoChanged":
            self._described(params["targetInfo"])
        tab = self._by_session.get(session)
        if tab is None:
            return
        if method == "Page.javascriptDialogOpening":
            self._asked(tab, params)
        elif method == "Page.javascriptDialogClosed":
            tab.dialog = None
        elif method in ("Page.frameStartedLoading", "Page.frameStoppedLoading") and params["frameId"] == tab.target:
            tab.is_loading = method == "Page.frameStartedLoading"
        elif method == "Page.frameNavigated" and "parentId" not in params["frame"]:
            tab.document += 1
            tab.is_crashed, tab.chooser = False, None
        elif method in ("Page.frameNavigated", "Page.frameDetached"):
            frame = params["frameId"] if "frameId" in params else params["frame"]["id"]
            if tab.chooser is not None and tab.chooser.frame == frame:
                tab.chooser = None
        elif method == "Page.fileChooserOpened":
            self._asked_for_files(tab, params)
        elif method == "Inspector.targetCrashed":
            tab.is_crashed, tab.is_loading, tab.dialog, tab.chooser = True, False, None, None
            self.note(f"The page in tab {tab.number} crashed, probably for want of memory. 'navigate' opens another one.")
        elif method == "Page.screencastFrame":
            self.pipe.begin("Page.screencastFrameAck", session, sessionId=params["sessionId"])
            if tab is self.shown:
                self._on_frame(params)
            return
        self.changed.set()

    def _attached(self, params: Dict[str, Any]) -> None:
        info, session = params["targetInfo"], params["sessionId"]
        pipe = self.pipe
        if info["type"] != "page" or info["url"].startswith("chrome:"):  # Parts of a window that nobody sees.
            pipe.begin("Runtime.runIfWaitingForDebugger", session)
            return
        if len(self._by_session) >= TABS_MAX and self._replaced is None:
            pipe.begin("Target.closeTarget", targetId=info["targetId"])
            self.note(f"A page wanted another tab, and {TABS_MAX} are open: it was not opened.")
            return
        self._attachments += 1
        number = 1 + max((tab.number for tab in self._by_session.values()), default=0)
        tab = self._by_session[session] = Tab(number, info["targetId"], session)
        width, height = self._size
        tab.setting_up = [
            pipe.begin("Page.enable", session),
            pipe.begin("Inspector.enable", session),
            pipe.begin("DOM.enable", session),
            pipe.begin("Emulation.setDeviceMetricsOverride", session, width=width, height=height, deviceScaleFactor=1, mobile=False),
            pipe.begin("Page.setInterceptFileChooserDialog", session, enabled=True),
            pipe.begin("Page.addScriptToEvaluateOnNewDocument", session, source=NO_PRINTING, runImmediately=True),
            pipe.begin("Runtime.runIfWaitingForDebugger", session),
        ]
        if self._replaced is not None:
            self._replaced = None
        elif self.shown is not None:
            self.note(f"A new tab was opened, number {tab.number}, and is shown.")
        self.shown = tab
        self._described(info)

    def _detached(self, session: str) -> None:
        tab = self._by_session.pop(session, None)
        if tab is None:
            return
        if tab is self.shown:
            self.shown = self.all[-1] if self._by_session else None
            if self.shown is not None:
                self.pipe.begin("Page.bringToFront", self.shown.session)
                self.note(f"Tab {tab.number} was closed; tab {self.shown.number} is shown.")
        self.changed.set()

    def _described(self, info: Dict[str, Any]) -> None:
        for tab in self._by_session.values():
            if tab.target == info["targetId"]:
                tab.url, tab.title = info["url"], info["title"]
                self.changed.set()

    def _asked(self, tab: Tab, params: Dict[str, Any]) -> None:
        kind, message = params["type"], params["message"][:MESSAGE_CHARS_MAX]
        tab.dialog = Dialog(kind, message, params.get("defaultPrompt", "")[:MESSAGE_CHARS_MAX])
        self._alerts += 1
        if self._alerts == DIALOGS_MAX + 1:
            self._loop.create_task(self._silence(tab))
        elif kind in ("alert", "beforeunload"):
            words = (
                f"The page said in an alert: {message!r}." if kind == "alert" else "The page asked whether to leave it; it was left."
            )
            self.note(words)
            self._loop.create_task(self._accept(tab))

    def _asked_for_files(self, tab: Tab, params: Dict[str, Any]) -> None:
        if "backendNodeId" in params:
            tab.chooser = Chooser(params["frameId"], params["backendNodeId"], params["mode"] == "selectMultiple")
        else:
            self.note("The page asks for files by a function that gives none here: only an <input type=file> gets files.")

    async def _accept(self, tab: Tab) -> None:
        with contextlib.suppress(CdpError, asyncio.TimeoutError):  # It has gone with its page.
            await self.answer(tab, True)

    async def _silence(self, tab: Tab) -> None:
        self.note(f"The page in tab {tab.number} opened more than {DIALOGS_MAX} dialogs one behind the other, and was closed.")
        with contextlib.suppress(CdpError, asyncio.TimeoutError):
            await self.replace(tab)
