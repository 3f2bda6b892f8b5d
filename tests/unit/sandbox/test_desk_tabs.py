"""The pages of a browser, without one: what a desk waits for before it opens an address."""

import asyncio
from typing import Any, cast

from desk.pipe import CdpPipe
from desk.tabs import Tabs

PAGE = {"targetId": "t1", "type": "page", "url": "about:blank", "title": ""}


class SlowBrowser:
    """It tells of its page, and answers nothing that it is asked about it before :meth:`answer`."""

    def __init__(self) -> None:
        self.tabs: Tabs
        self.asked: dict[str, asyncio.Future[dict[str, Any]]] = {}

    def begin(self, method: str, session: str = "", **params: Any) -> "asyncio.Future[dict[str, Any]]":
        self.asked[method] = asyncio.get_running_loop().create_future()
        return self.asked[method]

    async def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        if method == "Target.setAutoAttach":
            self.tabs.hear("", "Target.attachedToTarget", {"targetInfo": PAGE, "sessionId": "s1"})
        return {}

    def answer(self, *methods: str) -> None:
        for method in methods:
            self.asked[method].set_result({})


async def test_no_address_is_opened_before_the_page_knows_that_somebody_listens() -> None:
    browser = SlowBrowser()
    tabs = browser.tabs = Tabs(asyncio.get_running_loop(), lambda frame: None)
    attaching = asyncio.create_task(tabs.attach(cast("CdpPipe", browser), 1280, 800))
    while "Runtime.runIfWaitingForDebugger" not in browser.asked:
        await asyncio.sleep(0)
    first, *others = browser.asked
    assert first == "Page.enable"
    browser.answer(*others)
    await asyncio.sleep(0)
    assert (tabs.shown is not None, attaching.done()) == (True, False)
    browser.answer(first)
    async with asyncio.timeout(30):
        await attaching


async def test_a_page_that_asks_for_files_by_a_function_is_told_of() -> None:
    browser = SlowBrowser()
    tabs = browser.tabs = Tabs(asyncio.get_running_loop(), lambda frame: None)
    attaching = asyncio.create_task(tabs.attach(cast("CdpPipe", browser), 1280, 800))
    while "Runtime.runIfWaitingForDebugger" not in browser.asked:
        await asyncio.sleep(0)
    browser.answer(*browser.asked)
    await attaching
    tabs.hear("s1", "Page.fileChooserOpened", {"frameId": "t1", "mode": "selectSingle"})
    assert tabs.shown is not None
    assert tabs.shown.chooser is None
    assert tabs.take_notes() == ["The page asks for files by a function that gives none here: only an <input type=file> gets files."]
