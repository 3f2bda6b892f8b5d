"""What runs, from outside: each filter of the list, the log, the steps, the usage, budgets and brakes, on one story's responses."""

import time
from typing import Any

import httpx
import pytest

from tests.scenarios.test_shell import TOOLS
from tests.scenarios.test_tenants import make_key
from tests.stack import Stack, say, script, shell

LONG = script(shell("sleep 300"), say("x"))


def until(http: httpx.Client, response_id: str, *wanted: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        response: dict[str, Any] = http.get(f"/responses/{response_id}").json()
        if response["status"] in wanted:
            return response
        assert time.monotonic() < deadline, response
        time.sleep(0.1)


def listed(http: httpx.Client, **query: Any) -> list[str]:
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = http.get("/responses", params={"limit": 2, **query, **after}).json()
        found += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


def ask(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("/responses", json={"model": "demo", "input": "hello", **body})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_each_filter_finds_its_responses_and_what_runs_says_what_it_waits_for(stack: Stack) -> None:
    with stack.http(make_key(stack, "filters")) as http:
        plain = ask(http)
        tagged = ask(http, metadata={"team": "docs", "run": "7"})
        conversation = http.post("/conversations", json={}).json()["id"]
        talked = ask(http, conversation=conversation)
        cut = ask(http, input=script(shell("true"), say("x")), tools=TOOLS, max_tool_calls=1, budget={"tool_calls": 1})
        running = ask(http, input=LONG, tools=TOOLS, background=True)
        made = [plain, tagged, talked, cut, running]
        everything = [each["id"] for each in made]
        (row,) = [row for row in http.get("/responses").json()["data"] if row["id"] == cut["id"]]
        assert listed(http, order="asc") == everything
        assert listed(http) == everything[::-1]
        expected = {
            "status=incomplete": [cut],
            "status=completed": [plain, tagged, talked],
            "status=incomplete,completed": [plain, tagged, talked, cut],
            "status=in_progress,queued": [running],
            "metadata[team]=docs": [tagged],
            "metadata[team]=nobody": [],
            "model=demo": made,
            "model=none": [],
            f"conversation={conversation}": [talked],
            f"container={row['container_id']}": [cut],
            "has_container=true": [cut, running],
            "has_container=false": [plain, tagged, talked],
            f"key={row['key_id']}": made,
            f"created_after={plain['created_at']}": made,
            f"created_before={int(plain['created_at']) - 1}": [],
        }
        found = {query: listed(http, order="asc", **dict([query.split("=", 1)])) for query in expected}
        assert found == {query: [each["id"] for each in some] for query, some in expected.items()}
        deadline = time.monotonic() + 60
        while (waits := http.get("/responses", params={"status": "in_progress"}).json()["data"][0]["waiting_for"])["kind"] != "tool":
            assert time.monotonic() < deadline, waits
            time.sleep(0.1)
        assert http.post(f"/responses/{running['id']}/cancel").status_code == 200
        until(http, running["id"], "cancelled")
        assert listed(http, status="cancelled") == [running["id"]]


def test_a_log_its_steps_and_the_usage_add_up_to_the_response(stack: Stack) -> None:
    with stack.http(make_key(stack, "sums")) as http:
        body = {"input": script(shell("mkdir -p out && echo 1 > out/a.txt"), say("done")), "tools": TOOLS}
        made = ask(http, **body)
        response_id, tokens = made["id"], made["usage"]["total_tokens"]
        events = http.get(f"/responses/{response_id}/events", params={"limit": 1000}).json()["data"]
        assert [each["event"]["sequence_number"] for each in events] == list(range(len(events)))
        assert sorted(each["at"] for each in events) == [each["at"] for each in events]
        steps = http.get(f"/responses/{response_id}/steps").json()["data"]
        assert [(step["type"], step["status"]) for step in steps] == [
            ("model", "completed"),
            ("shell_call", "completed"),
            ("model", "completed"),
        ]
        assert sum(step["usage"]["total_tokens"] for step in steps if step["usage"]) == tokens
        past = http.get(f"/responses/{response_id}", params={"at": len(events) - 1}).json()
        assert (past["status"], past["as_of"]["usage"]["total_tokens"]) == ("completed", tokens)
        assert [each["path"] for each in past["as_of"]["files"]] == ["/mnt/data/out/a.txt"]
        container = past["as_of"]["container_id"]
        tree = http.get(f"/containers/{container}/tree").json()["data"]
        assert [(each["type"], each["path"]) for each in tree] == [("folder", "/mnt/data/out"), ("file", "/mnt/data/out/a.txt")]
        for group, name in (("day", None), ("model", "demo"), ("key", None), ("tool", "shell_call")):
            (row,) = http.get("/usage", params={"group_by": group}).json()["data"]
            assert (row["responses"], row["tool_calls"], name in (None, row["id"])) == (1, 1, True)
            assert group == "tool" or row["input_tokens"] + row["output_tokens"] == tokens


@pytest.mark.parametrize("on_limit", ["stop", "finish", "pause"])
def test_a_budget_does_at_its_limit_what_it_says(stack: Stack, on_limit: str) -> None:
    with stack.http(make_key(stack, f"limit-{on_limit}")) as http:
        budget = {"tool_calls": 1, "on_limit": on_limit}
        asks_again = () if on_limit == "finish" else (shell("true"),)  # Told to finish, the model answers.
        steps = script(shell("true"), *asks_again, say("the last word"))
        made = ask(http, input=steps, tools=TOOLS, background=True, budget=budget)
        if on_limit == "pause":
            deadline = time.monotonic() + 60
            while (row := http.get("/responses").json()["data"][0])["waiting_for"] is None or row["waiting_for"]["kind"] != "pause":
                assert time.monotonic() < deadline, row
                time.sleep(0.1)
            assert http.post(f"/responses/{made['id']}/budget", json={"tool_calls": 9, "on_limit": "pause"}).status_code == 200
        ended = until(http, made["id"], "completed", "incomplete", "failed")
        calls = [item["type"] for item in ended["output"]].count("shell_call")
        reason = (ended["incomplete_details"] or {}).get("reason")
        expected = {"stop": ("incomplete", "budget_reached", 1), "finish": ("completed", None, 1), "pause": ("completed", None, 2)}
        assert (ended["status"], reason, calls) == expected[on_limit]
