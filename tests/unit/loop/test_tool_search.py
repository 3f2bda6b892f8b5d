"""A search for tools goes the whole way: called, run here, killed in the middle, and what it found is called in the same response."""

from typing import Any, SupportsIndex

from moorage.api.view import ResponseView
from moorage.model.base import ItemRelayed, ModelRequest
from moorage.store.responses import StoredResponse

from tests.stack import assert_well_formed
from tests.unit.loop.lab import Lab, Turn, call, say
from tests.unit.loop.test_workspace import after
from tests.unit.store.deaths import Death, at_each_death
from tests.unit.tools.test_tool_search import SEARCH, TOOLS

FIND = call("tool_search", '{"query": "weather"}')
ASK = call("getWeather", "{}", "call_2")


async def played(lab: Lab, **changes: Any) -> tuple[StoredResponse, list[dict[str, Any]]]:
    stored = await lab.background(**({"tools": [SEARCH, *TOOLS], "container_id": None} | changes))
    await lab.run(stored)
    view = ResponseView.of((), include_obfuscation=False)
    assert_well_formed([view.event(event) for event in await lab.events(stored)])
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    return stored, response["output"]


async def test_what_is_found_is_called_in_the_same_response_and_in_the_next() -> None:
    lab = Lab(FIND, ASK, ASK)
    first, (searched, found, asked) = await played(lab)
    assert (searched["type"], searched["execution"], searched["arguments"]) == ("tool_search_call", "server", {"query": "weather"})
    assert (found["type"], found["status"], found["call_id"]) == ("tool_search_output", "completed", searched["call_id"])
    assert [tool["name"] for tool in found["tools"]] == ["getWeather"]
    assert (asked["type"], asked["name"]) == ("function_call", "getWeather")
    offered = [[tool["name"] for tool in request.tools] for request in lab.model.requests]
    assert offered == [["tool_search", "now", "crm__ping"], ["tool_search", "now", "crm__ping", "getWeather"]]
    assert lab.model.requests[1].items[-1]["output"] == "Tools found: getWeather"
    answer = {"id": "fco_1", "type": "function_call_output", "call_id": "call_2", "output": "Rain."}
    await played(lab, input_items=[answer], **await after(lab, first))
    assert [tool["name"] for tool in lab.model.requests[2].tools] == offered[1]
    assert lab.model.requests[2].items[: len(lab.model.requests[1].items)] == lab.model.requests[1].items


async def test_a_search_that_finds_nothing_says_so() -> None:
    lab = Lab(call("tool_search", '{"query": "quantum"}'), say("There is none."))
    _, (_, found, _) = await played(lab)
    assert (found["tools"], lab.model.requests[1].items[-1]["output"]) == ([], "No tool was found.")


async def test_a_search_takes_whatever_it_is_asked() -> None:
    lab = Lab(call("tool_search", '{"query": ["mail"], "limit": "many"}'), say("I see."))
    _, (_, found, _) = await played(lab)
    assert found["tools"] == []


class Sensible(list[Turn]):
    """A model that looks for what it has not got, however often it is asked."""

    def __init__(self, requests: list[ModelRequest]) -> None:
        self.requests = requests

    def pop(self, at: SupportsIndex = -1) -> Turn:
        return ASK if any(tool["name"] == "getWeather" for tool in self.requests[-1].tools) else FIND


@at_each_death
async def test_wherever_a_process_dies_the_search_finds_the_same(death: Death) -> None:
    lab = Lab()
    lab.model.turns = Sensible(lab.model.requests)
    stored = await lab.background(tools=[SEARCH, *TOOLS], container_id=None)
    await lab.run_with_deaths(stored, death)
    assert_well_formed(await lab.events(stored))
    found = [item for item in (await lab.object_of(stored))["output"] if item["type"] == "tool_search_output"]
    assert found
    assert {tuple(tool["name"] for tool in item["tools"]) for item in found} == {("getWeather",)}


async def test_what_an_upstream_has_searched_and_found_is_passed_on_and_not_run_again() -> None:
    common = {"status": "completed", "call_id": None, "execution": "server"}
    searched = {"type": "tool_search_call", "arguments": {"paths": ["crm"]}, **common}
    found = {"type": "tool_search_output", "tools": [TOOLS[0]], **common}
    turn: Turn = [ItemRelayed(searched | {"id": "tsc_upstreams"}), ItemRelayed(found), *say("Found.")]
    lab = Lab(turn, native_tools=frozenset({"function", "namespace", "tool_search"}))
    _, items = await played(lab)
    assert [item["type"] for item in items] == ["tool_search_call", "tool_search_output", "message"]
    assert {key: items[0][key] for key in searched} == searched
    assert (items[0]["id"] != "tsc_upstreams", len(lab.model.requests)) == (True, 1)
