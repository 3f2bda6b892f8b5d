"""Whose items are whose in a conversation with a team, and how its agents stand at its end.

This is read from the items alone, so that a client that keeps them itself can go on as well: a spawn says what its agent began with,
and all that an agent has made or got names it. What a client sends belongs to the agent that asked for it, otherwise to ``/root``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from moorage import limits
from moorage.dataclass import dataclass
from moorage.loop import brief, decide
from moorage.parallel import outweighs, worked
from moorage.store.lanes import ACTIVE, Workspace
from moorage.store.responses import ROOT_AGENT
from moorage.tools.function_items import parsed, without
from moorage.tools.multi_agent.room import AgentTeam, is_last_answer, is_task
from moorage.wire.types import Item

FAILED: Final = "This agent has failed, and cannot go on."
SILENT: Final = "This agent ended its turn without an answer:"
"""What stands for the answer of an agent without one begins so."""
FORKED_ITEMS: Final = "forked_items"
"""In the output of a spawn: so many items of the spawning agent were there when its model was asked."""
CONTAINER: Final = "container_id"
"""In the output of a spawn: the copy of the workspace in which the agent works."""
INTERRUPTED: Final = f"{SILENT} interrupted."
"""This one may be read when the agent has its next task already: it says nothing of how the agent stands."""
_PAYLOAD: Final = "\nPayload:\n"
_LEADS: Final = ("interrupt_agent", "followup_task")


@dataclass(slots=True)
class KnownAgent:
    name: str
    items: list[Item] = field(default_factory=list)
    """All that it knows, without the names of whose they are."""
    task: str = ""
    """The beginning of its latest task."""
    is_answered: bool = False
    """The latest that it knows is what its client has answered."""
    asked: set[str] = field(default_factory=set)
    """What it has asked its client: ``call_id`` of the calls, ids of the questions."""
    abandoned: set[str] = field(default_factory=set)
    """Of these, those before an interruption: it does not go on with their outputs."""
    left_open: set[str] = field(default_factory=set)
    """``call_id`` of its ``async`` calls: it goes on with an output whenever it comes, unless it is at rest."""
    has_given_up: bool = False
    """Its turn has ended without an answer."""
    is_interrupted: bool = False
    """Another one has ended its turn, and given it no task since. It may have been heard of since: it was in the middle of a step."""
    workspace: Workspace = "shared"
    container: str = ""
    """In which its calls run; empty for the response's own."""

    @property
    def parent(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def is_at_rest(self) -> bool:
        """Whether it goes on with a further task alone, whatever its client answers."""
        return self.has_given_up or self.is_interrupted

    def open_wait(self) -> Item | None:
        """The call with which it waits for messages, if nothing has come since."""
        last = next((item for item in reversed(self.items) if item["type"] != AgentTeam.message_type), None)
        return last if last is not None and last["type"] == AgentTeam.call_type and last["action"] == "wait_agent" else None

    def standing(self) -> Literal["running", "waiting", "completed"]:
        """How it is once a client has answered agents of its team."""
        if self.is_at_rest:
            return "completed"
        if self.is_answered:
            return "running"
        if self.open_wait() is not None:
            return "waiting"
        last = next((item for item in reversed(self.items) if item["type"] != AgentTeam.message_type), None)
        is_asked = self.name == ROOT_AGENT and (last is None or last.get("role") != "assistant")
        return "running" if is_asked else "completed"


async def agents_in(items: Sequence[Item]) -> dict[str, KnownAgent]:
    """The same as :func:`agents_of`; many items are read on a thread."""
    is_long = outweighs(items, limits.LOWERED_HERE_MAX)
    return await worked(lambda: agents_of(items)) if is_long else agents_of(items)


def agents_of(items: Iterable[Item]) -> dict[str, KnownAgent]:
    """By name: ``/root``, then the others in the order in which they began."""
    agents = {ROOT_AGENT: KnownAgent(ROOT_AGENT)}
    spawns: dict[str, tuple[int, Any]] = {}
    for name, item in owned(items):
        agent = agents.setdefault(name, KnownAgent(name))
        if item["type"] == AgentTeam.message_type:
            _hear(agents, agent, item)
        else:
            about = item.get("approval_request_id") or item.get("call_id")
            is_awaited = about in agent.left_open or (about in agent.asked and about not in agent.abandoned)
            agent.is_answered = is_awaited and decide.where(item) is None
            agent.has_given_up &= agent.is_answered
        if decide.is_for_client(item):
            asked = item.get("call_id") or item["id"]
            agent.asked.add(asked)
            if agent.is_interrupted:  # All before it are abandoned already.
                agent.abandoned.add(asked)
        elif item.get("async"):
            agent.left_open.add(item["call_id"])
        if item["type"] == AgentTeam.call_type and item["action"] == "spawn_agent":
            spawns[item["call_id"]] = len(agent.items), parsed(item["arguments"])
        agent.items.append(item)
        if item["type"] == AgentTeam.output_type and item["call_id"] in spawns:
            _begin(agents, agent, item, *spawns[item["call_id"]])
        elif item["type"] == AgentTeam.output_type and item["action"] in _LEADS:
            _lead(agents, item)
    return agents


def owned(items: Iterable[Item]) -> Iterator[tuple[str, Item]]:
    """Items without the names of whose they are, and these."""
    owners: dict[str, str] = {}
    for item in items:
        named = (item.get("agent") or {}).get("agent_name")
        about = item.get("approval_request_id") or item.get("call_id")
        owner = named or owners.get(str(about), ROOT_AGENT)
        if about is not None:
            owners[str(about)] = owner
        if decide.is_for_client(item) and "id" in item:
            owners[item["id"]] = owner
        yield owner, without(item, "agent")


def known_to_root(items: Sequence[Item]) -> Sequence[Item]:
    """Items without those of agents that ``/root`` had started, and without the names of whose they are."""
    if not any("agent" in item for item in items):
        return items
    return [item for name, item in owned(items) if name == ROOT_AGENT]


def copies_of(items: Iterable[Item]) -> frozenset[str]:
    """The containers that are copies of a workspace, each with an agent of its own."""
    spawns = [item for item in items if item["type"] == AgentTeam.output_type and item["action"] == "spawn_agent"]
    return frozenset(filter(None, (_copy_of(_said(output)) for output in spawns)))


def goes_on(agents: Iterable[KnownAgent]) -> bool:
    """Whether a client has answered what an agent has asked it last."""
    return any(agent.is_answered and not agent.is_at_rest for agent in agents)


def forked(said: Sequence[Item], turns: object) -> list[Item] | None:
    """What an agent gets of the conversation of the one that starts it: all, none, or its latest turns; a user begins each. Tools that
    have joined it are there in any case. None if ``turns`` says nothing of these."""
    wanted = str(turns)
    is_number = wanted.isdecimal() and len(wanted) <= limits.QUERY_DIGITS_MAX
    if wanted not in ("all", "none") and not (is_number and int(wanted) >= 1):
        return None
    first = 0
    if wanted == "none":
        first = len(said)
    elif wanted != "all":
        begins = [index for index, item in enumerate(said) if item.get("role") == "user"]
        first = begins[-int(wanted)] if len(begins) >= int(wanted) else 0
    return [*(item for item in said[:first] if item["type"] == "additional_tools"), *said[first:]]


def _begin(agents: dict[str, KnownAgent], parent: KnownAgent, output: Item, called_at: int, given: Any) -> None:
    said = _said(output)
    name = said.get("task_name")
    if not isinstance(name, str) or name in agents:
        return
    count = said.get(FORKED_ITEMS, 0)
    has_room = len(agents) <= limits.TEAM_AGENTS_MAX  # Each copies the items so far, and a request with more agents is refused.
    known = parent.items[: min(count, called_at) if isinstance(count, int) and has_room else 0]
    turns = given.get("fork_turns", "all") if isinstance(given, dict) else "all"
    copy = _copy_of(said)
    workspace: Workspace = "none" if "none" in (said.get("workspace"), parent.workspace) else "shared"
    if copy:
        workspace = "read_only" if said.get("workspace") == "read_only" else "copied"
    told = brief.of_child(name, parent.name, workspace)
    agents[name] = KnownAgent(name, [*(forked(known, turns) or ()), told], workspace=workspace, container=copy or parent.container)


def _lead(agents: dict[str, KnownAgent], output: Item) -> None:
    """An agent has interrupted another one, or given it a further task."""
    said = _said(output)
    target = agents.get(str(said.get("target")))
    if target is None:
        return
    was_active = said.get("previous_status") in ACTIVE
    if output["action"] == "followup_task":
        target.is_interrupted = False
        target.abandoned -= target.asked if was_active else set()  # Its turn went on.
    elif was_active:
        target.is_interrupted = True
        target.abandoned |= target.asked


def _said(output: Item) -> dict[str, Any]:
    said = parsed("".join(part["text"] for part in output["output"]))
    return said if isinstance(said, dict) else {}


def _copy_of(said: dict[str, Any]) -> str:
    """The container that a spawn has copied; empty if it has not."""
    named = said.get(CONTAINER)
    return named if isinstance(named, str) else ""


def _hear(agents: dict[str, KnownAgent], recipient: KnownAgent, sent: Item) -> None:
    if not sent["content"]:
        return
    payload = str(sent["content"][0]["text"]).partition(_PAYLOAD)[2]
    if is_task(sent):
        recipient.task = payload[: limits.TEAM_TASK_CHARS_TOLD]
    author = agents.get(sent["author"])
    if author is not None and is_last_answer(sent) and payload.startswith((FAILED, SILENT)) and payload != INTERRUPTED:
        author.has_given_up = True
