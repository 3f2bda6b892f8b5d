"""The sessions of a container: rows beside those of its files, so that any process can go on with another one's session."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from moorage import limits
from moorage.codec import Codec
from moorage.containers.store import CONTAINER, ContainerRecord
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, container_not_found, session_not_found
from moorage.files.store import Clock
from moorage.ids import container_of_session, new_session_id
from moorage.store import keys
from moorage.store.table import Record, Table
from moorage.terminals.shapes import ContainerTerminal

Outcome = Literal["", "exit", "timeout", "killed", "lost"]


@dataclass(frozen=True, slots=True)
class ContainerSession:
    tenant_id: str
    container_id: str
    id: str
    created_at: int
    command: str
    """Empty for an interactive shell."""
    rows: int
    columns: int
    incarnation: int = 0
    """The sandbox in which it was opened; 0 before that."""
    outcome: Outcome = ""
    """Empty until somebody has seen how it ended; ``lost`` with its sandbox."""
    exit_code: int | None = None

    @property
    def status(self) -> Literal["starting", "running", "ended"]:
        if self.outcome:
            return "ended"
        return "running" if self.incarnation else "starting"


class ContainerSessions:
    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def add(self, container: ContainerRecord, command: str, *, rows: int, columns: int) -> ContainerSession:
        session_id = new_session_id(container.id)
        now = int(self._clock())
        session = ContainerSession(container.tenant_id, container.id, session_id, now, command, rows, columns)
        await self._table.put({**_place(session), **_CODEC.pack(session), "ttl": now + limits.SESSION_RECORD_SECONDS})
        return session

    async def open(self, container: ContainerRecord) -> list[ContainerSession]:
        """Ended ones that no reader has seen the end of, the oldest first."""
        records = await self._table.query(keys.container(container.tenant_id, container.id), prefix=keys.container_session.prefix)
        sessions = [_CODEC.unpack(record) for record in records if record["ttl"] > self._clock()]
        return sorted((each for each in sessions if not each.outcome), key=lambda each: (each.created_at, each.id))

    async def get(self, tenant_id: str, session_id: str) -> tuple[ContainerSession, ContainerRecord]:
        """The session and its container, by one request. Unknown and foreign ones are 404."""
        pk = keys.container(tenant_id, container_of_session(session_id))
        places = [(pk, keys.container_session(session_id)), (pk, keys.META)]
        found = {record["SK"]: record for record in await self._table.get_many(places, consistent=True)}
        record, meta = (found.get(sk) for _, sk in places)
        if record is None or record["ttl"] <= self._clock():
            raise session_not_found(session_id)
        if meta is None or CONTAINER.unpack(meta).is_deleted:
            raise container_not_found(container_of_session(session_id))
        return _CODEC.unpack(record), CONTAINER.unpack(meta)

    async def begun(self, session: ContainerSession, incarnation: int) -> ContainerSession:
        """Note the sandbox of its opening; an earlier note stays."""
        return await self._change(session, {"incarnation": incarnation}, {"incarnation": 0})

    async def resized(self, session: ContainerSession, *, rows: int, columns: int) -> ContainerSession:
        return await self._change(session, {"rows": rows, "columns": columns}, {})

    async def ended(self, session: ContainerSession, outcome: Outcome, exit_code: int | None) -> tuple[ContainerSession, bool]:
        """Note how it ended; False if somebody else has."""
        if session.outcome:
            return session, False
        noted = await self._change(session, {"outcome": outcome, "exit_code": exit_code}, {"outcome": ""})
        return noted, True

    async def drop(self, session: ContainerSession) -> None:
        place = _place(session)
        await self._table.delete(place["PK"], place["SK"])

    async def _change(self, session: ContainerSession, set: Mapping[str, Any], condition: Mapping[str, Any]) -> ContainerSession:
        place = _place(session)
        try:
            return _CODEC.unpack(await self._table.update(place["PK"], place["SK"], set=set, condition=condition))
        except ConditionFailed as met:
            if met.item is None:
                raise session_not_found(session.id) from met
            return _CODEC.unpack(met.item)


def as_object(session: ContainerSession) -> ContainerTerminal:
    """As the wire shows it."""
    return {
        "id": session.id,
        "object": "container.session",
        "container_id": session.container_id,
        "created_at": session.created_at,
        "command": session.command or None,
        "columns": session.columns,
        "rows": session.rows,
        "status": session.status,
        "outcome": session.outcome or None,
        "exit_code": session.exit_code,
    }


def _place(session: ContainerSession) -> Record:
    return {"PK": keys.container(session.tenant_id, session.container_id), "SK": keys.container_session(session.id)}


_CODEC: Final = Codec(ContainerSession)
