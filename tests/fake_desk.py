"""A desk without a browser: it refuses what the real one refuses (``functions/sandbox/README.md``), and does each batch once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.errors import DeskUnavailable, SandboxError, SandboxGone
from moorage.sandbox.desk_client import ActionOutcome, BatchResult, DeskPage, DeskState, DeskTab, PictureFormat, TreeNode

from tests.drawing import png

KINDS = {"click", "double_click", "drag", "keypress", "move", "navigate", "screenshot", "scroll", "type", "wait"}
ACTIONS_MAX = 25
BUTTON = TreeNode(ref=7, role="button", name="Add to cart", value="", states=(), x=100, y=50)


@dataclass
class FakeDesk:
    """A page with a counter: every action is one more. A picture is of its title."""

    why_not: str = ""
    """Why there is no browser."""
    life: int = 1
    state: DeskState | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    """Actions, in all lives."""
    batches: dict[tuple[int, str], BatchResult] = field(default_factory=dict)
    fails_at: Mapping[str, str] = field(default_factory=dict)
    """Kinds of actions that fail, with the words for it."""
    page: dict[str, Any] = field(default_factory=dict)
    """What of the page is otherwise."""
    url: str = "about:blank"

    def restart(self) -> None:
        """The browser ends: tabs and batches are gone."""
        self.life += 1
        self.state = None

    async def start(self, *, width: int = 1280, height: int = 800, start_url: str = "") -> DeskState:
        if self.why_not:
            raise DeskUnavailable(self.why_not)
        self.state = self.state or DeskState(f"desk_{self.life}", "Chrome/1.2", True, True, width, height)
        return self.state

    async def run(
        self, batch_id: str, actions: Sequence[Mapping[str, Any]], *, picture: PictureFormat | None = None, has_tree: bool = False
    ) -> BatchResult:
        if self.state is None:
            raise SandboxError("desk_not_started")
        if not 0 < len(actions) <= ACTIONS_MAX:
            raise SandboxError(f"a batch has 1 to {ACTIONS_MAX} actions")
        known = self.batches.get((self.life, batch_id))
        if known is None:
            known = self.batches[self.life, batch_id] = self._result(actions, has_tree)
        return known

    async def attach(self, batch_id: str) -> BatchResult:
        if (self.life, batch_id) not in self.batches:
            raise SandboxGone("unknown_exec")
        return self.batches[self.life, batch_id]

    def _result(self, actions: Sequence[Mapping[str, Any]], has_tree: bool) -> BatchResult:
        outcomes: list[ActionOutcome] = []
        for action in actions:
            kind = action["type"]
            if kind not in KINDS or kind in self.fails_at:
                outcomes.append(ActionOutcome(False, self.fails_at.get(kind, f"There is no action '{kind}'.")))
                break
            self.done.append(dict(action))
            self.url = action.get("url", self.url)
            outcomes.append(ActionOutcome(True))
        tab = DeskTab(1, self.url, "Shop", True)
        page = {"url": self.url, "title": "Shop", "tabs": (tab,), "dialog": None, "downloads": (), "refused": (), "notes": ()}
        tree = (BUTTON,) if has_tree else None
        picture = png(f"{len(self.done)}")
        return BatchResult(
            tuple(outcomes), picture, "image/png", DeskPage(**{**page, **self.page}), tree, "Words" if has_tree else "", False
        )
