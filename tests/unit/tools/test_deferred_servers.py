"""Servers whose tools are kept back: what a request may say of them, what a model is offered before and after a search, and what is
told to an upstream that searches by itself."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from moorage.errors import ApiError
from moorage.tools.lowering import LoweredInput, lower
from moorage.tools.mcp.room import Mcp
from moorage.tools.room import RerunPolicy
from moorage.wire.choices import check_choice
from moorage.wire.requests import parse_create

SEARCH: dict[str, Any] = {"type": "tool_search", "execution": "server"}
DEPOT: dict[str, Any] = {
    "type": "mcp",
    "server_label": "depot",
    "server_url": "https://depot.example/mcp",
    "server_description": "Spare parts.",
    "require_approval": "never",
    "defer_loading": True,
}
WORKSPACE: dict[str, Any] = {"type": "mcp", "server_label": "ws", "server_url": "moorage://workspace", "require_approval": "never"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "How it is outside.",
    "parameters": {"type": "object"},
    "defer_loading": True,
}


def listed(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"{name}.", "input_schema": {"type": "object"}, "annotations": {"read_only": False}, **more}


LIST: dict[str, Any] = {
    "id": "mcpl_1",
    "type": "mcp_list_tools",
    "server_label": "depot",
    "tools": [listed("find"), listed("order")],
}


def found(*names: str, number: int = 1) -> dict[str, Any]:
    tools = [{"type": "mcp", "server_label": "depot", "allowed_tools": list(names)}]
    common = {"id": f"tso_{number}", "call_id": f"call_{number}", "status": "completed", "execution": "server"}
    return {"type": "tool_search_output", "tools": tools, **common}


def lowered(*items: dict[str, Any], tools: Any = (SEARCH, DEPOT), native: frozenset[str] = frozenset({"function"})) -> LoweredInput:
    return lower(items, list(tools), "auto", native)


def names(*items: dict[str, Any], **options: Any) -> list[str]:
    return [tool["name"] for tool in lowered(*items, **options).tools]


# --- the request ---


def refused(**body: Any) -> tuple[str | None, str]:
    with pytest.raises(ApiError) as error:
        parse_create({"model": "m", "input": "go"} | body)
    return error.value.param, error.value.message


@pytest.mark.parametrize(
    "searcher",
    [
        {"type": "tool_search"},
        {"type": "tool_search", "execution": "client"},
        WORKSPACE,
        WORKSPACE | {"allowed_tools": ["search_tool_bm25"]},
    ],
    ids=["here", "by the client", "the workspace's", "the workspace's by name"],
)
def test_a_server_may_be_kept_back_where_something_looks_for_it(searcher: dict[str, Any]) -> None:
    assert DEPOT in parse_create({"model": "m", "input": "go", "tools": [searcher, DEPOT]}).tools


@pytest.mark.parametrize(
    "others",
    [[], [WORKSPACE | {"allowed_tools": ["exec_command"]}], [WORKSPACE | {"allowed_tools": {"read_only": False}}]],
    ids=["nothing", "a workspace without its search", "a workspace of what writes"],
)
def test_a_server_that_nobody_could_find_is_refused(others: list[dict[str, Any]]) -> None:
    param, message = refused(tools=[*others, DEPOT])
    assert param == f"tools[{len(others)}].defer_loading"
    assert "nothing looks for its tools: add {'type': 'tool_search'}" in message


def test_what_a_search_has_found_comes_back_and_an_address_does_not() -> None:
    tools = [{"type": "tool_search"}, DEPOT]
    items = parse_create({"model": "m", "input": [found("find")], "tools": tools}).input_items
    assert items[0]["tools"] == [{"type": "mcp", "server_label": "depot", "allowed_tools": ["find"]}]
    carried = found("find") | {"tools": [{"type": "mcp", "server_label": "depot", "server_url": "https://elsewhere.example"}]}
    assert refused(input=[carried], tools=tools)[0] == "input[0].tools[0].server_url"


def test_a_clients_search_brings_servers_that_are_kept_back_and_no_others() -> None:
    brings = found("find") | {"execution": "client"}
    Mcp().validate_items([brings], [], [DEPOT])
    Mcp().validate_items([found("find")], [], [])
    for tools in ([], [{**DEPOT, "defer_loading": False}]):
        with pytest.raises(ApiError) as error:
            Mcp().validate_items([brings], [], tools)
        assert error.value.param == "input[0].tools[0].server_label"


def test_a_tool_that_was_not_found_cannot_be_forced() -> None:
    choice = {"type": "mcp", "server_label": "depot", "name": "find"}
    with pytest.raises(ApiError) as error:
        check_choice(choice, [SEARCH, DEPOT], [])
    assert (error.value.param, "no search has found them" in error.value.message) == ("tool_choice", True)
    check_choice(choice, [SEARCH, DEPOT], [found("find")])
    check_choice({"type": "allowed_tools", "mode": "auto", "tools": [choice]}, [SEARCH, DEPOT], [])


# --- what a model is offered ---


def test_a_model_sees_what_the_server_is_for_and_nothing_of_its_tools() -> None:
    (search,) = lowered(LIST).tools
    assert search["description"].endswith("There are:\n- depot: Spare parts.")
    assert lowered(LIST).restore("depot__find").type == "not_offered", "a name that was guessed calls nothing"


def test_what_is_found_is_offered_from_then_on_in_the_order_of_the_searches() -> None:
    assert names(LIST, found("order")) == ["tool_search", "depot__order"]
    both = (LIST, found("order"), found("find", number=2))
    assert names(*both) == ["tool_search", "depot__order", "depot__find"]
    assert names(*both, found("order", number=3)) == names(*both)
    assert lowered(*both).items[0]["output"] == "Tools found: depot__order"


def test_without_names_all_of_a_server_is_found() -> None:
    whole = found() | {"tools": [{"type": "mcp", "server_label": "depot"}]}
    made = lowered(LIST, whole)
    assert [tool["name"] for tool in made.tools] == ["tool_search", "depot__find", "depot__order"]
    assert made.items[0]["output"] == "Tools found: depot__find, depot__order"


def test_a_server_that_changes_its_tools_keeps_those_offered_that_were_found() -> None:
    relisted = LIST | {"id": "mcpl_2", "tools": [listed("count"), listed("order", description="New words.")]}
    made = lowered(LIST, found("find", "order"), relisted)
    assert [tool["name"] for tool in made.tools] == ["tool_search", "depot__order"]
    assert made.tools[1]["description"].endswith("New words.")
    assert names(LIST, found("find"), relisted, LIST | {"id": "mcpl_3"}) == ["tool_search", "depot__find"], "it is back"


def test_the_prompt_only_grows() -> None:
    items = [LIST, found("order"), {"type": "message", "role": "user", "content": "hi"}, found("find", number=2)]
    whole = lowered(*items)
    for length in range(len(items)):
        shorter = lowered(*items[:length])
        assert whole.items[: len(shorter.items)] == shorter.items
        assert whole.tools[: len(shorter.tools)] == shorter.tools


def test_no_upstream_searches_for_what_it_is_told_nothing_of() -> None:
    native = frozenset({"function", "namespace", "additional_tools", "tool_search", "mcp"})
    assert lowered(tools=[SEARCH, WEATHER], native=native).tools == (SEARCH, WEATHER), "by itself where it can"
    space = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [WEATHER]}
    made = lowered(LIST, tools=[SEARCH, WEATHER, space, DEPOT], native=native)
    assert [(tool["type"], tool["name"]) for tool in made.tools] == [("function", "tool_search")]
    brought = {"type": "additional_tools", "role": "developer", "tools": [{"type": "mcp", "server_label": "depot"}]}
    assert "depot__find" in names(LIST, brought, tools=[SEARCH, DEPOT], native=native)
    (left,) = lowered(brought, tools=[], native=native).items
    assert left["tools"] == []


# --- the workspace's search ---


def result(*tools: dict[str, Any]) -> dict[str, Any]:
    output = orjson.dumps({"query": "q", "total_tools": 3, "active_selected_tools": list(tools), "tools": list(tools)}).decode()
    named = {"server_label": "ws", "name": "search_tool_bm25", "arguments": '{"query":"q"}'}
    return {"id": "mcp_1", "type": "mcp_call", **named, "status": "completed", "output": output}


OWN = {"id": "mcpl_2", "type": "mcp_list_tools", "server_label": "ws", "tools": [listed("search_tool_bm25"), listed("exec_command")]}
CUSTOM = {"type": "custom", "name": "note", "description": "Keep.", "defer_loading": True}
SPACE = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [WEATHER | {"name": "find"}]}


def test_workspace_search_is_offered_only_where_text_was_kept_back() -> None:
    assert names(OWN, tools=[WORKSPACE]) == ["exec_command"]
    assert names(OWN, tools=[SEARCH, WEATHER, WORKSPACE]) == ["tool_search", "exec_command"]
    made = lowered(OWN, LIST, tools=[WEATHER, SPACE, DEPOT, WORKSPACE])
    assert [tool["name"] for tool in made.tools] == ["search_tool_bm25", "exec_command"]
    told = "There are:\n- get_weather: How it is outside.\n- crm: Customers.\n- depot: Spare parts."
    assert made.tools[0]["description"].endswith(told)


def test_it_keeps_back_functions_of_an_upstream_that_could_search_by_itself() -> None:
    native = frozenset({"function", "tool_search", "namespace", "custom"})
    assert names(OWN, tools=[WEATHER, WORKSPACE], native=native) == ["search_tool_bm25", "exec_command"]
    item = result({"name": "get_weather", "server": None, "namespace": None})
    offered = lowered(OWN, item, tools=[WEATHER, WORKSPACE], native=native).tools[-1]
    assert (offered["name"], "defer_loading" in offered) == ("get_weather", False)


def test_what_it_finds_is_offered_and_read_under_the_names_that_can_be_called() -> None:
    entries = (
        {"name": "order", "server": "depot", "namespace": None, "score": 2.5},
        {"name": "note", "server": None, "namespace": None},
        {"name": "find", "server": None, "namespace": "crm"},
    )
    made = lowered(OWN, LIST, result(*entries), tools=[CUSTOM, SPACE, DEPOT, WORKSPACE])
    assert [tool["name"] for tool in made.tools] == ["search_tool_bm25", "exec_command", "depot__order", "note", "crm__find"]
    read = made.items[-1]["output"]
    assert '"active_selected_tools":["depot__order","note","crm__find"]' in read
    assert '"name":"depot__order"' in read


HOSTILE = ("", "[]", "{", '{"tools": 3}', '{"tools": [3, {"name": 3}, {"name": "order", "server": 4}]}', '"tools"')


@pytest.mark.parametrize("output", HOSTILE)
def test_a_result_that_a_client_has_bent_finds_nothing(output: str) -> None:
    assert names(OWN, LIST, result() | {"output": output}, tools=[DEPOT, WORKSPACE]) == ["search_tool_bm25", "exec_command"]


def test_a_remote_server_with_a_tool_of_this_name_finds_nothing() -> None:
    theirs = result({"name": "order", "server": "depot", "namespace": None}) | {"server_label": "evil"}
    assert names(LIST, theirs) == ["tool_search"]


def test_what_was_found_is_left_out_by_no_truncation() -> None:
    assert (Mcp().survives_truncation(result()), Mcp().survives_truncation(result() | {"name": "exec_command"})) == (True, False)


# --- a second run ---


async def said(*items: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for item in items:
        yield item


async def test_whether_a_call_may_be_made_again_says_the_latest_list() -> None:
    call = {"type": "mcp_call", "server_label": "depot", "name": "find"}
    reads = LIST | {"tools": [listed("find", annotations={"read_only": True})]}
    broken = LIST | {"tools": [], "error": "down"}
    assert await Mcp().rerun_policy_of(call, said(LIST, reads)) is RerunPolicy.ONCE, "what was true once is true no more"
    assert await Mcp().rerun_policy_of(call, said(broken, reads, LIST)) is RerunPolicy.REPEAT
    assert await Mcp().rerun_policy_of(call, said(LIST | {"tools": []}, reads)) is RerunPolicy.ONCE
    assert await Mcp().rerun_policy_of(call, said()) is RerunPolicy.ONCE
