"""The page as a list of elements with numbers, for models that do not see, or do not hit: from the browser's accessibility tree."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, Iterator, List, Set, Tuple

from desk.actions import ActionError
from desk.pipe import CdpError
from desk.tabs import Tab, Tabs
from desk.typed import HIDDEN, TypedFields

NODES_MAX = 200
TEXT_CHARS_MAX = 12_000
NAME_CHARS_MAX = 200
FRAMES_MAX = 10
SECONDS = 5.0
_ROLES = """
button checkbox combobox link listbox menuitem menuitemcheckbox menuitemradio option radio searchbox slider spinbutton switch tab
textbox treeitem DisclosureTriangle ColorWell Date DateTime InputTime
"""
ROLES = frozenset(_ROLES.split())
STATES = ("checked", "disabled", "focused", "pressed", "required", "selected")
BREAKS = frozenset({"paragraph", "heading", "listitem", "row", "LineBreak", "article", "section", "button", "link", "cell"})


class Tree:
    def __init__(self, tabs: Tabs, typed: TypedFields) -> None:
        self._tabs = tabs
        self._typed = typed
        self._nodes: Dict[int, int] = {}
        self._document = (-1, -1)
        self._last_ref = 0

    def node(self, tab: Tab, ref: int) -> int:
        """The browser's own number of an element. Raises :class:`ActionError`."""
        if ref not in self._nodes or self._document != (tab.number, tab.document):
            raise ActionError(f"There is no element {ref} here: the numbers hold until the page changes. Ask for the tree again.")
        return self._nodes[ref]

    async def read(self, tab: Tab) -> Tuple[List[Dict[str, Any]], str]:
        """The elements that can be used, and the words of the page."""
        if self._document != (tab.number, tab.document):
            self._document, self._nodes = (tab.number, tab.document), {}
        found: List[Dict[str, Any]] = []
        words: List[str] = []
        hidden = self._typed.nodes(tab)
        for frame in await self._frames(tab):
            try:
                answer = await self._tabs.pipe.ask("Accessibility.getFullAXTree", tab.session, frameId=frame, seconds=SECONDS)
            except CdpError:
                continue  # A frame of another process has no tree here.
            covered: Set[str] = set()
            for node in in_order(answer["nodes"]):
                role = value_of(node, "role")
                if node.get("parentId") in covered or node.get("backendDOMNodeId") in hidden:
                    covered.add(node["nodeId"])
                    if node.get("backendDOMNodeId") not in hidden:
                        continue
                if role in ("StaticText", "text"):
                    words.append(value_of(node, "name"))
                elif role in BREAKS:
                    words.append("\n")
                if not node.get("ignored") and role in ROLES and "backendDOMNodeId" in node and len(found) < 2 * NODES_MAX:
                    found.append(node)
        return await self._placed(tab, found), text_of(words)

    async def _frames(self, tab: Tab) -> List[str]:
        answer = await self._tabs.pipe.ask("Page.getFrameTree", tab.session, seconds=SECONDS)
        frames: List[str] = []
        waiting = [answer["frameTree"]]
        while waiting and len(frames) < FRAMES_MAX:
            tree = waiting.pop(0)
            frames.append(tree["frame"]["id"])
            waiting += tree.get("childFrames", [])
        return frames

    async def _placed(self, tab: Tab, nodes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Those that have a place on the page."""
        asked = [self._tabs.pipe.begin("DOM.getContentQuads", tab.session, backendNodeId=node["backendDOMNodeId"]) for node in nodes]
        if asked:
            await asyncio.wait(asked, timeout=SECONDS)
        hidden = self._typed.nodes(tab)
        refs = {node: ref for ref, node in self._nodes.items()}
        placed: List[Dict[str, Any]] = []
        for node, quads in zip(nodes, asked):
            if not quads.done() or quads.exception() is not None or not quads.result()["quads"]:
                continue
            number, corners = node["backendDOMNodeId"], quads.result()["quads"][0]
            if number not in refs:
                self._last_ref += 1
                refs[number] = self._last_ref
                self._nodes[self._last_ref] = number
            placed.append(
                {
                    "ref": refs[number],
                    "role": value_of(node, "role"),
                    "name": value_of(node, "name")[:NAME_CHARS_MAX],
                    "value": HIDDEN if number in hidden else value_of(node, "value")[:NAME_CHARS_MAX],
                    "states": states_of(node),
                    "x": int(sum(corners[0::2]) / 4),
                    "y": int(sum(corners[1::2]) / 4),
                }
            )
        return placed[:NODES_MAX]


def in_order(nodes: List[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
    """As one reads them; the browser lists them level by level."""
    by_id = {node["nodeId"]: node for node in nodes}
    waiting = [node["nodeId"] for node in nodes if node.get("parentId") not in by_id][::-1]
    while waiting:
        node = by_id.pop(waiting.pop(), None)
        if node is not None:
            yield node
            waiting += node.get("childIds", [])[::-1]


def value_of(node: Dict[str, Any], name: str) -> str:
    value = node.get(name, {}).get("value", "")
    return value if isinstance(value, str) else str(value)


def states_of(node: Dict[str, Any]) -> List[str]:
    properties = {each["name"]: str(each["value"].get("value", "")).lower() for each in node.get("properties", [])}
    states = [name for name in STATES if properties.get(name) == "true"]
    if "expanded" in properties:
        states.append("expanded" if properties["expanded"] == "true" else "collapsed")
    return sorted(states)


def text_of(words: List[str]) -> str:
    lines = [" ".join(line.split()) for line in " ".join(words).split("\n")]
    return "\n".join(line for line in lines if line)[:TEXT_CHARS_MAX]
