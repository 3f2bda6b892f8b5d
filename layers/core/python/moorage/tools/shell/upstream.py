"""A shell that the model's upstream hosts: the allowed parts of its definition, and the container of its calls."""

from collections.abc import Iterable
from typing import Any, Final

from moorage import errors
from moorage.tools.room import CallRunner
from moorage.tools.shell.room import Shell
from moorage.wire.types import Item, Tool

_SHELL: Final = Shell()
_FILES: Final = "The upstream does not have the files of this deployment: give them with the input, or upload them to its container."
_MAP: Final = "This model's shell runs at its upstream, and what files there are is known there."
_SECRETS: Final = "This model's shell runs at its upstream, and secrets do not leave this deployment."
_APPROVALS: Final = "This model's shell runs at its upstream, and nobody here can hold its commands back."
_SKILLS: Final = "The upstream does not have the skills of this deployment: give them inline, with container_auto."


def is_hosted(tool: Tool) -> bool:
    return tool["type"] in _SHELL.types and _SHELL.call_runner(tool) is CallRunner.SANDBOX


def check(tool: Tool, param: str) -> None:
    """Raises :class:`~moorage.errors.ApiError` for what lives here and does not go there: files, secrets, approvals, skills by
    their ids."""
    if tool.get("require_approval", "never") != "never":
        raise errors.unsupported_parameter(f"{param}.require_approval", _APPROVALS)
    environment: dict[str, Any] = tool["environment"]
    if environment.get("file_ids"):
        raise errors.unsupported_parameter(f"{param}.environment.file_ids", _FILES)
    if environment.get("file_map"):
        raise errors.unsupported_parameter(f"{param}.environment.file_map", _MAP)
    if environment.get("agents_md"):
        raise errors.unsupported_parameter(f"{param}.environment.agents_md", _MAP)
    if (environment.get("network_policy") or {}).get("domain_secrets"):
        raise errors.unsupported_parameter(f"{param}.environment.network_policy.domain_secrets", _SECRETS)
    for index, skill in enumerate(environment.get("skills") or ()):
        if skill["type"] != "inline" or environment["type"] != "container_auto":
            raise errors.unsupported_parameter(f"{param}.environment.skills[{index}]", _SKILLS)


def container_of(item: Item) -> str | None:
    """The container that a call names; None for every other item."""
    return _SHELL.container_id(item) if item["type"] == _SHELL.call_type else None


def at_clients(item: Item) -> Item:
    """A call as one that its client has run."""
    return item | {"environment": {"type": "local"}}


def answered(items: Iterable[Item]) -> set[str]:
    """The calls that have an output, by call id."""
    return {item["call_id"] for item in items if item["type"] == _SHELL.output_type}
