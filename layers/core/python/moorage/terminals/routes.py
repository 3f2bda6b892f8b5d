"""``/v1/containers/{container_id}/sessions`` and ``/v1/sessions``: terminals in containers, for people.

The second path is another one because another function serves it on AWS: one that reaches sandboxes and cannot start any, while that
of the first can start them and not reach them.
"""

from typing import Annotated, Literal

from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.errors import session_not_found
from moorage.ids import container_of_session
from moorage.terminals.shapes import (
    ContainerTerminal,
    ContainerTerminalInput,
    ContainerTerminalOutput,
    OpenSession,
    ResizeSession,
    SessionInput,
    TerminalOutputQuery,
)
from moorage.terminals.store import as_object
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted, list_object

router = Router()


@router.post("/containers/{container_id}/sessions", "openSession", "Open a terminal in a container", statuses=(503,))
async def open_session(caller: Caller, container_id: str, wanted: Annotated[OpenSession, body_of(OpenSession)]) -> ContainerTerminal:
    container = await caller.runtime.computers.containers.use(caller.tenant_id, container_id)
    sessions = caller.runtime.computers.containers.sessions
    return as_object(await sessions.open(container, wanted.command or "", rows=wanted.rows, columns=wanted.columns))


@router.get("/containers/{container_id}/sessions", "listSessions", "The sessions of a container that have not ended, oldest first")
async def list_sessions(caller: Caller, container_id: str) -> ListOf[ContainerTerminal]:
    """Looking does not count as use: it must not keep an idle container alive."""
    container = await caller.runtime.computers.containers.get(caller.tenant_id, container_id)
    found = await caller.runtime.computers.containers.sessions.list(container)
    return list_object([as_object(session) for session in found], has_more=False)


@router.get(
    "/containers/{container_id}/sessions/{session_id}",
    "retrieveSession",
    "A session; one whose container is starting is helped on",
    statuses=(503,),
)
async def retrieve(caller: Caller, container_id: str, session_id: str) -> ContainerTerminal:
    if container_of_session(session_id) != container_id:
        raise session_not_found(session_id)
    return as_object(await caller.runtime.computers.containers.sessions.get(caller.tenant_id, session_id))


@router.get(
    "/sessions/{session_id}/output",
    "readSession",
    "What it has shown behind an offset, as soon as there is something",
    statuses=(503,),
)
async def read(
    caller: Caller, session_id: str, wanted: Annotated[TerminalOutputQuery, query_of(TerminalOutputQuery)]
) -> ContainerTerminalOutput:
    sessions = caller.runtime.computers.containers.sessions
    found = await sessions.read(caller.tenant_id, session_id, wanted.starting_after, wait_ms=wanted.wait_ms)
    session = as_object(found.session)
    return {
        "object": "container.session.output",
        "session_id": session_id,
        "starting_after": found.begin,
        "output": found.output,
        "next": found.next,
        "status": session["status"],
        "outcome": session["outcome"],
        "exit_code": session["exit_code"],
    }


@router.post("/sessions/{session_id}/input", "typeIntoSession", "Type into it", statuses=(503,))
async def type_into(caller: Caller, session_id: str, wanted: Annotated[SessionInput, body_of(SessionInput)]) -> ContainerTerminalInput:
    await caller.runtime.computers.containers.sessions.type(caller.tenant_id, session_id, wanted.text, wanted.id or "")
    return {"object": "container.session.input", "session_id": session_id}


@router.post("/sessions/{session_id}/resize", "resizeSession", "Another size of its terminal", statuses=(503,))
async def resize(caller: Caller, session_id: str, wanted: Annotated[ResizeSession, body_of(ResizeSession)]) -> ContainerTerminal:
    sessions = caller.runtime.computers.containers.sessions
    return as_object(await sessions.resize(caller.tenant_id, session_id, rows=wanted.rows, columns=wanted.columns))


@router.delete("/sessions/{session_id}", "closeSession", "End it")
async def close(caller: Caller, session_id: str) -> Deleted[Literal["container.session.deleted"]]:
    await caller.runtime.computers.containers.sessions.close(caller.tenant_id, session_id)
    return deleted(session_id, "container.session.deleted")
