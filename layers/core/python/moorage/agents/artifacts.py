"""Artifacts: what a turn has left under ``/workspace/outputs``, published when it completes.

An artifact is a file of the Files API under a record of its session, so that it counts among what its tenant stores, and outlives its
container. Its id follows from the turn and the path: whoever publishes twice publishes once.
"""

from collections.abc import Sequence
from typing import Final

from moorage import limits
from moorage.agents.session_objects import status_of
from moorage.agents.session_store import ArtifactRecord, SessionRecord, TurnRecord
from moorage.agents.turns import Standing, snapshot_of, standing_of
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerFileRecord
from moorage.environments.opening import container_path
from moorage.errors import ApiError
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.store.item_contents import PURPOSE
from moorage.stores import Stores
from moorage.telemetry import tell_error

_FOLDER: Final = container_path("/workspace/outputs/")
_TURNS_UNHEARD_MAX: Final = 20
"""Of a session. The loop hears of an end, and publishes what is left, within a moment; a turn takes longer."""


async def publish_latest(runtime: Runtime, session: SessionRecord) -> None:
    """The artifacts of the last turn, if it has completed, and of earlier ones with an end that the loop has not heard yet."""
    if session.container_id is None:
        return
    turns = await runtime.stores.agent_sessions.turns(session, descending=True, limit=_TURNS_UNHEARD_MAX)
    unheard = {*await runtime.stores.responses.inflight_of(session.tenant_id)} if len(turns) > 1 else set[str]()
    for turn in (*turns[:1], *(each for each in turns[1:] if each.current in unheard)):
        await publish(runtime, session, turn)


async def publish_of(runtime: Runtime, session: SessionRecord, response_id: str) -> None:
    """What the turn has left that a response has just ended; another one may have begun meanwhile."""
    for turn in await runtime.stores.agent_sessions.turns(session, descending=True, limit=2):
        if turn.current == response_id:
            await publish(runtime, session, turn)


async def publish(runtime: Runtime, session: SessionRecord, turn: TurnRecord) -> None:
    """Publish what is not published yet of a turn. What cannot be stored is left out, and told to the operator."""
    if session.container_id is None:
        return
    standing = await standing_of(runtime.stores, session, turn)
    if not standing.is_over or status_of(standing) != "completed":
        return
    left = await _left(runtime.stores, runtime.computers.containers, standing, turn)
    known = {artifact.id for artifact in await runtime.stores.agent_sessions.artifacts_of(session, turn.number)}
    missing = [row for row in left if ArtifactRecord.id_of(turn.number, row.path) not in known]

    async def one(row: ContainerFileRecord) -> None:
        try:
            await _published(runtime, session, turn, row)
        except ApiError as error:
            tell_error(error, "an artifact was not published", session_id=session.id, tenant_id=session.tenant_id)

    await side_by_side(one, missing[: limits.AGENT_SESSION_ARTIFACTS_MAX], at_once=limits.AGENT_SESSION_ARTIFACTS_AT_ONCE)


async def _left(stores: Stores, containers: Containers, standing: Standing, turn: TurnRecord) -> Sequence[ContainerFileRecord]:
    """The files that the turn's commands have written there, as they were at its end."""
    session = standing.session
    assert session.container_id is not None
    container = await containers.peek(session.tenant_id, session.container_id)
    first = await snapshot_of(stores, session.tenant_id, turn.responses[0])
    if container is None or first is None:
        return ()
    following = await stores.agent_sessions.turn(session, turn.number + 1)
    after = None if following is None else await snapshot_of(stores, session.tenant_id, following.responses[0])
    if after is None:
        rows = await containers.files_of(session.tenant_id, session.container_id)
    else:
        rows = await containers.files_at(container, after.stored.files_at_ms)
    began = first.stored.files_at_ms
    return [row for row in rows if row.path.startswith(_FOLDER) and row.source == "assistant" and row.written_at_ms >= began]


async def _published(runtime: Runtime, session: SessionRecord, turn: TurnRecord, row: ContainerFileRecord) -> None:
    file = await runtime.stores.files.create(
        session.tenant_id, filename=row.filename, purpose=PURPOSE, chunks=runtime.computers.containers.content(row)
    )
    artifact = ArtifactRecord(turn.number, turn.id, row.path, row.bytes, int(runtime.clock()), file.id, row.container_id)
    if not await runtime.stores.agent_sessions.add_artifact(session, artifact):
        await runtime.stores.files.delete(session.tenant_id, file.id)
