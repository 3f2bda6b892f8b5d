"""The tool definitions of a request.

Three kinds of tools exist for us. *Client* tools (function, custom, namespace, local shell, apply_patch, computer, tool_search with
``execution: client``) are offered to the model, and the client runs the calls. The *hosted* tools (shell in a container, code
interpreter) are run by the loop, all in the response's one container. All others are refused by name; ``docs/parameters.md`` has the
row and the reason of each.

The values of domain secrets live in :class:`~moorage.wire.network_policy.DomainSecret` alone: a tool that is stored, echoed or
logged has been through :func:`redacted`, and keeps what the policy shows.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage import errors, limits
from moorage.errors import ApiError
from moorage.wire.network_policy import JSON_SCHEMA, NetworkPolicy, parse_network_policy, refusal
from moorage.wire.shapes import (
    Problem,
    RefusedType,
    Shape,
    Tagged,
    Validator,
    array,
    boolean,
    choice,
    constant,
    described,
    free,
    free_object,
    integer,
    only,
    refused,
    schema_of,
    text,
    wrong_type,
    wrong_value,
)

Tool = dict[str, Any]

SKILLS_REASON: Final = "Skills are not available in this version."
PROGRAMMATIC_REASON: Final = "Programmatic tool calling is not available in this version: only 'direct' callers are supported."
ASYNC_REASON: Final = "Asynchronous tool outputs are not available in this version: send every output with the next request."
WEB_SEARCH_REASON: Final = (
    "This deployment does not search the web. Leave the tool out, send 'external_web_access': false, or give the model a shell "
    "with a network policy."
)

REFUSED_TOOLS: Final[dict[str, str]] = {
    "file_search": "Vector stores are not available in this version: put files into a container with the shell tool's 'file_ids'.",
    "mcp": "Remote MCP servers are not available in this version: offer their tools as functions.",
    "image_generation": "Image generation is not available in this version.",
    "programmatic_tool_calling": "Programmatic tool calling is not available in this version.",
}
"""Tool types that are refused by name, with the sentence that the caller reads."""

WEB_SEARCH_TOOLS: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the calls of the shell and of the code interpreter run: one container for both. ``local`` (also: a shell without an
    environment) means that the client runs them."""

    type: Literal["container_auto", "container_reference", "local"]
    container_id: str | None = None
    param: str = "tools"
    """The field that names the container, for errors about it."""
    file_ids: tuple[str, ...] = ()
    memory_limit: str | None = None
    network_policy: NetworkPolicy | None = None

    @property
    def is_hosted(self) -> bool:
        return self.type != "local"


# --- The shapes -------------------------------------------------------------------------------------------------------------


@described({"type": "array", "items": {"const": "direct"}, "minItems": 1, "maxItems": 2})
def _allowed_callers(value: Any) -> list[str]:
    callers: list[str] = _callers(value)
    if "programmatic" in callers:
        index = callers.index("programmatic")
        raise Problem(lambda param: errors.unsupported_value(param, "programmatic", PROGRAMMATIC_REASON), index)
    return callers


_callers: Final = array(choice("direct", "programmatic"), items_min=1, items_max=2)
_description: Final = text()
_schema: Final = free_object

_FUNCTION: Final = Shape(
    {
        "type": constant("function"),
        "name": text(chars_min=1, chars_max=limits.NAME_CHARS_MAX, pattern="[a-zA-Z0-9_-]+"),
    },
    {
        "description": _description,
        "parameters": _schema,
        "strict": boolean,
        "output_schema": _schema,
        "defer_loading": boolean,
        "allowed_callers": _allowed_callers,
        "async": only(False, ASYNC_REASON),
        "function": refused("This is the form of chat completions: put 'name', 'description' and 'parameters' beside 'type'."),
    },
)

_CUSTOM_FORMAT: Final = Tagged(
    {
        "text": Shape({"type": constant("text")}),
        "grammar": Shape(
            {
                "type": constant("grammar"),
                "syntax": choice("lark", "regex"),
                "definition": text(chars_min=1, chars_max=limits.GRAMMAR_CHARS_MAX),
            }
        ),
    }
)

_CUSTOM: Final = Shape(
    {"type": constant("custom"), "name": text(chars_min=1, chars_max=limits.NAME_CHARS_MAX)},
    {
        "description": _description,
        "format": _CUSTOM_FORMAT,
        "defer_loading": boolean,
        "allowed_callers": _allowed_callers,
        "async": only(False, ASYNC_REASON),
    },
)


def _names_are_unique(namespace: dict[str, Any]) -> None:
    _refuse_duplicates([tool["name"] for tool in namespace["tools"]], "tools")


def _refuse_duplicates(names: list[str], *steps: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise wrong_value(f"there is already a tool called '{name}'.", *steps, index, "name")
        seen.add(name)


_NAMESPACE: Final = Shape(
    {
        "type": constant("namespace"),
        "name": text(chars_min=1, chars_max=limits.NAMESPACE_NAME_CHARS_MAX, pattern="[a-zA-Z0-9_-]+"),
        "description": _description,
        "tools": array(Tagged({"function": _FUNCTION, "custom": _CUSTOM}), items_min=1, items_max=limits.TOOLS_MAX),
    },
    check=_names_are_unique,
)


@described(dict(JSON_SCHEMA))
def network_policy(value: Any) -> NetworkPolicy:
    try:
        return parse_network_policy(value, "network_policy")
    except ApiError:
        raise Problem(lambda param: refusal(value, param)) from None


_container_id: Final = text(chars_min=1, chars_max=limits.ITEM_ID_CHARS_MAX)
_NEW_CONTAINER: Final[dict[str, Validator]] = {
    "file_ids": array(text(chars_min=1, chars_max=limits.ITEM_ID_CHARS_MAX), items_max=limits.CONTAINER_FILE_IDS_MAX),
    "memory_limit": choice(*limits.MEMORY_LIMITS),
    "network_policy": network_policy,
}
_CONTAINER_AUTO: Final = Shape(
    {"type": constant("container_auto")},
    {**_NEW_CONTAINER, "skills": array(refused(SKILLS_REASON))},
)
_CONTAINER_REFERENCE: Final = Shape({"type": constant("container_reference"), "container_id": _container_id})
_AUTO: Final = Shape({"type": constant("auto")}, _NEW_CONTAINER)


@described({"anyOf": [schema_of(_container_id), _AUTO.schema]})
def _container(value: Any) -> Any:
    """The code interpreter's container: an id, or ``auto``."""
    if type(value) is str:
        return _container_id(value)
    if type(value) is not dict:
        raise wrong_type("a string or an object", value)
    return _AUTO(value)


_CODE_INTERPRETER: Final = Shape({"type": constant("code_interpreter"), "container": _container}, {"allowed_callers": _allowed_callers})

LOCAL_SKILL: Final = Shape(
    {"name": text(chars_min=1), "description": text(), "path": text(chars_min=1)},
)

LOCAL_ENVIRONMENT: Final = Shape({"type": constant("local")}, {"skills": array(LOCAL_SKILL, items_max=200)})


def _shell(environments: dict[str, Validator]) -> Shape:
    return Shape(
        {"type": constant("shell")},
        {"environment": Tagged(environments), "allowed_callers": _allowed_callers},
    )


_USER_LOCATION: Final = Shape(
    {},
    {
        "type": constant("approximate"),
        "city": text(),
        "country": text(),
        "region": text(),
        "timezone": text(),
    },
)


def _web_search(name: str) -> Shape:
    """``search_content_types`` belongs to the preview types, but Codex CLI 0.169 sends it with ``web_search`` too."""
    return Shape(
        {"type": constant(name)},
        {
            "external_web_access": boolean,
            "filters": Shape({}, {"allowed_domains": array(text())}),
            "search_context_size": choice("low", "medium", "high"),
            "search_content_types": array(choice("text", "image")),
            "user_location": _USER_LOCATION,
        },
    )


_SERVER_SEARCH_REASON: Final = "Tool search runs in the client only: send 'execution': 'client'."


@described({"const": "client"})
def client_execution(value: Any) -> str:
    execution: str = _executions(value)
    if execution != "client":
        raise Problem(lambda param: errors.unsupported_value(param, "server", _SERVER_SEARCH_REASON))
    return execution


_executions: Final = choice("server", "client")


def _says_where_it_runs(tool: dict[str, Any]) -> None:
    """The API's default is ``server``."""
    if "execution" not in tool:
        raise Problem(lambda param: errors.unsupported_value(param, "server", _SERVER_SEARCH_REASON), "execution")


_TOOL_SEARCH: Final = Shape(
    {"type": constant("tool_search")},
    {"execution": client_execution, "description": _description, "parameters": free},
    check=_says_where_it_runs,
)

_COMPUTER_USE_PREVIEW: Final = Shape(
    {
        "type": constant("computer_use_preview"),
        "display_height": integer(minimum=1),
        "display_width": integer(minimum=1),
        "environment": choice("windows", "mac", "linux", "ubuntu", "browser"),
    }
)


def _shapes(shell_environments: dict[str, Validator], code_interpreter: Validator) -> dict[str, Validator]:
    return {
        "function": _FUNCTION,
        "custom": _CUSTOM,
        "namespace": _NAMESPACE,
        "shell": _shell(shell_environments),
        "code_interpreter": code_interpreter,
        "local_shell": Shape({"type": constant("local_shell")}),
        "apply_patch": Shape({"type": constant("apply_patch")}, {"allowed_callers": _allowed_callers}),
        "computer": Shape({"type": constant("computer")}),
        "computer_use_preview": _COMPUTER_USE_PREVIEW,
        "tool_search": _TOOL_SEARCH,
        **{name: _web_search(name) for name in WEB_SEARCH_TOOLS},
        **{name: RefusedType(reason) for name, reason in REFUSED_TOOLS.items()},
    }


_HOSTED_IN_ITEM: Final = "A hosted tool stands in 'tools' of the request, because its container belongs to the response."

TOOL: Final = Tagged(
    _shapes(
        {"container_auto": _CONTAINER_AUTO, "container_reference": _CONTAINER_REFERENCE, "local": LOCAL_ENVIRONMENT},
        _CODE_INTERPRETER,
    )
)
"""A tool in ``tools`` of a request."""

ITEM_TOOL: Final = Tagged(
    _shapes(
        {
            "container_auto": RefusedType(_HOSTED_IN_ITEM),
            "container_reference": RefusedType(_HOSTED_IN_ITEM),
            "local": LOCAL_ENVIRONMENT,
        },
        RefusedType(_HOSTED_IN_ITEM),
    )
)
"""A tool inside an ``additional_tools`` or ``tool_search_output`` item."""


def _tools_belong_together(tools: list[Tool]) -> None:
    _refuse_duplicates([tool.get("name", f"\0{index}") for index, tool in enumerate(tools)])
    for kind in ("shell", "code_interpreter"):
        given = [index for index, tool in enumerate(tools) if tool["type"] == kind]
        if len(given) > 1:
            raise wrong_value(f"only one {kind} tool can be given.", given[1])
    _one_container_fits_all(_containers(tools))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one tool wants of the response's container."""

    index: int
    place: str
    """The field that holds it."""
    fields: dict[str, Any]
    """As in the shell's environment."""

    @property
    def param(self) -> str:
        """The field that names the container."""
        return f"tools[{self.index}].{self.place}" + (".container_id" if self.place == "environment" else "")

    def path(self, name: str) -> tuple[int | str, ...]:
        is_bare = self.place == "container" and name == "container_id"
        return (self.index, self.place) if is_bare else (self.index, self.place, name)


def _containers(tools: list[Tool]) -> list[_Asked]:
    asked = []
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "shell", "environment": {"type": "container_auto" | "container_reference"} as environment}:
                asked.append(_Asked(index, "environment", environment))
            case {"type": "code_interpreter", "container": str(container_id)}:
                asked.append(_Asked(index, "container", {"container_id": container_id}))
            case {"type": "code_interpreter", "container": container}:
                asked.append(_Asked(index, "container", container))
    return asked


def _one_container_fits_all(asked: list[_Asked]) -> None:
    """Shell and code interpreter run in one container, so that they see the same files: they cannot ask for different ones."""
    for first, second in itertools.pairwise(asked):
        other = f"'tools[{first.index}]'"
        for name in ("container_id", "memory_limit", "network_policy"):
            if name in first.fields and name in second.fields and first.fields[name] != second.fields[name]:
                raise wrong_value(
                    f"shell and code interpreter share one container, and {other} asks for another '{name}'.", *second.path(name)
                )
        for fixed, new in ((first, second), (second, first)):
            for name in ("memory_limit", "network_policy"):
                if "container_id" in fixed.fields and name in new.fields:
                    raise wrong_value(
                        f"shell and code interpreter share the container that 'tools[{fixed.index}]' names, and its '{name}' is fixed.",
                        *new.path(name),
                    )


_tool_list: Final = array(TOOL, items_max=limits.TOOLS_MAX)


@described({"type": "array", "items": {"$ref": "#/components/schemas/Tool"}, "maxItems": limits.TOOLS_MAX})
def tool_list(value: Any) -> list[Tool]:
    """``tools`` in canonical form, secrets still inside: see :func:`redacted`."""
    tools: list[Tool] = _tool_list(value)
    _tools_belong_together(tools)
    return tools


def redacted(tools: list[Tool]) -> list[Tool]:
    """The same tools without the values of secrets, for storage and everything after it."""
    return [_redacted(tool) for tool in tools]


def _redacted(tool: Tool) -> Tool:
    place = "container" if tool["type"] == "code_interpreter" else "environment"
    environment = tool.get(place)
    if not isinstance(environment, dict) or "network_policy" not in environment:
        return tool
    return {**tool, place: {**environment, "network_policy": environment["network_policy"].to_json()}}


def environment(tools: list[Tool]) -> Environment | None:
    """Where the calls of shell and code interpreter run, secrets included; None without either of them."""
    asked = _containers(tools)
    if not asked:
        return Environment("local") if any(tool["type"] == "shell" for tool in tools) else None
    fields = {name: value for one in asked for name, value in one.fields.items()}
    naming = next((one for one in asked if "container_id" in one.fields), None)
    file_ids = dict.fromkeys(file_id for one in asked for file_id in one.fields.get("file_ids", ()))
    return Environment(
        type="container_auto" if naming is None else "container_reference",
        container_id=fields.get("container_id"),
        param="tools" if naming is None else naming.param,
        file_ids=tuple(file_ids),
        memory_limit=fields.get("memory_limit"),
        network_policy=fields.get("network_policy"),
    )


# --- tool_choice -------------------------------------------------------------------------------------------------------------

_NAMED: Final = {"name": text(chars_min=1, chars_max=limits.NAME_CHARS_MAX)}
_REFUSED_CHOICES: Final = {**REFUSED_TOOLS, **dict.fromkeys(WEB_SEARCH_TOOLS, WEB_SEARCH_REASON)}

_CHOICE_SHAPES: Final[dict[str, Validator]] = {
    "function": Shape({"type": constant("function"), **_NAMED}),
    "custom": Shape({"type": constant("custom"), **_NAMED}),
    **{
        name: Shape({"type": constant(name)})
        for name in (
            "shell",
            "code_interpreter",
            "local_shell",
            "apply_patch",
            "computer",
            "computer_use_preview",
            "computer_use",
            "tool_search",
        )
    },
    **{name: RefusedType(reason) for name, reason in _REFUSED_CHOICES.items()},
}

_ALLOWED_TOOL: Final = Tagged({**_CHOICE_SHAPES, "namespace": Shape({"type": constant("namespace"), **_NAMED})})

TOOL_CHOICE_OBJECT: Final = Tagged(
    {
        **_CHOICE_SHAPES,
        "allowed_tools": Shape(
            {
                "type": constant("allowed_tools"),
                "mode": choice("auto", "required"),
                "tools": array(_ALLOWED_TOOL, items_min=1, items_max=limits.TOOLS_MAX),
            }
        ),
    }
)

_word_choice: Final = choice("none", "auto", "required")


@described({"$ref": "#/components/schemas/ToolChoice"})
def tool_choice(value: Any) -> str | dict[str, Any]:
    if type(value) is str:
        word: str = _word_choice(value)
        return word
    chosen: dict[str, Any] = TOOL_CHOICE_OBJECT(value)
    return chosen


def is_offered(chosen: dict[str, Any], tools: Sequence[Tool]) -> bool:
    """Whether a chosen tool (``{"type", "name"?}``) is among ``tools``, namespaces included."""
    wanted = (_COMPUTERS.get(chosen["type"], chosen["type"]), chosen.get("name"))
    return any(
        (_COMPUTERS.get(tool["type"], tool["type"]), tool.get("name") if wanted[1] is not None else None) == wanted
        or (tool["type"] == "namespace" and is_offered(chosen, tool["tools"]))
        for tool in tools
    )


_COMPUTERS: Final = {"computer_use": "computer", "computer_use_preview": "computer"}
"""Three names for one tool in ``tool_choice``."""
