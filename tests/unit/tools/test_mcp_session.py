"""Real servers over real HTTP: those that speak every form of the protocol, and those that do what they should not."""

import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import orjson
import pytest
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context, MCPServer
from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.tools.mcp import session
from moorage.tools.mcp.servers import McpServer
from moorage.tools.mcp.session import McpCallOutcome, ServerFailure
from pydantic import BaseModel

from tests.mcp_servers import LOOPBACK, Depot, Odd, Running, depot_server, serving

KINDS = ("streamable", "json", "stateless", "sse")


def fetcher(running: Running) -> Fetcher:
    """An operator's who lets requests reach this machine."""
    return Fetcher(allowed_networks=LOOPBACK, ports=(running.port,))


@asynccontextmanager
async def odd_server(odd: Odd) -> AsyncIterator[tuple[McpServer, Fetcher]]:
    async with serving(odd) as running:
        yield McpServer(f"{running.url}/mcp"), fetcher(running)


async def failure_of(odd: Odd) -> dict[str, Any]:
    async with odd_server(odd) as (server, way):
        with pytest.raises(ServerFailure) as failed:
            await session.list_tools(server, way)
        return failed.value.error


async def failed_call(odd: Odd, **options: Any) -> dict[str, Any]:
    async with odd_server(odd) as (server, way):
        with pytest.raises(ServerFailure) as failed:
            await session.call_tool(server, way, "any", {}, **options)
        return failed.value.error


OTHER_IDS: dict[str, dict[str, Any]] = {
    "another id": {"id": 999},
    "the id of the first request": {"id": 1},
    "null": {"id": None},
    "none": {},
}


@pytest.mark.parametrize("says_changed", [False, True], ids=["a body", "an event"])
@pytest.mark.parametrize("said", OTHER_IDS.values(), ids=OTHER_IDS)
async def test_an_answer_without_the_id_of_the_call_is_no_result(said: dict[str, Any], says_changed: bool) -> None:
    assert await failed_call(Odd(ids={"tools/call": said}, says_changed=says_changed)) == {
        "type": "mcp_protocol_error",
        "code": types.CONNECTION_CLOSED,
        "message": "tools/call: the server's answer does not have the id of the request",
    }


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_list_without_the_id_of_its_request_is_none(method: str) -> None:
    failure = await failure_of(Odd(ids={method: {"id": 999}}))
    phase = "connect" if method == "initialize" else method
    assert failure["message"] == f"{phase}: the server's answer does not have the id of the request"


MANY = limits.MCP_MESSAGE_VALUES_MAX


async def test_a_message_of_too_many_values_is_refused_before_the_sdk_reads_it() -> None:
    words = f"the server sent a message of more than {MANY} values"
    text = {"type": "text", "text": "a"}
    refused = {"type": "mcp_protocol_error", "code": types.CONNECTION_CLOSED}
    assert await failed_call(Odd(result={"content": [text] * (MANY // 2)})) == refused | {"message": f"tools/call: {words}"}
    assert await failed_call(Odd(result={"content": [text | {"annotations": {"audience": ["user"] * MANY}}]})) == refused | {
        "message": f"tools/call: {words}"
    }
    tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(MANY // 2)]
    assert await failure_of(Odd(tools=tools)) == refused | {"message": f"tools/list: {words}"}


async def test_schemas_and_structured_results_may_have_more_values() -> None:
    async with odd_server(Odd(tools=[{"name": "t", "inputSchema": {"type": "object", "enum": [1] * MANY}}])) as (server, way):
        (listed,) = await session.list_tools(server, way)
        assert listed["input_schema"] == {"type": "object", "enum": [1] * MANY}
    async with odd_server(Odd(result={"content": [], "structuredContent": {"n": [1] * MANY}})) as (server, way):
        found = await session.call_tool(server, way, "any", {})
        assert found == McpCallOutcome(output=json.dumps({"n": [1] * MANY}, separators=(",", ":")))


class Watched(dict[str, Any]):
    """An object that notes the threads of its readers."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[int] = set()

    def items(self) -> Any:
        self.readers.add(threading.get_ident())
        return super().items()


@pytest.mark.parametrize("size", [1, limits.LOWERED_HERE_MAX + 1])
async def test_a_long_result_is_written_on_a_thread(size: int) -> None:
    watched = Watched()
    result = types.CallToolResult.model_construct(content=[], structured_content={"n": [1] * size, "watched": watched}, is_error=False)
    await session.outcome_of(result, tools_changed=False)
    assert (watched.readers == {threading.get_ident()}) is (size == 1)
    assert len(watched.readers) == 1


# --- servers as they should be ---


@pytest.mark.parametrize("kind", KINDS)
async def test_every_transport_and_era_is_spoken(kind: str) -> None:
    depot = Depot()
    async with depot_server(depot, kind=kind) as running:
        server = McpServer(f"{running.url}/{'sse' if kind == 'sse' else 'mcp'}", {"Authorization": "Bearer abc", "X-Depot": "7"})
        tools = await session.list_tools(server, fetcher(running))
        found = await session.call_tool(server, fetcher(running), "find_part", {"sku": "A-7"})
    assert [tool["name"] for tool in tools] == ["broken", "find_part", "order_part", "picture"]
    assert (tools[1]["description"], tools[1]["annotations"]) == ("Look a part up.", {"read_only": True})
    assert tools[1]["input_schema"]["required"] == ["sku"]
    assert (found, depot.lookups) == (McpCallOutcome("14 of A-7 in stock"), ["A-7"])
    assert {(sent["authorization"], sent["x-depot"], sent["accept-encoding"]) for sent in depot.headers} == {
        ("Bearer abc", "7", "identity")
    }
    assert {sent["host"] for sent in depot.headers} == {f"localhost:{running.port}"}


async def test_results_are_text_or_all_parts_and_errors_of_a_tool_are_its_own() -> None:
    depot = Depot()
    async with depot_server(depot) as running:
        server, way = McpServer(f"{running.url}/mcp"), fetcher(running)
        picture = await session.call_tool(server, way, "picture", {})
        broken = await session.call_tool(server, way, "broken", {})
        ordered = await session.call_tool(server, way, "order_part", {"sku": "A-7", "count": 2})
    assert picture.output is not None
    (part,) = json.loads(picture.output)
    assert (part["type"], part["mimeType"]) == ("image", "image/png")
    assert broken.error == {
        "type": "mcp_tool_execution_error",
        "content": [{"type": "text", "text": "Error executing tool broken"}],
    }
    assert (ordered.output, depot.orders) == ("ordered 2 of A-7", [("A-7", 2)])


async def test_a_servers_resources_are_read_by_tools() -> None:
    async with depot_server(Depot(), with_resources=True) as running:
        server, way = McpServer(f"{running.url}/mcp"), fetcher(running)
        names = [tool["name"] for tool in await session.list_tools(server, way)]
        listed = await session.call_tool(server, way, "list_mcp_resources", {})
        read = await session.call_tool(server, way, "read_mcp_resource", {"uri": "depot://manual"})
        with pytest.raises(ServerFailure) as missing:
            await session.call_tool(server, way, "read_mcp_resource", {"uri": "depot://nothing"})
    assert {"list_mcp_resources", "read_mcp_resource"} <= set(names)
    assert listed.output is not None
    assert json.loads(listed.output)["resources"][0]["uri"] == "depot://manual"
    assert (read.output, missing.value.error["type"]) == ("Keep it dry.", "mcp_protocol_error")


async def test_a_server_that_only_has_something_to_read_is_read() -> None:
    async def listed(*_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="manual", uri="depot://manual")])

    async def read(*_: Any) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri="depot://manual", text="Keep it dry.")])

    made: Any = LowLevelServer("library", on_list_resources=listed, on_read_resource=read)
    async with serving(made.streamable_http_app(stateless_http=True)) as running:
        server, way = McpServer(f"{running.url}/mcp"), fetcher(running)
        assert [tool["name"] for tool in await session.list_tools(server, way)] == ["list_mcp_resources", "read_mcp_resource"]
        called = await session.call_tool(server, way, "read_mcp_resource", {"uri": "depot://manual"})
    assert called == McpCallOutcome("Keep it dry.")


async def test_a_call_that_meets_no_session_is_made_in_a_new_one() -> None:
    odd = Odd(session="s1", forgets=1, result={"content": [{"type": "text", "text": "done"}]})
    async with odd_server(odd) as (server, way):
        found = await session.call_tool(server, way, "any", {"n": 1})
    assert (found, odd.called, odd.asked.count("initialize")) == (McpCallOutcome("done"), [{"n": 1}], 2)


@pytest.mark.parametrize("odd", [Odd(session="s1", forgets=2), Odd(forgets=1)], ids=["again and again", "without a session"])
async def test_a_call_that_finds_nothing_fails(odd: Odd) -> None:
    await failed_call(odd)
    assert (odd.called, odd.forgets) == ([], 0)


async def test_the_list_is_in_one_order_however_the_server_sorts_it() -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("c", "a", "b", "a")]
    async with odd_server(Odd(tools=tools)) as (server, way):
        assert [tool["name"] for tool in await session.list_tools(server, way)] == ["a", "b", "c"]


async def test_a_list_can_be_stored_and_sent_back_whatever_the_server_says() -> None:
    huge = {"type": "object", "properties": {"n": {"type": "integer", "minimum": -(2**63), "maximum": 2**80, "default": 10**400}}}
    names = ("", "x" * (limits.NAME_CHARS_MAX + 1), "x" * limits.NAME_CHARS_MAX)
    odd = Odd(tools=[{"name": name, "inputSchema": huge} for name in names])
    async with odd_server(odd) as (server, way):
        (tool,) = await session.list_tools(server, way)
    assert tool["name"] == names[-1]
    assert tool["input_schema"]["properties"]["n"] == {"type": "integer", "minimum": -(2**63), "maximum": float(2**80), "default": None}
    assert orjson.dumps(tool)


async def test_a_result_can_be_stored_whatever_numbers_are_in_it() -> None:
    async with odd_server(Odd(result={"content": [], "structuredContent": {"n": [2**80, 2**64 - 1]}})) as (server, way):
        called = await session.call_tool(server, way, "any", {})
    assert json.loads(called.output or "") == {"n": [float(2**80), 2**64 - 1]}


async def test_a_server_may_say_that_its_list_has_changed() -> None:
    async with odd_server(Odd(says_changed=True)) as (server, way):
        assert await session.call_tool(server, way, "any", {}) == McpCallOutcome("done", tools_changed=True)


async def test_arguments_arrive_as_they_were_written() -> None:
    odd = Odd()
    async with odd_server(odd) as (server, way):
        await session.call_tool(server, way, "any", {"nothing": None, "inner": {"deep": [1, None, "ü"]}})
    assert odd.called == [{"nothing": None, "inner": {"deep": [1, None, "ü"]}}]


# --- servers as they should not be ---

ODD = {
    "an error of HTTP": (
        Odd(status={"tools/list": 502}),
        {"type": "http_error", "code": 502, "message": "tools/list: the server answered 502"},
    ),
    "no entry": (
        Odd(status={"server/discover": 401, "initialize": 401}),
        {"type": "http_error", "code": 401, "message": "connect: the server answered 401"},
    ),
    "a broken connection": (
        Odd(cuts_at="tools/list"),
        {"type": "mcp_protocol_error", "code": -32000, "message": "tools/list: the connection broke"},
    ),
    "a flood": (
        Odd(flood_at="tools/list"),
        {
            "type": "mcp_protocol_error",
            "code": -32000,
            "message": f"tools/list: the server sent more than {limits.MCP_CONNECTION_BYTES_MAX} bytes",
        },
    ),
    "no JSON": (
        Odd(raw={"tools/list": b"<html>"}),
        {
            "type": "mcp_protocol_error",
            "code": -32700,
            "message": "tools/list: what the server sent does not have the form of the protocol",
        },
    ),
    "a schema that is none": (
        Odd(tools=[{"name": "a", "inputSchema": "any"}]),
        {
            "type": "mcp_protocol_error",
            "code": -32700,
            "message": "tools/list: what the server sent does not have the form of the protocol",
        },
    ),
    "too many tools": (
        Odd(tools=[{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(limits.MCP_TOOLS_MAX + 1)]),
        {"type": "mcp_protocol_error", "code": -32603, "message": f"tools/list: it lists more than {limits.MCP_TOOLS_MAX} tools"},
    ),
    "pages without end": (
        Odd(next_cursor="again"),
        {"type": "mcp_protocol_error", "code": -32603, "message": f"tools/list: it lists more than {limits.MCP_TOOLS_MAX} tools"},
    ),
    "an error of HTTP with words": (
        Odd(errors={"tools/list": {"code": -32600, "message": "no session"}}, statuses={"tools/list": 400}),
        {"type": "http_error", "code": 400, "message": "tools/list: the server answered 400: no session"},
    ),
    "an error of the protocol": (
        Odd(errors={"tools/list": {"code": -32001, "message": "not today"}}),
        {"type": "mcp_protocol_error", "code": -32001, "message": "tools/list: not today"},
    ),
}


@pytest.mark.parametrize(("odd", "error"), ODD.values(), ids=ODD)
async def test_what_goes_wrong_is_said_with_the_phase_and_the_code(odd: Odd, error: dict[str, Any]) -> None:
    assert await failure_of(odd) == error


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest", "http://127.0.0.1:22/", "https://elsewhere.example/mcp"])
async def test_a_redirect_away_from_the_server_is_not_followed(target: str) -> None:
    odd = Odd(redirect=target)
    error = await failure_of(odd)
    assert (error["type"], error["code"]) == ("mcp_protocol_error", -32600)
    assert "not followed" in error["message"]
    assert set(odd.asked) == {"server/discover", "initialize"}


async def test_a_redirect_to_itself_ends() -> None:
    odd = Odd(redirect="/mcp")
    await failure_of(odd)
    assert len(odd.asked) <= 2 * (limits.FETCH_REDIRECTS_MAX + 1)


async def test_a_compressed_answer_is_not_taken() -> None:
    error = await failure_of(Odd(encoding="gzip"))
    assert error["message"] == "connect: the server sent it compressed without being asked"


async def test_a_server_that_hangs_is_left_after_a_while() -> None:
    odd = Odd(hangs_at="server/discover")
    assert await failed_call(odd, seconds=0.2) == {
        "type": "mcp_protocol_error",
        "code": -32001,
        "message": "connect: it took longer than 0.2 seconds",
    }


async def test_a_result_is_taken_although_the_server_hangs_at_the_end_of_the_session() -> None:
    odd = Odd(session="s1", hangs_at="DELETE")
    async with odd_server(odd) as (server, way):
        assert await session.call_tool(server, way, "any", {}, seconds=30) == McpCallOutcome("done")
        odd.released.set()


async def test_an_error_is_told_although_the_server_hangs_at_the_end_of_the_session() -> None:
    odd = Odd(session="s1", hangs_at="DELETE", errors={"tools/call": {"code": -32050, "message": "not today"}})
    error = await failed_call(odd, seconds=30)
    assert error == {"type": "mcp_protocol_error", "code": -32050, "message": "tools/call: not today"}


async def test_nobody_answers_a_server_that_asks_back() -> None:
    async def asking(*_: Any) -> types.InputRequiredResult:
        return types.InputRequiredResult(request_state="x", input_requests={})

    async def nothing(*_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    made: Any = LowLevelServer("asking", on_call_tool=asking, on_list_resources=nothing, on_read_resource=asking)
    async with serving(made.streamable_http_app(stateless_http=True)) as running:
        server, way = McpServer(f"{running.url}/mcp"), fetcher(running)
        for name, arguments, phase in (("ask", {}, "tools/call"), ("read_mcp_resource", {"uri": "a://b"}, "resources/read")):
            with pytest.raises(ServerFailure) as failed:
                await session.call_tool(server, way, name, arguments)
            assert (failed.value.error["type"], failed.value.error["code"]) == ("mcp_protocol_error", -32021)
            assert str(failed.value).startswith(f"{phase}: the server wants to ask something back")


@pytest.mark.parametrize("is_stateless", [True, False])
async def test_a_tool_that_wants_to_ask_a_person_fails_and_does_not_wait(is_stateless: bool) -> None:
    class Who(BaseModel):
        name: str

    made = MCPServer("asking")

    @made.tool()
    async def ask(context: Context) -> str:
        """Ask."""
        return str(await context.elicit("Who?", Who))

    async with serving(made.streamable_http_app(stateless_http=is_stateless)) as running:
        with pytest.raises(ServerFailure) as failed:
            await session.call_tool(McpServer(f"{running.url}/mcp"), fetcher(running), "ask", {})
    assert "elicitation/create" in failed.value.error["message"]


async def test_a_call_whose_connection_breaks_is_sent_once() -> None:
    odd = Odd(cuts_at="tools/call")
    error = await failed_call(odd)
    assert (error["code"], odd.asked.count("tools/call")) == (-32000, 1)


# --- where servers may be ---

FORBIDDEN = {
    "http://127.0.0.1/mcp": "its host is not a public address",
    "http://localhost/mcp": "its host is not a public address",
    "http://[::1]/mcp": "its host is not a public address",
    "http://10.1.2.3/mcp": "its host is not a public address",
    "http://169.254.169.254/mcp": "its host is not a public address",
    "http://[::ffff:169.254.169.254]/mcp": "its host is not a public address",
    "http://localhost:8000/mcp": "port 8000 is not allowed",
}


@pytest.mark.parametrize(("url", "why"), FORBIDDEN.items())
async def test_a_request_reaches_no_private_place(url: str, why: str) -> None:
    with pytest.raises(ServerFailure) as refused:
        await session.list_tools(McpServer(url), Fetcher())
    assert refused.value.error == {"type": "mcp_protocol_error", "code": -32000, "message": f"connect: {why}"}


async def test_the_operators_own_server_may_be_private_but_is_no_metadata_service() -> None:
    async with depot_server(Depot()) as running:
        mine = McpServer(f"http://127.0.0.1:{running.port}/mcp", is_operators=True)
        assert len(await session.list_tools(mine, Fetcher())) == 4
    with pytest.raises(ServerFailure, match="not a public address"):
        await session.list_tools(McpServer("http://169.254.169.254/mcp", is_operators=True), Fetcher())


async def test_a_name_is_looked_up_once_and_its_address_kept() -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    async with depot_server(Depot()) as running:
        way = Fetcher(allowed_networks=LOOPBACK, ports=(running.port,), addresses=rebinding)
        assert len(await session.list_tools(McpServer(f"{running.url}/mcp"), way)) == 4
    assert asked == ["localhost"]


FIRST_CONNECTION = """
import asyncio, sys
import moorage.tools.mcp.session
import httpx2

async def connect():
    transport = httpx2.AsyncHTTPTransport(verify=False, trust_env=False)
    try:
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            await client.get("http://127.0.0.1:1/")
    except httpx2.ConnectError:
        print(sorted(sys.modules.keys() - before))

before = set(sys.modules)
asyncio.run(connect())
"""


def test_a_first_connection_imports_nothing_on_the_event_loop() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CONNECTION], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
