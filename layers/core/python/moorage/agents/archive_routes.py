"""``/v1/agents/{agent_id}/export`` and ``/v1/agents/import``: an agent with its sessions as one archive. Extensions of ours."""

from starlette.responses import Response, StreamingResponse

from moorage.agents.archive_shapes import IMPORT_AGENT, AgentImport
from moorage.agents.exports import export
from moorage.agents.imports import import_agent
from moorage.agents.routes import as_object
from moorage.agents.session_start import tell_beginning
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.downloads import begun, content_disposition
from moorage.api.routing import BINARY, Router

router = Router()


@router.get(
    "/agents/{agent_id:agent}/export",
    "exportAgent",
    "An agent with its versions and sessions, as an archive",
    sends=BINARY,
    statuses=(409,),
)
async def export_archive(caller: Caller, agent_id: str) -> Response:
    stream = await begun(export(caller.runtime, caller.tenant_id, agent_id))
    headers = {"content-disposition": content_disposition(f"{agent_id}.tar"), "x-content-type-options": "nosniff"}
    return StreamingResponse(stream, media_type=BINARY, headers=headers)


@router.post(
    "/agents/import", "importAgent", "An agent with its sessions out of an archive", body=("ImportAgent", IMPORT_AGENT), statuses=(404,)
)
async def import_archive(caller: Caller, body: RawBody) -> AgentImport:
    given, runtime = IMPORT_AGENT.body(body), caller.runtime
    file = await runtime.stores.files.get(caller.tenant_id, given["file_id"], param="file_id")
    imported = await import_agent(
        runtime,
        file,
        vault_ids=tuple(given.get("vault_ids", ())),
        keeps_network=given.get("network", "keep") == "keep",
        key_id=caller.key_id,
    )
    for session, _ in imported.sessions:
        await tell_beginning(runtime, session)
    return {
        "object": "agent.import",
        "agent": as_object(imported.agent),
        "imported_from": imported.imported_from,
        "sessions": [
            {"id": session.id, "imported_from": said["id"], "left_out": said["left_out"]} for session, said in imported.sessions
        ],
    }
