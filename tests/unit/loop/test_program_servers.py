"""Programs that call the tools of remote servers, in the loop."""

import asyncio
from typing import Any

from moorage.store.responses import StoredResponse
from moorage.tools.mcp.servers import McpServer, concealed

from tests.mcp_servers import Running
from tests.stack import assert_well_formed
from tests.unit.loop.lab import SHELL_TOOL, Lab, say
from tests.unit.loop.test_mcp import depot, lab_for
from tests.unit.loop.test_programs import PROGRAM, PROGRAMS, Node, calls, kinds
from tests.unit.store.deaths import deaths

SHELL: dict[str, Any] = SHELL_TOOL | {"allowed_callers": ["programmatic"]}
LOOK_AND_ORDER = (
    calls("depot__find_part", {"sku": "A-7"}, {"sku": "B-1"}),
    calls("depot__order_part", {"sku": "A-7", "count": 2}),
    calls("shell", {"commands": ["echo ordered"]}),
)


async def begun(lab: Lab, running: Running) -> StoredResponse:
    """A response whose programs alone may call the depot."""
    plain = {"type": "mcp", "server_label": "depot", "server_url": f"{running.url}/mcp"}
    tool, secrets = concealed(plain, McpServer.of_request(plain), "secret_0")
    tool |= {"require_approval": "never", "allowed_callers": ["programmatic"]}
    sealed = {handle: lab.runtime.stores.sealer.seal("t", value) for handle, value in secrets.items()}
    return await lab.background(tools=[PROGRAMS, SHELL, tool], secrets=sealed)


async def test_a_program_calls_the_tools_of_a_server() -> None:
    async with depot() as (there, running):
        node = Node(*LOOK_AND_ORDER)
        lab = lab_for(running, PROGRAM, say("Done."))
        lab.sandboxes.session_prints = node.prints
        stored = await begun(lab, running)
        await lab.run(stored)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    calls_made = ["mcp_call", "mcp_call", "mcp_call", "shell_call", "shell_call_output"]
    assert kinds(response) == ["mcp_list_tools", "program", *calls_made, "program_output", "message"]
    assert (sorted(there.lookups), there.orders) == (["A-7", "B-1"], [("A-7", 2)])
    assert {item["caller"]["caller_id"] for item in response["output"] if item["type"] == "mcp_call"} == {"call_program"}
    ended = response["output"][-2]["result"]
    assert ended.startswith("14 of A-7 in stock14 of B-1 in stock")
    before, after = lab.model.requests
    assert "tools.depot__find_part(" in before.tools[0]["description"]
    assert [tool["name"] for tool in before.tools] == ["run_program"]
    assert [item["type"] for item in after.items[len(before.items) :]] == ["function_call", "function_call_output"]


async def test_whenever_a_process_dies_a_program_calls_a_server_once() -> None:
    async with depot() as (there, running):
        for death in deaths():
            there.orders.clear()
            lab = lab_for(running, *[turn for _ in range(3) for turn in (PROGRAM, say("Done."))])
            lab.sandboxes.session_prints = Node(*LOOK_AND_ORDER).prints
            stored = await begun(lab, running)
            await lab.run_with_deaths(stored, death)
            await asyncio.sleep(0)
            response = await lab.object_of(stored)
            assert_well_formed(await lab.events(stored))
            whole = [item for item in response["output"] if item.get("status") != "incomplete"]
            programs = sum(item["type"] == "program" for item in whole)
            assert response["status"] == "completed"
            assert [item["type"] for item in whole].count("program_output") == programs
            assert len(there.orders) <= programs
