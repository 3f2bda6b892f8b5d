"""Tools and items that an upstream does not know, written as functions that every upstream knows, and back.

The canonical form has thirty kinds of items; most models know messages and function calls. ``lower`` turns the rest into
``function`` tools, ``function_call`` and ``function_call_output`` items (``native`` names the tool types that need none of this),
and ``LoweredInput.restore`` says which tool stands behind a function's name, so that the call can be given back in its own form.

Two properties hold, because prompt caches and parallel tool calls need them:

* each item is lowered by itself, in order, and JSON is written with sorted keys: the lowered form of ``items[:n]`` is a prefix of
  the lowered form of ``items``;
* names are pure functions of the tools that came before, so that they never change within a conversation.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.tools.calls import ToolKey
from moorage.tools.capabilities import AdaptsToModel, OffersFunctions
from moorage.tools.function_items import compact_json, function_call, function_output, message, parsed, with_visible_parts, without
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallRunner, Room, makes_calls
from moorage.wire.choices import Caller, may_call
from moorage.wire.deferred import has_deferred, searches_deferred
from moorage.wire.item import program_of
from moorage.wire.types import Item, Tool

_Named = dict[str | None, list[tuple[str, str | None, str | None, str]]]
_SPACE: Final = "\0"
"""Before the name of a space, which no tool's name begins with."""

_NAME_CHARS_MAX: Final = 64
"""Chat Completions and Converse stop here; the Responses API takes 128."""

_OF_PROGRAMS: Final = frozenset({"output_schema"})
_OF_CALLERS: Final = frozenset({"allowed_callers"}) | _OF_PROGRAMS
"""Fields of functions that only upstreams with programs of their own know."""
_OF_CLIENTS: Final = frozenset({"function", "custom", "namespace"})
_CLIENTS: Final = frozenset({"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"})
_OPEN_CALL: Final = "This call is open. Its output comes later, in a message: go on without it, and do not invent it."
_PROGRAMMATIC: Final = frozenset(type_ for room in ROOMS if makes_calls(room) for type_ in room.types)
_UNSEEN_ITEMS: Final = frozenset({"configuration_update", "compaction_trigger", "item_reference"})
"""Items that speak to the platform, not to the model."""
NOT_OFFERED: Final = "not_offered"
"""The type of a tool that a model called and that there is not."""
_FINDING: Final = frozenset({"tool_search", "additional_tools"})
"""What upstreams know whose models come by tools on the way."""
_LOADING: Final = _FINDING | {"namespace"}
"""What an upstream cannot take as it is where the search runs here: it would have to look for tools that it is told nothing of."""


def without_async(tool: Tool) -> Tool:
    """A tool as an upstream is told of it, which knows nothing of calls that stay open."""
    bare = without(tool, "async")
    return bare | {"tools": [without(member, "async") for member in bare["tools"]]} if bare["type"] == "namespace" else bare


def is_hosted(tool: Tool) -> bool:
    """Whether the platform itself runs this tool's calls."""
    room = ROOMS.of_tool(tool["type"])
    return room is not None and room.call_runner(tool) is not CallRunner.CLIENT


@dataclass(frozen=True, slots=True)
class OriginalTool:
    """The tool behind a function's name. ``name`` is the tool's own name, or the function's name for tools that have none."""

    type: str
    name: str
    namespace: str | None = None
    call: Item | None = None
    """What a call of it is before its arguments, where an item has offered it."""
    adapt: Callable[[Item], Item | None] | None = field(default=None, compare=False, repr=False)
    """Makes the call that suits the tool of what the model has said."""

    def custom_input(self, arguments: str) -> str:
        """The free text that a custom tool is called with. Text that is no JSON wrapper is taken as it is."""
        value = parsed(arguments)
        if isinstance(value, dict) and isinstance(value.get("input"), str):
            return str(value["input"])
        return value if isinstance(value, str) else arguments

    def call_item(self, arguments: str, call_id: str) -> Item | None:
        """The call in the tool's own form, without ``id``, and without ``status`` if its events tell that. None if the arguments
        do not fit the tool, and for functions and custom tools, whose calls are built as they come."""
        value = parsed(arguments)
        room = ROOMS.of_tool(self.type)
        item = None if room is None else room.parse_call(value, arguments, self.type)
        if item is not None and self.adapt is not None:
            item = self.adapt(item)
        return None if item is None else {**item, **(self.call or {}), "call_id": call_id}


@dataclass(frozen=True, slots=True)
class LoweredInput:
    """A model's input in the upstream's own vocabulary."""

    items: tuple[Item, ...]
    tools: tuple[Tool, ...]
    tool_choice: str | dict[str, Any]
    names: Mapping[str, OriginalTool]
    """Functions by the name that the upstream was given."""
    finds_tools: bool = False
    """The upstream looks for tools itself, so that it may call what stands in no list here."""
    asynchronous: frozenset[ToolKey] = frozenset()
    """Tools of the client's whose calls stay open: types, namespaces and names."""

    def restore(self, name: str) -> OriginalTool:
        """The tool behind a name; :data:`NOT_OFFERED` if the upstream was given no such name."""
        if name in self.names:
            return self.names[name]
        return OriginalTool("function", name) if self.finds_tools else OriginalTool(NOT_OFFERED, _flat_name(name, None))


def lower(
    items: tuple[Item, ...] | list[Item],
    tools: tuple[Tool, ...] | list[Tool],
    tool_choice: str | dict[str, Any],
    native: frozenset[str],
    *,
    programs: str = "",
    given: str = "",
    view: str = "",
    is_for_programs: bool = False,
) -> LoweredInput:
    """Write a conversation for an upstream that takes the tool types in ``native`` as they are.

    A ``compaction`` item of this deployment has been opened (``loop/notes.py``); another one stays for upstreams with native
    ``compaction`` and is dropped elsewhere (only its maker can read it). ``programs`` are those of the container, and ``given``
    the files that the request put there, told with each tool that runs there. ``view`` is how the model points at a screen. What
    programs have called is left out: the model sees the programs alone. ``is_for_programs``: it is written for these.
    """
    items = without_calls_of_programs(items)
    tools = _told(tools, items, programs, given)
    has_own_search = searches_deferred(tools)
    if has_own_search or any(_is_deferred_here(tool) for tool in tools):
        native -= _LOADING
    lowering = _Lowering(
        native, programs, given, view, is_searchable=has_own_search, has_own_search=has_own_search, is_for_programs=is_for_programs
    )
    lowering.add_tools(tools)
    lowered = [result for item in items for result in lowering.item(item)]
    choice = lowering.choice(tool_choice)
    finds_tools = not _FINDING.isdisjoint(native)
    names = lowering.originals if finds_tools else lowering.callable(choice)
    return LoweredInput(
        tuple(lowered), tuple(lowering.tools.values()), choice, MappingProxyType(names), finds_tools, frozenset(lowering.asynchronous)
    )


def without_calls_of_programs(items: Sequence[Item]) -> list[Item]:
    """The items but for the calls of programs and their outputs: an output may name no caller."""
    made = {item.get("call_id") for item in items if program_of(item) is not None}
    return [item for item in items if item.get("call_id") not in made] if made else list(items)


def for_callers(tools: Sequence[Tool], caller: Caller) -> list[Tool]:
    """The tools that the model may call itself, or its programs."""
    found: list[Tool] = []
    for tool in tools:
        if not may_call(tool, caller):
            continue
        if tool["type"] == "namespace":
            found.append(tool | {"tools": for_callers(tool["tools"], caller)})
        else:
            # Programs run here: an upstream would miss its own tool for them.
            found.append(without(tool, "allowed_callers") if may_call(tool, "programmatic") else tool)
    return found


def lowered_for_programs(tools: Sequence[Tool], items: Sequence[Item], *, programs: str = "", given: str = "") -> LoweredInput:
    """The functions that programs call. Remote servers are among the items of the conversation with what they list."""
    offers = [item for item in items if _offers_functions(item)]
    callable_tools = for_callers(tools, "programmatic")
    return lower(offers, callable_tools, "auto", frozenset(), programs=programs, given=given, is_for_programs=True)


def _offers_functions(item: Item) -> bool:
    """Whether it may do so; a call and its output do not."""
    room = ROOMS.of_item(item["type"])
    return isinstance(room, OffersFunctions) and item["type"] not in (room.call_type, room.output_type)


def _told(tools: Sequence[Tool], items: Sequence[Item], programs: str, given: str) -> list[Tool]:
    """The tools for the model. A tool for programs stands there once, with the functions for its calls."""
    found: list[Tool] = []
    makers = set[str]()
    for tool in for_callers(tools, "direct"):
        if not makes_calls(ROOMS.of_tool(tool["type"])):
            found.append(tool)
        elif tool["type"] not in makers:
            makers.add(tool["type"])
            found.append(tool | {"callable": list(lowered_for_programs(tools, items, programs=programs, given=given).tools)})
    return found


@dataclass(slots=True)
class _Lowering:
    native: frozenset[str]
    programs: str = ""
    given: str = ""
    view: str = ""
    tools: dict[str, Tool] = field(default_factory=dict)
    """Lowered tools in order of first appearance; a later definition replaces an earlier one in its place."""
    originals: dict[str, OriginalTool] = field(default_factory=dict)
    names: dict[tuple[str, str | None, str], str] = field(default_factory=dict)
    of_rooms: list[Tool] = field(default_factory=list)
    """Tools whose functions are offered by items of theirs."""
    offers: dict[tuple[str, str], dict[ToolKey, None]] = field(default_factory=dict)
    """The functions of each server by its latest item; by the tool's type, and the server's name."""
    seen: dict[str, Item] = field(default_factory=dict)
    """Items of rooms so far, by id."""
    kept_back: dict[tuple[str, str | None], dict[ToolKey, Tool]] = field(default_factory=dict)
    """Functions that are offered as soon as they are found, under the names that they will bear, by type and namespace."""
    found: set[ToolKey] = field(default_factory=set)
    deferred: str = ""
    """What there is to be found, for the model."""
    is_searchable: bool = False
    """The model can look for deferred tools, so they stay hidden until it does."""
    has_own_search: bool = False
    """It looks for them by a tool that an item offers."""
    is_for_programs: bool = False
    asynchronous: set[ToolKey] = field(default_factory=set)
    called: dict[str, str] = field(default_factory=dict)
    """Names of the client's functions and custom tools that were called, by call id."""
    late: set[str] = field(default_factory=set)
    """Call ids of those that were ``async``."""
    shared_chars: int = limits.SHARED_TEXTS_CHARS_MAX
    """What is left for repeating the texts that several functions share."""

    # --- tools ---

    def add_tools(self, tools: tuple[Tool, ...] | list[Tool]) -> None:
        """Plain functions claim their names first: the others can bear another one, theirs stand in the client's code."""
        for tool in tools:
            if tool["type"] == "function":
                self._claim("function", tool["name"], None)
            is_search = tool["type"] == "tool_search" and "tool_search" not in self.native
            self.is_searchable = self.is_searchable or is_search
        for tool in tools:
            self._add_tool(tool)
            if tool["type"] == "tool_search" and tool.get("execution") == "server":
                self._tell_deferred(tools)
        if self.has_own_search and not self.deferred:
            self.deferred = _of_deferred(tools)

    def _tell_deferred(self, tools: Iterable[Tool]) -> None:
        """The search that runs here: the names to find, without its arguments."""
        name = self.name("tool_search", "tool_search")
        if name in self.tools:
            self.originals[name] = replace(self.originals[name], call={"execution": "server"})
            self.tools[name] = _with_text(self.tools[name], _of_deferred(tools))

    def _add_tool(self, tool: Tool) -> None:
        type_ = tool["type"]
        if type_ in _OF_CLIENTS:
            self._note_async(tool)
            tool = without_async(tool)
        match type_:
            case "function":
                self._offer(tool, None)
            case "custom" if type_ not in self.native:
                self._offer(tool, None)
            case "namespace" if type_ not in self.native:
                about = self._shared(tool.get("description"), len(tool["tools"]))
                for member in tool["tools"]:
                    self._offer(member | {"description": _joined(next(about), member.get("description"))}, tool["name"])
            case _:
                self._add_other(tool)

    def _shared(self, text: str | None, count: int) -> Iterator[str | None]:
        """A text about so many functions, for each of them. A very long one stands with the first of them alone: each copy takes
        memory."""
        size = len(text or "") * (count - 1)
        if size > self.shared_chars:
            return chain((text,), repeat(None))
        self.shared_chars -= max(size, 0)
        return repeat(text)

    def _note_async(self, tool: Tool) -> None:
        """A later definition of a tool says anew whether its calls stay open."""
        namespace = tool["name"] if tool["type"] == "namespace" else None
        for member in tool["tools"] if namespace else (tool,):
            key = (member["type"], namespace, member["name"])
            (self.asynchronous.add if member.get("async") else self.asynchronous.discard)(key)

    def _add_other(self, tool: Tool) -> None:
        type_ = tool["type"]
        room = ROOMS.of_tool(type_)
        is_here = room is not None and room.call_runner(tool) is not CallRunner.CLIENT
        is_native = type_ in self.native or (is_here and f"{type_}.hosted" in self.native)
        if is_native and (room is None or room.may_run_upstream):
            key, native = (f"\0{compact_json(tool)}", tool) if room is None else room.native_tool(tool, self)
            self.tools[key] = native
        elif isinstance(room, OffersFunctions):
            self.of_rooms.append(tool)
            self._take_offers(room, tool)
        elif room is not None:
            name = self._claim(type_, room.function_name, None)
            adapted = tool
            if isinstance(room, AdaptsToModel):
                adapted = room.adapt_tool(tool, self)
                self.originals[name] = replace(self.originals[name], adapt=partial(self._adapted_call, room, tool))
            offered = room.function_tool(name, adapted)
            self.tools[name] = self._in_container(offered) if room.call_runner(tool) is CallRunner.SANDBOX else offered
        # The API refuses what neither we nor the upstream can run; one that is offered on the side (Codex sends web_search to every
        # server) is not shown to the model.

    def _adapted_call(self, room: AdaptsToModel, tool: Tool, call: Item) -> Item | None:
        return room.adapt_call(call, tool, self)

    def _in_container(self, offered: Tool) -> Tool:
        """With the programs of its calls' container."""
        programs = f"\n- Installed there, beside the usual small programs: {self.programs}." if self.programs else ""
        files = f"\n- Files that the user gave: {self.given}" if self.given else ""
        return offered | {"description": offered["description"] + programs + files}

    def _offer(self, tool: Tool, namespace: str | None) -> None:
        """A function or custom tool, top-level or in a namespace."""
        name = self._claim(tool["type"], tool["name"], namespace)
        if tool["type"] == "custom":
            room = ROOMS.of_tool("custom")
            assert room is not None
            function = room.function_tool(name, tool)
        else:
            unsent = frozenset[str]() if _PROGRAMMATIC & self.native else _OF_CALLERS
            unsent -= _OF_PROGRAMS if self.is_for_programs else frozenset()
            unsent |= frozenset() if "tool_search" in self.native else {"defer_loading"}
            kept = {key: value for key, value in tool.items() if value is not None and key not in unsent}
            function = kept | {"type": "function", "name": name}
        self._show((tool["type"], namespace, tool["name"]), function, bool(tool.get("defer_loading")) and self.is_searchable)

    def _show(self, key: ToolKey, function: Tool, is_deferred: bool) -> None:
        """Offer a function, or keep it back until it is found."""
        if is_deferred and key not in self.found:
            self.kept_back.setdefault(key[:2], {})[key] = function
        else:
            self.kept_back.get(key[:2], {}).pop(key, None)
            self.tools[function["name"]] = function

    def _find(self, keys: Iterable[ToolKey]) -> None:
        """Offer these from here on, after those before them."""
        for key in keys:
            self.found.add(key)
            function = self.kept_back.get(key[:2], {}).pop(key, None)
            if function is not None:
                self.tools[function["name"]] = without(function, "defer_loading")

    def _claim(self, type_: str, name: str, namespace: str | None, *, is_bare: bool = False) -> str:
        """The one lowered name of a tool; ``is_bare`` leaves its namespace out of it."""
        key = (type_, namespace, name)
        if key not in self.names:
            lowered = _flat_name(name, None if is_bare else namespace)
            if lowered in self.originals:
                lowered = _shortened(lowered, f"{type_}\0{namespace}\0{name}", always=True)
            self.names[key] = lowered
            self.originals[lowered] = OriginalTool(type_, name if type_ in ("function", "custom") else lowered, namespace)
        return self.names[key]

    def name(self, type_: str, name: str, namespace: str | None = None) -> str:
        """The lowered name in an earlier call of a tool that may not be offered any more."""
        return self.names.get((type_, namespace, name)) or _flat_name(name, namespace)

    def offered(self, types: Iterable[str]) -> str | None:
        """The type that was offered first, of these types."""
        return next((original.type for original in self.originals.values() if original.type in types), None)

    def earlier(self, item_id: str) -> Item | None:
        """An item of a room that came before."""
        return self.seen.get(item_id)

    def latest(self, type_: str) -> Item | None:
        """The last item of a room that came before and is of this type."""
        return next((item for item in reversed(self.seen.values()) if item["type"] == type_), None)

    def _of_room(self, room: Room) -> list[Tool]:
        return [tool for tool in self.of_rooms if tool["type"] in room.types]

    def _take_offers(self, room: OffersFunctions, item: Item) -> None:
        """Offer an item's functions, in place of an earlier item's."""
        offers = room.offered_functions(item, self._of_room(room))
        if offers is None:
            return
        there: dict[ToolKey, None] = {(room.types[0], offers.namespace, offered.name): None for offered in offers.functions}
        for key in self.offers.get((room.types[0], offers.namespace), ()):
            if key not in there and key in self.names:
                self.tools.pop(self.names[key], None)
                self.kept_back.get(key[:2], {}).pop(key, None)
        self.offers[room.types[0], offers.namespace] = there
        about = self._shared(offers.about, len(offers.functions))
        for offered in offers.functions:
            function = offered.function | {"description": _joined(next(about), offered.function.get("description"))}
            if offered.is_clients:
                if ("function", None, offered.name) not in self.names:
                    self._offer(function | {"name": offered.name}, None)
                continue
            lowered = self._claim(room.types[0], offered.name, offers.namespace, is_bare=offered.has_own_name)
            self.originals[lowered] = OriginalTool(room.types[0], offered.name, offers.namespace, offered.call)
            if offered.is_search and not self.has_own_search:
                continue
            told = self._in_container(function) if offered.tells_container else function
            told = _with_text(told, self.deferred) if offered.is_search else told
            self._show((room.types[0], offers.namespace, offered.name), told | {"name": lowered}, offered.is_deferred)

    # --- tool choice ---

    def callable(self, choice: str | dict[str, Any]) -> dict[str, OriginalTool]:
        """The callable tools: those offered to the end of the conversation, and allowed."""
        allowed = None
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            allowed = {tool.get("name") for tool in choice["tools"]}
        return {
            name: original for name, original in self.originals.items() if name in self.tools and (allowed is None or name in allowed)
        }

    def choice(self, tool_choice: str | dict[str, Any]) -> str | dict[str, Any]:
        if isinstance(tool_choice, str):
            return tool_choice
        if tool_choice.get("type") == "allowed_tools":
            named = self._named()
            chosen = [lowered for tool in tool_choice.get("tools", []) for lowered in self._chosen(tool, named)]
            return {"type": "allowed_tools", "mode": tool_choice.get("mode", "auto"), "tools": chosen}
        chosen = self._chosen(tool_choice, self._named())
        if len(chosen) > 1:
            return {"type": "allowed_tools", "mode": "required", "tools": chosen}
        return chosen[0] if chosen else "auto"

    def _named(self) -> _Named:
        """Each lowered tool, by its name, by the space or server that it is of, and under None: its type, space, name and lowered name.
        A request may choose a thousand of them."""
        found: _Named = {}
        for (kind, space, name), lowered in self.names.items():
            for key in {name, None if space is None else f"{_SPACE}{space}", None}:
                found.setdefault(key, []).append((kind, space, name, lowered))
        return found

    def _chosen(self, choice: dict[str, Any], named: _Named) -> list[dict[str, Any]]:
        """A chosen tool in the upstream's vocabulary; a namespace is several. Empty if it is not offered."""
        type_ = choice.get("type", "")
        room = ROOMS.of_tool(type_)
        kinds = {type_} if room is None else set(room.types)
        if type_ != "function" and kinds & self.native and (room is None or room.may_run_upstream):
            return [choice]
        if type_ == "namespace":
            return [{"type": "function", "name": lowered} for *_, lowered in named.get(f"{_SPACE}{choice['name']}", ())]
        if "server_label" in choice:
            label, wanted = choice["server_label"], choice.get("name")
            return [
                {"type": "function", "name": lowered}
                for tool_type, _, name, lowered in named.get(f"{_SPACE}{label}", ())
                if tool_type in kinds and wanted in (None, name) and lowered in self.tools
            ]
        for tool_type, namespace, _, lowered in named.get(choice.get("name"), ()):
            if tool_type in kinds and choice.get("namespace") in (None, namespace):
                return [{"type": "function", "name": lowered}]
        return []

    # --- items ---

    def item(self, item: Item) -> list[Item]:
        """The lowered form of one item: none, one, or a call with its output."""
        type_ = item.get("type", "message")
        match type_:
            case "message":
                return [with_visible_parts(item, "content")]
            case "reasoning":
                return [item]
            case "additional_tools" | "tool_search_call" | "tool_search_output":
                return self._tools_in_between(item, type_)
            case "compaction":
                return self._compaction(item)
            case _ if type_ in _UNSEEN_ITEMS:
                return []
        room = ROOMS.of_item(type_)
        if room is None:
            return self._other(item, type_)
        if isinstance(room, OffersFunctions):
            self._take_offers(room, item)
            self._find(room.discovered_functions(item, self._of_room(room)))
        if "id" in item:
            self.seen[item["id"]] = item
        return self._clients(room, item) if type_ in _CLIENTS else room.input_items(item, self)

    def _clients(self, room: Room, item: Item) -> list[Item]:
        """A call of a client's function, or its output. An ``async`` call is answered at once, because no upstream goes on otherwise.
        Its output comes as a message, and so does one whose call was left out."""
        call_id = item["call_id"]
        if item["type"] == room.call_type:
            self.called[call_id] = item["name"]
            if not item.get("async"):
                return room.input_items(item, self)
            self.late.add(call_id)
            answer = {"type": room.output_type, "call_id": call_id, "output": _OPEN_CALL}
            return [*room.input_items(without(item, "async"), self), *room.input_items(answer, self)]
        if call_id in self.called and call_id not in self.late:
            return room.input_items(item, self)
        name, said = self.called.get(call_id, "a tool"), item["output"]
        head = {"type": "input_text", "text": f"Output of the earlier call {call_id} of {name}:"}
        parts = [{"type": "input_text", "text": said}] if isinstance(said, str) else said
        return [with_visible_parts({"type": "message", "role": "user", "content": [head, *parts]}, "content")]

    def _tools_in_between(self, item: Item, type_: str) -> list[Item]:
        """Tools that join the conversation on the way: offered from here on, after those before them."""
        native_type = "additional_tools" if type_ == "additional_tools" else "tool_search"
        loaded = item.get("tools") or []
        plain = [tool for tool in loaded if not _is_by_items(tool)]
        if native_type in self.native:
            for tool in plain:
                if tool["type"] in _OF_CLIENTS:
                    self._note_async(tool)
            shown = list(map(without_async, plain))
            return [item | {"tools": shown} if shown != loaded else item]
        self.add_tools([without(tool, "defer_loading") for tool in plain])
        names = [name for tool in loaded for name in self._brought(tool)]
        if item.get("call_id") is None:
            return []
        if type_ == "tool_search_call":
            return [function_call(item, self.name("tool_search", "tool_search"), item.get("arguments") or {})]
        return [function_output(item, f"Tools found: {', '.join(names)}" if names else "No tool was found.")]

    def _brought(self, tool: Tool) -> list[str]:
        """The functions of a tool that came on the way: they are offered from here on."""
        if tool["type"] == "namespace":
            return [self.name(member["type"], member["name"], tool["name"]) for member in tool["tools"]]
        room = ROOMS.of_tool(tool["type"])
        if not isinstance(room, OffersFunctions):
            return [self.name(tool["type"], tool["name"])] if "name" in tool else []
        keys = list(room.deferred_functions(tool, tuple(self.kept_back.get((tool["type"], tool.get("server_label")), ()))))
        self._find(keys)
        return [self.name(type_, name, namespace) for type_, namespace, name in keys]

    def _compaction(self, item: Item) -> list[Item]:
        if "text" in item:
            return [message("user", item["text"])]
        return [item] if "compaction" in self.native else []

    def _other(self, item: Item, type_: str) -> list[Item]:
        """Calls that another upstream ran by itself (file_search ...): the model reads them as text."""
        tool_type = type_.removesuffix("_call")
        if tool_type in self.native:
            return [item]
        shown = {k: v for k, v in item.items() if k not in ("id", "type", "status", "result", "created_by") and v is not None}
        return [message("assistant", f"[{type_}] {compact_json(shown)}")]


def _is_by_items(tool: Tool) -> bool:
    """Whether what it offers is said by items of its own, and no upstream is told of it."""
    return isinstance(ROOMS.of_tool(tool["type"]), OffersFunctions)


def _is_deferred_here(tool: Tool) -> bool:
    """Whether nobody but this deployment can look for it."""
    return bool(tool.get("defer_loading")) and _is_by_items(tool)


def _of_deferred(tools: Iterable[Tool]) -> str:
    """By name and description: tools that are not offered yet, and namespaces and servers that have such."""
    lines: list[str] = []
    room = limits.TOOLS_DEFERRED_CHARS_MAX
    for tool in tools:
        if not has_deferred(tool):
            continue
        name, text = tool.get("name") or tool["server_label"], tool.get("description") or tool.get("server_description") or ""
        line = f"\n- {name}: {' '.join(text.split())}".removesuffix(": ")
        room -= len(line)
        if room < 0:
            return "".join([*lines, "\n- and more"])
        lines.append(line)
    return "\nThere are:" + "".join(lines) if lines else ""


def _joined(*texts: str | None) -> str:
    return "\n".join(text for text in texts if text)


def _with_text(function: Tool, text: str) -> Tool:
    return function | {"description": function["description"] + text}


# --- names --------------------------------------------------------------------------------------------------------------------


def _flat_name(name: str, namespace: str | None) -> str:
    whole = name if namespace is None else f"{namespace}__{name}"
    return _shortened(re.sub(r"[^a-zA-Z0-9_-]", "_", whole), whole, always=False)


def _shortened(name: str, identity: str, *, always: bool) -> str:
    """At most 64 characters; a hash of the whole replaces a cut or taken name."""
    if len(name) <= _NAME_CHARS_MAX and not always:
        return name
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"{name[: _NAME_CHARS_MAX - 9]}_{digest}"
