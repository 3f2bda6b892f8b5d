"""``make up`` for tests: the embedded stack as a child process, on a free port, with state in a folder of the test's own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from moorage.local.exports import read_exports
from moorage.local.processes import dying_with
from moorage.store.journal import Journal
from moorage.store.record_text import load_record
from moorage.tools.registry import ROOMS
from moorage.wire.events import CATALOGUE
from moorage.wire.items import SHAPES, InputItem
from moorage.wire.validation import JsonValidator
from openai import OpenAI

from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

_ITEM = JsonValidator[Any](InputItem)
ROOT = Path(__file__).resolve().parent.parent
_START_SECONDS_MAX = 120
_STOP_SECONDS_MAX = 60
TOLD_PROGRAMS = {"MOORAGE_SANDBOX_PROGRAMS": "python 3.11, chromium 156.0"}
"""A start asks two dozen programs for their versions, with a fifth of its processor time; most starts are told of one."""


@dataclass(slots=True)
class Stack:
    state_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None
    url: str = ""
    key: str = ""
    tree: Path = ROOT
    """Whose moorage it is: this clone's, or that of another one which ``make setup-dev`` has set up."""
    module: str = "moorage.local.stack"
    """What is run."""
    finds_programs: bool = False
    """Whether it asks a sandbox for what ``TOLD_PROGRAMS`` says."""
    _clients: dict[tuple[str, str], OpenAI] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)
    """Of clients: of two that threads make at once, one would never be closed."""

    def start(self) -> "Stack":
        """Start it and return when it serves. A second start finds the state of the first."""
        path = self.state_dir / "env"
        path.unlink(missing_ok=True)
        self.state_dir.mkdir(parents=True, exist_ok=True)
        with (self.state_dir / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable if self.tree == ROOT else str(self.tree / ".venv/bin/python"), "-m", self.module],
                cwd=self.tree,
                env=clean_environment()
                | {"MOORAGE_STATE_DIR": str(self.state_dir), "MOORAGE_PORT": "0", "PYTHONWARNINGS": "default"}
                | ({} if self.finds_programs else TOLD_PROGRAMS)
                | dict(self.environment),
                stdout=log,
                stderr=log,
                start_new_session=True,
                # A run of tests that is killed must leave no stack behind.
                preexec_fn=dying_with(os.getpid()),
            )
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            if path.exists():
                values = read_exports(path)
                self.url, self.key = values["OPENAI_BASE_URL"], values["OPENAI_API_KEY"]
                return self
            time.sleep(0.02)
        raise RuntimeError(f"The stack did not start:\n{(self.state_dir / 'up.log').read_text()[-4000:]}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        assert self.process is not None
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(_STOP_SECONDS_MAX)

    def client(self, key: str | None = None) -> OpenAI:
        """The SDK's client; one for each key, closed when the stack stops."""
        identity = (self.url, key or self.key)
        with self._making:
            if identity not in self._clients:
                self._clients[identity] = OpenAI(base_url=self.url, api_key=identity[1], max_retries=0, timeout=120)
            return self._clients[identity]

    def http(self, key: str | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {key or self.key}"}, timeout=120)

    @contextlib.contextmanager
    def journal(self) -> Iterator[Journal]:
        """Its store, which any process may open."""
        journal = Journal(self.state_dir / "store")
        try:
            yield journal
        finally:
            journal.close()

    def records(self) -> list[dict[str, Any]]:
        """Every record of its table."""
        with self.journal() as journal:
            return [load_record(item) for (item,) in journal.reader.execute("SELECT item FROM records")]


def at_endpoint(endpoint: str) -> dict[str, str]:
    """What has a stack keep its table and its bucket at an emulator of AWS."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, **keys}


def clean_environment() -> dict[str, str]:
    """Without anything that would choose a real model or a real account."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "OPENAI_", "ANTHROPIC_", "MOORAGE_"))}


# --- inputs -----------------------------------------------------------------------------------------------------------------

SHELL: dict[str, Any] = {"type": "shell", "environment": {"type": "container_auto"}}


def script(*steps: Mapping[str, Any]) -> str:
    """A user message that makes the demo model play these steps, one model turn each. They may hold scripts of other agents."""
    steps_said = json.dumps(list(steps)).replace("`", "\\u0060")
    return f"```moorage-script\n{steps_said}\n```"


def spawn(name: str, *steps: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """A call in a step: the model starts an agent that plays these steps. What is filled in later is what the agent has got, and not
    the one that starts it."""
    message = script(*steps).replace("{{", "\\u007b{")
    return {"name": "spawn_agent", "arguments": {"task_name": name, "message": message, **others}}


def wait(**given: Any) -> dict[str, Any]:
    """A step: an agent waits for messages."""
    return {"call": {"name": "wait_agent", "arguments": given}}


def shell(*commands: str, **options: Any) -> dict[str, Any]:
    """A step: the model asks for commands, which run side by side."""
    return {"shell": {"commands": list(commands), **options}}


def say(text: str) -> dict[str, Any]:
    return {"say": text}


def outputs(items: Sequence[Any]) -> list[list[tuple[str, str, Any]]]:
    """Per shell_call_output the (stdout, stderr, exit code or "timeout") of its commands."""
    return [
        [(one.stdout, one.stderr, "timeout" if one.outcome.type == "timeout" else one.outcome.exit_code) for one in item.output]
        for item in items
        if item.type == "shell_call_output"
    ]


def assert_well_formed(events: Sequence[dict[str, Any]]) -> None:
    """The invariants of every log: numbers without gap, opening, end, items opened and closed once, and the sum of it all."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[1]["type"] in ("response.queued", "response.in_progress")
    finals = [event for event in events if event["type"] in _FINALS]
    assert finals == [events[-1]]
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    last = {event["output_index"]: event["type"] for event in events if "output_index" in event}
    assert set(last.values()) <= {"response.output_item.done"}, "an item goes on after its end"
    assert added == list(range(len(added)))
    assert sorted(done) == added
    assert [done[index] for index in added] == events[-1]["response"]["output"]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    assert_in_order(events)
    for kind, named in {(event["type"], frozenset(event)) for event in events}:
        fields = named - {"type", "obfuscation", "stream_id", "agent"}
        assert fields == CATALOGUE.get(kind, fields), kind
    for item in done.values():
        assert_can_be_sent_back(item)


def assert_can_be_sent_back(item: dict[str, Any]) -> None:
    """Whatever a response holds is an item of a later request as it stands."""
    room = ROOMS.of_item(item["type"])
    if item["type"] in SHAPES or (room is not None and room.item_shapes):
        _ITEM(item)


def assert_in_order(events: Sequence[dict[str, Any]]) -> None:
    """The events of each tool's item come as its room lists them, for each of a call's commands."""
    said: dict[tuple[int, int | None], dict[str, None]] = {}
    for event in events:
        name = event["type"].removeprefix("response.")
        if ROOMS.of_event(name) is not None:
            said.setdefault((event["output_index"], event.get("command_index")), {})[name] = None
    for names in said.values():
        room = ROOMS.of_event(next(iter(names)))
        assert room is not None
        assert list(names) == [name for name in room.events if name in names]


_FINALS = ("response.completed", "response.incomplete", "response.failed")


def raw_events(lines: Any) -> list[dict[str, Any]]:
    """The events of an SSE stream, from its lines."""
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
