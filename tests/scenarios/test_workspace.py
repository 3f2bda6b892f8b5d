"""The workspace toolset from outside: declared as a server, shown as its calls, run in the container of the request."""

import json
import re
import shutil
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.scenarios.test_tenants import make_key
from tests.stack import SHELL, Stack, assert_well_formed, raw_events, say, script, shell

WORKSPACE: Any = {
    "type": "mcp",
    "server_label": "workspace",
    "server_url": "moorage://workspace",
    "require_approval": "never",
}


def step(name: str, **arguments: Any) -> dict[str, Any]:
    """A step: the model calls a tool of the workspace."""
    return {"call": {"name": name, "arguments": arguments}}


def ask(client: OpenAI, *steps: dict[str, Any], **fields: Any) -> Any:
    return client.responses.create(**{"model": "demo", "input": script(*steps), "tools": [WORKSPACE], **fields})


def calls(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "mcp_call"]


def printed(call: Any) -> str:
    return str(call.output).partition("Output:\n")[2]


def in_container(container_id: str) -> Any:
    return WORKSPACE | {"environment": {"type": "container_reference", "container_id": container_id}}


def test_a_command_runs_in_the_container_beside_the_shells(client: OpenAI) -> None:
    steps = (step("exec_command", cmd="echo hello | tee note.txt"), shell("cat note.txt"), say("{{output}}"))
    response = ask(client, *steps, tools=[WORKSPACE, SHELL])
    assert response.output_text == "[exit code 0]\nhello"
    (call,) = calls(response)
    assert re.fullmatch(r"Wall time: \d+\.\d{4} seconds\nProcess exited with code 0\nOutput:\nhello\n", call.output)
    environments = [tool.environment for tool in response.tools]
    container_id = call.to_dict()["container_id"]
    assert [environments[0]["container_id"], environments[1].container_id] == [container_id, container_id]
    assert [file.path for file in client.containers.files.list(container_id)] == ["/mnt/data/note.txt"]


def test_a_session_lives_on_from_response_to_response_and_ends_with_a_clear_word(client: OpenAI) -> None:
    first = ask(client, step("exec_command", cmd="python3 -q", tty=True, yield_time_ms=250), say("end"))
    session = int(re.search(r"running with session ID (\d+)", calls(first)[0].output)[1])  # type: ignore[index]
    typed = [step("write_stdin", session_id=session, chars=chars) for chars in ("x = 6\r", "print('is', x * 7); raise SystemExit(3)\r")]
    typed.append(step("write_stdin", session_id=session, yield_time_ms=60_000))
    second = ask(client, *typed, say("end"), previous_response_id=first.id)
    assert "is 42" in "".join(printed(call) for call in calls(second))
    ends = [call for call in calls(second) if "Process exited with code 3" in str(call.output)]
    assert len(ends) == 1
    third = ask(client, step("write_stdin", session_id=session), say("{{output}}"), previous_response_id=second.id)
    assert third.output_text == f"Error: Session {session} has ended with exit code 3."
    assert calls(third)[0].error.to_dict()["type"] == "mcp_tool_execution_error"
    assert {call.to_dict()["container_id"] for response in (first, second, third) for call in calls(response)} == {
        calls(first)[0].to_dict()["container_id"]
    }


def test_a_history_that_its_client_keeps_goes_on_in_the_container(client: OpenAI) -> None:
    first = ask(client, step("exec_command", cmd="echo kept > file"), say("end"), store=False)
    history = [item.model_dump(exclude_none=True) for item in first.output]
    again = script(step("exec_command", cmd="cat file"), say("{{output}}"))
    second = client.responses.create(model="demo", input=[*history, {"role": "user", "content": again}], tools=[WORKSPACE], store=False)
    assert second.output_text.endswith("Output:\nkept\n")


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

PATCH = """\
*** Begin Patch
*** Add File: app/new.py
+print("new")
*** Update File: app/old.py
@@
-print("old")
+print("changed")
*** End Patch"""


def test_files_are_changed_found_read_and_looked_at(client: OpenAI) -> None:
    made = f"mkdir app && echo 'print(\"old\")' > app/old.py && echo {PNG} | base64 -d > /tmp/dot.png"
    response = ask(
        client,
        step("exec_command", cmd=made),
        step("apply_patch", input=PATCH),
        step("read_file", file_path="/mnt/data/app/old.py"),
        step("list_dir", dir_path="/mnt/data"),
        step("grep_files", pattern="print", include="*.py", path="app"),
        step("view_image", path="/tmp/dot.png"),
        step("apply_patch", input="*** Begin Patch\n*** Delete File: nowhere\n*** End Patch"),
        step("read_file", file_path="app/old.py"),
        say("end"),
    )
    _, patched, read, listed, found, seen, refused, lost = calls(response)
    assert patched.output == "Exit code: 0\nOutput:\nSuccess. Updated the following files:\nA app/new.py\nM app/old.py\n"
    assert read.output == 'L1: print("changed")'
    assert listed.output == "Absolute path: /mnt/data\napp/\n  new.py\n  old.py"
    assert sorted(found.output.splitlines()) == ["/mnt/data/app/new.py", "/mnt/data/app/old.py"]
    assert json.loads(seen.output) == [{"type": "image", "mimeType": "image/png", "data": PNG}]
    assert "nowhere" in refused.error.to_dict()["content"][0]["text"]
    assert lost.error.to_dict()["content"][0]["text"].startswith("file_path must be an absolute path")
    paths = {file.path for file in client.containers.files.list(patched.to_dict()["container_id"])}
    assert paths == {"/mnt/data/app/new.py", "/mnt/data/app/old.py"}


@pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")
def test_javascript_keeps_its_bindings_until_it_is_reset(client: OpenAI) -> None:
    response = ask(
        client,
        step("js_repl", code="// codex-js-repl: timeout_ms=60000\nconst x = await Promise.resolve(6); console.log('set')"),
        step("js_repl", code="x * 7", timeout_ms=60_000),
        step("js_repl_reset"),
        step("js_repl", code="typeof x", timeout_ms=60_000),
        say("end"),
    )
    new = "'undefined'\n[The session is new: bindings of earlier calls are gone.]"
    assert [call.output for call in calls(response)] == ["set\n", "42", "js_repl kernel reset", new]


def test_a_command_waits_for_a_persons_word(client: OpenAI) -> None:
    gated = WORKSPACE | {"require_approval": {"never": {"tool_names": ["write_stdin"]}}}
    first = ask(client, step("exec_command", cmd="echo allowed"), say("{{output}}"), tools=[gated])
    request = first.output[-1]
    assert (request.type, json.loads(request.arguments)) == ("mcp_approval_request", {"cmd": "echo allowed"})
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    second = client.responses.create(model="demo", input=[answer], tools=[gated], previous_response_id=first.id)
    assert printed(calls(second)[0]) == "allowed\n"


def test_only_what_is_allowed_is_offered(client: OpenAI) -> None:
    response = ask(client, say("ok"), tools=[WORKSPACE | {"allowed_tools": ["exec_command"]}])
    assert [tool.name for tool in response.output[0].tools] == ["exec_command"]


def test_the_events_of_a_call_come_in_the_order_of_any_remote_call(stack: Stack) -> None:
    body = {"model": "demo", "input": script(step("exec_command", cmd="true"), say("end")), "tools": [WORKSPACE], "stream": True}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    assert [event["type"].removeprefix("response.") for event in events if event.get("output_index") in (0, 1)] == [
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]


def test_no_tenant_gets_at_anothers_container_or_session(stack: Stack, client: OpenAI) -> None:
    begun = ask(client, step("exec_command", cmd="cat", tty=True, yield_time_ms=250), say("end"))
    (call,) = calls(begun)
    session = int(re.search(r"session ID (\d+)", call.output)[1])  # type: ignore[index]
    other = stack.client(make_key(stack, "strangers"))
    with pytest.raises(openai.NotFoundError) as refused:
        ask(other, say("x"), tools=[in_container(call.to_dict()["container_id"])])
    assert refused.value.param == "tools[0].environment.container_id"
    strange = ask(other, step("write_stdin", session_id=session), say("{{output}}"))
    assert strange.output_text == f"Error: There is no session {session}."
    close = step("write_stdin", session_id=session, chars="\x04", yield_time_ms=60_000)
    ended = ask(client, close, say("end"), previous_response_id=begun.id)
    assert "Process exited with code 0" in calls(ended)[0].output
