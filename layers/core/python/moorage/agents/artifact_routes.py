"""``/v1/agents/sessions/{session_id}/artifacts``: what turns have left."""

from typing import Annotated, Final, Literal

from fastapi import Request
from starlette.responses import Response

from moorage.agents.artifacts import publish_latest
from moorage.agents.session_shapes import ArtifactsPage, SessionArtifact
from moorage.agents.session_store import ArtifactRecord, SessionRecord
from moorage.agents.turns import delete_artifact
from moorage.api.caller import Caller
from moorage.api.downloads import download
from moorage.api.queries import query_of
from moorage.api.routing import BINARY, Router
from moorage.environments.opening import environment_path
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted

router = Router()
_ALL: Final = "/agents/sessions/{session_id}/artifacts"
_ONE: Final = f"{_ALL}/{{artifact_id}}"


@router.get(_ALL, "listAgentSessionArtifacts", "The artifacts of a session")
async def list_artifacts(
    caller: Caller, session_id: str, page: Annotated[ArtifactsPage, query_of(ArtifactsPage)]
) -> ListOf[SessionArtifact]:
    session = await caller.runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    await publish_latest(caller.runtime, session)
    found = await caller.runtime.stores.agent_sessions.artifacts(session, page, page.environment_id)
    return found.shown(lambda artifact: as_object(session, artifact))


@router.get(_ONE, "retrieveAgentSessionArtifact", "An artifact of a session")
async def retrieve(caller: Caller, session_id: str, artifact_id: str) -> SessionArtifact:
    session = await caller.runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    return as_object(session, await caller.runtime.stores.agent_sessions.artifact(session, artifact_id))


@router.get(f"{_ONE}/content", "downloadAgentSessionArtifact", "The bytes of an artifact", sends=BINARY, statuses=(206, 302, 416))
async def content(request: Request, caller: Caller, session_id: str, artifact_id: str) -> Response:
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    artifact = await runtime.stores.agent_sessions.artifact(session, artifact_id)
    file = await runtime.stores.files.get(caller.tenant_id, artifact.file_id)
    return await download(
        request,
        runtime.stores,
        runtime.settings,
        key=file.key,
        filename=file.filename,
        size=file.bytes,
        content=lambda start, end: runtime.stores.files.content(file, start=start, end=end),
    )


@router.delete(_ONE, "deleteAgentSessionArtifact", "Delete an artifact; its turn does not publish it again")
async def delete(caller: Caller, session_id: str, artifact_id: str) -> Deleted[Literal["agent.session.artifact.deleted"]]:
    session = await caller.runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    await delete_artifact(caller.runtime.stores, session, await caller.runtime.stores.agent_sessions.artifact(session, artifact_id))
    return deleted(artifact_id, "agent.session.artifact.deleted")


def as_object(session: SessionRecord, artifact: ArtifactRecord) -> SessionArtifact:
    return {
        "id": artifact.id,
        "object": "agent.session.artifact",
        "session_id": session.id,
        "turn_id": artifact.turn_id,
        "environment_id": artifact.container_id,
        "path": environment_path(artifact.path),
        "size_bytes": artifact.bytes,
        "created_at": artifact.created_at,
    }
