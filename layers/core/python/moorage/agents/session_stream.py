"""The events of a session, from its beginning or from now on, as they come (``client.beta.agents.sessions.events.stream``).

There is no log of a session: the events of a turn are those of its responses' logs, in another form. An event's id says where it
stands, its turn and its number there, so that a reader goes on behind it as long as the session is kept. A turn is read from its
beginning, also if only its end is told: what an item is hangs on what came before it.
"""

import asyncio
import string
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.agents.session_objects import (
    Environment,
    actions_of,
    end_of,
    environment_object,
    session_object,
    session_status,
    tokens_of,
    turn_object,
)
from moorage.agents.session_shapes import SessionStatus
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.team_events import TeamProjector
from moorage.agents.turn_events import TURN
from moorage.agents.turns import Standing, snapshot_of, stand, standing_of
from moorage.containers.store import ContainerRecord
from moorage.dataclass import dataclass
from moorage.environments.answers import state_of
from moorage.environments.shapes import EnvironmentState, EnvironmentStatus
from moorage.errors import ApiError, invalid_value
from moorage.files.store import Clock
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.store.responses import Snapshot
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Event

SESSION: Final = "agent.session"
START: Final = "0"
"""In the place of an id: before the first event."""
_PARKED_LOOK_SECONDS: Final = 2.0
_ON: Final = "on"
"""Marks that a response which stood still goes on."""
_TELLS_ALL: Final = (-1, -2)
_EVENTS_BITS: Final = 22
"""Of the number of an event in its turn: which of its response's it is. What stands before says which response that is."""
_ENDS_AT: Final = (1 << _EVENTS_BITS) - 3
"""What stands there tells the end of a turn whose response was deleted: behind all that was told of it before."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Behind which event a reader stands: the number of a turn, 0 for what came before the first, and of the event there."""

    turn: int
    event: int
    mark: str = ""
    """Of an event that is in no log, and was told behind this one: what it was about."""

    @property
    def id(self) -> str:
        return f"evt_{self.turn:08x}{self.event:08x}"

    @classmethod
    def of(cls, event_id: str, param: str) -> "Cursor":
        """Raises :class:`ApiError` for what is no id of an event."""
        if event_id == START:
            return cls(0, 0)
        _, _, place = event_id.partition("_")
        digits, _, mark = place.partition("_")
        if not event_id.startswith("evt_") or len(digits) != 16 or not set(digits) <= set(string.hexdigits):
            raise invalid_value(param, f"it is the id of an event of this session, or '{START}' for its beginning.")
        return cls(int(digits[:8], 16), int(digits[8:], 16), mark)


@dataclass(slots=True)
class SessionReader:
    """Follows a session for one client."""

    runtime: Runtime
    session: SessionRecord
    environment: Environment
    after: Cursor | None
    """None: from now on."""
    ends: bool = False
    """After the first turn, as the stream of a create does."""
    _number: int = 0
    """Of the last event in this turn."""
    _turn: int = 0
    _silent_to: tuple[int, int] = _TELLS_ALL
    """Of a turn that was there already: the response, and the event of its log, to which the reader wants nothing."""
    _told_failure: str = ""
    _awaits_setup: bool = False
    """Its environment has commands that are to run before all others, and it is not known how they have ended."""

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """The events that have come, an empty list at each silence. Ends with the session; whoever iterates closes it."""
        standing = await stand(self.runtime.stores, self.session)
        self._awaits_setup = _is_to_be_set_up(await self._container())
        number = 1
        if self.after is None:
            number = self._now(standing)
        elif self.after.turn == 0:
            yield await self._opening()
        else:
            number = self.after.turn
        while True:
            self._turn, self._number = number, 0
            turn: TurnRecord | None = None
            async for turn in self._turn_record(number, after=0):
                if turn is None:
                    yield [*await self._setup(), *await self._failure()]
            if turn is None:
                return
            self._turn = turn.number  # Those before it may have expired.
            async for events in self._of_turn(turn):
                yield events
            if self.ends:
                return
            number, self._silent_to = turn.number + 1, _TELLS_ALL

    def _now(self, standing: Standing) -> int:
        """The number of the turn that a reader begins with who wants nothing that has been; what is silent of it is noted."""
        if standing.turn is None:
            return 1
        if standing.is_over:
            return standing.turn.number + 1
        last = None if standing.snapshot is None else standing.snapshot.last
        self._silent_to = (standing.turn.count - 1, -1 if last is None else last.following - 1)
        return standing.turn.number

    async def _failure(self) -> list[Event]:
        """That the next response cannot begin, once; nothing as long as it can."""
        if self.session.error in ("", self._told_failure):
            return []
        standing = await stand(self.runtime.stores, self.session)
        if not standing.error:
            return []
        self._told_failure = self.session.error
        failed = {"type": f"{SESSION}.failed", "session": session_object(standing, self.environment, (), "failed")}
        return [self.beside(failed, f"failed_{zlib.crc32(self.session.error.encode()):08x}")]

    async def _container(self) -> ContainerRecord | None:
        if self.environment["type"] == "none":
            return None
        return await self.runtime.computers.containers.peek(self.session.tenant_id, self.environment["id"])

    async def _setup(self) -> list[Event]:
        """How the commands of the environment have ended, once; nothing as long as they have not."""
        if not self._awaits_setup or _is_to_be_set_up(container := await self._container()) or container is None:
            return []
        self._awaits_setup = False
        state = _state_of(self.runtime.settings, self.runtime.clock, container)
        return [self.beside(_of_environment(self.session, state), state["status"])]

    async def _turn_record(self, number: int, after: int) -> AsyncIterator[TurnRecord | None]:
        """None until the turn has more than so many responses, or was cancelled; ends without it when the session is gone. Without
        ``after`` it is the first one from this number on that is kept."""
        sessions, bell = self.runtime.stores.agent_sessions, self.runtime.stores.responses.bell
        heard = bell if bell is not None and bell.is_heard else None
        with nullcontext() if heard is None else heard.awaited(self.session.id) as woken:
            while True:
                turn = await (sessions.turn(self.session, number) if after else sessions.first_turn(self.session, beyond=number - 1))
                if turn is not None and (turn.count > after or turn.cancelled_at):
                    yield turn
                    return
                try:
                    self.session = await sessions.get(self.session.tenant_id, self.session.id)
                except ApiError:
                    return
                yield None
                if woken is None:
                    await asyncio.sleep(limits.AGENT_SESSION_POLL_SECONDS)
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(limits.KEEP_ALIVE_SECONDS):
                            await woken.wait()
                    woken.clear()

    async def _of_turn(self, turn: TurnRecord) -> AsyncGenerator[list[Event], None]:
        projector = TeamProjector(self.session.id, self.session.agent_id, turn.id)
        position, is_waiting, used = 0, False, TokenUsage()
        while True:
            self._number = position << _EVENTS_BITS
            then = _as_it_was(turn, position, used)
            async for events in self._of_response(projector, then, is_waiting=is_waiting):
                yield events
            standing = await standing_of(self.runtime.stores, self.session, then)
            if standing.snapshot is None:
                standing = await self._without_response(standing)
                self._number = (position << _EVENTS_BITS) + _ENDS_AT
            if standing.turn is None:
                return
            if standing.is_over and standing.turn.count == position + 1:
                yield self._numbered(self._closing(standing, projector))
                return
            is_waiting = bool(standing.open_calls)
            if is_waiting:
                waits = self._of_session("requires_action", standing, await actions_of(self.runtime.stores, standing))
                yield self._numbered([waits], is_silent=position < self._silent_to[0])
            following: TurnRecord | None = None
            async for following in self._turn_record(turn.number, after=position + 1):
                if following is None:
                    yield await self._failure()
            if following is None:
                return
            turn = following
            if turn.count == position + 1:  # It was cancelled while it waited.
                yield self._numbered(self._closing(replace(standing, turn=turn), projector))
                return
            position, used = position + 1, used + standing.used

    async def _without_response(self, standing: Standing) -> Standing:
        """As a turn stands now whose response was deleted, or has expired; without a turn if the session was deleted."""
        sessions, turn = self.runtime.stores.agent_sessions, standing.turn
        assert turn is not None
        try:
            self.session = await sessions.get(self.session.tenant_id, self.session.id)
        except ApiError:
            return replace(standing, turn=None)
        return replace(standing, turn=await sessions.turn(self.session, turn.number))

    async def _of_response(self, projector: TeamProjector, turn: TurnRecord, *, is_waiting: bool) -> AsyncGenerator[list[Event], None]:
        """The events of the last response that the turn had then, to its end."""
        runtime, tenant_id, position = self.runtime, self.session.tenant_id, turn.count - 1
        begun = Standing(self.session, turn)
        opening: list[Event] = []
        if position == 0 or is_waiting:
            opening.append(self._of_session("in_progress", begun))
        if position == 0:
            opening += [self._of_turn_object(name, begun, turn) for name in ("created", "in_progress")]
        snapshot = await snapshot_of(runtime.stores, tenant_id, turn.current)
        if (count := turn.resets.get(str(position))) is not None:
            opening.append(await self._reset(turn, count, snapshot))
        contents = runtime.stores.contents_of(tenant_id, frozenset(() if snapshot is None else snapshot.stored.parameters.include))
        given = [] if snapshot is None else await contents.items(snapshot.stored.own_input)
        yield self._numbered([*opening, *projector.begin(given, turn.current)], is_silent=(position, -1) <= self._silent_to)
        if snapshot is None:
            return
        parked = _Parked(self)
        log = runtime.stores.responses.log_of(snapshot.stored)
        async for batches in log.tail_batches(-1, is_alive=lambda: not parked.is_gone):
            if batches is None:
                yield [*await self._setup(), *await parked.look(turn)]
                continue
            told = [*await self._setup(), *parked.heard(turn)]
            for batch in batches:
                for index, event in enumerate(await contents.events(batch.events)):
                    is_silent = (position, event["sequence_number"]) <= self._silent_to
                    news = self._numbered(list(projector.hear(event, batch.said_at(index), batch.writer.step)), is_silent=is_silent)
                    told += [*parked.resumed(turn), *news] if news else []
            yield told

    async def _reset(self, turn: TurnRecord, count: int, snapshot: Snapshot | None) -> Event:
        """That a response begins in an environment that was made anew."""
        with suppress(ApiError):
            self.session = await self.runtime.stores.agent_sessions.get(self.session.tenant_id, self.session.id)
        self.environment = await environment_object(self.runtime, self.session)
        container_id = self.session.container_id if snapshot is None else snapshot.stored.container_id
        about = {"session_id": self.session.id, "turn_id": turn.id, "environment_id": container_id, "reset_count": count}
        return {"type": f"{SESSION}.environment.reset", **about}

    async def _opening(self) -> list[Event]:
        """What came before the first turn. An environment is said to be ready, unless commands are to run in it first: how these have
        ended is told when it is known."""
        self._turn, self._number = 0, 0
        said = [self._of_session("created", Standing(self.session), status="idle")]
        if self.environment["type"] != "none":
            container = await self._container()
            states = [_state(self.environment["id"], "pending")]
            if container is None:
                states.append(_state(self.environment["id"], "ready"))
            elif not _is_to_be_set_up(container):
                states.append(_state_of(self.runtime.settings, self.runtime.clock, container))
            said += [_of_environment(self.session, state) for state in states]
        return self._numbered(said)

    def _closing(self, standing: Standing, projector: TeamProjector) -> list[Event]:
        """The end of a turn. Its team ends before it; of one whose response was deleted nothing is known any more."""
        assert standing.turn is not None
        status, ended_ms = end_of(standing)
        team = [] if standing.snapshot is None else projector.close(status, ended_ms)
        ended = self._of_turn_object(status, standing, standing.turn)
        return [*team, ended | {"usage": tokens_of(standing.turn.used + standing.used)}, self._of_session("idle", standing)]

    def _of_turn_object(self, name: str, standing: Standing, turn: TurnRecord) -> Event:
        status: Any = {"created": "queued", "in_progress": "in_progress"}.get(name, name)
        shown = turn_object(standing, turn, status)
        return {"type": f"{TURN}.{name}", "session_id": self.session.id, "turn_id": turn.id, "turn": shown}

    def _of_session(
        self, name: str, standing: Standing, actions: Sequence[Mapping[str, Any]] = (), status: SessionStatus | None = None
    ) -> Event:
        wanted: Any = status or name
        return {"type": f"{SESSION}.{name}", "session": session_object(standing, self.environment, actions, wanted)}

    def _numbered(self, events: list[Event], *, is_silent: bool = False) -> list[Event]:
        """With their ids; none for a reader who has them, or has not asked for them."""
        told: list[Event] = []
        for event in events:
            self._number += 1
            at = Cursor(self._turn, self._number)
            has_it = self.after is not None and (at.turn, at.event) <= (self.after.turn, self.after.event)
            if not is_silent and not has_it:
                told.append({**event, "event_id": at.id})
        return told

    def beside(self, event: Event, mark: str) -> Event:
        """An event that is in no log: its id says what it follows, and what it is about."""
        return {**event, "event_id": f"{Cursor(self._turn, self._number).id}_{mark}"}


def _is_to_be_set_up(container: ContainerRecord | None) -> bool:
    return container is not None and container.has_setup and not container.is_set_up and not container.setup_error


def _state_of(settings: Settings, clock: Clock, container: ContainerRecord) -> EnvironmentState:
    """Of one whose commands have ended, or that has none."""
    return state_of(settings, clock, container) if container.setup_error else _state(container.id, "ready")


def _state(container_id: str, status: EnvironmentStatus) -> EnvironmentState:
    return {"id": container_id, "type": "openai_hosted", "status": status, "error": None}


def _of_environment(session: SessionRecord, state: EnvironmentState) -> Event:
    about = {"session_id": session.id, "turn_id": None, "environment": state}
    return {"type": f"{SESSION}.environment.{state['status']}", **about}


def _as_it_was(turn: TurnRecord, position: int, used: TokenUsage) -> TurnRecord:
    """When the response at this position was its last, and those before it had used so much. What they used stands in the record too:
    one of them may have been deleted since."""
    used = turn.used if turn.count == position + 1 else used
    return replace(turn, responses=turn.responses[: position + 1], count=position + 1, used=used, cancelled_at=0)


class _Parked:
    """Looks now and then whether a response that says nothing stands still for a person, or is gone."""

    def __init__(self, reader: SessionReader) -> None:
        self._reader = reader
        self._now = asyncio.get_running_loop().time
        self._looked_at = self._now()
        self._told: tuple[str, ...] = ()
        after = reader.after
        is_behind_wait = after is not None and after.turn == reader._turn and after.mark not in ("", _ON)
        self._told_before = after if is_behind_wait else None
        """Its client was told that it stands still, by a connection before this one."""
        self.is_gone = False

    def heard(self, turn: TurnRecord) -> list[Event]:
        """It says something: that it goes on, if it was told that it stands still."""
        self._looked_at = self._now()
        if not self._told:
            return []
        self._told, self._told_before = (), None
        return [self._event("in_progress", Standing(self._reader.session, turn), ())]

    def resumed(self, turn: TurnRecord) -> list[Event]:
        """That it goes on, if an earlier connection told that it stands still."""
        if (before := self._told_before) is None:
            return []
        self._told_before = None
        event = self._event("in_progress", Standing(self._reader.session, turn), ())
        return [event | {"event_id": f"{before.id}_{_ON}"}]

    async def look(self, turn: TurnRecord) -> list[Event]:
        """That it stands still, or that it goes on; nothing if that was told, or if it is too early to look."""
        if self._now() - self._looked_at < _PARKED_LOOK_SECONDS:
            return []
        self._looked_at = self._now()
        reader = self._reader
        standing = await standing_of(reader.runtime.stores, reader.session, turn)
        self.is_gone = standing.snapshot is None
        if not standing.is_running or standing.awaits == self._told:
            return []
        self._told = standing.awaits
        if self._told_before is not None and self._told_before.mark == self._mark:
            return []
        return [self._event(session_status(standing), standing, await actions_of(reader.runtime.stores, standing))]

    def _event(self, name: SessionStatus, standing: Standing, actions: Sequence[Mapping[str, Any]]) -> Event:
        shown = session_object(standing, self._reader.environment, actions, name)
        return self._reader.beside({"type": f"{SESSION}.{name}", "session": shown}, self._mark)

    @property
    def _mark(self) -> str:
        return "".join(each[-8:] for each in self._told) or _ON
