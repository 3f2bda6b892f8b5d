"""The life of a container in a MicroVM: clones, sleep, waking, ends, and a service that refuses and lags."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from tests.chaos.test_kill import COUNTED, begin, ended, runs
from tests.processes import is_worker, kill_all, until
from tests.stack import SHELL, Stack, outputs, say, script, shell
from tests.twin.microvms.machine import Image, Machine, has_freezer
from tests.twin.microvms.service import CLOSED, MicrovmTwin
from tests.unit.aws.microvm_service import Refused

TOKEN = "t" * 64
RUN = json.dumps({"token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "listen": "tcp:0.0.0.0:8080"})


def ask(stack: Stack, *commands: str, **options: Any) -> Response:
    tools: Any = [SHELL]
    answer: Response = stack.client().responses.create(
        model="demo", input=script(shell(*commands), say("done")), tools=tools, **options
    )
    return answer


def stdout(response: Response) -> str:
    """Of its only command."""
    ((said, errors, code),) = outputs(response.output)[0]
    assert (errors, code) == ("", 0)
    return str(said)


def container_of(response: Response) -> str:
    return str(response.tools[0].environment.container_id)  # type: ignore[union-attr]


def vm_of(stack: Stack, response: Response) -> str:
    (life,) = [
        each for each in stack.records() if each["SK"].startswith("LIFE#") and each.get("container_id") == container_of(response)
    ]
    return str(life["sandbox_id"])


# --- clones ---


async def test_machines_share_what_their_snapshot_drew_and_draw_anew_after_it(image: Image) -> None:
    machines = [image.machine(f"clone{number}") for number in range(2)]
    try:
        for each in machines:
            assert await each.run_hook("microvm-1", RUN) == 200
        words = [drawn_in_the_snapshot(each.processes()[1]) for each in machines]
        boots = [(await health(each))["boot_id"] for each in machines]
    finally:
        for each in machines:
            each.end()
    assert words[0] == words[1]
    assert boots[0] != boots[1]


def drawn_in_the_snapshot(pid: int) -> bytes:
    """As the exec server has it from the machine's first process."""
    (word,) = [each for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if each.startswith(b"SNAPSHOT_WORD=")]
    return word


async def health(machine: Machine) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection(sock=await machine.connected(8080))
    writer.write(f"GET /v1/health HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


def test_two_containers_draw_different_numbers_ids_and_names(stack: Stack, twin: MicrovmTwin) -> None:
    draw = "python3 -c 'import random, tempfile, uuid; print(random.random(), uuid.uuid4(), tempfile.mkdtemp())'"
    node = "node -e 'console.log(Math.random(), crypto.randomUUID())'"
    drawn = [[text for text, _, _ in outputs(ask(stack, draw, node).output)[0]] for _ in range(2)]
    words = [set(" ".join(texts).split()) for texts in drawn]
    assert all(len(each) == 5 for each in words)
    assert words[0] & words[1] == set()
    assert len({record["token_sha256"] for record in map(payload, twin.payloads)}) == len(twin.payloads)


def payload(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


# --- sleep ---


def test_a_sleep_keeps_processes_and_is_not_told_to_the_model(stack: Stack, twin: MicrovmTwin) -> None:
    first = ask(stack, "sleep 1000 & echo $! > pid; cat pid; export KEPT=1")
    vm_id, pid = vm_of(stack, first), stdout(first)
    twin.sleep(vm_id)
    second = ask(stack, "kill -0 $(cat pid) && cat pid", previous_response_id=first.id)
    assert stdout(second) == pid
    assert (vm_of(stack, second), twin.vms[vm_id]["state"]) == (vm_id, "RUNNING")
    assert "started again" not in second.model_dump_json()


def test_looking_wakes_no_machine(stack: Stack, twin: MicrovmTwin) -> None:
    first = ask(stack, "sleep 1000 & echo hello > note.txt; echo on")
    vm_id, container_id = vm_of(stack, first), container_of(first)
    twin.sleep(vm_id)
    with stack.http() as http:
        looks = [
            http.get("/containers"),
            http.get(f"/containers/{container_id}"),
            http.get(f"/containers/{container_id}/files"),
            http.get(f"/containers/{container_id}/tree"),
            http.get(f"/processes/{container_id}"),
        ]
    assert [each.status_code for each in looks] == [200, 200, 200, 200, 503]
    assert "sleeps" in looks[-1].json()["error"]["message"]
    assert twin.vms[vm_id]["state"] == "SUSPENDED"


def test_an_idle_machine_falls_asleep_by_itself_and_one_at_work_does_not(stack: Stack, twin: MicrovmTwin) -> None:
    first = ask(stack, "sleep 12; echo awake")
    vm_id = vm_of(stack, first)
    assert stdout(first) == "awake\n"
    assert twin.vms[vm_id]["state"] == "RUNNING", "its heartbeats are bytes"
    until(lambda: twin.vms[vm_id]["state"] == "SUSPENDED")


def test_a_command_is_not_charged_for_the_sleep_of_its_machine(stack: Stack, twin: MicrovmTwin) -> None:
    """Connections end at a sleep. Whoever reads the command's output comes back, wakes it, and has the rest."""
    response_id = begin(stack, shell("echo begun; sleep 4; echo ended", timeout_ms=8_000), say("x"))
    until(lambda: awake(twin))  # The command has said its first word, and may not be in its sleep yet.
    (life,) = [each for each in stack.records() if each["SK"].startswith("LIFE#") and each["sandbox_id"] in awake(twin)]
    twin.sleep(str(life["sandbox_id"]))
    ended(stack, response_id)
    assert outputs(stack.client().responses.retrieve(response_id).output) == [[("begun\nended\n", "", 0)]]


def awake(twin: MicrovmTwin) -> set[str]:
    """The machine of the only command that runs."""
    return {vm_id for vm_id in twin.alive() if any(b"sleep\x004" in command_line(pid) for pid in twin.pids(vm_id))}


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# --- ends ---


def test_a_machine_that_ends_in_a_command_is_told_once_and_its_container_is_revived(stack: Stack, twin: MicrovmTwin) -> None:
    before = ask(stack, "echo kept > note.txt; echo on")
    response_id = begin_after(stack, before)
    twin.crash(vm_of(stack, before))
    ended(stack, response_id)
    response = stack.client().responses.retrieve(response_id)
    first, second = outputs(response.output)
    assert (first[0][0], first[0][2]) == ("begun\n", 137)
    assert first[0][1].count("The container stopped while this command was running") == 1
    assert second[0][0].endswith("kept\n")


def begin_after(stack: Stack, before: Response) -> str:
    tools: Any = [SHELL]
    text = script(shell("echo begun; sleep 30"), shell("cat note.txt"), say("x"))
    stream = stack.client().responses.create(
        model="demo", input=text, tools=tools, background=True, stream=True, previous_response_id=before.id
    )
    response_id = ""
    for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.shell_call_output_content.delta" and "begun" in (event.delta.stdout or ""):
            break
    return response_id


def test_a_deleted_container_ends_its_machine_while_it_sleeps(stack: Stack, twin: MicrovmTwin) -> None:
    first = ask(stack, "echo on")
    vm_id, wakes = vm_of(stack, first), twin.happened["wake"]
    twin.sleep(vm_id)
    with stack.http() as http:
        assert http.delete(f"/containers/{container_of(first)}").status_code == 200
    until(lambda: twin.vms[vm_id]["state"] == "TERMINATED")
    assert twin.happened["wake"] == wakes


# --- a service that refuses, and workers that die ---

FAULTS = ["ThrottlingException", "InternalServerException", "ServiceQuotaExceededException", "InsufficientCapacityException"]


@pytest.mark.parametrize("code", FAULTS)
def test_a_start_waits_out_what_the_service_refuses(stack: Stack, twin: MicrovmTwin, code: str) -> None:
    twin.faults.append(("RunMicrovm", Refused(code, retry_after=1 if code == "ThrottlingException" else None)))
    assert stdout(ask(stack, "echo on")) == "on\n"
    assert not twin.faults


def test_a_start_waits_for_its_network_connector(stack: Stack, twin: MicrovmTwin) -> None:
    known, looks = set(twin.vms), twin.calls.count("GetNetworkConnector")
    twin.connectors[CLOSED] = "PENDING"
    tools: Any = [SHELL]
    begun = stack.client().responses.create(model="demo", input=script(shell("echo on"), say("x")), tools=tools, background=True)
    until(lambda: twin.calls.count("GetNetworkConnector") > looks)
    assert set(twin.vms) == known
    twin.connectors[CLOSED] = "ACTIVE"
    assert outputs(ended_response(stack, begun.id).output) == [[("on\n", "", 0)]]


def test_a_connector_that_failed_is_told_by_its_state(stack: Stack, twin: MicrovmTwin) -> None:
    twin.connectors[CLOSED] = "FAILED"
    try:
        response = ask(stack, "echo on")
    finally:
        twin.connectors[CLOSED] = "ACTIVE"
    assert "its network connector is FAILED" in response.model_dump_json()


def test_many_starts_at_once_are_throttled_and_all_come(stack: Stack, twin: MicrovmTwin) -> None:
    before = twin.happened["ThrottlingException"]
    tools: Any = [SHELL]
    begun = [
        stack.client().responses.create(model="demo", input=script(shell(f"echo {n}"), say("x")), tools=tools, background=True).id
        for n in range(12)
    ]
    said = [outputs(ended_response(stack, each).output)[0][0][0] for each in begun]
    assert said == [f"{n}\n" for n in range(12)]
    assert twin.happened["ThrottlingException"] > before


def ended_response(stack: Stack, response_id: str) -> Response:
    ended(stack, response_id)
    return stack.client().responses.retrieve(response_id)


def test_a_killed_worker_loses_and_repeats_nothing(stack: Stack) -> None:
    response_id = begin(stack, shell(COUNTED), say("The end."))
    assert stack.process is not None
    assert kill_all(stack.process.pid, is_worker)
    ended(stack, response_id)
    response = stack.client().responses.retrieve(response_id)
    assert (response.output_text, outputs(response.output)) == ("The end.", [[("begun\nended\n", "", 0)]])
    assert runs(stack.client(), response_id) == "1"


def test_a_worker_that_dies_in_a_start_leaves_no_second_machine(stack: Stack, twin: MicrovmTwin) -> None:
    """The next one calls with the same client token and has the same machine."""
    known, tools = set(twin.vms), [SHELL]
    response_id = (
        stack.client()
        .responses.create(
            model="demo",
            input=script(shell("echo on"), say("x")),
            tools=tools,  # type: ignore[arg-type]
            background=True,
        )
        .id
    )
    until(lambda: len(set(twin.vms) - known) == 1)
    assert stack.process is not None
    kill_all(stack.process.pid, is_worker)
    assert outputs(ended_response(stack, response_id).output) == [[("on\n", "", 0)]]
    assert len(set(twin.vms) - known) == 1


# --- without the freezer ---


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.skipif(not has_freezer(), reason="no freezer here")), False])
def sleeper(request: pytest.FixtureRequest, image: Image) -> Iterator[Machine]:
    machine = image.machine("sleeper", uses_freezer=request.param)
    yield machine
    machine.end()


async def test_all_of_a_machine_stands_while_it_sleeps(sleeper: Machine) -> None:
    await sleeper.run_hook("microvm-1", RUN)

    def states() -> set[str]:
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in sleeper.processes()}

    assert len(sleeper.processes()) == 2
    sleeper.suspend()
    until(lambda: states() <= {"T", "D"})
    sleeper.resume()
    until(lambda: states() <= {"S", "R"})


# --- afterwards ---


def test_every_fault_was_met_and_every_machine_is_somebodys(stack: Stack, twin: MicrovmTwin) -> None:
    """After the others of this file."""
    assert min(twin.happened[each] for each in ("502", "sleep", "wake", "ThrottlingException")) > 0
    assert {each for vm in twin.vms.values() for each in vm["egressNetworkConnectors"]} == {CLOSED}

    def nobodys() -> set[str]:
        """One that has just been started is noted a moment later."""
        alive = set(twin.alive())
        return alive - {str(each["sandbox_id"]) for each in stack.records() if each["SK"].startswith("LIFE#")}

    until(lambda: nobodys() == set())
