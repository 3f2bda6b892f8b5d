"""A model that starts agents, seen through the SDK's beta client on a running stack. Each agent plays the script in its task."""

import itertools
import json
import shutil
import time
from collections.abc import Iterable
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.processes import until
from tests.stack import SHELL, Stack, say, script, shell, spawn, wait

TOOLS: Any = [SHELL]
TEAM: Any = {"enabled": True}
BETAS: Any = ["responses_multi_agent=v1"]


def ask(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": arguments}}


def run(client: OpenAI, *steps: dict[str, Any], **others: Any) -> Any:
    given = {"tools": TOOLS, "multi_agent": TEAM, "betas": BETAS, "input": script(*steps), **others}
    return client.beta.responses.create(model="demo", **given)


def agent(item: Any) -> str:
    return str(item.agent.agent_name)


def of(items: Iterable[Any], name: str) -> list[Any]:
    return [item for item in items if agent(item) == name]


def answers(response: Any) -> dict[str, str]:
    """What each agent has said last."""
    found = [item for item in response.output if item.type == "message" and item.phase == "final_answer"]
    return {agent(item): item.content[0].text for item in found}


def results(response: Any) -> list[Any]:
    """What came of the calls to the team."""
    return [json.loads(item.output[0].text) for item in response.output if item.type == "multi_agent_call_output"]


def messages(items: Iterable[Any], name: str) -> list[tuple[str, str]]:
    """Author and text of the messages that an agent was sent."""
    return [
        (item.author, item.content[0].text.partition("Payload:\n")[2])
        for item in items
        if item.type == "agent_message" and item.recipient == name
    ]


def test_three_agents_work_in_one_container(client: OpenAI) -> None:
    names = ("a", "b", "c")
    events = list(
        run(
            client,
            {"calls": [spawn(name, shell(f"echo {name} > {name}.txt; echo wrote {name}"), say(f"{name} is done")) for name in names]},
            *[wait()] * 3,
            shell("cat a.txt b.txt c.txt"),
            say("All: {{output}}"),
            stream=True,
        )
    )
    response = events[-1].response
    assert (response.status, [event.sequence_number for event in events]) == ("completed", list(range(len(events))))
    assert answers(response) == {
        "/root/a": "a is done",
        "/root/b": "b is done",
        "/root/c": "c is done",
        "/root": "All: [exit code 0]\na\nb\nc",
    }
    assert {(author, said) for author, said in messages(response.output, "/root")} == {(f"/root/{n}", f"{n} is done") for n in names}
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [event.output_index for event in added] == list(range(len(response.output)))
    assert [event.agent.agent_name for event in added] == [agent(item) for item in response.output]
    assert [event.agent for event in events if hasattr(event, "response") and getattr(event, "agent", None)] == []
    used = response.usage.model_extra["agents"]
    assert [each["agent_name"] for each in used] == ["/root", "/root/a", "/root/b", "/root/c"]
    assert sum(each["total_tokens"] for each in used) == response.usage.total_tokens


def test_an_agent_starts_another_and_sees_the_conversation_or_none_of_it(client: OpenAI) -> None:
    below = {"calls": [spawn("tests", say("The tests pass."), fork_turns="none")]}
    response = run(client, {"calls": [spawn("review", below, wait(), say("Reviewed."))]}, wait(), say("Fine."))
    assert answers(response) == {"/root/review/tests": "The tests pass.", "/root/review": "Reviewed.", "/root": "Fine."}
    assert messages(response.output, "/root/review")[1:] == [("/root/review/tests", "The tests pass.")]
    assert messages(response.output, "/root") == [("/root/review", "Reviewed.")]


def test_an_agent_that_fails_is_told_to_its_parent(client: OpenAI) -> None:
    broken: dict[str, Any] = {"fail": {"status": 400, "times": 0}}
    response = run(
        client,
        {"calls": [spawn("a", broken, say("never"))]},
        wait(),
        ask("followup_task", target="a", message="Again."),
        say("So be it."),
    )
    assert (response.status, answers(response)) == ("completed", {"/root": "So be it."})
    ((author, said),) = messages(response.output, "/root")
    assert (author, said.startswith("This agent has failed, and cannot go on.")) == ("/root/a", True)
    assert results(response)[-1] == {"error": "/root/a has failed and cannot go on. Start another agent."}


def test_a_wait_ends_at_its_time(client: OpenAI) -> None:
    began = time.monotonic()
    response = run(client, {"calls": [spawn("a", shell("sleep 12"), say("Late."))]}, wait(timeout_ms=1_000), say("I did not wait."))
    assert answers(response) == {"/root": "I did not wait.", "/root/a": "Late."}
    waited = next(item for item in response.output if item.type == "message" and agent(item) == "/root")
    late = next(item for item in response.output if item.type == "message" and agent(item) == "/root/a")
    assert response.output.index(waited) < response.output.index(late)
    assert time.monotonic() - began > 10


def test_an_agent_is_interrupted_and_goes_on_with_what_it_knows(client: OpenAI) -> None:
    response = run(
        client,
        {"calls": [spawn("a", shell("echo begun; sleep 300"), say("never"))]},
        wait(timeout_ms=3_000),
        ask("interrupt_agent", target="a"),
        wait(),
        ask("list_agents"),
        ask("followup_task", target="/root/a", message=script(say("It had begun."))),
        wait(),
        say("Good."),
    )
    said = results(response)
    assert {"target": "/root/a", "previous_status": "running"} in said
    listed = next(each for each in said if "agents" in each)["agents"]
    assert [(one["agent_name"], one["status"]) for one in listed] == [("/root", "running"), ("/root/a", "interrupted")]
    assert {"target": "/root/a", "previous_status": "interrupted"} in said
    assert next(text for _, text in messages(response.output, "/root")) == "This agent ended its turn without an answer: interrupted."
    assert answers(response) == {"/root/a": "It had begun.", "/root": "Good."}
    (killed,) = [item for item in response.output if item.type == "shell_call_output"]
    assert (killed.output[0].stdout, killed.output[0].outcome.exit_code == 0) == ("begun\n", False)


def test_a_message_reaches_an_agent_that_works(client: OpenAI) -> None:
    response = run(
        client,
        {"calls": [spawn("a", shell("sleep 3"), wait(timeout_ms=60_000), say("Heard."))]},
        ask("send_message", target="a", message="Use port 8080."),
        wait(),
        say("Done."),
    )
    assert ("/root", "Use port 8080.") in messages(response.output, "/root/a")
    assert answers(response) == {"/root/a": "Heard.", "/root": "Done."}


def test_no_more_agents_are_active_than_the_request_allows(client: OpenAI) -> None:
    two = {"calls": [spawn("a", say("a")), spawn("b", say("b"))]}
    response = run(client, two, wait(), say("Done."), multi_agent={"enabled": True, "max_concurrent_subagents": 1})
    assert results(response)[:2] == [
        {"task_name": "/root/a", "forked_items": 1},
        {"error": "1 agents beside /root are active already. Wait for one, or do the task yourself."},
    ]


def begun_by(stream: Iterable[Any], *names: str) -> str:
    """The id of a response whose agents of these names have begun a command that says so."""
    begun: set[str] = set()
    response_id = ""
    for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.shell_call_output_content.delta" and "begun" in (event.delta.stdout or ""):
            begun.add(event.agent.agent_name)
        if begun == set(names):
            return response_id
    raise AssertionError(f"of {names} only {begun} have begun")


def test_cancelling_a_team_ends_all_of_its_agents(client: OpenAI) -> None:
    long = shell("echo begun; sleep 300")
    stream = run(client, {"calls": [spawn("a", long), spawn("b", long)]}, wait(), say("x"), background=True, stream=True)
    response_id = begun_by(stream, "/root/a", "/root/b")
    cancelled = client.beta.responses.cancel(response_id)
    assert cancelled.status == "cancelled"
    killed = [agent(item) for item in cancelled.output if item.type == "shell_call_output"]
    assert sorted(killed) == ["/root/a", "/root/b"]
    assert client.beta.responses.retrieve(response_id).output == cancelled.output


def test_a_budget_bounds_all_agents_together(client: OpenAI) -> None:
    endless = {"repeat": {"times": 50, "step": shell("true")}}
    begin, budget = {"calls": [spawn("a", endless, say("x"))]}, {"budget": {"total_tokens": 6_000}}
    response = run(client, begin, wait(), say("Enough."), extra_body=budget)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "budget_reached")
    assert 6_000 < response.usage.total_tokens < 20_000


def test_a_budget_stops_one_agent_and_the_others_go_on(client: OpenAI) -> None:
    endless = {"repeat": {"times": 50, "step": shell("true")}}
    begin = {"calls": [spawn("a", endless, say("x")), spawn("b", shell("echo anchor"), say("b: {{output}}"))]}
    bounded = {"enabled": True, "subagent_budget": {"tool_calls": 3}}
    response = run(client, begin, wait(), wait(), shell("true"), say("Enough."), multi_agent=bounded)
    assert (response.status, answers(response)) == ("completed", {"/root/b": "b: [exit code 0]\nanchor", "/root": "Enough."})
    assert len([item for item in of(response.output, "/root/a") if item.type == "shell_call"]) == 3
    told = dict(messages(response.output, "/root"))
    assert told["/root/a"] == "I cannot go on. Its budget is used up: tool_calls 3 of 3."


def test_a_paused_team_goes_on_when_it_is_resumed(client: OpenAI, stack: Stack) -> None:
    def script_of(name: str) -> list[dict[str, Any]]:
        return [shell(f"echo begun | tee -a {name}.txt; sleep 3; echo over >> {name}.txt"), shell(f"cat {name}.txt"), say("{{output}}")]

    two = {"calls": [spawn(name, *script_of(name)) for name in ("a", "b")]}
    stream = run(client, two, wait(), wait(), say("Both."), background=True, stream=True)
    response_id = begun_by(stream, "/root/a", "/root/b")
    with stack.http() as http:

        def shown() -> dict[str, Any]:
            answer: dict[str, Any] = http.get(f"/responses/{response_id}").json()
            return answer

        assert http.post(f"/responses/{response_id}/pause").is_success
        until(lambda: sum(item["type"] == "shell_call_output" for item in shown()["output"]) == 2)
        until(lambda: "paused" in (shown().get("waiting_for") or ""))
        stood = shown()
        assert {item["agent"]["agent_name"] for item in stood["output"]} == {"/root", "/root/a", "/root/b"}
        time.sleep(3)  # For so long, nothing goes on.
        assert shown() == stood
        assert http.post(f"/responses/{response_id}/resume").is_success
    until(lambda: client.beta.responses.retrieve(response_id).status == "completed")
    response = client.beta.responses.retrieve(response_id)
    once = "[exit code 0]\nbegun\nover"
    assert answers(response) == {"/root/a": once, "/root/b": once, "/root": "Both."}


def test_what_a_team_has_said_goes_on_without_a_store(client: OpenAI) -> None:
    asked: Any = [
        {"role": "user", "content": script({"calls": [spawn("a", shell("echo anchor"), say("a: {{output}}"))]}, wait(), say("One."))}
    ]
    given: Any = {"model": "demo", "tools": TOOLS, "multi_agent": TEAM, "betas": BETAS, "store": False}
    first = client.beta.responses.create(input=asked, **given)
    asked += [*(item.model_dump(by_alias=True) for item in first.output), {"role": "user", "content": script(say("Two."))}]
    second = client.beta.responses.create(input=asked, **given)
    assert (answers(first)["/root"], answers(second)) == ("One.", {"/root": "Two."})


def test_the_next_response_goes_on_from_what_root_has_read(client: OpenAI) -> None:
    first = run(client, {"calls": [spawn("a", say("The anchor is up."))]}, wait(), say("One."))
    asked: Any = {"tools": TOOLS, "model": "demo", "input": script(say("Two.")), "previous_response_id": first.id}
    second = client.responses.create(**asked)
    assert second.output_text == "Two."


LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
NOTE: Any = {"type": "custom", "name": "note"}


def look(at: str) -> dict[str, Any]:
    return ask("look", at=at)


def asked(response: Any) -> dict[str, Any]:
    """The calls that wait for their client, by whose they are."""
    return {agent(item): item for item in response.output if item.type in ("function_call", "custom_tool_call")}


def outputs(response: Any, **texts: str) -> list[Any]:
    calls = asked(response)
    return [
        {"type": f"{calls[name].type}_output", "call_id": calls[name].call_id, "output": text}
        for name, text in ((f"/{path}".replace("__", "/"), text) for path, text in texts.items())
    ]


def test_the_client_answers_functions_of_all_agents(client: OpenAI) -> None:
    tools = [*TOOLS, LOOK, NOTE]
    below = spawn("under", ask("note", input="deep"), say("under noted it"), fork_turns="none")
    one = [look("x"), shell("echo {{output}} > x.txt"), look("y"), say("a saw {{output}}")]
    two = [{"calls": [below]}, wait(), say("b heard")]
    first = run(
        client, {"calls": [spawn("a", *one), spawn("b", *two)]}, wait(), wait(), shell("cat x.txt"), say("{{output}}"), tools=tools
    )
    assert (first.status, {name: item.type for name, item in asked(first).items()}) == (
        "completed",
        {"/root/a": "function_call", "/root/b/under": "custom_tool_call"},
    )
    assert answers(first) == {}
    given: Any = {"model": "demo", "tools": tools, "multi_agent": TEAM, "betas": BETAS}
    second = client.beta.responses.create(
        input=outputs(first, root__a="a rock", root__b__under="mud"), previous_response_id=first.id, **given
    )
    assert set(asked(second)) == {"/root/a"}
    assert answers(second) == {"/root/b/under": "under noted it", "/root/b": "b heard"}
    third = client.beta.responses.create(input=outputs(second, root__a="a net"), previous_response_id=second.id, **given)
    assert answers(third) == {"/root/a": "a saw a net", "/root": "[exit code 0]\na rock"}
    assert [(author, said) for author, said in messages(third.output, "/root")] == [("/root/a", "a saw a net")]


def test_a_client_that_keeps_the_items_answers_them_too(client: OpenAI) -> None:
    script_of_root = script({"calls": [spawn("a", look("x"), say("a saw {{output}}"))]}, look("z"), wait(), say("root saw it."))
    items: Any = [{"role": "user", "content": script_of_root}]
    given: Any = {"model": "demo", "tools": [LOOK], "multi_agent": TEAM, "betas": BETAS, "store": False}
    first = client.beta.responses.create(input=items, **given)
    assert set(asked(first)) == {"/root", "/root/a"}
    items += [*(item.model_dump(by_alias=True) for item in first.output), *outputs(first, root="a fish", root__a="a rock")]
    second = client.beta.responses.create(input=items, **given)
    assert answers(second) == {"/root/a": "a saw a rock", "/root": "root saw it."}
    assert messages(second.output, "/root") == [("/root/a", "a saw a rock")]
    items += [*(item.model_dump(by_alias=True) for item in second.output), {"role": "user", "content": script(say("And on."))}]
    assert answers(client.beta.responses.create(input=items, **given)) == {"/root": "And on."}


def test_an_agent_of_an_earlier_response_takes_a_further_task(client: OpenAI) -> None:
    first = run(client, {"calls": [spawn("a", say("The anchor is up."))]}, wait(), say("One."))
    further = script(ask("followup_task", target="a", message=script(say("It is down."))), wait(), say("Two."))
    second = client.beta.responses.create(
        model="demo", input=further, previous_response_id=first.id, tools=TOOLS, multi_agent=TEAM, betas=BETAS
    )
    assert answers(second) == {"/root/a": "It is down.", "/root": "Two."}
    assert results(second)[0] == {"target": "/root/a", "previous_status": "completed"}


def test_an_agent_that_asks_its_client_is_interrupted(client: OpenAI) -> None:
    steps = [{"calls": [spawn("a", look("x"), say("never"))]}, shell("sleep 3"), ask("interrupt_agent", target="a"), say("Enough.")]
    first = run(client, *steps, tools=[*TOOLS, LOOK])
    assert (answers(first), results(first)[-1]) == ({"/root": "Enough."}, {"target": "/root/a", "previous_status": "asking"})
    assert messages(first.output, "/root") == [("/root/a", "This agent ended its turn without an answer: interrupted.")]
    items = [*outputs(first, root__a="a rock"), {"role": "user", "content": script(say("Next."))}]
    second = run(client, tools=[*TOOLS, LOOK], input=items, previous_response_id=first.id)
    assert answers(second) == {"/root": "Next."}


def test_what_agents_wait_for_is_not_given_without_the_team(client: OpenAI) -> None:
    first = run(client, {"calls": [spawn("a", look("x"), say("a"))]}, wait(), say("x"), tools=[LOOK])
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model="demo", tools=[LOOK], input=outputs(first, root__a="1"), previous_response_id=first.id)
    assert refused.value.param == "multi_agent"


ASKS: Any = SHELL | {"require_approval": "always"}


def test_an_agent_waits_in_its_place_for_a_person(stack: Stack, client: OpenAI) -> None:
    two = [spawn(name, shell(f"echo {name} > {name}.txt"), say(f"{name} is done")) for name in ("a", "b")]
    begun = run(client, {"calls": two}, wait(), wait(), say("Both."), tools=[ASKS], background=True)
    with stack.http() as http:

        def asked() -> list[Any]:
            found = http.get(f"/responses/{begun.id}/approvals").json()["data"]
            return [one for one in found if one["status"] == "waiting"]

        until(lambda: len(asked()) == 2)
        verdicts = {"echo a > a.txt": {"approve": True}, "echo b > b.txt": {"approve": False, "reason": "Not b."}}
        for one in asked():
            (command,) = one["call"]["action"]["commands"]
            assert http.post(f"/responses/{begun.id}/approvals/{one['id']}", json=verdicts[command]).is_success
    until(lambda: client.beta.responses.retrieve(begun.id).status == "completed")
    response = client.beta.responses.retrieve(begun.id)
    assert answers(response) == {"/root/a": "a is done", "/root/b": "b is done", "/root": "Both."}
    said = {agent(item): item.output[0].stderr for item in response.output if item.type == "shell_call_output"}
    assert (said["/root/a"], "They say: Not b." in said["/root/b"]) == ("", True)


def test_a_question_of_an_agent_is_answered_with_the_next_request(client: OpenAI) -> None:
    first = run(client, {"calls": [spawn("a", shell("echo anchor"), say("a: {{output}}"))]}, wait(), say("Done."), tools=[ASKS])
    (question,) = [item for item in first.output if item.type == "mcp_approval_request"]
    assert (agent(question), answers(first)) == ("/root/a", {})
    verdict: Any = [{"type": "mcp_approval_response", "approval_request_id": question.id, "approve": True}]
    second = run(client, tools=[ASKS], input=verdict, previous_response_id=first.id)
    assert list(answers(second).items()) == [("/root/a", "a: [exit code 0]\nanchor"), ("/root", "Done.")]


@pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")
def test_the_programs_of_all_agents_call_tools(client: OpenAI) -> None:
    tools: Any = [
        {"type": "programmatic_tool_calling"},
        SHELL | {"allowed_callers": ["direct", "programmatic"]},
        LOOK | {"allowed_callers": ["programmatic"]},
    ]

    def program(name: str) -> dict[str, Any]:
        code = f"""
            const said = await tools.shell({{ commands: ["echo {name} >> {name}.txt; cat {name}.txt"] }});
            const seen = await tools.look({{ at: said.match(/{name}/g).join("") }});
            return `{name} saw ${{seen}}`;
        """
        return ask("run_program", code=code)

    begin = {"calls": [spawn("a", program("anchor"), say("{{output}}"))]}
    first = run(client, begin, program("rope"), wait(), say("Both."), tools=tools)
    assert {name: call.arguments for name, call in asked(first).items()} == {"/root": '{"at":"rope"}', "/root/a": '{"at":"anchor"}'}
    second = run(client, tools=tools, input=outputs(first, root="a knot", root__a="rust"), previous_response_id=first.id)
    assert answers(second) == {"/root/a": "anchor saw rust", "/root": "Both."}
    told = {agent(item): item.result for item in second.output if item.type == "program_output"}
    assert told == {"/root": "rope saw a knot", "/root/a": "anchor saw rust"}


def test_a_conversation_keeps_what_all_agents_know(client: OpenAI) -> None:
    conversation = client.conversations.create().id
    steps = [{"calls": [spawn("a", look("x"), say("a saw {{output}}"))]}, wait(), say("One.")]
    first = run(client, *steps, tools=[LOOK], conversation=conversation)
    second = run(client, tools=[LOOK], conversation=conversation, input=outputs(first, root__a="a rock"))
    assert answers(second) == {"/root/a": "a saw a rock", "/root": "One."}
    kinds = [item.type for item in client.conversations.items.list(conversation, order="asc", limit=100)]
    assert kinds == ["message", *(item.type for item in first.output), "function_call_output", *(item.type for item in second.output)]
    further = [ask("followup_task", target="a", message=script(say("Again."))), wait(), say("Two.")]
    assert answers(run(client, *further, tools=[LOOK], conversation=conversation)) == {"/root/a": "Again.", "/root": "Two."}


def test_a_budget_of_calls_bounds_all_agents_together(client: OpenAI) -> None:
    endless = {"repeat": {"times": 50, "step": shell("true")}}
    budget = {"budget": {"tool_calls": 3}}
    response = run(client, {"calls": [spawn("a", endless, say("x"))]}, wait(), say("Enough."), extra_body=budget)
    assert (response.status, sum(item.type == "shell_call" for item in response.output) <= 4) == ("incomplete", True)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tool_calls": 3}, "max_tool_calls"),
    ({"extra_body": {"budget": {"wall_seconds": 10}}}, "budget.wall_seconds"),
    ({"multi_agent": {"enabled": True, "max_concurrent_subagents": 17}}, "multi_agent.max_concurrent_subagents"),
    (
        {"input": [{"role": "user", "content": "x"}, {"type": "compaction_trigger"}]},
        "input",
    ),
]


@pytest.mark.parametrize(("given", "param"), REFUSED)
def test_what_a_team_cannot_do_is_refused_by_name(client: OpenAI, given: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.beta.responses.create(**{"model": "demo", "input": "hi", "multi_agent": TEAM, "betas": BETAS, **given})
    assert refused.value.param == param


def test_a_team_without_tools_runs_in_the_foreground_and_streams(client: OpenAI) -> None:
    events = list(run(client, {"calls": [spawn("a", say("Hello from a."))]}, wait(), say("Bye."), tools=[], stream=True))
    said = [(event.agent.agent_name, event.delta) for event in events if event.type == "response.output_text.delta"]
    joined = {
        name: "".join(delta for _, delta in group)
        for name, group in itertools.groupby(sorted(said, key=lambda one: one[0]), key=lambda one: one[0])
    }
    assert joined == {"/root/a": "Hello from a.", "/root": "Bye."}


def test_what_an_agent_overwrites_stays_an_earlier_version(client: OpenAI, stack: Stack) -> None:
    both = [step for name in ("a", "b") for step in ({"calls": [spawn(name, shell(f"echo {name} > note.txt"), say("Done."))]}, wait())]
    response = run(client, *both, say("Done."))
    (container_id,) = {tool.environment.container_id for tool in response.tools}
    with stack.http() as http:
        versions = http.get(f"/containers/{container_id}/versions").json()["data"]
        (file,) = http.get(f"/containers/{container_id}/files").json()["data"]
        content = f"/containers/{container_id}/files/{file['id']}/content"
        kept = [http.get(content, params={"at": version["at"]}).text for version in versions]
        assert (kept, http.get(content).text) == (["b\n", "a\n"], "b\n")


def workspaces(response: Any) -> dict[str, Any]:
    """What each spawn has said of its agent."""
    return {said["task_name"]: said for said in results(response) if "task_name" in said}


def test_an_agent_works_on_a_copy_that_its_parent_does_not_see(client: OpenAI) -> None:
    below = {"calls": [spawn("under", shell("cat new.txt; echo under > under.txt"), say("{{output}}"))]}
    own = [shell("cat note.txt; echo a > note.txt; echo new > new.txt"), below, wait(), shell("cat under.txt"), say("{{output}}")]
    begin = {"calls": [spawn("a", *own, workspace="copied")]}
    response = run(client, shell("echo root > note.txt"), begin, wait(), shell("cat note.txt; ls"), say("{{output}}"))
    assert answers(response) == {
        "/root/a/under": "[exit code 0]\nnew",
        "/root/a": "[exit code 0]\nunder",
        "/root": "[exit code 0]\nroot\nnote.txt",
    }
    copy = workspaces(response)["/root/a"]["container_id"]
    used = {agent(item): item.environment.container_id for item in response.output if item.type == "shell_call"}
    assert (used["/root/a"], used["/root/a/under"], used["/root"] == copy) == (copy, copy, False)
    files = client.containers.files
    kept = {file.path: files.content.retrieve(file.id, container_id=copy).text for file in files.list(copy)}
    assert kept == {"/mnt/data/note.txt": "a\n", "/mnt/data/new.txt": "new\n", "/mnt/data/under.txt": "under\n"}


def test_the_next_response_finds_each_agent_in_its_workspace(client: OpenAI) -> None:
    a = spawn("a", shell("echo a > note.txt"), say("a is done"), workspace="copied")
    first = run(client, shell("echo root > note.txt"), {"calls": [a]}, wait(), say("One."))
    look_again = spawn("", shell("cat note.txt"), say("{{output}}"))["arguments"]["message"]
    further = [ask("followup_task", target="a", message=look_again), wait(), shell("cat note.txt"), say("{{output}}")]
    second = run(client, *further, previous_response_id=first.id)
    assert answers(second) == {"/root/a": "[exit code 0]\na", "/root": "[exit code 0]\nroot"}
    with pytest.raises(BadRequestError) as refused:
        client.post(f"/responses/{first.id}/fork", cast_to=object, body={"input": "hi"})
    assert refused.value.param == "container"


def test_an_agent_reads_the_files_of_its_start_and_changes_none(client: OpenAI) -> None:
    tries = "cat note.txt; ls; echo x > note.txt; rm note.txt; touch new.txt; echo scratch > /tmp/s && cat /tmp/s"
    below = {"calls": [spawn("under", shell("touch under.txt; ls"), say("{{output}}"))]}
    own = [shell(tries), below, wait(), say("{{output}}")]
    begin = {"calls": [spawn("a", *own, workspace="read_only")]}
    after = shell("cat note.txt; echo later > later.txt; echo root2 > note.txt; ls")
    response = run(client, shell("echo root > note.txt"), begin, after, wait(), shell("cat note.txt; ls"), say("{{output}}"))
    said = workspaces(response)["/root/a"]
    copy = said["container_id"]
    files = client.containers.files
    kept = {file.path: files.content.retrieve(file.id, container_id=copy).text for file in files.list(copy)}
    (own_output,) = [
        part for item in response.output if item.type == "shell_call_output" and agent(item) == "/root/a" for part in item.output
    ]
    refused = [line for line in own_output.stderr.splitlines() if "note.txt" in line or "new.txt" in line]
    assert (said["workspace"], kept) == ("read_only", {"/mnt/data/note.txt": "root\n"})
    assert own_output.stdout == "root\nnote.txt\nscratch\n"
    assert [line.rpartition(": ")[2] for line in refused] == ["Read-only file system"] * 3
    assert "Read-only file system" in answers(response)["/root/a/under"]
    assert answers(response)["/root"] == "[exit code 0]\nroot2\nlater.txt\nnote.txt"
    look_again = spawn("", shell("cat note.txt; touch more.txt"), say("{{output}}"))["arguments"]["message"]
    again = run(client, ask("followup_task", target="a", message=look_again), wait(), say("Done."), previous_response_id=response.id)
    last = answers(again)["/root/a"]
    assert (last.startswith("[exit code 1]\nroot"), "Read-only file system" in last) == (True, True)
    (kept_file,) = files.list(copy)
    with pytest.raises(BadRequestError) as refused_file:
        files.create(copy, file=("note.txt", b"mine"))
    with pytest.raises(BadRequestError) as refused_end:
        files.delete(kept_file.id, container_id=copy)
    assert [each.value.code for each in (refused_file, refused_end)] == ["container_read_only"] * 2


def test_an_agent_without_a_workspace_runs_no_commands(client: OpenAI) -> None:
    a = spawn("a", look("x"), say("a saw {{output}}"), workspace="none")
    b = spawn("b", shell("echo never"), say("b has none"), workspace="none")
    first = run(client, {"calls": [a, b]}, wait(), wait(), shell("echo anchor"), say("{{output}}"), tools=[*TOOLS, LOOK])
    assert (answers(first), set(asked(first))) == ({"/root/b": "b has none"}, {"/root/a"})
    second = run(client, tools=[*TOOLS, LOOK], input=outputs(first, root__a="a rock"), previous_response_id=first.id)
    assert answers(second) == {"/root/a": "a saw a rock", "/root": "[exit code 0]\nanchor"}
    assert not [item for item in (*first.output, *second.output) if item.type == "shell_call" and agent(item) != "/root"]


def test_a_workspace_that_cannot_be_had_is_refused_to_the_model(client: OpenAI) -> None:
    below = {"calls": [spawn("c", say("c"), workspace="copied")]}
    calls = [spawn("a", say("a"), workspace="mine"), spawn("b", below, say("b"), workspace="none")]
    response = run(client, {"calls": calls}, wait(), say("Done."))
    assert [said["error"] for said in results(response) if "error" in said] == [
        "'workspace' is 'shared', 'copied', 'read_only' or 'none'.",
        "You have no files that could be copied: leave 'workspace' out.",
    ]
