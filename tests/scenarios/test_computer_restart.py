"""A browser that waits for a person's word, and a machine that dies meanwhile: what was done is not done again, and it goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import power_cut, until
from tests.scenarios.test_computer import CLICK, OPEN, SERVE, acts, needs_browser, said, shown
from tests.scenarios.test_operator_secrets import HOST, Host, a_host
from tests.stack import Stack, say, script, shell

pytestmark = needs_browser
NOTED = "/mnt/data/said"
"""By the shop: in the workspace, which outlives its sandbox."""
POSTED = "user=ada&password="
DONE = {"ok": True}
SERVE_NOTED = SERVE.replace("/tmp/said", NOTED)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with a_host(tmp_path) as one:
        yield one


@pytest.fixture
def lab(host: Host, tmp_path: Path) -> Iterator[Stack]:
    running = Stack(tmp_path / "state", host.environment).start()
    yield running
    assert running.stop() == 0


def waiting(stack: Stack, response_id: str) -> str:
    """Of the question that the response waits for, its id."""
    with stack.http() as http:
        until(lambda: "waits for approval" in http.get(f"/responses/{response_id}").json().get("waiting_for", ""))
        (approval,) = http.get(f"/responses/{response_id}/approvals").json()["data"]
    return str(approval["id"])


def allowed(stack: Stack, response_id: str, approval_id: str) -> Any:
    """The response at its end, behind the person's word."""
    with stack.http() as http:
        assert http.post(f"/responses/{response_id}/approvals/{approval_id}", json={"approve": True}).status_code == 200
    until(lambda: stack.client().responses.retrieve(response_id).status not in ("queued", "in_progress"))
    return stack.client().responses.retrieve(response_id)


def policy(**more: Any) -> dict[str, Any]:
    """The host has a secret, so that the proxy opens its pages, with a certificate that the browser believes."""
    secret = {"domain": HOST, "name": "SHOP_PASSWORD", "value": "correct-horse-battery", "places": ["form"]}
    return {"type": "allowlist", "allowed_domains": [HOST], "domain_secrets": [secret], **more}


def order(host: Host) -> dict[str, Any]:
    """A call that sends the host's form: what the host notes of it is :data:`POSTED`."""
    visit = {"type": "navigate", "url": f"https://{HOST}:{host.port}/sign-in"}
    return acts(visit, {"type": "click", "x": 50, "y": 20}, {"type": "type", "text": "ada"}, {"type": "keypress", "keys": ["ENTER"]})


def test_a_page_whose_host_waits_to_be_allowed_survives_the_end_of_all_processes(lab: Stack, host: Host) -> None:
    environment = {"type": "container_auto", "network_policy": policy(require_approval={"hosts": ["*"]})}
    tools: Any = [{"type": "shell", "environment": environment}, {"type": "computer", "container": environment}]
    steps = [shell(SERVE_NOTED), acts(OPEN, CLICK, {"type": "wait"}), order(host), order(host), shell(f"cat {NOTED}"), say("Bought.")]
    response_id = lab.client().responses.create(model="demo", input=script(*steps), tools=tools, background=True).id
    approval_id = waiting(lab, response_id)
    power_cut(lab.process)
    lab.start()
    assert waiting(lab, response_id) == approval_id
    assert host.posted == []
    response = allowed(lab, response_id, approval_id)
    clicked, refused, ordered = shown(response)
    assert (response.status, response.output_text, said(response)) == ("completed", "Bought.", ["click"])
    assert (clicked.actions, ordered.actions) == ([DONE] * 5, [DONE] * 6)
    assert "has to allow it first" in str(refused.page["refused"])
    assert host.posted == [POSTED]


def test_a_call_that_waits_to_be_allowed_survives_the_end_of_all_processes(lab: Stack, host: Host) -> None:
    environment = {"type": "container_auto", "network_policy": policy()}
    tools: Any = [{"type": "computer", "container": environment, "require_approval": "always"}]
    steps = script(order(host), say("Bought."))
    response_id = lab.client().responses.create(model="demo", input=steps, tools=tools, background=True).id
    approval_id = waiting(lab, response_id)
    power_cut(lab.process)
    lab.start()
    assert waiting(lab, response_id) == approval_id
    assert host.posted == []
    response = allowed(lab, response_id, approval_id)
    (output,) = shown(response)
    assert (response.status, response.output_text, output.actions) == ("completed", "Bought.", [DONE] * 6)
    assert host.posted == [POSTED]
