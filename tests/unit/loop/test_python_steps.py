"""Runs of the code interpreter in steps that die and run again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from moorage.sandbox.exec_client import ExecOutput, ExecStarted, PythonEnded
from moorage.tools.code_interpreter.session import NEW_SESSION

from tests.stack import assert_well_formed
from tests.unit.loop.lab import CONTAINER, FakeSandboxes, Lab, Turn, call, say
from tests.unit.store.deaths import Death, at_each_death

TOOL: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}


def python(code: str, call_id: str = "call_1") -> Turn:
    return call("python", f'{{"code": "{code}"}}', call_id)


@dataclass
class PythonSandboxes(FakeSandboxes):
    """A container whose code prints itself; ``begins`` are the runs that find a new session."""

    begins: set[int] = field(default_factory=lambda: {0})

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        return _Live(self)


@dataclass
class _Live:
    sandboxes: PythonSandboxes
    notes: tuple[str, ...] = ()

    @property
    def record(self) -> Any:
        return SimpleNamespace(incarnation=1, network_policy={"type": "disabled"}, seconds_left=lambda now: float("inf"))

    @property
    def client(self) -> "_Live":
        return self

    async def __aenter__(self) -> "_Live":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def python(self, identity: str, code: str, **options: Any) -> AsyncIterator[Any]:
        if identity not in self.sandboxes.executed:
            self.sandboxes.executed.append(identity)
        is_new = self.sandboxes.executed.index(identity) in self.sandboxes.begins
        end = PythonEnded(2, "exit", 0, 0, None, result=None, images=(), session_started=is_new)
        for event in (ExecStarted(0), ExecOutput(1, "stdout", f"{code}\n"), end):
            if event.n > options["after"]:
                yield event


def lab_of(*turns: Turn, begins: set[int] | None = None) -> Lab:
    return Lab(*turns, sandboxes=PythonSandboxes(begins={0} if begins is None else begins))


def logs(response: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [item["outputs"] for item in response["output"] if item["type"] == "code_interpreter_call"]


@at_each_death
async def test_whenever_a_process_dies_code_runs_once_and_its_events_come_once(death: Death) -> None:
    lab = lab_of(*[turn for _ in range(3) for turn in (python("a"), say("Done."))])
    stored = await lab.background(tools=[TOOL])
    await lab.run_with_deaths(stored, death)
    events = await lab.events(stored)
    assert_well_formed(events)
    response = await lab.object_of(stored)
    whole = [item for item in response["output"] if item["status"] != "incomplete"]
    assert response["status"] == "completed"
    for item in whole:
        if item["type"] == "code_interpreter_call":
            assert item["outputs"] == [{"type": "logs", "logs": "a\n"}]
            steps = [event["type"].rpartition(".")[2] for event in events if event.get("item_id") == item["id"]]
            assert steps == ["in_progress", "delta", "done", "interpreting", "completed"]
    assert len(lab.sandboxes.executed) == len(set(lab.sandboxes.executed)) == len(logs({"output": whole}))


async def test_a_new_session_is_told_only_to_models_that_used_the_old_one() -> None:
    lab = lab_of(python("a"), python("b"), python("c"), say("Done."), begins={0, 1})
    stored = await lab.background(tools=[TOOL])
    await lab.run(stored)
    told = [output[0]["logs"] for output in logs(await lab.object_of(stored))]
    assert told == ["a\n", f"b\n[{NEW_SESSION}]", "c\n"]


async def test_a_model_that_used_the_container_before_is_told_too() -> None:
    earlier = {"id": "ci_0", "type": "code_interpreter_call", "status": "completed", "code": "z", "container_id": CONTAINER}
    elsewhere = earlier | {"id": "ci_1", "container_id": "cntr_other"}
    for item, note in ((earlier, f"\n[{NEW_SESSION}]"), (elsewhere, "\n")):
        lab = lab_of(python("a"), say("Done."))
        stored = await lab.background(tools=[TOOL], input_items=[item])
        await lab.run(stored)
        assert logs(await lab.object_of(stored)) == [[{"type": "logs", "logs": f"a{note}"}]]
