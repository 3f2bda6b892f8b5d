"""A call that needs a person's word stands still as a record, goes on once when it is decided, and runs only if it is allowed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from moorage import ids, limits
from moorage.approvals.store import ApprovalDecision
from moorage.loop.recover import recover
from moorage.loop.stop import stop
from moorage.loop.waiting import PAUSED
from moorage.state import LoopState
from moorage.store.audit import Audit
from moorage.store.responses import StoredResponse
from moorage.tools.mcp.servers import McpServer, concealed

from tests.mcp_servers import Depot
from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.approvals import ASKS, PUSHES, approvals_of, begun, both, decided, ended, played, ran, waiting
from tests.unit.loop.lab import SHELL_TOOL, Lab, Turn, say, shell, texts
from tests.unit.loop.test_mcp import ORDER, lab_for
from tests.unit.loop.test_mcp import depot as depot_at_hand
from tests.unit.loop.test_pause import run_all
from tests.unit.store.memory import MemoryAudit


async def test_a_call_waits_without_an_execution_and_what_it_waits_for_is_told_everywhere() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    assert (ran(served), served.lab.executions.states) == ([], {stored.response_id: "SUCCEEDED"})
    (approval,) = await approvals_of(served, stored)
    call = approval.pop("call")
    assert (call["type"], call["action"]["commands"]) == ("shell_call", ["rm x"])
    assert approval == {
        "id": ids.approval_id(stored.response_id, 0),
        "object": "response.approval",
        "response_id": stored.response_id,
        "created_at": int(served.lab.now),
        "status": "waiting",
        "step": 0,
        "expires_at": None,
        "on_timeout": None,
        "decided_at": None,
        "decided_by": None,
        "reason": None,
    }
    assert await waiting(served) == [approval["id"]]
    standing = (await served.get(f"/responses/{stored.response_id}")).json()
    assert (standing["status"], approval["id"] in standing["waiting_for"]) == ("in_progress", True)
    (row,) = (await served.get("/responses", status="in_progress")).json()["data"]
    *_, step = (await served.get(f"/responses/{stored.response_id}/steps")).json()["data"]
    for told in (row["waiting_for"], step["waiting_for"]):
        assert (told["kind"], told["since"], approval["id"] in told["detail"]) == ("approval", int(served.lab.now * 1000), True)


async def test_an_allowed_call_runs_once_and_the_model_goes_on() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    served.lab.now += 3600
    answer = await decided(served, approval["id"], True, "Go on.")
    assert (answer.status_code, answer.json()) == (
        200,
        approval | {"status": "approved", "decided_at": int(served.lab.now), "decided_by": KEY_A, "reason": "Go on."},
    )
    assert await played(served) == [f"{stored.response_id}-p1"]
    response = await ended(served, stored)
    assert (response["status"], texts(response["output"]), ran(served)) == ("completed", ["done"], ["call_1-0"])
    assert await waiting(served) == []
    assert "Go on." not in str(served.lab.model.requests[1].items), "the reason of an allowed call is nobody's but the record's"


async def test_a_denied_call_does_not_run_and_the_model_reads_why() -> None:
    served, stored = await begun(shell("rm x", "rm y"), say("As you wish."))
    (approval,) = await approvals_of(served, stored)
    assert (await decided(served, approval["id"], False, "Keep it.")).json()["status"] == "denied"
    await played(served)
    response = await ended(served, stored)
    output = next(item for item in response["output"] if item["type"] == "shell_call_output")
    words = "[The user did not allow this call, and it was not run. They say: Keep it.]"
    assert output["output"] == [{"stdout": "", "stderr": words, "outcome": {"type": "exit", "exit_code": 1}}] * 2
    assert (response["status"], ran(served), served.lab.sandboxes.held) == ("completed", [], 0)
    assert words in str(served.lab.model.requests[1].items[-1])


async def test_a_denied_call_needs_no_container() -> None:
    served, stored = await begun(shell("rm x"), say("As you wish."))
    (approval,) = await approvals_of(served, stored)
    served.lab.sandboxes.is_there = False
    served.lab.sandboxes.placings = 0
    await decided(served, approval["id"], False)
    await played(served)
    assert (await ended(served, stored))["status"] == "completed"
    assert not served.lab.sandboxes.is_there or served.lab.sandboxes.placings


async def test_only_the_commands_of_the_filter_wait_and_the_prompt_grows_at_its_end() -> None:
    served, stored = await begun(shell("git pull"), shell("cd x && git push", call_id="call_2"), say("pushed"), tool=PUSHES)
    assert ran(served) == ["call_1-0"]
    (approval,) = await approvals_of(served, stored)
    assert approval["call"]["action"]["commands"] == ["cd x && git push"]
    await decided(served, approval["id"], True)
    await played(served)
    assert (await ended(served, stored))["status"] == "completed"
    first, second, third = (request.items for request in served.lab.model.requests)
    assert (second[: len(first)], third[: len(second)]) == (first, second)


async def test_of_a_round_the_free_calls_run_at_once_and_each_decision_sends_its_own() -> None:
    turn = both(shell("ls"), shell("git push a", call_id="call_2"), shell("git push b", call_id="call_3"))
    served, stored = await begun(turn, say("done"), tool=PUSHES)
    assert ran(served) == ["call_1-0"]
    second, third = await approvals_of(served, stored)
    await decided(served, third["id"], True)
    await played(served)
    assert (ran(served), await waiting(served)) == (["call_1-0", "call_3-0"], [second["id"]])
    assert len(served.lab.model.requests) == 1, "the model is asked when all have their outputs"
    await decided(served, second["id"], False)
    await played(served)
    response = await ended(served, stored)
    assert (response["status"], ran(served)) == ("completed", ["call_1-0", "call_3-0"])
    assert [item["type"] for item in response["output"]] == ["shell_call"] * 3 + ["shell_call_output"] * 3 + ["message"]


async def test_the_same_decision_again_is_answered_alike_and_another_one_is_refused() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    first = await decided(served, approval["id"], True, "Yes.")
    again = await decided(served, approval["id"], True, "Yes, yes.")
    assert (again.status_code, again.json()) == (200, first.json())
    other = await decided(served, approval["id"], False)
    assert (other.status_code, other.json()["error"]["code"], other.headers["x-should-retry"]) == (409, "approval_decided", "false")
    await played(served)
    assert (await decided(served, approval["id"], True)).status_code == 200, "after the end too"
    assert (ran(served), len(served.lab.executions.started)) == (["call_1-0"], 2)


async def test_of_two_who_decide_at_once_one_wins_and_the_response_goes_on_once() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    there = await served.lab.runtime.stores.approvals.get("t", stored.response_id, approval["id"])
    assert there is not None
    winner = await served.lab.runtime.stores.approvals.decide(there, ApprovalDecision(False, "first"), 1)
    loser = await served.lab.runtime.stores.approvals.decide(there, ApprovalDecision(True, "second"), 2)
    assert (winner.status, loser) == ("denied", winner)
    answers = await asyncio.gather(*(decided(served, approval["id"], approve) for approve in (True, False, True, False)))
    assert [answer.status_code for answer in answers] == [409, 200, 409, 200]
    assert await played(served) == [f"{stored.response_id}-p1"]
    assert ran(served) == []


async def test_a_foreign_approval_and_one_of_another_response_are_not_known() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    other = await served.lab.background(tools=[ASKS])
    path = f"/responses/{other.response_id}/approvals/{approval['id']}"
    assert (await served.post(path, {"approve": True})).status_code == 404
    assert (await decided(served, approval["id"], True, by="key-b")).status_code == 404
    assert (await served.get(f"/responses/{stored.response_id}/approvals", "key-b")).status_code == 404
    assert (await waiting(served, "key-b"), await waiting(served)) == ([], [approval["id"]])
    assert (await waiting_error(served, after="apr_x"), await waiting_error(served, include="usage.cost")) == (400, 400)


async def waiting_error(served: Served, **query: Any) -> int:
    return (await served.get("/approvals", **query)).status_code


@pytest.mark.parametrize("body", [{}, {"approve": "yes"}, {"approve": True, "reason": "x" * 4_001}, {"approve": True, "why": ""}])
async def test_what_is_no_decision_is_refused_and_changes_nothing(body: dict[str, Any]) -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    path = f"/responses/{stored.response_id}/approvals/{approval['id']}"
    assert (await served.post(path, body)).status_code == 400
    assert await waiting(served) == [approval["id"]]


async def test_pages_of_waiting_approvals_go_on_behind_a_decided_one() -> None:
    served = Served.of(Lab(*(shell(f"rm {number}") for number in range(3)), say("done")))
    found = []
    for _ in range(3):
        stored = await served.lab.background(tools=[ASKS])
        await run_all(served.lab, stored.response_id)
        found.append(ids.approval_id(stored.response_id, 0))
        served.lab.now += 10
    assert await waiting(served) == found[::-1]
    assert await waiting(served, limit=2, order="asc") == found[:2]
    await decided(served, found[1], False)
    assert await waiting(served, limit=2, order="asc", after=found[1]) == found[2:]
    assert await waiting(served, after=found[1]) == found[:1]


async def test_the_approvals_of_a_response_come_in_pages_too() -> None:
    turn = both(shell("a"), shell("b", call_id="call_2"))
    served, stored = await begun(turn, say("done"))
    first, second = await approvals_of(served, stored)
    assert await approvals_of(served, stored, limit=1) == [first]
    assert await approvals_of(served, stored, after=first["id"]) == [second]
    assert await approvals_of(served, stored, order="desc", limit=1) == [second]


# --- ends, while it stands still ---


async def test_what_waits_can_be_cancelled_and_nobody_is_asked_any_more() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    await stop(served.lab.runtime, await served.lab.responses.snapshot("t", stored.response_id))
    assert (await ended(served, stored))["status"] == "cancelled"
    assert await waiting(served) == []
    assert [one["status"] for one in await approvals_of(served, stored)] == ["withdrawn"]
    late = await decided(served, approval["id"], True)
    assert (late.status_code, late.json()["error"]["code"]) == (409, "approval_not_needed")
    assert (await played(served), ran(served)) == ([], [])


async def test_what_waits_can_be_deleted() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    await stop(served.lab.runtime, await served.lab.responses.snapshot("t", stored.response_id))
    await served.lab.responses.delete("t", stored.response_id)
    assert (await decided(served, approval["id"], True)).status_code == 404
    assert await waiting(served) == []


async def test_the_end_of_its_retention_ends_it_without_a_word() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    served.lab.now = stored.expires_at + 1.0
    assert await recover(served.lab.runtime) == 0
    assert (await decided(served, approval["id"], True)).status_code == 404
    assert (await waiting(served), await played(served)) == ([], [])


async def test_a_decision_does_not_end_a_pause_and_the_end_of_the_pause_finds_it() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    await served.post(f"/responses/{stored.response_id}/pause")
    (row,) = (await served.get("/responses", status="in_progress")).json()["data"]
    standing = (await served.get(f"/responses/{stored.response_id}")).json()["waiting_for"]
    assert (row["waiting_for"]["kind"], row["waiting_for"]["detail"], standing) == ("pause", PAUSED, PAUSED)
    assert (await decided(served, approval["id"], True)).status_code == 200
    assert (await recover(served.lab.runtime), await played(served)) == (0, [])
    await served.post(f"/responses/{stored.response_id}/resume")
    await played(served)
    assert ((await ended(served, stored))["status"], ran(served)) == ("completed", ["call_1-0"])


async def test_one_that_is_resumed_without_a_decision_stands_still_again() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    await served.post(f"/responses/{stored.response_id}/pause")
    await served.post(f"/responses/{stored.response_id}/resume")
    await played(served)
    assert (await waiting(served), ran(served)) == ([approval["id"]], [])
    await decided(served, approval["id"], True)
    await played(served)
    assert (await ended(served, stored))["status"] == "completed"


# --- time-outs ---


@pytest.mark.parametrize(("on_timeout", "status"), [(None, "completed"), ("deny", "completed"), ("cancel", "cancelled")])
async def test_after_its_time_a_call_is_denied_or_the_response_cancelled(on_timeout: str | None, status: str) -> None:
    said: dict[str, Any] = {} if on_timeout is None else {"on_timeout": on_timeout}
    served, stored = await begun(shell("rm x"), say("Nobody came."), timeout_seconds=600, **said)
    served.lab.runtime.stores = replace(served.lab.runtime.stores, audit=Audit(trail := MemoryAudit(), lambda: served.lab.now))
    (approval,) = await approvals_of(served, stored)
    assert (approval["expires_at"], approval["on_timeout"]) == (int(served.lab.now) + 600, on_timeout or "deny")
    served.lab.now += 599
    assert (await recover(served.lab.runtime), await played(served)) == (0, [])
    served.lab.now += 1
    await recover(served.lab.runtime)
    await played(served)
    response = await ended(served, stored)
    assert (response["status"], ran(served), await waiting(served)) == (status, [], [])
    answered = {"approval_id": approval["id"], "response_id": stored.response_id}
    assert [(line["kind"], line["who"], line["what"]) for line in trail.written] == [
        ("approval.answered", "timeout", {**answered, "status": "denied" if status == "completed" else "cancelled"})
    ]
    if status == "completed":
        (approval,) = await approvals_of(served, stored)
        assert (approval["status"], approval["decided_by"]) == ("denied", "timeout")
        assert "was not run. Nobody decided within 600 seconds.]" in str(served.lab.model.requests[1].items[-1])


async def test_the_days_of_waiting_count_for_no_limit() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    served.lab.now += limits.RESPONSE_SECONDS_MAX * 5
    served.lab.executions.states.clear()  # As a local stack finds it after a restart.
    assert await recover(served.lab.runtime) == 0
    await decided(served, approval["id"], True)
    await played(served)
    assert (await ended(served, stored))["status"] == "completed"


async def test_a_response_without_approvals_costs_no_request_more() -> None:
    plain, asking = Served.of(Lab(shell("ls"), say("done"))), Served.of(Lab(shell("ls"), say("done")))
    for served, tool in ((plain, SHELL_TOOL), (asking, PUSHES)):
        stored = await served.lab.background(tools=[tool])
        await run_all(served.lab, stored.response_id)
        assert (await ended(served, stored))["status"] == "completed"
    assert (plain.lab.table.reads, plain.lab.table.writes) == (asking.lab.table.reads, asking.lab.table.writes)


# --- calls of remote servers, in their place ---


@asynccontextmanager
async def remote(*turns: Turn) -> AsyncIterator[tuple[Depot, Served, StoredResponse]]:
    """A response that waits for the word on an order."""
    async with depot_at_hand() as (there, running):
        served = Served.of(lab_for(running, ORDER, *turns))
        plain = {"type": "mcp", "server_label": "depot", "server_url": f"{running.url}/mcp"}
        tool, secrets = concealed(plain, McpServer.of_request(plain), "secret_0")
        stored = await served.lab.background(
            tools=[tool],
            container_id=None,
            secrets={handle: served.lab.runtime.stores.sealer.seal("t", value) for handle, value in secrets.items()},
            parameters={"approvals": {"park": True, "timeout_seconds": 600}},
        )
        await run_all(served.lab, stored.response_id)
        yield there, served, stored


async def test_a_remote_call_waits_in_its_place_and_runs_once_when_it_is_allowed() -> None:
    async with remote(say("Ordered.")) as (there, served, stored):
        (approval,) = await approvals_of(served, stored)
        call = approval["call"]
        assert (call["type"], call["status"], call["approval_request_id"]) == ("mcp_call", "in_progress", approval["id"])
        assert (call["name"], call["arguments"], there.orders) == ("order_part", '{"sku": "A-7", "count": 2}', [])
        assert await waiting(served) == [approval["id"]]
        served.lab.now += 500
        await decided(served, approval["id"], True)
        await played(served)
        response = await ended(served, stored)
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert (response["output"][1]["output"], there.orders) == ("ordered 2 of A-7", [("A-7", 2)])


async def test_an_allowed_remote_call_goes_where_there_is_a_network() -> None:
    async with remote(say("Ordered.")) as (_, served, stored):
        (approval,) = await approvals_of(served, stored)
        await decided(served, approval["id"], True)
        resumed = LoopState.from_json(served.lab.executions.started[f"{stored.response_id}-p1"])
        sent = (await served.lab.step(resumed)).to_json()
        assert (sent["next"], len(sent["calls"])) == ("service", 1)


async def test_a_remote_call_that_is_denied_or_that_nobody_decides_fails_with_the_reason() -> None:
    async with remote(say("As you wish.")) as (there, served, stored):
        (approval,) = await approvals_of(served, stored)
        await decided(served, approval["id"], False, "Too dear.")
        await played(served)
        denied = (await ended(served, stored))["output"][1]
    async with remote(say("Nobody came.")) as (_, served, stored):
        served.lab.now += 600
        assert await recover(served.lab.runtime) == 1
        await played(served)
        late = (await ended(served, stored))["output"][1]
    said = "The user did not allow this call, and it was not run."
    assert (denied["status"], late["status"], there.orders) == ("failed", "failed", [])
    assert denied["error"]["message"] == f"{said} They say: Too dear."
    assert late["error"]["message"] == f"{said} Nobody decided within 600 seconds."
