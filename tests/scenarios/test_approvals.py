"""A person's word, asked for and given through the SDK and the command line, on a real stack."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.command_line import moorage
from tests.processes import until
from tests.scenarios.test_cli import lines
from tests.stack import SHELL, Stack, outputs, say, script, shell

ASKS: Any = [{**SHELL, "require_approval": {"never": {"commands": ["ls*", "cat *"]}}}]
RUN = script(shell("ls"), shell("touch made && ls"), say("{{output}}"))


def parked(stack: Stack, client: OpenAI, **extra: Any) -> tuple[str, str]:
    """A response that waits, and the approval that it waits for."""
    response = client.responses.create(model="demo", input=RUN, tools=ASKS, background=True, extra_body=extra)
    with stack.http() as http:
        until(lambda: "waits for approval" in http.get(f"/responses/{response.id}").json().get("waiting_for", ""))
        (approval,) = http.get(f"/responses/{response.id}/approvals").json()["data"]
    return response.id, approval["id"]


def status_of(client: OpenAI, response_id: str) -> str:
    return client.responses.retrieve(response_id).status or ""


def test_a_call_is_allowed_from_the_command_line_while_a_client_polls(stack: Stack, client: OpenAI) -> None:
    response_id, approval_id = parked(stack, client)
    assert status_of(client, response_id) == "in_progress"
    (row,) = (json.loads(line) for line in lines(stack, ["approvals", "list", response_id, "--json"]))
    assert (row["status"], row["call"]["action"]["commands"]) == ("waiting", ["touch made && ls"])
    assert any(approval_id in line and "touch made && ls" in line for line in lines(stack, ["approvals"]))
    assert "waits for approval" in "\n".join(lines(stack, ["show", response_id]))
    (link,) = lines(stack, ["approvals", "link", approval_id, "--hours", "1"])
    page = httpx.get(link)
    assert (page.status_code, "touch made &amp;&amp; ls" in page.text) == (200, True)
    assert lines(stack, ["approvals", "approve", approval_id]) == [f"{approval_id}  approved  touch made && ls"]
    until(lambda: status_of(client, response_id) == "completed")
    assert "made" in client.responses.retrieve(response_id).output_text
    refused = moorage(stack, "approvals", "deny", approval_id, "apr_no")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "has been decided already" in refused.stderr
    assert "This is no id of an approval" in refused.stderr


def test_a_call_is_denied_with_a_reason_and_the_model_says_it(stack: Stack, client: OpenAI) -> None:
    response_id, approval_id = parked(stack, client)
    lines(stack, ["approvals", "deny", approval_id, "--reason", "Leave it empty."])
    until(lambda: status_of(client, response_id) == "completed")
    assert (
        "The user did not allow this call, and it was not run. They say: Leave it empty."
        in client.responses.retrieve(response_id).output_text
    )


def test_a_client_answers_what_waits_in_its_place_with_an_item(stack: Stack, client: OpenAI) -> None:
    response_id, approval_id = parked(stack, client)
    allowed: Any = [{"type": "mcp_approval_response", "approval_request_id": approval_id, "approve": True}]
    response = client.responses.create(model="demo", input=allowed, tools=ASKS, previous_response_id=response_id)
    assert (response.id, response.status, "made" in response.output_text) == (response_id, "completed", True)


def test_a_waiting_client_is_asked_at_the_end_and_answers_with_the_next(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input=RUN, tools=ASKS) as stream:
        first = stream.get_final_response()
    request = first.output[-1]
    assert request.type == "mcp_approval_request"
    assert (first.status, request.server_label, json.loads(request.arguments)) == (
        "completed",
        "moorage://shell",
        {"commands": ["touch made && ls"]},
    )
    allowed: Any = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
    second = client.responses.create(model="demo", input=allowed, tools=ASKS, previous_response_id=first.id)
    assert [item.type for item in second.output] == ["shell_call", "shell_call_output", "message"]
    assert [(code, "made" in stdout) for ((stdout, _, code),) in outputs(second.output)] == [(0, True)]
    with pytest.raises(openai.BadRequestError, match="has been answered already"):
        client.responses.create(model="demo", input=allowed, tools=ASKS, previous_response_id=second.id)


PYTHON: Any = [{"type": "code_interpreter", "container": {"type": "auto"}, "require_approval": "always"}]
COUNT = script({"python": "print(6 * 7)"}, say("{{output}}"))


def test_the_code_interpreter_asks_before_it_runs_in_its_place_and_at_the_end(stack: Stack, client: OpenAI) -> None:
    waiting = client.responses.create(model="demo", input=COUNT, tools=PYTHON, background=True)
    until(lambda: any(waiting.id.removeprefix("resp_") in line for line in lines(stack, ["approvals"])))
    (row,) = (json.loads(line) for line in lines(stack, ["approvals", "list", waiting.id, "--json"]))
    assert (row["call"]["type"], row["call"]["code"], row["call"]["outputs"]) == ("code_interpreter_call", "print(6 * 7)", None)
    assert lines(stack, ["approvals", "approve", row["id"]]) == [f"{row['id']}  approved  print(6 * 7)"]
    until(lambda: status_of(client, waiting.id) == "completed")
    assert "42" in client.responses.retrieve(waiting.id).output_text
    first = client.responses.create(model="demo", input=COUNT, tools=PYTHON)
    request = first.output[-1]
    assert request.type == "mcp_approval_request"
    assert (request.server_label, json.loads(request.arguments)) == ("moorage://code_interpreter", {"code": "print(6 * 7)"})
    denied: Any = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": False}]
    second = client.responses.create(model="demo", input=denied, tools=PYTHON, previous_response_id=first.id)
    assert [item.type for item in second.output] == ["message"]
    assert "The user did not allow this call, and it was not run." in second.output_text


def test_a_response_that_waits_is_cancelled_and_no_word_is_wanted_any_more(stack: Stack, client: OpenAI) -> None:
    response_id, approval_id = parked(stack, client, approvals={"timeout_seconds": 86_400})
    assert client.responses.cancel(response_id).status == "cancelled"
    with stack.http() as http:
        late = http.post(f"/responses/{response_id}/approvals/{approval_id}", json={"approve": True})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "approval_not_needed")
        assert approval_id not in http.get("/approvals").text
