"""A fork: a new response that begins where an old one was at one of its events, with the files of its container as they were then.

The new response owns what it begins with: everything that had been said is input of its own, and its container has rows of its own,
which name the objects of the old one's. So the old response goes on, ends or is deleted as if there were no fork.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Literal

from moorage.containers.containers import Containers
from moorage.containers.store import ContainerRecord
from moorage.dataclass import dataclass
from moorage.errors import ContainerLost, bad_request, invalid_value, past_unknown
from moorage.loop import context, team_items, upstream_shell
from moorage.loop.chain import load_chain
from moorage.loop.create import PreparedResponse, prepare
from moorage.loop.past_responses import ForkPoint, as_of
from moorage.runtime import Runtime
from moorage.store.budgets import Scope
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.tools.capabilities import HoldsSecrets, RunsInContainer
from moorage.tools.registry import ROOMS
from moorage.wire.environments import Environment
from moorage.wire.requests import ForkRequest
from moorage.wire.types import Item

NO_PROCESSES: Final = "Processes do not come along: what ran in the container has to be started again."


@dataclass(frozen=True, slots=True)
class _ForkEnvironment:
    """The container of the fork's calls."""

    mode: Literal["copy", "share", "none"]
    environment: Environment
    container_id: str
    is_new: bool
    files: int | None
    """How many came along."""

    def to_json(self) -> dict[str, Any]:
        notice = NO_PROCESSES if self.mode == "copy" else None
        return {"mode": self.mode, "container_id": self.container_id, "files": self.files, "notice": notice}


async def fork(
    runtime: Runtime, snapshot: Snapshot, wanted: ForkRequest, *, key_id: str, draws_on: tuple[str, ...] = ()
) -> PreparedResponse:
    """Raises :class:`~moorage.errors.ApiError`; nothing is left behind then."""
    old, request = snapshot.stored, wanted.request
    if not wanted.has_own_tools:
        _check_tools(old)
    trees = tuple(scope for scope in old.draws_on if Scope.of(scope).kind == "tree")
    if trees and request.budget == old.parameters.budget:
        request = replace(request, budget=None)  # It is the tree's, from which the fork draws too.
    boundary = (await as_of(runtime, snapshot, wanted.at)).boundary
    before = await _before(runtime.stores, old)
    if wanted.rewind and before.append is None:
        raise invalid_value("rewind", f"'{old.response_id}' is not part of a conversation.")
    if wanted.rewind and old.conversation_id is not None:
        await runtime.stores.conversations.check_rewind(old.tenant_id, old.conversation_id)
    said = before.items
    since = [*old.input_items[old.conversation_items :], *boundary.items]
    place = await _place(runtime, old, wanted, boundary)
    try:
        if place is not None:
            if place.mode != "share":
                check_copies([*said, *since])
            request = replace(request, environment=place.environment)
            if old.container_id is not None:
                said = [moved(item, old.container_id, place.container_id) for item in said]
                since = [moved(item, old.container_id, place.container_id) for item in since]
        recent = context.answer_orphans([*said, *since])
        prepared = await prepare(runtime, old.tenant_id, request, recent=recent, key_id=key_id, draws_on=(*draws_on, *trees))
    except BaseException:
        if place is not None and place.is_new:
            await runtime.computers.containers.delete(old.tenant_id, place.container_id)
        raise
    shown = {"response_id": old.response_id, "at": boundary.number, "container": None if place is None else place.to_json()}
    echo = prepared.stored.echo | {"forked_from": shown}
    stored = replace(prepared.stored, echo=echo, forked_from=old.response_id)
    if not wanted.has_own_tools and place is not None and place.mode != "none":
        stored = replace(stored, given=old.given)  # The files are there, and the prompt begins as it did.
    if wanted.rewind:
        stored = replace(
            stored,
            echo=echo | {"conversation": {"id": old.conversation_id}},
            conversation_id=old.conversation_id,
            rewinds_to=before.append,
            conversation_items=next((at for at, item in enumerate(recent) if any(item is own for own in since)), len(recent)),
        )
    return replace(prepared, stored=stored)


def _check_tools(old: StoredResponse) -> None:
    """One response's secrets are not known to another."""
    for index, tool in enumerate(old.parameters.tools):
        room = ROOMS.of_tool(tool["type"])
        if isinstance(room, HoldsSecrets) and not room.is_repeatable(tool):
            raise bad_request(
                f"The secrets of tools[{index}] of '{old.response_id}' are its own: give 'tools' again, with theirs.", param="tools"
            )


@dataclass(frozen=True, slots=True)
class _Before:
    """The items before the old response's own."""

    items: list[Item]
    append: int | None
    """With which append its own came to its conversation, or would come; None without one."""


async def _before(stores: Stores, old: StoredResponse) -> _Before:
    """The part of a conversation before its items."""
    if old.conversation_id is None:
        return _Before(await load_chain(stores, old), None)
    own = [item["id"] for item in old.input_items[old.conversation_items :] if "id" in item]
    items, append = await stores.conversations.items_before(old.tenant_id, old.conversation_id, own)
    return _Before(items, append)


async def _place(runtime: Runtime, old: StoredResponse, wanted: ForkRequest, boundary: ForkPoint) -> _ForkEnvironment | None:
    """The container of the fork; None if none of its tools runs here."""
    request = wanted.request
    environment = request.environment
    entry = runtime.models.catalog.resolve(request.model)
    if environment is None or not environment.is_hosted or upstream_shell.goes_there(entry, request.tools):
        if wanted.container is not None:
            raise invalid_value("container", "no tool of this fork runs in a container here; leave it out.")
        return None
    if environment.type == "container_reference":
        if wanted.container is not None:
            raise invalid_value("container", f"'{environment.param}' names a container; leave one of the two out.")
        return None
    if old.container_id is None:
        if wanted.container in ("copy", "share"):
            raise invalid_value("container", f"'{old.response_id}' had no container; leave it out.")
        return None
    mode = wanted.container or "copy"
    source = await _source(runtime.computers.containers, old.tenant_id, old.container_id)
    if mode == "share":
        return await _shared(runtime.computers.containers, source, environment)
    return await _made(runtime.computers.containers, source, environment, mode, boundary)


async def _source(containers: Containers, tenant_id: str, container_id: str) -> ContainerRecord:
    """The old response's container. Raises :class:`~moorage.errors.ApiError` that says how to go on without."""
    try:
        return await containers.use(tenant_id, container_id, param="container")
    except ContainerLost as error:
        raise bad_request(
            f"The container '{container_id}' of this response was deleted, or has expired. Give 'tools' again for a new one.",
            param="container",
            code="workspace_expired",
        ) from error


async def _shared(containers: Containers, source: ContainerRecord, environment: Environment) -> _ForkEnvironment:
    policy = environment.network_policy
    if policy is not None and not await containers.has_policy(source, policy):
        raise invalid_value("container", "what is shared has a network policy of its own; leave out that of 'tools', or take a 'copy'.")
    return _ForkEnvironment("share", _referring(environment, source.id), source.id, is_new=False, files=None)


async def _made(
    containers: Containers, source: ContainerRecord, environment: Environment, mode: Literal["copy", "none"], boundary: ForkPoint
) -> _ForkEnvironment:
    if mode == "copy" and boundary.files_at_ms is None:
        raise past_unknown(source.id)
    made, files = await containers.copy(
        source,
        at_ms=boundary.files_at_ms if mode == "copy" else None,
        memory_limit=environment.memory_limit,
        network_policy=environment.network_policy,
    )
    return _ForkEnvironment(mode, _referring(environment, made.id), made.id, is_new=True, files=files)


def _referring(environment: Environment, container_id: str) -> Environment:
    return replace(
        environment, type="container_reference", container_id=container_id, param="container", memory_limit=None, network_policy=None
    )


def check_copies(items: Iterable[Item]) -> None:
    """Agents of a team that work in copies of the workspace cannot work in two responses. Raises
    :class:`~moorage.errors.ApiError`."""
    if team_items.copies_of(items):
        raise bad_request(
            "Agents of this team work in copies of its workspace, which cannot be forked in this version.", param="container"
        )


def moved(item: Item, old_id: str, new_id: str) -> Item:
    """An item as if its call had run in another container: there the conversation goes on."""
    room = ROOMS.of_call(item["type"])
    return room.with_container(item, new_id) if isinstance(room, RunsInContainer) and room.container_id(item) == old_id else item
