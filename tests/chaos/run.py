"""``make chaos SEED=7 KILLS=100``: real processes of a local stack are killed, frozen and cut off by a seeded schedule, under load,
while their clock is set, their disk is slow and fills, and the model's answers go wrong.

Clients go on meanwhile: background runs of many commands, by one agent, a team or a program, with readers that reconnect at random
numbers, plain streams, files, cancels, deletes, chains, sessions of agents. What each was told is written down, and at the end, when
the stack has come to rest, compared with what there is:

* a log has neither gap nor repeat and one end; replayed from any number it is the same; the object is what the log ends with;
* what a reader saw is a prefix of the log;
* a command has begun at most once, counted from outside in /proc, unless its output says that it was lost;
* what was acknowledged is there, what was deleted is not back, and nothing is left running;
* what a session of an agent was given is there once and in its order, and its turns have ended (``tests/chaos/sessions.py``);
* a click of a hosted computer reached its page once, unless the output says otherwise (``tests/chaos/computers.py``);
* budgets of a key, a tenant and a tree were overrun by one step at most, counted all, and hold nothing (``tests/chaos/thrift.py``);
* each end of a response in the background was told to a webhook at least once.

A violation prints the seed, and what is left of the schedule when all that does not matter is left out; ``--events`` plays that.
"""

import argparse
import hashlib
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.chaos import document
from tests.chaos.computers import HAS_BROWSER, ComputerClient, ComputerTold, clicked_wrong
from tests.chaos.nemesis import Event, Field, Nemesis, is_serving, schedule
from tests.chaos.sessions import SessionClient, SessionTold, ordered_wrong, session_violations
from tests.chaos.shrink import shrink
from tests.chaos.thrift import HOLD_SECONDS, Seen, Thrift, judged, listen, moods, unheard, untried
from tests.chaos.upstream import NAME
from tests.mcp_servers import Depot, depot_beside
from tests.processes import descendants, until
from tests.receivers import receiver_beside
from tests.stack import SHELL, Stack, assert_well_formed, raw_events, say, script, shell, spawn, wait

ENDS_SECONDS_MAX: Final = 300
SERVES_SECONDS_MAX: Final = 120
LOOK_SECONDS: Final = 0.05
"""No command of the load is as short."""
SHRINK_MINUTES: Final = 60.0
TEAMS: Final = 0.3
"""Of the runs."""
PROGRAMS: Final = 0.2
"""Of the commands."""
HAS_NODE: Final = shutil.which("node") is not None
TOOLS: Final = [{"type": "programmatic_tool_calling"}, SHELL | {"allowed_callers": ["direct", "programmatic"]}] if HAS_NODE else [SHELL]
ANSWERS_KEPT_MAX: Final = 1000
FILES_KEPT_MAX: Final = 300
"""Of what it has in excess of these a client deletes the oldest: a long history looks at little more in the end than a short one, and
its disk has room for what is kept."""
BLOWS_TOLD: Final = 50
MARKED: Final = ("was not run again", "could not be run", "stopped while this command")


@dataclass
class Told:
    """What clients were told, and what was seen from outside."""

    responses: dict[str, list[str]] = field(default_factory=dict)
    """Acknowledged runs, with the tokens of their commands."""
    cancelled: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    maybe_deleted: set[str] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    files_deleted: set[str] = field(default_factory=set)
    read: dict[str, list[dict[int, bytes]]] = field(default_factory=dict)
    """What each reader saw, by number."""
    sessions: list[SessionTold] = field(default_factory=list)
    computers: list[ComputerTold] = field(default_factory=list)
    depot: Depot = field(default_factory=Depot)
    """What the server of tools was told."""
    begun: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    """Processes that carried a token in their command line and whose parent did not."""
    errors: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Watch(threading.Thread):
    """Counts beginnings of commands from outside."""

    def __init__(self, told: Told) -> None:
        super().__init__(daemon=True)
        self._told, self.stopped = told, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(LOOK_SECONDS):
            carriers: dict[int, tuple[str, int, str]] = {}
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    found = _carrier(int(entry.name))
                    if found is not None:
                        carriers[int(entry.name)] = found
            with self._told.lock:
                for pid, (token, parent, started) in carriers.items():
                    if parent not in carriers or carriers[parent][0] != token:
                        self._told.begun.setdefault(token, set()).add((pid, started))


def _carrier(pid: int) -> tuple[str, int, str] | None:
    """Token, parent and time of start of a shell that runs one of our commands."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if len(line) < 3 or not line[0].endswith((b"sh", b"bash")) or b"tok_" not in line[2]:
            return None
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    token = line[2][line[2].index(b"tok_") :].split(maxsplit=1)[0].split(b";")[0].decode()
    return token, int(stat[1]), stat[19]


class Load:
    """Clients that go on whatever happens; an error is an answer, and is counted."""

    def __init__(
        self, stack: Stack, told: Told, seed: int, *, url: str | None = None, models: Sequence[str] = ("demo",), depot_url: str = ""
    ) -> None:
        """``depot_url`` is of the server of tools that sessions have, where they have one."""
        self._stack, self._told, self._rng = stack, told, random.Random(seed)
        self._url, self._models = url, models
        self._answers: deque[str] = deque()
        self._runs_of_late: deque[str] = deque(maxlen=6)
        self.stopped = threading.Event()
        person = SessionClient(told.sessions, random.Random(seed), self.stopped, depot_url)
        watcher = ComputerClient(told.computers, random.Random(seed), self.stopped)
        self.threads = [
            threading.Thread(target=self._until_stopped, args=(work,), daemon=True)
            for work in (
                self._runs,
                self._runs,
                self._runs,
                self._plain,
                self._files,
                self._follow,
                person.drive,
                *([watcher.drive] if HAS_BROWSER else []),
            )
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(130)

    def _until_stopped(self, work: Callable[[httpx.Client], None]) -> None:
        while not self.stopped.is_set():
            try:
                with httpx.Client(
                    base_url=self._url or self._stack.url, headers={"authorization": f"Bearer {self._stack.key}"}, timeout=60
                ) as http:
                    work(http)
            except (httpx.HTTPError, KeyError, ValueError) as error:
                with self._told.lock:
                    self._told.errors[type(error).__name__] += 1
                self.stopped.wait(0.3)

    def _runs(self, http: httpx.Client) -> None:
        tokens = [f"tok_{secrets.token_hex(8)}" for _ in range(self._rng.randint(1, 4))]
        steps = [
            self._step(f"echo {token} ; sleep {self._rng.uniform(0.2, 2):.2f} ; echo {token} >> ran ; echo end") for token in tokens
        ]
        body = {"tools": TOOLS, "background": True} | (_of_team(steps) if self._rng.random() < TEAMS else self._of_one(steps))
        response_id = _ok(http.post("/responses", json=body))["id"]
        with self._told.lock:
            self._told.responses[response_id] = tokens
        self._runs_of_late.append(response_id)
        self.stopped.wait(self._rng.uniform(0, 3))
        if self._rng.random() < 0.1:
            with self._told.lock:
                self._told.cancelled.add(response_id)  # whether or not the answer comes back
            _ok(http.post(f"/responses/{response_id}/cancel"))
        self._wait(http, response_id, 20)

    def _step(self, token: str) -> dict[str, Any]:
        """The model asks for a command itself, or writes a program that does."""
        command = f"echo {token} ; sleep {self._rng.uniform(0.2, 2):.2f} ; echo {token} >> ran ; echo end"
        if not HAS_NODE or self._rng.random() > PROGRAMS:
            return shell(command)
        code = f"text(await tools.shell({json.dumps({'commands': [command]})}))"
        return {"call": {"name": "run_program", "arguments": {"code": code}}}

    def _of_one(self, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"model": self._rng.choice(self._models), "input": script(*steps, say("The end."))}

    def _wait(self, http: httpx.Client, response_id: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.stopped.is_set():
            if _ok(http.get(f"/responses/{response_id}"))["status"] not in ("queued", "in_progress"):
                return
            self.stopped.wait(0.5)

    def _plain(self, http: httpx.Client) -> None:
        answer = _ok(http.post("/responses", json={"model": "demo", "input": f"hello {self._rng.random()}"}))
        with self._told.lock:
            self._told.responses[answer["id"]] = []
        self._answers.append(answer["id"])
        if self._rng.random() < 0.3:
            self._delete(http, self._answers.pop())
        if len(self._answers) > ANSWERS_KEPT_MAX:
            self._delete(http, self._answers.popleft())
        self.stopped.wait(0.1)

    def _delete(self, http: httpx.Client, response_id: str) -> None:
        with self._told.lock:
            self._told.maybe_deleted.add(response_id)
        _ok(http.delete(f"/responses/{response_id}"))
        with self._told.lock:
            self._told.deleted.add(response_id)

    def _files(self, http: httpx.Client) -> None:
        content = os.urandom(self._rng.randint(1, 50_000))
        answer = _ok(http.post("/files", files={"file": ("f.bin", content)}, data={"purpose": "user_data"}))
        with self._told.lock:
            self._told.files[answer["id"]] = content
            oldest = next(iter(self._told.files))
        if len(self._told.files) > FILES_KEPT_MAX:
            with self._told.lock:
                del self._told.files[oldest]  # whether or not the answer comes back
            _ok(http.delete(f"/files/{oldest}"))
            with self._told.lock:
                self._told.files_deleted.add(oldest)
        self.stopped.wait(0.3)

    def _follow(self, http: httpx.Client) -> None:
        """Read along from a random number, as long as the connection holds."""
        if not self._runs_of_late:
            self.stopped.wait(0.2)
            return
        response_id = self._rng.choice(self._runs_of_late)
        after = self._rng.choice([-1, -1, 0, 2, 5, 9])
        params = {"stream": "true", "include_obfuscation": "false"} | ({} if after < 0 else {"starting_after": str(after)})
        seen: dict[int, bytes] = {}
        try:
            with http.stream("GET", f"/responses/{response_id}", params=params, timeout=10) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        event = json.loads(line.removeprefix("data: "))
                        seen[event["sequence_number"]] = _digest(event)
                    if self.stopped.is_set() or self._rng.random() < 0.02:
                        break
        finally:
            with self._told.lock:
                self._told.read.setdefault(response_id, []).append(seen)


def _of_team(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first step is that of ``/root``, and each other one that of an agent: two side by side, and a third below the second."""
    first, *others = steps
    agents: list[dict[str, Any]] = []
    for number, step in reversed(list(enumerate(others))):
        below, agents = (_begin(agents), []) if number == 1 else ([], agents)
        agents.insert(0, spawn(f"a{number}", step, *below, say("Done.")))
    steps = [first, *_begin(agents), say("The end.")]
    return {"model": "demo", "input": script(*steps), "multi_agent": {"enabled": True}}


def _begin(agents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"calls": list(agents)}, *[wait()] * len(agents)] if agents else []


def _digest(event: dict[str, Any]) -> bytes:
    """Readers are many, and events long."""
    return hashlib.sha256(json.dumps(event, sort_keys=True).encode()).digest()


def _ok(answer: httpx.Response) -> dict[str, Any]:
    answer.raise_for_status()
    return dict(answer.json())


# --- afterwards --------------------------------------------------------------------------------------------------------------


def violations(stack: Stack, told: Told, seed: int) -> list[str]:
    """All that is not as it must be."""
    found: list[str] = []
    rng = random.Random(seed)
    with stack.http() as http:
        for response_id, tokens in told.responses.items():
            if response_id in told.maybe_deleted:
                code = http.get(f"/responses/{response_id}").status_code
                if response_id in told.deleted and code != 404:
                    found.append(f"{response_id} was deleted and answers {code}")
                continue
            try:
                found += _looked_at(http, told, response_id, tokens, rng)
            except (AssertionError, httpx.HTTPError, KeyError, IndexError) as error:
                found.append(f"{response_id}: {type(error).__name__}: {error}")
        for session in told.sessions:
            try:
                found += session_violations(http, session, told.begun, rng)
                found += ordered_wrong(session, told.depot.orders)
            except (AssertionError, httpx.HTTPError, KeyError, IndexError) as error:
                found.append(f"{session.id}: {type(error).__name__}: {error}")
        for computer in told.computers:
            try:
                found += _looked_at(http, told, computer.response_id, [], rng)
                found += clicked_wrong(_ended(http, computer.response_id), computer)
            except (AssertionError, httpx.HTTPError, KeyError, IndexError) as error:
                found.append(f"{computer.response_id}: {type(error).__name__}: {error}")
        for file_id, content in told.files.items():
            answer = http.get(f"/files/{file_id}/content")
            if answer.content != content:
                found.append(f"{file_id}: {answer.status_code}, its content is another")
        codes = {file_id: http.get(f"/files/{file_id}").status_code for file_id in told.files_deleted}
        found += [f"{file_id} was deleted and answers {code}" for file_id, code in codes.items() if code != 404]
    return found


def _looked_at(http: httpx.Client, told: Told, response_id: str, tokens: list[str], rng: random.Random) -> list[str]:
    found: list[str] = []
    response = _ended(http, response_id)
    log = _replay(http, response_id, -1)
    assert_well_formed(log)
    if log[-1]["response"] != response:
        found.append(f"{response_id}: the object is not what the log ends with")
    after = rng.randrange(len(log) - 1)
    if _replay(http, response_id, after) != log[after + 1 :]:
        found.append(f"{response_id}: replayed from {after} it is another log")
    by_number = {event["sequence_number"]: _digest(event) for event in log}
    for seen in told.read.get(response_id, []):
        found += [
            f"{response_id}: a reader saw another event {number}" for number, event in seen.items() if by_number.get(number) != event
        ]
    if response["status"] == "cancelled" and response_id not in told.cancelled:
        found.append(f"{response_id} was cancelled by nobody")
    said = {item["call_id"]: json.dumps(item) for item in response["output"] if item["type"] == "shell_call_output"}
    for token in tokens:
        times = len(told.begun.get(token, ()))
        whole = next((text for text in said.values() if token in text), "")
        if times > 1 and not any(words in whole for words in MARKED):
            found.append(f"{response_id}: {token} has begun {times} times, and nothing says so")
        if times and "could not be run" in whole:
            found.append(f"{response_id}: {token} has begun, and is said not to have")
    return found


def _ended(http: httpx.Client, response_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + ENDS_SECONDS_MAX
    while (response := _ok(http.get(f"/responses/{response_id}")))["status"] in ("queued", "in_progress"):
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.3)
    return response


def _replay(http: httpx.Client, response_id: str, after: int) -> list[dict[str, Any]]:
    params = {"stream": "true", "include_obfuscation": "false"} | ({} if after < 0 else {"starting_after": str(after)})
    with http.stream("GET", f"/responses/{response_id}", params=params) as answer:
        return raw_events(answer.iter_lines())


@dataclass
class Report:
    seed: int
    seconds: int
    struck: dict[str, int]
    responses: int
    sessions: int
    computers: int
    """Responses with a browser."""
    commands: int
    begun: int
    readers: int
    files: int
    deleted: int
    client_errors: dict[str, int]
    faults: dict[str, dict[str, int]]
    """Late commits to the store, and faults of the upstream."""
    back: dict[str, list[float]]
    """Seconds until what was killed was there again."""
    violations: list[str]
    heard: int
    """Events that the webhook was sent."""
    refused: int
    """Requests for which a budget had nothing left."""
    untried: list[str]
    """Budgets that were not used up, so that nobody saw whether they hold."""


def play(seed: int, events: list[Event], folder: Path, *, is_whole: bool = True) -> Report:
    """One history: strike, come to rest, look. See :class:`Field` for what is whole."""
    began, told, not_tried = time.monotonic(), Told(), list[str]()
    with (
        receiver_beside(*moods(seed)) as receiver,
        depot_beside(told.depot) as depot,
        Field(folder, seed, is_whole=is_whole, ports=(receiver.port, depot.port)) as played,
    ):
        stack, nemesis = played.stack, Nemesis(played)
        models = ("demo", NAME)
        watch, load = Watch(told), Load(stack, told, seed, url=played.wire.url, models=models, depot_url=f"{depot.url}/mcp")
        thrift = Thrift(stack, played.wire.url)
        if is_whole:
            listen(stack, receiver)
            thrift.begin()
        watch.start()
        load.start()
        played.begin()
        try:
            for number, event in enumerate(events, 1):
                time.sleep(event.after)
                nemesis.strike(event)
                if number % BLOWS_TOLD == 0:
                    minutes = (time.monotonic() - began) / 60
                    print(f"{number} of {len(events)} blows, {minutes:.0f} minutes, {len(told.responses)} responses", flush=True)
            nemesis.rest()
            played.rest()
            until(lambda: is_serving(stack), SERVES_SECONDS_MAX)
            thrift.end()
            load.stop()
            found = violations(stack, told, seed)
            if is_whole:  # An attempt that was cut off is made again a minute later.
                found += unheard(stack, receiver, [response_id for response_id, tokens in told.responses.items() if tokens])
                seen, jumps = _thrift_seen(played, thrift, events)
                found += judged(seen, jumps)
                not_tried = untried(seen)
        finally:
            load.stopped.set()
            thrift.stopped.set()
            watch.stopped.set()
            ended = _end(stack)
        faults = played.faults()
    found += ended
    commands = [token for tokens in told.responses.values() for token in tokens]
    return Report(
        seed,
        round(time.monotonic() - began),
        dict(nemesis.struck),
        len(told.responses),
        len(told.sessions),
        len(told.computers),
        len(commands),
        sum(token in told.begun for token in commands),
        sum(map(len, told.read.values())),
        len(told.files) + len(told.files_deleted),
        len(told.deleted) + len(told.files_deleted),
        dict(told.errors),
        faults,
        nemesis.back,
        found,
        len(receiver.sent),
        thrift.refused,
        not_tried,
    )


def _thrift_seen(played: Field, thrift: Thrift, events: Sequence[Event]) -> tuple[Seen, int]:
    """How budgets stand, and how often a clock was set forward. What a process held that died before its response was written is held
    until that time is over."""
    jumps = [event.seconds for event in events if event.action == "set"]
    played.set_clock(max([0, *jumps]) + HOLD_SECONDS)
    return thrift.seen(), sum(jump > 0 for jump in jumps)


def _end(stack: Stack) -> list[str]:
    """Stop it; what was not as it must be."""
    assert stack.process is not None
    below = descendants(stack.process.pid)
    try:
        code = stack.stop()
    except subprocess.TimeoutExpired:
        stack.process.kill()
        stack.process.wait()
        return ["the stack did not stop"]
    left = [line for pid, line in below.items() if Path(f"/proc/{pid}").exists() and "Z" not in _state(pid)]
    return [f"left running: {line}" for line in left] + ([f"the stack ended with {code}"] if code else [])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def shrunk(seed: int, events: list[Event], minutes: float) -> list[Event]:
    """What is left of a schedule that still fails, as far as the time goes. A history is no simulation: one that fails now and then
    leaves more than it takes."""
    deadline = time.monotonic() + minutes * 60

    def still_fails(fewer: list[Event]) -> bool:
        if time.monotonic() > deadline:
            return False
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            found = play(seed, fewer, Path(folder)).violations
        print(f"{len(fewer)} blows: {found[0] if found else 'nothing wrong'}", flush=True)
        return bool(found)

    return shrink(events, still_fails)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two blows, on average")
    parser.add_argument("--events", type=Path, help="play this schedule (JSON) instead of the seed's")
    parser.add_argument("--shrink", type=float, default=SHRINK_MINUTES, help="minutes to look for a shorter schedule that fails, too")
    parser.add_argument("--docs", action="store_true", help="note the history, and write docs/durability.md anew")
    options = parser.parse_args()
    events = schedule(options.seed, options.kills, options.every)
    if options.events:
        events = [Event(**event) for event in json.loads(options.events.read_text())]
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {options.seed}, {len(events)} blows, state in {folder}", flush=True)
    report = play(options.seed, events, folder)
    print(json.dumps(asdict(report), indent=2))
    if options.docs:
        with document.HISTORIES.open("a") as file:
            file.write(json.dumps(asdict(report)) + "\n")
        document.write()
    if report.violations:
        print(f"Again: make chaos SEED={options.seed} KILLS={options.kills}; the stack's words are in {folder}", flush=True)
        shorter = folder / "events.json"
        shorter.write_text(json.dumps([asdict(event) for event in shrunk(options.seed, events, options.shrink)]))
        print(f"What is left of the schedule is in {shorter}: make chaos SEED={options.seed} OPTIONS='--events {shorter}'")
        return 1
    shutil.rmtree(folder)
    if report.untried:
        # Nothing is wrong with that: what a killed process held is held for longer than a short history lasts.
        print("Not every budget came to its end: this history says little of those under 'untried'.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
