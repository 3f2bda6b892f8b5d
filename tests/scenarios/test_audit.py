"""The audit trail of one machine: what is noted, by whom, and how ``moorage audit`` shows it."""

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.command_line import moorage
from tests.scenarios.test_approvals import parked
from tests.stack import Stack

WORDS = ("leave-it-out-1234", "https://hooks.example.com/T0-secret")
"""A secret's value, and an address that holds one."""


def done(stack: Stack, *words: str) -> str:
    """What it printed."""
    ran = moorage(stack, *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def set_secret(stack: Stack, value: str, *words: str) -> None:
    """Its value comes on standard input, which a process of its own has."""
    command = [sys.executable, "-m", "moorage.cli.main", "secrets", "set", *words]
    environment = os.environ | {"MOORAGE_STATE_DIR": str(stack.state_dir)}
    subprocess.run(command, env=environment, input=value, capture_output=True, text=True, check=True)


def trail(stack: Stack, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done(stack, "audit", "--json", *words).splitlines()]


def shown(line: dict[str, Any]) -> tuple[str, str, str, dict[str, Any]]:
    """Without its time and its request, which the tests look at once."""
    return line["kind"], line["who"], line.get("tenant", ""), line["what"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("audited")).start()
    yield stack
    assert stack.stop() == 0


def test_each_change_by_the_operator_is_noted_once(audited: Stack) -> None:
    operator = f"operator {getpass.getuser()}"
    made = json.loads(done(audited, "keys", "create", "--tenant", "acme", "--read-only", "--json"))
    done(audited, "keys", "budget", made["key_id"], "--usd", "5")
    done(audited, "keys", "budget", made["key_id"])  # looking changes nothing
    set_secret(audited, WORDS[0], "API_KEY", "--domain", "api.example.com", "--tenant", "acme")
    done(audited, "secrets", "delete", "API_KEY")
    done(audited, "keys", "revoke", made["key_id"])
    assert [shown(line) for line in trail(audited) if line["who"] == operator] == [
        ("key.made", operator, "acme", {"key_id": made["key_id"], "scope": "read"}),
        ("setting.changed", operator, "acme", {"setting": "budget", "of": "key", "name": made["key_id"], "limits": {"usd": 5.0}}),
        (
            "setting.changed",
            operator,
            "",
            {"setting": "secret", "name": "API_KEY", "domain": "api.example.com", "tenants": ["acme"], "done": "set"},
        ),
        ("setting.changed", operator, "", {"setting": "secret", "name": "API_KEY", "done": "deleted"}),
        ("key.revoked", operator, "acme", {"key_id": made["key_id"]}),
    ]
    assert [line["tenant"] for line in trail(audited, "--tenant", "acme")] == ["acme"] * 3
    assert [line["kind"] for line in trail(audited, "--kind", "key.revoked")] == ["key.revoked"]
    assert (trail(audited, "--since", "2100-01-01"), len(trail(audited, "-n", "2"))) == ([], 2)
    assert moorage(audited, "audit", "--since", "yesterday").returncode == 2
    assert made["key_id"] in done(audited, "audit", "--tenant", "acme", "--since", "1h")


def test_a_session_an_approval_and_a_setting_name_their_key_and_request(audited: Stack) -> None:
    address = json.loads(done(audited, "console", "--no-browser", "--json"))["url"]
    code = address.partition("#k=")[2]
    with audited.http(code) as http:
        session = http.post("/console/session")
        assert (session.status_code, http.post("/console/session").status_code) == (200, 401)  # once
    with audited.http() as http:
        own = http.get("/me").json()["key"]["id"]
        endpoint = http.post("/webhook_endpoints", json={"name": "ops", "url": WORDS[1], "event_types": ["response.completed"]})
        assert http.delete(f"/webhook_endpoints/{endpoint.json()['id']}").status_code == 200
        response_id, approval_id = parked(audited, audited.client())
        answer = http.post(f"/responses/{response_id}/approvals/{approval_id}", json={"approve": False, "reason": WORDS[0]})
        again = http.post(f"/responses/{response_id}/approvals/{approval_id}", json={"approve": False, "reason": WORDS[0]})
        assert (answer.status_code, again.status_code) == (200, 200)
    noted = trail(audited, "--tenant", "default")
    assert [shown(line)[:2] for line in noted] == [
        ("key.made", "the first start"),
        ("key.used", f"operator {getpass.getuser()}"),
        ("session.begun", own),
        ("setting.changed", own),
        ("setting.changed", own),
        ("approval.answered", own),
    ]
    assert noted[-1]["what"] == {"approval_id": approval_id, "response_id": response_id, "status": "denied"}
    assert [line.get("request_id") for line in (noted[2], noted[3], noted[5])] == [
        each.headers["x-request-id"] for each in (session, endpoint, answer)
    ]
    assert session.json()["key"] not in json.dumps(noted)


def test_a_link_that_decides_is_noted_with_the_key_that_made_it(audited: Stack) -> None:
    _, approval_id = parked(audited, audited.client())
    link = done(audited, "approvals", "link", approval_id)
    assert httpx.post(link, data={"decision": "approve"}).status_code == 200
    with audited.http() as http:
        own = http.get("/me").json()["key"]["id"]
    assert trail(audited, "--kind", "approval.answered")[-1]["who"] == f"link of {own}"


def test_the_trail_is_closed_to_others_and_holds_no_secret(audited: Stack) -> None:
    path = audited.state_dir / "audit.log"
    text = path.read_text()
    secrets = json.loads((audited.state_dir / "secrets.json").read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert [word for word in (*WORDS, audited.key, *secrets.values()) if word in text] == []
    assert all({"at", "kind", "who", "what"} <= json.loads(line).keys() for line in text.splitlines())
