"""The fields in which a person has typed: in the model's pictures they show dots, and of their words it reads nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Dict, FrozenSet, List

from desk.pipe import CdpError
from desk.tabs import Tab, Tabs

NODES_MAX = 100
"""Of one tab; a person who types in more of them than any form has loses the oldest."""
SECONDS = 2.0
HIDDEN = "(typed by a person)"
WORLD = "moorage"
FOCUSED = """(() => {
  let found = document.activeElement
  while (found) {
    const inner = found.shadowRoot?.activeElement ?? (found.tagName === "IFRAME" ? found.contentDocument?.activeElement : null)
    if (!inner) break
    found = inner
  }
  return found && (found.matches("input, textarea, iframe") || found.isContentEditable) ? found : null
})()"""
COVER = """function () {
  if (this.tagName === "IFRAME") this.style.setProperty("filter", "brightness(0)", "important")
  else this.style.setProperty("-webkit-text-security", "disc", "important")
}"""
"""A frame of another site shows nothing of its fields here, so that all of it is covered."""


class TypedFields:
    def __init__(self, tabs: Tabs) -> None:
        self._tabs = tabs
        self._nodes: Dict[str, List[int]] = {}
        self._uncovered: Dict[str, List[int]] = {}

    def nodes(self, tab: Tab) -> FrozenSet[int]:
        """The browser's own numbers of them."""
        return frozenset(self._nodes.get(tab.session, ()))

    async def note(self) -> None:
        """A person has typed: where, is what has the keys now."""
        tab = self._tabs.shown
        if tab is None or tab.is_crashed or tab.dialog is not None:
            return
        with contextlib.suppress(CdpError, asyncio.TimeoutError):
            pipe = self._tabs.pipe
            # A page cannot change what its own world says of the focus.
            world = await pipe.ask("Page.createIsolatedWorld", tab.session, frameId=tab.target, worldName=WORLD, seconds=SECONDS)
            asked: Dict[str, Any] = {"expression": FOCUSED, "contextId": world["executionContextId"]}
            found = (await pipe.ask("Runtime.evaluate", tab.session, seconds=SECONDS, **asked))["result"]
            if "objectId" not in found:
                return
            told = await pipe.ask("DOM.describeNode", tab.session, objectId=found["objectId"], seconds=SECONDS)
            node = told["node"]["backendNodeId"]
            known = self._nodes.setdefault(tab.session, [])
            if node not in known:
                self._nodes[tab.session] = [*known, node][-NODES_MAX:]
                self._uncovered.setdefault(tab.session, []).append(node)

    async def cover(self) -> None:
        """Before the model goes on. What is gone with its page needs no cover."""
        uncovered, self._uncovered = self._uncovered, {}
        for session, nodes in uncovered.items():
            for node in nodes:
                with contextlib.suppress(CdpError, asyncio.TimeoutError):
                    pipe = self._tabs.pipe
                    field = (await pipe.ask("DOM.resolveNode", session, backendNodeId=node, seconds=SECONDS))["object"]
                    await pipe.ask(
                        "Runtime.callFunctionOn", session, functionDeclaration=COVER, objectId=field["objectId"], seconds=SECONDS
                    )
