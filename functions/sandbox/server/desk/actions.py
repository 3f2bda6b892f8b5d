"""What a model or a person does to the page that is shown: OpenAI's nine actions, and ``navigate``.

A browser without a window has no address bar and no buttons. Models know the keys for them, so that these keys do what they do in a
browser with a window: CTRL+L and an address with ENTER, ALT+LEFT, CTRL+R, CTRL+T, CTRL+W, CTRL+TAB, CTRL+1. A page that asks for files
gets those whose paths are typed, as in a file dialog.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import urllib.parse
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple, Union

from request_errors import RequestError, field

from desk.keys import ALT, CHARACTERS, CONTROL, META, SHIFT, SHIFTED, Key, key_of
from desk.pipe import BrowserGone, CdpError
from desk.tabs import Chooser, Tab, Tabs

ACTIONS_MAX = 25
TEXT_CHARS_MAX = 50_000
URL_CHARS_MAX = 8_192
PATH_POINTS_MAX = 200
KEYS_MAX = 8
SCROLL_MAX = 20_000
WAIT_MS = 2_000
WAIT_MS_MAX = 10_000
NAVIGATE_SECONDS = 15.0
LOAD_SECONDS = 5.0
INPUT_SECONDS = 5.0
HISTORY_SECONDS = 1.0
SETTLE_SECONDS = 0.05
"""In which what was done begins to load a page, if it does."""
KEYS_PER_TEXT_MAX = 200
"""Characters that are typed key by key, for pages that listen to keys; longer texts are put in at once."""
BUTTONS = {"left": ("left", 1), "right": ("right", 2), "wheel": ("middle", 4), "middle": ("middle", 4)}
DRAG_STEPS = 5
NO_FILE = "The page got no file:"
CANCELLED = "function () { this.dispatchEvent(new Event('cancel', {bubbles: true})) }"
"""What a browser with a window tells a file input whose dialog was closed."""

SECRET = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]{0,127}")
"""A text that is nothing but the name of a secret is what stands for it: the egress proxy puts the value in, at its own host."""

Bringer = Callable[[List[str]], Awaitable[List[str]]]


class ActionError(Exception):
    """It cannot be done; the sentence is for the model."""


class Actions:
    def __init__(
        self,
        tabs: Tabs,
        nodes: Callable[[Tab, int], int],
        bring: Bringer,
        reason: Callable[[str], str],
        placeholder: Callable[[str], Awaitable[str]],
    ) -> None:
        """``nodes`` finds the node of a ref, or raises :class:`ActionError`; ``bring`` copies files of the container here; ``reason``
        says why a host was refused, if it was; ``placeholder`` is what stands for a secret of this name, if there is one."""
        self._placeholder = placeholder
        self._tabs = tabs
        self._nodes = nodes
        self._bring = bring
        self._reason = reason
        self._address: Optional[str] = None
        """What stands in the address bar that models believe in, while it has the keys."""
        self.pointer = (0, 0)

    async def do(self, action: Dict[str, Any]) -> None:
        """Raises :class:`ActionError`."""
        kind = action.get("type")
        tab = self._tabs.shown
        if tab is None:
            raise ActionError("The browser has no page open.")
        if tab.dialog is not None and kind not in ("keypress", "type", "wait", "screenshot"):
            raise ActionError(
                f"The page waits for an answer to its question {tab.dialog.message!r}: keypress ENTER accepts, ESC dismisses."
            )
        if tab.is_crashed and kind not in ("navigate", "keypress", "wait", "screenshot"):
            raise ActionError("The page has crashed: 'navigate' opens another one.")
        try:
            if kind in ("click", "double_click", "drag"):
                await self._give_none(tab)
            await _DOERS[str(kind)](self, tab, action)
            if kind not in ("screenshot", "wait", "move"):
                await self.settle()
        except BrowserGone:
            raise
        except CdpError as error:
            raise ActionError(f"The browser refused: {error}") from error
        except RequestError as error:
            raise ActionError(str(error)) from error
        except asyncio.TimeoutError:
            raise ActionError("The page does not answer. 'navigate' opens another one.") from None

    def forget_lines(self) -> None:
        """What was typed into the address bar, or into a line of paths, and not entered."""
        self._address = None
        for tab in self._tabs.all:
            if tab.chooser is not None:
                tab.chooser.typed = ""

    async def settle(self) -> None:
        """Until what was begun to load is there, but not for long."""
        await asyncio.sleep(SETTLE_SECONDS)
        await self._until(lambda tab: not tab.is_loading or tab.dialog is not None, LOAD_SECONDS)

    async def _until(self, is_reached: Callable[[Tab], bool], seconds: float) -> bool:
        loop = asyncio.get_event_loop()
        deadline = loop.time() + seconds
        while True:
            tab = self._tabs.shown
            if tab is None or tab.is_crashed or is_reached(tab):
                return True
            self._tabs.changed.clear()
            try:
                await asyncio.wait_for(self._tabs.changed.wait(), max(0.0, deadline - loop.time()))
            except asyncio.TimeoutError:
                return False

    async def _input(self, tab: Tab, method: str, **params: Any) -> None:
        """Input that opens a dialog is answered when that has closed: nobody waits so long."""
        asked = self._tabs.pipe.begin(method, tab.session, **params)
        loop = asyncio.get_event_loop()
        deadline = loop.time() + INPUT_SECONDS
        while not asked.done() and tab.dialog is None and not tab.is_crashed:
            self._tabs.changed.clear()
            asked.add_done_callback(lambda done: self._tabs.changed.set())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._tabs.changed.wait(), max(0.0, deadline - loop.time()))
            if loop.time() >= deadline:
                raise asyncio.TimeoutError
        if asked.done():
            asked.result()

    async def _place(self, tab: Tab, action: Dict[str, Any]) -> Tuple[int, int]:
        """Where the action is: of a ref the centre, which is brought into sight."""
        if "ref" not in action:
            return point(action)
        node = self._nodes(tab, field(action, "ref", int))
        try:
            await self._tabs.pipe.ask("DOM.scrollIntoViewIfNeeded", tab.session, backendNodeId=node, seconds=INPUT_SECONDS)
            quads = await self._tabs.pipe.ask("DOM.getContentQuads", tab.session, backendNodeId=node, seconds=INPUT_SECONDS)
        except CdpError as error:
            raise ActionError(f"Element {action['ref']} is no longer on the page: ask for the tree again.") from error
        if not quads["quads"]:
            raise ActionError(f"Element {action['ref']} is not visible.")
        corners = quads["quads"][0]
        return int(sum(corners[0::2]) / 4), int(sum(corners[1::2]) / 4)

    async def _mouse(self, tab: Tab, kind: str, place: Tuple[int, int], **params: Any) -> None:
        self.pointer = place
        await self._input(tab, "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], **params)

    async def _click(self, tab: Tab, action: Dict[str, Any], times: int = 1) -> None:
        button = action.get("button", "left")
        if button in ("back", "forward"):
            await self._history(tab, -1 if button == "back" else 1)
            return
        if button not in BUTTONS:
            raise ActionError(f"There is no button {button!r}: left, right, wheel, back and forward are there.")
        name, bit = BUTTONS[button]
        place = await self._place(tab, action)
        self._address = None
        async with self._held(tab, action) as modifiers:
            await self._mouse(tab, "mouseMoved", place, modifiers=modifiers)
            for count in range(1, times + 1):
                pressed = {"button": name, "clickCount": count, "modifiers": modifiers}
                await self._mouse(tab, "mousePressed", place, buttons=bit, **pressed)
                await self._mouse(tab, "mouseReleased", place, buttons=0, **pressed)
                if tab.dialog is not None:
                    return

    async def _double_click(self, tab: Tab, action: Dict[str, Any]) -> None:
        await self._click(tab, action, 2)

    async def _drag(self, tab: Tab, action: Dict[str, Any]) -> None:
        path = [point(each) for each in field(action, "path", list)]
        if not 2 <= len(path) <= PATH_POINTS_MAX:
            raise ActionError(f"A drag takes a path of 2 to {PATH_POINTS_MAX} points.")
        self._address = None
        async with self._held(tab, action) as modifiers:
            held = {"button": "left", "clickCount": 1, "modifiers": modifiers}
            await self._mouse(tab, "mouseMoved", path[0], modifiers=modifiers)
            await self._mouse(tab, "mousePressed", path[0], buttons=1, **held)
            for place in stepped(path):
                await self._mouse(tab, "mouseMoved", place, button="left", buttons=1, modifiers=modifiers)
            await self._mouse(tab, "mouseReleased", path[-1], buttons=0, **held)

    async def _move(self, tab: Tab, action: Dict[str, Any]) -> None:
        place = await self._place(tab, action)
        async with self._held(tab, action) as modifiers:
            await self._mouse(tab, "mouseMoved", place, modifiers=modifiers)

    async def _scroll(self, tab: Tab, action: Dict[str, Any]) -> None:
        place = await self._place(tab, action)
        x, y = (whole(action, name, -SCROLL_MAX, SCROLL_MAX) for name in ("scroll_x", "scroll_y"))
        async with self._held(tab, action) as modifiers:
            await self._mouse(tab, "mouseMoved", place, modifiers=modifiers)
            await self._mouse(tab, "mouseWheel", place, deltaX=x, deltaY=y, modifiers=modifiers)

    async def _wait(self, tab: Tab, action: Dict[str, Any]) -> None:
        ms = whole({"ms": action.get("ms") or WAIT_MS}, "ms", 1, WAIT_MS_MAX)
        await asyncio.sleep(ms / 1000)

    async def _screenshot(self, tab: Tab, action: Dict[str, Any]) -> None:
        """The picture is taken at the end."""

    async def _type(self, tab: Tab, action: Dict[str, Any]) -> None:
        text = field(action, "text", str)
        if len(text) > TEXT_CHARS_MAX:
            raise ActionError(f"A text has {TEXT_CHARS_MAX} characters at most.")
        if tab.dialog is not None:
            if tab.dialog.kind != "prompt":
                raise ActionError("The open question takes no text: keypress ENTER accepts, ESC dismisses.")
            await self._tabs.answer(tab, True, text)
            return
        if tab.chooser is not None:
            await self._write_paths(tab, tab.chooser, text)
            return
        if self._address is not None:
            line, enter, _ = text.partition("\n")
            self._address += line
            if enter:
                await self._go()
            return
        if SECRET.fullmatch(text):
            text = await self._standing_for(tab, text)
        pieces = text.replace("\r\n", "\n").split("\n")
        for number, piece in enumerate(pieces):
            if number > 0:
                await self._press(tab, _ENTER, 0)
            await self._put(tab, piece)

    async def _standing_for(self, tab: Tab, text: str) -> str:
        placeholder = await self._placeholder(text[1:])
        if placeholder and not tab.url.startswith("https://"):
            raise ActionError(f"The secret '{text[1:]}' is sent by https alone, and this page is not of https.")
        return placeholder or text

    async def _put(self, tab: Tab, text: str) -> None:
        if len(text) > KEYS_PER_TEXT_MAX:
            await self._input(tab, "Input.insertText", text=text)
            return
        for character in text:
            key = CHARACTERS.get(character)
            if key is None:
                await self._input(tab, "Input.insertText", text=character)
            else:
                await self._press(tab, key, SHIFT if character in SHIFTED else 0)

    async def _keypress(self, tab: Tab, action: Dict[str, Any]) -> None:
        keys = keys_of(field(action, "keys", list))
        modifiers = 0
        for key in keys:
            modifiers |= key.modifier
        plain = [key for key in keys if not key.modifier]
        if tab.dialog is not None:
            await self._answer(tab, plain)
            return
        is_done = tab.chooser is not None and await self._press_in_paths(tab, tab.chooser, plain, modifiers)
        if not is_done and len(plain) == 1:
            is_done = await self._chord(tab, plain[0], modifiers)
        if not is_done:
            async with self._held(tab, {"keys": [key.key for key in keys if key.modifier]}):
                for key in plain:
                    await self._press(tab, key, modifiers)

    async def _answer(self, tab: Tab, keys: List[Key]) -> None:
        names = [key.key for key in keys]
        if names not in (["Enter"], ["Escape"]):
            raise ActionError("The page waits for an answer to its question: keypress ENTER accepts, ESC dismisses.")
        default = tab.dialog.default if tab.dialog is not None else ""
        await self._tabs.answer(tab, names == ["Enter"], default)

    async def _chord(self, tab: Tab, key: Key, modifiers: int) -> bool:
        """What a key does to the browser and not to the page; False if it is the page's."""
        pressed = (modifiers & (CONTROL | META), modifiers & ALT, modifiers & SHIFT)
        control, alt, shift = map(bool, pressed)
        name = key.key.lower()
        if self._address is not None and not control and not alt:
            if name == "enter":
                await self._go()
            elif name == "escape":
                self._address = None
            elif name == "backspace":
                self._address = self._address[:-1]
            elif key.text:
                self._address += key.text
            return True
        wants_bar = (control and name == "l") or (alt and name == "d") or (not modifiers and name == "f6")
        if wants_bar or (control and name == "a" and self._address is not None):
            self._address = ""
        elif name == "f5" or (control and name == "r"):
            await self._reload(tab)
        elif alt and name in ("arrowleft", "arrowright"):
            await self._history(tab, -1 if name == "arrowleft" else 1)
        elif control and name == "t":
            await self._tabs.open("about:blank")
            self._address = ""
        elif control and name == "w":
            await self._tabs.close(tab)
        elif control and name in ("tab", "pageup", "pagedown"):
            await self._next(tab, -1 if name == "pageup" or (name == "tab" and shift) else 1)
        elif control and name in "123456789":
            await self._numbered(int(name))
        elif name == "f11" or name == "f12" or (control and shift and name in "ijc") or (control and name in "pusn"):
            raise ActionError("This browser has no window, no developer tools, and prints and saves nothing by keys.")
        else:
            return False
        return True

    async def _press(self, tab: Tab, key: Key, modifiers: int) -> None:
        text = "" if modifiers & (CONTROL | ALT | META) else key.text
        down = {"key": key.key, "code": key.code, "windowsVirtualKeyCode": key.number, "modifiers": modifiers}
        shown = {"text": text, "unmodifiedText": text} if text else {}
        await self._input(tab, "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **down, **shown)
        await self._input(tab, "Input.dispatchKeyEvent", type="keyUp", **down)

    def _held(self, tab: Tab, action: Dict[str, Any]) -> "HeldKeys":
        return HeldKeys(self._input, tab, keys_of(action.get("keys") or []))

    async def _navigate(self, tab: Tab, action: Dict[str, Any]) -> None:
        url = field(action, "url", str)
        if tab.chooser is not None and url.startswith("/"):  # CTRL+L leads to the line of paths in the file dialog of a window.
            tab.chooser.typed = url
            await self._give(tab, tab.chooser)
        else:
            await self._give_none(tab)
            await self.navigate(url)

    async def _go(self) -> None:
        address, self._address = self._address or "", None
        await self.navigate(address)

    async def navigate(self, address: str) -> None:
        """Open an address in the tab that is shown. Raises :class:`ActionError`."""
        url = url_of(address)
        self._address = None
        tab = self._tabs.shown
        if tab is None:
            raise ActionError("The browser has no page open.")
        pipe, document = self._tabs.pipe, tab.document
        try:
            if tab.is_crashed:
                raise asyncio.TimeoutError
            pipe.begin("Runtime.terminateExecution", tab.session)  # A page that computes for ever would not let go.
            answer = await pipe.ask("Page.navigate", tab.session, url=url, seconds=NAVIGATE_SECONDS)
        except asyncio.TimeoutError:
            tab = await self._tabs.replace(tab)
            document = tab.document
            answer = await pipe.ask("Page.navigate", tab.session, url=url, seconds=NAVIGATE_SECONDS)
        error = answer.get("errorText", "")
        if answer.get("isDownload") or error == "net::ERR_ABORTED":
            return
        if error:
            why = self._reason(urllib.parse.urlsplit(url).hostname or "")
            raise ActionError(f"{url} cannot be opened: {error}. {why}".strip())
        if answer.get("loaderId"):
            await self._until(lambda tab: tab.document > document or tab.dialog is not None, LOAD_SECONDS)
        await self._until(lambda tab: not tab.is_loading or tab.dialog is not None, NAVIGATE_SECONDS)

    async def _reload(self, tab: Tab) -> None:
        self._tabs.pipe.begin("Runtime.terminateExecution", tab.session)
        document = tab.document
        await self._tabs.pipe.ask("Page.reload", tab.session)
        await self._until(lambda tab: tab.document > document or tab.dialog is not None, LOAD_SECONDS)

    async def _history(self, tab: Tab, step: int) -> None:
        history = await self._tabs.pipe.ask("Page.getNavigationHistory", tab.session)
        index = history["currentIndex"] + step
        if not 0 <= index < len(history["entries"]):
            raise ActionError(f"There is no page to go {'back' if step < 0 else 'forward'} to.")
        document = tab.document
        await self._tabs.pipe.ask("Page.navigateToHistoryEntry", tab.session, entryId=history["entries"][index]["id"])
        # Within one document it changes only the address.
        await self._until(lambda tab: tab.document > document or tab.dialog is not None, HISTORY_SECONDS)

    async def _next(self, tab: Tab, step: int) -> None:
        tabs = self._tabs.all
        await self._tabs.show(tabs[(tabs.index(tab) + step) % len(tabs)])

    async def _numbered(self, number: int) -> None:
        tab = next((tab for tab in self._tabs.all if tab.number == number), None)
        if tab is None:
            raise ActionError(f"There is no tab {number}.")
        await self._tabs.show(tab)

    async def _write_paths(self, tab: Tab, chooser: Chooser, text: str) -> None:
        if len(chooser.typed) + len(text) > TEXT_CHARS_MAX:
            raise ActionError(f"Paths have {TEXT_CHARS_MAX} characters at most.")
        chooser.typed += text
        if text.endswith("\n"):
            await self._give(tab, chooser)

    async def _press_in_paths(self, tab: Tab, chooser: Chooser, keys: List[Key], modifiers: int) -> bool:
        """What keys do to the line of paths; False if they are the browser's."""
        if modifiers & (CONTROL | ALT | META):
            if [key.key.lower() for key in keys] not in (["a"], ["l"]):
                return False
            chooser.typed = ""  # What is typed next replaces it, as in the file dialog of a window.
            return True
        for key in keys:
            if key.key == "Enter":
                await self._give(tab, chooser)
            elif key.key == "Escape":
                await self._give_none(tab)
            elif key.key == "Backspace":
                chooser.typed = chooser.typed[:-1]
            elif key.text:
                await self._write_paths(tab, chooser, key.text)
            else:
                raise ActionError(chooser.question.message)
        return True

    async def _give(self, tab: Tab, chooser: Chooser) -> None:
        """The page gets copies of the files whose paths were typed, or none of them."""
        paths = [line.strip() for line in chooser.typed.split("\n") if line.strip()]
        chooser.typed = ""
        if not paths:
            raise ActionError(chooser.question.message)
        if len(paths) > 1 and not chooser.is_multiple:
            raise ActionError(f"{NO_FILE} it takes one, and these are {len(paths)} paths.")
        asked = await self._tabs.pipe.ask("DOM.describeNode", tab.session, backendNodeId=chooser.node, seconds=INPUT_SECONDS)
        if "webkitdirectory" in asked["node"].get("attributes", ()):
            raise ActionError(f"{NO_FILE} it asks for a folder, and no folder is given.")
        files = await self._bring(paths)
        tab.chooser = None
        await self._input(tab, "DOM.setFileInputFiles", files=files, backendNodeId=chooser.node)

    async def _give_none(self, tab: Tab) -> None:
        """A page is told that nobody chose a file."""
        chooser, tab.chooser = tab.chooser, None
        if chooser is None:
            return
        with contextlib.suppress(CdpError, asyncio.TimeoutError):
            found = await self._tabs.pipe.ask("DOM.resolveNode", tab.session, backendNodeId=chooser.node, seconds=INPUT_SECONDS)
            await self._input(tab, "Runtime.callFunctionOn", functionDeclaration=CANCELLED, objectId=found["object"]["objectId"])


_DOERS: Dict[str, Callable[[Actions, Tab, Dict[str, Any]], Awaitable[None]]] = {
    "click": Actions._click,
    "double_click": Actions._double_click,
    "drag": Actions._drag,
    "keypress": Actions._keypress,
    "move": Actions._move,
    "navigate": Actions._navigate,
    "screenshot": Actions._screenshot,
    "scroll": Actions._scroll,
    "type": Actions._type,
    "wait": Actions._wait,
}
_ENTER = Key("Enter", "Enter", 13, "\r")


class HeldKeys:
    """Modifiers that are down during an action; the value is their bits."""

    def __init__(self, press: Callable[..., Awaitable[None]], tab: Tab, keys: List[Key]) -> None:
        self._press = press
        self._tab = tab
        self._keys = keys
        self._bits = 0

    async def __aenter__(self) -> int:
        for key in self._keys:
            self._bits |= key.modifier
            await self._send("rawKeyDown", key)
        return self._bits

    async def __aexit__(self, *exception: object) -> None:
        for key in reversed(self._keys):
            self._bits &= ~key.modifier
            await self._send("keyUp", key)

    async def _send(self, kind: str, key: Key) -> None:
        params = {"key": key.key, "code": key.code, "windowsVirtualKeyCode": key.number, "modifiers": self._bits}
        await self._press(self._tab, "Input.dispatchKeyEvent", type=kind, **params)


def checked(actions: List[Any]) -> List[Dict[str, Any]]:
    """Raises :class:`RequestError` for what no action is."""
    if len(actions) > ACTIONS_MAX:
        raise RequestError(400, "invalid_request", f"A batch has {ACTIONS_MAX} actions at most.")
    for action in actions:
        if not isinstance(action, dict) or action.get("type") not in _DOERS:
            kind = action.get("type") if isinstance(action, dict) else action
            raise RequestError(400, "invalid_request", f"There is no action {str(kind)[:100]!r}: {', '.join(_DOERS)} are there.")
    return actions


def keys_of(names: List[Any]) -> List[Key]:
    keys: List[Key] = []
    if len(names) > KEYS_MAX:
        raise ActionError(f"{KEYS_MAX} keys are pressed at once at most.")
    for name in names:
        # "ctrl+a" is what some models say for a chord.
        parts = [name] if len(str(name)) < 2 else [part or "+" for part in str(name).replace("++", "+plus").split("+")]
        for part in parts:
            key = key_of(str(part))
            if key is None:
                raise ActionError(f"There is no key {str(part)[:40]!r}.")
            keys.append(key)
    return keys


def point(action: Dict[str, Any]) -> Tuple[int, int]:
    return whole(action, "x", 0, 10_000), whole(action, "y", 0, 10_000)


def whole(action: Dict[str, Any], name: str, least: int, most: int) -> int:
    value = action.get(name, 0 if name.startswith("scroll") else None)
    if isinstance(value, float):
        value = round(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ActionError(f"'{name}' must be a whole number from {least} to {most}.")
    return value


def stepped(path: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """With points between: pages take a drag for one only after several moves."""
    places: List[Tuple[int, int]] = []
    x, y = path[0]
    for to_x, to_y in path[1:]:
        places += [(x + (to_x - x) * n // DRAG_STEPS, y + (to_y - y) * n // DRAG_STEPS) for n in range(1, DRAG_STEPS + 1)]
        x, y = to_x, to_y
    return places


def url_of(address: str) -> str:
    """What is typed into an address bar, as a URL. Raises :class:`ActionError` for all that is no page of the web."""
    address = address.strip()
    if len(address) > URL_CHARS_MAX or any(ord(character) < 32 for character in address):
        raise ActionError("This is no address of a page.")
    if address == "about:blank":
        return address
    scheme, colon, rest = address.partition(":")
    has_scheme = bool(colon) and scheme.replace("+", "").replace("-", "").isalnum() and not rest[:1].isdigit()
    if not has_scheme:
        host = address.split("/")[0].split(":")[0]
        address = f"{'http' if is_loopback(host) else 'https'}://{address}"
    elif scheme.lower() not in ("http", "https"):
        raise ActionError(f"'{scheme[:40]}:' is not opened here: only pages by http and https are.")
    if not urllib.parse.urlsplit(address).hostname:
        raise ActionError("This address names no host.")
    return address


def is_loopback(host: str) -> bool:
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = address_of(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def address_of(host: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
