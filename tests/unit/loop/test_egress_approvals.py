"""A host that a person has to allow first is asked for once, when the call that wanted it has ended; the container gets it when it is
allowed, and the model reads what was decided."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from moorage import ids, limits
from moorage.approvals import waiting as approvals
from moorage.approvals.store import ApprovalDecision
from moorage.egress.policy import EgressOpening, EgressPolicy, EgressReason
from moorage.egress.service import EgressService
from moorage.egress.store import EgressLogEntry
from moorage.loop.recover import recover
from moorage.state import LoopState, Next
from moorage.store.responses import Ancestor, StoredResponse

from tests.stack import assert_well_formed
from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.approvals import approvals_of, decided, ended, played, ran, waiting
from tests.unit.loop.lab import CONTAINER, Lab, Turn, say, shell, texts
from tests.unit.loop.teams import TeamLab, spawn, text_of
from tests.unit.loop.teams import wait as team_wait
from tests.unit.loop.test_pause import run_all
from tests.unit.store.deaths import Death, Died, at_each_death

HOST = EgressOpening("host", "api.example.com")
TOKEN = EgressOpening("secret", "TOKEN")
GATED = EgressPolicy(("*.example.com",), asks_hosts=("*",), asks_secrets=("TOKEN",))
ALLOWED = "[Network access to 'api.example.com' has been allowed: run again what needs it.]"
CURL = shell("curl https://api.example.com")
AGAIN = shell("curl https://api.example.com", call_id="call_2")


async def lab_of(*turns: Turn) -> Lab:
    lab = Lab(*turns)
    lab.runtime.computers = replace(
        lab.runtime.computers, egress=EgressService(lab.table, None, lab.runtime.settings, lambda: int(lab.now))
    )
    await lab.runtime.computers.egress.open("t", CONTAINER, GATED)
    return lab


async def refused(lab: Lab, opening: EgressOpening = HOST, container_id: str = CONTAINER, *, ago_ms: int = 0) -> None:
    """What the proxy writes when it refuses this."""
    at_ms = int(lab.now * 1000) - ago_ms
    reason = EgressReason.HOST_NEEDS_APPROVAL if opening.kind == "host" else EgressReason.SECRET_NEEDS_APPROVAL
    host = opening.name if opening.kind == "host" else "api.example.com"
    secrets = () if opening.kind == "host" else (opening.name,)
    number = len(lab.table.records)
    entry = EgressLogEntry(
        f"{at_ms:013d}-{number:08x}", at_ms, "t", container_id, host, 443, "CONNECT", None, "denied", reason, secrets=secrets
    )
    await lab.runtime.computers.egress.store.append([entry], int(lab.now) + 3600)


async def opened(lab: Lab) -> set[str]:
    return {key[1].removeprefix("EGRESS#POLICY#OPENED#") for key in lab.table.records if "#OPENED#" in key[1]}


async def begun(*turns: Turn, wants: tuple[EgressOpening, ...] = (HOST,), **parameters: Any) -> tuple[Served, StoredResponse]:
    served = Served.of(await lab_of(*turns))
    stored = await served.lab.background(has_gated_network=True, parameters=parameters)
    for opening in wants:
        await refused(served.lab, opening)
    await run_all(served.lab, stored.response_id)
    return served, stored


async def test_a_new_host_is_asked_for_when_the_call_has_ended_and_the_model_tries_again() -> None:
    served, stored = await begun(CURL, AGAIN, say("done"))
    assert (ran(served), served.lab.executions.states) == (["call_1-0"], {stored.response_id: "SUCCEEDED"})
    (approval,) = await approvals_of(served, stored)
    assert approval["call"] == {
        "type": "mcp_approval_request",
        "server_label": "moorage://network",
        "name": "allow_host",
        "arguments": '{"host":"api.example.com"}',
    }
    assert (approval["status"], await waiting(served), await opened(served.lab)) == ("waiting", [approval["id"]], set())
    standing = (await served.get(f"/responses/{stored.response_id}")).json()
    assert (standing["status"], approval["id"] in standing["waiting_for"]) == ("in_progress", True)
    answer = await decided(served, approval["id"], True)
    assert (answer.status_code, answer.json()["decided_by"]) == (200, KEY_A)
    assert await played(served) == [f"{stored.response_id}-p1"]
    response = await ended(served, stored)
    assert [item["type"] for item in response["output"]] == [
        "shell_call",
        "shell_call_output",
        "mcp_call",
        "shell_call",
        "shell_call_output",
        "message",
    ]
    told = response["output"][2]
    assert told == approval["call"] | {
        "id": told["id"],
        "type": "mcp_call",
        "approval_request_id": approval["id"],
        "status": "completed",
        "output": ALLOWED[1:-1],
        "error": None,
    }
    assert (await opened(served.lab), ran(served)) == ({HOST.key}, ["call_1-0", "call_2-0"])
    first, second, third = (request.items for request in served.lab.model.requests)
    assert (second[: len(first)], third[: len(second)]) == (first, second)
    assert (second[-1]["role"], ALLOWED in str(second[-1])) == ("user", True)


async def test_a_denial_is_told_with_its_reason_and_the_host_is_not_asked_for_again() -> None:
    served, stored = await begun(CURL, AGAIN, say("As you wish."))
    (approval,) = await approvals_of(served, stored)
    await refused(served.lab)
    await decided(served, approval["id"], False, "Not that one.")
    await played(served)
    response = await ended(served, stored)
    assert (response["status"], texts(response["output"]), await opened(served.lab)) == ("completed", ["As you wish."], set())
    told = next(item for item in response["output"] if item["type"] == "mcp_call")
    words = "Network access to 'api.example.com' was not allowed. They say: Not that one."
    assert (told["status"], told["output"], told["error"]["message"]) == ("failed", None, words)
    assert f"[{words}]" in str(served.lab.model.requests[1].items[-1])


async def test_a_host_and_a_secret_are_two_questions_that_the_model_waits_for() -> None:
    served, stored = await begun(CURL, say("done"), wants=(HOST, TOKEN, HOST))
    host, secret = sorted(await approvals_of(served, stored), key=lambda one: str(one["call"]["name"]))
    assert (secret["call"]["name"], secret["call"]["arguments"]) == ("use_secret", '{"secret":"TOKEN"}')
    await decided(served, secret["id"], True)
    await played(served)
    assert (len(served.lab.model.requests), await waiting(served)) == (1, [host["id"]])
    await decided(served, host["id"], False)
    await played(served)
    assert ((await ended(served, stored))["status"], await opened(served.lab)) == ("completed", {TOKEN.key})
    assert "The use of the secret 'TOKEN' has been allowed" in str(served.lab.model.requests[1].items)


async def test_what_was_refused_before_or_elsewhere_or_is_open_asks_nobody() -> None:
    served = Served.of(await lab_of(CURL, say("done")))
    stored = await served.lab.background(has_gated_network=True)
    await refused(served.lab, EgressOpening("host", "old.example.com"), ago_ms=60_000)
    await refused(served.lab, EgressOpening("host", "other.example.com"), "cntr_other")
    await refused(served.lab, HOST)
    await served.lab.runtime.computers.egress.allow("t", CONTAINER, (HOST,))
    await run_all(served.lab, stored.response_id)
    assert ((await ended(served, stored))["status"], await approvals_of(served, stored)) == ("completed", [])


async def test_only_so_many_are_asked_for_at_once() -> None:
    many = tuple(EgressOpening("host", f"h{number}.example.com") for number in range(limits.EGRESS_WANTED_MAX + 4))
    served, stored = await begun(CURL, say("done"), wants=many)
    assert len(await approvals_of(served, stored)) == limits.EGRESS_WANTED_MAX


async def test_a_response_whose_network_asks_nobody_reads_no_log_of_the_proxy() -> None:
    served = Served.of(Lab(CURL, say("done")))  # It has none to read.
    stored = await served.lab.background()
    await run_all(served.lab, stored.response_id)
    assert (await ended(served, stored))["status"] == "completed"


@pytest.mark.parametrize(("on_timeout", "status"), [("deny", "completed"), ("cancel", "cancelled")])
async def test_a_question_that_nobody_answers_is_settled_as_the_request_says(on_timeout: str, status: str) -> None:
    served, stored = await begun(CURL, say("Nobody came."), approvals={"timeout_seconds": 600, "on_timeout": on_timeout})
    served.lab.now += 600
    await recover(served.lab.runtime)
    await played(served)
    assert ((await ended(served, stored))["status"], await opened(served.lab)) == (status, set())


@pytest.mark.parametrize("approve", [True, False])
@at_each_death
async def test_steps_may_die_before_any_write_and_the_host_is_asked_for_once(death: Death, approve: bool) -> None:
    lab = await lab_of(CURL, say("done"))
    served = Served.of(lab)
    stored = await lab.background(has_gated_network=True)
    await refused(lab)
    lab.table.before_write = death

    async def executed(name: str) -> None:
        state = LoopState.from_json(lab.executions.started[name])
        while state.next is not Next.DONE:
            try:
                if state.next is Next.TOOLS:
                    await lab.tools(state)
                state = await lab.step(state)
            except Died:
                lab.table.before_write = None
                has_called = any(event.get("item", {}).get("status") == "completed" for event in await lab.events(stored))
                lab.model.turns = [say("done")] if has_called else [CURL, say("done")]
        lab.executions.states[name] = "SUCCEEDED"

    await executed(stored.response_id)
    (approval,) = await approvals_of(served, stored)
    hook, lab.table.before_write = lab.table.before_write, None
    await decided(served, approval["id"], approve)
    lab.table.before_write = hook
    await executed(f"{stored.response_id}-p1")
    lab.table.before_write = None
    response = await ended(served, stored)
    told = [item["status"] for item in response["output"] if item["type"] == "mcp_call"]
    assert (response["status"], told) == ("completed", ["completed" if approve else "failed"])
    assert (len(ran(served)), await opened(lab)) == (1, {HOST.key} if approve else set())


# --- at the end of a response ---


async def asked(*turns: Turn) -> tuple[Lab, StoredResponse, dict[str, Any]]:
    """A response in the foreground that has ended with the question."""
    lab = await lab_of(CURL, *turns)
    stored = await lab.background(has_gated_network=True, is_background=False)
    await refused(lab)
    await lab.run(stored)
    assert_well_formed(await lab.events(stored))
    response = await lab.object_of(stored)
    assert (response["status"], len(lab.model.requests)) == ("completed", 1)
    return lab, stored, response["output"][-1]


async def answered(
    lab: Lab, before: StoredResponse, request: dict[str, Any], approve: bool, *, instead: tuple[dict[str, Any], ...] = (), **more: Any
) -> dict[str, Any]:
    """``instead``: items that the client sends before its word."""
    last = (await lab.responses.snapshot("t", before.response_id)).last
    assert last is not None
    word = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **more}
    lab.now += 5
    stored = await lab.background(
        has_gated_network=True,
        is_background=False,
        input_items=[*instead, word],
        ancestors=(*before.ancestors, Ancestor(before.response_id, last.first)),
    )
    await lab.run(stored)
    return await lab.object_of(stored)


async def test_a_waiting_client_is_asked_at_the_end_and_opens_the_host_next() -> None:
    lab, stored, request = await asked(AGAIN, say("done"))
    assert (request["type"], request["server_label"]) == ("mcp_approval_request", "moorage://network")
    assert (request["arguments"], ids.response_of(request["id"])) == ('{"host":"api.example.com"}', stored.response_id)
    response = await answered(lab, stored, request, True)
    assert ([item["type"] for item in response["output"]][-1], await opened(lab)) == ("message", {HOST.key})
    assert ALLOWED in str(lab.model.requests[1].items[-1])


async def test_a_client_that_denies_it_opens_nothing_and_the_model_reads_why() -> None:
    lab, stored, request = await asked(say("As you wish."))
    response = await answered(lab, stored, request, False, reason="No.")
    assert (texts(response["output"]), await opened(lab)) == (["As you wish."], set())
    assert "[Network access to 'api.example.com' was not allowed. They say: No.]" in str(lab.model.requests[1].items[-1])


async def test_a_question_that_the_client_has_made_up_opens_nothing_and_ends_nothing() -> None:
    lab, stored, request = await asked(say("done"))
    made_up = request | {"id": "mcpr_made_up", "arguments": f'{{"host":"{"a." * 2_000}example.com"}}'}
    response = await answered(lab, stored, made_up, True, instead=(made_up,))
    assert (response["status"], texts(response["output"]), await opened(lab)) == ("completed", ["done"], set())


async def test_whoever_gets_a_link_reads_in_words_what_is_asked_for() -> None:
    served, stored = await begun(CURL, say("done"))
    (approval,) = await approvals_of(served, stored)
    path = (await served.post(f"/responses/{stored.response_id}/approvals/{approval['id']}/link", {})).json()["path"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served.app), base_url="http://api") as http:
        page = (await http.get(path)).text
    assert (f"Response <code>{stored.response_id}</code> wants:" in page, "May it have this?" in page) == (True, True)
    assert "<pre>Network access to &#x27;api.example.com&#x27;</pre>" in page


async def team_that_wants_the_host(*, is_background: bool) -> tuple[TeamLab, StoredResponse]:
    curls = [CURL, AGAIN, say("a has it")]
    lab = TeamLab(root=[spawn("a"), team_wait(), say("Done.")], root__a=curls)
    lab.runtime.computers = replace(
        lab.runtime.computers, egress=EgressService(lab.table, None, lab.runtime.settings, lambda: int(lab.now))
    )
    await lab.runtime.computers.egress.open("t", CONTAINER, GATED)
    stored = await lab.begin(has_gated_network=True, is_background=is_background)
    await refused(lab)
    await lab.play()
    return lab, stored


async def test_an_agent_of_a_team_waits_in_its_place_for_a_host() -> None:
    lab, stored = await team_that_wants_the_host(is_background=True)
    (asked,) = await lab.runtime.stores.approvals.of("t", stored.response_id)
    assert [lane.status for lane in await lab.runtime.stores.lanes.all(stored)] == ["waiting", "held"]
    await approvals.decide(lab.runtime.stores, lab.runtime.clock, "t", stored.response_id, asked.id, ApprovalDecision(True, "key"))
    await lab.play()
    response = await lab.object_of(stored)
    assert (response["status"], await opened(lab)) == ("completed", {HOST.key})
    assert any(text_of(item) == ALLOWED for item in lab.team.prompts("/root/a")[-1])


async def test_an_agent_of_a_team_asks_its_client_for_a_host() -> None:
    lab, first = await team_that_wants_the_host(is_background=False)
    asked = await lab.object_of(first)
    (question,) = [item for item in asked["output"] if item["type"] == "mcp_approval_request"]
    assert (asked["status"], question["agent"]) == ("completed", {"agent_name": "/root/a"})
    verdict = {"id": "mcpr_1", "type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
    snapshot = await lab.responses.snapshot("t", first.response_id)
    assert snapshot.last is not None
    lab.now += 1
    second = await lab.begin(
        has_gated_network=True,
        is_background=False,
        input_items=[verdict],
        ancestors=(Ancestor(first.response_id, snapshot.last.first),),
    )
    await lab.play()
    response = await lab.object_of(second)
    assert (response["status"], await opened(lab)) == ("completed", {HOST.key})
    assert [item["agent"]["agent_name"] for item in response["output"] if item["type"] == "message"] == ["/root/a", "/root"]
    assert any(text_of(item) == ALLOWED for item in lab.team.prompts("/root/a")[-1])
