"""Budgets of tenants from outside: the operator's commands, and what clients meet."""

import json
import re

import pytest
from moorage.cli.main import main

from tests.scenarios.test_tenants import make_key
from tests.stack import Stack


def test_an_operator_gives_a_tenant_a_budget_and_its_clients_meet_it(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    secret = make_key(stack, "thrifty")
    environ = {"MOORAGE_STATE_DIR": str(stack.state_dir)}
    assert main(["keys", "budget", "--tenant", "thrifty"], environ) == 0
    assert capsys.readouterr().out == "The tenant 'thrifty' has no budget.\n"
    assert main(["keys", "budget", "--tenant", "thrifty", "--total-tokens", "1", "--json"], environ) == 0
    assert json.loads(capsys.readouterr().out)["limits"] == {"total_tokens": 1}
    late = make_key(stack, "thrifty")
    with stack.http(secret) as http:
        body = {"model": "demo", "input": "hello"}
        assert [http.post("/responses", json=body).status_code for _ in range(2)] == [200, 429]
        (standing,) = http.get("/me").json()["budgets"]
        assert (standing["id"], standing["held"]["total_tokens"], standing["used"]["total_tokens"] > 1) == ("thrifty", 0, True)
    with stack.http(late) as http:
        assert http.post("/responses", json=body).status_code == 429, "a key that is made later has it too"
    assert main(["keys", "budget", "--tenant", "thrifty", "--reset"], environ) == 0
    assert "total_tokens   0     0     1\n" in capsys.readouterr().out
    with stack.http(late) as http:
        assert http.post("/responses", json=body).status_code == 200
    assert main(["keys", "budget", "--tenant", "thrifty", "--total-tokens", "12345678", "--usd", "0.000004"], environ) == 0
    table = dict(re.findall(r"^(\w+) .* ([\d.]+)$", capsys.readouterr().out, re.MULTILINE))
    assert (table["total_tokens"], table["usd"]) == ("12345678", "0.000004")
    assert main(["keys", "budget", "--tenant", "thrifty", "--remove"], environ) == 0
    with stack.http(late) as http:
        assert [http.post("/responses", json=body).status_code for _ in range(2)] == [200, 200]
    capsys.readouterr()
    assert main(["keys", "budget", "key_none"], environ) == 1
    assert main(["keys", "budget", "--tenant", "thrifty", "--reset"], environ) == 1
    assert main(["keys", "budget", "--tenant", "thrifty", "--usd", "-1"], environ) == 1
    said = capsys.readouterr().err
    assert [word in said for word in ("no key 'key_none'", "'thrifty' has no budget", "--usd cannot be less than 0")] == [True] * 3
