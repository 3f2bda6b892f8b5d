"""``shell = "upstream"``: a model with its hosted shell in the containers of its own upstream.

The tool goes there as it came, and its items and events come back as the upstream makes them. The remaining work here is to keep
tenants from each other's containers (the upstream knows only the operator), and to refuse input that would be lost on the way.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from moorage import errors
from moorage.errors import UpstreamError
from moorage.loop.decide import is_upstreams
from moorage.model.catalog import ModelEntry
from moorage.stores import Stores
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallRunner
from moorage.tools.shell.room import Shell
from moorage.wire.requests import CreateRequest
from moorage.wire.types import Item, Tool

_LOST: Final = (
    "The model's upstream broke off while its own container ran a command. The command is not run again, and what came of it is not "
    "known."
)
_SHELL: Final = Shell()
_FILES: Final = "The upstream does not have the files of this deployment: give them with the input, or upload them to its container."
_MAP: Final = "This model's shell runs at its upstream, and what files there are is known there."
_SECRETS: Final = "This model's shell runs at its upstream, and secrets do not leave this deployment."
_APPROVALS: Final = "This model's shell runs at its upstream, and nobody here can hold its commands back."
_SKILLS: Final = "The upstream does not have the skills of this deployment: give them inline, with container_auto."


def goes_there(entry: ModelEntry, tools: Sequence[Tool]) -> bool:
    """Whether the shell of these tools is hosted by the model's upstream."""
    return entry.shell == "upstream" and any(map(_is_hosted, tools))


async def admit(stores: Stores, tenant_id: str, entry: ModelEntry, request: CreateRequest) -> None:
    """Raises :class:`~moorage.errors.ApiError` for options that the upstream lacks, and for a container that is not the tenant's."""
    there = f"The hosted shell of the model '{entry.name}' runs at its upstream"
    for index, tool in enumerate(request.tools):
        room = ROOMS.of_tool(tool["type"])
        if _is_hosted(tool):
            if entry.provider_kind != "openai_responses":
                raise errors.shell_passthrough_unsupported(entry.name, entry.provider_kind, param=f"tools[{index}]")
            _check(tool, f"tools[{index}]")
        elif room is not None and room.call_runner(tool) is CallRunner.SANDBOX:
            raise errors.unsupported_value(f"tools[{index}].type", tool["type"], f"{there}, and this tool would not see its files.")
    environment = request.environment
    named = None if environment is None else environment.container_id
    if named is not None and await stores.upstream_containers.model_of(tenant_id, named) is None:
        raise errors.not_found(
            f"Container with id '{named}' not found. {there}: only a container that an earlier response of yours made there can be "
            "used again.",
            param="tools" if environment is None else environment.param,
            code="container_not_found",
        )


async def with_own_containers(stores: Stores, tenant_id: str, items: Sequence[Item]) -> list[Item]:
    """The items as the upstream may read them.

    A call that ran elsewhere becomes a client's call: its container is unknown to the upstream, or is another tenant's, and naming it
    would open it.
    """
    named = {container_id for item in items if (container_id := _container_of(item)) is not None}
    known = await stores.upstream_containers.known(tenant_id, named)
    return [item if (container_id := _container_of(item)) is None or container_id in known else _at_clients(item) for item in items]


async def note(stores: Stores, tenant_id: str, model: str, item: Item, noted: set[str]) -> None:
    """Before a client reads of a container, it is the tenant's. ``noted`` are those noted already."""
    container_id = _container_of(item)
    if container_id is not None and container_id not in noted:
        await stores.upstream_containers.note(tenant_id, container_id, model)
        noted.add(container_id)


def check_answered(items: Sequence[Item], own_container: str | None) -> None:
    """Raises :class:`UpstreamError` for a call that the upstream has begun and not answered: asking again would run it twice."""
    done = _answered(items)
    if any(is_upstreams(item, own_container) and item["call_id"] not in done for item in items):
        raise UpstreamError(_LOST, is_retryable=False)


def _is_hosted(tool: Tool) -> bool:
    return tool["type"] in _SHELL.types and _SHELL.call_runner(tool) is CallRunner.SANDBOX


def _check(tool: Tool, param: str) -> None:
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


def _container_of(item: Item) -> str | None:
    """The container that a call names; None for every other item."""
    return _SHELL.container_id(item) if item["type"] == _SHELL.call_type else None


def _at_clients(item: Item) -> Item:
    """A call as one that its client has run."""
    return item | {"environment": {"type": "local"}}


def _answered(items: Iterable[Item]) -> set[str]:
    """The calls that have an output, by call id."""
    return {item["call_id"] for item in items if item["type"] == _SHELL.output_type}
