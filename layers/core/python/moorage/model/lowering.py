"""Tools and items that an upstream does not know, written as functions that every upstream knows, and back.

The canonical form has thirty kinds of items; most models know messages and function calls. ``lower`` turns the rest into
``function`` tools, ``function_call`` and ``function_call_output`` items (``native`` names the tool types that need none of this),
and ``Lowered.restore`` says which tool stands behind a function's name, so that the call can be given back in its own form.

Two properties hold, because prompt caches and parallel tool calls need them:

* each item is lowered by itself, in order, and JSON is written with sorted keys: the lowered form of ``items[:n]`` is a prefix of
  the lowered form of ``items``;
* names are pure functions of the tools that came before, so that they never change within a conversation.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import orjson

from moorage.model import lowered_tools
from moorage.model.base import Item, Tool

_NAME_CHARS_MAX: Final = 64
"""Chat Completions and Converse stop here; the Responses API takes 128."""

_COMPUTER_TYPES: Final = frozenset({"computer", "computer_use_preview", "computer_use"})
_SHELL_HOSTED: Final = frozenset({"container_auto", "container_reference"})
_FUNCTION_FIELDS_BY_FEATURE: Final = {
    "defer_loading": "tool_search",
    "allowed_callers": "programmatic_tool_calling",
    "output_schema": "programmatic_tool_calling",
    "async": "programmatic_tool_calling",
}
_UNSEEN_ITEMS: Final = frozenset({"configuration_update", "compaction_trigger", "item_reference"})
"""Items that speak to the platform, not to the model."""


def compact_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def is_hosted(tool: Tool) -> bool:
    """Whether the platform itself runs this tool's calls."""
    if tool["type"] == "shell":
        environment: dict[str, Any] = tool.get("environment") or {}
        return environment.get("type") in _SHELL_HOSTED
    return bool(tool["type"] == "code_interpreter")


@dataclass(frozen=True, slots=True)
class Original:
    """The tool behind a function's name. ``name`` is the tool's own name, or the function's name for tools that have none."""

    type: str
    name: str
    namespace: str | None = None

    def custom_input(self, arguments: str) -> str:
        """The free text that a custom tool is called with. Text that is no JSON wrapper is taken as it is."""
        value = _parsed(arguments)
        if isinstance(value, dict) and isinstance(value.get("input"), str):
            return str(value["input"])
        return value if isinstance(value, str) else arguments

    def call_item(self, arguments: str, call_id: str) -> Item | None:
        """The call in the tool's own form, without ``id``, and without ``status`` where its events tell that. None if the arguments
        do not fit the tool, and for functions and custom tools, whose calls are built as they come."""
        value = _parsed(arguments)
        item = self._call_item(value, arguments) if isinstance(value, dict) or self.type == "code_interpreter" else None
        return None if item is None else item | {"call_id": call_id}

    def _call_item(self, value: Any, arguments: str) -> Item | None:
        match self.type:
            case "shell":
                return _shell_call(value)
            case "code_interpreter":
                return _code_interpreter_call(value, arguments)
            case "local_shell":
                return _local_shell_call(value)
            case "apply_patch":
                return _apply_patch_call(value)
            case "tool_search":
                return {"type": "tool_search_call", "status": "completed", "execution": "client", "arguments": value}
            case computer if computer in _COMPUTER_TYPES:
                return _computer_call(value, computer)
        return None


@dataclass(frozen=True, slots=True)
class Lowered:
    """A model's input in the upstream's own vocabulary."""

    items: tuple[Item, ...]
    tools: tuple[Tool, ...]
    tool_choice: str | dict[str, Any]
    names: Mapping[str, Original]
    """Functions by the name that the upstream was given."""

    def restore(self, name: str) -> Original:
        """The tool behind a name; a name that was never offered is taken for a function of the client's."""
        return self.names.get(name) or Original("function", name)


def lower(
    items: tuple[Item, ...] | list[Item],
    tools: tuple[Tool, ...] | list[Tool],
    tool_choice: str | dict[str, Any],
    native: frozenset[str],
    *,
    compaction_text: Callable[[Item], str | None] = lambda item: None,
) -> Lowered:
    """Write a conversation for an upstream that takes the tool types in ``native`` as they are.

    ``compaction_text`` opens a ``compaction`` item of this deployment; None leaves the item as it is for upstreams with native
    ``compaction`` and drops it elsewhere (only its maker can read it).
    """
    lowering = _Lowering(native, compaction_text)
    lowering.add_tools(tools)
    lowered = [result for item in items for result in lowering.item(item)]
    return Lowered(
        items=tuple(lowered),
        tools=tuple(lowering.tools.values()),
        tool_choice=lowering.choice(tool_choice),
        names=MappingProxyType(lowering.originals),
    )


@dataclass(slots=True)
class _Lowering:
    native: frozenset[str]
    compaction_text: Callable[[Item], str | None]
    tools: dict[str, Tool] = field(default_factory=dict)
    """Lowered tools in order of first appearance; a later definition replaces an earlier one in its place."""
    originals: dict[str, Original] = field(default_factory=dict)
    names: dict[tuple[str, str | None, str], str] = field(default_factory=dict)
    is_searchable: bool = False
    """The model can look for deferred tools (a client's ``tool_search``), so they stay hidden until it does."""

    # --- tools ---

    def add_tools(self, tools: tuple[Tool, ...] | list[Tool]) -> None:
        """Plain functions claim their names first: the others can bear another one, theirs stand in the client's code."""
        for tool in tools:
            if tool["type"] == "function":
                self._claim("function", tool["name"], None)
            is_search = tool["type"] == "tool_search" and tool.get("execution") == "client"
            self.is_searchable = self.is_searchable or (is_search and "tool_search" not in self.native)
        for tool in tools:
            self._add_tool(tool)

    def _add_tool(self, tool: Tool) -> None:
        type_ = tool["type"]
        match type_:
            case "function":
                self._offer(tool, None)
            case "shell" if type_ in self.native:
                self.tools["\0shell"] = {"type": "shell", "environment": {"type": "local"}} if is_hosted(tool) else tool
            case "shell":
                self._function("shell", "shell", lowered_tools.shell if is_hosted(tool) else lowered_tools.shell_of_client, tool)
            case "code_interpreter":
                # Never native: an upstream's own interpreter would run in the upstream's container, without the user's files.
                self._function("code_interpreter", "python", lowered_tools.python)
            case _ if type_ in self.native:
                self.tools[f"\0{compact_json(tool)}"] = tool
            case "custom":
                self._offer(tool, None)
            case "namespace":
                for member in tool["tools"]:
                    texts = (tool.get("description"), member.get("description"))
                    self._offer(member | {"description": "\n".join(text for text in texts if text)}, tool["name"])
            case "tool_search":
                if tool.get("execution") == "client":
                    self._function("tool_search", "tool_search", lowered_tools.tool_search, tool)
            case "local_shell":
                self._function("local_shell", "local_shell", lowered_tools.local_shell)
            case "apply_patch":
                self._function("apply_patch", "apply_patch", lowered_tools.apply_patch)
            case _ if type_ in _COMPUTER_TYPES:
                self._function(type_, "computer", lowered_tools.computer, tool)
            case _:
                # The API refuses what neither we nor the upstream can run; one that is offered on the side (Codex sends web_search
                # to every server) is not shown to the model.
                pass

    def _offer(self, tool: Tool, namespace: str | None) -> None:
        """A function or custom tool, top-level or in a namespace."""
        name = self._claim(tool["type"], tool["name"], namespace)
        if tool.get("defer_loading") and self.is_searchable:
            return
        if tool["type"] == "custom":
            self.tools[name] = lowered_tools.custom(name, tool)
        else:
            kept = {
                key: value
                for key, value in tool.items()
                if value is not None and _FUNCTION_FIELDS_BY_FEATURE.get(key, "") in self.native | {""}
            }
            self.tools[name] = kept | {"type": "function", "name": name}

    def _function(self, type_: str, name: str, make: Callable[[str, Tool], Tool], tool: Tool | None = None) -> None:
        claimed = self._claim(type_, name, None)
        self.tools[claimed] = make(claimed, tool or {})

    def _claim(self, type_: str, name: str, namespace: str | None) -> str:
        """The one lowered name of a tool."""
        key = (type_, namespace, name)
        if key not in self.names:
            lowered = _flat_name(name, namespace)
            if lowered in self.originals:
                lowered = _shortened(lowered, f"{type_}\0{namespace}\0{name}", always=True)
            self.names[key] = lowered
            self.originals[lowered] = Original(type_, name if type_ in ("function", "custom") else lowered, namespace)
        return self.names[key]

    def _name(self, type_: str, name: str, namespace: str | None = None) -> str:
        """The lowered name in an earlier call, whose tool may not be offered any more."""
        return self.names.get((type_, namespace, name)) or _flat_name(name, namespace)

    # --- tool choice ---

    def choice(self, tool_choice: str | dict[str, Any]) -> str | dict[str, Any]:
        if isinstance(tool_choice, str):
            return tool_choice
        if tool_choice.get("type") == "allowed_tools":
            chosen = [lowered for tool in tool_choice.get("tools", []) for lowered in self._chosen(tool)]
            return {"type": "allowed_tools", "mode": tool_choice.get("mode", "auto"), "tools": chosen}
        return next(iter(self._chosen(tool_choice)), "auto")

    def _chosen(self, choice: dict[str, Any]) -> list[dict[str, Any]]:
        """A chosen tool in the upstream's vocabulary; a namespace is several. Empty if it is not offered."""
        type_ = choice.get("type", "")
        kinds = _COMPUTER_TYPES if type_ in _COMPUTER_TYPES else {type_}
        if type_ not in ("function", "code_interpreter") and kinds & self.native:
            return [choice]
        if type_ == "namespace":
            return [{"type": "function", "name": lowered} for (_, space, _), lowered in self.names.items() if space == choice["name"]]
        for (tool_type, namespace, name), lowered in self.names.items():
            is_same_name = choice.get("name") in (None, name) and choice.get("namespace") in (None, namespace)
            if tool_type in kinds and is_same_name:
                return [{"type": "function", "name": lowered}]
        return []

    # --- items ---

    def item(self, item: Item) -> list[Item]:
        """The lowered form of one item: none, one, or a call with its output."""
        type_ = item.get("type", "message")
        match type_:
            case "message":
                return [_with_visible_parts(item, "content")]
            case "reasoning":
                return [item]
            case "function_call":
                return [self._function_call_item(item)]
            case "function_call_output":
                return [_with_visible_parts(item, "output")]
            case "shell_call" if "shell" in self.native:
                return [_without(item | {"environment": {"type": "local"}}, "created_by")]
            case "shell_call_output" if "shell" in self.native:
                return [item]
            case "shell_call":
                action = {k: v for k, v in item["action"].items() if v is not None}
                return [_call(item, self._name("shell", "shell"), action)]
            case "shell_call_output":
                return [_output(item, shell_output_text(item["output"]))]
            case "code_interpreter_call":
                return self._code_interpreter(item)
            case "custom_tool_call" | "custom_tool_call_output" if "custom" in self.native:
                return [self._natively_named(item)]
            case "custom_tool_call":
                name = self._name("custom", item["name"], item.get("namespace"))
                return [_call(item, name, {"input": item.get("input", "")})]
            case "custom_tool_call_output":
                return [_with_visible_parts(_output(item, item["output"]), "output")]
            case "local_shell_call" | "local_shell_call_output" if "local_shell" in self.native:
                return [item]
            case "local_shell_call":
                action = {k: v for k, v in item["action"].items() if v is not None and k != "type"}
                return [_call(item, self._name("local_shell", "local_shell"), action)]
            case "local_shell_call_output":
                return [_output(item | {"call_id": item.get("call_id") or item["id"]}, item["output"])]
            case "apply_patch_call" | "apply_patch_call_output" if "apply_patch" in self.native:
                return [item]
            case "apply_patch_call":
                return [_call(item, self._name("apply_patch", "apply_patch"), item["operation"])]
            case "apply_patch_call_output":
                return [_output(item, "\n".join(part for part in (item["status"], item.get("output")) if part))]
            case "computer_call" | "computer_call_output" if self.native & _COMPUTER_TYPES:
                return [item]
            case "computer_call":
                return [self._computer_call_item(item)]
            case "computer_call_output":
                return [_with_visible_parts(_output(item, [_screenshot(item["output"])]), "output")]
            case "additional_tools" | "tool_search_call" | "tool_search_output":
                return self._tools_in_between(item, type_)
            case "compaction":
                return self._compaction(item)
            case _ if type_ in _UNSEEN_ITEMS:
                return []
            case _:
                return self._other(item, type_)

    def _function_call_item(self, item: Item) -> Item:
        namespace = item.get("namespace")
        if namespace is not None and "namespace" in self.native:
            return item
        name = self._name("function", item["name"], namespace)
        return _without(item, "namespace", "caller") | {"name": name}

    def _natively_named(self, item: Item) -> Item:
        """A custom call for an upstream that knows custom tools, but maybe no namespaces."""
        namespace = item.get("namespace")
        if namespace is None or "namespace" in self.native or "name" not in item:
            return item
        return _without(item, "namespace") | {"name": self._name("custom", item["name"], namespace)}

    def _code_interpreter(self, item: Item) -> list[Item]:
        call_id = item.get("call_id") or item["id"][:64]
        code = {"code": item.get("code") or ""}
        call = {"type": "function_call", "call_id": call_id, "name": self._name("code_interpreter", "python")}
        return [
            call | {"arguments": compact_json(code)},
            {"type": "function_call_output", "call_id": call_id, "output": _logs(item.get("outputs"))},
        ]

    def _computer_call_item(self, item: Item) -> Item:
        actions = item.get("actions") or ([item["action"]] if item.get("action") else [])
        type_ = next((o.type for o in self.originals.values() if o.type in _COMPUTER_TYPES), "computer")
        return _call(item, self._name(type_, "computer"), {"actions": actions})

    def _tools_in_between(self, item: Item, type_: str) -> list[Item]:
        """Tools that join the conversation on the way: offered from here on, after those before them."""
        native_type = "additional_tools" if type_ == "additional_tools" else "tool_search"
        if native_type in self.native:
            return [item]
        loaded = item.get("tools") or []
        self.add_tools([_without(tool, "defer_loading") for tool in loaded])
        if item.get("call_id") is None:
            return []
        if type_ == "tool_search_call":
            return [_call(item, self._name("tool_search", "tool_search"), item.get("arguments") or {})]
        listed = ", ".join(name for tool in loaded for name in self._names_of(tool))
        return [_output(item, f"Tools found: {listed}" if listed else "No tool was found.")]

    def _names_of(self, tool: Tool) -> list[str]:
        if tool["type"] == "namespace":
            return [self._name(member["type"], member["name"], tool["name"]) for member in tool["tools"]]
        return [self._name(tool["type"], tool["name"])] if "name" in tool else []

    def _compaction(self, item: Item) -> list[Item]:
        text = self.compaction_text(item)
        if text is not None:
            return [_said("user", text)]
        return [item] if "compaction" in self.native else []

    def _other(self, item: Item, type_: str) -> list[Item]:
        """Calls that another upstream ran by itself (mcp, web_search, image_generation ...): the model reads them as text."""
        tool_type = type_.removesuffix("_call")
        if tool_type in self.native or (type_.startswith("mcp_") and "mcp" in self.native):
            return [item]
        if type_.startswith("program") and "programmatic_tool_calling" in self.native:
            return [item]
        shown = {k: v for k, v in item.items() if k not in ("id", "type", "status", "result", "created_by") and v is not None}
        return [_said("user" if type_ == "mcp_approval_response" else "assistant", f"[{type_}] {compact_json(shown)}")]


# --- text forms ---------------------------------------------------------------------------------------------------------------


def shell_output_text(outputs: list[dict[str, Any]]) -> str:
    """What the model reads of a ``shell_call_output``: exit code or time-out, stdout and stderr of each command."""
    blocks = [_command_text(output) for output in outputs]
    if len(blocks) == 1:
        return blocks[0]
    return "\n\n".join(f"# command {number} of {len(blocks)}\n{block}" for number, block in enumerate(blocks, 1))


def _command_text(output: dict[str, Any]) -> str:
    outcome = output["outcome"]
    head = "timed out" if outcome["type"] == "timeout" else f"exit code {outcome['exit_code']}"
    stdout, stderr = (output.get(stream, "").rstrip("\n") for stream in ("stdout", "stderr"))
    lines = [f"[{head}]"]
    if stdout:
        lines.append(stdout)
    if stderr:
        lines.append(f"[stderr]\n{stderr}")
    return "\n".join(lines)


def _logs(outputs: list[dict[str, Any]] | None) -> str:
    if outputs is None:
        return "(the output was not sent back)"
    texts = [o.get("logs", "") if o["type"] == "logs" else "[image]" for o in outputs]
    return "\n".join(text.rstrip("\n") for text in texts) or "(no output)"


def _said(role: str, text: str) -> Item:
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text}]}


def _call(item: Item, name: str, arguments: Any) -> Item:
    return {"type": "function_call", "call_id": item["call_id"], "name": name, "arguments": compact_json(arguments)}


def _output(item: Item, output: Any) -> Item:
    return {"type": "function_call_output", "call_id": item["call_id"], "output": output}


def _screenshot(output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "detail": "auto"} | {k: output[k] for k in ("image_url", "file_id") if output.get(k)}


def _with_visible_parts(item: Item, key: str) -> Item:
    """A part that names a file only by an id of ours is unknown upstream: the model reads that it is there."""
    parts = item.get(key)
    if not isinstance(parts, list) or not any(_is_only_id(part) for part in parts):
        return item
    return item | {key: [_file_note(part) if _is_only_id(part) else part for part in parts]}


def _is_only_id(part: dict[str, Any]) -> bool:
    return bool(part.get("file_id")) and not any(part.get(key) for key in ("image_url", "file_data", "file_url"))


def _file_note(part: dict[str, Any]) -> dict[str, Any]:
    name = part.get("filename") or part["file_id"]
    return {"type": "input_text", "text": f"[{part['type'].removeprefix('input_')} {name}]"}


def _without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k not in keys} if any(key in value for key in keys) else value


# --- names --------------------------------------------------------------------------------------------------------------------


def _flat_name(name: str, namespace: str | None) -> str:
    whole = name if namespace is None else f"{namespace}__{name}"
    return _shortened(re.sub(r"[^a-zA-Z0-9_-]", "_", whole), whole, always=False)


def _shortened(name: str, identity: str, *, always: bool) -> str:
    """At most 64 characters; what was cut or taken is replaced by a hash of the whole."""
    if len(name) <= _NAME_CHARS_MAX and not always:
        return name
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"{name[: _NAME_CHARS_MAX - 9]}_{digest}"


# --- calls back in their own form -------------------------------------------------------------------------------------------------


def _parsed(arguments: str) -> Any:
    """JSON, also where a model quoted it twice; None if it is no JSON."""
    try:
        value = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError:
        return None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _shell_call(value: dict[str, Any]) -> Item | None:
    """Small models write ``command`` or one string; both are understood."""
    commands = value.get("commands", value.get("command", value.get("cmd")))
    if isinstance(commands, str):
        commands = [commands]
    if not isinstance(commands, list) or not commands or not all(isinstance(c, str) for c in commands):
        return None
    action: dict[str, Any] = {"commands": commands}
    for key in ("timeout_ms", "max_output_length"):
        number = _positive(value.get(key))
        if number is not None:
            action[key] = number
    return {"type": "shell_call", "action": action}


def _positive(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**53 else None


def _code_interpreter_call(value: Any, arguments: str) -> Item:
    code = value.get("code") if isinstance(value, dict) else value
    return {"type": "code_interpreter_call", "code": code if isinstance(code, str) else arguments}


def _local_shell_call(value: dict[str, Any]) -> Item | None:
    command = value.get("command")
    if isinstance(command, str):
        command = ["bash", "-lc", command]
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        return None
    env = value.get("env")
    action: dict[str, Any] = {"type": "exec", "command": command, "env": env if isinstance(env, dict) else {}}
    for key in ("timeout_ms", "user", "working_directory"):
        if value.get(key) is not None:
            action[key] = value[key]
    return {"type": "local_shell_call", "status": "completed", "action": action}


def _apply_patch_call(value: dict[str, Any]) -> Item | None:
    operation = value.get("operation", value)
    if not isinstance(operation, dict):
        return None
    kind, path, diff = operation.get("type"), operation.get("path"), operation.get("diff")
    if not isinstance(path, str):
        return None
    if kind == "delete_file":
        return {"type": "apply_patch_call", "operation": {"type": kind, "path": path}}
    if kind in ("create_file", "update_file") and isinstance(diff, str):
        return {"type": "apply_patch_call", "operation": {"type": kind, "path": path, "diff": diff}}
    return None


def _computer_call(value: dict[str, Any], tool_type: str) -> Item | None:
    actions = value.get("actions", [value.get("action", value)])
    if not isinstance(actions, list) or not all(isinstance(a, dict) and "type" in a for a in actions) or not actions:
        return None
    shape: Item = {"actions": actions} if tool_type == "computer" else {"action": actions[0]}
    return {"type": "computer_call", "status": "completed", "pending_safety_checks": []} | shape
