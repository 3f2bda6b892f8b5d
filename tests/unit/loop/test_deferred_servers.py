"""Servers whose tools are kept back go the whole way: listed, found by a search, called in the same response and in the next, and found
again whoever dies."""

from typing import Any, SupportsIndex

import orjson
from moorage.api.view import ResponseView
from moorage.model.base import ModelRequest
from moorage.store.responses import StoredResponse

from tests.mcp_servers import Odd, Running, serving
from tests.stack import assert_well_formed
from tests.unit.loop.lab import Lab, Turn, call, say
from tests.unit.loop.test_mcp import FIND, NEVER, asked, depot, lab_for, types
from tests.unit.loop.test_workspace import WORKSPACE, after
from tests.unit.store.deaths import deaths
from tests.unit.tools.test_deferred_servers import SEARCH, WEATHER

LOOK = call("tool_search", '{"query": "look a part up", "limit": 1}')
OWN_LOOK = call("search_tool_bm25", '{"query": "look a part up", "limit": 1}')


async def played(lab: Lab, running: Running, *others: dict[str, Any], **changes: Any) -> tuple[StoredResponse, list[dict[str, Any]]]:
    """With the depot kept back."""
    made = await asked(lab, running, defer_loading=True, server_description="Spare parts.", **NEVER)
    fields = {"tools": [*others, *made.parameters.tools], "container_id": None, "secrets": made.secrets} | changes
    stored = await lab.background(**fields)
    await lab.run(stored)
    view = ResponseView.of((), include_obfuscation=False)
    assert_well_formed([view.event(event) for event in await lab.events(stored)])
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    return stored, response["output"]


def offered(lab: Lab) -> list[list[str]]:
    return [[tool["name"] for tool in request.tools] for request in lab.model.requests]


async def test_a_tool_of_a_server_is_found_and_called_in_the_same_response_and_in_the_next() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, LOOK, FIND, say("14."), FIND, say("Still."))
        first, items = await played(lab, running, SEARCH)
        assert types(items) == ["mcp_list_tools", "tool_search_call", "tool_search_output", "mcp_call", "message"]
        assert items[2]["tools"] == [{"type": "mcp", "server_label": "depot", "allowed_tools": ["find_part"]}]
        _, items = await played(lab, running, SEARCH, **await after(lab, first))
    assert types(items) == ["mcp_call", "message"], "neither listed nor looked for again"
    assert there.lookups == ["A-7", "A-7"]
    assert offered(lab) == [["tool_search"], *[["tool_search", "depot__find_part"]] * 4]
    for earlier, later in zip(lab.model.requests, lab.model.requests[1:], strict=False):
        assert later.items[: len(earlier.items)] == earlier.items


async def test_a_tool_that_was_not_found_cannot_be_called() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, FIND, say("Then not."))
        _, items = await played(lab, running, SEARCH)
    assert (types(items), there.lookups) == (["mcp_list_tools", "message"], [])


async def test_a_server_that_cannot_be_asked_has_nothing_to_find() -> None:
    async with serving(Odd(status={"tools/list": 500})) as running:
        lab = lab_for(running, LOOK, say("None."))
        _, items = await played(lab, running, SEARCH)
    assert types(items) == ["mcp_list_tools", "tool_search_call", "tool_search_output", "message"]
    assert (items[2]["tools"], "HTTP status 500" in items[0]["error"]) == ([], True)


async def test_a_search_looks_at_the_latest_list() -> None:
    odd = Odd(tools=[{"name": "find_part", "inputSchema": {"type": "object"}}], says_changed=True)

    async def change() -> None:
        odd.tools = [{"name": "look_up_part", "inputSchema": {"type": "object"}}]

    odd.before_call = change
    look = call("tool_search", '{"query": "part"}')
    async with serving(odd) as running:
        lab = lab_for(running, look, FIND, look, say("New."))
        _, items = await played(lab, running, SEARCH)
    found = [item["tools"][0]["allowed_tools"] for item in items if item["type"] == "tool_search_output"]
    assert found == [["find_part"], ["look_up_part"]]
    assert offered(lab) == [
        ["tool_search"],
        ["tool_search", "depot__find_part"],
        ["tool_search"],
        ["tool_search", "depot__look_up_part"],
    ]


class Sensible(list[Turn]):
    """A model that looks for what it has not got, and calls what it has until it has read what came of it."""

    def __init__(self, requests: list[ModelRequest]) -> None:
        self.requests = requests

    def pop(self, at: SupportsIndex = -1) -> Turn:
        request = self.requests[-1]
        has_read = any("14 of" in str(item.get("output")) for item in request.items)
        return say("14.") if has_read else FIND if any(tool["name"] == "depot__find_part" for tool in request.tools) else LOOK


async def test_wherever_a_process_dies_the_search_finds_the_same() -> None:
    async with depot() as (_, running):
        for death in deaths():
            lab = lab_for(running)
            lab.model.turns = Sensible(lab.model.requests)
            made = await asked(lab, running, defer_loading=True, **NEVER)
            stored = await lab.background(tools=[SEARCH, *made.parameters.tools], container_id=None, secrets=made.secrets)
            await lab.run_with_deaths(stored, death)
            assert_well_formed(await lab.events(stored))
            response = await lab.object_of(stored)
            assert response["status"] == "completed"
            found = [item["tools"] for item in response["output"] if item["type"] == "tool_search_output"]
            assert found
            assert all(tools[0]["allowed_tools"] == ["find_part"] for tools in found)


# --- by the workspace's search ---


async def test_the_workspaces_search_finds_in_the_form_that_models_know() -> None:
    async with depot() as (there, running):
        lab = lab_for(running, OWN_LOOK, FIND, say("14."), call("search_tool_bm25", '{"query": "outside"}'), say("Rain?"))
        first, items = await played(lab, running, WEATHER, WORKSPACE)
        assert types(items) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "mcp_call", "message"]
        _, later = await played(lab, running, WEATHER, WORKSPACE, **await after(lab, first))
    searched = items[2]
    entry = {"name": "find_part", "server": "depot", "namespace": None}
    output = orjson.loads(searched["output"])
    score = output["tools"][0].pop("score")
    assert output == {
        "query": "look a part up",
        "total_tools": 5,
        "active_selected_tools": [entry],
        "tools": [entry | {"description": "Look a part up.", "input_keys": ["sku"]}],
    }
    assert (score > 0, searched["status"], "container_id" in searched) == (True, "completed", False)
    read = orjson.loads(lab.model.requests[1].items[-1]["output"])
    assert (read["active_selected_tools"], read["tools"][0]["name"]) == (["depot__find_part"], "depot__find_part")
    assert orjson.loads(lab.model.requests[4].items[-1]["output"])["active_selected_tools"] == ["depot__find_part", "get_weather"]
    assert (offered(lab)[1][-1], offered(lab)[4][-2:]) == ("depot__find_part", ["depot__find_part", "get_weather"])
    assert (there.lookups, types(later)) == (["A-7"], ["mcp_call", "message"])


async def test_an_empty_query_is_no_query() -> None:
    async with depot() as (_, running):
        lab = lab_for(running, call("search_tool_bm25", '{"query": "  "}'), say("Hm."))
        _, items = await played(lab, running, WORKSPACE)
    assert items[2]["error"]["content"][0]["text"] == "query must not be empty"
