"""What the agents of a team ask of each other: the six calls, settled by the step whose model made them.

Each writes records whose keys follow from the call (``store/lanes.py``), so that a second run of the step changes nothing. An agent
that was started, or has to go on, does so after the outcome of the step was stored (``loop/team.py: wake``).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Final, get_args

from moorage import ids, limits
from moorage.approvals import waiting as approvals
from moorage.dataclass import dataclass
from moorage.errors import ApiError, passing_over_what_is_gone
from moorage.loop import brief, team_items, tool_step
from moorage.loop.lanes import seen_as
from moorage.runtime import Runtime
from moorage.store.lanes import COPIES, AgentLane, AgentMessage, MessageKind, Workspace
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.tools.function_items import compact_json, parsed
from moorage.tools.multi_agent.room import AgentTeam
from moorage.tools.multi_agent.room import output as output_item
from moorage.wire.types import Item

_NAME: Final = re.compile("[A-Za-z0-9_-]{1,64}")
_RESUMABLE: Final = ("completed", "incomplete", "interrupted")
Said = dict[str, Any]


class _Refused(Exception):
    """Why a call does nothing, in a sentence for the model."""


def output(call: Item, said: Said) -> Item:
    return output_item(call, compact_json(said))


async def news(stores: Stores, stored: StoredResponse, own: Iterable[Item]) -> list[Item]:
    """Messages to an agent that are not yet among its items."""
    known = {item.get("id") for item in own}
    return [message.item() for message in await stores.lanes.messages(stored, stored.lane) if message.id not in known]


def waits_over(before: Iterable[Item], made: Iterable[Item], response_id: str) -> list[Item]:
    """Outputs for the waits of an agent that goes on. It has called them ``before`` this step, of which an earlier run has ``made``
    something already."""
    items = list(before)
    answered = {item["call_id"] for each in (items, made) for item in each if item["type"] == AgentTeam.output_type}
    return [
        {"id": ids.new_item_id("maco", response_id), **output(item, {"message": "The wait is over: what has come follows."})}
        for item in items
        if item["type"] == AgentTeam.call_type and item["action"] == "wait_agent" and item["call_id"] not in answered
    ]


@dataclass
class AgentCalls:
    """The calls of one step of an agent."""

    runtime: Runtime
    stored: StoredResponse
    said: Sequence[Item]
    """What the agent knew before its model was asked."""
    wakes: list[int] = field(default_factory=list)
    """Agents that go on after the step."""
    waits_until_ms: int = 0

    async def settle(self, call: Item, index: int) -> Said | None:
        """What came of a call, at this index of the agent's items; None for a wait, whose end is told by the next step."""
        given = parsed(call["arguments"])
        mark = ids.mark_of_item(self.stored.lane, index)
        try:
            match call["action"]:
                case "spawn_agent":
                    return await self._spawn(given, mark)
                case "send_message":
                    return await self._send(given, mark)
                case "followup_task":
                    return await self._follow_up(given, mark)
                case "wait_agent":
                    self._wait(given)
                    return None
                case "interrupt_agent":
                    return await self._interrupt(given)
                case _:
                    return await self._list(given)
        except _Refused as refused:
            return {"error": str(refused)}

    async def recall(self, settled: Item) -> None:
        """Of a call that an earlier run of the step has settled: who goes on after the step."""
        said = parsed("".join(part["text"] for part in settled["output"])) or {}
        name = said.get("task_name") or said.get("target")
        self.wakes += [lane.number for lane in await self.runtime.stores.lanes.all(self.stored) if lane.name == name]

    async def _spawn(self, given: Said, mark: str) -> Said:
        task_name, text = _text_of(given, "task_name"), _message_of(given)
        if not _NAME.fullmatch(task_name):
            raise _Refused("'task_name' has 1 to 64 letters, digits, _ and -.")
        beginning = team_items.forked(self.said, given.get("fork_turns", "all"))
        if beginning is None:
            raise _Refused("'fork_turns' is 'all', 'none', or a number from 1 on.")
        workspace, copy = self._workspace(given), ""
        me = await self.runtime.stores.lanes.get(self.stored, self.stored.lane)
        try:
            for _ in range(limits.CONDITIONAL_WRITES_MAX):
                lanes = await self.runtime.stores.lanes.all(self.stored)
                lane = next((lane for lane in lanes if lane.called_by == mark), None)
                if lane is not None:
                    break
                name = f"{self.stored.agent}/{task_name}"
                self._check_room(lanes, name)
                if workspace in COPIES and (not copy or await self.runtime.stores.lanes.copy_of(self.stored, mark) != copy):
                    copy = await self._copy(mark, is_read_only=workspace == "read_only")
                lane = AgentLane(
                    number := lanes[-1].number + 1,
                    name=name,
                    parent=self.stored.lane,
                    called_by=mark,
                    task=text[: limits.TEAM_TASK_CHARS_TOLD],
                    execution=f"{self.stored.response_id}-l{number}",
                    turn=number * limits.LANE_STEPS,
                    touched_at_ms=self.runtime.now_ms(),
                    workspace=workspace,
                    container=copy or me.container,
                )
                told = brief.of_child(name, str(self.stored.agent), workspace)
                task = message_of(self.runtime.clock, self.stored, lane, "NEW_TASK", text, mark)
                if await self.runtime.stores.lanes.add(self.stored, lane, [*beginning, told], task):
                    break
            else:
                raise _Refused("Too many agents were started at the same moment. Try again.")
        except _Refused:
            await self._drop(copy)
            raise
        if lane.container != copy:  # Another run of the step was faster.
            await self._drop(copy)
        self.wakes.append(lane.number)
        place = {team_items.CONTAINER: lane.container} if lane.workspace in COPIES else {}
        place |= {"workspace": lane.workspace} if lane.workspace in ("none", "read_only") else {}
        return {"task_name": lane.name, team_items.FORKED_ITEMS: len(self.said), **place}

    def _workspace(self, given: Said) -> Workspace:
        """What an agent gets. Without a workspace of its own, one cannot give any."""
        wanted = given.get("workspace", "shared")
        if wanted not in get_args(Workspace):
            raise _Refused("'workspace' is 'shared', 'copied', 'read_only' or 'none'.")
        has_files = self.stored.container_id is not None
        if wanted in COPIES and not has_files:
            raise _Refused("You have no files that could be copied: leave 'workspace' out.")
        if wanted in COPIES and self.stored.has_gated_network:
            raise _Refused("A copy has no network that asks a person, as yours does: its 'workspace' is 'shared' or 'none'.")
        return "none" if wanted == "shared" and self.stored.lane and not has_files else wanted

    async def _drop(self, copy: str) -> None:
        """Of one that was made, and is no agent's."""
        if not copy:
            return
        with passing_over_what_is_gone():
            await self.runtime.computers.containers.delete(self.stored.tenant_id, copy)

    async def _copy(self, mark: str, *, is_read_only: bool) -> str:
        """A container with the files that the commands of this one have left so far. It is noted before it is made, so
        that the one of a process that died is deleted before the next is made."""
        assert self.stored.container_id is not None
        container_id = ids.new_listed_id("cntr", self.runtime.clock())
        if before := await self.runtime.stores.lanes.note_copy(self.stored, mark, container_id):
            await self._drop(before)
        try:
            source = await self.runtime.computers.containers.use(self.stored.tenant_id, self.stored.container_id)
            if is_read_only and source.has_setup:
                raise _Refused("Your container begins with commands, which have to write: its 'workspace' is not 'read_only'.")
            rows = await self.runtime.computers.containers.files_of(source.tenant_id, source.id)
            latest = max((row.written_at_ms for row in rows), default=0)
            at_ms = max(latest, self.runtime.now_ms())
            made, _ = await self.runtime.computers.containers.copy(
                source, at_ms=at_ms, container_id=container_id, is_read_only=is_read_only
            )
        except ApiError as error:
            raise _Refused(f"Your files could not be copied: {error.message}") from error
        return made.id

    def _check_room(self, lanes: Sequence[AgentLane], name: str) -> None:
        if any(lane.name == name for lane in lanes):
            raise _Refused(f"There is an agent {name} already: give it a followup_task, or take another name.")
        if name.count("/") - 1 > limits.TEAM_DEPTH_MAX:
            raise _Refused(f"Agents stand at most {limits.TEAM_DEPTH_MAX} deep below /root.")
        if len(lanes) > limits.TEAM_AGENTS_MAX:
            raise _Refused(f"A response has at most {limits.TEAM_AGENTS_MAX} agents beside /root. Give one a followup_task.")
        self._check_slots(lanes)

    def _check_slots(self, lanes: Sequence[AgentLane]) -> None:
        most = (self.stored.parameters.multi_agent or {})["max_concurrent_subagents"]
        if sum(lane.is_active for lane in lanes if lane.number) >= most:
            raise _Refused(f"{most} agents beside /root are active already. Wait for one, or do the task yourself.")

    async def _send(self, given: Said, mark: str) -> Said:
        text = _message_of(given)
        _, lane = await self._target(given)
        await self._deliver(lane, "MESSAGE", text, mark)
        return {"target": lane.name, "status": lane.status}

    async def _follow_up(self, given: Said, mark: str) -> Said:
        text = _message_of(given)
        lanes, lane = await self._target(given)
        if lane.number == 0:
            raise _Refused("/root takes no tasks. Send it a message.")
        if lane.status == "failed":
            raise _Refused(f"{lane.name} has failed and cannot go on. Start another agent.")
        if lane.status in _RESUMABLE:
            self._check_slots(lanes)
        await self._deliver(lane, "NEW_TASK", text, mark)
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            now = await self.runtime.stores.lanes.get(self.stored, lane.number)
            seen = await seen_as(self.runtime.stores, self.stored, lane.number)
            step, ended = await self.runtime.stores.steps.last(seen)
            made = await self.runtime.stores.steps.read(seen.tenant_id, seen.response_id, since=step, lane=lane.number)
            if ids.new_message_id(self.stored.response_id, mark) in {item.get("id") for item in made.items.values()}:
                break  # An earlier run of this step gave the task, which was done or is.
            if now.is_interrupted and now.is_active:  # Its turn goes on, with the task: the end of a turn would not look for it.
                if await self.runtime.stores.lanes.change(self.stored, replace(now, is_interrupted=False), as_of=now) is not None:
                    break
                continue
            if now.status not in _RESUMABLE:
                break  # It runs, and finds its task before it ends.
            going = replace(
                self.runtime.stores.lanes.started(now, f"{self.stored.response_id}-l{now.number}-{now.starts + 1}"),
                turn=step if ended is None else step + 1,  # A step that was cut short is taken again.
                turns=now.turns + 1,
                task=text[: limits.TEAM_TASK_CHARS_TOLD],
                is_interrupted=False,
            )
            if await self.runtime.stores.lanes.change(self.stored, going, as_of=now) is not None:
                break
        self.wakes.append(lane.number)
        return {"target": lane.name, "previous_status": lane.status}

    def _wait(self, given: Said) -> None:
        wait = wait_ms(given)
        if wait is None:
            raise _Refused("'timeout_ms' is a number of milliseconds.")
        until = ran_ms(self.runtime.clock, self.stored) + wait
        self.waits_until_ms = max(self.waits_until_ms, until)

    async def _interrupt(self, given: Said) -> Said:
        _, lane = await self._target(given)
        if lane.number == 0:
            raise _Refused("/root cannot be interrupted by an agent.")
        if lane.is_active:
            now = await self.runtime.stores.lanes.interrupt(self.stored, lane.number)
            seen = await seen_as(self.runtime.stores, self.stored, lane.number)
            step, _ = await self.runtime.stores.steps.last(seen)
            await tool_step.kill_running(self.runtime.stores, self.runtime.computers.containers, seen, step)
            if now.status == "held":
                await approvals.withdraw(self.runtime.stores, self.runtime.clock, self.stored, lane.number)
            if now.status in ("waiting", "asking", "held"):
                self.wakes.append(lane.number)
        return {"target": lane.name, "previous_status": lane.status}

    async def _list(self, given: Said) -> Said:
        prefix = given.get("path_prefix") or ""
        lanes = await self.runtime.stores.lanes.all(self.stored)
        return {
            "agents": [
                {"agent_name": lane.name, "status": lane.status, "last_task_message": lane.task}
                for lane in lanes
                if lane.name.startswith(str(prefix))
            ]
        }

    async def _target(self, given: Said) -> tuple[list[AgentLane], AgentLane]:
        """All agents, and the one that is meant."""
        named = _text_of(given, "target")
        name = named if named.startswith("/") else f"{self.stored.agent}/{named}"
        lanes = await self.runtime.stores.lanes.all(self.stored)
        lane = next((lane for lane in lanes if lane.name == name.rstrip("/")), None)
        if lane is None:
            raise _Refused(f"There is no agent {name}. There are: {', '.join(lane.name for lane in lanes)}.")
        if lane.number == self.stored.lane:
            raise _Refused("That is you.")
        return lanes, lane

    async def _deliver(self, lane: AgentLane, kind: MessageKind, text: str, mark: str) -> None:
        if lane.mail >= limits.TEAM_MESSAGES_MAX:
            raise _Refused(f"The mailbox of {lane.name} is full: it has got {limits.TEAM_MESSAGES_MAX} messages.")
        message = message_of(self.runtime.clock, self.stored, lane, kind, text, mark)
        now = await self.runtime.stores.lanes.send(self.stored, lane.number, message, mark)
        if now.status == "waiting":
            self.wakes.append(lane.number)


def ran_ms(clock: Callable[[], float], stored: StoredResponse) -> int:
    """The time by which agents wait for messages: milliseconds that stand still with the response."""
    return int(clock() * 1000) - stored.paused_seconds * 1000


def wait_ms(given: Any) -> int | None:
    """How long an agent waits for messages, by the arguments of its call; None if they do not say it."""
    asked = given.get("timeout_ms", limits.TEAM_WAIT_MS) if isinstance(given, dict) else None
    if not isinstance(asked, int | float) or isinstance(asked, bool):
        return None
    return int(max(0, min(asked, limits.TEAM_WAIT_MS_MAX)))


def message_of(
    clock: Callable[[], float], stored: StoredResponse, to: AgentLane, kind: MessageKind, text: str, mark: str
) -> AgentMessage:
    """A message of the agent as which the response is seen."""
    message_id = ids.new_message_id(stored.response_id, mark)
    return AgentMessage(message_id, kind, str(stored.agent), to.name, text, int(clock() * 1000))


def _text_of(given: Said, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _Refused(f"'{name}' is a text, and it is needed.")
    return value


def _message_of(given: Said) -> str:
    text = _text_of(given, "message")
    if len(text) > limits.TEAM_MESSAGE_CHARS_MAX:
        raise _Refused(f"A message has at most {limits.TEAM_MESSAGE_CHARS_MAX} characters. Put the rest into a file.")
    return text
