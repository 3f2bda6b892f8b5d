"""Remote tools go the whole way: listed before the model is asked, called outside of the sandboxes' network, allowed by a person,
killed in the middle; and whatever a server does, the response goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from moorage.api.view import ResponseView
from moorage.egress.fetch import Fetcher
from moorage.loop.chain import load_chain
from moorage.runtime import Process
from moorage.store.responses import Ancestor, StoredResponse
from moorage.tools.calls import CallEnd
from moorage.tools.mcp.room import WORDS
from moorage.tools.mcp.servers import McpServer, concealed

from tests.mcp_servers import LOOPBACK, Depot, Odd, Running, depot_server, serving
from tests.stack import assert_well_formed
from tests.unit.loop.lab import Lab, Turn, call, say, texts
from tests.unit.loop.test_dice import own, together
from tests.unit.store.deaths import deaths

NEVER: dict[str, Any] = {"require_approval": "never"}
FIND = call("depot__find_part", '{"sku": "A-7"}')
ORDER = call("depot__order_part", '{"sku": "A-7", "count": 2}', "call_2")


def lab_for(running: Running, *turns: Turn) -> Lab:
    """One whose operator lets requests reach this machine."""
    lab = Lab(*turns)
    lab.runtime.fetcher = Fetcher(allowed_networks=LOOPBACK, ports=(running.port,))
    return lab


async def asked(
    lab: Lab,
    running: Running,
    *items: dict[str, Any],
    after: StoredResponse | None = None,
    recent_items: int = 0,
    **fields: Any,
) -> StoredResponse:
    """A response with the depot among its tools, as a request makes it."""
    url = f"{running.url}/mcp"
    plain = {"type": "mcp", "server_label": "depot", "server_url": url, **fields}
    tool, secrets = concealed(plain, McpServer.of_request(plain), "secret_0")
    changes: dict[str, Any] = {"recent_items": recent_items} | ({"input_items": list(items)} if items else {})
    if after is not None:
        last = (await lab.responses.snapshot("t", after.response_id)).last
        assert last is not None
        changes["ancestors"] = (*after.ancestors, Ancestor(after.response_id, last.first))
    sealed = {handle: lab.runtime.stores.sealer.seal("t", value) for handle, value in secrets.items()}
    return await lab.background(tools=[tool], container_id=None, secrets=sealed, **changes)


async def played(lab: Lab, running: Running, *items: dict[str, Any], **fields: Any) -> tuple[StoredResponse, list[dict[str, Any]]]:
    """It is run to its end; its items."""
    stored = await asked(lab, running, *items, **fields)
    await lab.run(stored)
    view = ResponseView.of((), include_obfuscation=False)
    assert_well_formed([view.event(event) for event in await lab.events(stored)])
    response = await lab.object_of(stored)
    assert response["status"] == "completed", "whatever a server does"
    return stored, response["output"]


@asynccontextmanager
async def depot() -> AsyncIterator[tuple[Depot, Running]]:
    made = Depot()
    async with depot_server(made, kind="json") as running:
        yield made, running


def types(items: list[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


# --- the straight way ---


async def test_tools_are_listed_offered_called_and_read() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, FIND, say("There are 14."))
        stored, (listed, called, message) = await played(lab, running, **NEVER)
    events = await lab.events(stored)
    assert (types([listed, called]), texts([message])) == (["mcp_list_tools", "mcp_call"], ["There are 14."])
    assert [tool["name"] for tool in listed["tools"]] == ["broken", "find_part", "order_part", "picture"]
    assert own(events, listed["id"]) == ["mcp_list_tools.in_progress", "mcp_list_tools.completed"]
    assert own(events, called["id"]) == [
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
    ]
    assert called == {
        "id": called["id"],
        "type": "mcp_call",
        "status": "completed",
        "approval_request_id": None,
        "arguments": '{"sku": "A-7"}',
        "error": None,
        "name": "find_part",
        "output": "14 of A-7 in stock",
        "server_label": "depot",
    }
    assert [tool["name"] for tool in lab.model.requests[0].tools] == [f"depot__{tool['name']}" for tool in listed["tools"]]
    assert lab.model.requests[1].items[-1]["output"] == "14 of A-7 in stock"
    assert (there.lookups, lab.sandboxes.held) == (["A-7"], 0)


async def test_the_list_stands_in_the_chain_and_the_prompt_only_grows() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, FIND, say("14."), FIND, say("Still 14."))
        first, _ = await played(lab, running, **NEVER)
        before = len(there.headers)
        user = {"id": "msg_2", "type": "message", "role": "user", "content": "And now?"}
        _, items = await played(lab, running, user, after=first, **NEVER)
    requests = lab.model.requests
    assert types(items) == ["mcp_call", "message"], "the server was not asked for its list again"
    assert len(there.headers) - before < before
    assert all(request.tools == requests[0].tools for request in requests)
    for earlier, later in pairwise(requests):
        assert later.items[: len(earlier.items)] == earlier.items


async def test_a_tool_that_the_list_of_the_chain_lacks_is_looked_for() -> None:
    async with depot() as (_, running):
        lab = lab_for(running, say("Hm."), say("Ah."))
        first, items = await played(lab, running, allowed_tools=["find_part"])
        assert [tool["name"] for tool in items[0]["tools"]] == ["find_part"]
        _, items = await played(lab, running, after=first, allowed_tools=["find_part", "order_part"])
    assert [tool["name"] for tool in items[0]["tools"]] == ["find_part", "order_part"]
    assert [tool["name"] for tool in lab.model.requests[1].tools] == ["depot__find_part", "depot__order_part"]


async def test_a_server_that_changes_its_tools_is_asked_anew() -> None:
    odd = Odd(tools=[{"name": "any", "inputSchema": {"type": "object"}}], says_changed=True)
    async with serving(odd) as running:
        lab = lab_for(running, call("depot__any", "{}"), say("Changed."))
        stored, items = await played(lab, running, **NEVER)
    assert types(items) == ["mcp_list_tools", "mcp_call", "mcp_list_tools", "message"]
    shown = ResponseView.of(()).response(await lab.object_of(stored))["output"][1]
    assert (items[1]["tools_changed"], "tools_changed" in shown) == (True, False), "a note for the loop alone"


async def test_two_servers_are_listed_at_once_and_told_in_order() -> None:
    async with depot() as (_, first), depot() as (_, second):
        lab = lab_for(first, say("Ready."))
        ports = (first.port, second.port)
        lab.runtime.fetcher = Fetcher(allowed_networks=LOOPBACK, ports=ports)
        stored = await asked(lab, first, **NEVER)
        plain = {"type": "mcp", "server_label": "other", "server_url": f"{second.url}/mcp", **NEVER}
        tool, secrets = concealed(plain, McpServer.of_request(plain), "secret_1")
        sealed = {handle: lab.runtime.stores.sealer.seal("t", value) for handle, value in secrets.items()}
        both = await lab.background(tools=[*stored.parameters.tools, tool], container_id=None, secrets={**stored.secrets, **sealed})
        await lab.run(both)
    assert_well_formed(await lab.events(both))
    output = (await lab.object_of(both))["output"]
    assert [item.get("server_label") for item in output] == ["depot", "other", None]
    assert len({tool["name"] for tool in lab.model.requests[0].tools}) == 8


# --- a server that does not do as it should ---


async def test_an_unreachable_server_is_an_error_item_and_the_model_goes_on() -> None:
    lab = lab_for(Running(1), say("I cannot look."))
    stored, (listed, _) = await played(lab, Running(1), **NEVER)
    assert (listed["tools"], listed["error"]) == ([], "connect: the server cannot be reached (code -32000)")
    assert own(await lab.events(stored), listed["id"]) == ["mcp_list_tools.in_progress", "mcp_list_tools.failed"]
    assert lab.model.requests[0].tools == ()
    assert "cannot be had now" in str(lab.model.requests[0].items[-1])


async def test_a_failed_server_is_asked_again_by_the_next_response_only() -> None:
    odd = Odd(tools=[{"name": "any", "inputSchema": {"type": "object"}}], status={"tools/list": 503})
    async with serving(odd) as running:
        lab = lab_for(running, say("No."), call("depot__any", "{}"), say("Yes."))
        first, items = await played(lab, running, **NEVER)
        assert (odd.asked.count("tools/list"), items[0]["error"]) == (1, "tools/list: the server answered 503 (HTTP status 503)")
        odd.status.clear()
        _, items = await played(lab, running, after=first, **NEVER)
    assert types(items) == ["mcp_list_tools", "mcp_call", "message"]


FAILING: dict[str, tuple[Odd, dict[str, Any]]] = {
    "HTTP": (
        Odd(status={"tools/call": 500}),
        {"type": "http_error", "code": 500, "message": "tools/call: the server answered 500"},
    ),
    "the protocol": (
        Odd(errors={"tools/call": {"code": -32602, "message": "Unknown tool"}}),
        {"type": "mcp_protocol_error", "code": -32602, "message": "tools/call: Unknown tool"},
    ),
    "a code of more than 64 bits": (
        Odd(errors={"tools/call": {"code": 10**30, "message": "No"}}),
        {"type": "mcp_protocol_error", "code": -32603, "message": "tools/call: No"},
    ),
    "the tool": (
        Odd(result={"content": [{"type": "text", "text": "no"}], "isError": True}),
        {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]},
    ),
    "a connection that broke": (
        Odd(cuts_at="tools/call"),
        {"type": "mcp_protocol_error", "code": -32000, "message": "tools/call: the connection broke"},
    ),
}


@pytest.mark.parametrize(("odd", "error"), FAILING.values(), ids=FAILING)
async def test_what_went_wrong_stands_in_the_call_and_the_model_reads_it(odd: Odd, error: dict[str, Any]) -> None:
    odd.tools = [{"name": "any", "inputSchema": {"type": "object"}}]
    async with serving(odd) as running:
        lab = lab_for(running, call("depot__any", "{}"), say("It failed."))
        stored, items = await played(lab, running, **NEVER)
    assert (items[1]["status"], items[1]["output"], items[1]["error"]) == ("failed", None, error)
    assert own(await lab.events(stored), items[1]["id"])[-1] == "mcp_call.failed"
    assert lab.model.requests[1].items[-1]["output"].startswith("Error: ")
    assert odd.asked.count("tools/call") == 1


async def test_a_result_that_is_too_large_is_not_kept() -> None:
    odd = Odd(
        tools=[{"name": "any", "inputSchema": {"type": "object"}}],
        result={"content": [{"type": "text", "text": "x" * 5_000_000}]},
    )
    async with serving(odd) as running:
        lab = lab_for(running, call("depot__any", "{}"), say("Too much."))
        _, items = await played(lab, running, **NEVER)
    assert items[1]["error"]["message"].startswith(WORDS[CallEnd.TOO_LARGE])


# --- approvals ---


async def test_a_call_waits_for_a_persons_word_and_runs_before_the_model_is_asked() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, ORDER, say("Ordered."))
        first, items = await played(lab, running)
        assert (types(items), there.orders) == (["mcp_list_tools", "mcp_approval_request"], [])
        answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": items[1]["id"], "approve": True}
        second, items = await played(lab, running, answer, after=first)
    called, message = items
    assert (called["type"], called["approval_request_id"]) == ("mcp_call", answer["approval_request_id"])
    assert (called["output"], there.orders, texts([message])) == ("ordered 2 of A-7", [("A-7", 2)], ["Ordered."])
    assert len(lab.model.requests) == 2, "none was asked before the call"
    assert own(await lab.events(second), called["id"])[0] == "mcp_call.in_progress"


async def test_a_denial_is_told_with_its_reason_and_nothing_runs() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, ORDER, say("As you wish."))
        first, items = await played(lab, running)
        answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": items[1]["id"], "approve": False}
        _, items = await played(lab, running, answer | {"reason": "Too dear."}, after=first)
    assert (types(items), there.orders) == (["message"], [])
    assert "Too dear." in lab.model.requests[1].items[-1]["output"]


async def test_one_call_of_a_turn_runs_while_another_waits() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, together(FIND, ORDER), say("Ordered."))
        free = {"require_approval": {"never": {"read_only": True}}}
        first, items = await played(lab, running, **free)
        assert types(items) == ["mcp_list_tools", "mcp_call", "mcp_approval_request"]
        assert (items[1]["output"], there.lookups, there.orders) == ("14 of A-7 in stock", ["A-7"], [])
        answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": items[2]["id"], "approve": True}
        await played(lab, running, answer, after=first, **free)
    assert there.orders == [("A-7", 2)]


async def test_what_was_allowed_once_does_not_run_again_along_the_chain() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, ORDER, say("Ordered."), say("Welcome."))
        first, items = await played(lab, running)
        answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": items[1]["id"], "approve": True}
        second, _ = await played(lab, running, answer, after=first)
        third, items = await played(lab, running, after=second)
        assert len(await load_chain(lab.runtime.stores, third)) > 4
    assert (types(items), there.orders) == (["message"], [("A-7", 2)])


async def test_a_history_that_comes_back_whole_runs_nothing_again() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, ORDER, say("Ordered."), say("Welcome."))
        first, asked_items = await played(lab, running)
        answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": asked_items[1]["id"], "approve": True}
        _, ran = await played(lab, running, answer, after=first)
        _, items = await played(lab, running, *asked_items, answer, *ran)
    assert (types(items), there.orders) == (["message"], [("A-7", 2)])


async def test_what_only_the_connection_knew_runs_nothing_again() -> None:
    """Over a WebSocket without a store earlier items become input; one that broke off is not among them."""
    async with depot() as (there, running):
        lab = lab_for(running, ORDER, say("Welcome."))
        _, items = await played(lab, running)
        answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": items[1]["id"], "approve": True}
        user = {"id": "msg_2", "type": "message", "role": "user", "content": "And now?"}
        stored = await asked(lab, running, *items, answer, user, recent_items=3)
        await lab.run(stored)
    assert (types((await lab.object_of(stored))["output"]), there.orders) == (["message"], [])


# --- cancellations ---


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_a_cancellation_does_not_wait_for_a_server_that_hangs(method: str) -> None:
    odd = Odd(tools=[{"name": "any", "inputSchema": {"type": "object"}}], hangs_at=method)
    async with serving(odd) as running:
        lab = lab_for(running, call("depot__any", "{}"))
        lab.runtime.process = Process(cancel_poll_seconds=0.01)
        stored = await asked(lab, running, **NEVER)
        work = asyncio.create_task(lab.run(stored))
        async with asyncio.timeout(60):
            while method not in odd.asked:
                await asyncio.sleep(0.01)
            await lab.responses.request_cancel(stored)
            await work
        odd.released.set()
    assert_well_formed(await lab.events(stored))
    response = await lab.object_of(stored)
    assert (response["status"], odd.asked.count(method)) == ("cancelled", 1)
    last = response["output"][-1]
    assert last.get("error") == "The list was not read to its end." or last["status"] == "incomplete"


# --- deaths ---


def calls_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that had their item when the process died, and were gone on with."""
    assert response["status"] == "completed"
    return [item for item in response["output"] if item["type"] == "mcp_call" and item["status"] != "incomplete"]


async def test_whenever_a_process_dies_a_call_with_an_effect_runs_once_at_most() -> None:
    ends: set[str] = set()
    async with depot() as (there, running):
        for death in deaths():
            there.orders.clear()
            lab = lab_for(running, *(turn for _ in range(3) for turn in (ORDER, say("Done."))))
            stored = await asked(lab, running, **NEVER)
            await lab.run_with_deaths(stored, death)
            assert_well_formed(await lab.events(stored))
            calls = calls_of(await lab.object_of(stored))
            assert len(there.orders) <= len(calls)
            for item in calls:
                assert item["status"] == "completed" or item["error"]["message"].startswith(WORDS[CallEnd.LOST])
            ends |= {item["status"] for item in calls}
    assert ends == {"completed", "failed"}, "some died in the middle of the call"


async def test_whenever_a_process_dies_a_call_that_only_reads_is_made_again() -> None:
    most = 0
    async with depot() as (there, running):
        for death in deaths():
            there.lookups.clear()
            lab = lab_for(running, *(turn for _ in range(3) for turn in (FIND, say("Done."))))
            stored = await asked(lab, running, **NEVER)
            await lab.run_with_deaths(stored, death)
            assert_well_formed(await lab.events(stored))
            assert {item["output"] for item in calls_of(await lab.object_of(stored))} <= {"14 of A-7 in stock"}
            most = max(most, len(there.lookups))
    assert most == 2, "one that died in the middle was made again"


async def test_whenever_a_process_dies_an_allowed_call_runs_once_at_most() -> None:
    async with depot() as (there, running):
        for death in deaths():
            there.orders.clear()
            lab = lab_for(running, ORDER, *(say("Done.") for _ in range(3)))
            first, items = await played(lab, running)
            answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": items[1]["id"], "approve": True}
            second = await asked(lab, running, answer, after=first)
            await lab.run_with_deaths(second, death)
            assert_well_formed(await lab.events(second))
            (item,) = calls_of(await lab.object_of(second))
            assert len(there.orders) <= 1
            assert item["status"] == "failed" or len(there.orders) == 1


# --- secrets ---


async def test_what_opens_a_server_is_sealed_sent_to_it_and_forgotten() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, FIND, say("14."))
        stored = await asked(lab, running, authorization="t0p-secret", **NEVER)
        assert "t0p-secret" not in str(lab.table.records)
        await lab.run(stored)
    assert {sent["authorization"] for sent in there.headers} == {"Bearer t0p-secret"}
    assert "t0p-secret" not in str((lab.table.records, lab.model.requests, await lab.events(stored)))
    assert "secrets" not in lab.table.records[("T#t#R#" + stored.response_id, "META")]
