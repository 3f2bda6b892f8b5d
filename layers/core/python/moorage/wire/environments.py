"""The container of a request's hosted calls: shell, code interpreter and workspace tools of a response share one."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from moorage.dataclass import dataclass
from moorage.wire.network_policy import NetworkPolicy
from moorage.wire.refusals import wrong_value
from moorage.wire.types import Tool

WORKSPACE: Final = "moorage://workspace"
"""The address of the server that is built in: its tools run in the response's container."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The one container for all calls of shell, code interpreter, computer and workspace.

    ``local`` (also: a shell without an environment) means that the client runs them.
    """

    type: Literal["container_auto", "container_reference", "local"]
    container_id: str | None = None
    param: str = "tools"
    """The field that names the container, for errors about it."""
    file_ids: Mapping[str, str] = field(default_factory=dict)
    """Each with the field that names it, for errors about it."""
    memory_limit: str | None = None
    network_policy: NetworkPolicy | None = None
    skills: tuple[dict[str, Any], ...] = ()
    """As they are asked for: references, and bundles."""
    skills_param: str = "tools"
    """The field that holds them, for errors about it."""
    has_file_map: bool = False
    """The model is to be told which files there are."""
    agents_md: str | None = None
    """The folder whose ``AGENTS.md``, and those of the folders above, the model is to be told."""

    @property
    def is_hosted(self) -> bool:
        return self.type != "local"


@dataclass(frozen=True, slots=True)
class _ContainerRequest:
    """One tool's request to the response's container."""

    index: int
    kind: str
    """The tool's type."""
    place: str
    """The field that holds it."""
    fields: dict[str, Any]
    """As in the shell's environment."""
    is_bare: bool = False
    """The field holds the container's id and nothing else."""

    @property
    def param(self) -> str:
        """The field that names the container."""
        return f"tools[{self.index}].{self.place}" + ("" if self.is_bare else ".container_id")

    def path(self, name: str) -> tuple[int | str, ...]:
        is_bare = self.is_bare and name == "container_id"
        return (self.index, self.place) if is_bare else (self.index, self.place, name)


def _containers(tools: Sequence[Tool]) -> list[_ContainerRequest]:
    asked = []
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "shell", "environment": {"type": "container_auto" | "container_reference"} as environment}:
                asked.append(_ContainerRequest(index, "shell", "environment", environment))
            case {"type": "code_interpreter", "container": str(container_id)}:
                asked.append(_ContainerRequest(index, "code_interpreter", "container", {"container_id": container_id}, is_bare=True))
            case {"type": "code_interpreter", "container": container}:
                asked.append(_ContainerRequest(index, "code_interpreter", "container", container))
            case {"type": "computer" | "computer_use_preview", "container": container}:
                asked.append(_ContainerRequest(index, "computer", "container", container))
            case {"type": "programmatic_tool_calling" as kind}:
                asked.append(_ContainerRequest(index, kind, "environment", {}))
            case {"type": "mcp", "server_url": str(url)} if url == WORKSPACE:
                asked.append(_ContainerRequest(index, "mcp", "environment", tool.get("environment") or {}))
    return asked


def check_containers(tools: Sequence[Tool]) -> None:
    """There is one shell and one code interpreter at most, and one container for all that run in one."""
    for kind in ("shell", "code_interpreter"):
        given = [index for index, tool in enumerate(tools) if tool["type"] == kind]
        if len(given) > 1:
            raise wrong_value(f"only one {kind} tool can be given.", given[1])
    _check_one_container(tools)
    _check_patterns(tools)


def _check_patterns(tools: Sequence[Tool]) -> None:
    """Python runs any command, unseen by any pattern. So a list of the only allowed commands excludes the code interpreter."""
    by_type = {tool["type"]: (index, tool) for index, tool in enumerate(tools)}
    if "code_interpreter" not in by_type or "shell" not in by_type:
        return
    if by_type["code_interpreter"][1].get("require_approval") == "always":
        return
    index, shell = by_type["shell"]
    asked = shell.get("require_approval", "never")
    freed = asked.get("never", {}).get("commands", ()) if isinstance(asked, dict) else ("*",) if asked == "never" else ()
    if "*" not in freed:
        raise wrong_value(
            "the code interpreter runs what it likes in the same container: have it ask too, by its own 'require_approval': 'always', "
            "leave that tool out, or free all but what 'always' names, by 'never': {'commands': ['*']}.",
            index,
            "require_approval",
        )


def _check_one_container(tools: Sequence[Tool]) -> None:
    """Tools run in one container, so that they see the same files: they cannot ask for different ones."""
    for first, second in itertools.combinations(_containers(tools), 2):
        other = f"'tools[{first.index}]'"
        both = _named(first.kind, second.kind)
        for name in ("container_id", "memory_limit", "network_policy"):
            if name in first.fields and name in second.fields and first.fields[name] != second.fields[name]:
                raise wrong_value(f"{both} share one container, and {other} asks for another '{name}'.", *second.path(name))
        for fixed, new in ((first, second), (second, first)):
            for name in ("memory_limit", "network_policy"):
                if "container_id" in fixed.fields and name in new.fields:
                    raise wrong_value(
                        f"{both} share the container that 'tools[{fixed.index}]' names, and its '{name}' is fixed.",
                        *new.path(name),
                    )


def _named(first: str, second: str) -> str:
    """Two tools, for errors about them."""
    for kind, name in (("mcp", "the workspace"), ("computer", "the computer")):
        if kind in (first, second):
            return f"{name} and the other hosted tools"
    return "shell and code interpreter"


def environment(tools: Sequence[Tool]) -> Environment | None:
    """The container of hosted calls, secrets included; None without any tool that needs one."""
    asked = _containers(tools)
    if not asked:
        return Environment("local") if any(tool["type"] == "shell" for tool in tools) else None
    fields = {name: value for one in asked for name, value in one.fields.items()}
    naming = next((one for one in asked if "container_id" in one.fields), None)
    file_ids: dict[str, str] = {}
    for one in asked:
        for at, file_id in enumerate(one.fields.get("file_ids", ())):
            file_ids.setdefault(file_id, f"tools[{one.index}].{one.place}.file_ids[{at}]")
    skilled = next((one for one in asked if one.fields.get("skills")), None)
    return Environment(
        type="container_auto" if naming is None else "container_reference",
        container_id=fields.get("container_id"),
        param="tools" if naming is None else naming.param,
        file_ids=file_ids,
        memory_limit=fields.get("memory_limit"),
        network_policy=fields.get("network_policy"),
        skills=() if skilled is None else tuple(skilled.fields["skills"]),
        skills_param="tools" if skilled is None else f"tools[{skilled.index}].{skilled.place}.skills",
        has_file_map=any(one.fields.get("file_map") for one in asked),
        agents_md=next((one.fields["agents_md"] for one in asked if "agents_md" in one.fields), None),
    )


def run_by_the_client(tools: Sequence[Tool]) -> list[str]:
    """A notice for a shell without an environment: OpenAI's protocol means the client's, and newcomers mostly mean another."""
    said = "A shell without an environment is run by the client: environment.type 'container_auto' runs it here."
    return [said for tool in tools if tool["type"] == "shell" and "environment" not in tool]


def takes_skills(tools: Sequence[Tool]) -> bool:
    """Whether there is a hosted shell to read skills by."""
    return any(one.kind == "shell" for one in _containers(tools))


def with_skills(tools: Sequence[Tool], skills: Sequence[dict[str, Any]]) -> tuple[Tool, ...]:
    """The tools with a hosted shell's resolved skills in place of the requested ones."""
    return tuple(_with_skills(tool, skills) for tool in tools)


def _with_skills(tool: Tool, skills: Sequence[dict[str, Any]]) -> Tool:
    environment = tool.get("environment")
    if tool["type"] != "shell" or not environment or environment["type"] == "local":
        return tool
    others = {name: value for name, value in environment.items() if name != "skills"}
    return {**tool, "environment": {**others, "skills": list(skills)} if skills else others}


def unplaced(tools: Sequence[Tool]) -> list[Tool]:
    """Stored tools as a fork has them: in no container yet, and without the secrets of the first one."""
    return [_unplaced(tool) for tool in tools]


def _unplaced(tool: Tool) -> Tool:
    match tool:
        case {"type": "shell", "environment": {"type": "container_auto" | "container_reference"} as environment}:
            skills = {"skills": environment["skills"]} if environment.get("skills") else {}
            return {**tool, "environment": {"type": "container_auto", **skills}}
        case {"type": "code_interpreter"}:
            return {**tool, "container": {"type": "auto"}}
        case {"type": "computer" | "computer_use_preview", "container": _}:
            return {**tool, "container": {"type": "container_auto"}}
        case _:
            return tool


def redacted(tools: Sequence[Tool]) -> list[Tool]:
    """The same tools without the values of secrets, for storage and everything after it."""
    return [_redacted(tool) for tool in tools]


def _redacted(tool: Tool) -> Tool:
    place = "container" if "container" in tool else "environment"
    environment = tool.get(place)
    if not isinstance(environment, dict) or "network_policy" not in environment:
        return tool
    return {**tool, place: {**environment, "network_policy": environment["network_policy"].to_json()}}
