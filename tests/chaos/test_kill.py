"""Processes are killed in the middle of a background run; the invariants must hold.

The response ends in a final status, its log has neither gap nor repeat, and no command ran twice unless its output says so.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.chaos.batches import assert_settled_once_and_found_once, met_in_the_middle
from tests.processes import is_worker, kill_all, until
from tests.receivers import Receiver, receiver_beside
from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events, say, script, shell

TOOLS: Any = [SHELL]
COUNTED = "echo ran >> count; echo begun; sleep 3; echo ended"
"""A command that leaves a trace of every run of it."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiver_beside(500) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    """One that may send events to a receiver on this machine."""
    reach = {"MOORAGE_EGRESS_PORTS": str(receiver.port), "MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128"}
    running = Stack(Path(tmp_path_factory.mktemp("chaos")), reach).start()
    yield running
    assert running.stop() == 0


def begin(stack: Stack, *steps: dict[str, Any], until: str = "begun") -> str:
    """Start a background run and return its id when a command has said ``until``."""
    stream = stack.client().responses.create(model="demo", input=script(*steps), tools=TOOLS, background=True, stream=True)
    response_id = ""
    for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.shell_call_output_content.delta" and until in (event.delta.stdout or ""):
            return response_id
    raise AssertionError(f"the run ended before it said {until!r}")


def ended(stack: Stack, response_id: str) -> list[dict[str, Any]]:
    """The whole log, once it has its end."""
    with httpx.Client(base_url=stack.url, headers={"authorization": f"Bearer {stack.key}"}, timeout=90) as http:
        params = {"stream": "true", "include_obfuscation": "false"}
        with http.stream("GET", f"/responses/{response_id}", params=params) as answer:
            events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    return events


def runs(client: OpenAI, response_id: str) -> str:
    """How often the counted command has run in the response's container."""
    after = client.responses.create(
        model="demo", input=script(shell("wc -l < count"), say("x")), tools=TOOLS, previous_response_id=response_id
    )
    return str(outputs(after.output)[0][0][0]).strip()


def test_a_killed_tool_worker_loses_and_repeats_nothing(stack: Stack) -> None:
    response_id = begin(stack, shell(COUNTED), say("The end."))
    assert stack.process is not None
    assert kill_all(stack.process.pid, is_worker)
    events = ended(stack, response_id)
    response = stack.client().responses.retrieve(response_id)
    assert (response.status, response.output_text) == ("completed", "The end.")
    assert outputs(response.output) == [[("begun\nended\n", "", 0)]]
    assert "".join(event["delta"]["stdout"] for event in events if event["type"].endswith("output_content.delta")) == "begun\nended\n"
    assert runs(stack.client(), response_id) == "1"


def team(text: str = "The end.") -> str:
    """Two agents, each with a command that leaves a trace, and a look at both traces."""
    tasks = [script(shell(COUNTED.replace("count", name)), say(f"{name} is done")).replace("`", "\\u0060") for name in "ab"]
    starts = [
        {"name": "spawn_agent", "arguments": {"task_name": name, "message": task}} for name, task in zip("ab", tasks, strict=True)
    ]
    said = script({"calls": starts}, *[{"call": {"name": "wait_agent", "arguments": {}}}] * 2, shell("cat a b"), say(text))
    return said.replace("\\\\u0060", "\\u0060")


def test_killed_workers_lose_and_repeat_nothing_of_a_team(stack: Stack) -> None:
    asked: Any = {"model": "demo", "input": team(), "tools": TOOLS, "multi_agent": {"enabled": True}}
    response_id, begun = "", set[str]()
    for event in stack.client().beta.responses.create(**asked, background=True, stream=True):
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.shell_call_output_content.delta":
            begun.add(event.agent.agent_name)
        if begun == {"/root/a", "/root/b"}:
            break
    assert stack.process is not None
    assert kill_all(stack.process.pid, is_worker)
    final = ended(stack, response_id)[-1]["response"]
    counted = [item["output"][0]["stdout"] for item in final["output"] if item["type"] == "shell_call_output"]
    assert (final["status"], sorted(counted)) == ("completed", ["begun\nended\n", "begun\nended\n", "ran\nran\n"])


def test_killed_workers_lose_and_repeat_nothing_of_a_sessions_subagents(stack: Stack) -> None:
    sessions: Any = stack.client().beta.agents.sessions
    agent = {"model": "demo", "multi_agent": {"enabled": True}}
    session = sessions.create(agent=agent, environment={"type": "openai_hosted"})
    begun, told = set[str](), list[dict[str, Any]]()
    with sessions.stream(session.id, input=team()) as stream:
        for event in stream:
            told.append(event.to_dict())
            told[-1].pop("obfuscation", None)
            if event.type == "agent.output.command_execution_output.delta" and len(begun) < 2:
                begun.add(event.turn_id or "")
                if len(begun) == 2:
                    assert stack.process is not None
                    assert kill_all(stack.process.pid, is_worker)
    commands: Any = [item for each in sessions.subagents.list(session.id) for item in items_of(stack, session.id, each.id)]
    assert [item.output for item in commands if item.type == "command_execution"] == ["begun\nended\n"] * 2
    own: Any = list(sessions.items.list(session.id, order="asc"))
    assert [item.output for item in own if item.type == "command_execution"] == ["ran\nran\n"]
    assert [each.status for each in sessions.turns.list(session.id)] == ["completed"]
    assert told_again(stack, session.id)[-len(told) :] == told


def items_of(stack: Stack, session_id: str, subagent_id: str) -> list[Any]:
    return list(stack.client().beta.agents.sessions.subagents.items.list(subagent_id, session_id=session_id))


def told_again(stack: Stack, session_id: str) -> list[dict[str, Any]]:
    """The events of a session to its first rest."""
    found: list[dict[str, Any]] = []
    query: Any = {"after": "0", "include_obfuscation": "false"}
    for event in stack.client().beta.agents.sessions.events.stream(session_id, extra_query=query):
        found.append(event.to_dict())
        if event.type == "agent.session.idle":
            return found
    raise AssertionError("the stream has ended")


def test_a_killed_model_worker_leaves_an_incomplete_item_and_the_step_runs_again(stack: Stack) -> None:
    stream = stack.client().responses.create(
        model="demo", input=script({"delta_ms": 60, "say": "word " * 40}), background=True, stream=True
    )
    response_id = ""
    for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.output_text.delta" and event.sequence_number > 10:
            break
    assert stack.process is not None
    assert kill_all(stack.process.pid, is_worker)
    ended(stack, response_id)
    response = stack.client().responses.retrieve(response_id)
    assert response.status == "completed"
    assert [item.status for item in response.output if item.type == "message"] == ["incomplete", "completed"]


def test_a_killed_sandbox_is_told_once_and_the_loop_goes_on_in_a_revived_container(stack: Stack) -> None:
    response_id = begin(stack, shell(COUNTED), shell("cat count; echo alive"), say("The end."))
    assert stack.process is not None
    assert kill_all(stack.process.pid, lambda line: "exec_server" in line)
    ended(stack, response_id)
    response = stack.client().responses.retrieve(response_id)
    first, second = outputs(response.output)
    assert (first[0][0], first[0][2]) == ("begun\n", 137)
    assert first[0][1].count("The container stopped while this command was running") == 1
    assert second[0][0].endswith("alive\n")
    assert (response.status, response.output_text) == ("completed", "The end.")


def parked(stack: Stack) -> tuple[str, str]:
    """A response that waits for a person's word, and the approval that it waits for."""
    asks: Any = {**SHELL, "require_approval": "always"}
    steps = script(shell("echo once >> log; cat log"), say("Done."))
    response = stack.client().responses.create(model="demo", input=steps, tools=[asks], background=True)
    with stack.http() as http:
        path = f"/responses/{response.id}/approvals"
        until(lambda: bool(http.get(path).json()["data"]) and "waiting_for" in http.get(f"/responses/{response.id}").json())
        (approval,) = http.get(path).json()["data"]
    return response.id, approval["id"]


def test_killing_everything_and_starting_again_finishes_the_run(tmp_path: Path) -> None:
    """SIGKILL to the process that serves the API: its children end with it, and the next start takes the loop up at once. What
    waits for a person waits on, and a decision lets it go on."""
    stack = Stack(tmp_path / "state").start()
    waiting_id, approval_id = parked(stack)
    response_id = begin(stack, shell(COUNTED), shell("echo alive"), say("The end."))
    assert stack.process is not None
    stack.stop(signal.SIGKILL)
    stack.start()
    try:
        assert stack.client().responses.retrieve(waiting_id).status == "in_progress"
        with stack.http() as http:
            assert http.post(f"/responses/{waiting_id}/approvals/{approval_id}", json={"approve": True}).json()["status"] == "approved"
        ended(stack, waiting_id)
        (((printed, _, code),),) = outputs(stack.client().responses.retrieve(waiting_id).output)
        assert (printed, code) == ("once\n", 0)
        ended(stack, response_id)
        response = stack.client().responses.retrieve(response_id)
        first, second = outputs(response.output)
        assert "was not run again" in first[0][1]
        assert (second[0][0][-6:], response.status) == ("alive\n", "completed")
    finally:
        assert stack.stop() == 0


def test_a_worker_that_is_killed_while_it_reads_files_settles_each_once(stack: Stack) -> None:
    client, process = stack.client(), stack.process
    assert process is not None
    store = client.vector_stores.create(name="harbour")
    met_in_the_middle(client, store, lambda: kill_all(process.pid, is_worker))
    assert_settled_once_and_found_once(client, store.id)


def test_a_foreground_client_that_goes_away_cancels_its_response(stack: Stack) -> None:
    body = {"model": "demo", "input": script({"delta_ms": 100, "say": "word " * 300}), "stream": True}
    with stack.http() as http:
        with http.stream("POST", "/responses", json=body) as answer:
            response_id = next(iter(raw_events(_first_lines(answer))))["response"]["id"]
        deadline = time.monotonic() + 20
        # The record is written within a moment; until then the id is unknown.
        while (status := http.get(f"/responses/{response_id}").json().get("status")) in (None, "in_progress"):
            assert time.monotonic() < deadline, f"still {status}"
            time.sleep(0.05)
    assert status == "cancelled"


def _first_lines(answer: httpx.Response) -> list[str]:
    lines = []
    for line in answer.iter_lines():
        lines.append(line)
        if line.startswith("data: "):
            break
    return lines


def deliveries(stack: Stack, endpoint_id: str) -> list[dict[str, Any]]:
    with stack.http() as http:
        data: list[dict[str, Any]] = http.get(f"/webhook_endpoints/{endpoint_id}/deliveries").json()["data"]
    return data


def test_an_event_of_a_killed_worker_is_delivered_by_another_process(stack: Stack, receiver: Receiver) -> None:
    client = stack.client()
    endpoint = client.webhooks.create(name="mine", url=receiver.url, event_types=["response.completed"])
    try:
        response = client.responses.create(model="demo", input=script(say("x")), background=True)
        until(lambda: [each["attempt_count"] for each in deliveries(stack, endpoint.id)] == [1])  # It was refused.
        assert stack.process is not None
        kill_all(stack.process.pid, is_worker)
        until(lambda: [each["status"] for each in deliveries(stack, endpoint.id)] == ["delivered"])
    finally:
        client.webhooks.delete(endpoint.id)
    events = [sent.unwrapped(endpoint.signing_secret) for sent in receiver.sent]
    assert [(event.type, event.data.id) for event in events] == [("response.completed", response.id)] * 2
    assert len({sent.headers["webhook-id"] for sent in receiver.sent}) == 1
