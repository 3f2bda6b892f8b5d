"""What the SDK's helpers ask of a server: what is sent again, answered early, left, refused or published twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import BadRequestError, NotFoundError, OpenAI, RateLimitError
from openai.lib.beta.agents import AgentFileStagingError, AgentTurnResultError, function_tool
from pydantic import BaseModel, HttpUrl, RootModel

from tests.processes import until
from tests.scenarios.test_agent_sessions import HOSTED, NONE, WEIGH, call, ended
from tests.stack import Stack, say, script, shell

WEIGHER: Any = {"model": "demo", "tools": [WEIGH]}


class Losing(httpx2.HTTPTransport):
    """The first answer to each key is lost on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[str] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = super().handle_request(request)
        key = request.headers.get("idempotency-key", "")
        if not key or key in self.lost:
            return answer
        self.lost.append(key)
        answer.read()
        answer.close()
        raise httpx2.ReadError("the answer is lost", request=request)


@pytest.fixture
def losing() -> Losing:
    return Losing()


@pytest.fixture
def unlucky(stack: Stack, losing: Losing) -> Iterator[OpenAI]:
    with OpenAI(base_url=stack.url, api_key=stack.key, max_retries=1, http_client=httpx2.Client(transport=losing)) as client:
        yield client


def outputs(client: OpenAI, session_id: str) -> list[Any]:
    listed = client.beta.agents.sessions.items.list(session_id, order="asc")
    return [item for item in listed if item.type == "function_call_output"]


# --- Answers that are lost, and results that come early -------------------------------------------------------------------


def test_input_and_results_whose_answers_are_lost_are_taken_once(unlucky: OpenAI, losing: Losing) -> None:
    sessions, weighed = unlucky.beta.agents.sessions, []
    session = sessions.create(agent=WEIGHER, environment=HOSTED)

    def weigh(arguments: Any) -> str:
        weighed.append(arguments["parcel"])
        return f"{arguments['parcel']}: 3 kg"

    for number in ("1", "2"):
        calls = {"calls": [{"name": "weigh", "arguments": {"parcel": f"{parcel}{number}"}} for parcel in ("a", "b")]}
        with sessions.stream(session.id, input=script(calls, say("Done.")), tool_handlers={"weigh": weigh}) as stream:
            assert stream.get_final_result().output_text == "Done."
    assert weighed == ["a1", "b1", "a2", "b2"]
    assert [item.output for item in outputs(unlucky, session.id)] == [f"{parcel}: 3 kg" for parcel in weighed]
    assert [item.type for item in sessions.items.list(session.id)].count("message") == 4
    assert len(losing.lost) == 6


def test_a_session_whose_answer_is_lost_is_made_once(unlucky: OpenAI) -> None:
    sessions = unlucky.beta.agents.sessions
    key, marked = {"Idempotency-Key": "creation-1"}, {"made": "once"}
    given = script(say("Here I am."))
    made = sessions.create(agent=WEIGHER, environment=HOSTED, input=given, stream=True, metadata=marked, extra_headers=key)
    with made.with_result_collection() as stream:
        result = stream.get_final_result()
    assert result.output_text == "Here I am."
    listed: Any = sessions.list(extra_query={"metadata[made]": "once"})
    assert [each.id for each in listed] == [result.session_id]


def test_a_result_is_taken_while_the_model_still_speaks(client: OpenAI) -> None:
    sessions, states = client.beta.agents.sessions, []
    session = sessions.create(agent=WEIGHER, environment=HOSTED)

    def weigh(arguments: Any) -> str:
        states.append(sessions.retrieve(session.id).status)
        return f"{arguments['parcel'][0]}: 3 kg"

    calls = [{"name": "weigh", "arguments": {"parcel": parcel}} for parcel in ("a", "b" * 200)]
    given = script({"calls": calls, "delta_ms": 300}, say("Done."))
    with sessions.stream(session.id, input=given, tool_handlers={"weigh": weigh}) as stream:
        assert stream.get_final_result().output_text == "Done."
    assert states[0] == "in_progress"
    assert [item.output for item in outputs(client, session.id)] == ["a: 3 kg", "b: 3 kg"]


class Weight(BaseModel):
    kilograms: int


def test_what_a_function_returns_is_kept_as_it_is(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    text: Any = {"type": "input_text", "text": "3 kg"}
    record = {"type": "input_text", "text": "a record", "kilograms": 3}
    found: dict[str, Any] = {
        "dict": {"kilograms": 3},
        "model": Weight(kilograms=3),
        "parts": [text],
        "record": record,
        "none": None,
        "true": True,
    }

    @function_tool
    def weigh(parcel: str) -> Any:
        """The weight of a parcel."""
        return found[parcel]

    agent: Any = {"model": "demo", "tools": [weigh.definition]}
    given = script(*(call("weigh", parcel=parcel) for parcel in found), say("Done."))
    made = sessions.create(agent=agent, environment=NONE, input=given, stream=True, tool_handlers={"weigh": weigh})
    with made.with_result_collection() as stream:
        result = stream.get_final_result()
    told = [item.to_dict()["output"] for item in outputs(client, result.session_id)]
    assert told == ['{"kilograms":3}', '{"kilograms":3}', [text], '{"type":"input_text","text":"a record","kilograms":3}', "", "true"]


# --- Readers that leave ---------------------------------------------------------------------------------------------------


def test_a_turn_goes_on_without_its_reader_and_the_next_one_has_its_own_events(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent=WEIGHER, environment=HOSTED)
    with sessions.stream(session.id, input=script(say("Nobody hears this."))):
        pass
    ended(client, session.id)
    with sessions.stream(session.id, input=script(say("You hear me."))) as stream:
        told: list[Any] = list(stream)
    assert [turn.status for turn in sessions.turns.list(session.id)] == ["completed", "completed"]
    last = next(iter(sessions.turns.list(session.id)))
    assert {event.turn_id for event in told if hasattr(event, "turn_id")} == {last.id}
    assert told[-1].type == "agent.session.idle"


def test_a_reader_that_closes_before_a_call_answers_none(client: OpenAI) -> None:
    sessions, asked = client.beta.agents.sessions, list[Any]()
    given = script(call("weigh", parcel="a"))
    made = sessions.create(agent=WEIGHER, environment=NONE, input=given, stream=True, tool_handlers={"weigh": asked.append})
    session_id = next(event.session.id for event in made if event.type == "agent.session.created")
    made.close()
    until(lambda: sessions.retrieve(session_id).status == "requires_action")
    assert asked == []
    sessions.events.create(session_id, events=[{"type": "agent.session.input.cancel"}])
    assert ended(client, session_id).required_actions == []


def test_a_long_answer_is_told_whole_and_its_call_is_made_once(client: OpenAI) -> None:
    sessions, asked = client.beta.agents.sessions, list[Any]()
    session = sessions.create(agent=WEIGHER, environment=HOSTED)
    words = " ".join(f"word{number}" for number in range(2_000))
    given = script(call("weigh", parcel="a"), say(words))

    def weigh(arguments: Any) -> str:
        asked.append(arguments)
        return "3 kg"

    with sessions.stream(session.id, input=given, tool_handlers={"weigh": weigh}).with_result_collection() as stream:
        deltas = [event.delta for event in stream if event.type == "agent.session.turn.output_text.delta"]
        result = stream.get_final_result()
    assert (len(deltas) > 1_024, "".join(deltas), result.output_text, len(asked)) == (True, words, words, 1)


def test_a_turn_without_a_word_completes(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    made = sessions.create(agent=WEIGHER, environment=HOSTED, input=script(shell("true"), say("")), stream=True, tool_handlers={})
    with made.with_result_collection() as stream:
        result = stream.get_final_result()
    assert (result.turn.status, result.messages, result.output_text) == ("completed", [], "")


# --- What ends otherwise --------------------------------------------------------------------------------------------------


def test_a_turn_without_budget_fails_and_the_next_one_is_refused(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED, extra_body={"budget": {"total_tokens": 5}})
    with (
        sessions.stream(session.id, input=script(shell("echo a"), say("Never."))) as stream,
        pytest.raises(AgentTurnResultError) as raised,
    ):
        stream.get_final_result()
    assert raised.value.turn is not None
    assert raised.value.turn.error is not None
    assert (raised.value.reason, raised.value.turn.error.code) == ("failed", "usage_limit_exceeded")
    with pytest.raises(RateLimitError, match="is used up"), sessions.stream(session.id, input="more") as following:
        list(following)


def test_a_turn_before_a_failure_ends_well_and_the_next_helper_is_told(client: OpenAI) -> None:
    agents, told = client.beta.agents, list[str]()
    vault = agents.vaults.create()
    session = agents.sessions.create(agent={"model": "demo"}, environment=HOSTED, vault_ids=[vault.id])
    message: Any = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    slow: Any = {"say": "These are the last words of a turn.", "delta_ms": 800}
    with agents.sessions.stream(session.id, input=script(slow)).with_result_collection() as stream:
        for event in stream:
            if event.type == "agent.session.turn.output_text.delta" and event.type not in told:
                agents.sessions.events.create(session.id, events=[{"type": "agent.session.input.message", "input": [message]}])
                agents.vaults.delete(vault.id)
            told.append(event.type)
        result = stream.get_final_result()
    assert (result.turn.status, told[-1]) == ("completed", "agent.session.idle")
    until(lambda: agents.sessions.retrieve(session.id).status == "failed")
    with pytest.raises(ValueError, match="idle"), agents.sessions.stream(session.id, input="hi") as following:
        list(following)
    with pytest.raises(NotFoundError, match=vault.id):
        agents.sessions.events.create(session.id, events=[{"type": "agent.session.input.message", "input": [message]}])


def test_what_a_change_leaves_out_stays(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    settings: Any = {"model": "demo", "reasoning": {"effort": "low"}, "service_tier": "flex"}
    session = sessions.create(agent=settings, environment=HOSTED, metadata={"purpose": "test"})
    nothing: list[Any] = [{}, {"agent": {}}, {"agent": {"reasoning": {}}}]
    for body in nothing:
        assert sessions.update(session.id, **body).to_dict() == session.to_dict()
    with pytest.raises(BadRequestError) as refused:
        sessions.update(session.id, agent={"model": ""})
    assert refused.value.param == "agent.model"
    changed = sessions.update(session.id, agent={"reasoning": {"effort": None}, "service_tier": None}, metadata=None)
    assert (changed.agent.reasoning.effort, changed.agent.service_tier, changed.metadata) == (None, "auto", {})


class Link(BaseModel):
    url: HttpUrl


class Prices(BaseModel):
    by_sku: dict[str, int]


class Node(BaseModel):
    name: str
    below: "list[Node]"


@pytest.mark.parametrize("model", [Link, Prices, Node, RootModel[list[str]]], ids=["format", "mapping", "recursive", "root"])
def test_an_answer_of_an_unusual_type_is_parsed(client: OpenAI, model: Any) -> None:
    sessions = client.beta.agents.sessions
    answers = {
        Link: '{"url":"https://example.com/"}',
        Prices: '{"by_sku":{"A-7":3}}',
        Node: '{"name":"a","below":[{"name":"b","below":[]}]}',
    }
    given = script(say(answers.get(model, '["a","b"]')))
    made = sessions.create(agent={"model": "demo"}, environment=NONE, input=given, stream=True, output_type=model)
    with made.with_result_collection() as stream:
        result = stream.get_final_result()
    assert result.output_parsed == model.model_validate_json(result.output_text)


# --- Files and artifacts --------------------------------------------------------------------------------------------------


def test_hundreds_of_prepared_files_are_there_in_an_environment(client: OpenAI, tmp_path: Path) -> None:
    environments, count = client.beta.agents.environments, 257
    source = tmp_path / "source.txt"
    source.write_text("abc")
    prepared = environments.files.prepare({f"/workspace/group-{number % 17}/file-{number}.txt": source for number in range(count)})
    environment = environments.create(environment={"type": "openai_hosted", "files": prepared.files})
    listed = [file.path for file in environments.files.list(environment.id, path="/workspace", order="asc", limit=100)]
    assert sorted(listed) == sorted(file["path"] for file in prepared.files)
    assert len(environment.files) == count


def test_files_whose_place_is_refused_are_told_to_who_uploaded_them(client: OpenAI, tmp_path: Path) -> None:
    environments = client.beta.agents.environments
    (tmp_path / "a.txt").write_text("abc")
    too_long = "/workspace/" + "x" * 4096
    prepared = environments.files.prepare_directory(tmp_path, destination=too_long, include=["a.txt"])
    with pytest.raises(BadRequestError) as refused:
        environments.create(environment={"type": "openai_hosted", "files": prepared.files})
    assert refused.value.param == "environment.files[0].path"
    environment = environments.create(environment={"type": "openai_hosted"})
    with pytest.raises(AgentFileStagingError) as raised:
        environments.files.upload(environment.id, file=tmp_path / "a.txt", path=f"{too_long}/a.txt")
    for file_id in (*prepared.uploaded_file_ids, raised.value.uploaded_file_id):
        assert client.files.delete(file_id).deleted
    assert list(environments.files.list(environment.id)) == []


@pytest.mark.parametrize("path", ["/tmp/a", "/workspace/../a", "/workspace/a/", "/workspace/\x00", "/workspace/outputs"])
def test_a_place_outside_of_the_workspace_is_refused_by_the_service_too(client: OpenAI, path: str) -> None:
    inline: Any = {"type": "inline", "data": "YQ==", "path": path}
    with pytest.raises(BadRequestError) as refused:
        client.beta.agents.environments.create(environment={"type": "openai_hosted", "files": [inline]})
    assert refused.value.param == "environment.files[0].path"


def test_a_file_that_a_turn_writes_twice_is_one_artifact_and_stays_as_it_was(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED)
    many = "mkdir -p /workspace/outputs; for i in $(seq 25); do echo $i > /workspace/outputs/$i.txt; done"
    stories = [[shell(many), shell("echo first > /workspace/outputs/7.txt")], [shell("echo second > /workspace/outputs/7.txt")]]
    results = []
    for story in stories:
        with sessions.stream(session.id, input=script(*story, say("Done."))) as stream:
            results.append(stream.get_final_result())
    for result, words in zip(results, (b"first\n", b"second\n"), strict=True):
        assert sessions.artifacts.for_result(result).content("/workspace/outputs/7.txt").read() == words
    assert len(list(sessions.artifacts.list(session.id))) == 26
