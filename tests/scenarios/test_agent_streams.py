"""The SDK's helpers for sessions read streams that are cut at every event, and turns that end otherwise than completed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.lib.beta.agents import AgentOutputParseError, AgentToolError, AgentTurnResultError, function_tool
from pydantic import BaseModel

from tests.cut_streams import Cuts, cutting, stories, told
from tests.mcp_servers import LOOPBACK, Depot, Running, depot_beside
from tests.processes import until
from tests.scenarios.test_agent_sessions import HOSTED, NONE, WEIGH, call
from tests.stack import Stack, say, script, shell

WEIGHER: Any = {"model": "demo", "tools": [WEIGH]}


@pytest.fixture(scope="module")
def depot() -> Iterator[Running]:
    with depot_beside(Depot()) as running:
        yield running


@pytest.fixture(scope="module")
def stack(depot: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    opened = {"MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK), "MOORAGE_EGRESS_PORTS": str(depot.port)}
    running = Stack(tmp_path_factory.mktemp("streams"), opened).start()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def cuts(stack: Stack) -> Iterator[Cuts]:
    with cutting(stack) as there:
        yield there


@pytest.fixture
def cut(stack: Stack, cuts: Cuts) -> Iterator[OpenAI]:
    """A client all of whose streams are cut."""
    with OpenAI(base_url=cuts.url, api_key=stack.key, max_retries=0) as client:
        yield client


def types(events: list[Any]) -> list[tuple[str, str]]:
    return [(event.event_id, event.type) for event in events]


def test_helpers_read_turns_that_are_cut_at_every_event(stack: Stack, cuts: Cuts, cut: OpenAI) -> None:
    sessions = cut.beta.agents.sessions
    weighed: list[Any] = []

    def weigh(arguments: Any) -> str:
        weighed.append(arguments)
        return "3 kg"

    before = cuts.connections
    given = script(shell("echo a", "exit 3"), call("weigh", parcel="a"), say("It weighs {{output}}."))
    made = sessions.create(agent=WEIGHER, environment=HOSTED, input=given, stream=True, tool_handlers={"weigh": weigh})
    with made.with_result_collection() as stream:
        heard: list[Any] = list(stream)
        assert stream.get_final_result().output_text == "It weighs 3 kg."
    again = script(call("weigh", parcel="b"), say("{{output}} again."))
    session_id = heard[0].session.id
    with sessions.stream(session_id, input=again, tool_handlers={"weigh": weigh}) as following:
        heard += list(following)
    assert types(heard) == stories(told(stack, session_id, idles=2))
    assert weighed == [{"parcel": "a"}, {"parcel": "b"}]
    assert cuts.connections - before >= len(heard)


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_turn_that_waits_for_a_person_is_cut_at_every_event(stack: Stack, cut: OpenAI, depot: Running, decision: Any) -> None:
    sessions = cut.beta.agents.sessions
    transport = {"type": "http", "server_url": f"{depot.url}/mcp"}
    tool: Any = {"type": "mcp", "server_label": "depot", "transport": transport, "require_approval": "always"}
    session = sessions.create(agent={"model": "demo", "tools": [tool]}, environment=HOSTED)
    find = script({"call": {"name": "depot__find_part", "arguments": {"sku": "A-7"}}}, say("done"))
    heard: list[Any] = []
    with sessions.stream(session.id, input=find) as stream:
        for event in stream:
            heard.append(event)
            if event.type == "agent.session.requires_action":
                (action,) = event.session.required_actions
                answer: Any = {
                    "type": "agent.session.input.mcp_approval_request_result",
                    "request_id": action.request_id,  # type: ignore[union-attr]
                    "response": {"type": "mcp_tool_call", "decision": decision},
                }
                sessions.events.create(session.id, events=[answer])
    names = [name.removeprefix("agent.session.") for _, name in types(heard)]
    assert [name for name in names if "." not in name] == ["in_progress", "requires_action", "in_progress", "idle"]
    assert len({event.event_id for event in heard}) == len(heard)
    logged = [pair for pair in types(heard) if "_" not in pair[0].removeprefix("evt_")]
    assert logged == stories(told(stack, session.id, idles=1))[-len(logged) :]


def test_a_helper_needs_a_session_that_is_idle(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent=WEIGHER, environment=NONE, input=script(call("weigh", parcel="a")))
    until(lambda: sessions.retrieve(session.id).status == "requires_action")
    with pytest.raises(ValueError, match="idle"), sessions.stream(session.id, input="Hello") as stream:
        next(iter(stream))


def test_a_call_without_a_handler_is_told_as_a_required_action(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    made = sessions.create(agent=WEIGHER, environment=NONE, input=script(call("weigh", parcel="a")), stream=True, tool_handlers={})
    with made.with_result_collection() as stream, pytest.raises(AgentTurnResultError) as raised:
        stream.get_final_result()
    assert (raised.value.reason, [action.type for action in raised.value.required_actions]) == ("requires_action", ["function_call"])


def test_a_handler_that_raises_gives_the_model_a_failed_call(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions

    def weigh(arguments: Any) -> str:
        raise ValueError("the secret of the scales")

    given = script(call("weigh", parcel="a"), say("I was told: {{output}}"))
    made = sessions.create(agent=WEIGHER, environment=NONE, input=given, stream=True, tool_handlers={"weigh": weigh})
    with made.with_result_collection() as stream:
        result = stream.get_final_result()
    assert "Tool handler failed." in result.output_text
    output: Any = next(item for item in sessions.items.list(result.session_id) if item.type == "function_call_output")
    assert (output.error, output.status) == ("Tool handler failed.", "failed")


class Load(BaseModel):
    number: str
    pieces: int = 1


def test_a_typed_function_is_called_with_its_type_and_its_faults_are_observed(client: OpenAI) -> None:
    sessions, asked, seen = client.beta.agents.sessions, [], list[AgentToolError]()

    @function_tool
    def weigh(parcel: Load) -> dict[str, Any]:
        """The weight of a parcel."""
        asked.append(parcel)
        return {"kilograms": 3 * parcel.pieces}

    session = sessions.create(agent={"model": "demo", "tools": [weigh.definition]}, environment=HOSTED)
    calls = (call("weigh", parcel={"number": "A-7", "pieces": 2}), call("weigh", parcel={}))
    words: Any = [{"type": "input_text", "text": script(*calls, say("I was told: {{output}}"))}]
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Two parcels."}]}, {"role": "user", "content": words}]
    stream = sessions.stream(session.id, input=given, tool_handlers={"weigh": weigh}, on_tool_error=seen.append)
    with stream:
        result = stream.get_final_result()
    assert asked == [Load(number="A-7", pieces=2)]
    assert [(error.session_id, error.turn_id, error.tool_name) for error in seen] == [(session.id, result.turn.id, "weigh")]
    told: Any = [item for item in sessions.items.list(session.id, order="asc") if item.type == "function_call_output"]
    assert [(item.call_id, item.status, item.output, item.error) for item in told] == [
        (told[0].call_id, "completed", '{"kilograms":6}', None),
        (seen[0].call_id, "failed", None, "Tool handler failed."),
    ]
    assert "Tool handler failed." in result.output_text


def test_input_that_is_refused_closes_the_stream(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED)
    wrong: Any = [{"role": "user", "content": []}]
    with pytest.raises(BadRequestError), sessions.stream(session.id, input=wrong) as stream:
        list(stream)
    with sessions.stream(session.id, input=script(say("On we go."))) as stream:
        assert stream.get_final_result().output_text == "On we go."


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_a_turn_that_did_not_complete_is_told_as_it_ended(client: OpenAI, ending: str) -> None:
    sessions = client.beta.agents.sessions
    given = script({"say": "x", "fail": {"status": 400}}) if ending == "failed" else script(shell("sleep 600"))
    made = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=given, stream=True, tool_handlers={})
    with made.with_result_collection() as stream:
        for event in stream:
            if ending == "cancelled" and event.type == "agent.session.turn.in_progress":
                sessions.events.create(event.session_id, events=[{"type": "agent.session.input.cancel"}])
        with pytest.raises(AgentTurnResultError) as raised:
            stream.get_final_result()
    assert raised.value.turn is not None
    assert (raised.value.reason, raised.value.turn.status) == (ending, ending)


def test_input_that_is_sent_twice_with_its_key_is_taken_once(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED)
    message: Any = {"role": "user", "content": [{"type": "input_text", "text": script(say("Once."))}]}
    for _ in range(2):
        sent: Any = [{"type": "agent.session.input.message", "input": [message]}]
        sessions.events.create(session.id, events=sent, idempotency_key="delivery-1")
    until(lambda: sessions.retrieve(session.id).status == "idle")
    assert [item.type for item in sessions.items.list(session.id)] == ["message", "message"]


class Parcel(BaseModel):
    sku: str
    kilograms: int


def test_an_answer_is_parsed_as_the_type_that_was_asked_for(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    given = script(say('{"sku": "A-7", "kilograms": 3}'))
    made = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=given, stream=True, output_type=Parcel)
    with made.with_result_collection() as stream:
        result = stream.get_final_result()
    assert result.output_parsed == Parcel(sku="A-7", kilograms=3)
    shown: Any = sessions.retrieve(result.session_id).agent.text.format
    assert (shown.type, set(shown.schema_["properties"])) == ("json_schema", {"sku", "kilograms"})
    free = sessions.create(agent={"model": "demo"}, environment=HOSTED)
    said = script(say("Three kilograms."))
    with sessions.stream(free.id, input=said, output_type=Parcel) as following, pytest.raises(AgentOutputParseError) as raised:
        following.get_final_result()
    assert raised.value.result.output_text == "Three kilograms."


def test_a_folder_of_files_is_prepared_for_an_environment(client: OpenAI, tmp_path: Path) -> None:
    environments = client.beta.agents.environments
    for name in ("a/one.txt", "b+ c/t=wo.txt", "a/left.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    prepared = environments.files.prepare_directory(tmp_path, destination="/workspace/in", include=["**/*.txt"])
    assert len(prepared.uploaded_file_ids) == 2
    environment = environments.create(environment={"type": "openai_hosted", "files": prepared.files})
    staged = environments.files.upload(environment.id, file=tmp_path / "a" / "left.bin", path="/workspace/in/left.bin")
    assert (staged.file.path, staged.file.size_bytes) == ("/workspace/in/left.bin", 10)
    found = [(file.path, file.size_bytes) for file in environments.files.list(environment.id, order="asc", limit=1)]
    assert found == [("/workspace/in/a/one.txt", 9), ("/workspace/in/b+ c/t=wo.txt", 13), ("/workspace/in/left.bin", 10)]


def test_an_artifact_that_a_turn_did_not_leave_is_not_found(client: OpenAI, tmp_path: Path) -> None:
    sessions = client.beta.agents.sessions
    write = "mkdir -p /workspace/outputs && echo {0} > /workspace/outputs/{0}.txt"
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED)
    for name in ("one", "two"):
        with sessions.stream(session.id, input=script(shell(write.format(name)), say(name))) as stream:
            result = stream.get_final_result()
    of_turn = sessions.artifacts.for_result(result)
    assert of_turn.content("/workspace/outputs/two.txt").read() == b"two\n"
    with pytest.raises(ValueError, match="No artifact"):
        of_turn.download("/workspace/outputs/one.txt", to=tmp_path / "one.txt")
    assert list(tmp_path.iterdir()) == []
