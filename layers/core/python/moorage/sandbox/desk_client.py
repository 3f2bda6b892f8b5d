"""A browser in walls of its own beside a container's commands, through an exec server (``functions/sandbox/README.md``, "The desk").

``await provisioner.desk(handle)`` tells which exec server serves a sandbox's desk. Every request may be repeated: starting is
idempotent, a batch is done once under its id, and so is a person's input under its number.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Self
from urllib.parse import quote

from moorage.dataclass import dataclass
from moorage.sandbox.exec_client import ExecClient


@dataclass(frozen=True, slots=True)
class DeskState:
    """A desk that runs."""

    desk_id: str
    """Changes with each start of the browser: tabs, cookies and refs of an earlier one are gone."""
    browser: str
    """Name and version, such as ``Chrome/156.0.8078.108``."""
    is_whole: bool
    """False for the headless shell, which shows no PDF files."""
    has_own_sandbox: bool
    """Whether Chromium's own sandbox stands behind the walls of the desk."""
    width: int
    height: int
    """Of the picture, in pixels."""


@dataclass(frozen=True, slots=True)
class PictureFormat:
    format: Literal["png", "jpeg"] = "png"
    quality: int = 80
    """1 to 100; of JPEG only."""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    ok: bool
    error: str = ""
    """A sentence for the model."""


@dataclass(frozen=True, slots=True)
class DeskTab:
    number: int
    """1, 2, 3 … in the order of their opening; ``keypress`` CTRL+number shows one."""
    url: str
    title: str
    is_shown: bool


@dataclass(frozen=True, slots=True)
class DeskDialog:
    """A question that the page has asked and that is open: ``keypress`` ENTER accepts, ESC dismisses, ``type`` fills a prompt.

    One for a file, or for several, takes the paths that are typed, one a line, and gives the page copies at ENTER."""

    kind: Literal["confirm", "prompt", "file", "files"]
    message: str
    default: str


@dataclass(frozen=True, slots=True)
class DeskDownload:
    """A file that the browser has saved since the batch before."""

    url: str
    path: str
    """Below /mnt/data; empty if there is no file."""
    size: int
    error: str
    """Why there is none; empty if there is."""


@dataclass(frozen=True, slots=True)
class DeskRefusal:
    """A request that the container's network policy has refused since the batch before."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeskPage:
    url: str
    title: str
    tabs: tuple[DeskTab, ...]
    dialog: DeskDialog | None
    downloads: tuple[DeskDownload, ...]
    refused: tuple[DeskRefusal, ...]
    notes: tuple[str, ...]
    """Sentences on what else happened: an alert and its answer, a new tab, a crash."""


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A visible element that can be used; actions take its ``ref`` in place of ``x`` and ``y``."""

    ref: int
    role: str
    name: str
    value: str
    states: tuple[str, ...]
    """Of ``checked``, ``disabled``, ``expanded``, ``collapsed``, ``focused``, ``pressed``, ``required``, ``selected``."""
    x: int
    y: int
    """Its centre in the picture."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of a batch, and the page after it."""

    actions: tuple[ActionOutcome, ...]
    """As far as it went: nothing follows a failed one."""
    picture: bytes | None
    """None if no picture could be made; ``page.notes`` tells why."""
    media_type: str
    page: DeskPage
    tree: tuple[TreeNode, ...] | None
    text: str
    """The words of the page, with the tree; empty without it."""
    is_lost: bool
    """Whether the browser ended in the middle: the last action may have happened."""

    @classmethod
    def of(cls, line: dict[str, Any]) -> Self:
        tree = line.get("tree")
        return cls(
            actions=tuple(ActionOutcome(each["ok"], each.get("error", "")) for each in line["actions"]),
            picture=base64.b64decode(line["picture"]) if line["picture"] else None,
            media_type=line["media_type"],
            page=_page(line["page"]),
            tree=None if tree is None else tuple(TreeNode(**{**node, "states": tuple(node["states"])}) for node in tree),
            text=line.get("text", ""),
            is_lost=line["lost"],
        )


@dataclass(frozen=True, slots=True)
class DeskFrame:
    """A viewer's picture."""

    number: int
    picture: bytes = field(repr=False)
    """JPEG; empty if nothing has changed in the time that was waited."""
    url: str
    title: str
    holder: str
    """Who has control; empty: the model."""
    pointer: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DeskLease:
    holder: str
    """Who has control now; empty: the model."""
    ms: int
    """For how long, unless it is renewed."""


class DeskClient:
    """The desk of one sandbox. Raises :class:`DeskUnavailable` if there is no browser, and what :class:`ExecClient` raises."""

    def __init__(self, client: ExecClient) -> None:
        """``client`` speaks to what ``Provisioner.desk`` has named."""
        self._client = client

    async def start(self, *, width: int = 1280, height: int = 800, start_url: str = "") -> DeskState:
        """Start the browser. One that runs stays as it is, in its size and on its page."""
        body = {"width": width, "height": height, "start_url": start_url}
        return DeskState(**await self._client.last_line("desk", "PUT", "/v1/desk", json=body))

    async def run(
        self, batch_id: str, actions: Sequence[Mapping[str, Any]], *, picture: PictureFormat | None = None, has_tree: bool = False
    ) -> BatchResult:
        """Do the actions in their order, or attach to the batch of this id, which is done once.

        ``actions`` are OpenAI's: ``click``, ``double_click``, ``drag``, ``keypress``, ``move``, ``screenshot``, ``scroll``, ``type``,
        ``wait``. Beside them is ``{"type": "navigate", "url"}``; if one takes ``x`` and ``y``, it takes ``ref`` instead. The desk must
        have been started. Raises :class:`SandboxGone` if the result was dropped.
        """
        shown = picture or PictureFormat()
        body = {
            "actions": [dict(action) for action in actions],
            "picture": {"format": shown.format, "quality": shown.quality},
            "tree": has_tree,
        }
        return BatchResult.of(await self._client.last_line("batch", "PUT", _batch(batch_id), json=body))

    async def attach(self, batch_id: str) -> BatchResult:
        """The result of a batch that was begun. Raises :class:`SandboxGone` if the desk does not know it: it was started anew, and the
        batch may have happened."""
        return BatchResult.of(await self._client.last_line("batch", "GET", _batch(batch_id)))

    async def cancel(self, batch_id: str) -> bool:
        """Do no further action of a batch; False if it is over or unknown. The one that is under way goes on to its end."""
        return bool((await self._client.ask("DELETE", _batch(batch_id)))["cancelled"])

    async def frame(self, after: int, *, wait_ms: int) -> DeskFrame:
        """The newest frame behind number ``after`` (-1: any), as soon as there is one; after ``wait_ms`` none."""
        query = {"after": str(after), "wait_ms": str(wait_ms)}
        line = await self._client.last_line("frame", "GET", "/v1/desk/frame", params=query)
        return DeskFrame(**{**line, "picture": base64.b64decode(line["picture"]), "pointer": tuple(line["pointer"])})

    async def take(self, holder: str) -> DeskLease:
        """Take control, or keep it for another 60 s; batches wait. Raises :class:`DeskHeld` while somebody else has it."""
        return await self._control(holder, "take")

    async def give(self, holder: str) -> DeskLease:
        """Give it back. Whoever has no control gives none, and is no error."""
        return await self._control(holder, "give")

    async def input(self, holder: str, number: int, actions: Sequence[Mapping[str, Any]]) -> tuple[ActionOutcome, ...]:
        """A person's actions, once for each ``number`` (1, 2, 3 … since control was taken). Raises :class:`DeskHeld` if ``holder`` has
        no control."""
        body = {"holder": holder, "number": number, "actions": [dict(action) for action in actions]}
        answer = await self._client.last_line("input", "POST", "/v1/desk/input", json=body)
        return tuple(ActionOutcome(each["ok"], each.get("error", "")) for each in answer["actions"])

    async def stop(self) -> None:
        """End the browser with all that it holds: tabs, cookies, profile."""
        await self._client.ask("DELETE", "/v1/desk")

    async def _control(self, holder: str, action: str) -> DeskLease:
        return DeskLease(**await self._client.ask("POST", "/v1/desk/control", json={"holder": holder, "action": action}))


def _batch(batch_id: str) -> str:
    return f"/v1/desk/batches/{quote(batch_id, safe='')}"


def _page(line: dict[str, Any]) -> DeskPage:
    return DeskPage(
        url=line["url"],
        title=line["title"],
        tabs=tuple(DeskTab(**tab) for tab in line["tabs"]),
        dialog=DeskDialog(**line["dialog"]) if line["dialog"] else None,
        downloads=tuple(DeskDownload(**each) for each in line["downloads"]),
        refused=tuple(DeskRefusal(**each) for each in line["refused"]),
        notes=tuple(line["notes"]),
    )
