"""The agents of a response with a team: one record for each, its beginning, and its mailbox.

An agent is a lane of the response's log (``keys.lane_of``). Its record says whether it runs, and in which execution. Everything is
written under a key that follows from the call that asked for it, so that a second run of the step that made the call changes nothing.

``/root`` is lane 0. Its record is written when something has to be said of it; until then it is as a new one.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, Superseded
from moorage.store import keys, object_keys
from moorage.store.blobs import Blobs
from moorage.store.packing import packed, unpacked
from moorage.store.responses import ROOT_AGENT, StoredResponse
from moorage.store.table import Record, Table, Write
from moorage.wire.types import Item

LaneStatus = Literal["running", "waiting", "asking", "held", "completed", "incomplete", "failed", "interrupted"]
"""``asking``: it waits for its client, and goes on in the next response. ``held``: it waits for a person's word, in its place."""
ACTIVE: Final = ("running", "waiting", "asking", "held")
MessageKind = Literal["NEW_TASK", "MESSAGE", "FINAL_ANSWER"]
Workspace = Literal["shared", "copied", "read_only", "none"]
"""Of an agent: that of the one that started it, a copy of that, a copy that commands cannot change, or none."""
COPIES: Final = ("copied", "read_only")
"""Those in a container of the agent's own."""


@dataclass(frozen=True, slots=True)
class AgentLane:
    number: int
    name: str = ROOT_AGENT
    parent: int = 0
    called_by: str = ""
    """The mark (``ids.mark_of_item``) of the ``spawn_agent`` that asked for it."""
    task: str = ""
    """The beginning of its latest task."""
    status: LaneStatus = "running"
    execution: str = ""
    """That runs it, or ran it last; empty for the response's own."""
    starts: int = 0
    """How often it was let go on."""
    restarts: int = 0
    """How often its execution was lost."""
    mail: int = 0
    """Messages that were sent to it, or more: who has counted this many and looked has missed none of them."""
    mail_seen: int = 0
    """Of these, when it began to wait for messages."""
    due_at_ms: int = 0
    """When it does not wait any longer, if it does; where it waits for messages, without the time in which the response was paused."""
    decisions_seen: int = 0
    """Decisions about approvals of the response when it began to wait for one (``responses.py: decisions``)."""
    turn: int = 0
    """The step with which its latest turn may begin."""
    turns: int = 0
    """How many it has had before; a task that came at the end of one begins another."""
    is_interrupted: bool = False
    """It ends its turn before its next model step."""
    touched_at_ms: int = 0
    """When it was let go on, the last time."""
    incomplete_reason: str | None = None
    """Of one that has ended so."""
    workspace: Workspace = "shared"
    container: str = ""
    """In which its calls run; empty for the response's own."""

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    def execution_of(self, response_id: str) -> str:
        return self.execution or response_id


@dataclass(frozen=True, slots=True)
class AgentMessage:
    id: str
    """Of the item that its recipient reads."""
    kind: MessageKind
    author: str
    recipient: str
    text: str
    sent_at_ms: int

    def item(self) -> Item:
        head = f"Message Type: {self.kind}\nTask name: {self.recipient}\nSender: {self.author}\nPayload:\n{self.text}"
        content = [{"type": "input_text", "text": head}]
        return {"id": self.id, "type": "agent_message", "author": self.author, "recipient": self.recipient, "content": content}


_LANE: Final = Codec(
    AgentLane,
    sparse=(
        "name", "parent", "called_by", "task", "status", "execution", "starts", "restarts", "mail", "mail_seen", "due_at_ms",
        "decisions_seen", "turn", "turns", "is_interrupted", "touched_at_ms", "incomplete_reason", "workspace", "container",
    ),
    beside=("number",),
)  # fmt: skip
_MESSAGE: Final = Codec(AgentMessage, beside=("text",))


class Lanes:
    def __init__(self, table: Table, blobs: Blobs, *, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._blobs = blobs
        self._now_ms = now_ms

    async def all(self, stored: StoredResponse) -> list[AgentLane]:
        """In the order of their beginnings; ``/root`` is the first."""
        records = await self._table.query(_pk(stored), prefix=keys.LANE_PREFIX)
        found = [_lane(record) for record in records]
        return found if found and found[0].number == 0 else [AgentLane(0), *found]

    async def get(self, stored: StoredResponse, number: int) -> AgentLane:
        record = await self._table.get(_pk(stored), keys.lane(number))
        assert record is not None or number == 0, f"{stored.response_id} has no agent {number}"
        return AgentLane(0) if record is None else _lane(record)

    async def add(self, stored: StoredResponse, lane: AgentLane, beginning: Sequence[Item], task: AgentMessage) -> bool:
        """With its first message: a process that finds the agent may let it run. False if its number is taken, or its copy of the
        workspace is another's: somebody was faster."""
        body = await packed(list(beginning))
        record: Record = {"PK": _pk(stored), "SK": keys.lane(lane.number, _BEGINNING), "ttl": stored.expires_at}
        if len(body) > limits.ITEM_INLINE_BYTES_MAX:
            record["blob"] = object_keys.response_blob(stored.tenant_id, stored.response_id, f"agent-{lane.called_by}")
            await self._blobs.put_bytes(record["blob"], body)
        else:
            record["body"] = body
        made = {"PK": _pk(stored), "SK": keys.lane(lane.number), "ttl": stored.expires_at, **_LANE.pack(replace(lane, mail=1))}
        sent = await _sent(stored, lane.number, task, lane.called_by)
        copy = Write(_pk(stored), f"{_COPIES}{lane.called_by}", set={"ttl": stored.expires_at}, condition={"container": lane.container})
        return not await self._table.write_together([made, record, sent], [copy] if lane.workspace in COPIES else [])

    async def note_copy(self, stored: StoredResponse, spawn: str, container_id: str) -> str:
        """Note a copy of the workspace for the agent of a spawn (its mark) before it is made; answers the one noted before, of a
        run that died, or that comes too late."""
        pk, sk = _pk(stored), f"{_COPIES}{spawn}"
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            record = await self._table.get(pk, sk)
            before = "" if record is None else str(record["container"])
            with suppress(ConditionFailed):
                await self._table.update(
                    pk,
                    sk,
                    set={"container": container_id, "ttl": stored.expires_at},
                    condition={"container": before} if before else {},
                    absent=() if before else ("container",),
                    must_exist=False,
                )
                return before
        raise Superseded(f"a copy for an agent of {stored.response_id} is made by many at once")

    async def copy_of(self, stored: StoredResponse, spawn: str) -> str:
        """The copy that was noted last."""
        record = await self._table.get(_pk(stored), f"{_COPIES}{spawn}")
        return "" if record is None else str(record["container"])

    async def copies(self, stored: StoredResponse) -> set[str]:
        """All containers that were noted as copies and not replaced by another one."""
        return {str(record["container"]) for record in await self._table.query(_pk(stored), prefix=_COPIES)}

    async def resume(self, stored: StoredResponse, lane: AgentLane) -> None:
        """Know an agent of the responses before, once; its beginning is in the items before this response."""
        made = {"PK": _pk(stored), "SK": keys.lane(lane.number), "ttl": stored.expires_at, **_LANE.pack(lane)}
        with suppress(ConditionFailed):
            await self._table.put(made, if_absent=True)

    async def beginning(self, stored: StoredResponse, number: int) -> list[Item] | None:
        """Its first input; None if it began in an earlier response."""
        record = await self._table.get(_pk(stored), keys.lane(number, _BEGINNING))
        if record is None:
            return None
        (body,) = await self._blobs.inlined([record], "body")
        items: list[Item] = await unpacked(body)
        return items

    async def change(self, stored: StoredResponse, lane: AgentLane, *, as_of: AgentLane) -> AgentLane | None:
        """Write a change of a record that was read so. None if somebody has let it go on meanwhile, or sent to it."""
        after, before = _LANE.pack(lane), _LANE.pack(as_of)
        try:
            record = await self._table.update(
                _pk(stored),
                keys.lane(lane.number),
                set={"ttl": stored.expires_at, **{name: value for name, value in after.items() if before.get(name) != value}},
                remove=tuple(name for name in before if name not in after),
                condition={name: before[name] for name in _COMPARED if name in before},
                absent=tuple(name for name in _COMPARED if name not in before),
                must_exist=False,
            )
        except ConditionFailed:
            return None
        return _lane(record)

    async def interrupt(self, stored: StoredResponse, number: int) -> AgentLane:
        """Its turn is to end; answers how it stands afterwards."""
        return _lane(await self._table.update(_pk(stored), keys.lane(number), set={"is_interrupted": True}))

    async def set_execution(self, stored: StoredResponse, number: int, name: str) -> None:
        """Note the execution that runs it now."""
        await self._table.update(
            _pk(stored),
            keys.lane(number),
            set={"execution": name, "touched_at_ms": self._now_ms(), "ttl": stored.expires_at},
            must_exist=number != 0,
        )

    async def send(self, stored: StoredResponse, number: int, message: AgentMessage, sent_by: str) -> AgentLane:
        """Put a message into a mailbox, once; answers how its owner stands afterwards."""
        with suppress(ConditionFailed):  # Sent by an earlier run of the same step, which may not have counted it.
            await self._table.put(await _sent(stored, number, message, sent_by), if_absent=True)
        return _lane(
            await self._table.update(
                _pk(stored), keys.lane(number), add={"mail": 1}, set={"ttl": stored.expires_at}, must_exist=number != 0
            )
        )

    async def messages(self, stored: StoredResponse, number: int) -> list[AgentMessage]:
        """All that were ever sent to it, in the order of their times."""
        records = await self._table.query(_pk(stored), prefix=f"{keys.lane(number, _MESSAGES)}#")
        found = [_MESSAGE.unpack(record, text=await unpacked(record["body"])) for record in records]
        return sorted(found, key=lambda message: (message.sent_at_ms, message.id))

    async def answer(self, stored: StoredResponse, outputs: Mapping[int, Sequence[Item]]) -> bool:
        """Keep outputs for calls of these agents, all or none. False if the response takes none any more. Raises
        :class:`ConditionFailed` if one of the calls has its output already."""
        puts = [await self._kept(stored, number, item) for number, items in outputs.items() for item in items]
        gate = Write(_pk(stored), keys.META, set={"takes_outputs": True}, absent=("has_all_outputs",), is_there=True)
        counts = [
            Write(_pk(stored), keys.lane(number), add={"mail": len(items)}, set={"ttl": stored.expires_at})
            for number, items in outputs.items()
        ]
        failed = await self._table.write_together(puts, [gate, *counts])
        if failed and failed[0] < len(puts):
            raise ConditionFailed
        return not failed

    async def _kept(self, stored: StoredResponse, number: int, item: Item) -> Record:
        mark = hashlib.sha256(str(item["call_id"]).encode()).hexdigest()[:32]
        record: Record = {
            "PK": _pk(stored),
            "SK": f"{keys.lane(number, _OUTPUTS)}#{mark}",
            "ttl": stored.expires_at,
            "at_ms": self._now_ms(),
        }
        body = await packed(item)
        if len(body) > limits.TEAM_OUTPUT_INLINE_BYTES_MAX:
            record["blob"] = object_keys.response_blob(stored.tenant_id, stored.response_id, f"output-{mark}")
            await self._blobs.put_bytes(record["blob"], body)
        else:
            record["body"] = body
        return record

    async def outputs(self, stored: StoredResponse, number: int) -> list[Item]:
        """All that its client has sent for its calls while the response runs, in the order of their times."""
        records = await self._table.query(_pk(stored), prefix=f"{keys.lane(number, _OUTPUTS)}#")
        records.sort(key=lambda record: (record["at_ms"], record["SK"]))
        return [await unpacked(body) for body in await self._blobs.inlined(records, "body")]

    def started(self, lane: AgentLane, execution: str) -> AgentLane:
        """The same as one that is let go on by this execution."""
        return replace(
            lane,
            status="running",
            execution=execution,
            starts=lane.starts + 1,
            due_at_ms=0,
            touched_at_ms=self._now_ms(),
        )


_BEGINNING: Final = "AB#"
_MESSAGES: Final = "AM#"
_OUTPUTS: Final = "AO#"
_COPIES: Final = "AC#"
_COMPARED: Final = ("status", "mail", "starts", "is_interrupted")


async def _sent(stored: StoredResponse, number: int, message: AgentMessage, sent_by: str) -> Record:
    """A message in the mailbox of this agent."""
    return {
        "PK": _pk(stored),
        "SK": f"{keys.lane(number, _MESSAGES)}#{sent_by}",
        "ttl": stored.expires_at,
        "body": await packed(message.text),
        **_MESSAGE.pack(message),
    }


def _lane(record: Record) -> AgentLane:
    return _LANE.unpack(record, number=int(record["SK"].removeprefix(keys.LANE_PREFIX)))


def _pk(stored: StoredResponse) -> str:
    return keys.response(stored.tenant_id, stored.response_id)
