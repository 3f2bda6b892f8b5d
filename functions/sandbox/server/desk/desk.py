"""A browser beside the commands, in walls of its own: started once, used in batches, watched and taken over by people.

What is done is done in one order: batches wait for each other, and for a person who has control.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import Any, AsyncContextManager, AsyncIterator, Callable, Dict, List, Optional

from configuration import ServerConfig
from messages import HttpRequest, HttpResponse
from processes import Processes
from request_errors import RequestError, field
from transcript import HEARTBEAT_SECONDS

from desk.actions import ActionError, Actions, checked
from desk.batches import Batch, Batches
from desk.chromium import Chromium, installed, unavailable
from desk.control import DeskControl
from desk.downloads import Downloads
from desk.pipe import BrowserGone, CdpError
from desk.proxy import DeskProxy
from desk.tabs import Tab, Tabs
from desk.tree import Tree
from desk.typed import TypedFields
from desk.viewers import Viewers
from desk.ways import Ways

WIDTHS = range(320, 2_561)
HEIGHTS = range(240, 1_601)
BATCH_SECONDS = 60.0
PICTURE_SECONDS = 5.0
IDLE_SECONDS = 20 * 60.0
LEASE_SECONDS = 60.0
LOST = "The browser ended in the middle of this action, which may have happened."
CANCELLED = "The response was cancelled before this action."

Turn = Callable[[], AsyncContextManager[None]]
"""What one action is done within. Between two of a batch, a person may take control."""


class BatchCancelled(Exception):
    """Nobody waits for the rest of it."""


class Desk:
    def __init__(self, loop: asyncio.AbstractEventLoop, config: ServerConfig, processes: Processes, ways: Ways) -> None:
        self._loop = loop
        self._config = config
        self._processes = processes
        self._ways = ways
        self._starting = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._order = asyncio.Lock()
        self._batches = Batches(loop)
        self._idle_seconds = float(config.desk.get("idle_seconds", IDLE_SECONDS))
        self._control = DeskControl(loop, float(config.desk.get("lease_seconds", LEASE_SECONDS)))
        self._idle: Optional[asyncio.TimerHandle] = None
        self._browser: Optional[OpenBrowser] = None

    @property
    def running(self) -> int:
        """What somebody waits for."""
        return self._batches.running + (1 if self._control.holder else 0)

    async def route(self, request: HttpRequest, response: HttpResponse) -> None:
        """Answer one request below ``/v1/desk``."""
        if not self._config.desk or installed(self._config) is None:
            raise RequestError(501, "desk_unavailable", unavailable())
        action = (request.method, *request.path[2:])
        if action != ("GET", "frame"):  # To look is no use.
            self._stay_awake()
        if action == ("PUT",):
            starting = self._loop.create_task(self._start(start_of(await request.json())))
            await response.stream("application/x-ndjson", last_of(starting))
        elif action == ("DELETE",):
            await self.stop()
            await response.json(200, {})
        elif len(action) == 3 and action[:2] == ("PUT", "batches"):
            body = await request.json()
            plan = batch_of(body)
            batch = self._batches.begin(action[2], body, lambda batch: self._run(plan, batch))
            await response.stream("application/x-ndjson", batch.lines())
        elif len(action) == 3 and action[:2] == ("GET", "batches"):
            await response.stream("application/x-ndjson", self._batches.get(action[2]).lines())
        elif len(action) == 3 and action[:2] == ("DELETE", "batches"):
            await response.json(200, {"cancelled": self._batches.cancel(action[2])})
        elif action == ("GET", "frame"):
            await self._frame(request, response)
        elif action == ("POST", "control"):
            body = await request.json()
            await response.json(200, self._control.change(field(body, "holder", str), field(body, "action", str)))
        elif action == ("POST", "input"):
            await self._input(await request.json(), response)
        else:
            raise RequestError(404, "not_found", f"Unknown: {request.method} /{'/'.join(request.path)}")

    async def stop(self) -> None:
        async with self._starting:
            browser, self._browser = self._browser, None
            if browser is not None:
                await browser.stop()

    def _stay_awake(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        if self.running:
            self._stay_awake()
        else:
            self._loop.create_task(self.stop())

    async def _start(self, plan: Dict[str, Any]) -> Dict[str, Any]:
        async with self._starting:
            browser = self._browser
            if browser is None or browser.has_ended:
                if browser is not None:
                    await browser.stop()
                self._browser = None
                browser = OpenBrowser(self._loop, self._config, self._processes, self._ways, plan["width"], plan["height"])
                await browser.start()
                self._browser = browser
                if plan["start_url"]:
                    async with self._turn:
                        await browser.begin_at(plan["start_url"])
            return {"type": "desk", **browser.told()}

    def _open(self) -> "OpenBrowser":
        if self._browser is None:
            raise RequestError(409, "desk_not_started", "The browser has not been started: PUT /v1/desk starts it.")
        return self._browser

    async def _run(self, plan: Dict[str, Any], batch: Batch) -> Dict[str, Any]:
        async with self._order:
            browser = self._browser
            if browser is None:
                done = [{"ok": False, "error": LOST}] if plan["actions"] else []
                return {"type": "batch", "lost": True, "actions": done, **nothing_shown()}
            result = await browser.run(plan, lambda: self._turn_of(batch, browser))
            result["page"]["notes"] = [*self._control.take_notes(), *result["page"]["notes"]]
            return {"type": "batch", **result}

    @contextlib.asynccontextmanager
    async def _turn_of(self, batch: Batch, browser: "OpenBrowser") -> AsyncIterator[None]:
        """Waits for a person who has control. Raises :class:`BatchCancelled`."""
        while True:
            await self._control.until_free(batch.cancelled)
            if batch.cancelled.is_set():
                raise BatchCancelled
            async with self._turn:
                if not self._control.holder:
                    await browser.cover_typed()
                    yield
                    return

    async def _input(self, body: Dict[str, Any], response: HttpResponse) -> None:
        """A person's, as soon as the action that was under way is over: no other begins while somebody has control."""
        browser, actions = self._open(), checked(field(body, "actions", list))
        holder, number = field(body, "holder", str), field(body, "number", int)
        done = self._control.input(holder, number, lambda: self._person(browser, actions))
        await response.stream("application/x-ndjson", last_of(done))

    async def _person(self, browser: "OpenBrowser", actions: List[Dict[str, Any]]) -> Dict[str, Any]:
        async with self._turn:
            return {"type": "input", "actions": await browser.act(actions)}

    async def _frame(self, request: HttpRequest, response: HttpResponse) -> None:
        browser = self._open()
        seconds = request.number("wait_ms", 0, 60_000) / 1000
        waiting = self._loop.create_task(browser.frame(request.after, seconds, self._control))
        await response.stream("application/x-ndjson", last_of(waiting))


class OpenBrowser:
    """One browser from its start to its end, with all that it holds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: ServerConfig, processes: Processes, ways: Ways, width: int, height: int
    ) -> None:
        self._loop = loop
        self._size = (width, height)
        self.has_ended = False
        self.desk_id = f"desk_{secrets.token_hex(12)}"
        self._proxy = DeskProxy(ways.to_container, ways.upstream)
        self._viewers = Viewers(loop)
        self._tabs = Tabs(loop, self._viewers.hear)
        self._chromium = Chromium(loop, config, processes, self._hear, self._ended)
        self._downloads = Downloads(loop, self._tabs, ways, lambda: self._chromium.directory)
        self._typed = TypedFields(self._tabs)
        self._tree = Tree(self._tabs, self._typed)
        self._actions = Actions(self._tabs, self._tree.node, self._downloads.bring, self._proxy.reason, ways.placeholder)
        self._last_picture: Dict[str, str] = {}
        self._has_person_typed = False

    async def start(self) -> None:
        try:
            port = await self._proxy.start()
            pipe = await self._chromium.start(port, *self._size)
            await self._tabs.attach(pipe, *self._size)
            await self._downloads.begin()
        except (CdpError, asyncio.TimeoutError) as error:
            words = self._chromium.last_words()
            await self.stop()
            raise RequestError(
                500, "desk_unavailable", f"The browser did not start: {error or 'it does not answer'}. {words}"
            ) from error
        except BaseException:
            await self.stop()
            raise

    async def begin_at(self, url: str) -> None:
        """On a page; why it did not open, if it did not, is told with the first batch."""
        outcomes, _ = await self.do([{"type": "navigate", "url": url}], at_once)
        for outcome in outcomes:
            if not outcome["ok"]:
                self._tabs.note(outcome["error"])

    async def stop(self) -> None:
        self.has_ended = True
        self._proxy.stop()
        self._viewers.stop()
        await self._chromium.stop()

    def told(self) -> Dict[str, Any]:
        return {
            "desk_id": self.desk_id,
            "browser": self._chromium.version,
            "is_whole": self._chromium.is_whole,
            "has_own_sandbox": self._chromium.has_own_sandbox,
            "width": self._size[0],
            "height": self._size[1],
        }

    async def run(self, plan: Dict[str, Any], turn: Turn) -> Dict[str, Any]:
        outcomes, is_lost = await self.do(plan["actions"], turn)
        answer: Dict[str, Any] = {"lost": is_lost, "actions": outcomes, **nothing_shown()}
        with contextlib.suppress(BatchCancelled):
            async with turn():
                return await self._look(plan, answer)
        return answer

    async def _look(self, plan: Dict[str, Any], answer: Dict[str, Any]) -> Dict[str, Any]:
        tab = self._tabs.shown
        if answer["lost"] or self.has_ended or tab is None:
            return {**answer, "lost": True}
        answer.update(await self._picture(tab, plan["picture"]))
        if plan["tree"]:
            answer.update(await self._read(tab))
        await self._downloads.settle()
        with contextlib.suppress(CdpError, asyncio.TimeoutError):
            await self._tabs.describe()
        answer["page"] = self._page()
        return answer

    async def do(self, actions: List[Dict[str, Any]], turn: Turn) -> "tuple[List[Dict[str, Any]], bool]":
        """How each went, as far as they went, and whether the browser ended meanwhile."""
        outcomes: List[Dict[str, Any]] = []
        left = BATCH_SECONDS
        for action in actions:
            try:
                async with turn():
                    began = self._loop.time()
                    await asyncio.wait_for(self._actions.do(action), max(0.1, left))
                    left -= self._loop.time() - began
            except BatchCancelled:
                return [*outcomes, {"ok": False, "error": CANCELLED}], False
            except BrowserGone:
                return [*outcomes, {"ok": False, "error": LOST}], True
            except ActionError as error:
                return [*outcomes, {"ok": False, "error": str(error)}], False
            except asyncio.TimeoutError:
                error_text = f"This took longer than a batch may, {BATCH_SECONDS:.0f} s."
                return [*outcomes, {"ok": False, "error": error_text}], False
            outcomes.append({"ok": True})
        return outcomes, False

    async def act(self, actions: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """A person's, whose words no picture of the model's is to show."""
        outcomes: List[Dict[str, Any]] = []
        for action in actions:
            if action["type"] in ("type", "keypress"):
                self._has_person_typed = True
                await self._typed.note()  # A key may lead on to another field, or to another page.
            outcomes += (await self.do([action], at_once))[0]
            if action["type"] in ("type", "keypress"):
                await self._typed.note()
            if not outcomes[-1]["ok"]:
                break
        return outcomes

    async def cover_typed(self) -> None:
        """What a person has typed is not for the model: neither to see, nor to go on from."""
        if self._has_person_typed:
            self._has_person_typed = False
            self._actions.forget_lines()
        await self._typed.cover()

    async def frame(self, after: int, seconds: float, control: DeskControl) -> Dict[str, Any]:
        number, picture = await self._viewers.frame(self._tabs, after, seconds)
        tab = self._tabs.shown
        return {
            "type": "frame",
            "number": number,
            "picture": picture,
            "url": tab.url if tab is not None else "",
            "title": tab.title if tab is not None else "",
            "holder": control.holder,
            "pointer": list(self._actions.pointer),
        }

    async def _picture(self, tab: Tab, wanted: Dict[str, Any]) -> Dict[str, str]:
        """Of the page as it is; while a question is open, or the page does not answer, as it was last."""
        quality = {"quality": wanted["quality"]} if wanted["format"] == "jpeg" else {}
        if tab.dialog is None and not tab.is_crashed:
            try:
                shot = await self._tabs.pipe.ask(
                    "Page.captureScreenshot", tab.session, seconds=PICTURE_SECONDS, format=wanted["format"], **quality
                )
                self._last_picture = {"picture": shot["data"], "media_type": f"image/{wanted['format']}"}
                return self._last_picture
            except asyncio.TimeoutError:
                self._tabs.note("The page does not answer: the picture shows it as it was. 'navigate' opens another one.")
            except CdpError:
                self._tabs.note("No picture could be made.")
        return self._last_picture

    async def _read(self, tab: Tab) -> Dict[str, Any]:
        if tab.dialog is None and not tab.is_crashed:
            with contextlib.suppress(CdpError, asyncio.TimeoutError):
                nodes, text = await self._tree.read(tab)
                return {"tree": nodes, "text": text}
        return {"tree": [], "text": ""}

    def _page(self) -> Dict[str, Any]:
        tab = self._tabs.shown
        dialog = None
        if tab is not None and tab.dialog is not None:
            dialog = None if tab.dialog.kind in ("alert", "beforeunload") else tab.dialog
        elif tab is not None and tab.chooser is not None:
            dialog = tab.chooser.question
        return {
            "url": tab.url if tab is not None else "",
            "title": tab.title if tab is not None else "",
            "tabs": [{"number": each.number, "url": each.url, "title": each.title, "is_shown": each is tab} for each in self._tabs.all],
            "dialog": dialog._asdict() if dialog is not None else None,
            "downloads": self._downloads.take(),
            "refused": [{"host": host, "reason": reason} for host, reason in self._proxy.take_refused().items()],
            "notes": self._tabs.take_notes(),
        }

    def _hear(self, session: str, method: str, params: Dict[str, Any]) -> None:
        if method.startswith("Browser.download"):
            self._downloads.hear(method, params)
        else:
            self._tabs.hear(session, method, params)

    def _ended(self) -> None:
        self.has_ended = True
        self._tabs.changed.set()


@contextlib.asynccontextmanager
async def at_once() -> AsyncIterator[None]:
    yield


def nothing_shown() -> Dict[str, Any]:
    page: Dict[str, Any] = {"url": "", "title": "", "tabs": [], "dialog": None, "downloads": [], "refused": [], "notes": []}
    return {"picture": "", "media_type": "", "page": page}


def start_of(body: Dict[str, Any]) -> Dict[str, Any]:
    width, height = field(body, "width", int, 1280), field(body, "height", int, 800)
    if width not in WIDTHS or height not in HEIGHTS:
        raise RequestError(
            400, "invalid_request", f"A desk is {WIDTHS[0]} to {WIDTHS[-1]} pixels wide and {HEIGHTS[0]} to {HEIGHTS[-1]} high."
        )
    return {"width": width, "height": height, "start_url": field(body, "start_url", str, "")}


def batch_of(body: Dict[str, Any]) -> Dict[str, Any]:
    picture = field(body, "picture", dict, {})
    kind, quality = field(picture, "format", str, "png"), field(picture, "quality", int, 80)
    if kind not in ("png", "jpeg") or not 1 <= quality <= 100:
        raise RequestError(400, "invalid_request", "A picture is 'png' or 'jpeg', with a quality from 1 to 100.")
    return {
        "actions": checked(field(body, "actions", list)),
        "picture": {"format": kind, "quality": quality},
        "tree": field(body, "tree", bool, False),
    }


async def last_of(task: "asyncio.Future[Dict[str, Any]]") -> AsyncIterator[bytes]:
    """Heartbeats, and last what the task gives, or why it gives nothing."""
    while not task.done():
        done, _ = await asyncio.wait([task], timeout=HEARTBEAT_SECONDS)
        if not done:
            yield b'{"type":"heartbeat"}\n'
    try:
        answer = task.result()
    except RequestError as refusal:
        answer = {"type": "error", **refusal.body["error"]}
    yield json.dumps(answer, separators=(",", ":")).encode() + b"\n"
