"""Workspace tools go the whole way of a call: listed without a network, gated by approvals, run in the container, killed in the middle
and taken over."""

import base64
from typing import Any

import orjson
import pytest
from moorage.api.view import ResponseView
from moorage.store.responses import Ancestor, StoredResponse
from moorage.tools.calls import CallEnd
from moorage.tools.execs import WORDS
from moorage.tools.mcp.room import Mcp

from tests.stack import assert_well_formed
from tests.unit.loop.lab import CONTAINER, Lab, call, first_state, say, texts
from tests.unit.loop.test_dice import own
from tests.unit.store.deaths import deaths

WORKSPACE: dict[str, Any] = {
    "type": "mcp",
    "server_label": "ws",
    "server_url": "moorage://workspace",
    "require_approval": "never",
}
LS = call("exec_command", '{"cmd": "ls", "yield_time_ms": 1000}')
TYPE = call("write_stdin", '{"session_id": 5000, "chars": "y\\r"}', "call_2")


async def played(lab: Lab, tool: dict[str, Any] | None = None, **changes: Any) -> tuple[StoredResponse, list[dict[str, Any]]]:
    stored = await lab.background(**({"tools": [tool or WORKSPACE]} | changes))
    await lab.run(stored)
    view = ResponseView.of((), include_obfuscation=False)
    assert_well_formed([view.event(event) for event in await lab.events(stored)])
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    return stored, response["output"]


async def after(lab: Lab, before: StoredResponse) -> dict[str, Any]:
    last = (await lab.responses.snapshot("t", before.response_id)).last
    assert last is not None
    return {"ancestors": (*before.ancestors, Ancestor(before.response_id, last.first))}


async def test_a_command_is_listed_offered_run_in_the_container_and_read() -> None:
    lab = Lab(LS, TYPE, say("Done."))
    stored, (listed, ran, typed, message) = await played(lab)
    assert (listed["type"], "exec_command" in [tool["name"] for tool in listed["tools"]]) == ("mcp_list_tools", True)
    assert ran == {
        "id": ran["id"],
        "type": "mcp_call",
        "status": "completed",
        "approval_request_id": None,
        "arguments": '{"cmd": "ls", "yield_time_ms": 1000}',
        "error": None,
        "name": "exec_command",
        "output": "Wall time: 1.0000 seconds\nProcess running with session ID 5000\nOutput:\nls\n",
        "server_label": "ws",
        "container_id": CONTAINER,
    }
    assert typed["output"].endswith("Output:\ntyped 'y\\r' into 5000\n")
    assert own(await lab.events(stored), ran["id"])[-1] == "mcp_call.completed"
    assert (texts([message]), lab.sandboxes.held) == (["Done."], 0)
    names = [tool["name"] for tool in lab.model.requests[0].tools]
    assert {"exec_command", "write_stdin"} <= set(names), "under the names that models know"
    asked, answered = lab.model.requests[1].items[-2:]
    assert (asked["name"], answered["output"]) == ("exec_command", ran["output"])


async def test_the_next_response_reads_the_list_of_the_chain_and_goes_on_in_the_container() -> None:
    lab = Lab(LS, say("1."), LS, say("2."))
    first, _ = await played(lab)
    _, items = await played(lab, **await after(lab, first))
    assert [item["type"] for item in items] == ["mcp_call", "message"]
    assert lab.model.requests[2].tools == lab.model.requests[0].tools


async def test_a_call_waits_for_a_persons_word_and_runs_then_in_the_container() -> None:
    gated = WORKSPACE | {"require_approval": "always"}
    lab = Lab(LS, say("Done."))
    first, (_, request) = await played(lab, gated)
    assert (request["type"], "container_id" in request, lab.sandboxes.executed) == ("mcp_approval_request", False, [])
    answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    _, (ran, _) = await played(lab, gated, input_items=[answer], **await after(lab, first))
    assert (ran["type"], ran["container_id"], ran["approval_request_id"]) == ("mcp_call", CONTAINER, request["id"])
    assert len(lab.sandboxes.executed) == 1


GATED: dict[str, Any] = {
    "type": "shell",
    "environment": {"type": "container_reference", "container_id": CONTAINER},
    "require_approval": {"never": {"commands": ["ls*"]}},
}


async def test_what_the_shell_must_not_run_unasked_a_terminal_does_not_run_either() -> None:
    lab = Lab(LS, call("exec_command", '{"cmd": "git push"}', "call_2"), say("Pushed."))
    stored, output = await played(lab, tools=[WORKSPACE, GATED])
    assert [item["type"] for item in output] == ["mcp_list_tools", "mcp_call", "mcp_approval_request"]
    request = output[-1]
    assert (request["server_label"], request["arguments"]) == ("ws", '{"cmd": "git push"}')
    word = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    _, output = await played(lab, tools=[WORKSPACE, GATED], input_items=[word], **await after(lab, stored))
    assert [(item["type"], item.get("arguments")) for item in output] == [("mcp_call", '{"cmd": "git push"}'), ("message", None)]


async def test_it_waits_in_its_place_where_the_request_says_so() -> None:
    lab = Lab(TYPE, say("Typed."))
    stored = await lab.background(tools=[WORKSPACE, GATED], parameters={"approvals": {"park": True}})
    await lab.run(stored)
    (approval,) = await lab.runtime.stores.approvals.of("t", stored.response_id)
    assert (approval.is_waiting, approval.call_type) == (True, "mcp_call")


async def test_files_are_read_by_a_program_in_the_container() -> None:
    lab = Lab(call("read_file", '{"file_path": "/mnt/data/it\'s", "limit": 3}'), say("Read."))
    _, (_, ran, _) = await played(lab)
    assert ran["output"] == """moorage-workspace read_file '{"file_path":"/mnt/data/it'"'"'s","limit":3}'\n"""


async def test_a_patch_goes_to_its_program_as_it_is_and_the_model_reads_the_report() -> None:
    lab = Lab(call("apply_patch", '{"input": "*** Begin Patch\\nEOF\\n*** End Patch"}'), say("Patched."))
    _, (_, ran, _) = await played(lab)
    assert ran["output"] == "Exit code: 0\nOutput:\napply_patch <<'EOF_'\n*** Begin Patch\nEOF\n*** End Patch\nEOF_\n"


def piece(command: str, content: bytes, size: int) -> str:
    start = int(command.partition('"start":')[2].partition("}")[0])
    data = base64.b64encode(content[start : start + 6]).decode()
    return orjson.dumps({"mime": "image/png", "size": size, "data": data}).decode()


async def test_a_picture_reaches_the_model_as_a_picture() -> None:
    lab = Lab(call("view_image", '{"path": "shot.png"}'), say("A cat."))
    content = b"\x89PNG\r\n\x1a\n so on!"
    lab.sandboxes.prints = lambda command: piece(command, content, len(content))
    _, (_, ran, _) = await played(lab)
    assert (ran["status"], len(lab.sandboxes.executed)) == ("completed", 3)
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    assert lab.model.requests[1].items[-1]["output"] == [{"type": "input_image", "detail": "auto", "image_url": url}]


UNSHOWN: dict[str, tuple[bytes, int, str]] = {
    "too large": (b"\x89PNG", 9_000_000, "has 9000000 bytes, and 2621440 can be shown"),
    "shorter than it was": (b"", 100, "changed while it was read"),
}


@pytest.mark.parametrize(("content", "size", "complaint"), UNSHOWN.values(), ids=UNSHOWN)
async def test_a_picture_that_cannot_be_shown_is_told(content: bytes, size: int, complaint: str) -> None:
    lab = Lab(call("view_image", '{"path": "shot.png"}'), say("No."))
    lab.sandboxes.prints = lambda command: piece(command, content, size)
    _, (_, ran, _) = await played(lab)
    assert complaint in ran["error"]["content"][0]["text"]


ASK = call("request_user_input", '{"questions": [{"id": "colour", "header": "Colour", "question": "Which?"}]}', "call_9")


async def test_a_question_ends_the_response_and_its_answer_goes_on() -> None:
    asking = WORKSPACE | {"allowed_tools": ["exec_command", "request_user_input"], "require_approval": "always"}
    lab = Lab(ASK, say("Blue."))
    first, (_, question) = await played(lab, asking)
    assert (question["type"], question["name"], question["call_id"]) == ("function_call", "request_user_input", "call_9")
    answer = {"id": "fco_1", "type": "function_call_output", "call_id": "call_9", "output": '{"answers": {}}'}
    _, items = await played(lab, asking, input_items=[answer], **await after(lab, first))
    assert texts(items) == ["Blue."]
    asked, answered = lab.model.requests[1].items[-2:]
    assert (asked["name"], answered["output"]) == ("request_user_input", '{"answers": {}}')


async def test_a_question_is_offered_where_it_is_named_alone() -> None:
    lab = Lab(say("1."), say("2."), say("3."))
    first, _ = await played(lab, WORKSPACE | {"allowed_tools": ["exec_command", "request_user_input"]})
    await played(lab, **await after(lab, first))
    mine = {"type": "function", "name": "request_user_input", "description": "Mine.", "parameters": {"type": "object"}}
    await played(lab, tools=[mine, WORKSPACE | {"allowed_tools": ["request_user_input"]}])
    offered = [{tool["name"]: tool["description"] for tool in request.tools} for request in lab.model.requests]
    assert ["request_user_input" in each for each in offered] == [True, False, True]
    assert offered[2] == {"request_user_input": "Mine."}


async def test_javascript_is_run_in_a_session_that_says_when_it_is_new() -> None:
    js = call("js_repl", '{"code": "1 + 1"}')
    lab = Lab(js, js, call("js_repl_reset", "{}", "call_3"), say("Done."))
    _, (_, first, second, reset, _) = await played(lab)
    assert first["output"] == "printed\n1 + 1"
    assert second["output"] == "printed\n1 + 1\n[The session is new: bindings of earlier calls are gone.]"
    assert (reset["output"], len(lab.sandboxes.executed)) == ("js_repl kernel reset", 3)


PLAN = call(
    "update_plan", '{"plan": [{"step": "Look", "status": "completed"}, {"step": "Do", "status": "in_progress"}], "explanation": "So."}'
)


async def test_a_plan_is_kept_and_shown_and_needs_no_container() -> None:
    lab = Lab(PLAN, LS, say("Done."))
    stored, (_, planned, ran, _) = await played(lab)
    assert (planned["output"], "container_id" in planned, ran["container_id"]) == ("Plan updated", False, CONTAINER)
    done = [event for event in await lab.events(stored) if event["type"] == "response.mcp_call_arguments.done"]
    told = [line.text for event in done for line in Mcp().log_notes("mcp_call_arguments.done", event)]
    assert told == ["[x] Look", "[>] Do", "$ ls"]


async def test_two_steps_at_once_are_no_plan() -> None:
    twice = call("update_plan", '{"plan": [{"step": "A", "status": "in_progress"}, {"step": "B", "status": "in_progress"}]}')
    _, (_, planned, _) = await played(Lab(twice, say("I see.")))
    assert planned["error"]["content"][0]["text"] == "At most one step can be in_progress at a time."


async def test_a_tool_that_is_not_there_any_more_says_which_are() -> None:
    old = {"name": "fly", "description": "Fly.", "input_schema": {"type": "object"}}
    listed = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "ws", "tools": [old]}
    lab = Lab(call("fly", "{}"), say("No."))
    _, (ran, _) = await played(lab, WORKSPACE | {"allowed_tools": ["fly"]}, input_items=[listed])
    assert ran["error"]["content"][0]["text"].startswith("The workspace has no tool 'fly'; it has apply_patch, exec_command")


WRONG: dict[str, tuple[str, str]] = {
    "no command": ("{}", "'cmd' is missing."),
    "another type": ('{"cmd": 5}', "'cmd' must be a string."),
    "another name": ('{"cmd": "ls", "cwd": "/"}', "There is no 'cwd'; there are cmd, workdir, shell"),
    "too little": ('{"cmd": "ls", "max_output_tokens": 0}', "'max_output_tokens' must be 1 or more."),
}


@pytest.mark.parametrize(("arguments", "complaint"), WRONG.values(), ids=WRONG)
async def test_arguments_that_do_not_fit_are_told_to_the_model_and_nothing_runs(arguments: str, complaint: str) -> None:
    lab = Lab(call("exec_command", arguments), say("I see."))
    _, (_, ran, _) = await played(lab)
    assert (ran["status"], lab.sandboxes.executed) == ("failed", [])
    assert complaint in ran["error"]["content"][0]["text"]
    assert lab.model.requests[1].items[-1]["output"].startswith("Error: exec_command was not run. ")


async def test_wherever_a_process_dies_a_command_is_run_once_and_its_answer_is_the_same() -> None:
    results = set()
    for death in deaths():
        lab = Lab(LS, say("Done."), say("Done."))
        stored = await lab.background(tools=[WORKSPACE])
        await lab.run_with_deaths(stored, death)
        response = await lab.object_of(stored)
        assert_well_formed(await lab.events(stored))
        ran = [item for item in response["output"] if item["type"] == "mcp_call"]
        assert len(lab.sandboxes.executed) <= len(ran) <= 1
        results.add(tuple(item["status"] for item in ran))
    assert ("completed",) in results


async def test_a_command_whose_sandbox_was_lost_is_not_run_again_and_says_so() -> None:
    lab = Lab(LS, say("It is gone."))
    stored = await lab.background(tools=[WORKSPACE])
    state = await lab.step(first_state(stored))
    (call_id,) = state.calls
    await lab.runtime.stores.steps.begin_call(stored, state.step, call_id, lab.sandboxes.incarnation)
    lab.sandboxes.incarnation += 1
    await lab.run(stored, state)
    ran = (await lab.object_of(stored))["output"][1]
    assert (ran["status"], ran["error"]["content"][0]["text"]) == ("failed", WORDS[CallEnd.LOST])
    assert lab.sandboxes.executed == []
