"""Tool search that runs here: which tools a query finds, and how they join what the model may call."""

import asyncio
from typing import Any

import pytest
from moorage.errors import ApiError
from moorage.tools.lowering import lower
from moorage.tools.room import CallRunner
from moorage.tools.tool_search.ranking import DeferredTool, as_tools, best, deferred, words
from moorage.tools.tool_search.room import ToolSearch
from moorage.wire.requests import parse_create

SEARCH: dict[str, Any] = {"type": "tool_search", "execution": "server"}


def tool(name: str, description: str = "", is_deferred: bool = True, **arguments: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    made = {"type": "function", "name": name, "description": description, "parameters": {"type": "object", "properties": properties}}
    return made | ({"defer_loading": True} if is_deferred else {})


TOOLS = [
    tool("send_mail", "Send a message to somebody.", to="Address of the recipient."),
    tool("getWeather", "The weather of a city today."),
    tool("order_part", "Order spare parts.", sku="Article number."),
    tool("now", "The time.", is_deferred=False),
    {
        "type": "namespace",
        "name": "crm",
        "description": "Customers and their invoices.",
        "tools": [tool("find_customer", "Look a customer up."), tool("list_invoices"), tool("ping", is_deferred=False)],
    },
]

FINDS: dict[str, tuple[str, list[str]]] = {
    "by a word of the name": ("mail", ["send_mail"]),
    "by more of the same word": ("emails and mails", ["send_mail"]),
    "by a name in another style": ("get weather", ["getWeather"]),
    "by the description": ("what is spare", ["order_part"]),
    "by an argument": ("article number", ["order_part"]),
    "by the namespace": ("crm", ["list_invoices", "find_customer"]),
    "the best first": ("list the invoices of a customer", ["list_invoices", "find_customer"]),
    "nothing that is offered already": ("now ping time", []),
    "nothing": ("quantum", []),
    "nothing by nothing": ("", []),
}


def found_by(query: str, tools: list[dict[str, Any]], count: int) -> list[DeferredTool]:
    return asyncio.run(best(query, deferred(tools), count))


@pytest.mark.parametrize(("query", "names"), FINDS.values(), ids=FINDS)
def test_a_query_finds_deferred_tools(query: str, names: list[str]) -> None:
    found = [each.tool["name"] for each in found_by(query, TOOLS, 20)]
    assert [name for name in found if name in names] == names
    assert names or not found


def test_no_more_are_found_than_are_wanted_and_of_equals_the_first() -> None:
    same = [tool(f"tool_{letter}", "It does the same.") for letter in "abcd"]
    assert [each.tool["name"] for each in found_by("same", same, 3)] == ["tool_a", "tool_b", "tool_c"]
    assert found_by("anything", [], 3) == []


class Read(str):
    """A text that counts how often it is read."""

    times = 0

    def __bool__(self) -> bool:
        self.times += 1
        return len(self) > 0


def test_what_many_tools_belong_to_is_read_once() -> None:
    text = Read("Customers and their invoices.")
    space = {"type": "namespace", "name": "crm", "description": text, "tools": [tool(f"tool_{number}") for number in range(500)]}
    assert len(found_by("invoices", [space], 20)) == 20
    assert text.times == 1


def test_the_words_of_a_long_query_behind_its_bound_find_nothing() -> None:
    query = "word " * 400
    assert found_by(f"{query}mail", TOOLS, 20) == []
    assert [each.tool["name"] for each in found_by(f"mail {query}", TOOLS, 20)] == ["send_mail"]


def test_words_are_told_apart_in_every_style() -> None:
    assert words("sendHTTPRequest2_now über-mails") == ["send", "http", "request", "2", "now", "ü", "ber", "mail"]


def test_members_of_a_namespace_come_together_and_are_deferred_no_more() -> None:
    found = as_tools(found_by("customer invoices mail", TOOLS, 20))
    assert [each["name"] for each in found] in (["crm", "send_mail"], ["send_mail", "crm"])
    (space,) = [each for each in found if each["type"] == "namespace"]
    assert {member["name"] for member in space["tools"]} == {"find_customer", "list_invoices"}
    assert "defer_loading" not in str(found)


# --- the request ---


def test_the_search_runs_here_where_nothing_else_is_said() -> None:
    (parsed,) = parse_create({"model": "m", "input": "go", "tools": [{"type": "tool_search"}]}).tools
    assert parsed == SEARCH
    room = ToolSearch()
    assert (room.call_runner(SEARCH), room.call_runner({"type": "tool_search", "execution": "client"})) == (
        CallRunner.SERVICE,
        CallRunner.CLIENT,
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a description": ({"tools": [{"type": "tool_search", "description": "d"}]}, "tools[0].description"),
    "parameters": ({"tools": [{"type": "tool_search", "execution": "server", "parameters": {}}]}, "tools[0].parameters"),
    "another place": ({"tools": [{"type": "tool_search", "execution": "moon"}]}, "tools[0].execution"),
    "a client's call without an id": ({"input": [{"type": "tool_search_call", "arguments": {}}]}, "input[0].call_id"),
}


@pytest.mark.parametrize(("body", "param"), REFUSED.values(), ids=REFUSED)
def test_what_belongs_to_clients_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_create({"model": "m", "input": "go"} | body)
    assert refused.value.param == param


def test_calls_of_an_upstream_that_searched_by_itself_come_back_without_an_id() -> None:
    call = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["crm"]}}
    output: dict[str, Any] = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []}
    items = parse_create({"model": "m", "input": [call, output, {"role": "user", "content": "hi"}]}).input_items
    assert [item.get("call_id") for item in items[:2]] == [None, None]
    assert ToolSearch().call_runner(items[0]) is CallRunner.CLIENT, "nobody runs it again"


# --- what a model is offered ---


def names(*items: dict[str, Any]) -> list[str]:
    return [each["name"] for each in lower(items, [SEARCH, *TOOLS], "auto", frozenset({"function"})).tools]


def test_a_model_sees_the_search_and_what_there_is_to_find_but_no_schemas() -> None:
    offered = lower([], [SEARCH, *TOOLS], "auto", frozenset({"function"})).tools
    assert [each["name"] for each in offered] == ["tool_search", "now", "crm__ping"]
    told = offered[0]["description"].splitlines()[1:]
    assert told == [
        "There are:",
        "- send_mail: Send a message to somebody.",
        "- getWeather: The weather of a city today.",
        "- order_part: Order spare parts.",
        "- crm: Customers and their invoices.",
    ]
    assert set(offered[0]["parameters"]["properties"]) == {"query", "limit"}


def test_what_is_found_is_offered_from_then_on_in_a_stable_order() -> None:
    def found(query: str, number: int) -> dict[str, Any]:
        tools = as_tools(found_by(query, TOOLS, 5))
        return {"id": f"tso_{number}", "type": "tool_search_output", "call_id": f"c{number}", "execution": "server", "tools": tools}

    first, second = found("weather", 1), found("mail", 2)
    assert names() == ["tool_search", "now", "crm__ping"]
    assert names(first) == ["tool_search", "now", "crm__ping", "getWeather"]
    assert names(first, second) == ["tool_search", "now", "crm__ping", "getWeather", "send_mail"]
    assert names(first, second, found("weather", 3)) == names(first, second)


def test_of_very_many_the_first_are_named() -> None:
    many = [tool(f"tool_{number}", "x" * 100) for number in range(1_000)]
    description = lower([], [SEARCH, *many], "auto", frozenset({"function"})).tools[0]["description"]
    assert len(description) < 8_500
    assert description.endswith("\n- and more")


def test_an_upstream_that_knows_the_tool_searches_by_itself() -> None:
    lowered = lower([], [SEARCH, TOOLS[0]], "auto", frozenset({"function", "tool_search"})).tools
    assert lowered == (SEARCH, TOOLS[0])


def test_a_call_is_one_that_runs_here() -> None:
    made = lower([], [SEARCH, *TOOLS], "auto", frozenset({"function"})).restore("tool_search").call_item('{"query": "mail"}', "c1")
    assert made is not None
    assert (made["execution"], ToolSearch().call_runner(made)) == ("server", CallRunner.SERVICE)
