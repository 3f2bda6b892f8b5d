"""Remote MCP servers: their tools are listed before the model is asked, and called outside of the sandboxes' network.

    {"type": "mcp_list_tools", "id", "server_label", "tools", "error"}            what a server offers, once in a conversation
    {"type": "mcp_call", "id", "status", "approval_request_id", "arguments", "error", "name", "output", "server_label"}
    {"type": "mcp_approval_request", "id", "arguments", "name", "server_label"}   the response ends with it
    {"type": "mcp_approval_response", "approval_request_id", "approve", "reason"} the client's; the call runs before a model is asked

A list is read from the conversation as long as it stands there, so that the prompt stays equal and no server is asked twice. Whatever a
server does, the response goes on: what went wrong stands in its items, and the model reads it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import orjson

from moorage import errors, limits
from moorage.model.remote_servers import RemoteServers
from moorage.parallel import imported
from moorage.tools import approval_items
from moorage.tools.calls import (
    NOT_ALLOWED,
    CallApproval,
    CallEnd,
    CallFinished,
    CallLogNote,
    CallOpening,
    ItemPosition,
    KnownCall,
    OfferedFunction,
    OfferedFunctions,
    Piece,
    ToolKey,
)
from moorage.tools.capabilities import (
    AsksApproval,
    HasApprovalItems,
    HoldsSecrets,
    KeepsItems,
    OffersFunctions,
    PreparesSteps,
    RunsInContainer,
    Stage,
    ValidatesItems,
)
from moorage.tools.function_items import compact_json, message, parsed
from moorage.tools.mcp import deferring, listing, network, shapes
from moorage.tools.mcp.servers import McpServer, concealed
from moorage.tools.mcp.workspace import gate, plan, questions, search, toolset
from moorage.tools.room import CallLimits, CallRunner, HostedTool, InputWriter, RerunPolicy
from moorage.tools.run import Run, StoppingPlace
from moorage.tools.tool_search.ranking import DeferredTool
from moorage.wire.item import program_of
from moorage.wire.types import Event, Item, Tool

_LIST: Final = "mcp_list_tools"
_CALL: Final = "mcp_call"
_REQUEST: Final = approval_items.REQUEST
_RESPONSE: Final = approval_items.RESPONSE

_CHANGED: Final = "tools_changed"
"""A note in a call's item, for the next model step: the server has said that its list is not true any more. Nobody else sees it."""

_BROKEN_OFF: Final = "The list was not read to its end."

WORDS: Final = MappingProxyType(
    {
        CallEnd.REFUSED: "The call was not run: too many calls were made.",
        CallEnd.DENIED: NOT_ALLOWED,
        CallEnd.LOST: "The connection was lost: the call may have been run, and nobody knows what came of it.",
        CallEnd.GAVE_UP: "The call could not be run.",
        CallEnd.CANCELLED: "The call was cancelled.",
        CallEnd.TIME_OVER: "The server gave no result in time; the call may still be running there.",
        CallEnd.TOO_LARGE: "The result is too large.",
    }
)
_CODES: Final = {CallEnd.TIME_OVER: -32001, CallEnd.LOST: -32000, CallEnd.CANCELLED: -32000}
"""Of the SDK: a request that took too long, a connection that closed. All others are internal errors of JSON-RPC."""


class Mcp(
    HostedTool,
    AsksApproval,
    HasApprovalItems,
    PreparesSteps,
    OffersFunctions,
    HoldsSecrets,
    ValidatesItems,
    RunsInContainer,
    KeepsItems,
):
    types = ("mcp",)
    call_type = _CALL
    approval_request_type = _REQUEST
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"mcp": shapes.McpTool})
    item_tool_shapes = MappingProxyType({"mcp": shapes.BroughtServer})
    choice_shapes = MappingProxyType({"mcp": shapes.ChosenServer})
    item_shapes = MappingProxyType(
        {
            _CALL: shapes.McpCall,
            _LIST: shapes.McpListTools,
            _REQUEST: shapes.McpApprovalRequest,
            _RESPONSE: shapes.McpApprovalResponse,
        }
    )
    listing_defaults = MappingProxyType(
        {
            _CALL: {"status": "completed", "approval_request_id": None, "error": None, "output": None},
            _LIST: {"error": None},
            _RESPONSE: {"reason": None},
        }
    )
    events = shapes.EVENTS
    obfuscated_events = frozenset({"mcp_call_arguments.delta"})
    may_run_upstream = False
    """An upstream that runs it would get the servers' keys, and the operator's rules would not hold there."""
    rerun_policy = RerunPolicy.ONCE
    call_limits = CallLimits(seconds=limits.MCP_CALL_SECONDS_MAX + 30, bytes=limits.MCP_OUTPUT_BYTES_MAX)
    """The session ends itself first, and says in which phase it was."""
    end_messages = WORDS
    pauses_in_place = False
    """OpenAI's clients look for the request at the end of the response."""

    def __init__(self, askers: Iterable[approval_items.ApprovalAsker] = ()) -> None:
        """``askers`` are other rooms that ask in this one's form."""
        self._askers = {asker.label: asker for asker in (*askers, network.NetworkApprovals())}

    # --- a request ---

    def extract_secrets(self, tool: Tool, handle: str, configured: RemoteServers) -> tuple[Tool, Mapping[str, str]]:
        if toolset.is_workspace(tool):
            return tool, {}
        if "server_url" in tool:
            if not configured.allow(tool["server_url"]):
                raise errors.bad_request(
                    f"The operator of this deployment does not allow the host of the server '{tool['server_label']}'.", param="tools"
                )
            return concealed(tool, McpServer.of_request(tool), handle)
        server = configured.by_label.get(tool["server_label"])
        if server is None:
            raise errors.bad_request(
                f"The server '{tool['server_label']}' has no 'server_url', and this deployment knows none by that label.",
                param="tools",
            )
        own = next((name for name in ("authorization", "headers") if name in tool), None)
        if own is not None:
            raise errors.bad_request(
                f"The server '{tool['server_label']}' is this deployment's own, with its own key: leave '{own}' out, or send a "
                "'server_url'.",
                param="tools",
            )
        return concealed(tool, McpServer.of_operator(server), handle)

    def is_repeatable(self, tool: Tool) -> bool:
        """The address of a server that a request has named may hold a key too; the operator's servers are known by their labels."""
        return "server_url" not in tool or toolset.is_workspace(tool)

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        """An approval must answer a call that was asked for, once, and of a server that is there."""
        deferring.admit(items, tools)
        if not any(approval_items.responses(items)):
            return
        asked = approval_items.asked((*chain, *items))
        answered = {item["approval_request_id"] for item in approval_items.responses(chain)}
        labels = {*(tool["server_label"] for tool in tools), *self._askers}
        ran = _run_ids(items)
        for index, item in enumerate(items):
            if item["type"] != _RESPONSE:
                continue
            param, request_id = f"input[{index}].approval_request_id", item["approval_request_id"]
            if request_id not in asked:
                raise errors.bad_request(f"No approval request found with id '{request_id}'.", param=param)
            if request_id in answered:
                raise errors.bad_request(f"The approval request '{request_id}' has been answered already.", param=param)
            answered.add(request_id)
            label = asked[request_id]["server_label"]
            if item["approve"] and label not in labels and request_id not in ran:
                raise errors.bad_request(f"The server '{label}' of this call is not among 'tools'.", param="tools")

    def may_ask(self, tool: Tool) -> bool:
        """As at OpenAI, it does unless it is said that it does not."""
        return bool(tool.get("require_approval", "always") != "never")

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.SANDBOX if toolset.is_workspace(thing) or toolset.runs_in_container(thing) else CallRunner.SERVICE

    # --- before a model is asked ---

    def approval_decision(self, item: Item) -> CallApproval | None:
        return approval_items.verdict(item)

    def needs_preparation(self, said: Sequence[Item]) -> bool:
        return True

    async def prepare_step(self, stage: Stage) -> None:
        self._run_approved(stage)
        await self._list(stage)

    def _run_approved(self, stage: Stage) -> None:
        """Calls that this request allows, in the order of its approvals; each once, with any result."""
        asked = {item["id"]: item for item in stage.items if item["type"] == _REQUEST}
        ran = _run_ids((*stage.own_input, *stage.made))
        for item in stage.own_input:
            if item["type"] != _RESPONSE or not item["approve"] or item["approval_request_id"] in ran:
                continue
            request = asked[item["approval_request_id"]]
            if request["server_label"] in self._askers:
                continue
            said = {key: request[key] for key in ("server_label", "name", "arguments")}
            here = toolset.mark(stage.tools, request["server_label"], request["name"])
            stage.call({"type": _CALL, **said, **here, "approval_request_id": request["id"]})

    async def _list(self, stage: Stage) -> None:
        """The tools of each server that the model does not have in front of it; all at once."""
        missing = [tool for tool in stage.tools if _wants_list(tool, stage)]
        opened = [stage.add({"type": _LIST, "server_label": tool["server_label"], "tools": []}) for tool in missing]
        for place in opened:
            stage.say(place.event("mcp_list_tools.in_progress"))
        reads = [asyncio.ensure_future(_listed(tool, stage)) for tool in missing]
        try:
            for tool, place, read in zip(missing, opened, reads, strict=True):
                found = await read
                item = {"id": place.item_id, "type": _LIST, "server_label": tool["server_label"], **found}
                stage.say(place.event("mcp_list_tools.failed" if "error" in found else "mcp_list_tools.completed"))
                stage.done(place, item)
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

    # --- what models read ---

    def function_tool(self, name: str, tool: Tool) -> Tool:
        raise AssertionError("a server's tools are offered by its list")

    def offered_functions(self, item: Item, tools: Sequence[Tool]) -> OfferedFunctions | None:
        label = item.get("server_label")
        tool = next((tool for tool in tools if tool["server_label"] == label), None)
        if item["type"] != _LIST or item.get("error") or tool is None:
            return None
        return OfferedFunctions(
            tool["server_label"],
            tuple(_offered(tool, listed) for listed in item["tools"] if deferring.is_offered(tool, listed)),
            tool.get("server_description") or "",
        )

    def deferred_functions(self, tool: Tool, kept_back: Iterable[ToolKey]) -> Iterable[ToolKey]:
        return deferring.brought(tool, kept_back)

    def discovered_functions(self, item: Item, tools: Sequence[Tool]) -> Iterable[ToolKey]:
        """By the workspace's search; a remote server that has one of this name finds nothing here."""
        is_ours = search.is_search(item) and toolset.of_label(tools, item["server_label"]) is not None
        return search.found(item) if is_ours else ()

    async def deferred(self, tools: Sequence[Tool], earlier: AsyncIterator[Item]) -> list[DeferredTool]:
        return await deferring.deferred(tools, earlier)

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict):
            return None
        return {"arguments": arguments if arguments.lstrip().startswith("{") else compact_json(value)}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        match item["type"]:
            case t if t == _CALL and item["server_label"] == network.LABEL:
                return network.read(item)
            case t if t == _CALL:
                told = search.shown(item, reader) if search.is_search(item) else None
                return _asked_and_answered(item, item["id"], told or _answer(item), reader)
            case t if t == _RESPONSE and not item["approve"]:
                request = reader.earlier(item["approval_request_id"])
                reason = f" They say: {item['reason']}" if item.get("reason") else ""
                return [] if request is None else self._denied(request, f"{WORDS[CallEnd.DENIED]}{reason}", reader)
            case t if t == _RESPONSE:
                request = reader.earlier(item["approval_request_id"])
                return [] if request is None or request["server_label"] != network.LABEL else network.read_allowed(request)
            case t if t == _LIST and item.get("error"):
                return [message("user", f"[The tools of the server '{item['server_label']}' cannot be had now.]")]
            case _:
                return []

    def _denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        asker = self._askers.get(request["server_label"])
        if asker is not None:
            return asker.read_denied(request, words, reader)
        return _asked_and_answered(request, request["id"], words, reader)

    # --- the call ---

    def hold_for_approval(self, call: Item, tools: Sequence[Tool], approval_id: str | None) -> Item:
        """The item names the approval that it waits for. OpenAI's names the request that allowed it."""
        if call["type"] == _CALL and toolset.of_label(tools, call["server_label"]) is not None and gate.holds(call, tools):
            call = {**call, "type": _REQUEST}
        if approval_id is None or call["type"] != _REQUEST:
            return call
        return {**call, "type": _CALL, "approval_request_id": approval_id}

    def needs_approval(self, call: Item, tools: Sequence[Tool], said: Sequence[Item], approval_id: str) -> bool:
        return call.get("approval_request_id") == approval_id

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        said = {key: call[key] for key in ("type", "server_label", "name", "arguments")}
        if call["type"] == _REQUEST:
            item = {"id": place.item_id, **said}
            return CallOpening(item, (), item)
        added = {
            "id": place.item_id,
            **said,
            "status": "in_progress",
            "arguments": "",
            "approval_request_id": call.get("approval_request_id"),
            "error": None,
            "output": None,
            **({"container_id": place.container_id} if toolset.HERE in call else {}),
            **({"call_id": call["call_id"]} if program_of(call) is not None else {}),
        }
        events = (
            place.event("mcp_call.in_progress"),
            place.event("mcp_call_arguments.delta", delta=call["arguments"]),
            place.event("mcp_call_arguments.done", arguments=call["arguments"]),
        )
        return CallOpening(added, events, added | {"arguments": call["arguments"]}, is_whole=False)

    async def rerun_policy_of(self, call: Item, earlier: AsyncIterator[Item]) -> RerunPolicy:
        """A tool that says in the latest list that it changes nothing, or nothing twice, may be called again. What runs in the
        container is known there by the call's id, and done once."""
        if toolset.runs_in_container(call):
            return RerunPolicy.REPEAT
        async for item in earlier:
            if item["type"] == _LIST and item["server_label"] == call["server_label"] and not item.get("error"):
                is_repeatable = any(each["name"] == call["name"] and listing.is_repeatable(each) for each in item["tools"])
                return RerunPolicy.REPEAT if is_repeatable else RerunPolicy.ONCE
        return RerunPolicy.ONCE

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        item = run.known.item
        tool = next((tool for tool in run.tools if tool["server_label"] == item["server_label"]), None)
        if toolset.is_workspace(tool):
            result = await toolset.called(run)
            yield self._failed(run.known, result.error) if result.error else self._completed(run.known, result.output)
            return
        await imported(_SESSION)
        from moorage.tools.mcp import session

        server = None if tool is None else McpServer.of_tool(tool, run.outside.secret)
        if server is None:
            yield self._failed(run.known, _error(CallEnd.GAVE_UP, "Its server is not known any more."))
            return
        try:
            server = await server.refreshed(run.outside.token)
            called = await session.call_tool(server, run.outside.fetcher, item["name"], orjson.loads(item["arguments"]))
        except errors.ApiError as error:
            yield self._failed(run.known, _error(CallEnd.GAVE_UP, error.message))
            return
        except session.ServerFailure as failure:
            yield self._failed(run.known, failure.error)
            return
        note = {_CHANGED: True} if called.tools_changed else {}
        if called.error is not None:
            yield self._failed(run.known, called.error, note)
            return
        yield self._completed(run.known, called.output, note)

    async def stop(self, place: StoppingPlace, known: KnownCall) -> None:
        await toolset.stop(place.client, known)

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield self._failed(known, _error(end, detail))

    def _completed(self, known: KnownCall, output: str | None, note: Mapping[str, Any] = MappingProxyType({})) -> CallFinished:
        return CallFinished(known.item | {"status": "completed", "output": output, **note}, (known.event("mcp_call.completed"),))

    def _failed(self, known: KnownCall, error: dict[str, Any], note: Mapping[str, Any] = MappingProxyType({})) -> CallFinished:
        return CallFinished(known.item | {"status": "failed", "error": error, **note}, (known.event("mcp_call.failed"),))

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        match name:
            case "mcp_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "mcp_call_arguments.done":
                item["arguments"] = event["arguments"]

    def incomplete_item(self, item: Item) -> Item:
        return item | ({"error": _BROKEN_OFF} if item["type"] == _LIST else {"status": "incomplete"})

    # --- who looks at it ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        shown = {"allowed_tools": None, "headers": None, "require_approval": "always", "server_description": None, "server_url": None}
        return {**shown, **{key: value for key, value in toolset.echoed(tool, container_id).items() if key != "server"}}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        return {key: value for key, value in item.items() if key != _CHANGED} if _CHANGED in item else item

    def survives_truncation(self, item: Item) -> bool:
        """Lists, and results of searches."""
        return item["type"] == _LIST or search.is_search(item)

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        if name == "mcp_call_arguments.done":
            value = parsed(event["arguments"])
            for line in plan.lines(value) or [_shown(value, event["arguments"])]:
                yield CallLogNote(line, "call")

    def title(self, item: Item) -> str | None:
        name = f"{item['server_label']}.{item['name']}" if "name" in item else item.get("server_label", "")
        return f"{item['type']} {name}".strip()


def _run_ids(items: Iterable[Item]) -> frozenset[str]:
    """The ids of the requests with a call."""
    return frozenset(item["approval_request_id"] for item in items if item["type"] == _CALL and item.get("approval_request_id"))


# --- lists ----------------------------------------------------------------------------------------------------------------------


def _wants_list(tool: Tool, stage: Stage) -> bool:
    """Whether a server has to be asked: the conversation has no list of it that shows every tool that is named, or one that has changed
    since. One that failed in this response is not asked again."""
    label = tool["server_label"]
    lists = [item for item in stage.made if item["type"] == _LIST and item["server_label"] == label]
    if any(item.get("error", _BROKEN_OFF) != _BROKEN_OFF for item in lists):
        return False
    has_list, has_changed = False, False
    names: frozenset[str] = frozenset()
    for item in stage.items:
        if item.get("server_label") != label:
            continue
        if item["type"] == _LIST and not item.get("error"):
            has_list, has_changed, names = True, False, frozenset(each["name"] for each in item["tools"])
        elif item["type"] == _CALL:
            has_changed = has_changed or bool(item.get(_CHANGED))
    return not has_list or has_changed or (not lists and not _names_wanted(tool) <= names)


def _names_wanted(tool: Tool) -> frozenset[str]:
    """The tools that a list must show; that of the workspace costs nothing, and shows all."""
    return frozenset(each["name"] for each in _of_workspace(tool)) if toolset.is_workspace(tool) else listing.names_wanted(tool)


def _of_workspace(tool: Tool) -> list[dict[str, Any]]:
    return [each for each in toolset.listed(listing.names_wanted(tool)) if listing.is_allowed(tool, each)]


_SESSION: Final = "moorage.tools.mcp.session"
"""The SDK takes most of a second to import, and few processes call servers."""


async def _listed(tool: Tool, stage: Stage) -> dict[str, Any]:
    """``tools``, and ``error`` if they cannot be had."""
    if toolset.is_workspace(tool):
        return {"tools": _of_workspace(tool)}
    server = McpServer.of_tool(tool, stage.outside.secret)
    if server is None:
        return {"tools": [], "error": "Its address is not known any more."}
    await imported(_SESSION)
    from moorage.tools.mcp import session

    try:
        server = await server.refreshed(stage.outside.token)
        found = await session.list_tools(server, stage.outside.fetcher)
    except errors.ApiError as error:
        return {"tools": [], "error": error.message}
    except session.ServerFailure as failure:
        return {"tools": [], "error": failure.sentence}
    tools = [each for each in found if listing.is_allowed(tool, each)]
    if len(orjson.dumps(tools)) > limits.MCP_LIST_BYTES_MAX:
        too_large = f"tools/list: the list is larger than {limits.MCP_LIST_BYTES_MAX} bytes; name some in 'allowed_tools'"
        return {"tools": [], "error": too_large}
    return {"tools": tools}


def _shown(value: Any, arguments: str) -> str:
    """The arguments of a call for an operator: a command as such, and others on a line of bounded length."""
    command = value.get("cmd") if isinstance(value, dict) else None
    return f"$ {command}" if isinstance(command, str) else arguments[: limits.CALL_PIECE_CHARS]


def _offered(tool: Tool, listed: Mapping[str, Any]) -> OfferedFunction:
    is_ours, name = toolset.is_workspace(tool), listed["name"]
    kind = _REQUEST if listing.needs_approval(tool, listed) else _CALL
    call = {"type": kind, "server_label": tool["server_label"], "name": name, **toolset.mark([tool], tool["server_label"], name)}
    return OfferedFunction(
        name,
        listing.function_of(listed),
        call,
        has_own_name=is_ours,
        tells_container=is_ours and name in toolset.TOOLS and toolset.TOOLS[name].tells_container,
        is_clients=is_ours and name == questions.NAME,
        is_deferred=deferring.is_deferred(tool, listed),
        is_search=deferring.is_search(tool, listed),
    )


# --- what a model reads ---------------------------------------------------------------------------------------------------------


def _asked_and_answered(item: Item, call_id: str, answer: Any, reader: InputWriter) -> list[Item]:
    name = reader.name("mcp", item["name"], item["server_label"])
    call_id = call_id[: limits.CALL_ID_CHARS_MAX]
    return [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": item["arguments"] or "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": answer},
    ]


def _answer(item: Item) -> Any:
    error = item.get("error")
    if isinstance(error, dict):
        content = error.get("content")
        said = error.get("message") if content is None else listing.output_of(content, None) if isinstance(content, list) else content
        return _bounded(f"Error: {said if isinstance(said, str) else compact_json(said)}")
    if error is not None:
        return _bounded(f"Error: {error}")
    output = item.get("output")
    return "(no output)" if not output else _parts(output)


def _parts(output: str) -> str | list[dict[str, Any]]:
    """Text, or text and pictures if the output is the list of parts that :func:`listing.output_of` writes."""
    if not output.startswith('[{"'):
        return _bounded(output)
    try:
        parts = orjson.loads(output)
    except orjson.JSONDecodeError:
        return _bounded(output)
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
        return _bounded(output)
    if len(parts) > limits.MCP_READ_PARTS_MAX or not any(_is_picture(part) for part in parts):
        return _bounded(output)
    texts = iter(_all_bounded([_text(part) for part in parts if not _is_picture(part)]))
    shown = [_picture(part) if _is_picture(part) else {"type": "input_text", "text": next(texts)} for part in parts]
    return [part for part in shown if part.get("text") != ""]


def _bounded(text: str) -> str:
    """The model's view of a text: all, or its beginning and its end. A server must not fill a model's window."""
    return _all_bounded([text])[0]


def _all_bounded(texts: Sequence[str]) -> list[str]:
    """The same of texts that follow each other, within one bound. What is left out is told where it begins."""
    total = sum(map(len, texts))
    if total <= limits.MCP_READ_CHARS_MAX:
        return list(texts)
    half = limits.MCP_READ_CHARS_MAX // 2
    bounded: list[str] = []
    begin = 0
    for text in texts:
        mark = f"\n… {total - 2 * half} chars truncated …\n" if begin <= half < begin + len(text) else ""
        bounded.append(text[: max(0, half - begin)] + mark + text[max(0, total - half - begin) :])
        begin += len(text)
    return bounded


_PICTURES: Final = {"image/png": "iVBORw0KGgo", "image/jpeg": "/9j/", "image/gif": "R0lGOD", "image/webp": "UklGR"}
"""What the base64 of each begins with. A model's server refuses the whole request for bytes that are no picture."""


def _is_picture(part: Mapping[str, Any]) -> bool:
    beginning, data = _PICTURES.get(str(part.get("mimeType"))), part.get("data")
    return part["type"] == "image" and beginning is not None and isinstance(data, str) and data.startswith(beginning)


def _picture(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{part['mimeType']};base64,{part['data']}"}


def _text(part: Mapping[str, Any]) -> str:
    return str(part["text"]) if part["type"] == "text" and "text" in part else compact_json(part)


def _error(end: CallEnd, detail: str) -> dict[str, Any]:
    return {"type": "mcp_protocol_error", "code": _CODES.get(end, -32603), "message": f"{WORDS[end]} {detail}".strip()}
