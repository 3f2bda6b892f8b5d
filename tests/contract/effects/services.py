"""What each field of a tool does that runs beside the sandbox: search, images, files, remote servers."""

import base64
import json
from functools import partial
from typing import Any

from tests.contract.effects.world import FUNCTION, PIXEL, Json, World, row
from tests.drawing import encoded, png
from tests.processes import until
from tests.stack import assert_well_formed
from tests.upstream import Call, Reply, called, said

WEB_SEARCHES = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")


def browsed(world: World, tool: Json, **arguments: str) -> Json:
    """What becomes of a call of it."""
    calls = (Call("web_search", json.dumps(arguments or {"action": "search", "query": "tides"}), "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("See https://tides.example/oslo"))
    return world.create("chat", tools=[tool], include=["web_search_call.results", "web_search_call.action.sources"])


@row("tool", *WEB_SEARCHES)
def web_search(world: World) -> None:
    for kind in WEB_SEARCHES:
        response = browsed(world, {"type": kind})
        call, message = response["output"]
        assert (response["tools"][0]["type"], call["results"]) == (kind, world.engines.found)
        assert call["action"]["sources"] == [{"type": "url", "url": "https://tides.example/oslo"}]
        assert message["content"][0]["annotations"][0]["title"] == "Tides in Oslo"
    pictures = {"type": "web_search_preview", "search_content_types": ["text", "image"]}
    answer = world.http.post("/responses", json={"model": "plain", "input": "x", "tools": [pictures]})
    assert "no images" in answer.headers["x-moorage-notice"]


@row("tool", "web_search.external_web_access")
def without_the_web(world: World) -> None:
    for kind in WEB_SEARCHES:
        tools = [{"type": kind, "external_web_access": False}]
        answer = world.http.post("/responses", json={"model": "native", "input": "x", "tools": tools})
        assert (answer.status_code, answer.json()["tools"]) == (200, [])
        assert kind in answer.headers["x-moorage-notice"]
        assert "tools" not in world.upstream.requests[-1].body


@row("tool", "web_search.filters", "web_search.filters.allowed_domains")
def domains_of_the_web(world: World) -> None:
    tool: Json = {"type": "web_search", "filters": {"allowed_domains": ["sea.example"]}}
    response = browsed(world, tool)
    assert (response["tools"][0]["filters"], response["output"][0]["results"]) == (tool["filters"], [])
    assert world.engines.asked[-1]["q"] == "tides (site:sea.example)"
    assert "none of the domains" in browsed(world, tool, action="open_page", url=world.page_url)["output"][0]["error"]


@row("tool", "web_search.filters.blocked_domains")
def blocked_domains_of_the_web(world: World) -> None:
    tool: Json = {"type": "web_search", "filters": {"blocked_domains": ["tides.example", "localhost"]}}
    response = browsed(world, tool)
    assert (response["tools"][0]["filters"], response["output"][0]["results"]) == (tool["filters"], [])
    assert world.engines.asked[-1]["q"] == "tides -site:tides.example -site:localhost"
    assert "a domain that the user has blocked" in browsed(world, tool, action="open_page", url=world.page_url)["output"][0]["error"]


@row("tool", "web_search.search_context_size")
def size_of_the_web(world: World) -> None:
    lengths = {}
    for size in ("low", "medium", "high"):
        call = browsed(world, {"type": "web_search", "search_context_size": size}, action="open_page", url=world.page_url)["output"][0]
        lengths[size] = len(call["results"][0]["text"].partition(" [")[0])
    assert lengths == {"low": 8_000, "medium": 24_000, "high": 60_000}


@row("tool", "web_search.user_location")
def place_of_the_user(world: World) -> None:
    place = {"type": "approximate", "city": "Oslo", "country": "NO", "region": "Oslo", "timezone": "Europe/Oslo"}
    (sent,) = world.asked("chat", tools=[{"type": "web_search", "user_location": place}])["tools"]
    assert "The user is about here: Oslo, Oslo, NO; time zone Europe/Oslo." in sent["function"]["description"]


@row("tool_choice", *WEB_SEARCHES)
def chosen_web_search(world: World) -> None:
    for kind in WEB_SEARCHES:
        sent = world.asked("plain", tools=[{"type": kind}, FUNCTION], tool_choice={"type": kind})
        assert sent["tool_choice"] == {"type": "function", "name": "web_search"}


@row("item", "web_search_call")
def searches_of_before(world: World) -> None:
    """What a client sends back of a search: with its results, or without them."""
    call, _ = browsed(world, {"type": "web_search"})["output"]
    asked_before = len(world.engines.asked)
    for sent in (call, {name: value for name, value in call.items() if name != "results"}):
        body = world.asked("plain", input=[sent, {"role": "user", "content": "So?"}])
        function_call, output = body["input"][:2]
        assert (function_call["name"], json.loads(function_call["arguments"])) == ("web_search", {"action": "search", "query": "tides"})
        assert "High at noon." in output["output"]
    assert len(world.engines.asked) == asked_before


def pictured(world: World, tool: Json, *names: str, input: Any = "hi") -> Json:
    """What becomes of a call of it; the image model was asked last."""
    arguments = {"prompt": "A lighthouse"} | ({"images": names} if names else {})
    calls = (Call("image_generation", json.dumps(arguments), "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("There."))
    return world.create("chat", tools=[{"type": "image_generation", **tool}], input=input)


DRAWN_WITH: Json = {
    "background": "opaque",
    "complexity": "high",
    "model": "gpt-image-2",
    "moderation": "low",
    "output_compression": 80,
    "output_format": "jpeg",
    "quality": "low",
    "size": "1024x1536",
}


@row("tool", "image_generation", *(f"image_generation.{name}" for name in DRAWN_WITH))
def image_generation(world: World) -> None:
    response = pictured(world, DRAWN_WITH)
    call = response["output"][0]
    assert (call["type"], call["status"]) == ("image_generation_call", "completed")
    assert call["result"] == encoded(png("A lighthouse", 16, 24))
    assert world.drawing.asked[-1] == {"prompt": "A lighthouse", **DRAWN_WITH}
    assert response["tools"][0].items() >= DRAWN_WITH.items()


@row("tool", "image_generation.partial_images")
def partial_images(world: World) -> None:
    calls = (Call("image_generation", '{"prompt": "A lighthouse"}', "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("There."))
    events = world.stream(model="chat", tools=[{"type": "image_generation", "partial_images": 2}])
    partial = [event for event in events if event["type"] == "response.image_generation_call.partial_image"]
    assert [event["partial_image_b64"] for event in partial] == [encoded(png("0")), encoded(png("1"))]
    assert_well_formed(events)


_MASK = "image_generation.input_image_mask"


@row("tool", "image_generation.action", "image_generation.input_fidelity", _MASK, f"{_MASK}.image_url", f"{_MASK}.file_id")
def edited_images(world: World) -> None:
    parts = [{"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": "Turn it blue."}]
    mask = {"image_url": f"data:image/png;base64,{encoded(png('mask'))}"}
    tool: Json = {"action": "edit", "input_fidelity": "high", "input_image_mask": mask}
    call = pictured(world, tool, input=[{"role": "user", "content": parts}])["output"][0]
    asked = world.drawing.asked[-1]
    assert (call["action"], asked["images"]) == ("edit", [base64.b64decode(PIXEL.partition(",")[2])])
    assert (asked["input_fidelity"], asked["mask"]) == ("high", png("mask"))
    answer = world.http.post("/files", files={"file": ("mask.png", png("another"))}, data={"purpose": "user_data"})
    pictured(world, {"input_image_mask": {"file_id": answer.json()["id"]}}, input=[{"role": "user", "content": parts}])
    assert world.drawing.asked[-1]["mask"] == png("another")


@row("tool_choice", "image_generation")
def chosen_image_generation(world: World) -> None:
    sent = world.asked("plain", tools=[{"type": "image_generation"}, FUNCTION], tool_choice={"type": "image_generation"})
    assert sent["tool_choice"] == {"type": "function", "name": "image_generation"}


@row("item", "image_generation_call")
def images_of_before(world: World) -> None:
    """What a client sends back of an image: all of it, or its id."""
    call = pictured(world, {})["output"][0]
    for sent in (call, {"type": "image_generation_call", "id": call["id"]}):
        body = world.asked("plain", input=[sent, {"role": "user", "content": "So?"}])
        function_call, output = body["input"][:2]
        assert function_call["name"] == "image_generation"
        assert json.loads(function_call["arguments"]) == {"prompt": "A lighthouse, in oil"}
        assert call["id"] in output["output"]
        assert call["result"] not in json.dumps(body)


def shelf(world: World) -> tuple[str, dict[str, str]]:
    """A vector store with two files; its id, and theirs by their names."""
    store = world.post("/vector_stores", {"name": "shelf"})["id"]
    ids: dict[str, str] = {}
    for name, text, year in (("oslo.md", "High tide in Oslo is at noon.", 2026), ("bergen.md", "High tide in Bergen is at ten.", 2020)):
        answer = world.http.post("/files", files={"file": (name, text)}, data={"purpose": "assistants"})
        ids[name] = answer.json()["id"]
        world.post(f"/vector_stores/{store}/files", {"file_id": ids[name], "attributes": {"year": year}})
    until(lambda: world.get(f"/vector_stores/{store}")["file_counts"]["completed"] == 2)
    return store, ids


QUERIES = ["high tide in oslo", "oslo"]


def looked_up(world: World, answer: str = "So.", **tool: Any) -> list[Json]:
    """What becomes of a call of the tool."""
    calls = (Call("file_search", json.dumps({"queries": QUERIES}), "call_1"),)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said(answer))
    response = world.create("chat", tools=[{"type": "file_search", **tool}], include=["file_search_call.results"])
    return list(response["output"])


_RANKING = ("ranker", "score_threshold", "hybrid_search", "hybrid_search.embedding_weight", "hybrid_search.text_weight")


@row("tool", "file_search", *(f"file_search.{name}" for name in ("vector_store_ids", "filters", "max_num_results", "ranking_options")))
@row("tool", *(f"file_search.ranking_options.{name}" for name in _RANKING))
@row("tool_choice", "file_search")
@row("item", "file_search_call")
def file_search(world: World) -> None:
    store, ids = shelf(world)
    call, message = looked_up(world, f"At noon【fs:{ids['oslo.md']}】.", vector_store_ids=[store])
    assert [(result["filename"], result["attributes"], result["text"]) for result in call["results"]] == [
        ("oslo.md", {"year": 2026}, "High tide in Oslo is at noon."),
        ("bergen.md", {"year": 2020}, "High tide in Bergen is at ten."),
    ]
    (text,) = message["content"]
    cited = {"type": "file_citation", "index": 7, "file_id": ids["oslo.md"], "filename": "oslo.md"}
    assert (text["text"], text["annotations"]) == ("At noon.", [cited])
    between = sum(result["score"] for result in call["results"]) / 2
    old = {"type": "lt", "key": "year", "value": 2025}
    for fields, names in (
        ({"filters": old}, ["bergen.md"]),
        ({"max_num_results": 1}, ["oslo.md"]),
        ({"ranking_options": {"score_threshold": between, "ranker": "auto"}}, ["oslo.md"]),
        ({"ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}}, ["oslo.md", "bergen.md"]),
    ):
        found = looked_up(world, vector_store_ids=[store], **fields)[0]["results"]
        assert [result["filename"] for result in found] == names
    for sent in (call, {name: value for name, value in call.items() if name != "results"}):
        said_before, output = world.asked("plain", input=[sent, {"role": "user", "content": "So?"}])["input"][:2]
        assert (said_before["name"], json.loads(said_before["arguments"])) == ("file_search", {"queries": QUERIES})
        assert "High tide in Oslo is at noon." in output["output"]
    tool = {"type": "file_search", "vector_store_ids": [store]}
    chosen = world.asked("plain", tools=[tool, FUNCTION], tool_choice={"type": "file_search"})
    assert chosen["tool_choice"] == {"type": "function", "name": "file_search"}
    gone = {"type": "file_search", "vector_store_ids": [store, "vs_gone"]}
    refused = world.http.post("/responses", json={"model": "plain", "input": "x", "tools": [gone]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "tools[0].vector_store_ids[1]")


GATED: dict[str, tuple[str, str]] = {
    "code_interpreter": ("python", '{"code":"6 * 7"}'),
    "web_search": ("web_search", '{"action":"search","query":"tides"}'),
    "file_search": ("file_search", '{"queries":["tides"]}'),
    "image_generation": ("image_generation", '{"prompt":"A lighthouse"}'),
}
"""What a model calls, by the type of its tool."""


@row("tool", *(f"{kind}.require_approval" for kind in GATED))
def asked_for_each_call(world: World) -> None:
    """What follows on an answer: tests/unit/loop/test_gated_tools.py."""
    store, _ = shelf(world)
    fields: dict[str, Json] = {"code_interpreter": {"container": {"type": "auto"}}, "file_search": {"vector_store_ids": [store]}}
    for kind, (name, arguments) in GATED.items():
        world.upstream.plays(Reply(calls=(Call(name, arguments, "call_1"),), finish="tool_calls"))
        tool = {"type": kind, "require_approval": "always", **fields.get(kind, {})}
        response = world.create("chat", tools=[tool])
        (request,) = response["output"]
        assert (response["status"], response["tools"][0]["require_approval"], request["type"]) == (
            "completed",
            "always",
            "mcp_approval_request",
        )
        assert (request["server_label"], request["name"], request["arguments"]) == (f"moorage://{kind}", name, arguments)


def server(world: World, **fields: Any) -> Json:
    return {"type": "mcp", "server_label": "depot", "server_url": world.depot_url, **fields}


def remote_tools(world: World, **fields: Any) -> dict[str, str]:
    """What the model is offered of the server: descriptions by name."""
    sent = world.asked("chat", tools=[server(world, **fields)]).get("tools", ())
    return {tool["function"]["name"].removeprefix("depot__"): tool["function"]["description"] for tool in sent}


def remote_calls(world: World, *names: str, **fields: Any) -> list[str]:
    """What becomes of calls of the server's tools."""
    arguments = {"find_part": {"sku": "A-7"}, "order_part": {"sku": "A-7", "count": 1}}
    calls = tuple(Call(f"depot__{name}", json.dumps(arguments[name]), f"call_{name}") for name in names)
    world.upstream.plays(Reply(calls=calls, finish="tool_calls"), said("end"))
    return [item["type"] for item in world.create("chat", tools=[server(world, **fields)])["output"]]


@row("tool", "mcp", "mcp.server_label", "mcp.server_url", "mcp.server_description", "mcp.allowed_callers")
def remote_server(world: World) -> None:
    assert remote_tools(world, allowed_callers=["direct"])["find_part"] == "Look a part up."
    for_programs = server(world, allowed_callers=["programmatic"], require_approval="never")
    (offered,) = world.asked("chat", tools=[{"type": "programmatic_tool_calling"}, for_programs])["tools"]
    assert "tools.depot__find_part(" in offered["function"]["description"]
    assert remote_tools(world, server_description="Spare parts.")["find_part"] == "Spare parts.\nLook a part up."
    shown = world.create("chat", tools=[server(world)])["tools"][0]
    assert (shown["server_label"], shown["server_url"]) == ("depot", world.depot_url.removesuffix("mcp") + "<redacted>")


@row("tool", "mcp.defer_loading")
def deferred_server(world: World) -> None:
    hidden = server(world, defer_loading=True, require_approval="never", server_description="Spare parts.")
    world.upstream.plays(
        called("tool_search", {"query": "look a part up", "limit": 1}), called("depot__find_part", {"sku": "A-1"}), said("14.")
    )
    response = world.create("chat", tools=[{"type": "tool_search"}, hidden])
    listed, _, found, ran, _ = response["output"]
    assert response["tools"][1]["defer_loading"] is True
    assert (len(listed["tools"]) > 1, found["tools"]) == (
        True,
        [{"type": "mcp", "server_label": "depot", "allowed_tools": ["find_part"]}],
    )
    sent = [[tool["function"]["name"] for tool in request.body["tools"]] for request in world.upstream.requests[-3:]]
    assert sent == [["tool_search"], *[["tool_search", "depot__find_part"]] * 2]
    assert "- depot: Spare parts." in world.upstream.requests[-3].body["tools"][0]["function"]["description"]
    assert "14 of A-1" in ran["output"]


@row("tool", "mcp.environment")
def container_of_the_workspace(world: World) -> None:
    container_id = world.http.post("/containers", json={"name": "mine"}).json()["id"]
    environment = {"type": "container_reference", "container_id": container_id}
    built_in = {"type": "mcp", "server_label": "ws", "server_url": "moorage://workspace", "require_approval": "never"}
    world.upstream.plays(Reply(calls=(Call("exec_command", '{"cmd": "pwd"}', "call_1"),), finish="tool_calls"), said("end"))
    response = world.create("chat", tools=[built_in | {"environment": environment}])
    assert (response["tools"][0]["environment"], response["output"][1]["container_id"]) == (environment, container_id)
    assert response["output"][1]["output"].endswith("Output:\n/mnt/data\n")


@row("tool", "mcp.authorization", "mcp.headers")
def keys_of_a_server(world: World) -> None:
    world.depot.headers.clear()
    response = world.create("chat", tools=[server(world, authorization="t0ken", headers={"X-Team": "s3cret"})])
    assert {(sent["authorization"], sent["x-team"]) for sent in world.depot.headers} == {("Bearer t0ken", "s3cret")}
    assert not any(key in json.dumps([response, world.upstream.requests[-1].body]) for key in ("t0ken", "s3cret"))


@row("tool", "mcp.allowed_tools", "mcp.allowed_tools.tool_names", "mcp.allowed_tools.read_only")
def allowed_remote_tools(world: World) -> None:
    assert list(remote_tools(world, allowed_tools=["order_part"])) == ["order_part"]
    assert list(remote_tools(world, allowed_tools={"tool_names": ["order_part"]})) == ["order_part"]
    assert list(remote_tools(world, allowed_tools={"read_only": True})) == ["find_part", "picture"]


_ASKED, _RAN = "mcp_approval_request", "mcp_call"
_BOTH = {"tool_names": ["find_part", "order_part"]}
APPROVALS: dict[str, tuple[Any, list[str]]] = {
    "": ("always", [_ASKED, _ASKED]),
    ".never": ({"never": _BOTH}, [_RAN, _RAN]),
    ".never.tool_names": ({"never": {"tool_names": ["order_part"]}}, [_ASKED, _RAN]),
    ".never.read_only": ({"never": {"read_only": True}}, [_RAN, _ASKED]),
    ".always": ({"never": _BOTH, "always": _BOTH}, [_ASKED, _ASKED]),
    ".always.tool_names": ({"never": _BOTH, "always": {"tool_names": ["find_part"]}}, [_ASKED, _RAN]),
    ".always.read_only": ({"never": _BOTH, "always": {"read_only": False}}, [_RAN, _ASKED]),
}


def approval_of_remote_calls(world: World, approval: Any, expected: list[str]) -> None:
    world.upstream.forget()
    assert remote_calls(world, "find_part", "order_part", require_approval=approval)[1:3] == expected


for name, (approval, expected) in APPROVALS.items():
    row("tool", f"mcp.require_approval{name}")(partial(approval_of_remote_calls, approval=approval, expected=expected))


@row("tool_choice", "mcp")
def chosen_server(world: World) -> None:
    choice = {"type": "mcp", "server_label": "depot", "name": "find_part"}
    assert world.asked("plain", tools=[server(world)], tool_choice=choice)["tool_choice"] == {
        "type": "function",
        "name": "depot__find_part",
    }


@row("item", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response")
def remote_items(world: World) -> None:
    """A history that the client keeps: the server is asked for no list, the denial is read, the allowed call runs."""
    world.depot.orders.clear()
    listed = {"name": "order_part", "input_schema": {"type": "object"}}
    named = {"server_label": "depot", "name": "order_part"}
    history = [
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "depot", "tools": [listed]},
        {"type": "mcp_call", "id": "mcp_1", **named, "arguments": '{"sku": "A-1"}', "output": "ordered long ago"},
        {"type": "mcp_approval_request", "id": "mcpr_1", **named, "arguments": '{"sku": "A-7", "count": 2}'},
        {"type": "mcp_approval_request", "id": "mcpr_2", **named, "arguments": '{"sku": "B-8", "count": 9}'},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": False, "reason": "Too many."},
    ]
    response = world.create("chat", input=history, tools=[server(world)], store=False)
    assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]
    assert world.depot.orders == [("A-7", 2)]
    read = [message["content"] for message in world.upstream.requests[-1].body["messages"] if message["role"] == "tool"]
    assert (read[0], "Too many." in read[1], read[2]) == ("ordered long ago", True, "ordered 2 of A-7")
