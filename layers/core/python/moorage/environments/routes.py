"""``/v1/agents/environments``: containers as the environments of agents, made before there is a session."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final

from moorage import limits
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerFileRecord, ContainerRecord
from moorage.environments.answers import file_of, info_of
from moorage.environments.opening import container_path, open_environment, put_file
from moorage.environments.shapes import (
    ADD_FILE,
    CREATE_ENVIRONMENT,
    EnvironmentFile,
    EnvironmentFilePage,
    EnvironmentFilesQuery,
    EnvironmentInfo,
    EnvironmentsPage,
)
from moorage.errors import ApiError, invalid_value
from moorage.parallel import beside
from moorage.runtime import Runtime
from moorage.vaults.choice import credentials_in
from moorage.wire.answers import ListOf
from moorage.wire.responses import list_object

router = Router()
_ONE: Final = "/agents/environments/{environment_id}"


@router.post(
    "/agents/environments",
    "createEnvironment",
    "Make an environment, and start its sandbox",
    body=("CreateEnvironment", CREATE_ENVIRONMENT),
    statuses=(404,),
)
async def create(caller: Caller, body: RawBody) -> EnvironmentInfo:
    """A session may take it by its id, which is the id of a container."""
    wanted = await beside(len(body), lambda: CREATE_ENVIRONMENT.body(body))
    credentials = await credentials_in(caller.runtime.stores, caller.tenant_id, wanted.get("vault_ids", ()))
    record = await open_environment(
        caller.runtime, caller.tenant_id, wanted["environment"], param="environment", credentials=credentials
    )
    assert record is not None, "an environment of this route is a container"
    start = asyncio.create_task(_start(caller.runtime.computers.containers, record))
    caller.runtime.process.keep(start)
    if not caller.runtime.computers.containers.sandboxes.reaches(record):  # On AWS, where a process stands still behind its answer.
        await start
    return await info_of(caller.runtime, record)


async def _start(containers: Containers, record: ContainerRecord) -> None:
    """What stands in the way is noted, and the next command tries again."""
    try:
        await containers.sandboxes.place(record.tenant_id, record.id)
    except ApiError:
        return  # Deleted meanwhile.


@router.get("/agents/environments", "listEnvironments", "All environments, newest first")
async def list_environments(caller: Caller, page: Annotated[EnvironmentsPage, query_of(EnvironmentsPage)]) -> ListOf[EnvironmentInfo]:
    """Each container is one."""
    runtime = caller.runtime
    found = await runtime.computers.containers.page(caller.tenant_id, page)
    shown = await _shown(runtime, found.entries)
    return list_object(shown, has_more=found.has_more or len(shown) < len(found.entries))


async def _shown(runtime: Runtime, records: Sequence[ContainerRecord]) -> list[EnvironmentInfo]:
    """As many of them as a page may show files of; one at least."""
    shown: list[EnvironmentInfo] = []
    room = limits.ENVIRONMENT_PAGE_FILES_MAX
    for start in range(0, len(records), limits.CONTAINER_TRANSFERS_MAX):
        for info in await asyncio.gather(*(info_of(runtime, each) for each in records[start : start + limits.CONTAINER_TRANSFERS_MAX])):
            room -= len(info["files"])
            if shown and room < 0:
                return shown
            shown.append(info)
    return shown


@router.get(_ONE, "retrieveEnvironment", "An environment")
async def retrieve(caller: Caller, environment_id: str) -> EnvironmentInfo:
    """Looking does not count as use: it must not keep an idle container alive."""
    return await info_of(caller.runtime, await caller.runtime.computers.containers.get(caller.tenant_id, environment_id))


@router.post(f"{_ONE}/files", "createEnvironmentFile", "Put a file into an environment", body=("EnvironmentFileParam", ADD_FILE))
async def create_file(caller: Caller, environment_id: str, body: RawBody) -> EnvironmentFile:
    """A sandbox that runs has it by its next command, or while one runs."""
    wanted = await beside(len(body), lambda: ADD_FILE.body(body))
    record = await caller.runtime.computers.containers.use(caller.tenant_id, environment_id)
    return file_of(await put_file(caller.runtime.stores, caller.runtime.computers.containers, record, wanted))


@router.get(
    f"{_ONE}/files",
    "listEnvironmentFiles",
    "The files of an environment as its last command left them, by path",
)
async def list_files(
    caller: Caller, environment_id: str, wanted: Annotated[EnvironmentFilesQuery, query_of(EnvironmentFilesQuery)]
) -> EnvironmentFilePage:
    record = await caller.runtime.computers.containers.get(caller.tenant_id, environment_id)
    rows = _below(container_path(f"{wanted.path}/"), await caller.runtime.computers.containers.files_of(record.tenant_id, record.id))
    order = sorted(rows, reverse=wanted.order == "desc")
    if wanted.page is not None:
        last = _place_of(wanted.page)
        order = [place for place in order if (place < last if wanted.order == "desc" else place > last)]
    shown, has_more = order[: wanted.limit], len(order) > wanted.limit
    return {
        "object": "page",
        "data": [file_of(rows[place]) for place in shown],
        "next": _token_of(shown[-1]) if has_more else None,
        "has_more": has_more,
    }


def _below(folder: str, rows: list[ContainerFileRecord]) -> dict[tuple[str, ...], ContainerFileRecord]:
    """Those below a folder, each by the names of its path."""
    return {tuple(row.path.split("/")): row for row in rows if row.path.startswith(folder)}


def _token_of(place: tuple[str, ...]) -> str:
    return base64.urlsafe_b64encode("/".join(place).encode()).decode()


def _place_of(token: str) -> tuple[str, ...]:
    try:
        return tuple(base64.b64decode(token, altchars=b"-_", validate=True).decode().split("/"))
    except (binascii.Error, ValueError) as error:
        raise invalid_value("page", "it is not the 'next' of a page.") from error
