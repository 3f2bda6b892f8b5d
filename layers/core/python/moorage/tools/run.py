"""The input of a running call. It uses nothing else: no settings, no environment, no clients of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Any, Protocol

from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerFileRecord
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher
from moorage.knowledge.index import Hit, SearchOptions
from moorage.sandbox.desk_client import DeskClient
from moorage.sandbox.exec_client import ExecClient, FileListing
from moorage.settings import Settings
from moorage.store.item_contents import Contents
from moorage.tools.calls import KnownCall
from moorage.wire.types import Item, Tool


class LiveSandboxChecks(Protocol):
    """The part of the containers' lives that a workplace needs."""

    async def is_news(self, live: LiveContainer) -> bool: ...

    async def confirm_gone(self, live: LiveContainer) -> bool: ...

    def desk(self, live: LiveContainer, *, starts: bool = True) -> AbstractAsyncContextManager[DeskClient]: ...


@dataclass(frozen=True, slots=True)
class StoppingPlace:
    """The container of a response that is being cancelled."""

    live: LiveContainer
    sandboxes: LiveSandboxChecks

    @property
    def client(self) -> ExecClient:
        return self.live.client

    def desk(self) -> AbstractAsyncContextManager[DeskClient]:
        """The browser, if one was started. Raises :class:`~moorage.errors.DeskUnavailable`."""
        return self.sandboxes.desk(self.live, starts=False)


@dataclass(frozen=True, slots=True)
class CallLeftovers:
    """The changes that a call's commands have left behind."""

    notes: tuple[str, ...] = ()
    """What the model has to know: of files that could not be kept, of what the network refused."""
    files: tuple[ContainerFileRecord, ...] = ()
    """Those that were stored anew, by path."""
    files_at_ms: int = 0
    """As of when the files of the container are stored, by their times; 0 if they could not be."""


class Leave(Protocol):
    """To be called at the end: stores what changed in the workspace. ``listing`` is of a moment after the last command, if there is one
    already."""

    async def __call__(self, listing: FileListing | None = None) -> CallLeftovers: ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """The response's container, running."""

    live: LiveContainer
    sandboxes: LiveSandboxChecks
    is_lost: bool
    """What earlier runs of the call have begun was in another sandbox, or killed its runs again and again: it is not begun anew."""
    leave: Leave
    contents: Contents
    """Where contents are kept that no log could hold."""

    @property
    def client(self) -> ExecClient:
        return self.live.client

    async def is_news(self) -> bool:
        """Whether the model has still to be told that the container has been revived; True once for each time it was."""
        return await self.sandboxes.is_news(self.live)

    def desk(self) -> AbstractAsyncContextManager[DeskClient]:
        """The browser beside the container's commands. Raises :class:`~moorage.errors.DeskUnavailable` if there can be none."""
        return self.sandboxes.desk(self.live)

    async def is_alive(self) -> bool:
        """After a :class:`~moorage.errors.SandboxGone`: whether it was only the connection that broke."""
        return not await self.sandboxes.confirm_gone(self.live)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a call."""

    known: KnownCall
    tools: tuple[Tool, ...]
    """Those of the request that are of this room."""
    offered: tuple[Tool, ...]
    """All of the request."""
    tenant_id: str
    settings: Settings
    now: Callable[[], float]
    """Unix seconds."""
    earlier: Callable[[], AsyncIterator[Item]]
    """What was said before the calls of this step, the latest first: what stands in this response, then what came before it and has to
    be read."""
    is_resumed: bool = False
    """An earlier run may have begun it."""
    sandbox: Workplace | None = None
    """For calls that run in one."""
    service: "Service | None" = None
    """For calls that run outside of them."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the log's line about this run counts; a room adds its own."""

    @property
    def workplace(self) -> Workplace:
        assert self.sandbox is not None, f"{self.known.item['type']} does not run in a sandbox"
        return self.sandbox

    @property
    def outside(self) -> "Service":
        assert self.service is not None, f"{self.known.item['type']} does not run as a service"
        return self.service


@dataclass(frozen=True, slots=True)
class Service:
    """The means of a call outside of the sandboxes."""

    fetcher: Fetcher
    """The way to the internet: it judges every address, and every hop."""
    secret: Callable[[str], str | None]
    """The value behind a handle that stands in a tool; None if it is not known (any more)."""
    contents: Contents
    """Where contents are kept that no log could hold."""
    signature: Callable[[str, str, bytes], Mapping[str, str]]
    """IAM's headers for a JSON body that is posted to Bedrock: of region, URL and body. Raises UpstreamError without credentials."""
    search_files: Callable[[Sequence[str], Sequence[str], SearchOptions], Awaitable[list[Hit]]]
    """By ids of vector stores and queries. Raises :class:`~moorage.errors.ApiError` for a store that is not there (any more), and
    :class:`~moorage.errors.UpstreamError`."""
    token: Callable[[str, str], Awaitable[str]]
    """The token of a credential, by the ids of its vault and of itself, as it is now; refreshed if it ends. Raises
    :class:`~moorage.errors.ApiError`."""
    is_stored: bool = True
    """Whether what comes of the response outlives it."""
    automations: Callable[[str, Mapping[str, Any]], Awaitable[str]] | None = None
    """What wakes the session of the response: the id of a call and its arguments, and what the model reads of it. None without a
    session. Raises :class:`~moorage.errors.ApiError`."""
