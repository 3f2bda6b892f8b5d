"""One history of a team: two to four agents whose executions are played side by side, and all that befalls them on the way.

Every request to the table takes a random time of the loop's clock, so that the tasks of several agents meet between any two of them.
A process that is lost takes its execution with it, or leaves it to the state machine, which may give its step up. The reaper does the
rest, and dies as others do. Somebody pauses the response, and lets it go on. Its client sends outputs for the calls that it sees while
the response runs, and sends one again whose acknowledgement it has not got.
"""

import asyncio
import itertools
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Container, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from moorage import limits
from moorage.errors import ConditionFailed, Superseded, UpstreamError
from moorage.loop import paused, team
from moorage.loop.recover import continue_loop, fail_response, recover
from moorage.loop.team_items import SILENT
from moorage.model.base import CallDelta, CallStarted, Delta, ModelRequest, StreamFinished, UsageReported
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse
from moorage.store.table import Record
from moorage.wire.types import Item

from tests.simulation.history import STEPS_MAX, Blow, Died, History, Process, _process, begun
from tests.unit.loop.lab import SHELL_TOOL, TENANT, FakeModel, FakeSandboxes, Lab, Turn, broken, say
from tests.unit.loop.teams import FETCH, LOOK, TEAM, agent_of, text_of
from tests.unit.loop.test_programs import PROGRAMS
from tests.unit.store.memory import MemoryTable

REAPER_ROUNDS_MAX: Final = 200
"""In which nothing ran before."""
_CANCELS_SPARED: Final = 0.8
"""Of the cancels of a history with one agent, which has fewer tasks."""
_ANSWERS_SPARED: Final = 0.4
"""A client works for a while, and some calls are never answered while the response runs."""
STANDING: Final = ("asking", "waiting")
"""An agent stands so at the end if one of the team waits for the next request."""
_COMES_LATER: Final = ("Message Type: ", "Output of the earlier call ")
"""What an agent is told at the beginning of a step begins so."""
_SLEEPS: Final = 0.3
"""The chance that a request to the table takes a time."""


class Lost(Exception):
    """The execution is gone with its process."""


class SlowTable(MemoryTable):
    """Its requests take a while, now and then."""

    def __init__(self, pace: random.Random) -> None:
        super().__init__()
        self.pace = pace

    async def _wait(self) -> None:
        if self.pace.random() < _SLEEPS:
            await asyncio.sleep(self.pace.random())

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        await self._wait()
        return await super().get(pk, sk, consistent=consistent)

    async def query(self, pk: str, **given: Any) -> list[Record]:
        await self._wait()
        return await super().query(pk, **given)


Action = tuple[str, dict[str, Any]]


class Scripts(FakeModel):
    """What each agent says, by how many turns it has made: whoever asks a step again hears the same, but for what breaks once."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__([])
        self.parents = _tree(dice)
        self.turns_of = {
            name: _turns(name, [child for child, parent in self.parents.items() if parent == name], dice) for name in self.parents
        }
        self.troubles = {name: _troubles(len(turns), dice) for name, turns in self.turns_of.items()}
        self.prompts: dict[str, list[tuple[Item, ...]]] = defaultdict(list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        name = agent_of(request)
        self.prompts[name].append(request.items)
        number = _turns_made(request)
        if self.troubles[name].get(number):
            self.turns = [self.troubles[name][number].pop()]
        elif number < len(self.turns_of[name]):
            self.turns = [_calls(name, number, self.turns_of[name][number])]
        else:
            self.turns = [say(f"{name} ends {number}")]
        async for delta in super().stream(request):
            yield delta


def _tree(dice: random.Random) -> dict[str, str]:
    """Names of the agents, and of who starts each: two to four, one below the other or side by side."""
    parents = {"/root": ""}
    for letter in "abc"[: 1 + int(dice.random() * 3)]:
        names = list(parents)
        parent = names[int(dice.random() ** 2 * len(names))]
        parents[f"{parent}/{letter}"] = parent
    return parents


def _turns(name: str, children: list[str], dice: random.Random) -> list[list[Action]]:
    """Calls of each turn of an agent before it says its last; an empty one is a last word of a turn that is followed up."""
    turns: list[list[Action]] = []
    names = [child.rpartition("/")[2] for child in children]
    forks, workspaces = ("all", "none", "1"), ("shared", "shared", "copied")
    spawns: list[Action] = [
        (
            "spawn_agent",
            {
                "task_name": child,
                "message": f"task of {name}/{child}",
                "fork_turns": forks[int(dice.random() * 3)],
                "workspace": workspaces[int(dice.random() * 3)],
            },
        )
        for child in names
    ]
    if dice.random() < 0.5:
        turns.append(_commands(name, dice))
    turns += [spawns] if dice.random() < 0.5 else [[spawn] for spawn in spawns]
    for number in range(int(dice.random() * 4)):
        chance = dice.random()
        asks: list[Action] = [("look" if chance < 0.15 else "fetch", {"at": name})]
        works: list[Action] = [("run_program", {})] if chance > 0.85 else _commands(name, dice)
        turns.append(asks if chance < 0.25 else _talk(name, names, number, dice) if chance < 0.6 else works)
    if dice.random() < 0.85:
        turns += [[("wait_agent", _time(dice))] for _ in children]
    if name != "/root" and dice.random() < 0.3:
        turns += [[], _commands(name, dice)]
    return [turn for turn in turns if turn or name != "/root"]


def _time(dice: random.Random) -> dict[str, Any]:
    return {"timeout_ms": 2_000} if dice.random() < 0.3 else {}


def _commands(name: str, dice: random.Random) -> list[Action]:
    """Calls side by side are of ``/root`` alone: those of other agents get ids at random, which are looked at in their order."""
    count = 1 + int(dice.random() ** 2 * 3)
    return [("shell", {})] * (count if name == "/root" else 1)


def _talk(name: str, children: list[str], number: int, dice: random.Random) -> list[Action]:
    known = [*children, "/root", "/root/a"]
    target = known[int(dice.random() * len(known))]
    kind = dice.random()
    if kind < 0.3:
        return [("send_message", {"target": target, "message": f"news {number} of {name}"})]
    if kind < 0.6:
        return [("followup_task", {"target": target, "message": f"more {number} of {name}"})]
    if kind < 0.75:
        return [("interrupt_agent", {"target": target})]
    if kind < 0.85:
        return [("list_agents", {})]
    return [
        ("shell", {}),
        ("send_message", {"target": target, "message": f"news {number} of {name}"}),
        ("wait_agent", {"timeout_ms": 1_000}),
    ]


def _troubles(length: int, dice: random.Random) -> dict[int, list[Turn]]:
    """What goes wrong once before a turn."""
    found: dict[int, list[Turn]] = {}
    for number in range(length + 1):
        chance = dice.random()
        if chance < 0.08:
            found[number] = [broken("half")]
        elif chance < 0.16:
            found[number] = [[UpstreamError("down", is_retryable=True)]]
        elif chance < 0.18:
            found[number] = [[UpstreamError("no", is_retryable=False)]]
    return found


def _calls(name: str, number: int, actions: list[Action]) -> Turn:
    if not actions:
        return say(f"{name} ends {number}")
    turn: Turn = []
    for place, (action, arguments) in enumerate(actions):
        call_id = f"call{name.replace('/', '-')}_{number}_{place}"
        given = {"commands": [call_id]} if action == "shell" else arguments | {"turn": number}
        given = {"code": call_id} if action == "run_program" else given
        turn += [CallStarted(action, call_id), CallDelta(json.dumps(given))]
    return [*turn, UsageReported(10, 2), StreamFinished("tool_calls")]


def _own(items: tuple[Item, ...]) -> tuple[Item, ...]:
    begins = [index for index, item in enumerate(items) if text_of(item).startswith("From here on you are ")]
    return items[begins[-1] :] if begins else items


def _turns_made(request: ModelRequest) -> int:
    """By the calls and last words of the agent that is asked, all of which are numbered."""
    made = -1
    for item in _own(request.items):
        if item["type"] == "function_call":
            given = json.loads(item["arguments"])
            made = max(made, given["turn"] if "turn" in given else int(str(given.get("code") or given["commands"][0]).split("_")[1]))
        elif item.get("role") == "assistant" and " ends " in text_of(item):
            made = max(made, int(text_of(item).rpartition(" ")[2]))
    return made + 1


def _program_prints(code: str) -> str:
    """A program runs a command, then asks its client, and then says what it has read."""
    given = re.search(r"const given = (.*);", code)
    assert given is not None
    order = json.loads(given[1])
    recorded = [json.loads(each) for each in json.loads(order["given"])["recorded"]]
    calls = [("shell", {"commands": [f"{order['code']}-program"]}), ("look", {"at": order["code"]})]
    made = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls[: len(recorded) + 1]]
    state = {"made": made, "is_waiting": True} if len(recorded) < len(calls) else {"made": made, "result": "read", "error": None}
    return f"\nmoorage-program:{json.dumps(state)}\n"


class TeamLab(Lab):
    def __init__(self, model: Scripts, table: MemoryTable, sandboxes: FakeSandboxes) -> None:
        super().__init__(table=table, sandboxes=sandboxes)
        self.model = self.scripts = model
        sandboxes.session_prints = _program_prints


def texts(output: list[Item], agent: str) -> list[str]:
    """What an agent has said."""
    return [text_of(item) for item in output if item["type"] == "message" and item["agent"]["agent_name"] == agent]


@cache
def beginning() -> tuple[StoredResponse, Mapping[tuple[str, str], Record]]:
    both = {"allowed_callers": ["direct", "programmatic"]}
    tools = [SHELL_TOOL | both, LOOK | both, FETCH, PROGRAMS]
    return begun(Lab(), agent="/root", tools=tools, takes_outputs=True, parameters={"multi_agent": TEAM})


class TeamHistory(History):
    option = " --team"
    lab: TeamLab

    def __init__(self, number: int, only: Container[int] | None = None) -> None:
        self.pace = random.Random(number | 1 << 65)
        super().__init__(number, only)
        self.table = self.lab.table
        self.at: dict[str, LoopState] = {}
        """Where each execution stands."""
        self.tasks = 0
        self.answered: set[str] = set()
        """Calls whose outputs the client knows to be taken, or refused."""
        self.resumes_at = -1
        """Before which task somebody lets the response go on that was paused."""

    def lab_of(self, dice: random.Random) -> Lab:
        return TeamLab(Scripts(dice), SlowTable(self.pace), self.host_kind())

    def beginning(self) -> tuple[StoredResponse, Mapping[tuple[str, str], Record]]:
        return beginning()

    async def _before_write(self, record: Record) -> None:
        await super()._before_write(record)
        if self.pace.random() < _SLEEPS:
            await asyncio.sleep(self.pace.random())

    async def play(self) -> None:
        stored, states = self.stored, self.lab.executions.states
        await self.lab.executions.start(stored.response_id, LoopState(stored.response_id, TENANT, stored.container_id).to_json(), None)
        idle = 0
        while self.tasks < STEPS_MAX:
            going = [name for name in self.lab.executions.started if states[name] == "RUNNING"]
            if going:
                idle = 0
                await self.round(going)
            elif any(not (process.woken.is_set() and running.done()) for _, process, running in self.stopped):
                await self.wake_all()
            elif (await self.snapshot()).is_final:
                break
            else:
                idle += 1
                assert idle < REAPER_ROUNDS_MAX, "it stands still"
                self.lab.now += limits.RECOVERY_SECONDS + 1
                await self.resume()
                await self.answer()
                await self.reap()
        else:
            raise AssertionError("it does not end")
        await self.wake_all()  # Those that went on by themselves have come to something, too.
        status = await self.look(stored)
        await self.look_at_hook(stored, status)

    async def wake_all(self) -> None:
        await self.wake(STEPS_MAX + limits.STEP_ATTEMPTS_MAX)

    async def snapshot(self) -> Any:
        return await self.lab.responses.snapshot(self.stored.tenant_id, self.stored.response_id)

    async def round(self, going: list[str]) -> None:
        """One task of some of the executions, at once."""
        chance = self.pace.random()
        if chance < 0.02 and self.resumes_at < 0:
            self.seen["paused"] += 1
            self.resumes_at = self.tasks + int(self.pace.random() * 8)
            with suppress(Died):
                await self.lab.responses.request_pause(self.stored)
        elif chance < 0.05:
            await self.reap()
        elif chance < 0.25:
            await self.answer()
        if 0 <= self.resumes_at <= self.tasks:
            await self.resume()
        chosen = self.pace.sample(going, 1 + int(self.pace.random() * len(going)))
        numbers = range(self.tasks, self.tasks + len(chosen))
        self.tasks += len(chosen)
        work = []
        for name, number in zip(chosen, numbers, strict=True):
            blow = next(self.blows)
            is_spared = blow.strikes == "cancelled" and self.pace.random() < _CANCELS_SPARED
            if is_spared or (self.only is not None and number not in self.only):
                blow = Blow()
            elif str(blow):
                self.dealt[number] = blow
            state = self.at.get(name) or LoopState.from_json(self.lab.executions.started[name])
            self.states.append(state)
            work.append(self.execution(name, state, number, blow))
        self.seen["agents at once"] += len(work) > 1
        await asyncio.gather(*work)

    async def execution(self, name: str, state: LoopState, number: int, blow: Blow) -> None:
        states = self.lab.executions.states
        try:
            self.at[name] = await self.task(self.stored, state, number, blow)
        except Lost:
            states[name] = "FAILED"
        if self.at.get(name, state).next is Next.DONE and states[name] == "RUNNING":
            states[name] = "SUCCEEDED"

    async def deliver(self, state: LoopState, blow: Blow) -> LoopState:
        if state.next is Next.DONE:  # Delivered late: an execution has no task then.
            return state
        if state.next is Next.CONTINUE:
            return await continue_loop(self.lab.runtime.stores, state)
        return await super().deliver(state, blow)

    async def again(self, stored: StoredResponse, state: LoopState, blow: Blow) -> LoopState:
        """The state machine's retry, or its giving up; or all is lost."""
        self.lab.runtime.stores.steps.forget(stored.tenant_id, stored.response_id)
        if blow.loses_execution:
            self.seen["execution lost"] += 1
            raise Lost
        if blow.strikes in ("died", "stopped") and blow.amount == 5:
            self.seen["given up"] += 1
            await fail_response(self.lab.runtime, state)
            return state.done()
        return state

    async def reap(self) -> None:
        """A round of the reaper, which may die in it."""
        self.seen["reaped"] += 1
        process = Process(int(self.pace.random() * 12), is_stopped=False)
        token = _process.set(process)
        try:
            await recover(self.lab.runtime)
        except (Died, Superseded):
            self.seen["reaper died"] += 1
        finally:
            _process.reset(token)

    async def answer(self) -> None:
        """The client answers a call that it sees, and the process that takes the output may die."""
        open_calls: dict[str, Item] = {}
        for event in await self.lab.events(self.stored):
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
                open_calls[event["item"]["call_id"]] = event["item"]
        due = [call for call_id, call in open_calls.items() if call_id not in self.answered and call["status"] == "completed"]
        if not due or self.pace.random() < _ANSWERS_SPARED:
            return
        call = due[0]
        item = {"id": f"fco_{call['call_id']}", "type": "function_call_output", "call_id": call["call_id"], "output": "seen"}
        token = _process.set(Process(int(self.pace.random() * 12), is_stopped=False))
        try:
            taken = await team.answer(self.lab.runtime.stores, self.stored, {call["agent"]["agent_name"]: [item]})
            self.seen["answered" if taken else "answered late"] += 1
            self.answered.add(call["call_id"])
        except ConditionFailed:
            self.answered.add(call["call_id"])
        except Died:
            self.seen["answer died"] += 1
        finally:
            _process.reset(token)

    async def resume(self) -> None:
        snapshot = await self.snapshot()
        self.resumes_at = -1
        if not snapshot.is_final and snapshot.stored.is_pause_requested:
            await paused.resume(self.lab.runtime.stores, self.lab.runtime.clock, snapshot.stored)

    async def look(self, stored: StoredResponse) -> str:
        status = await super().look(stored)
        response = await self.lab.object_of(stored)
        lanes = {lane.name: lane for lane in await self.lab.runtime.stores.lanes.all(stored)}
        self.seen["agents"] += len(lanes)
        self._look_at_prompts()
        self._look_at_messages(response, {name: lane.status for name, lane in lanes.items()})
        used = (response["usage"] or {}).get("agents", [])
        assert sum(each["total_tokens"] for each in used) == (response["usage"] or {"total_tokens": 0})["total_tokens"]
        if status != "completed":
            return status
        assert {each["agent_name"] for each in used} <= set(lanes)
        if not self.seen["stopped"]:  # Who comes back from the dead may still write of an agent that nobody runs any more.
            active = [lane for lane in lanes.values() if lane.is_active]
            assert not any(lane.status not in STANDING for lane in active), "an agent goes on after the end"
            assert not active or any(lane.status == "asking" for lane in active)
        shown = Counter(item["call_id"] for item in response["output"] if item["type"] == "function_call_output")
        for lane in lanes.values():
            taken = [item["call_id"] for item in await self.lab.runtime.stores.lanes.outputs(stored, lane.number)]
            assert [shown[call_id] for call_id in taken] == [1] * len(taken), "an output was taken, and is not shown once"
            if lane.number and not lane.is_active:
                told = [
                    message
                    for message in await self.lab.runtime.stores.lanes.messages(stored, lane.parent)
                    if message.author == lane.name and message.kind == "FINAL_ANSWER"
                ]
                tasks = [
                    message
                    for message in await self.lab.runtime.stores.lanes.messages(stored, lane.number)
                    if message.kind == "NEW_TASK"
                ]
                late = await self._late_outputs(lane.number)
                turns = len(tasks) + len(late)
                assert 1 <= len(told) <= turns, f"{lane.name} has told its end {len(told)} times after {turns} tasks and late outputs"
                last = [text for text in texts(response["output"], lane.name) if text]
                if lane.status == "completed" and last:
                    # Of two processes one may have told of an interruption before the other one had the answer.
                    heard = {message.text for message in told}
                    assert heard & {last[-1], f"{SILENT} interrupted."}, f"{lane.name} has not told {last[-1]!r}"
        return status

    async def _late_outputs(self, number: int) -> list[Item]:
        """Taken outputs for an agent's calls that it did not wait for."""
        output = (await self.lab.object_of(self.stored))["output"]
        left_open = {item["call_id"] for item in output if item.get("async")}
        return [item for item in await self.lab.runtime.stores.lanes.outputs(self.stored, number) if item["call_id"] in left_open]

    def _look_at_prompts(self) -> None:
        """Of any two prompts of an agent one begins with the other. A run that died before it wrote a word may have read fewer messages
        than the next one: they stand at the end of its prompt."""
        for name, prompts in self.lab.scripts.prompts.items():
            for shorter, longer in itertools.pairwise(sorted(prompts, key=len)):
                kept = len(shorter)
                while text_of(shorter[kept - 1]).startswith(_COMES_LATER):
                    kept -= 1
                assert longer[:kept] == shorter[:kept], f"another beginning of the prompt of {name}"

    def _look_at_messages(self, response: dict[str, Any], statuses: dict[str, str]) -> None:
        output = response["output"]
        heard = Counter((item["recipient"], item["author"], text_of(item)) for item in output if item["type"] == "agent_message")
        twice = [key for key, times in heard.items() if times > 1 and "FINAL_ANSWER" not in key[2]]
        assert not twice, f"told twice: {twice}"
        assert len({item["id"] for item in output}) == len(output)
        if response["status"] != "completed":
            return
        left_open = {item["call_id"] for item in output if item.get("async")}
        calls: dict[str, Counter[str]] = {"call": Counter(), "output": Counter()}
        results = [json.loads(text_of(item) or "{}") for item in output if item["type"] == "multi_agent_call_output"]
        interrupted = {said["target"] for said in results if "previous_status" in said}
        for item in output:
            if item.get("call_id") in left_open:  # Its output may come with the next request.
                continue
            if (
                item["type"].startswith(("function_call", "program")) and item["agent"]["agent_name"] in interrupted
            ):  # It went on without.
                continue
            if "call_id" in item and statuses[item["agent"]["agent_name"]] == "completed":  # Others were cut off in the middle.
                calls["output" if item["type"].endswith("_output") else "call"][item["call_id"]] += 1
        assert calls["call"] == calls["output"]
        assert set(calls["call"].values()) <= {1}
        said = {item["call_id"]: json.loads(item["arguments"]) for item in output if item["type"] == "multi_agent_call"}
        for item in output:
            if item["type"] != "multi_agent_call_output" or item["action"] not in ("spawn_agent", "followup_task"):
                continue
            result = json.loads(text_of(item) or "{}")
            target = result.get("task_name") or result.get("target")
            if target is not None and statuses[target] == "completed":
                task = said[item["call_id"]]["message"]
                assert any(to == target and text.endswith(f"\n{task}") for to, _, text in heard), f"{target} has not got {task!r}"
