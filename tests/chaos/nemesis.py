"""What befalls a stack: a seeded schedule of blows, and the hand that deals them."""

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from tests.chaos.upstream import ScriptedUpstream
from tests.chaos.wire import Wire
from tests.processes import descendants, is_launcher, is_worker
from tests.stack import Stack

SHORT_SECONDS: Final = (0.5, 4.0)
"""Short of what the supervisor takes for dead."""
LONG_SECONDS: Final = (6.0, 45.0)
"""Beyond that, and beyond what callers wait for: a supervisor has replaced it, or a lease has run out, when it goes on."""
VICTIM_SECONDS_MAX: Final = 5
LOOK_SECONDS: Final = 0.05
BACK_SECONDS_MAX: Final = 60
CLOCK_STEPS: Final = (-300, -30, 60, 900)
LATE_COMMITS_OF_THOUSAND: Final = 30
UPSTREAM_FAULTS: Final = 0.15
DISK_MIB: Final = 192
VICTIMS: Final[dict[str, Callable[[str], bool]]] = {
    "worker": is_worker,
    "exec server": lambda line: "exec_server" in line and not line.startswith("bwrap"),
    "command": lambda line: "tok_" in line and line.startswith(("/usr/bin/bash", "bash", "sh", "/bin/sh")),
    "browser": lambda line: "--remote-debugging-pipe" in line and "--type=" not in line,
    "launcher": is_launcher,
    "proxy": lambda line: "egress_proxy" in line,
}
WEIGHTS: Final = {
    "worker": 6,
    "exec server": 3,
    "command": 3,
    "browser": 2,
    "launcher": 2,
    "proxy": 1,
    "API": 1,
    "everything": 1,
    "connections": 2,
    "clock": 1,
    "disk": 1,
}
FREEZABLE: Final = ("worker", "exec server", "launcher")


@dataclass(frozen=True, slots=True)
class Event:
    """One blow of the schedule."""

    after: float
    """Seconds since the one before."""
    victim: str
    action: str
    """``kill``, ``freeze``, or what is done to what is no process: ``cut``, ``set``, ``fill``."""
    seconds: float = 0.0
    """How long it stays frozen or full, or by how much a clock is set."""
    chance: float = 0.0
    """Which of the processes that are there, as a share of the list."""


def schedule(seed: int, kills: int, mean_seconds: float) -> list[Event]:
    dice = random.Random(seed)
    victims = dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills)
    return [_event(dice, victim, mean_seconds) for victim in victims]


def _event(dice: random.Random, victim: str, mean_seconds: float) -> Event:
    after, chance, kind = dice.expovariate(1 / mean_seconds), dice.random(), dice.random()
    match victim:
        case "connections":
            return Event(after, victim, "cut")
        case "clock":
            return Event(after, victim, "set", dice.choice(CLOCK_STEPS))
        case "disk":
            return Event(after, victim, "fill", round(dice.uniform(*SHORT_SECONDS), 2))
    if victim in FREEZABLE and kind < 0.25:
        return Event(after, victim, "freeze", round(dice.uniform(*(LONG_SECONDS if kind < 0.1 else SHORT_SECONDS)), 2), chance)
    return Event(after, victim, "kill", 0.0, chance)


class Field:
    """A stack with everything around it that can go wrong. Late commits and faults of the upstream begin with ``begin``. One that is
    not whole has neither egress proxy nor a small disk, and starts quickly; its history has no budgets and no webhooks."""

    def __init__(self, folder: Path, seed: int, *, is_whole: bool, ports: Sequence[int]) -> None:
        """``ports`` are of servers on this machine that may be reached: a receiver of webhooks, and a server of tools."""
        self._folder = folder / "faults"
        self._folder.mkdir(parents=True)
        for name in ("clock", "faults"):
            self._tell(name, 0)
        self._upstream = ScriptedUpstream(seed)
        self._disk = folder / "state" / "store"
        environment = {
            "MOORAGE_CHAOS": str(self._folder),
            "MOORAGE_CHAOS_SEED": str(seed),
            "MOORAGE_UPSTREAM_URL": self._upstream.url,
            "MOORAGE_UPSTREAM_MODEL": "scripted",
            "MOORAGE_EGRESS_PORTS": ",".join(map(str, (80, 443, *ports))),
            "MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128",
            "PYTHONPATH": str(Path(__file__).parent / "faults"),
        }
        if is_whole:
            environment["MOORAGE_ALLOWED_EGRESS_DOMAINS"] = "example.com"
        self.stack = Stack(folder / "state", environment)
        self.has_small_disk = is_whole and os.geteuid() == 0

    def __enter__(self) -> "Field":
        self._upstream.__enter__()
        if self.has_small_disk:
            self._disk.mkdir(parents=True)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0700", "tmpfs", str(self._disk)]
            self.has_small_disk = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        self.stack.start()
        self.wire = Wire(lambda: self.stack.url)
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()
        if self.has_small_disk:
            subprocess.run(["umount", "--lazy", str(self._disk)], check=False)
        self._upstream.__exit__(None, None, None)

    def begin(self) -> None:
        self._tell("faults", LATE_COMMITS_OF_THOUSAND)
        self._upstream.rate = UPSTREAM_FAULTS

    def rest(self) -> None:
        """Nothing more goes wrong with this machine from now on; the clock stays as it was set. The upstream goes on as
        before: where blows come fast, most of what is asked of a model is asked when they are over."""
        self._tell("faults", 0)
        self.heal()

    def set_clock(self, seconds: float) -> None:
        self._tell("clock", seconds)

    def fill(self) -> bool:
        """Leave no room where the journal and the objects lie."""
        if not self.has_small_disk:
            return False
        with suppress(OSError), (self._disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"\0" * 65536)
        return True

    def heal(self) -> None:
        (self._disk / "ballast").unlink(missing_ok=True)

    def faults(self) -> dict[str, dict[str, int]]:
        """How many commits to the store were late, and how many answers of the upstream were wrong."""
        found: dict[str, Counter[str]] = {"upstream": Counter({"all": self._upstream.faults})}
        path = self._folder / "count"
        for line in path.read_text().splitlines() if path.exists() else ():
            operation, fault = line.split("\t")
            found.setdefault(operation, Counter())[fault] += 1
        return {operation: dict(counts) for operation, counts in sorted(found.items())}

    def _tell(self, name: str, value: float) -> None:
        """In place, at once and whole: who reads it has it open."""
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, f"{value:<31g}\n".encode(), 0)
        os.close(descriptor)


@dataclass
class Nemesis:
    field_: Field
    struck: Counter[str] = field(default_factory=Counter)
    back: dict[str, list[float]] = field(default_factory=dict)
    """Seconds until what was killed was there again, by victim."""
    _watches: list[threading.Thread] = field(default_factory=list)
    _timers: list[threading.Timer] = field(default_factory=list)

    def strike(self, event: Event) -> None:
        match event.victim:
            case "connections":
                self.struck["connections cut"] += self.field_.wire.cut()
            case "clock":
                self.field_.set_clock(event.seconds)
                self.struck["clock set"] += 1
            case "disk":
                if self.field_.fill():
                    self.struck["disk full"] += 1
                    self._later(event.seconds, self.field_.heal)
            case "API" | "everything":
                self._kill_stack(event)
            case _:
                self._strike_process(event)

    def rest(self) -> None:
        """Returns when all that was begun has come to its end."""
        for timer in self._timers:
            timer.join()
        for watch in self._watches:
            watch.join()

    def _kill_stack(self, event: Event) -> None:
        stack = self.field_.stack
        assert stack.process is not None
        below = descendants(stack.process.pid) if event.victim == "everything" else {}
        for pid in (stack.process.pid, *below):
            _signal(pid, signal.SIGKILL)
        stack.process.wait()
        self.struck[f"{event.victim} killed"] += 1
        self.field_.heal()  # A stack cannot start on a full disk.
        began = time.monotonic()
        stack.start()
        self.back.setdefault(event.victim, []).append(round(time.monotonic() - began, 2))

    def _strike_process(self, event: Event) -> None:
        there = self._there(event.victim)
        if not there:
            return
        pid = there[int(event.chance * len(there))]
        if event.action == "kill":
            if _signal(pid, signal.SIGKILL):
                self.struck[f"{event.victim} killed"] += 1
                self._watch(event.victim, pid)
            return
        length = "long" if event.seconds >= LONG_SECONDS[0] else "a while"
        self.struck[f"{event.victim} frozen for {length}"] += _signal(pid, signal.SIGSTOP)
        self._later(event.seconds, lambda: _signal(pid, signal.SIGCONT))

    def _there(self, victim: str) -> list[int]:
        """The processes of this kind; sandboxes and commands are not always there, and are waited for a while."""
        deadline = time.monotonic() + VICTIM_SECONDS_MAX
        while time.monotonic() < deadline:
            if there := self._pids(victim):
                return there
            time.sleep(LOOK_SECONDS)
        return []

    def _pids(self, victim: str) -> list[int]:
        process = self.field_.stack.process
        assert process is not None
        return [pid for pid, line in descendants(process.pid).items() if VICTIMS[victim](line)]

    def _watch(self, victim: str, killed: int) -> None:
        """Note when one of the stack's own children is there again."""
        if victim in ("worker", "launcher", "proxy"):
            watch = threading.Thread(target=self._until_back, args=(victim, killed, self.field_.stack.process), daemon=True)
            self._watches.append(watch)
            watch.start()

    def _until_back(self, victim: str, killed: int, stack: object) -> None:
        began = time.monotonic()
        while time.monotonic() - began < BACK_SECONDS_MAX and self.field_.stack.process is stack:
            others = [pid for pid in self._pids(victim) if pid != killed]
            if others:
                self.back.setdefault(victim, []).append(round(time.monotonic() - began, 2))
                return
            time.sleep(LOOK_SECONDS)

    def _later(self, seconds: float, work: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, work)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def is_serving(stack: Stack) -> bool:
    """Whether a request gets through to the table and back."""
    try:
        with stack.http() as http:
            return http.get("/files", params={"limit": 1}).status_code == 200
    except httpx.HTTPError:
        return False


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
