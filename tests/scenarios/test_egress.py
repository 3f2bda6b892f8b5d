"""The way out, through the API: a policy on the shell tool, the operator's ceiling, and the list of decisions."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.processes import until
from tests.stack import SHELL, Stack, outputs, say, script, shell


def allowing(*domains: str) -> Any:
    policy = {"type": "allowlist", "allowed_domains": list(domains)}
    return [{"type": "shell", "environment": {"type": "container_auto", "network_policy": policy}}]


@pytest.fixture(scope="module")
def open_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environment = {"MOORAGE_ALLOWED_EGRESS_DOMAINS": "api.example.com *.files.example.com"}
    running = Stack(Path(tmp_path_factory.mktemp("egress")), environment).start()
    yield running
    assert running.stop() == 0


def test_without_a_policy_there_is_no_network(stack: Stack) -> None:
    response = stack.client().responses.create(
        model="demo",
        input=script(shell("ls /sys/class/net; echo ${HTTPS_PROXY:-none}"), say("x")),
        tools=[SHELL],  # type: ignore[list-item]
    )
    assert outputs(response.output)[0][0][0] == "none\n" or outputs(response.output)[0][0][0] == "lo\nnone\n"


def test_a_domain_outside_the_ceiling_is_refused_by_name(open_stack: Stack) -> None:
    with pytest.raises(openai.BadRequestError, match=r"evil\.example\.org.*MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        open_stack.client().responses.create(model="demo", input="x", tools=allowing("evil.example.org"))


def test_a_refused_host_is_told_to_the_model_and_listed(open_stack: Stack) -> None:
    client = open_stack.client()
    fetch = "python3 -c \"import urllib.request as u; u.urlopen('https://forbidden.example.org/')\" 2>/dev/null; echo code $?"
    response = client.responses.create(model="demo", input=script(shell(fetch), say("x")), tools=allowing("api.example.com"))
    ((stdout, stderr, _),) = outputs(response.output)[0]
    assert stdout == "code 1\n"
    assert "forbidden.example.org" in stderr
    container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
    with open_stack.http() as http:
        (entry,) = http.get(f"/containers/{container_id}/egress").json()["data"]
    assert (entry["decision"], entry["host"], entry["port"]) == ("denied", "forbidden.example.org", 443)
    shown = client.containers.retrieve(container_id)
    assert shown.network_policy is not None
    assert (shown.network_policy.type, shown.network_policy.allowed_domains) == ("allowlist", ["api.example.com"])


FETCH = "python3 -c \"import urllib.request as u; u.urlopen('https://api.example.com/')\" 2>/dev/null; echo code $?"


def asking_first(*domains: str) -> Any:
    (tool,) = allowing(*domains)
    tool["environment"]["network_policy"]["require_approval"] = {"hosts": ["*"]}
    return [tool]


def test_a_new_host_is_asked_for_and_let_through_once_it_is_allowed(open_stack: Stack) -> None:
    client, tools = open_stack.client(), asking_first("api.example.com")
    run = client.responses.create(model="demo", input=script(shell(FETCH), shell(FETCH), say("x")), tools=tools, background=True)
    with open_stack.http() as http:
        until(lambda: "waits for approval" in http.get(f"/responses/{run.id}").json().get("waiting_for", ""))
        (approval,) = http.get(f"/responses/{run.id}/approvals").json()["data"]
        assert approval["call"]["arguments"] == '{"host":"api.example.com"}'
        word: Any = {"type": "mcp_approval_response", "approval_request_id": approval["id"], "approve": True}
        response = client.responses.create(model="demo", input=[word], previous_response_id=run.id)
        kinds = ["shell_call", "shell_call_output"]
        assert [item.type for item in response.output] == [*kinds, "mcp_call", *kinds, "message"]
        container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
        entries = http.get(f"/containers/{container_id}/egress", params={"order": "asc"}).json()["data"]
    reasons = [entry["reason"] for entry in entries]
    assert (reasons[0], "host_needs_approval" in reasons[1:], len(reasons) > 1) == ("host_needs_approval", False, True)


def test_a_client_that_waits_is_asked_for_a_new_host_at_the_end(open_stack: Stack) -> None:
    client, tools = open_stack.client(), asking_first("api.example.com")
    first = client.responses.create(model="demo", input=script(shell(FETCH), say("x")), tools=tools)
    request = first.output[-1]
    assert request.type == "mcp_approval_request"
    assert (request.server_label, request.arguments) == ("moorage://network", '{"host":"api.example.com"}')
    ((_, stderr, _),) = outputs(first.output)[0]
    assert "a person has to allow it first" in stderr
    word: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": False, "reason": "No."}
    second = client.responses.create(model="demo", input=[word], tools=tools, previous_response_id=first.id)
    assert (second.status, [item.type for item in second.output]) == ("completed", ["message"])


def test_the_value_of_a_secret_is_nowhere_in_the_container(open_stack: Stack) -> None:
    policy = {
        "type": "allowlist",
        "allowed_domains": ["api.example.com"],
        "domain_secrets": [{"domain": "api.example.com", "name": "API_KEY", "value": "very-secret-value"}],
    }
    tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "network_policy": policy}}]
    response = open_stack.client().responses.create(
        model="demo",
        input=script(shell("echo $API_KEY", "(env; cat /proc/*/environ) 2>/dev/null | grep -ac very-[s]ecret"), say("x")),
        tools=tools,
    )
    placeholder, found = outputs(response.output)[0]
    assert placeholder[0].strip() not in ("", "very-secret-value")
    assert found[0] == "0\n"
    assert "very-secret-value" not in response.model_dump_json()


def test_another_policy_takes_another_container(open_stack: Stack) -> None:
    client = open_stack.client()
    first = client.responses.create(model="demo", input=script(shell("true"), say("x")), tools=allowing("api.example.com"))
    second = client.responses.create(model="demo", input="x", tools=allowing("data.files.example.com"), previous_response_id=first.id)
    third = client.responses.create(model="demo", input="x", tools=allowing("api.example.com"), previous_response_id=first.id)
    containers = [response.tools[0].environment.container_id for response in (first, second, third)]  # type: ignore[union-attr]
    assert containers[0] == containers[2] != containers[1]


def test_new_values_keep_the_container_and_other_secrets_take_another(open_stack: Stack) -> None:
    def used(name: str, value: str, previous: str | None) -> tuple[str, str, str]:
        """The response, its container, and what ``$KEY_A`` is there."""
        policy = {
            "type": "allowlist",
            "allowed_domains": ["api.example.com"],
            "domain_secrets": [{"domain": "api.example.com", "name": name, "value": value}],
        }
        tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "network_policy": policy}}]
        response = open_stack.client().responses.create(
            model="demo", input=script(shell("echo $KEY_A"), say("x")), tools=tools, previous_response_id=previous
        )
        container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
        return response.id, container_id, outputs(response.output)[0][0][0].strip()

    first, container, placeholder = used("KEY_A", "value-one", None)
    second, kept, same = used("KEY_A", "value-two", first)
    _, other, empty = used("KEY_B", "value-three", second)
    assert (kept, same) == (container, placeholder)
    assert placeholder.startswith("MOORAGE_SECRET_KEY_A_")
    assert (other != container, empty) == (True, "")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
def test_a_host_that_the_browser_is_refused_is_told_to_the_model_and_listed(open_stack: Stack) -> None:
    tools: Any = [{"type": "computer", "container": allowing("api.example.com")[0]["environment"]}]
    visit = {"name": "computer", "arguments": {"actions": [{"type": "navigate", "url": "https://forbidden.example.org/"}]}}
    response: Any = open_stack.client().responses.create(model="demo", input=script({"call": visit}, say("x")), tools=tools)
    (output,) = [item for item in response.output if item.type == "computer_call_output"]
    words = "Network access to 'forbidden.example.org' was refused: it is not among this container's allowed domains."
    assert words in output.actions[-1]["error"]
    assert [(each["host"], each["reason"].partition(words)[1]) for each in output.page["refused"]] == [("forbidden.example.org", words)]
    with open_stack.http() as http:
        entries = http.get(f"/containers/{response.tools[0].container['container_id']}/egress").json()["data"]
    assert [(each["decision"], each["host"], each["port"]) for each in entries] == [("denied", "forbidden.example.org", 443)]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
def test_a_new_origin_of_the_browser_waits_for_a_person_over_a_restart(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state", {"MOORAGE_ALLOWED_EGRESS_DOMAINS": "api.example.com"}).start()
    tools: Any = [{"type": "computer", "container": asking_first("api.example.com")[0]["environment"]}]
    visit = {"call": {"name": "computer", "arguments": {"actions": [{"type": "navigate", "url": "https://api.example.com/"}]}}}
    run = stack.client().responses.create(model="demo", input=script(visit, visit, say("x")), tools=tools, background=True)
    with stack.http() as http:
        until(lambda: "waits for approval" in http.get(f"/responses/{run.id}").json().get("waiting_for", ""))
    assert stack.stop() == 0
    stack.start()
    try:
        with stack.http() as http:
            (approval,) = http.get(f"/responses/{run.id}/approvals").json()["data"]
            assert (approval["status"], approval["call"]["arguments"]) == ("waiting", '{"host":"api.example.com"}')
            assert http.post(f"/responses/{run.id}/approvals/{approval['id']}", json={"approve": True}).status_code == 200
        until(lambda: stack.client().responses.retrieve(run.id).status == "completed")
        ended: Any = stack.client().responses.retrieve(run.id)
        before, after = [item for item in ended.output if item.type == "computer_call_output"]
        assert "a person has to allow it first" in before.page["refused"][0]["reason"]
        assert "a person has to allow it first" not in repr(after)
    finally:
        stack.stop()
